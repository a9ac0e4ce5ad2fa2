// SPDX-License-Identifier: Apache-2.0
// The TCP engine: every call against what it should give, at 1 to 5 ranks, every dtype, sizes
// around the limits; bits of sums; groups of groups; calls that do not fit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "tandem/base/philox.h"
#include "tandem/dist/reduce_internal.h"
#include "tandem/dist/token_internal.h"
#include "tests/dist/ranks_helper.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::distributed {
namespace {

// Element i of rank r: small whole numbers, exact in every dtype.
template <class T>
std::vector<T> values_of(int rank, int64_t n) {
  std::vector<T> v;
  for (int64_t i = 0; i < n; ++i)
    v.push_back(static_cast<T>(static_cast<float>((i * 7 + rank * 3) % 11)));
  return v;
}
template <class T>
Array array_of(std::vector<T>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), dtype_of<T>};
}

template <class T>
void check_calls(Engine& e, int64_t n) {
  const int ranks = e.size(), rank = e.rank();
  const auto all = static_cast<size_t>(ranks);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
    std::vector<T> x = values_of<T>(rank, n), want = values_of<T>(0, n);
    for (int r = 1; r < ranks; ++r) {
      const std::vector<T> y = values_of<T>(r, n);
      for (size_t i = 0; i < y.size(); ++i) {
        const auto a = static_cast<double>(want[i]), b = static_cast<double>(y[i]);
        want[i] = static_cast<T>(static_cast<float>(op == ReduceOp::sum   ? a + b
                                                    : op == ReduceOp::min ? std::min(a, b)
                                                                          : std::max(a, b)));
      }
    }
    e.all_reduce(array_of(x), op, {"x"}).wait();
    EXPECT_EQ(std::memcmp(x.data(), want.data(), x.size() * sizeof(T)), 0) << to_string(op);
    // The same through reduce_scatter, where the array has a part for each.
    if (n % ranks != 0) continue;
    std::vector<T> whole = values_of<T>(rank, n), part(static_cast<size_t>(n) / all);
    e.reduce_scatter(array_of(whole), array_of(part), op).wait();
    EXPECT_EQ(std::memcmp(part.data(), want.data() + static_cast<size_t>(rank) * part.size(),
                          part.size() * sizeof(T)),
              0);
  }
  std::vector<T> own = values_of<T>(rank, n), gathered(static_cast<size_t>(n) * all);
  e.all_gather(array_of(own), array_of(gathered)).wait();
  for (int r = 0; r < ranks; ++r) {
    const std::vector<T> want = values_of<T>(r, n);
    EXPECT_EQ(std::memcmp(gathered.data() + static_cast<size_t>(r) * want.size(), want.data(),
                          want.size() * sizeof(T)),
              0);
  }
  for (int root = 0; root < ranks; ++root) {
    std::vector<T> x = values_of<T>(rank, n);
    const std::vector<T> want = values_of<T>(root, n);
    e.broadcast(array_of(x), root).wait();
    EXPECT_EQ(std::memcmp(x.data(), want.data(), want.size() * sizeof(T)), 0);
  }
  std::vector<T> out(static_cast<size_t>(n) * all), in;
  for (int r = 0; r < ranks; ++r) {  // for rank r: the numbers of rank * ranks + r
    const std::vector<T> part = values_of<T>(rank * ranks + r, n);
    in.insert(in.end(), part.begin(), part.end());
  }
  e.all_to_all(array_of(in), array_of(out)).wait();
  for (int r = 0; r < ranks; ++r) {
    const std::vector<T> want = values_of<T>(r * ranks + rank, n);
    EXPECT_EQ(std::memcmp(out.data() + static_cast<size_t>(r) * want.size(), want.data(),
                          want.size() * sizeof(T)),
              0);
  }
}

class Calls : public ::testing::TestWithParam<int> {};
TEST_P(Calls, EveryKindAndDType) {
  run_ranks(GetParam(), [](const std::shared_ptr<Engine>& e) {
    for (const int64_t n : {0, 1, 60, 61, 4096, 4103}) {
      check_calls<float>(*e, n);
      e->barrier().wait();
    }
    check_calls<double>(*e, 60);
    check_calls<Half>(*e, 60);
    check_calls<BFloat16>(*e, 60);
    check_calls<int64_t>(*e, 60);
    check_calls<int32_t>(*e, 60);
    check_calls<int16_t>(*e, 60);
    check_calls<int8_t>(*e, 60);
    check_calls<uint8_t>(*e, 60);
    check_calls<float>(*e, 300000);  // more than sockets hold
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, Calls, ::testing::Values(1, 2, 3, 4, 5));

// A sum's bits are those of the tree over neighbours, for small arrays and large ones.
TEST(Calls, SumsHaveTheBitsOfTheTree) {
  const auto value = [](int r, int64_t i) {
    return PhiloxStream(static_cast<uint64_t>(r), 0, static_cast<uint64_t>(i)).next_normal();
  };
  for (const int n : {2, 3, 4})
    run_ranks(n, [&](const std::shared_ptr<Engine>& e) {
      for (const int64_t count : {100, 20001}) {
        std::vector<float> x;
        for (int64_t i = 0; i < count; ++i) x.push_back(value(e->rank(), i));
        e->all_reduce(array_of(x)).wait();
        for (int64_t i = 0; i < count; ++i) {
          float want = value(0, i) + value(1, i);
          if (n == 3) want = want + value(2, i);
          if (n == 4) want = want + (value(2, i) + value(3, i));
          ASSERT_EQ(x[static_cast<size_t>(i)], want);
        }
      }
    });
}

TEST(Calls, HalvesAreSummedInFloat) {
  run_ranks(3, [](const std::shared_ptr<Engine>& e) {
    // 2048 + 1 is 2048 in float16; with the other 1 it is 2050.
    std::vector<Half> x{Half(e->rank() == 0 ? 2048.0f : 1.0f)};
    e->all_reduce(array_of(x)).wait();
    EXPECT_EQ(static_cast<float>(x[0]), 2050.0f);
    std::vector<float> nan{e->rank() == 1 ? std::nanf("") : 3.0f};
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
      std::vector<float> y = nan;
      e->all_reduce(array_of(y), op).wait();
      EXPECT_TRUE(std::isnan(y[0])) << to_string(op);
    }
  });
}

// Calls of two ranks: rings both ways at once and out of step with calls of all, in order per pair.
TEST(Calls, SendAndRecvDoNotBlockEachOther) {
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

TEST(Calls, GroupsOfAGroup) {
  run_ranks(4, [](const std::shared_ptr<Engine>& e) {
    // Even and odd ranks, each in reverse order; rank 3 stays out at the second time.
    const std::shared_ptr<Engine> half = e->split(e->rank() % 2, -e->rank());
    ASSERT_EQ(half->size(), 2);
    EXPECT_EQ(half->rank(), e->rank() < 2 ? 1 : 0);
    float x = static_cast<float>(e->rank());
    half->all_reduce({&x, 1, DType::f32}).wait();
    EXPECT_EQ(x, e->rank() % 2 == 0 ? 2.0f : 4.0f);
    const std::shared_ptr<Engine> three = e->split(e->rank() == 3 ? -1 : 7, 0);
    EXPECT_EQ(three == nullptr, e->rank() == 3);
    if (!three) return;
    EXPECT_EQ(three->rank(), e->rank());
    float y = 1;
    three->all_reduce({&y, 1, DType::f32}).wait();
    EXPECT_EQ(y, 3.0f);
  });
}

TEST(Calls, WhatDoesNotFitIsRefusedHere) {
  const std::shared_ptr<Engine> e = single_engine();
  float x[4] = {};
  EXPECT_TRUE(has(thrown([&] {
                    e->broadcast({x, 4, DType::f32}, 1);
                  }),
                  "names rank 1, the group has 1"));
  EXPECT_TRUE(has(thrown([&] {
                    e->all_gather({x, 2, DType::f32}, {x, 4, DType::f32});
                  }),
                  "all_gather over 1 ranks wants 1 times 2 float32 elements, got 4 float32"));
  EXPECT_TRUE(has(thrown([&] { e->send({x, 1, DType::f32}, 0); }), "names itself"));
  EXPECT_TRUE(has(thrown([&] { e->all_reduce({nullptr, 1, DType::f32}); }), "no memory"));
  EXPECT_TRUE(has(thrown([&] { e->all_reduce({x, 1, DType::b8}); }), "wants numbers, got bool"));
  EXPECT_TRUE(has(thrown([&] { e->all_reduce({x, -1, DType::f32}); }), "of -1 elements"));
  e->abort("enough");
  EXPECT_TRUE(has(thrown([&] { e->barrier(); }), "enough"));
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
