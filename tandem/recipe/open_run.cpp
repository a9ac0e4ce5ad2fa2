// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/open_run.h"

#include <fmt/format.h>

#include "tandem/base/files/folder.h"
#include "tandem/nn/fine_tune.h"
#include "tandem/recipe/parts/parts_internal.h"

namespace tandem::recipe {

bool is_run(const std::string& folder) {
  return file_exists(folder + "/recipe.yaml") && file_exists(folder + "/metrics.jsonl");
}

OpenedRun open_run(const std::string& folder, const std::string& weights, Device device) {
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
  Options root(&run.recipe.root, "", run.recipe.file);
  prepare_compressed(read_compress(root), *run.model.module, false);
  load_run_weights(*run.model.module, folder, run_weights_of(weights.empty() ? "last" : weights));
  nn::merge_lora(*run.model.module);
  run.model.module->eval();
  run.model.module->to(device);
  run.device = device;
  return run;
}

void load_run_weights(nn::Module& model, const std::string& folder, RunWeights which) {
  const StateDict weights = run_weights(folder, which);
  try {
    model.load_state_dict(weights);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Value && e.kind() != ErrorKind::Shape) throw;
    throw Error(
        e.kind(), fmt::format("the run in '{}': {}", folder, e.message()),
        "Its weights need the model that was trained: leave out what changes `model` in its "
        "recipe.yaml. To train another model from them, set model.init_from.",
        e.op(), e.loc(), e.layer());
  }
}

std::string data_type(const OpenedRun& run) {
  return Options(run.recipe.root.find("data"), "data", run.recipe.file).text("type", "");
}

std::optional<Preparation> preparation_of(const OpenedRun& run) {
  Options o(run.recipe.root.find("data"), "data", run.recipe.file);
  const Registry all = Registry::standard(false);
  const auto it = all.prepare.find(o.text("type"));
  if (it == all.prepare.end()) return {};
  return it->second(o, run.data);
}

}  // namespace tandem::recipe
