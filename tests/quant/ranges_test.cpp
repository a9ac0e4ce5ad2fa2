// SPDX-License-Identifier: Apache-2.0
// The methods of calibration on values whose right range is known.
#include "tandem/quant/ranges.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::quant {
namespace {

Seen seen(const std::vector<Tensor>& batches) {
  Seen s;
  for (const Tensor& b : batches) s.see_extremes(b, "x");
  for (const Tensor& b : batches) s.count(b);
  return s;
}

// 100,000 values from 0 to 1 and a few outliers.
TEST(Ranges, OutliersByMethod) {
  const Tensor bulk = linspace(0, 1, 100000).to(float32),
               outliers = tensor({9.0, 9.5, 10.0}).to(float32);
  const Seen s = seen({bulk, outliers});
  struct Case {
    Method method;
    double percent, least, most;
  };
  const Case kCases[] = {
      {Method::min_max, 99.99, 10, 10},
      {Method::moving_average, 99.99, 1.08, 1.1},
      {Method::percentile, 99.9, 0.99, 1.01},
      {Method::percentile, 99.999, 9, 10},
      {Method::percentile, 100, 10, 10},
      {Method::entropy, 99.99, 1, 10},
      {Method::mse, 99.99, 2, 10},
  };
  for (const Case& c : kCases) {
    const Range r = s.range(c.method, c.percent, 256);
    EXPECT_EQ(r.low, 0) << to_string(c.method);
    EXPECT_GE(r.high, c.least) << to_string(c.method) << " " << c.percent;
    EXPECT_LE(r.high, c.most) << to_string(c.method) << " " << c.percent;
  }
  for (const Method m :
       {Method::min_max, Method::moving_average, Method::percentile, Method::entropy, Method::mse})
    EXPECT_EQ(method_of(to_string(m)), m);
}

TEST(Ranges, BothSigns) {
  manual_seed(1);
  const Tensor x = randn({50000});
  const Seen s = seen({x});
  const double most = amax(abs(x)).item<double>();
  for (const Method m : {Method::percentile, Method::entropy, Method::mse}) {
    const Range r = s.range(m, 99.9, 256);
    EXPECT_LT(r.low, -2.5) << to_string(m);
    EXPECT_GT(r.high, 2.5) << to_string(m);
    EXPECT_LE(std::max(-r.low, r.high), most) << to_string(m);
  }
  EXPECT_NEAR(s.range(Method::percentile, 99.9, 256).high, 3.29, 0.15);  // of a normal distribution
  const Tensor heavy = x * x * x;
  for (const Method m : {Method::entropy, Method::mse})
    EXPECT_LT(seen({heavy}).range(m, 99.9, 256).high, 0.98 * amax(heavy).item<double>())
        << to_string(m);
}

TEST(Ranges, StepsCoverThem) {
  struct Case {
    Range range;
    DType dtype;
    double scale;
    int64_t zero;
  };
  const Case kCases[] = {
      {{0, 25.5}, DType::u8, 0.1, 0},     {{-1, 1.55}, DType::u8, 0.01, 100},
      {{-1, 1.55}, DType::i8, 0.01, -28}, {{-2.55, 0}, DType::u8, 0.01, 255},
      {{0, 2.55}, DType::i8, 0.01, -128}, {{0, 0}, DType::u8, 1, 0},
      {{0, 1e-44}, DType::i8, 1, -128},
  };
  for (const Case& c : kCases) {
    const Step s = step_of(c.range, c.dtype);
    EXPECT_FLOAT_EQ(s.scale, static_cast<float>(c.scale));
    EXPECT_EQ(s.zero, c.zero);
  }
}

TEST(Ranges, SaysWhatItWants) {
  const std::string word = error_of([] { method_of("entropi"); });
  EXPECT_TRUE(has(word, "Value: ") && has(word, "Did you mean 'entropy'?")) << word;
  Seen s;
  const std::string value = error_of([&] {
    s.see_extremes(tensor({1.0F, NAN}).to(float32), "the value 'conv1'");
  });
  EXPECT_TRUE(has(value, "calibration: the value 'conv1' has the value nan")) << value;
  EXPECT_FALSE(s.anything());
}

}  // namespace
}  // namespace tandem::quant
