// SPDX-License-Identifier: Apache-2.0
// Program: a traced Graph as a flat list of instructions over numbered values, which the passes
// rewrite and which is then lowered to an Executable. Shapes are numbers: a graph with symbolic
// dimensions gives one Program per set of sizes. Instructions stand in an order that runs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/graph/scalar_program.h"
#include "tandem/graph/trace.h"

namespace tandem::compiler {

inline constexpr int kNone = -1;

/// Where a value comes from.
enum class Origin : uint8_t { instr, input, capture, cell, grad, constant, derived };

class Derived;  // derived.h

struct Value {
  Spec spec;
  Origin origin = Origin::instr;
  int index = kNone;  ///< of the instruction's output list, or which input, capture, cell ...
};

/// An operand: a value, a number, or absent.
struct Arg {
  int value = kNone;
  bool is_number = false;
  Scalar number;
  bool present() const { return is_number || value != kNone; }
};

struct Instr {
  const OpDef* op = nullptr;  ///< nullptr: a fused loop
  AttrsHolder attrs;
  SmallVec<Arg, 4> in;
  SmallVec<int, 2> out;  ///< kNone: not made
  uint32_t rng = 0;      ///< of a random op: distance from the offset at entry
  uint32_t scope = 0;
  Where where;
  bool again = false;  ///< computed a second time, so that its first result need not be kept
  /// Of a fused loop: what it computes, and the names of what went in.
  std::shared_ptr<const ScalarProgram> fused;
  std::string fused_names;

  const char* name() const { return op ? op->name : "fused"; }
  bool makes_hidden() const { return op && static_cast<int>(out.size()) > op->shown(); }
};

struct TD_API Program {
  struct CellUse {
    Ref<Cell> cell;
    int entry = kNone, exit = kNone;
  };
  struct GradUse {
    Ref<GradSlot> slot;
    int entry = kNone, exit = kNone;
    bool stored = false, consumed = false;
  };

  std::vector<Value> values;
  std::vector<Instr> instrs;
  std::vector<int> inputs, captures, outputs;
  std::vector<CellUse> cells;
  std::vector<GradUse> grads;
  std::vector<Tensor> constants;
  /// What is computed from cells outside of the calls, and whose results are among the constants.
  std::vector<std::shared_ptr<Derived>> derived, shared;
  uint32_t rng_draws = 0;
  /// Values alone: nothing is written, and no derivative reads what it computes.
  bool inference = false;
  /// Cells keep their values from call to call for long: of modules that are not in training.
  bool weights_stay = false;

  /// What is computed again under a memory limit, and the bytes that are not kept for it.
  struct Recomputed {
    std::string name;
    uint32_t scope = 0;
    size_t bytes = 0;
  };
  std::vector<Recomputed> recomputed;
  size_t memory_limit = 0, peak_unlimited = 0;  ///< 0: no limit was given

  int add_value(const Spec& spec, Origin origin = Origin::instr, int index = kNone);
  /// Every use of `from` becomes one of `to` (outputs, exits and operands).
  void replace_uses(const std::vector<int>& replacement);
  /// replace_uses() for a few: pairs of (before, now).
  void rename(const std::vector<std::pair<int, int>>& renamed);
  /// Constants that nobody reads any more are let go; the others keep their numbers.
  void drop_unread_constants();
  /// How often each value is read, results that leave the program counted too.
  std::vector<int> count_uses() const;
  /// The values that leave the program: outputs and exits.
  std::vector<int> results() const;
  /// "%3 = add(%1, %2) : f32[8]"
  std::string to_string() const;
};

/// The Program of `g` with `symbols` put in for its symbolic dimensions. With `keep_grads` false a
/// gradient that an optimizer consumed is not stored.
Program make_program(const Graph& g, const Symbols& symbols, bool keep_grads);

/// Append the nodes of `g` to `to`; args[i] stands for input i of g. Gives g's outputs.
std::vector<int> inline_graph(Program& to, const Graph& g, const std::vector<int>& args,
                              uint32_t scope, Where where);

/// Does it do something besides giving values, itself or in a body?
bool has_effect(const Instr& i);

/// Throws Internal if an operand is read before it is made, a value is made twice, or a shape or
/// dtype is not what the op's row gives. Run after every pass.
void verify(const Program& p, const char* after);

}  // namespace tandem::compiler
