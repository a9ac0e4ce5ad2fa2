// SPDX-License-Identifier: Apache-2.0
// The cuda driver on a libcuda of our own (mock/libcuda.cpp): which calls it makes with which
// arguments, that it gives back what it took, and how errors are classed. What NVIDIA's library
// does with the calls only hardware can show.
#include <dlfcn.h>

#include <filesystem>

#include "tandem/backend/gpu/cuda/library_internal.h"
#include "tandem/backend/gpu/cuda/nvrtc.h"
#include "tandem/backend/gpu/engine_internal.h"
#include "tests/gpu/drivers_helper.h"
#include "tests/support/environment.h"

namespace tandem::gpu {
namespace {

class CudaOnAMock : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mock_cuda";
    const Environment where("TANDEM_GPU_LIBRARIES", folder);
    library_ = std::make_unique<CudaLibrary>(open_cuda());
    ASSERT_EQ(library_->report.path, folder + "/libcuda.so.1") << library_->report.problem;
    void* mock = dlopen(library_->report.path.c_str(), RTLD_NOW);
    fail_ = reinterpret_cast<void (*)(const char*, int)>(dlsym(mock, "mock_fail"));
    live_ = reinterpret_cast<int (*)()>(dlsym(mock, "mock_live"));
    before_ = live_();
    std::unique_ptr<Context> context;
    ASSERT_OK(open_cuda_device(*library_, 0, context));
    device_ = std::make_unique<Device>(std::move(context));
  }
  void TearDown() override {
    device_.reset();
    if (live_) {
      EXPECT_EQ(live_(), before_);
    }
  }
  std::unique_ptr<CudaLibrary> library_;
  std::unique_ptr<Device> device_;
  void (*fail_)(const char*, int) = nullptr;
  int (*live_)() = nullptr;
  int before_ = 0;
};

TEST_F(CudaOnAMock, KnowsTheDevice) {
  EXPECT_EQ(library_->report.version, "CUDA 13.1");
  EXPECT_EQ(library_->devices, 1);
  const DeviceInfo& info = device_->context->info();
  EXPECT_EQ(info.name, "mock device");
  EXPECT_EQ(info.version, "driver for CUDA 13.1, compute capability 9.0");
  EXPECT_EQ(info.bytes, 1 << 30);
  EXPECT_EQ(info.threads_per_block, 1024);
  EXPECT_EQ(info.shared_bytes, 232448);
  EXPECT_TRUE(info.warp_matmul);
  EXPECT_EQ(info.units, 132);
}

TEST_F(CudaOnAMock, MemoryStreamsAndEvents) {
  Context& c = *device_->context;
  const Address a = device_->put(std::vector<int>{1, 2, 3, 4}), b = device_->allocate(16);
  ASSERT_OK(c.fill(b, 0xff, 16, device_->stream));
  ASSERT_OK(c.copy(b, a + 8, 8, device_->stream));
  EXPECT_EQ(device_->get<int>(b, 4), (std::vector<int>{3, 4, -1, -1}));
  void* pinned = nullptr;
  ASSERT_OK(c.allocate_host(64, pinned));
  int64_t free = 0, total = 0;
  ASSERT_OK(c.memory(free, total));
  EXPECT_EQ(free, 1 << 20);
  EXPECT_EQ(total, 1 << 30);
  const EventRef e = device_->make_event(), f = device_->make_event();
  double seconds = 0;
  EXPECT_FAILS(c.elapsed(e, f, seconds), not_ready, "both events must have happened");
  ASSERT_OK(c.record(e, device_->stream));
  ASSERT_OK(c.record(f, device_->stream));
  ASSERT_OK(c.wait(device_->stream, f));
  ASSERT_OK(c.elapsed(e, f, seconds));
  EXPECT_DOUBLE_EQ(seconds, 1e-3);
  fail_("cuEventQuery", 600);
  EXPECT_FAILS(c.query(f), not_ready, "cuEventQuery: CUDA_ERROR_600 (words)");
  EXPECT_OK(c.query(f));
  EXPECT_OK(c.synchronize_event(f));
  EXPECT_OK(c.destroy_event(e));
  EXPECT_OK(c.destroy_event(f));
  EXPECT_OK(c.release_host(pinned));
  EXPECT_OK(c.release(a));
  EXPECT_OK(c.release(b));
  EXPECT_FAILS(c.destroy_stream(nullptr), bad_argument, "no such stream");
}

TEST_F(CudaOnAMock, KernelsAndGraphs) {
  if (!no_nvrtc().empty()) GTEST_SKIP() << no_nvrtc();
  Context& c = *device_->context;
  const KernelSource other = axpy_kernel(DType::f32);
  ModuleRef module = nullptr;
  EXPECT_FAILS(c.build({&other, 1}, module), driver, "cuModuleGetFunction: CUDA_ERROR_500");
  const KernelSource fill = fill_kernel(DType::f32);
  ASSERT_OK(c.build({&fill, 1}, module));
  KernelRef k = nullptr;
  ASSERT_OK(c.find(module, "fill_f32", k));
  const Address y = device_->put(std::vector<float>(8));
  const Arguments a = Arguments().address(y, 32).value(2.5f).value(int64_t{5});
  ASSERT_OK(c.begin_capture(device_->stream));
  ASSERT_OK(c.launch(k, {2}, {4}, a, device_->stream));
  GraphRef graph = nullptr;
  ASSERT_OK(c.end_capture(device_->stream, graph));
  EXPECT_EQ(device_->get<float>(y, 8)[0], 0.0f);
  ASSERT_OK(c.replay(graph, device_->stream));
  EXPECT_EQ(device_->get<float>(y, 8), (std::vector<float>{2.5, 2.5, 2.5, 2.5, 2.5, 0, 0, 0}));
  EXPECT_FAILS(c.launch(k, {1}, {2048}, a, device_->stream), bad_argument, "2048 threads");
  fail_("cuLaunchKernel", 701);
  EXPECT_FAILS(c.launch(k, {1}, {1}, a, device_->stream), launch,
               "kernel fill_f32: cuLaunchKernel: CUDA_ERROR_701 (words)");
  GraphRef none = nullptr;
  EXPECT_FAILS(c.end_capture(device_->stream, none), bad_argument, "CUDA_ERROR_903");
  ASSERT_OK(c.begin_capture(device_->stream));
  fail_("cuGraphInstantiateWithFlags", 2);
  EXPECT_FAILS(c.end_capture(device_->stream, none), out_of_memory, "CUDA_ERROR_2");
  EXPECT_EQ(none, nullptr);
  EXPECT_OK(c.destroy_graph(graph));
  EXPECT_OK(c.unload(module));
  EXPECT_OK(c.release(y));
}

// The mock's device as an engine opens it.
class MockDriver final : public Driver {
 public:
  explicit MockDriver(const CudaLibrary& library) : library_(library) {}
  const char* name() const override { return "cuda"; }
  Status count(int& devices) override { return devices = 1, Status(); }
  Status info(int device, DeviceInfo& info) override { return cuda_info(library_, device, info); }
  Status open(int device, std::unique_ptr<Context>& context) override {
    return open_cuda_device(library_, device, context);
  }
  std::vector<LibraryReport> libraries() override { return {library_.report}; }

 private:
  const CudaLibrary& library_;
};

struct FillsTwice final : RecordableWork {
  Engine& engine;
  KernelRef kernel = nullptr;
  Address y = 0;
  explicit FillsTwice(Engine& e) : engine(e) {}
  void put(Stream queue) override {
    for (const float v : {1.5f, 2.5f}) {
      const Arguments a = Arguments().address(y, 32).value(v).value(int64_t{8});
      engine.launch(kernel, {2}, {4}, a, engine.stream(queue));
    }
  }
};

TEST_F(CudaOnAMock, AnEngineRecordsAndReplays) {
  if (!no_nvrtc().empty()) GTEST_SKIP() << no_nvrtc();
  MockDriver driver(*library_);
  Engine e(driver, {DeviceKind::cuda, 0});
  FillsTwice work(e);
  work.kernel = e.build(fill_kernel(DType::f32));
  work.y = e.pool().allocate(32, e.stream({}), "test");
  const auto values = [&] {
    std::vector<float> v(8);
    e.copy_out(v.data(), work.y, 32, e.stream({}));
    return v;
  };
  e.check(e.context().fill(work.y, 0, 32, e.stream({})));
  std::string why;
  std::unique_ptr<StepGraph> graph = e.record(work, why);
  ASSERT_NE(graph, nullptr) << why;
  EXPECT_EQ(graph->launches(), 2);
  EXPECT_TRUE(graph->ready());
  EXPECT_EQ(values(), std::vector<float>(8, 0.0f)) << "nothing has run";
  graph->replay({});
  EXPECT_EQ(values(), std::vector<float>(8, 2.5f));
  const int live = live_();
  for (const auto& [call, code] :
       {std::pair{"cuStreamBeginCapture_v2", 901}, std::pair{"cuLaunchKernel", 701},
        std::pair{"cuGraphInstantiateWithFlags", 2}}) {
    fail_(call, code);
    why.clear();
    EXPECT_EQ(e.record(work, why), nullptr) << call;
    EXPECT_NE(why.find(call), std::string::npos) << why;
    EXPECT_EQ(live_(), live) << call;
  }
  why.clear();
  EXPECT_NE(e.record(work, why), nullptr) << why;
  fail_("cuGraphLaunch", 719);
  EXPECT_THROW(graph->replay({}), Error);
  graph->replay({});
  EXPECT_EQ(values(), std::vector<float>(8, 2.5f));
  work.put({});
  graph.reset();
  e.pool().release(work.y);
}

TEST_F(CudaOnAMock, ErrorsAreClassed) {
  const struct {
    int error;
    Code code;
  } rows[] = {{1, Code::bad_argument},   {2, Code::out_of_memory}, {100, Code::unavailable},
              {46, Code::lost},          {214, Code::lost},        {400, Code::bad_argument},
              {600, Code::not_ready},    {700, Code::launch},      {719, Code::launch},
              {901, Code::bad_argument}, {999, Code::driver}};
  for (const auto& row : rows) {
    fail_("cuCtxSynchronize", row.error);
    const Status status = device_->context->synchronize();
    EXPECT_EQ(status.code(), row.code) << row.error;
    EXPECT_EQ(status.text(),
              "cuCtxSynchronize: CUDA_ERROR_" + std::to_string(row.error) + " (words)");
  }
  Address at = 0;
  fail_("cuMemAlloc_v2", 2);
  EXPECT_FAILS(device_->context->allocate(100, at), out_of_memory, "cuMemAlloc_v2");
  EXPECT_EQ(at, 0u);
}

TEST_F(CudaOnAMock, ADriverThatDoesNotStart) {
  const Environment where("TANDEM_GPU_LIBRARIES",
                          std::filesystem::path(library_->report.path).parent_path());
  fail_("cuInit", 100);
  const CudaLibrary off = open_cuda();
  EXPECT_EQ(off.devices, 0);
  EXPECT_EQ(off.no_devices, "cuInit: CUDA_ERROR_100 (words)");
  EXPECT_EQ(off.report.problem, off.no_devices);
}

}  // namespace
}  // namespace tandem::gpu
