// SPDX-License-Identifier: Apache-2.0
// The bar on MNIST: the README's net, three epochs, accuracy on the 10,000 test images.
// Usage: bench_mnist [epochs] [seed] [constant|linear]; the IDX files are in $TANDEM_DATA/mnist.
// The learning rate is 1e-3, either constant or falling linearly to 0 over all steps (default).
// Prints one JSON line.
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "bench/models.h"

namespace tandem::bench {
namespace {

double accuracy(Conv& net, const data::MNIST& test) {
  NoGradGuard no_grad;
  net.eval();
  int64_t right = 0;
  for (const auto& [x, y] : data::DataLoader(test, {.batch_size = 500, .seed = 0}))
    right += (net.forward(x).argmax(1) == y).to(int64).sum().item<int64_t>();
  net.train();
  return static_cast<double>(right) / static_cast<double>(test.size());
}

int run(const std::string& folder, int epochs, uint64_t seed, bool linear) {
  init();
  manual_seed(seed);
  data::MNIST train(folder, {.train = true}), test(folder, {.train = false});
  Conv net;
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  data::DataLoader loader(train, {.batch_size = 64, .shuffle = true, .seed = seed});
  auto start = std::chrono::steady_clock::now();
  std::vector<double> by_epoch;
  const double steps = epochs * static_cast<double>((train.size() + 63) / 64);
  double step = 0;
  for (int e = 0; e < epochs; ++e) {
    for (const auto& [x, y] : loader) {
      if (linear) opt.set_lr(1e-3 * (1 - step++ / steps));
      opt.zero_grad();
      Tensor loss = cross_entropy(net.forward(x), y);
      loss.backward();
      opt.step();
    }
    by_epoch.push_back(accuracy(net, test));
    fmt::print(stderr, "epoch {}: {:.2f} %\n", e + 1, 100 * by_epoch.back());
  }
  double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  nlohmann::json j{{"case", "mnist"},     {"epochs", epochs},
                   {"seed", seed},        {"lr", linear ? "linear" : "constant"},
                   {"seconds", s},        {"accuracy", by_epoch.back()},
                   {"by_epoch", by_epoch}};
  fmt::print("{}\n", j.dump());
  return by_epoch.back() >= 0.989 ? 0 : 3;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  const char* data = std::getenv("TANDEM_DATA");
  if (!data) {
    fmt::print(stderr, "bench_mnist: TANDEM_DATA is not set\n");
    return 77;
  }
  try {
    return tandem::bench::run(std::string(data) + "/mnist", argc > 1 ? std::atoi(argv[1]) : 3,
                              argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0,
                              argc <= 3 || std::string(argv[3]) != "constant");
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_mnist: {}\n", e.what());
    return 1;
  }
}
