// SPDX-License-Identifier: Apache-2.0
// TensorFlow's ops that count, group and choose: segments, unique values, bins, boxes.
#include <algorithm>
#include <limits>

#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

OnnxType type_attr(const OnnxCall& c, const char* name, OnnxType otherwise) {
  return static_cast<OnnxType>(c.attr(name, static_cast<int64_t>(otherwise)));
}
void set_index(OnnxCall& c, size_t i, const Tensor& t, OnnxType type) {
  if (c.wants(i)) c.set(i, t.to(info_of(type).carrier), type);
}

// ---- segments

enum class Segment { sum, mean, product, largest, smallest, root };

Tensor segments(Segment kind, const Tensor& x, const Tensor& ids, int64_t n) {
  switch (kind) {
    case Segment::mean:
      return segment_mean(x, ids, n);
    case Segment::product:
      return segment_prod(x, ids, n);
    case Segment::largest:
      return segment_max(x, ids, n);
    case Segment::smallest:
      return segment_min(x, ids, n);
    default:
      return segment_sum(x, ids, n);
  }
}

/// One more than the largest index, at least `least`.
int64_t past_largest(const std::vector<int64_t>& indices, int64_t least, const char* what) {
  for (const int64_t i : indices) {
    TD_CHECK(i >= 0 && i < (int64_t{1} << 28), Index, "the {} {} does not exist", what, i);
    least = std::max(least, i + 1);
  }
  return least;
}
/// Whether n rows of x's width may be made.
void check_rows(int64_t n, const Tensor& x) {
  Shape s(n);
  for (int d = 1; d < x.dim(); ++d) s.push_back(x.shape(d));
  check_onnx_size(s, size_of(x.dtype()));
}

/// The largest finite number of a floating type.
double most_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::numeric_limits<double>::max();
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 3.3895313892515355e38;
    default:
      return std::numeric_limits<float>::max();
  }
}

/// Segments that no row belongs to hold `empty` with rows of x's width.
Tensor filled_segments(const Tensor& y, const Tensor& ids, int64_t n, const Scalar& empty) {
  const Tensor many = segment_sum(ones({ids.size(0)}, DType::i64), ids, n);
  Shape s(n);
  for (int d = 1; d < y.dim(); ++d) s.push_back(1);
  return where(many.reshape(s) == 0, full(Shape(), empty, y.dtype()), y);
}

// Of ids in ascending order; what lies between them is 0, or 1 for products.
template <Segment kind>
void tf_segment(OnnxCall& c) {
  const Tensor x = c.x(0), ids = c.x(1).to(DType::i64);
  TD_CHECK(ids.dim() == 1 && x.dim() >= 1 && x.size(0) == ids.size(0), Shape,
           "ids {} do not fit {}", c.value(1).describe(), c.value(0).describe());
  const int64_t n = past_largest(c.ints(1), 0, "segment");
  check_rows(n, x);
  c.set_like(0, filled_segments(segments(kind, x, ids, n), ids, n,
                                kind == Segment::product ? Scalar(1) : Scalar(0)));
}

// Negative ids are dropped; empty segments hold 0, 1, or the type's smallest or largest number.
template <Segment kind>
void tf_unsorted_segment(OnnxCall& c) {
  const Tensor x = c.x(0), ids = c.x(1).to(DType::i64);
  const int64_t n = c.int_at(2);
  TD_CHECK(ids.dim() >= 1 && ids.dim() <= x.dim() && n >= 0, Shape, "ids {} do not fit {}",
           c.value(1).describe(), c.value(0).describe());
  Shape shape(ids.numel());
  for (int d = ids.dim(); d < x.dim(); ++d) shape.push_back(x.shape(d));
  const Tensor flat = ids.reshape({ids.numel()}), rows = x.reshape(shape);
  check_rows(n, rows);
  // One more segment takes what is dropped.
  const Tensor at = where(flat < 0, n, flat);
  Tensor y = segments(kind, rows, at, n + 1);
  if (is_floating(x.dtype()) && (kind == Segment::largest || kind == Segment::smallest)) {
    const double most = most_of(x.dtype());
    y = filled_segments(y, at, n + 1, Scalar(kind == Segment::largest ? -most : most));
  }
  c.set_like(0, y.narrow(0, 0, n));
}

// Rows of x that an index chooses, in segments of ascending ids.
template <Segment kind>
void tf_sparse_segment(OnnxCall& c) {
  const Tensor x = c.x(0).index_select(0, c.x(1).to(DType::i64)), ids = c.x(2).to(DType::i64);
  const int64_t n = past_largest(c.ints(2), c.has(3) ? c.int_at(3) : 0, "segment");
  check_rows(n, x);
  Tensor y = segments(kind == Segment::mean ? kind : Segment::sum, x, ids, n);
  if (kind == Segment::root) {
    Shape s(n);
    for (int d = 1; d < y.dim(); ++d) s.push_back(1);
    const Tensor many = segment_sum(ones({ids.size(0)}, x.dtype()), ids, n);
    y = y / sqrt(clamp_min(many, 1)).reshape(s);
  }
  c.set_like(0, filled_segments(y, ids, n, Scalar(0)));
}

// ---- values and how often they occur

// In the order of their first places.
void tf_unique(OnnxCall& c) {
  const bool v2 = c.node().op.ends_with("V2"),
             counts = c.node().op.find("Counts") != std::string::npos;
  OnnxAttributes a{onnx_int("sorted", 0)};
  if (v2 && !c.ints(1).empty()) a.push_back(onnx_int("axis", c.int_at(1)));
  std::vector<OnnxValue> y = run_as_onnx(c, "Unique", {c.value(0)}, std::move(a), 4);
  const OnnxType type = type_attr(c, "out_idx", OnnxType::i32);
  c.set(0, y[0]);
  set_index(c, 1, y[2].tensor(), type);
  if (counts) set_index(c, 2, y[3].tensor(), type);
}

// How often 0, 1, ... size - 1 occur, or the sums of their weights; larger values do not count.
Tensor counted(const Tensor& values, const Tensor& weights, int64_t n, bool once) {
  const Tensor v = values.reshape({values.numel()}).to(DType::i64);
  const Tensor at = where(v >= n, n, v);
  const Tensor w = weights.numel() > 0 ? weights.reshape({weights.numel()})
                                       : ones({values.numel()}, weights.dtype());
  const Tensor y = segment_sum(w, at, n + 1).narrow(0, 0, n);
  return once ? (y != 0).to(y.dtype()) : y;
}
void tf_bincount(OnnxCall& c) {
  const int64_t n = c.int_at(1);
  TD_CHECK(n >= 0, Value, "a size of {}", n);
  check_onnx_size(onnx_shape({n}));
  const Tensor x = c.x(0), w = c.x(2);
  const bool once = c.attr("binary_output", 0) != 0;
  for (const int64_t v : c.ints(0)) TD_CHECK(v >= 0, Value, "cannot count {}", v);
  if (x.dim() < 2 || c.node().op == "Bincount") {
    c.set(0, counted(x, w, n, once), c.type(2));
    return;
  }
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < x.size(0); ++i)
    rows.push_back(counted(x.select(0, i), w.numel() > 0 ? w.select(0, i) : w, n, once));
  TD_CHECK(!rows.empty(), Shape, "expects at least one row");
  c.set(0, stack(rows, 0), c.type(2));
}

template <bool after>
void tf_bound(OnnxCall& c) {
  const Tensor at = searchsorted(c.x(0), c.x(1), false, after);
  set_index(c, 0, at, type_attr(c, "out_type", OnnxType::i32));
}
void tf_bucketize(OnnxCall& c) {
  const std::vector<float> v = c.attr_floats("boundaries");
  const Tensor bounds = constant(tensor(v, Shape(static_cast<int64_t>(v.size()))));
  c.set(0, searchsorted(bounds, c.x(0).to(DType::f32), true, true), OnnxType::i32);
}

void tf_in_top_k(OnnxCall& c) {
  const Tensor scores = c.x(0), classes = c.x(1).to(DType::i64);
  const Tensor own = gather(scores, 1, classes.unsqueeze(-1));
  c.set(0, sum((scores > own).to(DType::i64), {1}) < c.int_at(2), OnnxType::b8);
}

// ---- writing by index

void tf_sparse_to_dense(OnnxCall& c) {
  const std::vector<int64_t> shape = c.ints(1);
  const Tensor base = contiguous(expand(c.x(3).reshape({}), onnx_shape(shape)));
  Tensor at = c.x(0).to(DType::i64), v = c.x(2);
  if (at.dim() == 0) at = at.reshape({1, 1});
  if (at.dim() == 1) at = shape.size() == 1 ? at.unsqueeze(-1) : at.unsqueeze(0);
  if (v.dim() == 0) v = contiguous(expand(v, {at.size(0)}));
  c.set(0, run_as_onnx(c, "ScatterND",
                       {OnnxValue(base, c.type(3)), OnnxValue(at), OnnxValue(v, c.type(2))})[0]);
}

void tf_reverse_sequence(OnnxCall& c) {
  c.set(0, run_as_onnx(c, "ReverseSequence", {c.value(0), OnnxValue(c.x(1).to(DType::i64))},
                       {onnx_int("batch_axis", c.attr("batch_dim", 0)),
                        onnx_int("time_axis", c.attr("seq_dim", 0))})[0]);
}

// Rows of the inputs by their places: of equal ones the last.
void tf_dynamic_stitch(OnnxCall& c) {
  const size_t n = c.in.size() / 2;
  TD_CHECK(n > 0 && c.in.size() == 2 * n, Value, "expects as many places as tensors");
  std::vector<Tensor> at, rows;
  int64_t most = 0;
  for (size_t i = 0; i < n; ++i) {
    const Tensor index = c.x(i), x = c.x(n + i);
    most = past_largest(c.ints(i), most, "place");
    TD_CHECK(index.dim() <= x.dim(), Shape, "places {} do not fit {}", c.value(i).describe(),
             c.value(n + i).describe());
    Shape s(index.numel());
    for (int d = index.dim(); d < x.dim(); ++d) s.push_back(x.shape(d));
    at.push_back(index.reshape({index.numel(), 1}).to(DType::i64));
    rows.push_back(x.reshape(s));
  }
  Shape s(most);
  for (int d = 1; d < rows[0].dim(); ++d) s.push_back(rows[0].shape(d));
  check_onnx_size(s);
  c.set(0, run_as_onnx(c, "ScatterND",
                       {OnnxValue(zeros(s, rows[0].dtype()), c.type(n)), OnnxValue(cat(at, 0)),
                        OnnxValue(cat(rows, 0), c.type(n))})[0]);
}
void tf_dynamic_partition(OnnxCall& c) {
  const Tensor x = c.x(0), part = c.x(1);
  const int64_t n = c.attr("num_partitions", 1);
  TD_CHECK(n >= 1 && n <= 4096 && part.dim() <= x.dim(), Shape, "{} parts of {}", n,
           c.value(0).describe());
  Shape s(part.numel());
  for (int d = part.dim(); d < x.dim(); ++d) s.push_back(x.shape(d));
  const Tensor rows = x.reshape(s), flat = part.reshape({part.numel()});
  for (int64_t i = 0; i < n; ++i) {
    const Tensor at = as_onnx(c, "NonZero", {OnnxValue(flat == i)}).reshape({-1});
    c.set(static_cast<size_t>(i), rows.index_select(0, at), c.type(0));
  }
}

// ---- boxes

/// Places of boxes [n, 4] that stay, best first.
Tensor kept_boxes(OnnxCall& c, const Tensor& boxes, const Tensor& scores, int64_t most, double iou,
                  double least) {
  const auto number = [](double v) { return OnnxValue(full({1}, v, DType::f32)); };
  const Tensor y =
      as_onnx(c, "NonMaxSuppression",
              {OnnxValue(boxes.unsqueeze(0)), OnnxValue(scores.reshape({1, 1, scores.numel()})),
               OnnxValue(tensor(std::vector<int64_t>{most})), number(iou), number(least)});
  return y.select(1, 2);
}
Tensor padded_to(const Tensor& x, int64_t n) {
  if (x.size(0) >= n) return x;
  Shape s(n - x.size(0));
  for (int d = 1; d < x.dim(); ++d) s.push_back(x.shape(d));
  return cat({x, zeros(s, x.dtype())}, 0);
}
// Version 1 to 5: later ones have thresholds as inputs, pad the result and give its scores.
void tf_nms(OnnxCall& c) {
  const std::string& op = c.node().op;
  const char version = op.back();
  const bool pads = c.attr("pad_to_max_output_size", 0) != 0;
  const int64_t most = c.int_at(2);
  TD_CHECK(most >= 0 && most < (int64_t{1} << 28), Value, "a number of boxes is {}", most);
  if (version == '5')
    TD_CHECK(!c.has(5) || c.number(5) == 0, Unsupported, "soft suppression is not supported");
  const double iou = c.has(3) ? c.number(3) : c.attr_float("iou_threshold", 0.5),
               least = c.has(4) ? c.number(4) : -3.4028234663852886e38;
  Tensor at = kept_boxes(c, c.x(0), c.x(1), most, iou, least);
  const int64_t found = at.size(0);
  Tensor scores = c.x(1).index_select(0, at);
  if (pads) {
    at = padded_to(at, most);
    scores = padded_to(scores, most);
  }
  set_index(c, 0, at, OnnxType::i32);
  const size_t count = version == '5' ? 2 : 1;
  if (version == '5' && c.wants(1)) c.set(1, scores, c.type(1));
  if ((version == '4' || version == '5') && c.wants(count))
    c.set(count, tensor(found, DType::i32), OnnxType::i32);
}

// boxes [batch, n, 1 or classes, 4], scores [batch, n, classes]: the best of all classes.
void tf_combined_nms(OnnxCall& c) {
  const Tensor boxes = c.x(0), scores = c.x(1);
  TD_CHECK(boxes.dim() == 4 && scores.dim() == 3 && boxes.size(3) == 4, Shape,
           "expects boxes [batch, n, q, 4] and scores [batch, n, classes]");
  const int64_t each = c.int_at(2), total = c.int_at(3), classes = scores.size(2);
  TD_CHECK(each >= 0 && total >= 0 && each < (int64_t{1} << 28) && total < (int64_t{1} << 28),
           Value, "numbers of boxes are {} and {}", each, total);
  const int64_t size = c.attr("pad_per_class", 0) ? std::min(total, each * classes) : total;
  std::vector<Tensor> all[3];
  std::vector<int32_t> found;
  for (int64_t b = 0; b < scores.size(0); ++b) {
    std::vector<Tensor> of_boxes, of_scores, of_classes;
    for (int64_t k = 0; k < classes; ++k) {
      const Tensor x = boxes.select(0, b).select(1, boxes.size(2) == 1 ? 0 : k),
                   s = contiguous(scores.select(0, b).select(1, k));
      const Tensor at = kept_boxes(c, contiguous(x), s, each, c.number(4), c.number(5));
      of_boxes.push_back(x.index_select(0, at));
      of_scores.push_back(s.index_select(0, at));
      of_classes.push_back(full({at.size(0)}, static_cast<double>(k), s.dtype()));
    }
    Tensor x = cat(of_boxes, 0), s = cat(of_scores, 0), k = cat(of_classes, 0);
    const Tensor order = argsort(s, 0, true).narrow(0, 0, std::min(size, s.size(0)));
    x = x.index_select(0, order);
    if (c.attr("clip_boxes", 1)) x = clamp(x, 0, 1);
    all[0].push_back(padded_to(x, size));
    all[1].push_back(padded_to(s.index_select(0, order), size));
    all[2].push_back(padded_to(k.index_select(0, order), size));
    found.push_back(static_cast<int32_t>(order.size(0)));
  }
  for (size_t i = 0; i < 3; ++i) c.set(i, stack(all[i], 0), OnnxType::f32);
  c.set(3, tensor(found), OnnxType::i32);
}

}  // namespace

// table: a row for each op
std::span<const OnnxRow> onnx_tf_segment_rows() {
  using S = Segment;
  static constexpr OnnxRow kRows[] = {
      settings_from(1, {kOnnxTf, "SegmentSum", 1, 0, tf_segment<S::sum>, {2, 1, ""}}),
      settings_from(1, {kOnnxTf, "SegmentMean", 1, 0, tf_segment<S::mean>, {2, 1, ""}}),
      settings_from(1, {kOnnxTf, "SegmentProd", 1, 0, tf_segment<S::product>, {2, 1, ""}}),
      settings_from(1, {kOnnxTf, "SegmentMax", 1, 0, tf_segment<S::largest>, {2, 1, ""}}),
      settings_from(1, {kOnnxTf, "SegmentMin", 1, 0, tf_segment<S::smallest>, {2, 1, ""}}),
      settings_from(1,
                    {kOnnxTf, "UnsortedSegmentSum", 1, 0, tf_unsorted_segment<S::sum>, {3, 1, ""}}),
      settings_from(
          1, {kOnnxTf, "UnsortedSegmentProd", 1, 0, tf_unsorted_segment<S::product>, {3, 1, ""}}),
      settings_from(
          1, {kOnnxTf, "UnsortedSegmentMax", 1, 0, tf_unsorted_segment<S::largest>, {3, 1, ""}}),
      settings_from(
          1, {kOnnxTf, "UnsortedSegmentMin", 1, 0, tf_unsorted_segment<S::smallest>, {3, 1, ""}}),
      settings_from(1, {kOnnxTf, "SparseSegmentSum", 1, 0, tf_sparse_segment<S::sum>, {3, 1, ""}}),
      settings_from(1,
                    {kOnnxTf, "SparseSegmentMean", 1, 0, tf_sparse_segment<S::mean>, {3, 1, ""}}),
      settings_from(1,
                    {kOnnxTf, "SparseSegmentSqrtN", 1, 0, tf_sparse_segment<S::root>, {3, 1, ""}}),
      settings_from(1, {kOnnxTf,
                        "SparseSegmentSumWithNumSegments",
                        1,
                        0,
                        tf_sparse_segment<S::sum>,
                        {4, 1, ""}}),
      settings_from(1, {kOnnxTf,
                        "SparseSegmentMeanWithNumSegments",
                        1,
                        0,
                        tf_sparse_segment<S::mean>,
                        {4, 1, ""}}),
      settings_from(0, {kOnnxTf, "Unique", 1, 0, tf_unique, {1, 2, "out_idx"}}),
      settings_from(0, {kOnnxTf, "UniqueV2", 1, 0, tf_unique, {2, 2, "out_idx"}}),
      settings_from(0, {kOnnxTf, "UniqueWithCounts", 1, 0, tf_unique, {1, 3, "out_idx"}}),
      settings_from(0, {kOnnxTf, "UniqueWithCountsV2", 1, 0, tf_unique, {2, 3, "out_idx"}}),
      settings_from(0, {kOnnxTf, "Bincount", 1, 0, tf_bincount, {3, 1, ""}}),
      settings_from(0, {kOnnxTf, "DenseBincount", 1, 0, tf_bincount, {3, 1, "binary_output"}}),
      {kOnnxTf, "LowerBound", 1, 0, tf_bound<false>, {2, 1, "out_type"}},
      {kOnnxTf, "UpperBound", 1, 0, tf_bound<true>, {2, 1, "out_type"}},
      {kOnnxTf, "Bucketize", 1, 0, tf_bucketize, {1, 1, "boundaries"}},
      settings_from(2, {kOnnxTf, "InTopKV2", 1, 0, tf_in_top_k, {3, 1, ""}}),
      settings_from(
          0, {kOnnxTf, "SparseToDense", 1, 0, tf_sparse_to_dense, {4, 1, "~validate_indices"}}),
      settings_from(
          1, {kOnnxTf, "ReverseSequence", 1, 0, tf_reverse_sequence, {2, 1, "seq_dim batch_dim"}}),
      {kOnnxTf, "DynamicStitch", 1, 0, tf_dynamic_stitch, {kOnnxAny, 1, ""}},
      {kOnnxTf, "ParallelDynamicStitch", 1, 0, tf_dynamic_stitch, {kOnnxAny, 1, ""}},
      settings_from(1, {kOnnxTf,
                        "DynamicPartition",
                        1,
                        0,
                        tf_dynamic_partition,
                        {2, kOnnxAny, "num_partitions"}}),
      settings_from(0, {kOnnxTf, "NonMaxSuppression", 1, 0, tf_nms, {3, 1, "iou_threshold"}}),
      settings_from(0, {kOnnxTf, "NonMaxSuppressionV2", 1, 0, tf_nms, {4, 1, ""}}),
      settings_from(0, {kOnnxTf, "NonMaxSuppressionV3", 1, 0, tf_nms, {5, 1, ""}}),
      settings_from(
          0, {kOnnxTf, "NonMaxSuppressionV4", 1, 0, tf_nms, {5, 2, "pad_to_max_output_size"}}),
      settings_from(
          0, {kOnnxTf, "NonMaxSuppressionV5", 1, 0, tf_nms, {6, 3, "pad_to_max_output_size"}}),
      settings_from(0, {kOnnxTf,
                        "CombinedNonMaxSuppression",
                        1,
                        0,
                        tf_combined_nms,
                        {6, 4, "pad_per_class clip_boxes"}}),
  };
  return kRows;
}

}  // namespace tandem::onnx
