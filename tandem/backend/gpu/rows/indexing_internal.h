// SPDX-License-Identifier: Apache-2.0
// How the arrays of a launch are walked: one thread an element of a loop that they share. An array
// is dense (element i), one value, or strided; the sizes and strides of strided ones are arguments,
// so one kernel serves all shapes of a rank.
#pragma once

#include <string>

#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/codegen/tile_loop.h"

namespace tandem::gpu {

/// Threads of a block where nothing else decides.
inline constexpr int kThreads = 128;

/// Type of an array's elements in a kernel's parameters: one of the same size that the dialect has.
DType word_of(DType t);
/// "td_i64".
std::string td_type(DType t);

/// Bytes from an array's first to its last element.
size_t span_of(const Array& a);

/// Does the array's address allow td_load() of groups of e elements?
bool lies_on_groups(const Array& a, int e);

class Walk {
 public:
  /// Arrays over `shape`, broadcast to it, in the memory order of arrays[leader].
  Walk(const int64_t* shape, int rank, const Array* const* arrays, int n, int leader);
  /// Every array is row-major with n elements, or one value.
  Walk(int64_t n, const Array* const* arrays, int n_arrays);
  /// A loop that somebody made, whose arrays have these spans in elements.
  Walk(const codegen::TileLoop& loop, int64_t largest_span);

  /// Threads.
  int64_t count() const { return count_; }
  /// Whether loops are equal for the purposes of a kernel's text.
  uint64_t ways() const { return ways_; }
  uint64_t shape_key() const;
  /// "td_i32", or "td_i64" where 32 bits do not do.
  const char* index() const { return wide_ ? "td_i64" : "td_i32"; }

  /// A thread takes `e` (2, 4, 8 or 16) neighbouring elements where each array has them side by
  /// side, or has one for all of them. Before fit(); false: it stays as it was.
  bool group(int e);
  int grouped() const { return group_; }
  /// Is place() of the array where its group is the e-th part of what it was, for td_load? False:
  /// one element for the whole group.
  bool in_groups(int array) const { return way(array) == dense || way(array) == strided; }
  /// May the last group have fewer elements? Then each group of an array lies at i, and a parameter
  /// `elements` says how many there are in all.
  bool has_tail() const { return group_ > 1 && flat_; }

  /// Before declare() and shape_key(): a kernel with that many other parameters has no room for
  /// sizes and strides as arguments if the arrays are many; then they are part of its text.
  void fit(int other_parameters);

  /// Parameters of the walk (count, elements, sizes, strides), and their values. `prefix` keeps the
  /// names of two walks of a kernel apart.
  void declare(KernelSource& k, const std::string& prefix = "") const;
  void argue(Arguments& a) const;
  /// Lines that define <prefix>i and, for strided arrays, <prefix>at<array>; a thread beyond the
  /// end returns. With `i` the flat position is that expression and nobody returns.
  std::string lines(const std::string& prefix = "", const std::string& i = "") const;
  /// Where the thread's element of an array lies: "i", "0", "at3".
  std::string place(int array, const std::string& prefix = "") const;

 private:
  enum Way : uint8_t { dense, one, strided, held };  ///< held: strided, the same in a group
  Way way(int array) const { return static_cast<Way>(ways_ >> 2 * array & 3); }
  bool walks(int array) const { return way(array) == strided || way(array) == held; }
  void set_ways();

  codegen::TileLoop loop_;
  int rank_ = 1, n_arrays_ = 0;
  int64_t count_ = 0, elements_ = 0;
  int group_ = 1;
  uint64_t ways_ = 0;
  bool wide_ = false, flat_ = true;  ///< flat: no array is strided
  bool literal_ = false;
};

/// `n` threads in blocks of kThreads.
inline Extent blocks_of(int64_t n) {
  return {static_cast<uint32_t>((n + kThreads - 1) / kThreads)};
}

/// Launch for every element of a walk.
void launch_each(Engine& e, KernelRef kernel, int64_t n, const Arguments& a, Stream stream);

}  // namespace tandem::gpu
