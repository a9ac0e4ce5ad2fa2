// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of compile: comparison of values and messages, data, a training step.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "bench/models.h"
#include "tests/support/bits.h"
#include "tests/support/init.h"
#include "tests/support/values.h"

namespace tandem::test {

/// Inputs and outputs of functions that are traced.
using In = std::span<const Tensor>;
using Out = std::vector<Tensor>;

/// Largest difference, relative to b's largest value.
inline double distance(const Tensor& a, const Tensor& b) {
  double top = 1e-30, d = 0;
  auto x = a.to(DType::f64).to_vector<double>(), y = b.to(DType::f64).to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) {
    top = std::max(top, std::abs(x[i]));
    d = std::max(d, std::abs(x[i] - y[i]));
  }
  return d / top;
}

/// What f throws; empty if it does not.
inline std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

/// Random images and labels of a fixed seed.
inline Tensor image(const Shape& s) {
  manual_seed(1);
  return rand(s);
}
inline Tensor words(const Shape& shape, int64_t below) { return randint(0, below, shape); }

/// How many instructions of the program are `op`.
inline int count_ops(const Ref<Executable>& e, const OpDef& op) {
  int n = 0;
  for (const compiler::Instr& i : e->program().instrs) n += i.op == &op;
  return n;
}

/// One training step of a classifier: returns the loss.
template <class Net, class Optim>
Tensor train_step(Net& net, Optim& opt, const Tensor& x, const Tensor& y) {
  opt.zero_grad();
  Tensor logits = net.forward(x);
  Tensor loss = cross_entropy(logits.reshape({-1, logits.size(-1)}), y);
  loss.backward();
  opt.step();
  return loss;
}

}  // namespace tandem::test
