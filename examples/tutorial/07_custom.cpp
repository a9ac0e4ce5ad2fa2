// SPDX-License-Identifier: Apache-2.0
// Chapter 7. Your own ops and layers.
// The text around this program is docs/tutorial/07-custom.md.
#include <tandem/tandem.h>
using namespace tandem;

Tensor swish_glu(Tensor x) {
  std::vector<Tensor> halves = x.chunk(2, -1);
  return halves[0] * silu(halves[1]);
}

struct ScaledNorm : nn::Module {
  Param scale;
  Buffer calls;
  explicit ScaledNorm(int64_t size) : scale(ones({size})), calls(zeros({}, int64)) {
    TD_REGISTER(scale, calls);
  }
  Tensor forward(Tensor x) {
    calls.assign_(calls.value() + 1);
    return scale * x / norm(x, 2, {-1}, true);
  }
};

void bump_expr(const E* in, E* out) { out[0] = exp(-in[0] * in[0]); }
constinit const OpDef bump_row =
    make_row("bump", Family::pointwise, Types::floating, {"x"}, nullptr)
        .expr(bump_expr)
        .doc("exp(-x^2).");
Tensor bump(Tensor x, SourceLocation loc = SourceLocation::here()) {
  return call(bump_row, nullptr, loc, std::move(x));
}

auto round_through = custom_vjp([](std::span<const Tensor> x) { return Tensors{round(x[0])}; },
                                [](std::span<const Tensor>, std::span<const Tensor>,
                                   std::span<const Tensor> g) { return Tensors{g[0]}; });

int main() {
  init();
  manual_seed(6);
  register_op(bump_row);
  Tensor x = randn({3, 4}, float64);
  gradcheck([](std::span<const Tensor> v) { return Tensors{bump(v[0])}; }, {x}, {.order = 2});
  gradcheck([](std::span<const Tensor> v) { return Tensors{swish_glu(v[0])}; }, {x});

  Tensor w = tensor({0.2f, 1.7f}).requires_grad_();
  (round_through(w) * 3).sum().backward();
  print(w.grad());  // tensor([3., 3.])

  ScaledNorm layer(4);
  layer(x.to(float32)).sum().backward();
  print("{} after {} call\n", layer.scale.grad(), layer.calls.value().item<int64_t>());
  for (auto& [name, value] : layer.state_dict()) print("{} {}\n", name, value.shape());
  return (w.grad() == 3).all().item<bool>() && layer.calls.value().item<int64_t>() == 1 ? 0 : 1;
}
