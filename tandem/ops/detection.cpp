// SPDX-License-Identifier: Apache-2.0
// The rows of detection and their forms. The loops are in detection_reference.cpp.
#include "tandem/ops/detection.h"

#include <cmath>

#include "tandem/ops/create.h"
#include "tandem/ops/detection_internal.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/view.h"
#include "tandem/tensor/lazy.h"

namespace tandem {
namespace {

using detail::placed;

// ---- shape rules

void check_boxes(const char* name, const Spec& b) {
  TD_CHECK(b.rank() == 2 && dims_equal(b[1], 4), Shape, "{} is {}, wants [boxes, 4]", name,
           b.shape.to_string());
  TD_CHECK(is_floating(b.dtype), DType,
           "{} is {}, wants a floating dtype\nCast it with "
           ".to(float32).",
           name, to_string(b.dtype));
}

void nms_infer(InferCall& c) {
  const auto& a = c.get_attrs<NmsAttrs>();
  const Spec &boxes = c.in[0], &scores = c.in[1];
  check_boxes("boxes", boxes);
  TD_CHECK(scores.rank() == 1 && dims_equal(scores[0], boxes[0]), Shape,
           "scores are {}, boxes {}: one score per box is wanted", scores.shape.to_string(),
           boxes.shape.to_string());
  TD_CHECK(is_floating(scores.dtype), DType,
           "scores are {}, want a floating dtype\nCast them with "
           ".to(float32).",
           to_string(scores.dtype));
  if (c.has(2)) {
    TD_CHECK(c.in[2].rank() == 1 && dims_equal(c.in[2][0], boxes[0]), Shape,
             "idxs are {}, boxes {}: one class per box is wanted", c.in[2].shape.to_string(),
             boxes.shape.to_string());
    TD_CHECK(detail::is_index_dtype(c.in[2].dtype), DType,
             "idxs are {}, want int64 or int32\nCast them with .to(int64).",
             to_string(c.in[2].dtype));
  }
  TD_CHECK(a.size >= 0, Value, "size is {}, wants at least 0", a.size);
  TD_CHECK(!std::isnan(a.iou_threshold), Value, "iou_threshold is NaN");
  c.out[0] = Spec(DType::i64, Shape(a.size), boxes.device);
}

void check_rois(const RoiAttrs& a, const Spec& x, const char* name, const Spec& image,
                const Spec& boxes) {
  TD_CHECK(x.rank() == 4, Shape, "{} is {}, wants 4 dimensions", name, x.shape.to_string());
  TD_CHECK(is_floating(x.dtype), DType,
           "{} is {}, wants a floating dtype\nCast it with "
           ".to(float32).",
           name, to_string(x.dtype));
  check_boxes("boxes", boxes);
  TD_CHECK(boxes.dtype == x.dtype, DType, "boxes are {}, {} is {}\nCast one of them with .to().",
           to_string(boxes.dtype), name, to_string(x.dtype));
  TD_CHECK(
      image.rank() == 1 && dims_equal(image[0], boxes[0]) && detail::is_index_dtype(image.dtype),
      Shape, "image is {}, boxes are {}: wants one integer per box", image.to_string(),
      boxes.shape.to_string());
  TD_CHECK(a.height >= 1 && a.width >= 1, Value, "output_size [{}, {}] wants numbers of at least 1",
           a.height, a.width);
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
  TD_CHECK(a.size.rank() == 3, Value, "size {} wants [n, h, w]", a.size.to_string());
  c.out[0] = Spec(g.dtype, Shape(a.size[0], g[1], a.size[1], a.size[2]), g.device);
}

// ---- derivatives, vmap

void roi_align_vjp(VjpCall& c) {
  if (!c.needs(0)) return;
  RoiAttrs a = c.get_attrs<RoiAttrs>();
  const Shape& x = c.in_shape(0);
  a.size = IntList(x[0], x[2], x[3]);
  c.results[0] = roi_align_backward(c.grad(), c.in(1), c.in(2), a, c.where());
}
void roi_align_backward_vjp(VjpCall& c) {
  if (!c.needs(0)) return;
  RoiAttrs a = c.get_attrs<RoiAttrs>();
  a.size = {};
  c.results[0] = call(op::roi_align, &a, c.where(), c.grad(), c.in(1), c.in(2));
}

// A batch of images lies in the channels; boxes of their own go slice by slice.
void roi_batch(BatchCall& c) {
  if (c.batched[1] || c.batched[2]) {
    c.by_slices = true;
    return;
  }
  Where where = c.node.where;
  Dim channels = c.in[0].shape(2);
  Tensor x = detail::merge_dims(c.in[0].transpose(0, 1, where), 1, where);
  Tensor y = call(*c.node.op, c.node.attrs.get(), where, std::move(x), c.in[1], c.in[2]);
  c.out[0] = detail::split_dim(y, 1, c.batch_size, channels, where).transpose(0, 1, where);
}
void by_slices(BatchCall& c) { c.by_slices = true; }

// ---- forms

RoiAttrs roi_attrs(const IntList& size, double spatial_scale) {
  TD_CHECK(size.rank() == 1 || size.rank() == 2, Value,
           "output_size {} has {} entries, wants 1 or "
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

Rois split_rois(const char* name, const Tensor& boxes, Where where) {
  placed(name, where, [&] {
    TD_CHECK(boxes.dim() == 2 && dims_equal(boxes.shape(1), 5), Shape,
             "boxes are {}, want [k, 5] (image, x1, y1, x2, y2) or a list with [l, 4] per image",
             boxes.shape().to_string());
  });
  return {boxes.select(1, 0, where).to(DType::i64, where), boxes.slice(1, 1, 5, 1, where)};
}

Rois join_rois(const char* name, const Tensor& x, const std::vector<Tensor>& boxes, Where where) {
  placed(name, where, [&] {
    TD_CHECK(x.dim() == 4 && dims_equal(x.shape(0), static_cast<int64_t>(boxes.size())) &&
                 !boxes.empty(),
             Shape, "{} tensors of boxes for x {}: one per image is wanted", boxes.size(),
             x.shape().to_string());
    for (const Tensor& b : boxes)
      TD_CHECK(b.dim() == 2 && dims_equal(b.shape(1), 4), Shape, "boxes are {}, want [l, 4]",
               b.shape().to_string());
  });
  std::vector<Tensor> image;
  for (size_t i = 0; i < boxes.size(); ++i)
    image.push_back(full({boxes[i].shape(0)}, static_cast<int64_t>(i), DType::i64, where));
  return {cat(image, 0, where), cat(boxes, 0, where)};
}

Tensor align(Tensor x, const Rois& r, const IntList& size, double scale, int64_t ratio,
             bool aligned, Where where) {
  RoiAttrs a = placed("roi_align", where, [&] { return roi_attrs(size, scale); });
  a.sampling_ratio = ratio;
  a.aligned = aligned;
  return call(op::roi_align, &a, where, std::move(x), r.image, r.boxes);
}

Tensor pool(Tensor x, const Rois& r, const IntList& size, double scale, Where where) {
  return detail::named("roi_pool", where, [&] {
    RoiAttrs a = roi_attrs(size, scale);
    Tensor at = call(op::roi_pool_indices, &a, where, x, r.image, r.boxes);
    Tensor flat = at.reshape({-1}, where);
    Tensor y = index_select(x.reshape({-1}, where), 0, clamp_min(flat, 0), where);
    return tandem::where(ge(flat, 0), y, zeros_like(y)).reshape(at.shape(), where);
  });
}

}  // namespace

namespace op {
constinit const OpDef nms =
    index_row("nms", {"boxes", "scores", "classes?"}, fields<NmsAttrs>())
        .infer(nms_infer)
        .batch(by_slices)
        .reference(detail::nms_reference)
        .flag(kNotDifferentiable)
        .onnx("NonMaxSuppression")
        .doc("Indices of the boxes kept, best score first, where overlaps above a threshold go.");
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
        .doc("Gradient of roi_align by x.");
constinit const OpDef roi_pool_indices =
    index_row("roi_pool_indices", {"x", "image", "boxes"}, fields<RoiAttrs>())
        .infer(roi_infer)
        .batch(by_slices)
        .reference(detail::roi_pool_indices_reference)
        .errors({"image number {} is outside x"})
        .flag(kNotDifferentiable)
        .doc("Where in x the largest element of each bin of boxes lies, -1 for an empty bin.");
}  // namespace op

std::span<const OpDef* const> detection_rows() {
  static constexpr const OpDef* kRows[] = {&op::nms, &op::roi_align, &op::roi_align_backward,
                                           &op::roi_pool_indices};
  return kRows;
}

Tensor box_area(const Tensor& boxes, Where where) {
  placed("box_area", where, [&] {
    TD_CHECK(boxes.dim() == 2 && dims_equal(boxes.shape(1), 4), Shape, "boxes are {}, want [n, 4]",
             boxes.shape().to_string());
  });
  return (boxes.select(1, 2, where) - boxes.select(1, 0, where)) *
         (boxes.select(1, 3, where) - boxes.select(1, 1, where));
}

Tensor box_iou(const Tensor& boxes1, const Tensor& boxes2, Where where) {
  return detail::named("box_iou", where, [&] {
    Tensor area1 = box_area(boxes1, where), area2 = box_area(boxes2, where);
    Tensor a = boxes1.unsqueeze(1, where), b = boxes2.unsqueeze(0, where);
    Tensor low = maximum(a.slice(2, 0, 2, 1, where), b.slice(2, 0, 2, 1, where));
    Tensor high = minimum(a.slice(2, 2, 4, 1, where), b.slice(2, 2, 4, 1, where));
    Tensor sides = clamp_min(high - low, 0);
    Tensor common = sides.select(2, 0, where) * sides.select(2, 1, where);
    return common / (area1.unsqueeze(1, where) + area2.unsqueeze(0, where) - common);
  });
}

Tensor nms(Tensor boxes, Tensor scores, double iou_threshold, int64_t size, int64_t fill,
           Where where) {
  NmsAttrs a{iou_threshold, size, fill};
  return call(op::nms, &a, where, std::move(boxes), std::move(scores), Tensor());
}

namespace {

// All boxes kept: the row gives as many places as there are boxes.
Tensor kept(const char* name, Tensor boxes, Tensor scores, Tensor idxs, double threshold,
            Where where) {
  return detail::named(name, where, [&] {
    TD_CHECK(detail::readable(boxes), Unsupported,
             "how many boxes are kept is not known in a trace\nGive size: nms(boxes, scores, "
             "threshold, size, fill).");
    TD_CHECK(boxes.dim() == 2, Shape, "boxes are {}, want [n, 4]", boxes.shape().to_string());
    NmsAttrs a{threshold, boxes.size(0), -1};
    Tensor all = call(op::nms, &a, where, std::move(boxes), std::move(scores), std::move(idxs));
    const std::vector<int64_t> v = all.to_vector<int64_t>();
    int64_t n = 0;
    while (n < a.size && v[static_cast<size_t>(n)] >= 0) ++n;
    return all.slice(0, 0, n, 1, where);
  });
}

}  // namespace

Tensor nms(Tensor boxes, Tensor scores, double iou_threshold, Where where) {
  return kept("nms", std::move(boxes), std::move(scores), {}, iou_threshold, where);
}
Tensor batched_nms(Tensor boxes, Tensor scores, Tensor idxs, double iou_threshold, Where where) {
  placed("batched_nms", where,
         [&] { TD_CHECK(idxs.defined(), Value, "idxs are not defined, want one class per box"); });
  return kept("batched_nms", std::move(boxes), std::move(scores), std::move(idxs), iou_threshold,
              where);
}

Tensor roi_align(Tensor x, const Tensor& boxes, IntList output_size, double spatial_scale,
                 int64_t sampling_ratio, bool aligned, Where where) {
  return align(std::move(x), split_rois("roi_align", boxes, where), output_size, spatial_scale,
               sampling_ratio, aligned, where);
}
Tensor roi_align(Tensor x, const std::vector<Tensor>& boxes, IntList output_size,
                 double spatial_scale, int64_t sampling_ratio, bool aligned, Where where) {
  Rois r = join_rois("roi_align", x, boxes, where);
  return align(std::move(x), r, output_size, spatial_scale, sampling_ratio, aligned, where);
}
Tensor roi_pool(Tensor x, const Tensor& boxes, IntList output_size, double spatial_scale,
                Where where) {
  return pool(std::move(x), split_rois("roi_pool", boxes, where), output_size, spatial_scale,
              where);
}
Tensor roi_pool(Tensor x, const std::vector<Tensor>& boxes, IntList output_size,
                double spatial_scale, Where where) {
  Rois r = join_rois("roi_pool", x, boxes, where);
  return pool(std::move(x), r, output_size, spatial_scale, where);
}

Tensor roi_align_backward(Tensor gy, Tensor image, Tensor boxes, const RoiAttrs& attrs,
                          Where where) {
  return call(op::roi_align_backward, &attrs, where, std::move(gy), std::move(image),
              std::move(boxes));
}

}  // namespace tandem
