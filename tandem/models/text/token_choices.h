// SPDX-License-Identifier: Apache-2.0
// What sampling may choose from, for generate() and for speculative decoding, which needs the
// probabilities themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/models/text/generate.h"

namespace tandem::models {

/// Tokens and their weights, likeliest first. Without sampling it is one token.
struct TokenChoices {
  std::vector<int32_t> ids;
  std::vector<double> weights;  ///< not divided by their sum
  double sum = 0;

  /// The probability of a token; 0 where it cannot come.
  TD_API double probability(int64_t token) const;
  /// The token of a uniform number in [0, 1).
  TD_API int64_t draw(double uniform) const;
  /// What is left of the probabilities where they are larger than those of `other` (Leviathan et
  /// al. 2023, "Fast Inference from Transformers via Speculative Decoding"); these choices where
  /// nothing is.
  TD_API TokenChoices without(const TokenChoices& other) const;
};

/// The choices of next_token(), which has the same arguments.
TD_API TokenChoices token_choices(std::vector<float>& logits, const std::vector<int64_t>& tokens,
                                  int64_t fresh, const std::vector<int64_t>& eos,
                                  const GenerateOptions& options);

}  // namespace tandem::models
