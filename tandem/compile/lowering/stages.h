// SPDX-License-Identifier: Apache-2.0
// The stages of lowering, one file each, in the order in which lower_program() runs them. They
// share a Lowering: the program, what is made of it so far, and where each value lies.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "tandem/compile/lowering/lower.h"
#include "tandem/graph/kernel.h"

namespace tandem::compiler {

/// places.cpp: buffers and places, and where each value of the program lies.
struct Lowering {
  Lowering(const Program& p, bool text) : program(p), text(text), place_of(p.values.size(), kNone) {
    l.device = p.device;
  }

  const Program& program;
  const bool text;  ///< LowerTo::text
  Lowered l;
  PerValue<int> place_of;  ///< of a value; kNone: not made yet

  const Spec& spec(ValueId v) const { return program.values[v].spec; }
  Place& place(int k) { return l.places[static_cast<size_t>(k)]; }
  const Place& place(int k) const { return l.places[static_cast<size_t>(k)]; }
  Block& buffer_of(int k) { return l.buffers[static_cast<size_t>(place(k).buffer)]; }

  int add_buffer(Base base, int index, size_t bytes);
  /// `strides` nullptr: row-major.
  int add_place(int buffer, const Spec& s, const Strides* strides = nullptr);
  /// A place in an arena buffer of its own.
  int fresh(const Spec& s, const Strides* strides = nullptr);
  /// Inputs, captures, cells, gradients and constants.
  void bind_placeholders();
};

bool same_strides(const Shape& shape, const Strides& a, const Strides& b);
/// lower.cpp: bytes between buffers of the arena.
size_t alignment(const Program& p, bool text);

/// operands.cpp: a step's operands as its kernel sees them, the addresses aside.
struct Arrays {
  SmallVec<Array, 8> in;
  Array out[kMaxOpOuts];
};
Array array_of_place(const Lowered& l, int k);
Arrays arrays_of(const Lowered& l, const Step& s);
KernelCall call_of(const Lowered& l, const Step& s, Arrays& a);

/// steps.cpp: instructions become steps.
void lower_instr(Lowering& at, const Instr& i);
/// Append a step that copies place `k` to place `to`. `from` (or nullptr) gives scope and source
/// location.
void copy_to(Lowering& at, int k, int to, const Instr* from);
/// The same to a place of its own with these dense strides (nullptr: row-major).
int copy_place(Lowering& at, int k, const Instr* from, const Strides* strides = nullptr);

/// pieces.cpp: a concatenation whose pieces are made in their places. False: it is one of another
/// kind, and nothing was done.
bool lower_concatenation(Lowering& at, const Instr& i);

/// intern_program.cpp: one copy of each program, which lives for ever, so that plans made of it may
/// be kept.
const ScalarProgram* interned(const ScalarProgram& p);

/// fused_epilogue.cpp: if the step made last is a loop that can run on each block of the result of
/// the step before it, mark it so.
void fuse_epilogue(Lowered& l);
/// Does step k + 1 run inside step k?
bool has_epilogue(const Lowered& l, size_t k);

/// results.cpp: what leaves the program gets a buffer of its own.
class Results {
 public:
  explicit Results(Lowering& at) : at_(at) {}
  /// Before the steps: results that are a placeholder's own bytes are copied before anything is
  /// overwritten.
  void early_copies();
  /// After the steps.
  void bind();

 private:
  int claim(ValueId v, Base base, int index, bool whole);

  Lowering& at_;
  std::unordered_map<ValueId, int> early_;  ///< place of the copy of a value
  std::unordered_set<int> claimed_;         ///< buffers
};

/// lifetimes.cpp: the first and the last step that touch each buffer.
void find_lifetimes(Lowered& l);

/// overwrite.cpp: an output takes over the buffer of an operand that is read for the last time.
void reuse_buffers(Lowered& l);
/// A cell's new value may be written over the old one if the old one is not read afterwards.
void find_in_place_cells(Lowered& l);
/// The buffer whose bytes `buffer` has.
int root_buffer(const Lowered& l, int buffer);

/// loop_regions.cpp: neighbouring flat loops that touch different bytes run in one parallel region.
void group_loops(Lowered& l);

}  // namespace tandem::compiler
