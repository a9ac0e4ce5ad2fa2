// SPDX-License-Identifier: Apache-2.0
// Windows of a pooling call, as the kernels for channels-last arrays (pool_kernels.cpp) and for
// planes (pool_planes.cpp) see them.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "tandem/backend/cpu/conv/pool_internal.h"
#include "tandem/base/processor.h"
#include "tandem/graph/kernel.h"
#include "tandem/ops/conv/pool.h"

namespace tandem::detail {

template <class T>
const PoolLoops<T>& pool_loops() {
  static const PoolTables& best = cpu_features().avx512 ? kPoolAvx512
                                  : cpu_features().avx2 ? kPoolAvx2
                                                        : kPoolBase;
  if constexpr (std::is_same_v<T, float>)
    return best.f32;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return best.bf16;
  else
    return best.f16;
}

// Runs f(T()) for the element type of a call.
template <class F>
auto for_pool_type(DType t, F&& f) {
  if (t == DType::bf16) return f(BFloat16());
  if (t == DType::f16) return f(Half());
  return f(float());
}

// One spatial dimension: window o covers start(o), start + step, ... below end.
struct PoolAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, step = 1;
  bool adaptive = false;
  int64_t x_stride = 0, y_stride = 0, i_stride = 0;  ///< of x, y and the indices

  struct Window {
    int64_t start, end, full;
  };
  Window window(int64_t o) const {
    if (adaptive) {
      int64_t s = o * in / out, e = ((o + 1) * in + out - 1) / out;
      return {s, e, e - s};
    }
    int64_t s = o * stride - padding, e = s + (kernel - 1) * step + 1;
    int64_t full = std::min(e, in + padding) - s;
    if (s < 0) s += (-s + step - 1) / step * step;
    return {s, std::min(e, in), full};
  }
  // Windows that may cover position p: first..last.
  void covering(int64_t p, int64_t& first, int64_t& last) const {
    if (adaptive) {
      first = p * out / in;
      last = std::min(((p + 1) * out + in - 1) / in, out) - 1;
      return;
    }
    const int64_t reach = (kernel - 1) * step, q = p + padding;
    first = q <= reach ? 0 : (q - reach + stride - 1) / stride;
    last = std::min(q / stride, out - 1);
  }
  bool covers(const Window& w, int64_t p) const {
    return p >= w.start && p < w.end && (step == 1 || (p - w.start) % step == 0);
  }
};

// The windows of an axis and which of them cover an element, without the divisions.
class AxisTable {
 public:
  explicit AxisTable(const PoolAxis& a) : axis_(a) {
    for (int64_t o = 0; o < a.out; ++o) windows_.push_back(a.window(o));
    reach_.resize(static_cast<size_t>(a.in));
    for (int64_t p = 0; p < a.in; ++p) {
      Reach& r = reach_[static_cast<size_t>(p)];
      a.covering(p, r.first, r.last);
      while (r.first <= r.last && !a.covers(window(r.first), p)) ++r.first;
    }
  }
  const PoolAxis::Window& window(int64_t o) const { return windows_[static_cast<size_t>(o)]; }
  const std::vector<PoolAxis::Window>& windows() const { return windows_; }
  /// f(o) for the windows that cover element p, in order.
  template <class F>
  void covering(int64_t p, F&& f) const {
    const Reach& r = reach_[static_cast<size_t>(p)];
    for (int64_t o = r.first; o <= r.last; ++o)
      if (axis_.covers(window(o), p)) f(o);
  }

 private:
  struct Reach {
    int64_t first, last;
  };
  const PoolAxis& axis_;
  std::vector<PoolAxis::Window> windows_;
  std::vector<Reach> reach_;
};

// A call viewed as [n, c] planes of three spatial dimensions.
struct PoolPlanes {
  PoolAxis axis[3];
  int64_t n = 0, c = 0;
  int64_t x_n = 0, x_c = 0, y_n = 0, y_c = 0, i_n = 0, i_c = 0;
  int64_t divisor = 0;
  bool count_padding = true;

  PoolPlanes(const PoolAttrs& a, const Array& x, const Array& y, const Array* index)
      : n(x.shape[0]),
        c(x.shape[1]),
        x_n(x.strides[0]),
        x_c(x.strides[1]),
        y_n(y.strides[0]),
        y_c(y.strides[1]),
        divisor(a.divisor_override),
        count_padding(a.count_include_pad) {
    if (index) {
      i_n = index->strides[0];
      i_c = index->strides[1];
    }
    const int d = x.rank - 2;
    for (int i = 0; i < d; ++i) {
      PoolAxis& t = axis[3 - d + i];
      t.in = x.shape[i + 2];
      t.out = y.shape[i + 2];
      t.x_stride = x.strides[i + 2];
      t.y_stride = y.strides[i + 2];
      if (index) t.i_stride = index->strides[i + 2];
      t.adaptive = !a.output.empty();
      if (t.adaptive) continue;
      t.kernel = a.kernel[i].value();
      t.stride = a.stride[i].value();
      t.padding = a.padding[i].value();
      t.step = a.dilation.empty() ? 1 : a.dilation[i].value();
    }
  }
  int64_t out_pixels() const { return axis[0].out * axis[1].out * axis[2].out; }
  int64_t in_pixels() const { return axis[0].in * axis[1].in * axis[2].in; }
  int64_t x_at(int64_t z, int64_t h, int64_t w) const {
    return z * axis[0].x_stride + h * axis[1].x_stride + w * axis[2].x_stride;
  }
  int64_t y_at(int64_t z, int64_t h, int64_t w) const {
    return z * axis[0].y_stride + h * axis[1].y_stride + w * axis[2].y_stride;
  }
  int64_t i_at(int64_t z, int64_t h, int64_t w) const {
    return z * axis[0].i_stride + h * axis[1].i_stride + w * axis[2].i_stride;
  }
  // What axis i contributes to the divisor of a window's sum.
  int64_t counted(int i, const PoolAxis::Window& w) const {
    const int64_t inside = (w.end - w.start + axis[i].step - 1) / axis[i].step;
    return count_padding ? w.full : std::max<int64_t>(inside, 0);
  }
  float divide_by(const PoolAxis::Window& z, const PoolAxis::Window& h,
                  const PoolAxis::Window& w) const {
    if (divisor) return static_cast<float>(divisor);
    return static_cast<float>(counted(0, z) * counted(1, h) * counted(2, w));
  }
};

inline int64_t pool_grain(int64_t cost) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(cost, 1));
}

/// Pooling of arrays that are not channels-last, plane by plane. `keep`: out[1] gets the indices.
void max_pool_planes(const KernelCall& call, const PoolPlanes& p, bool keep);
void max_pool_back_planes(const KernelCall& call, const PoolPlanes& p);
void avg_pool_planes(const KernelCall& call, const PoolPlanes& p);
void avg_pool_back_planes(const KernelCall& call, const PoolPlanes& p);

}  // namespace tandem::detail
