// SPDX-License-Identifier: Apache-2.0
// Files of exports that fail: what was there before is there again.
#include "tandem/onnx/export/written_file_internal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/io/io_helper.h"

namespace tandem::onnx {
namespace {

class WrittenFileTest : public testing::Test {
 protected:
  const TempFolder folder_;
  const std::string path_ = folder_ / "model.onnx";
};

TEST_F(WrittenFileTest, OldFilesComeBackUnlessNewOnesAreKept) {
  for (const bool may_link : {true, false})
    for (const bool stale : {false, true}) {
      // A process of this number that was killed left its old file behind.
      const std::string left = path_ + ".before-" + std::to_string(::getpid());
      write_file(path_, "old");
      if (stale) write_file(left, "stale");
      {
        const WrittenFile w(path_, may_link);
        write_file(path_, "new");
      }
      EXPECT_EQ(read_file(path_), "old") << may_link << stale;
      {
        WrittenFile w(path_, may_link);
        write_file(path_, "new");
        w.keep();
      }
      EXPECT_EQ(read_file(path_), "new") << may_link << stale;
      EXPECT_EQ(folder_.names().size(), stale ? 2u : 1u);
      if (stale) {
        EXPECT_EQ(read_file(left), "stale");
      }
      std::filesystem::remove(left);
    }
  const std::string none = folder_ / "none";
  {
    const WrittenFile w(none);
    write_file(none, "new");
  }
  EXPECT_FALSE(file_exists(none));
}

// The file that a link points to is replaced, and comes back.
TEST_F(WrittenFileTest, LinksStay) {
  write_file(folder_ / "target", "old");
  std::filesystem::create_symlink("target", path_);
  {
    const WrittenFile w(path_);
    write_file(path_, "new");
    EXPECT_EQ(read_file(folder_ / "target"), "new");
  }
  EXPECT_EQ(read_file(folder_ / "target"), "old");
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(folder_.names().size(), 2u);
}

TEST_F(WrittenFileTest, WhatCannotBeKeptIsNotWritten) {
  // The name of the second file would be too long.
  const std::string path = folder_ / std::string(250, 'm');
  write_file(folder_ / "short", "old");
  std::filesystem::rename(folder_ / "short", path);
  for (const bool may_link : {true, false}) {
    const std::string said = thrown([&] { const WrittenFile w(path, may_link); }, ErrorKind::Io);
    EXPECT_TRUE(has(said, "cannot be kept meanwhile")) << said;
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_EQ(folder_.names().size(), 1u);
}

}  // namespace
}  // namespace tandem::onnx
