// SPDX-License-Identifier: Apache-2.0
// The arguments of an op's `infer`, `body` and cost columns. infer computes the output Specs and
// makes every user-error check that shapes and dtypes allow; it serves eager, trace and import.
#pragma once

#include "tandem/base/small_vec.h"
#include "tandem/graph/op_def.h"

namespace tandem {

struct InferCall {
  const OpDef& op;
  const void* attrs = nullptr;
  SmallVec<Spec, 4> in;          ///< for absent and scalar inputs: rank 0
  SmallVec<uint8_t, 8> present;  ///< 0 absent, 1 tensor, 2 scalar
  SmallVec<Scalar, 4> scalars;   ///< of input i, when present[i] == 2
  SmallVec<Spec, 2> out;         ///< to be filled: op.n_out entries

  explicit InferCall(const OpDef& op, const void* attrs) : op(op), attrs(attrs) {
    out.resize(op.n_out);
  }
  template <class A>
  const A& get_attrs() const {
    return *static_cast<const A*>(attrs);
  }
  int n_in() const { return static_cast<int>(in.size()); }
  bool has(int i) const { return i < n_in() && present[i] == 1; }
  bool is_scalar(int i) const { return i < n_in() && present[i] == 2; }
};

/// Result dtype of promoting the given inputs of a call (tensors, 0-d tensors and scalars by
/// category, as PyTorch's result_type).
TD_API DType promote_inputs(const InferCall& c, int first = 0, int last = -1);
/// The compute dtype of a pointwise row and the dtype of its outputs by its `types` column.
struct PointwiseTypes {
  DType compute, result;
};
TD_API PointwiseTypes pointwise_types(const InferCall& c);
/// The family's infer rules.
TD_API void infer_pointwise(InferCall& c);

/// A composite's body: built from public ops; sets out(i).
struct BodyCall {
  const OpDef& op;
  const void* attrs;
  std::span<const Tensor> in;
  std::span<const Scalar> scalars;
  Tensor out[kMaxOpOuts];
  /// False when hidden outputs are not needed.
  bool want_hidden = false;

  template <class A>
  const A& get_attrs() const {
    return *static_cast<const A*>(attrs);
  }
};

}  // namespace tandem
