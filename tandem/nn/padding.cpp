// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/padding.h"

#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace {

IntList sides(const IntList& padding, int d) {
  TD_CHECK(padding.rank() == 1 || padding.rank() == 2 * d, Value,
           "padding expects 1 or {} numbers, got {}", 2 * d, padding.to_string());
  IntList r = padding;
  while (r.rank() < 2 * d) r.push_back(padding[0]);
  return r;
}

Tensor padded(const Module& m, Tensor x, const IntList& padding, const char* mode, Scalar value) {
  const int d = padding.rank() / 2;
  TD_CHECK(x.dim() == d + 1 || x.dim() == d + 2, Shape,
           "{} expects {} dimensions, or {} without a batch, x is {}", m.type(), d + 2, d + 1,
           x.shape().to_string());
  return pad(std::move(x), padding, mode, value);
}

}  // namespace

ZeroPad1d::ZeroPad1d(IntList padding) : padding(sides(padding, 1)) {
  this->register_members(this, "");
}
Tensor ZeroPad1d::forward(Tensor x) { return padded(*this, std::move(x), padding, "constant", 0); }
ZeroPad2d::ZeroPad2d(IntList padding) : padding(sides(padding, 2)) {
  this->register_members(this, "");
}
Tensor ZeroPad2d::forward(Tensor x) { return padded(*this, std::move(x), padding, "constant", 0); }
ZeroPad3d::ZeroPad3d(IntList padding) : padding(sides(padding, 3)) {
  this->register_members(this, "");
}
Tensor ZeroPad3d::forward(Tensor x) { return padded(*this, std::move(x), padding, "constant", 0); }
ConstantPad1d::ConstantPad1d(IntList padding, Scalar value)
    : padding(sides(padding, 1)), value(value) {
  this->register_members(this, "");
}
Tensor ConstantPad1d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "constant", value);
}
ConstantPad2d::ConstantPad2d(IntList padding, Scalar value)
    : padding(sides(padding, 2)), value(value) {
  this->register_members(this, "");
}
Tensor ConstantPad2d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "constant", value);
}
ConstantPad3d::ConstantPad3d(IntList padding, Scalar value)
    : padding(sides(padding, 3)), value(value) {
  this->register_members(this, "");
}
Tensor ConstantPad3d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "constant", value);
}
ReflectionPad1d::ReflectionPad1d(IntList padding) : padding(sides(padding, 1)) {
  this->register_members(this, "");
}
Tensor ReflectionPad1d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "reflect", 0);
}
ReflectionPad2d::ReflectionPad2d(IntList padding) : padding(sides(padding, 2)) {
  this->register_members(this, "");
}
Tensor ReflectionPad2d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "reflect", 0);
}
ReflectionPad3d::ReflectionPad3d(IntList padding) : padding(sides(padding, 3)) {
  this->register_members(this, "");
}
Tensor ReflectionPad3d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "reflect", 0);
}
ReplicationPad1d::ReplicationPad1d(IntList padding) : padding(sides(padding, 1)) {
  this->register_members(this, "");
}
Tensor ReplicationPad1d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "replicate", 0);
}
ReplicationPad2d::ReplicationPad2d(IntList padding) : padding(sides(padding, 2)) {
  this->register_members(this, "");
}
Tensor ReplicationPad2d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "replicate", 0);
}
ReplicationPad3d::ReplicationPad3d(IntList padding) : padding(sides(padding, 3)) {
  this->register_members(this, "");
}
Tensor ReplicationPad3d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "replicate", 0);
}
CircularPad1d::CircularPad1d(IntList padding) : padding(sides(padding, 1)) {
  this->register_members(this, "");
}
Tensor CircularPad1d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "circular", 0);
}
CircularPad2d::CircularPad2d(IntList padding) : padding(sides(padding, 2)) {
  this->register_members(this, "");
}
Tensor CircularPad2d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "circular", 0);
}
CircularPad3d::CircularPad3d(IntList padding) : padding(sides(padding, 3)) {
  this->register_members(this, "");
}
Tensor CircularPad3d::forward(Tensor x) {
  return padded(*this, std::move(x), padding, "circular", 0);
}

}  // namespace tandem::nn
