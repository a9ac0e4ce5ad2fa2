// SPDX-License-Identifier: Apache-2.0
// Texts and bodies that grow by what has come: append() of large pieces copies as memcpy does,
// whose slow case copy_bytes.h describes.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace tandem {

/// As `to.append(bytes)`.
inline void append_bytes(std::string& to, std::string_view bytes) {
  constexpr size_t kPiece = 1984, kLarge = size_t{1} << 20;
  const size_t size = to.size() + bytes.size();
  if (size > to.capacity()) to.reserve(std::max(size, 2 * to.capacity()));
  if (bytes.size() < kLarge)
    for (; bytes.size() > kPiece; bytes.remove_prefix(kPiece)) to.append(bytes.data(), kPiece);
  to.append(bytes);
}

}  // namespace tandem
