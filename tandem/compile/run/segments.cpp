// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/run/segments.h"

#include "tandem/base/clock.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/ops/control.h"
#include "tandem/ops/stored.h"
#include "tandem/ops/view/view.h"
#include "tandem/tensor/lazy.h"

namespace tandem::compiler {
namespace {

constexpr int kMissesInARow = 16, kCallsOpByOp = 64;
// This many calls in segments, then this many op by op: the faster way is taken until the next
// trial.
constexpr int kTrialCalls = 24, kCallsBetweenTrials = 2000;

// This thread outside the trace.
class Outside {
 public:
  Outside() : trace_(context().trace), slow_(context().slow) {
    context().trace = nullptr;
    context().slow &= ~(uint32_t{kTracing} | kShadowed);
  }
  ~Outside() {
    context().trace = trace_;
    context().slow = slow_;
  }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  Trace* trace_;
  uint32_t slow_;
};

bool read_hook(detail::TensorImpl& t, SourceLocation loc) {
  Trace* trace = context().trace;
  return trace && trace->lazy && trace->lazy->materialize(t, loc);
}

// Give a value without bytes those of `from`.
void fill(detail::TensorImpl& to, const Tensor& from) {
  const detail::TensorImpl& f = *from.impl();
  f.storage->refs.add();
  to.storage = f.storage;
  to.data = f.data;
  to.strides = f.strides;
  to.numel = f.numel;
  to.flags &= static_cast<uint8_t>(~detail::kSymbolic);
  detail::update_contiguous(to);
}

}  // namespace

// ---- the cache

Ref<Executable> SegmentCache::find(const std::string& key, FunctionRef<Program()> program) {
  std::lock_guard hold(lock_);
  ++run_;
  auto [at, fresh] = entries_.try_emplace(key);
  at->second.used = ++clock_;
  if (fresh || !at->second.executable) ++cold_;
  if (fresh) {
    ++misses_;
    if (entries_.size() <= most_) return {};
    auto oldest = entries_.begin();
    for (auto e = entries_.begin(); e != entries_.end(); ++e)
      if (e->second.used < oldest->second.used) oldest = e;
    entries_.erase(oldest);
    return {};
  }
  misses_ = 0;
  if (!at->second.executable) {
    Program p = program();
    run_passes(p);
    at->second.executable = make_ref<Executable>(std::move(p));
    ++compiled_;
  }
  return last_ = at->second.executable;
}

bool SegmentCache::run_op_by_op() {
  if (effects_) return false;
  std::lock_guard hold(lock_);
  if (rest_ > 0) return --rest_, true;
  if (misses_ >= kMissesInARow) {
    misses_ = kMissesInARow / 2;
    rest_ = kCallsOpByOp;
    return true;
  }
  return trial_ >= kTrialCalls && (trial_ < 2 * kTrialCalls || op_by_op_wins_);
}

void SegmentCache::took(double seconds, bool op_by_op, bool warm) {
  std::lock_guard hold(lock_);
  if (!warm) return;  // it compiled, or ran a segment for the first time
  const bool trying = trial_ < 2 * kTrialCalls;
  if (trying && op_by_op != (trial_ >= kTrialCalls)) return;
  if (trying) spent_[op_by_op] += seconds;
  ++trial_;
  if (trial_ == 2 * kTrialCalls) op_by_op_wins_ = spent_[1] < spent_[0];
  if (trial_ < kCallsBetweenTrials) return;
  trial_ = 0;
  spent_[0] = spent_[1] = 0;
}

void SegmentCache::clear() {
  std::lock_guard hold(lock_);
  entries_.clear();
  last_ = {};
}
Ref<Executable> SegmentCache::last() const {
  std::lock_guard hold(lock_);
  return last_;
}

// ---- one call

SegmentedRun::SegmentedRun(SegmentCache& cache)
    : cache_(cache),
      trace_{make_ref<Graph>(), Captures::refuse, context().trace, 0, {}, {}, {}, this},
      old_slow_(context().slow),
      op_by_op_(cache.run_op_by_op()),
      outer_waiting_(waiting_updates()) {
  static std::once_flag once;
  std::call_once(once, [] { detail::set_materializer(read_hook); });
  context().trace = &trace_;
  context().slow |= op_by_op_ ? kShadowed : uint32_t{kTracing};
  waiting_updates() = op_by_op_ ? this : nullptr;
}

SegmentedRun::~SegmentedRun() {
  waiting_updates() = outer_waiting_;
  context().trace = trace_.parent;
  context().slow = old_slow_;
}

void SegmentedRun::add(CellUpdate&& u, SourceLocation loc) {
  for (const Cell* c : u.cells) need(*c);
  for (const Cell* c : u.cells) {
    // What stands in the trace is not in the cell yet.
    if (auto at = trace_.cell_index.find(c);
        at != trace_.cell_index.end() && trace_.graph->cells[at->second].exit.defined())
      return update_one(u, loc);
  }
  updated_.insert(u.cells.begin(), u.cells.end());
  update_where_ = loc;
  updates_.push_back(std::move(u));
}

void SegmentedRun::need(const Cell& cell) {
  if (!updated_.count(&cell)) return;
  updated_.clear();
  std::vector<CellUpdate> now = std::exchange(updates_, {});
  // Whatever is being traced here: the updates belong to this run.
  Context& c = context();
  Trace* trace = std::exchange(c.trace, &trace_);
  const uint32_t slow = std::exchange(c.slow, kShadowed);
  const auto back = [&] {
    c.trace = trace;
    c.slow = slow;
  };
  try {
    for (CellUpdate& u : now) update_one(u, update_where_);
  } catch (...) {
    back();
    throw;
  }
  back();
}

ValueId SegmentedRun::add_value(const Spec& spec, int input) {
  return values_.push_back({{}, spec, input});
}

ValueId SegmentedRun::id_of(const Tensor& t) {
  if (auto at = ids_.find(t.impl()); at != ids_.end()) return at->second;
  TD_CHECK(!t.is_symbolic(), Unsupported,
           "a value made in a trace that has ended is used here\n"
           "Return it from the traced function, or keep it in a Buffer.");
  const ValueId v = add_value(spec_of(t), static_cast<int>(inputs_.size()));
  inputs_.push_back(t);
  ids_.emplace(t.impl(), v);
  put(static_cast<char>(t.dtype()));
  put(static_cast<char>(t.dim()));
  for (int64_t n : t.sizes()) put(n);
  return v;
}

Tensor SegmentedRun::alias(const Tensor& t) {
  const ValueId v = id_of(t);
  Tensor a(Ref<detail::TensorImpl>::adopt(detail::new_symbolic(t.shape(), t.dtype(), t.device())));
  values_[v].impls.push_back(a.ref());
  ids_.emplace(a.impl(), v);
  return a;
}

// Ops that only hand a value on; their attributes would make every segment a new one.
bool SegmentedRun::pass_through(Call& k, Tensor* out) {
  if (&k.op == &op::constant) {
    const auto* a = static_cast<const ConstantAttrs*>(k.op_attrs);
    out[0] = constant_value(*a);
    return true;
  }
  size_t from = 0, n = 1;
  if (&k.op == &op::with_vjp) {
    from = static_cast<int>(static_cast<const WithVjpAttrs*>(k.op_attrs)->n);
    n = k.tensors.size() - from;
  } else if (&k.op != &op::identity) {
    return false;
  }
  for (size_t o = 0; o < n; ++o) k.out[o] = detached_alias(k.tensors[from + o]);
  if (k.record)
    record_tape(k.op, k.op_attrs, k.tensors, k.scalars, k.infer.present, k.out, user_line(k.loc),
                k.rng);
  for (size_t o = 0; o < n; ++o) out[o] = std::move(k.out[o]);
  return true;
}

// The draw that eager would make here; a new seed begins a new segment.
void SegmentedRun::draw(Call& k, Instr& i) {
  const GeneratorState now = generator_state();
  if (draws_ && (now.seed != rng_entry_.seed || now.offset != rng_entry_.offset + draws_)) flush();
  if (!draws_) rng_entry_ = now;
  Outside outside;  // the generator, not the trace
  k.rng = detail::next_rng_key();
  i.rng = draws_++;
}

void SegmentedRun::record(Call& k, Tensor* out) {
  if (pass_through(k, out)) return;
  if (k.op.has(kEffect)) cache_.saw_effect();
  Instr i;
  i.op = &k.op;
  if (k.op.attrs) i.attrs = AttrsHolder(k.op.attrs, k.op_attrs);
  i.loc = user_line(k.loc);
  i.scope = context().scope ? context().scope->path : 0;
  if (k.op.has(kRandom)) draw(k, i);
  for (size_t n = 0; n < k.tensors.size(); ++n) {
    Arg a;
    a.is_number = k.infer.present[n] == 2;
    if (a.is_number)
      a.number = k.scalars[n];
    else if (k.tensors[n].defined())
      a.value = id_of(k.tensors[n]);
    i.in.push_back(a);
  }
  put(i.op);
  if (i.attrs.get()) append_attr_bytes(i.attrs.type(), i.attrs.get(), key_);
  for (const Arg& a : i.in) {
    put(a.value);
    put(static_cast<char>(a.is_number ? a.number.kind + 1 : 0));
    if (a.is_number) put(a.number.i);
  }
  put(k.hidden);
  for (int o = 0; o < k.op.n_out; ++o) {
    if (k.op.hidden(o) && !k.hidden) break;
    const Spec& s = k.infer.out[o];
    Tensor t(Ref<detail::TensorImpl>::adopt(detail::new_symbolic(s.shape, s.dtype, s.device)));
    const ValueId v = add_value(s, kNone);
    values_[v].impls.push_back(t.ref());
    ids_.emplace(t.impl(), v);
    i.out.push_back(v);
    k.out[o] = std::move(t);
  }
  const SourceLocation loc = i.loc;
  instrs_.push_back(std::move(i));
  if (k.record)
    record_tape(k.op, k.op_attrs, k.tensors, k.scalars, k.infer.present, k.out, loc, k.rng,
                k.options.hidden);
  for (int o = 0; o < k.op.n_out; ++o) out[o] = std::move(k.out[o]);
}

bool SegmentedRun::materialize(detail::TensorImpl& t, SourceLocation loc) {
  if (!owns(t)) return false;
  if (reads_++ == 0) first_read_ = user_line(loc);
  flush();
  return !t.has(detail::kSymbolic);
}

Program SegmentedRun::program(const std::vector<ValueId>& live) const {
  Program p;
  p.inputs.resize(inputs_.size());
  for (const Pending& v : values_) {
    const bool input = v.input != kNone;
    const ValueId at = p.add_value(v.spec, input ? Origin::input : Origin::instr, v.input);
    if (input) p.inputs[v.input] = at;
  }
  p.instrs = instrs_;
  for (const Instr& i : p.instrs)
    for (size_t o = 0; o < i.out.size(); ++o) p.values[i.out[o]].index = static_cast<int>(o);
  p.outputs = live;
  for (ValueId v : live) p.output_devices.push_back(values_[v].spec.device);
  p.rng_draws = draws_;
  return p;
}

std::vector<Tensor> SegmentedRun::interpret(const std::vector<ValueId>& live) const {
  PerValue<Tensor> env(values_.size());
  PerValue<InstrId> last(values_.size());
  for (ValueId v : values_.ids())
    if (values_[v].input != kNone) env[v] = inputs_[values_[v].input];
  for (InstrId k : instrs_.ids())
    for (const Arg& a : instrs_[k].in)
      if (a.value != kNone) last[a.value] = k;
  for (ValueId v : live) last[v] = InstrId(instrs_.size());
  for (InstrId k : instrs_.ids()) {
    const Instr& i = instrs_[k];
    std::vector<Operand> in;
    in.reserve(i.in.size());
    for (const Arg& a : i.in) {
      if (a.is_number)
        in.emplace_back(a.number, i.loc);
      else
        in.emplace_back(a.value == kNone ? Tensor() : env[a.value], i.loc);
    }
    ScopeGuard scope(i.scope, i.loc);
    RngKey rng{rng_entry_.seed, static_cast<uint32_t>(rng_entry_.offset + i.rng)};
    ApplyOptions options;
    options.rng = &rng;
    options.hidden = i.makes_hidden();
    Tensor out[kMaxOpOuts];
    apply(*i.op, i.attrs.get(), in, out, i.loc, options);
    for (size_t o = 0; o < i.out.size(); ++o) env[i.out[o]] = std::move(out[o]);
    in.clear();
    for (const Arg& a : i.in)
      if (a.value != kNone && last[a.value] == k) env[a.value] = Tensor();
  }
  std::vector<Tensor> result;
  for (ValueId v : live) result.push_back(env[v]);
  return result;
}

void SegmentedRun::flush() {
  if (instrs_.empty()) return;
  const auto begin = Clock::now();
  ++segments_;
  // Wanted is what somebody still holds: fn, the tape, a cell's new value.
  std::vector<ValueId> live;
  for (ValueId v : values_.ids())
    for (const Ref<detail::TensorImpl>& impl : values_[v].impls)
      if (!impl->refs.unique() && impl->has(detail::kSymbolic)) {
        live.push_back(v);
        put(live.back());
        break;
      }
  Outside outside;
  NoGradGuard no_grad;
  struct Clear {
    SegmentedRun& run;
    ~Clear() {
      run.values_.clear();
      run.instrs_.clear();
      run.inputs_.clear();
      run.ids_.clear();
      run.key_.clear();
      run.draws_ = 0;
    }
  } clear{*this};
  std::vector<Tensor> result;
  if (Ref<Executable> e = cache_.find(key_, [&] { return program(live); })) {
    result = e->run(inputs_, {}, &rng_entry_);
  } else {
    result = interpret(live);
  }
  // Until now a value has said that it lies in row-major order: fn may have counted on that.
  for (Tensor& t : result)
    if (!t.is_contiguous()) t = call(op::copy, nullptr, SourceLocation{}, t);
  for (size_t k = 0; k < live.size(); ++k)
    for (const Ref<detail::TensorImpl>& impl : values_[live[k]].impls)
      if (impl->has(detail::kSymbolic)) fill(*impl, result[k]);
  seconds_ += seconds_since(begin);
}

const Graph& SegmentedRun::outcome() {
  TD_ASSERT(!op_by_op_);
  flush();
  return *trace_.graph;
}

void SegmentedRun::commit() {
  flush();
  Outside outside;
  NoGradGuard no_grad;
  for (Graph::CellUse& u : trace_.graph->cells)
    if (u.exit.defined()) u.cell->assign(std::exchange(u.exit, Tensor()), SourceLocation{});
  for (Graph::GradUse& u : trace_.graph->grads) {
    if (!u.stored) continue;
    std::lock_guard hold(u.slot->lock);
    u.slot->set(std::move(u.exit));
  }
  waiting_updates() = nullptr;
  if (!updates_.empty()) update_many_(updates_, update_where_);
}

}  // namespace tandem::compiler
