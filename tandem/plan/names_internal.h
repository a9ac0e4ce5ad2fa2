// SPDX-License-Identifier: Apache-2.0
// Names as people write them. Not installed.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/nearest.h"

namespace tandem::plan {

/// In lower case, without blanks, hyphens and the maker: "NVIDIA GeForce RTX-4090" is "rtx4090".
std::string plain_name(const std::string& name);
/// "Did you mean 'x'? " with the nearest word, or "".
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace tandem::plan
