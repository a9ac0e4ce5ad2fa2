// SPDX-License-Identifier: Apache-2.0
// Rotary positions with their scalings, as "rope_parameters" (or "rope_scaling" and a separate
// "rope_theta") of a config.json describes them. Not installed.
#pragma once

#include <vector>

#include "tandem/models/pretrained/layers_internal.h"

namespace tandem::models::detail {

/// Angle per position of each pair of elements, and the factor on cosine and sine.
struct Rope {
  std::vector<float> frequencies;
  std::vector<float> beyond = {};  ///< of texts longer than `longest`; empty: the same
  int64_t longest = 0;
  double factor = 1;
  /// For positions [n, l].
  Turn at(const Tensor& positions) const;
};

struct RopeSizes {
  int64_t head_dim = 0, positions = 0;
  double theta = 10000;
};
/// `layers` names the kind of layer whose parameters are read where each kind has its own; `plain`
/// leaves the scaling out. Throws Format for an unknown kind of scaling or an impossible number.
Rope read_rope(const ModelConfig& c, const RopeSizes& sizes, const char* layers = "full_attention",
               bool plain = false);

}  // namespace tandem::models::detail
