// SPDX-License-Identifier: Apache-2.0
// `tandem data validate FOLDER`: damaged files by name and reason.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/tool_helper.h"
#include "tests/io/io_helper.h"

namespace tandem::cli_test {
namespace {

TEST(CliData, AFolderIsValidated) {
  TempFolder f;
  std::ofstream(f / "good.pgm", std::ios::binary) << "P5 2 1 255\n"
                                                  << "ab";
  Result r = tool("data validate " + f.path().string());
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "images: 1 readable, 0 damaged")) << r.text;
  std::ofstream(f / "cut.jpg", std::ios::binary) << "\xff\xd8\xff";
  std::ofstream(f / "other.txt") << "x";
  r = tool("data validate " + f.path().string());
  EXPECT_EQ(r.code, 3);
  EXPECT_TRUE(has(r.text, "cut.jpg: is damaged: ")) << r.text;
  EXPECT_TRUE(has(r.text, "images: 1 readable, 1 damaged\n1 other files were not read")) << r.text;
  r = tool("data validate --json " + f.path().string());
  EXPECT_EQ(r.code, 3);
  EXPECT_EQ(nlohmann::json::parse(r.text)["damaged"][0]["path"], "cut.jpg") << r.text;
  r = tool("data validate " + f.path().string() + " --schema s.json 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "validate of a folder takes no --schema")) << r.text;
}

}  // namespace
}  // namespace tandem::cli_test
