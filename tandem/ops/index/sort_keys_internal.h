// SPDX-License-Identifier: Apache-2.0
// Shared by what orders elements: keys, and where lanes begin.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tandem/graph/op_def.h"

namespace tandem::detail {

// An unsigned number that orders like `x` does: PyTorch's order, in which NaN is larger than every
// number and all NaNs are equal, as are both zeros.
template <class T>
auto key_of(T x) {
  if constexpr (is_floating(dtype_of<T>)) {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    using Key = std::conditional_t<std::is_same_v<T, double>, uint64_t, uint32_t>;
    constexpr Key kSign = Key{1} << (8 * sizeof(Key) - 1);
    const Wide v = static_cast<Wide>(x) + Wide(0);  // -0 becomes 0
    Key bits;
    std::memcpy(&bits, &v, sizeof bits);
    return v != v         ? static_cast<Key>(~Key{0})
           : bits & kSign ? static_cast<Key>(~bits)
                          : bits | kSign;
  } else if constexpr (std::is_same_v<T, bool>) {
    return static_cast<uint32_t>(x);
  } else if constexpr (sizeof(T) == 8) {
    return static_cast<uint64_t>(x) ^ (std::is_signed_v<T> ? uint64_t{1} << 63 : 0);
  } else {
    return static_cast<uint32_t>(static_cast<int64_t>(x) + (int64_t{1} << 31));
  }
}

// Offset of lane `l` (a position in all dims but `dim`).
inline int64_t lane_offset(const Array& a, int dim, int64_t l, const int64_t* shape) {
  int64_t offset = 0;
  for (int i = a.rank - 1; i >= 0; --i) {
    if (i == dim) continue;
    offset += l % shape[i] * a.strides[i];
    l /= shape[i];
  }
  return offset;
}

}  // namespace tandem::detail
