// SPDX-License-Identifier: Apache-2.0
// The data sources, models and agents that recipes may name, each with the fields of its part, what
// it is and an example that runs. Registry::standard() and the reference page read these rows.
#pragma once

#include "tandem/base/registry.h"
#include "tandem/data/transforms/transforms.h"
#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

/// What data tells a model: "classes", "vocabulary", "features" ...
using DataInfo = std::map<std::string, int64_t>;

/// A row of data_sources(): `data:` of a recipe.
struct DataRow : Component {
  /// From the row's options. `o` names the place of mistakes: o.fail(key, what).
  RecipeData (*make)(const void* options, const Options& o, uint64_t seed);
  /// How samples that a user gives are prepared as those of the test set; nullptr: of arrays alone.
  Preparation (*prepare)(const void* options, const Options& o, const RunData& run) = nullptr;
};
/// A row whose options have type P: `make(options, o, seed)` gives the data.
template <class P, auto make>
constexpr DataRow data_row(const char* name, const char* doc, const char* example) {
  return {{name, doc, example, &kFieldsType<P>},
          [](const void* options, const Options& o, uint64_t seed) -> RecipeData {
            return make(*static_cast<const P*>(options), o, seed);
          }};
}
/// The same with `prepare(options, o, run)`, which prepares samples for the run's model.
template <class P, auto make, auto prepare>
constexpr DataRow prepared_row(const char* name, const char* doc, const char* example) {
  DataRow row = data_row<P, make>(name, doc, example);
  row.prepare = [](const void* options, const Options& o, const RunData& run) -> Preparation {
    return prepare(*static_cast<const P*>(options), o, run);
  };
  return row;
}

/// A row of recipe_models(): `model:` of a recipe.
struct ModelRow : Component {
  /// From the row's options and what the data tells.
  RecipeModel (*make)(const ModelRow& row, const void* options, const Options& o,
                      const DataInfo& info);
};
/// A row whose options have type P: `make(options, o, info)` gives the model.
template <class P, auto make>
constexpr ModelRow model_row(const char* name, const char* doc, const char* example) {
  return {{name, doc, example, &kFieldsType<P>},
          [](const ModelRow&, const void* options, const Options& o, const DataInfo& info)
              -> RecipeModel { return make(*static_cast<const P*>(options), o, info); }};
}

/// Every data source and model that recipes may name; a program may add its own before it calls
/// Registry::standard().
TD_API tandem::Registry<DataRow>& data_sources();
TD_API tandem::Registry<ModelRow>& recipe_models();

/// Fields that a part has beside those of its type: all models', all agents'; those of
/// parts without a type.
TD_API const FieldsType& model_fields();
TD_API const FieldsType& agent_fields();
TD_API const FieldsType& trainer_fields();
TD_API const FieldsType& quant_fields();
TD_API const FieldsType& prune_fields();
TD_API const FieldsType& distill_fields();

/// A transform, or a chain as one, out of YAML: "{type: RandomCrop, size: 32}" or a list of such
/// maps. Throws Value naming the nearest name or key.
TD_API data::Transform make_transform(const std::string& yaml);

/// The reference page of all that recipes may say, as Markdown.
TD_API std::string recipe_reference();

}  // namespace tandem::recipe
