// SPDX-License-Identifier: Apache-2.0
// Kernels that read bf16 and f16 in their own way, against f32 on the same numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/tandem.h"

namespace tandem {
namespace {

struct ConvCase {
  const char* name;
  int64_t n, c, o, h, w;
  int64_t kernel, stride, padding, dilation, groups;
  bool equal;  ///< one kernel computes both, in f32: equal bits after rounding
};

// 1x1 convolutions with few pixels, also of stride 2; depthwise ones of every kind.
constexpr ConvCase kConvCases[] = {
    {"point", 2, 40, 33, 5, 7, 1, 1, 0, 1, 1, false},
    {"point_stride", 3, 32, 48, 9, 8, 1, 2, 0, 1, 1, false},
    {"point_odd", 1, 65, 15, 7, 5, 1, 1, 0, 1, 1, false},
    {"depthwise", 2, 24, 24, 9, 11, 3, 1, 1, 1, 24, true},
    {"depthwise_stride", 2, 19, 19, 8, 9, 5, 2, 2, 1, 19, true},
    {"depthwise_dilation", 1, 16, 16, 12, 13, 3, 1, 2, 2, 16, true},
    {"depthwise_wide", 2, 33, 33, 6, 40, 7, 1, 3, 1, 33, true},
};

enum class Lies { row_major, channels_last, slice };

class ShortConv : public ::testing::TestWithParam<std::tuple<ConvCase, DType, Lies>> {};

Tensor image(uint64_t seed, const Shape& s, Lies lies, DType t) {
  manual_seed(seed);
  if (lies == Lies::row_major) return randn(s).to(t);
  const int64_t more = lies == Lies::slice ? 3 : 0;  // other channels
  const Tensor x = randn({s[0], s[2], s[3], s[1] + more}).to(t).permute({0, 3, 1, 2});
  return x.narrow(1, more / 2, s[1].value());
}

TEST_P(ShortConv, DerivativesEqualFloats) {
  const ConvCase& k = std::get<0>(GetParam());
  const DType dtype = std::get<1>(GetParam());
  const Lies lies = std::get<2>(GetParam());
  const NoGradGuard no_grad;
  const auto loc = SourceLocation::here();
  ConvAttrs a{{k.stride, k.stride},     {k.padding, k.padding},
              {k.dilation, k.dilation}, k.groups,
              {k.padding, k.padding},   {}};
  const Tensor x = image(1, {k.n, k.c, k.h, k.w}, lies, dtype);
  const Tensor w = image(2, {k.o, k.c / k.groups, k.kernel, k.kernel}, Lies::row_major, dtype);
  const Tensor y = call(op::conv, &a, loc, x, w);
  const Tensor gy = image(3, y.shape(), lies, dtype);
  const auto compare = [&](const OpDef& row, IntList size, const Tensor& p, const Tensor& q) {
    ConvAttrs b = a;
    b.size = size;
    const Tensor got = call(row, &b, loc, p, q);
    const Tensor want = call(row, &b, loc, p.to(DType::f32), q.to(DType::f32));
    ASSERT_EQ(got.dtype(), dtype);
    const double bound =
        k.equal ? 0 : std::ldexp(max(abs(want)).item<float>(), dtype == DType::bf16 ? -7 : -9);
    EXPECT_LE(max(abs(got.to(DType::f32) - want.to(dtype).to(DType::f32))).item<float>(), bound)
        << row.name;
  };
  compare(op::conv_backward_weight, {k.kernel, k.kernel}, x, gy);
  compare(op::conv_backward_input, {k.h, k.w}, gy, w);
}

INSTANTIATE_TEST_SUITE_P(
    All, ShortConv,
    ::testing::Combine(::testing::ValuesIn(kConvCases), ::testing::Values(DType::bf16, DType::f16),
                       ::testing::Values(Lies::row_major, Lies::channels_last, Lies::slice)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" +
             std::string(to_string(std::get<1>(info.param))) + "_" +
             std::to_string(static_cast<int>(std::get<2>(info.param)));
    });

// Sums of rows in bf16 are rounded after each addition, as one element after the other would be.
TEST(ShortFloats, RowsAddedByIndexRoundEachTime) {
  manual_seed(4);
  const int64_t rows = 5, columns = 21, places = 40;
  const Tensor v = randn({places, columns}).to(DType::bf16);
  const Tensor infinity = full({1, columns}, std::numeric_limits<double>::infinity());
  const Tensor nan = full({1, columns}, std::nan(""));
  const Tensor special =
      cat({infinity, nan, v.to(DType::f32)}, 0).narrow(0, 0, places).to(DType::bf16);
  const Tensor at = randint(0, rows, {places});
  for (const Tensor& value : {v, special}) {
    const Tensor got = index_put(zeros({rows, columns}, DType::bf16), {at}, value, true);
    const std::vector<float> from = value.to(DType::f32).to_vector<float>();
    const std::vector<int64_t> row = at.to_vector<int64_t>();
    std::vector<float> want(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < row.size(); ++i)
      for (size_t j = 0; j < static_cast<size_t>(columns); ++j) {
        float& sum = want[static_cast<size_t>(row[i]) * static_cast<size_t>(columns) + j];
        sum = BFloat16(sum + from[i * static_cast<size_t>(columns) + j]);
      }
    const std::vector<float> sums = got.to(DType::f32).to_vector<float>();
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(sums[i] == want[i] || (std::isnan(sums[i]) && std::isnan(want[i]))) << i;
  }
}

}  // namespace
}  // namespace tandem
