// SPDX-License-Identifier: Apache-2.0
// parallel_for: every element once, deterministic chunks, nesting, limits, exceptions, many
// callers.
#include "tandem/base/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/base/hash/hash.h"

#ifdef __has_feature
#define TD_TSAN __has_feature(thread_sanitizer)
#endif

namespace tandem {
namespace {

using Chunks = std::vector<std::pair<int64_t, int64_t>>;

struct Threads {
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(0); }
};

Chunks chunks_of(int64_t begin, int64_t end, int64_t grain) {
  Chunks out;
  std::mutex lock;
  parallel_for(begin, end, grain, [&](int64_t b, int64_t e) {
    std::lock_guard<std::mutex> hold(lock);
    out.emplace_back(b, e);
  });
  std::sort(out.begin(), out.end());
  return out;
}

TEST(Parallel, EveryElementOnceAtEachThreadCount) {
  for (int threads : {1, 2, 3, 8, 33}) {
    Threads scope(threads);
    EXPECT_EQ(num_threads(), threads);
    for (int64_t n : {1, 2, 7, 8, 9, 1000, 100003}) {
      for (int64_t grain : {0, 1, 3, 64, 100003}) {
        std::vector<int> hits(static_cast<size_t>(n), 0);
        parallel_for(5, 5 + n, grain, [&](int64_t b, int64_t e) {
          for (int64_t i = b; i < e; ++i) hits[static_cast<size_t>(i - 5)] += 1;
        });
        ASSERT_EQ(std::count(hits.begin(), hits.end(), 1), n) << threads << " " << grain;
      }
    }
  }
}

TEST(Parallel, ChunksDependOnRangeGrainAndCountAlone) {
  Threads scope(4);
  const Chunks want{{0, 3}, {3, 6}, {6, 8}, {8, 10}};
  for (int repeat = 0; repeat < 20; ++repeat) EXPECT_EQ(chunks_of(0, 10, 1), want);
  EXPECT_EQ(chunks_of(0, 10, 5), (Chunks{{0, 5}, {5, 10}}));
  EXPECT_EQ(chunks_of(0, 10, 10), (Chunks{{0, 10}}));
  EXPECT_EQ(chunks_of(-4, 4, 2), (Chunks{{-4, -2}, {-2, 0}, {0, 2}, {2, 4}}));
}

TEST(Parallel, EmptyAndReversedRangesCallNothing) {
  Threads scope(4);
  EXPECT_TRUE(chunks_of(3, 3, 1).empty());
  EXPECT_TRUE(chunks_of(4, 3, 1).empty());
}

TEST(Parallel, ReallyUsesSeveralThreads) {
  Threads scope(4);
  std::atomic<int> arrived{0};
  parallel_for(0, 4, 1, [&](int64_t, int64_t) {
    // Returns only when all four bodies are in flight at once.
    arrived.fetch_add(1);
    while (arrived.load() < 4) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 4);
}

TEST(Parallel, NestedCallsRunSerially) {
  Threads scope(4);
  EXPECT_FALSE(in_parallel_region());
  std::atomic<int> bad{0}, inner_calls{0};
  parallel_for(0, 4, 1, [&](int64_t, int64_t) {
    if (!in_parallel_region() || num_threads() != 1) bad.fetch_add(1);
    const std::thread::id here = std::this_thread::get_id();
    parallel_for(0, 100, 1, [&](int64_t b, int64_t e) {
      inner_calls.fetch_add(1);
      if (b != 0 || e != 100 || std::this_thread::get_id() != here) bad.fetch_add(1);
    });
  });
  EXPECT_EQ(bad.load(), 0);
  EXPECT_EQ(inner_calls.load(), 4);
  EXPECT_FALSE(in_parallel_region());
  EXPECT_EQ(num_threads(), 4);
}

TEST(Parallel, GuardsLimitThisThreadOnly) {
  Threads scope(4);
  {
    SerialGuard serial;
    EXPECT_EQ(num_threads(), 1);
    EXPECT_EQ(chunks_of(0, 10, 1).size(), 1u);
    int elsewhere = 0;
    std::thread([&] { elsewhere = num_threads(); }).join();
    EXPECT_EQ(elsewhere, 4);
    ThreadLimitGuard wider(3);
    EXPECT_EQ(num_threads(), 1);
  }
  ThreadLimitGuard two(2);
  EXPECT_EQ(chunks_of(0, 10, 1), (Chunks{{0, 5}, {5, 10}}));
}

TEST(Parallel, RethrowsTheLowestChunksErrorAfterAllRan) {
  for (int threads : {1, 2, 8}) {
    Threads scope(threads);
    std::atomic<int64_t> done{0};
    std::string text;
    try {
      parallel_for(0, 80, 1, [&](int64_t b, int64_t e) {
        done.fetch_add(e - b);
        throw std::runtime_error("chunk at " + std::to_string(b));
      });
      FAIL() << "nothing thrown";
    } catch (const std::runtime_error& e) {
      text = e.what();
    }
    EXPECT_EQ(text, "chunk at 0");
    EXPECT_EQ(done.load(), 80);
    EXPECT_FALSE(in_parallel_region());
    EXPECT_EQ(chunks_of(0, 80, 1).size(), static_cast<size_t>(threads));
  }
}

TEST(Parallel, SeveralUserThreadsAtOnce) {
  Threads scope(2);
  std::vector<int64_t> sums(6, 0);
  std::vector<std::thread> users;
  for (size_t u = 0; u < sums.size(); ++u) {
    users.emplace_back([&sums, u] {
      for (int repeat = 0; repeat < 50; ++repeat) {
        std::atomic<int64_t> sum{0};
        parallel_for(0, 1000, 10, [&](int64_t b, int64_t e) {
          int64_t part = 0;
          for (int64_t i = b; i < e; ++i) part += i;
          sum.fetch_add(part);
        });
        sums[u] += sum.load();
      }
    });
  }
  for (std::thread& t : users) t.join();
  for (int64_t s : sums) EXPECT_EQ(s, 50 * 499500);
}

TEST(Parallel, ManyShortRegionsOfChangingSize) {
  Threads scope(8);
  int64_t sum = 0, want = 0;
  for (int64_t i = 0; i < 20000; ++i) {
    const int64_t n = 1 + i % 9;
    std::atomic<int64_t> part{0};
    parallel_for(0, n, 1, [&](int64_t b, int64_t e) { part.fetch_add(e - b); });
    sum += part.load();
    want += n;
    // Now and then the workers fall asleep.
    if (i % 4000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(sum, want);
}

TEST(Parallel, TheCallerSleepsWhileALongChunkRuns) {
  Threads scope(2);
  timespec before{}, after{};
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> elsewhere{false};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  parallel_for(0, 2, 1, [&](int64_t b, int64_t) {
    if (std::this_thread::get_id() == caller && b == 0) {
      // Give the worker time to begin its chunk.
      for (int i = 0; i < 1000 && !elsewhere; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      elsewhere = std::this_thread::get_id() != caller;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  });
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  EXPECT_TRUE(elsewhere);
  const double cpu = static_cast<double>(after.tv_sec - before.tv_sec) +
                     1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(cpu, 0.1);
}

TEST(Parallel, ARegionInsideAnotherThreadsRegionRunsOnItsOwnThread) {
  Threads scope(2);
  std::atomic<int> chunks{0}, foreign{0};
  parallel_for(0, 2, 1, [&](int64_t b, int64_t) {
    if (b != 0) return;
    // The pool is taken: this thread's region has the same chunks and waits for nobody.
    std::thread([&] {
      const std::thread::id here = std::this_thread::get_id();
      parallel_for(0, 10, 1, [&](int64_t b, int64_t e) {
        chunks.fetch_add(e - b == 5);
        foreign.fetch_add(std::this_thread::get_id() != here);
      });
    }).join();
  });
  EXPECT_EQ(chunks.load(), 2);
  EXPECT_EQ(foreign.load(), 0);
}

#if !defined(__SANITIZE_THREAD__) && !TD_TSAN
TEST(Parallel, AForkedChildHasAPoolOfItsOwn) {
  Threads scope(4);
  ASSERT_EQ(chunks_of(0, 4, 1).size(), 4u);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::atomic<int> arrived{0};
    parallel_for(0, 4, 1, [&](int64_t, int64_t) {
      arrived.fetch_add(1);
      while (arrived.load() < 4) std::this_thread::yield();
    });
    _exit(arrived.load() == 4 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(chunks_of(0, 4, 1).size(), 4u);
}
#endif

TEST(Parallel, CountIsClampedAndRestored) {
  const int before = num_threads();
  set_num_threads(1 << 30);
  EXPECT_EQ(num_threads(), 1024);
  set_num_threads(-1);
  EXPECT_EQ(num_threads(), before);
}

TEST(Hash, OrderLengthAndTypesMatter) {
  EXPECT_NE(hash_all(1, 2), hash_all(2, 1));
  EXPECT_NE(hash_all(1), hash_all(1, 0));
  EXPECT_NE(hash_string("abcdefgh"), hash_string(std::string_view("abcdefgh\0", 9)));
  EXPECT_NE(hash_all(0.0), hash_all(-0.0));
  EXPECT_EQ(hash_value(std::string("relu")), hash_value("relu"));
  EXPECT_EQ(hash_range(std::vector<int>{1, 2}), hash_range(std::vector<int64_t>{1, 2}));
}

TEST(Hash, SmallKeysSpreadOverTheLowBits) {
  std::vector<int> buckets(1 << 10, 0);
  for (int i = 0; i < 256; ++i) {
    for (int j = 0; j < 256; ++j) ++buckets[hash_all(i, j) & 1023];
  }
  // 64 expected a bucket, standard deviation 8.
  EXPECT_LT(*std::max_element(buckets.begin(), buckets.end()), 64 + 6 * 8);
  EXPECT_GT(*std::min_element(buckets.begin(), buckets.end()), 64 - 6 * 8);
}

}  // namespace
}  // namespace tandem
