// SPDX-License-Identifier: Apache-2.0
// Program: a traced Graph as a flat list of instructions over numbered values, which the passes
// rewrite and which is then lowered to an Executable. Shapes are numbers: a graph with symbolic
// dimensions gives one Program per set of sizes. Instructions stand in an order that runs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/compile/program/ids.h"
#include "tandem/graph/expression/scalar_program.h"
#include "tandem/graph/trace.h"

namespace tandem::compiler {

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
  ValueId value;
  bool is_number = false;
  Scalar number;
  bool present() const { return is_number || value != kNone; }
};

struct Instr {
  const OpDef* op = nullptr;  ///< nullptr: a fused loop
  AttrsHolder attrs;
  SmallVec<Arg, 4> in;
  SmallVec<ValueId, 2> out;  ///< kNone: not made
  uint32_t rng = 0;          ///< of a random op: distance from the offset at entry
  uint32_t scope = 0;
  SourceLocation loc;
  bool recomputed = false;  ///< computed a second time, so that its first result need not be kept
  /// Casts around it went into it: operands and results have other types than its row gives, and
  /// its kernel converts.
  bool converted = false;
  /// Of a fused loop: what it computes, and the names of what went in.
  std::shared_ptr<const ScalarProgram> fused;
  std::string fused_names;

  const char* name() const { return op ? op->name : "fused"; }
  bool makes_hidden() const { return op && static_cast<int>(out.size()) > op->shown(); }
};

struct TD_API Program {
  struct CellUse {
    Ref<Cell> cell;
    ValueId entry, exit;
  };
  struct GradUse {
    Ref<GradSlot> slot;
    ValueId entry, exit;
    bool stored = false, consumed = false;
    Device device{};  ///< where the gradient belongs
  };

  /// Where it runs: on the device of its values other than the host, if there is one. Values
  /// carry none: what lies on the host is brought in by the call and taken back after it.
  Device device{};
  PerValue<Value> values;
  PerInstr<Instr> instrs;
  std::vector<ValueId> inputs, captures, outputs;
  /// Where the first outputs belong, if any lies elsewhere than the program.
  std::vector<Device> output_devices;
  std::vector<CellUse> cells;
  std::vector<GradUse> grads;
  std::vector<Tensor> constants;
  /// What is computed from cells outside of the calls, and whose results are among the constants.
  std::vector<std::shared_ptr<Derived>> derived, shared;
  uint32_t rng_draws = 0;
  /// Values alone: no derivative reads what it computes, and nothing is written but state beside
  /// weights that stay.
  bool inference = false;
  /// Cells keep their values from call to call for long: of modules that are not in training.
  bool weights_stay = false;
  bool same_bits = true;  ///< CompileOptions::same_bits

  /// What is recomputed under a memory limit, and the bytes that are not kept for it.
  struct Recomputed {
    std::string name;
    uint32_t scope = 0;
    size_t bytes = 0;
  };
  std::vector<Recomputed> recomputed;
  /// A row of 16-bit floats that computes in f32: no kernel of this processor is faster with them.
  struct Widened {
    std::string name;
    uint32_t scope = 0;
  };
  std::vector<Widened> widened;
  size_t memory_limit = 0, peak_unlimited = 0;  ///< 0: no limit was given

  /// The device of `spec` becomes the program's; throws Unsupported where it has another one.
  ValueId add_value(const Spec& spec, Origin origin = Origin::instr, int index = kNone);
  ValueId add_constant(Tensor t);
  /// Every use of v (outputs, exits and operands) becomes one of now[v], where there is one.
  void replace_uses(const PerValue<ValueId>& now);
  /// replace_uses() for a few: pairs of (before, now).
  void rename(const std::vector<std::pair<ValueId, ValueId>>& renamed);
  /// Constants that nobody reads any more are let go; the others keep their numbers.
  void drop_unread_constants();
  /// How often each value is read, results that leave the program counted too.
  PerValue<int> count_uses() const;
  /// The values that leave the program: outputs and exits.
  std::vector<ValueId> results() const;
  /// "%3 = add(%1, %2) : f32[8]"
  std::string to_string() const;
};

/// The Program of `g` with `symbols` put in for its symbolic dimensions. With `keep_grads` false a
/// gradient that an optimizer consumed is not stored.
Program make_program(const Graph& g, const Symbols& symbols, bool keep_grads);

/// Append the nodes of `g` to `to`; args[i] stands for input i of g. Gives g's outputs.
std::vector<ValueId> inline_graph(Program& to, const Graph& g, const std::vector<ValueId>& args,
                                  uint32_t scope, SourceLocation loc);

/// The value that operand k is; kNone of one that is a number, absent or beyond the last.
inline ValueId operand(const Instr& i, size_t k) {
  return k < i.in.size() ? i.in[k].value : ValueId();
}

/// Bytes of a value. Throws Memory for more than a machine can address, so that sums of them are
/// exact.
size_t bytes_of(const Spec& s);

/// Does it do something besides giving values, itself or in a body?
bool has_effect(const Instr& i);

/// Throws Internal if an operand is read before it is made, a value is made twice, or a shape or
/// dtype is not what the op's row gives. Run after every pass.
void verify(const Program& p, const char* after);

}  // namespace tandem::compiler
