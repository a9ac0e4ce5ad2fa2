// SPDX-License-Identifier: Apache-2.0
// LoopBuilder fuses the ScalarPrograms of pointwise instructions into one: a value made inside is
// a register, one that comes from outside is read once. Used by the fusion pass only.
#pragma once

#include <unordered_map>

#include "tandem/compile/program/program.h"

namespace tandem::compiler {

/// Append what tells two instructions apart (not the bytes between the members).
void append_key(std::string& key, const ScalarInstr& i);

/// The program of a pointwise instruction or of a fused loop.
const ScalarProgram& scalar_program_of(const Program& p, const Instr& i);

class LoopBuilder {
 public:
  explicit LoopBuilder(const Program& p) : p_(p) {}

  /// May this instruction stand in a fused loop, its results kept in registers?
  static bool fusable(const Instr& i);

  /// Append the instruction. Operands that were made by earlier ones are registers.
  void add(const Instr& i);
  /// Is `value` made inside?
  bool has(ValueId value) const { return registers_.count(value) > 0; }
  /// The loop as one instruction that makes `results` (each made inside).
  Instr finish(const std::vector<ValueId>& results);
  size_t n_in() const { return program_.in.size(); }
  size_t code_size() const { return program_.code.size(); }

 private:
  int16_t input(const Arg& a, DType stored);
  int16_t emit(const ScalarInstr& i);
  int16_t as_stored(int16_t reg, DType t);

  const Program& p_;
  ScalarProgram program_;
  SmallVec<Arg, 4> args_;
  std::unordered_map<ValueId, int16_t> registers_;  ///< of values made inside
  std::unordered_map<ValueId, int> inputs_;         ///< of values read
  std::unordered_map<std::string, int16_t> seen_;
  std::string names_;
};

}  // namespace tandem::compiler
