// SPDX-License-Identifier: Apache-2.0
// Values for scripts/checks/gdb to print: gdb stops in look().
#include <tandem/tandem.h>

using namespace tandem;

__attribute__((noinline)) void look() { asm volatile(""); }

int main() {
  init();
  Tensor none;
  Tensor x = tensor({{1.5f, -2.0f, 0.1f}, {4.0f, 5.0f, 6.0f}});
  Tensor turned = x.transpose(0, 1);
  Tensor half = x.to(float16), brain = x.to(bfloat16), number = tensor(7);
  Tensor truth = x > 1, wide = x.to(float64), bytes = tensor({1, 2, 255}, uint8);
  Tensor long_one = arange(1000), empty_one = zeros({0, 3});
  Tensor leaf = ones({2}).requires_grad_();
  [[maybe_unused]] Shape shape{2, 3, 4};
  [[maybe_unused]] DType dtype = bfloat16;
  [[maybe_unused]] Device device = cpu;
  nn::Linear layer(2, 1);
  layer.named_parameters();  // gives the cells their names
  layer.weight.assign_(tensor({{0.5f, 0.25f}}));
  Param weight = layer.weight, nothing;
  Buffer buffer(tensor({1, 2}));
  look();
  return none.defined() + static_cast<int>(turned.numel() + half.numel() + brain.numel()) * 0;
}
