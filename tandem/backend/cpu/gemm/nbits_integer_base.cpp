// SPDX-License-Identifier: Apache-2.0
// matmul_nbits on codes with what every processor has: loops that the compiler turns into vectors.
#include <algorithm>
#include <bit>
#include <limits>

#include "tandem/backend/cpu/gemm/nbits_integer_internal.h"

namespace tandem::detail {
namespace {

constexpr const char* kName = "base";

// `n` bytes of codes, of one chunk, times the inputs of their places in it.
template <int bits, int n>
[[gnu::always_inline]] inline int32_t nbits_bytes(const uint8_t* codes, const int8_t* x) {
  int32_t sum = 0;
  for (int s = 0; s < 8 / bits; ++s)
    for (int i = 0; i < n; ++i)
      sum += (codes[i] >> (bits * s) & ((1 << bits) - 1)) * x[s * kNBitsChunk + i];
  return sum;
}

template <int bits>
int32_t nbits_zero(const NBitsIntegers& c, int64_t j, int64_t g) {
  if (!c.zero) return 1 << (bits - 1);
  constexpr int64_t kEach = 8 / bits;
  return c.zero[j * c.zero_bytes + g / kEach] >> (bits * (g % kEach)) & ((1 << bits) - 1);
}

// A group has `lanes` times 4 bytes, or with 8 lanes whole chunks.
template <int bits, int lanes, int>
void nbits_integer_columns(const NBitsIntegers& c, int64_t rows, int64_t j0, int64_t j1) {
  constexpr int kBytes = 4 * lanes;
  for (int64_t j = j0; j < j1; ++j)
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* codes = c.codes + j * c.row_bytes;
      float lane[kNBitsSumLanes] = {};
      for (int64_t g = 0; g < c.groups; ++g) {
        int32_t sum = 0;
        for (int64_t b = g * c.group_bytes; b < (g + 1) * c.group_bytes; b += kBytes)
          sum += nbits_bytes<bits, kBytes>(
              codes + b,
              c.x + r * c.x_row + b / kNBitsChunk * (8 / bits) * kNBitsChunk + b % kNBitsChunk);
        sum -= nbits_zero<bits>(c, j, g) * c.x_sum[r * c.x_groups + g];
        lane[g % kNBitsSumLanes] +=
            static_cast<float>(sum) * c.scale[j * c.groups + g] * c.x_scale[r * c.x_groups + g];
      }
      for (int64_t half = kNBitsSumLanes / 2; half > 0; half /= 2)
        for (int64_t i = 0; i < half; ++i) lane[i] += lane[i + half];
      c.y[r * c.y_row + j] = lane[0];
    }
}

#include "tandem/backend/cpu/gemm/nbits_integer_loops.inc"

}  // namespace

const NBitsIntegerLoops kNBitsIntegerBase = kNBitsIntegersHere;

}  // namespace tandem::detail
