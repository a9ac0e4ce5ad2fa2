// SPDX-License-Identifier: Apache-2.0
// Fine-tuning a whole net: parts chosen by name to be frozen, LoRA on every chosen Linear, and how
// deep each parameter lies (for learning rates by layer).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/nn/module.h"

namespace tandem::nn {

/// Does `pattern` fit the whole of `name`, or a leading part that ends before a '.': "layer4" and
/// "layer*" fit "layer4.0.weight", "layer" does not. '*' stands for any letters (dots too), '?' for
/// one.
TD_API bool name_matches(std::string_view pattern, std::string_view name);

/// Take the parameters that any of `patterns` fits out of training. Gives their number. Throws
/// Value for a pattern that fits none, with the nearest name.
TD_API size_t freeze(Module& m, const std::vector<std::string>& patterns);

/// For each of m.parameters() the number of its block, from 0 at the input. Blocks come in order of
/// registration: the children of `m`; a Sequential, and a child with more than half of all
/// parameters, counts as its own children. A parameter of such a child itself belongs to the next
/// block.
TD_API std::vector<int64_t> parameter_depths(const Module& m);

struct ApplyLoRAOptions {
  int64_t r = 8;
  double alpha = 8;                     ///< the update is scaled by alpha / r
  double dropout = 0;                   ///< of the update's input, in training
  std::vector<std::string> on = {"*"};  ///< patterns of names of Linear layers
  std::vector<std::string> train = {};  ///< patterns of what is trained besides, such as the head
};
/// Put an update of rank r (LoRALinear's) on every Linear inside `m` that `on` fits, and freeze all
/// other parameters but those that `train` fits. The names of what was there stay; new ones are
/// "fc.lora_A.weight" [r, in] and "fc.lora_B.weight" [out, r]. Gives the layers' names. Throws
/// Value when `on` or `train` fits nothing, or an update is there already.
TD_API std::vector<std::string> apply_lora(Module& m, const ApplyLoRAOptions& options = {});
/// Add all updates to their weights and take them away: the net has its old names again. Gives
/// their number.
TD_API size_t merge_lora(Module& m);

}  // namespace tandem::nn
