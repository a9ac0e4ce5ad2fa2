// SPDX-License-Identifier: Apache-2.0
// Chapter 1. Linear regression.
// The text around this program is docs/tutorial/01-linear-regression.md.
#include <tandem/tandem.h>
using namespace tandem;
int main() {
  init();
  manual_seed(0);
  Tensor x = rand({256, 1}), y = 3 * x + 2 + 0.1 * randn({256, 1});
  nn::Linear line(1, 1);
  optim::SGD opt(line.parameters(), {.lr = 0.5});
  for (int i = 0; i < 200; ++i) {
    Tensor loss = mse_loss(line(x), y);
    opt.zero_grad();
    loss.backward();
    opt.step();
  }
  float weight = line.weight.value().item<float>(), bias = line.bias.value().item<float>();
  print("y = {:.2f} x + {:.2f}\n", weight, bias);
  return std::abs(weight - 3) < 0.1f && std::abs(bias - 2) < 0.1f ? 0 : 1;
}
