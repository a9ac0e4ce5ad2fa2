// SPDX-License-Identifier: Apache-2.0
// Folders: created, listed, renamed so that the new name survives a power cut, and removed. Every
// failure is an Io error with the path and the system's message.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/files/file.h"

namespace tandem {

/// Create a folder and its parents; no error if it exists.
TD_API void make_folders(const FilePath& path);
/// The names in a folder, sorted.
TD_API std::vector<std::string> list_folder(const FilePath& path);
/// Rename `from` to `to` (which must not exist) and sync the enclosing folder. If `from` is a
/// folder, its entries are synced first.
TD_API void rename_durably(const FilePath& from, const FilePath& to);
/// Remove a folder with everything in it; no error if it does not exist.
TD_API void remove_folder(const FilePath& path);

}  // namespace tandem
