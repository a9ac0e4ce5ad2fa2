// SPDX-License-Identifier: Apache-2.0
// A run's folder as a model: its recipe says which one, data.json of what sizes.
#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/base/folder.h"
#include "tandem/nn/fine_tune.h"
#include "tandem/train/run_data.h"

namespace tandem::cli {
bool is_run(const std::string& folder) {
  return file_exists(folder + "/recipe.yaml") && file_exists(folder + "/metrics.jsonl");
}

OpenedRun open_run(const std::string& folder, const std::string& weights) {
  OpenedRun run{.recipe = train::Recipe::load(folder + "/recipe.yaml")};
  const io::Yaml* part = run.recipe.root.find("model");
  TD_CHECK(part, Unsupported, "the recipe of '{}' has no model that could be called", folder);
  run.data = train::read_run_data(folder);
  train::Options o(part, "model", run.recipe.file);
  const train::Registry all = recipe_registry(false);
  run.type = o.text("type");
  const auto it = all.model.find(run.type);
  if (it == all.model.end()) o.fail("type", fmt::format("there is no model '{}'", run.type));
  run.model = it->second(o, run.data.info);
  run.model.module->load_state_dict(
      train::run_weights(folder, train::run_weights_of(weights.empty() ? "last" : weights)));
  nn::merge_lora(*run.model.module);
  run.model.module->eval();
  return run;
}

train::PreparePicture picture_preparation(const OpenedRun& run) {
  const io::Yaml* part = run.recipe.root.find("data");
  train::Options o(part, "data", run.recipe.file);
  const std::string type = o.text("type");
  const train::Registry all = recipe_registry(false);
  const auto it = all.picture.find(type);
  TD_CHECK(it != all.picture.end(), Unsupported,
           "the run's data is of type '{}', whose samples are no pictures\nGive an .npy file.",
           type);
  return it->second(o, run.data.facts);
}

LoadedModel load_run(const std::string& folder, const std::string& weights) {
  const OpenedRun run = open_run(folder, weights);
  const train::RecipeModel& made = run.model;
  TD_CHECK(made.predict, Unsupported, "the model '{}' has no output for an input alone{}", run.type,
           made.generate ? "\n`tandem generate` shows what it makes." : "");
  LoadedModel m;
  m.parameters = made.module->num_parameters();
  m.state = made.module->state_dict();
  const size_t n = made.predict_fields.size();
  TD_CHECK(run.data.fields.size() >= n, Format, "'{}/data.json' has {} fields, '{}' takes {}",
           folder, run.data.fields.size(), run.type, n);
  for (size_t i = 0; i < n; ++i) {
    const train::BatchField& field = run.data.fields[i];
    ModelPort port{.name = made.predict_fields[i], .dtype = field.dtype, .shape = field.shape};
    // Rows that stand for themselves may be any number; a graph's belong together.
    if (n == 1 && !port.shape.empty()) port.shape[0] = -1;
    m.inputs.push_back(std::move(port));
  }
  m.outputs.push_back({.name = "output", .shape = {-1}});
  m.run = [made](const std::vector<Tensor>& in) { return std::vector<Tensor>{made.predict(in)}; };
  m.opened = std::make_shared<const OpenedRun>(run);
  return m;
}

StateDict run_state(const std::string& folder, const std::string& weights) {
  const train::Recipe recipe = train::Recipe::load(folder + "/recipe.yaml");
  const io::Yaml* model = recipe.root.find("model");
  if (model && model->find("lora")) return load_run(folder, weights).state;
  return train::run_weights(folder, train::run_weights_of(weights.empty() ? "last" : weights));
}

}  // namespace tandem::cli
