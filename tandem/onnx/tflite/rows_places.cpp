// SPDX-License-Identifier: Apache-2.0
// Rows of the domain "tflite" that read and write by place: codes resized, a slice exchanged.
#include <algorithm>

#include "tandem/onnx/import/run_internal.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/onnx/tflite/rows_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr int64_t kFine = 1024;  ///< steps between two pixels

/// Along one dimension: the pixels before and after each new one, and how far it is behind the
/// first, in steps.
struct FinePlaces {
  Tensor before, after, steps;
};

FinePlaces fine_places(int64_t from, int64_t to, bool corners, bool half) {
  TD_CHECK(from > 0 && to > 0, Shape, "cannot resize {} pixels to {}", from, to);
  check_onnx_loop(static_cast<double>(to), 3 * sizeof(int64_t));
  const int64_t scale = corners && to > 1 ? (kFine * (from - 1) + (to - 1) / 2) / (to - 1)
                                          : (kFine * from + to / 2) / to;
  std::vector<int64_t> before, after, steps;
  for (int64_t i = 0; i < to; ++i) {
    const int64_t at = half ? i * scale + scale / 2 - kFine / 2 : i * scale;
    before.push_back(std::clamp<int64_t>(at / kFine, 0, from - 1));
    after.push_back(std::clamp<int64_t>((at + kFine - 1) / kFine, 0, from - 1));
    steps.push_back(at - kFine * before.back());
  }
  const OutsideTrace outside;
  return {tensor(before), tensor(after), tensor(steps)};
}

}  // namespace

// Signed codes are weighted in integers, halves rounded away from zero; u8 in floats, halves up.
void tflite_resize_row(OnnxCall& c) {
  const bool corners = c.attr("align_corners", 0), half = c.attr("half_pixel_centers", 0);
  const std::vector<int64_t> sizes = c.ints(1);
  const Tensor codes = c.x(0);
  TD_CHECK(sizes.size() == 2 && codes.dim() == 4, Shape, "expected [n, h, w, c] and two sizes");
  check_onnx_size(onnx_shape({codes.size(0), sizes[0], sizes[1], codes.size(3)}), 8);
  if (c.type(0) == OnnxType::u8) {
    const Tensor y =
        run_as_tf(c, "ResizeBilinear", {OnnxValue(codes.to(DType::f32)), c.value(1)},
                  {onnx_int("align_corners", corners), onnx_int("half_pixel_centers", half)})[0]
            .tensor();
    return c.set(0, floor(y + 0.5).to(codes.dtype()), c.type(0));
  }
  const FinePlaces y = fine_places(codes.size(1), sizes[0], corners, half),
                   x = fine_places(codes.size(2), sizes[1], corners, half);
  const Tensor wide = codes.to(DType::i64);
  const Tensor right = constant(x.steps).reshape({-1, 1}),
               low = constant(y.steps).reshape({-1, 1, 1});
  const auto row = [&](const Tensor& at) {
    const Tensor r = wide.index_select(1, constant(at));
    return r.index_select(2, constant(x.before)) * (kFine - right) +
           r.index_select(2, constant(x.after)) * right;
  };
  const Tensor sum = row(y.before) * (kFine - low) + row(y.after) * low;
  const Tensor size = bitwise_right_shift(abs(sum) + kFine * kFine / 2, 20);
  c.set(0, where(sum > 0, size, -size).to(codes.dtype()), c.type(0));
}

// A block of x exchanged for input 1, at the place that input 2 names; it is moved to lie inside.
void tflite_update_row(OnnxCall& c) {
  const Tensor x = c.x(0), block = c.x(1);
  const std::vector<int64_t> at = c.ints(2);
  TD_CHECK(block.dim() == x.dim() && at.size() == static_cast<size_t>(x.dim()), Shape,
           "a block {} at {} indices does not fit {}", block.shape().to_string(), at.size(),
           x.shape().to_string());
  Tensor y = block;
  for (int d = x.dim() - 1; d >= 0; --d) {
    // y has all of x from dimension d + 1 on, and the block's sizes before.
    Tensor around = x;
    for (int k = 0; k <= d; ++k) {
      TD_CHECK(block.size(k) <= x.size(k), Shape, "a block {} does not fit {}",
               block.shape().to_string(), x.shape().to_string());
      const int64_t from =
          std::clamp<int64_t>(at[static_cast<size_t>(k)], 0, x.size(k) - block.size(k));
      if (k < d) around = narrow(around, k, from, block.size(k));
      if (k < d) continue;
      std::vector<Tensor> parts;
      const int64_t end = from + block.size(k), size = x.size(k);
      if (from > 0) parts.push_back(narrow(around, k, 0, from));
      parts.push_back(y);
      if (end < size) parts.push_back(narrow(around, k, end, size - end));
      y = parts.size() == 1 ? y : cat(parts, k);
    }
  }
  c.set(0, y, c.type(0));
}

}  // namespace tandem::onnx
