// SPDX-License-Identifier: Apache-2.0
// The argument of an op's `batch` column (vmap). A batched value has its batch dimension first. The
// rule computes the outputs with public ops and marks which of them are batched.
#pragma once

#include "tandem/graph/node.h"

namespace tandem {

struct BatchCall {
  const Node& node;               ///< the per-example call: attrs, per-example shapes
  std::span<const Tensor> in;     ///< physical values
  std::span<const bool> batched;  ///< per input
  Dim batch_size;
  Tensor out[kMaxOpOuts];
  bool out_batched[kMaxOpOuts] = {true, true, true, true};
  bool by_slices = false;  ///< set by a rule that cannot batch: the op runs slice by slice

  template <class A>
  const A& get_attrs() const {
    return *static_cast<const A*>(node.attrs.get());
  }
  int n_in() const { return static_cast<int>(in.size()); }
  bool has(int i) const { return i < n_in() && node.in[i].present; }
  /// Rank of input i from the per-example function's point of view.
  int rank(int i) const { return node.in[i].shape.rank(); }
};

}  // namespace tandem
