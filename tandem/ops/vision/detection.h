// SPDX-License-Identifier: Apache-2.0
// Boxes and regions of images, with torchvision's semantics: box_area, box_iou, nms, batched_nms,
// roi_align, roi_pool. A box is (x1, y1, x2, y2) in pixels.
#pragma once

#include <vector>

#include "tandem/graph/op_def.h"

namespace tandem {

/// Attributes of the row nms: how many indices to return, and the value that pads them.
struct NmsAttrs {
  double iou_threshold = 0.5;
  int64_t size = 0, fill = -1;
  template <class V>
  void fields(V& v) {
    v("iou_threshold", iou_threshold);
    v("size", size);
    v("fill", fill);
  }
};

/// Attributes of the roi rows.
struct RoiAttrs {
  int64_t height = 1, width = 1;  ///< of the result
  double spatial_scale = 1;
  int64_t sampling_ratio =
      -1;  ///< points per bin and dimension; <= 0: as many as the bin has pixels
  bool aligned = false;
  IntList size;  ///< for roi_align_backward: [n, h, w] of its result
  template <class V>
  void fields(V& v) {
    v("height", height);
    v("width", width);
    v("spatial_scale", spatial_scale);
    v("sampling_ratio", sampling_ratio);
    v("aligned", aligned);
    v("size", size);
  }
};

namespace op {
/// nms: boxes [n, 4], scores [n], classes? i64 [n] -> i64 [size]. roi_align: x [n,
/// c, h, w], image i64 [k], boxes [k, 4] -> y [k, c, height, width].
/// roi_align_backward: gy, image, boxes -> gx [n, c, h, w]. roi_pool_indices: like
/// roi_align -> i64 positions of the largest elements in the flattened x, -1 for an
/// empty bin.
extern TD_API const OpDef nms, roi_align, roi_align_backward, roi_pool_indices;
}  // namespace op
TD_API std::span<const OpDef* const> detection_rows();

/// (x2 - x1) * (y2 - y1) of boxes [n, 4].
TD_API Tensor box_area(const Tensor& boxes, SourceLocation loc = SourceLocation::here());
/// Intersection over union of all pairs: boxes1 [n, 4], boxes2 [m, 4] -> [n, m].
TD_API Tensor box_iou(const Tensor& boxes1, const Tensor& boxes2,
                      SourceLocation loc = SourceLocation::here());

/// Indices of the boxes kept, best score first: of two boxes with an intersection over union above
/// the threshold the one with the lower score is dropped. Reads values: in a trace pass `size` to
/// get exactly that many, with missing ones filled with `fill`.
TD_API Tensor nms(Tensor boxes, Tensor scores, double iou_threshold,
                  SourceLocation loc = SourceLocation::here());
TD_API Tensor nms(Tensor boxes, Tensor scores, double iou_threshold, int64_t size, int64_t fill,
                  SourceLocation loc = SourceLocation::here());
/// nms among boxes of the same class `idxs` [n] (integers).
TD_API Tensor batched_nms(Tensor boxes, Tensor scores, Tensor idxs, double iou_threshold,
                          SourceLocation loc = SourceLocation::here());

/// x [n, c, h, w] averaged over bins of the boxes [k, 5], whose first entry is the image's index:
/// [k, c, *output_size]. Boxes are constants for the derivative, as in torchvision. Throws Shape,
/// DType, Value.
TD_API Tensor roi_align(Tensor x, const Tensor& boxes, IntList output_size,
                        double spatial_scale = 1.0, int64_t sampling_ratio = -1,
                        bool aligned = false, SourceLocation loc = SourceLocation::here());
/// The same with one tensor [l, 4] of boxes per image.
TD_API Tensor roi_align(Tensor x, const std::vector<Tensor>& boxes, IntList output_size,
                        double spatial_scale = 1.0, int64_t sampling_ratio = -1,
                        bool aligned = false, SourceLocation loc = SourceLocation::here());
/// The largest element of each bin of the boxes [k, 5]; 0 for an empty one.
TD_API Tensor roi_pool(Tensor x, const Tensor& boxes, IntList output_size,
                       double spatial_scale = 1.0, SourceLocation loc = SourceLocation::here());
TD_API Tensor roi_pool(Tensor x, const std::vector<Tensor>& boxes, IntList output_size,
                       double spatial_scale = 1.0, SourceLocation loc = SourceLocation::here());
/// The row as a function.
TD_API Tensor roi_align_backward(Tensor gy, Tensor image, Tensor boxes, const RoiAttrs& attrs,
                                 SourceLocation loc = SourceLocation::here());

}  // namespace tandem
