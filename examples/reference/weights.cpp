// SPDX-License-Identifier: Apache-2.0
// The example of docs/weights.md.
#include <tandem/tandem.h>
using namespace tandem;

int main() {
  init();
  manual_seed(1);
  nn::AnyModule net = models::make("lenet", {.num_classes = 10});
  net.eval();
  Tensor x = randn({2, 1, 28, 28});

  // The ending of the path chooses the format; reading looks at the content.
  weights::save_weights(net.state_dict(), "net.safetensors");
  weights::save_weights(net.state_dict(), "net.pth");
  nn::AnyModule copy = models::make("lenet", {.num_classes = 10});
  weights::load_into(copy, weights::load_weights("net.pth"));
  bool same = equal(net(x), copy.eval()(x));

  // Another head: what does not fit is reported.
  nn::AnyModule other = models::make("lenet", {.num_classes = 3});
  weights::WeightsReport report =
      weights::load_into(other, weights::load_weights("net.safetensors"), {.strict = false});
  print("{}\n", report.to_string());

  onnx::export_onnx(net, x, "net.onnx", {.input_names = {"image"}, .dynamic = {{0, "batch"}}});
  onnx::OnnxModel model = onnx::OnnxModel::load("net.onnx");
  Tensor y = model({randn({5, 1, 28, 28})})[0];
  print("{} gives {}\n", model.inputs()[0].name, y.shape());
  return same && report.misshaped.size() == 2 && y.size(0) == 5 ? 0 : 1;
}
