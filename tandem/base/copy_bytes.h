// SPDX-License-Identifier: Apache-2.0
// memcpy of arrays, rows and slices.
#pragma once

#include <cstddef>
#include <cstring>

namespace tandem {

/// `bytes` from `from` to `to`, which do not overlap. glibc before 2.39 copies from about 2 KiB on
/// with `rep movsb`, which takes twenty times as long on AMD's Zen 3 and 4 where the two addresses
/// lie less than a cache line apart modulo 4 KiB (its bug 30994): rows of slices often do. So such
/// sizes go in pieces that it copies with vectors; from about 1 MiB on it has another way.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  constexpr size_t kPiece = 1984, kLarge = size_t{1} << 20;
  auto* t = static_cast<char*>(to);
  const auto* f = static_cast<const char*>(from);
  if (bytes < kLarge)
    for (; bytes > kPiece; bytes -= kPiece, t += kPiece, f += kPiece) std::memcpy(t, f, kPiece);
  std::memcpy(t, f, bytes);
}

}  // namespace tandem
