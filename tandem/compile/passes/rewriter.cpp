// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/passes/rewriter.h"

#include <algorithm>

namespace tandem::compiler {

std::optional<double> number_of(const Program& p, const Arg& a) {
  if (a.is_number) return a.number.to_double();
  if (a.value == kNone) return {};
  const Value& v = p.values[a.value];
  if (v.origin != Origin::constant || v.spec.shape.numel().value() != 1) return {};
  return p.constants[static_cast<size_t>(v.index)].to_vector<double>()[0];
}

// ---- matching

bool Rewriter::match_instr(const Pattern& p, const Instr& i, Bindings& found) const {
  if (!i.op || i.in.size() < p.in.size() || !p.takes(*i.op)) return false;
  for (size_t k = 0; k < p.in.size(); ++k)
    if (!match(p.in[k], i.in[k], found)) return false;
  return true;
}

bool Rewriter::match(const Pattern& p, const Arg& a, Bindings& found) const {
  switch (p.kind) {
    case Pattern::Kind::any:
      if (a.value == kNone) return false;
      break;
    case Pattern::Kind::maybe:
      if (a.is_number) return false;
      break;
    case Pattern::Kind::number:
      if (!number_of(p_, a)) return false;
      break;
    case Pattern::Kind::instr:
      if (a.value == kNone || maker_[a.value] == kNone ||
          p_.instrs[maker_[a.value]].out[0] != a.value ||
          !match_instr(p, p_.instrs[maker_[a.value]], found))
        return false;
      break;
  }
  if (p.readings && (a.value == kNone || uses_[a.value] != p.readings)) return false;
  if (!p.name) return true;
  if (found.has(p.name)) return found.value(p.name) == a.value;
  found.add(p.name, a);
  return true;
}

Rewriter::Outcome Rewriter::offer(const Instr& root, const std::vector<Candidate>& candidates) {
  Rewrite r(*this, root);
  for (const Candidate& c : candidates) {
    r.clear();
    if (!match_instr(c.pattern, root, r)) continue;
    if (c.pattern.readings && uses_[root.out[0]] != c.pattern.readings) continue;
    e_.at(root);
    c.rule->apply(r);
    if (r.outcome_ != Outcome::stays) break;
  }
  return r.outcome_;
}

// ---- the walk

ValueId Rewriter::now(ValueId v) const {
  while (v != kNone && now_[v] != kNone) v = now_[v];
  return v;
}

bool Rewriter::unread(const Instr& i) const {
  return std::all_of(i.out.begin(), i.out.end(),
                     [&](ValueId v) { return v == kNone || uses_[v] == 0; });
}

void Rewriter::grow() {
  const size_t n = p_.values.size();
  now_.resize(n);
  maker_.resize(n);
  uses_.resize(n);
}

// Instructions from `first` on are new: they read and make values.
void Rewriter::count_new(InstrId first) {
  grow();
  for (InstrId k = first; k.index() < p_.instrs.size(); ++k) {
    for (ValueId v : p_.instrs[k].out)
      if (v != kNone) maker_[v] = k;
    for (const Arg& a : p_.instrs[k].in)
      if (a.value != kNone) ++uses_[a.value];
  }
}

void Rewriter::keep(Instr&& i) {
  const InstrId k = p_.instrs.push_back(std::move(i));
  for (ValueId v : p_.instrs[k].out)
    if (v != kNone) maker_[v] = k;
}

// The root is gone and reads nothing any more; nor does what only the root needed.
void Rewriter::release(const Instr& root) {
  std::vector<ValueId> open;
  for (const Arg& a : root.in) open.push_back(a.value);
  dead_.resize(p_.instrs.size());
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (v == kNone || --uses_[v] > 0 || maker_[v] == kNone) continue;
    const InstrId k = maker_[v];
    if (dead_[k] || !unread(p_.instrs[k]) || has_effect(p_.instrs[k])) continue;
    dead_[k] = 1;
    for (const Arg& a : p_.instrs[k].in) open.push_back(a.value);
  }
}

bool Rewriter::run(const std::vector<Rule>& rules) {
  std::vector<Candidate> candidates;
  for (const Rule& r : rules)
    for (Pattern& p : orders_of(r.pattern)) candidates.push_back({std::move(p), &r});
  uses_ = p_.count_uses();
  now_.assign(p_.values.size(), kNone);
  maker_.assign(p_.values.size(), kNone);
  dead_.clear();
  PerInstr<Instr> old = std::exchange(p_.instrs, {});
  p_.instrs.reserve(old.size());
  bool changed = false;
  for (Instr& i : old) {
    for (Arg& a : i.in) a.value = now(a.value);
    const InstrId first(p_.instrs.size());
    const Outcome outcome = offer(i, candidates);
    if (outcome == Outcome::stays) {
      keep(std::move(i));
      continue;
    }
    changed = true;
    // What the new instructions read is counted before the root lets go of it.
    count_new(first);
    if (outcome == Outcome::became || unread(i))
      release(i);
    else
      keep(std::move(i));
  }
  if (changed) finish();
  return changed;
}

void Rewriter::finish() {
  p_.replace_uses(now_);
  dead_.resize(p_.instrs.size());
  PerInstr<Instr> kept;
  kept.reserve(p_.instrs.size());
  for (InstrId k : p_.instrs.ids())
    if (!dead_[k]) kept.push_back(std::move(p_.instrs[k]));
  p_.instrs = std::move(kept);
}

// ---- what a rule sees and does

const Instr* Rewrite::maker(ValueId v) const {
  if (v == kNone || v.index() >= by_.maker_.size() || by_.maker_[v] == kNone) return nullptr;
  return &by_.p_.instrs[by_.maker_[v]];
}

bool Rewrite::match(const Pattern& p, ValueId v, Bindings& found) const {
  Arg a;
  a.value = v;
  found.clear();
  for (const Pattern& order : orders_of(p)) {
    if (by_.match(order, a, found)) return true;
    found.clear();
  }
  return false;
}

double Rewrite::number(const char* name) const { return *number_of(by_.p_, arg(name)); }

void Rewrite::replace(ValueId v, size_t o) {
  const ValueId from = root_.out[o];
  by_.grow();
  by_.now_[from] = v;
  by_.uses_[v] += std::exchange(by_.uses_[from], 0);
  outcome_ = Rewriter::Outcome::replaced;
}

void Rewrite::become(Instr i) {
  i.out = root_.out;
  by_.p_.instrs.push_back(std::move(i));
  outcome_ = Rewriter::Outcome::became;
}

void Rewrite::become(const OpDef& op, const void* attrs, std::span<const ValueId> in) {
  Instr i;
  i.op = &op;
  if (attrs) i.attrs = AttrsHolder(op.attrs, attrs);
  i.scope = root_.scope;
  i.loc = root_.loc;
  i.recomputed = root_.recomputed;
  for (ValueId v : in) {
    Arg a;
    a.value = v;
    i.in.push_back(a);
  }
  become(std::move(i));
}

}  // namespace tandem::compiler
