// SPDX-License-Identifier: Apache-2.0
// Models by name, for the tool and for recipes: models::make("resnet18", {.num_classes = 10}).
// Names are torchvision's where it has the model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/nn/container.h"

namespace tandem::models {

/// Options of a model made by name; unset ones take the model's default. Setting an option that the
/// model does not have throws Value.
struct ModelOptions {
  std::optional<int64_t> num_classes = {};
  std::optional<int64_t> in_channels = {};
  std::optional<int64_t> image_size = {};  ///< for models with learned positions
  std::optional<double> dropout = {};
};

/// A new model with initial values drawn from the default generator. Throws Value for an unknown
/// name, with the nearest one, and for options that the model does not have.
TD_API nn::AnyModule make(const std::string& name, const ModelOptions& options = {});

struct ModelInfo {
  std::string name;
  std::vector<int64_t> input;  ///< shape of one sample, as the published weights expect it
  /// Images of other heights and widths give an answer, too (above a least size).
  bool any_size = true;
};
/// Every name that make() knows, by family.
TD_API std::vector<ModelInfo> list();
/// The entry of `name`; throws as make().
TD_API ModelInfo info(const std::string& name);

}  // namespace tandem::models
