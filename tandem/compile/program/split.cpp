// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/program/split.h"

#include <unordered_map>

namespace tandem::compiler {
namespace {}  // namespace

PerInstr<char> forward_part(const Program& p, size_t n_out) {
  PerValue<char> live(p.values.size());
  PerInstr<char> keep(p.instrs.size());
  for (size_t i = 0; i < n_out; ++i) live[p.outputs[i]] = 1;
  for (const Program::CellUse& u : p.cells)
    if (u.exit != kNone) live[u.exit] = 1;
  for (const Program::GradUse& u : p.grads)
    if (u.exit != kNone) live[u.exit] = 1;
  for (InstrId k : p.instrs.backwards()) {
    const Instr& i = p.instrs[k];
    bool on = has_effect(i);
    for (ValueId v : i.out) on = on || (v != kNone && live[v]);
    keep[k] = on;
    for (const Arg& a : i.in)
      if (on && a.value != kNone) live[a.value] = 1;
  }
  return keep;
}

namespace {

class Splitter {
 public:
  Splitter(const Program& p, size_t n_in, size_t n_out) : p_(p), n_in_(n_in), n_out_(n_out) {}

  Split run() {
    const PerInstr<char> forward = forward_part(p_, n_out_);
    s_.forward = p_;
    s_.backward.recomputed = std::move(s_.forward.recomputed);
    s_.forward.recomputed.clear();
    s_.forward.instrs.clear();
    s_.forward.inputs.resize(n_in_);
    s_.forward.outputs.resize(n_out_);
    s_.backward.constants = p_.constants;
    s_.backward.device = p_.device;
    now_.resize(p_.values.size());
    made_forward_.resize(p_.values.size());
    for (InstrId k : p_.instrs.ids())
      for (ValueId v : p_.instrs[k].out)
        if (v != kNone && forward[k]) made_forward_[v] = 1;
    PerInstr<Instr> later;
    for (InstrId k : p_.instrs.ids())
      (forward[k] ? s_.forward.instrs : later).push_back(p_.instrs[k]);
    // Saved values become inputs before the gradients do.
    for (const Instr& i : later)
      for (const Arg& a : i.in) save(a.value);
    for (size_t k = n_out_; k < p_.outputs.size(); ++k) save(p_.outputs[k]);
    for (size_t k = n_in_; k < p_.inputs.size(); ++k) add_input(p_.inputs[k]);
    for (const Instr& i : later) move(i);
    for (size_t k = n_out_; k < p_.outputs.size(); ++k)
      s_.backward.outputs.push_back(now_[p_.outputs[k]]);
    return std::move(s_);
  }

 private:
  void add_input(ValueId v) {
    Program& b = s_.backward;
    now_[v] = b.add_value(p_.values[v].spec, Origin::input, static_cast<int>(b.inputs.size()));
    b.inputs.push_back(now_[v]);
  }

  void save(ValueId v) {
    if (v == kNone || now_[v] != kNone) return;
    const Value& x = p_.values[v];
    const auto take = [&](Saved::Kind kind, size_t index) {
      s_.saved.push_back({kind, index});
      add_input(v);
    };
    const auto number = static_cast<size_t>(x.index);
    switch (x.origin) {
      case Origin::input:
        if (number < n_in_) take(Saved::input, number);
        return;
      case Origin::capture:
        return take(Saved::capture, number);
      case Origin::cell:
        return take(Saved::cell, number);
      case Origin::constant:
        now_[v] = s_.backward.add_value(x.spec, Origin::constant, x.index);
        return;
      default:
        break;
    }
    if (!made_forward_[v]) return;
    s_.forward.outputs.push_back(v);
    take(Saved::output, s_.forward.outputs.size() - 1);
  }

  void move(const Instr& i) {
    Instr copy = i;
    for (Arg& a : copy.in)
      if (a.value != kNone) a.value = now_[a.value];
    for (size_t o = 0; o < copy.out.size(); ++o) {
      if (copy.out[o] == kNone) continue;
      const ValueId v =
          s_.backward.add_value(p_.values[copy.out[o]].spec, Origin::instr, static_cast<int>(o));
      now_[copy.out[o]] = v;
      copy.out[o] = v;
    }
    s_.backward.instrs.push_back(std::move(copy));
  }

  const Program& p_;
  size_t n_in_, n_out_;
  Split s_;
  PerValue<ValueId> now_;  ///< of a value of the joint program: the backward one's
  PerValue<char> made_forward_;
};

}  // namespace

Split split_program(const Program& joint, size_t n_in, size_t n_out) {
  return Splitter(joint, n_in, n_out).run();
}

}  // namespace tandem::compiler
