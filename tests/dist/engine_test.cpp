// SPDX-License-Identifier: Apache-2.0
// Engines: every call against what it should give, at 1 to 5 ranks, every dtype, sizes around the
// limits; bits of sums; groups of groups; calls that do not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tandem/base/files/file.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/philox.h"
#include "tandem/dist/carrier_internal.h"
#include "tandem/dist/reduce_internal.h"
#include "tandem/dist/token_internal.h"
#include "tests/dist/calls_helper.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

struct Ranks {
  const char* engine;
  int n;
};
void PrintTo(const Ranks& r, std::ostream* out) { *out << r.n << " ranks of " << r.engine; }
constexpr Ranks kRanks[] = {{"tcp", 1}, {"tcp", 2},  {"tcp", 3},  {"tcp", 4},
                            {"tcp", 5}, {"gloo", 2}, {"gloo", 3}, {"gloo", 4}};

// Ranks of this process on that engine.
class Calls : public ::testing::TestWithParam<Ranks> {
 protected:
  void SetUp() override {
    options.engine = GetParam().engine;
    if (options.engine != "tcp" && !find_plugin(options.engine).carrier)
      GTEST_SKIP() << find_plugin(options.engine).problem;
  }
  EngineOptions options = quick_options();
};
INSTANTIATE_TEST_SUITE_P(Ranks, Calls, ::testing::ValuesIn(kRanks));

TEST_P(Calls, EveryKindAndDType) {
  run_ranks(
      GetParam().n,
      [](const std::shared_ptr<Engine>& e) {
        EXPECT_STREQ(e->name(), e->size() == 1 ? "single" : GetParam().engine);
        check_all_calls(*e);
      },
      options);
}

// A sum's bits are those of the tree over neighbours, for small arrays and large ones.
// Engines that add in another order do so where they are asked to.
TEST_P(Calls, OrderedSumsHaveTheBitsOfTheTree) {
  const int n = GetParam().n;
  if (n == 1 || n == 5) return;
  const auto value = [](int r, int64_t i) {
    return PhiloxStream(static_cast<uint64_t>(r), 0, static_cast<uint64_t>(i)).next_normal();
  };
  run_ranks(
      n,
      [&](const std::shared_ptr<Engine>& e) {
        for (const int64_t count : {100, 20001}) {
          std::vector<float> x;
          for (int64_t i = 0; i < count; ++i) x.push_back(value(e->rank(), i));
          e->all_reduce(array_of(x), ReduceOp::sum, {.ordered = true}).wait();
          for (int64_t i = 0; i < count; ++i) {
            float want = value(0, i) + value(1, i);
            if (n == 3) want = want + value(2, i);
            if (n == 4) want = want + (value(2, i) + value(3, i));
            ASSERT_EQ(x[static_cast<size_t>(i)], want);
          }
        }
      },
      options);
}

// What a call divides has the bits of a division after it, on this side of every limit of sizes.
template <class T>
void expect_divided(Engine& e) {
  for (const int64_t count : {60, 24000, 240000})
    for (const double divisor : {2.0, 3.0}) {
      std::vector<T> x(static_cast<size_t>(count)), part(x.size() / static_cast<size_t>(e.size()));
      for (int64_t i = 0; i < count; ++i)
        x[static_cast<size_t>(i)] =
            T(PhiloxStream(static_cast<uint64_t>(e.rank()), 1, static_cast<uint64_t>(i))
                  .next_normal());
      const std::vector<T> own = x;
      std::vector<T> want = x;
      const CallOptions o{.ordered = true, .divisor = divisor};
      e.all_reduce(array_of(x), ReduceOp::sum, o).wait();
      e.all_reduce(array_of(want), ReduceOp::sum, {.ordered = true}).wait();
      divide(array_of(want), divisor);
      ASSERT_EQ(0, std::memcmp(x.data(), want.data(), want.size() * sizeof(T))) << count;
      if (count % e.size() != 0) continue;
      std::vector<T> in = own;
      e.reduce_scatter(ConstArray(array_of(in)), array_of(part), ReduceOp::sum, o).wait();
      const T* mine = want.data() + part.size() * static_cast<size_t>(e.rank());
      ASSERT_EQ(0, std::memcmp(part.data(), mine, part.size() * sizeof(T))) << count;
    }
}
TEST_P(Calls, DividedSumsHaveTheBitsOfADivisionAfterwards) {
  run_ranks(
      GetParam().n,
      [](const std::shared_ptr<Engine>& e) {
        expect_divided<float>(*e);
        expect_divided<double>(*e);
        expect_divided<Half>(*e);
        std::vector<int64_t> whole(3, 1);
        std::vector<float> most(3, 1);
        const auto refused = [&](Array a, ReduceOp op) {
          return thrown([&] { e->all_reduce(a, op, {.divisor = 2}); }, ErrorKind::Value);
        };
        EXPECT_TRUE(has(refused(array_of(whole), ReduceOp::sum), "sums of floating numbers have"));
        EXPECT_TRUE(has(refused(array_of(most), ReduceOp::max), "all_reduce max of float32"));
      },
      options);
}

TEST_P(Calls, HalvesAreSummedInFloat) {
  if (GetParam().n != 3) return;
  run_ranks(
      3,
      [](const std::shared_ptr<Engine>& e) {
        // 2048 + 1 is 2048 in float16; with the other 1 it is 2050.
        std::vector<Half> x(10000, Half(e->rank() == 0 ? 2048.0f : 1.0f));
        e->all_reduce(array_of(x)).wait();
        EXPECT_EQ(static_cast<float>(x[9999]), 2050.0f);
        std::vector<float> nan(10000, e->rank() == 1 ? std::nanf("") : 3.0f);
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
          std::vector<float> y = nan;
          e->all_reduce(array_of(y), op).wait();
          EXPECT_TRUE(std::isnan(y[9999])) << to_string(op);
        }
      },
      options);
}

// Calls of two ranks: rings both ways at once and out of step with calls of all, in order per pair.
TEST(Pairs, SendAndRecvDoNotBlockEachOther) {
  run_ranks(4, [](const std::shared_ptr<Engine>& e) {
    const int n = e->size(), next = (e->rank() + 1) % n, last = (e->rank() + n - 1) % n;
    constexpr int64_t kCount = 200000;
    std::vector<float> out(kCount, static_cast<float>(e->rank())), in(kCount), back(kCount);
    std::vector<float> sum(3, 1.0f);
    Work all = e->all_reduce(array_of(sum));
    std::vector<Work> work;
    work.push_back(e->send(ConstArray(array_of(out)), next));
    work.push_back(e->send(ConstArray(array_of(out)), last));
    work.push_back(e->recv(array_of(back), next));
    work.push_back(e->recv(array_of(in), last));
    for (Work& w : work) w.wait();
    all.wait();
    EXPECT_EQ(in.back(), static_cast<float>(last));
    EXPECT_EQ(back.front(), static_cast<float>(next));
    EXPECT_EQ(sum[0], 4.0f);
    for (int k = 0; k < 20; ++k) {  // in order
      float v = static_cast<float>(k), got = -1;
      Work s = e->send({&v, 1, DType::f32}, next), r = e->recv({&got, 1, DType::f32}, last);
      s.wait();
      r.wait();
      EXPECT_EQ(got, v);
    }
  });
}

TEST_P(Calls, GroupsOfAGroup) {
  if (GetParam().n != 4) return;
  run_ranks(
      4,
      [](const std::shared_ptr<Engine>& e) {
        // Even and odd ranks, each in reverse order; rank 3 stays out at the second time.
        const std::shared_ptr<Engine> half = e->split(e->rank() % 2, -e->rank());
        ASSERT_EQ(half->size(), 2);
        EXPECT_EQ(half->rank(), e->rank() < 2 ? 1 : 0);
        EXPECT_STREQ(half->name(), e->name());
        std::vector<float> x(10000, static_cast<float>(e->rank()));
        half->all_reduce(array_of(x)).wait();
        EXPECT_EQ(x[9999], e->rank() % 2 == 0 ? 2.0f : 4.0f);
        const std::shared_ptr<Engine> three = e->split(e->rank() == 3 ? -1 : 7, 0);
        EXPECT_EQ(three == nullptr, e->rank() == 3);
        if (!three) return;
        EXPECT_EQ(three->rank(), e->rank());
        float y = 1;
        three->all_reduce({&y, 1, DType::f32}).wait();
        EXPECT_EQ(y, 3.0f);
      },
      options);
}

TEST(Single, WhatDoesNotFitIsRefusedHere) {
  const std::shared_ptr<Engine> e = single_engine();
  float x[4] = {};
  EXPECT_TRUE(has(thrown([&] {
                    e->broadcast({x, 4, DType::f32}, 1);
                  }),
                  "names rank 1, the group has 1"));
  EXPECT_TRUE(has(thrown([&] {
                    e->all_gather({x, 2, DType::f32}, {x, 4, DType::f32});
                  }),
                  "all_gather over 1 ranks expects 1 times 2 float32 elements, got 4 float32"));
  EXPECT_TRUE(has(thrown([&] { e->send({x, 1, DType::f32}, 0); }), "names itself"));
  EXPECT_TRUE(has(thrown([&] { e->all_reduce({nullptr, 1, DType::f32}); }), "no memory"));
  EXPECT_TRUE(has(thrown([&] { e->all_reduce({x, 1, DType::b8}); }), "expects numbers, got bool"));
  EXPECT_TRUE(has(thrown([&] { e->all_reduce({x, -1, DType::f32}); }), "of -1 elements"));
  e->abort("enough");
  EXPECT_TRUE(has(thrown([&] { e->barrier(); }), "enough"));
}

// A slow rank is the one that the others wait for, in small calls and in large ones.
TEST(CallLog, NamesTheRankThatComesLast) {
  run_ranks(3, [](const std::shared_ptr<Engine>& e) {
    std::vector<float> x(200000, 1);
    const std::vector<RankDelay> before = e->delays();
    for (const int64_t n : {10, 200000})
      for (int k = 0; k < 5; ++k) {
        if (e->rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(30));
        e->all_reduce({x.data(), n, DType::f32}).wait();
      }
    const std::vector<RankDelay> after = e->delays();
    ASSERT_EQ(after.size(), 3u);
    const auto calls = [&](size_t r) { return after[r].calls - before[r].calls; };
    const auto seconds = [&](size_t r) { return after[r].seconds - before[r].seconds; };
    if (e->rank() == 2) return;
    EXPECT_GE(calls(2), 9);
    EXPECT_GT(seconds(2), 0.2);
    EXPECT_LT(seconds(1 - static_cast<size_t>(e->rank())), seconds(2) / 2);
  });
}

// One by one, and by label; when the group ends by a fault, in a file of each rank.
TEST(CallLog, RemembersCallsAndWritesThemAfterAFault) {
  const std::string folder = testing::TempDir() + "calls/made";  // it is not there yet
  std::filesystem::remove_all(folder);
  ::setenv("TANDEM_DIST_RECORDS", folder.c_str(), 1);
  run_ranks(2, [](const std::shared_ptr<Engine>& e) {
    const size_t before = e->recent_calls().size();
    e->set_step(3);
    std::vector<float> x(1000, 1), all(2000);
    for (int k = 0; k < 2; ++k) {
      if (e->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      e->all_reduce({x.data(), 1000, DType::f32}, ReduceOp::sum, {"bucket 0"}).wait();
    }
    e->all_gather({x.data(), 1000, DType::f32}, {all.data(), 2000, DType::f32}).wait();
    const std::vector<CallRecord> calls = e->recent_calls();
    ASSERT_EQ(calls.size(), before + 3);
    const CallRecord& c = calls[before];
    EXPECT_EQ(c.number, static_cast<int64_t>(before) + 1);
    EXPECT_EQ(c.step, 3);
    EXPECT_EQ(c.what, "all_reduce sum float32[1000] 'bucket 0'");
    EXPECT_LE(c.given, c.begun);
    EXPECT_LT(c.begun, c.ended);
    EXPECT_EQ(c.error, "");
    const std::vector<CallTotals> totals = e->call_totals();
    const auto at = std::find_if(totals.begin(), totals.end(),
                                 [](const CallTotals& t) { return t.label == "bucket 0"; });
    ASSERT_NE(at, totals.end());
    EXPECT_EQ(at->calls, 2);
    EXPECT_EQ(at->bytes, 8000u);
    // Rank 1 stood still while rank 0 slept.
    if (e->rank() == 1) EXPECT_GT(at->waited, 0.02);
    EXPECT_LE(at->waited, at->seconds + 0.02);
    EXPECT_EQ(totals.back().label, "all_gather");
    e->barrier().wait();
    if (e->rank() == 0) e->abort("enough of it");
    EXPECT_TRUE(has(thrown([&] { e->barrier({"the last"}).wait(); }), "enough of it"));
  });
  ::unsetenv("TANDEM_DIST_RECORDS");
  std::vector<std::string> names = list_folder(folder);
  std::sort(names.begin(), names.end());
  ASSERT_EQ(names.size(), 2U);
  for (const size_t rank : {0, 1}) {
    EXPECT_TRUE(names[rank].starts_with(fmt::format("calls-rank{}-of-2-", rank))) << names[rank];
    const std::string text = read_file(folder + "/" + names[rank]);
    EXPECT_TRUE(has(text, "\"what\":\"all_reduce sum float32[1000] 'bucket 0'\"")) << text;
    EXPECT_TRUE(has(text, "\"step\":3")) << text;
  }
}

// RFC 4231, cases 1 and 6 (a key longer than a block).
TEST(Token, Hmac) {
  const auto hex = [](const Bytes32& b) {
    std::string text;
    for (const unsigned char c : b) text += fmt::format("{:02x}", c);
    return text;
  };
  EXPECT_EQ(hex(hmac(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(
      hex(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(random_token().size(), 64u);
  EXPECT_NE(random_token(), random_token());
}

}  // namespace
}  // namespace tandem::distributed
