// SPDX-License-Identifier: Apache-2.0
// Symbolic sizes: normal forms, evaluation against plain arithmetic, undecidable equalities.
#include "tandem/tensor/dim.h"

#include <gtest/gtest.h>

#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/philox.h"
#include "tests/support/errors.h"

namespace tandem {
namespace {

// The text lists symbols in the order in which they were first named.
const Dim kB = Dim::symbol("b"), kT = Dim::symbol("t");
Dim b() { return kB; }
Dim t() { return kT; }

TEST(Dim, Numbers) {
  EXPECT_EQ(sizeof(Dim), 8u);
  EXPECT_EQ(floordiv(Dim(-7), 2), Dim(-4));
  EXPECT_EQ(floordiv(Dim(7), 2), Dim(3));
  EXPECT_EQ(mod(Dim(-7), 2), Dim(1));
  EXPECT_EQ(min(Dim(3), 5), Dim(3));
  EXPECT_EQ(max(Dim(3), 5), Dim(5));
  EXPECT_EQ((Dim(3) * 4 + 1 - 2).value(), 11);
  EXPECT_FALSE((Dim(3) * 4).is_symbolic());
}

// The numbers that symbolic sizes are kept as cannot come from outside.
TEST(Dim, NumbersThatDoNotFitAreRefused) {
  const int64_t least = -(int64_t{1} << 62), most = INT64_MAX;
  EXPECT_FALSE(Dim(least).is_symbolic());
  EXPECT_EQ(Dim(most).value(), most);
  for (int64_t v : {least - 1, INT64_MIN, INT64_MIN + 1})
    EXPECT_TRUE(has(thrown([&] { Dim{v}; }, ErrorKind::Value), std::to_string(v)));
  EXPECT_TRUE(has(thrown([] { Dim{UINT64_MAX}; }, ErrorKind::Value), "18446744073709551615"));
  thrown([&] { Dim(most) + 1; }, ErrorKind::Value);
  thrown([&] { Dim(least) - 1; }, ErrorKind::Value);
  thrown([&] { Dim(-2) - Dim(most); }, ErrorKind::Value);
  thrown([&] { Dim(most) * 2; }, ErrorKind::Value);
  thrown([&] { Dim(most) * -1; }, ErrorKind::Value);
  thrown([&] { b() * most * 2; }, ErrorKind::Value);
  EXPECT_EQ((b() * least - b() * least).value(), 0);
}

TEST(Dim, EqualFormsAreTheSameBytes) {
  EXPECT_EQ(Dim::symbol("b"), b());
  EXPECT_FALSE(Dim::symbol("b") == t());
  EXPECT_EQ((b() + 1) * (b() - 1), b() * b() - 1);
  EXPECT_EQ(b() * t() * 2, t() * 2 * b());
  EXPECT_EQ(b() - b(), Dim(0));
  EXPECT_EQ((b() + t()) * (b() + t()), b() * b() + 2 * b() * t() + t() * t());
  EXPECT_EQ(floordiv(b() * 6, 3), 2 * b());
  EXPECT_EQ(floordiv(b() * t(), t()), b());
  EXPECT_EQ(floordiv(b() * t() + 2 * t(), b() + 2), t());
  EXPECT_EQ(floordiv(b() * b() + 2 * b() + 1, b() + 1), b() + 1);
  EXPECT_EQ(floordiv(b(), 1), b());
  EXPECT_EQ(floordiv(b(), b()), Dim(1));
  EXPECT_EQ(floordiv(4 * b() + 6, 4), b() + 1);
  EXPECT_EQ(floordiv(6 * b() + 2, 4), floordiv(3 * b() + 1, 2));
  EXPECT_EQ(floordiv(floordiv(b(), 2), 3), floordiv(b(), 6));
  EXPECT_EQ(floordiv(floordiv(b() - 3, 2) + 1, 2), floordiv(b() - 1, 4));
  EXPECT_EQ(mod(b(), 1), Dim(0));
  EXPECT_EQ(mod(b() * t(), t()), Dim(0));
  EXPECT_EQ(mod(4 * b() + 7, 4), Dim(3));
  EXPECT_EQ(mod(5 * b() - 1, 4), mod(b() + 3, 4));
  EXPECT_EQ(min(b(), b()), b());
  EXPECT_EQ(min(b() + 1, b()), b());
  EXPECT_EQ(max(b() + 1, b()), b() + 1);
  EXPECT_EQ(min(b(), min(t(), 4)), min(min(4, b()), t()));
  EXPECT_EQ(max(max(b(), t()), b() - 2), max(t(), b()));
}

TEST(Dim, Text) {
  EXPECT_EQ((b() * t() - 2 * b() + t() - 2).to_string(), "b*t - 2*b + t - 2");
  EXPECT_EQ((0 - b()).to_string(), "-b");
  EXPECT_EQ(floordiv(b() + 1, 2).to_string(), "((b + 1)//2)");
  EXPECT_EQ((mod(b(), 4) + 1).to_string(), "(b % 4) + 1");
  EXPECT_EQ(floordiv(b(), t() * 2).to_string(), "(b//(2*t))");
  EXPECT_EQ(min(b(), t()).to_string(), "min(b, t)");
  EXPECT_EQ(Dim(12).to_string(), "12");
}

/// A random expression as a Dim and as its value at (b, t); a divisor is a positive number.
std::pair<Dim, int64_t> expression(PhiloxStream& random, int depth, int64_t bv, int64_t tv) {
  if (depth == 0) {
    const int64_t n = static_cast<int64_t>(random.next_below(7)) - 3;
    switch (random.next_below(3)) {
      case 0:
        return {b(), bv};
      case 1:
        return {t(), tv};
      default:
        return {n, n};
    }
  }
  const auto [x, xv] = expression(random, depth - 1, bv, tv);
  const auto [y, yv] = expression(random, depth - 1, bv, tv);
  const int64_t k = static_cast<int64_t>(random.next_below(6)) + 1;
  auto floor_of = [](int64_t p, int64_t q) { return p / q - (p % q < 0 ? 1 : 0); };
  switch (random.next_below(8)) {
    case 0:
      return {x + y, xv + yv};
    case 1:
      return {x - y, xv - yv};
    case 2:
      return {x * y, xv * yv};
    case 3:
      return {floordiv(x, k), floor_of(xv, k)};
    case 4:
      return {mod(x, k), xv - floor_of(xv, k) * k};
    case 5:
      return {min(x, y), std::min(xv, yv)};
    case 6:
      return {max(x, y), std::max(xv, yv)};
    default:
      if (bv * tv > 0) return {floordiv(x, b() * t()), floor_of(xv, bv * tv)};
      return {x, xv};
  }
}

TEST(Dim, RandomExpressionsEvaluateAsPlainArithmetic) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    for (const auto& [bv, tv] : {std::pair<int64_t, int64_t>{1, 1}, {7, 2}, {12, 5}}) {
      PhiloxStream random(seed);
      const auto [dim, value] = expression(random, 3, bv, tv);
      EXPECT_EQ(dim.evaluate({{b(), bv}, {t(), tv}}), value)
          << "seed " << seed << ": " << dim.to_string();
    }
  }
}

TEST(Dim, UndecidableEqualitiesAreRecorded) {
  EXPECT_TRUE(dims_equal(3, 3));
  EXPECT_FALSE(dims_equal(3, 4));
  EXPECT_TRUE(dims_equal(b() + t(), t() + b()));
  EXPECT_FALSE(dims_equal(b(), 3)) << "outside a trace there is nobody to check it";
  DimChecks checks;
  current_dim_checks() = &checks;
  EXPECT_TRUE(dims_equal(b(), 3));
  EXPECT_TRUE(dims_equal(b(), b()));
  EXPECT_FALSE(dims_equal(b() + 1, b()));
  EXPECT_FALSE(dims_equal(2 * b() + 2 * t(), 3)) << "even and odd";
  current_dim_checks() = nullptr;
  ASSERT_EQ(checks.equal.size(), 1u);
  EXPECT_EQ(checks.equal[0].first, b());
  EXPECT_EQ(checks.equal[0].second, Dim(3));
}

TEST(Dim, ThreadsAgree) {
  std::vector<std::vector<int64_t>> raws(4);
  std::vector<std::thread> threads;
  for (auto& out : raws) {
    threads.emplace_back([&out] {
      Dim x = Dim::symbol("threads");
      for (int i = 1; i <= 200; ++i) out.push_back(floordiv(x * x + i, 7).raw());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& out : raws) EXPECT_EQ(out, raws[0]);
}

TEST(DimMustFail, Messages) {
  EXPECT_EQ(error_of([] { b().value(); }),
            "Shape: the size b is not a number inside a trace. Use shape(d), which gives a Dim to "
            "compute with.");
  EXPECT_EQ(error_of([] {
              (b() + t()).evaluate({{b(), 1}});
            }),
            "Shape: the size 't' has no value here.");
  EXPECT_EQ(error_of([] { floordiv(Dim(3), 0); }), "Value: floordiv: the divisor is 0.");
  EXPECT_EQ(error_of([] { floordiv(b(), 0); }),
            "Value: floordiv: the divisor must be positive, got 0.");
  EXPECT_EQ(error_of([] { mod(b(), -2); }), "Value: mod: the divisor must be positive, got -2.");
  EXPECT_EQ(error_of([] {
              floordiv(b(), t()).evaluate({{b(), 1}, {t(), 0}});
            }),
            "Value: floordiv: the divisor must be positive, got 0.");
  EXPECT_EQ(error_of([] { Dim::symbol(""); }), "Value: a symbolic size needs a name.");
  EXPECT_EQ(error_of([] { b() * (int64_t{1} << 61) * 8; }),
            "Value: a size of 2305843009213693952 * 8 does not fit 63 bits.");
}

}  // namespace
}  // namespace tandem
