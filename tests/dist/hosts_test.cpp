// SPDX-License-Identifier: Apache-2.0
// Jobs on several machines: which variables ranks get, how they end, and two machines as network
// namespaces.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "tandem/base/files/file.h"
#include "tandem/dist/launch.h"
#include "tests/io/io_helper.h"
#include "tests/support/errors.h"

namespace tandem::distributed {
namespace {

/// What runs lines of shell on "machines", which are all this one.
std::string shell_in(const TempFolder& f) {
  write_file(f / "shell", "#!/bin/sh\nexec sh -c \"$2\"\n");
  EXPECT_EQ(std::system(("chmod +x " + f / "shell").c_str()), 0);
  return f / "shell";
}
const char* tool() { return std::getenv("TANDEM_TOOL"); }

/// The job's result, and what its ranks have written.
struct HostsRun {
  LaunchResult result;
  std::string out;
};
HostsRun run_on(const std::string& hosts, const std::string& script, int max_restarts = 0) {
  const TempFolder f;
  LaunchOptions o{
      .command = {"sh", "-c", script, "x", f / "out"}, .grace = 1, .max_restarts = max_restarts};
  HostsRun run;
  run.result = launch_on_hosts(launch_hosts(hosts, 2), o, {.shell = shell_in(f), .tool = tool()});
  if (file_exists(f / "out")) run.out = read_file(f / "out");
  return run;
}

TEST(LaunchOnHosts, RanksKnowWhichTheyAre) {
  if (!tool()) GTEST_SKIP() << "needs TANDEM_TOOL";
  const HostsRun run = run_on("127.0.0.1:2,b:1,c",
                              "echo \"$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK "
                              "$MASTER_ADDR ${#TANDEM_TOKEN} it's '$0'\" >> \"$1\"");
  EXPECT_EQ(run.result.code, 0) << run.result.text;
  EXPECT_EQ(run.result.ranks, 5);
  for (const char* line : {"0/5 0/2 0 127.0.0.1 64 it's 'x'\n", "1/5 1/2 0 127.0.0.1 64 it's 'x'\n",
                           "2/5 0/1 1 127.0.0.1 64 it's 'x'\n", "3/5 0/2 2 127.0.0.1 64 it's 'x'\n",
                           "4/5 1/2 2 127.0.0.1 64 it's 'x'\n"})
    EXPECT_TRUE(has(run.out, line)) << run.out;
}

TEST(LaunchOnHosts, OneThatFailsEndsAllAndStartsThemAgain) {
  if (!tool()) GTEST_SKIP() << "needs TANDEM_TOOL";
  HostsRun run = run_on("a:2,b:1", "[ $RANK = 2 ] && exit 3; exec sleep 100");
  EXPECT_EQ(run.result.code, 3);
  EXPECT_TRUE(has(run.result.text, "the launcher on b")) << run.result.text;
  run = run_on("a:1,b:1",
               "echo $RANK-$TORCHELASTIC_RESTART_COUNT >> \"$1\"; "
               "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 4",
               1);
  EXPECT_EQ(run.result.code, 0) << run.result.text;
  for (const char* line : {"0-0\n", "1-0\n", "0-1\n", "1-1\n"})
    EXPECT_TRUE(has(run.out, line)) << run.out;
}

TEST(LaunchOnHosts, WhatCannotBeReadIsRefused) {
  for (const char* hosts : {"", "a,", "a:0", "a:x", "a:2:", ":2", "-oProxyCommand=x", "a:99999"})
    EXPECT_TRUE(has(thrown([&] { launch_hosts(hosts, 1); }, ErrorKind::Value), "names no machine"))
        << hosts;
  EXPECT_TRUE(has(thrown([] { launch_hosts("a:1,a:2", 1); }, ErrorKind::Value), "there twice"));
  const LaunchOptions apart{.ranks = 2, .command = {"true"}, .world = 4};
  EXPECT_TRUE(has(thrown([&] { launch(apart); }, ErrorKind::Value), "--master-addr and --port"));
  LaunchOptions beyond = apart;
  beyond.first = 3;
  EXPECT_TRUE(has(thrown([&] { launch(beyond); }, ErrorKind::Value), "lie within those of all"));
}

// ---- two machines

std::string source_folder() {
  const char* folder = std::getenv("TANDEM_SOURCE_DIR");
  return folder ? folder : ".";
}
// What a script of this folder prints; "" where this system cannot run it, which the script says.
std::string played_by(const std::string& command) {
  FILE* pipe = ::popen(("timeout 120 " + command + " 2>&1").c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    out.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return code == 77 || code == 127 || has(out, "unshare failed") ? "" : out;
}
std::string two_hosts(const std::string& scenario) {
  const TempFolder f;
  return played_by(fmt::format("unshare -Urnm {}/tests/dist/two_hosts.sh {} {}", source_folder(),
                               f.path().string(), scenario));
}

TEST(TwoHosts, TrainTogether) {
  const std::string out = two_hosts("train");
  if (out.empty()) GTEST_SKIP() << "needs network namespaces";
  EXPECT_TRUE(has(out, "code 0")) << out;
  EXPECT_TRUE(has(out, "test/accuracy")) << out;
}
TEST(TwoHosts, ACutCableEndsBoth) {
  const std::string out = two_hosts("partition");
  if (out.empty()) GTEST_SKIP() << "needs network namespaces";
  EXPECT_TRUE(has(out, "code 1\n2 cut off\n")) << out;
}
// Those of make test-dist.
class TwoHostsWith : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_FAULT_MATRIX")) GTEST_SKIP() << "one of make test-dist";
  }
};
TEST_P(TwoHostsWith, ACutCableEndsBoth) {
  const std::string out = two_hosts(std::string("partition ") + GetParam());
  if (out.empty()) GTEST_SKIP() << "needs network namespaces";
  EXPECT_TRUE(has(out, "code 1\n2 cut off\n")) << out;
}
TEST_P(TwoHostsWith, ASlowLinkIsNobodysFault) {
  const std::string out = two_hosts(std::string("slow ") + GetParam());
  if (out.empty()) GTEST_SKIP() << "needs network namespaces and tc";
  EXPECT_TRUE(has(out, "code 0")) << out;
  EXPECT_TRUE(has(out, "test/accuracy")) << out;
}
INSTANTIATE_TEST_SUITE_P(Strategies, TwoHostsWith,
                         ::testing::Values("ddp", "zero1", "zero2", "fsdp", "ps"));

// ---- Slurm

TEST(Slurm, StartsTheSameProgram) {
  if (!std::getenv("TANDEM_FAULT_MATRIX")) GTEST_SKIP() << "one of make test-dist";
  if (!tool()) GTEST_SKIP() << "needs TANDEM_TOOL";
  const TempFolder f;
  const std::string train = fmt::format(
      "{} train {}/recipes/digits-mlp.yaml --json trainer.report=false trainer.epochs=2 --run {}/",
      tool(), source_folder(), f.path().string());
  const std::string out = played_by(fmt::format("{}/tests/dist/slurm.sh {}/slurm {}by-srun",
                                                source_folder(), f.path().string(), train));
  if (out.empty()) GTEST_SKIP() << "needs Debian's slurm-wlm, and root";
  const std::string launched =
      played_by(fmt::format("{} launch -n 3 --no-prefix {}by-launch", tool(), train));
  const auto figures = [](const std::string& text) {
    const size_t at = text.find("\"train/loss\"");
    return at == text.npos ? "none in " + text : text.substr(at, text.find('}', at) - at);
  };
  EXPECT_EQ(figures(out), figures(launched));
  EXPECT_EQ(count(out, "\"folder\""), 1u) << out;
}

TEST(TwoHosts, NothingStaysWithoutTheLauncher) {
  const std::string out = two_hosts("gone");
  if (out.empty()) GTEST_SKIP() << "needs network namespaces";
  EXPECT_TRUE(has(out, "before ") && !has(out, "before 0")) << out;
  EXPECT_TRUE(has(out, "after 0\n")) << out;
}

}  // namespace
}  // namespace tandem::distributed
