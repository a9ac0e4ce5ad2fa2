// SPDX-License-Identifier: Apache-2.0
// Pooling of arrays that are not channels-last, row by row of the result. A row of x is split into
// phases (elements p, p + stride, ... for each p < stride), so that what one tap of the last axis
// reads for all outputs of a row is contiguous. Taps are visited in the order of the plain loops.
#include <atomic>
#include <vector>

#include "tandem/backend/cpu/conv/pool_geometry_internal.h"
#include "tandem/base/parallel.h"

namespace tandem::detail {
namespace {

constexpr int64_t kShortRow = 8;  ///< outputs in a row that do not fill vectors

// What element k of a window of the last axis reads for the outputs first..last-1 of a row: output
// o reads phases[from + o], which is x[offset + o * stride].
struct Tap {
  int64_t first, last, from, offset;
};

// The last axis of a call. Short rows and adaptive windows have no taps: there each output loops
// over its window, and the only phase is the row itself.
struct LastAxis {
  const PoolAxis& axis;
  bool by_taps;
  int64_t stride, length;  ///< number of phases, elements in each
  std::vector<Tap> taps;
  std::vector<PoolAxis::Window> windows;

  explicit LastAxis(const PoolAxis& a)
      : axis(a),
        by_taps(!a.adaptive && a.out >= kShortRow),
        stride(by_taps ? a.stride : 1),
        length((a.in + stride - 1) / stride) {
    for (int64_t o = 0; o < a.out; ++o) windows.push_back(a.window(o));
    if (!by_taps) return;
    const int64_t reach = a.padding - (a.out - 1) * stride;
    const int64_t begin = reach <= 0 ? 0 : (reach + a.step - 1) / a.step;
    const int64_t end = std::min(a.kernel - 1, (a.in - 1 + a.padding) / a.step);
    for (int64_t k = begin; k <= end; ++k) {
      const int64_t q = k * a.step - a.padding, phase = (q % stride + stride) % stride;
      const int64_t first = q >= 0 ? 0 : (-q + stride - 1) / stride;
      const int64_t last = q >= a.in ? 0 : std::min(a.out, (a.in - 1 - q) / stride + 1);
      if (first < last) taps.push_back({first, last, phase * length + (q - phase) / stride, q});
    }
  }
  size_t size() const { return static_cast<size_t>(stride * length); }
  // A row of x as f32 phases: the row itself, or in `memory`.
  template <class T>
  const float* phases(const T* row, std::vector<float>& memory) const {
    if constexpr (std::is_same_v<T, float>)
      if (stride == 1 && axis.x_stride == 1) return row;
    pool_loops<T>().split(memory.data(), row, axis.x_stride, axis.in, stride, length);
    return memory.data();
  }
};

// f(plane, z, h) for the rows [first, last) of planes with s0 x s1 rows.
template <class F>
void for_plane_rows(int64_t first, int64_t last, int64_t s0, int64_t s1, F&& f) {
  int64_t plane = first / (s0 * s1), z = first / s1 % s0, h = first % s1;
  for (int64_t r = first; r < last; ++r) {
    f(plane, z, h);
    if (++h < s1) continue;
    h = 0;
    if (++z < s0) continue;
    z = 0;
    ++plane;
  }
}

// All three axes of a call.
struct Axes {
  LastAxis last;
  AxisTable z, h;
  explicit Axes(const PoolPlanes& p) : last(p.axis[2]), z(p.axis[0]), h(p.axis[1]) {}
};

// f(z, h) for the rows of x that the windows of an output row cover.
template <class F>
void for_window_rows(const PoolPlanes& p, const Axes& axes, int64_t z, int64_t h, F&& f) {
  const PoolAxis* a = p.axis;
  const PoolAxis::Window &wz = axes.z.window(z), &wh = axes.h.window(h);
  for (int64_t i = wz.start; i < wz.end; i += a[0].step)
    for (int64_t j = wh.start; j < wh.end; j += a[1].step) f(i, j);
}

int64_t window_rows(const PoolPlanes& p) {
  int64_t n = 1;
  for (int d = 0; d < 2; ++d)
    n *= p.axis[d].adaptive ? p.axis[d].in / std::max<int64_t>(p.axis[d].out, 1) + 1
                            : std::min(p.axis[d].kernel, p.axis[d].in);
  return n;
}
// Rows of the result per piece of work.
int64_t out_row_grain(const PoolPlanes& p, const LastAxis& last) {
  const auto taps = static_cast<int64_t>(last.taps.size());
  return pool_grain(window_rows(p) * (p.axis[2].in + taps * p.axis[2].out) / 8);
}

template <class T>
const T* plane_of(const Array& a, const PoolPlanes& p, int64_t plane, int64_t n, int64_t c) {
  return a.as<T>() + plane / p.c * n + plane % p.c * c;
}
template <class T>
T* out_plane(const Array& a, const PoolPlanes& p, int64_t plane, int64_t n, int64_t c) {
  return a.as<T>() + plane / p.c * n + plane % p.c * c;
}

// ---- max

// best and at of a row of outputs that have no taps, from the row of x that begins at `position`.
void max_by_windows(const LastAxis& last, const float* x, int64_t position, float* best,
                    int32_t* at) {
  const int64_t step = last.axis.step;
  for (int64_t o = 0; o < last.axis.out; ++o) {
    const PoolAxis::Window& w = last.windows[static_cast<size_t>(o)];
    float top = best[o];
    int64_t found = at[o];
    for (int64_t i = w.start; i < w.end; i += step)
      if ((x[i] > top) | (x[i] != x[i]) | (found < 0)) {
        top = x[i];
        found = position + i;
      }
    best[o] = top;
    at[o] = static_cast<int32_t>(found);
  }
}

template <class T>
void max_rows(const KernelCall& call, const PoolPlanes& p, bool keep) {
  const PoolAxis* a = p.axis;
  const Axes axes(p);
  const LastAxis& last_axis = axes.last;
  const PoolLoops<float>& l = pool_loops<float>();
  const int64_t n = a[2].out;
  parallel_for(
      0, p.n * p.c * a[0].out * a[1].out, out_row_grain(p, last_axis),
      [&](int64_t first, int64_t last) {
        std::vector<float> memory(last_axis.size()), best(static_cast<size_t>(n));
        std::vector<int32_t> at(static_cast<size_t>(n));
        for_plane_rows(first, last, a[0].out, a[1].out, [&](int64_t plane, int64_t z, int64_t h) {
          const T* x = plane_of<T>(call.in[0], p, plane, p.x_n, p.x_c);
          std::fill(best.begin(), best.end(), 0.0f);
          std::fill(at.begin(), at.end(), -1);
          for_window_rows(p, axes, z, h, [&](int64_t i, int64_t j) {
            const float* phases = last_axis.phases(x + p.x_at(i, j, 0), memory);
            const int64_t position = (i * a[1].in + j) * a[2].in;
            if (!last_axis.by_taps)
              return max_by_windows(last_axis, phases, position, best.data(), at.data());
            for (const Tap& t : last_axis.taps)
              l.max_tap(best.data() + t.first, at.data() + t.first, phases + t.from + t.first,
                        static_cast<int32_t>(position + t.offset + t.first * a[2].stride),
                        static_cast<int32_t>(a[2].stride), t.last - t.first);
          });
          T* y = out_plane<T>(call.out[0], p, plane, p.y_n, p.y_c) + p.y_at(z, h, 0);
          pool_loops<T>().join(y, best.data(), a[2].y_stride, n, 1, n);
          if (!keep) return;
          int32_t* to = out_plane<int32_t>(call.out[1], p, plane, p.i_n, p.i_c) + p.i_at(z, h, 0);
          for (int64_t o = 0; o < n; ++o) to[o * a[2].i_stride] = at[static_cast<size_t>(o)];
        });
      });
}

bool dense_plane(const PoolPlanes& p) {
  int64_t step = 1;
  for (int d = 3; d-- > 0; step *= p.axis[d].in)
    if (p.axis[d].in != 1 && p.axis[d].x_stride != step) return false;
  return true;
}

template <class T>
void max_back_rows(const KernelCall& c, const PoolPlanes& p) {
  const PoolAxis* a = p.axis;
  const int64_t size = p.in_pixels();
  const bool in_place = std::is_same_v<T, float> && dense_plane(p);
  parallel_for(0, p.n * p.c, pool_grain(size), [&](int64_t first, int64_t last) {
    std::vector<float> memory(static_cast<size_t>(in_place ? 0 : size));
    for (int64_t plane = first; plane < last; ++plane) {
      T* gx = out_plane<T>(c.out[0], p, plane, p.x_n, p.x_c);
      const T* g = plane_of<T>(c.in[0], p, plane, p.y_n, p.y_c);
      const int32_t* at = plane_of<int32_t>(c.in[1], p, plane, p.i_n, p.i_c);
      float* sum = memory.data();
      if constexpr (std::is_same_v<T, float>)
        if (in_place) sum = gx;
      std::fill_n(sum, size, 0.0f);
      for_plane_rows(0, a[0].out * a[1].out, a[0].out, a[1].out,
                     [&](int64_t, int64_t z, int64_t h) {
                       const T* from = g + p.y_at(z, h, 0);
                       const int32_t* where = at + p.i_at(z, h, 0);
                       for (int64_t o = 0; o < a[2].out; ++o) {
                         const int64_t q = where[o * a[2].i_stride];
                         if (TD_LIKELY(q >= 0 && q < size))
                           sum[q] += static_cast<float>(from[o * a[2].y_stride]);
                         else
                           c.error->report(1, q);
                       }
                     });
      if (in_place) continue;
      for_plane_rows(0, a[0].in * a[1].in, a[0].in, a[1].in, [&](int64_t, int64_t z, int64_t h) {
        pool_loops<T>().join(gx + p.x_at(z, h, 0), sum + (z * a[1].in + h) * a[2].in, a[2].x_stride,
                             a[2].in, 1, a[2].in);
      });
    }
  });
}

// ---- average

// Divisors of the windows of an output row.
class Divisors {
 public:
  Divisors(const PoolPlanes& p, const Axes& axes) : p_(p), axes_(axes) {
    for (const PoolAxis::Window& w : axes.last.windows) counts_.push_back(p.counted(2, w));
    row_.resize(counts_.size());
  }
  const float* of(int64_t z, int64_t h) {
    const int64_t n = p_.counted(0, axes_.z.window(z)) * p_.counted(1, axes_.h.window(h));
    if (n != outer_) {
      outer_ = n;
      for (size_t o = 0; o < row_.size(); ++o)
        row_[o] = static_cast<float>(p_.divisor ? p_.divisor : n * counts_[o]);
    }
    return row_.data();
  }

 private:
  const PoolPlanes& p_;
  const Axes& axes_;
  std::vector<int64_t> counts_;
  std::vector<float> row_;
  int64_t outer_ = -1;
};

// Rows that have no taps: the sums of several planes at a time, because each is a chain of
// additions.
template <class T>
void avg_by_windows(const KernelCall& call, const PoolPlanes& p, const Axes& axes) {
  const PoolLoops<T>& l = pool_loops<T>();
  const PoolAxis* a = p.axis;
  const int64_t planes = p.n * p.c, groups = (planes + kPoolChains - 1) / kPoolChains;
  const int64_t grain = pool_grain(window_rows(p) * a[2].in);
  const int64_t step = a[2].step;
  parallel_for(0, groups * a[0].out * a[1].out, grain, [&](int64_t first, int64_t last) {
    Divisors divisors(p, axes);
    for_plane_rows(first, last, a[0].out, a[1].out, [&](int64_t group, int64_t z, int64_t h) {
      const int64_t count = std::min(kPoolChains, planes - group * kPoolChains);
      const T* x[kPoolChains];
      for (int64_t g = 0; g < kPoolChains; ++g)
        x[g] =
            plane_of<T>(call.in[0], p, group * kPoolChains + std::min(g, count - 1), p.x_n, p.x_c);
      for (int64_t o = 0; o < a[2].out; ++o) {
        const PoolAxis::Window& w = axes.last.windows[static_cast<size_t>(o)];
        float sum[kPoolChains] = {};
        for_window_rows(p, axes, z, h, [&](int64_t i, int64_t j) {
          const T* rows[kPoolChains];
          for (int64_t g = 0; g < kPoolChains; ++g) rows[g] = x[g] + p.x_at(i, j, w.start);
          l.add_chains(sum, rows, step * a[2].x_stride, (w.end - w.start + step - 1) / step);
        });
        const float by = divisors.of(z, h)[o];
        for (int64_t g = 0; g < count; ++g)
          out_plane<T>(call.out[0], p, group * kPoolChains + g, p.y_n, p.y_c)[p.y_at(z, h, o)] =
              T(sum[g] / by);
      }
    });
  });
}

template <class T>
void avg_rows(const KernelCall& call, const PoolPlanes& p) {
  const PoolAxis* a = p.axis;
  const Axes axes(p);
  const LastAxis& last_axis = axes.last;
  if (!last_axis.by_taps) return avg_by_windows<T>(call, p, axes);
  const PoolLoops<float>& l = pool_loops<float>();
  const int64_t n = a[2].out;
  parallel_for(0, p.n * p.c * a[0].out * a[1].out, out_row_grain(p, last_axis),
               [&](int64_t first, int64_t last) {
                 Divisors divisors(p, axes);
                 std::vector<float> memory(last_axis.size()), sum(static_cast<size_t>(n));
                 for_plane_rows(
                     first, last, a[0].out, a[1].out, [&](int64_t plane, int64_t z, int64_t h) {
                       const T* x = plane_of<T>(call.in[0], p, plane, p.x_n, p.x_c);
                       std::fill(sum.begin(), sum.end(), 0.0f);
                       for_window_rows(p, axes, z, h, [&](int64_t i, int64_t j) {
                         const float* phases = last_axis.phases(x + p.x_at(i, j, 0), memory);
                         for (const Tap& t : last_axis.taps)
                           l.add(sum.data() + t.first, phases + t.from + t.first, t.last - t.first);
                         if (last_axis.by_taps) return;
                         for (size_t o = 0; o < sum.size(); ++o) {
                           const PoolAxis::Window& w = last_axis.windows[o];
                           for (int64_t k = w.start; k < w.end; k += a[2].step) sum[o] += phases[k];
                         }
                       });
                       l.divide(sum.data(), divisors.of(z, h), n);
                       T* y = out_plane<T>(call.out[0], p, plane, p.y_n, p.y_c) + p.y_at(z, h, 0);
                       pool_loops<T>().join(y, sum.data(), a[2].y_stride, n, 1, n);
                     });
               });
}

template <class T>
void avg_back_rows(const KernelCall& call, const PoolPlanes& p) {
  const PoolAxis* a = p.axis;
  const PoolLoops<float>& l = pool_loops<float>();
  const Axes axes(p);
  const int64_t n = a[2].out;
  parallel_for(
      0, p.n * p.c * a[0].in * a[1].in, pool_grain(a[2].in), [&](int64_t first, int64_t last) {
        Divisors divisors(p, axes);
        std::vector<float> sum(axes.last.size()), share(static_cast<size_t>(n));
        for_plane_rows(first, last, a[0].in, a[1].in, [&](int64_t plane, int64_t z, int64_t h) {
          const T* g = plane_of<T>(call.in[0], p, plane, p.y_n, p.y_c);
          std::fill(sum.begin(), sum.end(), 0.0f);
          const auto add_shares = [&](int64_t i, int64_t j) {
            pool_loops<T>().split(share.data(), g + p.y_at(i, j, 0), a[2].y_stride, n, 1, n);
            l.divide(share.data(), divisors.of(i, j), n);
            // Backwards: then the windows of an element are added in their order.
            for (auto t = axes.last.taps.rbegin(); t != axes.last.taps.rend(); ++t)
              l.add(sum.data() + t->from + t->first, share.data() + t->first, t->last - t->first);
            if (axes.last.by_taps) return;
            for (size_t o = 0; o < share.size(); ++o) {
              const PoolAxis::Window& w = axes.last.windows[o];
              for (int64_t k = w.start; k < w.end; k += a[2].step)
                sum[static_cast<size_t>(k)] += share[o];
            }
          };
          axes.z.covering(
              z, [&](int64_t i) { axes.h.covering(h, [&](int64_t j) { add_shares(i, j); }); });
          T* gx = out_plane<T>(call.out[0], p, plane, p.x_n, p.x_c) + p.x_at(z, h, 0);
          pool_loops<T>().join(gx, sum.data(), a[2].x_stride, a[2].in, axes.last.stride,
                               axes.last.length);
        });
      });
}

}  // namespace

void max_pool_planes(const KernelCall& call, const PoolPlanes& p, bool keep) {
  for_pool_type(call.in[0].dtype, [&](auto t) { max_rows<decltype(t)>(call, p, keep); });
}
void max_pool_back_planes(const KernelCall& call, const PoolPlanes& p) {
  for_pool_type(call.in[0].dtype, [&](auto t) { max_back_rows<decltype(t)>(call, p); });
}
void avg_pool_planes(const KernelCall& call, const PoolPlanes& p) {
  for_pool_type(call.in[0].dtype, [&](auto t) { avg_rows<decltype(t)>(call, p); });
}
void avg_pool_back_planes(const KernelCall& call, const PoolPlanes& p) {
  for_pool_type(call.in[0].dtype, [&](auto t) { avg_back_rows<decltype(t)>(call, p); });
}

}  // namespace tandem::detail
