// SPDX-License-Identifier: Apache-2.0
// Convolutions, pooling, resizing, patches. Average pooling and resizing act on each dimension
// separately, so what ONNX has no op for (their derivatives, adaptive windows) becomes a matmul per
// dimension, with a matrix found by running the row on an identity, or computed in the model where
// a size is open.
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/ops/conv/fold.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/view/dim_tensor.h"

namespace tandem::onnx {
namespace {

std::vector<int64_t> concatenated(const IntList& a, const IntList& b, const char* what) {
  std::vector<int64_t> v = onnx_numbers(a, what), w = onnx_numbers(b, what);
  v.insert(v.end(), w.begin(), w.end());
  return v;
}

OnnxAttributes window_of(const ConvAttrs& a) {
  return {onnx_ints("strides", onnx_numbers(a.stride, "the stride")),
          onnx_ints("dilations", onnx_numbers(a.dilation, "the dilation")),
          onnx_ints("pads", concatenated(a.padding, a.padding_end, "the padding")),
          onnx_int("group", a.groups)};
}
void add_kernel(OnnxAttributes& all, const Shape& w) {
  Shape kernel;
  for (int d = 2; d < w.rank(); ++d) kernel.push_back(w[d]);
  if (!kernel.is_symbolic()) all.push_back(onnx_ints("kernel_shape", kernel.to_vector()));
}

}  // namespace

bool export_conv(OnnxExportCall& c) {
  OnnxAttributes all = window_of(c.get_attrs<ConvAttrs>());
  add_kernel(all, c.shape(1));
  c.set(0, c.b.node("Conv", {c.x(0), c.x(1), c.maybe(2)}, all));
  return true;
}

bool export_conv_backward_input(OnnxExportCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  OnnxAttributes all = window_of(a);
  add_kernel(all, c.shape(1));
  std::vector<int64_t> more;
  for (int i = 0; i < a.size.rank(); ++i) {
    const Dim full =
        a.stride[i] * (c.shape(0)[i + 2] - 1) + a.dilation[i] * (c.shape(1)[i + 2] - 1) + 1;
    const Dim rest = a.size[i] - (full - a.padding[i] - a.padding_end[i]);
    TD_CHECK(!rest.is_symbolic(), Unsupported,
             "the size of the result, {}, must be a number if the stride is {}",
             a.size[i].to_string(), a.stride[i].to_string());
    if (rest.value() < 0) return false;
    more.push_back(rest.value());
  }
  all.push_back(onnx_ints("output_padding", more));
  c.set(0, c.b.node("ConvTranspose", {c.x(0), c.x(1)}, all));
  return true;
}

// A convolution of x with the gradient as its kernel: channels and samples are swapped, and so are
// stride and dilation.
bool export_conv_backward_weight(OnnxExportCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  const int d = a.stride.rank();
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor &x = in[0], &g = in[1];
    const Dim n = x.shape(0), channels = floordiv(x.shape(1), a.groups);
    Shape grouped{n, a.groups, channels}, merged{channels, n * Dim(a.groups)};
    IntList perm{2, 1, 0};
    for (int i = 0; i < d; ++i) {
      grouped.push_back(x.shape(i + 2));
      merged.push_back(x.shape(i + 2));
      perm.push_back(i + 3);
    }
    const Tensor images =
        a.groups == 1 ? transpose(x, 0, 1) : permute(x.reshape(grouped), perm).reshape(merged);
    ConvAttrs k;
    k.stride = a.dilation;
    k.dilation = a.stride;
    k.padding = a.padding;
    k.padding_end = a.padding_end;
    k.groups = a.groups;
    Tensor y = transpose(conv(images, transpose(g, 0, 1), {}, k), 0, 1);
    for (int i = 0; i < d; ++i)
      if (!(y.shape(i + 2) == a.size[i])) y = narrow(y, i + 2, 0, a.size[i]);
    return {y};
  });
}

// ---- one matrix per dimension

namespace {

using Along = FunctionRef<Tensor(int dim, const Tensor& eye)>;

// Applies to x [n, c, ...] the map that `along` computes for [in, 1, ...] with size `in` in one
// dimension, or its transpose. Sizes are those before and after that map.
bool by_matrices(OnnxExportCall& c, const Shape& before, const Shape& after, Along along,
                 bool transposed) {
  if (before.is_symbolic() || after.is_symbolic()) return false;
  std::vector<Tensor> matrices;
  for (int i = 0; i < before.rank(); ++i) {
    const int64_t in = before[i].value(), out = after[i].value();
    Shape s{in, 1};
    for (int k = 0; k < before.rank(); ++k) s.push_back(k == i ? in : 1);
    Tensor m = along(i, eye(in, in, DType::f64).reshape(s)).reshape({in, out});
    if (transposed) m = transpose(m, 0, 1).contiguous();
    matrices.push_back(m.to(c.out[0].dtype));
  }
  return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
    Tensor y = x[0];
    for (size_t i = 0; i < matrices.size(); ++i) {
      const int d = static_cast<int>(i) + 2;
      y = movedim(matmul(movedim(y, d, -1), constant(matrices[i])), -1, d);
    }
    return {y};
  });
}

Shape spatial(const Shape& s) {
  Shape out;
  for (int d = 2; d < s.rank(); ++d) out.push_back(s[d]);
  return out;
}

// Whether window j of `out` adaptive windows, floor(j in / out) to ceil((j + 1) in / out), holds
// element i: bool [in, out]. Either size may be open.
Tensor adaptive_windows(Dim in, Dim out) {
  const Tensor i = arange_dim(in).reshape({in, 1}), j = arange_dim(out).reshape({1, out});
  const Tensor n = dim_tensor(in), m = dim_tensor(out);
  return (j * n < (i + 1) * m) & ((j + 1) * n > i * m);
}

// Adaptive average pooling of `whole` to `pooled`, or its derivative, at sizes that are open.
bool adaptive_average(OnnxExportCall& c, const Shape& whole, const Shape& pooled, bool transposed) {
  const DType t = c.out[0].dtype;
  return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
    Tensor y = x[0];
    for (int i = 0; i < whole.rank(); ++i) {
      Tensor m = adaptive_windows(whole[i], pooled[i]).to(t);
      m = m / m.sum({0}, true);
      y = movedim(matmul(movedim(y, i + 2, -1), m, MatmulAttrs{false, transposed}), -1, i + 2);
    }
    return {y};
  });
}

// Adaptive max pooling, dimension by dimension, at sizes that are open; values alone.
bool adaptive_max_values(OnnxExportCall& c, const Shape& whole, const Shape& pooled) {
  const DType t = c.out[0].dtype;
  if (c.wanted(1) || !is_floating(t)) return false;
  return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
    Tensor y = x[0];
    for (int i = 0; i < whole.rank(); ++i) {
      const Tensor each = movedim(y, i + 2, -1).unsqueeze(-1);
      const Tensor never = full({}, -std::numeric_limits<double>::infinity(), t);
      y = movedim(amax(where(adaptive_windows(whole[i], pooled[i]), each, never), {-2}), -1, i + 2);
    }
    return {y, Tensor()};
  });
}

bool pool_matrices(OnnxExportCall& c, const PoolAttrs& a, bool transposed) {
  const auto along = [&](int dim, const Tensor& x) {
    PoolAttrs one;
    const int n = a.output.empty() ? a.kernel.rank() : a.output.rank();
    for (int k = 0; k < n; ++k) {
      const bool here = k == dim;
      if (!a.output.empty()) {
        one.output.push_back(here ? a.output[k] : Dim(1));
        continue;
      }
      one.kernel.push_back(here ? a.kernel[k] : Dim(1));
      one.stride.push_back(here ? a.stride[k] : Dim(1));
      one.padding.push_back(here ? a.padding[k] : Dim(0));
      one.dilation.push_back(here ? a.dilation[k] : Dim(1));
    }
    one.ceil_mode = a.ceil_mode;
    one.count_include_pad = a.count_include_pad;
    if (a.divisor_override) one.divisor_override = dim == 0 ? a.divisor_override : 1;
    return call(op::avg_pool, &one, SourceLocation::here(), x);
  };
  const Shape whole = spatial(transposed ? c.out[0].shape : c.shape(0));
  const Shape pooled = spatial(transposed ? c.shape(0) : c.out[0].shape);
  if (!a.output.empty() && (whole.is_symbolic() || pooled.is_symbolic()))
    return adaptive_average(c, whole, pooled, transposed);
  return by_matrices(c, whole, pooled, along, transposed);
}

OnnxAttributes pool_window(const PoolAttrs& a) {
  return {onnx_ints("kernel_shape", onnx_numbers(a.kernel, "the kernel")),
          onnx_ints("strides", onnx_numbers(a.stride, "the stride")),
          onnx_ints("pads", concatenated(a.padding, a.padding, "the padding")),
          onnx_int("ceil_mode", a.ceil_mode)};
}
bool all_one(const IntList& l) {
  for (const Dim d : l)
    if (!(d == Dim(1))) return false;
  return true;
}

}  // namespace

bool export_avg_pool(OnnxExportCall& c) {
  const auto& a = c.get_attrs<PoolAttrs>();
  if (!a.output.empty() && all_one(a.output)) {
    c.set(0, c.b.node("GlobalAveragePool", {c.x(0)}));
    return true;
  }
  if (!a.output.empty() || a.divisor_override) return pool_matrices(c, a, false);
  OnnxAttributes all = pool_window(a);
  all.push_back(onnx_int("count_include_pad", a.count_include_pad));
  c.set(0, c.b.node("AveragePool", {c.x(0)}, all));
  return true;
}
bool export_avg_pool_backward(OnnxExportCall& c) {
  return pool_matrices(c, c.get_attrs<PoolAttrs>(), true);
}

namespace {
// Window by window: each is a vector whose best element is taken, with its position in the plane.
bool adaptive_max(OnnxExportCall& c, const PoolAttrs& a) {
  const Shape in = spatial(c.shape(0));
  if (in.is_symbolic() || a.output.is_symbolic()) return adaptive_max_values(c, in, a.output);
  const int n = in.rank();
  std::vector<int64_t> plane(static_cast<size_t>(in.numel().value()));
  for (size_t k = 0; k < plane.size(); ++k) plane[k] = static_cast<int64_t>(k);
  const Tensor places = tensor(plane).reshape(in);
  return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
    std::vector<Tensor> best, where_best;
    std::vector<int64_t> at(static_cast<size_t>(n));
    const auto window = [&](Tensor t, int first) {
      for (int d = 0; d < n; ++d) {
        const int64_t size = in[d].value(), out = a.output[d].value(),
                      k = at[static_cast<size_t>(d)];
        const int64_t from = k * size / out, to = ((k + 1) * size + out - 1) / out;
        t = narrow(std::move(t), first + d, from, to - from);
      }
      Shape flat = t.shape();
      Dim count = 1;
      for (int d = first; d < flat.rank(); ++d) count = count * flat[d];
      flat.resize(first);
      flat.push_back(count);
      return t.reshape(flat);
    };
    for (bool more = true; more;) {
      const auto [values, index] = max(window(x[0], 2), -1);
      best.push_back(values);
      const IndexAttrs first = index_at(0);
      const Tensor of[] = {constant(window(places, 0).contiguous())}, by[] = {index};
      where_best.push_back(call_list(op::index, &first, SourceLocation::here(), by, of));
      int d = n - 1;
      while (d >= 0 && ++at[static_cast<size_t>(d)] == a.output[d].value())
        at[static_cast<size_t>(d--)] = 0;
      more = d >= 0;
    }
    return {stack(best, -1).reshape(c.out[0].shape),
            stack(where_best, -1).to(DType::i32).reshape(c.out[0].shape)};
  });
}
}  // namespace

bool export_max_pool(OnnxExportCall& c) {
  const auto& a = c.get_attrs<PoolAttrs>();
  if (!a.output.empty()) {
    if (all_one(a.output) && !c.wanted(1)) {
      c.set(0, c.b.node("GlobalMaxPool", {c.x(0)}));
      return true;
    }
    return adaptive_max(c, a);
  }
  OnnxAttributes all = pool_window(a);
  all.push_back(onnx_ints("dilations", onnx_numbers(a.dilation, "the dilation")));
  const Names y = c.b.add("MaxPool", {c.x(0)}, c.wanted(1) ? 2 : 1, all);
  c.set(0, y[0]);
  if (!c.wanted(1)) return true;
  // ONNX counts positions in the whole tensor, we within a plane.
  Dim plane = 1;
  for (const Dim d : spatial(c.shape(0))) plane = plane * d;
  const std::string at = c.b.node("Mod", {y[1], c.b.reshape(c.b.dim(plane), Shape{})});
  c.set(1, c.b.cast(at, DType::i64, DType::i32));
  return true;
}

bool export_max_pool_backward(OnnxExportCall& c) {
  const Shape out = c.out[0].shape;
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    Dim plane = 1, places = 1;
    for (int d = 2; d < out.rank(); ++d) {
      plane = plane * out[d];
      places = places * in[0].shape(d);
    }
    const Shape flat{out[0], out[1], places};
    FillAttrs zero{{out[0], out[1], plane}, 0, in[0].dtype()};
    const Tensor y = scatter_add(call(op::fill, &zero, SourceLocation::here()), 2,
                                 in[1].reshape(flat).to(DType::i64), in[0].reshape(flat));
    return {y.reshape(out)};
  });
}

// ---- resizing

namespace {
bool resize_matrices(OnnxExportCall& c, const Shape& before, const Shape& after, bool transposed) {
  const auto& a = c.get_attrs<ResampleAttrs>();
  const auto along = [&](int dim, const Tensor& x) {
    ResampleAttrs one;
    one.mode = a.mode;
    one.align_corners = a.align_corners;
    one.antialias = a.antialias;
    double* scale[] = {&one.scale0, &one.scale1, &one.scale2};
    for (int k = 0; k < after.rank(); ++k) one.output.push_back(k == dim ? after[k] : Dim(1));
    *scale[dim] = a.scale(dim);
    return call(op::interpolate, &one, SourceLocation::here(), x);
  };
  return by_matrices(c, before, after, along, transposed);
}
}  // namespace

bool export_interpolate(OnnxExportCall& c) {
  const auto& a = c.get_attrs<ResampleAttrs>();
  const auto mode = static_cast<ResampleMode>(a.mode);
  const bool nearest = mode == ResampleMode::nearest || mode == ResampleMode::nearest_exact;
  // ONNX's antialiasing counts weights outside the image.
  if (a.antialias && !nearest)
    return resize_matrices(c, spatial(c.shape(0)), spatial(c.out[0].shape), false);
  OnnxAttributes all = {
      onnx_text("mode", nearest                        ? "nearest"
                        : mode == ResampleMode::linear ? "linear"
                                                       : "cubic"),
      onnx_text("coordinate_transformation_mode", mode == ResampleMode::nearest ? "asymmetric"
                                                  : a.align_corners             ? "align_corners"
                                                                                : "half_pixel")};
  if (nearest)
    all.push_back(
        onnx_text("nearest_mode", mode == ResampleMode::nearest ? "floor" : "round_prefer_ceil"));
  if (mode == ResampleMode::cubic) all.push_back(onnx_float("cubic_coeff_a", -0.75));
  const int n = a.output.rank();
  bool scaled = true;
  for (int i = 0; i < n; ++i) scaled = scaled && a.scale(i) != 0;
  if (scaled) {
    std::vector<float> scales{1, 1};
    for (int i = 0; i < n; ++i) scales.push_back(static_cast<float>(a.scale(i)));
    c.set(0, c.b.node("Resize", {c.x(0), "", c.b.constant(tensor(scales))}, all));
  } else {
    c.set(0, c.b.node("Resize", {c.x(0), "", "", c.b.dims(c.out[0].shape)}, all));
  }
  return true;
}

bool export_interpolate_backward(OnnxExportCall& c) {
  return resize_matrices(c, spatial(c.out[0].shape), spatial(c.shape(0)), true);
}

bool export_grid_sample(OnnxExportCall& c) {
  const auto& a = c.get_attrs<GridSampleAttrs>();
  if (c.rank(0) != 4 && c.b.opset() < 20) return false;
  const auto mode = static_cast<ResampleMode>(a.mode);
  const bool old = c.b.opset() < 20;
  const char* name = mode == ResampleMode::nearest  ? "nearest"
                     : mode == ResampleMode::linear ? (old ? "bilinear" : "linear")
                                                    : (old ? "bicubic" : "cubic");
  const auto padding = static_cast<GridPadding>(a.padding);
  c.set(0, c.b.node("GridSample", {c.x(0), c.x(1)},
                    {onnx_text("mode", name),
                     onnx_text("padding_mode", padding == GridPadding::zeros    ? "zeros"
                                               : padding == GridPadding::border ? "border"
                                                                                : "reflection"),
                     onnx_int("align_corners", a.align_corners)}));
  return true;
}

// ---- patches

// Gathers the rows, then the columns of every patch element.
bool export_im2col(OnnxExportCall& c) {
  const auto& a = c.get_attrs<FoldAttrs>();
  const Shape image = spatial(c.shape(0));
  if (a.kernel.is_symbolic()) return false;
  PadAttrs pads;
  pads.before = pads.after = {0, 0, a.padding[0], a.padding[1]};
  pads.value = 0;
  const auto places = [&](int i) {  // [kernel, windows]
    const int64_t k = a.kernel[i].value(), step = a.stride[i].value(), far = a.dilation[i].value();
    const Dim room = image[i] + 2 * a.padding[i] - far * (k - 1) - 1;
    const Tensor first = arange_dim(floordiv(room, step) + 1) * step;
    return arange(0, k, 1, DType::i64).reshape({k, 1}) * far + first;
  };
  const Tensor at[] = {image[0].is_symbolic() ? Tensor() : places(0),
                       image[1].is_symbolic() ? Tensor() : places(1)};
  return c.by_ops([&](std::span<const Tensor> x) -> std::vector<Tensor> {
    const IndexAttrs rows = index_at(2), columns = index_at(4);
    const auto of = [&](int i) { return at[i].defined() ? constant(at[i]) : places(i); };
    const Tensor padded[] = {call(op::pad, &pads, SourceLocation::here(), x[0])}, h[] = {of(0)},
                 w[] = {of(1)};
    const Tensor lines[] = {call_list(op::index, &rows, SourceLocation::here(), h, padded)};
    const Tensor y = call_list(op::index, &columns, SourceLocation::here(), w, lines);
    return {permute(y, {0, 1, 2, 4, 3, 5}).reshape(c.out[0].shape)};
  });
}
bool export_col2im(OnnxExportCall& c) {
  const auto& a = c.get_attrs<FoldAttrs>();
  if (c.b.opset() < 18) return false;
  c.set(0, c.b.node("Col2Im", {c.x(0), c.b.dims(a.size), c.b.dims(a.kernel)},
                    {onnx_ints("dilations", onnx_numbers(a.dilation, "the dilation")),
                     onnx_ints("pads", concatenated(a.padding, a.padding, "the padding")),
                     onnx_ints("strides", onnx_numbers(a.stride, "the stride"))}));
  return true;
}

// ---- boxes

bool export_roi_align(OnnxExportCall& c) {
  const auto& a = c.get_attrs<RoiAttrs>();
  c.set(0, c.b.node("RoiAlign", {c.x(0), c.x(2), c.x(1, DType::i64)},
                    {onnx_text("mode", "avg"), onnx_int("output_height", a.height),
                     onnx_int("output_width", a.width),
                     onnx_int("sampling_ratio", std::max<int64_t>(a.sampling_ratio, 0)),
                     onnx_float("spatial_scale", a.spatial_scale),
                     onnx_text("coordinate_transformation_mode",
                               a.aligned ? "half_pixel" : "output_half_pixel")}));
  return true;
}

bool export_nms(OnnxExportCall& c) {
  const auto& a = c.get_attrs<NmsAttrs>();
  if (c.out[0].shape.is_symbolic()) return false;
  if (c.has(2))  // boxes of different classes are moved so far apart that they never overlap
    return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
      const Tensor far = in[0].amax() - in[0].amin() + 1.0;
      const Tensor apart = in[0] + (in[2].to(in[0].dtype()) * far).unsqueeze(1);
      return {call(op::nms, &a, SourceLocation::here(), apart, in[1], Tensor())};
    });
  const std::string boxes = c.b.node("Unsqueeze", {c.x(0, DType::f32), c.b.ints({0})});
  const std::string scores = c.b.node("Unsqueeze", {c.x(1, DType::f32), c.b.ints({0, 1})});
  const std::string found =
      c.b.node("NonMaxSuppression", {boxes, scores, c.b.ints({a.size}),
                                     c.b.constant(tensor({static_cast<float>(a.iou_threshold)}))});
  const std::string at =
      c.b.node("Gather", {found, c.b.number(2, DType::i64)}, {onnx_int("axis", 1)});
  c.set(0, padded_rows(c.b, at, c.out[0].shape, a.fill));
  return true;
}

}  // namespace tandem::onnx
