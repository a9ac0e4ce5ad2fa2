// SPDX-License-Identifier: Apache-2.0
// Little-endian numbers in the bytes of a file. Not installed.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

namespace tandem::io {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files hold little-endian numbers");

/// zlib counts in 32 bits: what it is given at once.
constexpr size_t kZlibPiece = size_t{1} << 30;

/// The number at byte `at`, which the caller has checked to be inside.
template <class T>
T number_at(std::string_view all, uint64_t at) {
  T v;
  std::memcpy(&v, all.data() + at, sizeof v);
  return v;
}
template <class T>
void append_number(std::string& out, T v) {
  out.append(reinterpret_cast<const char*>(&v), sizeof v);
}

}  // namespace tandem::io
