// SPDX-License-Identifier: Apache-2.0
// `trainer:` of a recipe: the fields of TrainerOptions and what a run of a recipe adds to them.
#include "tandem/recipe/component_rows.h"
#include "tandem/recipe/fields.h"
#include "tandem/recipe/parts/parts_internal.h"

namespace tandem::recipe {

TrainerPart read_trainer(Options& o, bool progress) {
  auto part = read_part<TrainerPart>(o);
  part.options.progress = progress;
  return part;
}

const FieldsType& trainer_fields() { return kFieldsType<TrainerPart>; }

}  // namespace tandem::recipe
