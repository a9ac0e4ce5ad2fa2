// SPDX-License-Identifier: Apache-2.0
// Lists of one element in braces: sizes of layers, dims of norm().
#include <gtest/gtest.h>

#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem::one_size {
namespace {

// Every layer whose first argument is a list takes a list of one.
TEST(ListsOfOneSize, AreNotCopies) {
  const int d = 4;
  const int64_t wide = 4;
  struct Norms : nn::Module {
    nn::LayerNorm norm;
    nn::RMSNorm rms;
    explicit Norms(int64_t d) : norm({d}), rms({d}, {.eps = 1e-3}) { TD_REGISTER(norm, rms); }
  } norms(wide);
  EXPECT_EQ(norms.norm.normalized_shape, Shape(4));
  EXPECT_EQ(norms.rms.options.eps, 1e-3);
  const nn::LayerNorm literal({4}), number({d}), plain(d), list({2, d}), braced{d};
  EXPECT_EQ(literal.normalized_shape, Shape(4));
  EXPECT_EQ(number.normalized_shape, plain.normalized_shape);
  EXPECT_EQ(list.normalized_shape, Shape(2, 4));
  EXPECT_EQ(braced.normalized_shape, Shape(4));
  EXPECT_EQ(nn::MaxPool2d({2}, {.stride = {1}}).options.stride, Shape(1));
  const Tensor x = randn({1, 4, 8, 8});
  EXPECT_TRUE(equal(nn::MaxPool2d({2})(x), nn::MaxPool2d(2)(x)));
  EXPECT_TRUE(equal(nn::AvgPool2d({2})(x), nn::AvgPool2d({2, 2})(x)));
  EXPECT_TRUE(equal(nn::AdaptiveAvgPool2d({2})(x), nn::AdaptiveAvgPool2d(2)(x)));
  EXPECT_TRUE(equal(nn::ZeroPad2d({1})(x), nn::ZeroPad2d(1)(x)));
  EXPECT_TRUE(equal(nn::Unfold({2})(x), nn::Unfold(2)(x)));
}

// A braced list is a list of dims, not an exponent.
TEST(ListsOfOneSize, Norm) {
  const Tensor x = randn({3, 4});
  const int64_t d = 1;
  EXPECT_TRUE(equal(norm(x, {1}), norm(x, 2, {1})));
  EXPECT_TRUE(equal(norm(x, {d}, true), norm(x, 2, {1}, true)));
  EXPECT_TRUE(equal(norm(x, {0, 1}), norm(x)));
  EXPECT_TRUE(equal(norm(x, 1), x.abs().sum()));
}

}  // namespace
}  // namespace tandem::one_size
