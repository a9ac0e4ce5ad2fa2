// SPDX-License-Identifier: Apache-2.0
// The argument of an op's `vjp` column: incoming gradients, the inputs and outputs it requested
// with `saves`, and a place for the gradients of the inputs. It is written with public ops, so the
// result can be differentiated again.
#pragma once

#include "tandem/graph/node.h"

namespace tandem {

struct VjpCall {
  const Node& node;
  std::span<const Tensor> grads;  ///< per output; undefined if none arrived
  std::span<Tensor> results;      ///< per input; leave undefined where there is none
  /// The same gradients, if the caller no longer needs them.
  Tensor* own_grads = nullptr;

  template <class A>
  const A& get_attrs() const {
    return *static_cast<const A*>(node.attrs.get());
  }
  int n_in() const { return static_cast<int>(node.in.size()); }
  bool has(int i) const { return i < n_in() && node.in[i].present; }
  /// Whether the gradient of input i is needed.
  bool needs(int i) const { return i < n_in() && node.in[i].needs_grad; }
  /// Input i; it must be in the row's `saves`.
  const Tensor& in(int i) const { return node.in[i].value; }
  Scalar scalar(int i) const { return node.in[i].scalar; }
  const Shape& in_shape(int i) const { return node.in[i].shape; }
  DType in_dtype(int i) const { return node.in[i].dtype; }
  Device in_device(int i) const { return node.in[i].device; }
  /// Output i; it must be in the row's `saves`. Connected to the tape again.
  Tensor out(int i) const;
  const Shape& out_shape(int i) const { return node.out[i].shape; }
  DType out_dtype(int i) const { return node.out[i].dtype; }
  const Tensor& grad(int i = 0) const { return grads[i]; }
  /// Gradient i at its last use: if nobody else holds it, an op may overwrite its memory.
  Tensor take_grad(int i = 0) const { return own_grads ? std::move(own_grads[i]) : grads[i]; }
  SourceLocation loc() const { return node.loc; }
};

}  // namespace tandem
