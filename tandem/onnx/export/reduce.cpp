// SPDX-License-Identifier: Apache-2.0
// Reductions and scans. The ONNX op is named by the row in import/reduce.cpp.
#include "tandem/grad/control_flow.h"
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

std::vector<int64_t> dims_of(const OnnxExportCall& c) {
  std::vector<int64_t> out;
  for (const Dim d : c.get_attrs<ReduceAttrs>().dims)
    if (c.rank(0) > 0) out.push_back(c.axis(d.value()));
  return out;
}
bool keepdim(const OnnxExportCall& c) { return c.get_attrs<ReduceAttrs>().keepdim; }
// Sums of 16-bit floats are taken in f32.
DType wide(DType t) { return is_short_float(t) ? DType::f32 : t; }

// `op` in the type of the result, or in f32.
bool reduce_as(OnnxExportCall& c, const char* op) {
  const DType t = c.out[0].dtype;
  const DType w = t == DType::i8 || t == DType::u8 || t == DType::i16 ? DType::i32 : wide(t);
  c.set(0, c.b.cast(c.b.reduce(op, c.x(0, w), dims_of(c), keepdim(c)), w, t));
  return true;
}

}  // namespace

bool export_sum(OnnxExportCall& c) { return reduce_as(c, "ReduceSum"); }
bool export_mean(OnnxExportCall& c) { return reduce_as(c, "ReduceMean"); }
bool export_prod(OnnxExportCall& c) { return reduce_as(c, "ReduceProd"); }
bool export_norm(OnnxExportCall& c) { return reduce_as(c, "ReduceL2"); }
bool export_logsumexp(OnnxExportCall& c) { return reduce_as(c, "ReduceLogSumExp"); }
bool export_amax(OnnxExportCall& c) {
  return c.dtype(0) == DType::b8 ? export_any(c) : reduce_as(c, "ReduceMax");
}
bool export_amin(OnnxExportCall& c) {
  return c.dtype(0) == DType::b8 ? export_all(c) : reduce_as(c, "ReduceMin");
}

namespace {
std::string count_of(OnnxExportCall& c, const std::string& truth) {
  return c.b.reduce("ReduceSum", c.b.cast(truth, DType::b8, DType::i64), dims_of(c), keepdim(c));
}
}  // namespace

bool export_count_nonzero(OnnxExportCall& c) {
  c.set(0, count_of(c, c.x(0, DType::b8)));
  return true;
}
bool export_any(OnnxExportCall& c) {
  c.set(0, c.b.node("Greater", {count_of(c, c.x(0, DType::b8)), c.b.number(0, DType::i64)}));
  return true;
}
bool export_all(OnnxExportCall& c) {
  const std::string no = c.b.node("Not", {c.x(0, DType::b8)});
  c.set(0, c.b.node("Equal", {count_of(c, no), c.b.number(0, DType::i64)}));
  return true;
}

namespace {
bool arg_best(OnnxExportCall& c, const char* op, size_t output) {
  const auto& a = c.get_attrs<ReduceAttrs>();
  const bool small = c.dtype(0) == DType::b8 || c.dtype(0) == DType::i16;
  std::string x = c.x(0, small ? DType::i32 : wide(c.dtype(0)));
  const Shape& out = c.out[output].shape;
  if (a.dims.empty() || c.rank(0) == 0) {
    x = c.b.node(op, {c.b.reshape(x, Shape{-1})}, {onnx_int("axis", 0), onnx_int("keepdims", 0)});
    c.set(output, out.rank() == 0 ? x : c.b.reshape(x, out));
    return true;
  }
  c.set(output,
        c.b.node(op, {x},
                 {onnx_int("axis", c.axis(a.dims[0].value())), onnx_int("keepdims", a.keepdim)}));
  return true;
}
bool best_dim(OnnxExportCall& c, const char* reduction, const char* position) {
  if (c.wanted(0)) {
    const DType t = c.out[0].dtype;
    const DType w = t == DType::b8 || t == DType::i16 ? DType::i32 : wide(t);
    c.set(0, c.b.cast(c.b.reduce(reduction, c.x(0, w), dims_of(c), keepdim(c)), w, t));
  }
  return !c.wanted(1) || arg_best(c, position, 1);
}
}  // namespace

bool export_argmax(OnnxExportCall& c) { return arg_best(c, "ArgMax", 0); }
bool export_argmin(OnnxExportCall& c) { return arg_best(c, "ArgMin", 0); }
bool export_max_dim(OnnxExportCall& c) { return best_dim(c, "ReduceMax", "ArgMax"); }
bool export_min_dim(OnnxExportCall& c) { return best_dim(c, "ReduceMin", "ArgMin"); }

bool export_var(OnnxExportCall& c) {
  const DType t = c.out[0].dtype, w = wide(t);
  const std::vector<int64_t> dims = dims_of(c);
  const std::string x = c.x(0, w), mean = c.b.reduce("ReduceMean", x, dims, true);
  const std::string apart = c.b.node("Sub", {x, mean});
  const std::string sum =
      c.b.reduce("ReduceSum", c.b.node("Mul", {apart, apart}), dims, keepdim(c));
  Dim n = 1;
  if (dims.empty()) n = c.shape(0).numel();
  for (const int64_t d : dims) n = n * c.shape(0)[static_cast<int>(d)];
  const std::string count = c.b.cast(c.b.reshape(c.b.dim(n), Shape{}), DType::i64, w);
  const std::string over = c.b.node("Max", {c.b.node("Sub", {count, c.x(1, w)}), c.b.number(0, w)});
  c.set(0, c.b.cast(c.b.node("Div", {sum, over}), w, t));
  return true;
}

bool export_sum_to(OnnxExportCall& c) {
  const Shape &in = c.shape(0), &out = c.out[0].shape;
  if (in == out) return export_alias(c);
  const int lead = in.rank() - out.rank();
  std::vector<int64_t> first, kept;
  for (int d = 0; d < lead; ++d) first.push_back(d);
  for (int d = 0; d < out.rank(); ++d)
    if (!(in[d + lead] == out[d])) kept.push_back(d);
  const DType t = c.out[0].dtype, w = wide(t);
  std::string y = c.x(0, w);
  if (!first.empty()) y = c.b.reduce("ReduceSum", y, first, false);
  if (!kept.empty()) y = c.b.reduce("ReduceSum", y, kept, true);
  c.set(0, c.b.cast(y, w, t));
  return true;
}

// ---- scans

bool export_cumsum(OnnxExportCall& c) {
  const DType t = c.out[0].dtype, w = wide(t);
  const std::string axis = c.b.number(c.axis(c.get_attrs<ScanAttrs>().dim), DType::i64);
  if (c.rank(0) == 0) return export_alias(c);
  c.set(0, c.b.cast(c.b.node("CumSum", {c.x(0, w), axis}), w, t));
  return true;
}

namespace {
using Step = Tensor (*)(const Tensor& so_far, const Tensor& x);
// Along dim by a Scan whose state starts with the first slice.
bool running(OnnxExportCall& c, Step step) {
  const int d = c.axis(c.get_attrs<ScanAttrs>().dim);
  if (c.rank(0) == 0 || c.shape(0)[d] == Dim(0)) return false;
  const DType t = c.out[0].dtype;
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor x = movedim(in[0].to(t), d, 0);
    const auto f = [&](const Tensor& s, const Tensor& v) {
      const Tensor y = step(s, v);
      return std::pair(y, y);
    };
    const Tensor first = x.select(0, 0), rest = narrow(x, 0, 1, x.shape(0) - 1);
    const Tensor ys = scan(f, first, rest).second;
    return {movedim(cat({first.unsqueeze(0), ys}, 0), 0, d)};
  });
}
// Value and position of the best so far; a later equal one replaces it.
bool running_best(OnnxExportCall& c, bool largest) {
  const int d = c.axis(c.get_attrs<ScanAttrs>().dim);
  if (c.rank(0) == 0 || c.shape(0)[d] == Dim(0)) return false;
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor x = movedim(in[0], d, 0);
    const Tensor first = x.select(0, 0), rest = narrow(x, 0, 1, x.shape(0) - 1);
    const Tensor place = (first != first).to(DType::i64) * 0;
    const Tensor at = arange_dim(x.shape(0) - 1) + 1;
    const auto f = [&](const std::pair<Tensor, Tensor>& s, const std::pair<Tensor, Tensor>& v) {
      const Tensor better = largest ? v.first >= s.first : v.first <= s.first;
      const Tensor take = is_floating(x.dtype()) ? logical_or(better, isnan(v.first)) : better;
      const auto y = std::pair(where(take, v.first, s.first), where(take, v.second, s.second));
      return std::pair(y, y);
    };
    const auto ys = scan(f, std::pair(first, place), std::pair(rest, at)).second;
    return {movedim(cat({first.unsqueeze(0), ys.first}, 0), 0, d),
            movedim(cat({place.unsqueeze(0), ys.second}, 0), 0, d)};
  });
}
}  // namespace

bool export_cumprod(OnnxExportCall& c) {
  return running(c, [](const Tensor& s, const Tensor& x) { return s * x; });
}
bool export_logcumsumexp(OnnxExportCall& c) {
  return running(c, [](const Tensor& s, const Tensor& x) { return logaddexp(s, x); });
}
bool export_cummax(OnnxExportCall& c) { return running_best(c, true); }
bool export_cummin(OnnxExportCall& c) { return running_best(c, false); }

bool export_linear_scan(OnnxExportCall& c) {
  const auto& a = c.get_attrs<LinearScanAttrs>();
  const int d = c.axis(a.dim);
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor f = movedim(in[0], d, 0), b = movedim(in[1], d, 0);
    const auto step = [](const Tensor& s, const std::pair<Tensor, Tensor>& v) {
      const Tensor y = v.first * s + v.second;
      return std::pair(y, y);
    };
    const Tensor zero = zeros(b.select(0, 0).shape(), b.dtype());
    const Tensor ys = scan(step, zero, std::pair(f, b), {.reverse = a.reverse}).second;
    return {movedim(ys, 0, d)};
  });
}

}  // namespace tandem::onnx
