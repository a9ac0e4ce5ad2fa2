// SPDX-License-Identifier: Apache-2.0
// Building blocks for passes that put new instructions into a Program.
#pragma once

#include <functional>
#include <span>

#include "tandem/compile/program.h"

namespace tandem::compiler {

/// Appends instructions; each gives its value. Specs come from the rows.
class Emitter {
 public:
  explicit Emitter(Program& p) : p_(p) {}
  /// Scope and line of what follows.
  void at(const Instr& i) {
    scope_ = i.scope;
    where_ = i.where;
  }
  int emit(const OpDef& op, const AttrsType* type, const void* attrs, std::span<const int> in);
  int emit(const OpDef& op, const AttrsType* type, const void* attrs,
           std::initializer_list<int> in) {
    return emit(op, type, attrs, std::span<const int>(in.begin(), in.size()));
  }
  int permute(int v, std::initializer_list<int64_t> dims);
  int view(int v, const Shape& shape);
  /// Offers each instruction in its order: `by` appends what takes its place and gives the value of
  /// its first result, or kNone, and it stays. True when something was replaced.
  bool rewrite(const std::function<int(const Instr&)>& by);
  const Shape& shape(int v) const { return p_.values[static_cast<size_t>(v)].spec.shape; }
  int64_t size(int v, int d) const { return shape(v)[d].value(); }

 private:
  Program& p_;
  uint32_t scope_ = 0;
  Where where_;
};

/// Which values are the same in every call: constants, and what is computed from those alone. With
/// `cells` cells that are not written count too: the same as long as nobody changes them.
std::vector<char> stable_values(const Program& p, bool cells);

/// Bytes of the elements of t that differ: those that an expansion repeats count once.
size_t bytes_behind(const Tensor& t);

}  // namespace tandem::compiler
