// SPDX-License-Identifier: Apache-2.0
// Processors of ranks: by nodes and cores that a folder describes as the kernel does.
#include "tandem/dist/cpu_shares_internal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tandem/base/files/file.h"
#include "tandem/dist/launch.h"
#include "tests/io/io_helper.h"
#include "tests/support/environment.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

using Shares = std::vector<std::vector<int>>;

// Two nodes of two cores of two threads, numbered as servers do: 0 and 4 are a core, 0, 4, 1, 5 a
// node.
class Described : public ::testing::Test {
 protected:
  void SetUp() override {
    put("devices/system/node/node0/cpulist", "0-1,4-5\n");
    put("devices/system/node/node1/cpulist", "2-3,6-7\n");
    put("devices/system/node/possible", "0-1\n");
    for (int cpu = 0; cpu < 8; ++cpu)
      put(fmt::format("devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu),
          fmt::format("{},{}\n", cpu % 4, cpu % 4 + 4));
  }
  void put(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = folder_ / file;
    std::filesystem::create_directories(path.parent_path());
    write_file(path.string(), text);
  }
  Shares shares(int ranks, BindTo to, const std::vector<int>& allowed) const {
    return cpu_shares(ranks, to, allowed, folder_.path().string());
  }
  TempFolder folder_;
};

TEST_F(Described, SharesAreNeighbours) {
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(shares(2, BindTo::core, all), (Shares{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(shares(4, BindTo::core, all), (Shares{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(shares(3, BindTo::core, all), (Shares{{0, 4}, {1, 5, 2}, {6, 3, 7}}));
  EXPECT_EQ(shares(2, BindTo::core, {1, 3, 5}), (Shares{{1}, {5, 3}}));
  EXPECT_EQ(shares(4, BindTo::numa, all),
            (Shares{{0, 1, 4, 5}, {0, 1, 4, 5}, {2, 3, 6, 7}, {2, 3, 6, 7}}));
  EXPECT_EQ(shares(3, BindTo::numa, all), (Shares{{0, 1, 4, 5}, all, {2, 3, 6, 7}}));
  EXPECT_EQ(shares(2, BindTo::numa, {0, 3}), (Shares{{0}, {3}}));
}

TEST_F(Described, NothingIsBoundWhereThereIsTooLittle) {
  EXPECT_EQ(shares(3, BindTo::core, {0, 1}), Shares{});
  EXPECT_EQ(shares(2, BindTo::none, {0, 1, 2}), Shares{});
  EXPECT_EQ(shares(0, BindTo::core, {0, 1, 2}), Shares{});
  EXPECT_TRUE(has(thrown([] { bind_to("socket"); }, ErrorKind::Value), "core, numa or none"));
}

TEST(CpuShares, WhatCannotBeReadIsOneNode) {
  const TempFolder empty;
  EXPECT_EQ(cpu_shares(2, BindTo::core, {0, 1, 2, 3}, empty.path().string()),
            (Shares{{0, 1}, {2, 3}}));
  EXPECT_EQ(cpu_shares(2, BindTo::numa, {0, 1}, "/no/such/folder"), (Shares{{0, 1}, {0, 1}}));
}

// As the kernel writes it: "0-1,4".
std::string list_of(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  std::string out;
  for (size_t i = 0, end = 0; i < cpus.size(); i = end) {
    for (end = i + 1; end < cpus.size() && cpus[end] == cpus[end - 1] + 1;) ++end;
    out += (out.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end > i + 1) out += "-" + std::to_string(cpus[end - 1]);
  }
  return out;
}

// Of this process: a machine may have fewer processors than the kernel's mask.
std::string own_list() {
  const std::string status = read_file("/proc/self/status"), key = "Cpus_allowed_list:\t";
  const size_t at = status.find(key) + key.size();
  return status.substr(at, status.find('\n', at) - at);
}

TEST(CpuShares, RanksRunOnTheirOwn) {
  const std::vector<int> all = allowed_cpus();
  if (all.size() < 2) GTEST_SKIP() << "there is one processor";
  const Environment threads("TANDEM_NUM_THREADS", "1");
  const auto expect = [](LaunchOptions o, const std::vector<std::string>& wanted) {
    o.ranks = 2;
    o.command = {"grep", "Cpus_allowed_list", "/proc/self/status"};
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(launch(o).code, 0);
    const std::string out = ::testing::internal::GetCapturedStdout();
    for (int r = 0; r < 2; ++r)
      EXPECT_TRUE(
          has(out, fmt::format("[{}] Cpus_allowed_list:\t{}\n", r, wanted[static_cast<size_t>(r)])))
          << out;
  };
  const auto lists = [](const Shares& shares) {
    return std::vector<std::string>{list_of(shares[0]), list_of(shares[1])};
  };
  const std::vector<std::string> unbound{own_list(), own_list()};
  expect({}, lists(cpu_shares(2, BindTo::core, all)));
  expect({.bind_to = "numa"}, lists(cpu_shares(2, BindTo::numa, all)));
  expect({.bind_to = "none"}, unbound);
  // More threads than processors: a rank that waits leaves its cores to the others.
  expect({.threads = static_cast<int>(all.size()) + 1}, unbound);
}

}  // namespace
}  // namespace tandem::distributed
