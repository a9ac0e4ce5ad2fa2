// SPDX-License-Identifier: Apache-2.0
// Folders: made, listed, renamed so that the new name survives a power cut, and removed. Every
// failure is an Io error with the path and the system's words.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/file.h"

namespace tandem {

/// Make a folder and those above it; fine when it is there.
TD_API void make_folders(const FilePath& path);
/// The names in a folder, sorted.
TD_API std::vector<std::string> list_folder(const FilePath& path);
/// Give `from` the name `to` (which must not be there) and sync the folder around it. `from`'s own
/// entries are synced first when it is a folder.
TD_API void rename_durably(const FilePath& from, const FilePath& to);
/// Remove a folder with all that is in it; fine when it is not there.
TD_API void remove_folder(const FilePath& path);

}  // namespace tandem
