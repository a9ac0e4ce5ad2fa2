// SPDX-License-Identifier: Apache-2.0
// A fake device that offers the libraries of mock/: what rows ask of cuBLASLt and cuDNN is computed
// by them on the host, in the device's memory, and compared with the CPU.
#pragma once

#include <dlfcn.h>

#include <filesystem>

#include "tandem/backend/gpu/cuda/cublaslt_internal.h"
#include "tandem/backend/gpu/cuda/cudnn_internal.h"
#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tandem/graph/precision.h"
#include "tandem/tandem.h"
#include "tests/gpu/drivers_helper.h"
#include "tests/support/environment.h"
#include "tests/support/errors.h"

namespace tandem::gpu {

/// A library at once where a stream is: the streams of the fake device run later, so they are
/// waited for first.
template <class Library, class Problem, class Plan, class Operands>
class InStream final : public Library {
 public:
  InStream(std::unique_ptr<Library> library, Context& context)
      : library_(std::move(library)), context_(context) {}
  Status plan(const Problem& problem, std::unique_ptr<Plan>& made) override {
    std::unique_ptr<Plan> inner;
    TD_GPU_TRY(library_->plan(problem, inner));
    made = std::make_unique<Waiting>(std::move(inner), context_);
    return {};
  }

 private:
  struct Waiting final : Plan {
    Waiting(std::unique_ptr<Plan> p, Context& c) : plan(std::move(p)), context(c) {
      this->workspace = plan->workspace;
    }
    Status run(const Operands& at, StreamRef stream) const override {
      TD_GPU_TRY(context.synchronize_stream(stream));
      return plan->run(at, stream);
    }
    std::unique_ptr<Plan> plan;
    Context& context;
  };
  std::unique_ptr<Library> library_;
  Context& context_;
};

/// Kept until the process ends: plans of rows are.
struct VendorMocks {
  cuda::Api api;
  CublasLtLibrary lt;
  CudnnLibrary dnn;
  std::unique_ptr<MatmulLibrary> matmuls;
  std::unique_ptr<ConvLibrary> convs;

  static VendorMocks& get() {
    static auto* const mocks = new VendorMocks;
    return *mocks;
  }
  static tandem::Device device() { return device_named("fake:0"); }
  static FakeContext& context() {
    return dynamic_cast<FakeContext&>(engine_of(device()).context());
  }
  static cuda::Context& current() {
    static cuda::Context context = nullptr;
    return context;
  }

 private:
  VendorMocks() {
    const Environment where(
        "TANDEM_GPU_LIBRARIES",
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mock_cuda");
    lt = open_cublaslt_library();
    dnn = open_cudnn_library();
    api.cuCtxSetCurrent = [](cuda::Context c) { return current() = c, cuda::kSuccess; };
    const auto own = reinterpret_cast<cuda::Context>(this);
    std::unique_ptr<MatmulLibrary> m;
    open_cublaslt(lt, api, own, m).check();
    std::unique_ptr<ConvLibrary> c;
    open_cudnn(dnn, api, own, c).check();
    matmuls = std::make_unique<InStream<MatmulLibrary, MatmulProblem, MatmulPlan, MatmulOperands>>(
        std::move(m), context());
    convs = std::make_unique<InStream<ConvLibrary, ConvProblem, ConvPlan, ConvOperands>>(
        std::move(c), context());
  }
};

class OnVendorMocks : public testing::Test {
 protected:
  explicit OnVendorMocks(const char* prefix) : prefix_(prefix) {}
  void SetUp() override {
    init();
    manual_seed(3);
    VendorMocks& mocks = VendorMocks::get();
    const std::string& path =
        std::string(prefix_) == "mock_dnn" ? mocks.dnn.report.path : mocks.lt.report.path;
    library_ = dlopen(path.c_str(), RTLD_NOW);
    ASSERT_NE(library_, nullptr) << path;
    VendorMocks::context().offer(mocks.matmuls.get(), mocks.convs.get());
    ran_ = runs();
  }
  void TearDown() override {
    synchronize(device());
    VendorMocks::context().offer(nullptr, nullptr);
    set_float32_matmul_precision(MatmulPrecision::strict);
  }

  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, (std::string(prefix_) + name).c_str()));
  }
  int runs() const { return function<int()>("_runs")(); }
  int live() const { return function<int()>("_live")(); }
  std::string last() const { return function<const char*()>("_last")(); }
  void fail(const char* name, int result) const {
    function<void(const char*, int)>("_fail")(name, result);
  }
  /// Calls since the last question, of work that has run.
  int new_runs() {
    synchronize(device());
    const int before = std::exchange(ran_, runs());
    return ran_ - before;
  }
  static tandem::Device device() { return VendorMocks::device(); }
  static Tensor there(const Tensor& t) { return t.to(device()); }

 private:
  const char* prefix_;
  void* library_ = nullptr;
  int ran_ = 0;
};

}  // namespace tandem::gpu
