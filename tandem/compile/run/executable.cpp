// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/run/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tandem/base/budget.h"
#include "tandem/base/parallel.h"
#include "tandem/codegen/jit.h"
#include "tandem/codegen/pointwise.h"
#include "tandem/compile/lowering/requantise.h"
#include "tandem/compile/run/frame.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/backend.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/epilogue.h"
#include "tandem/graph/error_text.h"
#include "tandem/graph/profiler.h"
#include "tandem/graph/run/kernel_choice.h"
#include "tandem/graph/run/run_internal.h"
#include "tandem/graph/run/started_work.h"
#include "tandem/tensor/block_internal.h"
#include "tandem/tensor/device_memory.h"

namespace tandem {

using namespace compiler;

namespace {
constexpr int64_t kRegionGrain = 16384;  // elements of one part of loops that run together
}  // namespace

Executable::Executable(Program p) : program_(std::move(p)), lowered_(lower_program(program_)) {
  for (const Step& s : lowered_.steps) {
    first_array_.push_back(n_arrays_);
    n_arrays_ += s.in.size() + s.out.size();
  }
  for (const Block& b : lowered_.buffers)
    if (b.base == Base::output || b.base == Base::grad_new ||
        (b.base == Base::cell_new && !lowered_.cell_in_place[b.index]))
      leaving_bytes_ += detail::block_bytes(b.bytes);
  held_bytes_ = detail::block_bytes(std::max<size_t>(lowered_.arena_bytes, 64)) + leaving_bytes_;
  for (size_t i = 0; i < program_.cells.size(); ++i)
    if (lowered_.cell_exits[i] != kNone) write_order_.push_back(i);
  std::sort(write_order_.begin(), write_order_.end(), [this](size_t a, size_t b) {
    return std::less<Cell*>()(program_.cells[a].cell.get(), program_.cells[b].cell.get());
  });
}
Executable::~Executable() = default;

bool Executable::cells_fit(const Graph& g) {
  for (const Graph::CellUse& u : g.cells) {
    const Tensor& traced = u.entry.defined() ? u.entry : u.exit;
    if (!traced.defined()) continue;
    std::lock_guard hold(u.cell->lock_);
    const Tensor& now = u.cell->value_;
    if (now.dtype() != traced.dtype() || !(now.shape() == traced.shape()) ||
        !(now.device() == traced.device()))
      return false;
  }
  return true;
}

std::pair<Tensor, uint64_t> Executable::look(const Cell& c) {
  if (detail::any_absent()) (void)c.present();
  std::lock_guard hold(c.lock_);
  return {c.value_, c.generation_};
}

void Executable::run_together(Frame& f, size_t first, size_t n) const {
  int64_t total = 0;
  std::vector<int64_t> begin;
  for (size_t k = first; k < first + n; ++k) {
    begin.push_back(total);
    total += f.arrays[first_array_[k] + lowered_.steps[k].in.size()].numel;
  }
  static constexpr int64_t kOne[] = {1};
  parallel_for(0, total, kRegionGrain, [&](int64_t from, int64_t to) {
    const codegen::JitScope compiled_loops;
    size_t j =
        static_cast<size_t>(std::upper_bound(begin.begin(), begin.end(), from) - begin.begin()) - 1;
    for (; j < n && begin[j] < to; ++j) {
      const Step& s = lowered_.steps[first + j];
      const Array* arrays = &f.arrays[first_array_[first + j]];
      const size_t n_in = s.in.size(), n_out = s.out.size();
      const int64_t all = arrays[n_in].numel;
      const int64_t lo = std::max<int64_t>(from - begin[j], 0), hi = std::min(to - begin[j], all);
      if (lo >= hi) continue;
      const int64_t length = hi - lo;
      Array cut[kMaxOpIns + 16 + 8];
      for (size_t a = 0; a < n_in + n_out; ++a) {
        cut[a] = arrays[a];
        if (cut[a].is_scalar || (a < n_in && cut[a].numel != all)) continue;
        cut[a].data = cut[a].as<char>() + lo * static_cast<int64_t>(size_of(cut[a].dtype));
        cut[a].shape = &length;
        cut[a].strides = kOne;
        cut[a].rank = 1;
        cut[a].numel = length;
        cut[a].contiguous = true;
      }
      codegen::run_program(*s.program, cut, static_cast<int>(n_in), cut + n_in,
                           static_cast<int>(n_out), nullptr, true);
    }
  });
}

namespace {
// A loop over the blocks of a result, or over ranges of its memory: then there is one column.
struct LoopEpilogue : Epilogue {
  const ScalarProgram* program = nullptr;
  const Array* arrays = nullptr;
  int n_in = 0, n_out = 0;
  int64_t rows = 0, columns = 0;
  bool ranges = false;
  const void* result = nullptr;  ///< output 0 of the step before

  static void run_rows_at(const Epilogue& e, const void* at, int64_t row0, int64_t row1) {
    const auto& loop = static_cast<const LoopEpilogue&>(e);
    loop.block(row0, row1, 0, loop.columns, at);
  }
  static void run_block(const Epilogue& e, int64_t row0, int64_t row1, int64_t column0,
                        int64_t column1) {
    static_cast<const LoopEpilogue&>(e).block(row0, row1, column0, column1);
  }
  /// `at`: where the rows of the result lie, if not in its place.
  void block(int64_t row0, int64_t row1, int64_t column0, int64_t column1,
             const void* at = nullptr) const {
    const codegen::JitScope compiled_loops;
    const int64_t shape[2] = {row1 - row0, column1 - column0};
    const bool whole = shape[1] == columns;
    SmallVec<Array, 16> cut;
    SmallVec<std::array<int64_t, 2>, 16> strides;
    strides.resize(n_in + n_out);
    for (int k = 0; k < n_in + n_out; ++k) {
      Array a = arrays[k];
      const bool moved = at && k < n_in && a.data == result;
      if (moved) a.data = const_cast<void*>(at);
      if (!a.is_scalar && a.numel != 1) {
        std::array<int64_t, 2>& s = strides[k];
        if (ranges)
          s = {1, 1};
        else
          as_matrix(a, rows, columns, s[0], s[1]);
        if (!moved)
          a.data = a.as<char>() +
                   (row0 * s[0] + column0 * s[1]) * static_cast<int64_t>(size_of(a.dtype));
        a.shape = shape;
        a.strides = s.data();
        a.rank = 2;
        a.numel = shape[0] * shape[1];
        a.contiguous = whole && s[0] == columns && s[1] == 1;
      }
      cut.push_back(a);
    }
    codegen::run_program(*program, cut.data(), n_in, cut.data() + n_in, n_out, nullptr, true);
  }
};
}  // namespace

void Executable::run_loop_there(const ScalarProgram& p, Array* arrays, int n_in, int n_out) const {
  KernelCall call{loop_row(), nullptr, arrays, n_in, arrays + n_in, n_out};
  call.device = program_.device;
  call.stream = current_stream(call.device);
  backend_of(call.device).run_loop(p, call);
}

uint32_t Executable::ticket_of(const Step& s, const Way& way) const {
  const ScopeGuard scope(s.scope, s.loc);
  if (!way.tickets) return take_ticket(*s.op, s.loc);
  way.tickets->push_back(keep_ticket(*s.op, s.loc));
  return way.tickets->back();
}

void Executable::run_step(Frame& f, size_t k, const Way& way, ErrorWord& error) const {
  const Step& s = lowered_.steps[k];
  Array* arrays = f.arrays.data() + first_array_[k];
  const int n_in = static_cast<int>(s.in.size()), n_out = static_cast<int>(s.out.size());
  if (s.together > 1) return run_together(f, k, s.together);
  if (!s.op) {
    if (TD_UNLIKELY(!is_host(program_.device)))
      return run_loop_there(*s.program, arrays, n_in, n_out);
    return codegen::run_program(*s.program, arrays, n_in, arrays + n_in, n_out, nullptr, true);
  }
  KernelCall call{*s.op, s.attrs.get(), arrays, n_in, arrays + n_in, n_out, &error};
  if (TD_UNLIKELY(!is_host(program_.device))) {
    call.device = program_.device;
    call.stream = current_stream(call.device);
    if (!s.on_host && s.op->error_texts[0]) call.ticket = ticket_of(s, way);
  }
  if (s.op->has(kRandom)) {
    call.rng = {way.entry.seed, way.entry.offset + s.rng};
    call.rng_from = way.key;
  }
  call.plan = s.plan.get();
  if (s.scratch != kNone)
    call.scratch = static_cast<char*>(f.arena) + lowered_.buffers[s.scratch].offset;
  try {
    if (has_epilogue(k))
      run_with_loop(f, k, call);
    else if (TD_UNLIKELY(s.on_host))
      run_by_copies(s.kernel, call);
    else if (s.kernel)
      s.kernel->run(call);
    else
      run_reference(call);
    if (TD_LIKELY(error.code.load(std::memory_order_relaxed) == 0)) return;
    check_error_word(call);
  } catch (const Error& e) {
    ScopeGuard scope(s.scope, s.loc);
    throw with_place(e, s.op->name, s.loc);
  }
}

// Step k with the loop after it as its epilogue.
void Executable::run_with_loop(Frame& f, size_t k, const KernelCall& call) const {
  const Step &s = lowered_.steps[k], &loop = lowered_.steps[k + 1];
  const Array& out = call.out[0];
  LoopEpilogue epilogue;
  epilogue.run = LoopEpilogue::run_block;
  epilogue.program = loop.program;
  epilogue.arrays = f.arrays.data() + first_array_[k + 1];
  epilogue.n_in = static_cast<int>(loop.in.size());
  epilogue.n_out = static_cast<int>(loop.out.size());
  epilogue.ranges = loop.ranges;
  epilogue.columns = loop.ranges ? 1 : out.shape[out.rank - 1];
  epilogue.rows = out.numel / epilogue.columns;
  epilogue.result = out.data;
  if (loop.alone && !loop.ranges) epilogue.run_at = LoopEpilogue::run_rows_at;
  std::optional<Requantise> codes;
  if (loop.codes && epilogue.run_at)
    codes = loop.codes->with(epilogue.arrays, epilogue.n_in, epilogue.rows, epilogue.columns);
  if (codes && epilogue.arrays[loop.codes->sums].data == out.data) epilogue.codes = &*codes;
  static_cast<const EpiloguePlan*>(s.plan.get())->run_with(call, epilogue);
}

void Executable::profile_step(Frame& f, size_t k, const Way& way, ErrorWord& error) const {
  ProfilerGuard& profiler = *context().profiler;
  ProfileEvent e;
  const Step& first = lowered_.steps[k];
  e.name = first.name;
  e.scope = first.scope;
  e.loc = user_line(first.loc);
  e.compiled = true;
  if (first.on_host) e.name += kOnHostMark;
  if (first.together > 1) e.name = fmt::format("{} x{}", first.name, first.together);
  if (has_epilogue(k)) e.name += " + " + lowered_.steps[k + 1].name;
  for (size_t j = k; j < k + steps_at(k); ++j) {
    const StepCost cost = cost_of(lowered_.steps[j]);
    e.flops += cost.flops;
    e.bytes += cost.bytes;
  }
  e.start_ns = profiler.now();
  if (!f.dry) run_step(f, k, way, error);
  e.end_ns = profiler.now();
  profiler.profile().events.push_back(std::move(e));
}

void Executable::run_steps(Frame& f, const Way& way) const {
  if (TD_UNLIKELY(Budget::is_open()) && !way.tickets) charge();
  const codegen::JitScope compiled_loops;
  ErrorWord error;
  StartedScope started;
  const bool profiled = context().profiler != nullptr;
  for (size_t k = 0; k < lowered_.steps.size(); k += steps_at(k)) {
    if (TD_UNLIKELY(profiled))
      profile_step(f, k, way, error);
    else if (TD_LIKELY(!f.dry))
      run_step(f, k, way, error);
  }
  started.end();
}

bool Executable::has_epilogue(size_t k) const {
  return k + 1 < lowered_.steps.size() && lowered_.steps[k + 1].inside;
}

size_t Executable::steps_at(size_t k) const {
  return has_epilogue(k) ? 2 : lowered_.steps[k].together;
}

std::vector<Tensor> Executable::run(std::span<const Tensor> inputs,
                                    std::span<const Tensor> captures, const GeneratorState* again) {
  Bound b;
  bind(b, inputs, captures);
  std::unique_ptr<Frame> f = acquire();
  const GeneratorState state = again ? *again : detail::take_draws(program_.rng_draws);
  const RngKey entry{state.seed, static_cast<uint32_t>(state.offset)};
  try {
    if (!replay(*f, b, entry)) {
      bring(b);
      if (!f->dry) point(*f, addresses(*f, b));
      run_steps(*f, {entry});
    }
  } catch (...) {
    release(std::move(f));
    throw;
  }
  release(std::move(f));
  return collect(b);
}

std::string Executable::to_string() const {
  static const char* const kBases[] = {"arena", "input", "capture",  "cell",   "cell'",
                                       "grad",  "grad'", "constant", "output", "derived"};
  std::string s;
  const auto show = [&](int k) {
    const Place& q = lowered_.places[k];
    const Block& b = lowered_.buffers[q.buffer];
    int64_t at = q.offset + static_cast<int64_t>(b.base == Base::arena ? b.offset : 0);
    return fmt::format("{}{}{}", kBases[static_cast<int>(b.base)],
                       b.index == kNone ? "" : std::to_string(b.index),
                       at ? fmt::format("+{}", at) : "");
  };
  for (size_t k = 0; k < lowered_.steps.size(); ++k) {
    const Step& step = lowered_.steps[k];
    s += fmt::format("{:4} {}{}", k, step.op ? "" : "loop ", step.name);
    for (const StepInput& x : step.in)
      s += " " + (x.is_number        ? fmt::format("{}", x.number.to_double())
                  : x.place == kNone ? std::string("-")
                                     : show(x.place));
    s += " ->";
    for (int o : step.out) s += " " + (o == kNone ? std::string("-") : show(o));
    if (step.inside) s += "  (on each block of the one before)";
    if (step.together > 1) s += fmt::format("  (and the next {} together)", step.together - 1);
    if (step.recomputed) s += "  (recomputed)";
    if (step.scope) s += "  # " + scope_path(step.scope);
    s += "\n";
  }
  return s + fmt::format("arena {} bytes, at least {} are alive in step {}\n", arena_bytes(),
                         lower_bound(), lowered_.peak_step);
}

std::string Executable::peak_table() const {
  std::string s = fmt::format("{:>12}  {:>5}  {:>5}  made by\n", "bytes", "from", "to");
  for (const Block* b : alive_at_peak(lowered_)) {
    const Step& made = lowered_.steps[b->first];
    s += fmt::format("{:>12}  {:>5}  {:>5}  {}{}{}\n", b->bytes, b->first, b->last, made.name,
                     made.scope ? " in " : "", made.scope ? scope_path(made.scope) : "");
  }
  return s;
}

}  // namespace tandem
