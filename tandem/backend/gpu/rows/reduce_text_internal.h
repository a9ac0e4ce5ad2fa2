// SPDX-License-Identifier: Apache-2.0
// The text of a reduction or scan from the four expressions of its row, and how a call is cut for
// blocks of kReduceThreads threads.
#pragma once

#include <string>
#include <vector>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/codegen/reduce_geometry.h"
#include "tandem/codegen/reduce_program.h"

namespace tandem::gpu {

inline constexpr int kReduceThreads = 256;
/// Where a thread is: `lane` along the lanes, `other` across them; its piece, and its block among
/// those of the piece. Parameters lanes and pieces say how many there are.
inline constexpr const char* kGridLines = R"td_text(
  const td_i32 t = td_thread(x), lane = t % lanes, other = t / lanes;
  const td_i32 others = td_threads(x) / lanes;
  const td_i64 piece = td_block(x) % pieces, block = td_block(x) / pieces;
)td_text";

/// By the shape and how arrays lie, not by their addresses: so the order of a sum is the same
/// whatever buffer x is in.
struct ReduceCut {
  /// Threads with neighbouring numbers take neighbouring reduced elements, or kept ones.
  bool columns = false;
  int group = 1;       ///< elements that a thread takes at once, along the same way
  int lanes = 1;       ///< threads along that way; the others take other kept elements, or reduced
  int64_t pieces = 1;  ///< of the reduced elements; above 1 a second kernel combines them
  bool aligned = false;  ///< a group is one load

  ReduceCut(const codegen::ReduceGeometry& g, const codegen::ReduceProgram& p, const KernelCall& c);
  /// The kept elements: x and the outputs, with columns in groups.
  Walk walk(const codegen::ReduceGeometry& g, const KernelCall& c) const;
  uint32_t blocks(const codegen::ReduceGeometry& g) const;
};

/// A walk over the kept elements one by one.
Walk kept_walk(const codegen::ReduceGeometry& g, const KernelCall& c);
/// Threads of a block along `n` elements, where the others have work for at most `others`.
int lanes_for(int64_t n, int64_t others);

struct ReduceText {
  const codegen::ReduceProgram& p;
  const KernelCall& call;

  int states() const { return p.n_states; }
  /// "a0", or "a0[e]": the states of one element of a group.
  std::vector<std::string> state_names(const char* prefix, const char* at = "") const;
  /// Definitions of the states of no element, `group` of them.
  std::string start(const char* prefix, int group = 1) const;
  /// The states take element `x` in, whose number is `index`.
  std::string step(const std::string& x, const std::string& index, const char* at = "") const;
  /// a = combine(a, b).
  std::string combine(const char* at = "") const;
  /// Outputs from the states, at `place` of each.
  std::string finish(const std::vector<std::string>& places, const char* at = "") const;
  /// "const float v = ...;": an element as stored.
  std::string element(const std::string& stored) const;

  void declare_input(KernelSource& k) const;
  /// What finish() reads and writes.
  void declare_finish(KernelSource& k) const;
  void argue_finish(Arguments& a, int64_t count) const;
  /// Arrays of states between two kernels.
  void declare_parts(KernelSource& k, Parameter::Kind kind) const;

  /// The kernels: of the elements, and of pieces of them.
  KernelSource rows(const codegen::ReduceGeometry& g, const ReduceCut& cut, const Walk& kept) const;
  KernelSource columns(const codegen::ReduceGeometry& g, const ReduceCut& cut,
                       const Walk& kept) const;
  KernelSource of_pieces(const Walk& kept) const;
  void argue_reduced(Arguments& a, const codegen::TileLoop& loop, const ReduceCut& cut) const;

 private:
  void declare_cut(KernelSource& k, const codegen::TileLoop& loop, int group) const;
  std::string combined(const char* along, int group) const;
  std::string results(bool split, const Walk& kept, int group) const;
};

}  // namespace tandem::gpu
