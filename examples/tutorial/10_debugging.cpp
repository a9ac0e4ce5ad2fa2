// SPDX-License-Identifier: Apache-2.0
// Chapter 10. Debugging.
// The text around this program is docs/tutorial/10-debugging.md.
#include <tandem/tandem.h>
using namespace tandem;

struct Net : nn::Module {
  nn::Linear fc1{4, 8}, fc2{8, 2};
  bool broken = false;
  Net() { TD_REGISTER(fc1, fc2); }
  Tensor forward(Tensor x) {
    Tensor hidden = relu(fc1(x));
    if (broken) hidden = log(hidden - 1);
    return fc2(hidden);
  }
};

int main() {
  init();
  manual_seed(9);
  Net net;
  optim::AdamW opt(net.parameters());
  std::string text;
  try {
    net(randn({3, 5}));
  } catch (const Error& e) {
    text = e.what();
    print("{}\n", e.what());
  }

  net.broken = true;
  std::string anomaly;
  try {
    DetectAnomalyGuard watch;
    net(randn({3, 4})).sum().backward();
  } catch (const Error& e) {
    anomaly = e.what();
    print("{}\n", e.what());
  }
  net.broken = false;

  print(net);
  set_printoptions({.precision = 2});
  print(net(ones({1, 4})));

  net.fc1.register_forward_hook([](nn::Module&, const Tensor&, const Tensor& out) {
    print("fc1 returned {}, mean {:.3f}\n", out.shape(), out.mean().item<float>());
    return Tensor();  // undefined: keep the output as it is
  });
  struct Count : OpHook {
    int ops = 0;
    void after(const OpDef&, std::span<const Tensor>) override { ++ops; }
  } count;
  {
    HookGuard guard(count);
    net(ones({1, 4})).sum().backward();
  }
  print("{} ops in a step\n", count.ops);

  for (auto& [name, p] : net.named_parameters())
    print("{:12} {}\n", name, p.grad().defined() ? "has a gradient" : "has NO gradient");
  bool explained =
      text.find("fc1") != std::string::npos && anomaly.find("log") != std::string::npos;
  return explained && count.ops > 4 ? 0 : 1;
}
