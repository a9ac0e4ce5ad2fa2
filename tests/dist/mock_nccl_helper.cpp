// SPDX-License-Identifier: Apache-2.0
#include "tests/dist/mock_nccl_helper.h"

#include <array>
#include <filesystem>
#include <memory>

#include "tandem/backend/gpu/cuda/nccl_internal.h"
#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tandem/base/error.h"
#include "tandem/tensor/tensor.h"
#include "tests/support/environment.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

/// A library at once where a stream is: the streams of the fake device run later, so they are
/// waited for first.
class RanksInStream final : public gpu::RanksLibrary {
 public:
  RanksInStream(std::unique_ptr<gpu::RanksLibrary> library, gpu::Context& context)
      : library_(std::move(library)), context_(context) {}
  bool takes(DType dtype) const override { return library_->takes(dtype); }
  gpu::Status make_id(std::string& id) override { return library_->make_id(id); }
  gpu::Status join(const std::string& id, int rank, int size,
                   std::unique_ptr<gpu::RanksComm>& made) override {
    std::unique_ptr<gpu::RanksComm> comm;
    TD_GPU_TRY(library_->join(id, rank, size, comm));
    made = std::make_unique<Waiting>(std::move(comm), context_);
    return {};
  }

 private:
  struct Waiting final : gpu::RanksComm {
    Waiting(std::unique_ptr<gpu::RanksComm> c, gpu::Context& x) : comm(std::move(c)), context(x) {}
    gpu::Status call(const DeviceCall& c, gpu::StreamRef stream) override {
      TD_GPU_TRY(context.synchronize_stream(stream));
      return comm->call(c, stream);
    }
    std::unique_ptr<gpu::RanksComm> comm;
    gpu::Context& context;
  };
  std::unique_ptr<gpu::RanksLibrary> library_;
  gpu::Context& context_;
};

gpu::FakeContext& context(int index) {
  return dynamic_cast<gpu::FakeContext&>(
      gpu::engine_of(device_named(fmt::format("fake:{}", index))).context());
}

const gpu::NcclLibrary& nccl() {
  static const auto* const library = [] {
    const Environment where(
        "TANDEM_GPU_LIBRARIES",
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mock_cuda");
    return new gpu::NcclLibrary(gpu::open_nccl_library());
  }();
  return *library;
}

std::array<std::unique_ptr<gpu::RanksLibrary>, 2>& libraries() {
  static auto& all = *new std::array<std::unique_ptr<gpu::RanksLibrary>, 2>;
  static auto& api = *new gpu::cuda::Api;
  for (const int k : {0, 1}) {
    if (all[k]) continue;
    api.cuCtxSetCurrent = [](gpu::cuda::Context) { return gpu::cuda::kSuccess; };
    std::unique_ptr<gpu::RanksLibrary> made;
    gpu::open_nccl(nccl(), api, nullptr, made).check();
    all[k] = std::make_unique<RanksInStream>(std::move(made), context(k));
  }
  return all;
}

}  // namespace

std::optional<Device> device_for(const std::string& kind, int rank) {
  for (int at = rank; at >= 0; at = at >= 2 ? at % 2 : at - 1) try {
      return device_named(fmt::format("{}:{}", kind, at));
    } catch (const Error&) {}
  return std::nullopt;
}

void OnMockNccl::SetUp() {
  if (!nccl().report.problem.empty()) GTEST_SKIP() << nccl().report.problem;
  symbols_ = dlopen(nccl().report.path.c_str(), RTLD_NOW);
  ASSERT_NE(symbols_, nullptr);
  for (const int k : {0, 1}) context(k).offer(libraries()[static_cast<size_t>(k)].get());
  ran_ = function<int()>("mock_nccl_runs")();
}

void OnMockNccl::TearDown() {
  if (symbols_ == nullptr) return;  // skipped
  for (const int k : {0, 1}) context(k).offer(static_cast<gpu::RanksLibrary*>(nullptr));
  function<void(const char*, int)>("mock_nccl_fail")("", 0);
}

int OnMockNccl::new_runs() {
  const int before = std::exchange(ran_, function<int()>("mock_nccl_runs")());
  return ran_ - before;
}

}  // namespace tandem::distributed
