// SPDX-License-Identifier: Apache-2.0
// ONNX ops that change shapes: reshape, concatenation, slices, pads, repeats. Sizes come as
// attributes in old opsets and as tensors in new ones.
#include <algorithm>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/run_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

Tensor numbers(const std::vector<int64_t>& v) {
  const OutsideTrace outside;  // known in a trace, too
  return tensor(v);
}

void shape_of(OnnxCall& c) {
  const std::vector<int64_t> s = c.value(0).shape();
  const auto rank = static_cast<int64_t>(s.size());
  auto limit = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
  const int64_t start = limit(c.attr("start", 0)), end = limit(c.attr("end", rank));
  std::vector<int64_t> part;
  for (int64_t i = start; i < end; ++i) part.push_back(s[static_cast<size_t>(i)]);
  c.set(0, numbers(part));
}

void size_of_all(OnnxCall& c) {
  int64_t n = 1;
  for (const int64_t d : c.value(0).shape()) n *= d;
  const OutsideTrace outside;
  c.set(0, tensor(n, DType::i64));
}

void reshape_to(OnnxCall& c) {
  const std::optional<std::vector<int64_t>> wanted = c.dims_from(1, "shape");
  TD_CHECK(wanted, Value, "expected a shape");
  const Tensor x = c.x(0);
  Shape s;
  const bool zeros = c.attr("allowzero", 0);
  for (size_t i = 0; i < wanted->size(); ++i) {
    const int64_t d = (*wanted)[i];
    TD_CHECK(d >= -1 && d <= (int64_t{1} << 40), Shape, "a size is {}", d);
    if (d == 0 && !zeros)
      s.push_back(x.shape(static_cast<int64_t>(i)));
    else
      s.push_back(d);
  }
  c.set(0, x.reshape(s), c.type(0));
}

void flatten_to(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int64_t rank = x.dim(), a = c.attr("axis", 1);
  const int64_t axis = a < 0 ? a + rank : a;
  TD_CHECK(axis >= 0 && axis <= rank, Index, "expected an axis in {} to {}, got {}", -rank, rank,
           a);
  Dim rows = 1, columns = 1;
  for (int d = 0; d < rank; ++d)
    (d < axis ? rows : columns) = (d < axis ? rows : columns) * x.shape(d);
  c.set(0, x.reshape({rows, columns}), c.type(0));
}

void squeeze_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  const auto axes = c.dims_from(1, "axes");
  if (!axes) {
    c.set(0, squeeze(x), c.type(0));
    return;
  }
  std::vector<bool> drop(static_cast<size_t>(x.dim()), false);
  for (const int64_t a : *axes) {
    const int d = normalize_dim(a, x.dim());
    TD_CHECK(x.size(d) == 1, Shape, "dimension {} of {} is not 1", a, x.shape().to_string());
    drop[static_cast<size_t>(d)] = true;
  }
  Shape s;
  for (int d = 0; d < x.dim(); ++d)
    if (!drop[static_cast<size_t>(d)]) s.push_back(x.shape(d));
  c.set(0, x.reshape(s), c.type(0));
}

void unsqueeze_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  const auto axes = c.dims_from(1, "axes");
  TD_CHECK(axes, Value, "expected axes");
  const int rank = x.dim() + static_cast<int>(axes->size());
  std::vector<bool> fresh(static_cast<size_t>(rank), false);
  for (const int64_t a : *axes) {
    const auto d = static_cast<size_t>(normalize_dim(a, rank));
    TD_CHECK(!fresh[d], Value, "axis {} appears twice", a);
    fresh[d] = true;
  }
  Shape s;
  for (int d = 0, from = 0; d < rank; ++d)
    s.push_back(fresh[static_cast<size_t>(d)] ? Dim(1) : x.shape(from++));
  c.set(0, x.reshape(s), c.type(0));
}

void transpose_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  std::vector<int64_t> perm = c.attr_ints("perm");
  if (!c.attribute("perm"))
    for (int64_t d = x.dim(); d-- > 0;) perm.push_back(d);
  c.set(0, x.dim() == 0 ? x : permute(x, onnx_list(perm)), c.type(0));
}

void concat_of(OnnxCall& c) {
  std::vector<Tensor> xs;
  for (size_t i = 0; i < c.in.size(); ++i) xs.push_back(c.x(i));
  TD_CHECK(!xs.empty(), Value, "expected at least one input");
  const int d = c.axis("axis", 1, xs[0].dim());
  // An operand without elements is kept if it has the rank of the others.
  c.set(0, cat(xs, d), c.type(0));
}

void split_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int d = c.axis("axis", 0, x.dim());
  const auto outputs = static_cast<int64_t>(c.node().outputs.size());
  const auto given = c.dims_from(1, "split");
  std::vector<int64_t> sizes;
  if (given) {
    sizes = *given;
  } else {
    const int64_t parts = c.attr("num_outputs", outputs), n = x.size(d);
    TD_CHECK(parts == outputs, Value, "num_outputs is {}, the node has {} outputs", parts, outputs);
    const int64_t each = (n + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i)
      sizes.push_back(std::max<int64_t>(0, std::min(each, n - i * each)));
  }
  const std::vector<Tensor> parts = split(x, sizes, d);
  for (size_t i = 0; i < parts.size(); ++i) c.set(i, parts[i], c.type(0));
}

constexpr int64_t kLongStep = int64_t{1} << 60;  ///< beyond it no step differs, and sums overflow

/// x[start:end:step] along one dimension with Python's semantics, steps of both signs.
Tensor python_slice(const Tensor& x, int d, int64_t start, int64_t end, int64_t step) {
  const int64_t n = x.size(d);
  TD_CHECK(step != 0, Value, "a step is 0");
  step = std::clamp<int64_t>(step, -kLongStep, kLongStep);
  auto limit = [&](int64_t i, int64_t lo, int64_t hi) {
    if (i < 0) i = i < -n ? lo : i + n;
    return std::clamp(i, lo, hi);
  };
  if (step > 0)
    return slice(x, d, limit(start, 0, n), std::max(limit(start, 0, n), limit(end, 0, n)), step);
  start = limit(start, -1, n - 1);
  end = limit(end, -1, n - 1);
  const int64_t count = start > end ? (start - end + (-step) - 1) / -step : 0;
  std::vector<int64_t> at;
  for (int64_t i = 0; i < count; ++i) at.push_back(start + i * step);
  return index_select(x, d, tensor(at, Shape(at.size())));
}

void slice_of(OnnxCall& c) {
  Tensor x = c.x(0);
  const auto starts = c.dims_from(1, "starts"), ends = c.dims_from(2, "ends");
  auto axes = c.dims_from(3, "axes");
  TD_CHECK(starts && ends && starts->size() == ends->size(), Value, "expected starts and ends");
  if (!axes) {
    axes.emplace();
    for (size_t i = 0; i < starts->size(); ++i) axes->push_back(static_cast<int64_t>(i));
  }
  const std::vector<int64_t> steps = c.has(4) ? c.ints(4) : std::vector<int64_t>(starts->size(), 1);
  TD_CHECK(axes->size() == starts->size() && steps.size() == starts->size(), Value,
           "expected as many axes and steps as starts");
  for (size_t i = 0; i < starts->size(); ++i)
    x = python_slice(x, normalize_dim((*axes)[i], x.dim()), (*starts)[i], (*ends)[i], steps[i]);
  c.set(0, x, c.type(0));
}

void expand_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  const Shape s = broadcast_shapes(x.shape(), onnx_shape(c.ints(1)));
  check_onnx_size(s);
  c.set(0, contiguous(expand(x, s)), c.type(0));
}

void tile_of(OnnxCall& c) {
  Tensor x = c.x(0);
  std::vector<int64_t> repeats;
  if (c.version() < 6) {
    repeats.assign(static_cast<size_t>(x.dim()), 1);
    repeats[static_cast<size_t>(normalize_dim(c.int_at(2), x.dim()))] = c.int_at(1);
  } else {
    repeats = c.ints(1);
  }
  TD_CHECK(static_cast<int>(repeats.size()) == x.dim(), Shape, "expected {} repeats, got {}",
           x.dim(), repeats.size());
  check_onnx_list(repeats);
  Shape s = x.shape();
  for (int d = 0; d < x.dim(); ++d) s[d] = s[d] * repeats[static_cast<size_t>(d)];
  check_onnx_size(s);
  c.set(0, x.dim() == 0 ? x : repeat(x, IntList(repeats)), c.type(0));
}

void identity_of(OnnxCall& c) { c.set(0, c.in.empty() ? OnnxValue() : c.in[0]); }

/// Where the elements of a padded dimension come from.
std::vector<int64_t> pad_source(const std::string& mode, int64_t n, int64_t before, int64_t after) {
  std::vector<int64_t> at;
  TD_CHECK(n > 0 || before + after <= 0, Shape, "mode {} cannot pad a dimension of size 0", mode);
  for (int64_t i = -before; i < n + after; ++i) {
    int64_t j = i;
    if (mode == "edge") {
      j = std::clamp<int64_t>(i, 0, n - 1);
    } else if (mode == "wrap") {
      j = (i % n + n) % n;
    } else if (n == 1) {
      j = 0;
    } else {  // reflect: 0 1 2 3 2 1 0 ...
      const int64_t period = 2 * (n - 1);
      j = (i % period + period) % period;
      j = j < n ? j : period - j;
    }
    at.push_back(j);
  }
  return at;
}

void pad_of(OnnxCall& c) {
  Tensor x = c.x(0);
  const size_t rank = static_cast<size_t>(x.dim());
  auto pads = c.dims_from(1, c.version() == 1 ? "paddings" : "pads");
  TD_CHECK(pads, Value, "expected pads");
  std::vector<int64_t> axes;
  if (c.has(3))
    axes = c.ints(3);
  else
    for (size_t d = 0; d < rank; ++d) axes.push_back(static_cast<int64_t>(d));
  TD_CHECK(pads->size() == 2 * axes.size(), Value, "expected {} pads, got {}", 2 * axes.size(),
           pads->size());
  check_onnx_list(*pads);
  PadAttrs a;
  std::vector<int64_t> before(rank, 0), after(rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(normalize_dim(axes[i], x.dim()));
    before[d] = (*pads)[i];
    after[d] = (*pads)[i + axes.size()];
  }
  const std::string mode =
      c.attr_choice("mode", "constant", {"constant", "edge", "reflect", "wrap"});
  Shape result;
  for (size_t d = 0; d < rank; ++d)
    result.push_back(x.size(static_cast<int64_t>(d)) + before[d] + after[d]);
  check_onnx_size(result);
  if (mode == "constant") {
    const double number = c.attr_float("value", 0);
    if (is_floating(x.dtype()))
      a.value = c.has(2) ? c.number(2) : number;
    else
      a.value = c.has(2) ? static_cast<int64_t>(c.number(2)) : static_cast<int64_t>(number);
    a.before = IntList(before);
    a.after = IntList(after);
    c.set(0, call(op::pad, &a, SourceLocation::here(), x), c.type(0));
    return;
  }
  for (size_t d = 0; d < rank; ++d) {
    const auto dim = static_cast<int64_t>(d);
    if (before[d] == 0 && after[d] == 0) continue;
    x = index_select(x, dim, tensor(pad_source(mode, x.size(dim), before[d], after[d])));
  }
  c.set(0, x, c.type(0));
}

void trilu(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int64_t k = c.has(1) ? c.int_at(1) : 0;
  const bool upper = c.attr("upper", 1);
  c.set(0, upper ? triu(x, k) : tril(x, k), c.type(0));
}

void expand_dims(OnnxCall& c) {
  const Tensor x = c.x(0);
  c.set(0, x.unsqueeze(normalize_dim(c.int_at(1), x.dim() + 1)), c.type(0));
}

void unfold_tensor(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int64_t size = c.attr("size", 0), step = c.attr("step", 1);
  const int d = c.axis("dim", -1, x.dim());
  TD_CHECK(size > 0 && size <= x.size(d) && step > 0, Value,
           "expected slices of 1 to {} with a positive step, got {} and {}", x.size(d), size, step);
  c.set(0, contiguous(unfold(x, d, size, step)), c.type(0));
}

constexpr int64_t kMaxBlock = int64_t{1} << 20;  ///< its square, times a size, is a number

/// Whether the blocks' rows and columns are the inner part of the channels, or the outer one.
bool is_crd(const OnnxCall& c) { return c.attr_choice("mode", "DCR", {"DCR", "CRD"}) == "CRD"; }

void depth_to_space(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int64_t b = c.attr("blocksize", 1);
  TD_CHECK(x.dim() == 4 && b > 0 && b <= kMaxBlock && x.size(1) % (b * b) == 0, Shape,
           "expected [n, c * {0} * {0}, h, w], got {1}", b, x.shape().to_string());
  const int64_t n = x.size(0), d = x.size(1) / (b * b), h = x.size(2), w = x.size(3);
  Tensor y = is_crd(c) ? x.reshape({n, d, b, b, h, w}).permute({0, 1, 4, 2, 5, 3})
                       : x.reshape({n, b, b, d, h, w}).permute({0, 3, 4, 1, 5, 2});
  c.set(0, y.reshape({n, d, h * b, w * b}), c.type(0));
}

void space_to_depth(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int64_t b = c.attr("blocksize", 1);
  TD_CHECK(x.dim() == 4 && b > 0 && b <= kMaxBlock && x.size(2) % b == 0 && x.size(3) % b == 0,
           Shape, "expected [n, c, h, w] with h and w multiples of {}, got {}", b,
           x.shape().to_string());
  const int64_t n = x.size(0), d = x.size(1), h = x.size(2) / b, w = x.size(3) / b;
  const IntList order = is_crd(c) ? IntList{0, 1, 3, 5, 2, 4} : IntList{0, 3, 5, 1, 2, 4};
  c.set(0, x.reshape({n, d, h, b, w, b}).permute(order).reshape({n, d * b * b, h, w}), c.type(0));
}

void center_crop_pad(OnnxCall& c) {
  Tensor x = c.x(0);
  const std::vector<int64_t> sizes = c.ints(1);
  std::vector<int64_t> axes = c.attr_ints("axes");
  if (!c.attribute("axes"))
    for (int64_t d = 0; d < x.dim(); ++d) axes.push_back(d);
  TD_CHECK(axes.size() == sizes.size(), Value, "expected {} sizes, got {}", axes.size(),
           sizes.size());
  check_onnx_list(sizes);
  std::vector<int64_t> before(static_cast<size_t>(x.dim()), 0), after = before;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int d = normalize_dim(axes[i], x.dim());
    const int64_t more = sizes[i] - x.size(d);
    // Cropping removes the smaller half from the start, padding adds it there.
    const int64_t first = more >= 0 ? more / 2 : -(-more / 2);
    before[static_cast<size_t>(d)] = first;
    after[static_cast<size_t>(d)] = more - first;
  }
  PadAttrs a;
  a.before = IntList(before);
  a.after = IntList(after);
  a.value = is_floating(x.dtype()) ? Scalar(0.0) : Scalar(0);
  c.set(0, call(op::pad, &a, SourceLocation::here(), x), c.type(0));
}

/// Along `t` the first lengths[i] elements of row i of dimension `b` backwards: lengths of a trace.
Tensor reverse_hidden(const Tensor& x, const Tensor& lengths, int b, int t) {
  TD_CHECK(lengths.dim() == 1 && lengths.size(0) == x.size(b) && b != t, Shape,
           "expected {} lengths, got {}", x.size(b), lengths.shape().to_string());
  Shape rows, steps;
  for (int d = 0; d < x.dim(); ++d) {
    rows.push_back(d == b ? x.shape(d) : Dim(1));
    steps.push_back(d == t ? x.shape(d) : Dim(1));
  }
  const Tensor n = lengths.to(DType::i64).reshape(rows);
  const Tensor i = arange(0, x.size(t), 1, DType::i64).reshape(steps);
  const Tensor from = where(i < n, n - 1 - i, i);  // out of range where a length is: gather throws
  return gather(x, t, contiguous(expand(from, x.shape())));
}

void reverse_sequence(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int b = c.axis("batch_axis", 1, x.dim()), t = c.axis("time_axis", 0, x.dim());
  if (c.hidden(1)) return c.set(0, reverse_hidden(x, c.x(1), b, t), c.type(0));
  const std::vector<int64_t> lengths = c.ints(1);
  TD_CHECK(static_cast<int64_t>(lengths.size()) == x.size(b) && b != t, Shape,
           "expected {} lengths, got {}", x.size(b), lengths.size());
  std::vector<Tensor> rows;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const Tensor row = x.narrow(b, static_cast<int64_t>(i), 1);
    const int64_t n = lengths[i];
    TD_CHECK(n >= 0 && n <= x.size(t), Value, "length {} is not in 0 to {}", n, x.size(t));
    rows.push_back(cat({flip(row.narrow(t, 0, n), {t}), row.narrow(t, n, x.size(t) - n)}, t));
  }
  c.set(0, cat(rows, b), c.type(0));
}

}  // namespace

std::span<const OnnxRow> onnx_shape_rows() {
  static constexpr OnnxRow kRows[] = {
      settings_from(0, {"", "Shape", 1, 0, shape_of, {1, 1, "end start"}}),
      settings_from(0, {"", "Size", 1, 0, size_of_all, {1, 1, ""}}),
      {"", "Reshape", 1, 0, reshape_to, {2, 1, "allowzero shape"}, &op::view, export_view},
      {"", "Flatten", 1, 0, flatten_to, {1, 1, "axis"}},
      {"", "Squeeze", 1, 0, squeeze_of, {2, 1, "axes"}},
      {"", "Unsqueeze", 1, 0, unsqueeze_of, {2, 1, "axes"}},
      {"", "Transpose", 1, 0, transpose_of, {1, 1, "perm"}, &op::permute, export_permute},
      {"", "Concat", 1, 0, concat_of, {kOnnxAny, 1, "axis"}, &op::cat, export_cat},
      {"", "Split", 1, 0, split_of, {2, kOnnxAny, "axis num_outputs split"}},
      {"", "Slice", 1, 0, slice_of, {5, 1, "axes ends starts"}, &op::slice, export_slice},
      {"", "Expand", 8, 0, expand_of, {2, 1, ""}, &op::expand, export_expand},
      {"", "Tile", 1, 0, tile_of, {3, 1, ""}},
      {"", "Identity", 1, 0, identity_of, {1, 1, ""}, &op::identity, export_alias},
      settings_from(
          1, {"", "Pad", 1, 0, pad_of, {4, 1, "mode paddings pads value"}, &op::pad, export_pad}),
      {"", "Trilu", 14, 0, trilu, {2, 1, "upper"}},
      {kOnnxMicrosoft, "Trilu", 1, 0, trilu, {2, 1, "upper"}},
      settings_from(1, {kOnnxMicrosoft, "Pad", 1, 0, pad_of, {3, 1, "mode"}}),
      {kOnnxMicrosoft, "ExpandDims", 1, 0, expand_dims, {2, 1, ""}},
      {kOnnxMicrosoft, "UnfoldTensor", 1, 0, unfold_tensor, {1, 1, "dim size step"}},
      {"", "DepthToSpace", 1, 0, depth_to_space, {1, 1, "blocksize mode"}},
      {"", "SpaceToDepth", 1, 0, space_to_depth, {1, 1, "blocksize mode"}},
      {"", "CenterCropPad", 18, 0, center_crop_pad, {2, 1, "axes"}},
      {"", "ReverseSequence", 10, 0, reverse_sequence, {2, 1, "batch_axis time_axis"}},
      exported(op::copy, export_alias),
      exported(op::to_device, export_alias),
      exported(op::select, export_select),
      exported(op::diagonal, export_diagonal),
      exported(op::diagonal_backward, export_diagonal_backward),
      exported(op::unfold, export_unfold),
      exported(op::unfold_backward, export_unfold_backward),
      exported(op::slice_backward, export_slice_backward),
      exported(op::flip, export_flip),
      exported(op::roll, export_roll),
      exported(op::tril, export_tril),
      exported(op::triu, export_triu),
  };
  return kRows;
}

}  // namespace tandem::onnx
