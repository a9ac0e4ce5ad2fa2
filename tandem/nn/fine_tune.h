// SPDX-License-Identifier: Apache-2.0
// Fine-tuning of whole nets: freezing parts chosen by name, LoRA on every chosen Linear, and the
// depth of each parameter (for layer-wise learning rates).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/nn/module.h"

namespace tandem::nn {

/// Whether `pattern` matches the whole of `name`, or a leading part that ends before a '.':
/// "layer4" and "layer*" match "layer4.0.weight", "layer" does not. '*' matches any characters
/// (dots too), '?' exactly one.
TD_API bool name_matches(std::string_view pattern, std::string_view name);

/// Exclude the parameters matched by any of `patterns` from training. Returns their number. Throws
/// Value for a pattern that matches nothing, with the nearest name.
TD_API size_t freeze(Module& m, const std::vector<std::string>& patterns);

/// For each of m.parameters() the index of its block, from 0 at the input. Blocks come in order of
/// registration: the children of `m`; a Sequential, and a child with more than half of all
/// parameters, is replaced by its own children. A parameter that belongs directly to such a child
/// counts towards the next block.
TD_API std::vector<int64_t> parameter_depths(const Module& m);

struct ApplyLoRAOptions {
  int64_t r = 8;
  double alpha = 8;                     ///< the update is scaled by alpha / r
  double dropout = 0;                   ///< of the update's input, in training
  std::vector<std::string> on = {"*"};  ///< patterns for the names of Linear layers
  std::vector<std::string> train = {};  ///< patterns of what is trained as well, such as the head
};
/// Put an update of rank r (as in LoRALinear) on every Linear in `m` that `on` matches, and freeze
/// all other parameters except those that `train` matches. Existing names stay; new ones are
/// "fc.lora_A.weight" [r, in] and "fc.lora_B.weight" [out, r]. Returns the layers' names. Throws
/// Value when `on` or `train` matches nothing, or a layer already has an update.
TD_API std::vector<std::string> apply_lora(Module& m, const ApplyLoRAOptions& options = {});
/// Add all updates to their weights and remove them: the net gets its old names back. Returns the
/// number of updates.
TD_API size_t merge_lora(Module& m);

}  // namespace tandem::nn
