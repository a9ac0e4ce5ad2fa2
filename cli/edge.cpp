// SPDX-License-Identifier: Apache-2.0
#include "cli/edge_internal.h"

#include "tandem/recipe/open_run.h"
#include "tandem/recipe/sample_model.h"

namespace tandem::cli {

CompiledModel compile_as_c(const CompileChoice& choice, const edge::EdgeOptions& options) {
  const recipe::ModelSource& source = choice.model;
  int64_t sample_rate = 0;
  recipe::LoadedModel model = recipe::is_run(source.model)
                                  ? recipe::load_run(source.model, source.weights)
                                  : recipe::load_model(source);
  if (choice.with_preparation) {
    recipe::SampleModel prepared = recipe::with_preparation(std::move(model), choice.shapes);
    model = std::move(prepared.model);
    sample_rate = prepared.form.sample_rate;
  } else {
    recipe::set_shapes(model, choice.shapes);
  }
  std::vector<edge::EdgePort> inputs;
  for (const recipe::ModelPort& p : model.inputs)
    inputs.push_back({p.name, Spec(p.dtype, Shape(p.shape))});
  std::vector<std::string> outputs;
  for (const recipe::ModelPort& p : model.outputs) outputs.push_back(p.name);
  const auto forward = [&](std::span<const Tensor> x) {
    return model.run(std::vector<Tensor>(x.begin(), x.end()));
  };
  edge::EdgeSource net = edge::write_c99(forward, inputs, outputs, options);
  return {std::move(model), std::move(net), sample_rate};
}

}  // namespace tandem::cli
