// SPDX-License-Identifier: Apache-2.0
// Chapter 8. Gradients of gradients.
// The text around this program is docs/tutorial/08-higher-order.md.
#include <tandem/tandem.h>
using namespace tandem;

int main() {
  init();
  manual_seed(7);
  auto f = [](Tensor x) { return x * x * x; };
  Tensor two = tensor(2.0f);
  Tensor first = grad(f)(two), second = grad(grad(f))(two), third = grad(grad(grad(f)))(two);
  print("x^3 at 2: {} {} {}\n", first.item<float>(), second.item<float>(), third.item<float>());

  auto rosenbrock = [](Tensor p) {
    Tensor x = p[0], y = p[1];
    return square(1 - x) + 100 * square(y - square(x));
  };
  Tensor p = tensor({-1.2, 1.0}, float64);
  int steps = 0;
  while (grad(rosenbrock)(p).abs().max().item<double>() > 1e-9 && steps < 50) {
    p = p - linalg::solve(hessian(rosenbrock, p), grad(rosenbrock)(p));
    ++steps;
  }
  print("minimum at {} after {} steps\n", p, steps);

  nn::Sequential net(nn::Linear(1, 32), nn::Tanh(), nn::Linear(32, 1));
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  Tensor x = linspace(-3, 3, 61);
  auto value = [&](Tensor v) { return net(v.reshape({1, 1})).sum(); };
  for (int i = 0; i < 300; ++i) {
    Tensor derivative = vmap(grad(value))(x);
    Tensor loss = mse_loss(derivative, cos(x)) + square(value(tensor(0.0f)));
    opt.zero_grad();
    loss.backward();
    opt.step();
  }
  float error = (net(x.unsqueeze(1)).squeeze(1) - sin(x)).abs().max().item<float>();
  print("largest distance from sin(x): {:.3f}\n", error);

  auto weight = net.named_parameters()[0].second;
  auto loss_of = [&](Tensor w, Tensor example) {
    return functional_call({{weight, w}}, [&] { return Tensors{square(value(example))}; })[0];
  };
  Tensor each = vmap(grad(loss_of), {kNoBatchDim, 0})(weight.value(), x.narrow(0, 0, 5));
  print("one gradient per example: {}\n", each.shape());
  bool exact = (p - 1).abs().max().item<double>() < 1e-6;
  return second.item<float>() == 12 && exact && error < 0.2f && each.size(0) == 5 ? 0 : 1;
}
