// SPDX-License-Identifier: Apache-2.0
// docs/recipe-reference.md, out of the rows and fields that recipes are read by.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/data/transforms/transform_table.h"
#include "tandem/optim/optimizers.h"
#include "tandem/recipe/component_rows.h"
#include "tandem/recipe/parts/parts_internal.h"
#include "tandem/rl/agents.h"
#include "tandem/train/callback_table.h"
#include "tandem/train/losses.h"

namespace tandem::recipe {
namespace {

std::string table(const FieldsType& type) {
  const std::string rows = fields_markdown(type);
  return rows.empty() ? "" : "\n| key | kind | default | |\n|---|---|---|---|\n" + rows;
}

// Neighbours with one text and one set of fields (models by name) share a heading.
std::string section(const RegistryBase& registry) {
  const std::vector<const Component*> all = registry.components();
  std::string out;
  for (size_t i = 0, end; i < all.size(); i = end) {
    const Component& row = *all[i];
    end = i + 1;
    if (!*row.example) continue;  // not for recipes
    std::string names = fmt::format("`{}`", row.name);
    for (; end < all.size() && all[end]->options == row.options &&
           std::string_view(all[end]->doc) == row.doc;
         ++end)
      names += fmt::format(", `{}`", all[end]->name);
    out += fmt::format("### {}\n\n{}\n\n```yaml\n{}\n```\n", names, row.doc, row.example);
    if (row.options) out += table(*row.options);
    out += "\n";
  }
  return out;
}

void add_resumable(const FieldsType* type, std::vector<std::string>& names) {
  if (!type) return;
  for (const FieldInfo& field : describe_fields(*type))
    if (field.field.resumable && std::find(names.begin(), names.end(), field.name) == names.end())
      names.push_back(field.name);
}

// Which keys of a part a resumed run may change: those of the part, and of all its types together.
std::string resumable_row(const char* part, const FieldsType* own, const RegistryBase* types) {
  std::vector<std::string> names;
  add_resumable(own, names);
  if (types)
    for (const Component* row : types->components()) add_resumable(row->options, names);
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "`" : ", `") + name + "`";
  return fmt::format("| `{}` | {} |\n", part, list.empty() ? "none" : list);
}

std::string resumed_section() {
  return "## Resumed runs\n\nWhat a run may change when it is resumed, from there on; other "
         "changes are refused, see [resuming]"
         "(recipes.md#averaging-debugging-resuming-preemption). Beside these: `recipe`, `note`, "
         "`export`, `expect`, `search`, `tune`, and every key of `sched` but `type` (of a plateau "
         "only those named here).\n\n| part | keys |\n|---|---|\n" +
         resumable_row("data", nullptr, &data_sources()) +
         resumable_row("model", &model_fields(), &recipe_models()) +
         resumable_row("loss", nullptr, &train::losses()) +
         resumable_row("optim", nullptr, &optim::optimizers()) +
         resumable_row("sched", nullptr, &recipe_schedules()) +
         resumable_row("trainer", &trainer_fields(), nullptr) +
         resumable_row("trainer.callbacks", nullptr, &train::callbacks()) +
         resumable_row("quant", &quant_fields(), nullptr) +
         resumable_row("prune", &prune_fields(), nullptr) +
         resumable_row("distill", &distill_fields(), nullptr) +
         resumable_row("agent", &agent_fields(), &rl::agents());
}

}  // namespace

std::string recipe_reference() {
  std::string out =
      "# What recipes may say\n\n"
      "Written by `tandem recipe reference`; do not edit by hand. [Recipes](recipes.md) explains "
      "how the parts work together. A key without a default is required. Where a kind names "
      "no single number, a list in brackets is expected, even of one; lists of a fixed length take "
      "one number where the text says so.\n\n";
  out +=
      "## `data`\n\nRelative paths start from the working directory.\n\n" + section(data_sources());
  out +=
      "## `data.transforms`\n\nNames, arguments and defaults are torchvision v2's. "
      "`test_transforms` takes the same.\n\n" +
      section(data::transforms());
  out +=
      "## `model`\n\nEvery model takes these, whatever its type; sizes that are not listed are "
      "told by the data:\n" +
      table(model_fields()) + "\n" + section(recipe_models());
  out += "## `loss`\n\nNone for models with a loss of their own.\n\n" + section(train::losses());
  out +=
      "## `optim`\n\n`decay`, `decay_on` and `layer_decay` choose parameters, see "
      "[fine-tuning](recipes.md#fine-tuning).\n\n" +
      section(optim::optimizers());
  out += "## `sched`\n\n`warmup_steps`, `steps` and `unit` come beside these.\n\n" +
         section(recipe_schedules());
  out += "## `trainer`\n" + table(trainer_fields()) + "\n";
  out += "## `trainer.callbacks`\n\n" + section(train::callbacks());
  out +=
      "## `quant`\n\nThe net rounds weights and activations while it is trained, see [quantisation]"
      "(quantization.md#training-with-rounding).\n" +
      table(quant_fields()) +
      "\n## `prune`\n\nWeights become 0 and stay 0, see [pruning](compression.md#pruning).\n" +
      table(prune_fields()) +
      "\n## `distill`\n\nThe net learns from the outputs of a trained one, see "
      "[distillation](compression.md#distillation).\n" +
      table(distill_fields()) + "\n";
  out +=
      "## `agent`\n\nIn place of data, model, loss, optim, sched and trainer. Every agent takes "
      "these:\n" +
      table(agent_fields()) + "\n" + section(rl::agents()) + resumed_section();
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace tandem::recipe
