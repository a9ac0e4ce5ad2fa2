// SPDX-License-Identifier: Apache-2.0
// Whether two tensors are the same to the bit.
#pragma once

#include <cstring>

#include "tandem/tensor/tensor.h"

namespace tandem {

/// The same dtype, shape and bytes, whatever the strides and devices; or both undefined.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const Tensor x = a.cpu().contiguous(), y = b.cpu().contiguous();
  return x.dtype() == y.dtype() && x.shape() == y.shape() &&
         (x.numel() == 0 || std::memcmp(x.impl()->data, y.impl()->data,
                                        static_cast<size_t>(x.numel()) * size_of(x.dtype())) == 0);
}

}  // namespace tandem
