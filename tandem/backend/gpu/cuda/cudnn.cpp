// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <mutex>
#include <utility>
#include <vector>

#include "tandem/backend/gpu/cuda/cudnn_objects_internal.h"
#include "tandem/backend/gpu/library_internal.h"

namespace tandem::gpu {

CudnnLibrary open_cudnn_library() {
  CudnnLibrary l;
  const bool on = open_functions(
      "cuDNN", {"libcudnn.so.9"},
      [&](const Library& library, std::string& missing) {
#define TD_DNN_RESOLVE(name, parameters) resolve_symbol(library, #name, &l.api.name, missing);
        TD_CUDNN_FUNCTIONS(TD_DNN_RESOLVE)
#undef TD_DNN_RESOLVE
        resolve_symbol(library, "cudnnGetVersion", &l.api.cudnnGetVersion, missing);
        resolve_symbol(library, "cudnnGetErrorString", &l.api.cudnnGetErrorString, missing);
        resolve_symbol(library, "cudnnGetLastErrorString", &l.api.cudnnGetLastErrorString, missing);
      },
      l.report);
  if (!on) return l;
  const size_t v = l.api.cudnnGetVersion();
  l.report.version = fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  return l;
}

const CudnnLibrary& cudnn_library() {
  static const CudnnLibrary* const library = new CudnnLibrary(open_cudnn_library());
  return *library;
}

namespace {

// A device's handle. Calls that take it go one after the other.
struct DnnDevice {
  const cudnn::Api& dnn;
  const cuda::Api* api = nullptr;  // nullptr: the device is only described
  cuda::Context context = nullptr;
  std::mutex lock;
  cudnn::Handle handle = nullptr;

  explicit DnnDevice(const cudnn::Api& functions) : dnn(functions) {}
  ~DnnDevice() {
    if (handle) dnn.cudnnDestroy(handle);
  }
  DnnDevice(const DnnDevice&) = delete;
  DnnDevice& operator=(const DnnDevice&) = delete;

  Status enter() const {
    return api ? cuda_status(*api, api->cuCtxSetCurrent(context), "cuCtxSetCurrent") : Status();
  }
};

class DnnPlan final : public ConvPlan {
 public:
  DnnPlan(std::shared_ptr<DnnDevice> device, CudnnPlan found, bool bias)
      : device_(std::move(device)), objects_(std::move(found.objects)), bias_(bias) {
    workspace = found.workspace;
    algorithm = std::move(found.algorithm);
  }

  Status run(const ConvOperands& at, StreamRef stream) const override {
    DnnDevice& d = *device_;
    if (!d.handle) return {Code::unavailable, "this plan is for a device that is not there"};
    TD_GPU_TRY(d.enter());
    const auto place = [](Address a) { return reinterpret_cast<void*>(a); };
    const int64_t names[] = {kCudnnX, kCudnnW, kCudnnY, kCudnnBias};
    void* const places[] = {place(at.x), place(at.w), place(at.y), place(at.bias)};
    void* const scratch = place(at.scratch);
    const int64_t n = bias_ ? 4 : 3;
    CudnnObject pack(d.dnn, cudnn::kVariantPack);
    pack.numbers(cudnn::kPackIds, names, n)
        .set(cudnn::kPackPointers, cudnn::kPointerType, n, places)
        .set(cudnn::kPackWorkspace, cudnn::kPointerType, 1, &scratch);
    TD_GPU_TRY(pack.finish());
    std::lock_guard hold(d.lock);
    TD_GPU_TRY(cudnn_status(d.dnn,
                            d.dnn.cudnnSetStream(d.handle, reinterpret_cast<cuda::Stream>(stream)),
                            "cudnnSetStream"));
    return cudnn_status(d.dnn,
                        d.dnn.cudnnBackendExecute(d.handle, objects_.back().ref(), pack.ref()),
                        "cudnnBackendExecute");
  }

 private:
  std::shared_ptr<DnnDevice> device_;
  std::vector<CudnnObject> objects_;
  bool bias_;
};

class DnnLibrary final : public ConvLibrary {
 public:
  explicit DnnLibrary(const cudnn::Api& dnn) : device_(std::make_shared<DnnDevice>(dnn)) {}

  Status open(const cuda::Api& api, cuda::Context context) {
    device_->api = &api;
    device_->context = context;
    TD_GPU_TRY(device_->enter());
    return cudnn_status(device_->dnn, device_->dnn.cudnnCreate(&device_->handle), "cudnnCreate");
  }
  Status describe(const std::string& json) {
    CudnnObject& d = described_.emplace_back(device_->dnn, cudnn::kDevice);
    d.set(cudnn::kDeviceJson, cudnn::kCharType, static_cast<int64_t>(json.size() + 1),
          json.c_str());
    return d.finish();
  }

  Status plan(const ConvProblem& problem, std::unique_ptr<ConvPlan>& made) override {
    TD_GPU_TRY(device_->enter());
    const CudnnTarget target{device_->handle, described_.empty() ? nullptr : &described_[0]};
    CudnnPlan found;
    {
      std::lock_guard hold(device_->lock);
      TD_GPU_TRY(plan_cudnn(device_->dnn, target, problem, found));
    }
    made = std::make_unique<DnnPlan>(device_, std::move(found), problem.bias);
    return {};
  }

 private:
  std::shared_ptr<DnnDevice> device_;
  std::vector<CudnnObject> described_;  // the device, where there is no handle
};

Status cudnn_is_on(const CudnnLibrary& library) {
  if (library.report.problem.empty()) return {};
  return {Code::unavailable, "cuDNN is off: " + library.report.problem};
}

}  // namespace

Status open_cudnn(const CudnnLibrary& library, const cuda::Api& api, cuda::Context context,
                  std::unique_ptr<ConvLibrary>& made) {
  TD_GPU_TRY(cudnn_is_on(library));
  auto opened = std::make_unique<DnnLibrary>(library.api);
  TD_GPU_TRY(opened->open(api, context));
  made = std::move(opened);
  return {};
}

Status describe_cudnn(const CudnnLibrary& library, const std::string& device,
                      std::unique_ptr<ConvLibrary>& made) {
  TD_GPU_TRY(cudnn_is_on(library));
  auto opened = std::make_unique<DnnLibrary>(library.api);
  TD_GPU_TRY(opened->describe(device));
  made = std::move(opened);
  return {};
}

}  // namespace tandem::gpu
