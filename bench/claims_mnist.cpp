// SPDX-License-Identifier: Apache-2.0
// Tandem's side of bench/claims_mnist: the net of `make demo` for some steps on MNIST.
// Usage: bench_claims_mnist FOLDER STEPS THREADS eager|compiled
#include <cstdlib>
#include <string>

#include "bench/models.h"

using namespace tandem;

int main(int argc, char** argv) {
  if (argc != 5) {
    print("usage: bench_claims_mnist FOLDER STEPS THREADS eager|compiled\n");
    return 2;
  }
  init();
  set_num_threads(std::atoi(argv[3]));
  manual_seed(0);
  bench::Conv net;
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
