// SPDX-License-Identifier: Apache-2.0
// Values that are not computed yet but may be read: reading one asks whoever records them to
// compute it in place. Used by compiled functions under Control::eager.
#pragma once

#include "tandem/tensor/tensor.h"

namespace tandem::detail {

/// Gives the value `t` its bytes; false if it cannot have any (a value of a plain trace).
using Materializer = bool (*)(TensorImpl& t, Where where);
TD_API void set_materializer(Materializer m);
/// Can t's elements be read now? Computes what is not computed yet.
TD_API bool make_readable(TensorImpl& t, Where where = {});
inline bool readable(const Tensor& t, Where where = {}) {
  return !t.is_symbolic() || make_readable(*t.impl(), where);
}

}  // namespace tandem::detail
