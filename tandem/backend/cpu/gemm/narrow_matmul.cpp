// SPDX-License-Identifier: Apache-2.0
// matmul and linear of a few rows with a large weight of 16 bits, as in decoding. Weights of bf16
// and few rows are multiplied where they lie; else a block of the weight at a time is widened into
// the cache, and the f32 GEMM computes with it. Both have the bits of widening all of the weight
// first, which would write and read twice its bytes once more.
#include <algorithm>

#include "tandem/backend/cpu/gemm/matmul_internal.h"
#include "tandem/backend/cpu/gemm/narrow_internal.h"
#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/widened_internal.h"
#include "tandem/codegen/tile_kernels.h"
#include "tandem/ops/matmul/matmul.h"

namespace tandem::detail {
namespace {

constexpr int64_t kMostRows = 64, kFewestOutputs = 64, kFewestWeights = 65536;
/// Rows that are multiplied where the weight lies, and columns of a unit: by column, its inputs are
/// adjacent; by input, all sums of a unit are read for each.
constexpr int64_t kRowsByColumn = 4, kRowsByInput = 8, kColumns = 64, kColumnsByInput = 4096;
constexpr int64_t kBlock = 49152;       ///< elements of the weight that are widened at a time
constexpr int64_t kFewestColumns = 16;  ///< of a block
constexpr double kMultiplyAddsPerThread = 131072;

struct NarrowPlan : Plan {
  MatmulProblem p;
  const NarrowLoops* direct = nullptr;
  int workers = 1;
  int64_t columns = 0, depth = 0;  ///< of a block
  /// Where in the scratch: x and the bias in f32, and for each worker a block and its results.
  size_t x = 0, bias = 0, parts = 0, y = 0, inner = 0, part = 0;
  int64_t blocks() const { return (p.n + columns - 1) / columns; }
};

bool supports(const KernelCall& c) {
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].present() &&
        (!is_short_float(c.in[i].dtype) || c.in[i].is_scalar || c.in[i].numel == 0))
      return false;
  if (!is_short_float(c.out[0].dtype) || c.in[0].dtype != c.out[0].dtype ||
      c.in[1].dtype != c.out[0].dtype)
    return false;
  const bool linear = &c.op == &op::linear;
  if (linear && !is_rows(c.in[0])) return false;
  if (!linear && (c.get_attrs<MatmulAttrs>().trans_a || c.in[0].rank < 2)) return false;
  const MatmulProblem p = matmul_problem(c);
  // Rows that are one row again and again may be folded to more than x has.
  if (c.in[0].numel != p.m * p.k) return false;
  return p.batches == 1 && p.m <= kMostRows && p.n * p.k >= kFewestWeights &&
         p.n >= kFewestOutputs && ((p.bk == 1 && p.bn >= p.k) || (p.bn == 1 && p.bk >= p.n));
}

const NarrowLoops* direct_loops(const KernelCall& c, const MatmulProblem& p) {
  const CpuFeatures& f = cpu_features();
  const bool few = p.m <= (p.bk == 1 ? kRowsByColumn : kRowsByInput);
  const bool there = f.avx2 && kNarrowAvx2.name;
  return few && there && c.in[1].dtype == DType::bf16 ? &kNarrowAvx2 : nullptr;
}

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<NarrowPlan>();
  NarrowPlan& t = *plan;
  t.p = matmul_problem(c);
  const MatmulProblem& p = t.p;
  t.workers = std::max(1, static_cast<int>(std::min<double>(
                              num_threads(), p.multiply_adds() / kMultiplyAddsPerThread)));
  t.direct = direct_loops(c, p);
  // As the weight lies: whole columns, or the GEMM's pieces of k of many columns.
  t.depth = p.bk == 1 ? p.k : std::min(p.k, kGemmDepth);
  t.columns = std::clamp(kBlock / t.depth / kFewestColumns * kFewestColumns, kFewestColumns, p.n);
  if (t.direct) t.columns = std::min(p.n, p.bk == 1 ? kColumns : kColumnsByInput);
  const int64_t even = (p.n + t.workers - 1) / t.workers;  // a block for each worker at least
  t.columns = std::min(t.columns, (even + kFewestColumns - 1) / kFewestColumns * kFewestColumns);
  t.workers = static_cast<int>(std::min<int64_t>(t.workers, t.blocks()));
  const auto room = [](size_t& at, int64_t floats) {
    return take_lines(at, static_cast<size_t>(floats) * sizeof(float));
  };
  t.x = room(t.workspace, p.m * p.k);
  t.bias = room(t.workspace, p.n);
  t.parts = t.workspace;
  room(t.part, t.direct ? kNarrowRows * t.columns : t.columns * t.depth);
  t.y = room(t.part, p.m * t.columns);
  if (!t.direct) t.inner = take_lines(t.part, gemm_scratch<float>(p.m, t.columns, t.depth));
  t.workspace += t.part * static_cast<size_t>(t.workers);
  return plan;
}

void run(const KernelCall& c) {
  const auto& t = *static_cast<const NarrowPlan*>(c.plan);
  const MatmulProblem& p = t.p;
  auto* scratch = static_cast<char*>(c.scratch);
  auto* x = reinterpret_cast<float*>(scratch + t.x);
  auto* bias = reinterpret_cast<float*>(scratch + t.bias);
  const bool biased = c.n_in > 2 && c.in[2].present();
  widen_dense(c.in[0], x);
  if (biased) widen_dense(c.in[2], bias);
  const codegen::TileFn load = codegen::tiles().load[static_cast<int>(c.in[1].dtype)],
                        store = codegen::tiles().store[static_cast<int>(c.out[0].dtype)];
  const auto* b = c.in[1].as<uint16_t>();
  auto* out = c.out[0].as<uint16_t>();
  share_units(t.workers, t.blocks(), [&](size_t w, int64_t u) {
    char* own = scratch + t.parts + w * t.part;
    auto *block = reinterpret_cast<float*>(own), *y = reinterpret_cast<float*>(own + t.y);
    const int64_t j0 = u * t.columns, columns = std::min(t.columns, p.n - j0);
    const auto finish = [&] {
      for (int64_t r = 0; r < p.m; ++r)
        store(out + r * p.n + j0, y + r * columns, nullptr, nullptr, nullptr, columns);
    };
    if (t.direct) {
      for (int64_t r = 0; r < p.m; r += kNarrowRows) {
        const int64_t rows = std::min(kNarrowRows, p.m - r);
        const NarrowCall call{.k = p.k,
                              .x = x + r * p.k,
                              .w = b,
                              .w_step = p.bk == 1 ? p.bn : p.bk,
                              .bias = biased ? bias : nullptr,
                              .y = y + r * columns,
                              .y_row = columns,
                              .sums = block};
        (p.bk == 1 ? t.direct->by_column : t.direct->by_input)[rows - 1](call, j0, j0 + columns);
      }
      return finish();
    }
    Gemm<float> g{.m = p.m, .n = columns};
    g.am = p.k;
    g.ak = 1;
    g.b = block;
    g.c = y;
    g.c_row = columns;
    for (int64_t k = 0; k < p.k; k += t.depth) {
      g.k = std::min(t.depth, p.k - k);
      g.a = x + k;
      if (p.bk == 1) {
        for (int64_t j = 0; j < columns; ++j)
          load(block + j * g.k, b + (j0 + j) * p.bn + k, nullptr, nullptr, nullptr, g.k);
        g.bk = 1, g.bn = g.k;
      } else {
        for (int64_t i = 0; i < g.k; ++i)
          load(block + i * columns, b + (k + i) * p.bk + j0, nullptr, nullptr, nullptr, columns);
        g.bk = columns, g.bn = 1;
      }
      g.bias = biased && k == 0 ? bias + j0 : nullptr;
      g.accumulate = k > 0;
      gemm_serial(g, own + t.inner);
    }
    finish();
  });
}

}  // namespace

void register_narrow_matmul() {
  for (const OpDef* op : {&op::matmul, &op::linear})
    register_kernel(DeviceKind::cpu, *op, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
