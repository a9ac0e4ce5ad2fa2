// SPDX-License-Identifier: Apache-2.0
// Building and running row programs. Rows are dealt to threads one by one, or in blocks fixed by
// the shape when a program sums down columns; blocks are combined pairwise.
#include "tandem/codegen/row_program.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "tandem/base/parallel.h"
#include "tandem/codegen/plan_runner.h"
#include "tandem/codegen/reduce_program.h"
#include "tandem/tensor/allocator.h"

namespace tandem::codegen {

// ---- building

RowBuilder::RowBuilder(DType compute) : graph_(RowProgram::kSlots) { p_.compute = compute; }

E RowBuilder::input(RowKind kind, DType dtype) {
  TD_ASSERT(p_.ins.size() < RowProgram::kIns);
  p_.ins.push_back(kind);
  p_.in_types.push_back(dtype);
  return graph_.input(static_cast<int>(p_.ins.size()) - 1);
}

void RowBuilder::output(RowKind kind, DType dtype) {
  p_.outs.push_back(kind);
  p_.out_types.push_back(dtype);
}

void RowBuilder::sink(const RowSink& s, const E& x, DType dtype) {
  sinks_.push_back(s);
  values_.push_back(x);
  types_.push_back(dtype);
}

E RowBuilder::fold(Fold op, const E& x) {
  TD_ASSERT(p_.n_folds < RowProgram::kFolds);
  sink({RowSink::fold, op, p_.n_folds}, x, p_.compute);
  return graph_.input(RowProgram::kFirstFold + p_.n_folds++);
}

E RowBuilder::store(const E& x) {
  TD_ASSERT(p_.n_stored < RowProgram::kStored);
  sink({RowSink::store, Fold::add, p_.n_stored}, x, p_.compute);
  return graph_.input(RowProgram::kFirstStored + p_.n_stored++);
}

void RowBuilder::write(int k, const E& x) {
  switch (p_.outs[static_cast<size_t>(k)]) {
    case RowKind::matrix:
      return sink({RowSink::matrix, Fold::add, k}, x, p_.out_types[static_cast<size_t>(k)]);
    case RowKind::columns:
      return sink({RowSink::columns, Fold::add, k}, x, p_.compute);
    default:
      return add_row_stage(k, x);
  }
}

void RowBuilder::add_row_stage(int k, const E& x) {
  RowStage stage;
  stage.once = true;
  stage.sinks.push_back({RowSink::row, Fold::add, k});
  stage.program = lower_stage({x}, {p_.out_types[static_cast<size_t>(k)]});
  p_.stages.push_back(std::move(stage));
}

ScalarProgram RowBuilder::lower_stage(const std::vector<E>& values,
                                      const std::vector<DType>& types) {
  graph_.outputs.clear();
  for (const E& v : values) graph_.add_output(v);
  std::vector<DType> in(RowProgram::kSlots, p_.compute);
  std::vector<InputKind> kinds(RowProgram::kSlots, InputKind::element);
  for (size_t k = 0; k < p_.ins.size(); ++k) {
    in[k] = p_.in_types[k];
    if (p_.ins[k] == RowKind::number) kinds[k] = InputKind::number;
  }
  in[RowProgram::kCount] = DType::f64;
  kinds[RowProgram::kCount] = InputKind::number;
  return lower(graph_, in, p_.compute, types, kinds);
}

void RowBuilder::next_stage() {
  if (sinks_.empty()) return;
  RowStage stage;
  stage.program = lower_stage(values_, types_);
  stage.sinks = std::move(sinks_);
  p_.stages.push_back(std::move(stage));
  sinks_.clear();
  values_.clear();
  types_.clear();
}

RowProgram RowBuilder::finish() {
  next_stage();
  return std::move(p_);
}

namespace {

struct Kernels {
  std::mutex lock;
  std::unordered_map<uint64_t, std::unique_ptr<RowKernel>> by_key;
};
Kernels& all_kernels() {
  static auto* k = new Kernels;
  return *k;
}

}  // namespace

std::vector<const RowKernel*> row_kernels() {
  std::lock_guard hold(all_kernels().lock);
  std::vector<const RowKernel*> all;
  for (const auto& k : all_kernels().by_key) all.push_back(k.second.get());
  return all;
}

const RowKernel& row_kernel(uint64_t key, RowProgram (*make)(uint64_t key)) {
  const TileTable& table = tiles();
  uint64_t h = key ^ reinterpret_cast<uintptr_t>(&table) * 0x9E3779B97F4A7C15u;
  h ^= reinterpret_cast<uintptr_t>(make) * 0xBF58476D1CE4E5B9u;
  std::lock_guard hold(all_kernels().lock);
  std::unique_ptr<RowKernel>& k = all_kernels().by_key[h];
  if (k) return *k;
  k = std::make_unique<RowKernel>();
  k->program = make(key);
  const RowProgram& p = k->program;
  Access access[RowProgram::kSlots];
  std::fill(access, access + RowProgram::kSlots, Access::dense);
  for (size_t i = 0; i < p.ins.size(); ++i) {
    access[i] = p.ins[i] == RowKind::number ? Access::value
                : p.ins[i] == RowKind::row  ? Access::row
                                            : Access::dense;
  }
  access[RowProgram::kCount] = Access::value;
  for (int f = 0; f < RowProgram::kFolds; ++f) access[RowProgram::kFirstFold + f] = Access::row;
  for (const RowStage& s : p.stages) {
    TileOptions alias;  // an output may be the memory of an input
    for (size_t o = 0; o < s.sinks.size(); ++o) {
      if (s.sinks[o].kind == RowSink::matrix) alias.alias[o] = TileOptions::kAnyInput;
    }
    k->plans.push_back(make_tile_plan(s.program, access, alias, table));
  }
  return *k;
}

// ---- running

namespace {

constexpr double kSerialWork = 32 * 1024;
constexpr int64_t kMaxBlocks = 64, kMinBlockRows = 16;

bool row_strides(const RowSpace& space, const Array& a, int64_t& stride) {
  stride = 0;
  int64_t expected = 0;
  bool first = true;
  for (int d = space.last - 1; d >= space.first; --d) {
    if (a.shape[d] == 1) continue;
    if (first) {
      stride = a.strides[d];
    } else if (a.strides[d] != expected) {
      return false;
    }
    expected = a.strides[d] * a.shape[d];
    first = false;
  }
  if (first) stride = 1;
  return true;
}

}  // namespace

RowWalk make_row_walk(const RowProgram& p, const RowSpace& s, const Array* const* in,
                      const Array* const* out) {
  RowWalk space;
  const Array& x = *s.leader;
  const int n_in = static_cast<int>(p.ins.size()), n_out = static_cast<int>(p.outs.size());
  space.rows.n_arrays = n_in + n_out;
  for (int d = 0; d < x.rank; ++d) {
    const bool in_row = d >= s.first && d < s.last;
    if (in_row) {
      space.length *= x.shape[d];
      continue;
    }
    space.n_rows *= x.shape[d];
    const int at = space.rows.rank++;
    space.rows.size[at] = x.shape[d];
    for (int k = 0; k < n_in + n_out; ++k) {
      const RowKind kind = kind_of(p, k);
      const Array& a = k < n_in ? *in[k] : *out[k - n_in];
      const bool walks = kind == RowKind::matrix || kind == RowKind::row;
      space.rows.stride[k][at] = walks ? a.strides[d] : 0;
    }
  }
  for (int k = 0; k < n_in + n_out; ++k) {
    const RowKind kind = kind_of(p, k);
    const Array& a = k < n_in ? *in[k] : *out[k - n_in];
    if (kind == RowKind::matrix) row_strides(s, a, space.stride[k]);
    if (kind == RowKind::columns) space.stride[k] = 1;
  }
  space.rows.normalise(-1);
  // A cursor walks all but the innermost dimension: give it one of size 1.
  TileLoop& rows = space.rows;
  rows.size[rows.rank] = 1;
  for (int k = 0; k < rows.n_arrays; ++k) rows.stride[k][rows.rank] = 0;
  ++rows.rank;
  return space;
}

namespace {

struct Run {
  const RowKernel& kernel;
  const RowProgram& p;
  const Array* const* in;
  const Array* const* out;
  RowWalk space;
  int64_t tile;
  bool lines = true;  // neighbouring elements of all matrices lie side by side
  std::optional<JitUse> whole;
  SmallVec<PlanUse, 6> uses;  // of the stages

  Run(const RowKernel& k, const RowSpace& s, const Array* const* in, const Array* const* out)
      : kernel(k),
        p(k.program),
        in(in),
        out(out),
        space(make_row_walk(p, s, in, out)),
        tile(std::min(space.length + 63, kTileMax) / 64 * 64) {
    for (int i = 0; i < n_in() + n_out(); ++i) {
      if (kind_of(p, i) == RowKind::matrix && space.stride[i] != 1) lines = false;
    }
    if (lines) {
      if (jit_wanted() && !k.jit.code.load(std::memory_order_relaxed)) {
        request_jit(k.jit, worth_compiling(k) ? emit_row_c(k, "TDM_NAME") : "");
      }
      whole.emplace(k.jit);
    }
    for (const TilePlan& plan : k.plans) uses.emplace_back(plan, !lines);
  }

  int n_in() const { return static_cast<int>(p.ins.size()); }
  int n_out() const { return static_cast<int>(p.outs.size()); }
  Reg reg() const { return reg_of(p.compute); }
  char* at(const Array& a, int64_t offset) const {
    return a.as<char>() + offset * static_cast<int64_t>(size_of(a.dtype));
  }
  double row_cost() const {
    double c = 0;
    for (size_t s = 0; s < p.stages.size(); ++s) {
      if (!p.stages[s].once) c += kernel.plans[s].cost + 1;
    }
    return c * static_cast<double>(space.length) + 200;
  }
};

struct Worker {
  const Run& run;
  TileScratch scratch;
  SmallVec<PlanRunner, 6> stages;
  char* moved[kMaxLoopArrays] = {};           // gathered inputs, scattered outputs
  char* mapped[RowProgram::kFolds + 4] = {};  // results of fold and column sinks
  char* lanes[RowProgram::kFolds] = {};
  char* stored[RowProgram::kStored] = {};
  char* columns[kMaxPlanOuts] = {};  // accumulators, given by the caller
  int64_t number[RowProgram::kIns] = {};

  static int64_t bytes(const Run& r) {
    int64_t n = 4096;
    for (const TilePlan& plan : r.kernel.plans) n += PlanRunner::scratch_bytes(plan, r.tile);
    n += (r.n_in() + r.n_out() + RowProgram::kFolds + 4) * (r.tile * 8 + 64);
    n += RowProgram::kFolds * (kLanes * 8 + 64);
    return n + r.p.n_stored * (r.space.length * 8 + 64);
  }

  explicit Worker(const Run& r) : run(r), scratch(bytes(r)) {
    for (const PlanUse& use : r.uses) stages.emplace_back(use, r.tile, scratch);
    for (int k = 0; k < r.n_in() + r.n_out(); ++k) {
      if (kind_of(r.p, k) == RowKind::matrix && r.space.stride[k] != 1)
        moved[k] = static_cast<char*>(scratch.take(r.tile * 8));
    }
    for (char*& m : mapped) m = static_cast<char*>(scratch.take(r.tile * 8));
    for (char*& l : lanes) l = static_cast<char*>(scratch.take(kLanes * 8));
    for (int k = 0; k < r.p.n_stored; ++k) {
      stored[k] = static_cast<char*>(scratch.take(r.space.length * reg_size(r.reg())));
    }
    for (int k = 0; k < r.n_in(); ++k) {
      if (r.p.ins[static_cast<size_t>(k)] != RowKind::number) continue;
      number[k] = register_bits(r.in[k]->scalar, reg_of(s_type(k)));
    }
    for (PlanRunner& s : stages) {
      for (int k = 0; k < r.n_in(); ++k) {
        if (r.p.ins[static_cast<size_t>(k)] == RowKind::number) {
          s.set_value(k, number[k]);
        }
      }
      s.set_value(RowProgram::kCount,
                  register_bits(Scalar(static_cast<double>(r.space.length)), Reg::f64));
      s.compute_values(nullptr);
    }
  }
  // Numbers are lowered as f64 or i64 inputs.
  DType s_type(int k) const {
    const DType t = run.p.in_types[static_cast<size_t>(k)];
    return is_floating(t) ? DType::f64 : DType::i64;
  }

  void set_row_value(int slot, int64_t bits) {
    for (PlanRunner& s : stages) s.set_value(slot, bits);
  }

  void rows(int64_t first, int64_t last) {
    if (first >= last) return;
    LoopCursor cursor(run.space.rows, first);
    for (int64_t r = first; r < last; ++r, cursor.advance()) row(cursor);
  }

  void row(const LoopCursor& c) {
    const TileCode code = run.whole ? run.whole->code() : nullptr;
    if (!code) return interpret(c);
    void* slots[kMaxLoopArrays + RowProgram::kStored];
    point(c, slots);
    if (TD_UNLIKELY(run.whole->checks())) return both(c, slots);
    code(slots, run.space.length);
  }

  // Where the compiled row finds things.
  void point(const LoopCursor& c, void** slots) {
    for (int k = 0; k < run.n_in() + run.n_out(); ++k) {
      const RowKind kind = kind_of(run.p, k);
      const int o = k - run.n_in();
      if (kind == RowKind::number) {
        slots[k] = &number[k];
      } else if (o >= 0 && kind == RowKind::columns) {
        slots[k] = columns[o];
      } else {
        slots[k] = run.at(o < 0 ? *run.in[k] : *run.out[o], c.offset[k]);
      }
    }
    for (int k = 0; k < run.p.n_stored; ++k) slots[run.n_in() + run.n_out() + k] = stored[k];
  }

  // A new function: it writes to places of its own, then the row is interpreted.
  void both(const LoopCursor& c, void** slots) {
    const int64_t length = run.space.length;
    std::vector<std::vector<char>> own;
    std::vector<int64_t> counts;
    std::vector<DType> types;
    void* real[kMaxPlanOuts];
    for (int o = 0; o < run.n_out(); ++o) {
      const RowKind kind = run.p.outs[static_cast<size_t>(o)];
      types.push_back(kind == RowKind::columns ? run.p.compute : run.out[o]->dtype);
      counts.push_back(kind == RowKind::row ? 1 : length);
      const auto bytes = static_cast<size_t>(counts.back()) * size_of(types.back());
      void*& slot = slots[run.n_in() + o];
      real[o] = slot;
      own.emplace_back(bytes + 64);
      if (kind == RowKind::columns) std::memcpy(own.back().data(), slot, bytes);
      slot = own.back().data();
    }
    run.whole->code()(slots, length);
    interpret(c);
    bool equal = true;
    for (size_t o = 0; o < own.size(); ++o) {
      equal = equal && equal_elements(own[o].data(), real[o], counts[o], types[o]);
    }
    run.whole->compared(equal);
  }

  void interpret(const LoopCursor& c) {
    for (int k = 0; k < run.n_in(); ++k) {
      if (run.p.ins[static_cast<size_t>(k)] != RowKind::row) continue;
      int64_t bits = 0;
      const char* p = run.at(*run.in[k], c.offset[k]);
      tiles().load[static_cast<int>(run.in[k]->dtype)](&bits, p, p, p, p, 1);
      set_row_value(k, bits);
    }
    for (size_t s = 0; s < stages.size(); ++s) stage(s, c);
  }

  void stage(size_t s, const LoopCursor& c) {
    const RowStage& st = run.p.stages[s];
    PlanRunner& plan = stages[s];
    plan.compute_row(nullptr);
    if (st.once) {
      const int k = run.n_in() + st.sinks[0].index;
      plan.set_out(0, run.at(*run.out[st.sinks[0].index], c.offset[k]));
      return plan.run(1, nullptr);
    }
    const auto reg = static_cast<int>(run.reg());
    for (const RowSink& sink : st.sinks) {
      if (sink.kind == RowSink::fold) start_lanes(sink);
    }
    if (const char* direct = whole_row(st, c)) {
      const RowSink& sink = st.sinks[0];
      tiles().lanes[static_cast<int>(sink.op)][reg](lanes[sink.index], direct, run.space.length);
    } else {
      for (int64_t at = 0; at < run.space.length; at += run.tile) {
        one_tile(st, plan, c, at, std::min(run.tile, run.space.length - at));
      }
    }
    for (const RowSink& sink : st.sinks) {
      if (sink.kind != RowSink::fold) continue;
      tiles().tree[static_cast<int>(sink.op)][reg](lanes[sink.index], nullptr,
                                                   std::min(run.space.length, kLanes));
      int64_t bits = 0;
      std::memcpy(&bits, lanes[sink.index], static_cast<size_t>(reg_size(run.reg())));
      set_row_value(RowProgram::kFirstFold + sink.index, bits);
    }
  }

  void start_lanes(const RowSink& sink) {
    const double first = sink.op == Fold::add   ? 0
                         : sink.op == Fold::mul ? 1
                         : sink.op == Fold::max ? -__builtin_inf()
                                                : __builtin_inf();
    const int64_t bits = register_bits(Scalar(first), run.reg());
    tiles().fill[static_cast<int>(run.reg())](lanes[sink.index], &bits, &bits, &bits, &bits,
                                              kLanes);
  }

  // The row itself if all that the stage does is to fold an input that lies as registers.
  const char* whole_row(const RowStage& st, const LoopCursor& c) const {
    if (st.sinks.size() != 1 || st.sinks[0].kind != RowSink::fold) return nullptr;
    const ScalarInstr& i = st.program.code[st.program.out[0].reg];
    if (i.op != ScalarOp::input) return nullptr;
    if (i.input >= RowProgram::kFirstStored) return stored[i.input - RowProgram::kFirstStored];
    if (i.input >= run.n_in() || run.space.stride[i.input] != 1) return nullptr;
    const Array& a = *run.in[i.input];
    if (!stored_as_reg(a.dtype) || reg_of(a.dtype) != run.reg()) return nullptr;
    return run.p.ins[static_cast<size_t>(i.input)] == RowKind::matrix ? run.at(a, c.offset[i.input])
                                                                      : nullptr;
  }

  void one_tile(const RowStage& st, PlanRunner& plan, const LoopCursor& c, int64_t at, int64_t n) {
    for (int k = 0; k < run.n_in(); ++k) {
      const RowKind kind = run.p.ins[static_cast<size_t>(k)];
      if (kind != RowKind::matrix && kind != RowKind::columns) continue;
      const int64_t stride = run.space.stride[k];
      const char* p = run.at(*run.in[k], c.offset[k] + at * stride);
      if (stride != 1) {
        gather_run(moved[k], p, stride, n, size_of(run.in[k]->dtype));
        p = moved[k];
      }
      plan.set_in(k, p);
    }
    const int64_t size = reg_size(run.reg());
    for (int k = 0; k < run.p.n_stored; ++k) {
      plan.set_in(RowProgram::kFirstStored + k, stored[k] + at * size);
    }
    for (size_t o = 0; o < st.sinks.size(); ++o) {
      plan.set_out(static_cast<int>(o), target(st.sinks[o], static_cast<int>(o), c, at));
    }
    plan.run(n, nullptr);
    for (size_t o = 0; o < st.sinks.size(); ++o)
      collect(st.sinks[o], static_cast<int>(o), c, at, n);
  }

  char* target(const RowSink& sink, int o, const LoopCursor& c, int64_t at) {
    const int64_t size = reg_size(run.reg());
    if (sink.kind == RowSink::store) return stored[sink.index] + at * size;
    if (sink.kind != RowSink::matrix) return mapped[o];
    const int k = run.n_in() + sink.index;
    return run.space.stride[k] == 1 ? run.at(*run.out[sink.index], c.offset[k] + at) : moved[k];
  }

  void collect(const RowSink& sink, int o, const LoopCursor& c, int64_t at, int64_t n) {
    const auto reg = static_cast<int>(run.reg());
    if (sink.kind == RowSink::fold) {
      tiles().lanes[static_cast<int>(sink.op)][reg](lanes[sink.index], mapped[o], n);
    } else if (sink.kind == RowSink::columns) {
      char* acc = columns[sink.index] + at * reg_size(run.reg());
      tiles().column[static_cast<int>(Fold::add)][reg](acc, mapped[o], 0, 1, n);
    } else if (sink.kind == RowSink::matrix) {
      const int k = run.n_in() + sink.index;
      const int64_t stride = run.space.stride[k];
      const Array& y = *run.out[sink.index];
      if (stride != 1) {
        scatter_run(run.at(y, c.offset[k] + at * stride), moved[k], stride, n, size_of(y.dtype));
      }
    }
  }
};

void run_blocks(const Run& run, int64_t n_blocks) {
  const int64_t length = run.space.length, size = reg_size(run.reg());
  const auto reg = static_cast<int>(run.reg());
  std::vector<int> outs;
  for (int k = 0; k < run.n_out(); ++k) {
    if (run.p.outs[static_cast<size_t>(k)] == RowKind::columns) outs.push_back(k);
  }
  const auto n_columns = static_cast<int64_t>(outs.size());
  const size_t bytes = static_cast<size_t>(n_columns * n_blocks * length * size);
  char* partial = static_cast<char*>(detail::allocate(std::max<size_t>(bytes, 64)));
  std::memset(partial, 0, bytes);
  const auto block = [&](int64_t column, int64_t b) {
    return partial + (column * n_blocks + b) * length * size;
  };
  const int64_t rows = run.space.n_rows;
  parallel_for(0, n_blocks, 1, [&](int64_t begin, int64_t end) {
    Worker w(run);
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t c = 0; c < n_columns; ++c) w.columns[outs[static_cast<size_t>(c)]] = block(c, b);
      const int64_t first = rows * b / n_blocks, last = rows * (b + 1) / n_blocks;
      w.rows(first, last);
    }
  });
  for (int64_t c = 0; c < n_columns; ++c) {
    for (int64_t count = n_blocks; count > 1;) {
      int64_t half = 1;
      while (half * 2 < count) half *= 2;
      tiles().column[static_cast<int>(Fold::add)][reg](block(c, 0), block(c, half), 0, 1,
                                                       (count - half) * length);
      count = half;
    }
    const Array& y = *run.out[outs[static_cast<size_t>(c)]];
    const char* x = block(c, 0);
    tiles().store[static_cast<int>(y.dtype)](y.data, x, x, x, x, length);
  }
  detail::deallocate(partial, std::max<size_t>(bytes, 64));
}

}  // namespace

bool rows_merge(const RowSpace& space, const Array* const* arrays, int n) {
  int64_t stride = 0;
  for (int k = 0; k < n; ++k) {
    // An output has no strides yet: it will be dense.
    const Array* a = arrays[k];
    if (a && a->shape && a->strides && !row_strides(space, *a, stride)) return false;
  }
  return true;
}

void run_row_kernel(const RowKernel& kernel, const RowSpace& space, const Array* const* in,
                    const Array* const* out) {
  const Run run(kernel, space, in, out);
  bool columns = false;
  for (RowKind k : run.p.outs) columns |= k == RowKind::columns;
  if (columns) {
    const int64_t blocks = std::clamp(run.space.n_rows / kMinBlockRows, int64_t{1}, kMaxBlocks);
    return run_blocks(run, blocks);
  }
  if (run.space.length == 0) return;
  const auto grain = static_cast<int64_t>(std::max(1.0, kSerialWork / run.row_cost()));
  parallel_for(0, run.space.n_rows, grain, [&](int64_t begin, int64_t end) {
    Worker w(run);
    w.rows(begin, end);
  });
}

}  // namespace tandem::codegen
