// SPDX-License-Identifier: Apache-2.0
// Which parameters a recipe's optimizer gets, and in which groups: frozen ones stay out, weight
// decay may be for some only, and learning rates may fall towards the input.
#include <algorithm>
#include <cmath>
#include <map>

#include "tandem/nn/fine_tune.h"
#include "tandem/recipe/parts/parts_internal.h"

namespace tandem::recipe {

RecipeParams recipe_params(Options& o, const nn::Module& m, double decay) {
  const std::string on = o.text("decay", "all");
  if (on != "all" && on != "matrices") o.fail("decay", "expected 'all' or 'matrices'");
  const std::vector<std::string> modules = o.texts("decay_on", {});
  const double fall = o.number("layer_decay", 1.0);
  if (!(fall > 0 && fall <= 1)) o.fail("layer_decay", "expected a factor above 0 and at most 1");
  const auto named = m.named_parameters();
  std::vector<int64_t> depths(named.size());
  if (fall != 1) depths = nn::parameter_depths(m);

  // By depth, the output first: the first group has the rate that the recipe names. In a depth
  // those with weight decay come before the rest.
  std::map<std::pair<int64_t, bool>, optim::ParamGroup> groups;
  std::vector<bool> found(modules.size());
  for (size_t k = 0; k < named.size(); ++k) {
    const auto& [name, p] = named[k];
    bool chosen = modules.empty();
    for (size_t i = 0; i < modules.size(); ++i)
      if (name == modules[i] || name.starts_with(modules[i] + ".")) chosen = found[i] = true;
    const bool decayed = chosen && (on == "all" || p.dim() >= 2);
    if (p.requires_grad()) groups[{-depths[k], !decayed}].params.push_back(p);
  }
  for (size_t i = 0; i < modules.size(); ++i)
    if (!found[i])
      o.fail("decay_on", fmt::format("the model has no parameters under '{}'", modules[i]));
  TD_CHECK(!groups.empty(), Value, "all parameters are frozen: there is nothing to train");
  RecipeParams out;
  const int64_t output = groups.begin()->first.first;
  for (auto& [key, group] : groups) {
    if (on != "all" || !modules.empty()) group.weight_decay = key.second ? 0.0 : decay;
    out.groups.push_back(std::move(group));
    out.factors.push_back(std::pow(fall, static_cast<double>(key.first - output)));
  }
  return out;
}

}  // namespace tandem::recipe
