// SPDX-License-Identifier: Apache-2.0
// Lowering: instructions become steps (kernel calls with prepared plans, fused loops), values get
// places (a buffer, an offset, strides), buffers get lifetimes and, in the arena, offsets.
#pragma once

#include <deque>

#include "tandem/compile/program/program.h"
#include "tandem/graph/kernel.h"

namespace tandem::compiler {

/// Where a buffer's address comes from at run time.
enum class Base : uint8_t {
  arena,
  input,
  capture,
  cell,      ///< the value at entry
  cell_new,  ///< the value to store: the same bytes where nobody else holds them
  grad,      ///< the gradient at entry
  grad_new,
  constant,
  output,
  derived  ///< computed from cells, outside of the calls
};

struct Block {
  Base base = Base::arena;
  int index = kNone;  ///< which input, cell ...
  size_t bytes = 0;
  int first = kNone, last = kNone;  ///< steps that write it first and touch it last
  size_t offset = 0;                ///< in the arena
  int same_as = kNone;              ///< shares the bytes of that buffer (an update in place)
};

/// How a value lies in a buffer.
struct Place {
  int buffer = kNone;
  int64_t offset = 0;  ///< bytes
  Shape shape;
  Strides strides;
  DType dtype = DType::f32;
  bool contiguous = true;
};

struct RequantiseForm;

struct StepInput {
  int place = kNone;  ///< of Lowered::places; kNone: a number or absent
  bool is_number = false;
  Scalar number;
};

struct Step {
  const OpDef* op = nullptr;  ///< nullptr: a fused loop
  AttrsHolder attrs;
  const Kernel* kernel = nullptr;  ///< nullptr: the row's reference
  bool on_host = false;            ///< the host runs it for the program's device, between copies
  std::shared_ptr<const Plan> plan;
  int scratch = kNone;  ///< buffer
  const ScalarProgram* program = nullptr;
  SmallVec<StepInput, 6> in;
  SmallVec<int, 4> out;  ///< places; kNone: not made
  uint32_t rng = 0, scope = 0;
  SourceLocation loc;
  bool recomputed = false;  ///< see Instr
  std::string name;
  int together = 1;     ///< this and the next ones (loops that do not meet) run in one region
  bool inside = false;  ///< a loop that the step before runs on each block of its result
  bool ranges = false;  ///< ... where blocks are ranges of memory
  bool alone = false;   ///< ... and which is the only one that reads it
  std::shared_ptr<const RequantiseForm> codes;  ///< ... what it makes of sums, if it is that
};

struct Lowered {
  std::vector<Block> buffers;
  std::deque<Place> places;  ///< addresses stay: arrays point into them
  std::vector<Step> steps;
  std::vector<int> outputs;                 ///< places
  std::vector<int> cell_exits, grad_exits;  ///< place per cell and slot, kNone if not written
  std::vector<char> cell_in_place;          ///< may the new value be written over the old one?
  std::vector<Tensor> constants;
  Device device{};  ///< the program's
  size_t arena_bytes = 0;
  size_t lower_bound = 0;  ///< most bytes of the arena that are alive in one step
  int peak_step = 0;       ///< where that is
};

/// Strides of `a` as a matrix of rows x columns: the whole of it, a row for all, a column for all,
/// or one element. False: it is none of these.
bool as_matrix(const Array& a, int64_t rows, int64_t columns, int64_t& row, int64_t& column);

/// What the steps become.
enum class LowerTo : uint8_t {
  kernels,  ///< calls of the device's kernels, in the layouts that these prefer
  text,     ///< source text (room edge): no kernels, no scratch, results row-major
};

/// Lower a program that the passes have left.
Lowered lower_program(const Program& p, LowerTo to = LowerTo::kernels);
/// What lies in the arena in the step where most is alive, largest first.
std::vector<const Block*> alive_at_peak(const Lowered& l);
/// Give the arena's buffers offsets that are multiples of `align` (memory_plan.cpp).
void plan_memory(Lowered& l, size_t align);

}  // namespace tandem::compiler
