// SPDX-License-Identifier: Apache-2.0
// Values that are not computed yet but may be read: reading one asks its recorder to compute it in
// place. Used by compiled functions under Control::eager.
#pragma once

#include "tandem/tensor/tensor.h"

namespace tandem::detail {

/// Computes the bytes of `t`; false if it cannot have any (a value of a plain trace).
using Materializer = bool (*)(TensorImpl& t, SourceLocation loc);
TD_API void set_materializer(Materializer m);
/// Whether t's elements can be read now. Computes pending values.
TD_API bool make_readable(TensorImpl& t, SourceLocation loc = {});
inline bool readable(const Tensor& t, SourceLocation loc = {}) {
  return !t.is_symbolic() || make_readable(*t.impl(), loc);
}

}  // namespace tandem::detail
