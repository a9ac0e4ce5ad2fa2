// SPDX-License-Identifier: Apache-2.0
// The known word nearest to a misspelt one, for messages: edit distance with a limit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"

namespace tandem {

/// Insertions, deletions and replacements that turn a into b.
TD_API size_t edit_distance(std::string_view a, std::string_view b);
/// The first of `known` with the least distance to `word`, or "" when all are further away than
/// half the length of the word plus one.
TD_API std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace tandem
