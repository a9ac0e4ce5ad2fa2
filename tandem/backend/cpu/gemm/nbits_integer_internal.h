// SPDX-License-Identifier: Apache-2.0
// Loops of matmul_nbits at accuracy level 4: rows of x are codes of 8 bits with a scale for each
// group, codes are multiplied as integers, and what a group gives is scaled and added in f32. All
// instruction sets give the same bits: a group's sum is exact, group g adds to lane g % 16, and the
// lanes are added in halves.
#pragma once

#include <cstdint>

namespace tandem::detail {

inline constexpr int64_t kNBitsChunk = 32;      ///< bytes of codes that the loops read at once
inline constexpr int64_t kNBitsGroupStep = 8;   ///< groups that are scaled together
inline constexpr int64_t kNBitsSumLanes = 16;   ///< of an element's sum
inline constexpr float kNBitsLeast = 1e-30f;    ///< smaller magnitudes round to 0
inline constexpr float kNBitsLargest = 127.0f;  ///< code of a group's largest magnitude

/// One weight, and rows of x as codes in the loops' order: a chunk of 32 bytes holds
/// 32 * (8 / bits) inputs, and step s of its x those of code s in every byte.
struct NBitsIntegers {
  int64_t k = 0;            ///< inputs
  int64_t group = 0;        ///< inputs of a group
  int64_t groups = 0;       ///< of one output
  int64_t group_bytes = 0;  ///< 4, 8, 16, or a multiple of 32
  int64_t row_bytes = 0;    ///< of the codes of one output
  int64_t x_row = 0;        ///< codes of a row of x, whole chunks
  int64_t x_groups = 0;     ///< groups of a row of x, whole steps
  int64_t zero_bytes = 0;   ///< of the zero points of one output
  const uint8_t* codes = nullptr;
  const float* scale = nullptr;
  const uint8_t* zero = nullptr;  ///< none: the middle code
  int8_t* x = nullptr;            ///< [rows, x_row]
  float* x_scale = nullptr;       ///< [rows, x_groups]
  int32_t* x_sum = nullptr;       ///< [rows, x_groups]: of the codes of x
  float* y = nullptr;             ///< [rows, y_row]
  int64_t y_row = 0;
};

struct NBitsIntegerLoops {
  const char* name;  ///< none: the compiler lacks the instructions
  /// Round a row of x to row `r`; `plain` has room for x_row codes. [2 bits, 4 bits, 8 bits].
  void (*round[3])(const NBitsIntegers& c, const float* x, int64_t r, int8_t* plain);
  /// y[r, j] for rows below `rows` and columns j0 <= j < j1; [2 bits, 4 bits, 8 bits].
  void (*run[3])(const NBitsIntegers& c, int64_t rows, int64_t j0, int64_t j1);
};
extern const NBitsIntegerLoops kNBitsIntegerBase, kNBitsIntegerAvx2, kNBitsIntegerVnni;
/// Use `loops` from now on (nullptr: the best for this processor); for tests and benchmarks.
void use_nbits_integer_loops(const NBitsIntegerLoops* loops);

}  // namespace tandem::detail
