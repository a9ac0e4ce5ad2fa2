// SPDX-License-Identifier: Apache-2.0
// How many heads of attention a block computes with, for code that slices its projections. Not
// installed.
#pragma once

#include <optional>

#include "tandem/nn/module.h"

namespace tandem::nn::detail {

struct HeadCounts {
  int64_t heads = 0;
  int64_t kv_heads = 0;  ///< of keys and values, shared by groups of heads
};
/// The `kind` (ModuleState) of blocks that say so. It lives as long as the process.
class HeadsKind {
 public:
  using Of = HeadCounts (*)(const Module& block);
  explicit HeadsKind(Of of);
};
/// Nothing where the module does not say.
std::optional<HeadCounts> heads_of(const Module& m);

}  // namespace tandem::nn::detail
