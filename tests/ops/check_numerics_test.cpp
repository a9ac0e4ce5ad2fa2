// SPDX-License-Identifier: Apache-2.0
// check_numerics: passes finite values, names others, in compiled functions too.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

TEST(CheckNumerics, NamesWhatItFinds) {
  const struct {
    Tensor x;
    const char* message;
    const char* want;  ///< "" for none
  } kCases[] = {
      {tensor({1.0F, 2.0F}), "x", ""},
      {zeros({0, 3}), "x", ""},
      {tensor({1, 2}), "labels", ""},
      {tensor({NAN, 1.0F, INFINITY, NAN}), "scores",
       "scores: float32 [4] holds 2 NaN and 1 infinite of 4 elements, the first at [0]"},
      {tensor({1.0F, 2.0F, 3.0F, -INFINITY, 0.0F, 0.0F}).reshape({2, 3}), "",
       "float32 [2, 3] holds 0 NaN and 1 infinite of 6 elements, the first at [1, 0]"},
      {tensor({1.0F, NAN}).to(DType::f64), "f64", "f64: float64 [2] holds 1 NaN"},
      {tensor({1.0F, NAN}).to(DType::bf16), "half", "half: bfloat16 [2] holds 1 NaN"},
      {tensor(NAN), "one",
       "one: float32 [] holds 1 NaN and 0 infinite of 1 elements, the first at []"},
  };
  for (const auto& c : kCases) {
    const std::string what = error_of([&] { check_numerics(c.x, c.message); });
    if (*c.want == 0)
      EXPECT_EQ(what, "no error") << c.message;
    else
      EXPECT_NE(what.find(c.want), what.npos) << what;
  }
  const std::string place = error_of([] { check_numerics(tensor(NAN)); });
  EXPECT_NE(place.find("check_numerics_test.cpp:"), place.npos) << place;
  EXPECT_NE(error_of([] { check_numerics(Tensor()); }).find("undefined tensor"), std::string::npos);
}

TEST(CheckNumerics, KeepsGradients) {
  Param w(tensor({1.0F, 2.0F}));
  Tensor y = check_numerics(w.value() * 3.0, "y").sum();
  y.backward();
  EXPECT_TRUE(equal(w.grad(), tensor({3.0F, 3.0F})));
}

TEST(CheckNumerics, LooksAgainWheneverACompiledFunctionRuns) {
  const auto sum = [](Tensor t) { return check_numerics(t + 1.0, "sum") * 2.0; };
  const auto unused = [](Tensor t) {  // nobody needs what it gives
    check_numerics(t.transpose(0, 1), "turned");
    return t;
  };
  const auto slope = [](Tensor t) {
    return grad([](const Tensor& x) { return check_numerics(x * x, "square").sum(); })(t);
  };
  auto f = compile(sum);
  auto g = compile(unused);
  auto h = compile(slope);
  const Tensor good = tensor({1.0F, 2.0F, 3.0F, 4.0F}).reshape({2, 2});
  const Tensor bad = tensor({1.0F, INFINITY, 3.0F, NAN}).reshape({2, 2});
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(equal(f(good), sum(good)));
    EXPECT_TRUE(equal(g(good), good));
    EXPECT_TRUE(equal(h(good), good * 2.0));
    for (const std::string& what : {error_of([&] { f(bad); }), error_of([&] { sum(bad); })}) {
      EXPECT_NE(what.find("sum: float32 [2, 2] holds 1 NaN and 1 infinite of 4 elements, the "
                          "first at [0, 1]"),
                what.npos)
          << what;
      EXPECT_NE(what.find("check_numerics_test.cpp:"), what.npos) << what;
    }
    const std::string turned = error_of([&] { g(bad); });
    EXPECT_NE(turned.find("turned: float32 [2, 2] holds 1 NaN and 1 infinite of 4 elements, the "
                          "first at [1, 0]"),
              turned.npos)
        << turned;
    EXPECT_NE(error_of([&] { h(bad); }).find("square: "), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
