// SPDX-License-Identifier: Apache-2.0
// Keras's layers that prepare data, and wrappers of other layers. What depends on the sizes of the
// input is left to rows of the domain "keras".
#include <fmt/format.h>

#include "tandem/onnx/tensorflow/keras_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

using io::Json;
using Values = KerasBuilder::Values;

Values KerasBuilder::adaptive_pool(const KerasCall& c) {
  return {node(c, "AdaptivePooling", {c.in()},
               {onnx_ints("output_size", c.list("output_size", 1, 1)),
                onnx_int("max", c.type.starts_with("AdaptiveMax"))},
               kOnnxKeras)};
}

Values KerasBuilder::resizing(const KerasCall& c) {
  const std::string mode = c.text("interpolation", "bilinear");
  if (mode != "bilinear" && mode != "nearest" && mode != "bicubic")
    lacks(c, fmt::format("the interpolation '{}'", mode));
  if (c.flag("antialias", false)) lacks(c, "antialiasing");
  return {node(c, "Resizing", {c.in()},
               {onnx_ints("size", {c.whole("height", 0), c.whole("width", 0)}),
                onnx_text("mode", mode), onnx_int("crop", c.flag("crop_to_aspect_ratio", false)),
                onnx_int("pad", c.flag("pad_to_aspect_ratio", false)),
                onnx_float("fill_value", c.number("fill_value", 0))},
               kOnnxKeras)};
}

Values KerasBuilder::center_crop(const KerasCall& c) {
  const std::vector<int64_t> size{c.whole("height", 0), c.whole("width", 0)};
  return {node(c, "CenterCrop", {c.in()}, {onnx_ints("size", size)}, kOnnxKeras)};
}

// The darkest value of each image and channel becomes 0, the brightest 255, or what the range says.
Values KerasBuilder::auto_contrast(const KerasCall& c) {
  const std::vector<double> range = c.numbers("value_range");
  if (range.size() != 2) lacks(c, "this range of values");
  const std::string x = onnx(c, "Cast", {c.in()}, {onnx_int("to", 1)}), axes = numbers({1, 2}),
                    low = onnx(c, "ReduceMin", {x, axes}), high = onnx(c, "ReduceMax", {x, axes});
  const std::string part =
      node(c, "RealDiv", {node(c, "Sub", {x, low}), node(c, "Sub", {high, low})});
  const std::string y =
      node(c, "AddV2", {node(c, "Mul", {part, number(range[1] - range[0])}), number(range[0])});
  return {node(c, "SelectV2", {node(c, "IsNan", {y}), x, y})};
}

Values KerasBuilder::category_encoding(const KerasCall& c) {
  if (c.flag("sparse", false)) lacks(c, "a sparse result");
  Values in{c.in()};
  if (const std::string w = named_value(c, "count_weights"); !w.empty()) in.push_back(w);
  return {node(c, "CategoryEncoding", std::move(in),
               {onnx_int("depth", c.whole("num_tokens", 0)),
                onnx_text("mode", c.text("output_mode", "multi_hot"))},
               kOnnxKeras)};
}

Values KerasBuilder::discretization(const KerasCall& c) {
  if (c.flag("sparse", false)) lacks(c, "a sparse result");
  const std::vector<double> bounds = c.numbers("bin_boundaries");
  if (bounds.empty()) lacks(c, "a layer without boundaries");
  const auto n = static_cast<int64_t>(bounds.size());
  const Tensor all = tensor(bounds, Shape(n)).to(DType::f32);
  const std::string bin =
      node(c, "Digitize", {c.in(), constant(c.name + "/boundaries", all)}, {}, kOnnxKeras);
  const std::string mode = c.text("output_mode", "int");
  if (mode == "int") return {bin};
  return {node(c, "CategoryEncoding", {bin}, {onnx_int("depth", n + 1), onnx_text("mode", mode)},
               kOnnxKeras)};
}

// ---- layers that hold others

// At inference the weights are those of the layer as training left them.
Values KerasBuilder::wrapped(const KerasCall& c) {
  const Json* layer = c.find("layer");
  const Json* config = layer ? layer->find("config") : nullptr;
  const std::string name = config ? io::text_of(config->find("name")) : "";
  return call_inner(c, layer, c.inputs, c.weights.child("layer", name));
}

Values KerasBuilder::pipeline(const KerasCall& c) {
  const Json* layers = c.find("layers");
  Values values = c.inputs;
  if (layers && layers->as_array())
    for (const Json& l : *layers->as_array())
      values = call_inner(c, &l, values, c.weights.child("layers", ""));
  return values;
}

}  // namespace tandem::onnx
