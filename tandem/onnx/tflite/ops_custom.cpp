// SPDX-License-Identifier: Apache-2.0
// Custom operators, by name: those that published models have, and an op of TensorFlow's own.
#include <algorithm>
#include <cstring>

#include "tandem/io/flexbuffer.h"
#include "tandem/onnx/tflite/builder_internal.h"

namespace tandem::onnx {
namespace {

// MediaPipe's transposed convolution: the image, the filter [o, h, w, i], the bias. Its options are
// the struct that the interpreter keeps for TRANSPOSE_CONV: padding, strides.
void tflite_conv_transpose_bias(TfliteCall& c) {
  int32_t options[3];
  if (c.op.custom_options.size() < sizeof options) c.b.fail("a custom operator has no options");
  std::memcpy(options, c.op.custom_options.data(), sizeof options);
  const std::vector<int64_t>& sizes = c.result(0).shape;
  if (sizes.size() != 4) c.lacks("a result whose sizes are open");
  const std::string y =
      c.tf("Conv2DBackpropInput", {c.list(sizes), c.turned(1, {1, 2, 0, 3}), c.x(0)},
           {onnx_ints("strides", {1, options[2], options[1], 1}),
            onnx_text("padding", options[0] == 1 ? "SAME" : "VALID")});
  c.set(0, c.tf("AddV2", {y, c.wide(2)}));
}

// Boxes from differences to anchors, and the best of them that overlap little.
void tflite_detections(TfliteCall& c) {
  const std::map<std::string, double> options =
      io::flexbuffer_numbers(c.op.custom_options, c.b.what());
  const auto option = [&](const char* name, double otherwise) {
    const auto it = options.find(name);
    return std::clamp(it == options.end() ? otherwise : it->second, -1e9, 1e9);
  };
  OnnxAttributes a;
  for (const char* name : {"max_detections", "max_classes_per_detection", "num_classes"})
    a.push_back(onnx_int(name, static_cast<int64_t>(option(name, 1))));
  a.push_back(onnx_int("use_regular_nms", option("use_regular_nms", 0) != 0));
  a.push_back(
      onnx_int("detections_per_class", static_cast<int64_t>(option("detections_per_class", 100))));
  for (const char* name : {"nms_score_threshold", "nms_iou_threshold"})
    a.push_back(onnx_float(name, option(name, 0)));
  for (const char* name : {"y_scale", "x_scale", "h_scale", "w_scale"})
    a.push_back(onnx_float(name, option(name, 1)));
  const Names out = c.many("Detections", kOnnxTflite, {c.x(0), c.x(1), c.x(2)}, 4, std::move(a));
  for (size_t i = 0; i < out.size(); ++i) c.set(i, out[i]);
}

void tflite_erf(TfliteCall& c) { c.set(0, c.tf("Erf", {c.x(0)})); }

}  // namespace

std::span<const TfliteRow> tflite_custom_rows() {
  static constexpr TfliteRow kRows[] = {
      {kTfliteCustom, "Convolution2DTransposeBias", tflite_conv_transpose_bias},
      {kTfliteCustom, "TFLite_Detection_PostProcess", tflite_detections},
      {kTfliteCustom, "FlexErf", tflite_erf},
  };
  return kRows;
}

}  // namespace tandem::onnx
