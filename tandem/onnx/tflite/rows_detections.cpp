// SPDX-License-Identifier: Apache-2.0
// Detections from boxes relative to anchors. The best box is taken and what overlaps it is left
// out, as often as detections are asked for: a fixed number of steps, so that the row can be
// traced. By the best class of each box, or for each class by itself.
#include <algorithm>

#include "tandem/onnx/import/run_internal.h"
#include "tandem/onnx/tflite/rows_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr int64_t kMostDetections = 1000;

/// Corners (y1, x1, y2, x2) [n, 4] of boxes whose centres and sizes are relative to anchors.
Tensor corners_of(const OnnxCall& c, const Tensor& boxes, const Tensor& anchors) {
  const auto side = [&](int64_t centre, const char* shift, const char* stretch) {
    const Tensor size = anchors.select(1, centre + 2);
    const Tensor middle =
        boxes.select(1, centre) / c.attr_float(shift, 1) * size + anchors.select(1, centre);
    const Tensor half = exp(boxes.select(1, centre + 2) / c.attr_float(stretch, 1)) * size * 0.5;
    return std::pair(middle - half, middle + half);
  };
  const auto [top, bottom] = side(0, "y_scale", "h_scale");
  const auto [left, right] = side(1, "x_scale", "w_scale");
  return stack({top, left, bottom, right}, 1);
}

/// How much of the union of each box [n, 4] and each of `others` [c, 4] both share: [n, c].
Tensor shares_with(const Tensor& boxes, const Tensor& others) {
  const auto area = [](const Tensor& b) {
    return (b.select(1, 2) - b.select(1, 0)) * (b.select(1, 3) - b.select(1, 1));
  };
  const auto left = [&](int64_t d) { return boxes.select(1, d).unsqueeze(1); };
  const auto right = [&](int64_t d) { return others.select(1, d).unsqueeze(0); };
  const auto common = [&](int64_t d) {
    return clamp_min(minimum(left(d + 2), right(d + 2)) - maximum(left(d), right(d)), 0);
  };
  const Tensor both = common(0) * common(1), all = area(boxes).unsqueeze(1),
               own = area(others).unsqueeze(0);
  return where(logical_and(all > 0, own > 0), both / (all + own - both), 0);
}

constexpr double kTaken = -1e30;

/// The best boxes of columns of scores.
struct BestBoxes {
  Tensor places,
      scores;  ///< [steps, c]; a score of kTaken: there is no further one
};
/// Of each column of `scores` [n, c] by itself: the best box is taken and what overlaps it is left
/// out, `steps` times.
BestBoxes best_boxes(const OnnxCall& c, const Tensor& boxes, const Tensor& scores, int64_t steps) {
  check_onnx_loop(static_cast<double>(steps) * static_cast<double>(scores.numel()));
  const Tensor order = constant(arange(boxes.size(0))).unsqueeze(1);
  Tensor left = where(scores >= c.attr_float("nms_score_threshold", 0), scores, kTaken);
  std::vector<Tensor> places, found;
  for (int64_t k = 0; k < steps; ++k) {
    const Tensor at = argmax(left, 0);
    places.push_back(at);
    found.push_back(amax(left, IntList{0}, false));
    const Tensor over =
        shares_with(boxes, boxes.index_select(0, at)) > c.attr_float("nms_iou_threshold", 0);
    left = where(logical_or(over, order == at.unsqueeze(0)), kTaken, left);
  }
  return {stack(places, 0), stack(found, 0)};
}

/// x with rows of zeros after it, as many as `rows` in all.
Tensor with_zero_rows(const Tensor& x, int64_t rows) {
  if (x.size(0) >= rows) return x;
  Shape s(rows - x.size(0));
  for (int d = 1; d < x.dim(); ++d) s.push_back(x.shape(d));
  return cat({x, zeros(s, x.dtype())}, 0);
}

/// Each class by itself: the best of all classes' boxes, of which `each_class` take part.
void set_detections_by_class(OnnxCall& c, const Tensor& boxes, const Tensor& scores,
                             int64_t each_class, int64_t most, int64_t rows) {
  const int64_t classes = scores.size(1);
  const BestBoxes best = best_boxes(c, boxes, scores, each_class);
  // Class by class; of equal scores the first class comes first.
  const Tensor all = best.scores.transpose(0, 1).reshape({-1}),
               places = best.places.transpose(0, 1).reshape({-1});
  const auto [values, order] = topk(all, std::min(most, classes * each_class), 0);
  const Tensor real = (values > kTaken).to(DType::f32);
  const Tensor of_class = constant(floor_divide(arange(classes * each_class), each_class));
  const auto row = [&](const Tensor& t) {
    return with_zero_rows(t.to(DType::f32) * real, rows).unsqueeze(0);
  };
  c.set(0, with_zero_rows(boxes.index_select(0, places.index_select(0, order)) * real.unsqueeze(1),
                          rows)
               .unsqueeze(0));
  c.set(1, row(of_class.index_select(0, order)));
  c.set(2, row(values));
  c.set(3, sum(real).reshape({1}));
}

}  // namespace

void tflite_detections_row(OnnxCall& c) {
  const Tensor boxes = c.x(0), scores = c.x(1), anchors = c.x(2);
  const int64_t most = c.attr("max_detections", 1), each = c.attr("max_classes_per_detection", 1),
                classes = c.attr("num_classes", 1);
  TD_CHECK(boxes.dim() == 3 && boxes.size(0) == 1 && boxes.size(2) == 4 && scores.dim() == 3 &&
               scores.size(0) == 1 && scores.size(1) == boxes.size(1) && anchors.dim() == 2 &&
               anchors.size(0) == boxes.size(1) && anchors.size(1) == 4 && boxes.size(1) > 0,
           Shape, "boxes {}, scores {} and anchors {} do not fit", boxes.shape().to_string(),
           scores.shape().to_string(), anchors.shape().to_string());
  TD_CHECK(most > 0 && most <= kMostDetections && classes > 0 && classes <= scores.size(2) &&
               each > 0 && each <= classes,
           Value, "asks for {} detections of {} classes each out of {}", most, each, classes);
  const Tensor all = corners_of(c, boxes.select(0, 0), anchors);
  // The first classes may be the background.
  const Tensor real_scores = scores.select(0, 0).narrow(1, scores.size(2) - classes, classes);
  if (c.attr("use_regular_nms", 0)) {
    const int64_t each_class = std::min(c.attr("detections_per_class", 100), most);
    TD_CHECK(each_class > 0, Value, "asks for {} detections of each class", each_class);
    return set_detections_by_class(c, all, real_scores, each_class, most, most * each);
  }
  const auto best = topk(real_scores, each, 1);
  const BestBoxes kept = best_boxes(c, all, best.values.narrow(1, 0, 1), most);
  const Tensor at = kept.places.reshape({-1}), real = (kept.scores > kTaken).to(DType::f32);
  const auto rows = [&](const Tensor& t) { return t.to(DType::f32).index_select(0, at) * real; };
  // A box stands once for each of its classes.
  c.set(0, repeat_interleave(rows(all), each, 0).unsqueeze(0));
  c.set(1, rows(best.indices).reshape({1, most * each}));
  c.set(2, rows(best.values).reshape({1, most * each}));
  c.set(3, sum(real).reshape({1}));
}

}  // namespace tandem::onnx
