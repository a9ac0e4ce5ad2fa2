// SPDX-License-Identifier: Apache-2.0
// `quant:`, `prune:` and `distill:` of a recipe: its net is trained with rounded weights and
// activations, with weights that become 0 step by step, or after the outputs of a trained one.
#include "tandem/graph/rng.h"
#include "tandem/recipe/component_rows.h"
#include "tandem/recipe/fields.h"
#include "tandem/recipe/open_run.h"
#include "tandem/recipe/parts/parts_internal.h"

namespace tandem::recipe {
namespace {

template <class T>
void read_if_given(Options& root, const char* key, std::optional<T>& to) {
  Options o = root.part(key);
  if (root.has(key)) to = read_part<T>(o);
}

/// Calls something before the first update of a run and before each that follows.
struct EachStep : train::Callback {
  explicit EachStep(std::function<void(nn::Module&, int64_t)> f) : set(std::move(f)) {}
  void fit_begin(train::Trainer& t) override { set(t.model(), t.step()); }
  void step_end(train::Trainer& t, const train::Logs&) override { set(t.model(), t.step()); }
  const char* name() const override { return "EachStep"; }
  bool reads_weights() const override { return false; }
  std::function<void(nn::Module&, int64_t)> set;
};

}  // namespace

CompressPart read_compress(Options& root) {
  CompressPart part;
  read_if_given(root, "quant", part.quant);
  read_if_given(root, "prune", part.prune);
  read_if_given(root, "distill", part.distill);
  return part;
}

// Files of a run hold plain weights: masks are for its training alone.
void prepare_compressed(const CompressPart& part, nn::Module& net, bool training) {
  if (part.prune && training) nn::prune::prepare(net, *part.prune);
  if (part.quant) quant::prepare_qat(net, *part.quant);
}

train::StepFunction taught(const CompressPart& part, nn::Module& net, train::StepFunction step) {
  if (!part.distill) return step;
  const GeneratorGuard apart({0, 0});  // the run draws the numbers that it would draw without
  const auto teacher =
      std::make_shared<const OpenedRun>(open_run(part.distill->teacher, part.distill->weights));
  TD_CHECK(teacher->model.forward, Unsupported,
           "the model of '{}' has no output for a batch alone: it cannot teach",
           part.distill->teacher);
  const auto params = net.parameters();
  if (!params.empty()) teacher->model.module->to(params.front().device());
  return train::distilled(
      std::move(step), net,
      [teacher](const train::Batch& b) { return teacher->model.forward(b).first; },
      part.distill->options);
}

std::vector<std::shared_ptr<train::Callback>> compress_callbacks(const CompressPart& part) {
  std::vector<std::shared_ptr<train::Callback>> out;
  if (part.prune)
    out.push_back(std::make_shared<EachStep>(
        [o = *part.prune](nn::Module& net, int64_t step) { nn::prune::set_step(net, o, step); }));
  if (part.quant) out.push_back(std::make_shared<EachStep>(quant::set_qat_step));
  return out;
}

const FieldsType& quant_fields() { return kFieldsType<quant::QatOptions>; }
const FieldsType& prune_fields() { return kFieldsType<nn::prune::ScheduleOptions>; }
const FieldsType& distill_fields() { return kFieldsType<DistillPart>; }

}  // namespace tandem::recipe
