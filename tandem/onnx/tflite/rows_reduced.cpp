// SPDX-License-Identifier: Apache-2.0
// Rows of the domain "tflite" that reduce codes: sums, means, products, shares and unit lengths, in
// i64 with the roundings of TFLite's reference kernels.
#include <algorithm>
#include <bit>

#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/onnx/tflite/rows_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr int64_t kMostWide = 2147483647;

/// Input 1 as dimensions of x, each once, in their order.
std::vector<int64_t> reduced_dims(const OnnxCall& c, const Tensor& x) {
  std::vector<int64_t> out;
  for (const int64_t axis : c.ints(1)) {
    const int64_t d = axis < 0 ? axis + x.dim() : axis;
    TD_CHECK(d >= 0 && d < x.dim(), Shape, "axis {} of {}", axis, x.shape().to_string());
    if (std::find(out.begin(), out.end(), d) == out.end()) out.push_back(d);
  }
  std::sort(out.begin(), out.end());
  return out;
}
int64_t reduced_size(const Tensor& x, const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= x.size(static_cast<int>(d));
  return n;
}

/// a * b / 2^31 of any signs: halves up, as numbers of 32 bits with a point before the first.
Tensor times_wide(const Tensor& a, const Tensor& b) {
  return bitwise_right_shift(a * b + (int64_t{1} << 30), 31);
}
Tensor two_to(const Tensor& power) { return bitwise_left_shift(ones_like(power), power); }

/// 1 / (1 + a), of shares of 2^31: fixed_inverse() of tensors.
Tensor inverse_of_more(const Tensor& a) {
  constexpr int64_t kFirst = 1515870810, kSlope = -1010580540, kOne = int64_t{1} << 29;
  const Tensor half = bitwise_right_shift(a + (kMostWide + 1), 1);
  Tensor x = bitwise_right_shift(half * kSlope + (int64_t{1} << 30), 31) + kFirst;
  for (int i = 0; i < 3; ++i) x = x + times_wide(x, kOne - times_wide(half, x)) * 4;
  return clamp_max(x * 2, kMostWide);
}

/// fixed_inverse_root() of tensors: multipliers and how far to shift right.
std::pair<Tensor, Tensor> inverse_root(const Tensor& v) {
  // A power of 4 that brings numbers from 2^27 to 2^29; larger ones have bits cut off.
  Tensor in = clamp_min(v, 2), shift = full_like(v, 11);
  const Tensor over = clamp_min(bitwise_right_shift(tflite_highest_bit(in) - 27, 1), 0);
  in = bitwise_right_shift(in, over * 2);
  const Tensor pairs = bitwise_right_shift(30 - tflite_highest_bit(in), 1) - 1;
  shift = shift + over - pairs;
  in = bitwise_right_shift(bitwise_left_shift(in, pairs * 2), 1);
  const Tensor half = bitwise_right_shift(in + 1, 1);
  constexpr int64_t kThreeHalves = (int64_t{1} << 28) + (int64_t{1} << 27);
  Tensor x = full_like(v, int64_t{1} << 28);
  for (int i = 0; i < 5; ++i) {
    const Tensor cube = clamp(times_wide(times_wide(x, x), x) * 64, -kMostWide - 1, kMostWide);
    const Tensor own = bitwise_right_shift(x * kThreeHalves + (int64_t{1} << 30), 31);
    x = clamp((own - times_wide(half, cube)) * 8, -kMostWide - 1, kMostWide);
  }
  Tensor y = bitwise_right_shift(x * int64_t{1518500250} + (int64_t{1} << 30), 31);
  y = bitwise_left_shift(y, clamp_min(-shift, 0));
  const Tensor small = v <= 1;
  return {where(small, kMostWide, y), where(small, 0, clamp_min(shift, 0))};
}

}  // namespace

void tflite_reduce_row(OnnxCall& c) {
  std::vector<int64_t> f = c.attr_ints("factor", {0, 0});
  TD_CHECK(is_tflite_factor(f), Value, "its factor is none");
  const Tensor x = tflite_code_less(c, 0, c.attr("from", 0));
  const std::vector<int64_t> dims = reduced_dims(c, x);
  const Tensor sums = dims.empty() ? x : sum(x, IntList(dims), c.attr("keep_dims", 0) != 0);
  const int64_t n = reduced_size(x, dims);
  if (c.attr("mean", 0) && n > 0) {
    const auto bits = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(n))) - 1;
    const int64_t shift = std::min({bits, int64_t{32}, 31 + f[1]});
    f = {(f[0] << shift) / n, f[1] - shift};
  }
  tflite_set_bounded(c, tflite_times_factor(sums, f[0], f[1]));
}

void tflite_reduce_prod_row(OnnxCall& c) {
  const std::vector<int64_t> f = c.attr_ints("factor", {0, 0});
  TD_CHECK(is_tflite_factor(f) && f[1] < 15, Value, "its factor is none");
  const Tensor x = tflite_code_less(c, 0, c.attr("from", 0));
  const std::vector<int64_t> dims = reduced_dims(c, x);
  std::vector<int64_t> order = dims, shape;
  for (int64_t d = 0; d < x.dim(); ++d) {
    const bool gone = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (!gone) order.push_back(d);
    if (!gone || c.attr("keep_dims", 0)) shape.push_back(gone ? 1 : x.size(static_cast<int>(d)));
  }
  const int64_t n = reduced_size(x, dims);
  TD_CHECK(n > 0, Shape, "a product of nothing");
  check_onnx_loop(static_cast<double>(n));
  const Tensor parts = permute(x, IntList(order)).reshape(Shape{n, -1});
  const auto scaled = [&](const Tensor& v) {  // it has 32 bits, and wraps around
    return tflite_times_short(v, f[0], f[1]).to(DType::i32).to(DType::i64);
  };
  Tensor y = parts.select(0, 0);
  for (int64_t k = 1; k < n; ++k) y = scaled(y * parts.select(0, k));
  tflite_set_bounded(c, scaled(y).reshape(onnx_shape(shape)));
}

void tflite_softmax_bytes_row(OnnxCall& c) {
  const auto type = static_cast<OnnxType>(c.attr("to", static_cast<int64_t>(OnnxType::i8)));
  const OnnxTypeInfo& info = info_of(type);
  const Tensor x = c.x(0).to(DType::i64);
  const Tensor powers = tflite_entries(c.x(1), amax(x, IntList{-1}, true) - x, 0).to(DType::i64);
  // The sum has 12 bits before the point; it is 1 to 2 times a power of two.
  const Tensor sums = sum(bitwise_right_shift(powers + (1 << 11), 12), IntList{-1}, true);
  const Tensor bit = tflite_highest_bit(sums);
  const Tensor inverse = inverse_of_more(sums * two_to(31 - bit) - (int64_t{1} << 31));
  const Tensor right = bit + (12 - info.bits);
  const Tensor y = bitwise_right_shift(times_wide(powers, inverse) + two_to(right - 1), right);
  const double span = static_cast<double>(int64_t{1} << info.bits),
               low = info.is_signed ? -span / 2 : 0;
  c.set(0, clamp(y + static_cast<int64_t>(low), low, low + span - 1).to(info.carrier), type);
}

void tflite_l2_norm_row(OnnxCall& c) {
  const Tensor x = tflite_code_less(c, 0, c.attr("from", 0));
  const auto [root, right] = inverse_root(sum(x * x, IntList{-1}, true));
  const bool bytes = c.type(0) == OnnxType::u8;
  // u8 is multiplied by 128 at first, i8 at last.
  const Tensor y =
      bytes ? tflite_times_factor(x * 128, root, -right) : tflite_times_factor(x, root, 7 - right);
  const int64_t middle = bytes ? 128 : 0;
  c.set(0, clamp(y + middle, middle - 128, middle + 127).to(c.x(0).dtype()), c.type(0));
}

// Inputs x [n, k], a filter [f, k], what each filter weighs its last steps with [f, s], the memory
// [n, f * s] and a bias. Each result adds up `rank` filters.
void tflite_svdf_row(OnnxCall& c) {
  const std::vector<int64_t> first = c.attr_ints("first", {0, 0}),
                             second = c.attr_ints("second", {0, 0});
  TD_CHECK(is_tflite_factor(first) && is_tflite_factor(second), Value, "its factors are none");
  const Tensor x = c.x(0), w = c.x(1), time = c.x(2).to(DType::i64), memory = c.x(3);
  const int64_t rank = c.attr("rank", 1);
  TD_CHECK(x.dim() == 2 && w.dim() == 2 && time.dim() == 2 && memory.dim() == 2 &&
               x.size(1) == w.size(1) && time.size(0) == w.size(0) && rank > 0 &&
               w.size(0) % rank == 0 && memory.size(0) == x.size(0) && time.size(1) > 0 &&
               memory.size(1) == time.size(0) * time.size(1),
           Shape, "x {}, filters {}, weights of steps {} and a memory {} do not fit",
           x.shape().to_string(), w.shape().to_string(), time.shape().to_string(),
           memory.shape().to_string());
  const double from = static_cast<double>(c.attr("from", 0));
  const Tensor products =
      matmul(x.to(DType::f64) - from, w.to(DType::f64).transpose(0, 1)).to(DType::i64);
  const Tensor now = clamp(tflite_times_factor(products, first[0], first[1]), -32768, 32767);
  const Tensor before = memory.to(DType::i64).reshape(Shape{x.size(0), w.size(0), time.size(1)});
  const Tensor after = cat({before.narrow(2, 1, time.size(1) - 1), now.unsqueeze(2)}, 2);
  Tensor y = sum(after * time, IntList{2}, false).reshape(Shape{x.size(0), w.size(0) / rank, rank});
  y = sum(y, IntList{2}, false);
  if (c.has(4)) y = y + c.x(4).to(DType::i64);
  tflite_set_bounded(c, tflite_times_factor(y, second[0], second[1]));
  c.set(1, after.reshape(memory.shape()).to(DType::i16), OnnxType::i16);
}

}  // namespace tandem::onnx
