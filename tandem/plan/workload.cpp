// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/workload.h"

#include <fmt/ranges.h>

#include <set>

#include "tandem/base/clock.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/profiler.h"
#include "tandem/optim/optimizers.h"
#include "tandem/plan/kernel_work_internal.h"
#include "tandem/plan/memory/caching_allocator_internal.h"
#include "tandem/plan/memory/step_memory_internal.h"
#include "tandem/plan/names_internal.h"
#include "tandem/plan/stepper_internal.h"

namespace tandem::plan {
namespace {

constexpr std::string_view kWithMomentum = "SGD-momentum";

// An optimizer and the settings that decide what state it keeps; the rest does not matter to a
// plan.
struct PlannedOptimizer {
  const optim::OptimizerRow* row;
  std::shared_ptr<void> options;
};
// "AdamW", "adamw", and "SGD-momentum" for SGD that keeps a buffer.
PlannedOptimizer planned_optimizer(const std::string& name) {
  const bool momentum = name == kWithMomentum;
  const std::string wanted = momentum ? "SGD" : name;
  for (const optim::OptimizerRow* row : optim::optimizers().rows()) {
    if (row->needs_closure || (wanted != row->type && wanted != row->name)) continue;
    PlannedOptimizer p{row, row->options->make()};
    if (momentum) static_cast<optim::SGDOptions*>(p.options.get())->momentum = 0.9;
    return p;
  }
  TD_FAIL(Value, "there is no optimizer '{}'\n{}It is one of {}.", name,
          did_you_mean(name, optimizer_names()), fmt::join(optimizer_names(), ", "));
}

double numel_bytes(const Tensor& t) {
  return static_cast<double>(t.numel()) * static_cast<double>(size_of(t.dtype()));
}

void mark_all(const Stepper& s, BlockCategories& categories) {
  for (const Param& p : s.model().parameters) categories.mark(p.value(), MemoryCategory::weights);
  for (const Buffer& b : s.model().buffers) categories.mark(b.value(), MemoryCategory::weights);
  for (const Tensor& t : s.model().inputs) categories.mark(t, MemoryCategory::input);
  if (s.optimizer())
    for (const auto& [name, t] : s.optimizer()->state_dict())
      categories.mark(t, MemoryCategory::optimizer);
}
void mark_gradients(const Stepper& s, BlockCategories& categories) {
  for (const Param& p : s.model().parameters) categories.mark(p.grad(), MemoryCategory::gradients);
}

// The results of a compiled step, whose list has no passes: from one forward pass row by row.
void add_forward_results(const Job& job, WorkOptions o, Workload& w) {
  if (!o.training || w.blocks <= 1) return;
  o.compiled = false;
  DryRunGuard dry({.this_backend = o.this_backend});
  Stepper s(job, o, &dry.memory());
  ProfilerGuard profiler;
  OpRecorder recorder(profiler.profile(), &dry.memory(), s.phase());
  HookGuard watch(recorder);
  s.forward();
  add_results(profiler.profile(), recorder, w);
}

// The ledger from event `first` on, through PyTorch's allocator.
double reserved_by_pytorch(const DryMemory& ledger, size_t first, bool tight) {
  CachingAllocator a(tight);
  std::vector<bool> held(ledger.blocks().size(), false);
  for (size_t k = 0; k < first; ++k)
    held[static_cast<size_t>(ledger.events()[k].block)] = ledger.events()[k].taken;
  for (size_t b = 0; b < held.size(); ++b)
    if (held[b]) a.take(static_cast<int32_t>(b), ledger.blocks()[b].bytes);
  for (size_t k = first; k < ledger.events().size(); ++k) {
    const DryEvent& e = ledger.events()[k];
    if (e.taken)
      a.take(e.block, ledger.blocks()[static_cast<size_t>(e.block)].bytes);
    else
      a.give_back(e.block);
  }
  return static_cast<double>(a.reserved());
}

// Sizes of parameters, buffers and optimizer state, whole and within blocks.
void add_sizes(const Job& job, const Stepper& s, Workload& w) {
  std::set<int64_t> sizes;
  for (const Param& p : s.model().parameters) {
    const Tensor v = p.value();
    sizes.insert(p.numel());
    w.parameters += static_cast<double>(v.numel());
    w.sizes.push_back(v.numel());
    w.weight_bytes += numel_bytes(v);
    if (w.options.training && p.requires_grad()) w.gradient_bytes += numel_bytes(v);
    if (w.blocks > 1 && in_block(p.name())) w.block_weights += numel_bytes(v);
  }
  w.boundary_bytes = w.units * static_cast<double>(job.width) *
                     static_cast<double>(size_of(whole_dtype(w.options.precision)));
  for (const Buffer& b : s.model().buffers) w.weight_bytes += numel_bytes(b.value());
  // The state of values, as large as they are; no counters of steps.
  if (s.optimizer())
    for (const auto& [name, t] : s.optimizer()->state_dict())
      if (is_floating(t.dtype()) && t.dim() > 0 && sizes.count(t.numel()))
        w.optimizer_bytes += numel_bytes(t);
}

// What a compiled step needs beside its planned arena.
Held outside_of(const Stepper& s, const Workload& w) {
  Held outside;
  outside.add(MemoryCategory::weights, w.weight_bytes);
  outside.add(MemoryCategory::optimizer, w.optimizer_bytes);
  for (const Tensor& t : s.model().inputs) outside.add(MemoryCategory::input, numel_bytes(t));
  return outside;
}

}  // namespace

std::unique_ptr<optim::Optimizer> planned_optimizer(const std::string& name,
                                                    std::vector<Param> parameters) {
  const PlannedOptimizer p = planned_optimizer(name);
  return p.row->make(std::move(parameters), p.options.get());
}

double Workload::flops() const {
  double n = 0;
  for (const Work& k : work) n += k.flops;
  return n;
}
double Workload::bytes() const {
  double n = 0;
  for (const Work& k : work) n += k.bytes;
  return n;
}
double Workload::matrix_flops() const {
  double n = 0;
  for (const Work& k : work) n += k.matrix ? k.flops : 0;
  return n;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> all;
  for (const optim::OptimizerRow* row : optim::optimizers().rows()) {
    if (row->needs_closure) continue;
    all.emplace_back(row->type);
    if (row->type == std::string_view("SGD")) all.emplace_back(kWithMomentum);
  }
  return all;
}

Workload dry_run(const Job& job, const WorkOptions& o) {
  TD_CHECK(o.batch > 0, Value, "the batch is {}\nGive 1 or more.", o.batch);
  if (o.training) planned_optimizer(o.optimizer);
  const Clock::time_point start = Clock::now();
  Workload w;
  w.model = job.name;
  w.options = o;
  w.unit = job.unit;
  w.blocks = static_cast<double>(job.transformer_layers);
  w.units = static_cast<double>(o.batch) * job.units_per_sample;
  if (o.compiled) add_forward_results(job, o, w);
  DryRunGuard dry({.this_backend = o.this_backend});
  DryMemory& ledger = dry.memory();
  BlockCategories categories(ledger);
  Stepper s(job, o, &ledger);
  mark_all(s, categories);
  const auto at_gradients = [&] { mark_gradients(s, categories); };
  // The first step makes the optimizer's state; the second is one of many.
  const size_t built = ledger.events().size();
  s.step(at_gradients);
  mark_all(s, categories);
  const size_t first = ledger.events().size();
  Ref<Executable> exe;
  {
    ProfilerGuard profiler;
    OpRecorder recorder(profiler.profile(), &ledger, s.phase());
    std::optional<HookGuard> watch;
    if (!o.compiled) watch.emplace(recorder);
    s.step(at_gradients);
    mark_all(s, categories);
    exe = s.executable();
    w.work = work_of(profiler.profile(), recorder, exe.get());
    if (!o.compiled) add_results(profiler.profile(), recorder, w);
  }
  if (o.framework == Framework::pytorch && !o.compiled) {
    w.reserved = reserved_by_pytorch(ledger, built, false);
    w.reserved_least = reserved_by_pytorch(ledger, built, true);
  }
  add_sizes(job, s, w);
  w.memory = exe ? step_memory(*exe, outside_of(s, w), w.blocks > 1)
                 : step_memory(ledger, categories, first, w.blocks > 1);
  w.host_peak = static_cast<double>(ledger.peak());
  w.rounding = w.host_peak - w.memory.peak.total();
  w.plan_seconds = seconds_since(start);
  return w;
}

}  // namespace tandem::plan
