// SPDX-License-Identifier: Apache-2.0
// Block by block as in the standard. The round constants are computed: the first 32 bits of the
// fractional parts of cube and square roots of the first primes, found by integer search.
#include "tandem/base/hash/sha256.h"

#include <bit>
#include <cstring>

namespace tandem {
namespace {

struct Constants {
  uint32_t round[64], start[8];
};

// floor(frac(p^(1/root)) * 2^32) by bisection on integers: x^root <= p * 2^(32 root).
constexpr uint32_t root_fraction(uint64_t p, int root) {
  uint64_t low = 0, high = uint64_t{20} << 32;
  while (high - low > 1) {
    const uint64_t mid = low + (high - low) / 2;
    using Wide = unsigned __int128;
    // mid has at most 37 bits: mid^2 fits in 128; for cubes compare mid^2 with p * 2^96 / mid.
    const Wide square = static_cast<Wide>(mid) * mid;
    const bool fits = root == 2 ? square <= (static_cast<Wide>(p) << 64)
                                : square <= (static_cast<Wide>(p) << 96) / mid;
    (fits ? low : high) = mid;
  }
  return static_cast<uint32_t>(low);
}

constexpr Constants make_constants() {
  Constants c{};
  int n = 0;
  for (uint64_t p = 2; n < 64; ++p) {
    bool prime = true;
    for (uint64_t d = 2; d * d <= p; ++d) prime &= p % d != 0;
    if (!prime) continue;
    if (n < 8) c.start[n] = root_fraction(p, 2);
    c.round[n++] = root_fraction(p, 3);
  }
  return c;
}
constexpr Constants kConstants = make_constants();
static_assert(kConstants.round[0] == 0x428a2f98 && kConstants.round[63] == 0xc67178f2);
static_assert(kConstants.start[0] == 0x6a09e667 && kConstants.start[7] == 0x5be0cd19);

void add_block(uint32_t (&state)[8], const unsigned char* p) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i, p += 4) {
    w[i] = uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  uint32_t s[8];
  std::memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; ++i) {
    const uint32_t e = s[4], a = s[0];
    const uint32_t t1 = s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                        ((e & s[5]) ^ (~e & s[6])) + kConstants.round[i] + w[i];
    const uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                        ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    for (int k = 7; k > 0; --k) s[k] = s[k - 1];
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (int k = 0; k < 8; ++k) state[k] += s[k];
}

}  // namespace

std::array<unsigned char, 32> sha256(std::string_view bytes) {
  uint32_t state[8];
  std::memcpy(state, kConstants.start, sizeof state);
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t left = bytes.size();
  for (; left >= 64; left -= 64, p += 64) add_block(state, p);
  unsigned char tail[128] = {};
  if (left > 0) std::memcpy(tail, p, left);  // an empty view may have no address
  tail[left] = 0x80;
  const size_t end = left < 56 ? 64 : 128;
  const uint64_t bits = uint64_t{bytes.size()} * 8;
  for (int k = 0; k < 8; ++k) tail[end - 1 - static_cast<size_t>(k)] = bits >> (8 * k) & 255;
  for (size_t at = 0; at < end; at += 64) add_block(state, tail + at);
  std::array<unsigned char, 32> out;
  for (size_t k = 0; k < 32; ++k) out[k] = state[k / 4] >> (24 - 8 * (k % 4)) & 255;
  return out;
}

std::string sha256_hex(std::string_view bytes) {
  std::string s;
  for (unsigned char c : sha256(bytes)) {
    s += "0123456789abcdef"[c >> 4];
    s += "0123456789abcdef"[c & 15];
  }
  return s;
}

}  // namespace tandem
