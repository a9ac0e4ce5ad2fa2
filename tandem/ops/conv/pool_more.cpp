// SPDX-License-Identifier: Apache-2.0
// Pooling functions composed of other ops: positions together with values, power-average pooling,
// unpooling and fractional max pooling. Their derivatives follow from the ops.
#include <cmath>

#include "tandem/ops/conv/conv_internal.h"
#include "tandem/ops/conv/pool.h"
#include "tandem/ops/conv/pool_internal.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::placed;
using detail::spread;

// ---- power-average pooling: (sum of x^p)^(1/p)

Tensor lp_nd(const char* name, int d, Tensor x, double p, const IntList& kernel,
             const IntList& stride, bool ceil_mode, SourceLocation loc) {
  double window = placed(name, loc, [&] {
    detail::check_pool_input(x, d);
    TD_CHECK(p != 0 && !std::isnan(p), Value, "norm_type is {}, expected a nonzero number", p);
    double n = 1;
    for (Dim k : spread("kernel_size", kernel, d)) n *= static_cast<double>(k.value());
    return n;
  });
  return detail::named(name, loc, [&] {
    Tensor powers = pow(std::move(x), p);
    Tensor y = d == 1 ? avg_pool1d(std::move(powers), kernel, stride, {0}, ceil_mode, true, loc)
               : d == 2
                   ? avg_pool2d(std::move(powers), kernel, stride, {0}, ceil_mode, true, 0, loc)
                   : avg_pool3d(std::move(powers), kernel, stride, {0}, ceil_mode, true, 0, loc);
    return pow(sign(y) * relu(abs(y)) * window, 1 / p);
  });
}

// ---- unpooling

// Spatial sizes of the result: given (with or without n and channels), or those before the pooling.
IntList unpooled_size(const Tensor& x, int d, const IntList& kernel, const IntList& stride,
                      const IntList& padding, const IntList& output_size) {
  IntList k = spread("kernel_size", kernel, d);
  IntList s = stride.empty() ? k : spread("stride", stride, d), p = spread("padding", padding, d);
  const int lead = x.dim() - d;
  IntList usual, got;
  for (int i = 0; i < d; ++i) usual.push_back((x.shape(lead + i) - 1) * s[i] - 2 * p[i] + k[i]);
  if (output_size.empty()) {
    got = usual;
  } else {
    const int skip = output_size.rank() - d;
    TD_CHECK(skip == 0 || skip == lead, Value, "output_size {} has {} entries, expected {} or {}",
             output_size.to_string(), output_size.rank(), d, d + lead);
    for (int i = 0; i < d; ++i) {
      got.push_back(output_size[skip + i]);
      if (got[i].is_symbolic() || usual[i].is_symbolic()) continue;
      TD_CHECK(got[i].value() > usual[i].value() - s[i].value() &&
                   got[i].value() < usual[i].value() + s[i].value(),
               Value, "output_size {} is not within one stride of {}", output_size.to_string(),
               usual.to_string());
    }
  }
  for (Dim v : got)
    TD_CHECK(v.is_symbolic() || v.value() >= 1, Shape,
             "the output would have size {}\nUse less padding, or set output_size.",
             got.to_string());
  return got;
}

Tensor unpool_nd(const char* name, int d, Tensor x, const Tensor& indices, const IntList& kernel,
                 const IntList& stride, const IntList& padding, const IntList& output_size,
                 SourceLocation loc) {
  IntList size = placed(name, loc, [&] {
    detail::check_pool_input(x, d);
    bool same = x.dim() == indices.dim();
    for (int i = 0; same && i < x.dim(); ++i) same = dims_equal(x.shape(i), indices.shape(i));
    TD_CHECK(same, Shape, "x is {}, indices are {}: expected equal shapes", x.shape().to_string(),
             indices.shape().to_string());
    TD_CHECK(detail::is_index_dtype(indices.dtype()), DType,
             "indices are {}, expected int64 or int32\nThey come from max_pool with indices.",
             to_string(indices.dtype()));
    return unpooled_size(x, d, kernel, stride, padding, output_size);
  });
  const DeviceGuard there(x.device());
  return detail::named(name, loc, [&] {
    const int lead = x.dim() - d;
    Shape out;
    for (int i = 0; i < lead; ++i) out.push_back(x.shape(i));
    Shape flat = out;
    flat.push_back(detail::product(size, 0, d));
    for (Dim v : size) out.push_back(v);
    const Shape rows = detail::merged(x.shape(), lead, x.dim());
    Tensor zero = full(flat, 0, x.dtype(), loc);
    Tensor at = indices.to(DType::i64, loc).reshape(rows, loc);
    return scatter(zero, -1, at, x.reshape(rows, loc), loc).reshape(out, loc);
  });
}

// ---- fractional max pooling

// First pixels of `out` windows of size k along an axis of size `in`: u [..., 1] in 0..1 shifts
// them (PyTorch: floor((i + u) alpha) - floor(u alpha), the last window at the end).
Tensor fractional_starts(const Tensor& u, int64_t in, int64_t out, int64_t k, SourceLocation loc) {
  if (out == 1) return zeros_like(u, DType::i64, loc) + (in - k);
  const double alpha = static_cast<double>(in - k) / static_cast<double>(out - 1);
  Tensor i = arange(out - 1, u.dtype(), loc);
  Tensor start = trunc((u + i) * alpha).to(DType::i64, loc) - trunc(u * alpha).to(DType::i64, loc);
  Shape last = start.shape();
  last[last.rank() - 1] = 1;
  return cat({start, full(last, in - k, DType::i64, loc)}, -1, loc);
}

// Output sizes from the options, validated.
IntList fractional_size(const Tensor& x, int d, const IntList& k, const FractionalPoolOptions& o) {
  IntList out;
  TD_CHECK(o.output_size.empty() != (o.output_ratio.count() == 0), Value,
           "{} of output_size and output_ratio is set\nSet one of them.",
           o.output_size.empty() ? "none" : "each");
  if (!o.output_size.empty()) out = spread("output_size", o.output_size, d);
  for (int i = 0; i < d; ++i) {
    const int64_t in = x.size(x.dim() - d + i);
    if (o.output_size.empty()) {
      const double r = o.output_ratio[i];
      TD_CHECK(r > 0 && r < 1, Value, "output_ratio {} expects numbers between 0 and 1", r);
      out.push_back(static_cast<int64_t>(static_cast<double>(in) * r));
    }
    TD_CHECK(k[i].value() >= 1 && out[i].value() >= 1 && k[i].value() + out[i].value() - 1 <= in,
             Shape, "windows of {} and output {} do not fit x {}\nUse a smaller kernel or output.",
             k.to_string(), out.to_string(), x.shape().to_string());
  }
  return out;
}

// The random number of each spatial dimension. In two dimensions the first one of a plane applies
// to its width, in three they are in order (PyTorch).
int64_t number_of(int d, int dimension) { return d == 2 ? 1 - dimension : dimension; }

// x [n, c, ...] in `d` spatial dimensions.
OutputAndIndices fractional(Tensor x, int d, const IntList& kernel, const FractionalPoolOptions& o,
                            SourceLocation loc) {
  const DeviceGuard there(x.device());
  const bool single = x.dim() == d + 1;
  if (single) x = x.unsqueeze(0, loc);
  const IntList k = spread("kernel_size", kernel, d), out = fractional_size(x, d, k, o);
  const Dim n = x.shape(0), c = x.shape(1);
  const DType t = accumulation_dtype(x.dtype());
  Tensor u = o.random_samples.defined() ? o.random_samples.to(t, loc) : rand({n, c, d}, t, loc);
  TD_CHECK(u.dim() == 3 && dims_equal(u.shape(0), n) && dims_equal(u.shape(1), c) &&
               dims_equal(u.shape(2), d),
           Shape, "random_samples are {}, expected [n, channels, {}] for x {}",
           u.shape().to_string(), d, x.shape().to_string());
  u = u.detach();
  // Positions in the spatial plane [n, c, *out, *kernel], summed over the dimensions.
  Tensor at = zeros({}, DType::i64, loc);
  int64_t places = 1, window = 1, plane = 1;
  for (int i = 0; i < d; ++i) {
    const int64_t size = x.size(2 + i), ki = k[i].value(), oi = out[i].value();
    const int64_t number = number_of(d, i);
    Tensor start = fractional_starts(u.slice(2, number, number + 1, 1, loc), size, oi, ki, loc);
    Shape first(n, c), second;
    for (int j = 0; j < d; ++j) first.push_back(j == i ? oi : 1);
    for (int j = 0; j < d; ++j) {
      first.push_back(1);
      second.push_back(j == i ? ki : 1);
    }
    at = at * size + (start.reshape(first, loc) + arange(ki, DType::i64, loc).reshape(second, loc));
    places *= oi;
    window *= ki;
    plane *= size;
  }
  Tensor windows =
      gather(x.reshape({n, c, plane}, loc), 2, at.reshape({n, c, places * window}, loc), loc);
  const auto best = max(windows.reshape({n, c, places, window}, loc), -1, false, loc);
  Tensor positions =
      gather(at.reshape({n, c, places, window}, loc), 3, best.indices.unsqueeze(-1, loc), loc);
  Shape shape;
  if (!single) shape.push_back(n);
  shape.push_back(c);
  for (Dim size : out) shape.push_back(size);
  return {best.values.reshape(shape, loc), positions.reshape(shape, loc)};
}

}  // namespace

#define TD_FRACTIONAL(n)                                                                         \
  OutputAndIndices fractional_max_pool##n##d_with_indices(                                       \
      Tensor x, IntList kernel_size, const FractionalPoolOptions& options, SourceLocation loc) { \
    return detail::named("fractional_max_pool" #n "d_with_indices", loc, [&] {                   \
      detail::check_pool_input(x, n);                                                            \
      return fractional(std::move(x), n, kernel_size, options, loc);                             \
    });                                                                                          \
  }                                                                                              \
  Tensor fractional_max_pool##n##d(Tensor x, IntList kernel_size,                                \
                                   const FractionalPoolOptions& options, SourceLocation loc) {   \
    return detail::named("fractional_max_pool" #n "d", loc, [&] {                                \
      return fractional_max_pool##n##d_with_indices(std::move(x), kernel_size, options, loc)     \
          .output;                                                                               \
    });                                                                                          \
  }
TD_FRACTIONAL(2)
TD_FRACTIONAL(3)
#undef TD_FRACTIONAL

#define TD_POOL(n)                                                                                \
  Tensor lp_pool##n##d(Tensor x, double norm_type, IntList kernel_size, IntList stride,           \
                       bool ceil_mode, SourceLocation loc) {                                      \
    return lp_nd("lp_pool" #n "d", n, std::move(x), norm_type, kernel_size, stride, ceil_mode,    \
                 loc);                                                                            \
  }                                                                                               \
  Tensor max_unpool##n##d(Tensor x, const Tensor& indices, IntList kernel_size, IntList stride,   \
                          IntList padding, IntList output_size, SourceLocation loc) {             \
    return unpool_nd("max_unpool" #n "d", n, std::move(x), indices, kernel_size, stride, padding, \
                     output_size, loc);                                                           \
  }
TD_POOL(1)
TD_POOL(2)
TD_POOL(3)
#undef TD_POOL

}  // namespace tandem
