// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/pretrained/projection_internal.h"

#include "tandem/ops/ops.h"

namespace tandem::models::detail {

PackedCodes CodedWeight::value() const {
  PackedCodes w{codes, scale.value().to(DType::f32), {}, bits, accuracy_level};
  if (zero.defined()) w.zero = zero;
  return w;
}
void CodedWeight::set(const PackedCodes& w) {
  codes = Buffer(w.codes);
  scale = Buffer(w.scale);
  zero = w.zero.defined() ? Buffer(w.zero) : Buffer();
  bits = w.bits;
  accuracy_level = w.accuracy_level;
}
Tensor CodedWeight::times(Tensor x, const Param& bias) const {
  Tensor y = matmul_nbits(std::move(x), value());
  return bias.defined() ? std::move(y) + bias : y;
}

Projection::Projection(Dim in, Dim out, nn::LinearOptions options) : nn::Linear(in, out, options) {
  state().kind = projection_kind<Projection, false>();
}
Tensor Projection::forward(Tensor x) {
  return coded.defined() ? coded.times(std::move(x), bias) : nn::Linear::forward(std::move(x));
}
void Projection::use_codes() {
  weight = Param();
  register_members(this, "codes, scale, zero", coded.codes, coded.scale, coded.zero);
}

Conv1D::Conv1D(int64_t in, int64_t out)
    : weight(nn::init::normal({in, out}, 0, 0.02)), bias(zeros({out})) {
  TD_REGISTER(weight, bias);
  state().kind = projection_kind<Conv1D, true>();
}
Tensor Conv1D::forward(Tensor x) {
  return coded.defined() ? coded.times(std::move(x), bias) : matmul(std::move(x), weight) + bias;
}
void Conv1D::use_codes() {
  weight = Param();
  register_members(this, "codes, scale, zero", coded.codes, coded.scale, coded.zero);
}

const ProjectionKind* projection_kind_of(const nn::Module& m) {
  const void* kind = m.state().kind;
  for (const ProjectionKind* own :
       {projection_kind<Projection, false>(), projection_kind<Conv1D, true>()})
    if (kind == own) return own;
  return nullptr;
}

}  // namespace tandem::models::detail
