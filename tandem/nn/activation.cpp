// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/activation.h"

#include "tandem/ops/pointwise.h"
#include "tandem/ops/softmax.h"
#include "tandem/ops/view.h"

namespace tandem::nn {

#define X(name, expression, text)                    \
  name::name() { this->register_members(this, ""); } \
  Tensor name::forward(Tensor x) { return expression; }
TD_FOR_EACH_ACTIVATION(X)
#undef X

GELU::GELU(std::string a) : approximate(std::move(a)) {
  TD_CHECK(approximate == "none" || approximate == "tanh", Value,
           "GELU wants approximate \"none\" or \"tanh\", got \"{}\"", approximate);
  this->register_members(this, "");
}
Tensor GELU::forward(Tensor x) { return gelu(std::move(x), approximate); }

Softmax::Softmax(int64_t dim) : dim(dim) { this->register_members(this, ""); }
Tensor Softmax::forward(Tensor x) { return softmax(std::move(x), dim); }

Flatten::Flatten(int64_t start, int64_t end) : start_dim(start), end_dim(end) {
  this->register_members(this, "");
}
Tensor Flatten::forward(Tensor x) { return flatten(std::move(x), start_dim, end_dim); }

}  // namespace tandem::nn
