// SPDX-License-Identifier: Apache-2.0
// packed_matmul_bf16: a bf16 matmul whose weight is stored in panels of pairs. Sums are f32 from
// the first multiplication to the epilogue and rounded once. Threads share the panels; rows are
// processed in blocks that stay in the cache.
#include <algorithm>

#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/gemm/tiles_bf16.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"

namespace tandem::detail {
namespace {

constexpr int64_t kBlockBytes = 384 << 10;  ///< of rows that are read for all panels of a worker
constexpr double kMultiplyAddsPerThread = 131072;

struct Bf16Plan : Plan {
  const Bf16Loops* loops = bf16_loops();
  int64_t m = 0, n = 0, k = 0, rows = 0;
  int workers = 1;
  bool by_rows = false;
  int64_t panels() const { return (n + kPackedPanel - 1) / kPackedPanel; }
};

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<Bf16Plan>();
  plan->k = 2 * c.in[1].shape[1];
  plan->n = c.get_attrs<PackedAttrs>().columns;
  plan->m = c.in[0].numel / plan->k;
  const double multiply_adds =
      static_cast<double>(plan->m) * static_cast<double>(plan->n * plan->k);
  plan->workers = std::max(
      1, static_cast<int>(std::min<double>(num_threads(), multiply_adds / kMultiplyAddsPerThread)));
  const int64_t high = plan->loops->rows;
  plan->rows = std::max(high, kBlockBytes / (2 * plan->k) / high * high);
  plan->by_rows = plan->panels() < 4 * plan->workers;
  return plan;
}

// Rows r0..r1-1 of panels p0..p1-1.
void part(const KernelCall& c, const Bf16Plan& p, const FusedEpilogue& fused, int64_t r0,
          int64_t r1, int64_t p0, int64_t p1) {
  const Bf16Loops& l = *p.loops;
  const auto* a = c.in[0].as<uint16_t>();
  const auto* w = c.in[1].as<uint16_t>();
  const auto operand = [&](int i) {
    return c.n_in > i && c.in[i].present() ? c.in[i].as<uint16_t>() : nullptr;
  };
  const uint16_t *bias = operand(2), *residual = operand(3);
  auto* y = c.out[0].as<uint16_t>();
  alignas(64) float sums[kMostBf16Rows * kPackedPanel];
  for (int64_t first = r0; first < r1; first += p.rows) {
    const int64_t last = std::min(first + p.rows, r1);
    const int64_t tiles = (last - first + l.rows - 1) / l.rows;
    for (int64_t j = p0; j < p1; ++j) {
      const int64_t column = j * kPackedPanel, columns = std::min(kPackedPanel, p.n - column);
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t row = first + (last - first) * t / tiles;
        const int64_t rows = first + (last - first) * (t + 1) / tiles - row;
        l.tile({.k = p.k,
                .a = a + row * p.k,
                .am = p.k,
                .w = w + j * p.k * kPackedPanel,
                .c = sums,
                .far = t == 0},
               static_cast<int>(rows));
        if (bias) l.add(sums, bias + column, 0, rows, columns);
        if (residual) l.add(sums, residual + row * p.n + column, p.n, rows, columns);
        if (fused.kind != PackedEpilogue::none)
          channel_loops().finish(fused, sums, nullptr, kPackedPanel, rows, columns);
        l.store(sums, y + row * p.n + column, p.n, rows, columns);
      }
    }
  }
  l.release();
}

void run(const KernelCall& c) {
  const auto& p = *static_cast<const Bf16Plan*>(c.plan);
  const auto& a = c.get_attrs<PackedAttrs>();
  FusedEpilogue fused;
  fused.kind = static_cast<PackedEpilogue>(a.epilogue);
  fused.low = static_cast<float>(a.low);
  fused.high = static_cast<float>(a.high);
  const int64_t high = p.loops->rows;
  const int64_t all = p.by_rows ? (p.m + high - 1) / high : p.panels();
  const int64_t group = std::clamp<int64_t>(all / (4 * p.workers), 1, 8);
  share_units(p.workers, (all + group - 1) / group, [&](size_t, int64_t u) {
    const int64_t from = u * group, to = std::min(from + group, all);
    if (p.by_rows)
      part(c, p, fused, from * high, std::min(to * high, p.m), 0, p.panels());
    else
      part(c, p, fused, 0, p.m, from, to);
  });
}

bool supports(const KernelCall& c) {
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].present() && (c.in[i].is_scalar || c.in[i].dtype != DType::bf16 ||
                              !c.in[i].contiguous || c.in[i].numel == 0))
      return false;
  return true;
}

}  // namespace

void register_packed_bf16() {
  runtime_of(op::pack_matrix_bf16);
  if (!bf16_loops()) return;
  register_kernel(DeviceKind::cpu, op::packed_matmul_bf16, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
