// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of compile: initialisation, and comparison of values, bits and messages.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "bench/models.h"

namespace tandem::test {

struct Init {
  Init() { init(); }
};
inline const Init g_init;

inline std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }

inline bool same_bits(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.impl()->data, y.impl()->data,
                     static_cast<size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

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
