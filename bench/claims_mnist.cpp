// SPDX-License-Identifier: Apache-2.0
// Tandem's side of bench/claims_mnist: the net of `make demo` for some steps on MNIST.
// Usage: bench_claims_mnist FOLDER STEPS THREADS eager|compiled
#include <tandem/tandem.h>

#include <cstdlib>
#include <string>

namespace {

using namespace tandem;

struct Net : nn::Module {
  nn::Conv2d conv1{1, 32, 3}, conv2{32, 64, 3};
  nn::Linear fc1{9216, 128}, fc2{128, 10};
  Net() { TD_REGISTER(conv1, conv2, fc1, fc2); }
  Tensor forward(Tensor x) {
    x = relu(conv1(x));
    x = max_pool2d(relu(conv2(x)), 2);
    return fc2(relu(fc1(x.flatten(1))));
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    print("usage: bench_claims_mnist FOLDER STEPS THREADS eager|compiled\n");
    return 2;
  }
  init();
  set_num_threads(std::atoi(argv[3]));
  manual_seed(0);
  Net net;
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  const auto step = [&](const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    Tensor loss = cross_entropy(net.forward(x), y);
    loss.backward();
    opt.step();
    return loss.detach();
  };
  auto compiled = compile(step);
  const bool is_compiled = std::string(argv[4]) == "compiled";
  const int steps = std::atoi(argv[2]);
  data::DataLoader loader(data::MNIST(argv[1], {.train = true}),
                          {.batch_size = 64, .shuffle = true, .drop_last = true, .seed = 0});
  Tensor loss;
  for (int i = 0; i < steps;)
    for (auto [x, y] : loader) {
      loss = is_compiled ? compiled(x, y) : step(x, y);
      if (++i == steps) break;
    }
  print("loss {:.4f}\n", loss.item<float>());
  return 0;
}
