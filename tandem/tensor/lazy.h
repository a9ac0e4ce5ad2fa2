// SPDX-License-Identifier: Apache-2.0
// Values that are not computed yet but may be read: reading one asks its recorder to compute it in
// place. Used by compiled functions under Control::eager, and for initial values that are made when
// they are needed (graph/cells/deferred.h).
#pragma once

#include "tandem/tensor/tensor.h"

namespace tandem::detail {

/// What owns the storage of a value that has a recipe instead of bytes. Its tensors are views whose
/// strides are zero, so nothing takes them for contiguous.
struct TD_API Deferred {
  virtual ~Deferred() = default;
  /// The value, computed at each call.
  virtual Tensor compute() const = 0;
};
/// A tensor of that shape and dtype over such a storage.
TD_API Tensor make_deferred(const Shape& shape, DType dtype, Deferred* owner);
/// Its recipe; nullptr for a value that has bytes.
TD_API const Deferred* deferred_of(const TensorImpl& t);
/// Compute the value and let `t` have its bytes. One thread at a time for one `t`.
TD_API void compute_in_place(TensorImpl& t);

/// Computes the bytes of `t`; false if it cannot have any (a value of a plain trace).
using Materializer = bool (*)(TensorImpl& t, SourceLocation loc);
TD_API void set_materializer(Materializer m);
/// Whether t's elements can be read now. Computes pending values. Throws if t is undefined.
TD_API bool make_readable(TensorImpl& t, SourceLocation loc = {});
inline bool readable(const Tensor& t, SourceLocation loc = {}) {
  return (!t.is_symbolic() && !deferred_of(*t.impl())) || make_readable(*t.impl(), loc);
}

}  // namespace tandem::detail
