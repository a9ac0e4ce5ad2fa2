// SPDX-License-Identifier: Apache-2.0
// `loss:` of a recipe: the rows of train::losses().
#include "tandem/train/losses.h"
#include "tandem/recipe/fields.h"
#include "tandem/recipe/parts/parts_internal.h"

namespace tandem::recipe {

void add_losses(Registry& r) {
  for (const train::LossRow* row : train::losses().rows())
    r.loss[row->name] = [row](Options& o) -> RecipeLoss {
      const std::shared_ptr<void> options = row->options ? row->options->make() : nullptr;
      if (options) read_fields(o, {options.get(), row->options});
      train::MadeLoss made = train::make_loss(*row, options.get());
      RecipeLoss loss(std::move(made.function));
      if (made.prepare)
        loss.prepare = [prepare = std::move(made.prepare)](const RecipeData& data) {
          const auto classes = data.info.find("classes");
          prepare(data.train, classes == data.info.end() ? 0 : classes->second);
        };
      return loss;
    };
}

}  // namespace tandem::recipe
