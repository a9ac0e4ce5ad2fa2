// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/split.h"

#include <unordered_map>

namespace tandem::compiler {
namespace {

size_t idx(int k) { return static_cast<size_t>(k); }

}  // namespace

std::vector<char> forward_part(const Program& p, size_t n_out) {
  std::vector<char> live(p.values.size()), keep(p.instrs.size());
  for (size_t i = 0; i < n_out; ++i) live[idx(p.outputs[i])] = 1;
  for (const Program::CellUse& u : p.cells)
    if (u.exit != kNone) live[idx(u.exit)] = 1;
  for (const Program::GradUse& u : p.grads)
    if (u.exit != kNone) live[idx(u.exit)] = 1;
  for (size_t k = p.instrs.size(); k-- > 0;) {
    const Instr& i = p.instrs[k];
    bool on = has_effect(i);
    for (int v : i.out) on = on || (v != kNone && live[idx(v)]);
    keep[k] = on;
    for (const Arg& a : i.in)
      if (on && a.value != kNone) live[idx(a.value)] = 1;
  }
  return keep;
}

namespace {

class Splitter {
 public:
  Splitter(const Program& p, size_t n_in, size_t n_out) : p_(p), n_in_(n_in), n_out_(n_out) {}

  Split run() {
    std::vector<char> forward = forward_part(p_, n_out_);
    s_.forward = p_;
    s_.backward.recomputed = std::move(s_.forward.recomputed);
    s_.forward.recomputed.clear();
    s_.forward.instrs.clear();
    s_.forward.inputs.resize(n_in_);
    s_.forward.outputs.resize(n_out_);
    s_.backward.constants = p_.constants;
    now_.assign(p_.values.size(), kNone);
    made_forward_.assign(p_.values.size(), 0);
    for (size_t k = 0; k < p_.instrs.size(); ++k)
      for (int v : p_.instrs[k].out)
        if (v != kNone && forward[k]) made_forward_[idx(v)] = 1;
    std::vector<Instr> later;
    for (size_t k = 0; k < p_.instrs.size(); ++k)
      (forward[k] ? s_.forward.instrs : later).push_back(p_.instrs[k]);
    // Saved values become inputs before the gradients do.
    for (const Instr& i : later)
      for (const Arg& a : i.in) save(a.value);
    for (size_t k = n_out_; k < p_.outputs.size(); ++k) save(p_.outputs[k]);
    for (size_t k = n_in_; k < p_.inputs.size(); ++k) add_input(p_.inputs[k]);
    for (const Instr& i : later) move(i);
    for (size_t k = n_out_; k < p_.outputs.size(); ++k)
      s_.backward.outputs.push_back(now_[idx(p_.outputs[k])]);
    return std::move(s_);
  }

 private:
  void add_input(int v) {
    Program& b = s_.backward;
    now_[idx(v)] =
        b.add_value(p_.values[idx(v)].spec, Origin::input, static_cast<int>(b.inputs.size()));
    b.inputs.push_back(now_[idx(v)]);
  }

  void save(int v) {
    if (v == kNone || now_[idx(v)] != kNone) return;
    const Value& x = p_.values[idx(v)];
    const auto take = [&](Saved::Kind kind, size_t index) {
      s_.saved.push_back({kind, index});
      add_input(v);
    };
    switch (x.origin) {
      case Origin::input:
        if (idx(x.index) < n_in_) take(Saved::input, idx(x.index));
        return;
      case Origin::capture:
        return take(Saved::capture, idx(x.index));
      case Origin::cell:
        return take(Saved::cell, idx(x.index));
      case Origin::constant:
        now_[idx(v)] = s_.backward.add_value(x.spec, Origin::constant, x.index);
        return;
      default:
        break;
    }
    if (!made_forward_[idx(v)]) return;
    s_.forward.outputs.push_back(v);
    take(Saved::output, s_.forward.outputs.size() - 1);
  }

  void move(const Instr& i) {
    Instr copy = i;
    for (Arg& a : copy.in)
      if (a.value != kNone) a.value = now_[idx(a.value)];
    for (size_t o = 0; o < copy.out.size(); ++o) {
      if (copy.out[o] == kNone) continue;
      int v = s_.backward.add_value(p_.values[idx(copy.out[o])].spec, Origin::instr,
                                    static_cast<int>(o));
      now_[idx(copy.out[o])] = v;
      copy.out[o] = v;
    }
    s_.backward.instrs.push_back(std::move(copy));
  }

  const Program& p_;
  size_t n_in_, n_out_;
  Split s_;
  std::vector<int> now_;  ///< of a value of the joint program: the backward one's
  std::vector<char> made_forward_;
};

}  // namespace

Split split_program(const Program& joint, size_t n_in, size_t n_out) {
  return Splitter(joint, n_in, n_out).run();
}

}  // namespace tandem::compiler
