// SPDX-License-Identifier: Apache-2.0
// resize_image: Pillow's two passes (rows first) with its filter, whose support grows with the
// scale, and for u8 its 22-bit weights and its rounding between the passes.
#include <array>
#include <memory>

#include "tandem/base/error.h"
#include "tandem/data/transforms/image_ops_internal.h"
#include "tandem/data/transforms/resize_loops_internal.h"
#include "tandem/tensor/pixels_internal.h"

namespace tandem::data {
namespace {

using detail::Image;
using detail::pixels;

using detail::kResizeBits;

double triangle(double x) { return x > -1 && x < 1 ? 1 - std::abs(x) : 0; }
// Keys' cubic; Pillow uses a = -0.5, resizing without antialias -0.75.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// For each position along one axis of the result: where its window starts, and `taps` weights.
struct Windows {
  int64_t taps = 0;
  std::vector<int64_t> first, count;
  std::vector<double> weights;
  std::vector<int32_t> whole;
  std::vector<int16_t> halves;
  std::vector<float> real;
};

Windows make_windows(int64_t in, int64_t out, const ResizeArgs& args) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double stretch = args.antialias ? std::max(scale, 1.0) : 1.0;
  const bool bicubic = args.interpolation == Interpolation::bicubic;
  const double support = (bicubic ? 2.0 : 1.0) * stretch, a = args.antialias ? -0.5 : -0.75;
  Windows w;
  w.taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  w.weights.resize(static_cast<size_t>(out * w.taps));
  for (int64_t i = 0; i < out; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto begin =
        std::max<int64_t>(static_cast<int64_t>(std::floor(center - support + 0.5)), 0);
    const auto end =
        std::min<int64_t>(static_cast<int64_t>(std::floor(center + support + 0.5)), in);
    double* row = w.weights.data() + i * w.taps;
    double sum = 0;
    for (int64_t k = begin; k < end; ++k) {
      const double x = (static_cast<double>(k) - center + 0.5) / stretch;
      sum += row[k - begin] = bicubic ? cubic(x, a) : triangle(x);
    }
    for (int64_t k = 0; k < end - begin; ++k) row[k] /= sum;
    w.first.push_back(begin);
    w.count.push_back(end - begin);
  }
  for (const double v : w.weights) {
    w.real.push_back(static_cast<float>(v));
    w.whole.push_back(static_cast<int32_t>(std::lround(v * (1 << kResizeBits))));
  }
  w.halves = detail::halves_of(w.whole.data(), w.taps, out);
  return w;
}

// A loader requests the same sizes repeatedly: each thread keeps the most recent ones.
std::shared_ptr<const Windows> windows(int64_t in, int64_t out, const ResizeArgs& args) {
  struct Kept {
    int64_t in = 0, out = 0;
    ResizeArgs args;
    std::shared_ptr<const Windows> windows;
  };
  thread_local std::array<Kept, 4> kept;
  thread_local size_t next = 0;
  for (const Kept& k : kept)
    if (k.in == in && k.out == out && k.args.interpolation == args.interpolation &&
        k.args.antialias == args.antialias)
      return k.windows;
  Kept& k = kept[next++ % kept.size()];
  k = {in, out, args, std::make_shared<const Windows>(make_windows(in, out, args))};
  return k.windows;
}

detail::ResizeWindows whole(const Windows& w) {
  return {w.taps, w.first.data(), w.count.data(), w.whole.data(), w.halves.data()};
}

// Along rows. Each element of the result is one short sum.
void pass_x(const float* from, float* to, int64_t rows, int64_t in, int64_t out, const Windows& w) {
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = 0; x < out; ++x) {
      const float* p = from + y * in + w.first[static_cast<size_t>(x)];
      const float* k = w.real.data() + x * w.taps;
      float sum = 0;
      for (int64_t i = 0; i < w.count[static_cast<size_t>(x)]; ++i) sum += p[i] * k[i];
      to[y * out + x] = sum;
    }
}
void pass_x(const uint8_t* from, uint8_t* to, int64_t rows, int64_t in, int64_t out,
            const Windows& w) {
  detail::resize_rows(from, to, rows, in, out, 1, whole(w));
}

// Across rows: adds whole rows, so the inner loop is long.
void pass_y(const float* from, float* to, int64_t width, int64_t out, const Windows& w) {
  for (int64_t y = 0; y < out; ++y) {
    const float* p = from + w.first[static_cast<size_t>(y)] * width;
    float* row = to + y * width;
    std::fill(row, row + width, 0.0F);
    for (int64_t i = 0; i < w.count[static_cast<size_t>(y)]; ++i, p += width) {
      const float k = w.real[static_cast<size_t>(y * w.taps + i)];
      for (int64_t x = 0; x < width; ++x) row[x] += p[x] * k;
    }
  }
}
void pass_y(const uint8_t* from, uint8_t* to, int64_t width, int64_t out, const Windows& w) {
  detail::resize_columns(from, to, width, out, whole(w));
}

Tensor resize_nearest(const Image& p, int64_t h, int64_t w, bool exact) {
  Tensor out = detail::new_image(p.c, h, w, p.held.dtype());
  const auto place = [exact](int64_t i, int64_t in, int64_t n) {
    const float scale = static_cast<float>(in) / static_cast<float>(n);
    const float at = (static_cast<float>(i) + (exact ? 0.5F : 0.0F)) * scale;
    return std::min(static_cast<int64_t>(std::floor(at)), in - 1);
  };
  std::vector<int64_t> columns;
  for (int64_t x = 0; x < w; ++x) columns.push_back(place(x, p.w, w));
  detail::each_type(p, [&](auto t) {
    using T = decltype(t);
    T* to = pixels<T>(out);
    for (int64_t k = 0; k < p.c; ++k)
      for (int64_t y = 0; y < h; ++y) {
        const T* row = p.data<T>() + (k * p.h + place(y, p.h, h)) * p.w;
        for (const int64_t x : columns) *to++ = row[x];
      }
  });
  return out;
}

// Interleaved channels stay interleaved: rows are summed as stored.
Tensor resize_pixels(const Tensor& image, int64_t height, int64_t width, const ResizeArgs& args) {
  const int64_t c = image.size(0), h = image.size(1), w = image.size(2);
  detail::check_new_size(height, width);
  Tensor rows = image;
  if (width != w) {
    rows = tandem::detail::new_pixels(c, h, width);
    detail::resize_rows(pixels<uint8_t>(image), pixels<uint8_t>(rows), h, w, width, c,
                        whole(*windows(w, width, args)));
  }
  if (height == h) return rows;
  Tensor out = tandem::detail::new_pixels(c, height, width);
  pass_y(pixels<uint8_t>(rows), pixels<uint8_t>(out), width * c, height, *windows(h, height, args));
  return out;
}

}  // namespace

Tensor resize_image(const Tensor& image, int64_t height, int64_t width, ResizeArgs args) {
  detail::check_image(image, "resize");
  if (height == image.size(1) && width == image.size(2)) return image;
  TD_CHECK(height > 0 && width > 0, Value, "resize: a size is positive, got {} x {}", height,
           width);
  if (image.is_symbolic()) return detail::traced_resize(image, height, width, args);
  const bool nearest = args.interpolation == Interpolation::nearest ||
                       args.interpolation == Interpolation::nearest_exact;
  if (tandem::detail::is_pixels(image) && !nearest)
    return resize_pixels(image, height, width, args);
  const Image p(image, "resize");
  if (nearest)
    return resize_nearest(p, height, width, args.interpolation == Interpolation::nearest_exact);
  Tensor out = detail::new_image(p.c, height, width, image.dtype());
  const auto wx = windows(p.w, width, args), wy = windows(p.h, height, args);
  // A pass along an axis whose size is unchanged is skipped. The buffer is a tensor, to reuse the
  // library's memory: with malloc a worker's heap would grow and shrink with each image.
  const Tensor between = width == p.w ? Tensor() : detail::new_image(1, p.h, width, image.dtype());
  detail::each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < p.c; ++k) {
      const T* from = p.data<T>() + k * p.h * p.w;
      T* to = pixels<T>(out) + k * height * width;
      if (width != p.w) {
        T* rows = height == p.h ? to : pixels<T>(between);
        pass_x(from, rows, p.h, p.w, width, *wx);
        from = rows;
      }
      if (height != p.h) pass_y(from, to, width, height, *wy);
    }
  });
  return out;
}

}  // namespace tandem::data
