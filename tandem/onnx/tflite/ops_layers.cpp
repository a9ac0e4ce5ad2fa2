// SPDX-License-Identifier: Apache-2.0
// TFLite's operators with weights, and its pools. Images have their channels last and filters are
// [o, h, w, i]; depthwise ones are [1, h, w, o].
#include <algorithm>

#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

/// Input i, which holds real numbers, as f32.
std::string TfliteCall::wide(size_t i) const {
  if (tensor(i).type == OnnxType::string)
    b.fail(fmt::format("a {} takes '{}' of strings", row.name, tensor(i).name));
  // The bias of a layer that computes with codes is a sum of products of codes.
  if (as_numbers && !tensor(i).is_quantised() && !tensor(i).scales.scale.empty() && is_constant(i))
    return b.constant(tensor(i).name,
                      OnnxValue(tflite_numbers(constant(i).tensor(), tensor(i).scales)));
  if (tensor(i).type == OnnxType::f32 || as_numbers) return x(i);
  if (!is_constant(i))
    return tf("Cast", {x(i)}, {onnx_int("DstT", static_cast<int64_t>(OnnxType::f32))});
  return b.constant(tensor(i).name, OnnxValue(constant(i).tensor().to(DType::f32)));
}

std::string TfliteCall::turned(size_t i, const std::vector<int64_t>& order) const {
  const std::string name = wide(i);
  const OnnxValue* v = b.constant_of(name);
  if (!v) return tf("Transpose", {name, list(order)});
  const Tensor t = v->tensor();
  if (t.dim() != static_cast<int>(order.size()))
    b.fail(fmt::format("tensor '{}' has {} dimensions, expected {}", tensor(i).name, t.dim(),
                       order.size()));
  return b.constant(tensor(i).name, OnnxValue(contiguous(permute(t, IntList(order))), v->type()));
}

const char* TfliteCall::padding(int field) const {
  switch (small(field)) {
    case 0:
      return "SAME";
    case 1:
      return "VALID";
    default:
      b.fail(fmt::format("a {} has the padding {}", row.name, small(field)));
  }
}

OnnxAttributes tflite_window(const TfliteCall& c, int stride, int dilation, int64_t group) {
  const bool same = std::string_view(c.padding(0)) == "SAME";
  return {onnx_ints("strides", {c.option(stride + 1), c.option(stride)}),
          onnx_ints("dilations", {c.option(dilation + 1, 1), c.option(dilation, 1)}),
          onnx_int("group", group), onnx_text("auto_pad", same ? "SAME_UPPER" : "VALID")};
}

int64_t tflite_size(const TfliteCall& c, const TfliteTensor& t, size_t rank, size_t d) {
  if (t.shape.size() != rank || t.shape[d] < 1)
    c.b.fail(
        fmt::format("a {} takes tensor '{}' of {} dimensions", c.row.name, t.name, t.shape.size()));
  return t.shape[d];
}

int64_t tflite_groups(const TfliteCall& c) {
  constexpr int kDepthwise = 4;
  const int64_t channels = tflite_size(c, c.tensor(0), 4, 3),
                last = tflite_size(c, c.tensor(1), 4, 3);
  return c.row.code == kDepthwise ? channels : std::max<int64_t>(1, channels / last);
}

namespace {

using Codes = TfliteCodes;

/// An ONNX convolution of images: channels first on the way.
void conv_node(TfliteCall& c, const std::string& filter, OnnxAttributes window) {
  Names in{c.onnx("Transpose", {c.x(0)}, {onnx_ints("perm", {0, 3, 1, 2})}), filter};
  if (c.has(2)) in.push_back(c.wide(2));
  const std::string y = c.onnx("Conv", std::move(in), std::move(window));
  c.set(0, c.onnx("Transpose", {y}, {onnx_ints("perm", {0, 2, 3, 1})}));
}

void tflite_conv(TfliteCall& c) {
  conv_node(c, c.turned(1, {0, 3, 1, 2}), tflite_window(c, 1, 4, tflite_groups(c)));
}
void tflite_depthwise_conv(TfliteCall& c) {
  conv_node(c, c.turned(1, {3, 0, 1, 2}), tflite_window(c, 1, 5, tflite_groups(c)));
}

// Its first input is the size of the result.
void tflite_conv_transpose(TfliteCall& c) {
  std::string y = c.tf(
      "Conv2DBackpropInput", {c.x(0), c.turned(1, {1, 2, 0, 3}), c.x(2)},
      {onnx_ints("strides", {1, c.option(2), c.option(1), 1}), onnx_text("padding", c.padding(0))});
  if (c.has(3)) y = c.tf("AddV2", {y, c.wide(3)});
  c.set(0, y);
}

void tflite_conv3d(TfliteCall& c) {
  std::string y =
      c.tf("Conv3D", {c.x(0), c.wide(1)},
           {onnx_ints("strides", {1, c.option(1), c.option(3), c.option(2), 1}),
            onnx_ints("dilations", {1, c.option(5, 1), c.option(7, 1), c.option(6, 1), 1}),
            onnx_text("padding", c.padding(0))});
  if (c.has(2)) y = c.tf("AddV2", {y, c.wide(2)});
  c.set(0, y);
}

// x [.., k] times [o, k]; without `keep_num_dims` the result is a matrix.
void tflite_fully_connected(TfliteCall& c) {
  if (c.small(1) != 0) c.lacks("a shuffled weight");
  const int64_t k = tflite_size(c, c.tensor(1), 2, 1);
  const size_t rank = c.tensor(0).shape.size();
  std::string x = c.x(0);
  const bool keep = c.flag(2) && rank != 2;
  if (!keep && (rank != 2 || c.tensor(0).shape[1] != k)) x = c.tf("Reshape", {x, c.list({-1, k})});
  if (!keep) {
    Names in{x, c.wide(1)};
    if (c.has(2)) in.push_back(c.wide(2));
    return c.set(0, c.onnx("Gemm", std::move(in), {onnx_int("transB", 1)}));
  }
  std::string y = c.onnx("MatMul", {x, c.turned(1, {1, 0})});
  if (c.has(2)) y = c.tf("AddV2", {y, c.wide(2)});
  c.set(0, y);
}

std::string pool_node(TfliteCall& c, const char* op, const std::string& x) {
  return c.tf(
      op, {x},
      {onnx_ints("ksize", {1, c.option(4), c.option(3), 1}),
       onnx_ints("strides", {1, c.option(2), c.option(1), 1}), onnx_text("padding", c.padding(0))});
}
void tflite_pool(TfliteCall& c) { c.set(0, pool_node(c, c.row.node, c.x(0))); }
void tflite_l2_pool(TfliteCall& c) {
  c.set(0, c.tf("Sqrt", {pool_node(c, "AvgPool", c.tf("Square", {c.x(0)}))}));
}

// A matrix of inputs whose results are remembered for some steps: each filter weighs its own last
// ones, and `rank` filters add up to a unit. The memory [n, filters * steps] is a variable.
void tflite_svdf(TfliteCall& c) {
  const int64_t filters = tflite_size(c, c.tensor(1), 2, 0),
                steps = tflite_size(c, c.tensor(2), 2, 1), rank = std::max<int64_t>(1, c.option(0));
  const std::string now = c.onnx("Gemm", {c.x(0), c.wide(1)}, {onnx_int("transB", 1)});
  const std::string before = c.tf("Reshape", {c.x(4), c.list({-1, filters, steps})});
  const std::string kept = c.onnx("Slice", {before, c.list({1}), c.list({steps}), c.list({2})});
  const std::string after =
      c.onnx("Concat", {kept, c.onnx("Unsqueeze", {now, c.list({2})})}, {onnx_int("axis", 2)});
  std::string y = c.tf("Sum", {c.tf("Mul", {after, c.wide(2)}), c.list({2})});
  y = c.tf("Sum", {c.tf("Reshape", {y, c.list({-1, filters / rank, rank})}), c.list({2})});
  if (c.has(3)) y = c.tf("AddV2", {y, c.wide(3)});
  c.b.set_value(c.scope, c.op.in[4], c.tf("Reshape", {after, c.list({-1, filters * steps})}),
                false);
  c.set(0, y);
}

}  // namespace

std::span<const TfliteRow> tflite_layer_rows() {
  static constexpr TfliteRow kRows[] = {
      {3, "CONV_2D", tflite_conv, nullptr, 3, Codes::numbers, tflite_conv_codes, tflite_graph_conv},
      {4, "DEPTHWISE_CONV_2D", tflite_depthwise_conv, nullptr, 4, Codes::numbers, tflite_conv_codes,
       tflite_graph_depthwise},
      {67, "TRANSPOSE_CONV", tflite_conv_transpose, nullptr, 3, Codes::numbers,
       tflite_transposed_codes},
      {132, "CONV_3D", tflite_conv3d, nullptr, 4},
      {9, "FULLY_CONNECTED", tflite_fully_connected, nullptr, 0, Codes::numbers,
       tflite_matrix_codes, tflite_graph_matrix},
      {1, "AVERAGE_POOL_2D", tflite_pool, "AvgPool", 5, Codes::numbers, tflite_average_codes},
      {17, "MAX_POOL_2D", tflite_pool, "MaxPool", 5, Codes::moved, tflite_raw_codes},
      {12, "L2_POOL_2D", tflite_l2_pool, nullptr, 5},
      {27, "SVDF", tflite_svdf, nullptr, 1, Codes::numbers, tflite_memory_codes},
  };
  return kRows;
}

}  // namespace tandem::onnx
