// SPDX-License-Identifier: Apache-2.0
// A module that uses the library as an extension of a host program would; see open_library.cpp.
#include <thread>

#include "tandem/tandem.h"

/// The sum of a matmul's gradient, computed on the calling thread and on a new one; they are equal,
/// or the result is negative.
extern "C" [[gnu::visibility("default")]] double tandem_module_sum() {
  using namespace tandem;
  init();
  const auto once = [] {
    Tensor x = arange(12.0).view({3, 4}).requires_grad_();
    Tensor y = (matmul(x, x.t()).relu() + 1.0).sum();
    y.backward();
    return x.grad().sum().item<double>();
  };
  const double here = once();
  double there = 0;
  std::thread([&] { there = once(); }).join();
  return here == there ? here : -1;
}
