// SPDX-License-Identifier: Apache-2.0
// Patches of channels-last input: gathered for matmuls, and added back for the derivative.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {
namespace {

// Columns of a patch that belong to one tap: channels c0..c0+count-1 at column `column`.
struct Run {
  int64_t tap[3];
  int64_t c0, count, column;
};

template <class F>
void for_runs(const ConvSizes& s, int64_t m0, int64_t width, F&& f) {
  const int64_t per_tap = s.group_in();
  for (int64_t m = m0; m < m0 + width;) {
    const int64_t t = m / per_tap, c0 = m % per_tap;
    const int64_t count = std::min(per_tap - c0, m0 + width - m);
    const int64_t k1 = s.axis[1].kernel, k2 = s.axis[2].kernel;
    f(Run{{t / (k1 * k2), t / k2 % k1, t % k2}, c0, count, m - m0});
    m += count;
  }
}

// Rows of output pixels p0..p1-1: f(sample, d, h, first, last, index of the first pixel).
template <class F>
void for_rows(const ConvSizes& s, int64_t p0, int64_t p1, F&& f) {
  const int64_t w = s.axis[2].out, h = s.axis[1].out;
  for (int64_t p = p0; p < p1;) {
    const int64_t first = p % w, last = std::min(w, first + p1 - p);
    const int64_t row = p / w;
    f(row / (h * s.axis[0].out), row / h % s.axis[0].out, row % h, first, last, p - p0);
    p += last - first;
  }
}

bool in_range(int64_t i, int64_t n) { return i >= 0 && i < n; }

template <int64_t kCount>
void copy_pixels(float* to, int64_t to_row, const float* x, int64_t step, int64_t n,
                 int64_t count) {
  const int64_t len = kCount ? kCount : count;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (kCount != 0) {
      std::memcpy(to + i * to_row, x + i * step, kCount * sizeof(float));
    } else {
      for (int64_t c = 0; c < len; ++c) to[i * to_row + c] = x[i * step + c];
    }
  }
}

void zero_pixels(float* to, int64_t to_row, int64_t n, int64_t count) {
  for (int64_t i = 0; i < n; ++i) std::fill_n(to + i * to_row, count, 0.0f);
}

void gather_run(const ConvSizes& s, const Run& r, const float* x, int64_t channel, int64_t p0,
                int64_t p1, float* to, int64_t to_row) {
  const ConvSizes::Axis* a = s.axis;
  int64_t lo, hi;
  a[2].inside(r.tap[2], lo, hi);
  for_rows(s, p0, p1,
           [&](int64_t n, int64_t d, int64_t h, int64_t first, int64_t last, int64_t at) {
             float* row = to + at * to_row;
             const int64_t id = a[0].at(d, r.tap[0]), ih = a[1].at(h, r.tap[1]);
             const bool inside = in_range(id, a[0].in) && in_range(ih, a[1].in);
             const int64_t f = inside ? std::clamp(lo, first, last) : last;
             const int64_t l = inside ? std::clamp(hi, f, last) : last;
             zero_pixels(row, to_row, f - first, r.count);
             if (l > f) {
               const int64_t iw = a[2].at(f, r.tap[2]);
               const float* from =
                   x + (((n * a[0].in + id) * a[1].in + ih) * a[2].in + iw) * s.c + channel + r.c0;
               const auto copy = r.count == 32   ? copy_pixels<32>
                                 : r.count == 16 ? copy_pixels<16>
                                 : r.count == 1  ? copy_pixels<1>
                                                 : copy_pixels<0>;
               copy(row + (f - first) * to_row, to_row, from, a[2].stride * s.c, l - f, r.count);
             }
             zero_pixels(row + (l - first) * to_row, to_row, last - l, r.count);
           });
}

}  // namespace

void ConvSizes::Axis::inside(int64_t k, int64_t& first, int64_t& last) const {
  const int64_t shift = padding - k * dilation;  // input = o * stride - shift
  first = shift <= 0 ? 0 : (shift + stride - 1) / stride;
  const int64_t most = in - 1 + shift;
  last = most < 0 ? 0 : std::min(most / stride + 1, out);
  first = std::min(first, last);
}

ConvSizes::ConvSizes(const ConvAttrs& a, const Array& x, const Array& w, const Array& y)
    : n(x.shape[0]), c(x.shape[1]), o(y.shape[1]), groups(a.groups) {
  const int d = a.stride.rank();
  for (int i = 0; i < d; ++i) {
    Axis& t = axis[3 - d + i];
    t.in = x.shape[i + 2];
    t.out = y.shape[i + 2];
    t.kernel = w.shape[i + 2];
    t.stride = a.stride[i].value();
    t.padding = a.padding[i].value();
    t.dilation = a.dilation[i].value();
    taps *= t.kernel;
    pixels *= t.out;
    in_pixels *= t.in;
  }
}

void gather_patches(const ConvSizes& s, const float* x, int64_t group, int64_t p0, int64_t p1,
                    int64_t m0, int64_t width, float* to, int64_t to_row) {
  for_runs(s, m0, width, [&](const Run& r) {
    gather_run(s, r, x, group * s.group_in(), p0, p1, to + r.column, to_row);
  });
}

void scatter_patches(const ConvSizes& s, const float* from, int64_t from_row, int64_t group,
                     int64_t p0, int64_t p1, float* gx) {
  const ConvSizes::Axis* a = s.axis;
  for_runs(s, 0, s.patch(), [&](const Run& r) {
    int64_t lo, hi;
    a[2].inside(r.tap[2], lo, hi);
    for_rows(
        s, p0, p1, [&](int64_t n, int64_t d, int64_t h, int64_t first, int64_t last, int64_t at) {
          const int64_t id = a[0].at(d, r.tap[0]), ih = a[1].at(h, r.tap[1]);
          if (!in_range(id, a[0].in) || !in_range(ih, a[1].in)) return;
          const int64_t f = std::clamp(lo, first, last), l = std::clamp(hi, f, last);
          const float* row = from + (at + f - first) * from_row + r.column;
          float* to = gx +
                      (((n * a[0].in + id) * a[1].in + ih) * a[2].in + a[2].at(f, r.tap[2])) * s.c +
                      group * s.group_in() + r.c0;
          for (int64_t i = 0; i < l - f; ++i)
            for (int64_t ch = 0; ch < r.count; ++ch)
              to[i * a[2].stride * s.c + ch] += row[i * from_row + ch];
        });
  });
}

}  // namespace tandem::detail
