// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/data_arrays.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/ops/ops.h"

namespace tandem::recipe {
namespace {

const data::AnyPipeline& part_named(const RecipeParts& parts, const std::string& name) {
  TD_CHECK(name == "train" || name == "val" || name == "test", Value,
           "there is no part '{}' of data\nParts are train, val and test.", name);
  if (name == "train") return parts.data.train;
  const auto& found = name == "val" ? parts.data.val : parts.data.test;
  TD_CHECK(found, Value, "the recipe has no {} data", name == "val" ? "validation" : "test");
  return *found;
}

// All rows of a field; its batches must have the same sizes but for the first.
Tensor joined_field(const std::vector<Tensor>& batches, const std::string& name) {
  for (const Tensor& b : batches)
    TD_CHECK(
        b.dim() == batches[0].dim() &&
            std::equal(b.sizes().begin() + 1, b.sizes().end(), batches[0].sizes().begin() + 1),
        Value,
        "'{}' is {} in one batch and {} in another: there is no array of both\nWhere texts are "
        "padded to the longest of their batch, set a length or batches of 1.",
        name, batches[0].shape().to_string(), b.shape().to_string());
  return batches.size() == 1 ? batches[0] : cat(batches, 0);
}

}  // namespace

StateDict data_arrays(const Recipe& recipe, const DataArraysOptions& options) {
  TD_CHECK(options.samples >= 0, Value, "{} samples were asked for, expected 0 (all) or more",
           options.samples);
  StateDict out;
  with_recipe(recipe, Registry::standard(false), [&](RecipeParts& parts) {
    const data::AnyPipeline& from = part_named(parts, options.part);
    const NoGradGuard no_grad;
    parts.model.module->eval();
    std::vector<std::vector<Tensor>> fields;
    std::vector<Tensor> labels;
    int64_t left = options.samples > 0 ? options.samples : INT64_MAX;
    for (int64_t i = 0; left > 0 && i < from.size(); ++i) {
      std::vector<Tensor> batch = from.fields(i);
      const int64_t take = std::min(left, batch.at(0).size(0));
      for (Tensor& t : batch)
        if (t.dim() > 0 && t.size(0) > take) t = t.narrow(0, 0, take);
      left -= take;
      fields.resize(batch.size());
      for (size_t k = 0; k < batch.size(); ++k) fields[k].push_back(batch[k].contiguous());
      if (!parts.model.forward) continue;
      const Tensor target = parts.model.forward(batch).second;
      if (target.defined() && target.dim() > 0) labels.push_back(target.contiguous());
    }
    TD_CHECK(!fields.empty(), Value, "there is no data");
    for (size_t k = 0; k < fields.size(); ++k) {
      const std::string name = fmt::format("x{}", k);
      out[name] = joined_field(fields[k], name);
    }
    if (!labels.empty()) out["labels"] = joined_field(labels, "labels");
  });
  return out;
}

}  // namespace tandem::recipe
