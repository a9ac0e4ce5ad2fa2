// SPDX-License-Identifier: Apache-2.0
// Mosaic: images are resized, cropped and pasted around one point, with boxes and masks.
#include "tandem/data/sets/vision_datasets.h"
#include "tandem/data/transforms/image_ops_internal.h"
#include "tandem/data/transforms/transforms_internal.h"
#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/ops/ops.h"

namespace tandem::data {
namespace {

// Like t(v), with draws from `random`.
Vision applied(const Transform& t, Vision v, PhiloxStream& random) {
  t.apply(v, random);
  return v;
}

PhiloxStream next_stream() {
  const auto key = tandem::detail::next_rng_key();
  return PhiloxStream(key.seed, key.offset);
}

void check_alike(const Vision& v, const Vision& first) {
  const detail::Image a(v.image, "Mosaic"), b(first.image, "Mosaic");
  TD_CHECK(a.c == b.c, Shape, "Mosaic: images of equal channels are expected, got {} and {}", b.c,
           a.c);
  TD_CHECK(a.u8 == b.u8, DType, "Mosaic: images of one dtype are expected, got {} and {}",
           to_string(first.image.dtype()), to_string(v.image.dtype()));
  TD_CHECK(v.boxes.defined() == first.boxes.defined() &&
               v.labels.defined() == first.labels.defined() &&
               v.mask.defined() == first.mask.defined(),
           Shape, "Mosaic: either all images have boxes (labels, a mask) or none");
}

Tensor canvas_of(const Tensor& like, int64_t h, int64_t w, const Fill& fill) {
  const detail::Image p(like, "Mosaic");
  Tensor out = detail::new_image(p.c, h, w, like.dtype());
  return erase_image(out, 0, 0, h, w, fill);
}

// Copies `part` into the canvas; all of it must fit.
void paste(const Tensor& canvas, const Tensor& part, int64_t top, int64_t left) {
  const detail::Image p(part, "Mosaic");
  const int64_t h = canvas.size(1), w = canvas.size(2);
  detail::each_type(p, [&](auto t) {
    using T = decltype(t);
    for (int64_t k = 0; k < p.c; ++k)
      for (int64_t y = 0; y < p.h; ++y)
        std::copy_n(p.data<T>() + (k * p.h + y) * p.w, p.w,
                    detail::pixels<T>(canvas) + (k * h + top + y) * w + left);
  });
}

}  // namespace

std::array<int64_t, 4> detail::mosaic_samples(int64_t i, int64_t n) {
  PhiloxStream random = next_stream();
  std::array<int64_t, 4> out{i, 0, 0, 0};
  for (size_t k = 1; k < 4; ++k)
    out[k] = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(n)));
  return out;
}

Vision Mosaic(const std::vector<Vision>& images, Sizes size, MosaicOptions o) {
  TD_CHECK(images.size() == 4, Value, "Mosaic expects four images, got {}", images.size());
  detail::check_size(size, "Mosaic");
  detail::check_range(o.center_ratio_range, "Mosaic");
  TD_CHECK(o.center_ratio_range[0] >= 0 && o.center_ratio_range[1] <= 2, Value,
           "Mosaic: center_ratio_range lies in 0 .. 2, got {} .. {}", o.center_ratio_range[0],
           o.center_ratio_range[1]);
  NoGradGuard no_grad;
  PhiloxStream random = next_stream();
  const int64_t h = size[0], w = size.back();
  const auto meet = [&](int64_t side) {
    return static_cast<int64_t>(
        static_cast<double>(side) *
        detail::between(random, o.center_ratio_range[0], o.center_ratio_range[1]));
  };
  const int64_t cx = meet(w), cy = meet(h);
  const Vision& first = images[0];
  for (const Vision& v : images) check_alike(v, first);
  if (o.fill.empty()) o.fill = {first.image.dtype() == DType::u8 ? 114.0 : 114.0 / 255};
  Vision all;
  all.image = canvas_of(first.image, 2 * h, 2 * w, o.fill);
  if (first.mask.defined()) all.mask = canvas_of(first.mask, 2 * h, 2 * w, {0});
  std::vector<Tensor> boxes, labels;
  for (size_t k = 0; k < 4; ++k) {
    // The factor that makes the image fit, as for ScaleJitter.
    Vision v = applied(ScaleJitter({w, h}, {1, 1}), images[k], random);
    const int64_t ph = v.image.size(1), pw = v.image.size(2);
    const int64_t left = k % 2 ? cx : cx - pw, top = k / 2 ? cy : cy - ph;
    const int64_t x1 = std::max<int64_t>(left, 0), x2 = std::min(left + pw, 2 * w);
    const int64_t y1 = std::max<int64_t>(top, 0), y2 = std::min(top + ph, 2 * h);
    if (x1 >= x2 || y1 >= y2) continue;  // the meeting point is at the border
    detail::crop_all(v, y1 - top, x1 - left, y2 - y1, x2 - x1);
    v = applied(SanitizeBoundingBoxes(), std::move(v), random);
    paste(all.image, v.image, y1, x1);
    if (v.mask.defined()) paste(all.mask, v.mask, y1, x1);
    if (v.boxes.defined()) {
      const auto x = static_cast<double>(x1), y = static_cast<double>(y1);
      boxes.push_back(v.boxes + tensor({x, y, x, y}, DType::f32));
    }
    if (v.labels.defined()) labels.push_back(v.labels);
  }
  if (first.boxes.defined()) all.boxes = boxes.empty() ? zeros({0, 4}) : cat(boxes);
  if (first.labels.defined())
    all.labels = labels.empty() ? narrow(first.labels, 0, 0, 0) : cat(labels);
  return all;
}

}  // namespace tandem::data
