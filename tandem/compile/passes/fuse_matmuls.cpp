// SPDX-License-Identifier: Apache-2.0
// Matmuls of one tensor with several packed weights become one matmul with the columns of all,
// where only views and attention read the results: the projections to queries, keys and values.
// Packed weights lie in panels of columns, so theirs come one after the other; the concatenated
// weight follows from weights alone and leaves the calls (derive_values()). What was a result is a
// slice of the columns, and sums are as they were. A group is found by who else reads its operand,
// which no pattern of one instruction says.
#include "tandem/compile/passes/emit.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/program/use_def.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/matmul/packed.h"
#include "tandem/ops/nn/attention.h"
#include "tandem/ops/view/view.h"

namespace tandem::compiler {
namespace {

class MatmulFusion {
 public:
  explicit MatmulFusion(Program& p) : p_(p), e_(p), uses_(p) {}

  void run() {
    find_groups();
    std::erase_if(groups_, [](const auto& g) { return g.size() < 2; });
    if (groups_.empty()) return;
    old_ = std::exchange(p_.instrs, {});
    done_.resize(old_.size());
    PerInstr<const Group*> group_of(old_.size());
    for (const Group& g : groups_) group_of[g[0]] = &g;
    for (InstrId k : old_.ids()) {
      if (done_[k]) continue;
      if (group_of[k])
        fuse(*group_of[k]);
      else
        p_.instrs.push_back(std::move(old_[k]));
      done_[k] = 1;
    }
    p_.rename(renamed_);
  }

 private:
  using Group = std::vector<InstrId>;

  static const PackedAttrs& attrs(const Instr& i) {
    return *static_cast<const PackedAttrs*>(i.attrs.get());
  }

  void find_groups() {
    for (InstrId k : p_.instrs.ids()) {
      if (!fusable(p_.instrs[k])) continue;
      Group* home = nullptr;
      for (Group& g : groups_)
        if (g.size() < kMaxOpIns && alike(p_.instrs[g[0]], p_.instrs[k])) home = &g;
      if (!home) home = &groups_.emplace_back();
      home->push_back(k);
    }
  }

  bool fusable(const Instr& i) const {
    return i.op && i.op->has(kPackedMatmul) && operand(i, 3) == kNone &&
           attrs(i).columns % kPackedPanel == 0 && only_seen(i.out[0]);
  }
  // Do its elements' places not matter to whoever reads it?
  bool only_seen(ValueId v) const {
    if (uses_.leaves(v)) return false;
    for (InstrId k : uses_.readers(v)) {
      const Instr& i = p_.instrs[k];
      if (i.op == &op::attention || i.op == &op::matmul) continue;
      if (!i.op || i.op->family != Family::view || !only_seen(i.out[0])) return false;
    }
    return true;
  }
  static bool alike(const Instr& a, const Instr& b) {
    return a.op == b.op && operand(a, 0) == operand(b, 0) &&
           (operand(a, 2) == kNone) == (operand(b, 2) == kNone) &&
           same_epilogue(attrs(a), attrs(b));
  }
  static bool same_epilogue(PackedAttrs a, const PackedAttrs& b) {
    a.columns = b.columns;
    return equal_attrs(fields<PackedAttrs>(), &a, &b);
  }

  // What makes v goes before what comes next.
  void pull(ValueId v) {
    const InstrId k = uses_.maker(v);
    if (k == kNone || done_[k]) return;
    done_[k] = 1;
    for (const Arg& a : old_[k].in) pull(a.value);
    p_.instrs.push_back(std::move(old_[k]));
  }

  ValueId cat(const Group& group, size_t operand_index) {
    std::vector<ValueId> parts;
    for (InstrId k : group) parts.push_back(operand(old_[k], operand_index));
    if (parts[0] == kNone) return kNone;
    const DimAttrs along_first{};
    return e_.emit(op::cat, op::cat.attrs, &along_first, parts);
  }

  void fuse(const Group& group) {
    PackedAttrs a = attrs(old_[group[0]]);
    a.columns = 0;
    for (InstrId k : group) {
      a.columns += attrs(old_[k]).columns;
      pull(operand(old_[k], 1));
      pull(operand(old_[k], 2));
    }
    const Instr& first = old_[group[0]];
    e_.at(first);
    const ValueId w = cat(group, 1), b = cat(group, 2);
    const ValueId y = e_.emit(*first.op, fields<PackedAttrs>(), &a, {operand(first, 0), w, b});
    int64_t start = 0;
    for (InstrId k : group) {
      const Instr& i = old_[k];
      e_.at(i);
      SliceAttrs s;
      s.dim = e_.shape(y).rank() - 1;
      for (const int64_t n : {start, attrs(i).columns, int64_t{1}}) s.range.push_back(n);
      renamed_.emplace_back(i.out[0], e_.emit(op::slice, fields<SliceAttrs>(), &s, {y}));
      start += attrs(i).columns;
      done_[k] = 1;
    }
  }

  Program& p_;
  Emitter e_;
  UseDef uses_;
  std::vector<Group> groups_;
  PerInstr<Instr> old_;
  PerInstr<char> done_;
  std::vector<std::pair<ValueId, ValueId>> renamed_;
};

}  // namespace

void fuse_matmuls(Program& p) {
  if (p.inference) MatmulFusion(p).run();
}

}  // namespace tandem::compiler
