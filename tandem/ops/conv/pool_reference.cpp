// SPDX-License-Identifier: Apache-2.0
// Plain loops of the pooling rows, plane by plane, over any strides. Maxima compare in the input's
// own type; sums use f64.
#include <cmath>

#include "tandem/ops/conv/pool.h"
#include "tandem/ops/conv/pool_internal.h"
#include "tandem/ops/rule_internal.h"

namespace tandem::detail {
namespace {

// An array [n, c, spatial...] viewed as planes of three spatial dimensions.
struct Planes {
  int64_t size[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
  int64_t c, step_n, step_c;
  int64_t count, plane = 1;

  explicit Planes(const Array& a) : c(a.shape[1]), step_n(a.strides[0]), step_c(a.strides[1]) {
    int d = a.rank - 2;
    for (int i = 0; i < d; ++i) {
      size[3 - d + i] = a.shape[i + 2];
      stride[3 - d + i] = a.strides[i + 2];
    }
    for (int64_t s : size) plane *= s;
    count = a.shape[0] * c;
  }
  int64_t base(int64_t p) const { return p / c * step_n + p % c * step_c; }
  int64_t offset(int64_t z, int64_t y, int64_t x) const {
    return z * stride[0] + y * stride[1] + x * stride[2];
  }
};

// Positions start, start + step, ... below end of one dimension; `full` also counts padding.
struct Window {
  int64_t start, end, step, full;
};

Window window_of(const PoolAttrs& a, int i, int64_t in, int64_t out, int64_t o) {
  if (i < 0) return {0, 1, 1, 1};
  if (!a.output.empty()) {
    int64_t start = o * in / out, end = ((o + 1) * in + out - 1) / out;
    return {start, end, 1, end - start};
  }
  int64_t p = a.padding[i].value(), step = a.dilation[i].value();
  int64_t start = o * a.stride[i].value() - p;
  int64_t end = start + (a.kernel[i].value() - 1) * step + 1;
  int64_t full = std::min(end, in + p) - start;
  if (start < 0) start += (-start + step - 1) / step * step;
  return {start, std::min(end, in), step, full};
}

// f(output offset in the plane, row-major output index, window[3]) for every output of a plane.
template <class F>
void for_outputs(const PoolAttrs& a, const Planes& x, const Planes& y, F&& f) {
  int lead = 3 - (a.output.empty() ? a.kernel.rank() : a.output.rank());
  Window w[3];
  int64_t n = 0;
  for (int64_t od = 0; od < y.size[0]; ++od) {
    w[0] = window_of(a, 0 - lead, x.size[0], y.size[0], od);
    for (int64_t oh = 0; oh < y.size[1]; ++oh) {
      w[1] = window_of(a, 1 - lead, x.size[1], y.size[1], oh);
      for (int64_t ow = 0; ow < y.size[2]; ++ow) {
        w[2] = window_of(a, 2 - lead, x.size[2], y.size[2], ow);
        f(y.offset(od, oh, ow), n++, w);
      }
    }
  }
}

// f(offset in the plane, row-major index) for every input of a window.
template <class F>
void for_inputs(const Planes& x, const Window* w, F&& f) {
  for (int64_t d = w[0].start; d < w[0].end; d += w[0].step)
    for (int64_t h = w[1].start; h < w[1].end; h += w[1].step)
      for (int64_t i = w[2].start; i < w[2].end; i += w[2].step)
        f(x.offset(d, h, i), (d * x.size[1] + h) * x.size[2] + i);
}

template <class T>
void max_pool(const KernelCall& c) {
  const auto& a = c.get_attrs<PoolAttrs>();
  Planes x(c.in[0]), y(c.out[0]);
  bool keep = c.n_out > 1 && c.out[1].data;
  Planes index = keep ? Planes(c.out[1]) : y;
  parallel_for_rows(x.count, x.plane + y.plane, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      const T* in = c.in[0].as<T>() + x.base(p);
      T* out = c.out[0].as<T>() + y.base(p);
      int32_t* idx = keep ? c.out[1].as<int32_t>() + index.base(p) : nullptr;
      for_outputs(a, x, y, [&](int64_t o, int64_t n, const Window* w) {
        int64_t best = -1, at = 0;
        for_inputs(x, w, [&](int64_t offset, int64_t k) {
          bool nan = in[offset] != in[offset];
          if (best >= 0 && !(in[offset] > in[at]) && !nan) return;
          best = k;
          at = offset;
        });
        out[o] = in[at];
        if (!idx) return;
        int64_t w2 = y.size[2], w1 = y.size[1];
        idx[index.offset(n / (w1 * w2), n / w2 % w1, n % w2)] = static_cast<int32_t>(best);
      });
    }
  });
}

}  // namespace

void max_pool_reference(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  visit_dtype(c.in[0].dtype, [&](auto zero) { max_pool<decltype(zero)>(c); });
}

void max_pool_backward_reference(const KernelCall& c) {
  Planes gy(c.in[0]), gx(c.out[0]);
  Dense<double> g(c.in[0]), sum(c.out[0].numel);
  Dense<uint64_t> idx(c.in[1]);
  sum.fill(0);
  for (int64_t p = 0; p < gy.count; ++p)
    for (int64_t i = 0; i < gy.plane; ++i) {
      auto at = static_cast<int64_t>(idx[p * gy.plane + i]);
      if (at < 0 || at >= gx.plane) {
        c.error->report(1, at);
        continue;
      }
      sum[p * gx.plane + at] += g[p * gy.plane + i];
    }
  sum.store(c.out[0]);
}

namespace {

double divisor(const PoolAttrs& a, const Window* w) {
  if (a.divisor_override) return static_cast<double>(a.divisor_override);
  int64_t n = 1;
  for (int i = 0; i < 3; ++i)
    n *= a.count_include_pad ? w[i].full : std::max<int64_t>(w[i].end - w[i].start, 0);
  return static_cast<double>(n);
}

// The planes of dense f64 copies.
Planes dense_planes(Planes p) {
  p.stride[2] = 1;
  p.stride[1] = p.size[2];
  p.stride[0] = p.size[1] * p.size[2];
  return p;
}

}  // namespace

void avg_pool_reference(const KernelCall& c) {
  const auto& a = c.get_attrs<PoolAttrs>();
  if (c.out[0].numel == 0) return;
  Planes x = dense_planes(Planes(c.in[0])), y = dense_planes(Planes(c.out[0]));
  Dense<double> in(c.in[0]), out(c.out[0].numel);
  for (int64_t p = 0; p < x.count; ++p)
    for_outputs(a, x, y, [&](int64_t, int64_t n, const Window* w) {
      double sum = 0;
      for_inputs(x, w, [&](int64_t, int64_t k) { sum += in[p * x.plane + k]; });
      out[p * y.plane + n] = sum / divisor(a, w);
    });
  out.store(c.out[0]);
}

void avg_pool_backward_reference(const KernelCall& c) {
  const auto& a = c.get_attrs<PoolAttrs>();
  Planes y = dense_planes(Planes(c.in[0])), x = dense_planes(Planes(c.out[0]));
  Dense<double> g(c.in[0]), sum(c.out[0].numel);
  sum.fill(0);
  for (int64_t p = 0; p < y.count && y.plane; ++p)
    for_outputs(a, x, y, [&](int64_t, int64_t n, const Window* w) {
      double v = g[p * y.plane + n] / divisor(a, w);
      for_inputs(x, w, [&](int64_t, int64_t k) { sum[p * x.plane + k] += v; });
    });
  sum.store(c.out[0]);
}

}  // namespace tandem::detail
