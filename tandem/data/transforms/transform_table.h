// SPDX-License-Identifier: Apache-2.0
// The transforms by name, each with its arguments as fields and an example that runs. Recipes, the
// reference page and programs that make a transform by name read these rows.
#pragma once

#include <span>

#include "tandem/base/registry.h"
#include "tandem/data/transforms/transforms.h"

namespace tandem::data {

/// A row of transforms().
struct TransformRow : Component {
  /// From the row's arguments (nullptr where it has none). Throws Value for those it refuses.
  Transform (*make)(const void* arguments);
  static const RegistryBase& registry();
};
using ChosenTransform = Chosen<TransformRow>;

/// A row whose arguments have type P, with `template <class V> void fields(V& v)` and
/// `Transform make() const`.
template <class P>
constexpr TransformRow transform_row(const char* name, const char* doc, const char* example) {
  return {{name, doc, example, &kFieldsType<P>},
          [](const void* arguments) { return static_cast<const P*>(arguments)->make(); }};
}

/// Every transform by torchvision v2's name; a program may add its own. Not here: Lambda,
/// LinearTransformation and ConvertBoundingBoxFormat (functions, matrices and other boxes have no
/// place in a recipe), and functions that give several images.
TD_API Registry<TransformRow>& transforms();
TD_API Transform make_transform(const ChosenTransform& chosen);
TD_API std::vector<Transform> make_transforms(const std::vector<ChosenTransform>& chosen);

}  // namespace tandem::data
