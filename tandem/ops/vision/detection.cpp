// SPDX-License-Identifier: Apache-2.0
// The rows of detection and their functions. The loops are in detection_reference.cpp.
#include "tandem/ops/vision/detection.h"

#include <cmath>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"
#include "tandem/ops/vision/detection_internal.h"
#include "tandem/tensor/lazy.h"

namespace tandem {
namespace {

using detail::placed;

// ---- shape rules

void check_boxes(const char* name, const Spec& b) {
  TD_CHECK(b.rank() == 2 && dims_equal(b[1], 4), Shape, "{} is {}, expected [boxes, 4]", name,
           b.shape.to_string());
  TD_CHECK(is_floating(b.dtype), DType,
           "{} is {}, expected a floating dtype\nCast it with "
           ".to(float32).",
           name, to_string(b.dtype));
}

void nms_infer(InferCall& c) {
  const auto& a = c.get_attrs<NmsAttrs>();
  const Spec &boxes = c.in[0], &scores = c.in[1];
  check_boxes("boxes", boxes);
  TD_CHECK(scores.rank() == 1 && dims_equal(scores[0], boxes[0]), Shape,
           "scores are {}, boxes {}: expected one score per box", scores.shape.to_string(),
           boxes.shape.to_string());
  TD_CHECK(is_floating(scores.dtype), DType,
           "scores are {}, expected a floating dtype\nCast them with "
           ".to(float32).",
           to_string(scores.dtype));
  if (c.has(2)) {
    TD_CHECK(c.in[2].rank() == 1 && dims_equal(c.in[2][0], boxes[0]), Shape,
             "idxs are {}, boxes {}: expected one class per box", c.in[2].shape.to_string(),
             boxes.shape.to_string());
    TD_CHECK(detail::is_index_dtype(c.in[2].dtype), DType,
             "idxs are {}, expected int64 or int32\nCast them with .to(int64).",
             to_string(c.in[2].dtype));
  }
  TD_CHECK(a.size >= 0, Value, "size is {}, expected at least 0", a.size);
  TD_CHECK(!std::isnan(a.iou_threshold), Value, "iou_threshold is NaN");
  c.out[0] = Spec(DType::i64, Shape(a.size), boxes.device);
}

void check_rois(const RoiAttrs& a, const Spec& x, const char* name, const Spec& image,
                const Spec& boxes) {
  TD_CHECK(x.rank() == 4, Shape, "{} is {}, expected 4 dimensions", name, x.shape.to_string());
  TD_CHECK(is_floating(x.dtype), DType,
           "{} is {}, expected a floating dtype\nCast it with "
           ".to(float32).",
           name, to_string(x.dtype));
  check_boxes("boxes", boxes);
  TD_CHECK(boxes.dtype == x.dtype, DType, "boxes are {}, {} is {}\nCast one of them with .to().",
           to_string(boxes.dtype), name, to_string(x.dtype));
  TD_CHECK(
      image.rank() == 1 && dims_equal(image[0], boxes[0]) && detail::is_index_dtype(image.dtype),
      Shape, "image is {}, boxes are {}: expected one integer per box", image.to_string(),
      boxes.shape.to_string());
  TD_CHECK(a.height >= 1 && a.width >= 1, Value,
           "output_size [{}, {}] expects numbers of at least 1", a.height, a.width);
  TD_CHECK(std::isfinite(a.spatial_scale), Value, "spatial_scale {} is not finite",
           a.spatial_scale);
  TD_CHECK(a.sampling_ratio <= 65536, Value, "sampling_ratio {} is above 65536", a.sampling_ratio);
}

void roi_infer(InferCall& c) {
  const auto& a = c.get_attrs<RoiAttrs>();
  const Spec &x = c.in[0], &boxes = c.in[2];
  check_rois(a, x, "x", c.in[1], boxes);
  for (int i = 2; i < 4; ++i)
    TD_CHECK(x[i].is_symbolic() || x[i].value() > 0, Shape, "x {} is empty in dimension {}",
             x.shape.to_string(), i);
  bool positions = &c.op == &op::roi_pool_indices;
  c.out[0] =
      Spec(positions ? DType::i64 : x.dtype, Shape(boxes[0], x[1], a.height, a.width), x.device);
}

void roi_backward_infer(InferCall& c) {
  const auto& a = c.get_attrs<RoiAttrs>();
  const Spec& g = c.in[0];
  check_rois(a, g, "gradient", c.in[1], c.in[2]);
  TD_CHECK(dims_equal(g[0], c.in[2][0]) && dims_equal(g[2], a.height) && dims_equal(g[3], a.width),
           Shape, "gradient is {}, boxes are {}, the bins {} by {}", g.shape.to_string(),
           c.in[2].shape.to_string(), a.height, a.width);
  TD_CHECK(a.size.rank() == 3, Value, "size {} expects [n, h, w]", a.size.to_string());
  c.out[0] = Spec(g.dtype, Shape(a.size[0], g[1], a.size[1], a.size[2]), g.device);
}

// ---- derivatives, vmap

void roi_align_vjp(VjpCall& c) {
  if (!c.needs(0)) return;
  RoiAttrs a = c.get_attrs<RoiAttrs>();
  const Shape& x = c.in_shape(0);
  a.size = IntList(x[0], x[2], x[3]);
  c.results[0] = roi_align_backward(c.grad(), c.in(1), c.in(2), a, c.loc());
}
void roi_align_backward_vjp(VjpCall& c) {
  if (!c.needs(0)) return;
  RoiAttrs a = c.get_attrs<RoiAttrs>();
  a.size = {};
  c.results[0] = call(op::roi_align, &a, c.loc(), c.grad(), c.in(1), c.in(2));
}

// A batch of images is folded into the channels; separate boxes go slice by slice.
void roi_batch(BatchCall& c) {
  if (c.batched[1] || c.batched[2]) {
    c.by_slices = true;
    return;
  }
  SourceLocation loc = c.node.loc;
  Dim channels = c.in[0].shape(2);
  Tensor x = detail::merge_dims(c.in[0].transpose(0, 1, loc), 1, loc);
  Tensor y = call(*c.node.op, c.node.attrs.get(), loc, std::move(x), c.in[1], c.in[2]);
  c.out[0] = detail::split_dim(y, 1, c.batch_size, channels, loc).transpose(0, 1, loc);
}
void by_slices(BatchCall& c) { c.by_slices = true; }

// ---- functions

RoiAttrs roi_attrs(const IntList& size, double spatial_scale) {
  TD_CHECK(size.rank() == 1 || size.rank() == 2, Value,
           "output_size {} has {} entries, expected 1 or "
           "2",
           size.to_string(), size.rank());
  RoiAttrs a;
  a.height = size[0].value();
  a.width = size[size.rank() - 1].value();
  a.spatial_scale = spatial_scale;
  return a;
}

struct Rois {
  Tensor image, boxes;
};

Rois split_rois(const char* name, const Tensor& boxes, SourceLocation loc) {
  placed(name, loc, [&] {
    TD_CHECK(
        boxes.dim() == 2 && dims_equal(boxes.shape(1), 5), Shape,
        "boxes are {}, expected [k, 5] (image, x1, y1, x2, y2) or a list with [l, 4] per image",
        boxes.shape().to_string());
  });
  return {boxes.select(1, 0, loc).to(DType::i64, loc), boxes.slice(1, 1, 5, 1, loc)};
}

Rois concatenate_rois(const char* name, const Tensor& x, const std::vector<Tensor>& boxes,
                      SourceLocation loc) {
  placed(name, loc, [&] {
    TD_CHECK(x.dim() == 4 && dims_equal(x.shape(0), static_cast<int64_t>(boxes.size())) &&
                 !boxes.empty(),
             Shape, "{} tensors of boxes for x {}: expected one per image", boxes.size(),
             x.shape().to_string());
    for (const Tensor& b : boxes)
      TD_CHECK(b.dim() == 2 && dims_equal(b.shape(1), 4), Shape, "boxes are {}, expected [l, 4]",
               b.shape().to_string());
  });
  std::vector<Tensor> image;
  for (size_t i = 0; i < boxes.size(); ++i)
    image.push_back(full({boxes[i].shape(0)}, static_cast<int64_t>(i), DType::i64, loc));
  return {cat(image, 0, loc), cat(boxes, 0, loc)};
}

Tensor align(Tensor x, const Rois& r, const IntList& size, double scale, int64_t ratio,
             bool aligned, SourceLocation loc) {
  RoiAttrs a = placed("roi_align", loc, [&] { return roi_attrs(size, scale); });
  a.sampling_ratio = ratio;
  a.aligned = aligned;
  return call(op::roi_align, &a, loc, std::move(x), r.image, r.boxes);
}

Tensor pool(Tensor x, const Rois& r, const IntList& size, double scale, SourceLocation loc) {
  return detail::named("roi_pool", loc, [&] {
    RoiAttrs a = roi_attrs(size, scale);
    Tensor at = call(op::roi_pool_indices, &a, loc, x, r.image, r.boxes);
    Tensor flat = at.reshape({-1}, loc);
    Tensor y = index_select(x.reshape({-1}, loc), 0, clamp_min(flat, 0), loc);
    return where(ge(flat, 0), y, zeros_like(y)).reshape(at.shape(), loc);
  });
}

}  // namespace

namespace op {
constinit const OpDef nms = index_row("nms", {"boxes", "scores", "classes?"}, fields<NmsAttrs>())
                                .infer(nms_infer)
                                .batch(by_slices)
                                .reference(detail::nms_reference)
                                .flag(kNotDifferentiable)
                                .onnx("NonMaxSuppression")
                                .doc(
                                    "Indices of the boxes kept, best score first, after removing "
                                    "overlaps above a threshold.");
constinit const OpDef roi_align =
    contraction("roi_align", {"x", "image", "boxes"}, fields<RoiAttrs>())
        .type_rule(Types::custom)
        .infer(roi_infer)
        .vjp(roi_align_vjp, 6)
        .batch(roi_batch)
        .reference(detail::roi_align_reference)
        .errors({"image number {} is outside x", "a box with {} points in a bin"})
        .onnx("RoiAlign")
        .doc("Mean of x [n, c, h, w] over the bins of boxes; boxes are constants.");
constinit const OpDef roi_align_backward =
    contraction("roi_align_backward", {"gy", "image", "boxes"}, fields<RoiAttrs>())
        .outputs({"gx"})
        .type_rule(Types::custom)
        .infer(roi_backward_infer)
        .vjp(roi_align_backward_vjp, 6)
        .batch(roi_batch)
        .reference(detail::roi_align_backward_reference)
        .errors({"image number {} is outside x", "a box with {} points in a bin"})
        .doc("Gradient of roi_align with respect to x.");
constinit const OpDef roi_pool_indices =
    index_row("roi_pool_indices", {"x", "image", "boxes"}, fields<RoiAttrs>())
        .infer(roi_infer)
        .batch(by_slices)
        .reference(detail::roi_pool_indices_reference)
        .errors({"image number {} is outside x"})
        .flag(kNotDifferentiable)
        .doc("Position in x of the largest element of each bin of boxes, -1 for an empty bin.");
}  // namespace op

std::span<const OpDef* const> detection_rows() {
  static constexpr const OpDef* kRows[] = {&op::nms, &op::roi_align, &op::roi_align_backward,
                                           &op::roi_pool_indices};
  return kRows;
}

Tensor box_area(const Tensor& boxes, SourceLocation loc) {
  placed("box_area", loc, [&] {
    TD_CHECK(boxes.dim() == 2 && dims_equal(boxes.shape(1), 4), Shape,
             "boxes are {}, expected [n, 4]", boxes.shape().to_string());
  });
  return (boxes.select(1, 2, loc) - boxes.select(1, 0, loc)) *
         (boxes.select(1, 3, loc) - boxes.select(1, 1, loc));
}

Tensor box_iou(const Tensor& boxes1, const Tensor& boxes2, SourceLocation loc) {
  return detail::named("box_iou", loc, [&] {
    Tensor area1 = box_area(boxes1, loc), area2 = box_area(boxes2, loc);
    Tensor a = boxes1.unsqueeze(1, loc), b = boxes2.unsqueeze(0, loc);
    Tensor low = maximum(a.slice(2, 0, 2, 1, loc), b.slice(2, 0, 2, 1, loc));
    Tensor high = minimum(a.slice(2, 2, 4, 1, loc), b.slice(2, 2, 4, 1, loc));
    Tensor sides = clamp_min(high - low, 0);
    Tensor common = sides.select(2, 0, loc) * sides.select(2, 1, loc);
    return common / (area1.unsqueeze(1, loc) + area2.unsqueeze(0, loc) - common);
  });
}

Tensor nms(Tensor boxes, Tensor scores, double iou_threshold, int64_t size, int64_t fill,
           SourceLocation loc) {
  NmsAttrs a{iou_threshold, size, fill};
  return call(op::nms, &a, loc, std::move(boxes), std::move(scores), Tensor());
}

namespace {

// All boxes kept: the row returns as many indices as there are boxes.
Tensor kept(const char* name, Tensor boxes, Tensor scores, Tensor idxs, double threshold,
            SourceLocation loc) {
  return detail::named(name, loc, [&] {
    TD_CHECK(detail::readable(boxes), Unsupported,
             "how many boxes are kept is not known in a trace\nGive size: nms(boxes, scores, "
             "threshold, size, fill).");
    TD_CHECK(boxes.dim() == 2, Shape, "boxes are {}, expected [n, 4]", boxes.shape().to_string());
    NmsAttrs a{threshold, boxes.size(0), -1};
    Tensor all = call(op::nms, &a, loc, std::move(boxes), std::move(scores), std::move(idxs));
    const std::vector<int64_t> v = all.to_vector<int64_t>();
    int64_t n = 0;
    while (n < a.size && v[static_cast<size_t>(n)] >= 0) ++n;
    return all.slice(0, 0, n, 1, loc);
  });
}

}  // namespace

Tensor nms(Tensor boxes, Tensor scores, double iou_threshold, SourceLocation loc) {
  return kept("nms", std::move(boxes), std::move(scores), {}, iou_threshold, loc);
}
Tensor batched_nms(Tensor boxes, Tensor scores, Tensor idxs, double iou_threshold,
                   SourceLocation loc) {
  placed("batched_nms", loc, [&] {
    TD_CHECK(idxs.defined(), Value, "idxs are not defined, expected one class per box");
  });
  return kept("batched_nms", std::move(boxes), std::move(scores), std::move(idxs), iou_threshold,
              loc);
}

Tensor roi_align(Tensor x, const Tensor& boxes, IntList output_size, double spatial_scale,
                 int64_t sampling_ratio, bool aligned, SourceLocation loc) {
  return align(std::move(x), split_rois("roi_align", boxes, loc), output_size, spatial_scale,
               sampling_ratio, aligned, loc);
}
Tensor roi_align(Tensor x, const std::vector<Tensor>& boxes, IntList output_size,
                 double spatial_scale, int64_t sampling_ratio, bool aligned, SourceLocation loc) {
  Rois r = concatenate_rois("roi_align", x, boxes, loc);
  return align(std::move(x), r, output_size, spatial_scale, sampling_ratio, aligned, loc);
}
Tensor roi_pool(Tensor x, const Tensor& boxes, IntList output_size, double spatial_scale,
                SourceLocation loc) {
  return pool(std::move(x), split_rois("roi_pool", boxes, loc), output_size, spatial_scale, loc);
}
Tensor roi_pool(Tensor x, const std::vector<Tensor>& boxes, IntList output_size,
                double spatial_scale, SourceLocation loc) {
  Rois r = concatenate_rois("roi_pool", x, boxes, loc);
  return pool(std::move(x), r, output_size, spatial_scale, loc);
}

Tensor roi_align_backward(Tensor gy, Tensor image, Tensor boxes, const RoiAttrs& attrs,
                          SourceLocation loc) {
  return call(op::roi_align_backward, &attrs, loc, std::move(gy), std::move(image),
              std::move(boxes));
}

}  // namespace tandem
