// SPDX-License-Identifier: Apache-2.0
// What files look like from outside: sizes and times. Two looks at a folder tell what has changed
// in it, and whether somebody still writes there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::serve {

struct FileStamp {
  std::string path;
  uint64_t size = 0, inode = 0;
  int64_t changed = 0;  ///< nanoseconds
  bool operator==(const FileStamp&) const = default;
};
using FileStamps = std::vector<FileStamp>;

/// The files of a model.
struct ModelStamps {
  bool there = false;
  FileStamps settings;                     ///< what holds for all versions
  std::map<int64_t, FileStamps> versions;  ///< all that lie there, chosen or not
  bool operator==(const ModelStamps&) const = default;
};

/// Looks at files, and remembers the folders that it went through.
class FolderLook {
 public:
  /// A file; nothing where there is none.
  void file(const std::string& path, FileStamps& out);
  /// What lies in a folder and below it, but for names that begin with a dot and what `leaves_out`
  /// says of a path.
  void folder(const std::string& path, FileStamps& out,
              const std::function<bool(const std::string&)>& leaves_out = {});
  /// A version: a run, another folder, or a file with those that it names. A file shares its folder
  /// with other models where `alone` is false.
  void version(const std::string& path, bool alone, FileStamps& out);
  /// A folder whose entries matter.
  void pass(const std::string& path) { folders_.push_back(path); }
  const std::vector<std::string>& folders() const { return folders_; }

 private:
  void walk(const std::string& path, FileStamps& out,
            const std::function<bool(const std::string&)>& leaves_out, int depth);
  std::vector<std::string> folders_;
};

}  // namespace tandem::serve
