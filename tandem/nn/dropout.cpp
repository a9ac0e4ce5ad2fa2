// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/dropout.h"

#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/noise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/view/create.h"

namespace tandem::nn {
namespace {

void check_p(double p, const char* type) {
  TD_CHECK(p >= 0 && p <= 1, Value, "{} expects a probability in 0..1, got {}", type, p);
}

}  // namespace

#define X(name, function, text)       \
  name::name(double p) : p(p) {       \
    check_p(p, #name);                \
    this->register_members(this, ""); \
  }                                   \
  Tensor name::forward(Tensor x) { return function(std::move(x), p, is_training()); }
TD_FOR_EACH_DROPOUT(X)
#undef X

DropPath::DropPath(double p) : p(p) {
  check_p(p, "DropPath");
  this->register_members(this, "");
}
Tensor DropPath::forward(Tensor x) {
  if (!is_training()) return x;
  TD_CHECK(x.dim() >= 1, Shape, "DropPath expects a batch, x is 0-d");
  if (p == 0) return x;
  const DeviceGuard there(x.device());
  Shape samples = x.shape();
  for (int i = 1; i < samples.rank(); ++i) samples[i] = 1;
  return x * dropout(ones(samples, x.dtype()), p, true);
}

}  // namespace tandem::nn
