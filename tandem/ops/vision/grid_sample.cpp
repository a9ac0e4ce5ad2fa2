// SPDX-License-Identifier: Apache-2.0
// The rows of grid_sample. The result is linear in x: the gradient with respect to x sends gy back
// with the same weights and its rule uses the other two rows. The gradient with respect to the grid
// is a composite, so it has derivatives of every order; its loops are in grid_sample_loops.cpp.
#include "tandem/ops/index/index.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"
#include "tandem/ops/vision/resample_internal.h"

namespace tandem {
namespace {

using detail::placed;

constexpr int64_t kNearest = static_cast<int64_t>(ResampleMode::nearest);
constexpr int64_t kCubic = static_cast<int64_t>(ResampleMode::cubic);

// ---- shape rules

void check_grid(const GridSampleAttrs& a, const Spec& x, const char* name, const Spec& grid) {
  TD_CHECK(x.rank() == 4 || x.rank() == 5, Shape,
           "{} is {}, expected [n, channels, h, w] or [n, channels, d, h, w]", name,
           x.shape.to_string());
  TD_CHECK(grid.rank() == x.rank() && dims_equal(grid[-1 + grid.rank()], x.rank() - 2), Shape,
           "grid is {}, {} is {}: expected [n, ...size, {}]", grid.shape.to_string(), name,
           x.shape.to_string(), x.rank() - 2);
  TD_CHECK(dims_equal(grid[0], x[0]), Shape, "grid is {}, {} is {}: expected the same n",
           grid.shape.to_string(), name, x.shape.to_string());
  TD_CHECK(is_floating(x.dtype), DType,
           "{} is {}, expected a floating dtype\nCast it with "
           ".to(float32).",
           name, to_string(x.dtype));
  TD_CHECK(grid.dtype == x.dtype, DType, "grid is {}, {} is {}\nCast one of them with .to().",
           to_string(grid.dtype), name, to_string(x.dtype));
  TD_CHECK(a.mode == kNearest || a.mode == static_cast<int64_t>(ResampleMode::linear) ||
               (a.mode == kCubic && x.rank() == 4),
           Value, "bicubic expects {} of 4 dimensions, it is {}\nUse bilinear.", name,
           x.shape.to_string());
}

void check_not_empty(const Spec& x) {
  for (int i = 2; i < x.rank(); ++i)
    TD_CHECK(x[i].is_symbolic() || x[i].value() > 0, Shape, "x {} is empty in dimension {}",
             x.shape.to_string(), i);
}

void check_gradient(const Spec& g, const Spec& grid, Dim channels) {
  bool fits = g.rank() == grid.rank() && dims_equal(g[0], grid[0]) && dims_equal(g[1], channels);
  for (int i = 2; fits && i < g.rank(); ++i) fits = dims_equal(g[i], grid[i - 1]);
  TD_CHECK(fits, Shape, "gradient is {}, grid is {}, there are {} channels", g.shape.to_string(),
           grid.shape.to_string(), channels.to_string());
}

void grid_sample_infer(InferCall& c) {
  const Spec &x = c.in[0], &grid = c.in[1];
  check_grid(c.get_attrs<GridSampleAttrs>(), x, "x", grid);
  check_not_empty(x);
  Shape y{x[0], x[1]};
  for (int i = 1; i + 1 < grid.rank(); ++i) y.push_back(grid[i]);
  c.out[0] = Spec(x.dtype, y, x.device);
}

void grid_backward_input_infer(InferCall& c) {
  const auto& a = c.get_attrs<GridSampleAttrs>();
  const Spec &g = c.in[0], &grid = c.in[1];
  check_grid(a, g, "gradient", grid);
  check_gradient(g, grid, g[1]);
  TD_CHECK(a.size.rank() == g.rank() - 2, Value, "size {} expects {} entries", a.size.to_string(),
           g.rank() - 2);
  Shape x{g[0], g[1]};
  for (Dim v : a.size) x.push_back(v);
  c.out[0] = Spec(g.dtype, x, g.device);
  check_not_empty(c.out[0]);
}

void backward_grid_infer(InferCall& c) {
  const Spec &g = c.in[0], &x = c.in[1], &grid = c.in[2];
  check_grid(c.get_attrs<GridSampleAttrs>(), x, "x", grid);
  check_not_empty(x);
  check_gradient(g, grid, x[1]);
  TD_CHECK(g.dtype == x.dtype, DType, "gradient is {}, x is {}", to_string(g.dtype),
           to_string(x.dtype));
  c.out[0] = Spec(grid.dtype, grid.shape, grid.device);
}

// ---- derivatives

GridSampleAttrs sized(GridSampleAttrs a, const Shape& x) {
  a.size = {};
  for (int i = 2; i < x.rank(); ++i) a.size.push_back(x[i]);
  return a;
}

void grid_sample_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<GridSampleAttrs>();
  if (c.needs(0))
    c.results[0] = grid_sample_backward_input(c.grad(), c.in(1), sized(a, c.in_shape(0)), c.loc());
  if (c.needs(1)) c.results[1] = grid_sample_backward_grid(c.grad(), c.in(0), c.in(1), a, c.loc());
}

// <backward_input(gy, grid), v> = <gy, grid_sample(v, grid)>.
void grid_backward_input_vjp(VjpCall& c) {
  GridSampleAttrs a = c.get_attrs<GridSampleAttrs>();
  a.size = {};
  if (c.needs(0)) c.results[0] = call(op::grid_sample, &a, c.loc(), c.grad(), c.in(1));
  if (c.needs(1)) c.results[1] = grid_sample_backward_grid(c.in(0), c.grad(), c.in(1), a, c.loc());
}

void grid_batch(BatchCall& c) {
  SourceLocation loc = c.node.loc;
  std::vector<Operand> ins;
  Dim n = 0;
  for (int i = 0; i < c.n_in(); ++i) {
    Tensor t = detail::with_batch(c, i);
    n = t.shape(1);
    ins.emplace_back(detail::merge_dims(t, 0, loc), loc);
  }
  Tensor y[kMaxOpOuts];
  detail::call_again(c, c.node.attrs.get(), ins, y);
  c.out[0] = detail::split_dim(y[0], 0, c.batch_size, n, loc);
}

// ---- the gradient with respect to the grid as a body

// What the samples of one spatial dimension read: element index[k] (inside the input) with
// weight[k], whose derivative with respect to the grid is derivative[k].
struct Axis {
  std::vector<Tensor> index, weight, derivative;
};

// Positions folded into lo..hi, with the sign of their derivative.
Tensor reflected(const Tensor& at, double lo, double hi) {
  if (hi <= lo) return at * 0.0;
  Tensor from = abs(at - lo);
  Tensor turns = floor(from / (hi - lo));
  Tensor rest = from - turns * (hi - lo);
  return where(eq(remainder(turns, 2), 0), rest + lo, hi - rest);
}
Tensor reflected_sign(const Tensor& at, double lo, double hi) {
  if (hi <= lo) return at * 0.0;
  Tensor turns = floor(abs(at - lo) / (hi - lo));
  return where(lt(at, lo), full_like(at, -1), full_like(at, 1)) * (1 - 2 * remainder(turns, 2));
}

// The element that padding gives for an integer position, and 0 where it is outside.
Tensor inside(Tensor at, double size, const GridSampleAttrs& a, Tensor& weight) {
  auto padding = static_cast<GridPadding>(a.padding);
  if (padding == GridPadding::zeros)
    weight = where(logical_and(ge(at, 0), le(at, size - 1)), weight, zeros_like(weight));
  if (padding == GridPadding::reflection)
    at = a.align_corners ? reflected(at, 0, size - 1) : reflected(at, -0.5, size - 0.5);
  return clamp(at, 0, size - 1);
}

std::vector<Tensor> cubic_weights(const Tensor& t, bool derivative) {
  constexpr double a = -0.75;
  auto near = [&](const Tensor& d) {
    return derivative ? (3 * (a + 2) * d - 2 * (a + 3)) * d : ((a + 2) * d - (a + 3)) * d * d + 1;
  };
  auto far = [&](const Tensor& d) {
    return derivative ? (3 * a * d - 10 * a) * d + 8 * a
                      : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  };
  double sign = derivative ? -1 : 1;
  return {far(t + 1), near(t), sign * near(1 - t), sign * far(2 - t)};
}

Axis axis_of(const Tensor& g, int64_t n, const GridSampleAttrs& a) {
  const auto size = static_cast<double>(n);
  const double scale = a.align_corners ? (size - 1) / 2 : size / 2;
  Tensor at = a.align_corners ? (g + 1) * scale : (g + 1) * scale - 0.5;
  Tensor derivative = full_like(g, scale);
  auto padding = static_cast<GridPadding>(a.padding);
  if (a.mode != kCubic && padding != GridPadding::zeros) {
    if (padding == GridPadding::reflection) {
      double lo = a.align_corners ? 0 : -0.5, hi = a.align_corners ? size - 1 : size - 0.5;
      derivative = derivative * reflected_sign(at, lo, hi);
      at = reflected(at, lo, hi);
    }
    derivative =
        where(logical_and(gt(at, 0), lt(at, size - 1)), derivative, zeros_like(derivative));
    at = clamp(at, 0, size - 1);
  }
  Axis r;
  Tensor low = floor(at), t = at - low;
  std::vector<Tensor> d;
  if (a.mode == kCubic) {
    r.weight = cubic_weights(t, false);
    d = cubic_weights(t, true);
  } else {
    r.weight = {1 - t, t};
    d = {full_like(t, -1), full_like(t, 1)};
  }
  const double first = a.mode == kCubic ? -1 : 0;
  for (size_t k = 0; k < d.size(); ++k) {
    Tensor position = low + (first + static_cast<double>(k));
    // A weight and its derivative are both zero outside the input.
    Tensor keep = ones_like(t);
    r.index.push_back(inside(position, size, a, keep).to(DType::i64));
    r.weight[k] = r.weight[k] * keep;
    r.derivative.push_back(d[k] * derivative * keep);
  }
  return r;
}

// Samples of x at one combination of taps: [n, c, points].
Tensor taken(const Tensor& flat, const Tensor& index, Dim channels, SourceLocation loc) {
  Shape s{index.shape(0), channels, index.shape(1)};
  return gather(flat, 2, index.unsqueeze(1, loc).expand(s, loc), loc);
}

void backward_grid_body(BodyCall& c) {
  const auto& a = c.get_attrs<GridSampleAttrs>();
  const Tensor &x = c.in[1], &grid = c.in[2];
  const int d = x.dim() - 2;
  SourceLocation here = SourceLocation::here();
  if (a.mode == kNearest) {
    c.out[0] = zeros_like(grid);
    return;
  }
  const Dim n = x.shape(0), channels = x.shape(1);
  const Dim points = detail::product(grid.shape(), 1, d + 1);
  Tensor g = c.in[0].reshape({n, channels, points}, here);
  Tensor places = grid.reshape({n, points, Dim(d)}, here);
  Tensor flat = x.reshape({n, channels, detail::product(x.shape(), 2, d + 2)}, here);
  std::vector<Axis>
      axes;  // of x's spatial dimensions: the grid's last position belongs to the first
  for (int i = 0; i < d; ++i)
    axes.push_back(axis_of(places.select(2, d - 1 - i, here), x.size(i + 2), a));
  std::vector<Tensor> sums(static_cast<size_t>(d));
  const size_t taps = axes[0].index.size();
  size_t all = 1;
  for (int i = 0; i < d; ++i) all *= taps;
  for (size_t k = 0; k < all; ++k) {
    size_t at[3], rest = k;
    Tensor index;
    for (int i = 0; i < d; ++i, rest /= taps) {
      at[i] = rest % taps;
      const Tensor& own = axes[static_cast<size_t>(i)].index[at[i]];
      index = i ? index * x.size(i + 2) + own : own;
    }
    Tensor v = sum(taken(flat, index, channels, here) * g, {1});
    for (int j = 0; j < d; ++j) {
      Tensor w;
      for (int i = 0; i < d; ++i) {
        const Axis& axis = axes[static_cast<size_t>(i)];
        const Tensor& f = i == j ? axis.derivative[at[i]] : axis.weight[at[i]];
        w = w.defined() ? w * f : f;
      }
      Tensor& s = sums[static_cast<size_t>(d - 1 - j)];
      s = s.defined() ? s + v * w : v * w;
    }
  }
  c.out[0] = stack(sums, -1, here).reshape(grid.shape(), here);
}

}  // namespace

namespace op {
constinit const OpDef grid_sample =
    contraction("grid_sample", {"x", "grid"}, fields<GridSampleAttrs>())
        .infer(grid_sample_infer)
        .vjp(grid_sample_vjp, 3)
        .batch(grid_batch)
        .reference(detail::grid_sample_reference)
        .onnx("GridSample")
        .doc("x [n, c, ...] sampled at the positions (-1..1) of grid [n, ..., d].");
constinit const OpDef grid_sample_backward_input =
    contraction("grid_sample_backward_input", {"gy", "grid"}, fields<GridSampleAttrs>())
        .outputs({"gx"})
        .infer(grid_backward_input_infer)
        .vjp(grid_backward_input_vjp, 3)
        .batch(grid_batch)
        .reference(detail::grid_sample_backward_input_reference)
        .doc("Gradient of grid_sample with respect to x: gy added where its samples came from.");
constinit const OpDef grid_sample_backward_grid =
    composite("grid_sample_backward_grid", {"gy", "x", "grid"}, fields<GridSampleAttrs>(),
              backward_grid_body)
        .outputs({"ggrid"})
        .infer(backward_grid_infer)
        .batch(grid_batch)
        .doc("Gradient of grid_sample with respect to the grid.");
}  // namespace op

Tensor grid_sample_backward_input(Tensor gy, Tensor grid, const GridSampleAttrs& attrs,
                                  SourceLocation loc) {
  return call(op::grid_sample_backward_input, &attrs, loc, std::move(gy), std::move(grid));
}
Tensor grid_sample_backward_grid(Tensor gy, Tensor x, Tensor grid, const GridSampleAttrs& attrs,
                                 SourceLocation loc) {
  return call(op::grid_sample_backward_grid, &attrs, loc, std::move(gy), std::move(x),
              std::move(grid));
}

Tensor grid_sample(Tensor x, Tensor grid, std::string_view mode, std::string_view padding_mode,
                   bool align_corners, SourceLocation loc) {
  GridSampleAttrs a = placed("grid_sample", loc, [&] {
    GridSampleAttrs r;
    TD_CHECK(mode == "bilinear" || mode == "nearest" || mode == "bicubic", Value,
             "mode '{}' is unknown\nUse bilinear, nearest or bicubic.", mode);
    TD_CHECK(padding_mode == "zeros" || padding_mode == "border" || padding_mode == "reflection",
             Value, "padding_mode '{}' is unknown\nUse zeros, border or reflection.", padding_mode);
    r.mode = static_cast<int64_t>(mode == "bilinear"  ? ResampleMode::linear
                                  : mode == "nearest" ? ResampleMode::nearest
                                                      : ResampleMode::cubic);
    r.padding = static_cast<int64_t>(padding_mode == "zeros"    ? GridPadding::zeros
                                     : padding_mode == "border" ? GridPadding::border
                                                                : GridPadding::reflection);
    r.align_corners = align_corners;
    return r;
  });
  return call(op::grid_sample, &a, loc, std::move(x), std::move(grid));
}

Tensor affine_grid(Tensor theta, IntList size, bool align_corners, SourceLocation loc) {
  const int d = size.rank() - 2;
  placed("affine_grid", loc, [&] {
    TD_CHECK(d == 2 || d == 3, Shape,
             "size is {}, expected [n, channels, h, w] or [n, channels, d, h, w]",
             size.to_string());
    TD_CHECK(theta.dim() == 3 && dims_equal(theta.shape(0), size[0]) &&
                 dims_equal(theta.shape(1), d) && dims_equal(theta.shape(2), d + 1),
             Shape, "theta is {}, size {} expects [{}, {}, {}]", theta.shape().to_string(),
             size.to_string(), size[0].to_string(), d, d + 1);
    TD_CHECK(is_floating(theta.dtype()), DType,
             "theta is {}, expected a floating dtype\nCast it with .to(float32).",
             to_string(theta.dtype()));
    for (int i = 2; i < size.rank(); ++i)
      TD_CHECK(!size[i].is_symbolic() && size[i].value() >= 1, Value,
               "size {} expects numbers of at least 1", size.to_string());
  });
  const DeviceGuard there(theta.device());
  Shape wide;
  for (int i = 2; i < size.rank(); ++i) wide.push_back(size[i]);
  std::vector<Tensor> places;  // x, y, (z), 1 at every point
  for (int i = d - 1; i >= 0; --i) {
    const int64_t n = size[i + 2].value();
    Tensor line = n == 1 ? zeros({1}, DType::f64) : linspace(-1, 1, n, DType::f64);
    if (!align_corners) line = line * (static_cast<double>(n - 1) / static_cast<double>(n));
    Shape s;
    for (int k = 0; k < d; ++k) s.push_back(k == i ? n : 1);
    places.push_back(line.reshape(s, loc).expand(wide, loc));
  }
  places.push_back(ones(wide, DType::f64));
  Tensor base = stack(places, -1, loc).reshape({-1, d + 1}, loc).to(theta.dtype(), loc);
  Tensor grid = matmul(base, theta.transpose(1, 2, loc), loc);  // [n, points, d]
  Shape out{size[0]};
  for (Dim v : wide) out.push_back(v);
  out.push_back(d);
  return grid.reshape(out, loc);
}

}  // namespace tandem
