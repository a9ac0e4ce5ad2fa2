// SPDX-License-Identifier: Apache-2.0
// Each transform is a closure over its arguments: draw, then call image_ops for every member.
#include "tandem/data/transforms/transforms.h"

#include <cmath>
#include <numeric>

#include "tandem/data/transforms/image_ops_internal.h"
#include "tandem/data/transforms/transforms_internal.h"
#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/ops/ops.h"

namespace tandem::data {
namespace detail {

double between(PhiloxStream& random, double low, double high) {
  return low + (high - low) * uniform_f64(random.next_block().word64(0));
}

void both(Vision& v, const std::function<Tensor(const Tensor&, bool)>& f) {
  v.image = f(v.image, false);
  if (v.mask.defined()) v.mask = f(v.mask, true);
}

namespace {
Tensor shifted(const Tensor& boxes, double sx, double sy, double dx, double dy) {
  return boxes * tensor({sx, sy, sx, sy}, DType::f32) + tensor({dx, dy, dx, dy}, DType::f32);
}
}  // namespace

void crop_all(Vision& v, int64_t top, int64_t left, int64_t h, int64_t w) {
  both(v, [&](const Tensor& t, bool) { return crop_image(t, top, left, h, w); });
  if (v.boxes.defined())
    v.boxes = clamp_boxes(
        shifted(v.boxes, 1, 1, -static_cast<double>(left), -static_cast<double>(top)), h, w);
}

void resize_all(Vision& v, int64_t h, int64_t w, ResizeArgs args) {
  const auto old_h = static_cast<double>(v.image.size(1));
  const auto old_w = static_cast<double>(v.image.size(2));
  both(v, [&](const Tensor& t, bool mask) {
    return resize_image(t, h, w, mask ? ResizeArgs{Interpolation::nearest, false} : args);
  });
  if (v.boxes.defined())
    v.boxes =
        shifted(v.boxes, static_cast<double>(w) / old_w, static_cast<double>(h) / old_h, 0, 0);
}

void affine_all(Vision& v, const AffineArgs& a, Interpolation mode, const Fill& fill) {
  const int64_t h = v.image.size(1), w = v.image.size(2);
  v.image = affine_image(v.image, a, mode, fill);
  if (v.mask.defined()) v.mask = affine_image(v.mask, a, Interpolation::nearest);
  if (v.boxes.defined()) v.boxes = affine_boxes(v.boxes, a, h, w);
}

void pad_all(Vision& v, const Sizes& padding, const Fill& fill, PaddingMode mode) {
  both(v, [&](const Tensor& t, bool mask) {
    return pad_image(t, padding, mask ? Fill{0} : fill, mode);
  });
  if (v.boxes.defined()) {
    const auto x = static_cast<double>(padding[0]);
    const auto y = static_cast<double>(padding[padding.size() > 1 ? 1 : 0]);
    v.boxes = v.boxes + tensor({x, y, x, y}, DType::f32);
  }
}

std::array<int64_t, 2> resized(int64_t h, int64_t w, const Sizes& size, int64_t max_size) {
  if (size.size() == 2) return {size[0], size[1]};
  const int64_t shorter = std::min(h, w), longer = std::max(h, w);
  int64_t a = size[0];
  // Python's int(size * long / short), in double.
  auto b = static_cast<int64_t>(static_cast<double>(a * longer) / static_cast<double>(shorter));
  if (max_size > 0 && b > max_size) {
    a = static_cast<int64_t>(static_cast<double>(max_size * a) / static_cast<double>(b));
    b = max_size;
  }
  return h < w ? std::array<int64_t, 2>{a, b} : std::array<int64_t, 2>{b, a};
}

}  // namespace detail

using detail::between;
using detail::both;
using detail::check_probability;
using detail::check_range;
using detail::check_size;
using detail::happens;
using detail::pad_all;

Transform::Transform(std::string name, Step step)
    : name_(std::move(name)), step_(std::make_shared<const Step>(std::move(step))) {}

void Transform::apply(Vision& v, PhiloxStream& random) const {
  NoGradGuard no_grad;
  detail::check_image(v.image, name_.c_str());  // members are read before the functions check them
  (*step_)(v, random);
}

Vision Transform::operator()(Vision v) const {
  const auto key = tandem::detail::next_rng_key();
  PhiloxStream random(key.seed, key.offset);
  apply(v, random);
  return v;
}

Tensor Transform::operator()(const Tensor& image) const {
  return (*this)(Vision{image, {}, {}, {}}).image;
}

Transform Compose(std::vector<Transform> transforms) {
  std::string name = "Compose(";
  for (size_t i = 0; i < transforms.size(); ++i) name += (i ? ", " : "") + transforms[i].name();
  return Transform(name + ")", [t = std::move(transforms)](Vision& v, PhiloxStream& random) {
    for (const Transform& one : t) one.apply(v, random);
  });
}

Transform RandomApply(std::vector<Transform> transforms, double p) {
  check_probability(p, "RandomApply");
  return Transform("RandomApply", [t = std::move(transforms), p](Vision& v, PhiloxStream& random) {
    if (happens(random, p))
      for (const Transform& one : t) one.apply(v, random);
  });
}

Transform RandomChoice(std::vector<Transform> transforms, std::vector<double> p) {
  TD_CHECK(!transforms.empty() && (p.empty() || p.size() == transforms.size()), Value,
           "RandomChoice: {} transforms with {} probabilities", transforms.size(), p.size());
  if (p.empty()) p.assign(transforms.size(), 1.0);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  return Transform("RandomChoice", [t = std::move(transforms), p = std::move(p), sum](
                                       Vision& v, PhiloxStream& random) {
    double left = between(random, 0, sum);
    size_t i = 0;
    while (i + 1 < t.size() && left >= p[i]) left -= p[i++];
    t[i].apply(v, random);
  });
}

Transform RandomOrder(std::vector<Transform> transforms) {
  return Transform("RandomOrder", [t = std::move(transforms)](Vision& v, PhiloxStream& random) {
    std::vector<size_t> order(t.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.next_below(i)]);
    for (const size_t i : order) t[i].apply(v, random);
  });
}

Transform Lambda(std::function<Tensor(const Tensor&)> fn) {
  return Transform("Lambda",
                   [fn = std::move(fn)](Vision& v, PhiloxStream&) { v.image = fn(v.image); });
}

Transform Resize(Sizes size, ResizeOptions o) {
  check_size(size, "Resize");
  return Transform("Resize", [size = std::move(size), o](Vision& v, PhiloxStream&) {
    const auto [h, w] = detail::resized(v.image.size(1), v.image.size(2), size, o.max_size);
    detail::resize_all(v, h, w, {o.interpolation, o.antialias});
  });
}

Transform CenterCrop(Sizes size) {
  check_size(size, "CenterCrop");
  return Transform("CenterCrop", [size = std::move(size)](Vision& v, PhiloxStream&) {
    const int64_t h = size[0], w = size.back();
    if (v.boxes.defined()) {
      const double left = std::nearbyint(static_cast<double>(v.image.size(2) - w) / 2);
      const double top = std::nearbyint(static_cast<double>(v.image.size(1) - h) / 2);
      v.boxes = clamp_boxes(v.boxes - tensor({left, top, left, top}, DType::f32), h, w);
    }
    both(v, [&](const Tensor& t, bool) { return center_crop_image(t, h, w); });
  });
}

Transform RandomCrop(Sizes size, RandomCropOptions o) {
  check_size(size, "RandomCrop");
  return Transform("RandomCrop", [size = std::move(size), o](Vision& v, PhiloxStream& random) {
    const int64_t h = size[0], w = size.back();
    if (!o.padding.empty()) pad_all(v, o.padding, o.fill, o.padding_mode);
    if (o.pad_if_needed) {
      const int64_t dy = std::max<int64_t>(h - v.image.size(1), 0);
      const int64_t dx = std::max<int64_t>(w - v.image.size(2), 0);
      if (dx + dy > 0) pad_all(v, {dx, dy, dx, dy}, o.fill, o.padding_mode);
    }
    const int64_t rows = v.image.size(1) - h, columns = v.image.size(2) - w;
    TD_CHECK(rows >= 0 && columns >= 0, Value,
             "RandomCrop: {} x {} does not fit into {} x {}\nSet pad_if_needed.", h, w,
             v.image.size(1), v.image.size(2));
    const auto top = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(rows) + 1));
    const auto left = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(columns) + 1));
    detail::crop_all(v, top, left, h, w);
  });
}

Transform RandomResizedCrop(Sizes size, RandomResizedCropOptions o) {
  check_size(size, "RandomResizedCrop");
  check_range(o.scale, "RandomResizedCrop");
  check_range(o.ratio, "RandomResizedCrop");
  return Transform("RandomResizedCrop", [size = std::move(size), o](Vision& v,
                                                                    PhiloxStream& random) {
    const int64_t h = v.image.size(1), w = v.image.size(2);
    int64_t ch = 0, cw = 0, top = 0, left = 0;
    bool found = false;
    for (int i = 0; i < 10 && !found; ++i) {
      const double area = static_cast<double>(h * w) * between(random, o.scale[0], o.scale[1]);
      const double ratio = std::exp(between(random, std::log(o.ratio[0]), std::log(o.ratio[1])));
      cw = static_cast<int64_t>(std::nearbyint(std::sqrt(area * ratio)));
      ch = static_cast<int64_t>(std::nearbyint(std::sqrt(area / ratio)));
      found = cw > 0 && cw <= w && ch > 0 && ch <= h;
    }
    if (found) {
      top = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(h - ch) + 1));
      left = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(w - cw) + 1));
    } else {  // the largest centred crop that the ratio allows
      const double ratio = static_cast<double>(w) / static_cast<double>(h);
      cw = w;
      ch = h;
      if (ratio < o.ratio[0])
        ch = static_cast<int64_t>(std::nearbyint(static_cast<double>(w) / o.ratio[0]));
      else if (ratio > o.ratio[1])
        cw = static_cast<int64_t>(std::nearbyint(static_cast<double>(h) * o.ratio[1]));
      top = (h - ch) / 2;
      left = (w - cw) / 2;
    }
    detail::crop_all(v, top, left, ch, cw);
    detail::resize_all(v, size[0], size.back(), {o.interpolation, o.antialias});
  });
}

Transform RandomHorizontalFlip(double p) {
  check_probability(p, "RandomHorizontalFlip");
  return Transform("RandomHorizontalFlip", [p](Vision& v, PhiloxStream& random) {
    if (!happens(random, p)) return;
    both(v, [](const Tensor& t, bool) { return horizontal_flip_image(t); });
    if (v.boxes.defined()) {
      const auto w = static_cast<double>(v.image.size(2));
      const Tensor flipped =
          v.boxes * tensor({-1, 1, -1, 1}, DType::f32) + tensor({w, 0.0, w, 0.0}, DType::f32);
      v.boxes = index_select(flipped, 1, tensor({2, 1, 0, 3}));
    }
  });
}

Transform RandomVerticalFlip(double p) {
  check_probability(p, "RandomVerticalFlip");
  return Transform("RandomVerticalFlip", [p](Vision& v, PhiloxStream& random) {
    if (!happens(random, p)) return;
    both(v, [](const Tensor& t, bool) { return vertical_flip_image(t); });
    if (v.boxes.defined()) {
      const auto h = static_cast<double>(v.image.size(1));
      const Tensor flipped =
          v.boxes * tensor({1, -1, 1, -1}, DType::f32) + tensor({0.0, h, 0.0, h}, DType::f32);
      v.boxes = index_select(flipped, 1, tensor({0, 3, 2, 1}));
    }
  });
}

Transform Pad(Sizes padding, Fill fill, PaddingMode padding_mode) {
  return Transform("Pad",
                   [padding = std::move(padding), fill = std::move(fill), padding_mode](
                       Vision& v, PhiloxStream&) { pad_all(v, padding, fill, padding_mode); });
}

Transform RandomRotation(Range degrees, RandomRotationOptions o) {
  check_range(degrees, "RandomRotation");
  return Transform("RandomRotation", [degrees, o](Vision& v, PhiloxStream& random) {
    const double angle = between(random, degrees[0], degrees[1]);
    const int64_t h = v.image.size(1), w = v.image.size(2);
    v.image = rotate_image(v.image, angle, o.interpolation, o.expand, o.center, o.fill);
    if (v.mask.defined())
      v.mask = rotate_image(v.mask, angle, Interpolation::nearest, o.expand, o.center);
    if (v.boxes.defined()) {
      AffineArgs a{.angle = -angle, .center = o.expand ? std::nullopt : o.center};
      if (o.expand) {  // keeps the centre
        a.translate = {static_cast<double>(v.image.size(2) - w) * 0.5,
                       static_cast<double>(v.image.size(1) - h) * 0.5};
        a.center = {static_cast<double>(w) * 0.5, static_cast<double>(h) * 0.5};
      }
      v.boxes =
          affine_boxes(v.boxes, a, o.expand ? v.image.size(1) : h, o.expand ? v.image.size(2) : w);
    }
  });
}

Transform RandomAffine(Range degrees, RandomAffineOptions o) {
  check_range(degrees, "RandomAffine");
  TD_CHECK(o.shear.empty() || o.shear.size() == 2 || o.shear.size() == 4, Value,
           "RandomAffine: shear has 2 or 4 numbers, got {}", o.shear.size());
  return Transform("RandomAffine", [degrees, o](Vision& v, PhiloxStream& random) {
    AffineArgs a;
    a.angle = between(random, degrees[0], degrees[1]);
    if (o.translate)
      for (size_t i = 0; i < 2; ++i) {
        const double most = (*o.translate)[i] * static_cast<double>(v.image.size(i == 0 ? 2 : 1));
        a.translate[i] = std::nearbyint(between(random, -most, most));
      }
    if (o.scale) a.scale = between(random, (*o.scale)[0], (*o.scale)[1]);
    for (size_t i = 0; i + 1 < o.shear.size(); i += 2)
      a.shear[i / 2] = between(random, o.shear[i], o.shear[i + 1]);
    a.center = o.center;
    detail::affine_all(v, a, o.interpolation, o.fill);
  });
}

Transform RandomPerspective(RandomPerspectiveOptions o) {
  check_probability(o.p, "RandomPerspective");
  check_probability(o.distortion_scale, "RandomPerspective");
  return Transform("RandomPerspective", [o](Vision& v, PhiloxStream& random) {
    if (!happens(random, o.p)) return;
    const int64_t h = v.image.size(1), w = v.image.size(2);
    const auto most = [&](int64_t n) {
      return static_cast<uint64_t>(o.distortion_scale * static_cast<double>(n / 2)) + 1;
    };
    const auto right = static_cast<double>(w - 1), bottom = static_cast<double>(h - 1);
    const Corners start{{{0, 0}, {right, 0}, {right, bottom}, {0, bottom}}};
    Corners end = start;
    for (size_t i = 0; i < 4; ++i) {
      const auto dx = static_cast<double>(random.next_below(most(w)));
      const auto dy = static_cast<double>(random.next_below(most(h)));
      end[i][0] += start[i][0] > 0 ? -dx : dx;
      end[i][1] += start[i][1] > 0 ? -dy : dy;
    }
    v.image = perspective_image(v.image, start, end, o.interpolation, o.fill);
    if (v.mask.defined()) v.mask = perspective_image(v.mask, start, end, Interpolation::nearest);
    if (v.boxes.defined()) v.boxes = perspective_boxes(v.boxes, start, end, h, w);
  });
}

Transform ElasticTransform(ElasticTransformOptions o) {
  const double sx = o.sigma[0], sy = o.sigma[1];
  TD_CHECK((sx > 0 && sy > 0) || (sx == 0 && sy == 0), Value,
           "ElasticTransform: both sigmas are positive, or both 0, got {} and {}", sx, sy);
  return Transform("ElasticTransform", [o](Vision& v, PhiloxStream& random) {
    const int64_t h = v.image.size(1), w = v.image.size(2);
    std::array<Tensor, 2> moves;
    for (size_t axis = 0; axis < 2; ++axis) {
      std::vector<float> noise(static_cast<size_t>(h * w));
      for (float& x : noise) x = random.next_uniform() * 2 - 1;
      moves[axis] = tensor(noise, Shape(1, h, w));
      if (o.sigma[axis] > 0) {
        const int64_t kernel = static_cast<int64_t>(8 * o.sigma[axis] + 1) | 1;
        TD_CHECK(kernel / 2 < std::min(h, w), Value,
                 "ElasticTransform: sigma {} blurs over {} pixels, which an image of {} x {} "
                 "is too small for",
                 o.sigma[axis], kernel, h, w);
        moves[axis] = gaussian_blur_image(moves[axis], {kernel, kernel}, o.sigma);
      }
      moves[axis] = moves[axis] * (o.alpha[axis] / static_cast<double>(axis == 0 ? w : h));
    }
    const Tensor displacement = stack({moves[0], moves[1]}, 3);
    v.image = elastic_image(v.image, displacement, o.interpolation, o.fill);
    if (v.mask.defined())
      v.mask = elastic_image(v.mask, displacement, Interpolation::nearest, Fill{0});
    if (v.boxes.defined()) v.boxes = elastic_boxes(v.boxes, displacement);
  });
}

Transform RandomErasing(RandomErasingOptions o) {
  check_probability(o.p, "RandomErasing");
  check_range(o.scale, "RandomErasing");
  check_range(o.ratio, "RandomErasing");
  return Transform("RandomErasing", [o](Vision& v, PhiloxStream& random) {
    if (!happens(random, o.p)) return;
    const int64_t h = v.image.size(1), w = v.image.size(2);
    for (int i = 0; i < 10; ++i) {
      const double area = static_cast<double>(h * w) * between(random, o.scale[0], o.scale[1]);
      const double ratio = std::exp(between(random, std::log(o.ratio[0]), std::log(o.ratio[1])));
      const auto eh = static_cast<int64_t>(std::nearbyint(std::sqrt(area * ratio)));
      const auto ew = static_cast<int64_t>(std::nearbyint(std::sqrt(area / ratio)));
      if (eh >= h || ew >= w) continue;
      const auto top = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(h - eh) + 1));
      const auto left = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(w - ew) + 1));
      v.image = erase_image(v.image, top, left, eh, ew, o.value);
      return;
    }
  });
}

Tensor FiveCrop(const Tensor& image, Sizes size) {
  check_size(size, "FiveCrop");
  const detail::Image p(image, "FiveCrop");
  const int64_t h = size[0], w = size.back(), bottom = p.h - h, right = p.w - w;
  TD_CHECK(bottom >= 0 && right >= 0, Value, "FiveCrop: {} x {} does not fit into {} x {}", h, w,
           p.h, p.w);
  NoGradGuard no_grad;
  return stack({crop_image(p.held, 0, 0, h, w), crop_image(p.held, 0, right, h, w),
                crop_image(p.held, bottom, 0, h, w), crop_image(p.held, bottom, right, h, w),
                center_crop_image(p.held, h, w)});
}

Tensor TenCrop(const Tensor& image, Sizes size, bool vertical_flip) {
  NoGradGuard no_grad;
  const Tensor flipped = vertical_flip ? vertical_flip_image(image) : horizontal_flip_image(image);
  return cat({FiveCrop(image, size), FiveCrop(flipped, size)});
}

Tensor UniformTemporalSubsample(const Tensor& video, int64_t num_samples) {
  TD_CHECK(video.defined() && video.dim() >= 4 && video.size(-4) > 0, Shape,
           "UniformTemporalSubsample: a video is [..., t, c, h, w], got {}",
           video.defined() ? video.shape().to_string() : "an undefined tensor");
  TD_CHECK(num_samples > 0, Value, "UniformTemporalSubsample: at least one sample, got {}",
           num_samples);
  NoGradGuard no_grad;
  const auto last = static_cast<float>(video.size(-4) - 1);
  std::vector<int64_t> frames;
  for (int64_t i = 0; i < num_samples; ++i)
    frames.push_back(static_cast<int64_t>(detail::linspace_at(0, last, num_samples, i)));
  return index_select(video, -4, tensor(frames));
}

}  // namespace tandem::data
