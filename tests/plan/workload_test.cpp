// SPDX-License-Identifier: Apache-2.0
// Workloads by dry run: what is counted and held.
#include "tandem/plan/workload.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tandem/plan/jobs.h"
#include "tandem/tandem.h"

namespace tandem::plan {
namespace {

TEST(Workload, SevenBillionParameters) {
  init();
  for (bool compiled : {false, true}) {
    const Workload w = dry_run(
        find_job("llama:7b"), {.batch = 4, .compiled = compiled, .precision = Precision::amp_bf16});
    EXPECT_EQ(w.parameters, 6738415616.0);
    EXPECT_EQ(w.optimizer_bytes, 2 * w.weight_bytes);
    EXPECT_GT(w.memory.peak.total(), 16 * w.parameters);
    print(
        "{} 7b: {:.2f} s, {} kernels, {:.1f} TFLOP, {:.1f} GB: activations {:.1f} GB, weights "
        "{:.1f}, gradients {:.1f}, optimizer {:.1f}\n",
        compiled ? "compiled" : "eager", w.plan_seconds, w.work.size(), w.flops() / 1e12,
        w.memory.peak.total() / 1e9, w.memory.peak.of(MemoryCategory::activations) / 1e9,
        w.memory.peak.of(MemoryCategory::weights) / 1e9,
        w.memory.peak.of(MemoryCategory::gradients) / 1e9,
        w.memory.peak.of(MemoryCategory::optimizer) / 1e9);
  }
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  print("peak of the process {} MB\n", use.ru_maxrss / 1024);
}

}  // namespace
}  // namespace tandem::plan
