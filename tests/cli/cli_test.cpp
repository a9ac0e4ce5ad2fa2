// SPDX-License-Identifier: Apache-2.0
// The tool as a user calls it: exit codes, JSON, help, near misses. The path is $TANDEM_TOOL.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace {

struct Result {
  int code;
  std::string text;
};

Result tool(const std::string& arguments) {
  std::string command = std::string(std::getenv("TANDEM_TOOL")) + " " + arguments;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  std::string text;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), n);
  int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Tool : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
  }
};

TEST_F(Tool, HelpOpensWithCommandsToPaste) {
  Result r = tool("--help");
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(has(r.text, "tandem demo"));
  EXPECT_TRUE(has(tool("--version").text, "tandem 0."));
}

TEST_F(Tool, UnknownWordsNameTheNearest) {
  Result r = tool("dmo 2>&1");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.text, "there is no command 'dmo'")) << r.text;
  EXPECT_TRUE(has(r.text, "`demo`")) << r.text;
  r = tool("demo --epohs 3 2>&1");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.text, "--epochs")) << r.text;
}

TEST_F(Tool, DemoGivesJson) {
  std::string out = ::testing::TempDir() + "cli_test.safetensors";
  Result r = tool("demo --epochs 1 --json --out " + out + " 2>/dev/null");
  ASSERT_EQ(r.code, 0) << r.text;
  nlohmann::json j = nlohmann::json::parse(r.text);
  EXPECT_TRUE(j["reload_bit_equal"].get<bool>());
  EXPECT_GT(j["accuracy"].get<double>(), 0.5);
  EXPECT_EQ(j["test"].get<int>(), 360);
}

TEST_F(Tool, DemoIntoAMissingFolderIsAnIoError) {
  Result r = tool("demo --epochs 1 --out /no/such/folder/net.safetensors 2>&1 >/dev/null");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "/no/such/folder")) << r.text;
}

TEST_F(Tool, DoctorAndOps) {
  EXPECT_TRUE(has(tool("doctor").text, "threads"));
  EXPECT_TRUE(has(tool("ops relu").text, "relu"));
  Result r = tool("ops rleu 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "no op named 'rleu'"));
}

}  // namespace
