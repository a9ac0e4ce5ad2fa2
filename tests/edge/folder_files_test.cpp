// SPDX-License-Identifier: Apache-2.0
// Files of nets in a folder: what an earlier net left goes, what is somebody's stays.
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/base/files/folder.h"
#include "tandem/edge/folder_files.h"
#include "tests/io/io_helper.h"
#include "tests/support/errors.h"

namespace tandem::edge {
namespace {

using Names = std::vector<std::string>;

// Every file below the folder, but the list.
Names files_in(const std::filesystem::path& folder) {
  Names out;
  for (const auto& e : std::filesystem::recursive_directory_iterator(folder))
    if (!e.is_directory() && e.path().filename() != ".tandem-files")
      out.push_back(std::filesystem::relative(e.path(), folder).string());
  std::sort(out.begin(), out.end());
  return out;
}

FolderFiles written(const Names& names, const std::string& text) {
  FolderFiles out;
  for (const std::string& n : names) out.emplace_back(n, text + n);
  return out;
}

// The first net, what a person does in the folder, the second net.
TEST(FolderFiles, OfAnEarlierNetGo) {
  const struct Case {
    const char* what;
    Names first, by_hand;
    const char* second_target;
    Names second, left, removed, kept;
  } kCases[] = {
      {"a page", {"net.mjs", "draw.html"}, {}, "wasm", {"net.mjs"}, {"net.mjs"}, {"draw.html"}, {}},
      {"a page that was changed",
       {"net.mjs", "draw.html"},
       {"draw.html"},
       "wasm",
       {"net.mjs"},
       {"draw.html", "net.mjs"},
       {},
       {"draw.html"}},
      {"a file of a person",
       {"net.mjs"},
       {"mine.html", "a/b.txt"},
       "wasm",
       {"net.wasm"},
       {"a/b.txt", "mine.html", "net.wasm"},
       {"net.mjs"},
       {}},
      {"folders that are empty then",
       {"java/net/Net.java", "x.sh"},
       {},
       "wasm",
       {"java/com/Net.java", "x.sh"},
       {"java/com/Net.java", "x.sh"},
       {"java/net/Net.java"},
       {}},
      {"another target", {"a", "b"}, {}, "apple", {"c"}, {"a", "b", "c"}, {}, {}},
      {"the same", {"a", "b"}, {"a"}, "wasm", {"a", "b"}, {"a", "b"}, {}, {}},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    const TempFolder folder;
    const std::filesystem::path web = folder / "web";
    EXPECT_TRUE(write_folder(web, "wasm", written(c.first, "1")).removed.empty());
    for (const std::string& n : c.by_hand) {
      make_folders((web / n).parent_path());
      write_file(web / n, "by hand");
    }
    const FolderChanges changes = write_folder(web, c.second_target, written(c.second, "2"));
    EXPECT_EQ(files_in(web), c.left);
    EXPECT_EQ(changes.removed, c.removed);
    EXPECT_EQ(changes.kept, c.kept);
    for (const std::string& n : c.second) EXPECT_EQ(read_file(web / n), "2" + n);
    for (const auto& e : std::filesystem::recursive_directory_iterator(web))
      EXPECT_FALSE(e.is_directory() && std::filesystem::is_empty(e)) << e.path();
  }
}

TEST(FolderFiles, WhatTwoTargetsHaveStays) {
  const TempFolder folder;
  write_folder(folder.path(), "mini", written({"net.c"}, "1"));
  write_folder(folder.path(), "apple", written({"net.c", "x"}, "1"));
  EXPECT_EQ(write_folder(folder.path(), "apple", {}).removed, Names{"x"});
  EXPECT_EQ(write_folder(folder.path(), "mini", {}).removed, Names{"net.c"});
}

TEST(FolderFiles, AListThatLiesRemovesNothingElsewhere) {
  const TempFolder folder;
  const std::filesystem::path web = folder / "web";
  const std::string hash = "2689367b205c16ce32ed4200942b8b8b1e262dfc70d9bc9fbc77c49699a4f1df";
  make_folders(web);
  make_folders(folder / "other");
  write_file(folder / "other/file", "ok");  // of that hash
  for (const std::string& line :
       {"wasm " + hash + " ../other/file\n", "wasm " + hash + " " + (folder / "other/file") + "\n",
        std::string("wasm 12 file\n"), std::string("text\n")}) {
    write_file(web / ".tandem-files", line);
    EXPECT_TRUE(has(thrown(
                        [&] {
                          write_folder(web, "wasm", {{"a", "1"}});
                        },
                        ErrorKind::Format),
                    "is not a list of files that were written"));
    EXPECT_FALSE(file_exists(web / "a"));
  }
  std::filesystem::create_directory_symlink(folder / "other", web / "link");
  write_file(web / ".tandem-files", "wasm " + hash + " link/file\n");
  EXPECT_EQ(write_folder(web, "wasm", {}).kept, Names{"link/file"});
  EXPECT_EQ(read_file(folder / "other/file"), "ok");
}

}  // namespace
}  // namespace tandem::edge
