// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/program/made_again.h"

#include "tandem/base/error.h"
#include "tandem/compile/passes/edits.h"
#include "tandem/compile/program/use_def.h"

namespace tandem::compiler {
namespace {

// One value that is dropped. Readers from `at` on are served with copies.
class SecondMaking {
 public:
  SecondMaking(Program& p, const UseDef& uses, Edits& edits, const Drop& drop)
      : p_(p), uses_(uses), edits_(edits), first_(drop.at), again_(p.values.size()) {
    follows_.resize(p.values.size());
    lead(drop.value);
    follow();
  }

  void run() {
    if (stays()) return;
    for (size_t k = first_; k < p_.instrs.size(); ++k)
      for (Arg& a : p_.instrs[InstrId(k)].in)
        if (a.value != kNone && follows_[a.value]) a.value = copy_of(a.value, InstrId(k));
  }

 private:
  // Is it read before something else is gathered?
  bool stays() const {
    for (size_t k = first_; k < p_.instrs.size(); ++k) {
      const Instr& i = p_.instrs[InstrId(k)];
      if (i.op && i.op->has(kStartsAhead)) return false;
      for (const Arg& a : i.in)
        if (a.value != kNone && follows_[a.value]) return true;
    }
    return true;
  }
  // What leads to v belongs to it, down to the row that starts it; what that reads stays.
  void lead(ValueId v) {
    if (v == kNone || follows_[v]) return;
    const InstrId maker = uses_.maker(v);
    TD_ASSERT(maker != kNone);
    const Instr& i = p_.instrs[maker];
    for (const ValueId y : i.out)
      if (y != kNone) follows_[y] = 1;
    if (i.op && i.op->has(kStartsAhead)) return;
    for (const Arg& a : i.in) lead(a.value);
  }
  // Views and casts of it that were made before.
  void follow() {
    for (size_t k = 0; k < first_; ++k) {
      const Instr& i = p_.instrs[InstrId(k)];
      const bool cheap = i.op && (i.op->family == Family::view || i.op->types == Types::cast);
      if (!cheap || i.out.size() != 1) continue;
      bool any = false, all = true;
      for (const Arg& a : i.in) {
        any |= a.value != kNone && follows_[a.value];
        all &= a.value == kNone || follows_[a.value];
      }
      if (any && all) follows_[i.out[0]] = 1;
    }
  }
  ValueId copy_of(ValueId v, InstrId reader) {
    if (v == kNone || !follows_[v]) return v;
    if (again_[v] != kNone) return again_[v];
    Instr i = p_.instrs[uses_.maker(v)];
    for (Arg& a : i.in) a.value = copy_of(a.value, reader);
    for (ValueId& y : i.out) {
      if (y == kNone) continue;
      const Value& was = p_.values[y];
      const ValueId now = p_.add_value(Spec(was.spec), was.origin, was.index);
      again_.resize(p_.values.size());
      follows_.resize(p_.values.size());
      again_[y] = now;
      y = now;
    }
    i.recomputed = true;
    edits_.put_before(reader, std::move(i));
    return again_[v];
  }

  Program& p_;
  const UseDef& uses_;
  Edits& edits_;
  size_t first_;
  PerValue<char> follows_;
  PerValue<ValueId> again_;  ///< the second value; kNone: not made yet
};

}  // namespace

void make_again(Program& p, const std::vector<Drop>& drops) {
  if (drops.empty()) return;
  const UseDef uses(p);
  Edits edits(p);
  for (const Drop& d : drops) SecondMaking(p, uses, edits, d).run();
  edits.apply();
}

}  // namespace tandem::compiler
