// SPDX-License-Identifier: Apache-2.0
// Bodies grow by what has come: append() of large pieces copies as memcpy does, whose slow case
// base/copy_bytes.h describes.
#pragma once

#include <string>
#include <string_view>

namespace tandem::serve {

inline void append_bytes(std::string& to, std::string_view bytes) {
  constexpr size_t kPiece = 1984, kLarge = size_t{1} << 20;
  if (bytes.size() < kLarge)
    for (; bytes.size() > kPiece; bytes.remove_prefix(kPiece)) to.append(bytes.data(), kPiece);
  to.append(bytes);
}

}  // namespace tandem::serve
