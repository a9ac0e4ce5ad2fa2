// SPDX-License-Identifier: Apache-2.0
// A model of another framework: what it holds, run op by op and compiled, its weights. docs/onnx.md
// shows it.
#include <tandem/tandem.h>

using namespace tandem;

int main(int argc, char** argv) {
  init();
  manual_seed(1);
  const std::string path = argc > 1 ? argv[1] : "net.onnx";
  if (argc == 1) {  // no file is given: one of Tandem's own nets
    nn::AnyModule net = models::make("lenet", {.num_classes = 10});
    net.eval();
    onnx::export_onnx(net, randn({2, 1, 28, 28}), path,
                      {.input_names = {"image"}, .dynamic = {{0, "batch"}}});
  }

  const onnx::OnnxModel model = onnx::OnnxModel::load(path);
  const onnx::OnnxSummary about = onnx::summarize(model);
  print("{} parameters in {} nodes\n", about.parameters, about.nodes);
  std::vector<Tensor> inputs;
  for (const onnx::OnnxPort& port : model.inputs()) {
    Shape shape;
    for (const int64_t size : port.type.dims) shape.push_back(size < 0 ? 4 : size);  // -1: open
    print("{} {}\n", port.name, shape);
    inputs.push_back(randn(shape));
  }

  const std::vector<Tensor> outputs = model(inputs);  // op by op
  onnx::OnnxRunner compiled(model);
  const bool same = allclose(compiled(inputs)[0], outputs[0], 1e-4, 1e-5);
  print("{} {}, {}\n", model.outputs()[0].name, outputs[0].shape(), to_string(compiled.way()));

  weights::save_weights(onnx::weights_of(model), "net.safetensors");
  return same ? 0 : 1;
}
