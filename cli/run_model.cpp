// SPDX-License-Identifier: Apache-2.0
// A run's folder as a model: its recipe says which one, data.json of what sizes.
#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/base/folder.h"
#include "tandem/nn/fine_tune.h"

namespace tandem::cli {
namespace {

int64_t whole(const io::Json& j, const std::string& where) {
  TD_CHECK(j.as_int(), Format, "{} wants whole numbers, got a {}", where, j.kind());
  return *j.as_int();
}

DType dtype_of(const std::string& name, const std::string& where) {
#define X(short_name, type, text) \
  if (name == text) return DType::short_name;
  TD_FOR_EACH_DTYPE(X)
#undef X
  TD_FAIL(Format, "{}: there is no dtype '{}'", where, name);
}

}  // namespace

bool is_run(const std::string& folder) {
  return file_exists(folder + "/recipe.yaml") && file_exists(folder + "/metrics.jsonl");
}

LoadedModel load_run(const std::string& folder, const std::string& weights) {
  const train::Recipe recipe = train::Recipe::load(folder + "/recipe.yaml");
  const io::Yaml* part = recipe.root.find("model");
  TD_CHECK(part, Unsupported, "the recipe of '{}' has no model that could be called", folder);
  const std::string file = folder + "/data.json";
  const io::Json data = io::parse_json(read_file(file), file);
  const io::Json *info = data.find("info"), *fields = data.find("fields");
  TD_CHECK(info && info->as_object() && fields && fields->as_array(), Format,
           "'{}' wants \"info\" and \"fields\"", file);
  std::map<std::string, int64_t> sizes;
  for (const auto& [key, value] : *info->as_object()) sizes[key] = whole(value, file);

  train::Options o(part, "model", recipe.file);
  const train::Registry all = recipe_registry(false);
  const std::string type = o.text("type");
  const auto it = all.model.find(type);
  if (it == all.model.end()) o.fail("type", fmt::format("there is no model '{}'", type));
  const train::RecipeModel made = it->second(o, sizes);
  TD_CHECK(made.predict, Unsupported, "the model '{}' has no output for an input alone", type);
  made.module->load_state_dict(
      train::run_weights(folder, train::run_weights_of(weights.empty() ? "last" : weights)));
  nn::merge_lora(*made.module);
  made.module->eval();

  LoadedModel m;
  m.from_run = true;
  m.parameters = made.module->num_parameters();
  m.state = made.module->state_dict();
  const size_t n = made.predict_fields.size();
  TD_CHECK(fields->as_array()->size() >= n, Format, "'{}' has {} fields, '{}' takes {}", file,
           fields->as_array()->size(), type, n);
  for (size_t i = 0; i < n; ++i) {
    const io::Json& field = (*fields->as_array())[i];
    const io::Json *dtype = field.find("dtype"), *shape = field.find("shape");
    TD_CHECK(dtype && dtype->as_string() && shape && shape->as_array(), Format,
             "'{}': a field wants \"dtype\" and \"shape\"", file);
    ModelPort port{.name = made.predict_fields[i], .dtype = dtype_of(*dtype->as_string(), file)};
    for (const io::Json& d : *shape->as_array()) port.shape.push_back(whole(d, file));
    // Rows that stand for themselves may be any number; a graph's belong together.
    if (n == 1 && !port.shape.empty()) port.shape[0] = -1;
    m.inputs.push_back(std::move(port));
  }
  m.outputs.push_back({.name = "output", .shape = {-1}});
  m.run = [made](const std::vector<Tensor>& in) { return std::vector<Tensor>{made.predict(in)}; };
  return m;
}

StateDict run_state(const std::string& folder, const std::string& weights) {
  const train::Recipe recipe = train::Recipe::load(folder + "/recipe.yaml");
  const io::Yaml* model = recipe.root.find("model");
  if (model && model->find("lora")) return load_run(folder, weights).state;
  return train::run_weights(folder, train::run_weights_of(weights.empty() ? "last" : weights));
}

}  // namespace tandem::cli
