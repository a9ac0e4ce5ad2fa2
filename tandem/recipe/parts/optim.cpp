// SPDX-License-Identifier: Apache-2.0
// `optim:` and `sched:` of a recipe: the rows of optim::optimizers() and optim::schedules(), and
// the schedule that follows a measured value.
#include <algorithm>

#include "tandem/optim/combined_schedules.h"
#include "tandem/recipe/fields.h"
#include "tandem/recipe/parts/parts_internal.h"
#include "tandem/train/callbacks.h"

namespace tandem::recipe {
namespace {

struct Numbers : QuietVisitor {
  double weight_decay = 0;
  std::vector<std::pair<std::string, std::string>> names;  ///< those that may change
  void number(const char* name, double& v, const Field& f) override {
    if (name == std::string_view("weight_decay")) weight_decay = v;
    if (f.resumable) names.emplace_back(name, name);
  }
  void numbers(const char* name, std::vector<double>&, const Field& f) override {
    if (!f.resumable) return;
    for (const std::string& element : words_of(f.elements)) names.emplace_back(name, element);
  }
};

// Multiplies what is counted in steps.
struct ScaleSteps : QuietVisitor {
  int64_t unit;
  explicit ScaleSteps(int64_t factor) : unit(factor) {}
  void whole(const char*, int64_t& v, const Field& f) override {
    if (f.unit == std::string_view("steps")) v *= unit;
  }
  void wholes(const char*, std::vector<int64_t>& v, const Field& f) override {
    for (int64_t& n : v)
      if (f.unit == std::string_view("steps")) n *= unit;
  }
};

// Runs as a callback of the trainer, which knows the value: it has no `make`.
constexpr optim::ScheduleRow kPlateau = {
    {"plateau", "Times factor when a logged value has not got better.",
     "{type: plateau, monitor: train/loss, patience: 1}",
     &kFieldsType<train::ReduceLROnPlateauOptions>},
    nullptr};

}  // namespace

RecipeOptimizer read_optimizer(Options& o) {
  const optim::OptimizerRow* row = optim::optimizers().find(o.text("type"));
  if (row && row->needs_closure)
    o.fail("type", fmt::format("{} calls its loss several times a step: it is for loops in code",
                               row->type));
  const Chosen<optim::OptimizerRow> chosen = read_component(o, optim::optimizers());
  Numbers numbers;
  chosen->options->visit(chosen.options.get(), numbers);
  return {[chosen](optim::ParamList p) { return chosen->make(std::move(p), chosen.options.get()); },
          numbers.weight_decay, std::move(numbers.names)};
}

const tandem::Registry<optim::ScheduleRow>& recipe_schedules() {
  static const bool added = [] {
    optim::schedules().add(kPlateau);
    return true;
  }();
  (void)added;
  return optim::schedules();
}

RecipeSchedule make_schedule(Options& o, optim::Optimizer& optimizer, int64_t total,
                             int64_t per_epoch) {
  RecipeSchedule s;
  if (!o.has("type")) {
    o.finish();
    return s;
  }
  const std::string unit = o.text("unit", "steps");
  if (unit != "steps" && unit != "epochs")
    o.fail("unit", fmt::format("expected steps or epochs, got '{}'", unit));
  const optim::ScheduleRun run{optimizer, o.whole("steps", total), o.whole("warmup_steps", 0),
                               unit == "epochs" ? std::max<int64_t>(per_epoch, 1) : 1};
  if (run.warmup < 0) o.fail("warmup_steps", fmt::format("expected 0 or more, got {}", run.warmup));
  const auto chosen = read_component(o, recipe_schedules(), [&](AnyChosen& c) {
    const auto* row = static_cast<const optim::ScheduleRow*>(c.row);
    if (row->prepare) row->prepare(run, c.options.get());
  });
  if (chosen->warmup == optim::ScheduleWarmup::refused && run.warmup > 0)
    o.fail("warmup_steps", fmt::format("{} warms up by itself", chosen->name));
  o.finish();
  // The rate of a step follows from the schedule alone, whatever it was before.
  for (const std::string& key : o.known())
    if (chosen->make ? key != "type" : key == "steps") o.may_change(key);
  const double start = 1 / static_cast<double>(run.warmup + 1);
  if (!chosen->make) {
    s.plateau = std::make_shared<train::ReduceLROnPlateau>(
        *static_cast<const train::ReduceLROnPlateauOptions*>(chosen.options.get()));
    if (run.warmup > 0)
      s.parts.push_back(std::make_unique<optim::LinearLR>(
          optimizer, optim::LinearLROptions{
                         .start_factor = start, .end_factor = 1, .total_iters = run.warmup}));
    return s;
  }
  ScaleSteps scale(run.unit);
  chosen->options->visit(chosen.options.get(), scale);
  s.parts.push_back(chosen->make(run, chosen.options.get()));
  if (run.warmup > 0 && chosen->warmup == optim::ScheduleWarmup::before) {
    optim::LRScheduler* after = s.parts.back().get();
    s.parts.push_back(std::make_unique<optim::WarmupLR>(
        optimizer, *after,
        optim::WarmupLROptions{.warmup_steps = run.warmup, .start_factor = start}));
  }
  return s;
}

}  // namespace tandem::recipe
