// SPDX-License-Identifier: Apache-2.0
// Rows from outside the library whose reference has loops for some dtypes only: the others are
// converted or rejected, and nothing is read out of bounds.
#include <gtest/gtest.h>

#include "tandem/graph/apply.h"
#include "tandem/graph/infer.h"
#include "tandem/tandem.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::reference_dtypes {
namespace {

// As written by somebody who thought of dense f32 alone; i64 counts as data, too.
void scaled_loops(const KernelCall& c) {
  const float* x = c.in[0].as<float>();
  for (int64_t i = 0; i < c.in[0].numel; ++i)
    c.out[0].as<float>()[i] = x[i] * 3 + c.in[1].as<int64_t>()[0];
}
constinit const OpDef scaled_row = index_row("test_scaled", {"x", "n"})
                                       .infer([](InferCall& c) { c.out[0] = c.in[0]; })
                                       .reference(scaled_loops, {DType::f32, DType::i64})
                                       .doc("3 x + n[0], by loops for f32.");

Tensor scaled(const Tensor& x, const Tensor& n) {
  register_op(scaled_row);
  return call(scaled_row, nullptr, SourceLocation::here(), x, n);
}

TEST(ReferenceDTypes, SixteenBitFloatsGoThroughF32) {
  const Tensor x = arange(12).to(float32).reshape({3, 4}) * 0.5, n = full({1}, 7, int64);
  EXPECT_TRUE(same_bits(scaled(x, n), x * 3.0 + 7.0));
  for (DType t : {float16, bfloat16}) {
    const Tensor y = x.to(t);
    EXPECT_TRUE(same_bits(scaled(y, n), (x * 3.0 + 7.0).to(t)));
    // Strides are gone from the copy.
    EXPECT_TRUE(same_bits(scaled(y.transpose(0, 1), n),
                          (x.transpose(0, 1) * 3.0 + 7.0).to(t).contiguous()));
    EXPECT_EQ(scaled(zeros({0, 4}, t), n).shape(), Shape(0, 4));
  }
}

TEST(ReferenceDTypes, CompiledCallsConvertAsWell) {
  const Tensor x = arange(6).to(bfloat16), n = full({1}, 2, int64);
  auto f = compile([](Tensor a, Tensor b) { return scaled(a, b); });
  EXPECT_TRUE(same_bits(f(x, n), scaled(x, n)));
}

TEST(ReferenceDTypes, OthersAreRejected) {
  const Tensor n = full({1}, 7, int64);
  for (DType t : {float64, int32, int8, boolean}) {
    const std::string text = thrown([&] { scaled(zeros({3}, t), n); }, ErrorKind::DType);
    EXPECT_TRUE(has(text, std::string("'x' is ") + to_string(t))) << text;
    EXPECT_TRUE(has(text, "takes float32, int64")) << text;
  }
  const std::string text = thrown([&] { scaled(zeros({3}), n.to(int32)); }, ErrorKind::DType);
  EXPECT_TRUE(has(text, "'n' is int32")) << text;
}

}  // namespace
}  // namespace tandem::reference_dtypes
