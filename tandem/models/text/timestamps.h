// SPDX-License-Identifier: Apache-2.0
// The rules of Whisper's timestamps (Radford et al. 2022, section 4.5) for the logits of a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::models {

struct TimestampRules {
  int64_t no_timestamps_token_id = -1;  ///< the token before the one of 0 seconds; below 0: none
  int64_t max_initial_timestamp_index = 50;  ///< of the first timestamp: 1 second; below 0: any
  bool any() const { return no_timestamps_token_id >= 0; }
};

/// Makes impossible (-infinity) what may not follow `fresh`, the tokens after the forced ones: a
/// text begins with a timestamp, they come in pairs and never run backwards; where all of them
/// together are likelier than any token of text, one of them follows. `eos` is the first token that
/// is not text.
TD_API void apply_timestamp_rules(std::vector<float>& logits, std::span<const int64_t> fresh,
                                  int64_t eos, const TimestampRules& rules);

}  // namespace tandem::models
