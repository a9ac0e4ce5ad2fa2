// SPDX-License-Identifier: Apache-2.0
// bf16 matmuls whose first matrix is transposed, as in every derivative with respect to a weight:
// both are rearranged into pairs along k, the second once for all threads, the first tile by tile
// by the thread that owns these rows of the result. Sums are f32 over all of k in one chain and
// rounded once: bits do not depend on the thread count.
#include <algorithm>

#include "tandem/backend/cpu/gemm/tiles_bf16.h"
#include "tandem/backend/cpu/gemm/turned_bf16_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/dry_run.h"
#include "tandem/ops/matmul/matmul.h"

namespace tandem::detail {
namespace {

constexpr int64_t kPanel = 32;  ///< columns of a tile
constexpr int64_t kFewestDepth = 32;
constexpr double kMultiplyAddsPerThread = 262144;

}  // namespace

int64_t TurnedPlan::panels() const { return (p.n + kPanel - 1) / kPanel; }
int64_t TurnedPlan::tiles() const { return (p.m + kBf16Rows - 1) / kBf16Rows; }

bool takes_turned_bf16(const MatmulProblem& p) {
  // A plan for another device does not depend on the processor on which it is made.
  if (is_dry_run_of_any_device() || !cpu_features().bf16 || !bf16_loops()) return false;
  return p.batches == 1 && p.am == 1 && p.bn == 1 && p.m >= kBf16Rows && p.n >= kPanel &&
         p.k >= kFewestDepth && p.ak >= p.m && p.bk >= p.n;
}

void plan_turned_bf16(TurnedPlan& plan, const MatmulProblem& p) {
  plan.p = p;
  const double share = p.multiply_adds() / kMultiplyAddsPerThread;
  plan.workers = std::max(1, static_cast<int>(std::min<double>(num_threads(), share)));
  plan.own_at = whole_lines(static_cast<size_t>(plan.panels() * plan.pairs() * kPanel) * 4);
  plan.own_bytes = whole_lines(static_cast<size_t>(plan.pairs() * kBf16Rows) * 4);
  plan.workspace = plan.own_at + plan.own_bytes * static_cast<size_t>(plan.workers);
}

void run_turned_bf16(const TurnedPlan& plan, const uint16_t* a, const uint16_t* b, uint16_t* y,
                     void* scratch, const Epilogue* epilogue) {
  const MatmulProblem& p = plan.p;
  const Bf16Loops& l = *bf16_loops();
  const int64_t panel_size = plan.pairs() * 2 * kPanel;
  auto* panels = static_cast<uint16_t*>(scratch);
  parallel_for(0, plan.panels(), 1 + 65536 / panel_size, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j)
      l.pair(panels + j * panel_size, kPanel, b + j * kPanel, p.bk,
             std::min(kPanel, p.n - j * kPanel), p.k);
  });
  const auto run_tiles = [&](int64_t w, int64_t t0, int64_t t1) {
    auto* own = reinterpret_cast<uint16_t*>(static_cast<char*>(scratch) + plan.own_at +
                                            static_cast<size_t>(w) * plan.own_bytes);
    alignas(64) float sums[kBf16Rows * kPanel];
    for (int64_t t = t0; t < t1; ++t) {
      const int64_t row = p.m * t / plan.tiles(), rows = p.m * (t + 1) / plan.tiles() - row;
      l.pair(own, rows, a + row, p.ak, rows, p.k);
      for (int64_t j = 0; j < plan.panels(); ++j) {
        l.tile[rows - 1]({2 * plan.pairs(), own, 2, 2 * rows, panels + j * panel_size, sums});
        l.store(sums, y + row * p.n + j * kPanel, p.n, rows, std::min(kPanel, p.n - j * kPanel));
      }
      if (epilogue) epilogue->run(*epilogue, row, row + rows, 0, p.n);
    }
  };
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w)
      run_tiles(w, plan.tiles() * w / plan.workers, plan.tiles() * (w + 1) / plan.workers);
  });
}

namespace {

bool supports(const KernelCall& c) {
  return c.in[0].dtype == DType::bf16 && c.in[1].dtype == DType::bf16 &&
         takes_turned_bf16(matmul_problem(c));
}

void run_on(const KernelCall& c, const Epilogue* epilogue) {
  run_turned_bf16(*static_cast<const TurnedPlan*>(c.plan), c.in[0].as<uint16_t>(),
                  c.in[1].as<uint16_t>(), c.out[0].as<uint16_t>(), c.scratch, epilogue);
}
void run_with(const KernelCall& c, const Epilogue& epilogue) { run_on(c, &epilogue); }
void run(const KernelCall& c) { run_on(c, nullptr); }

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<TurnedPlan>();
  plan->run_with = run_with;
  plan_turned_bf16(*plan, matmul_problem(c));
  return plan;
}

EpilogueKind blocks(const KernelCall&) { return EpilogueKind::blocks; }

}  // namespace

void register_turned_bf16() {
  if (!cpu_features().bf16 || !bf16_loops()) return;
  register_epilogue(prepare, blocks);
  register_kernel(DeviceKind::cpu, op::matmul, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
