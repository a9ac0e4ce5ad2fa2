// SPDX-License-Identifier: Apache-2.0
// Pooling of f32, bf16 and f16 arrays in any layout. Channels-last arrays are processed pixel by
// pixel over vectors of channels, others plane by plane. Outputs take the layout of the input;
// every element is written by one thread and summed in f32 in one order.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tandem/backend/cpu/conv/pool_geometry_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/pool.h"

namespace tandem::detail {
namespace {

void round_row(BFloat16* to, const float* from, int64_t n) { row_loops().to_bf16(to, from, n); }
void round_row(Half* to, const float* from, int64_t n) { row_loops().to_half(to, from, n); }

// f(z, h, w) for the pixels first..last-1 of planes of size s, row-major, n-th sample outermost.
template <class F>
void for_pixels(int64_t first, int64_t last, int64_t s1, int64_t s2, int64_t per_sample, F&& f) {
  if (first >= last) return;
  const int64_t q = first % per_sample;
  int64_t sample = first / per_sample, z = q / (s1 * s2), h = q / s2 % s1, w = q % s2;
  for (int64_t p = first, left = per_sample - q; p < last; ++p) {
    f(sample, z, h, w);
    if (--left == 0) {
      ++sample;
      z = h = w = 0;
      left = per_sample;
    } else if (++w == s2) {
      w = 0;
      if (++h == s1) h = 0, ++z;
    }
  }
}

// f(offset in x, row-major position) over a window.
template <class F>
void for_window(const PoolPlanes& p, const PoolAxis::Window (&w)[3], F&& f) {
  const PoolAxis* a = p.axis;
  for (int64_t z = w[0].start; z < w[0].end; z += a[0].step)
    for (int64_t h = w[1].start; h < w[1].end; h += a[1].step)
      for (int64_t x = w[2].start; x < w[2].end; x += a[2].step)
        f(p.x_at(z, h, x), (z * a[1].in + h) * a[2].in + x);
}

// Iterates over the elements that one window covers.
class Window {
 public:
  explicit Window(const PoolPlanes& p) : p_(p) {
    const PoolAxis* a = p.axis;
    const auto most = [](const PoolAxis& t) {
      return t.adaptive ? t.in / t.out + 2 : std::min(t.kernel, t.in);
    };
    const auto n = static_cast<size_t>(most(a[0]) * most(a[1]) * most(a[2]));
    offset_.resize(n);
    position_.resize(n);
  }
  WindowTaps at(int64_t z, int64_t h, int64_t w) {
    const PoolAxis* a = p_.axis;
    const PoolAxis::Window win[3] = {a[0].window(z), a[1].window(h), a[2].window(w)};
    size_t n = 0;
    for_window(p_, win, [&](int64_t offset, int64_t position) {
      offset_[n] = offset;
      position_[n++] = static_cast<int32_t>(position);
    });
    return {offset_.data(), position_.data(), static_cast<int64_t>(n)};
  }
  // The same for offsets alone, which count from x + `move`: the windows of a row that no edge cuts
  // are alike, and are walked once.
  WindowTaps moved(int64_t z, int64_t h, int64_t w, int64_t& move) {
    const PoolAxis& a = p_.axis[2];
    const int64_t start = w * a.stride - a.padding;
    const bool whole = !a.adaptive && start >= 0 && start + (a.kernel - 1) * a.step < a.in;
    if (whole && z == whole_z_ && h == whole_h_) {
      move = (w - whole_w_) * a.stride * a.x_stride;
      return taps_;
    }
    move = 0;
    taps_ = at(z, h, w);
    whole_z_ = whole ? z : -1;
    whole_h_ = h;
    whole_w_ = w;
    return taps_;
  }

 private:
  const PoolPlanes& p_;
  WindowTaps taps_{};
  int64_t whole_z_ = -1, whole_h_ = 0, whole_w_ = 0;  ///< whose taps_ these are; -1: of none
  std::vector<int64_t> offset_;
  std::vector<int32_t> position_;
};

// Channels in pieces that fit on the stack: f(first channel, count).
constexpr int64_t kPiece = 512;
template <class F>
void for_pieces(int64_t channels, F&& f) {
  for (int64_t c = 0; c < channels; c += kPiece) f(c, std::min(kPiece, channels - c));
}

// ---- max

template <class T>
void max_pixels(const KernelCall& call, const PoolPlanes& p, bool keep) {
  const PoolLoops<T>& l = pool_loops<T>();
  const PoolAxis* a = p.axis;
  const int64_t pixels = p.out_pixels();
  const int64_t cost = p.c * std::max<int64_t>(p.in_pixels() / std::max<int64_t>(pixels, 1), 1);
  parallel_for(0, p.n * pixels, pool_grain(cost), [&](int64_t first, int64_t last) {
    Window window(p);
    for_pixels(
        first, last, a[1].out, a[2].out, pixels, [&](int64_t n, int64_t z, int64_t h, int64_t w) {
          const T* x = call.in[0].as<T>() + n * p.x_n;
          T* y = call.out[0].as<T>() + n * p.y_n + p.y_at(z, h, w);
          int32_t* at = keep ? call.out[1].as<int32_t>() + n * p.i_n + p.i_at(z, h, w) : nullptr;
          int64_t move = 0;
          const WindowTaps taps = keep ? window.at(z, h, w) : window.moved(z, h, w, move);
          l.max_window(y, at, x + move, taps, p.c);
        });
  });
}

bool not_empty(const Array& a) {
  for (int d = 0; d < a.rank; ++d)
    if (a.shape[d] == 0) return false;
  return true;
}

bool float_call(const KernelCall& c) {
  const DType t = c.in[0].dtype;
  return (t == DType::f32 || is_short_float(t)) && not_empty(c.out[0]) && not_empty(c.in[0]);
}

void max_run(const KernelCall& c) {
  const bool keep = c.n_out > 1 && c.out[1].data;
  PoolPlanes p(c.get_attrs<PoolAttrs>(), c.in[0], c.out[0], keep ? &c.out[1] : nullptr);
  const bool last = p.x_c == 1 && p.y_c == 1 && (!keep || p.i_c == 1) && p.c >= 4;
  if (!last) return max_pool_planes(c, p, keep);
  for_pool_type(c.in[0].dtype, [&](auto t) { max_pixels<decltype(t)>(c, p, keep); });
}

// ---- derivative of max

bool backward_supports(const KernelCall& c) { return float_call(c) && c.in[1].data != nullptr; }

// Windows do not overlap: outputs may be processed in any order.
bool apart(const PoolPlanes& p) {
  for (const PoolAxis& a : p.axis)
    if (a.adaptive || a.stride < (a.kernel - 1) * a.step + 1) return false;
  return true;
}
// Every element of x lies in exactly one window.
bool tiles(const PoolPlanes& p) {
  for (const PoolAxis& a : p.axis)
    if (a.adaptive || a.step != 1 || a.padding || a.stride != a.kernel || a.out * a.stride < a.in)
      return false;
  return true;
}

// Every gradient goes to the chosen position of its window. False: some index is outside its window
// (user-supplied), and gx is incomplete. 16-bit gradients of overlapping windows are accumulated in
// `sums`.
template <class T>
bool max_back_pixels(const KernelCall& c, const PoolPlanes& p, float* sums) {
  const PoolLoops<T>& l = pool_loops<T>();
  const PoolAxis* a = p.axis;
  const bool alone = apart(p), whole = tiles(p);
  const int64_t pixels = p.out_pixels(), unit = alone ? 1 : pixels;
  const int64_t size = p.in_pixels() * p.c;  // of a sample
  std::atomic<bool> complete{true};
  if (!whole)
    parallel_for(0, p.n, 1, [&](int64_t first, int64_t last) {
      const auto count = static_cast<size_t>((last - first) * size);
      if (sums) return static_cast<void>(std::fill_n(sums + first * size, count, 0.0f));
      std::memset(static_cast<void*>(c.out[0].as<T>() + first * size), 0, count * sizeof(T));
    });
  parallel_for(
      0, p.n * pixels / unit, pool_grain(4 * p.c * unit), [&](int64_t first, int64_t last) {
        int64_t found = 0;
        Window window(p);
        for_pixels(first * unit, last * unit, a[1].out, a[2].out, pixels,
                   [&](int64_t n, int64_t z, int64_t h, int64_t w) {
                     T* gx = c.out[0].as<T>() + n * p.x_n;
                     const T* g = c.in[0].as<T>() + n * p.y_n + p.y_at(z, h, w);
                     const int32_t* at = c.in[1].as<int32_t>() + n * p.i_n + p.i_at(z, h, w);
                     const WindowTaps taps = window.at(z, h, w);
                     if (alone) {
                       found += l.put_window(gx, g, at, taps, p.c);
                       return;
                     }
                     for (int64_t k = 0; k < taps.count; ++k)
                       if constexpr (std::is_same_v<T, float>)
                         found += l.add_where(gx + taps.offset[k], g, at, taps.position[k], p.c);
                       else
                         found += l.add_where(sums + n * size + taps.offset[k], g, at,
                                              taps.position[k], p.c);
                   });
        if (found != (last - first) * unit * p.c) complete.store(false, std::memory_order_relaxed);
      });
  if constexpr (!std::is_same_v<T, float>)
    if (sums && complete)
      parallel_for(0, p.n * size, 16384, [&](int64_t first, int64_t last) {
        round_row(c.out[0].as<T>() + first, sums + first, last - first);
      });
  return complete;
}

// A gradient that is not channels-last while the indices are is converted first.
struct BackPlan : Plan {
  bool reorder = false, sums = false;
  size_t sums_at = 0;
};

std::shared_ptr<const Plan> max_back_prepare(const KernelCall& c) {
  auto plan = std::make_shared<BackPlan>();
  const Array &g = c.in[0], &gx = c.out[0];
  plan->reorder = is_channels_last(c.in[1]) && !is_channels_last(g) && g.shape[1] >= 4;
  if (plan->reorder) plan->workspace = static_cast<size_t>(g.numel) * size_of(g.dtype);
  const PoolPlanes p(c.get_attrs<PoolAttrs>(), gx, g, nullptr);
  plan->sums = g.dtype != DType::f32 && !apart(p) && is_channels_last(gx);
  plan->sums_at = whole_lines(plan->workspace);
  if (plan->sums) plan->workspace = plan->sums_at + static_cast<size_t>(gx.numel) * sizeof(float);
  return plan;
}

void max_back_run(const KernelCall& call) {
  const auto& plan = *static_cast<const BackPlan*>(call.plan);
  KernelCall c = call;
  Array in[2] = {call.in[0], call.in[1]};
  Strides strides;
  if (plan.reorder) {
    strides = channels_last_strides(in[0].shape, in[0].rank);
    in[0].data = c.scratch;
    in[0].strides = strides.data();
    to_channels_last(call.in[0], c.scratch);
    c.in = in;
  }
  PoolPlanes p(c.get_attrs<PoolAttrs>(), c.out[0], c.in[0], &c.in[1]);
  const bool last =
      p.x_c == 1 && p.y_c == 1 && p.i_c == 1 && p.c >= 4 && is_channels_last(c.out[0]);
  auto* sums =
      plan.sums ? reinterpret_cast<float*>(static_cast<char*>(c.scratch) + plan.sums_at) : nullptr;
  for_pool_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    if (!last || !max_back_pixels<T>(c, p, sums)) max_pool_back_planes(c, p);
  });
}

// ---- average

template <class T>
void avg_pixels(const KernelCall& c, const PoolPlanes& p) {
  const PoolLoops<T>& l = pool_loops<T>();
  const PoolAxis* a = p.axis;
  const int64_t pixels = p.out_pixels();
  parallel_for(0, p.n * pixels, pool_grain(p.c * 4), [&](int64_t first, int64_t end) {
    for_pixels(first, end, a[1].out, a[2].out, pixels,
               [&](int64_t n, int64_t z, int64_t h, int64_t w) {
                 const PoolAxis::Window win[3] = {a[0].window(z), a[1].window(h), a[2].window(w)};
                 const T* x = c.in[0].as<T>() + n * p.x_n;
                 T* y = c.out[0].as<T>() + n * p.y_n + p.y_at(z, h, w);
                 const float by = p.divide_by(win[0], win[1], win[2]);
                 float sum[kPiece];
                 for_pieces(p.c, [&](int64_t c0, int64_t count) {
                   std::fill_n(sum, count, 0.0f);
                   for_window(p, win,
                              [&](int64_t offset, int64_t) { l.add(sum, x + offset + c0, count); });
                   l.scale(y + c0, sum, by, count);
                 });
               });
  });
}

template <class T>
void avg_back_pixels(const KernelCall& c, const PoolPlanes& p) {
  const PoolLoops<T>& l = pool_loops<T>();
  const PoolAxis* a = p.axis;
  const AxisTable tables[3] = {AxisTable(a[0]), AxisTable(a[1]), AxisTable(a[2])};
  const int64_t pixels = p.in_pixels();
  parallel_for(0, p.n * pixels, pool_grain(p.c * 2), [&](int64_t first, int64_t end) {
    float sum[kPiece];
    for_pixels(
        first, end, a[1].in, a[2].in, pixels, [&](int64_t n, int64_t z, int64_t h, int64_t w) {
          T* gx = c.out[0].as<T>() + n * p.x_n + p.x_at(z, h, w);
          const T* g = c.in[0].as<T>() + n * p.y_n;
          for_pieces(p.c, [&](int64_t c0, int64_t count) {
            float* to = sum;
            if constexpr (std::is_same_v<T, float>) to = gx + c0;
            std::fill_n(to, count, 0.0f);
            tables[0].covering(z, [&](int64_t i) {
              tables[1].covering(h, [&](int64_t j) {
                tables[2].covering(w, [&](int64_t k) {
                  const float by =
                      p.divide_by(tables[0].window(i), tables[1].window(j), tables[2].window(k));
                  l.add_scaled(to, g + p.y_at(i, j, k) + c0, by, count);
                });
              });
            });
            if constexpr (!std::is_same_v<T, float>) round_row(gx + c0, sum, count);
          });
        });
  });
}

bool pixels_of(const PoolPlanes& p) { return p.x_c == 1 && p.y_c == 1 && p.c > 1; }

void avg_run(const KernelCall& c) {
  const PoolPlanes p(c.get_attrs<PoolAttrs>(), c.in[0], c.out[0], nullptr);
  if (!pixels_of(p)) return avg_pool_planes(c, p);
  for_pool_type(c.in[0].dtype, [&](auto t) { avg_pixels<decltype(t)>(c, p); });
}
void avg_back_run(const KernelCall& c) {
  const PoolPlanes p(c.get_attrs<PoolAttrs>(), c.out[0], c.in[0], nullptr);
  if (!pixels_of(p)) return avg_pool_back_planes(c, p);
  for_pool_type(c.in[0].dtype, [&](auto t) { avg_back_pixels<decltype(t)>(c, p); });
}

}  // namespace

void register_pool_kernels() {
  const Kernel max{float_call, keep_channels_last<0>, nullptr, max_run};
  register_kernel(DeviceKind::cpu, op::max_pool, max);
  register_kernel(DeviceKind::cpu, op::max_pool_with_indices, max);
  register_kernel(DeviceKind::cpu, op::max_pool_backward,
                  {backward_supports, keep_channels_last<1>, max_back_prepare, max_back_run});
  register_kernel(DeviceKind::cpu, op::avg_pool,
                  {float_call, keep_channels_last<0>, nullptr, avg_run});
  register_kernel(DeviceKind::cpu, op::avg_pool_backward,
                  {float_call, keep_channels_last<0>, nullptr, avg_back_run});
}

}  // namespace tandem::detail
