// SPDX-License-Identifier: Apache-2.0
// Detections from boxes relative to anchors. The best box is taken and what overlaps it is left
// out, as often as detections are asked for: a fixed number of steps, so that the row can be
// traced.
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

/// How much of the union of each box [n, 4] and `one` [1, 4] both share.
Tensor shares_with(const Tensor& boxes, const Tensor& one) {
  const auto area = [](const Tensor& b) {
    return (b.select(1, 2) - b.select(1, 0)) * (b.select(1, 3) - b.select(1, 1));
  };
  const auto common = [&](int64_t d) {
    return clamp_min(minimum(boxes.select(1, d + 2), one.select(1, d + 2)) -
                         maximum(boxes.select(1, d), one.select(1, d)),
                     0);
  };
  const Tensor both = common(0) * common(1), all = area(boxes), own = area(one);
  return where(logical_and(all > 0, own > 0), both / (all + own - both), 0);
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
  check_onnx_loop(static_cast<double>(most * boxes.size(1)));
  const Tensor all = corners_of(c, boxes.select(0, 0), anchors);
  // The first classes may be the background.
  const int64_t first = scores.size(2) - classes;
  const auto best = topk(scores.select(0, 0).narrow(1, first, classes), each, 1);
  constexpr double kTaken = -1e30;
  const Tensor order = constant(arange(boxes.size(1)));
  Tensor left = best.values.select(1, 0);
  left = where(left >= c.attr_float("nms_score_threshold", 0), left, kTaken);
  std::vector<Tensor> places, found;
  for (int64_t k = 0; k < most; ++k) {
    const Tensor at = argmax(left, 0).reshape({1});
    places.push_back(at);
    found.push_back(left.index_select(0, at) > kTaken);
    const Tensor gone =
        logical_or(shares_with(all, all.index_select(0, at)) > c.attr_float("nms_iou_threshold", 0),
                   order == at);
    left = where(gone, kTaken, left);
  }
  const Tensor at = cat(places, 0), real = cat(found, 0).to(DType::f32).unsqueeze(-1);  // [k, 1]
  const auto rows = [&](const Tensor& t) { return t.to(DType::f32).index_select(0, at) * real; };
  // A box stands once for each of its classes.
  c.set(0, repeat_interleave(rows(all), each, 0).unsqueeze(0));
  c.set(1, rows(best.indices).reshape({1, most * each}));
  c.set(2, rows(best.values).reshape({1, most * each}));
  c.set(3, sum(real).reshape({1}));
}

}  // namespace tandem::onnx
