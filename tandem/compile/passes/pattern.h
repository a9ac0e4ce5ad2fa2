// SPDX-License-Identifier: Apache-2.0
// Patterns of instructions as data: which row or family, what its operands are, and names for what
// is found. A rule is a pattern and a function that puts something in the place of what matched;
// the Rewriter (rewriter.h) walks a program and applies rules.
//
//   {row(op::add, {row(op::mul, {any("a"), any("b")}).once(), any("c")}).any_order(), fuse}
#pragma once

#include <functional>
#include <initializer_list>
#include <vector>

#include "tandem/compile/program/program.h"

namespace tandem::compiler {

class Rewrite;

/// What an operand must be. Build patterns with the functions below.
struct Pattern {
  enum class Kind : uint8_t {
    any,     ///< a value
    maybe,   ///< a value or absent
    number,  ///< a number, or a constant of one element
    instr    ///< the first output of such an instruction
  };
  Kind kind = Kind::any;
  const char* name = nullptr;     ///< captures what is found; where it stands twice, the same value
  std::vector<const OpDef*> ops;  ///< one of these; empty: with one of `flags`, or of `family`
  uint32_t flags = 0;
  Family family = Family::pointwise;
  std::vector<Pattern> in;  ///< the first operands in their order; others may follow
  int readings = 0;         ///< how often the value is read, results counted; 0: does not matter
  bool swaps = false;       ///< the first two operands may stand in either order

  bool takes(const OpDef& op) const;

  Pattern as(const char* its_name) &&;
  /// Nobody else reads the value.
  Pattern once() && { return std::move(*this).read(1); }
  Pattern read(int times) &&;
  Pattern any_order() &&;
};

Pattern any(const char* name = nullptr);
Pattern maybe(const char* name);
Pattern number(const char* name);
Pattern row(const OpDef& op, std::vector<Pattern> in = {});
Pattern one_of(std::initializer_list<const OpDef*> ops, std::vector<Pattern> in = {});
Pattern of_family(Family family, std::vector<Pattern> in = {});
Pattern with_flag(uint32_t flags, std::vector<Pattern> in = {});

/// `apply` calls replace() or become() of the Rewrite, or leaves the instruction as it is: then the
/// next rule is tried. The root of the pattern is an instruction.
struct Rule {
  Pattern pattern;
  std::function<void(Rewrite&)> apply;
};

/// The pattern once for each order of operands that any_order() allows.
std::vector<Pattern> orders_of(const Pattern& p);

/// What a match found, by name.
class Bindings {
 public:
  ValueId value(const char* name) const { return arg(name).value; }
  /// Throws Internal where the pattern has no such name.
  const Arg& arg(const char* name) const;
  bool has(const char* name) const { return find(name) != nullptr; }
  void add(const char* name, const Arg& a) { all_.push_back({name, a}); }
  void clear() { all_.clear(); }

 private:
  struct Entry {
    const char* name;
    Arg arg;
  };
  const Entry* find(const char* name) const;
  SmallVec<Entry, 6> all_;
};

}  // namespace tandem::compiler
