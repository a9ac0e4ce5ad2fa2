// SPDX-License-Identifier: Apache-2.0
// Ranks of one machine that read each other's memory (cross-memory attach): the same bits as over
// connections, for sizes that do and do not divide, how much is read, and who may not be read from.
#include "tandem/dist/near_memory_internal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tandem/dist/process_group.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

using Bytes = std::vector<char>;

// Values that a sum rounds, another one at each place and rank.
template <class T>
std::vector<T> near_values(int rank, int64_t n) {
  std::vector<T> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const double v =
        static_cast<double>((i * 2654435761U + static_cast<uint64_t>(rank) * 40503U) % 100003);
    x[static_cast<size_t>(i)] = static_cast<T>(std::is_integral_v<T> ? v : v / 7.0 - 9000.0);
  }
  return x;
}
template <class T>
Bytes bytes_of(const std::vector<T>& x) {
  Bytes b(x.size() * sizeof(T));
  std::memcpy(b.data(), x.data(), b.size());
  return b;
}

// What every rank has after each call.
template <class T>
std::map<std::pair<int, std::string>, Bytes> after_calls(int ranks, int64_t n, DType dtype,
                                                         const char* near) {
  ::setenv("TANDEM_DIST_NEAR", near, 1);
  std::map<std::pair<int, std::string>, Bytes> all;
  std::mutex lock;
  run_ranks(ranks, [&](const std::shared_ptr<Engine>& e) {
    std::vector<T> x = near_values<T>(e->rank(), n);
    const auto keep = [&](const std::string& what, const std::vector<T>& v) {
      const std::lock_guard hold(lock);
      all[{e->rank(), what}] = bytes_of(v);
    };
    e->all_reduce({x.data(), n, dtype}, ReduceOp::sum).wait();
    keep("sum", x);
    x = near_values<T>(e->rank(), n);
    e->all_reduce({x.data(), n, dtype}, ReduceOp::max).wait();
    keep("max", x);
    x = near_values<T>(e->rank(), n * ranks);
    std::vector<T> part(static_cast<size_t>(n));
    e->reduce_scatter({x.data(), n * ranks, dtype}, {part.data(), n, dtype}, ReduceOp::sum).wait();
    keep("scattered", part);
    std::vector<T> whole(static_cast<size_t>(n * ranks));
    e->all_gather({part.data(), n, dtype}, {whole.data(), n * ranks, dtype}).wait();
    keep("gathered", whole);
    // In place: this rank's part lies where it goes.
    std::memcpy(whole.data() + e->rank() * n, near_values<T>(e->rank(), n).data(),
                static_cast<size_t>(n) * sizeof(T));
    e->all_gather({whole.data() + e->rank() * n, n, dtype}, {whole.data(), n * ranks, dtype})
        .wait();
    keep("in place", whole);
  });
  ::unsetenv("TANDEM_DIST_NEAR");
  return all;
}

// Does the system let this process read its own memory so?
bool reads_itself() {
  const char there = 7;
  char here = 0;
  return read_near(::getpid(), reinterpret_cast<uint64_t>(&there), &here, 1) && here == 7;
}
// What all ranks read in after_calls(): two sums in two rounds each, one scattered sum, two
// gathers.
uint64_t bytes_of_calls(int ranks, int64_t n, size_t each) {
  const auto r = static_cast<uint64_t>(ranks);
  const uint64_t probes = r * r * sizeof NearProbe{}.secret;
  return (r - 1) * static_cast<uint64_t>(n) * (4 + 3 * r) * each + probes;
}

TEST(NearMemory, HasTheBitsOfConnections) {
  const bool can = reads_itself();
  for (const int ranks : {2, 3, 4}) {
    const auto check = [&](auto tag, DType dtype, int64_t n) {
      using T = decltype(tag);
      uint64_t before = bytes_read_near();
      const auto near = after_calls<T>(ranks, n, dtype, "1");
      const uint64_t want = can ? bytes_of_calls(ranks, n, sizeof(T)) : 0;
      EXPECT_EQ(bytes_read_near() - before, want);
      before = bytes_read_near();
      const auto far = after_calls<T>(ranks, n, dtype, "0");
      EXPECT_EQ(bytes_read_near(), before);
      ASSERT_EQ(near.size(), far.size());
      for (const auto& [what, bytes] : far)
        EXPECT_EQ(near.at(what), bytes)
            << what.second << " on rank " << what.first << " of " << ranks;
    };
    check(float{}, DType::f32, 100003);
    check(double{}, DType::f64, 65536);
    check(int64_t{}, DType::i64, 70001);
    check(uint8_t{}, DType::u8, 600007);
  }
}

TEST(NearMemory, SumsArePlainSums) {
  const int64_t n = 90001;
  const auto got = after_calls<float>(2, n, DType::f32, "1");
  const std::vector<float> a = near_values<float>(0, n), b = near_values<float>(1, n);
  std::vector<float> sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  EXPECT_EQ(got.at({1, "sum"}), bytes_of(sum));
}

// 256 KiB are read, one element less goes through connections.
TEST(NearMemory, LargeIsFrom256KiBOn) {
  if (!reads_itself()) GTEST_SKIP() << "this system does not let processes read memory";
  const auto read_by_sum = [](int64_t n) {
    const uint64_t before = bytes_read_near();
    run_ranks(2, [n](const std::shared_ptr<Engine>& e) {
      std::vector<float> x(static_cast<size_t>(n), 1);
      e->all_reduce({x.data(), n, DType::f32}, ReduceOp::sum).wait();
      EXPECT_EQ(x.back(), 2);
    });
    return bytes_read_near() - before;
  };
  const uint64_t probes = 4 * sizeof NearProbe{}.secret;
  EXPECT_EQ(read_by_sum(65535), probes);
  EXPECT_EQ(read_by_sum(65536), probes + 2 * 262144);
}

// Two processes that tandem launch has started; the child's part.
TEST(FaultChild, PlaysNear) {
  if (scenario() != "near") GTEST_SKIP() << "played by the other test";
  const std::shared_ptr<Engine> e = world();
  const uint64_t secret = 0x5eed + static_cast<uint64_t>(e->rank());
  uint64_t there[2], seen = 0;
  const auto own = reinterpret_cast<uint64_t>(&secret);
  e->all_gather({&own, 1, DType::i64}, {there, 2, DType::i64}).wait();
  const int other = 1 - e->rank();
  int64_t can = read_near(e->member(other).pid, there[other], &seen, sizeof seen) &&
                seen == 0x5eed + static_cast<uint64_t>(other);
  e->all_reduce({&can, 1, DType::i64}, ReduceOp::min).wait();
  const uint64_t before = bytes_read_near();
  std::vector<float> x(100000, static_cast<float>(e->rank() + 1));
  e->all_reduce({x.data(), 100000, DType::f32}, ReduceOp::sum).wait();
  EXPECT_EQ(x, std::vector<float>(100000, 3));
  EXPECT_EQ(bytes_read_near() - before, can ? 400000u : 0u);
  e->barrier().wait();
  fmt::print("near {}\n", can ? "read" : "not allowed");
}
TEST(NearMemory, LaunchedRanksReadEachOther) {
  const Played p = play("near", 2);
  EXPECT_EQ(p.result.code, 0) << p.out << p.err;
  if (has(p.out, "near not allowed")) GTEST_SKIP() << "processes may not read each other's memory";
  EXPECT_EQ(count(p.out, "near read"), 2u) << p.out << p.err;
}

// A process of that number that is another one, as in containers, is not taken for a neighbour.
TEST(NearMemory, WhatIsReadIsCompared) {
  Mesh mesh;
  mesh.cards.resize(1);
  mesh.cards[0].pid = ::getpid();
  const uint8_t secret[32] = {1, 2, 3};
  std::vector<NearProbe> probes{near_probe(mesh, secret)};
  EXPECT_TRUE(can_read_all(mesh, probes));
  probes[0].secret[31] = 7;
  EXPECT_FALSE(can_read_all(mesh, probes));
  probes[0] = near_probe(mesh, secret);
  mesh.cards[0].pid = 1 << 30;  // there is none
  EXPECT_FALSE(can_read_all(mesh, probes));
  char one = 0;
  EXPECT_FALSE(read_near(::getpid(), 16, &one, 1));  // nothing lies there
}

}  // namespace
}  // namespace tandem::distributed
