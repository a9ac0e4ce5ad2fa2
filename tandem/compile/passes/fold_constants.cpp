// SPDX-License-Identifier: Apache-2.0
// What depends on constants alone is computed now, by the kernels that eager code would use, and
// becomes a constant itself: shapes that a model computes, folded norms, packed weights. Views of
// constants stay views unless what reads them is folded. Results much larger than what they are
// made of (expansions) are left to the run.
#include "tandem/compile/passes/emit.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/context.h"
#include "tandem/ops/view/create.h"

namespace tandem::compiler {
namespace {

constexpr size_t kAlwaysKept = 1 << 20;  ///< bytes that are always kept
constexpr size_t kFewBytes =
    1 << 16;  ///< of a weight in a file that may be looked at, and of arange for text
constexpr size_t kPackedGrowth = 6;  ///< a packed weight may be so much larger than the weight

class ConstantFolding {
 public:
  ConstantFolding(Program& p, bool from_nothing)
      : p_(p), from_nothing_(from_nothing), known_(p.values.size()) {
    for (ValueId v : p.values.ids())
      if (p.values[v].origin == Origin::constant) known_[v] = p.constants[p.values[v].index];
  }

  void run() {
    std::vector<std::pair<ValueId, ValueId>> renamed;
    PerInstr<Instr> kept;
    for (Instr& i : p_.instrs) {
      if (!foldable(i) || !evaluate(i)) {
        kept.push_back(std::move(i));
        continue;
      }
      if (i.op->family == Family::view) {  // goes when nobody reads it
        kept.push_back(std::move(i));
        continue;
      }
      for (ValueId v : i.out)
        if (v != kNone) renamed.emplace_back(v, p_.add_constant(known_[v]));
    }
    p_.instrs = std::move(kept);
    if (renamed.empty()) return;
    p_.rename(renamed);
    remove_dead(p_);
    p_.drop_unread_constants();
  }

 private:
  bool foldable(const Instr& i) const {
    if (!i.op || has_effect(i) || i.op->has(kRandom) || i.op->has(kDataSized) ||
        i.op->family == Family::control || i.makes_hidden())
      return false;
    const bool made = from_nothing_ && i.in.empty() && i.op != &op::fill;
    bool any = made;
    size_t in = 0, out = 0;
    for (const Arg& a : i.in) {
      if (a.value == kNone) continue;
      if (!known_[a.value].defined()) return false;
      any = true;
      in += bytes_behind(known_[a.value]);
    }
    for (ValueId v : i.out) {
      if (v == kNone) return false;
      out += bytes_of(p_.values[v].spec);
    }
    if (made) return out <= kFewBytes;
    if (p_.inference && i.op->has(kWeightForm) && out > kFewBytes)
      return false;  // derive_values() does it
    return any && (i.op->family == Family::view || out <= kAlwaysKept || out <= kPackedGrowth * in);
  }

  bool evaluate(const Instr& i) {
    NoGradGuard no_grad;
    const AutocastGuard casts_are_traced(DType::bf16, false);
    runtime_of(*i.op);
    std::vector<Operand> in;
    for (const Arg& a : i.in) {
      if (a.is_number)
        in.emplace_back(a.number, i.loc);
      else
        in.emplace_back(a.value == kNone ? Tensor() : known_[a.value], i.loc);
    }
    Tensor out[kMaxOpOuts];
    try {
      apply(*i.op, i.attrs.get(), in, out, i.loc);
    } catch (const Error&) {
      return false;  // the run reports it, should it come to that
    }
    for (size_t o = 0; o < i.out.size(); ++o) {
      if (!out[o].defined() || !(spec_of(out[o]) == p_.values[i.out[o]].spec)) return false;
      known_[i.out[o]] = std::move(out[o]);
    }
    return true;
  }

  Program& p_;
  const bool from_nothing_;
  PerValue<Tensor> known_;
};

}  // namespace

void fold_constants(Program& p) {
  for (const Value& v : p.values)
    if (v.origin == Origin::constant) return ConstantFolding(p, false).run();
}
void fold_constants_for_text(Program& p) { ConstantFolding(p, true).run(); }

}  // namespace tandem::compiler
