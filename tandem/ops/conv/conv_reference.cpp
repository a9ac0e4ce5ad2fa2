// SPDX-License-Identifier: Apache-2.0
// Plain loops of the convolution rows in f64 (integers: wrapping 64 bits). One walk over rows of an
// output plane and kernel taps serves all three; every sum runs in a fixed order.
#include "tandem/ops/conv/conv.h"
#include "tandem/ops/conv/conv_internal.h"
#include "tandem/ops/rule_internal.h"

namespace tandem::detail {
namespace {

// Sizes padded to three spatial dimensions, with ones in front.
struct Geometry {
  int64_t n, groups, c_group, o_group;
  int64_t in[3], out[3], k[3], stride[3], pad[3], dilation[3];
  int64_t in_plane = 1, out_plane = 1, taps = 1;
};

Geometry geometry(const ConvAttrs& a, const Array& x, const Array& w, const Array& y) {
  Geometry g;
  int d = a.stride.rank(), lead = 3 - d;
  g.n = x.shape[0];
  g.groups = a.groups;
  g.c_group = w.shape[1];
  g.o_group = w.shape[0] / a.groups;
  for (int i = 0; i < 3; ++i) {
    bool has = i >= lead;
    g.in[i] = has ? x.shape[i - lead + 2] : 1;
    g.out[i] = has ? y.shape[i - lead + 2] : 1;
    g.k[i] = has ? w.shape[i - lead + 2] : 1;
    g.stride[i] = has ? a.stride[i - lead].value() : 1;
    g.pad[i] = has ? a.padding[i - lead].value() : 0;
    g.dilation[i] = has ? a.dilation[i - lead].value() : 1;
    g.in_plane *= g.in[i];
    g.out_plane *= g.out[i];
    g.taps *= g.k[i];
  }
  return g;
}

// The output positions [lo, hi) of a line whose input position under tap `k` is inside the input.
void valid_range(const Geometry& g, int i, int64_t k, int64_t& lo, int64_t& hi) {
  int64_t shift = g.pad[i] - k * g.dilation[i], s = g.stride[i];
  lo = shift > 0 ? (shift + s - 1) / s : 0;
  int64_t last = g.in[i] - 1 + shift;
  hi = last < 0 ? 0 : std::min(g.out[i], last / s + 1);
}

// f(start in the output plane, start in the input plane, tap, count) for every piece of a line.
template <class F>
void for_pieces(const Geometry& g, F&& f) {
  for (int64_t kd = 0; kd < g.k[0]; ++kd)
    for (int64_t kh = 0; kh < g.k[1]; ++kh)
      for (int64_t kw = 0; kw < g.k[2]; ++kw) {
        int64_t lo[3], hi[3];
        const int64_t k[3] = {kd, kh, kw};
        for (int i = 0; i < 3; ++i) valid_range(g, i, k[i], lo[i], hi[i]);
        if (lo[2] >= hi[2]) continue;
        int64_t tap = (kd * g.k[1] + kh) * g.k[2] + kw;
        int64_t iw = lo[2] * g.stride[2] - g.pad[2] + kw * g.dilation[2];
        for (int64_t od = lo[0]; od < hi[0]; ++od)
          for (int64_t oh = lo[1]; oh < hi[1]; ++oh) {
            int64_t id = od * g.stride[0] - g.pad[0] + kd * g.dilation[0];
            int64_t ih = oh * g.stride[1] - g.pad[1] + kh * g.dilation[1];
            f((od * g.out[1] + oh) * g.out[2] + lo[2], (id * g.in[1] + ih) * g.in[2] + iw, tap,
              hi[2] - lo[2]);
          }
      }
}

template <class T>
void forward(const KernelCall& call) {
  const Array &ax = call.in[0], &aw = call.in[1], &ay = call.out[0];
  Geometry g = geometry(call.get_attrs<ConvAttrs>(), ax, aw, ay);
  Dense<T> x(ax), w(aw), y(ay.numel);
  Dense<T> b(call.n_in > 2 && call.in[2].present() ? call.in[2] : Array());
  int64_t o_all = g.groups * g.o_group;
  parallel_for_rows(
      g.n * o_all, g.out_plane * g.taps * g.c_group, [&](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; ++r) {
          int64_t n = r / o_all, o = r % o_all, group = o / g.o_group;
          T* out = y.get() + r * g.out_plane;
          for (int64_t i = 0; i < g.out_plane; ++i) out[i] = b.get() ? b[o] : T(0);
          for (int64_t c = 0; c < g.c_group; ++c) {
            const T* in = x.get() + ((n * g.groups + group) * g.c_group + c) * g.in_plane;
            const T* kernel = w.get() + (o * g.c_group + c) * g.taps;
            for_pieces(g, [&](int64_t yo, int64_t xo, int64_t tap, int64_t count) {
              T v = kernel[tap];
              for (int64_t i = 0; i < count; ++i) out[yo + i] += v * in[xo + i * g.stride[2]];
            });
          }
        }
      });
  y.store(ay);
}

template <class T>
void backward_input(const KernelCall& call) {
  const Array &agy = call.in[0], &aw = call.in[1], &agx = call.out[0];
  Geometry g = geometry(call.get_attrs<ConvAttrs>(), agx, aw, agy);
  Dense<T> gy(agy), w(aw), gx(agx.numel);
  gx.fill(0);
  int64_t c_all = g.groups * g.c_group;
  parallel_for_rows(g.n * c_all, g.out_plane * g.taps * g.o_group,
                    [&](int64_t first, int64_t last) {
                      for (int64_t r = first; r < last; ++r) {
                        int64_t n = r / c_all, c = r % c_all, group = c / g.c_group;
                        T* in = gx.get() + r * g.in_plane;
                        for (int64_t k = 0; k < g.o_group; ++k) {
                          int64_t o = group * g.o_group + k;
                          const T* out = gy.get() + (n * g.groups * g.o_group + o) * g.out_plane;
                          const T* kernel = w.get() + (o * g.c_group + c % g.c_group) * g.taps;
                          for_pieces(g, [&](int64_t yo, int64_t xo, int64_t tap, int64_t count) {
                            T v = kernel[tap];
                            for (int64_t i = 0; i < count; ++i)
                              in[xo + i * g.stride[2]] += v * out[yo + i];
                          });
                        }
                      }
                    });
  gx.store(agx);
}

template <class T>
void backward_weight(const KernelCall& call) {
  const Array &ax = call.in[0], &agy = call.in[1], &agw = call.out[0];
  Geometry g = geometry(call.get_attrs<ConvAttrs>(), ax, agw, agy);
  Dense<T> x(ax), gy(agy), gw(agw.numel);
  gw.fill(0);
  int64_t o_all = g.groups * g.o_group;
  parallel_for_rows(
      o_all * g.c_group, g.n * g.out_plane * g.taps, [&](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; ++r) {
          int64_t o = r / g.c_group, c = r % g.c_group, group = o / g.o_group;
          T* kernel = gw.get() + r * g.taps;
          for (int64_t n = 0; n < g.n; ++n) {
            const T* in = x.get() + ((n * g.groups + group) * g.c_group + c) * g.in_plane;
            const T* out = gy.get() + (n * o_all + o) * g.out_plane;
            for_pieces(g, [&](int64_t yo, int64_t xo, int64_t tap, int64_t count) {
              T sum = 0;
              for (int64_t i = 0; i < count; ++i) sum += out[yo + i] * in[xo + i * g.stride[2]];
              kernel[tap] += sum;
            });
          }
        }
      });
  gw.store(agw);
}

}  // namespace

void conv_reference(const KernelCall& c) {
  with_accumulator(c.out[0].dtype, [&](auto zero) { forward<decltype(zero)>(c); });
}
void conv_backward_input_reference(const KernelCall& c) {
  with_accumulator(c.out[0].dtype, [&](auto zero) { backward_input<decltype(zero)>(c); });
}
void conv_backward_weight_reference(const KernelCall& c) {
  with_accumulator(c.out[0].dtype, [&](auto zero) { backward_weight<decltype(zero)>(c); });
}

}  // namespace tandem::detail
