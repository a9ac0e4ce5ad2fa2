// SPDX-License-Identifier: Apache-2.0
// A CUDA device by its primary context, which other libraries of the process share. Streams, events
// and graphs are the driver's own; what is kept here are the kernels' parameters.
#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "tandem/backend/gpu/cuda/cublaslt_internal.h"
#include "tandem/backend/gpu/cuda/cudnn_internal.h"
#include "tandem/backend/gpu/cuda/library_internal.h"
#include "tandem/backend/gpu/cuda/nccl_internal.h"
#include "tandem/backend/gpu/cuda/nvrtc.h"
#include "tandem/backend/gpu/modules_internal.h"

namespace tandem::gpu {
namespace {

// A library that the first question opens.
template <class Library>
class AskedFor {
 public:
  template <class Open>
  Library* get(Open&& open, Status& why) {
    std::call_once(asked_, [&] { problem_ = open(library_); });
    why = problem_;
    return library_.get();
  }
  void close() { library_.reset(); }

 private:
  std::once_flag asked_;
  std::unique_ptr<Library> library_;
  Status problem_;
};

class CudaContext final : public Context {
 public:
  explicit CudaContext(const CudaLibrary& library) : api_(library.api) {}
  ~CudaContext() override;
  /// Once, before anything else.
  Status open(const CudaLibrary& library, int device);

#include "tandem/backend/gpu/context_overrides.inc"

  MatmulLibrary* matmul_library(Status& why) override;
  ConvLibrary* conv_library(Status& why) override;
  RanksLibrary* ranks_library(Status& why) override;

 private:
  using Table = Modules<cuda::Function, cuda::Module>;

  // With this context on the calling thread: one call of the driver.
  template <class Function, class... Args>
  Status call(const char* name, Function function, Args... arguments) {
    if (const cuda::Result r = api_.cuCtxSetCurrent(context_); r != cuda::kSuccess) {
      return cuda_status(api_, r, "cuCtxSetCurrent");
    }
    const cuda::Result r = function(arguments...);
    if (r == cuda::kSuccess) return {};
    return cuda_status(api_, r, name);
  }
  static cuda::Stream of(StreamRef s) { return reinterpret_cast<cuda::Stream>(s); }
  static cuda::Event of(EventRef e) { return reinterpret_cast<cuda::Event>(e); }

  const cuda::Api& api_;
  DeviceInfo info_;
  cuda::DeviceNumber device_ = 0;
  cuda::Context context_ = nullptr;
  std::mutex lock_;  // guards what follows
  Table modules_;
  std::map<StreamRef, bool> streams_;
  AskedFor<MatmulLibrary> matmuls_;
  AskedFor<ConvLibrary> convs_;
  AskedFor<RanksLibrary> ranks_;
};

// The driver's call of that name with its arguments.
#define TD_CUDA(name, ...) call(#name, api_.name __VA_OPT__(, ) __VA_ARGS__)

Status CudaContext::open(const CudaLibrary& library, int device) {
  TD_GPU_TRY(cuda_info(library, device, info_));
  TD_GPU_TRY(cuda_status(api_, api_.cuDeviceGet(&device_, device), "cuDeviceGet"));
  return cuda_status(api_, api_.cuDevicePrimaryCtxRetain(&context_, device_),
                     "cuDevicePrimaryCtxRetain");
}

CudaContext::~CudaContext() {
  if (!context_) return;
  (void)synchronize();
  matmuls_.close();
  convs_.close();
  ranks_.close();
  for (const auto& [ref, module] : modules_) (void)TD_CUDA(cuModuleUnload, module->owner);
  for (const auto& [stream, made] : streams_) (void)TD_CUDA(cuStreamDestroy_v2, of(stream));
  api_.cuDevicePrimaryCtxRelease_v2(device_);
}

// ---- memory

Status CudaContext::allocate(size_t bytes, Address& at) {
  cuda::Pointer p = 0;
  TD_GPU_TRY(TD_CUDA(cuMemAlloc_v2, &p, bytes));
  at = p;
  return {};
}
Status CudaContext::release(Address at) { return TD_CUDA(cuMemFree_v2, at); }

Status CudaContext::memory(int64_t& free, int64_t& total) {
  size_t f = 0, t = 0;
  TD_GPU_TRY(TD_CUDA(cuMemGetInfo_v2, &f, &t));
  free = static_cast<int64_t>(f);
  total = static_cast<int64_t>(t);
  return {};
}

Status CudaContext::allocate_host(size_t bytes, void*& at) {
  return TD_CUDA(cuMemHostAlloc, &at, bytes, cuda::kHostPortable);
}
Status CudaContext::release_host(void* at) { return TD_CUDA(cuMemFreeHost, at); }

// ---- streams and events

Status CudaContext::create_stream(const std::string&, StreamRef& stream) {
  cuda::Stream s = nullptr;
  TD_GPU_TRY(TD_CUDA(cuStreamCreate, &s, cuda::kStreamNonBlocking));
  stream = reinterpret_cast<StreamRef>(s);
  std::lock_guard hold(lock_);
  streams_[stream] = true;
  return {};
}

Status CudaContext::destroy_stream(StreamRef stream) {
  {
    std::lock_guard hold(lock_);
    if (streams_.erase(stream) == 0) return {Code::bad_argument, "destroy_stream: no such stream"};
  }
  return TD_CUDA(cuStreamDestroy_v2, of(stream));
}

Status CudaContext::copy_in(Address to, const void* host, size_t bytes, StreamRef stream) {
  return TD_CUDA(cuMemcpyHtoDAsync_v2, to, host, bytes, of(stream));
}
Status CudaContext::copy_out(void* host, Address from, size_t bytes, StreamRef stream) {
  return TD_CUDA(cuMemcpyDtoHAsync_v2, host, from, bytes, of(stream));
}
Status CudaContext::copy(Address to, Address from, size_t bytes, StreamRef stream) {
  return TD_CUDA(cuMemcpyDtoDAsync_v2, to, from, bytes, of(stream));
}
Status CudaContext::fill(Address to, uint8_t value, size_t bytes, StreamRef stream) {
  return TD_CUDA(cuMemsetD8Async, to, value, bytes, of(stream));
}
Status CudaContext::synchronize_stream(StreamRef stream) {
  return TD_CUDA(cuStreamSynchronize, of(stream));
}
Status CudaContext::synchronize() { return TD_CUDA(cuCtxSynchronize); }

Status CudaContext::create_event(EventRef& event) {
  cuda::Event e = nullptr;
  TD_GPU_TRY(TD_CUDA(cuEventCreate, &e, cuda::kEventDefault));
  event = reinterpret_cast<EventRef>(e);
  return {};
}
Status CudaContext::destroy_event(EventRef event) { return TD_CUDA(cuEventDestroy_v2, of(event)); }
Status CudaContext::record(EventRef event, StreamRef stream) {
  return TD_CUDA(cuEventRecord, of(event), of(stream));
}
Status CudaContext::wait(StreamRef stream, EventRef event) {
  return TD_CUDA(cuStreamWaitEvent, of(stream), of(event), 0u);
}
Status CudaContext::query(EventRef event) { return TD_CUDA(cuEventQuery, of(event)); }
Status CudaContext::synchronize_event(EventRef event) {
  return TD_CUDA(cuEventSynchronize, of(event));
}

Status CudaContext::elapsed(EventRef from, EventRef to, double& seconds) {
  float milliseconds = 0;
  const Status status = TD_CUDA(cuEventElapsedTime, &milliseconds, of(from), of(to));
  seconds = static_cast<double>(milliseconds) * 1e-3;
  // An event without a record has no handle that fits; for the caller it has not happened.
  if (status.code() != Code::bad_argument) return status;
  return {Code::not_ready, "elapsed: both events must have happened; " + status.text()};
}

// ---- kernels

Status CudaContext::build(std::span<const KernelSource> kernels, ModuleRef& module) {
  std::string code, log;
  TD_GPU_TRY(compile_cuda(kernels, info_.compute_major * 10 + info_.compute_minor, code, log));
  auto made = std::make_unique<Table::Module>();
  TD_GPU_TRY(TD_CUDA(cuModuleLoadData, &made->owner, code.data()));
  for (const KernelSource& k : kernels) {
    cuda::Function f = nullptr;
    const std::string name = "td_" + k.name;
    if (const Status s = TD_CUDA(cuModuleGetFunction, &f, made->owner, name.c_str()); !s.ok()) {
      (void)TD_CUDA(cuModuleUnload, made->owner);
      return s;
    }
    if (const size_t bytes = launch_shared_bytes(k); bytes > 0) {
      const Status s =
          TD_CUDA(cuFuncSetAttribute, f, cuda::kFunctionShared, static_cast<int>(bytes));
      if (!s.ok()) {
        (void)TD_CUDA(cuModuleUnload, made->owner);
        return s;
      }
    }
    made->kernels[k.name] = std::make_shared<Table::Kernel>(Table::Kernel{k, f});
  }
  std::lock_guard hold(lock_);
  module = modules_.add(std::move(made));
  return {};
}

Status CudaContext::unload(ModuleRef module) {
  std::unique_ptr<Table::Module> gone;
  {
    std::lock_guard hold(lock_);
    TD_GPU_TRY(modules_.remove(module, gone));
  }
  return TD_CUDA(cuModuleUnload, gone->owner);
}

Status CudaContext::find(ModuleRef module, const std::string& name, KernelRef& kernel) {
  std::lock_guard hold(lock_);
  return modules_.find(module, name, kernel);
}

Status CudaContext::launch(KernelRef kernel, Extent blocks, Extent threads,
                           const Arguments& arguments, StreamRef stream) {
  if (!kernel) return {Code::bad_argument, "launch: no such kernel"};
  const Table::Kernel* k = Table::of(kernel);
  TD_GPU_TRY(check_launch(k->source, arguments, blocks, threads, info_));
  std::array<void*, Arguments::kMost> places{};
  for (int i = 0; i < arguments.count(); ++i) {
    places[static_cast<size_t>(i)] = const_cast<void*>(arguments.data(i));
  }
  const Status status = TD_CUDA(
      cuLaunchKernel, k->handle, blocks.x, blocks.y, blocks.z, threads.x, threads.y, threads.z,
      static_cast<unsigned>(launch_shared_bytes(k->source)), of(stream), places.data(), nullptr);
  if (status.ok()) return status;
  return {status.code(), fmt::format("kernel {}: {}", k->source.name, status.text())};
}

// ---- graphs

Status CudaContext::begin_capture(StreamRef stream) {
  return TD_CUDA(cuStreamBeginCapture_v2, of(stream), cuda::kCaptureThreadLocal);
}

Status CudaContext::end_capture(StreamRef stream, GraphRef& graph) {
  cuda::Graph recorded = nullptr;
  TD_GPU_TRY(TD_CUDA(cuStreamEndCapture, of(stream), &recorded));
  if (!recorded) return {Code::bad_argument, "end_capture: the capture was broken off"};
  cuda::GraphExec made = nullptr;
  Status status = TD_CUDA(cuGraphInstantiateWithFlags, &made, recorded, 0ull);
  (void)TD_CUDA(cuGraphDestroy, recorded);
  if (status.ok()) graph = reinterpret_cast<GraphRef>(made);
  return status;
}

Status CudaContext::replay(GraphRef graph, StreamRef stream) {
  return TD_CUDA(cuGraphLaunch, reinterpret_cast<cuda::GraphExec>(graph), of(stream));
}
Status CudaContext::destroy_graph(GraphRef graph) {
  return TD_CUDA(cuGraphExecDestroy, reinterpret_cast<cuda::GraphExec>(graph));
}

#undef TD_CUDA

MatmulLibrary* CudaContext::matmul_library(Status& why) {
  const auto open = [this](auto& made) {
    return open_cublaslt(cublaslt_library(), api_, context_, made);
  };
  return matmuls_.get(open, why);
}
ConvLibrary* CudaContext::conv_library(Status& why) {
  const auto open = [this](auto& made) {
    return open_cudnn(cudnn_library(), api_, context_, made);
  };
  return convs_.get(open, why);
}
RanksLibrary* CudaContext::ranks_library(Status& why) {
  const auto open = [this](auto& made) { return open_nccl(nccl_library(), api_, context_, made); };
  return ranks_.get(open, why);
}

}  // namespace

Status open_cuda_device(const CudaLibrary& library, int device, std::unique_ptr<Context>& context) {
  auto made = std::make_unique<CudaContext>(library);
  TD_GPU_TRY(made->open(library, device));
  context = std::move(made);
  return {};
}

}  // namespace tandem::gpu
