// SPDX-License-Identifier: Apache-2.0
// ONNX's Resize and Upsample: one axis after the other, each result a weighted sum of a few
// neighbours. The opsets differ in the position of a result's centre, in the neighbours that count
// and in how sizes are given.
#include <algorithm>
#include <cmath>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

struct Rules {
  std::string mode, coordinates, nearest;
  double cubic_a = -0.75, outside = 0;
  bool antialias = false, exclude_outside = false;
};

/// The position of result `i` of an axis in the input.
double source(const Rules& r, double i, double scale, double in, int64_t out, double start,
              double end) {
  const double wanted = scale * in;
  if (r.coordinates == "asymmetric") return i / scale;
  if (r.coordinates == "align_corners") return wanted == 1 ? 0 : i * (in - 1) / (wanted - 1);
  if (r.coordinates == "pytorch_half_pixel" && out == 1) return -0.5;
  if (r.coordinates == "half_pixel" || r.coordinates == "pytorch_half_pixel")
    return (i + 0.5) / scale - 0.5;
  if (r.coordinates == "half_pixel_symmetric")
    return in / 2 * (1 - static_cast<double>(out) / wanted) + (i + 0.5) / scale - 0.5;
  if (r.coordinates == "tf_half_pixel_for_nn") return (i + 0.5) / scale;
  TD_CHECK(r.coordinates == "tf_crop_and_resize", Unsupported, "there is no mode '{}'",
           r.coordinates);
  const double first = start * (in - 1);
  return wanted <= 1 ? first + (end - start) * (in - 1) / 2
                     : first + i * (end - start) * (in - 1) / (wanted - 1);
}

double cubic(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

/// Weights of neighbours first, first + 1, ... of a source position.
struct Taps {
  int64_t first;
  std::vector<double> weights;
};

constexpr double kFar = 1e12;  ///< outside of any axis

Taps taps(const Rules& r, double at, double scale) {
  if (!(std::fabs(at) < kFar)) at = at < 0 ? -kFar : kFar;
  const double below = std::floor(at);
  // A position exactly on a pixel counts as the right end of the pixels before it.
  const double ratio = at == below ? 1 : at - below;
  const auto left = static_cast<int64_t>(at == below ? below - 1 : below);
  if (r.mode == "nearest") {
    const bool right = ratio == 1                         ? true
                       : r.nearest == "floor"             ? false
                       : r.nearest == "ceil"              ? true
                       : r.nearest == "round_prefer_ceil" ? ratio >= 0.5
                                                          : ratio > 0.5;
    return {left + right, {1}};
  }
  const double shrink = r.antialias ? std::min(scale, 1.0) : 1.0;
  const bool linear = r.mode == "linear";
  TD_CHECK(linear || r.mode == "cubic", Unsupported, "there is no mode '{}'", r.mode);
  check_onnx_loop(4 / shrink, 4 * sizeof(double));
  const auto start = static_cast<int64_t>(std::floor((linear ? -1 : -2) / shrink)) + 1;
  const int64_t end = 2 - start;
  Taps t{left + start, {}};
  double total = 0;
  for (int64_t i = start; i < end; ++i) {
    const double x = shrink * (static_cast<double>(i) - ratio);
    t.weights.push_back(linear ? std::max(0.0, 1 - std::fabs(x)) : cubic(x, r.cubic_a));
    total += t.weights.back();
  }
  if (r.antialias)
    for (double& w : t.weights) w /= total;
  return t;
}

Tensor resize_axis(const Tensor& x, int d, const Rules& r, double scale, int64_t out, double start,
                   double end) {
  const int64_t in = x.size(d);
  if (out == 0) return x.narrow(d, 0, 0);
  TD_CHECK(in > 0, Shape, "a dimension of size 0 cannot be resized");
  std::vector<std::vector<int64_t>> index;
  std::vector<std::vector<double>> weight;
  std::vector<uint8_t> outside;
  for (int64_t i = 0; i < out; ++i) {
    const double at =
        source(r, static_cast<double>(i), scale, static_cast<double>(in), out, start, end);
    outside.push_back(r.coordinates == "tf_crop_and_resize" &&
                      (at < 0 || at > static_cast<double>(in - 1)));
    Taps t = taps(r, at, scale);
    double total = 0;
    for (size_t k = 0; k < t.weights.size(); ++k) {
      const int64_t j = t.first + static_cast<int64_t>(k);
      if (r.exclude_outside && (j < 0 || j >= in)) t.weights[k] = 0;
      total += t.weights[k];
    }
    if (i == 0)
      check_onnx_loop(static_cast<double>(t.weights.size()) * static_cast<double>(out),
                      2 * (sizeof(int64_t) + sizeof(double)));
    index.resize(t.weights.size());
    weight.resize(t.weights.size());
    for (size_t k = 0; k < t.weights.size(); ++k) {
      index[k].push_back(std::clamp<int64_t>(t.first + static_cast<int64_t>(k), 0, in - 1));
      weight[k].push_back(r.exclude_outside && total != 0 ? t.weights[k] / total : t.weights[k]);
    }
  }
  Shape column;
  for (int e = 0; e < x.dim(); ++e) column.push_back(e == d ? out : 1);
  Tensor y;
  for (size_t k = 0; k < index.size(); ++k) {
    Tensor part = index_select(x, d, tensor(index[k]));
    if (index.size() > 1) part = part * tensor(weight[k]).reshape(column).to(x.dtype());
    y = y.defined() ? y + part : part;
  }
  if (std::find(outside.begin(), outside.end(), 1) != outside.end())
    y = where(tensor(outside).reshape(column).to(DType::b8), r.outside, y).to(x.dtype());
  return y;
}

struct Sizes {
  std::vector<double> scale;
  std::vector<int64_t> out;
  std::vector<bool> chosen;
};

Sizes sizes_of(const OnnxCall& c, const Tensor& x, const std::vector<int64_t>& axes,
               const std::vector<double>& scales, const std::vector<int64_t>& wanted) {
  Sizes s;
  for (int d = 0; d < x.dim(); ++d) s.out.push_back(x.size(d));
  s.scale.assign(s.out.size(), 1);
  s.chosen.assign(s.out.size(), false);
  const size_t given = wanted.empty() ? scales.size() : wanted.size();
  TD_CHECK(given == axes.size(), Value, "expected {} scales or sizes, got {}", axes.size(), given);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(normalize_dim(axes[i], x.dim()));
    const auto in = static_cast<double>(s.out[d]);
    s.chosen[d] = true;
    s.scale[d] = wanted.empty() ? scales[i] : static_cast<double>(wanted[i]) / in;
    TD_CHECK(!wanted.empty() || (s.scale[d] > 0 && s.scale[d] < 1e6), Value,
             "expected positive scales, got {}", s.scale[d]);
    TD_CHECK(wanted.empty() || (wanted[i] >= 0 && in > 0), Shape, "asks for the size {}",
             wanted[i]);
    s.out[d] = wanted.empty() ? static_cast<int64_t>(std::floor(in * scales[i])) : wanted[i];
  }
  const std::string policy = c.attr_choice("keep_aspect_ratio_policy", "stretch",
                                           {"stretch", "not_larger", "not_smaller"});
  if (wanted.empty() || policy == "stretch") return s;
  double best = -1;
  for (size_t d = 0; d < s.out.size(); ++d)
    if (s.chosen[d])
      best = best < 0                 ? s.scale[d]
             : policy == "not_larger" ? std::min(best, s.scale[d])
                                      : std::max(best, s.scale[d]);
  for (size_t d = 0; d < s.out.size(); ++d)
    if (s.chosen[d]) {
      s.scale[d] = best;
      s.out[d] =
          static_cast<int64_t>(best * static_cast<double>(x.size(static_cast<int64_t>(d))) + 0.5);
    }
  return s;
}

// Each pixel of x [n, c, ...] a whole number of times: the row interpolate.
bool repeats_pixels(const Rules& r, const Tensor& x, const Sizes& s) {
  if (r.mode != "nearest" || r.coordinates != "asymmetric" || r.nearest != "floor" ||
      !is_floating(x.dtype()) || x.dim() < 3 || x.dim() > 5)
    return false;
  for (int d = 0; d < x.dim(); ++d) {
    const auto k = static_cast<size_t>(d);
    const int64_t in = x.size(d), times = in > 0 ? s.out[k] / in : 0;
    if (times < 1 || s.out[k] != times * in || s.scale[k] != static_cast<double>(times) ||
        (d < 2 && times != 1))
      return false;
  }
  return true;
}

void resize_with(OnnxCall& c, const Rules& r, const std::vector<double>& scales,
                 const std::vector<int64_t>& wanted, const std::vector<double>& roi) {
  const Tensor x = c.x(0);
  std::vector<int64_t> axes = c.attr_ints("axes");
  if (!c.attribute("axes"))
    for (int64_t d = 0; d < x.dim(); ++d) axes.push_back(d);
  const Sizes s = sizes_of(c, x, axes, scales, wanted);
  onnx_shape(s.out);
  if (repeats_pixels(r, x, s)) {
    IntList size;
    for (size_t d = 2; d < s.out.size(); ++d) size.push_back(s.out[d]);
    return c.set(0, interpolate(x, {.size = size}), c.type(0));
  }
  const bool exact = r.mode == "nearest";
  Tensor y = exact || x.dtype() == DType::f64 ? x : x.to(DType::f32);
  const bool crops = r.coordinates == "tf_crop_and_resize";
  TD_CHECK(!crops || roi.size() == 2 * axes.size(), Value,
           "expected {} numbers of a region, got {}", 2 * axes.size(), roi.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    const int d = normalize_dim(axes[i], x.dim());
    const auto k = static_cast<size_t>(d);
    const double start = crops ? roi[i] : 0, end = crops ? roi[i + axes.size()] : 1;
    if (s.scale[k] == 1 && s.out[k] == y.size(d) && start == 0 && end == 1) continue;
    y = resize_axis(y, d, r, s.scale[k], s.out[k], start, end);
  }
  c.set(0, y.to(x.dtype()), c.type(0));
}

void resize_of(OnnxCall& c) {
  Rules r{
      c.attr_text("mode", "nearest"),
      c.attr_text("coordinate_transformation_mode", c.version() < 11 ? "asymmetric" : "half_pixel"),
      c.attr_choice("nearest_mode", c.version() < 11 ? "floor" : "round_prefer_floor",
                    {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}),
      c.attr_float("cubic_coeff_a", -0.75),
      c.attr_float("extrapolation_value", 0),
      c.attr("antialias", 0) != 0,
      c.attr("exclude_outside", 0) != 0};
  if (c.version() < 11) return resize_with(c, r, c.numbers(1), {}, {});
  std::vector<int64_t> sizes;
  if (c.has(3)) sizes = c.ints(3);
  resize_with(c, r, c.numbers(2), sizes, c.numbers(1));
}

void upsample(OnnxCall& c) {
  const Rules r{c.attr_text("mode", "nearest"), "asymmetric", "floor"};
  std::vector<double> scales = c.numbers(1);
  if (c.version() < 9)
    for (const float f : c.attr_floats("scales")) scales.push_back(f);
  if (c.version() < 7)
    scales = {1, 1, c.attr_float("height_scale", 1), c.attr_float("width_scale", 1)};
  resize_with(c, r, scales, {}, {});
}

}  // namespace

std::span<const OnnxRow> onnx_resize_rows() {
  static constexpr OnnxRow kRows[] = {
      settings_from(1,
                    {"",
                     "Resize",
                     10,
                     0,
                     resize_of,
                     {4, 1,
                      "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside "
                      "extrapolation_value keep_aspect_ratio_policy mode nearest_mode"},
                     &op::interpolate,
                     export_interpolate}),
      settings_from(
          1, {"", "Upsample", 1, 9, upsample, {2, 1, "height_scale mode scales width_scale"}}),
      exported(op::interpolate_backward, export_interpolate_backward),
  };
  return kRows;
}

}  // namespace tandem::onnx
