// SPDX-License-Identifier: Apache-2.0
// TensorFlow's ops that change shapes, slice, pad and create.
#include <algorithm>

#include "tandem/onnx/import/run_internal.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// Numbers that are known in a trace, too.
Tensor known_ints(const std::vector<int64_t>& v, Shape shape, DType dtype) {
  const OutsideTrace outside;
  return tensor(v, std::move(shape)).to(dtype);
}
OnnxValue int_list(const std::vector<int64_t>& v) {
  return OnnxValue(known_ints(v, Shape(static_cast<int64_t>(v.size())), DType::i64));
}
DType out_dtype(const OnnxCall& c) {
  return info_of(static_cast<OnnxType>(c.attr("out_type", static_cast<int64_t>(OnnxType::i32))))
      .carrier;
}

void tf_shape(OnnxCall& c) {
  for (size_t i = 0; i < c.in.size(); ++i) {
    const std::vector<int64_t> s = c.value(i).shape();
    c.set(i, known_ints(s, Shape(static_cast<int64_t>(s.size())), out_dtype(c)));
  }
}
void tf_size(OnnxCall& c) {
  int64_t n = 1;
  for (const int64_t d : c.value(0).shape()) n *= d;
  c.set(0, known_ints({n}, Shape(), out_dtype(c)));
}
void tf_rank(OnnxCall& c) {
  c.set(0, known_ints({static_cast<int64_t>(c.value(0).shape().size())}, Shape(), DType::i32));
}

void tf_reshape(OnnxCall& c) {
  c.set(0, run_as_onnx(c, "Reshape", c.in, {onnx_int("allowzero", 1)})[0]);
}

void tf_squeeze(OnnxCall& c) {
  const std::vector<int64_t> dims = c.attr_ints("squeeze_dims");
  std::vector<OnnxValue> in{c.value(0)};
  if (!dims.empty()) in.push_back(int_list(dims));
  c.set(0, run_as_onnx(c, "Squeeze", std::move(in))[0]);
}
void tf_expand_dims(OnnxCall& c) { c.set(0, unsqueeze(c.x(0), c.int_at(1)), c.type(0)); }
void tf_transpose(OnnxCall& c) {
  c.set(0, run_as_onnx(c, "Transpose", {c.value(0)}, {onnx_ints("perm", c.ints(1))})[0]);
}

void concat_along(OnnxCall& c, size_t first, size_t end, size_t axis) {
  std::vector<Tensor> xs;
  for (size_t i = first; i < end; ++i) xs.push_back(c.x(i));
  TD_CHECK(!xs.empty(), Value, "expected at least one input");
  c.set(0, cat(xs, normalize_dim(c.int_at(axis), xs[0].dim())), c.type(first));
}
void tf_concat(OnnxCall& c) {
  TD_CHECK(c.in.size() >= 2, Value, "expected at least one input");
  if (c.node().op == "Concat") return concat_along(c, 1, c.in.size(), 0);
  concat_along(c, 0, c.in.size() - 1, c.in.size() - 1);
}

void tf_pack(OnnxCall& c) {
  std::vector<Tensor> xs;
  for (size_t i = 0; i < c.in.size(); ++i) xs.push_back(c.x(i));
  TD_CHECK(!xs.empty(), Value, "expected at least one input");
  c.set(0, stack(xs, c.attr("axis", 0)), c.type(0));
}
void tf_unpack(OnnxCall& c) {
  const std::vector<Tensor> all = unbind(c.x(0), c.attr("axis", 0));
  for (size_t i = 0; i < all.size(); ++i) c.set(i, all[i], c.type(0));
}

void tf_split(OnnxCall& c) {
  const Tensor x = c.x(1);
  const int d = normalize_dim(c.int_at(0), x.dim());
  const int64_t n = c.attr("num_split", 1);
  TD_CHECK(n >= 1 && x.size(d) % n == 0, Shape, "a dimension of {} does not split into {}",
           x.size(d), n);
  const std::vector<Tensor> all = split(x, x.size(d) / n, d);
  for (size_t i = 0; i < all.size(); ++i) c.set(i, all[i], c.type(1));
}
void tf_split_v(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int d = normalize_dim(c.int_at(2), x.dim());
  std::vector<int64_t> sizes = c.ints(1);
  check_onnx_list(sizes);
  int64_t rest = x.size(d);
  for (const int64_t n : sizes) rest -= std::max<int64_t>(n, 0);
  for (int64_t& n : sizes)
    if (n < 0) n = rest;
  const std::vector<Tensor> all = split(x, sizes, d);
  for (size_t i = 0; i < all.size(); ++i) c.set(i, all[i], c.type(0));
}

void tf_slice(OnnxCall& c) {
  Tensor x = c.x(0);
  const std::vector<int64_t> begin = c.ints(1), size = c.ints(2);
  TD_CHECK(begin.size() == static_cast<size_t>(x.dim()) && size.size() == begin.size(), Shape,
           "expected {} starts and sizes, got {} and {}", x.dim(), begin.size(), size.size());
  for (int d = 0; d < x.dim(); ++d) {
    const int64_t from = begin[static_cast<size_t>(d)], n = size[static_cast<size_t>(d)];
    const int64_t all = x.size(d);
    TD_CHECK(from >= 0 && from <= all && n >= -1 && n <= all - from, Index,
             "{} elements from {} on are not in a dimension of {}", n, from, all);
    const int64_t count = n < 0 ? all - from : n;
    if (from != 0 || count != all) x = narrow(x, d, from, count);
  }
  c.set(0, x, c.type(0));
}

/// One entry of a strided slice's specification; masks hold a bit for each.
struct SliceMasks {
  int64_t begin, end, ellipsis, fresh, shrink;
};

// Python's x[a:b:c, ..., None, i]. Entry i of the lists is a slice, the ellipsis, a new dimension,
// or an index that drops its dimension, as the masks say.
void tf_strided_slice(OnnxCall& c) {
  const Tensor x = c.x(0);
  const std::vector<int64_t> begin = c.ints(1), end = c.ints(2), step = c.ints(3);
  const SliceMasks m{c.attr("begin_mask", 0), c.attr("end_mask", 0), c.attr("ellipsis_mask", 0),
                     c.attr("new_axis_mask", 0), c.attr("shrink_axis_mask", 0)};
  const size_t n = begin.size();
  TD_CHECK(n <= 32 && end.size() == n && step.size() == n, Value,
           "expected lists of one length, got {}, {} and {}", n, end.size(), step.size());
  const auto is = [](int64_t mask, size_t i) { return (mask >> i & 1) != 0; };
  int after = 0;  // dimensions that entries after the ellipsis take
  bool seen = false;
  for (size_t i = 0; i < n; ++i) {
    if (is(m.ellipsis, i))
      seen = true;
    else if (seen && !is(m.fresh, i))
      ++after;
  }
  std::vector<int64_t> axes, starts, ends, steps;
  Shape shape;            // of the result: sizes of x's dimensions are filled in below
  std::vector<int> from;  // the dimension of x, or -1 for a new one
  int d = 0;
  for (size_t i = 0; i < n; ++i) {
    if (is(m.ellipsis, i)) {
      for (; d < x.dim() - after; ++d) from.push_back(d);
      continue;
    }
    if (is(m.fresh, i)) {
      from.push_back(-1);
      continue;
    }
    TD_CHECK(d < x.dim(), Shape, "has more indices than {}", x.shape().to_string());
    axes.push_back(d);
    if (is(m.shrink, i)) {
      const int64_t size = x.size(d), at = begin[i] < 0 ? begin[i] + size : begin[i];
      TD_CHECK(at >= 0 && at < size, Index, "the index {} is not in a dimension of {}", begin[i],
               size);
      starts.push_back(at);
      ends.push_back(at + 1);
      steps.push_back(1);
    } else {
      constexpr int64_t kFar = int64_t{1} << 40;
      starts.push_back(is(m.begin, i) ? (step[i] < 0 ? kFar : 0) : begin[i]);
      ends.push_back(is(m.end, i) ? (step[i] < 0 ? -kFar : kFar) : end[i]);
      steps.push_back(step[i]);
      from.push_back(d);
    }
    ++d;
  }
  for (; d < x.dim(); ++d) from.push_back(d);
  const Tensor y = axes.empty() ? x
                                : as_onnx(c, "Slice",
                                          {OnnxValue(x, c.type(0)), int_list(starts),
                                           int_list(ends), int_list(axes), int_list(steps)});
  for (const int k : from) shape.push_back(k < 0 ? Dim(1) : y.shape(k));
  c.set(0, y.reshape(shape), c.type(0));
}

void tf_fill(OnnxCall& c) {
  const Shape s = onnx_shape(c.ints(0));
  c.set(0, contiguous(expand(c.x(1).reshape({}), s)), c.type(1));
}
void tf_zeros_like(OnnxCall& c) {
  const OnnxValue& v = c.value(0);
  if (v.is_sequence()) {
    OnnxValue::Sequence zeros;
    for (const OnnxValue& i : v.items())
      zeros.push_back(i.is_none() ? i : OnnxValue(zeros_like(i.tensor()), i.type()));
    c.set(0, OnnxValue::sequence(std::move(zeros)));
    return;
  }
  c.set(0, zeros_like(c.x(0)), c.type(0));
}
void tf_ones_like(OnnxCall& c) { c.set(0, ones_like(c.x(0)), c.type(0)); }
void tf_tile(OnnxCall& c) { c.set(0, run_as_onnx(c, "Tile", c.in)[0]); }
void tf_broadcast_to(OnnxCall& c) { c.set(0, run_as_onnx(c, "Expand", c.in)[0]); }

/// [n, 2] as ONNX wants it: all the beginnings, then all the ends.
OnnxValue onnx_pads(const OnnxCall& c) {
  const std::vector<int64_t> v = c.ints(1);
  const size_t n = v.size() / 2;
  TD_CHECK(v.size() == 2 * static_cast<size_t>(c.value(0).shape().size()), Shape,
           "expected two pads for each dimension, got {}", c.value(1).describe());
  std::vector<int64_t> pads(2 * n);
  for (size_t d = 0; d < n; ++d) {
    pads[d] = v[2 * d];
    pads[n + d] = v[2 * d + 1];
  }
  return int_list(pads);
}
void tf_pad(OnnxCall& c) {
  std::vector<OnnxValue> in{c.value(0), onnx_pads(c)};
  if (c.has(2)) in.push_back(c.value(2));
  c.set(0, run_as_onnx(c, "Pad", std::move(in))[0]);
}
// Symmetric repeats the edge, which reflection does not.
void tf_mirror_pad(OnnxCall& c) {
  if (c.attr_text("mode", "REFLECT") == "REFLECT") {
    c.set(0, run_as_onnx(c, "Pad", {c.value(0), onnx_pads(c)}, {onnx_text("mode", "reflect")})[0]);
    return;
  }
  Tensor x = c.x(0);
  const std::vector<int64_t> pads = c.ints(1);
  TD_CHECK(pads.size() == 2 * static_cast<size_t>(x.dim()), Shape, "expected {} pads, got {}",
           2 * x.dim(), pads.size());
  for (int d = 0; d < x.dim(); ++d) {
    const int64_t before = pads[2 * static_cast<size_t>(d)],
                  after = pads[2 * static_cast<size_t>(d) + 1], n = x.size(d);
    TD_CHECK(before >= 0 && after >= 0 && before <= n && after <= n, Shape,
             "pads of {} and {} mirror a dimension of {}", before, after, n);
    std::vector<Tensor> parts;
    if (before > 0) parts.push_back(flip(narrow(x, d, 0, before), {d}));
    parts.push_back(x);
    if (after > 0) parts.push_back(flip(narrow(x, d, n - after, after), {d}));
    if (parts.size() > 1) x = cat(parts, d);
  }
  c.set(0, x, c.type(0));
}

void tf_reverse(OnnxCall& c) {
  const Tensor x = c.x(0);
  IntList dims;
  for (const int64_t a : c.ints(1)) dims.push_back(normalize_dim(a, x.dim()));
  c.set(0, dims.empty() ? x : flip(x, dims), c.type(0));
}

void tf_matrix_band_part(OnnxCall& c) {
  Tensor x = c.x(0);
  const int64_t lower = c.int_at(1), upper = c.int_at(2);
  check_onnx_list({lower, upper});
  if (lower >= 0) x = triu(x, -lower);
  if (upper >= 0) x = tril(x, upper);
  c.set(0, x, c.type(0));
}

constexpr int64_t kMostBlock = int64_t{1} << 20;

// [n, h, w, c] with blocks of pixels as channels, and back.
void tf_depth_to_space(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int64_t b = c.attr("block_size", 1);
  TD_CHECK(c.attr_text("data_format", "NHWC") == "NHWC", Unsupported, "expected the format NHWC");
  TD_CHECK(x.dim() == 4 && b > 0 && b <= kMostBlock && x.size(3) % (b * b) == 0, Shape,
           "expected [n, h, w, c * {0} * {0}], got {1}", b, x.shape().to_string());
  const int64_t n = x.size(0), h = x.size(1), w = x.size(2), d = x.size(3) / (b * b);
  c.set(0, x.reshape({n, h, w, b, b, d}).permute({0, 1, 3, 2, 4, 5}).reshape({n, h * b, w * b, d}),
        c.type(0));
}
void tf_space_to_depth(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int64_t b = c.attr("block_size", 1);
  TD_CHECK(c.attr_text("data_format", "NHWC") == "NHWC", Unsupported, "expected the format NHWC");
  TD_CHECK(x.dim() == 4 && b > 0 && b <= kMostBlock && x.size(1) % b == 0 && x.size(2) % b == 0,
           Shape, "expected [n, h, w, c] with h and w multiples of {}, got {}", b,
           x.shape().to_string());
  const int64_t n = x.size(0), h = x.size(1) / b, w = x.size(2) / b, d = x.size(3);
  c.set(0, x.reshape({n, h, b, w, b, d}).permute({0, 1, 3, 2, 4, 5}).reshape({n, h, w, b * b * d}),
        c.type(0));
}

/// Blocks [m, 2] of numbers, checked.
std::vector<int64_t> block_of(const OnnxCall& c) {
  const std::vector<int64_t> block = c.ints(1);
  TD_CHECK(!block.empty() && static_cast<int>(block.size()) < c.value(0).tensor().dim(), Shape,
           "a block of {} dimensions does not fit {}", block.size(), c.value(0).describe());
  TD_CHECK(c.ints(2).size() == 2 * block.size(), Shape, "expected {} pads", 2 * block.size());
  for (const int64_t b : block)
    TD_CHECK(b > 0 && b <= kMostBlock, Value, "a block has the size {}", b);
  check_onnx_list(c.ints(2));
  return block;
}

// Dilated convolutions of older models: blocks of positions become rows of the batch.
void tf_space_to_batch(OnnxCall& c) {
  Tensor x = c.x(0);
  const std::vector<int64_t> block = block_of(c), pads = c.ints(2);
  const auto m = static_cast<int>(block.size());
  PadAttrs a;
  a.value = is_floating(x.dtype()) ? Scalar(0.0) : Scalar(0);
  for (int d = 0; d < x.dim(); ++d) {
    const auto k = 2 * static_cast<size_t>(d - 1);
    a.before.push_back(d >= 1 && d <= m ? pads[k] : 0);
    a.after.push_back(d >= 1 && d <= m ? pads[k + 1] : 0);
  }
  x = call(op::pad, &a, SourceLocation::here(), x);
  Shape split(x.shape(0)), joined;
  std::vector<int64_t> order;
  Dim batch = x.shape(0);
  for (int d = 1; d <= m; ++d) {
    const int64_t b = block[static_cast<size_t>(d - 1)];
    TD_CHECK(x.size(d) % b == 0, Shape, "a dimension of {} does not split into {}", x.size(d), b);
    split.push_back(x.size(d) / b);
    split.push_back(b);
    order.push_back(2 * d);
    batch = batch * b;
  }
  order.push_back(0);
  joined.push_back(batch);
  for (int d = 1; d <= m; ++d) {
    order.push_back(2 * d - 1);
    joined.push_back(x.size(d) / block[static_cast<size_t>(d - 1)]);
  }
  for (int d = m + 1; d < x.dim(); ++d) {
    split.push_back(x.shape(d));
    joined.push_back(x.shape(d));
    order.push_back(d + m);
  }
  c.set(0, x.reshape(split).permute(IntList(order)).reshape(joined), c.type(0));
}
void tf_batch_to_space(OnnxCall& c) {
  Tensor x = c.x(0);
  const std::vector<int64_t> block = block_of(c), crops = c.ints(2);
  const auto m = static_cast<int>(block.size());
  int64_t all = 1;
  for (const int64_t b : block)
    TD_CHECK(!__builtin_mul_overflow(all, b, &all) && all <= x.size(0), Shape,
             "a batch of {} does not hold such blocks", x.size(0));
  TD_CHECK(x.size(0) % all == 0, Shape, "a batch of {} does not hold blocks of {}", x.size(0), all);
  Shape split, joined(x.size(0) / all);
  for (const int64_t b : block) split.push_back(b);
  split.push_back(x.size(0) / all);
  std::vector<int64_t> order{m};
  for (int d = 1; d <= m; ++d) {
    order.push_back(m + d);
    order.push_back(d - 1);
    joined.push_back(x.size(d) * block[static_cast<size_t>(d - 1)]);
  }
  for (int d = 1; d < x.dim(); ++d) split.push_back(x.shape(d));
  for (int d = m + 1; d < x.dim(); ++d) {
    order.push_back(m + d);
    joined.push_back(x.shape(d));
  }
  x = x.reshape(split).permute(IntList(order)).reshape(joined);
  for (int d = 1; d <= m; ++d) {
    const auto k = 2 * static_cast<size_t>(d - 1);
    const int64_t n = x.size(d) - crops[k] - crops[k + 1];
    TD_CHECK(crops[k] >= 0 && crops[k + 1] >= 0 && n >= 0, Shape, "crops {} and {} of {}", crops[k],
             crops[k + 1], x.size(d));
    x = narrow(x, d, crops[k], n);
  }
  c.set(0, x, c.type(0));
}

void tf_roll(OnnxCall& c) {
  const Tensor x = c.x(0);
  const std::vector<int64_t> shifts = c.ints(1);
  IntList dims;
  for (const int64_t a : c.ints(2)) dims.push_back(normalize_dim(a, x.dim()));
  c.set(0, roll(x, onnx_list(shifts), dims), c.type(0));
}

void tf_broadcast_args(OnnxCall& c) {
  const Shape s = broadcast_shapes(onnx_shape(c.ints(0)), onnx_shape(c.ints(1)));
  const std::vector<int64_t> v = s.to_vector();
  c.set(0, known_ints(v, Shape(static_cast<int64_t>(v.size())), c.value(0).tensor().dtype()));
}

void tf_invert_permutation(OnnxCall& c) {
  const std::vector<int64_t> p = c.ints(0);
  std::vector<int64_t> inverse(p.size(), -1);
  for (size_t i = 0; i < p.size(); ++i) {
    TD_CHECK(p[i] >= 0 && p[i] < static_cast<int64_t>(p.size()), Index, "{} is not a position",
             p[i]);
    inverse[static_cast<size_t>(p[i])] = static_cast<int64_t>(i);
  }
  c.set(0, known_ints(inverse, Shape(static_cast<int64_t>(p.size())), c.value(0).tensor().dtype()));
}

}  // namespace

std::span<const OnnxRow> onnx_tf_shape_rows() {
  static constexpr OnnxRow kRows[] = {
      settings_from(0, {kOnnxTf, "Shape", 1, 0, tf_shape, {kOnnxAny, kOnnxAny, "out_type"}}),
      settings_from(0, {kOnnxTf, "ShapeN", 1, 0, tf_shape, {kOnnxAny, kOnnxAny, "out_type"}}),
      settings_from(0, {kOnnxTf, "Size", 1, 0, tf_size, {kOnnxAny, kOnnxAny, "out_type"}}),
      settings_from(0, {kOnnxTf, "Rank", 1, 0, tf_rank, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(1, {kOnnxTf, "Reshape", 1, 0, tf_reshape, {kOnnxAny, kOnnxAny, ""}}),
      {kOnnxTf, "Squeeze", 1, 0, tf_squeeze, {kOnnxAny, kOnnxAny, "squeeze_dims"}},
      settings_from(1, {kOnnxTf, "ExpandDims", 1, 0, tf_expand_dims, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(1, {kOnnxTf, "Transpose", 1, 0, tf_transpose, {kOnnxAny, kOnnxAny, ""}}),
      {kOnnxTf, "Concat", 1, 0, tf_concat, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "ConcatV2", 1, 0, tf_concat, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "Pack", 1, 0, tf_pack, {kOnnxAny, kOnnxAny, "axis"}},
      {kOnnxTf, "Unpack", 1, 0, tf_unpack, {kOnnxAny, kOnnxAny, "axis ~num"}},
      {kOnnxTf, "Split", 1, 0, tf_split, {kOnnxAny, kOnnxAny, "num_split"}},
      settings_from(1, {kOnnxTf, "SplitV", 1, 0, tf_split_v, {kOnnxAny, kOnnxAny, "~num_split"}}),
      settings_from(1, {kOnnxTf, "Slice", 1, 0, tf_slice, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(1, {kOnnxTf,
                        "StridedSlice",
                        1,
                        0,
                        tf_strided_slice,
                        {kOnnxAny, kOnnxAny,
                         "begin_mask ellipsis_mask end_mask new_axis_mask shrink_axis_mask"}}),
      {kOnnxTf, "Fill", 1, 0, tf_fill, {kOnnxAny, kOnnxAny, "~index_type"}},
      {kOnnxTf, "ZerosLike", 1, 0, tf_zeros_like, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "OnesLike", 1, 0, tf_ones_like, {kOnnxAny, kOnnxAny, ""}},
      settings_from(1, {kOnnxTf, "Tile", 1, 0, tf_tile, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(1, {kOnnxTf, "BroadcastTo", 1, 0, tf_broadcast_to, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(1, {kOnnxTf, "Pad", 1, 0, tf_pad, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(1, {kOnnxTf, "PadV2", 1, 0, tf_pad, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(1, {kOnnxTf, "MirrorPad", 1, 0, tf_mirror_pad, {kOnnxAny, kOnnxAny, "mode"}}),
      settings_from(1, {kOnnxTf, "ReverseV2", 1, 0, tf_reverse, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(
          1, {kOnnxTf, "MatrixBandPart", 1, 0, tf_matrix_band_part, {kOnnxAny, kOnnxAny, ""}}),
      {kOnnxTf,
       "DepthToSpace",
       1,
       0,
       tf_depth_to_space,
       {kOnnxAny, kOnnxAny, "block_size data_format"}},
      {kOnnxTf,
       "SpaceToDepth",
       1,
       0,
       tf_space_to_depth,
       {kOnnxAny, kOnnxAny, "block_size data_format"}},
      settings_from(1,
                    {kOnnxTf, "SpaceToBatchND", 1, 0, tf_space_to_batch, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(1,
                    {kOnnxTf, "BatchToSpaceND", 1, 0, tf_batch_to_space, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(1, {kOnnxTf, "Roll", 1, 0, tf_roll, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(0,
                    {kOnnxTf, "BroadcastArgs", 1, 0, tf_broadcast_args, {kOnnxAny, kOnnxAny, ""}}),
      settings_from(
          0, {kOnnxTf, "InvertPermutation", 1, 0, tf_invert_permutation, {kOnnxAny, kOnnxAny, ""}}),
  };
  return kRows;
}

}  // namespace tandem::onnx
