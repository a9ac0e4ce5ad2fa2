// SPDX-License-Identifier: Apache-2.0
// Chapter 2. Classification.
// The text around this program is docs/tutorial/02-classification.md.
#include <tandem/tandem.h>
using namespace tandem;

// n points on each of three arms: x [3 n, 2], y [3 n].
data::TensorDataset spirals(int64_t n) {
  std::vector<Tensor> x, y;
  for (int arm = 0; arm < 3; ++arm) {
    Tensor r = linspace(0.1, 1, n);
    Tensor angle = 4 * r + arm * 2.0944 + 0.1 * randn({n});
    x.push_back(stack({r * sin(angle), r * cos(angle)}, 1));
    y.push_back(full({n}, arm));
  }
  return {cat(x), cat(y)};
}

int main() {
  init();
  manual_seed(1);
  data::TensorDataset train = spirals(200), test = spirals(50);
  nn::Sequential net(nn::Linear(2, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                     nn::Linear(64, 3));
  optim::AdamW opt(net.parameters(), {.lr = 5e-3});

  data::DataLoader batches(train, {.batch_size = 50, .shuffle = true, .seed = 1});
  for (int epoch = 0; epoch < 60; ++epoch) {
    double sum = 0;
    for (auto [x, y] : batches) {
      Tensor loss = cross_entropy(net(x), y);
      opt.zero_grad();
      loss.backward();
      opt.step();
      sum += loss.item<float>();
    }
    if (epoch % 20 == 19) print("epoch {:2} loss {:.4f}\n", epoch + 1, sum / batches.size());
  }

  NoGradGuard no_grad;
  Tensor scores = net(test.x());
  float accuracy = (scores.argmax(1) == test.y()).to(float32).mean().item<float>();
  print("accuracy {:.3f}\n", accuracy);
  print(softmax(scores, 1).slice(0, 0, 2));
  return accuracy > 0.95f ? 0 : 1;
}
