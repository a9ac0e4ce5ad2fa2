// SPDX-License-Identifier: Apache-2.0
// Averages over mirrored and rotated images, against the same computed explicitly.
#include "tandem/models/vision/test_average.h"

#include <gtest/gtest.h>

#include "tandem/tandem.h"

namespace tandem::models {
namespace {

TEST(AverageOfViews, TurnsOutputsBack) {
  manual_seed(1);
  const Tensor x = randn({2, 3, 6, 6}), slope = randn({6, 6});
  const auto place = [&](const Tensor& v) { return v * slope; };  // differs from place to place
  const auto near = [](const Tensor& a, const Tensor& b) { return allclose(a, b, 1e-5, 1e-6); };
  EXPECT_TRUE(equal(average_of_views(place, x, TestAverage::none), x * slope));
  const Tensor both = (slope + flip(slope, {1})) / 2.0;
  EXPECT_TRUE(near(average_of_views(place, x, TestAverage::flip), x * both));
  const Tensor four = (both + flip(both, {0})) / 2.0;
  EXPECT_TRUE(near(average_of_views(place, x, TestAverage::flips), x * four));
  const Tensor eight = (four + transpose(four, 0, 1)) / 2.0;
  EXPECT_TRUE(near(average_of_views(place, x, TestAverage::turns), x * eight));
  // All eight views differ.
  std::vector<Tensor> seen;
  average_of_views(
      [&](const Tensor& v) {
        for (const Tensor& s : seen) EXPECT_FALSE(equal(s, v));
        seen.push_back(v.contiguous());
        return v;
      },
      x, TestAverage::turns);
  EXPECT_EQ(seen.size(), 8u);
}

TEST(AverageOfViews, MeansOfClasses) {
  manual_seed(2);
  const Tensor x = randn({4, 1, 5, 8}), w = randn({40, 3});
  const auto net = [&](const Tensor& v) { return matmul(v.reshape({4, 40}), w); };
  const Tensor wanted = (net(x) + net(flip(x, {3}))) / 2.0;
  EXPECT_TRUE(allclose(average_of_views(net, x, TestAverage::flip), wanted, 1e-5, 1e-6));
  // Not square: a rotated image has another shape, and its output is mapped back to the image's.
  EXPECT_EQ(
      average_of_views([](const Tensor& v) { return v * 2.0; }, x, TestAverage::turns).shape(),
      x.shape());
}

TEST(AverageOfViews, Mistakes) {
  EXPECT_EQ(test_average_of("turns"), TestAverage::turns);
  EXPECT_THROW(test_average_of("rotate"), Error);
  EXPECT_THROW(
      average_of_views([](const Tensor& v) { return v; }, zeros({3, 4}), TestAverage::flip), Error);
}

}  // namespace
}  // namespace tandem::models
