// SPDX-License-Identifier: Apache-2.0
#include "tandem/edge/folder_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/hash/sha256.h"

namespace tandem::edge {
namespace {

namespace fs = std::filesystem;
constexpr const char* kListName = ".tandem-files";

struct Listed {
  std::string target, hash, name;
};

// A relative path that stays below its folder.
bool is_inside(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() &&
         std::none_of(path.begin(), path.end(),
                      [](const fs::path& part) { return part == ".." || part == "."; });
}

// Lines "target hash name".
std::vector<Listed> read_list(const fs::path& path) {
  std::vector<Listed> out;
  std::error_code none;
  if (!fs::exists(path, none)) return out;
  std::stringstream lines(read_file(path.string()));
  for (std::string line; std::getline(lines, line);) {
    std::stringstream words(line);
    Listed l;
    words >> l.target >> l.hash;
    std::getline(words >> std::ws, l.name);
    constexpr size_t kHash = 64;
    TD_CHECK(
        l.hash.size() == kHash && is_inside(l.name), Format,
        "'{}' is not a list of files that were written\nRemove it, or write to another folder.",
        path.string());
    out.push_back(std::move(l));
  }
  return out;
}

void write_list(const fs::path& path, const std::vector<Listed>& all) {
  std::string text;
  for (const Listed& l : all) text += fmt::format("{} {} {}\n", l.target, l.hash, l.name);
  write_file(path.string(), text);
}

// Below `folder` itself, not behind a link to elsewhere, and as it was written.
bool is_as_written(const fs::path& folder, const Listed& l) {
  std::error_code none;
  fs::path at = folder;
  for (const fs::path& part : fs::path(l.name)) {
    at /= part;
    if (fs::is_symlink(at, none)) return false;
  }
  return fs::is_regular_file(at, none) && sha256_hex(read_file(at.string())) == l.hash;
}

// With the folders that held nothing else.
void remove_file(const fs::path& folder, const std::string& name) {
  std::error_code error, not_empty;
  fs::remove(folder / name, error);
  TD_CHECK(!error, Io, "'{}' cannot be removed: {}", (folder / name).string(), error.message());
  for (fs::path p = fs::path(name).parent_path(); !p.empty(); p = p.parent_path())
    if (!fs::remove(folder / p, not_empty) || not_empty) break;
}

}  // namespace

FolderChanges write_folder(const FilePath& folder_path, const std::string& target,
                           const FolderFiles& files) {
  const fs::path folder(folder_path.str()), list = folder / kListName;
  std::vector<Listed> all = read_list(list);
  const auto is_named = [&](const std::string& name) {
    return std::any_of(files.begin(), files.end(), [&](const auto& f) { return f.first == name; });
  };
  FolderChanges changes;
  for (const Listed& l : all) {
    const bool elsewhere = std::any_of(all.begin(), all.end(), [&](const Listed& other) {
      return other.target != target && other.name == l.name;
    });
    std::error_code none;
    if (l.target != target || elsewhere || is_named(l.name) || !fs::exists(folder / l.name, none))
      continue;
    const bool ours = is_as_written(folder, l);
    if (ours) remove_file(folder, l.name);
    (ours ? changes.removed : changes.kept).push_back(l.name);
  }
  std::erase_if(all, [&](const Listed& l) { return l.target == target; });
  make_folders(folder.string());
  for (const auto& [name, text] : files) {
    TD_ASSERT(is_inside(name));
    const fs::path file = folder / name;
    make_folders(file.parent_path().string());
    write_file(file.string(), text);
    if (file.extension() == ".sh")
      fs::permissions(file, fs::perms::owner_exec, fs::perm_options::add);
    all.push_back({target, sha256_hex(text), name});
  }
  write_list(list, all);
  return changes;
}

}  // namespace tandem::edge
