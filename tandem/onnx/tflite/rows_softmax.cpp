// SPDX-License-Identifier: Apache-2.0
// The row "Softmax" of the domain "tflite": softmax over the last dimension of 16-bit codes, with
// the integers of TFLite's reference kernel. Its inputs are the codes and two tables of 65,536
// entries: exp over -10 to 0, and 1 / (1 + x) over 0 to 1.
#include "tandem/onnx/tflite/fixed_point_internal.h"
#include "tandem/onnx/tflite/rows_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

Tensor table_entries(const Tensor& table, const Tensor& x) {
  return tflite_entries(table, clamp(x, kFirstShort, kLastShort), kFirstShort).to(DType::i64);
}

}  // namespace

Tensor tflite_highest_bit(const Tensor& v) {
  const Tensor powers = arange(1, 31, 1, DType::i64);
  const Tensor limits = bitwise_left_shift(ones_like(powers), powers);
  return (v.unsqueeze(-1) >= limits).to(DType::i64).sum({-1});
}

void tflite_softmax_row(OnnxCall& c) {
  const std::vector<int64_t> f = c.attr_ints("factor", {0, 0});
  TD_CHECK(is_tflite_factor(f), Value, "its factor is none");
  const Tensor x = c.x(0).to(DType::i64);
  const Tensor below = x - amax(x, IntList{-1}, true);
  const Tensor powers = table_entries(c.x(1), tflite_times_factor(below, f[0], f[1]) + kLastShort);
  const Tensor sum = powers.sum(IntList{-1}, true), bit = tflite_highest_bit(sum);
  // The sum as 1 to 2 times a power of two, of which the inverse is looked up.
  constexpr int64_t kWidth = 30, kLess = 14, kOne = 3 << 15;
  const Tensor part =
      bitwise_right_shift(bitwise_left_shift(sum, kWidth - bit) + (1 << (kLess - 1)), kLess);
  const Tensor inverse = table_entries(c.x(2), part - kOne);
  const Tensor half = bitwise_left_shift(ones_like(bit), bit - 1);
  const Tensor y = clamp(bitwise_right_shift(powers * inverse + half, bit), 0, kLastShort);
  c.set(0, y.to(DType::i16), OnnxType::i16);
}

}  // namespace tandem::onnx
