// SPDX-License-Identifier: Apache-2.0
// ONNX's image and box ops: sampling at grids, regions, box suppression, columns to
// images.
#include <algorithm>
#include <cmath>
#include <span>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

void grid_sample_of(OnnxCall& c) {
  const std::string mode =
      c.attr_choice("mode", "linear", {"linear", "bilinear", "nearest", "cubic", "bicubic"});
  const char* ours = mode == "nearest"                      ? "nearest"
                     : mode == "cubic" || mode == "bicubic" ? "bicubic"
                                                            : "bilinear";
  const Tensor x = c.x(0);
  c.set(0, grid_sample(x, c.x(1).to(x.dtype()), ours,
                       c.attr_choice("padding_mode", "zeros", {"zeros", "border", "reflection"}),
                       c.attr("align_corners", 0) != 0));
}

void affine_grid_of(OnnxCall& c) {
  c.set(0, affine_grid(c.x(0), onnx_shape(c.ints(1)), c.attr("align_corners", 0) != 0));
}

// The largest weighted corner of the sampled points of each bin, as specified.
struct MaxRegions {
  std::vector<double> x;
  int64_t channels, height, width, bins_h, bins_w, sampling;
  double scale, offset;

  double point(const double* plane, double y, double xx) const {
    if (y < -1 || y > static_cast<double>(height) || xx < -1 || xx > static_cast<double>(width))
      return 0;
    auto place = [](double v, int64_t n, int64_t& low, int64_t& high) {
      v = std::max(v, 0.0);
      low = static_cast<int64_t>(v);
      if (low >= n - 1) {
        low = high = n - 1;
        return 0.0;
      }
      high = low + 1;
      return v - static_cast<double>(low);
    };
    int64_t y0, y1, x0, x1;
    const double ly = place(y, height, y0, y1), lx = place(xx, width, x0, x1);
    auto at = [&](int64_t r, int64_t k) { return plane[r * width + k]; };
    return std::max(std::max((1 - ly) * (1 - lx) * at(y0, x0), (1 - ly) * lx * at(y0, x1)),
                    std::max(ly * (1 - lx) * at(y1, x0), ly * lx * at(y1, x1)));
  }

  /// Points in a bin of that size.
  int64_t samples(double size) const {
    if (sampling > 0) return sampling;
    TD_CHECK(size <= 1e6, Value, "a bin of a region is {} pixels wide", size);
    return size > 0 ? static_cast<int64_t>(std::ceil(size)) : 0;
  }

  void region(const double* box, int64_t image, double* out) const {
    const double left = box[0] * scale - offset, top = box[1] * scale - offset;
    double w = box[2] * scale - offset - left, h = box[3] * scale - offset - top;
    if (offset == 0) {
      w = std::max(w, 1.0);
      h = std::max(h, 1.0);
    }
    const double bh = h / static_cast<double>(bins_h), bw = w / static_cast<double>(bins_w);
    const int64_t nh = samples(bh), nw = samples(bw);
    check_onnx_loop(static_cast<double>(channels * bins_h * bins_w) * static_cast<double>(nh * nw));
    for (int64_t k = 0; k < channels; ++k) {
      const double* plane = x.data() + (image * channels + k) * height * width;
      for (int64_t i = 0; i < bins_h * bins_w; ++i) {
        double best = 0;
        bool any = false;
        for (int64_t j = 0; j < nh * nw; ++j) {
          const double y = top + static_cast<double>(i / bins_w) * bh +
                           (static_cast<double>(j / nw) + 0.5) * bh / static_cast<double>(nh);
          const double xx = left + static_cast<double>(i % bins_w) * bw +
                            (static_cast<double>(j % nw) + 0.5) * bw / static_cast<double>(nw);
          const double v = point(plane, y, xx);
          best = any ? std::max(best, v) : v;
          any = true;
        }
        out[k * bins_h * bins_w + i] = best;
      }
    }
  }
};

/// The points sampled in regions [k, 4] follow from their sizes.
void check_regions(const std::vector<double>& boxes, double scale, double channels, double h,
                   double w) {
  for (size_t i = 0; i + 3 < boxes.size(); i += 4) {
    const double wide = std::fabs(boxes[i + 2] - boxes[i]) * scale,
                 high = std::fabs(boxes[i + 3] - boxes[i + 1]) * scale;
    check_onnx_loop(channels * (high + h) * (wide + w));
  }
}

void roi_align_of(OnnxCall& c) {
  const Tensor x = c.x(0), rois = c.x(1);
  const int64_t h = c.attr("output_height", 1), w = c.attr("output_width", 1),
                sampling = c.attr("sampling_ratio", 0);
  const double scale = c.attr_float("spatial_scale", 1);
  const bool half = c.attr_choice("coordinate_transformation_mode",
                                  c.version() < 16 ? "output_half_pixel" : "half_pixel",
                                  {"half_pixel", "output_half_pixel"}) == "half_pixel";
  TD_CHECK(x.dim() == 4 && rois.dim() == 2 && rois.size(1) == 4, Shape,
           "expected [n, c, h, w] and boxes [k, 4]");
  TD_CHECK(h > 0 && w > 0, Value, "expected a positive output size");
  if (sampling <= 0 && !rois.is_symbolic())
    check_regions(rois.to_vector<double>(), scale, static_cast<double>(x.size(1)),
                  static_cast<double>(h), static_cast<double>(w));
  check_onnx_size(Shape(rois.shape(0), x.shape(1), h, w), sizeof(double));
  if (c.attr_choice("mode", "avg", {"avg", "max"}) == "avg") {
    const Tensor boxes = cat({c.x(2).to(x.dtype()).reshape({-1, 1}), rois.to(x.dtype())}, 1);
    c.set(0, roi_align(x, boxes, {h, w}, scale, sampling > 0 ? sampling : -1, half));
    return;
  }
  const std::vector<int64_t> images = c.ints(2);
  const std::vector<double> boxes = rois.to_vector<double>();
  const MaxRegions m{x.to_vector<double>(), x.size(1), x.size(2), x.size(3), h, w, sampling, scale,
                     half ? 0.5 : 0.0};
  TD_CHECK(boxes.size() == 4 * images.size() && sampling < 4096, Shape, "{} boxes, {} images",
           boxes.size() / 4, images.size());
  std::vector<double> out(images.size() * static_cast<size_t>(x.size(1) * h * w));
  for (size_t i = 0; i < images.size(); ++i) {
    TD_CHECK(images[i] >= 0 && images[i] < x.size(0), Index, "image {} of {}", images[i],
             x.size(0));
    m.region(boxes.data() + 4 * i, images[i],
             out.data() + i * static_cast<size_t>(x.size(1) * h * w));
  }
  c.set_like(0, tensor(out, Shape(images.size(), x.size(1), h, w)));
}

struct Box {
  double x1, y1, x2, y2;
  double area() const { return (x2 - x1) * (y2 - y1); }
};

/// Boxes [n, k, 4] as x1, y1, x2, y2 in f64.
Tensor corners_of(const Tensor& boxes, bool centre) {
  const Tensor b = boxes.to(DType::f64);
  const Tensor first = b.narrow(2, 0, 2), last = b.narrow(2, 2, 2);
  if (centre) return cat({first - last / 2, first + last / 2}, 2);
  return cat({flip(minimum(first, last), {2}), flip(maximum(first, last), {2})}, 2);
}

bool overlap(const Box& a, const Box& b, double threshold) {
  const double w = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  const double h = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  if (w <= 0 || h <= 0 || a.area() <= 0 || b.area() <= 0) return false;
  const double both = w * h;
  // As f32: an overlap exactly on the threshold stays there.
  return static_cast<float>(both / (a.area() + b.area() - both)) > static_cast<float>(threshold);
}

void non_max_suppression(OnnxCall& c) {
  const Tensor boxes = c.x(0), scores = c.x(1);
  TD_CHECK(boxes.dim() == 3 && boxes.size(2) == 4 && scores.dim() == 3 &&
               scores.size(0) == boxes.size(0) && scores.size(2) == boxes.size(1),
           Shape, "expected boxes [n, k, 4] and scores [n, classes, k]");
  const int64_t images = boxes.size(0), n = boxes.size(1), classes = scores.size(1);
  const int64_t most = c.has(2) ? std::max<int64_t>(0, c.int_at(2)) : 0;
  const double threshold = c.has(3) ? c.number(3) : 0;
  const bool centre = c.attr("center_point_box", 0);
  const std::vector<int64_t> ranked =
      argsort(scores.to(DType::f32), -1, /*descending=*/true).to_vector<int64_t>();
  const std::vector<double> b = corners_of(boxes, centre).to_vector<double>();
  const std::vector<float> s = scores.to_vector<float>();
  check_onnx_loop(static_cast<double>(images * classes) * static_cast<double>(n) *
                  static_cast<double>(std::min(std::max<int64_t>(most, 1), n)));
  const auto least = static_cast<float>(c.has(4) ? c.number(4) : 0);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < images * classes; ++i) {
    const int64_t image = i / classes;
    const float* score = s.data() + i * n;
    std::vector<Box> kept;
    for (const int64_t k :
         std::span(ranked).subspan(static_cast<size_t>(i * n), static_cast<size_t>(n))) {
      if (static_cast<int64_t>(kept.size()) >= most) break;
      if (c.has(4) && !(score[k] > least)) continue;
      const double* p = b.data() + (image * n + k) * 4;
      const Box box{p[0], p[1], p[2], p[3]};
      bool free = true;
      for (const Box& other : kept) free = free && !overlap(box, other, threshold);
      if (!free) continue;
      kept.push_back(box);
      out.insert(out.end(), {image, i % classes, k});
    }
  }
  c.set(0, tensor(out, Shape(out.size() / 3, 3)));
}

// Every column is added to its place in the padded image, which is then cropped.
void col2im_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  const std::vector<int64_t> image = c.ints(1), block = c.ints(2);
  const size_t n = image.size();
  std::vector<int64_t> strides = c.attr_ints("strides", std::vector<int64_t>(n, 1)),
                       dilations = c.attr_ints("dilations", std::vector<int64_t>(n, 1)),
                       pads = c.attr_ints("pads", std::vector<int64_t>(2 * n, 0));
  TD_CHECK(x.dim() == 3 && n + 2 <= static_cast<size_t>(kMaxRank) && block.size() == n &&
               strides.size() == n && dilations.size() == n && pads.size() == 2 * n,
           Shape, "sizes of {} dimensions do not match", n);
  for (const std::vector<int64_t>& l : {image, block, strides, dilations, pads}) check_onnx_list(l);
  std::vector<int64_t> places(n), padded(n);
  int64_t per_block = 1, count = 1, plane = 1;
  for (size_t d = 0; d < n; ++d) {
    padded[d] = image[d] + pads[d] + pads[n + d];
    TD_CHECK(block[d] > 0 && strides[d] > 0 && dilations[d] > 0, Value, "expected positive sizes");
    places[d] = (padded[d] - dilations[d] * (block[d] - 1) - 1) / strides[d] + 1;
    per_block *= block[d];
    count *= places[d];
    plane *= padded[d];
    TD_CHECK(places[d] > 0 && std::max({per_block, count, plane}) <= int64_t{1} << 34, Shape,
             "an image of {} does not fit blocks of {}", image[d], block[d]);
  }
  TD_CHECK(per_block > 0 && x.size(1) % per_block == 0 && x.size(2) == count, Shape,
           "columns {} do not fit blocks of {} at {} positions", x.shape().to_string(), per_block,
           count);
  check_onnx_size(Shape(x.size(0), x.size(1) / per_block, plane));
  Tensor at = zeros({1, 1}, DType::i64);
  int64_t unit = 1;
  for (size_t d = n; d-- > 0;) {  // places of dimension d of all blocks [per_block, count]
    int64_t inner_block = 1, inner_place = 1;
    for (size_t e = d + 1; e < n; ++e) {
      inner_block *= block[e];
      inner_place *= places[e];
    }
    const Tensor k =
        remainder(floor_divide(arange(0, per_block, 1, DType::i64), inner_block), block[d]);
    const Tensor p =
        remainder(floor_divide(arange(0, count, 1, DType::i64), inner_place), places[d]);
    at = at + (k.reshape({-1, 1}) * dilations[d] + p * strides[d]) * unit;
    unit *= padded[d];
  }
  const int64_t channels = x.size(1) / per_block;
  const Tensor index = contiguous(expand(at.reshape({1, 1, -1}), {x.size(0), channels, -1}));
  Tensor y = scatter_add(zeros({x.size(0), channels, plane}, x.dtype()), 2, index,
                         x.reshape({x.size(0), channels, per_block * count}));
  Shape s(x.size(0), channels);
  for (const int64_t p : padded) s.push_back(p);
  y = y.reshape(s);
  for (size_t d = 0; d < n; ++d) y = y.narrow(static_cast<int64_t>(d) + 2, pads[d], image[d]);
  c.set(0, contiguous(y));
}

}  // namespace

std::span<const OnnxRow> onnx_vision_rows() {
  static constexpr OnnxRow kRows[] = {
      {"",
       "GridSample",
       16,
       0,
       grid_sample_of,
       {2, 1, "align_corners mode padding_mode"},
       &op::grid_sample,
       export_grid_sample},
      {kOnnxMicrosoft,
       "GridSample",
       1,
       0,
       grid_sample_of,
       {2, 1, "align_corners mode padding_mode"}},
      {"", "AffineGrid", 20, 0, affine_grid_of, {2, 1, "align_corners"}},
      settings_from(1, {"",
                        "RoiAlign",
                        10,
                        0,
                        roi_align_of,
                        {3, 1,
                         "coordinate_transformation_mode mode output_height output_width "
                         "sampling_ratio spatial_scale"},
                        &op::roi_align,
                        export_roi_align}),
      settings_from(0, {"",
                        "NonMaxSuppression",
                        10,
                        0,
                        non_max_suppression,
                        {5, 1, "center_point_box"},
                        &op::nms,
                        export_nms}),
      {"",
       "Col2Im",
       18,
       0,
       col2im_of,
       {3, 1, "dilations pads strides"},
       &op::col2im,
       export_col2im},
  };
  return kRows;
}

}  // namespace tandem::onnx
