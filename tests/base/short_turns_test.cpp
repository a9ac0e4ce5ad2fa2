// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/short_turns.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

namespace tandem {
namespace {

// Nanoseconds of a turn of the calling thread, as the kernel tells; 0: it does not.
uint64_t turn() {
  struct {
    uint32_t size = 48, policy = 0;
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime = 0, deadline = 0, period = 0;
  } attributes;
  const long error = ::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0);
  return error == 0 ? attributes.runtime : 0;
}

TEST(ShortTurns, AreOfThisThreadAndOfThoseThatItStarts) {
  std::thread([] {
    const uint64_t usual = turn();
    take_short_turns();
    const uint64_t brief = turn();
    uint64_t of_child = 0, afterwards = 0;
    std::thread([&] { of_child = turn(); }).join();
    take_usual_turns();
    std::thread([&] { afterwards = turn(); }).join();
    EXPECT_EQ(turn(), usual);
    EXPECT_EQ(afterwards, usual);
    EXPECT_EQ(of_child, brief);
    if (usual == 0 || brief == usual)
      GTEST_SKIP() << "this kernel has one length of turns for all threads";
    EXPECT_EQ(brief, 100000u);
  }).join();
}

}  // namespace
}  // namespace tandem
