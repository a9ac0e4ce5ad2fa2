// SPDX-License-Identifier: Apache-2.0
// Files: whole reads, maps, and writes that leave the old file or the new one.
#include "tandem/base/files/file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tandem/base/files/mapped_pages.h"
#include "tests/io/io_helper.h"

namespace tandem {
namespace {

TEST(File, WritesWholeFilesOnly) {
  TempFolder folder;
  const std::string path = folder / "a";
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.write("new, but never committed");
    EXPECT_EQ(folder.names().size(), 2u);
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
  std::string big(3'000'000, 'x');
  for (size_t i = 0; i < big.size(); i += 997) big[i] = static_cast<char>('a' + i % 26);
  {
    AtomicFile file(path, 1);
    for (size_t at = 0, step = 1; at < big.size(); at += step, step = step * 3 + 1)
      file.write(big.substr(at, step));
    EXPECT_EQ(file.written(), big.size());
    file.commit();
    EXPECT_EQ(error_of([&] { file.write("x"); }),
              "Io: '" + path + "' is already closed for writing.");
    EXPECT_EQ(error_of([&] { file.commit(); }),
              "Io: '" + path + "' is already closed for writing.");
  }
  EXPECT_EQ(read_file(path), big);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

TEST(File, AForkedChildRemovesNoTemporaryOfItsParent) {
  TempFolder folder;
  const std::string path = folder / "a";
  AtomicFile file(path);
  file.write("of the parent");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    file.~AtomicFile();  // as exit() does with a static one
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  file.commit();
  EXPECT_EQ(read_file(path), "of the parent");
}

TEST(File, ReservingMoreThanIsWrittenLeavesNoTail) {
  TempFolder folder;
  AtomicFile file(folder / "a", 100000);
  file.write("short");
  file.commit();
  EXPECT_EQ(read_file(folder / "a"), "short");
}

TEST(File, KeepsModeAndLinks) {
  TempFolder folder;
  write_file(folder / "real", "1");
  ASSERT_EQ(::chmod((folder / "real").c_str(), 0640), 0);
  std::filesystem::create_symlink("real", folder / "link");
  write_file(folder / "link", "2");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "real"), "2");
  struct stat info {};
  ASSERT_EQ(::stat((folder / "real").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
}

TEST(File, MapsAndReads) {
  TempFolder folder;
  write_file(folder / "a", "hello");
  write_file(folder / "empty", "");
  const auto map = make_ref<MappedFile>(folder / "a");
  EXPECT_EQ(map->view(), "hello");
  EXPECT_EQ(make_ref<MappedFile>(folder / "empty")->size(), 0u);
  // Pages that were released are read again.
  release_mapped(map->data(), map->size());
  release_mapped(map->data() + map->size(), 1);
  release_mapped(nullptr, 16);
  for (int k = 0; k < 3; ++k) passed_mapped(map->data(), map->size());
  passed_mapped(&folder, sizeof folder);  // other memory: nothing happens
  EXPECT_EQ(map->view(), "hello");
  EXPECT_EQ(read_file(folder / "empty"), "");
  EXPECT_EQ(read_file(std::filesystem::path(folder / "a")), "hello");
  EXPECT_TRUE(file_exists(folder / "a"));
  EXPECT_FALSE(file_exists(folder / "b"));
  EXPECT_FALSE(file_exists(nullptr));
}

TEST(FileMustFail, Reading) {
  TempFolder folder;
  write_file(folder / "a", "hello");
  EXPECT_EQ(error_of([] { read_file(nullptr); }), "Io: no path was given (it is empty or null).");
  EXPECT_EQ(error_of([] { read_file(""); }), "Io: no path was given (it is empty or null).");
  EXPECT_EQ(
      error_of([&] { read_file(folder / "b"); }),
      "Io: cannot open '" + (folder / "b") + "': No such file or directory. Did you mean 'a'?");
  EXPECT_EQ(error_of([&] { read_file(folder / "c/b"); }),
            "Io: cannot open '" + (folder / "c/b") +
                "': No such file or directory. There is no "
                "folder '" +
                (folder / "c") + "': check the path.");
  EXPECT_NE(error_of([] { read_file("nowhere.bin"); }).find(" The path is relative to '/"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { read_file(folder.path()); }),
            "Io: cannot open '" + folder.path().string() + "': Is a directory.");
  EXPECT_EQ(error_of([&] { read_file(folder / "a", 4); }),
            "Io: '" + (folder / "a") + "' is larger than the 4 bytes that are allowed here.");
  EXPECT_EQ(error_of([&] { read_file(folder / "a/b"); }),
            "Io: cannot open '" + (folder / "a/b") + "': Not a directory.");
  EXPECT_EQ(error_of([] { make_ref<MappedFile>("/dev/null"); }),
            "Io: cannot map '/dev/null': it is not a regular file.");
  EXPECT_EQ(error_of([] { read_file(std::string("a\0b", 3)); }),
            "Io: the path 'a' holds a zero byte.");
}

TEST(FileMustFail, Writing) {
  TempFolder folder;
  EXPECT_EQ(error_of([&] { write_file(folder / "no/a", "x"); }),
            "Io: cannot write '" + (folder / "no/a") +
                "': No such file or directory. Nothing was changed.");
  EXPECT_EQ(
      error_of([&] { write_file(folder.path(), "x"); }),
      "Io: cannot write '" + folder.path().string() + "': Is a directory. Nothing was changed.");
  EXPECT_EQ(error_of([] { write_file("/dev/null", "x"); }),
            "Io: cannot write '/dev/null': it is not a regular file.");
  EXPECT_TRUE(folder.names().empty());
}

TEST(FileMustFail, ADiskThatIsTooSmallIsSeenBeforeAnyWork) {
  TempFolder folder;
  const std::string path = folder / "a";
  write_file(path, "old");
  EXPECT_EQ(error_of([&] { AtomicFile(path, uint64_t{1} << 60); }),
            "Io: cannot write '" + path +
                "': No space left on device (1152921504606846976 bytes were wanted). Nothing was "
                "changed.");
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

// A limit on the size of files simulates a disk that fills up in the middle of a write.
TEST(FileMustFail, AWriteThatStopsInTheMiddleChangesNothing) {
  TempFolder folder;
  const std::string path = folder / "a";
  write_file(path, "old");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_DFL);  // which would end the process
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string unknown = error_of([&] {
    AtomicFile file(path);
    for (int i = 0; i < 100; ++i) file.write(std::string(100'000, 'x'));
    file.commit();
  });
  const std::string reserved = error_of([&] { AtomicFile(path, 2 << 20); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(unknown.starts_with("Io: cannot write '" + path + "': File too large (")) << unknown;
  EXPECT_TRUE(unknown.ends_with("bytes were wanted). Nothing was changed.")) << unknown;
  EXPECT_EQ(reserved, "Io: cannot write '" + path +
                          "': File too large (2097152 bytes were wanted). Nothing was changed.");
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace tandem
