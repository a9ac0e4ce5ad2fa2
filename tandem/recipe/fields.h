// SPDX-License-Identifier: Apache-2.0
// Options structs with fields (base/fields.h) out of a recipe: keys, defaults, bounds and words are
// those that the struct declares; a wrong one is an error that names the key, its line and the
// nearest right word.
#pragma once

#include <utility>

#include "tandem/base/registry.h"
#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

/// Read every field of `options` that the part holds; the others keep their values, which the
/// resolved recipe then shows. Does not call o.finish(): the part may have keys besides.
TD_API void read_fields(Options& o, AnyFields options);
template <HasFields T>
void read_fields(Options& o, T& options) {
  read_fields(o, any_fields(options));
}
/// The same for a struct with its defaults, to the part's end.
template <HasFields T>
T read_part(Options& o) {
  T options;
  read_fields(o, any_fields(options));
  o.finish();
  return options;
}

/// The row that `type` names, with its options. Throws Value naming the nearest name. `prepare` may
/// change the options' defaults before they are read. Does not call o.finish().
TD_API AnyChosen read_any_component(Options& o, const RegistryBase& registry,
                                    const std::function<void(AnyChosen&)>& prepare = {});
template <class Row>
Chosen<Row> read_component(Options& o, const tandem::Registry<Row>& registry,
                           const std::function<void(AnyChosen&)>& prepare = {}) {
  Chosen<Row> chosen;
  static_cast<AnyChosen&>(chosen) = read_any_component(o, registry, prepare);
  return chosen;
}

}  // namespace tandem::recipe
