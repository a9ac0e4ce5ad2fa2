// SPDX-License-Identifier: Apache-2.0
// The functions of keras.ops by class: those that are a node with the same arguments, and those
// that take settings.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "tandem/onnx/tensorflow/keras_operation_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

using io::Json;

namespace {

using Op = KerasOperation;
using Values = KerasBuilder::Values;

/// ONNX's op with axes as second input, over all dimensions without one.
template <int kind>  // 0: mean, 1: sum, 2: max, 3: min, 4: product, 5: log sum exp
Values op_reduce(Op& o) {
  static constexpr const char* kNames[] = {"ReduceMean", "ReduceSum",  "ReduceMax",
                                           "ReduceMin",  "ReduceProd", "ReduceLogSumExp"};
  Values in{o.x()};
  if (!o.whole_input()) in.push_back(o.ints(o.c.list("axis", 1, 0)));
  return {o.onnx(kNames[kind], std::move(in), {onnx_int("keepdims", o.c.flag("keepdims", false))})};
}
template <bool all>
Values op_any(Op& o) {
  Values in{o.onnx("Cast", {o.x()}, {onnx_int("to", 9)})};
  if (!o.whole_input()) in.push_back(o.ints(o.c.list("axis", 1, 0)));
  return {o.onnx(all ? "ReduceMin" : "ReduceMax", std::move(in),
                 {onnx_int("keepdims", o.c.flag("keepdims", false))})};
}
template <bool root>
Values op_variance(Op& o) {
  const Values axes = o.whole_input() ? Values{} : Values{o.ints(o.c.list("axis", 1, 0))};
  const auto average = [&](const std::string& v, bool keep) {
    Values in{v};
    in.insert(in.end(), axes.begin(), axes.end());
    return o.onnx("ReduceMean", std::move(in), {onnx_int("keepdims", keep)});
  };
  const std::string apart = o.tf("Sub", {o.x(), average(o.x(), true)});
  const std::string y = average(o.tf("Square", {apart}), o.c.flag("keepdims", false));
  return {root ? o.tf("Sqrt", {y}) : y};
}
template <bool largest>
Values op_arg(Op& o) {
  std::string x = o.x();
  if (o.whole_input()) x = o.onnx("Reshape", {x, o.ints({-1})});
  const std::string y = o.onnx(
      largest ? "ArgMax" : "ArgMin", {x},
      {onnx_int("axis", o.c.whole("axis", 0)), onnx_int("keepdims", o.c.flag("keepdims", false))});
  return {o.onnx("Cast", {y}, {onnx_int("to", 6)})};
}
Values op_norm(Op& o) {
  const Json* order = o.c.find("ord");
  const bool two = !order || order->is_null() || io::text_of(order) == "fro" ||
                   (order->as_int() && *order->as_int() == 2);
  const std::vector<int64_t> axes =
      o.whole_input() ? std::vector<int64_t>{} : o.c.list("axis", 1, 0);
  if (!two || (order && order->as_int() && axes.size() == 2)) o.lacks("this norm");
  Values in{o.x()};
  if (!axes.empty()) in.push_back(o.ints(axes));
  return {o.onnx("ReduceL2", std::move(in), {onnx_int("keepdims", o.c.flag("keepdims", false))})};
}
Values op_normalize(Op& o) {
  if (o.c.whole("order", 2) != 2) o.lacks("an order other than 2");
  const std::string all =
      o.onnx("ReduceSum", {o.tf("Square", {o.x()}), o.ints(o.c.list("axis", 1, -1))});
  return {o.keras("UnitScale", {o.x(), all}, {onnx_float("epsilon", o.c.number("epsilon", 1e-7))})};
}

// ---- shapes

Values op_same(Op& o) { return {o.x()}; }
// `x` in the type that the operation's "dtype" names, if it names one.
std::string in_dtype(Op& o, std::string x) {
  const Json* dtype = o.c.find("dtype");
  if (!dtype || dtype->is_null()) return x;
  const int64_t to = keras_dtype(io::text_of(dtype));
  if (to == 0) o.lacks("this type");
  return o.onnx("Cast", {std::move(x)}, {onnx_int("to", to)});
}
Values op_cast(Op& o) { return {in_dtype(o, o.x())}; }
Values op_reshape(Op& o) {
  const Json* shape = o.c.find("newshape");
  std::vector<int64_t> to;
  if (shape && shape->as_array())
    for (const Json& d : *shape->as_array()) to.push_back(d.as_int() ? *d.as_int() : -1);
  else
    to = o.c.list("newshape", 1, -1);
  return {o.onnx("Reshape", {o.x(), o.ints(to)})};
}
Values op_ravel(Op& o) { return {o.onnx("Reshape", {o.x(), o.ints({-1})})}; }
Values op_transpose(Op& o) {
  OnnxAttributes a;
  if (const Json* axes = o.c.find("axes"); axes && axes->as_array())
    a.push_back(onnx_ints("perm", o.c.list("axes", 0, 0)));
  return {o.onnx("Transpose", {o.x()}, std::move(a))};
}
Values op_swap(Op& o) {
  if (o.c.rank == 0) o.lacks("an input of unknown rank");
  std::vector<int64_t> order;
  for (int64_t d = 0; d < o.c.rank; ++d) order.push_back(d);
  const auto at = [&](const char* key) {
    return static_cast<size_t>(normalize_dim(o.c.whole(key, 0), o.c.rank));
  };
  std::swap(order[at("axis1")], order[at("axis2")]);
  return {o.onnx("Transpose", {o.x()}, {onnx_ints("perm", order)})};
}
Values op_move(Op& o) {
  return {o.keras("MoveAxis", {o.x()},
                  {onnx_ints("source", o.c.list("source", 1, 0)),
                   onnx_ints("destination", o.c.list("destination", 1, 0))})};
}
Values op_expand(Op& o) { return {o.onnx("Unsqueeze", {o.x(), o.ints(o.c.list("axis", 1, 0))})}; }
Values op_squeeze(Op& o) {
  Values in{o.x()};
  if (!o.whole_input()) in.push_back(o.ints(o.c.list("axis", 1, 0)));
  return {o.onnx("Squeeze", std::move(in))};
}
Values op_concat(Op& o) {
  o.x();
  return {o.onnx("Concat", o.in, {onnx_int("axis", o.c.whole("axis", 0))})};
}
Values op_stack(Op& o) { return {o.tf("Pack", o.in, {onnx_int("axis", o.c.whole("axis", 0))})}; }
Values op_split(Op& o) {
  const int64_t axis = o.c.whole("axis", 0);
  std::vector<int64_t> sizes;
  const Json* by = o.c.find("indices_or_sections");
  if (by && by->as_int()) {
    const int64_t n = *by->as_int();
    if (n < 1 || n > 1024) o.lacks("this number of parts");
    sizes.assign(static_cast<size_t>(n), 0);
  } else {
    int64_t before = 0;
    const std::vector<int64_t> places = o.c.list("indices_or_sections", 0, 0);
    check_onnx_list(places);
    for (const int64_t i : places) {
      sizes.push_back(i - before);
      before = i;
    }
    sizes.push_back(-1);
  }
  const bool equal = by && by->as_int();
  const std::string at = o.ints({axis});
  const auto n = static_cast<int64_t>(sizes.size());
  return o.b.several(o.c, equal ? "Split" : "SplitV",
                     equal ? Values{at, o.x()} : Values{o.x(), o.ints(sizes), at},
                     {onnx_int("num_split", n)}, sizes.size());
}
Values op_unstack(Op& o) {
  const int64_t n = o.c.whole("num", 0);
  if (n < 1 || n > 1024) o.lacks("an unknown number of parts");
  return o.b.several(o.c, "Unpack", {o.x()}, {onnx_int("axis", o.c.whole("axis", 0))},
                     static_cast<size_t>(n));
}
Values op_flip(Op& o) {
  if (o.whole_input()) o.lacks("no axis");
  return {o.tf("ReverseV2", {o.x(), o.ints(o.c.list("axis", 1, 0))})};
}
Values op_roll(Op& o) {
  if (o.whole_input()) o.lacks("no axis");
  return {o.tf("Roll", {o.x(), o.ints(o.c.list("shift", 1, 0)), o.ints(o.c.list("axis", 1, 0))})};
}
Values op_tile(Op& o) {
  return {o.keras("Tile", {o.x()}, {onnx_ints("repeats", o.c.list("repeats", 1, 1))})};
}
Values op_repeat(Op& o) {
  const Json* n = o.c.find("repeats");
  if (o.whole_input() || !n || !n->as_int()) o.lacks("this repetition");
  return {o.keras("Repeat", {o.x()},
                  {onnx_int("repeats", *n->as_int()), onnx_int("axis", o.c.whole("axis", 0))})};
}
Values op_broadcast(Op& o) {
  const Json* shape = o.c.find("shape");
  std::vector<int64_t> to;
  if (shape && shape->as_array())
    for (const Json& d : *shape->as_array()) {
      if (!d.as_int()) o.lacks("an open shape");
      to.push_back(*d.as_int());
    }
  return {o.onnx("Expand", {o.x(), o.ints(to)})};
}
Values op_pad(Op& o) {
  std::vector<int64_t> before, after;
  if (const Json* width = o.c.find("pad_width"); width && width->as_array())
    for (const Json& d : *width->as_array()) {
      const Json::Array* pair = d.as_array();
      if (!pair || pair->size() != 2) o.lacks("these pads");
      before.push_back(io::whole_of(&(*pair)[0]));
      after.push_back(io::whole_of(&(*pair)[1]));
    }
  if (before.empty()) o.lacks("these pads");
  const std::string mode = o.c.text("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "symmetric")
    o.lacks(fmt::format("the mode '{}'", mode));
  if (mode == "symmetric") {
    std::vector<int64_t> pairs;
    for (size_t d = 0; d < before.size(); ++d) pairs.insert(pairs.end(), {before[d], after[d]});
    return {o.tf("MirrorPad", {o.x(), o.ints(pairs)}, {onnx_text("mode", "SYMMETRIC")})};
  }
  before.insert(before.end(), after.begin(), after.end());
  Values in{o.x(), o.ints(before)};
  if (o.in.size() > 1) in.push_back(o.in[1]);
  return {o.onnx("Pad", std::move(in), {onnx_text("mode", mode)})};
}
Values op_slices(Op& o) { return o.slices(); }
Values op_take(Op& o) {
  std::string x = o.x();
  if (o.whole_input()) x = o.onnx("Reshape", {x, o.ints({-1})});
  const std::string at = o.onnx("Cast", {o.x(1)}, {onnx_int("to", 7)});
  return {o.onnx("Gather", {x, at}, {onnx_int("axis", o.c.whole("axis", 0))})};
}
Values op_take_along(Op& o) {
  const std::string at = o.onnx("Cast", {o.x(1)}, {onnx_int("to", 7)});
  if (o.whole_input()) o.lacks("no axis");
  return {o.onnx("GatherElements", {o.x(), at}, {onnx_int("axis", o.c.whole("axis", 0))})};
}

// ---- arithmetic with settings

Values op_clip(Op& o) {
  return {o.tf("ClipByValue",
               {o.x(), o.b.number(o.c.number("x_min", 0)), o.b.number(o.c.number("x_max", 0))})};
}
Values op_einsum(Op& o) {
  o.x();
  return {o.onnx("Einsum", o.in, {onnx_text("equation", o.c.text("subscripts", ""))})};
}
Values op_tensordot(Op& o) {
  const Json* axes = o.c.find("axes");
  std::vector<int64_t> left, right;
  const Json::Array* both = axes ? axes->as_array() : nullptr;
  if (both && both->size() == 2) {
    const auto side = [](const Json& j) {
      std::vector<int64_t> out;
      if (j.as_array())
        for (const Json& v : *j.as_array()) out.push_back(io::whole_of(&v));
      else
        out.push_back(io::whole_of(&j));
      return out;
    };
    left = side((*both)[0]);
    right = side((*both)[1]);
  } else {
    const int64_t n = o.c.whole("axes", 2);
    if (n < 0 || n > 8) o.lacks("these axes");
    for (int64_t i = 0; i < n; ++i) {
      left.push_back(i - n);
      right.push_back(i);
    }
  }
  return {
      o.keras("Tensordot", {o.x(), o.x(1)}, {onnx_ints("left", left), onnx_ints("right", right)})};
}
template <int kind>  // 0: sum, 1: product
Values op_cumulative(Op& o) {
  std::string x = o.x();
  if (o.whole_input()) x = o.onnx("Reshape", {x, o.ints({-1})});
  return {o.tf(kind == 0 ? "Cumsum" : "Cumprod", {x, o.ints({o.c.whole("axis", 0)})})};
}
Values op_sort(Op& o) {
  return {o.keras(o.c.type == "Sort" ? "Sort" : "Argsort", {o.x()},
                  {onnx_int("axis", o.c.whole("axis", -1))})};
}
Values op_top_k(Op& o) {
  return o.b.several(o.c, "TopKV2", {o.x(), o.ints({o.c.whole("k", 1)})}, {}, 2);
}
template <bool upper>
Values op_triangle(Op& o) {
  return {o.onnx("Trilu", {o.x(), o.ints({o.c.whole("k", 0)})}, {onnx_int("upper", upper)})};
}
Values op_one_hot(Op& o) {
  const int64_t to = keras_dtype(o.c.text("dtype", "float32"));
  if (to == 0 || o.c.flag("sparse", false)) o.lacks("this result");
  const std::string y =
      o.tf("OneHot", {o.x(), o.ints({o.c.whole("num_classes", 0)}), o.b.number(1), o.b.number(0)},
           {onnx_int("axis", o.c.whole("axis", -1))});
  return {o.onnx("Cast", {y}, {onnx_int("to", to)})};
}
Values op_softmax(Op& o) {
  const bool log = o.c.type == "LogSoftmax";
  std::string x = o.x();
  if (o.whole_input() && o.c.find("axis")) o.lacks("no axis");
  return {o.onnx(log ? "LogSoftmax" : "Softmax", {x}, {onnx_int("axis", o.c.whole("axis", -1))})};
}
Values op_gelu(Op& o) {
  return {o.onnx("Gelu", {o.x()},
                 {onnx_text("approximate", o.c.flag("approximate", true) ? "tanh" : "none")})};
}
Values op_hard_sigmoid(Op& o) {
  return {o.onnx("HardSigmoid", {o.x()}, {onnx_float("alpha", 1.0 / 6)})};
}
Values op_hard_tanh(Op& o) { return {o.tf("ClipByValue", {o.x(), o.b.number(-1), o.b.number(1)})}; }
// With "rms_scaling" the input keeps its mean and gets no offset, but the variance is around it.
Values op_layer_norm(Op& o) {
  const bool rms = o.c.type == "RMSNorm", scaling = o.c.flag("rms_scaling", false);
  const std::string over = o.ints(o.c.list("axis", 1, -1));
  const std::string centred =
      rms ? o.x() : o.tf("Sub", {o.x(), o.onnx("ReduceMean", {o.x(), over})});
  const std::string power = o.onnx("ReduceMean", {o.tf("Square", {centred}), over});
  const std::string by =
      o.tf("Rsqrt", {o.tf("AddV2", {power, o.b.number(o.c.number("epsilon", 1e-7))})});
  std::string y = o.tf("Mul", {scaling ? o.x() : centred, by});
  const auto value = [&](const char* key, size_t i) {  // "None" among the arguments takes a place
    std::string found = KerasBuilder::named_value(o.c, key);
    const auto given = [](const Json* a) { return !a || !a->is_null(); };
    const std::vector<const Json*>& all = o.c.arguments;
    if (i < all.size() && given(all[i]))
      found = o.x(static_cast<size_t>(
          std::count_if(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), given)));
    return found;
  };
  const std::string scale = value(rms ? "scale" : "gamma", 1), offset = value("beta", 2);
  if (!scale.empty()) y = o.tf("Mul", {y, scale});
  if (!offset.empty() && !scaling) y = o.tf("AddV2", {y, offset});
  return {y};
}
Values op_average(Op& o) {
  if (o.in.size() > 1) o.lacks("weights");
  return op_reduce<0>(o);
}
Values op_full_like(Op& o) {
  const std::string one = o.tf(o.c.type == "OnesLike" ? "OnesLike" : "ZerosLike", {o.x()});
  return {in_dtype(o, o.c.type == "FullLike" ? o.tf("AddV2", {one, o.x(1)}) : one)};
}
Values op_round(Op& o) {
  if (o.c.whole("decimals", 0) != 0) o.lacks("decimals");
  return {o.tf("Round", {o.x()})};
}
Values op_diff(Op& o) {
  if (o.c.whole("n", 1) != 1) o.lacks("a difference of higher order");
  const std::string axis = o.ints({o.c.whole("axis", -1)});
  const auto part = [&](int64_t from, int64_t to) {
    return o.onnx("Slice", {o.x(), o.ints({from}), o.ints({to}), axis});
  };
  return {o.tf("Sub", {part(1, int64_t{1} << 40), part(0, -1)})};
}
Values op_resize(Op& o) {
  const std::string mode = o.c.text("interpolation", "bilinear");
  if ((mode != "bilinear" && mode != "nearest" && mode != "bicubic") ||
      o.c.flag("antialias", false) || o.c.text("data_format", "channels_last") != "channels_last")
    o.lacks("this way of resizing");
  return {o.keras("Resizing", {o.x()},
                  {onnx_ints("size", o.c.list("size", 2, 0)), onnx_text("mode", mode),
                   onnx_int("crop", o.c.flag("crop_to_aspect_ratio", false)),
                   onnx_int("pad", o.c.flag("pad_to_aspect_ratio", false)),
                   onnx_float("fill_value", o.c.number("fill_value", 0))})};
}

}  // namespace

// table: a row for each class
const KerasOperation::Row* KerasOperation::find(std::string_view type) {
  const auto own = [](const char* op) { return Row{op, kOnnxTandem, nullptr}; };
  const auto by = [](Function f, Takes takes = Takes::numbers) {
    return Row{nullptr, "", f, takes};
  };
  const auto floats = [](const char* op) { return Row{op, kOnnxTf, nullptr, Takes::floats}; };
  const auto with = [](const char* op, const char* domain, const char* key, double otherwise,
                       const char* attribute = "") {
    return Row{op, domain, nullptr, Takes::numbers, key, attribute, otherwise};
  };
  static const std::unordered_map<std::string_view, Row> all = {
      {"Add", {"AddV2"}},
      {"Subtract", {"Sub"}},
      {"Multiply", {"Mul"}},
      {"Divide", floats("RealDiv")},
      {"TrueDivide", floats("RealDiv")},
      {"DivideNoNan", {"DivNoNan"}},
      {"FloorDivide", {"FloorDiv"}},
      {"Mod", {"FloorMod"}},
      {"Fmod", {"TruncateMod"}},
      {"Power", floats("Pow")},
      {"Maximum", {"Maximum"}},
      {"Minimum", {"Minimum"}},
      {"Fmax", own("fmax")},
      {"Fmin", own("fmin")},
      {"Hypot", own("hypot")},
      {"Logaddexp", own("logaddexp")},
      {"Logaddexp2", own("logaddexp2")},
      {"Heaviside", own("heaviside")},
      {"Arctan2", {"Atan2"}},
      {"Matmul", {"BatchMatMulV2"}},
      {"Equal", {"Equal"}},
      {"NotEqual", {"NotEqual"}},
      {"Greater", {"Greater"}},
      {"GreaterEqual", {"GreaterEqual"}},
      {"Less", {"Less"}},
      {"LessEqual", {"LessEqual"}},
      {"LogicalAnd", {"LogicalAnd"}},
      {"LogicalOr", {"LogicalOr"}},
      {"LogicalXor", own("logical_xor")},
      {"LogicalNot", {"LogicalNot"}},
      {"BitwiseAnd", {"BitwiseAnd"}},
      {"BitwiseOr", {"BitwiseOr"}},
      {"BitwiseXor", {"BitwiseXor"}},
      {"BitwiseInvert", {"Invert"}},
      {"BitwiseNot", {"Invert"}},
      {"Where", {"SelectV2"}},
      {"Relu", {"Relu"}},
      {"Relu6", {"Relu6"}},
      {"Sigmoid", {"Sigmoid"}},
      {"LogSigmoid", own("logsigmoid")},
      {"Silu", own("silu")},
      {"HardSilu", own("hardswish")},
      {"HardTanh", by(op_hard_tanh)},
      {"TanhShrink", own("tanhshrink")},
      {"HardSigmoid", by(op_hard_sigmoid)},
      {"Softplus", {"Softplus"}},
      {"Softsign", {"Softsign"}},
      {"Selu", {"Selu"}},
      {"SparsePlus", {"SparsePlus", kOnnxKeras}},
      {"SparseSigmoid", {"SparseSigmoid", kOnnxKeras}},
      {"LeakyRelu", with("LeakyRelu", kOnnxTf, "negative_slope", 0.2, "alpha")},
      {"Elu", with("Elu", "", "alpha", 1, "alpha")},
      {"Celu", with("celu", kOnnxTandem, "alpha", 1)},
      {"SoftShrink", with("softshrink", kOnnxTandem, "threshold", 0.5)},
      {"HardShrink", with("hardshrink", kOnnxTandem, "threshold", 0.5)},
      {"Squareplus", with("Squareplus", kOnnxKeras, "b", 4, "b")},
      {"Gelu", by(op_gelu)},
      {"Softmax", by(op_softmax)},
      {"LogSoftmax", by(op_softmax)},
      {"Tanh", {"Tanh"}},
      {"Exp", {"Exp"}},
      {"Exp2", own("exp2")},
      {"Expm1", {"Expm1"}},
      {"Log", {"Log"}},
      {"Log2", own("log2")},
      {"Log10", own("log10")},
      {"Log1p", {"Log1p"}},
      {"Sqrt", {"Sqrt"}},
      {"Rsqrt", {"Rsqrt"}},
      {"Square", {"Square"}},
      {"Reciprocal", {"Reciprocal"}},
      {"Absolute", {"Abs"}},
      {"Abs", {"Abs"}},
      {"Fabs", {"Abs"}},
      {"Negative", {"Neg"}},
      {"Sign", {"Sign"}},
      {"Signbit", own("signbit")},
      {"Erf", {"Erf"}},
      {"Erfc", {"Erfc"}},
      {"Erfinv", {"Erfinv"}},
      {"Sin", {"Sin"}},
      {"Cos", {"Cos"}},
      {"Tan", {"Tan"}},
      {"Sinh", {"Sinh"}},
      {"Cosh", {"Cosh"}},
      {"Sinc", own("sinc")},
      {"Arcsin", {"Asin"}},
      {"Arccos", {"Acos"}},
      {"Arctan", {"Atan"}},
      {"Arcsinh", {"Asinh"}},
      {"Arccosh", {"Acosh"}},
      {"Arctanh", {"Atanh"}},
      {"Deg2rad", own("deg2rad")},
      {"Rad2deg", own("rad2deg")},
      {"Floor", {"Floor"}},
      {"Ceil", {"Ceil"}},
      {"Trunc", own("trunc")},
      {"Round", by(op_round)},
      {"Isnan", {"IsNan"}},
      {"Isinf", {"IsInf"}},
      {"Isfinite", {"IsFinite"}},
      {"Isposinf", own("isposinf")},
      {"Isneginf", own("isneginf")},
      {"I0", own("i0")},
      {"Mean", by(op_reduce<0>)},
      {"Average", by(op_average)},
      {"Sum", by(op_reduce<1>)},
      {"Max", by(op_reduce<2>)},
      {"Amax", by(op_reduce<2>)},
      {"Min", by(op_reduce<3>)},
      {"Amin", by(op_reduce<3>)},
      {"Prod", by(op_reduce<4>)},
      {"Logsumexp", by(op_reduce<5>)},
      {"Any", by(op_any<false>)},
      {"All", by(op_any<true>)},
      {"Var", by(op_variance<false>)},
      {"Std", by(op_variance<true>)},
      {"Argmax", by(op_arg<true>)},
      {"Argmin", by(op_arg<false>)},
      {"Norm", by(op_norm)},
      {"Normalize", by(op_normalize)},
      {"LayerNorm", by(op_layer_norm)},
      {"RMSNorm", by(op_layer_norm)},
      {"StopGradient", by(op_same)},
      {"Copy", by(op_same)},
      {"ConvertToTensor", by(op_cast)},
      {"Cast", by(op_cast)},
      {"Reshape", by(op_reshape)},
      {"Ravel", by(op_ravel)},
      {"Transpose", by(op_transpose)},
      {"Swapaxes", by(op_swap)},
      {"Moveaxis", by(op_move)},
      {"ExpandDims", by(op_expand)},
      {"Squeeze", by(op_squeeze)},
      {"Concatenate", by(op_concat)},
      {"Stack", by(op_stack)},
      {"Split", by(op_split)},
      {"ArraySplit", by(op_split)},
      {"Unstack", by(op_unstack)},
      {"Flip", by(op_flip)},
      {"Roll", by(op_roll)},
      {"Tile", by(op_tile)},
      {"Repeat", by(op_repeat)},
      {"BroadcastTo", by(op_broadcast)},
      {"Pad", by(op_pad)},
      {"GetItem", by(op_slices, Takes::indices)},
      {"Take", by(op_take, Takes::lists)},
      {"TakeAlongAxis", by(op_take_along)},
      {"Clip", by(op_clip)},
      {"Einsum", by(op_einsum)},
      {"Tensordot", by(op_tensordot)},
      {"Cumsum", by(op_cumulative<0>)},
      {"Cumprod", by(op_cumulative<1>)},
      {"Sort", by(op_sort)},
      {"Argsort", by(op_sort)},
      {"TopK", by(op_top_k)},
      {"Tril", by(op_triangle<false>)},
      {"Triu", by(op_triangle<true>)},
      {"OneHot", by(op_one_hot)},
      {"ZerosLike", by(op_full_like)},
      {"OnesLike", by(op_full_like)},
      {"FullLike", by(op_full_like)},
      {"Diff", by(op_diff)},
      {"Resize", by(op_resize)},
  };
  const auto it = all.find(type);
  return it == all.end() ? nullptr : &it->second;
}

}  // namespace tandem::onnx
