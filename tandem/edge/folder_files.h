// SPDX-License-Identifier: Apache-2.0
// What writers of folders give: files by their path in the folder, with their text.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tandem::edge {

using FolderFiles = std::vector<std::pair<std::string, std::string>>;

}  // namespace tandem::edge
