// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/detector.h"

#include <algorithm>
#include <cmath>

#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

Tensor twice(Tensor x) { return interpolate(std::move(x), {.scale_factor = 2.0}); }
/// 0.5, 1.5, ... n - 0.5.
Tensor centres(Dim n) { return arange_dim(n).to(DType::f32) + 0.5; }

}  // namespace

Detector::Stage::Stage(int64_t in, int64_t out)
    : conv1(in, out, 3, {.stride = {2}, .padding = {1}, .bias = false}),
      conv2(out, out, 3, {.padding = {1}, .bias = false}),
      skip(in, out, 1, {.bias = false}),
      norm1(out),
      norm2(out),
      norm_skip(out) {
  TD_REGISTER(conv1, conv2, skip, norm1, norm2, norm_skip);
}
Tensor Detector::Stage::forward(Tensor x) {
  const Tensor past = norm_skip(skip(avg_pool2d(x, 2)));
  return relu(norm2(conv2(relu(norm1(conv1(std::move(x)))))) + past);
}

Detector::Detector(DetectorOptions o)
    : o_(o),
      stem_(3, o.width, 3, {.stride = {2}, .padding = {1}, .bias = false}),
      stem_norm_(o.width),
      stage1_(o.width, 2 * o.width),
      stage2_(2 * o.width, 4 * o.width),
      stage3_(4 * o.width, 8 * o.width),
      stage4_(8 * o.width, 8 * o.width),
      side2_(4 * o.width, 4 * o.width, 1),
      side3_(8 * o.width, 4 * o.width, 1),
      side4_(8 * o.width, 4 * o.width, 1),
      mix_(4 * o.width, 4 * o.width, 3, {.padding = {1}, .bias = false}),
      head_(4 * o.width, o.classes + 4, 1),
      mix_norm_(4 * o.width) {
  TD_REGISTER(stem_, stem_norm_, stage1_, stage2_, stage3_, stage4_, side2_, side3_, side4_, mix_,
              mix_norm_, head_);
  // Initially nothing is a centre (Lin et al. 2017, pi = 0.01) and sides are three cells away.
  NoGradGuard no_grad;
  std::vector<float> bias(static_cast<size_t>(o.classes), static_cast<float>(-std::log(99.0)));
  bias.resize(static_cast<size_t>(o.classes) + 4, static_cast<float>(std::log(3.0)));
  head_.bias.assign_(tensor(bias));
}

Tensor Detector::forward(Tensor x) {
  TD_CHECK(x.dim() == 4 && dims_equal(mod(x.shape(2), 32), 0) && dims_equal(mod(x.shape(3), 32), 0),
           Shape, "Detector expects [n, 3, h, w] with multiples of 32, got {}",
           x.shape().to_string());
  x = stage1_(relu(stem_norm_(stem_(std::move(x)))));
  const Tensor c2 = stage2_(std::move(x)), c3 = stage3_(c2), c4 = stage4_(c3);
  Tensor p = side3_(c3) + twice(side4_(c4));
  p = side2_(c2) + twice(relu(std::move(p)));
  return head_(relu(mix_norm_(mix_(relu(std::move(p))))));
}

Tensor Detector::loss(const Tensor& output, const Tensor& boxes, const Tensor& labels) const {
  const Dim n = output.shape(0), h = output.shape(2), w = output.shape(3), m = boxes.shape(1);
  const Tensor cells = boxes / static_cast<double>(kStride);  // [n, m, 4]
  const auto side = [&](int64_t k) { return select(cells, 2, k); };
  const Tensor wide = side(2) - side(0), high = side(3) - side(1);
  const Tensor there = labels >= 0;
  // A bell around the cell that contains the centre, 1 at its middle.
  const Tensor ix = floor((side(0) + side(2)) * 0.5) + 0.5,
               iy = floor((side(1) + side(3)) * 0.5) + 0.5;
  const Tensor sigma = clamp_min((wide + high) * 0.08, 0.6).reshape({n, m, 1, 1});
  const Tensor gx = centres(w).reshape({1, 1, 1, w}), gy = centres(h).reshape({1, 1, h, 1});
  const Tensor dx = gx - ix.reshape({n, m, 1, 1}), dy = gy - iy.reshape({n, m, 1, 1});
  const Tensor bell =
      where(there.reshape({n, m, 1, 1}), exp(-(dx * dx + dy * dy) / (2 * sigma * sigma)),
            0.0);  // [n, m, h, w]
  std::vector<Tensor> maps;
  for (int64_t c = 0; c < o_.classes; ++c)
    maps.push_back(amax(where((labels == c).reshape({n, m, 1, 1}), bell, 0.0), {1}));
  const Tensor want = stack(maps, 1);  // [n, classes, h, w]
  const Tensor logits = narrow(output, 1, 0, o_.classes), p = sigmoid(logits);
  const Tensor yes = (want > 0.999).to(DType::f32), far = 1 - want, not_p = 1 - p;
  const Tensor far2 = far * far;
  const Tensor focal =
      yes * not_p * not_p * softplus(-logits) + (1 - yes) * far2 * far2 * p * p * softplus(logits);
  const Tensor count = clamp_min(yes.sum(), 1.0);
  // A cell within an object's bell belongs to it unless another bell is higher there.
  const Tensor best = bell.argmax(1, true);                // [n, 1, h, w]
  const Tensor weight = gather(bell, 1, best).squeeze(1);  // [n, h, w]
  const Tensor own = where(weight > 0.4, weight, 0.0);
  const auto of_best = [&](const Tensor& v) {  // v [n, m] at each cell
    return gather(v.reshape({n, m, 1, 1}).expand({n, m, h, w}), 1, best).squeeze(1);
  };
  const Tensor bx1 = of_best(side(0)), by1 = of_best(side(1)), bx2 = of_best(side(2)),
               by2 = of_best(side(3));
  const auto reach = [&](int64_t k) {
    return exp(clamp(select(output, 1, o_.classes + k), -4.0, 5.0));
  };
  const Tensor cx = centres(w).reshape({1, 1, w}), cy = centres(h).reshape({1, h, 1});
  const Tensor x1 = cx - reach(0), y1 = cy - reach(1), x2 = cx + reach(2), y2 = cy + reach(3);
  const Tensor both = clamp_min(minimum(x2, bx2) - maximum(x1, bx1), 0.0) *
                      clamp_min(minimum(y2, by2) - maximum(y1, by1), 0.0);
  const Tensor all = (x2 - x1) * (y2 - y1) + (bx2 - bx1) * (by2 - by1) - both + 1e-6;
  const Tensor hull =
      (maximum(x2, bx2) - minimum(x1, bx1)) * (maximum(y2, by2) - minimum(y1, by1)) + 1e-6;
  const Tensor apart = 1 - both / all + (hull - all) / hull;
  return focal.sum() / count + 2 * (apart * own).sum() / clamp_min(own.sum(), 1.0);
}

Detector::Candidates Detector::candidates(const Tensor& output) const {
  const Dim h = output.shape(1), w = output.shape(2);
  const Tensor score = sigmoid(narrow(output, 0, 0, o_.classes));
  const Tensor peak = max_pool2d(score.unsqueeze(0), 3, 1, 1).squeeze(0);
  const Tensor scores = where(score >= peak, score, 0.0);
  const Tensor reach = exp(clamp(narrow(output, 0, o_.classes, 4), -4.0, 5.0));
  const DeviceGuard there(output.device());
  const Tensor cx = centres(w).reshape({1, w}), cy = centres(h).reshape({h, 1});
  const auto side = [&](int64_t k) { return select(reach, 0, k); };
  const Tensor cells = stack({cx - side(0), cy - side(1), cx + side(2), cy + side(3)}, 2);
  return {cells.flatten(0, 1) * static_cast<double>(kStride), scores.flatten(1).t()};
}

Detections Detector::decode(const Tensor& output, DetectOptions o) const {
  NoGradGuard no_grad;
  const DeviceGuard here(cpu);
  const Candidates all = candidates(output.cpu());
  const int64_t cells = all.boxes.size(0);
  const auto s = all.scores.t().contiguous().to_vector<float>();
  std::vector<std::pair<float, int64_t>> found;
  for (size_t i = 0; i < s.size(); ++i)
    if (s[i] > 0 && s[i] >= static_cast<float>(o.score))
      found.emplace_back(-s[i], static_cast<int64_t>(i));
  std::sort(found.begin(), found.end());
  std::vector<int64_t> places, labels;
  std::vector<float> scores;
  for (const auto& [minus, i] : found) {
    places.push_back(i % cells);
    labels.push_back(i / cells);
    scores.push_back(-minus);
  }
  const auto k = static_cast<int64_t>(scores.size());
  Detections d{index_select(all.boxes, 0, tensor(places, {k})), tensor(scores, {k}),
               tensor(labels, {k})};
  if (k == 0) return d;
  Tensor keep = batched_nms(d.boxes, d.scores, d.labels, o.overlap);
  if (keep.size(0) > o.most) keep = narrow(keep, 0, 0, o.most);
  return {index_select(d.boxes, 0, keep), index_select(d.scores, 0, keep),
          index_select(d.labels, 0, keep)};
}

}  // namespace tandem::models
