// SPDX-License-Identifier: Apache-2.0
// The one way to caches and temporary files: which folder it is, which are refused, and that
// neither a link nor a file of somebody else's is followed, read or written to.
#include "tandem/base/files/private_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "tandem/base/files/folder.h"
#include "tests/io/io_helper.h"
#include "tests/support/environment.h"

namespace tandem {
namespace {

TEST(PrivateFolder, TheUsersCacheByItsVariables) {
  TempFolder f;
  const std::string own = f / ("tmp/tandem-" + std::to_string(::geteuid()));
  make_folders(f / "tmp");
  struct Case {
    const char *tandem, *xdg, *home;
    std::string want;
  };
  const std::string a = f / "a", b = f / "b", c = f / "c";
  const Case cases[] = {
      {a.c_str(), b.c_str(), c.c_str(), a},
      {"", b.c_str(), c.c_str(), b + "/tandem"},
      {"", "relative", c.c_str(), c + "/.cache/tandem"},
      {"", "", c.c_str(), c + "/.cache/tandem"},
      {"", "", "", own},
      {"", "", "relative", own},
  };
  const Environment tmp("TMPDIR", f / "tmp");
  for (const Case& k : cases) {
    const Environment tandem("TANDEM_CACHE_DIR", k.tandem), xdg("XDG_CACHE_HOME", k.xdg),
        home("HOME", k.home);
    const PrivateFolder cache = PrivateFolder::cache();
    EXPECT_EQ(cache.path(), k.want) << cache.problem();
    struct stat s {};
    ASSERT_EQ(::stat(k.want.c_str(), &s), 0) << k.want;
    EXPECT_EQ(s.st_mode & 0777, 0700U) << k.want;
  }
}

TEST(PrivateFolder, RefusesWhatOthersCanReach) {
  TempFolder f;
  struct Case {
    const char* name;
    std::function<void(const std::string& path)> make;
    const char* problem;
    bool as_root = false;
  };
  const Case cases[] = {
      {"mine", [](const std::string& p) { ::mkdir(p.c_str(), 0755); }, ""},
      {"open",
       [](const std::string& p) {
         ::mkdir(p.c_str(), 0777);
         ::chmod(p.c_str(), 0777);
       },
       "others may write to "},
      {"group",
       [](const std::string& p) {
         ::mkdir(p.c_str(), 0770);
         ::chmod(p.c_str(), 0770);
       },
       "others may write to "},
      {"file", [](const std::string& p) { write_file(p, "x"); }, " is not a directory"},
      {"mylink",
       [&](const std::string& p) {
         ::mkdir((f / "target").c_str(), 0700);
         ASSERT_EQ(::symlink((f / "target").c_str(), p.c_str()), 0);
       },
       ""},
      {"theirs",
       [](const std::string& p) {
         ::mkdir(p.c_str(), 0700);
         ASSERT_EQ(::chown(p.c_str(), 12345, 12345), 0);
       },
       " belongs to user 12345, not to 0", true},
      {"theirlink",
       [&](const std::string& p) {
         ::mkdir((f / "home").c_str(), 0700);
         ASSERT_EQ(::symlink((f / "home").c_str(), p.c_str()), 0);
         ASSERT_EQ(::lchown(p.c_str(), 12345, 12345), 0);
       },
       " is a symbolic link of user 12345", true},
  };
  for (const Case& k : cases) {
    if (k.as_root && ::geteuid() != 0) continue;
    const std::string path = f / k.name;
    k.make(path);
    const PrivateFolder folder(path);
    const bool good = !*k.problem;
    EXPECT_EQ(static_cast<bool>(folder), good) << k.name << ": " << folder.problem();
    EXPECT_EQ(folder.path(), good ? path : "") << k.name;
    EXPECT_NE(folder.problem().find(k.problem), std::string::npos) << folder.problem();
    if (good) continue;
    const std::string what = error_of([&] { folder.write("machine.json", "{}"); });
    EXPECT_EQ(what, "Io: 'machine.json' has no place: " + folder.problem() +
                        ". Set TANDEM_CACHE_DIR to a folder of your own.");
    EXPECT_FALSE(file_exists(f / "home/machine.json"));
  }
}

TEST(PrivateFolder, TheFallbackInAnOpenPlaceWantsTheStickyBit) {
  TempFolder f;
  make_folders(f / "tmp");
  const Environment tmp("TMPDIR", f / "tmp"), tandem("TANDEM_CACHE_DIR", ""),
      xdg("XDG_CACHE_HOME", ""), home("HOME", "");
  ::chmod((f / "tmp").c_str(), 01777);
  EXPECT_TRUE(PrivateFolder::cache());
  ::chmod((f / "tmp").c_str(), 0777);
  EXPECT_NE(PrivateFolder::cache().problem().find("others may rename"), std::string::npos);
}

TEST(PrivateFolder, FilesOfItsOwnOnly) {
  TempFolder f;
  const PrivateFolder folder(f / "cache");
  write_file(f / "victim", "precious");
  ASSERT_EQ(::symlink((f / "victim").c_str(), (f / "cache/a").c_str()), 0);
  EXPECT_NE(error_of([&] { folder.read("a"); }).find("it is a symbolic link"), std::string::npos);
  EXPECT_EQ(folder.open_file("a", O_WRONLY), -1);
  folder.write("a", "mine");  // in place of the link
  EXPECT_EQ(read_file(f / "victim"), "precious");
  EXPECT_EQ(folder.read("a"), "mine");
  struct stat s {};
  ASSERT_EQ(::lstat((f / "cache/a").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode, static_cast<mode_t>(S_IFREG | 0600));
  ::chmod((f / "cache/a").c_str(), 0622);  // anybody may have changed it
  EXPECT_NE(error_of([&] { folder.read("a"); }).find("not a file of this user's alone"),
            std::string::npos);
  EXPECT_EQ(folder.open_file("../victim", O_RDONLY), -1);
  EXPECT_NE(error_of([&] { folder.read("none"); }).find("No such file"), std::string::npos);
  folder.write("long", std::string(100, 'x'));
  EXPECT_NE(error_of([&] { folder.read("long", 99); }).find("larger than the 99 bytes"),
            std::string::npos);
}

TEST(PrivateFolder, TemporaryOnesAreNobodyElses) {
  TempFolder f;
  const Environment tmp("TMPDIR", f.path().string());
  const PrivateFolder made = PrivateFolder::temporary("test");
  EXPECT_TRUE(made.path().starts_with(f / "tandem-test-")) << made.path();
  struct stat s {};
  ASSERT_EQ(::stat(made.path().c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700U);
  const int fd = temporary_file();
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::fstat(fd, &s), 0);
  EXPECT_EQ(s.st_nlink, 0U);
  EXPECT_EQ(s.st_mode & 0777, 0600U);
  ::close(fd);
  EXPECT_EQ(f.names().size(), 1U);
}

}  // namespace
}  // namespace tandem
