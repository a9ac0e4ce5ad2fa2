// SPDX-License-Identifier: Apache-2.0
// The driver of the passes that are lists of rules (pattern.h). It walks the instructions once, in
// order, and offers each to the rules; operands of later ones already read what was put in place of
// earlier ones. What nobody reads any more because of a rule is eliminated.
#pragma once

#include <optional>
#include <span>

#include "tandem/compile/passes/emit.h"
#include "tandem/compile/passes/pattern.h"

namespace tandem::compiler {

class Rewriter {
 public:
  explicit Rewriter(Program& p) : p_(p), e_(p) {}

  /// True when a rule replaced something. What a rule emits is not offered in the same walk.
  bool run(const std::vector<Rule>& rules);

 private:
  friend class Rewrite;
  /// One order of a rule's operands.
  struct Candidate {
    Pattern pattern;
    const Rule* rule;
  };
  enum class Outcome : uint8_t { stays, replaced, became };
  Outcome offer(const Instr& root, const std::vector<Candidate>& candidates);
  bool match(const Pattern& p, const Arg& a, Bindings& found) const;
  bool match_instr(const Pattern& p, const Instr& i, Bindings& found) const;
  void grow();
  void count_new(InstrId first);
  void keep(Instr&& i);
  void release(const Instr& root);
  void finish();
  bool unread(const Instr& i) const;
  ValueId now(ValueId v) const;

  Program& p_;
  Emitter e_;
  PerValue<ValueId> now_;  ///< what stands for a value that was replaced; kNone: itself
  PerValue<InstrId> maker_;
  PerValue<int> uses_;
  PerInstr<char> dead_;
};

/// What a rule sees of one match, and how it says what takes the place of the root.
class Rewrite : public Bindings {
 public:
  Rewrite(Rewriter& by, const Instr& root) : by_(by), root_(root) {}

  Program& program() { return by_.p_; }
  /// Appends instructions in front of the root, with its scope and source location.
  Emitter& emit() { return by_.e_; }
  const Instr& root() const { return root_; }
  const Spec& spec(ValueId v) const { return by_.p_.values[v].spec; }
  /// The instruction that made v, or nullptr; valid until something is emitted.
  const Instr* maker(ValueId v) const;
  const Instr& instr(const char* name) const { return *maker(value(name)); }
  /// How often v is read, results counted.
  int uses(ValueId v) const { return by_.uses_[v]; }
  /// Does v match `p`? `found` gets its captures.
  bool match(const Pattern& p, ValueId v, Bindings& found) const;
  /// The number that was captured: given as such or as a constant of one element.
  double number(const char* name) const;

  /// Output `o` of the root is `v` from here on. The root goes if none of its outputs is read.
  void replace(ValueId v, size_t o = 0);
  /// `i` takes the root's place and makes what it made.
  void become(Instr i);
  void become(const OpDef& op, const void* attrs, std::span<const ValueId> in);

 private:
  friend class Rewriter;
  Rewriter& by_;
  const Instr& root_;
  Rewriter::Outcome outcome_ = Rewriter::Outcome::stays;
};

/// The number that an operand is: given as such, or a constant of one element.
std::optional<double> number_of(const Program& p, const Arg& a);

}  // namespace tandem::compiler
