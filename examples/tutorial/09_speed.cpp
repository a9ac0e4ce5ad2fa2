// SPDX-License-Identifier: Apache-2.0
// Chapter 9. Speed.
// The text around this program is docs/tutorial/09-speed.md.
#include <tandem/tandem.h>

#include <chrono>
using namespace tandem;

template <class F>
double milliseconds(F f) {
  f();  // the first run fills caches
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) f();
  std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / 10;
}

int main() {
  init();
  manual_seed(8);
  int all = num_threads();
  Tensor a = randn({512, 512}), b = randn({512, 512});
  set_num_threads(1);
  double one = milliseconds([&] { matmul(a, b); });
  set_num_threads(all);
  double many = milliseconds([&] { matmul(a, b); });
  print("matmul of 512x512: {:.2f} ms on 1 thread, {:.2f} ms on {}\n", one, many, all);

  nn::Sequential net;
  for (int i = 0; i < 8; ++i) net.append(nn::Linear(512, 512)).append(nn::GELU());
  Tensor x = randn({256, 512});
  auto peak = [&](auto f) {
    f();
    int64_t before = allocator_stats().in_use;
    reset_allocator_peak();
    f();
    return static_cast<double>(allocator_stats().peak - before) / 1e6;
  };
  double taped = peak([&] { net(x); });
  double free = peak([&] {
    NoGradGuard no_grad;
    net(x);
  });
  print("forward pass: {:.2f} MB with a tape, {:.2f} MB without\n", taped, free);

  Tensor y = randn({1 << 20});
  const float* address = y.data<float>();
  y = relu(std::move(y));
  print("relu of a moved-from value is {}\n", y.data<float>() == address ? "in place" : "a copy");

  double full = milliseconds([&] { net(x).sum().backward(); });
  double mixed = milliseconds([&] {
    AutocastGuard autocast;
    net(x).sum().backward();
  });
  net.zero_grad();
  print("forward and backward: {:.2f} ms in float32, {:.2f} ms with bfloat16 matmuls\n", full,
        mixed);
  return free < taped && y.data<float>() == address ? 0 : 1;
}
