// SPDX-License-Identifier: Apache-2.0
// Rotation, affine, perspective and elastic maps of images and boxes. A map takes a point of the
// result to one of the image; coordinates go through torchvision's normalised grid in f32, so that
// nearest picks the same pixels.
#include "tandem/base/error.h"
#include "tandem/data/boxes_internal.h"
#include "tandem/data/transforms/image_ops_internal.h"
#include "tandem/ops/view/create.h"

namespace tandem::data {
namespace {

using detail::Image;
using detail::pixels;
using Matrix = std::array<double, 6>;

constexpr double kRadians = 3.14159265358979323846 / 180;

// From the result to the image (inverted) or back, about `center`.
Matrix affine_matrix(const AffineArgs& a, std::array<double, 2> center, bool inverted) {
  const double rot = a.angle * kRadians, sx = a.shear[0] * kRadians, sy = a.shear[1] * kRadians;
  const double cx = center[0], cy = center[1], tx = a.translate[0], ty = a.translate[1];
  const double p = std::cos(rot - sy) / std::cos(sy);
  const double q = -std::cos(rot - sy) * std::tan(sx) / std::cos(sy) - std::sin(rot);
  const double r = std::sin(rot - sy) / std::cos(sy);
  const double s = -std::sin(rot - sy) * std::tan(sx) / std::cos(sy) + std::cos(rot);
  if (inverted) {
    Matrix m{s / a.scale, -q / a.scale, 0, -r / a.scale, p / a.scale, 0};
    m[2] = m[0] * (-cx - tx) + m[1] * (-cy - ty) + cx;
    m[5] = m[3] * (-cx - tx) + m[4] * (-cy - ty) + cy;
    return m;
  }
  Matrix m{p * a.scale, q * a.scale, 0, r * a.scale, s * a.scale, 0};
  m[2] = m[0] * -cx + m[1] * -cy + cx + tx;
  m[5] = m[3] * -cx + m[4] * -cy + cy + ty;
  return m;
}

// `grid(x, y)` returns normalised coordinates (-1 .. 1) in the image for a pixel of the result.
template <class Grid>
Tensor sample(const Image& p, int64_t h, int64_t w, Interpolation mode, const Fill& fill,
              Grid&& grid) {
  TD_CHECK(mode == Interpolation::nearest || mode == Interpolation::bilinear, Value,
           "a map of an image interpolates nearest or bilinear");
  Tensor out = detail::new_image(p.c, h, w, p.held.dtype());
  const auto size_x = static_cast<float>(p.w), size_y = static_cast<float>(p.h);
  const bool nearest = mode == Interpolation::nearest;
  std::vector<float> fills;
  for (int64_t k = 0; k < p.c && !fill.empty(); ++k)
    fills.push_back(static_cast<float>(detail::fill_of(fill, k, p.c)));
  detail::each_type(p, [&](auto t) {
    using T = decltype(t);
    const int64_t plane = p.h * p.w;
    const T* from = p.data<T>();
    T* to = pixels<T>(out);
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x) {
        const std::array<float, 2> g = grid(x, y);
        const float px = ((g[0] + 1) * size_x - 1) / 2, py = ((g[1] + 1) * size_y - 1) / 2;
        // Up to four pixels and their weights; those outside have none.
        int64_t at[4] = {};
        float weight[4] = {};
        const auto add = [&](size_t i, float fx, float fy, float k) {
          if (fx >= 0 && fx < size_x && fy >= 0 && fy < size_y) {
            at[i] = static_cast<int64_t>(fy) * p.w + static_cast<int64_t>(fx);
            weight[i] = k;
          }
        };
        if (nearest) {
          add(0, std::nearbyint(px), std::nearbyint(py), 1);
        } else if (px >= 0 && px < size_x - 1 && py >= 0 &&
                   py < size_y - 1) {  // all four are inside
          const auto ix = static_cast<int64_t>(px), iy = static_cast<int64_t>(py);
          const float dx = px - static_cast<float>(ix), dy = py - static_cast<float>(iy);
          for (int64_t i = 0; i < 4; ++i) at[i] = (iy + i / 2) * p.w + ix + i % 2;
          weight[0] = (1 - dx) * (1 - dy);
          weight[1] = dx * (1 - dy);
          weight[2] = (1 - dx) * dy;
          weight[3] = dx * dy;
        } else {
          const float x0 = std::floor(px), y0 = std::floor(py), dx = px - x0, dy = py - y0;
          add(0, x0, y0, (1 - dx) * (1 - dy));
          add(1, x0 + 1, y0, dx * (1 - dy));
          add(2, x0, y0 + 1, (1 - dx) * dy);
          add(3, x0 + 1, y0 + 1, dx * dy);
        }
        const float mask = weight[0] + weight[1] + weight[2] + weight[3];
        for (int64_t k = 0; k < p.c; ++k) {
          float v = 0;
          for (size_t i = 0; i < 4; ++i)
            if (weight[i] != 0) v += static_cast<float>(from[k * plane + at[i]]) * weight[i];
          if (!fills.empty()) {
            const float f = fills[static_cast<size_t>(k)];
            if (nearest)
              v = mask < 0.5F ? f : v;
            else
              v = (v - f) * mask + f;
          }
          to[(k * h + y) * w + x] = p.u8 ? detail::stored<T>(std::nearbyint(v)) : static_cast<T>(v);
        }
      }
  });
  return out;
}

// The affine grid of torchvision: pixel centres relative to the middle of the result.
Tensor warp(const Image& p, const Matrix& m, int64_t h, int64_t w, Interpolation mode,
            const Fill& fill) {
  std::array<float, 6> theta;
  for (size_t i = 0; i < 6; ++i)
    theta[i] =
        static_cast<float>(m[i]) / static_cast<float>(0.5 * static_cast<double>(i < 3 ? p.w : p.h));
  const float left = static_cast<float>(-0.5 * static_cast<double>(w) + 0.5);
  const float top = static_cast<float>(-0.5 * static_cast<double>(h) + 0.5);
  return sample(p, h, w, mode, fill, [&](int64_t x, int64_t y) {
    const float bx = left + static_cast<float>(x), by = top + static_cast<float>(y);
    return std::array<float, 2>{bx * theta[0] + by * theta[1] + theta[2],
                                bx * theta[3] + by * theta[4] + theta[5]};
  });
}

std::array<double, 2> from_middle(const std::optional<std::array<double, 2>>& center,
                                  const Image& p) {
  if (!center) return {0, 0};
  return {(*center)[0] - static_cast<double>(p.w) * 0.5,
          (*center)[1] - static_cast<double>(p.h) * 0.5};
}

// Solve the 8 equations of a perspective map by elimination with pivots.
std::array<double, 8> perspective_coefficients(const Corners& start, const Corners& end) {
  double m[8][9] = {};
  for (size_t i = 0; i < 4; ++i) {
    const double ex = end[i][0], ey = end[i][1], sx = start[i][0], sy = start[i][1];
    const double rows[2][9] = {{ex, ey, 1, 0, 0, 0, -sx * ex, -sx * ey, sx},
                               {0, 0, 0, ex, ey, 1, -sy * ex, -sy * ey, sy}};
    for (size_t k = 0; k < 9; ++k) {
      m[2 * i][k] = rows[0][k];
      m[2 * i + 1][k] = rows[1][k];
    }
  }
  for (size_t c = 0; c < 8; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r < 8; ++r)
      if (std::abs(m[r][c]) > std::abs(m[pivot][c])) pivot = r;
    TD_CHECK(std::abs(m[pivot][c]) > 1e-12, Value,
             "perspective: three of the four points lie on a line");
    std::swap(m[c], m[pivot]);
    for (size_t r = 0; r < 8; ++r) {
      if (r == c) continue;
      const double by = m[r][c] / m[c][c];
      for (size_t k = c; k < 9; ++k) m[r][k] -= by * m[c][k];
    }
  }
  std::array<double, 8> out;
  for (size_t i = 0; i < 8; ++i) out[i] = m[i][8] / m[i][i];
  return out;
}

std::vector<float> numbers_of(const Tensor& boxes) {
  TD_CHECK(boxes.defined() && boxes.dim() == 2 && boxes.size(1) == 4, Shape,
           "boxes are [n, 4], got {}",
           boxes.defined() ? boxes.shape().to_string() : "an undefined tensor");
  return boxes.to_vector<float>();
}

// The smallest upright boxes around the mapped corners, clipped to the image.
template <class Map>
Tensor mapped_boxes(const Tensor& boxes, int64_t height, int64_t width, Map&& map) {
  std::vector<float> b = numbers_of(boxes);
  for (size_t i = 0; i < b.size(); i += 4) {
    double low[2] = {1e300, 1e300}, high[2] = {-1e300, -1e300};
    for (size_t k = 0; k < 4; ++k) {
      const std::array<double, 2> q =
          map(static_cast<double>(b[i + 2 * (k % 2)]), static_cast<double>(b[i + 1 + 2 * (k / 2)]));
      for (size_t j = 0; j < 2; ++j) {
        low[j] = std::min(low[j], q[j]);
        high[j] = std::max(high[j], q[j]);
      }
    }
    for (size_t j = 0; j < 2; ++j) {
      const double most = static_cast<double>(j == 0 ? width : height);
      b[i + j] = static_cast<float>(std::clamp(low[j], 0.0, most));
      b[i + 2 + j] = static_cast<float>(std::clamp(high[j], 0.0, most));
    }
  }
  return boxes_of(b);
}

// Where elastic maps read: pixel centres, moved by `sign` times the displacement.
struct Displaced {
  Displaced(const Tensor& displacement, float sign) : held(displacement), sign(sign) {
    TD_CHECK(held.defined() && held.dim() == 4 && held.size(0) == 1 && held.size(3) == 2, Shape,
             "elastic: a displacement is [1, h, w, 2], got {}",
             held.defined() ? held.shape().to_string() : "an undefined tensor");
    TD_CHECK(held.dtype() == DType::f32, DType, "elastic: a displacement is f32, got {}",
             to_string(held.dtype()));
    held = held.contiguous();
    h = held.size(1);
    w = held.size(2);
  }
  /// Normalised coordinates for the pixel.
  std::array<float, 2> operator()(int64_t x, int64_t y) const {
    const float* d = pixels<float>(held) + (y * w + x) * 2;
    return {middle(x, w) + sign * d[0], middle(y, h) + sign * d[1]};
  }
  static float middle(int64_t i, int64_t n) {
    const auto last = static_cast<float>(static_cast<double>(n - 1) / static_cast<double>(n));
    return detail::linspace_at(-last, last, n, i);
  }
  Tensor held;
  float sign;
  int64_t h, w;
};

}  // namespace

Tensor affine_image(const Tensor& image, const AffineArgs& args, Interpolation interpolation,
                    const Fill& fill) {
  const Image p(image, "affine");
  TD_CHECK(args.scale > 0, Value, "affine: the scale is positive, got {}", args.scale);
  return warp(p, affine_matrix(args, from_middle(args.center, p), true), p.h, p.w, interpolation,
              fill);
}

Tensor rotate_image(const Tensor& image, double angle, Interpolation interpolation, bool expand,
                    std::optional<std::array<double, 2>> center, const Fill& fill) {
  const Image p(image, "rotate");
  angle = std::fmod(angle, 360.0);
  if (angle < 0) angle += 360;
  const Matrix m =
      affine_matrix({.angle = -angle}, from_middle(expand ? std::nullopt : center, p), true);
  int64_t h = p.h, w = p.w;
  if (expand) {
    double low[2] = {1e300, 1e300}, high[2] = {-1e300, -1e300};
    for (int k = 0; k < 4; ++k) {
      const double x = (k % 2 ? 0.5 : -0.5) * static_cast<double>(p.w);
      const double y = (k / 2 ? 0.5 : -0.5) * static_cast<double>(p.h);
      const double q[2] = {m[0] * x + m[1] * y + 0.5 * static_cast<double>(p.w),
                           m[3] * x + m[4] * y + 0.5 * static_cast<double>(p.h)};
      for (int j = 0; j < 2; ++j) {
        // Sines of right angles can leave a corner slightly off its integer position.
        const double v = std::round(q[j] * 1e9) / 1e9;
        low[j] = std::min(low[j], v);
        high[j] = std::max(high[j], v);
      }
    }
    w = static_cast<int64_t>(std::ceil(high[0]) - std::floor(low[0]));
    h = static_cast<int64_t>(std::ceil(high[1]) - std::floor(low[1]));
  }
  return warp(p, m, h, w, interpolation, fill);
}

Tensor perspective_image(const Tensor& image, const Corners& startpoints, const Corners& endpoints,
                         Interpolation interpolation, const Fill& fill) {
  const Image p(image, "perspective");
  const std::array<double, 8> c = perspective_coefficients(startpoints, endpoints);
  std::array<float, 6> theta;
  for (size_t i = 0; i < 6; ++i)
    theta[i] =
        static_cast<float>(c[i]) / static_cast<float>(0.5 * static_cast<double>(i < 3 ? p.w : p.h));
  const auto c6 = static_cast<float>(c[6]), c7 = static_cast<float>(c[7]);
  return sample(p, p.h, p.w, interpolation, fill, [&](int64_t x, int64_t y) {
    const float bx = static_cast<float>(x) + 0.5F, by = static_cast<float>(y) + 0.5F;
    const float below = bx * c6 + by * c7 + 1;
    return std::array<float, 2>{(bx * theta[0] + by * theta[1] + theta[2]) / below - 1,
                                (bx * theta[3] + by * theta[4] + theta[5]) / below - 1};
  });
}

Tensor affine_boxes(const Tensor& boxes, const AffineArgs& args, int64_t height, int64_t width) {
  const std::array<double, 2> middle = {static_cast<double>(width) * 0.5,
                                        static_cast<double>(height) * 0.5};
  const Matrix m = affine_matrix(args, args.center.value_or(middle), false);
  return mapped_boxes(boxes, height, width, [&](double x, double y) {
    return std::array<double, 2>{m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]};
  });
}

Tensor perspective_boxes(const Tensor& boxes, const Corners& startpoints, const Corners& endpoints,
                         int64_t height, int64_t width) {
  // From image to result: the map with the two sets of points swapped.
  const std::array<double, 8> c = perspective_coefficients(endpoints, startpoints);
  return mapped_boxes(boxes, height, width, [&](double x, double y) {
    const double below = c[6] * x + c[7] * y + 1;
    return std::array<double, 2>{(c[0] * x + c[1] * y + c[2]) / below,
                                 (c[3] * x + c[4] * y + c[5]) / below};
  });
}

Tensor clamp_boxes(const Tensor& boxes, int64_t height, int64_t width) {
  return mapped_boxes(boxes, height, width, [](double x, double y) {
    return std::array<double, 2>{x, y};
  });
}

Tensor elastic_image(const Tensor& image, const Tensor& displacement, Interpolation interpolation,
                     const Fill& fill) {
  const Image p(image, "elastic");
  const Displaced grid(displacement, 1);
  TD_CHECK(grid.h == p.h && grid.w == p.w, Shape,
           "elastic: the displacement of a {} x {} image is [1, {}, {}, 2], got {}", p.h, p.w, p.h,
           p.w, displacement.shape().to_string());
  return sample(p, p.h, p.w, interpolation, fill, grid);
}

Tensor elastic_boxes(const Tensor& boxes, const Tensor& displacement) {
  const Displaced grid(displacement, -1);
  // The pixel of a coordinate; the comparisons map NaN to a pixel too.
  const auto pixel = [](double v, int64_t n) {
    v = std::ceil(v);
    return !(v > 0) ? 0 : v < static_cast<double>(n - 1) ? static_cast<int64_t>(v) : n - 1;
  };
  return mapped_boxes(boxes, grid.h, grid.w, [&](double x, double y) {
    const std::array<float, 2> g = grid(pixel(x, grid.w), pixel(y, grid.h));
    return std::array<double, 2>{
        (static_cast<double>(g[0]) + 1) * 0.5 * static_cast<double>(grid.w) - 0.5,
        (static_cast<double>(g[1]) + 1) * 0.5 * static_cast<double>(grid.h) - 0.5};
  });
}

Tensor convert_bounding_box_format(const Tensor& boxes, BoundingBoxFormat old_format,
                                   BoundingBoxFormat new_format) {
  std::vector<float> numbers = numbers_of(boxes);
  if (old_format == new_format) return boxes_of(numbers);
  for (size_t i = 0; i < numbers.size(); i += 4)
    for (size_t j = i; j < i + 2; ++j) {  // x, then y
      float &a = numbers[j], &b = numbers[j + 2];
      const float size = old_format == BoundingBoxFormat::xyxy ? b - a : b;
      const float low = old_format == BoundingBoxFormat::cxcywh ? a - size / 2 : a;
      const float high = old_format == BoundingBoxFormat::xyxy ? b : low + size;
      a = new_format == BoundingBoxFormat::cxcywh ? low + size / 2 : low;
      b = new_format == BoundingBoxFormat::xyxy ? high : size;
    }
  return boxes_of(numbers);
}

}  // namespace tandem::data
