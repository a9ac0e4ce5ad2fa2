// SPDX-License-Identifier: Apache-2.0
// Texts between ranks: names, paths, states, lists of numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/dist/engine.h"

namespace tandem::distributed {

/// Every rank's text, by rank. All ranks call it.
TD_API std::vector<std::string> all_gather_text(Engine& engine, std::string_view text,
                                                const std::string& label = "texts");
/// Rank 0's.
TD_API std::string broadcast_text(Engine& engine, std::string_view text,
                                  const std::string& label = "text");

}  // namespace tandem::distributed
