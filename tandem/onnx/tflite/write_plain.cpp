// SPDX-License-Identifier: Apache-2.0
// ONNX's ops without weights as TFLite's operators.
#include <algorithm>
#include <cmath>

#include "tandem/onnx/tflite/writer_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

TfliteShape turned_shape(const TfliteShape& s) { return {s[0], s[2], s[3], s[1]}; }
/// Where a dimension of [n, c, h, w] lies in [n, h, w, c].
int64_t turned_axis(int64_t d) {
  constexpr int64_t kTo[] = {0, 3, 1, 2};
  return kTo[d];
}

// ---- element by element

/// The tensors of a node's inputs in one order: with channels last if one is there in no other and
/// the rest can be brought to it.
struct Operands {
  std::vector<int> tensors;
  bool last = false;
};
Operands operands(const TfliteNode& n) {
  const TfliteShape y = n.w.shape(n.out());
  Operands o;
  for (const std::string& i : n.n.inputs) o.last |= n.w.prefers_last(i);
  o.last = o.last && y.size() == 4;
  for (const std::string& i : n.n.inputs) {
    const TfliteShape s = n.w.shape(i);
    int64_t count = 1;
    for (const int64_t d : s) count *= d;
    o.last = o.last && (s.size() == 4 || count == 1 || n.w.is_known(i));
  }
  for (const std::string& i : n.n.inputs) {
    const TfliteShape s = n.w.shape(i);
    if (!o.last || s.empty()) {
      o.tensors.push_back(n.w.plain(i));
    } else if (s.size() == 4) {
      o.tensors.push_back(n.w.last(i));
    } else if (n.w.is_known(i)) {
      Shape wide;
      for (size_t d = s.size(); d < 4; ++d) wide.push_back(1);
      for (const int64_t d : s) wide.push_back(d);
      o.tensors.push_back(
          n.w.constant(contiguous(permute(n.w.tensor(i).reshape(wide), {0, 2, 3, 1}))));
    } else {
      o.tensors.push_back(n.w.plain(i));
    }
  }
  return o;
}
int pointwise(const TfliteNode& n, const Operands& o, int code, TfliteOptions options = {},
              std::vector<int> in = {}) {
  const TfliteShape s = n.w.shape(n.out());
  return n.w.op(code, in.empty() ? o.tensors : std::move(in), o.last ? turned_shape(s) : s,
                n.w.type(n.out()), std::move(options));
}

template <int code, int kind, int activation = -1, int version = 1>
void write_same(TfliteNode& n) {
  const Operands o = operands(n);
  n.w.set(n.out(), pointwise(n, o, code, {kind, {}, activation, version}), o.last);
}
template <int code, int8_t fused>
void write_activation(TfliteNode& n) {
  if (fused != 0 && n.w.fuse(n.in(0), fused, n.out())) return;
  const Operands o = operands(n);
  n.w.set(n.out(), pointwise(n, o, code), o.last);
}
// Bounds of 0 and 6, which older exports write so, are activations.
template <int code>
void write_bound(TfliteNode& n) {
  for (const size_t i : {0, 1}) {
    if (n.n.inputs.size() != 2 || !n.w.is_known(n.in(i)) || n.w.tensor(n.in(i)).numel() != 1)
      continue;
    const auto bound = n.w.tensor(n.in(i)).to(DType::f32).reshape({}).item<float>();
    if (code == 55 && bound == 0 && n.w.fuse(n.in(1 - i), 1, n.out())) return;
    if (code == 57 && bound == 6 && n.w.fuse(n.in(1 - i), 3, n.out(), 1)) return;
  }
  write_same<code, 39>(n);
}
void write_clip(TfliteNode& n) {
  const auto bound = [&](size_t i, const char* name, float none) {
    if (!n.has(i)) return n.number(name, none);
    if (!n.w.is_known(n.in(i))) n.w.lacks(n.n, "a computed bound");
    return n.w.tensor(n.in(i)).item<float>();
  };
  const float low = bound(1, "min", -INFINITY), high = bound(2, "max", INFINITY);
  const std::string out = n.out();
  if (low == 0 && high == 6 && n.w.fuse(n.in(0), 3, out)) return;
  const bool last = n.w.prefers_last(n.in(0));
  const TfliteShape s = last ? turned_shape(n.w.shape(out)) : n.w.shape(out);
  int t = last ? n.w.last(n.in(0)) : n.w.plain(n.in(0));
  const OnnxType type = n.w.type(out);
  const auto number = [&](float v) {
    return n.w.constant(full(Shape(), v, info_of(type).carrier));
  };
  if (low == 0 && high == 6) {
    t = n.w.op(21, {t}, s, type);
  } else {
    if (std::isfinite(low)) t = n.w.op(55, {t, number(low)}, s, type, {39});
    if (std::isfinite(high)) t = n.w.op(57, {t, number(high)}, s, type, {39});
  }
  if (!std::isfinite(low) && !std::isfinite(high)) t = n.w.reshaped(t, s);
  n.w.set(out, t, last);
}
void write_leaky_relu(TfliteNode& n) {
  const Operands o = operands(n);
  TfliteOptions options{75};
  options.fields.add<float>(0, n.number("alpha", 0.01f));
  n.w.set(n.out(), pointwise(n, o, 98, std::move(options)), o.last);
}
void write_gelu(TfliteNode& n) {
  const Operands o = operands(n);
  TfliteOptions options{116};
  options.fields.add<uint8_t>(0, n.text("approximate", "none") == "tanh" ? 1 : 0);
  n.w.set(n.out(), pointwise(n, o, 150, std::move(options)), o.last);
}
void write_elu(TfliteNode& n) {
  if (n.number("alpha", 1) != 1) n.w.lacks(n.n, "its alpha");
  write_same<111, 0>(n);
}
// max(0, min(1, alpha * x + beta))
void write_hard_sigmoid(TfliteNode& n) {
  const Operands o = operands(n);
  int t = pointwise(n, o, 18, {21, {}, 0}, {o.tensors[0], n.w.constant(n.number("alpha", 0.2f))});
  t = pointwise(n, o, 0, {11, {}, 0}, {t, n.w.constant(n.number("beta", 0.5f))});
  t = pointwise(n, o, 55, {39}, {t, n.w.constant(0.0f)});
  n.w.set(n.out(), pointwise(n, o, 57, {39}, {t, n.w.constant(1.0f)}), o.last);
}
void write_reciprocal(TfliteNode& n) {
  const Operands o = operands(n);
  n.w.set(n.out(), pointwise(n, o, 42, {29, {}, 0}, {n.w.constant(1.0f), o.tensors[0]}), o.last);
}
// max(x, 0) + log(1 + exp(-|x|))
void write_softplus(TfliteNode& n) {
  const Operands o = operands(n);
  int t = pointwise(n, o, 59, {42}, {pointwise(n, o, 101, {78})});
  t = pointwise(n, o, 47, {33}, {t});
  t = pointwise(n, o, 73, {}, {pointwise(n, o, 0, {11, {}, 0}, {t, n.w.constant(1.0f)})});
  n.w.set(n.out(), pointwise(n, o, 0, {11, {}, 0}, {pointwise(n, o, 19), t}), o.last);
}
// By a polynomial in 1 / (1 + p |x|) (Abramowitz and Stegun, 7.1.26): within 2e-7.
void write_erf(TfliteNode& n) {
  const Operands o = operands(n);
  if (!n.w.for_tflite())
    return n.w.set(n.out(), pointwise(n, o, 32, {.custom = "FlexErf"}), o.last);
  const auto plus = [&](int a, float b) {
    return pointwise(n, o, 0, {11, {}, 0}, {a, n.w.constant(b)});
  };
  const auto times = [&](int a, int b) { return pointwise(n, o, 18, {21, {}, 0}, {a, b}); };
  const int size = pointwise(n, o, 101, {78});
  const int t = pointwise(n, o, 42, {29, {}, 0},
                          {n.w.constant(1.0f), plus(times(size, n.w.constant(0.3275911f)), 1)});
  int sum = times(t, n.w.constant(1.061405429f));
  for (const float k : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    sum = times(t, plus(sum, k));
  const int less = pointwise(n, o, 47, {33}, {pointwise(n, o, 59, {42}, {times(size, size)})});
  const int y = pointwise(n, o, 41, {28, {}, 0}, {n.w.constant(1.0f), times(sum, less)});
  n.w.set(n.out(), times(y, pointwise(n, o, 158, {123})), o.last);
}
void write_cumsum(TfliteNode& n) {
  TfliteOptions o{102};
  o.fields.add<uint8_t>(0, n.attr("exclusive", 0) ? 1 : 0);
  o.fields.add<uint8_t>(1, n.attr("reverse", 0) ? 1 : 0);
  const int axis = n.w.constant(full(Shape(), n.axis(n.list("", 1).at(0)), DType::i32));
  n.w.set(n.out(), n.w.op(128, {n.w.plain(n.in(0)), axis}, n.w.shape(n.out()), n.w.type(n.out()),
                          std::move(o)));
}
void write_cast(TfliteNode& n) {
  const Operands o = operands(n);
  n.w.set(n.out(), pointwise(n, o, 53), o.last);
}

// ---- along a dimension

template <int code>
void write_softmax(TfliteNode& n) {
  const TfliteShape s = n.w.shape(n.in(0));
  const int64_t axis = n.axis(n.attr("axis", -1)), end = static_cast<int64_t>(s.size()) - 1;
  TfliteOptions o{static_cast<uint8_t>(code == 25 ? 9 : 36)};
  if (code == 25) o.fields.add<float>(0, 1);
  if (s.size() == 4 && axis == 1)
    return n.w.set(n.out(),
                   n.w.op(code, {n.w.last(n.in(0))}, turned_shape(s), OnnxType::f32, std::move(o)),
                   true);
  std::vector<int64_t> order;
  TfliteShape turned;
  for (int64_t d = 0; d <= end; ++d) {
    order.push_back(d == axis ? end : d == end ? axis : d);
    turned.push_back(s[static_cast<size_t>(order.back())]);
  }
  int t = n.w.plain(n.in(0));
  if (axis != end) t = n.w.transposed(t, order);
  t = n.w.op(code, {t}, turned, OnnxType::f32, std::move(o));
  n.w.set(n.out(), axis != end ? n.w.transposed(t, order) : t);
}

template <int code>
void write_reduce(TfliteNode& n) {
  std::vector<int64_t> axes = n.list("axes", 1);
  const auto rank = static_cast<int64_t>(n.w.shape(n.in(0)).size());
  if (axes.empty())
    for (int64_t d = 0; d < rank; ++d) axes.push_back(d);
  for (int64_t& a : axes) a = n.axis(a);
  const bool keep = n.attr("keepdims", 1) != 0;
  const bool spatial = axes == std::vector<int64_t>{2, 3} || axes == std::vector<int64_t>{3, 2};
  const bool last = rank == 4 && n.w.prefers_last(n.in(0)) && (keep || spatial);
  if (last)
    for (int64_t& a : axes) a = turned_axis(a);
  TfliteOptions o{27};
  o.fields.add<uint8_t>(0, keep ? 1 : 0);
  const TfliteShape s = n.w.shape(n.out());
  const int x = last ? n.w.last(n.in(0)) : n.w.plain(n.in(0));
  n.w.set(n.out(),
          n.w.op(code, {x, n.w.constant(axes)}, last && keep ? turned_shape(s) : s,
                 n.w.type(n.out()), std::move(o)),
          last && keep);
}
template <int code, int kind>
void write_arg_best(TfliteNode& n) {
  const int64_t axis = n.axis(n.attr("axis", 0));
  TfliteShape s = n.w.shape(n.in(0));
  s.erase(s.begin() + axis);
  TfliteOptions o{kind};
  o.fields.add<int8_t>(0, 4);  // i64
  const int t = n.w.op(code, {n.w.plain(n.in(0)), n.w.constant(full(Shape(), axis, DType::i32))}, s,
                       OnnxType::i64, std::move(o));
  n.w.set(n.out(), n.w.shape(n.out()) == s ? t : n.w.reshaped(t, n.w.shape(n.out())));
}

// ---- places

void write_reshape(TfliteNode& n) {
  n.w.set(n.out(), n.w.reshaped(n.w.plain(n.in(0)), n.w.shape(n.out())));
}
void write_identity(TfliteNode& n) {
  const bool last = n.w.prefers_last(n.in(0));
  n.w.set(n.out(), last ? n.w.last(n.in(0)) : n.w.plain(n.in(0)), last);
}
// Turning an image's channels is a matter of the order that its tensor has.
void write_transpose(TfliteNode& n) {
  std::vector<int64_t> order = n.list("perm");
  const auto rank = static_cast<int64_t>(n.w.shape(n.in(0)).size());
  if (order.empty())
    for (int64_t d = rank - 1; d >= 0; --d) order.push_back(d);
  if (order == std::vector<int64_t>{0, 2, 3, 1}) return n.w.set(n.out(), n.w.last(n.in(0)));
  if (order == std::vector<int64_t>{0, 3, 1, 2}) return n.w.set(n.out(), n.w.plain(n.in(0)), true);
  n.w.set(n.out(), n.w.transposed(n.w.plain(n.in(0)), order));
}
void write_concat(TfliteNode& n) {
  const TfliteShape s = n.w.shape(n.out());
  int64_t axis = n.axis(n.attr("axis", 0));
  bool last = false;
  for (const std::string& i : n.n.inputs) last |= n.w.prefers_last(i);
  last = last && s.size() == 4;
  std::vector<int> in;
  for (const std::string& i : n.n.inputs) in.push_back(last ? n.w.last(i) : n.w.plain(i));
  if (last) axis = turned_axis(axis);
  TfliteOptions o{10};
  o.fields.add<int32_t>(0, static_cast<int32_t>(axis));
  n.w.set(n.out(),
          n.w.op(2, std::move(in), last ? turned_shape(s) : s, n.w.type(n.out()), std::move(o)),
          last);
}
void write_split(TfliteNode& n) {
  int64_t axis = n.axis(n.attr("axis", 0));
  const bool last = n.w.prefers_last(n.in(0));
  std::vector<int64_t> sizes;
  std::vector<TfliteShape> shapes;
  for (const std::string& o : n.n.outputs) {
    const TfliteShape s = n.w.shape(o);
    sizes.push_back(s[static_cast<size_t>(axis)]);
    shapes.push_back(last ? turned_shape(s) : s);
  }
  if (last) axis = turned_axis(axis);
  TfliteOptions o{79};
  o.fields.add<int32_t>(0, static_cast<int32_t>(sizes.size()));
  const std::vector<int> out =
      n.w.op_of_many(102,
                     {last ? n.w.last(n.in(0)) : n.w.plain(n.in(0)), n.w.constant(sizes),
                      n.w.constant(full(Shape(), axis, DType::i32))},
                     shapes, n.w.type(n.in(0)), std::move(o));
  for (size_t i = 0; i < out.size(); ++i) n.w.set(n.out(i), out[i], last);
}
void write_slice(TfliteNode& n) {
  const TfliteShape x = n.w.shape(n.in(0));
  std::vector<int64_t> starts = n.list("starts", 1), ends = n.list("ends", 2),
                       axes = n.list("axes", 3), steps = n.list("steps", 4);
  const bool last = n.w.prefers_last(n.in(0));
  std::vector<int64_t> begin(x.size()), end = x, step(x.size(), 1);
  int64_t open = 0;  // ends before the first element
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto d = static_cast<size_t>(n.axis(axes.empty() ? static_cast<int64_t>(i) : axes[i]));
    const int64_t by = steps.empty() ? 1 : steps[i], size = x[d];
    const auto place = [&](int64_t v, int64_t low, int64_t high) {
      return std::clamp(v < 0 ? v + size : v, low, high);
    };
    step[d] = by;
    begin[d] = by > 0 ? place(starts[i], 0, size) : place(starts[i], 0, size - 1);
    end[d] = by > 0 ? place(ends[i], 0, size) : place(std::max(ends[i], -size - 1), -1, size - 1);
    if (end[d] < 0)
      open |= int64_t{1} << (last ? turned_axis(static_cast<int64_t>(d)) : static_cast<int64_t>(d));
  }
  if (last)
    for (auto* v : {&begin, &end, &step}) *v = turned_shape(*v);
  TfliteOptions o{32};
  o.fields.add<int32_t>(1, static_cast<int32_t>(open));
  const TfliteShape y = n.w.shape(n.out());
  const int t = last ? n.w.last(n.in(0)) : n.w.plain(n.in(0));
  n.w.set(n.out(),
          n.w.op(45, {t, n.w.constant(begin), n.w.constant(end), n.w.constant(step)},
                 last ? turned_shape(y) : y, n.w.type(n.in(0)), std::move(o)),
          last);
}
void write_gather(TfliteNode& n) {
  const int64_t axis = n.axis(n.attr("axis", 0)),
                size = n.w.shape(n.in(0))[static_cast<size_t>(axis)];
  int index = -1;
  if (n.w.is_known(n.in(1))) {
    const Tensor i = n.w.tensor(n.in(1)).to(DType::i64);
    index = n.w.constant(where(i < 0, i + size, i).to(DType::i32));
  } else {
    index = n.w.plain(n.in(1));
  }
  TfliteOptions o{23};
  o.fields.add<int32_t>(0, static_cast<int32_t>(axis));
  n.w.set(n.out(), n.w.op(36, {n.w.plain(n.in(0)), index}, n.w.shape(n.out()), n.w.type(n.in(0)),
                          std::move(o)));
}
void write_pad(TfliteNode& n) {
  const std::string mode = n.text("mode", "constant");
  const std::vector<int64_t> pads = n.list("pads", 1);
  const TfliteShape y = n.w.shape(n.out());
  if (mode == "edge" || mode == "wrap" || n.has(3)) n.w.lacks(n.n, "such padding");
  const bool last = n.w.prefers_last(n.in(0));
  const size_t rank = pads.size() / 2;
  std::vector<int64_t> pairs(2 * rank);
  for (size_t d = 0; d < rank; ++d) {
    if (pads[d] < 0 || pads[rank + d] < 0) n.w.lacks(n.n, "cutting");
    const auto to = last ? static_cast<size_t>(turned_axis(static_cast<int64_t>(d))) : d;
    pairs[2 * to] = pads[d];
    pairs[2 * to + 1] = pads[rank + d];
  }
  const int sizes =
      n.w.constant(tandem::tensor(pairs, {static_cast<int64_t>(rank), 2}).to(DType::i32));
  const int x = last ? n.w.last(n.in(0)) : n.w.plain(n.in(0));
  const TfliteShape s = last ? turned_shape(y) : y;
  const OnnxType type = n.w.type(n.in(0));
  if (mode == "reflect") return n.w.set(n.out(), n.w.op(100, {x, sizes}, s, type, {77}), last);
  const int value =
      n.has(2) ? n.w.plain(n.in(2)) : n.w.constant(zeros(Shape(), info_of(type).carrier));
  n.w.set(n.out(), n.w.op(60, {x, sizes, value}, s, type, {43}), last);
}
template <int code, int kind, int version>
void write_spread(TfliteNode& n) {  // Expand, Tile
  const TfliteShape y = n.w.shape(n.out());
  const std::vector<int64_t> list = code == 69 ? n.list("", 1) : y;
  n.w.set(n.out(), n.w.op(code, {n.w.plain(n.in(0)), n.w.constant(list)}, y, n.w.type(n.in(0)),
                          {kind, {}, -1, version}));
}

}  // namespace

std::vector<TfliteWriteRow> tflite_plain_writes() {
  return {{"Add", write_same<0, 11, 0>},
          {"Sub", write_same<41, 28, 0>},
          {"Mul", write_same<18, 21, 0>},
          {"Div", write_same<42, 29, 0>},
          {"Pow", write_same<78, 56>},
          {"Max", write_bound<55>},
          {"Min", write_bound<57>},
          {"Equal", write_same<71, 53>},
          {"Less", write_same<58, 41>},
          {"LessOrEqual", write_same<63, 46>},
          {"Greater", write_same<61, 44>},
          {"GreaterOrEqual", write_same<62, 45>},
          {"And", write_same<86, 61>},
          {"Or", write_same<84, 60>},
          {"Not", write_same<87, 62>},
          {"Where", write_same<123, 98>},
          {"Relu", write_activation<19, 1>},
          {"Tanh", write_activation<28, 0>},
          {"Sigmoid", write_activation<14, 0>},
          {"HardSwish", write_same<117, 91>},
          {"PRelu", write_same<54, 0>},
          {"Abs", write_same<101, 78>},
          {"Neg", write_same<59, 42>},
          {"Exp", write_same<47, 33>},
          {"Log", write_same<73, 0>},
          {"Sqrt", write_same<75, 0>},
          {"Floor", write_same<8, 0>},
          {"Ceil", write_same<104, 0>},
          {"Round", write_same<116, 0>},
          {"Sin", write_same<66, 0>},
          {"Cos", write_same<108, 84>},
          {"Sign", write_same<158, 123>},
          {"Elu", write_elu},
          {"Gelu", write_gelu},
          {"LeakyRelu", write_leaky_relu},
          {"HardSigmoid", write_hard_sigmoid},
          {"Softplus", write_softplus},
          {"Reciprocal", write_reciprocal},
          {"Clip", write_clip},
          {"Erf", write_erf},
          {"CumSum", write_cumsum},
          {"Cast", write_cast},
          {"Softmax", write_softmax<25>},
          {"LogSoftmax", write_softmax<50>},
          {"ReduceMean", write_reduce<40>},
          {"ReduceSum", write_reduce<74>},
          {"ReduceMax", write_reduce<82>},
          {"ReduceMin", write_reduce<89>},
          {"ReduceProd", write_reduce<81>},
          {"ArgMax", write_arg_best<56, 40>},
          {"ArgMin", write_arg_best<79, 57>},
          {"Reshape", write_reshape},
          {"Flatten", write_reshape},
          {"Squeeze", write_reshape},
          {"Unsqueeze", write_reshape},
          {"Identity", write_identity},
          {"Transpose", write_transpose},
          {"Concat", write_concat},
          {"Split", write_split},
          {"Slice", write_slice},
          {"Gather", write_gather},
          {"Pad", write_pad},
          {"Expand", write_spread<130, 104, 2>},
          {"Tile", write_spread<69, 51, 1>}};
}

}  // namespace tandem::onnx
