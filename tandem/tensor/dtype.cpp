// SPDX-License-Identifier: Apache-2.0
// Names of dtypes and PyTorch's promotion lattice. Every op row with the `arith` rule calls it.
#include "tandem/tensor/dtype.h"

#include <algorithm>

namespace tandem {

const char* to_string(DType t) {
  static constexpr const char* kNames[kDTypeCount] = {
#define X(name, type, text) text,
      TD_FOR_EACH_DTYPE(X)
#undef X
  };
  return kNames[static_cast<int>(t)];
}

const char* short_name(DType t) {
  static constexpr const char* kNames[kDTypeCount] = {
#define X(name, type, text) #name,
      TD_FOR_EACH_DTYPE(X)
#undef X
  };
  return kNames[static_cast<int>(t)];
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (category(a) != category(b)) return category(a) > category(b) ? a : b;
  if (is_floating(a)) {
    // Order of the enum: f64, f32, f16, bf16. The two 16-bit types meet in f32.
    const DType wide = std::min(a, b);
    return wide == DType::f16 ? DType::f32 : wide;
  }
  // Signed integers by size; u8 needs a signed type wider than 8 bits.
  const DType wide = std::min(a, b);
  if (std::max(a, b) == DType::u8 && wide == DType::i8) return DType::i16;
  return wide;
}

}  // namespace tandem
