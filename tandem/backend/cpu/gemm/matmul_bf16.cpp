// SPDX-License-Identifier: Apache-2.0
// bf16 matmuls. The second matrix is rearranged into panels of pairs along k, once for all threads;
// the first is read where it lies, or turned where it is transposed, as in every derivative with
// respect to a weight. Threads share blocks of tiles; a block's panels stay in the second-level
// cache, and deep ones are cut into pieces of k whose sums wait in f32.
#include <algorithm>
#include <atomic>

#include "tandem/backend/cpu/gemm/matmul_bf16_internal.h"
#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/gemm/tiles_bf16.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/dry_run.h"
#include "tandem/ops/matmul/matmul.h"

namespace tandem::detail {
namespace {

constexpr int kFewestRows = 32, kFewestTurned = 16;
constexpr int64_t kFewestDepth = 32;
constexpr int64_t kMostPiece = 3072;        ///< of k, without a cut
constexpr int64_t kBlockBytes = 768 << 10;  ///< of a block's panels
constexpr int64_t kMostRows = 256;          ///< of a block
constexpr double kMultiplyAddsPerThread = 262144;
constexpr double kFewestMultiplyAdds = 32768;  ///< with AMX

std::atomic<const Bf16Loops*> chosen{nullptr};

int64_t up_to_block(int64_t k) { return (k + kBf16Block - 1) / kBf16Block * kBf16Block; }

// Rows or columns of unit stride that do not overlap.
bool in_order(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return (column == 1 && row >= columns) || (row == 1 && column >= rows);
}

}  // namespace

const Bf16Loops* bf16_loops() {
  if (const Bf16Loops* l = chosen.load(std::memory_order_relaxed)) return l;
  return bf16_amx_loops() ? bf16_amx_loops() : bf16_vector_loops();
}
void use_bf16_loops(const Bf16Loops* l) { chosen = l; }

int64_t Bf16MatmulPlan::panels() const { return (p.n + kBf16Panel - 1) / kBf16Panel; }

bool takes_matmul_bf16(const MatmulProblem& p) {
  // A plan for another device does not depend on the processor on which it is made.
  if (is_dry_run_of_any_device() || !bf16_loops()) return false;
  const Bf16Loops& l = *bf16_loops();
  const int64_t fewest = p.ak == 1 ? kFewestRows : std::min(l.rows, kFewestTurned);
  if (p.m < fewest || p.n < kBf16Panel || p.k < kFewestDepth) return false;
  if (!l.by_lines) return p.batches == 1 && p.am == 1 && p.bn == 1 && p.ak >= p.m && p.bk >= p.n;
  return p.multiply_adds() / static_cast<double>(p.batches) >= kFewestMultiplyAdds &&
         in_order(p.m, p.k, p.am, p.ak) && in_order(p.k, p.n, p.bk, p.bn);
}

void plan_matmul_bf16(Bf16MatmulPlan& plan, const MatmulProblem& p) {
  const Bf16Loops& l = *bf16_loops();
  plan.p = p;
  plan.loops = &l;
  const double share = p.multiply_adds() / kMultiplyAddsPerThread;
  plan.workers = std::max(1, static_cast<int>(std::min<double>(num_threads(), share)));
  plan.by_batch = p.batches > 1 && p.batches >= plan.workers;
  plan.depth = (l.by_lines ? up_to_block(p.k) : p.k + p.k % 2) / 2;
  const int64_t k = 2 * plan.depth, pieces = (k + kMostPiece - 1) / kMostPiece;
  plan.piece = pieces == 1 ? k : up_to_block((k + pieces - 1) / pieces);
  plan.tiles = (p.m + l.rows - 1) / l.rows;
  plan.high = std::min<int64_t>(plan.tiles, kMostRows / l.rows);
  plan.wide = std::clamp<int64_t>(kBlockBytes / (plan.piece * kBf16Panel * 2), 1, plan.panels());
  // A few blocks for each thread.
  const int64_t wanted = plan.by_batch ? 1 : 4 * plan.workers;
  const auto blocks = [&] {
    return ((plan.tiles + plan.high - 1) / plan.high) *
           ((plan.panels() + plan.wide - 1) / plan.wide);
  };
  while (plan.workers > 1 && blocks() < wanted && (plan.high > 2 || plan.wide > 2))
    (plan.high > plan.wide ? plan.high : plan.wide) /= 2;
  // Rows that start off a line would be read as two.
  plan.lays_a = p.ak != 1 || (l.by_lines && (p.am * 2 % 64 != 0 || p.k % kBf16Block != 0));
  const auto bytes = [](int64_t numbers) { return whole_lines(static_cast<size_t>(numbers) * 2); };
  plan.panels_at = plan.lays_a ? bytes(p.m * k) : 0;
  plan.sums_at = plan.panels_at + bytes(plan.panels() * plan.depth * kBf16Panel * 2);
  const int64_t kept = pieces == 1 ? 1 : plan.high * plan.wide;
  plan.sums_bytes = static_cast<size_t>(kept) * kMostBf16Rows * kBf16Panel * sizeof(float);
  plan.batch_bytes = plan.sums_at + plan.sums_bytes;
  plan.workspace = plan.by_batch
                       ? plan.batch_bytes * static_cast<size_t>(plan.workers)
                       : plan.sums_at + plan.sums_bytes * static_cast<size_t>(plan.workers);
}

namespace {

// One matrix of the batch, with its part of the workspace.
struct Bf16Matmul {
  const Bf16MatmulPlan& plan;
  const Bf16Loops& l;
  const uint16_t *a, *b, *bias;
  uint16_t* y;
  char* scratch;
  const Epilogue* epilogue;

  uint16_t* laid() const { return reinterpret_cast<uint16_t*>(scratch); }
  uint16_t* panel(int64_t j) const {
    return reinterpret_cast<uint16_t*>(scratch + plan.panels_at) + j * plan.depth * kBf16Panel * 2;
  }
  int64_t k() const { return 2 * plan.depth; }
  int64_t blocks_down() const { return (plan.tiles + plan.high - 1) / plan.high; }
  int64_t blocks() const { return blocks_down() * ((plan.panels() + plan.wide - 1) / plan.wide); }

  void lay_tile(int64_t t) const {
    const MatmulProblem& p = plan.p;
    const int64_t row = plan.first_row(t), rows = plan.first_row(t + 1) - row;
    uint16_t* to = laid() + row * k();
    if (p.ak != 1) return l.turn(to, a + row, p.ak, rows, p.k);
    for (int64_t i = 0; i < rows; ++i, to += k()) {
      std::copy_n(a + (row + i) * p.am, p.k, to);
      std::fill(to + p.k, to + k(), uint16_t{0});
    }
  }

  void lay_panel(int64_t j) const {
    const MatmulProblem& p = plan.p;
    const int64_t column = j * kBf16Panel, columns = std::min(kBf16Panel, p.n - column);
    uint16_t* to = panel(j);
    if (p.bn != 1) return l.pair_rows(to, b + column * p.bn, p.bn, columns, p.k, plan.depth);
    l.pair(to, kBf16Panel, b + column, p.bk, columns, p.k);
    std::fill(to + (p.k + 1) / 2 * 2 * kBf16Panel, to + k() * kBf16Panel, uint16_t{0});
  }

  Bf16Tile tile_at(int64_t t, int64_t j, int64_t from, float* sums) const {
    const MatmulProblem& p = plan.p;
    const int64_t row = plan.first_row(t), rows = plan.first_row(t + 1) - row;
    Bf16Tile out;
    out.k = std::min(plan.piece, k() - from);
    if (!plan.lays_a)
      out.a = a + row * p.am + from, out.am = p.am;
    else if (l.by_lines)
      out.a = laid() + row * k() + from, out.am = k();
    else
      out.a = laid() + row * k() + from * rows, out.am = 2, out.ak = 2 * rows;
    out.w = panel(j) + from * kBf16Panel;
    out.c = sums;
    out.accumulate = from > 0;
    return out;
  }

  void block(int64_t u, float* sums) const {
    const int64_t t0 = u % blocks_down() * plan.high, t1 = std::min(t0 + plan.high, plan.tiles);
    const int64_t j0 = u / blocks_down() * plan.wide, j1 = std::min(j0 + plan.wide, plan.panels());
    const bool kept = plan.piece < k();
    for (int64_t from = 0; from < k(); from += plan.piece)
      for (int64_t t = t0; t < t1; ++t) {
        const int64_t row = plan.first_row(t), rows = plan.first_row(t + 1) - row;
        for (int64_t j = j0; j < j1; ++j) {
          float* c = sums + (kept ? ((t - t0) * plan.wide + j - j0) * kMostBf16Rows * kBf16Panel
                                  : int64_t{0});
          l.tile(tile_at(t, j, from, c), static_cast<int>(rows));
          if (from + plan.piece >= k()) finish(c, row, rows, j);
        }
        if (epilogue && from + plan.piece >= k())
          epilogue->run(*epilogue, row, row + rows, j0 * kBf16Panel,
                        std::min(j1 * kBf16Panel, plan.p.n));
      }
    l.release();
  }
  void finish(float* sums, int64_t row, int64_t rows, int64_t j) const {
    const int64_t column = j * kBf16Panel, columns = std::min(kBf16Panel, plan.p.n - column);
    if (bias) l.add(sums, bias + column, 0, rows, columns);
    l.store(sums, y + row * plan.p.n + column, plan.p.n, rows, columns);
  }

  void alone() const {
    for (int64_t j = 0; j < plan.panels(); ++j) lay_panel(j);
    if (plan.lays_a)
      for (int64_t t = 0; t < plan.tiles; ++t) lay_tile(t);
    for (int64_t u = 0; u < blocks(); ++u)
      block(u, reinterpret_cast<float*>(scratch + plan.sums_at));
  }
  void together() const {
    const int64_t laid = plan.lays_a ? plan.tiles : 0;
    parallel_for(0, plan.panels() + laid, 1 + 65536 / (k() * kBf16Panel),
                 [&](int64_t first, int64_t last) {
                   for (int64_t i = first; i < last; ++i)
                     i < laid ? lay_tile(i) : lay_panel(i - laid);
                 });
    share_units(plan.workers, blocks(), [&](size_t w, int64_t u) {
      block(u, reinterpret_cast<float*>(scratch + plan.sums_at + w * plan.sums_bytes));
    });
  }
};

}  // namespace

void run_matmul_bf16(const Bf16MatmulPlan& plan, const uint16_t* a, const uint16_t* b,
                     const uint16_t* bias, uint16_t* y, void* scratch, const Epilogue* epilogue) {
  const MatmulProblem& p = plan.p;
  auto* space = static_cast<char*>(scratch);
  const auto one = [&](int64_t i, char* own) {
    int64_t at_a, at_b;
    p.offsets(i, at_a, at_b);
    return Bf16Matmul{plan, *plan.loops,       a + at_a, b + at_b,
                      bias, y + i * p.m * p.n, own,      epilogue};
  };
  if (plan.by_batch)
    share_units(plan.workers, p.batches,
                [&](size_t w, int64_t i) { one(i, space + w * plan.batch_bytes).alone(); });
  else
    for (int64_t i = 0; i < p.batches; ++i) one(i, space).together();
}

namespace {

bool supports(const KernelCall& c) {
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].present() && c.in[i].dtype != DType::bf16) return false;
  if (&c.op == &op::linear &&
      !(is_rows(c.in[0]) && (c.n_in < 3 || !c.in[2].present() || c.in[2].contiguous)))
    return false;
  return takes_matmul_bf16(matmul_problem(c));
}

void run_on(const KernelCall& c, const Epilogue* epilogue) {
  const uint16_t* bias = c.n_in > 2 && c.in[2].present() ? c.in[2].as<uint16_t>() : nullptr;
  run_matmul_bf16(*static_cast<const Bf16MatmulPlan*>(c.plan), c.in[0].as<uint16_t>(),
                  c.in[1].as<uint16_t>(), bias, c.out[0].as<uint16_t>(), c.scratch, epilogue);
}
void run_with(const KernelCall& c, const Epilogue& epilogue) { run_on(c, &epilogue); }
void run(const KernelCall& c) { run_on(c, nullptr); }

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<Bf16MatmulPlan>();
  plan->run_with = run_with;
  plan_matmul_bf16(*plan, matmul_problem(c));
  return plan;
}

EpilogueKind blocks(const KernelCall& c) {
  return matmul_problem(c).batches == 1 ? EpilogueKind::blocks : EpilogueKind::none;
}

}  // namespace

void register_matmul_bf16() {
  if (!bf16_loops()) return;
  register_epilogue(prepare, blocks);
  for (const OpDef* op : {&op::matmul, &op::linear})
    register_kernel(DeviceKind::cpu, *op, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
