// SPDX-License-Identifier: Apache-2.0
// Transforms used to train detectors (SSD's zoom and crop, scale jitter) and those that only change
// boxes.
#include <cmath>

#include "tandem/data/transforms/transforms_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::data {

using detail::between;
using detail::check_range;
using detail::happens;

namespace {

// Python's int(size * r).
int64_t times(int64_t size, double r) {
  return static_cast<int64_t>(static_cast<double>(size) * r);
}
double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

struct Window {
  int64_t top, left, h, w;
};

// Which boxes have their centre inside; none when no overlap (IoU) reaches `least`.
std::vector<uint8_t> middles_inside(const std::vector<float>& boxes, const Window& c,
                                    double least) {
  const auto x1 = static_cast<double>(c.left), y1 = static_cast<double>(c.top);
  const auto x2 = static_cast<double>(c.left + c.w), y2 = static_cast<double>(c.top + c.h);
  std::vector<uint8_t> inside(boxes.size() / 4);
  bool enough = false;
  for (size_t i = 0; i < inside.size(); ++i) {
    const double b[4] = {static_cast<double>(boxes[4 * i]), static_cast<double>(boxes[4 * i + 1]),
                         static_cast<double>(boxes[4 * i + 2]),
                         static_cast<double>(boxes[4 * i + 3])};
    const double cx = 0.5 * (b[0] + b[2]), cy = 0.5 * (b[1] + b[3]);
    if (!(x1 < cx && cx < x2 && y1 < cy && cy < y2)) continue;
    inside[i] = 1;
    const double common = std::max(std::min(b[2], x2) - std::max(b[0], x1), 0.0) *
                          std::max(std::min(b[3], y2) - std::max(b[1], y1), 0.0);
    const double all = (b[2] - b[0]) * (b[3] - b[1]) + (x2 - x1) * (y2 - y1) - common;
    enough = enough || common >= least * all;
  }
  if (!enough) inside.clear();
  return inside;
}

}  // namespace

Transform ScaleJitter(std::array<int64_t, 2> target_size, Range scale_range, ResizeArgs args) {
  TD_CHECK(target_size[0] > 0 && target_size[1] > 0, Value,
           "ScaleJitter: the target size is positive, got {} x {}", target_size[0], target_size[1]);
  check_range(scale_range, "ScaleJitter");
  TD_CHECK(scale_range[0] > 0, Value, "ScaleJitter: scales are positive, got {}", scale_range[0]);
  return Transform("ScaleJitter", [=](Vision& v, PhiloxStream& random) {
    const int64_t h = v.image.size(1), w = v.image.size(2);
    // torchvision compares the first number with the width.
    const double r = std::min(ratio(target_size[1], h), ratio(target_size[0], w)) *
                     between(random, scale_range[0], scale_range[1]);
    detail::resize_all(v, times(h, r), times(w, r), args);
  });
}

Transform RandomShortestSize(Sizes min_size, int64_t max_size, ResizeArgs args) {
  TD_CHECK(!min_size.empty() && max_size >= 0, Value,
           "RandomShortestSize: at least one size and no negative max_size, got {} and {}",
           min_size.size(), max_size);
  for (const int64_t s : min_size)
    TD_CHECK(s > 0, Value, "RandomShortestSize: sizes are positive, got {}", s);
  return Transform("RandomShortestSize", [min_size = std::move(min_size), max_size, args](
                                             Vision& v, PhiloxStream& random) {
    const int64_t h = v.image.size(1), w = v.image.size(2);
    double r = ratio(min_size[random.next_below(min_size.size())], std::min(h, w));
    if (max_size > 0) r = std::min(r, ratio(max_size, std::max(h, w)));
    detail::resize_all(v, times(h, r), times(w, r), args);
  });
}

Transform RandomResize(int64_t min_size, int64_t max_size, ResizeArgs args) {
  TD_CHECK(min_size > 0 && min_size < max_size, Value,
           "RandomResize: 0 < min_size < max_size, got {} and {}", min_size, max_size);
  return Transform("RandomResize", [=](Vision& v, PhiloxStream& random) {
    const int64_t size =
        min_size +
        static_cast<int64_t>(random.next_below(static_cast<uint64_t>(max_size - min_size)));
    const auto [h, w] = detail::resized(v.image.size(1), v.image.size(2), {size}, 0);
    detail::resize_all(v, h, w, args);
  });
}

Transform RandomZoomOut(Fill fill, Range side_range, double p) {
  detail::check_probability(p, "RandomZoomOut");
  check_range(side_range, "RandomZoomOut");
  TD_CHECK(side_range[0] >= 1, Value, "RandomZoomOut: sides grow by 1 or more, got {}",
           side_range[0]);
  return Transform("RandomZoomOut", [fill = std::move(fill), side_range, p](Vision& v,
                                                                            PhiloxStream& random) {
    if (!happens(random, p)) return;
    const double r = between(random, side_range[0], side_range[1]);
    const int64_t dy = times(v.image.size(1), r) - v.image.size(1);
    const int64_t dx = times(v.image.size(2), r) - v.image.size(2);
    const int64_t left = times(dx, between(random, 0, 1)), top = times(dy, between(random, 0, 1));
    detail::pad_all(v, {left, top, dx - left, dy - top}, fill, PaddingMode::constant);
  });
}

Transform RandomIoUCrop(RandomIoUCropOptions o) {
  check_range({o.min_scale, o.max_scale}, "RandomIoUCrop: scales");
  check_range({o.min_aspect_ratio, o.max_aspect_ratio}, "RandomIoUCrop: aspect ratios");
  TD_CHECK(o.min_scale > 0 && o.max_scale <= 1, Value,
           "RandomIoUCrop: scales lie in 0 .. 1, got {} .. {}", o.min_scale, o.max_scale);
  TD_CHECK(!o.sampler_options.empty() && o.trials > 0, Value,
           "RandomIoUCrop: at least one of sampler_options and one trial, got {} and {}",
           o.sampler_options.size(), o.trials);
  return Transform("RandomIoUCrop", [o = std::move(o)](Vision& v, PhiloxStream& random) {
    TD_CHECK(v.boxes.defined() && v.boxes.dim() == 2 && v.boxes.size(1) == 4, Shape,
             "RandomIoUCrop expects boxes [n, 4], got {}",
             v.boxes.defined() ? v.boxes.shape().to_string() : "none");
    const std::vector<float> boxes = v.boxes.to_vector<float>();
    const int64_t h = v.image.size(1), w = v.image.size(2);
    for (int round = 0; round < 100 && !boxes.empty(); ++round) {
      const double least = o.sampler_options[random.next_below(o.sampler_options.size())];
      if (least >= 1) return;  // means the whole image
      for (int64_t i = 0; i < o.trials; ++i) {
        Window c{};
        c.w = times(w, between(random, o.min_scale, o.max_scale));
        c.h = times(h, between(random, o.min_scale, o.max_scale));
        if (c.w == 0 || c.h == 0 || ratio(c.w, c.h) < o.min_aspect_ratio ||
            ratio(c.w, c.h) > o.max_aspect_ratio)
          continue;
        c.left = times(w - c.w, between(random, 0, 1));
        c.top = times(h - c.h, between(random, 0, 1));
        const std::vector<uint8_t> inside = middles_inside(boxes, c, least);
        if (inside.empty()) continue;
        detail::crop_all(v, c.top, c.left, c.h, c.w);
        const auto n = static_cast<int64_t>(inside.size());
        v.boxes = v.boxes * tensor(inside, Shape(n, 1)).to(DType::f32);
        return;
      }
    }
  });
}

Transform SanitizeBoundingBoxes(double min_size, double min_area) {
  return Transform("SanitizeBoundingBoxes", [min_size, min_area](Vision& v, PhiloxStream&) {
    if (!v.boxes.defined()) return;
    const std::vector<float> b = v.boxes.to_vector<float>();
    const auto most_w = static_cast<float>(v.image.size(2));
    const auto most_h = static_cast<float>(v.image.size(1));
    std::vector<int64_t> kept;
    for (size_t i = 0; i < b.size(); i += 4) {
      const double w = static_cast<double>(b[i + 2]) - static_cast<double>(b[i]);
      const double h = static_cast<double>(b[i + 3]) - static_cast<double>(b[i + 1]);
      const bool inside = b[i] >= 0 && b[i + 1] >= 0 && b[i + 2] <= most_w && b[i + 3] <= most_h;
      if (w >= min_size && h >= min_size && w * h >= min_area && inside)
        kept.push_back(static_cast<int64_t>(i / 4));
    }
    v.boxes = index_select(v.boxes, 0, tensor(kept));
    if (v.labels.defined()) v.labels = index_select(v.labels, 0, tensor(kept));
  });
}

Transform ClampBoundingBoxes() {
  return Transform("ClampBoundingBoxes", [](Vision& v, PhiloxStream&) {
    if (v.boxes.defined()) v.boxes = clamp_boxes(v.boxes, v.image.size(1), v.image.size(2));
  });
}

Transform ConvertBoundingBoxFormat(BoundingBoxFormat format, BoundingBoxFormat old_format) {
  return Transform("ConvertBoundingBoxFormat", [=](Vision& v, PhiloxStream&) {
    if (v.boxes.defined()) v.boxes = convert_bounding_box_format(v.boxes, old_format, format);
  });
}

}  // namespace tandem::data
