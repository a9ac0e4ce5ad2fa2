// SPDX-License-Identifier: Apache-2.0
// Pointwise execution: one merged loop over all arrays, cut into tiles that are dealt to threads.
// Long inner dimensions are walked row by row with direct pointers; short ones are gathered.
#include "tandem/codegen/pointwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "tandem/base/parallel.h"
#include "tandem/base/per_thread.h"
#include "tandem/base/small_vec.h"
#include "tandem/codegen/plan_use.h"

namespace tandem::codegen {
namespace {

/// A call below this much work (in adds) stays on one thread.
constexpr double kSerialWork = 96 * 1024;
/// Shorter inner dimensions are gathered into full tiles.
constexpr int64_t kShortRow = 64;
/// So are these when all that is not dense repeats with every row: gathered once for all tiles.
constexpr int64_t kRepeatedRow = 512;
/// A compiled loop needs no scratch: its pieces are only cut for the threads.
constexpr int64_t kCompiledTile = 8192;

// ---- plans, kept by (program, access pattern, table)
struct PlanKey {
  const ScalarProgram* program;
  const TileTable* table;
  uint64_t pattern, alias;
  bool operator==(const PlanKey&) const = default;
};
struct PlanKeyHash {
  size_t operator()(const PlanKey& k) const {
    uint64_t h = reinterpret_cast<uintptr_t>(k.program) >> 4;
    h = (h ^ k.pattern ^ k.alias << 7) * 0x9E3779B97F4A7C15u;
    return (h ^ h >> 29 ^ reinterpret_cast<uintptr_t>(k.table)) * 0xBF58476D1CE4E5B9u >> 20;
  }
};

const TilePlan& kept_plan(const PlanKey& key, const Access* access, const TileOptions& options) {
  struct Slot {
    PlanKey key{};
    const TilePlan* plan = nullptr;
  };
  struct Table {
    Slot slots[64];
  };
  Slot(&recent)[64] = detail::PerThread<Table>::get().slots;
  Slot& slot = recent[PlanKeyHash{}(key) % 64];
  if (slot.plan && slot.key == key) return *slot.plan;
  // Never destroyed: threads may run kernels until the process ends.
  static std::mutex* lock = new std::mutex;
  static auto* plans = new std::unordered_map<PlanKey, std::unique_ptr<TilePlan>, PlanKeyHash>;
  std::lock_guard hold(*lock);
  std::unique_ptr<TilePlan>& plan = (*plans)[key];
  if (!plan) {
    plan = std::make_unique<TilePlan>(make_tile_plan(*key.program, access, options, *key.table));
  }
  slot = {key, plan.get()};
  return *plan;
}

// ---- one run
struct Run {
  const ScalarProgram& program;
  const Array* in;
  int n_in;
  Array* out;
  int n_out;
  ErrorWord* error;
  TileLoop loop;
  bool by_rows = true;  // else flat tiles with gathers
  Access access[kMaxPlanIns];
  bool repeats[kMaxPlanIns] = {};  // gathered, the same in every row
  bool repeated = false;           // tiles are whole rows, so that this holds for tiles too
  bool scatter[kMaxPlanOuts];
  const TilePlan* plan = nullptr;
  const PlanUse* use = nullptr;
  int64_t tile = kTileMax;
  int64_t scratch_bytes = 0;
  int64_t values[256];  // registers of class value, by slot

  Run(const ScalarProgram& p, const Array* in, int n_in, Array* out, int n_out, ErrorWord* e)
      : program(p), in(in), n_in(n_in), out(out), n_out(n_out), error(e) {}

  bool all_flat();
  void make_loop();
  void classify();
  bool all_repeat() const;
  TileOptions options() const;
  uint64_t pattern() const;
  static uint64_t alias_bits(const TileOptions& o, int n_in, int n_out);
  void size_tiles();
  void compute_values();
  void execute();
  void run_rows(int64_t begin, int64_t end) const;
  void run_flat(int64_t begin, int64_t end) const;

  // A thread's slots: pointers that change per tile, scratch, values.
  struct Worker;
};

// The frequent case without strides: everything is contiguous and of the output's size.
bool Run::all_flat() {
  const int64_t n = out[0].numel;
  for (int k = 0; k < n_out; ++k) {
    if (!out[k].contiguous || out[k].numel != n) return false;
  }
  for (int k = 0; k < n_in; ++k) {
    if (!in[k].is_scalar && (in[k].numel != n || !in[k].contiguous)) {
      if (in[k].numel != 1) return false;
    }
  }
  loop.rank = 1;
  loop.n_arrays = n_in + n_out;
  loop.size[0] = n;
  for (int k = 0; k < n_in; ++k) {
    const bool one = in[k].is_scalar || (in[k].numel == 1 && n != 1);
    access[k] = in[k].is_scalar || in[k].numel == 1 ? Access::value : Access::dense;
    loop.stride[k][0] = one ? 0 : 1;
  }
  for (int k = 0; k < n_out; ++k) {
    loop.stride[n_in + k][0] = 1;
    scatter[k] = false;
  }
  return true;
}

void Run::make_loop() {
  const Array* arrays[kMaxLoopArrays];
  for (int k = 0; k < n_in; ++k) arrays[k] = &in[k];
  for (int k = 0; k < n_out; ++k) arrays[n_in + k] = &out[k];
  loop = TileLoop::make(out[0].shape, out[0].rank, arrays, n_in + n_out, n_in);
}

// Is every array dense, a constant, or one row that repeats?
bool Run::all_repeat() const {
  for (int k = 0; k < n_in + n_out; ++k) {
    if (loop.dense(k) || (k < n_in && loop.constant(k))) continue;
    if (k >= n_in || loop.inner_stride(k) == 0) return false;
    for (int d = 0; d + 1 < loop.rank; ++d) {
      if (loop.stride[k][d] != 0) return false;
    }
  }
  return true;
}

void Run::classify() {
  repeated = loop.rank > 1 && loop.inner() < kRepeatedRow && all_repeat();
  by_rows = !repeated && (loop.rank == 1 || loop.inner() >= kShortRow);
  for (int k = 0; k < n_in; ++k) {
    const int64_t stride = loop.inner_stride(k);
    if (in[k].is_scalar || loop.constant(k)) {
      access[k] = Access::value;
    } else if (by_rows) {
      access[k] = stride == 0 ? Access::row : stride == 1 ? Access::dense : Access::gather;
    } else {
      access[k] = loop.dense(k) ? Access::dense : Access::gather;
      repeats[k] = repeated && access[k] == Access::gather;
    }
  }
  for (int k = 0; k < n_out; ++k) {
    scatter[k] =
        by_rows ? loop.inner_stride(n_in + k) != 1 && loop.inner() != 1 : !loop.dense(n_in + k);
  }
}

TileOptions Run::options() const {
  TileOptions o;
  for (int k = 0; k < n_out; ++k) {
    for (int j = 0; j < n_in; ++j) {
      if (out[k].data == in[j].data) o.alias[k] |= 1u << j;
    }
  }
  // A plan's key has 64 bits for this: too many operands count as all aliased.
  for (int k = 0; k < n_out; ++k) {
    if (o.alias[k] && (n_in > 16 || n_out > 4)) o.alias[k] = TileOptions::kAnyInput;
  }
  return o;
}

uint64_t Run::pattern() const {
  uint64_t bits = 0;
  for (int k = 0; k < n_in; ++k) bits = bits << 2 | static_cast<uint64_t>(access[k]);
  return bits;
}

uint64_t Run::alias_bits(const TileOptions& o, int n_in, int n_out) {
  uint64_t bits = 0;
  const bool exact = n_in <= 16 && n_out <= 4;
  for (int k = 0; k < n_out; ++k) {
    bits = exact ? bits << 16 | o.alias[k] : bits << 1 | (o.alias[k] != 0);
  }
  return bits;
}

void Run::size_tiles() {
  const int64_t tiles_bytes = static_cast<int64_t>(plan->n_tiles) * plan->tile_width;
  int64_t bytes = use->compiled() ? 0 : tiles_bytes;
  for (int k = 0; k < n_in; ++k) {
    if (access[k] == Access::gather) bytes += static_cast<int64_t>(size_of(in[k].dtype));
  }
  for (int k = 0; k < n_out; ++k) {
    if (scatter[k]) bytes += static_cast<int64_t>(size_of(out[k].dtype));
  }
  tile = use->compiled() && bytes == 0 ? kCompiledTile : TileScratch::tile_elements(bytes);
  if (repeated && loop.inner() > tile) {  // a very large program: its tiles are too short
    repeated = false;
    std::fill(repeats, repeats + kMaxPlanIns, false);
  }
  if (repeated) tile = tile / loop.inner() * loop.inner();
  scratch_bytes = bytes * tile + 64 * (plan->n_tiles + n_in + n_out);
}

// Reads input k's element at `offset` into a register.
void read_value(const Array& a, DType stored, int64_t offset, void* to) {
  if (a.is_scalar) {
    const int64_t bits = register_bits(a.scalar, reg_of(stored));
    std::memcpy(to, &bits, sizeof bits);
    return;
  }
  const char* p = a.as<char>() + offset * static_cast<int64_t>(size_of(a.dtype));
  tiles().load[static_cast<int>(a.dtype)](to, p, p, p, p, 1);
}

void Run::compute_values() {
  void* slots[kMaxLoopArrays + 256];
  const int first = plan->first_value();
  TD_ASSERT(plan->n_values + n_in <= 256);
  for (int k = 0; k < plan->n_values; ++k) slots[first + k] = &values[n_in + k];
  for (int k = 0; k < n_in; ++k) {
    if (access[k] != Access::value) continue;
    slots[k] = &values[k];
    read_value(in[k], program.in[k], 0, &values[k]);
  }
  for (const auto& c : plan->constants) {
    std::memcpy(slots[c.first], &c.second, sizeof c.second);
  }
  run_steps(plan->value_steps, slots, 1, error);
}

struct Run::Worker {
  const Run& run;
  TileScratch scratch;
  SmallVec<void*, 48> slots;
  int64_t values[256];
  void* moved[kMaxLoopArrays] = {};  // scratch of gathered inputs and scattered outputs

  explicit Worker(const Run& r) : run(r), scratch(r.scratch_bytes) {
    const TilePlan& plan = *r.plan;
    slots.resize(static_cast<size_t>(plan.n_slots()));
    for (int k = 0; k < plan.n_tiles && !r.use->compiled(); ++k) {
      slots[plan.first_tile() + k] = scratch.take(r.tile * plan.tile_width);
    }
    for (int k = 0; k < r.n_in; ++k) {
      if (r.access[k] == Access::gather) {
        slots[k] = moved[k] = scratch.take(r.tile * static_cast<int64_t>(size_of(r.in[k].dtype)));
      } else if (r.access[k] <= Access::row) {
        slots[k] = &values[k];
      }
    }
    for (int k = 0; k < r.n_out; ++k) {
      if (!r.scatter[k]) continue;
      const int at = r.n_in + k;
      slots[at] = moved[at] = scratch.take(r.tile * static_cast<int64_t>(size_of(r.out[k].dtype)));
    }
    for (int k = 0; k < r.n_in; ++k) {
      if (r.repeats[k]) gather(k, 0, std::min(r.tile, r.loop.rows() * r.loop.inner()));
    }
    std::memcpy(values, r.values, sizeof(int64_t) * static_cast<size_t>(r.n_in + plan.n_values));
    for (int k = 0; k < plan.n_values; ++k) slots[plan.first_value() + k] = &values[r.n_in + k];
  }

  char* at(const Array& a, int64_t offset) const {
    return a.as<char>() + offset * static_cast<int64_t>(size_of(a.dtype));
  }

  void gather(int k, int64_t begin, int64_t n) {
    gather_flat(run.loop, k, moved[k], run.in[k].data, begin, n, size_of(run.in[k].dtype));
  }

  void start_row(const LoopCursor& c) {
    for (int k = 0; k < run.n_in; ++k) {
      if (run.access[k] == Access::row) {
        read_value(run.in[k], run.program.in[k], c.offset[k], &values[k]);
      }
    }
    run_steps(run.plan->row_steps, slots.data(), 1, run.error);
  }

  // Elements [from, from + n) of the cursor's row.
  void row_tile(const LoopCursor& c, int64_t from, int64_t n) {
    const TileLoop& loop = run.loop;
    for (int k = 0; k < run.n_in; ++k) {
      if (run.access[k] < Access::dense) continue;
      const int64_t stride = loop.inner_stride(k);
      char* p = at(run.in[k], c.offset[k] + from * stride);
      if (run.access[k] == Access::dense) {
        slots[k] = p;
      } else {
        gather_run(moved[k], p, stride, n, size_of(run.in[k].dtype));
      }
    }
    for (int k = 0; k < run.n_out; ++k) {
      const int a = run.n_in + k;
      if (!run.scatter[k]) slots[a] = at(run.out[k], c.offset[a] + from);
    }
    run.use->run(slots.data(), n, run.error);
    for (int k = 0; k < run.n_out; ++k) {
      if (!run.scatter[k]) continue;
      const int a = run.n_in + k;
      const int64_t stride = loop.inner_stride(a);
      scatter_run(at(run.out[k], c.offset[a] + from * stride), moved[a], stride, n,
                  size_of(run.out[k].dtype));
    }
  }

  // Elements [begin, begin + n) of the flat loop.
  void flat_tile(int64_t begin, int64_t n) {
    for (int k = 0; k < run.n_in; ++k) {
      if (run.access[k] == Access::dense) slots[k] = at(run.in[k], begin);
      if (run.access[k] == Access::gather && !run.repeats[k]) gather(k, begin, n);
    }
    for (int k = 0; k < run.n_out; ++k) {
      if (!run.scatter[k]) slots[run.n_in + k] = at(run.out[k], begin);
    }
    run.use->run(slots.data(), n, run.error);
    for (int k = 0; k < run.n_out; ++k) {
      const int a = run.n_in + k;
      if (run.scatter[k]) {
        scatter_flat(run.loop, a, run.out[k].data, moved[a], begin, n, size_of(run.out[k].dtype));
      }
    }
  }
};

void Run::run_rows(int64_t begin, int64_t end) const {
  const int64_t inner = loop.inner(), per_row = (inner + tile - 1) / tile;
  Worker w(*this);
  LoopCursor cursor(loop, begin / per_row);
  int64_t part = begin % per_row;
  for (int64_t unit = begin; unit < end;) {
    w.start_row(cursor);
    for (; part < per_row && unit < end; ++part, ++unit) {
      w.row_tile(cursor, part * tile, std::min(tile, inner - part * tile));
    }
    part = 0;
    cursor.advance();
  }
}

void Run::run_flat(int64_t begin, int64_t end) const {
  Worker w(*this);
  w.start_row(LoopCursor(loop, 0));
  const int64_t total = loop.rows() * loop.inner();
  for (int64_t unit = begin; unit < end; ++unit) {
    w.flat_tile(unit * tile, std::min(tile, total - unit * tile));
  }
}

void Run::execute() {
  const int64_t inner = loop.inner(), rows = loop.rows();
  const int64_t units =
      by_rows ? rows * ((inner + tile - 1) / tile) : (rows * inner + tile - 1) / tile;
  const double unit_work = plan->cost * static_cast<double>(by_rows ? std::min(tile, inner) : tile);
  const auto grain = static_cast<int64_t>(std::max(1.0, kSerialWork / 2 / unit_work));
  parallel_for(0, units, grain, [this](int64_t begin, int64_t end) {
    by_rows ? run_rows(begin, end) : run_flat(begin, end);
  });
}

}  // namespace

void run_program(const ScalarProgram& program, const Array* in, int n_in, Array* out, int n_out,
                 ErrorWord* error, bool keep) {
  TD_ASSERT(n_in == static_cast<int>(program.in.size()) && n_in <= kMaxPlanIns);
  TD_ASSERT(n_out == static_cast<int>(program.out.size()) && n_out <= kMaxPlanOuts && n_out > 0);
  if (out[0].numel == 0) return;
  Run run(program, in, n_in, out, n_out, error);
  if (!run.all_flat()) {
    run.make_loop();
    run.classify();
  }
  const TileOptions options = run.options();
  std::unique_ptr<TilePlan> own;
  if (keep) {
    const uint64_t alias = Run::alias_bits(options, n_in, n_out);
    run.plan = &kept_plan({&program, &tiles(), run.pattern(), alias}, run.access, options);
  } else {
    own = std::make_unique<TilePlan>(make_tile_plan(program, run.access, options, tiles()));
    run.plan = own.get();
  }
  const PlanUse use(*run.plan);
  run.use = &use;
  run.size_tiles();
  run.compute_values();
  run.execute();
}

void run_pointwise(const KernelCall& call) {
  run_program(program_of(call), call.in, call.n_in, call.out, call.n_out, call.error, true);
}

namespace {

// The layout of the first full-sized dense input, so that channels-last stays channels-last.
bool pointwise_layout(const KernelCall& call, int output, Strides& strides) {
  const Array& out = call.out[output];
  for (int k = 0; k < call.n_in; ++k) {
    const Array& a = call.in[k];
    if (a.is_scalar || !a.strides || a.rank != out.rank || a.numel != out.numel) continue;
    if (!std::equal(a.shape, a.shape + a.rank, out.shape)) continue;
    if (a.contiguous) return false;
    const Array* arrays[] = {&a};
    const TileLoop loop = TileLoop::make(a.shape, a.rank, arrays, 1, 0);
    if (!loop.dense(0)) continue;
    std::copy(a.strides, a.strides + a.rank, strides.v.begin());
    return true;
  }
  return false;
}

}  // namespace

namespace {

// select(compare(t, 0), 0, v) or select(compare(t, 0), v, 0).
FastF32 fast_select_of(const ScalarProgram& p, const ScalarInstr& top) {
  const auto is_zero = [&](int16_t r) {
    return p.code[r].op == ScalarOp::constant && p.code[r].imm.to_double() == 0 &&
           !std::signbit(p.code[r].imm.to_double());
  };
  const auto input_of = [&](int16_t r) {
    return p.code[r].op == ScalarOp::input ? p.code[r].input : int16_t{-1};
  };
  const ScalarInstr& test = p.code[top.a];
  const bool zero_first = is_zero(top.b);
  if (!zero_first && !is_zero(top.c)) return nullptr;
  if (test.op < ScalarOp::lt || test.op > ScalarOp::ge || test.type != Reg::f32) return nullptr;
  const bool swapped = is_zero(test.a);
  if (!swapped && !is_zero(test.b)) return nullptr;
  static constexpr ScalarOp kOps[] = {ScalarOp::lt, ScalarOp::le, ScalarOp::gt, ScalarOp::ge};
  static constexpr int kMirror[] = {2, 3, 0, 1};
  int compare = static_cast<int>(std::find(kOps, kOps + 4, test.op) - kOps);
  if (swapped) compare = kMirror[compare];
  const int t = input_of(swapped ? test.b : test.a), v = input_of(zero_first ? top.c : top.b);
  if (t < 0 || v < 0 || t > 1 || v > 1 || (t == 1 && v == 1)) return nullptr;
  const int form = (t == v ? 0 : t == 0 ? 1 : 2) + (zero_first ? 0 : 3);
  return tiles().fast_select[compare][form];
}

}  // namespace

FastF32 fast_f32_of(const OpDef& op) {
  if (op.n_in < 1 || op.n_in > 2 || op.n_out != 1 || op.attrs || op.variadic) return nullptr;
  const DType in[] = {DType::f32, DType::f32}, out[] = {DType::f32};
  const ScalarProgram& p = program_of(op, std::span(in, op.n_in), out);
  const ScalarInstr& top = p.code[p.out[0].reg];
  if (top.type != Reg::f32 || top.result != Reg::f32) return nullptr;
  if (top.op == ScalarOp::select) return fast_select_of(p, top);
  const auto reads = [&](int16_t r, int input) {
    return r >= 0 && p.code[r].op == ScalarOp::input && p.code[r].input == input;
  };
  const auto k = static_cast<int>(top.op);
  if (op.n_in == 1) return reads(top.a, 0) && top.b < 0 ? tiles().fast_unary[k] : nullptr;
  if (reads(top.a, 0) && reads(top.b, 1)) return tiles().fast_binary[k];
  return nullptr;
}

const Kernel& pointwise_kernel() {
  static constexpr Kernel kernel{nullptr, pointwise_layout, nullptr, run_pointwise};
  return kernel;
}

}  // namespace tandem::codegen
