// SPDX-License-Identifier: Apache-2.0
// NVIDIA's compiler over the kernels of all rows: each row of the op driver runs on the fake
// device, and what its engine builds is compiled for CUDA, too.
#include <algorithm>
#include <cstdlib>

#include "tandem/backend/gpu/cuda/nvrtc.h"
#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/backend/gpu/rows/attention_internal.h"
#include "tests/gpu/drivers_helper.h"
#include "tests/ops/row_driver.h"

namespace tandem::rows {
namespace {

std::vector<gpu::KernelSource>& built_sources() {
  static auto* all = new std::vector<gpu::KernelSource>;
  return *all;
}

// Kernels of all rows, with names of their own; an engine that no other test of rows uses.
const std::vector<gpu::KernelSource>& kernels_of_rows() {
  std::vector<gpu::KernelSource>& all = built_sources();
  if (!all.empty()) return all;
  gpu::set_build_hook([](const gpu::KernelSource& k) {
    built_sources().push_back(k);
    built_sources().back().name += std::to_string(built_sources().size());
  });
  const Device device = device_named("fake:1");
  for (const Row& row : all_rows()) {
    if (row.op == "to_device") continue;
    const std::vector<Arg> args = make_args(row, 5, float32);
    std::vector<Tensor> there;
    for (const Tensor& t : tensors_of(args)) there.push_back(t.to(device));
    const DeviceGuard guard(device);
    call_row(row, with_tensors(args, there), 5, true);
    synchronize(device);
  }
  gpu::set_build_hook(nullptr);
  return all;
}

// Bytes of the thread's own memory that a kernel takes, from the compiler's log.
int frame_bytes(const std::string& log, const std::string& name) {
  const size_t at = log.find("Function properties for td_" + name + "\n");
  const size_t end = at == log.npos ? at : log.find(" bytes stack frame", at);
  if (end == log.npos) return -1;
  return std::stoi(log.substr(log.find_last_of(" \n", end - 1) + 1));
}

// Are its loops over lines of elements unrolled, so that a line is registers?
bool keeps_lines(const gpu::KernelSource& k) {
  return k.body.find("td_line(") != k.body.npos && k.body.find("td_unroll") != k.body.npos;
}

// A minute for each architecture: by default 9.0 alone, with TANDEM_TEST_ALL 8.0, too.
class NvrtcRows : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() != 90 && !std::getenv("TANDEM_TEST_ALL"))
      GTEST_SKIP() << "TANDEM_TEST_ALL=1 compiles for this architecture, too";
  }
};
INSTANTIATE_TEST_SUITE_P(Architectures, NvrtcRows, ::testing::Values(80, 90));

TEST_P(NvrtcRows, Compile) {
  init();
  if (const std::string problem = gpu::no_nvrtc(); !problem.empty()) GTEST_SKIP() << problem;
  const std::vector<gpu::KernelSource>& all = kernels_of_rows();
  ASSERT_GT(all.size(), 300u);
  constexpr size_t kTogether = 48;
  for (size_t first = 0; first < all.size(); first += kTogether) {
    const std::span some(all.data() + first, std::min(kTogether, all.size() - first));
    std::string code, log;
    const gpu::Status status = gpu::compile_cuda(some, GetParam(), code, log);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_FALSE(code.empty());
    for (const gpu::KernelSource& k : some) {
      const int bytes = keeps_lines(k) ? frame_bytes(log, k.name) : 0;
      EXPECT_EQ(bytes, 0) << k.name << "\n" << k.body;
    }
  }
}

// Kernels of softmax, norms and losses, forward and backward, at lengths that nets have.
const std::vector<gpu::KernelSource>& kernels_of_lines() {
  static auto* all = new std::vector<gpu::KernelSource>;
  if (!all->empty()) return *all;
  gpu::set_build_hook([](const gpu::KernelSource& k) {
    if (k.name == "rows" || k.name.starts_with("cross_entropy") || k.name.starts_with("batch")) {
      all->push_back(k);
    }
  });
  const Device device = device_named("fake:1");
  for (const int64_t length : {768, 1024, 8192}) {
    for (const DType t : {float32, bfloat16}) {
      const Tensor x = randn({3, length}).to(t).to(device).requires_grad_();
      const Tensor w = ones({length}).to(t).to(device).requires_grad_();
      const Tensor b = zeros({length}).to(t).to(device).requires_grad_();
      const Tensor gy = ones({3, length}).to(t).to(device);
      layer_norm(x, {length}, w, b).backward(gy);
      rms_norm(x, {length}, w).backward(gy);
      softmax(x, 1).backward(gy);
      log_softmax(x, 1).backward(gy);
      cross_entropy(x, zeros({3}).to(int64).to(device)).backward();
    }
  }
  for (const DType t : {float32, bfloat16}) {
    for (const bool last : {false, true}) {
      Tensor x = randn({2, 64, 48, 48}).to(t);
      if (last) x = x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
      x = x.to(device).requires_grad_();
      const Tensor w = ones({64}).to(device).requires_grad_();
      const Tensor y = batch_norm_stats(x, w, zeros({64}).to(device).requires_grad_()).y;
      y.backward(y.detach());
    }
  }
  synchronize(device);
  gpu::set_build_hook(nullptr);
  return *all;
}

TEST_P(NvrtcRows, LinesStayInRegisters) {
  init();
  if (const std::string problem = gpu::no_nvrtc(); !problem.empty()) GTEST_SKIP() << problem;
  EXPECT_GT(kernels_of_lines().size(), 60u);
  for (const gpu::KernelSource& k : kernels_of_lines()) {
    std::string code, log;
    const gpu::Status status = gpu::compile_cuda({&k, 1}, GetParam(), code, log);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(frame_bytes(log, k.name), 0) << log << k.body;
  }
}

// Accumulators of attention fill most registers. An accumulator in memory would be thousands of
// bytes; a few numbers that a block sets once may be there.
TEST_P(NvrtcRows, AttentionKeepsItsAccumulators) {
  init();
  if (const std::string problem = gpu::no_nvrtc(); !problem.empty()) GTEST_SKIP() << problem;
  for (const int features : {32, 64, 96, 128}) {
    for (const bool causal : {false, true}) {
      gpu::AttentionText t;
      t.e = t.f = features;
      t.causal = causal;
      const gpu::KernelSource kernels[] = {t.forward(), t.delta(false), t.backward_queries(),
                                           t.backward_keys()};
      std::string code, log;
      const gpu::Status status = gpu::compile_cuda(kernels, GetParam(), code, log);
      ASSERT_TRUE(status.ok()) << status.text();
      constexpr int kMostBytes = 32;
      int kernels_seen = 0;
      for (size_t at = 0; (at = log.find(" bytes spill stores", at)) != log.npos; ++at) {
        const size_t number = log.rfind(' ', at - 1) + 1;
        EXPECT_LE(std::stoi(log.substr(number)), kMostBytes) << features << " features: " << log;
        ++kernels_seen;
      }
      EXPECT_EQ(kernels_seen, 4) << log;
    }
  }
}

}  // namespace
}  // namespace tandem::rows
