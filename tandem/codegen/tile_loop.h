// SPDX-License-Identifier: Apache-2.0
// TileLoop: the iteration space that several strided arrays share, in the memory order of the first
// output, with neighbouring dimensions merged. Pointwise kernels, reductions and scans walk it.
#pragma once

#include "tandem/codegen/tile_plan.h"

namespace tandem::codegen {

inline constexpr int kMaxLoopArrays = kMaxPlanIns + kMaxPlanOuts;

struct TileLoop {
  int rank = 0;  ///< at least 1 after make()
  int n_arrays = 0;
  int64_t size[kMaxRank] = {};               ///< outermost first
  int64_t stride[kMaxLoopArrays][kMaxRank];  ///< in elements; 0 where an array is broadcast

  int64_t inner() const { return size[rank - 1]; }
  int64_t rows() const {
    int64_t n = 1;
    for (int d = 0; d + 1 < rank; ++d) n *= size[d];
    return n;
  }
  int64_t inner_stride(int array) const { return stride[array][rank - 1]; }
  /// Does the array lie one element after the other in loop order?
  bool dense(int array) const;
  bool constant(int array) const;

  /// The loop over `shape`; array i has the strides of arrays[i] broadcast to it. Dimensions are
  /// ordered by the strides of array `leader`.
  static TileLoop make(const int64_t* shape, int rank, const Array* const* arrays, int n,
                       int leader);
  /// Order by the leader's strides (-1: keep the order), drop sizes of 1, merge.
  void normalise(int leader);
  /// Element offset of flat position `flat` of the loop in an array.
  int64_t offset_of(int array, int64_t flat) const;
};

/// Position in the outer dimensions of a loop, with the element offset of every array.
struct LoopCursor {
  const TileLoop& loop;
  int64_t index[kMaxRank] = {};
  int64_t offset[kMaxLoopArrays] = {};

  /// At `row` of loop.rows().
  LoopCursor(const TileLoop& loop, int64_t row);
  /// To the next row.
  void advance();
};

/// dst[i] = src[i * stride] for i < n.
void gather_run(void* dst, const void* src, int64_t stride, int64_t n, size_t element_size);
/// dst[i * stride] = src[i] for i < n.
void scatter_run(void* dst, const void* src, int64_t stride, int64_t n, size_t element_size);
/// Elements [begin, begin + n) of array `array` in loop order into dst (or out of src).
void gather_flat(const TileLoop& loop, int array, void* dst, const void* src, int64_t begin,
                 int64_t n, size_t element_size);
void scatter_flat(const TileLoop& loop, int array, void* dst, const void* src, int64_t begin,
                  int64_t n, size_t element_size);

/// Scratch of one thread: on the stack unless a program is very large.
class TileScratch {
 public:
  static constexpr int64_t kStackBytes = 64 * 1024;
  /// Elements of a tile when each element needs `bytes_per_element` of scratch.
  static int64_t tile_elements(int64_t bytes_per_element);
  explicit TileScratch(int64_t bytes);
  ~TileScratch();
  TileScratch(const TileScratch&) = delete;
  TileScratch& operator=(const TileScratch&) = delete;
  /// The next block of `bytes`, 64-byte aligned.
  void* take(int64_t bytes) {
    char* p = next_;
    next_ += (bytes + 63) / 64 * 64;
    return p;
  }

 private:
  alignas(64) char stack_[kStackBytes + 4096];
  char* heap_ = nullptr;
  int64_t heap_bytes_ = 0;
  char* next_;
};

}  // namespace tandem::codegen
