// SPDX-License-Identifier: Apache-2.0
// The cache of a compiled function: finds the specialisation that fits a call, or makes it: trace,
// passes, lowering. Inside another trace, under transforms and in anomaly mode fn runs as it is.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "tandem/base/clock.h"
#include "tandem/base/log.h"
#include "tandem/compile/run/compiled_backward.h"
#include "tandem/compile/run/segments.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/dry_run.h"
#include "tandem/ops/view/create.h"

namespace tandem::detail {

struct CompiledCore::State {
  CompileOptions options;
  SourceLocation loc;
  mutable std::mutex lock;  ///< of the cache; the first trace runs under it
  std::vector<std::unique_ptr<Specialisation>> all;
  CompileStats stats;
  uint64_t clock = 0;
  bool warned = false;
  Ref<Executable> last;
  Ref<Graph> last_graph;
  std::unique_ptr<compiler::SegmentCache> segments;

  Specialisation& find_or_trace(const CallParts& args, const Mode& mode, Body body);
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

Specialisation& CompiledCore::State::find_or_trace(const CallParts& args, const Mode& mode,
                                                   Body body) {
  for (auto& each : all)
    if (each->fits(args, mode) && each->guards_hold()) return *each;
  try {
    all.push_back(trace_specialisation(args, mode, options, body));
  } catch (const Error& e) {
    throw with_place(e, nullptr, loc);
  }
  ++stats.traces;
  return *all.back();
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
        "{} (compiled at {}:{}) was traced {} times and planned {} times: more than cache_size = "
        "{} are kept.\nName the dimension that changes: compile(fn, {{.dynamic = {{{{0, "
        "\"batch\"}}}}}}), or pad to a few sizes.",
        options.name, loc.file ? loc.file : "?", loc.line, stats.traces, stats.plans,
        options.cache_size);
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

std::vector<Tensor> CompiledCore::call(const CallParts& args, Body body, std::string& result_key) {
  State& s = *state_;
  if (runs_as_it_is(s.options.control)) return body(args.tensors, result_key);
  if (s.options.control == Control::eager) return call_in_segments(args, body, result_key);
  const bool watched = context().slow & kAnomaly;
  DifferentiableCall now;
  bool op_by_op = false;
  {
    std::lock_guard hold(s.lock);
    ++s.stats.calls;
    Specialisation& found = s.find_or_trace(args, present_mode(), body);
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
      "{} (compiled at {}:{}) reads a value{}: it runs in {} segments here, and its C++ runs at "
      "every call ({:.0f} us of this one).\nwhere(), cond(), while_loop() and scan() stay in one "
      "program.",
      s.options.name, s.loc.file ? s.loc.file : "?", s.loc.line,
      at.is_user() ? fmt::format(" at {}:{}", at.file, at.line) : std::string(), run.segments(),
      (all - run.seconds_inside()) * 1e6);
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
