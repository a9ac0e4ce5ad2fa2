// SPDX-License-Identifier: Apache-2.0
// Rows without arithmetic: the placeholders of a trace, constants, identities, custom derivatives
// and printing. The dispatcher, trace and the grad room use them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tandem/graph/apply.h"

namespace tandem {

/// Lets attributes hold a tensor.
struct TensorBox : RefCounted {
  explicit TensorBox(Tensor v) : value(std::move(v)) {}
  Tensor value;
};
struct ConstantAttrs {
  Ref<RefCounted> value;  ///< a TensorBox
  template <class V>
  void fields(V& v) {
    v("value", value);
  }
};

/// The derivative of a with_vjp node: the user's function, given the inputs and outputs of the
/// forward function and the gradients of the outputs (undefined if none arrived); returns one
/// gradient per input, undefined for none.
struct TD_API VjpClosure : RefCounted {
  virtual std::vector<Tensor> backward(std::span<const Tensor> x, std::span<const Tensor> y,
                                       std::span<const Tensor> g) = 0;
};
struct WithVjpAttrs {
  Ref<RefCounted> closure;  ///< a VjpClosure
  int64_t n = 0;            ///< how many of the inputs are x; the rest are y
  template <class V>
  void fields(V& v) {
    v("closure", closure);
    v("n", n);
  }
};
struct DebugPrintAttrs {
  std::string label;
  template <class V>
  void fields(V& v) {
    v("label", label);
  }
};

/// The same value as a new tensor.
TD_API Tensor identity(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// The values `y` (at most 4, computed from `x` without gradients), with `closure` as derivative.
TD_API std::vector<Tensor> with_vjp(std::span<const Tensor> x, std::span<const Tensor> y,
                                    Ref<VjpClosure> closure,
                                    SourceLocation loc = SourceLocation::here());
/// Prints `label` and the value each time it is computed, also in a compiled function; returns x.
TD_API Tensor debug_print(const Tensor& x, const std::string& label = "",
                          SourceLocation loc = SourceLocation::here());

namespace op {
/// A value supplied at run time: an argument, a captured value, a cell, a gradient slot. No attrs.
extern TD_API const OpDef input, capture, cell_read, grad_read;
extern TD_API const OpDef constant, identity, with_vjp, debug_print;
}  // namespace op

/// The rows of this family.
TD_API std::span<const OpDef* const> control_rows();

}  // namespace tandem
