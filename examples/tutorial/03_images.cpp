// SPDX-License-Identifier: Apache-2.0
// Chapter 3. Images.
// The text around this program is docs/tutorial/03-images.md.
#include <tandem/tandem.h>
using namespace tandem;

struct Net : nn::Module {
  nn::Conv2d conv1{1, 16, 3, {.padding = 1}}, conv2{16, 32, 3, {.padding = 1}};
  nn::BatchNorm2d norm{32};
  nn::Dropout drop{0.2};
  nn::Linear out{32 * 4 * 4, 10};
  Net() { TD_REGISTER(conv1, conv2, norm, drop, out); }

  Tensor forward(Tensor x) {                  // [n, 1, 8, 8]
    x = relu(conv1(x));                       // [n, 16, 8, 8]
    x = max_pool2d(relu(norm(conv2(x))), 2);  // [n, 32, 4, 4]
    return out(drop(x.flatten(1)));           // [n, 10]
  }
};

float accuracy(Net& net, const data::Digits& digits) {
  NoGradGuard no_grad;
  net.eval();
  float right = (net(digits.x()).argmax(1) == digits.y()).to(float32).mean().item<float>();
  net.train();
  return right;
}

int main() {
  init();
  manual_seed(2);
  data::Digits train({.train = true}), test({.train = false});
  Net net;
  print(net);
  constexpr int kEpochs = 6;
  data::DataLoader batches(train, {.batch_size = 32, .shuffle = true, .seed = 2});
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  optim::OneCycleLR schedule(opt, {.max_lr = 1e-2, .total_steps = kEpochs * batches.size()});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (auto [x, y] : batches) {
      Tensor loss = cross_entropy(net(x), y, {.label_smoothing = 0.05});
      opt.zero_grad();
      loss.backward();
      opt.step();
      schedule.step();
    }
    print("epoch {} accuracy {:.3f}\n", epoch + 1, accuracy(net, test));
  }
  return accuracy(net, test) > 0.96f ? 0 : 1;
}
