// SPDX-License-Identifier: Apache-2.0
// What writers of folders give: files by their path in the folder, with their text; and how they
// get there.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/files/file.h"

namespace tandem::edge {

using FolderFiles = std::vector<std::pair<std::string, std::string>>;

/// What became of files of an earlier net, which this one does not have.
struct FolderChanges {
  std::vector<std::string> removed;
  std::vector<std::string> kept;  ///< somebody changed them since
};

/// Write the files of `target` into `folder`, creating folders; scripts (.sh) can be started. What
/// an earlier call wrote for that target and this one does not is removed, unless its content is
/// no longer what was written. The names and hashes of what is written lie in the folder's
/// `.tandem-files`; files that it does not name are left alone. Throws Format where that file is
/// not such a list, before anything is changed; Io.
TD_API FolderChanges write_folder(const FilePath& folder, const std::string& target,
                                  const FolderFiles& files);

}  // namespace tandem::edge
