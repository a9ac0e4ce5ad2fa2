// SPDX-License-Identifier: Apache-2.0
// Building blocks for passes that put new instructions into a Program.
#pragma once

#include <span>

#include "tandem/compile/program/program.h"

namespace tandem::compiler {

/// Appends instructions; each gives its value. Specs come from the rows.
class Emitter {
 public:
  explicit Emitter(Program& p) : p_(p) {}
  /// Scope and line of what follows.
  void at(const Instr& i) {
    scope_ = i.scope;
    loc_ = i.loc;
  }
  ValueId emit(const OpDef& op, const AttrsType* type, const void* attrs,
               std::span<const ValueId> in);
  ValueId emit(const OpDef& op, const AttrsType* type, const void* attrs,
               std::initializer_list<ValueId> in) {
    return emit(op, type, attrs, std::span<const ValueId>(in.begin(), in.size()));
  }
  ValueId permute(ValueId v, std::initializer_list<int64_t> dims);
  ValueId view(ValueId v, const Shape& shape);
  const Shape& shape(ValueId v) const { return p_.values[v].spec.shape; }
  int64_t size(ValueId v, int d) const { return shape(v)[d].value(); }

 private:
  Program& p_;
  uint32_t scope_ = 0;
  SourceLocation loc_;
};

/// Which values are the same in every call: constants, and what is computed from those alone. With
/// `cells` cells that are not written count too: the same as long as nobody changes them.
PerValue<char> stable_values(const Program& p, bool cells);

/// Bytes of the elements of t that differ: those that an expansion repeats count once.
size_t bytes_behind(const Tensor& t);

}  // namespace tandem::compiler
