// SPDX-License-Identifier: Apache-2.0
// The rows of interpolate and its function. Every mode is a linear map per dimension, so the row's
// derivative is the transposed map, whose derivative is the row again.
#include "tandem/ops/vision/resample.h"

#include <cmath>

#include "tandem/ops/conv/pool.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/vision/resample_internal.h"

namespace tandem {
namespace {

using detail::merge_dims;
using detail::placed;
using detail::split_dim;

// ---- shape rules

void check_attrs(const ResampleAttrs& a) {
  int d = a.output.rank();
  TD_CHECK(d >= 1 && d <= 3, Value, "{} spatial dimensions, one to three are possible", d);
  TD_CHECK(a.mode >= 0 && a.mode <= 3, Value, "mode {} is unknown", a.mode);
  for (Dim v : a.output)
    TD_CHECK(v.is_symbolic() || v.value() >= 1, Value,
             "output size {} expects numbers of at least 1\nUse a larger size or scale_factor.",
             a.output.to_string());
  for (int i = 0; i < d; ++i)
    TD_CHECK(a.scale(i) == 0 || (a.scale(i) >= 1e-30 && a.scale(i) <= 1e30), Value,
             "scale_factor {} expects numbers above 0", a.scale(i));
}

void check_input(const ResampleAttrs& a, const Spec& x, const char* name) {
  int d = a.output.rank();
  TD_CHECK(x.rank() == d + 2, Shape, "{} is {}, expected {} dimensions", name, x.shape.to_string(),
           d + 2);
  TD_CHECK(is_floating(x.dtype) || (x.dtype == DType::u8 &&
                                    a.mode <= static_cast<int64_t>(ResampleMode::nearest_exact)),
           DType, "{} is {}, expected a floating dtype\nCast it with .to(float32).", name,
           to_string(x.dtype));
}

Shape with_spatial(const Shape& x, const IntList& spatial) {
  Shape s{x[0], x[1]};
  for (Dim v : spatial) s.push_back(v);
  return s;
}

void interpolate_infer(InferCall& c) {
  const auto& a = c.get_attrs<ResampleAttrs>();
  check_attrs(a);
  const Spec& x = c.in[0];
  check_input(a, x, "x");
  for (int i = 2; i < x.rank(); ++i)
    TD_CHECK(x[i].is_symbolic() || x[i].value() > 0, Shape, "x {} is empty in dimension {}",
             x.shape.to_string(), i);
  c.out[0] = Spec(x.dtype, with_spatial(x.shape, a.output), x.device);
}

void interpolate_backward_infer(InferCall& c) {
  const auto& a = c.get_attrs<ResampleAttrs>();
  check_attrs(a);
  const Spec& g = c.in[0];
  check_input(a, g, "gradient");
  TD_CHECK(a.size.rank() == a.output.rank(), Value, "size {} expects {} entries",
           a.size.to_string(), a.output.rank());
  for (int i = 2; i < g.rank(); ++i)
    TD_CHECK(dims_equal(g[i], a.output[i - 2]), Shape, "gradient is {}, the output size is {}",
             g.shape.to_string(), a.output.to_string());
  c.out[0] = Spec(g.dtype, with_spatial(g.shape, a.size), g.device);
}

// ---- derivatives, vmap

void interpolate_vjp(VjpCall& c) {
  ResampleAttrs a = c.get_attrs<ResampleAttrs>();
  a.size = {};
  for (int i = 2; i < c.in_shape(0).rank(); ++i) a.size.push_back(c.in_shape(0)[i]);
  c.results[0] = interpolate_backward(c.grad(), a, c.loc());
}

void interpolate_backward_vjp(VjpCall& c) {
  ResampleAttrs a = c.get_attrs<ResampleAttrs>();
  a.size = {};
  c.results[0] = call(op::interpolate, &a, c.loc(), c.grad());
}

void interpolate_batch(BatchCall& c) {
  SourceLocation loc = c.node.loc;
  Dim n = c.in[0].shape(1);
  Tensor y = call(*c.node.op, c.node.attrs.get(), loc, merge_dims(c.in[0], 0, loc));
  c.out[0] = split_dim(y, 0, c.batch_size, n, loc);
}

double interpolate_flops(const InferCall& c) {
  const auto& a = c.get_attrs<ResampleAttrs>();
  double taps = a.mode == 3 ? 4 : a.mode == 2 ? 2 : 0;
  return 2 * taps * static_cast<double>(c.out[0].shape.numel().value()) * a.output.rank();
}

// ---- the function

struct Mode {
  const char* name;
  int spatial;  ///< 0: any
  ResampleMode mode;
  bool corners, antialias;  ///< which options it accepts
};
constexpr Mode kModes[] = {
    {"nearest", 0, ResampleMode::nearest, false, false},
    {"nearest-exact", 0, ResampleMode::nearest_exact, false, false},
    {"linear", 1, ResampleMode::linear, true, false},
    {"bilinear", 2, ResampleMode::linear, true, true},
    {"trilinear", 3, ResampleMode::linear, true, false},
    {"bicubic", 2, ResampleMode::cubic, true, true},
    {"area", 0, ResampleMode::nearest, false, false},
};

const Mode& mode_of(const InterpolateOptions& o, const Tensor& x) {
  const int d = x.dim() - 2;
  for (const Mode& m : kModes) {
    if (o.mode != m.name) continue;
    TD_CHECK(m.spatial == 0 || m.spatial == d, Shape,
             "mode '{}' expects {} dimensions, x is {}\nUse {}.", o.mode, m.spatial + 2,
             x.shape().to_string(),
             d == 1   ? "linear"
             : d == 2 ? "bilinear or bicubic"
                      : "trilinear");
    TD_CHECK(m.corners || !o.align_corners, Value,
             "align_corners does not apply to mode '{}'\nLeave it out.", o.mode);
    TD_CHECK(m.antialias || !o.antialias, Value,
             "mode '{}' has no antialias\nUse bilinear or "
             "bicubic.",
             o.mode);
    return m;
  }
  TD_FAIL(Value,
          "mode '{}' is unknown\nUse nearest, nearest-exact, linear, bilinear, bicubic, "
          "trilinear or area.",
          o.mode);
}

// floor(n * factor); for symbols only integer factors.
Dim scaled(Dim n, double factor) {
  TD_CHECK(std::isfinite(factor) && factor > 0, Value, "scale_factor {} expects numbers above 0",
           factor);
  if (n.is_symbolic()) {
    TD_CHECK(
        factor == std::floor(factor) && factor < 1e9, Unsupported,
        "scale_factor {} of a size that is not known in a trace\nUse an integer scale_factor, or "
        "give size.",
        factor);
    return n * Dim(static_cast<int64_t>(factor));
  }
  double v = std::floor(static_cast<double>(n.value()) * factor);
  TD_CHECK(v < 0x1p53, Value, "scale_factor {} makes the result too large", factor);
  return static_cast<int64_t>(v);
}

ResampleAttrs complete(const InterpolateOptions& o, const Tensor& x, ResampleMode mode) {
  const int d = x.dim() - 2;
  ResampleAttrs a;
  a.mode = static_cast<int64_t>(mode);
  a.align_corners = o.align_corners.value_or(false);
  a.antialias = o.antialias;
  const int factors = o.scale_factor.count();
  TD_CHECK(o.size.empty() != (factors == 0), Value,
           "{} of size and scale_factor is set\nSet one of them.", factors == 0 ? "none" : "each");
  if (factors == 0) {
    TD_CHECK(o.size.rank() == 1 || o.size.rank() == d, Value,
             "size {} has {} entries, expected 1 or {}", o.size.to_string(), o.size.rank(), d);
    for (int i = 0; i < d; ++i) a.output.push_back(o.size[o.size.rank() == 1 ? 0 : i]);
    return a;
  }
  TD_CHECK(factors == 1 || factors == d, Value, "scale_factor has {} entries, expected 1 or {}",
           factors, d);
  for (int i = 0; i < d; ++i) {
    a.output.push_back(scaled(x.shape(i + 2), o.scale_factor[i]));
    if (!o.recompute_scale_factor)
      (i == 0 ? a.scale0 : i == 1 ? a.scale1 : a.scale2) = o.scale_factor[i];
  }
  return a;
}

}  // namespace

namespace op {
constinit const OpDef interpolate = contraction("interpolate", {"x"}, fields<ResampleAttrs>())
                                        .infer(interpolate_infer)
                                        .vjp(interpolate_vjp)
                                        .batch(interpolate_batch)
                                        .reference(detail::interpolate_reference)
                                        .flag(kFollowsLayout)
                                        .flops(interpolate_flops)
                                        .onnx("Resize")
                                        .doc("x [n, c, ...] resized in its spatial dimensions.");
constinit const OpDef interpolate_backward =
    contraction("interpolate_backward", {"gy"}, fields<ResampleAttrs>())
        .outputs({"gx"})
        .infer(interpolate_backward_infer)
        .vjp(interpolate_backward_vjp)
        .batch(interpolate_batch)
        .reference(detail::interpolate_reference)
        .doc("Gradient of interpolate: gy sent back with the same weights.");
}  // namespace op

std::span<const OpDef* const> resample_rows() {
  static constexpr const OpDef* kRows[] = {&op::interpolate, &op::interpolate_backward,
                                           &op::grid_sample, &op::grid_sample_backward_input,
                                           &op::grid_sample_backward_grid};
  return kRows;
}

Tensor interpolate_backward(Tensor gy, const ResampleAttrs& attrs, SourceLocation loc) {
  return call(op::interpolate_backward, &attrs, loc, std::move(gy));
}

Tensor interpolate(Tensor x, const InterpolateOptions& options, SourceLocation loc) {
  bool area = options.mode == "area";
  ResampleAttrs a = placed("interpolate", loc, [&] {
    TD_CHECK(x.dim() >= 3 && x.dim() <= 5, Shape,
             "x is {}, expected [n, channels, ...] with one to three spatial dimensions",
             x.shape().to_string());
    ResampleAttrs r = complete(options, x, mode_of(options, x).mode);
    check_attrs(r);
    return r;
  });
  if (!area) return call(op::interpolate, &a, loc, std::move(x));
  const int d = x.dim() - 2;
  auto pool = d == 1 ? adaptive_avg_pool1d : d == 2 ? adaptive_avg_pool2d : adaptive_avg_pool3d;
  return detail::named("interpolate", loc, [&] { return pool(std::move(x), a.output, loc); });
}

}  // namespace tandem
