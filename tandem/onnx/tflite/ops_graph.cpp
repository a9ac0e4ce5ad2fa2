// SPDX-License-Identifier: Apache-2.0
// TFLite's operators as ops of TensorFlow.js, for those whose usual nodes are ONNX's. Filters
// become [h, w, i, o], those of depthwise convolutions [h, w, c, m], matrices [in, out].
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

// A bias of codes without scales of its own counts in steps of x's scale times the weight's.
std::string biased(const TfliteCall& c, std::string y) {
  if (!c.has(2)) return y;
  const TfliteTensor &x = c.tensor(0), &w = c.tensor(1), &b = c.tensor(2);
  std::string bias;
  if (b.scales.scale.empty() && x.is_quantised() && w.is_quantised() && c.is_constant(2)) {
    TfliteScales steps = w.scales;
    for (float& s : steps.scale) s *= scale_of(x);
    std::fill(steps.zero.begin(), steps.zero.end(), 0);
    steps.axis = 0;
    bias = c.b.constant(b.name, OnnxValue(tflite_numbers(c.constant(2).tensor(), steps)));
  } else {
    bias = c.wide(2);
  }
  return c.tf("BiasAdd", {std::move(y), std::move(bias)});
}

}  // namespace

// There are no groups: each is a convolution of its own.
void tflite_graph_conv(TfliteCall& c) {
  const int64_t groups = tflite_groups(c);
  const std::string filter = c.turned(1, {1, 2, 3, 0});
  const OnnxAttributes window = graph_window(c, 4);
  if (groups == 1) return c.set(0, biased(c, c.tf("Conv2D", {c.x(0), filter}, window)));
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
  c.set(0, biased(c, c.tf("ConcatV2", std::move(results))));
}

void tflite_graph_depthwise(TfliteCall& c) {
  const int64_t channels = tflite_groups(c);
  const OnnxValue* known = c.b.constant_of(c.wide(1));
  if (!known) c.lacks("a computed filter");
  const Tensor t = known->tensor();
  const std::string filter =
      c.b.constant(c.tensor(1).name, OnnxValue(t.reshape({t.size(1), t.size(2), channels, -1})));
  c.set(0, biased(c, c.tf("DepthwiseConv2dNative", {c.x(0), filter}, graph_window(c, 5))));
}

// x [.., k] times [o, k] is a matmul of rows; with `keep_num_dims` the result has x's dimensions.
void tflite_graph_matrix(TfliteCall& c) {
  if (c.small(1) != 0) c.lacks("a shuffled weight");
  const TfliteTensor &x = c.tensor(0), &y = c.result(0);
  const std::string weight = c.turned(1, {1, 0});
  const int64_t k = c.tensor(1).shape.at(1);
  std::string rows = c.x(0);
  if (x.shape.size() != 2 || x.shape[1] != k) rows = c.tf("Reshape", {rows, c.list({-1, k})});
  c.set(0, biased(c, c.tf("MatMul", {rows, weight})));
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
  if (const OnnxValue* v = c.b.constant_of(alpha)) {
    const Tensor t = v->tensor();
    if (t.dim() > 1 && t.numel() == t.size(-1))
      alpha = c.b.constant(c.tensor(1).name, OnnxValue(t.reshape({-1})));
  }
  c.set(0, c.tf("Prelu", {c.x(0), alpha}));
}

}  // namespace tandem::onnx
