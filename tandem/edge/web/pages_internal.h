// SPDX-License-Identifier: Apache-2.0
// The pages that suit a net, by what it takes and gives.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/edge/wasm.h"

namespace tandem::edge {

/// Files by name, each with the script and the module in it.
std::vector<std::pair<std::string, std::string>> web_pages(const EdgeSource& net, const WebNet& web,
                                                           const WebFacts& facts);
/// A string of JavaScript, also inside a page.
std::string js_text(const std::string& s);

}  // namespace tandem::edge
