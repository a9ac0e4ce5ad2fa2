// SPDX-License-Identifier: Apache-2.0
// The README's net on MNIST compared with PyTorch: same initial weights (by formula), same order,
// same optimizer. Losses of steps 1-40 within 1e-4, means of steps 101-150 and 151-200 within 1 %.
#include <cmath>
#include <cstdlib>

#include "bench/models.h"
#include "tandem/base/files/file.h"
#include "tandem/base/philox.h"
#include "tandem/init.h"
#include "tandem/io/idx.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {
namespace {

// The head of make_mnist_golden.py states the formula.
Tensor initial(uint32_t p, const Shape& shape, double fan_in) {
  std::vector<float> w(static_cast<size_t>(shape.numel().value()));
  auto bound = static_cast<float>(1.0 / std::sqrt(fan_in));
  for (size_t i = 0; i < w.size(); ++i) {
    w[i] = bound * (2 * uniform_f32(philox(1000 + p, 0, i).w[0]) - 1);
  }
  return tensor(w, shape);
}

double mean_of(const std::vector<double>& v, size_t from, size_t to) {
  double s = 0;
  for (size_t i = from; i < to; ++i) s += v[i];
  return s / static_cast<double>(to - from);
}

TEST(GoldenMnist, SlowLossesOf200Steps) {
  const char* data = std::getenv("TANDEM_DATA");
  std::string images = std::string(data ? data : "") + "/mnist/train-images-idx3-ubyte.gz";
  if (!data || !file_exists(images)) GTEST_SKIP() << "TANDEM_DATA holds no mnist folder";
  init();
  manual_seed(0);
  io::Json golden = io::parse_json(read_file(folder() + "mnist_losses.json"), "mnist_losses.json");
  std::vector<double> want;
  for (const io::Json& v : *golden.find("losses_f64")->as_array()) want.push_back(*v.as_double());

  bench::Conv net;
  const double fan[] = {9, 288, 9216, 128};
  const io::Json* check = golden.find("weights_check");
  auto named = net.named_parameters();
  ASSERT_EQ(named.size(), 8u);
  for (uint32_t p = 0; p < 8; ++p) {
    auto& [name, w] = named[p];
    w.assign_(initial(p, w.shape(), fan[p / 2]));
    const io::Json* expected = check->find(name);
    ASSERT_TRUE(expected) << name;
    double total = 0;
    for (double v : w.value().to_vector<double>()) total += v;
    EXPECT_NEAR(total, *expected->find("sum_f64")->as_double(), 1e-9) << name;
    for (size_t i = 0; i < 3; ++i)
      ASSERT_EQ(w.value().to_vector<double>()[i],
                *(*expected->find("first")->as_array())[i].as_double())
          << name;
  }
  Tensor x = io::load_idx(images).narrow(0, 0, 12800).to(float32) / 255.f;
  Tensor y = io::load_idx(std::string(data) + "/mnist/train-labels-idx1-ubyte.gz")
                 .narrow(0, 0, 12800)
                 .to(int64);
  x = x.reshape({12800, 1, 28, 28});
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  std::vector<double> got;
  for (int64_t s = 0; s < 200; ++s) {
    opt.zero_grad();
    Tensor loss = cross_entropy(net(x.narrow(0, s * 64, 64)), y.narrow(0, s * 64, 64));
    loss.backward();
    opt.step();
    got.push_back(loss.item<float>());
  }
  double worst = 0;
  for (size_t s = 0; s < 40; ++s) worst = std::max(worst, std::abs(got[s] / want[s] - 1));
  double first = std::abs(mean_of(got, 100, 150) / mean_of(want, 100, 150) - 1);
  double second = std::abs(mean_of(got, 150, 200) / mean_of(want, 150, 200) - 1);
  std::printf("steps 1-40 differ by %.2g, means of 101-150 by %.2g, of 151-200 by %.2g\n", worst,
              first, second);
  EXPECT_LE(worst, 1e-4);
  EXPECT_LE(first, 0.01);
  EXPECT_LE(second, 0.01);
}

}  // namespace
}  // namespace tandem::golden
