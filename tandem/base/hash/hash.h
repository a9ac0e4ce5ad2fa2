// SPDX-License-Identifier: Apache-2.0
// 64-bit hashes for in-memory keys: plan and kernel caches, interned shapes, attrs, names.
// Deterministic for given bytes (no per-process seed); not for hostile keys or disk formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace tandem {

/// Start value of a hash chain.
inline constexpr uint64_t kHashSeed = 0x9E3779B97F4A7C15ull;

/// Bijective mix of 64 bits (the finaliser of splitmix64).
constexpr uint64_t hash_mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// Hash of (h, value); order matters.
constexpr uint64_t hash_combine(uint64_t h, uint64_t value) {
  return hash_mix((h ^ value) + kHashSeed) + (h << 1 | h >> 63);
}

/// Hash of `size` bytes at `data`.
inline uint64_t hash_bytes(const void* data, size_t size, uint64_t seed = kHashSeed) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  uint64_t h = hash_combine(seed, size);
  for (; size >= 8; size -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = hash_combine(h, word);
  }
  if (size > 0) {
    uint64_t word = 0;
    std::memcpy(&word, p, size);
    h = hash_combine(h, word);
  }
  return h;
}

inline uint64_t hash_string(std::string_view s, uint64_t seed = kHashSeed) {
  return hash_bytes(s.data(), s.size(), seed);
}

/// Hash of one integer, enum, bool, pointer, float or string. Floats hash by their bits, so 0.0 and
/// -0.0 differ, as keys that contain immediates require.
template <class T>
uint64_t hash_value(const T& v) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return hash_string(v);
  } else if constexpr (std::is_pointer_v<T>) {
    return hash_mix(reinterpret_cast<uintptr_t>(v) + kHashSeed);
  } else if constexpr (std::is_floating_point_v<T>) {
    static_assert(sizeof(T) <= 8, "long double has padding bytes");
    uint64_t word = 0;
    std::memcpy(&word, &v, sizeof(T));
    return hash_mix(word + kHashSeed);
  } else {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>, "no hash for this type");
    return hash_mix(static_cast<uint64_t>(v) + kHashSeed);
  }
}

/// Hash of several values in order: `hash_all(op, dtype, rank)`.
template <class... Ts>
uint64_t hash_all(const Ts&... vs) {
  uint64_t h = kHashSeed;
  ((h = hash_combine(h, hash_value(vs))), ...);
  return h;
}

/// Hash of the elements of a range of integers, enums or strings, length included.
template <class Range>
uint64_t hash_range(const Range& r, uint64_t seed = kHashSeed) {
  uint64_t h = seed;
  uint64_t n = 0;
  for (const auto& v : r) {
    h = hash_combine(h, hash_value(v));
    ++n;
  }
  return hash_combine(h, n);
}

}  // namespace tandem
