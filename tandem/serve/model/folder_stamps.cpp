// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/folder_stamps_internal.h"

#include <sys/stat.h>

#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/onnx/external.h"
#include "tandem/recipe/loaded_model.h"
#include "tandem/recipe/open_run.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFolders = 16;        // inside one another
constexpr size_t kMostFiles = 100'000;  // of one model: more are not looked at

// What a run writes while it is trained, and no model is made of.
bool is_log_of_run(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.ends_with(".jsonl") || name == "report.html" || name == "LOCK" ||
         name.starts_with("events.out.tfevents");
}

}  // namespace

void FolderLook::file(const std::string& path, FileStamps& out) {
  struct stat s = {};
  if (::stat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return;
  out.push_back({.path = path,
                 .size = static_cast<uint64_t>(s.st_size),
                 .inode = static_cast<uint64_t>(s.st_ino),
                 .changed = int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec});
}

void FolderLook::walk(const std::string& path, FileStamps& out,
                      const std::function<bool(const std::string&)>& leaves_out, int depth) {
  if (depth >= kMostFolders) return;
  folders_.push_back(path);
  std::error_code error;
  for (const std::string& name : list_folder(path)) {
    const std::string at = path + "/" + name;
    if (name[0] == '.' || out.size() >= kMostFiles || (leaves_out && leaves_out(at))) continue;
    if (fs::is_directory(at, error))
      walk(at, out, leaves_out, depth + 1);
    else
      file(at, out);
  }
}

void FolderLook::folder(const std::string& path, FileStamps& out,
                        const std::function<bool(const std::string&)>& leaves_out) {
  walk(path, out, leaves_out, 0);
}

void FolderLook::version(const std::string& path, bool alone, FileStamps& out) {
  std::error_code error;
  if (recipe::is_run(path)) return folder(path, out, is_log_of_run);
  if (fs::is_directory(path, error)) return folder(path, out);
  const std::string beside = fs::path(path).parent_path().string();
  if (alone) return folder(beside, out);
  file(path, out);
  if (!recipe::is_onnx(path)) return;
  try {
    for (const std::string& location : onnx::external_locations(path))
      file(beside + "/" + location, out);
  } catch (const Error&) {  // half of a file
    return;
  }
}

}  // namespace tandem::serve
