// SPDX-License-Identifier: Apache-2.0
// `optim:` and `sched:` of a recipe: for the one optimizer of most models, or for each of several.
#include "tandem/recipe/parts/parts_internal.h"

namespace tandem::recipe {
namespace {

std::unique_ptr<optim::Optimizer> make_one(Options& o, const nn::Module& m, RecipeOptimizers& of,
                                           int64_t* every) {
  const RecipeOptimizer read = read_optimizer(o);
  RecipeParams params = recipe_params(o, m, read.weight_decay);
  if (every) {
    *every = o.whole("every", 1);
    if (*every < 1) o.fail("every", fmt::format("expected 1 or more, got {}", *every));
  }
  o.finish();
  std::unique_ptr<optim::Optimizer> opt = read.make(std::move(params.groups));
  for (size_t g = 0; g < params.factors.size(); ++g)
    if (params.factors[g] != 1) opt->set_lr(opt->lr(g) * params.factors[g], g);
  of.keys.push_back({o.path(), "sched", read.numbers});
  return opt;
}

// The part itself for each of the optimizers, if it has a type or nothing of any of them; else the
// part of each by its name, and no other key.
std::vector<Options> parts_for(Options& o, const std::vector<std::string>& names) {
  bool each = false;
  for (const std::string& name : names) each |= !name.empty() && !o.has("type") && o.has(name);
  if (!each) return std::vector<Options>(names.size(), o);
  std::vector<Options> parts;
  for (const std::string& name : names) parts.push_back(o.part(name));
  o.finish();
  return parts;
}

}  // namespace

RecipeOptimizers make_optimizers(Options& o, const RecipeModel& model) {
  RecipeOptimizers all;
  if (!model.updates) {
    all.made.push_back(make_one(o, *model.module, all, nullptr));
    all.named.push_back({"", *all.made.back()});
    return all;
  }
  std::vector<std::string> names;
  for (const auto& [name, part] : model.optimizers) names.push_back(name);
  std::vector<Options> parts = parts_for(o, names);
  for (size_t k = 0; k < names.size(); ++k) {
    int64_t every = 1;
    all.made.push_back(make_one(parts[k], *model.optimizers[k].second, all, &every));
    all.named.push_back({names[k], *all.made.back(), every});
  }
  return all;
}

void make_schedules(Options& o, RecipeOptimizers& of, int64_t total, int64_t per_epoch) {
  std::vector<std::string> names;
  for (const train::NamedOptimizer& n : of.named) names.push_back(n.name);
  const bool whole = names.size() == 1 || o.has("type");
  std::vector<Options> parts = parts_for(o, names);
  for (size_t k = 0; k < names.size(); ++k) {
    of.keys[k].sched = parts[k].path();
    of.schedules.push_back(make_schedule(parts[k], of.named[k].optimizer, total, per_epoch));
    if (!of.schedules[k].plateau) continue;
    if (!whole) parts[k].fail("type", "plateau looks at the whole run: name it in sched itself");
    of.plateau = of.schedules.front().plateau;  // which sets the rates of all
  }
}

}  // namespace tandem::recipe
