// SPDX-License-Identifier: Apache-2.0
// The allocator: alignment, reuse, statistics, cap, trim, and threads that free each other's
// blocks.
#include "tandem/tensor/allocator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/philox.h"

namespace tandem {
namespace {

using detail::allocate;
using detail::deallocate;

constexpr size_t kMb = 1 << 20;

TEST(Allocator, BlocksOfEverySizeAreAlignedAndApart) {
  struct Block {
    unsigned char* p;
    size_t n;
    unsigned char mark;
  };
  std::vector<Block> blocks;
  unsigned char mark = 0;
  auto add = [&](size_t n) {
    unsigned char* p = static_cast<unsigned char*>(allocate(n));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u) << n;
    std::memset(p, ++mark, n);
    blocks.push_back({p, n, mark});
  };
  for (size_t n = 0; n <= 2200; ++n) add(n);
  for (size_t n = 2048; n <= 4 * kMb; n = n * 9 / 8 + 1) add(n);
  for (const size_t edge : {1024u, 2048u, 65536u, 1048576u, 2097152u})
    for (const size_t n : {edge - 1, edge, edge + 1}) add(n);
  for (const Block& b : blocks) {
    for (size_t i = 0; i < b.n; ++i) ASSERT_EQ(b.p[i], b.mark) << b.n;
    deallocate(b.p, b.n);
  }
}

TEST(Allocator, ReusesBlocks) {
  for (const size_t n : {100ul, 5000ul, 100'000ul, 3 * kMb}) {
    void* p = allocate(n);
    deallocate(p, n);
    void* q = allocate(n);
    EXPECT_EQ(p, q) << n;
    deallocate(q, n);
  }
}

TEST(Allocator, FiguresOfLargeBlocks) {
  trim_allocator();
  const AllocatorStats before = allocator_stats();
  EXPECT_EQ(before.cached, 0);
  reset_allocator_peak();
  void* p = allocate(5 * kMb);
  EXPECT_EQ(allocator_stats().in_use - before.in_use, int64_t(6 * kMb)) << "whole huge pages";
  EXPECT_EQ(allocator_stats().allocations - before.allocations, 1);
  deallocate(p, 5 * kMb);
  const AllocatorStats after = allocator_stats();
  EXPECT_EQ(after.in_use, before.in_use);
  EXPECT_EQ(after.cached, int64_t(6 * kMb));
  EXPECT_EQ(after.reserved, after.in_use + after.cached);
  EXPECT_EQ(after.peak, before.in_use + int64_t(6 * kMb));
  EXPECT_EQ(trim_allocator(), int64_t(6 * kMb));
  EXPECT_EQ(allocator_stats().cached, 0);
  reset_allocator_peak();
  EXPECT_EQ(allocator_stats().peak, before.in_use);
}

TEST(Allocator, CapIsKeptByGivingBackFirst) {
  trim_allocator();
  const int64_t in_use = allocator_stats().in_use;
  deallocate(allocate(8 * kMb), 8 * kMb);
  set_allocator_cap(in_use + int64_t(10 * kMb));
  void* p = allocate(6 * kMb);  // only fits when the cached 8 MB go
  EXPECT_EQ(allocator_stats().cached, 0);
  std::string text = "no error";
  try {
    allocate(6 * kMb);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Memory);
    text = e.what();
  }
  set_allocator_cap(0);
  deallocate(p, 6 * kMb);
  EXPECT_TRUE(text.starts_with("an allocation of 6144.0 KB does not fit: ")) << text;
  EXPECT_NE(text.find(" are in use and the cap is "), text.npos) << text;
  EXPECT_TRUE(
      text.ends_with(". Use a smaller batch, drop tensors that are no longer needed, or "
                     "raise set_allocator_cap()."))
      << text;
  void* q = allocate(6 * kMb);
  deallocate(q, 6 * kMb);
}

TEST(AllocatorMustFail, MoreThanTheMachine) {
  for (const size_t n : {size_t{1} << 45, size_t{1} << 50, SIZE_MAX / 2, SIZE_MAX}) {
    try {
      allocate(n);
      FAIL() << n;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Memory);
      EXPECT_EQ(e.hint(), "Check the sizes, or use a smaller batch.");
    }
  }
  EXPECT_THROW(set_allocator_cap(-1), Error);
}

TEST(Allocator, ChangingSizesDoNotPileUp) {
  trim_allocator();
  for (size_t i = 1; i < 400; ++i) {
    void* p = allocate(i * 2 * kMb);
    deallocate(p, i * 2 * kMb);
  }
  const AllocatorStats s = allocator_stats();
  // All sizes together are 160 GB; what may stay is bounded by the peak use plus some slack.
  EXPECT_LE(s.reserved, 1300 * int64_t(kMb) + s.in_use);
  trim_allocator();
}

TEST(Allocator, ThreadsFreeEachOthersBlocks) {
  constexpr int kRounds = 20'000;
  constexpr size_t kSlots = 64;
  std::vector<std::atomic<void*>> slots(kSlots);
  std::atomic<bool> over{false};
  const int64_t before = allocator_stats().in_use;
  std::thread consumer([&] {
    while (!over.load()) {
      for (auto& slot : slots) {
        if (void* p = slot.exchange(nullptr)) {
          EXPECT_EQ(*static_cast<size_t*>(p), reinterpret_cast<uintptr_t>(p));
          deallocate(p, 320);
        }
      }
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    void* p = allocate(320);
    *static_cast<size_t*>(p) = reinterpret_cast<uintptr_t>(p);
    if (void* old = slots[static_cast<size_t>(i) % kSlots].exchange(p)) deallocate(old, 320);
  }
  over = true;
  consumer.join();
  for (auto& slot : slots)
    if (void* p = slot.exchange(nullptr)) deallocate(p, 320);
  // The blocks were reused: otherwise the rounds would have cost 6.4 MB.
  EXPECT_LE(allocator_stats().in_use - before, int64_t(kMb));
}

TEST(Allocator, BlocksOfFinishedThreadsAreUsedAgain) {
  const int64_t before = allocator_stats().in_use;
  for (int i = 0; i < 50; ++i) {
    std::thread([] {
      std::vector<void*> blocks;
      for (int k = 0; k < 200; ++k) blocks.push_back(allocate(1000));
      for (void* p : blocks) deallocate(p, 1000);
    }).join();
  }
  EXPECT_LE(allocator_stats().in_use - before, int64_t(kMb));
}

TEST(Allocator, RandomMix) {
  std::vector<std::thread> threads;
  for (uint64_t id = 0; id < 4; ++id) {
    threads.emplace_back([id] {
      PhiloxStream random(7, 0, id);
      struct Block {
        unsigned char* p;
        size_t n;
      };
      std::vector<Block> held;
      for (int i = 0; i < 4000; ++i) {
        if (held.size() < 40 && random.next_below(2) == 0) {
          const size_t n = size_t{1} << random.next_below(18);
          const size_t size = n + random.next_below(n);
          unsigned char* p = static_cast<unsigned char*>(allocate(size));
          p[0] = static_cast<unsigned char>(size);
          p[size - 1] = static_cast<unsigned char>(size);
          held.push_back({p, size});
        } else if (!held.empty()) {
          std::swap(held[random.next_below(held.size())], held.back());
          const Block b = held.back();
          held.pop_back();
          ASSERT_EQ(b.p[0], static_cast<unsigned char>(b.n));
          ASSERT_EQ(b.p[b.n - 1], static_cast<unsigned char>(b.n));
          deallocate(b.p, b.n);
        }
      }
      for (const Block& b : held) deallocate(b.p, b.n);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tandem
