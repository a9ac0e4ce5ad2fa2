// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/transforms/transform_table.h"

#include "tandem/base/error.h"
#include "tandem/data/transforms/transform_rows_internal.h"

namespace tandem::data {
namespace {

std::vector<const TransformRow*> own_rows() {
  std::vector<const TransformRow*> all = {
      // Rows in files of their own, one a line: &vignette,
  };
  for (const auto rows : {detail::choice_rows(), detail::geometry_rows(), detail::color_rows(),
                          detail::value_rows(), detail::policy_rows()})
    for (const TransformRow& row : rows) all.push_back(&row);
  return all;
}

}  // namespace

const RegistryBase& TransformRow::registry() { return transforms(); }

Registry<TransformRow>& transforms() {
  static Registry<TransformRow> all("transform", std::span<const TransformRow* const>(own_rows()));
  return all;
}

Transform make_transform(const ChosenTransform& chosen) {
  TD_CHECK(chosen, Value, "no transform was chosen");
  return chosen->make(chosen.options.get());
}

std::vector<Transform> make_transforms(const std::vector<ChosenTransform>& chosen) {
  std::vector<Transform> all;
  for (const ChosenTransform& one : chosen) all.push_back(make_transform(one));
  return all;
}

}  // namespace tandem::data
