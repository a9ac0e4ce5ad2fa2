// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/open_run.h"

#include "tandem/base/files/folder.h"
#include "tandem/nn/fine_tune.h"

namespace tandem::recipe {

bool is_run(const std::string& folder) {
  return file_exists(folder + "/recipe.yaml") && file_exists(folder + "/metrics.jsonl");
}

OpenedRun open_run(const std::string& folder, const std::string& weights) {
  OpenedRun run{.folder = folder, .recipe = Recipe::load(folder + "/recipe.yaml")};
  const io::Yaml* part = run.recipe.root.find("model");
  TD_CHECK(part, Unsupported, "the recipe of '{}' has no model that could be called", folder);
  run.data = read_run_data(folder);
  Options o(part, "model", run.recipe.file);
  const Registry all = Registry::standard(false);
  run.type = o.text("type");
  const auto it = all.model.find(run.type);
  if (it == all.model.end()) o.fail("type", fmt::format("there is no model '{}'", run.type));
  run.model = it->second(o, run.data.info);
  run.model.module->load_state_dict(
      run_weights(folder, run_weights_of(weights.empty() ? "last" : weights)));
  nn::merge_lora(*run.model.module);
  run.model.module->eval();
  return run;
}

std::optional<Preparation> preparation_of(const OpenedRun& run) {
  Options o(run.recipe.root.find("data"), "data", run.recipe.file);
  const Registry all = Registry::standard(false);
  const auto it = all.prepare.find(o.text("type"));
  if (it == all.prepare.end()) return {};
  return it->second(o, run.data);
}

}  // namespace tandem::recipe
