// SPDX-License-Identifier: Apache-2.0
// The word nearest to a misspelt one, for messages: edit distance with a limit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"

namespace tandem {

/// Insertions, deletions and replacements that make b of a.
TD_API size_t edit_distance(std::string_view a, std::string_view b);
/// The first of `known` with the least distance to `word`, or "" when all are further away than
/// half of the word's length and one.
TD_API std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace tandem
