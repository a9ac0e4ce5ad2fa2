// SPDX-License-Identifier: Apache-2.0
// Loops of matmul_nbits. A vector of codes has 32-bit lanes, each with 32 / bits codes of
// consecutive inputs, so x is arranged to match: step s of a chunk holds the inputs of code s in
// every lane. An element of the result is the sum, in lanes, of chunks: products of one chunk are
// summed as integers times x, and the sum is multiplied by its groups' scales. Its bits do not
// depend on the rows and columns computed beside it.
#pragma once

#include <cstdint>
#include <memory>

#include "tandem/graph/kernel.h"

namespace tandem::detail {

/// One weight, and the rows of x in the loops' order.
struct NBitsCall {
  int64_t chunks = 0;        ///< vectors of codes for one output
  int64_t row_bytes = 0;     ///< of the codes of one output
  int64_t groups = 0;        ///< scales of one output
  int64_t group_chunks = 0;  ///< chunks of a group; 0: a chunk has several groups
  int64_t chunk_groups = 1;  ///< groups of a chunk
  const uint8_t* codes = nullptr;
  const float* scale = nullptr;
  const float* x = nullptr;  ///< [rows][chunks][steps][lanes]
  float* decoded = nullptr;  ///< room for kNBitsColumns outputs; none: rows are few
  float* y = nullptr;        ///< [rows, y_row]
  int64_t y_row = 0;
};
inline constexpr int64_t kNBitsColumns = 4;
/// From so many rows on, codes are decoded once for all of them; fewer decode in registers.
inline constexpr int64_t kNBitsDecoded = 24;

struct NBitsLoops {
  int lanes;  ///< of a vector; 0: the compiler lacks the instructions
  /// y[r, j] for rows r0 <= r < r1 and columns j0 <= j < j1; [2 bits, 4 bits, 8 bits].
  void (*run[3])(const NBitsCall& c, int64_t r0, int64_t r1, int64_t j0, int64_t j1);
};
extern const NBitsLoops kNBitsBase, kNBitsAvx2, kNBitsAvx512;
/// Use `loops` from now on (nullptr: the best for this processor); for tests and benchmarks.
void use_nbits_loops(const NBitsLoops* loops);

/// Row `r` of x, f32 or bf16 with any strides, as numbers: where they lie, or in `room`.
const float* nbits_row(const Array& x, int64_t r, float* room);

/// The kernel of accuracy level 4 (nbits_integer_kernels.cpp), for groups of `group` inputs in
/// `bytes` bytes.
bool supports_nbits_integers(int64_t group, int64_t bytes);
std::shared_ptr<const Plan> prepare_nbits_integers(const KernelCall& c);
void run_nbits_integers(const KernelCall& c);

}  // namespace tandem::detail
