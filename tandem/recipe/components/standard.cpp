// SPDX-License-Identifier: Apache-2.0
// Everything that recipes may name, out of the tables of rows.
#include "tandem/recipe/components/components_internal.h"
#include "tandem/recipe/fields.h"
#include "tandem/recipe/parts/parts_internal.h"

namespace tandem::recipe {
namespace {

// The row's options out of a part of a recipe.
std::shared_ptr<void> options_of(const Component& row, Options& o) {
  if (!row.options) return nullptr;
  std::shared_ptr<void> options = row.options->make();
  read_fields(o, {options.get(), row.options});
  return options;
}

std::vector<const DataRow*> own_sources() {
  std::vector<const DataRow*> all = {
      // Rows in files of their own, one a line: &stripes,
  };
  for (const auto rows : {row_sources(), census_sources(), text_sources(), image_sources(),
                          file_sources(), media_sources(), crop_sources()})
    for (const DataRow& row : rows) all.push_back(&row);
  return all;
}

std::vector<const ModelRow*> own_models() {
  std::vector<const ModelRow*> all = {
      // Rows in files of their own, one a line: &linear,
  };
  static const std::vector<ModelRow> rows = model_rows();
  for (const ModelRow& row : rows) all.push_back(&row);
  return all;
}

void add_data(Registry& r) {
  for (const DataRow* row : data_sources().rows()) {
    r.data[row->name] = [row](Options& o, uint64_t seed) {
      return row->make(options_of(*row, o).get(), o, seed);
    };
    if (row->prepare)
      r.prepare[row->name] = [row](Options& o, const RunData& run) {
        return row->prepare(options_of(*row, o).get(), o, run);
      };
  }
}

void add_models(Registry& r) {
  for (const ModelRow* row : recipe_models().rows())
    r.model[row->name] = [row](Options& o, const DataInfo& info) {
      return row->make(*row, options_of(*row, o).get(), o, info);
    };
}

}  // namespace

tandem::Registry<DataRow>& data_sources() {
  static tandem::Registry<DataRow> all("data set", std::span<const DataRow* const>(own_sources()));
  return all;
}

tandem::Registry<ModelRow>& recipe_models() {
  static tandem::Registry<ModelRow> all("model", std::span<const ModelRow* const>(own_models()));
  return all;
}

const io::Json& kept(const RunData& run, const char* key) {
  const io::Json* found = run.facts.kept.find(key);
  TD_CHECK(found, Unsupported,
           "the run is from before \"{}\" of its data was kept\n`tandem train` of its recipe with "
           "--run and its folder writes it.",
           key);
  return *found;
}

Registry Registry::standard(bool init_weights) {
  Registry r;
  add_losses(r);
  add_data(r);
  add_models(r);
  add_fine_tuning(r, init_weights);
  add_agent_components(r);
  add_exporters(r);
  return r;
}

}  // namespace tandem::recipe
