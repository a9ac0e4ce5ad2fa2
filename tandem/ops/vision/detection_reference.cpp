// SPDX-License-Identifier: Apache-2.0
// Plain loops of the detection rows. f32 is computed in f32, so that counts of points and pixels
// match torchvision's; other floats in f64. A unit of work is a box, or a channel where boxes
// accumulate.
#include <cmath>
#include <numeric>
#include <vector>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/vision/detection.h"
#include "tandem/ops/vision/detection_internal.h"

namespace tandem::detail {
namespace {

template <class F>
void with_compute(DType t, F&& f) {
  if (t == DType::f32)
    f(float{});
  else
    f(double{});
}

template <class T>
void nms(const KernelCall& c) {
  const auto& a = c.get_attrs<NmsAttrs>();
  const int64_t n = c.in[0].shape[0];
  Dense<T> boxes(c.in[0]), scores(c.in[1]), area(n);
  const bool classes = c.n_in > 2 && c.in[2].present();
  Dense<uint64_t> idxs(classes ? c.in[2] : Array());
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  // NaN counts as the largest, as in sort.
  std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
    const bool nan = std::isnan(scores[y]);
    return std::isnan(scores[x]) ? !nan : !nan && scores[x] > scores[y];
  });
  for (int64_t i = 0; i < n; ++i) {
    const T* b = boxes.get() + 4 * i;
    area[i] = (b[2] - b[0]) * (b[3] - b[1]);
  }
  std::vector<char> gone(static_cast<size_t>(n), 0);
  std::vector<int64_t> kept;
  for (size_t p = 0; p < order.size(); ++p) {
    const int64_t i = order[p];
    if (gone[static_cast<size_t>(i)]) continue;
    kept.push_back(i);
    if (static_cast<int64_t>(kept.size()) == a.size) break;
    const T* x = boxes.get() + 4 * i;
    for (size_t q = p + 1; q < order.size(); ++q) {
      const int64_t j = order[q];
      if (gone[static_cast<size_t>(j)] || (classes && idxs[i] != idxs[j])) continue;
      const T* y = boxes.get() + 4 * j;
      const T w = std::max(T(0), std::min(x[2], y[2]) - std::max(x[0], y[0]));
      const T h = std::max(T(0), std::min(x[3], y[3]) - std::max(x[1], y[1]));
      const T common = w * h;
      if (common / (area[i] + area[j] - common) > a.iou_threshold) gone[static_cast<size_t>(j)] = 1;
    }
  }
  Dense<uint64_t> out(a.size);
  for (int64_t i = 0; i < a.size; ++i)
    out[i] = static_cast<uint64_t>(
        i < static_cast<int64_t>(kept.size()) ? kept[static_cast<size_t>(i)] : a.fill);
  out.store(c.out[0]);
}

// ---- roi_align: the points of a bin are the Cartesian product of two lines of points

template <class T>
struct Point {
  int64_t low, high;  ///< -1: outside
  T w_low, w_high;
};

// Points of one dimension of a box: `per` in each of `bins`.
template <class T>
void line_of_points(std::vector<Point<T>>& v, T start, T bin, int64_t bins, int64_t per,
                    int64_t size) {
  v.clear();
  for (int64_t b = 0; b < bins; ++b)
    for (int64_t i = 0; i < per; ++i) {
      T at = start + static_cast<T>(b) * bin +
             (static_cast<T>(i) + T(0.5)) * bin / static_cast<T>(per);
      if (!(at >= T(-1) && at <= static_cast<T>(size))) {
        v.push_back({-1, -1, 0, 0});
        continue;
      }
      at = std::max(at, T(0));
      auto low = static_cast<int64_t>(at);
      if (low >= size - 1)
        v.push_back({size - 1, size - 1, 1, 0});
      else
        v.push_back({low, low + 1, 1 - (at - static_cast<T>(low)), at - static_cast<T>(low)});
    }
}

template <class T>
struct RoiGrid {
  int64_t image = 0, per_h = 0, per_w = 0;
  T count = 1;
  std::vector<Point<T>> ys, xs;

  // False if the box is invalid; it is then reported.
  bool fill(const KernelCall& c, const RoiAttrs& a, const T* box, int64_t number, int64_t n,
            int64_t h, int64_t w) {
    if (number < 0 || number >= n) {
      report_error(c, 1, number);
      return false;
    }
    image = number;
    const T scale = static_cast<T>(a.spatial_scale), offset = a.aligned ? T(0.5) : T(0);
    const T x0 = box[0] * scale - offset, y0 = box[1] * scale - offset;
    T wide = box[2] * scale - offset - x0, tall = box[3] * scale - offset - y0;
    if (!a.aligned) {
      wide = std::max(wide, T(1));
      tall = std::max(tall, T(1));
    }
    const T bin_h = tall / static_cast<T>(a.height), bin_w = wide / static_cast<T>(a.width);
    if (!points(c, a, bin_h, per_h) || !points(c, a, bin_w, per_w)) return false;
    count = static_cast<T>(std::max<int64_t>(per_h * per_w, 1));
    line_of_points(ys, y0, bin_h, a.height, per_h, h);
    line_of_points(xs, x0, bin_w, a.width, per_w, w);
    return true;
  }
  // f(bin, y, x, weight) for the four elements of every point.
  template <class F>
  void each(const RoiAttrs& a, F&& f) const {
    for (int64_t bh = 0; bh < a.height; ++bh)
      for (int64_t bw = 0; bw < a.width; ++bw)
        for (int64_t i = bh * per_h; i < (bh + 1) * per_h; ++i) {
          const Point<T>& y = ys[static_cast<size_t>(i)];
          if (y.low < 0) continue;
          for (int64_t j = bw * per_w; j < (bw + 1) * per_w; ++j) {
            const Point<T>& x = xs[static_cast<size_t>(j)];
            if (x.low < 0) continue;
            const int64_t bin = bh * a.width + bw;
            f(bin, y.low, x.low, y.w_low * x.w_low);
            f(bin, y.low, x.high, y.w_low * x.w_high);
            f(bin, y.high, x.low, y.w_high * x.w_low);
            f(bin, y.high, x.high, y.w_high * x.w_high);
          }
        }
  }

 private:
  static bool points(const KernelCall& c, const RoiAttrs& a, T bin, int64_t& per) {
    if (a.sampling_ratio > 0) {
      per = a.sampling_ratio;
      return true;
    }
    const T n = std::ceil(bin);
    if (!(n <= T(65536))) {
      report_error(c, 2, n < T(1e18) ? static_cast<int64_t>(n) : INT64_MAX);
      return false;
    }
    per = std::max<int64_t>(static_cast<int64_t>(std::max(n, T(0))), 0);
    return true;
  }
};

template <class T>
void roi_align(const KernelCall& c) {
  const auto& a = c.get_attrs<RoiAttrs>();
  const int64_t n = c.in[0].shape[0], ch = c.in[0].shape[1];
  const int64_t h = c.in[0].shape[2], w = c.in[0].shape[3], boxes = c.in[2].shape[0];
  Dense<T> x(c.in[0]), box(c.in[2]), y(c.out[0].numel);
  Dense<uint64_t> image(c.in[1]);
  const int64_t bins = a.height * a.width;
  parallel_for_rows(boxes, ch * bins * 16, [&](int64_t begin, int64_t end) {
    RoiGrid<T> g;
    for (int64_t k = begin; k < end; ++k) {
      T* out = y.get() + k * ch * bins;
      std::fill(out, out + ch * bins, T(0));
      if (!g.fill(c, a, box.get() + 4 * k, static_cast<int64_t>(image[k]), n, h, w)) continue;
      for (int64_t q = 0; q < ch; ++q, out += bins) {
        const T* in = x.get() + (g.image * ch + q) * h * w;
        g.each(a, [&](int64_t bin, int64_t i, int64_t j, T v) { out[bin] += v * in[i * w + j]; });
        for (int64_t i = 0; i < bins; ++i) out[i] /= g.count;
      }
    }
  });
  y.store(c.out[0]);
}

template <class T>
void roi_align_backward(const KernelCall& c) {
  const auto& a = c.get_attrs<RoiAttrs>();
  const int64_t n = c.out[0].shape[0], ch = c.out[0].shape[1];
  const int64_t h = c.out[0].shape[2], w = c.out[0].shape[3], boxes = c.in[2].shape[0];
  Dense<T> gy(c.in[0]), box(c.in[2]), x(c.out[0].numel);
  Dense<uint64_t> image(c.in[1]);
  x.fill(0);
  const int64_t bins = a.height * a.width;
  parallel_for_rows(ch, boxes * bins * 32, [&](int64_t begin, int64_t end) {
    RoiGrid<T> g;
    for (int64_t k = 0; k < boxes; ++k) {
      if (!g.fill(c, a, box.get() + 4 * k, static_cast<int64_t>(image[k]), n, h, w)) continue;
      for (int64_t q = begin; q < end; ++q) {
        const T* from = gy.get() + (k * ch + q) * bins;
        T* to = x.get() + (g.image * ch + q) * h * w;
        g.each(a, [&](int64_t bin, int64_t i, int64_t j, T v) {
          to[i * w + j] += v * from[bin] / g.count;
        });
      }
    }
  });
  x.store(c.out[0]);
}

// ---- roi_pool

// Pixels start..end-1 of bin b: `roi` is the box's first pixel, `bin` the bin's size.
template <class T>
void bin_range(int64_t b, T bin, T roi, int64_t size, int64_t& start, int64_t& end) {
  const auto cut = [&](T v) {
    v += roi;
    return v > T(0) ? static_cast<int64_t>(std::min(v, static_cast<T>(size))) : 0;
  };
  start = cut(std::floor(static_cast<T>(b) * bin));
  end = cut(std::ceil(static_cast<T>(b + 1) * bin));
}

template <class T>
void roi_pool(const KernelCall& c) {
  const auto& a = c.get_attrs<RoiAttrs>();
  const int64_t n = c.in[0].shape[0], ch = c.in[0].shape[1];
  const int64_t h = c.in[0].shape[2], w = c.in[0].shape[3], boxes = c.in[2].shape[0];
  Dense<T> x(c.in[0]), box(c.in[2]);
  Dense<uint64_t> image(c.in[1]), at(c.out[0].numel);
  const int64_t bins = a.height * a.width;
  const T scale = static_cast<T>(a.spatial_scale);
  parallel_for_rows(boxes, ch * bins * 16, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const auto number = static_cast<int64_t>(image[k]);
      uint64_t* out = at.get() + k * ch * bins;
      std::fill(out, out + ch * bins, ~uint64_t{0});
      if (number < 0 || number >= n) {
        report_error(c, 1, number);
        continue;
      }
      T edge[4];
      for (int i = 0; i < 4; ++i) edge[i] = std::round(box[4 * k + i] * scale);
      const T bin_w = std::max(edge[2] - edge[0] + 1, T(1)) / static_cast<T>(a.width);
      const T bin_h = std::max(edge[3] - edge[1] + 1, T(1)) / static_cast<T>(a.height);
      for (int64_t bh = 0; bh < a.height; ++bh)
        for (int64_t bw = 0; bw < a.width; ++bw) {
          int64_t h0, h1, w0, w1;
          bin_range(bh, bin_h, edge[1], h, h0, h1);
          bin_range(bw, bin_w, edge[0], w, w0, w1);
          for (int64_t q = 0; q < ch; ++q) {
            const int64_t base = (number * ch + q) * h * w;
            T best = std::numeric_limits<T>::lowest();
            for (int64_t i = h0; i < h1; ++i)
              for (int64_t j = w0; j < w1; ++j)
                if (x[base + i * w + j] > best) {
                  best = x[base + i * w + j];
                  out[q * bins + bh * a.width + bw] = static_cast<uint64_t>(base + i * w + j);
                }
          }
        }
    }
  });
  at.store(c.out[0]);
}

}  // namespace

void nms_reference(const KernelCall& c) {
  with_compute(c.in[0].dtype, [&](auto zero) { nms<decltype(zero)>(c); });
}
void roi_align_reference(const KernelCall& c) {
  with_compute(c.in[0].dtype, [&](auto zero) { roi_align<decltype(zero)>(c); });
}
void roi_align_backward_reference(const KernelCall& c) {
  with_compute(c.in[0].dtype, [&](auto zero) { roi_align_backward<decltype(zero)>(c); });
}
void roi_pool_indices_reference(const KernelCall& c) {
  with_compute(c.in[0].dtype, [&](auto zero) { roi_pool<decltype(zero)>(c); });
}

}  // namespace tandem::detail
