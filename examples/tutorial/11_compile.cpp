// SPDX-License-Identifier: Apache-2.0
// Chapter 11. One graph: compile.
// The text around this program is docs/tutorial/11-compile.md.
#include <tandem/tandem.h>

#include <chrono>
#include <fstream>
using namespace tandem;

struct Net : nn::Module {
  nn::Linear fc1{64, 128}, fc2{128, 10};
  Net() { TD_REGISTER(fc1, fc2); }
  Tensor forward(Tensor x) { return fc2(gelu(fc1(x))); }
};

int main() {
  init();
  manual_seed(4);
  Net net;
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  data::Digits digits({.train = true});

  auto body = [&](Tensor x, Tensor y) {
    opt.zero_grad();
    Tensor loss = cross_entropy(net(x.flatten(1)), y);
    loss.backward();
    opt.step();
    return loss;
  };
  auto step = compile(body);
  float first = 0, last = 0;
  for (int epoch = 0; epoch < 5; ++epoch)
    for (auto [x, y] :
         data::DataLoader(digits, {.batch_size = 64, .shuffle = true, .drop_last = true})) {
      last = step(x, y).item<float>();
      if (first == 0) first = last;
    }
  print("loss {:.3f} -> {:.3f}, traced {} time(s)\n", first, last, step.stats().traces);

  net.eval();
  auto predict =
      compile([&](Tensor x) { return net(x.flatten(1)).argmax(1); }, {.dynamic = {{0, "batch"}}});
  NoGradGuard no_grad;
  for (int64_t n : {1, 7, 64}) predict(randn({n, 1, 8, 8}));
  print("three batch sizes, {} trace\n", predict.stats().traces);

  auto scaled = compile([](Tensor x, Tensor s) { return x * s; });
  scaled(ones({2}), 1.0);
  print("{}, traced {} time\n", scaled(ones({2}), 5.0), scaled.stats().traces);

  auto wrong = compile([](Tensor x) { return x.sum().item<float>() > 0 ? x : -x; });
  bool explained = false;
  try {
    wrong(ones({2}));
  } catch (const Error& e) {
    explained = true;
    print("{}\n", e.what());
  }

  net.train();
  opt.zero_grad();
  {
    EnableGradGuard grad;
    auto forward = compile(net);
    forward(randn({4, 64})).sum().backward();
  }
  print("gradient of fc1.weight: {}\n", net.fc1.weight.grad().shape());

  Ref<Executable> plan = step.executable();
  print("{} steps, {} KB at most\n", plan->num_steps(), plan->peak_bytes() / 1024);
  std::ofstream("compiled_step.html") << html_report(*plan, "a training step");
  EnableGradGuard grad;
  auto [x, y] = *data::DataLoader(digits, {.batch_size = 64}).begin();
  ProfilerGuard profiler;
  step(x, y);
  print("{}", profiler.profile().table());
  return explained && last < first && step.stats().traces == 1 ? 0 : 1;
}
