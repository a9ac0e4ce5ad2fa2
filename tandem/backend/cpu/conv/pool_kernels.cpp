// SPDX-License-Identifier: Apache-2.0
// Pooling of f32, bf16 and f16 arrays in any layout. Channels-last arrays are processed pixel by
// pixel over vectors of channels, others plane by plane. Outputs take the layout of the input;
// every element is written by one thread and summed in f32 in one order.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tandem/backend/cpu/conv/pool_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/conv/pool.h"

namespace tandem::detail {
namespace {

template <class T>
const PoolLoops<T>& loops() {
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

void round_row(BFloat16* to, const float* from, int64_t n) { row_loops().to_bf16(to, from, n); }
void round_row(Half* to, const float* from, int64_t n) { row_loops().to_half(to, from, n); }

// Runs f(T()) for the element type of a call.
template <class F>
auto for_type(DType t, F&& f) {
  if (t == DType::bf16) return f(BFloat16());
  if (t == DType::f16) return f(Half());
  return f(float());
}

// One spatial dimension: window o covers start(o), start + step, ... below end.
struct Axis {
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
    return p >= w.start && p < w.end && (p - w.start) % step == 0;
  }
};

// A call viewed as [n, c] planes of three spatial dimensions.
struct Pool {
  Axis axis[3];
  int64_t n = 0, c = 0;
  int64_t x_n = 0, x_c = 0, y_n = 0, y_c = 0, i_n = 0, i_c = 0;
  int64_t divisor = 0;
  bool count_padding = true;

  Pool(const PoolAttrs& a, const Array& x, const Array& y, const Array* index)
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
      Axis& t = axis[3 - d + i];
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
  // The divisor of a window's sum.
  float divide_by(const Axis::Window (&w)[3]) const {
    if (divisor) return static_cast<float>(divisor);
    int64_t count = 1;
    for (int i = 0; i < 3; ++i) {
      const int64_t inside = (w[i].end - w[i].start + axis[i].step - 1) / axis[i].step;
      count *= count_padding ? w[i].full : std::max<int64_t>(inside, 0);
    }
    return static_cast<float>(count);
  }
};

// f(z, h, w) for the pixels first..last-1 of planes of size s, row-major, n-th sample outermost.
template <class F>
void for_pixels(int64_t first, int64_t last, int64_t s1, int64_t s2, int64_t per_sample, F&& f) {
  for (int64_t p = first; p < last; ++p) {
    const int64_t sample = p / per_sample, q = p % per_sample;
    f(sample, q / (s1 * s2), q / s2 % s1, q % s2);
  }
}

int64_t grain(int64_t cost) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(cost, 1)); }

// f(offset in x, row-major position) over a window.
template <class F>
void for_window(const Pool& p, const Axis::Window (&w)[3], F&& f) {
  const Axis* a = p.axis;
  for (int64_t z = w[0].start; z < w[0].end; z += a[0].step)
    for (int64_t h = w[1].start; h < w[1].end; h += a[1].step)
      for (int64_t x = w[2].start; x < w[2].end; x += a[2].step)
        f(p.x_at(z, h, x), (z * a[1].in + h) * a[2].in + x);
}

// Iterates over the elements that one window covers.
class Window {
 public:
  explicit Window(const Pool& p) : p_(p) {
    const Axis* a = p.axis;
    const auto most = [](const Axis& t) {
      return t.adaptive ? t.in / t.out + 2 : std::min(t.kernel, t.in);
    };
    const auto n = static_cast<size_t>(most(a[0]) * most(a[1]) * most(a[2]));
    offset_.resize(n);
    position_.resize(n);
  }
  WindowTaps at(int64_t z, int64_t h, int64_t w) {
    const Axis* a = p_.axis;
    const Axis::Window win[3] = {a[0].window(z), a[1].window(h), a[2].window(w)};
    size_t n = 0;
    for_window(p_, win, [&](int64_t offset, int64_t position) {
      offset_[n] = offset;
      position_[n++] = static_cast<int32_t>(position);
    });
    return {offset_.data(), position_.data(), static_cast<int64_t>(n)};
  }

 private:
  const Pool& p_;
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
void max_pixels(const KernelCall& call, const Pool& p, bool keep) {
  const PoolLoops<T>& l = loops<T>();
  const Axis* a = p.axis;
  const int64_t pixels = p.out_pixels();
  const int64_t cost = p.c * std::max<int64_t>(p.in_pixels() / std::max<int64_t>(pixels, 1), 1);
  parallel_for(0, p.n * pixels, grain(cost), [&](int64_t first, int64_t last) {
    Window window(p);
    for_pixels(
        first, last, a[1].out, a[2].out, pixels, [&](int64_t n, int64_t z, int64_t h, int64_t w) {
          const T* x = call.in[0].as<T>() + n * p.x_n;
          T* y = call.out[0].as<T>() + n * p.y_n + p.y_at(z, h, w);
          int32_t* at = keep ? call.out[1].as<int32_t>() + n * p.i_n + p.i_at(z, h, w) : nullptr;
          l.max_window(y, at, x, window.at(z, h, w), p.c);
        });
  });
}

template <class T>
void max_planes(const KernelCall& call, const Pool& p, bool keep) {
  const Axis* a = p.axis;
  const int64_t pixels = p.out_pixels();
  parallel_for(0, p.n * p.c, grain(p.in_pixels() + pixels), [&](int64_t first, int64_t last) {
    for (int64_t plane = first; plane < last; ++plane) {
      const int64_t n = plane / p.c, c = plane % p.c;
      const T* x = call.in[0].as<T>() + n * p.x_n + c * p.x_c;
      T* y = call.out[0].as<T>() + n * p.y_n + c * p.y_c;
      int32_t* at = keep ? call.out[1].as<int32_t>() + n * p.i_n + c * p.i_c : nullptr;
      for_pixels(0, pixels, a[1].out, a[2].out, pixels,
                 [&](int64_t, int64_t z, int64_t h, int64_t w) {
                   const Axis::Window win[3] = {a[0].window(z), a[1].window(h), a[2].window(w)};
                   float best = 0;
                   int64_t found = -1;
                   for_window(p, win, [&](int64_t offset, int64_t position) {
                     const float v = x[offset];
                     const bool wins = (v > best) | (v != v);
                     if (found >= 0 && !wins) return;
                     best = v;
                     found = position;
                   });
                   y[p.y_at(z, h, w)] = T(best);
                   if (at) at[p.i_at(z, h, w)] = static_cast<int32_t>(found);
                 });
    }
  });
}

bool not_empty(const Array& a) {
  for (int d = 0; d < a.rank; ++d)
    if (a.shape[d] == 0) return false;
  return true;
}

bool float_call(const KernelCall& c) {
  const DType t = c.in[0].dtype;
  return (t == DType::f32 || t == DType::bf16 || t == DType::f16) && not_empty(c.out[0]) &&
         not_empty(c.in[0]);
}

bool layout_of_input(const KernelCall& c, int, Strides& s) {
  if (!is_channels_last(c.in[0])) return false;
  s = channels_last_strides(c.out[0].shape, c.out[0].rank);
  return true;
}

void max_run(const KernelCall& c) {
  const bool keep = c.n_out > 1 && c.out[1].data;
  Pool p(c.get_attrs<PoolAttrs>(), c.in[0], c.out[0], keep ? &c.out[1] : nullptr);
  const bool last = p.x_c == 1 && p.y_c == 1 && (!keep || p.i_c == 1) && p.c >= 4;
  for_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    last ? max_pixels<T>(c, p, keep) : max_planes<T>(c, p, keep);
  });
}

// ---- derivative of max

bool backward_supports(const KernelCall& c) { return float_call(c) && c.in[1].data != nullptr; }

bool backward_max_layout(const KernelCall& c, int, Strides& s) {
  if (!is_channels_last(c.in[1])) return false;
  s = channels_last_strides(c.out[0].shape, c.out[0].rank);
  return true;
}

// Windows do not overlap: outputs may be processed in any order.
bool apart(const Pool& p) {
  for (const Axis& a : p.axis)
    if (a.adaptive || a.stride < (a.kernel - 1) * a.step + 1) return false;
  return true;
}
// Every element of x lies in exactly one window.
bool tiles(const Pool& p) {
  for (const Axis& a : p.axis)
    if (a.adaptive || a.step != 1 || a.padding || a.stride != a.kernel || a.out * a.stride < a.in)
      return false;
  return true;
}

// Every gradient goes to the chosen position of its window. False: some index is outside its window
// (user-supplied), and gx is incomplete. 16-bit gradients of overlapping windows are accumulated in
// `sums`.
template <class T>
bool max_back_pixels(const KernelCall& c, const Pool& p, float* sums) {
  const PoolLoops<T>& l = loops<T>();
  const Axis* a = p.axis;
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
  parallel_for(0, p.n * pixels / unit, grain(4 * p.c * unit), [&](int64_t first, int64_t last) {
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
                     found += l.add_where(sums + n * size + taps.offset[k], g, at, taps.position[k],
                                          p.c);
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

template <class T>
void max_back_planes(const KernelCall& c, const Pool& p) {
  const Axis* a = p.axis;
  const int64_t plane_in = p.in_pixels();
  parallel_for(0, p.n * p.c, grain(plane_in), [&](int64_t first, int64_t last) {
    std::vector<float> sum(static_cast<size_t>(plane_in));
    for (int64_t plane = first; plane < last; ++plane) {
      const int64_t n = plane / p.c, ch = plane % p.c;
      T* gx = c.out[0].as<T>() + n * p.x_n + ch * p.x_c;
      const T* g = c.in[0].as<T>() + n * p.y_n + ch * p.y_c;
      const int32_t* at = c.in[1].as<int32_t>() + n * p.i_n + ch * p.i_c;
      std::fill(sum.begin(), sum.end(), 0.0f);
      for_pixels(0, p.out_pixels(), a[1].out, a[2].out, p.out_pixels(),
                 [&](int64_t, int64_t z, int64_t h, int64_t w) {
                   const int64_t q = at[p.i_at(z, h, w)];
                   if (q < 0 || q >= plane_in)
                     c.error->report(1, q);
                   else
                     sum[static_cast<size_t>(q)] += static_cast<float>(g[p.y_at(z, h, w)]);
                 });
      size_t k = 0;
      for_pixels(
          0, plane_in, a[1].in, a[2].in, plane_in,
          [&](int64_t, int64_t z, int64_t h, int64_t w) { gx[p.x_at(z, h, w)] = T(sum[k++]); });
    }
  });
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
  const Pool p(c.get_attrs<PoolAttrs>(), gx, g, nullptr);
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
  Pool p(c.get_attrs<PoolAttrs>(), c.out[0], c.in[0], &c.in[1]);
  const bool last =
      p.x_c == 1 && p.y_c == 1 && p.i_c == 1 && p.c >= 4 && is_channels_last(c.out[0]);
  auto* sums =
      plan.sums ? reinterpret_cast<float*>(static_cast<char*>(c.scratch) + plan.sums_at) : nullptr;
  for_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    if (!last || !max_back_pixels<T>(c, p, sums)) max_back_planes<T>(c, p);
  });
}

// ---- average

template <class T>
void avg(const KernelCall& c) {
  Pool p(c.get_attrs<PoolAttrs>(), c.in[0], c.out[0], nullptr);
  const PoolLoops<T>& l = loops<T>();
  const Axis* a = p.axis;
  const int64_t pixels = p.out_pixels();
  const bool last = p.x_c == 1 && p.y_c == 1;
  const int64_t planes = last ? 1 : p.c, channels = last ? p.c : 1;
  parallel_for(0, p.n * planes * pixels, grain(channels * 4), [&](int64_t first, int64_t end) {
    for_pixels(
        first, end, a[1].out, a[2].out, pixels, [&](int64_t np, int64_t z, int64_t h, int64_t w) {
          const int64_t n = np / planes, ch = np % planes;
          const Axis::Window win[3] = {a[0].window(z), a[1].window(h), a[2].window(w)};
          const T* x = c.in[0].as<T>() + n * p.x_n + ch * p.x_c;
          T* y = c.out[0].as<T>() + n * p.y_n + ch * p.y_c + p.y_at(z, h, w);
          const float by = p.divide_by(win);
          if (channels == 1) {
            float sum = 0;
            for_window(p, win,
                       [&](int64_t offset, int64_t) { sum += static_cast<float>(x[offset]); });
            *y = T(sum / by);
            return;
          }
          float sum[kPiece];
          for_pieces(channels, [&](int64_t c0, int64_t count) {
            std::fill_n(sum, count, 0.0f);
            for_window(p, win,
                       [&](int64_t offset, int64_t) { l.add(sum, x + offset + c0, count); });
            l.scale(y + c0, sum, by, count);
          });
        });
  });
}

template <class T>
void avg_back(const KernelCall& c) {
  Pool p(c.get_attrs<PoolAttrs>(), c.out[0], c.in[0], nullptr);
  const PoolLoops<T>& l = loops<T>();
  const Axis* a = p.axis;
  const int64_t pixels = p.in_pixels();
  const bool last = p.x_c == 1 && p.y_c == 1;
  const int64_t planes = last ? 1 : p.c, channels = last ? p.c : 1;
  parallel_for(0, p.n * planes * pixels, grain(channels * 2), [&](int64_t first, int64_t end) {
    float sum[kPiece];
    for_pixels(
        first, end, a[1].in, a[2].in, pixels, [&](int64_t np, int64_t z, int64_t h, int64_t w) {
          const int64_t n = np / planes, ch = np % planes;
          T* gx = c.out[0].as<T>() + n * p.x_n + ch * p.x_c + p.x_at(z, h, w);
          const T* g = c.in[0].as<T>() + n * p.y_n + ch * p.y_c;
          int64_t z0, z1, h0, h1, w0, w1;
          a[0].covering(z, z0, z1);
          a[1].covering(h, h0, h1);
          a[2].covering(w, w0, w1);
          for_pieces(channels, [&](int64_t c0, int64_t count) {
            std::fill_n(sum, count, 0.0f);
            for (int64_t i = z0; i <= z1; ++i)
              for (int64_t j = h0; j <= h1; ++j)
                for (int64_t k = w0; k <= w1; ++k) {
                  const Axis::Window win[3] = {a[0].window(i), a[1].window(j), a[2].window(k)};
                  if (a[0].covers(win[0], z) && a[1].covers(win[1], h) && a[2].covers(win[2], w))
                    l.add_scaled(sum, g + p.y_at(i, j, k) + c0, p.divide_by(win), count);
                }
            l.scale(gx + c0, sum, 1.0f, count);
          });
        });
  });
}

void avg_run(const KernelCall& c) {
  for_type(c.in[0].dtype, [&](auto t) { avg<decltype(t)>(c); });
}
void avg_back_run(const KernelCall& c) {
  for_type(c.in[0].dtype, [&](auto t) { avg_back<decltype(t)>(c); });
}

}  // namespace

void register_pool_kernels() {
  const Kernel max{float_call, layout_of_input, nullptr, max_run};
  register_kernel(DeviceKind::cpu, op::max_pool, max);
  register_kernel(DeviceKind::cpu, op::max_pool_with_indices, max);
  register_kernel(DeviceKind::cpu, op::max_pool_backward,
                  {backward_supports, backward_max_layout, max_back_prepare, max_back_run});
  register_kernel(DeviceKind::cpu, op::avg_pool, {float_call, layout_of_input, nullptr, avg_run});
  register_kernel(DeviceKind::cpu, op::avg_pool_backward,
                  {float_call, layout_of_input, nullptr, avg_back_run});
}

}  // namespace tandem::detail
