// SPDX-License-Identifier: Apache-2.0
// Rows of the domain "keras": parts of Keras's layers that depend on the sizes of their inputs, and
// activations that no other row expresses.
#include <algorithm>
#include <cmath>

#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

// ---- activations

void keras_glu(OnnxCall& c) { c.set_like(0, glu(c.x(0), c.attr("axis", -1))); }
void keras_sparse_sigmoid(OnnxCall& c) { c.set_like(0, clamp(0.5 * (c.x(0) + 1), 0, 1)); }
void keras_sparse_plus(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set_like(0, where(x <= -1, 0, where(x < 1, 0.25 * square(x + 1), x)));
}
void keras_squareplus(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set_like(0, 0.5 * (x + sqrt(square(x) + c.attr_float("b", 4))));
}
// As Keras computes it: unlike Martins and Astudillo (2016), it adds up the running sums.
void keras_sparsemax(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int d = normalize_dim(c.attr("axis", -1), x.dim());
  const Tensor sorted = sort(x, d, true).values, sums = cumsum(sorted, d);
  Shape s(x.size(d));
  for (int k = d + 1; k < x.dim(); ++k) s.push_back(1);
  const Tensor k = constant(arange(1, x.size(d) + 1)).to(x.dtype()).reshape(s);
  const Tensor kept = (1 + k * sorted > sums).to(x.dtype());
  const Tensor n = sum(kept, {d}, true), total = sum(sums * kept, {d}, true);
  c.set_like(0, clamp_min(x - (total - 1) / n, 0));
}
void keras_relu(OnnxCall& c) {
  const Tensor x = c.x(0);
  const double t = c.attr_float("threshold", 0), most = c.attr_float("max_value", INFINITY);
  Tensor above = x;
  if (std::isfinite(most)) above = clamp_max(above, most);
  c.set_like(0, where(x >= t, above, c.attr_float("negative_slope", 0) * (x - t)));
}

// With a mask, what is masked gets no share.
void keras_softmax(OnnxCall& c) {
  Tensor x = c.x(0);
  IntList axes;
  for (const int64_t a : c.attr_ints("axes", {-1})) axes.push_back(normalize_dim(a, x.dim()));
  if (c.has(1)) {
    Tensor mask = c.x(1);
    if (mask.dim() < x.dim()) {
      Shape s;
      for (int d = 0; d < x.dim(); ++d) s.push_back(d < mask.dim() ? mask.shape(d) : Dim(1));
      if (mask.dim() != 2 || x.dim() != 3 || mask.size(-1) == x.size(-1)) s = mask.shape();
      mask = mask.reshape(s);
    }
    x = where(mask != 0, x, x - 3.4028234e38 / 2);
  }
  if (axes.size() == 1) {
    c.set_like(0, softmax(x, axes[0].value()));
    return;
  }
  const Tensor e = exp(x - amax(x, axes, true));
  c.set_like(0, e / sum(e, axes, true));
}

// ---- steps and masks

struct StepMask {
  Tensor on;  ///< [batch, steps] of 0 and 1, in the order of use
  bool backwards;
  explicit StepMask(const OnnxCall& c, size_t input) : backwards(c.attr("backwards", 0) != 0) {
    on = (c.x(input) != 0).to(DType::i64);
    TD_CHECK(on.dim() == 2, Shape, "expects a mask [batch, steps], got {}", on.shape().to_string());
    if (backwards) on = flip(on, {1});
  }
  Tensor turned(const Tensor& x) const { return backwards ? flip(x, {1}) : x; }
};

/// x[b, index[b, t], ...]
Tensor take_steps(const Tensor& x, const Tensor& index) {
  Shape s = index.shape();
  for (int d = 2; d < x.dim(); ++d) s.push_back(1);
  return take_along_dim(x, index.reshape(s), 1);
}
Tensor wide_as(const Tensor& flags, const Tensor& x) {
  Shape s = flags.shape();
  for (int d = 2; d < x.dim(); ++d) s.push_back(1);
  return flags.reshape(s);
}

// The steps that count, in the order of use, then the others.
void keras_compact(OnnxCall& c) {
  const StepMask m(c, 1);
  const int64_t steps = m.on.size(1);
  const Tensor place = constant(arange(steps)).to(DType::i64).reshape({1, steps});
  const Tensor order = argsort(place + (1 - m.on) * steps, 1);
  c.set(0, take_steps(m.turned(c.x(0)), order), c.type(0));
}
// The result of each step; a step that does not count has that of the last one before it that does.
void keras_spread(OnnxCall& c) {
  const StepMask m(c, 1);
  const Tensor y = c.x(0), at = cumsum(m.on, 1) - 1;
  Tensor out = take_steps(y, clamp_min(at, 0));
  out = where(wide_as(at < 0, y), 0, out).to(y.dtype());
  if (c.attr("zero", 0)) out = where(wide_as(m.on == 0, y), 0, out).to(y.dtype());
  c.set(0, m.turned(out), c.type(0));
}
// The state after the last step that counts; where there is none, the initial one.
void keras_last(OnnxCall& c) {
  const StepMask m(c, 1);
  const Tensor y = c.x(0), n = sum(m.on, {1}, true);
  const Tensor last = squeeze(take_steps(y, clamp_min(n - 1, 0)), 1);
  const Tensor start = c.has(2) ? c.x(2) : zeros_like(last);
  c.set(0, where(n == 0, start, last).to(y.dtype()), c.type(0));
}

void keras_join_steps(OnnxCall& c) {
  const Tensor x = c.x(0);
  TD_CHECK(x.dim() >= 2, Shape, "expects [batch, steps, ...], got {}", x.shape().to_string());
  Shape s(x.shape(0) * x.shape(1));
  for (int d = 2; d < x.dim(); ++d) s.push_back(x.shape(d));
  c.set(0, x.reshape(s), c.type(0));
}
void keras_split_steps(OnnxCall& c) {
  const Tensor y = c.x(0), x = c.x(1);
  Shape s(x.shape(0), x.shape(1));
  for (int d = 1; d < y.dim(); ++d) s.push_back(y.shape(d));
  c.set(0, y.reshape(s), c.type(0));
}

// [1, query, value]: whether a query may look at a value: not at later ones, or only at near ones.
void keras_band(OnnxCall& c) {
  const std::vector<int64_t> queries = c.value(0).shape(), values = c.value(1).shape();
  TD_CHECK(queries.size() >= 2 && values.size() >= 2, Shape,
           "expects [batch, steps, ...], got {} and {}", c.value(0).describe(),
           c.value(1).describe());
  const int64_t q = queries[1], v = values[1];
  check_onnx_size(onnx_shape({q, v}));
  const Tensor rows = arange(q).reshape({1, q, 1}), columns = arange(v).reshape({1, 1, v});
  const Tensor apart = rows - columns;
  c.set(0, constant(c.attr("causal", 0) ? apart >= 0 : apart.abs() < c.attr("width", 1)));
}

// ---- convolutions over steps

Tensor keras_gate(const std::string& name, const Tensor& x) {
  if (name == "linear") return x;
  if (name == "relu") return relu(x);
  if (name == "tanh") return tanh(x);
  return name == "sigmoid" ? sigmoid(x) : hardsigmoid(x);
}

// Shi et al. 2015: x [batch, steps, ..., channels], weights [..., in, 4 * out] for i, f, c, o.
void keras_conv_lstm(OnnxCall& c) {
  const Tensor x = c.x(0), w = c.x(1), r = c.x(2);
  const int64_t filters = w.size(-1) / 4, steps = x.size(1);
  const auto convolve = [&](const Tensor& v, const Tensor& kernel, bool input) {
    const size_t dims = static_cast<size_t>(kernel.dim() - 2);
    std::vector<int64_t> ones(dims + 2, 1), strides = ones, dilations = ones;
    const std::string padding = input ? c.attr_text("padding", "valid") : "same";
    if (input) {
      const auto s = c.attr_ints("strides"), d = c.attr_ints("dilations");
      TD_CHECK(s.size() == dims && d.size() == dims, Value, "expects {} strides", dims);
      std::copy(s.begin(), s.end(), strides.begin() + 1);
      std::copy(d.begin(), d.end(), dilations.begin() + 1);
    }
    return run_as_tf(c, dims == 3 ? "Conv3D" : "Conv2D", {OnnxValue(v), OnnxValue(kernel)},
                     {onnx_ints("strides", strides), onnx_ints("dilations", dilations),
                      onnx_text("padding", padding == "same" ? "SAME" : "VALID"),
                      onnx_text("data_format", "NHWC")})[0]
        .tensor();
  };
  Tensor h = c.x_or_none(4), state = c.x_or_none(5);
  const std::string inner = c.attr_text("activation"), gates = c.attr_text("gates");
  const bool backwards = c.attr("backwards", 0) != 0;
  std::vector<Tensor> ys;
  for (int64_t t = 0; t < steps; ++t) {
    Tensor z = convolve(x.select(1, backwards ? steps - 1 - t : t), w, true);
    if (c.has(3)) z = z + c.x(3);
    if (!h.defined()) {
      h = zeros_like(z.narrow(-1, 0, filters));
      state = h;
    }
    z = z + convolve(h, r, false);
    const auto part = [&](int64_t i) { return z.narrow(-1, i * filters, filters); };
    state = keras_gate(gates, part(1)) * state +
            keras_gate(gates, part(0)) * keras_gate(inner, part(2));
    h = keras_gate(gates, part(3)) * keras_gate(inner, state);
    ys.push_back(h);
  }
  TD_CHECK(!ys.empty(), Shape, "expects at least one step");
  c.set(0, stack(ys, 1));
  if (c.wants(1)) c.set(1, h);
  if (c.wants(2)) c.set(2, state);
}

// ---- images

struct ImageSize {
  Tensor x;
  int64_t height, width, to_height, to_width;
  explicit ImageSize(const OnnxCall& c) : x(c.x(0)) {
    const std::vector<int64_t> size = c.attr_ints("size");
    TD_CHECK(x.dim() == 4 && size.size() == 2 && size[0] > 0 && size[1] > 0, Shape,
             "expects [n, h, w, c] and two sizes, got {}", x.shape().to_string());
    check_onnx_list(size);
    height = x.size(1);
    width = x.size(2);
    to_height = size[0];
    to_width = size[1];
    TD_CHECK(height > 0 && width > 0, Shape, "the images have no elements: {}",
             x.shape().to_string());
  }
  /// The largest window in the middle with the proportions of the result.
  void crop() {
    const auto of = [](int64_t n, int64_t to, int64_t by, int64_t most) {
      const float exact = static_cast<float>(n * to) / static_cast<float>(by);
      return std::clamp<int64_t>(static_cast<int64_t>(exact), 1, most);
    };
    const int64_t h = of(width, to_height, to_width, height),
                  w = of(height, to_width, to_height, width);
    x = x.narrow(1, (height - h) / 2, h).narrow(2, (width - w) / 2, w);
  }
  void pad(double value) {
    const auto of = [](int64_t n, int64_t to, int64_t by, int64_t least) {
      const float exact = static_cast<float>(n * to) / static_cast<float>(by);
      return std::max(least, static_cast<int64_t>(exact));
    };
    const int64_t h = (of(width, to_height, to_width, height) - height) / 2,
                  w = (of(height, to_width, to_height, width) - width) / 2;
    PadAttrs a;
    a.value = Scalar(value);
    a.before = {0, h, w, 0};
    a.after = a.before;
    if (h > 0 || w > 0) x = call(op::pad, &a, SourceLocation::here(), x);
  }
  Tensor resized(OnnxCall& c, const std::string& mode) const {
    const char* op = mode == "nearest"   ? "ResizeNearestNeighbor"
                     : mode == "bicubic" ? "ResizeBicubic"
                                         : "ResizeBilinear";
    const Tensor to = tensor(std::vector<int64_t>{to_height, to_width});
    return run_as_tf(c, op, {OnnxValue(x), OnnxValue(to)}, {onnx_int("half_pixel_centers", 1)})[0]
        .tensor();
  }
};

void keras_resizing(OnnxCall& c) {
  ImageSize s(c);
  if (c.attr("crop", 0))
    s.crop();
  else if (c.attr("pad", 0))
    s.pad(c.attr_float("fill_value", 0));
  const DType dtype = c.x(0).dtype();
  const Tensor y = s.resized(c, c.attr_text("mode", "bilinear"));
  c.set(0, is_floating(dtype) ? y.to(dtype) : round(y).to(dtype), c.type(0));
}
void keras_center_crop(OnnxCall& c) {
  ImageSize s(c);
  const int64_t h = s.height - s.to_height, w = s.width - s.to_width;
  if (h >= 0 && w >= 0) {
    c.set(0, s.x.narrow(1, h / 2, s.to_height).narrow(2, w / 2, s.to_width), c.type(0));
    return;
  }
  s.crop();
  c.set(0, s.resized(c, "bilinear").to(c.x(0).dtype()), c.type(0));
}
void keras_up_sampling(OnnxCall& c) {
  const Tensor x = c.x(0);
  const std::vector<int64_t> size = c.attr_ints("size");
  TD_CHECK(x.dim() == 4 && size.size() == 2, Shape, "expects [n, h, w, c] and two factors");
  check_onnx_list(size);
  const Tensor to = tensor(std::vector<int64_t>{x.size(1) * size[0], x.size(2) * size[1]});
  c.set(0, run_as_tf(c, "ResizeBicubic", {OnnxValue(x), OnnxValue(to)},
                     {onnx_int("half_pixel_centers", 1)})[0]);
}

void keras_adaptive_pool(OnnxCall& c) {
  const Tensor x = movedim(c.x(0), IntList{-1}, IntList{1});
  std::vector<int64_t> size = c.attr_ints("output_size");
  const auto dims = static_cast<size_t>(x.dim() - 2);
  if (size.size() == 1) size.resize(dims, size[0]);
  TD_CHECK(size.size() == dims && dims >= 1 && dims <= 3, Shape, "{} sizes do not fit {}",
           size.size(), c.value(0).describe());
  check_onnx_list(size);
  const IntList to(size);
  const bool max = c.attr("max", 0) != 0;
  const Tensor y = dims == 1   ? (max ? adaptive_max_pool1d(x, to) : adaptive_avg_pool1d(x, to))
                   : dims == 2 ? (max ? adaptive_max_pool2d(x, to) : adaptive_avg_pool2d(x, to))
                               : (max ? adaptive_max_pool3d(x, to) : adaptive_avg_pool3d(x, to));
  c.set(0, movedim(y, IntList{1}, IntList{-1}), c.type(0));
}

// ---- functions

void keras_move_axis(OnnxCall& c) {
  c.set(0, movedim(c.x(0), IntList(c.attr_ints("source")), IntList(c.attr_ints("destination"))),
        c.type(0));
}
void keras_tile(OnnxCall& c) {
  const std::vector<int64_t> n = c.attr_ints("repeats");
  for (const int64_t r : n) TD_CHECK(r >= 0, Value, "a number of repeats is {}", r);
  c.set(0, tile(c.x(0), onnx_list(n)), c.type(0));
}
void keras_repeat(OnnxCall& c) {
  const int64_t n = c.attr("repeats", 1);
  TD_CHECK(n >= 0, Value, "a number of repeats is {}", n);
  check_onnx_list({n});
  c.set(0, repeat_interleave(c.x(0), n, c.attr("axis", 0)), c.type(0));
}
void keras_sort(OnnxCall& c) { c.set(0, sort(c.x(0), c.attr("axis", -1)).values, c.type(0)); }
void keras_argsort(OnnxCall& c) {
  c.set(0, argsort(c.x(0), c.attr("axis", -1)).to(DType::i32), OnnxType::i32);
}
void keras_tensordot(OnnxCall& c) {
  c.set_like(
      0, tensordot(c.x(0), c.x(1), IntList(c.attr_ints("left")), IntList(c.attr_ints("right"))));
}
void keras_unit_scale(OnnxCall& c) {
  const double e = c.attr_float("epsilon", 1e-7);
  c.set_like(0, c.x(0) * rsqrt(clamp_min(c.x(1), e * e)));
}

// ---- features

void keras_digitize(OnnxCall& c) {
  const Tensor x = c.x(0).to(DType::f32);
  c.set(0, searchsorted(c.x(1), x, true, true), OnnxType::i32);
}

void keras_category_encoding(OnnxCall& c) {
  Tensor x = c.x(0).to(DType::i64);
  const int64_t depth = c.attr("depth", 0);
  const std::string mode = c.attr_text("mode", "multi_hot");
  TD_CHECK(depth > 0 && depth < (int64_t{1} << 28), Value, "a depth of {}", depth);
  if (x.dim() == 0) x = x.reshape({1});
  if (mode == "one_hot" && x.dim() > 1 && x.size(-1) == 1) x = squeeze(x, -1);
  Tensor y = (x.unsqueeze(-1) == constant(arange(depth)).to(DType::i64)).to(DType::f32);
  const int d = x.dim() > 1 ? x.dim() - 1 : 0;
  if (c.has(1)) y = y * c.x(1).unsqueeze(-1);
  if (mode == "multi_hot") y = amax(y, {d});
  if (mode == "count") y = sum(y, {x.dim() > 1 ? 1 : 0});
  c.set(0, y, OnnxType::f32);
}

// A product along one dimension of each, for every sample; optionally of unit vectors.
void keras_dot(OnnxCall& c) {
  Tensor a = c.x(0), b = c.x(1);
  const std::vector<int64_t> axes = c.attr_ints("axes", {-1, -1});
  TD_CHECK(axes.size() == 2 && a.dim() >= 2 && b.dim() >= 2, Shape,
           "expects two axes of batches, got {} and {}", a.shape().to_string(),
           b.shape().to_string());
  const int i = normalize_dim(axes[0], a.dim()), j = normalize_dim(axes[1], b.dim());
  TD_CHECK(i > 0 && j > 0, Value, "the batch cannot be summed over");
  if (c.attr("normalize", 0)) {
    a = a * rsqrt(clamp_min(sum(square(a), {i}, true), 1e-12));
    b = b * rsqrt(clamp_min(sum(square(b), {j}, true), 1e-12));
  }
  a = movedim(a, IntList{i}, IntList{-1});
  b = movedim(b, IntList{j}, IntList{-1});
  Shape result(a.shape(0));
  for (int d = 1; d + 1 < a.dim(); ++d) result.push_back(a.shape(d));
  for (int d = 1; d + 1 < b.dim(); ++d) result.push_back(b.shape(d));
  if (result.size() == 1) result.push_back(1);
  const Tensor rows = a.dim() == 2 ? a.unsqueeze(1) : a.flatten(1, -2),
               columns = b.dim() == 2 ? b.unsqueeze(1) : b.flatten(1, -2);
  c.set_like(0, matmul(rows, columns.transpose(1, 2)).reshape(result));
}

}  // namespace

// table: a row for each op
std::span<const OnnxRow> onnx_keras_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxKeras, "Glu", 1, 0, keras_glu, {1, 1, "axis"}},
      {kOnnxKeras, "SparseSigmoid", 1, 0, keras_sparse_sigmoid, {1, 1, ""}},
      {kOnnxKeras, "SparsePlus", 1, 0, keras_sparse_plus, {1, 1, ""}},
      {kOnnxKeras, "Squareplus", 1, 0, keras_squareplus, {1, 1, "b"}},
      {kOnnxKeras, "Sparsemax", 1, 0, keras_sparsemax, {1, 1, "axis"}},
      {kOnnxKeras, "ReLU", 1, 0, keras_relu, {1, 1, "threshold negative_slope max_value"}},
      {kOnnxKeras, "Softmax", 1, 0, keras_softmax, {2, 1, "axes"}},
      {kOnnxKeras, "CompactSteps", 1, 0, keras_compact, {2, 1, "backwards"}},
      {kOnnxKeras, "SpreadSteps", 1, 0, keras_spread, {2, 1, "backwards zero"}},
      {kOnnxKeras, "LastStep", 1, 0, keras_last, {3, 1, "backwards"}},
      {kOnnxKeras, "JoinSteps", 1, 0, keras_join_steps, {1, 1, ""}},
      {kOnnxKeras, "SplitSteps", 1, 0, keras_split_steps, {2, 1, ""}},
      {kOnnxKeras, "Band", 1, 0, keras_band, {2, 1, "causal width"}},
      {kOnnxKeras,
       "ConvLSTM",
       1,
       0,
       keras_conv_lstm,
       {6, 3, "strides dilations padding activation gates backwards"}},
      {kOnnxKeras, "Resizing", 1, 0, keras_resizing, {1, 1, "size mode crop pad fill_value"}},
      {kOnnxKeras, "CenterCrop", 1, 0, keras_center_crop, {1, 1, "size"}},
      {kOnnxKeras, "UpSampling", 1, 0, keras_up_sampling, {1, 1, "size"}},
      {kOnnxKeras, "AdaptivePooling", 1, 0, keras_adaptive_pool, {1, 1, "output_size max"}},
      {kOnnxKeras, "MoveAxis", 1, 0, keras_move_axis, {1, 1, "source destination"}},
      {kOnnxKeras, "Tile", 1, 0, keras_tile, {1, 1, "repeats"}},
      {kOnnxKeras, "Repeat", 1, 0, keras_repeat, {1, 1, "repeats axis"}},
      {kOnnxKeras, "Sort", 1, 0, keras_sort, {1, 1, "axis"}},
      {kOnnxKeras, "Argsort", 1, 0, keras_argsort, {1, 1, "axis"}},
      {kOnnxKeras, "Tensordot", 1, 0, keras_tensordot, {2, 1, "left right"}},
      {kOnnxKeras, "UnitScale", 1, 0, keras_unit_scale, {2, 1, "epsilon"}},
      {kOnnxKeras, "Digitize", 1, 0, keras_digitize, {2, 1, ""}},
      {kOnnxKeras, "CategoryEncoding", 1, 0, keras_category_encoding, {2, 1, "depth mode"}},
      {kOnnxKeras, "Dot", 1, 0, keras_dot, {2, 1, "axes normalize"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
