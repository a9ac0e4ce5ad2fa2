// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/activation.h"

#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/noise.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace {

std::vector<Tensor> halves_of(const Tensor& x, int64_t dim) {
  Dim n = x.shape(dim);
  TD_CHECK(n.is_symbolic() || n.value() % 2 == 0, Shape,
           "dimension {} of x {} must be even to be split in halves", dim, x.shape().to_string());
  Dim half = floordiv(n, 2);
  return {narrow(x, dim, 0, half), narrow(x, dim, half, half)};
}

}  // namespace

#define X(name, expression, text)                    \
  name::name() { this->register_members(this, ""); } \
  Tensor name::forward(Tensor x) { return expression; }
TD_FOR_EACH_ACTIVATION(X)
#undef X
#define X(name, Type, p, value, expression, text)                 \
  name::name(Type p) : p(p) { this->register_members(this, ""); } \
  Tensor name::forward(Tensor x) { return expression; }
TD_FOR_EACH_ACTIVATION_1(X)
#undef X
#define X(name, p, p_value, q, q_value, expression, text)                           \
  name::name(double p, double q) : p(p), q(q) { this->register_members(this, ""); } \
  Tensor name::forward(Tensor x) { return expression; }
TD_FOR_EACH_ACTIVATION_2(X)
#undef X

Threshold::Threshold(double t, double v) : threshold(t), value(v) {
  this->register_members(this, "");
}
Tensor Threshold::forward(Tensor x) { return tandem::threshold(std::move(x), threshold, value); }

PReLU::PReLU(Dim n, double init, DType dtype) : weight(full({n}, init, dtype)) {
  TD_REGISTER(weight);
}
Tensor PReLU::forward(Tensor x) { return prelu(std::move(x), weight); }

RReLU::RReLU(double lower, double upper) : lower(lower), upper(upper) {
  TD_CHECK(lower <= upper, Value, "RReLU expects lower <= upper, got {} and {}", lower, upper);
  this->register_members(this, "");
}
Tensor RReLU::forward(Tensor x) { return rrelu(std::move(x), lower, upper, is_training()); }

SwiGLU::SwiGLU(int64_t dim) : dim(dim) { this->register_members(this, ""); }
Tensor SwiGLU::forward(Tensor x) {
  std::vector<Tensor> halves = halves_of(x, dim);
  return silu(std::move(halves[0])) * halves[1];
}

GELU::GELU(std::string a) : approximate(std::move(a)) {
  TD_CHECK(approximate == "none" || approximate == "tanh", Value,
           "GELU expects approximate \"none\" or \"tanh\", got \"{}\"", approximate);
  this->register_members(this, "");
}
Tensor GELU::forward(Tensor x) { return gelu(std::move(x), approximate); }

Softmax::Softmax(int64_t dim) : dim(dim) { this->register_members(this, ""); }
Tensor Softmax::forward(Tensor x) { return softmax(std::move(x), dim); }

LogSoftmax::LogSoftmax(int64_t dim) : dim(dim) { this->register_members(this, ""); }
Tensor LogSoftmax::forward(Tensor x) { return log_softmax(std::move(x), dim); }
Softmin::Softmin(int64_t dim) : dim(dim) { this->register_members(this, ""); }
Tensor Softmin::forward(Tensor x) { return softmin(std::move(x), dim); }

Unflatten::Unflatten(int64_t dim, IntList size) : dim(dim), unflattened_size(size) {
  this->register_members(this, "");
}
Tensor Unflatten::forward(Tensor x) { return unflatten(std::move(x), dim, unflattened_size); }

Flatten::Flatten(int64_t start, int64_t end) : start_dim(start), end_dim(end) {
  this->register_members(this, "");
}
Tensor Flatten::forward(Tensor x) { return flatten(std::move(x), start_dim, end_dim); }

}  // namespace tandem::nn
