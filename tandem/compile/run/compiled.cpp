// SPDX-License-Identifier: Apache-2.0
// The cache of a compiled function: finds the specialisation that fits a call, or makes it: trace,
// passes, lowering. Inside another trace, under transforms and in anomaly mode fn runs as it is.
// What nothing guards (plain numbers from outside) is found by tracing again now and then; the
// specialisation that was confirmed last stands first among those that fit.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "tandem/base/clock.h"
#include "tandem/base/log.h"
#include "tandem/compile/run/compiled_backward.h"
#include "tandem/compile/run/eager_twin.h"
#include "tandem/compile/run/segments.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/dry_run.h"
#include "tandem/ops/view/create.h"

namespace tandem::detail {

/// A call as the cache sees it.
struct CompiledCall {
  const CallParts& args;
  const Mode mode;
  CompiledCore::Body body;
  std::span<const std::byte> callable;
};

struct CompiledCore::State {
  CompileOptions options;
  SourceLocation loc;
  mutable std::mutex lock;  ///< of the cache; the first trace runs under it
  std::vector<std::unique_ptr<Specialisation>> all;
  CompileStats stats;
  uint64_t clock = 0;
  bool warned = false;
  int64_t renewed = 0;  ///< traces made because a captured number had changed
  Ref<Executable> last;
  Ref<Graph> last_graph;
  std::unique_ptr<compiler::SegmentCache> segments;
  std::mutex one_check;  ///< checked calls queue: nothing may change between the two runs

  bool checks() const;
  std::string name() const;
  Specialisation* find(const CompiledCall& c) const;
  std::unique_ptr<Specialisation> traced(const CompiledCall& c) const;
  Specialisation& first(std::unique_ptr<Specialisation> fresh);
  Specialisation& find_or_trace(const CompiledCall& c);
  Specialisation& look_again(const CompiledCall& c, Specialisation& found, bool stale);
  void report(const std::string& what, bool stale);
  Specialisation::Sized& find_or_plan(Specialisation& s, const CallParts& args);
  void forget_oldest();
};

CompiledCore::CompiledCore(CompileOptions options, SourceLocation loc)
    : state_(std::make_unique<State>()) {
  TD_CHECK(options.cache_size > 0, Value, "compile: cache_size must be positive, got {}",
           options.cache_size);
  // A function has a few segments for each path through it.
  state_->segments =
      std::make_unique<compiler::SegmentCache>(8 * static_cast<size_t>(options.cache_size));
  state_->options = std::move(options);
  state_->loc = loc;
}
CompiledCore::~CompiledCore() = default;

bool CompiledCore::State::checks() const {
  static const bool all = [] {
    const char* v = std::getenv("TANDEM_CHECK_COMPILE");
    return v && *v && std::string_view(v) != "0";
  }();
  return all || options.check;
}

std::string CompiledCore::State::name() const {
  return fmt::format("{} (compiled at {}:{})", options.name, loc.file ? loc.file : "?", loc.line);
}

Specialisation* CompiledCore::State::find(const CompiledCall& c) const {
  for (const auto& each : all)
    if (each->fits(c.args, c.mode) && each->guards_hold()) return each.get();
  return nullptr;
}

std::unique_ptr<Specialisation> CompiledCore::State::traced(const CompiledCall& c) const {
  try {
    auto fresh = trace_specialisation(c.args, c.mode, options, c.body);
    fresh->watch = compiler::StackWatch(c.callable);
    return fresh;
  } catch (const Error& e) {
    throw with_place(e, nullptr, loc);
  }
}

Specialisation& CompiledCore::State::first(std::unique_ptr<Specialisation> fresh) {
  all.insert(all.begin(), std::move(fresh));
  ++stats.traces;
  return *all.front();
}

Specialisation& CompiledCore::State::find_or_trace(const CompiledCall& c) {
  using Change = compiler::StackWatch::Change;
  Specialisation* found = find(c);
  if (!found) return first(traced(c));
  const Change change = found->watch.changed(found->looks.calls());
  const bool due = found->looks.due();
  if ((change == Change::none && !due && !checks()) || is_dry_run()) return *found;
  return look_again(c, *found, change != Change::at_once);
}

namespace {

std::string difference(const Specialisation& was, const Specialisation& now) {
  std::string what = compiler::difference(*was.graph, *now.graph);
  if (what.empty() && was.result_key != now.result_key)
    what = "a number, text or size in its result is another";
  return what;
}

}  // namespace

// Trace fn again. The same program: `found` is confirmed. Another one: from now on that; `stale`
// when calls before this one may have missed it.
Specialisation& CompiledCore::State::look_again(const CompiledCall& c, Specialisation& found,
                                                bool stale) {
  ++stats.looks;
  std::unique_ptr<Specialisation> fresh = traced(c);
  const std::string what = difference(found, *fresh);
  if (what.empty()) {
    found.watch.had_no_effect(found.looks.calls());
    return found;
  }
  report(what, stale);
  for (auto each = all.begin(); each != all.end(); ++each) {
    Specialisation& s = **each;
    if (!s.fits(c.args, c.mode) || !difference(s, *fresh).empty() || !s.guards_hold()) continue;
    s.watch.refresh();
    std::rotate(all.begin(), each, each + 1);
    return s;
  }
  return first(std::move(fresh));
}

void CompiledCore::State::report(const std::string& what, bool stale) {
  constexpr int64_t kOften = 8;
  constexpr const char* kRemedy =
      "Pass it as an argument (a Tensor parameter takes a float without a new trace), or hold it "
      "in a Buffer.";
  if (stale && checks())
    throw with_place(
        Error(ErrorKind::Value,
              fmt::format("{} takes something from outside that is frozen in its trace: {}\n{}",
                          options.name, what, kRemedy)),
        "compile", loc);
  if (stale) {
    log_warning(
        "{} takes something from outside that was frozen in its trace: {}. It is retraced; "
        "calls since the change have run with the old value.\n{}",
        name(), what, kRemedy);
  } else if (++renewed == kOften) {
    log_warning("{} was retraced {} times since something that it captures changes: {}.\n{}",
                name(), renewed, what, kRemedy);
  }
}

Specialisation::Sized& CompiledCore::State::find_or_plan(Specialisation& s, const CallParts& args) {
  const std::vector<int64_t> sizes = s.sizes_of(args);
  const auto same = [&](const Specialisation::Sized& z) { return z.sizes == sizes; };
  auto at = std::find_if(s.sized.begin(), s.sized.end(), same);
  if (at == s.sized.end()) {
    s.sized.push_back(plan_sizes(s, args, options));
    at = s.sized.end() - 1;
    ++stats.plans;
  }
  at->used = ++clock;
  return *at;
}

// Keep the cache bounded; warn once when it is used up by ever new shapes.
void CompiledCore::State::forget_oldest() {
  size_t n = 0;
  for (const auto& s : all) n += std::max<size_t>(s->sized.size(), 1);
  if (n <= static_cast<size_t>(options.cache_size)) return;
  if (!warned) {
    warned = true;
    log_warning(
        "{} was traced {} times and planned {} times: more than cache_size = {} are kept.\nName "
        "the dimension that changes: compile(fn, {{.dynamic = {{{{0, \"batch\"}}}}}}), or pad to a "
        "few sizes.",
        name(), stats.traces, stats.plans, options.cache_size);
  }
  Specialisation* owner = nullptr;
  size_t oldest = 0;
  for (auto& s : all)
    for (size_t k = 0; k < s->sized.size(); ++k)
      if (!owner || s->sized[k].used < owner->sized[oldest].used) {
        owner = s.get();
        oldest = k;
      }
  if (!owner) return;
  owner->sized.erase(owner->sized.begin() + static_cast<std::ptrdiff_t>(oldest));
  if (owner->sized.empty()) std::erase_if(all, [owner](const auto& s) { return s.get() == owner; });
}

namespace {

// Inside another trace the function becomes part of it; transforms and watches see its ops.
bool runs_as_it_is(Control control) {
  const Context& c = context();
  constexpr uint32_t kCompiles = kAutocast | kProfile | kAnomaly | kDryRun;
  if ((c.slow & ~kCompiles) || c.redirect || c.cell_log || !c.assign_if.empty()) return true;
  return control == Control::eager && (c.slow & (uint32_t{kAnomaly} | kDryRun));
}

}  // namespace

std::vector<Tensor> CompiledCore::call(const CallParts& args, Body body,
                                       std::span<const std::byte> callable,
                                       std::string& result_key) {
  State& s = *state_;
  if (runs_as_it_is(s.options.control)) return body(args.tensors, result_key);
  if (s.options.control == Control::eager) return call_in_segments(args, body, result_key);
  if (!s.checks() || (context().slow & (uint32_t{kAnomaly} | kDryRun)))
    return call_program(args, body, callable, result_key);
  const std::lock_guard hold(s.one_check);
  const EagerTwin twin(args, body);
  std::vector<Tensor> out = call_program(args, body, callable, result_key);
  twin.compare(out, s.options.name, s.loc);
  return out;
}

std::vector<Tensor> CompiledCore::call_program(const CallParts& args, Body body,
                                               std::span<const std::byte> callable,
                                               std::string& result_key) {
  State& s = *state_;
  const bool watched = context().slow & kAnomaly;
  DifferentiableCall now;
  bool op_by_op = false;
  {
    std::lock_guard hold(s.lock);
    ++s.stats.calls;
    Specialisation& found = s.find_or_trace({args, present_mode(), body, callable});
    now.graph = found.graph;
    result_key = found.result_key;
    op_by_op = watched && found.differentiable();
    if (!watched) {
      const Specialisation::Sized& z = s.find_or_plan(found, args);
      now.forward = z.executable;
      if (found.differentiable()) {
        now.backward = z.backward;
        now.saved = z.saved;
        now.targets = found.targets;
        now.grad_outputs = found.grad_outputs;
        now.n_out = found.n_out;
      }
      s.last = now.forward;
      s.last_graph = now.graph;
      s.forget_oldest();
    }
  }
  if (!is_dry_run()) tell_sources(*now.graph);
  if (watched) {
    // Op by op: the first that makes a NaN is known, and nothing has been written by then.
    if (op_by_op) return body(args.tensors, result_key);
    const AutocastGuard casts_are_traced(DType::bf16, false);
    return tandem::run(*now.graph, args.tensors);
  }
  std::vector<Tensor> captures;
  for (const Graph::Capture& k : now.graph->captures) captures.push_back(k.outer);
  if (now.backward)
    return run_differentiable(std::move(now), args.tensors, std::move(captures), s.loc);
  NoGradGuard no_grad;
  return now.forward->run(args.tensors, captures);
}

std::vector<Tensor> CompiledCore::call_in_segments(const CallParts& args, Body body,
                                                   std::string& result_key) {
  State& s = *state_;
  const GeneratorState entry = generator_state();
  const auto begin = Clock::now();
  const int64_t cold = s.segments->cold();
  compiler::SegmentedRun run(*s.segments);
  std::vector<Tensor> out;
  try {
    out = body(args.tensors, result_key);
    run.commit();
  } catch (...) {
    set_generator_state(entry);
    throw;
  }
  const double all = seconds_since(begin);
  s.segments->took(all, run.op_by_op(), cold == s.segments->cold());
  std::lock_guard hold(s.lock);
  ++s.stats.calls;
  if (run.reads() == 0 || s.warned) return out;
  s.warned = true;
  const SourceLocation at = run.first_read();
  log_warning(
      "{} reads a value{}: it runs in {} segments here, and its C++ runs at every call ({:.0f} us "
      "of this one).\nwhere(), cond(), while_loop() and scan() stay in one program.",
      s.name(), at.is_user() ? fmt::format(" at {}:{}", at.file, at.line) : std::string(),
      run.segments(), (all - run.seconds_inside()) * 1e6);
  return out;
}

Tensor number_slot(double v) { return full({}, v, DType::f64); }

CompileStats CompiledCore::stats() const {
  std::lock_guard hold(state_->lock);
  CompileStats stats = state_->stats;
  stats.plans += state_->segments->compiled();
  stats.segments = state_->segments->run();
  return stats;
}
Ref<Executable> CompiledCore::executable() const {
  std::lock_guard hold(state_->lock);
  return state_->last ? state_->last : state_->segments->last();
}
Ref<Graph> CompiledCore::graph() const {
  std::lock_guard hold(state_->lock);
  return state_->last_graph;
}
void CompiledCore::clear() {
  std::lock_guard hold(state_->lock);
  state_->all.clear();
  state_->segments->clear();
  state_->last = {};
  state_->last_graph = {};
}

}  // namespace tandem::detail
