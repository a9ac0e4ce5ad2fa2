// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/hash/crc32c.h"

#include <array>
#include <cstring>

namespace tandem {
namespace {

// tables[k][b]: the checksum of byte b followed by k zero bytes ("slicing by 8", Kounavis and
// Berry 2005).
constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t c = b;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
    t[0][b] = c;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b) t[k][b] = t[k - 1][b] >> 8 ^ t[0][t[k - 1][b] & 0xFF];
  return t;
}
constexpr auto kTables = make_tables();

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t before) {
  uint32_t c = ~before;
  const char* p = bytes.data();
  size_t n = bytes.size();
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= c;
    c = 0;
    for (size_t k = 0; k < 8; ++k) c ^= kTables[7 - k][word >> 8 * k & 0xFF];
  }
  for (; n > 0; --n, ++p) c = c >> 8 ^ kTables[0][(c ^ static_cast<unsigned char>(*p)) & 0xFF];
  return ~c;
}

}  // namespace tandem
