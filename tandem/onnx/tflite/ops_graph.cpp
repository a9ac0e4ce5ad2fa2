// SPDX-License-Identifier: Apache-2.0
// TFLite's operators as ops of TensorFlow.js, for those whose usual nodes are ONNX's. Filters
// become [h, w, i, o], those of depthwise convolutions [h, w, c, m], matrices [in, out].
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

OnnxAttributes graph_window(const TfliteCall& c, int dilation) {
  const std::vector<int64_t> strides{1, c.option(2), c.option(1), 1},
      dilations{1, c.option(dilation + 1, 1), c.option(dilation, 1), 1};
  const std::vector<int64_t> ones(4, 1);
  if (strides != ones && dilations != ones) c.lacks("a stride together with a dilation");
  return {onnx_ints("strides", strides), onnx_ints("dilations", dilations),
          onnx_text("padding", c.padding(0))};
}

/// A value as a vector, if it is a constant.
std::string as_vector(const TfliteCall& c, size_t i, const std::string& name) {
  const OnnxValue* v = c.b.constant_of(name);
  if (!v || v->shape().size() == 1) return name;
  return c.b.constant(c.tensor(i).name, OnnxValue(v->tensor().reshape({-1})));
}

// A bias of codes without scales of its own counts in steps of x's scale times the weight's.
std::string biased(const TfliteCall& c, std::string y, int64_t channels) {
  if (!c.has(2)) return y;
  const TfliteTensor &x = c.tensor(0), &w = c.tensor(1), &b = c.tensor(2);
  const bool known = c.is_constant(2);
  int64_t count = 1;
  for (const int64_t d : b.shape) count *= d;
  if (known && count != channels)
    c.b.fail(fmt::format("a {} has the bias '{}' of {} numbers for {} channels", c.row.name, b.name,
                         count, channels));
  std::string bias;
  if (b.scales.scale.empty() && x.is_quantised() && w.is_quantised() && known) {
    TfliteScales steps = w.scales;
    if (steps.scale.size() > 1 && static_cast<int64_t>(steps.scale.size()) != channels)
      c.b.fail(fmt::format("a {} has the weight '{}' of {} scales for {} channels", c.row.name,
                           w.name, steps.scale.size(), channels));
    for (float& s : steps.scale) s *= scale_of(x);
    std::fill(steps.zero.begin(), steps.zero.end(), 0);
    steps.axis = 0;
    const Tensor codes = c.constant(2).tensor().reshape({-1});
    bias = c.b.constant(b.name, OnnxValue(tflite_numbers(codes, steps)));
  } else {
    bias = as_vector(c, 2, c.wide(2));
  }
  return c.tf("BiasAdd", {std::move(y), std::move(bias)});
}

/// The groups of a convolution whose filter fits its image.
int64_t fitting_groups(const TfliteCall& c) {
  const int64_t groups = tflite_groups(c);
  const TfliteTensor &x = c.tensor(0), &w = c.tensor(1);
  for (size_t d = 0; d < 4; ++d) tflite_size(c, w, 4, d);
  const bool open = x.signature.size() == 4 && x.signature[3] < 0;
  const bool depthwise = c.row.graph == tflite_graph_depthwise;
  const bool fits = depthwise
                        ? w.shape[0] == 1 && w.shape[3] % groups == 0
                        : w.shape[0] % groups == 0 && (open || x.shape[3] == groups * w.shape[3]);
  if (!fits)
    c.b.fail(fmt::format("a {} has the filter '{}' of {} for an image of {} channels", c.row.name,
                         w.name, fmt::join(w.shape, " x "), x.shape[3]));
  return groups;
}

}  // namespace

// There are no groups: each is a convolution of its own.
void tflite_graph_conv(TfliteCall& c) {
  const int64_t groups = fitting_groups(c), channels = c.tensor(1).shape[0];
  const std::string filter = c.turned(1, {1, 2, 3, 0});
  const OnnxAttributes window = graph_window(c, 4);
  if (groups == 1) return c.set(0, biased(c, c.tf("Conv2D", {c.x(0), filter}, window), channels));
  const OnnxValue* known = c.b.constant_of(filter);
  if (!known) c.lacks("a computed filter of groups");
  const std::vector<Tensor> filters = chunk(known->tensor(), groups, 3);
  const Names parts = c.many("Split", kOnnxTf, {c.number(3, OnnxType::i32), c.x(0)},
                             static_cast<size_t>(groups), {onnx_int("num_split", groups)});
  Names results;
  for (size_t i = 0; i < parts.size(); ++i)
    results.push_back(c.tf(
        "Conv2D", {parts[i], c.b.constant(c.tensor(1).name, OnnxValue(contiguous(filters.at(i))))},
        window));
  results.push_back(c.number(3, OnnxType::i32));
  c.set(0, biased(c, c.tf("ConcatV2", std::move(results)), channels));
}

void tflite_graph_depthwise(TfliteCall& c) {
  const int64_t groups = fitting_groups(c), channels = c.tensor(1).shape[3];
  const OnnxValue* known = c.b.constant_of(c.wide(1));
  if (!known) c.lacks("a computed filter");
  const Tensor t = known->tensor();
  const std::string filter =
      c.b.constant(c.tensor(1).name, OnnxValue(t.reshape({t.size(1), t.size(2), groups, -1})));
  c.set(0,
        biased(c, c.tf("DepthwiseConv2dNative", {c.x(0), filter}, graph_window(c, 5)), channels));
}

// x [.., k] times [o, k] is a matmul of rows; with `keep_num_dims` the result has x's dimensions.
void tflite_graph_matrix(TfliteCall& c) {
  if (c.small(1) != 0) c.lacks("a shuffled weight");
  const TfliteTensor &x = c.tensor(0), &y = c.result(0);
  const int64_t channels = tflite_size(c, c.tensor(1), 2, 0), k = tflite_size(c, c.tensor(1), 2, 1);
  const std::string weight = c.turned(1, {1, 0});
  std::string rows = c.x(0);
  if (x.shape.size() != 2 || x.shape[1] != k) rows = c.tf("Reshape", {rows, c.list({-1, k})});
  c.set(0, biased(c, c.tf("MatMul", {rows, weight}), channels));
  if (!c.flag(2) || x.shape.size() == 2) return;
  std::vector<int64_t> sizes = y.signature.size() == y.shape.size() ? y.signature : y.shape;
  if (std::count(sizes.begin(), sizes.end(), -1) > 1) c.lacks("a result whose sizes are open");
  // The activation comes before the new shape, so that it can be fused.
  const std::string done = c.b.value(c.scope, c.op.out[0], false);
  c.b.set_value(c.scope, c.op.out[0], c.tf("Reshape", {done, c.list(sizes)}), false);
}

// x (1 + erf(x / sqrt(2))) / 2, or with tanh in the place of erf.
void tflite_graph_gelu(TfliteCall& c) {
  const std::string x = c.x(0);
  const auto times = [&](const std::string& a, double b) { return c.tf("Mul", {a, c.number(b)}); };
  std::string curve;
  if (c.flag(0)) {
    const std::string cube = c.tf("Mul", {c.tf("Square", {x}), x});
    const std::string inside = c.tf("AddV2", {x, times(cube, 0.044715)});
    curve = c.tf("Tanh", {times(inside, std::sqrt(2 / std::numbers::pi))});
  } else {
    curve = c.tf("Erf", {times(x, std::numbers::sqrt2 / 2)});
  }
  c.set(0, c.tf("Mul", {times(x, 0.5), c.tf("AddV2", {curve, c.number(1)})}));
}

// x min(max(x + 3, 0), 6) / 6
void tflite_graph_hard_swish(TfliteCall& c) {
  const std::string x = c.x(0);
  const std::string part = c.tf("Relu6", {c.tf("AddV2", {x, c.number(3)})});
  c.set(0, c.tf("Mul", {c.tf("Mul", {x, part}), c.number(1.0 / 6)}));
}

// Factors of channels are a vector, as fused ops take them.
void tflite_graph_prelu(TfliteCall& c) {
  std::string alpha = c.wide(1);
  const std::vector<int64_t>& s = c.tensor(1).shape;
  if (std::all_of(s.begin(), s.end() - !s.empty(), [](int64_t d) { return d == 1; }) && !s.empty())
    alpha = as_vector(c, 1, alpha);
  c.set(0, c.tf("Prelu", {c.x(0), alpha}));
}

}  // namespace tandem::onnx
