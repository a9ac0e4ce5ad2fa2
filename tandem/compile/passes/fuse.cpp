// SPDX-License-Identifier: Apache-2.0
// Fusion: pointwise instructions over one space become one loop. A loop stands where its last
// member stood; so an instruction may be added only if nothing outside reads the loop's values
// before that. Values of one element and fills are recomputed inside each loop that reads them.
// Groups grow while it walks and depend on all readers, so this is not a list of rules.
#include <algorithm>

#include "tandem/compile/passes/loop_builder.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/program/use_def.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/backend.h"

namespace tandem::compiler {
namespace {

constexpr size_t kMaxIns = 18, kMaxOuts = 6, kMaxMembers = 24;
/// A value of one element is recomputed where it is read if so few others lead to it.
constexpr int kMaxCheapIns = 4, kMaxCheapInstrs = 12;

class Fusion {
 public:
  explicit Fusion(Program& p) : p_(p), uses_(p), items_(p.instrs.size()) {
    for (InstrId k : p.instrs.ids()) {
      Item& item = items_[k];
      item.fusable = LoopBuilder::fusable(p.instrs[k]);
      if (item.fusable && is_cheap(p.instrs[k])) count_cheap(p.instrs[k], item);
    }
  }

  void run() {
    for (InstrId k : items_.ids())
      if (items_[k].fusable && !items_[k].cheap) add(k);
    emit();
  }

 private:
  struct Item {
    bool fusable = false, cheap = false;
    int cheap_ins = 0, cheap_instrs = 0;  ///< what a cheap one takes into a loop
    int group = kNone;
  };
  struct Group {
    std::vector<InstrId> members;  // in program order
    Shape shape;
  };

  const Shape& shape_of(const Instr& i) const { return p_.values[i.out[0]].spec.shape; }

  // Recomputed where it is read: one element, or the same value everywhere.
  bool is_cheap(const Instr& i) const {
    if (i.op == &op::fill) return true;
    return p_.values[i.out[0]].spec.shape.numel() == Dim(1) && shape_of(i).rank() == 0;
  }

  void count_cheap(const Instr& i, Item& item) const {
    item.cheap_instrs = 1;
    for (const Arg& a : i.in) {
      if (a.value == kNone) continue;
      const InstrId from = uses_.maker(a.value);
      const bool along = from != kNone && items_[from].cheap;
      item.cheap_ins += along ? items_[from].cheap_ins : 1;
      item.cheap_instrs += along ? items_[from].cheap_instrs : 0;
    }
    item.cheap = item.cheap_ins <= kMaxCheapIns && item.cheap_instrs <= kMaxCheapInstrs;
  }

  // Would all readers outside `members` come after `last`?
  bool legal(const std::vector<InstrId>& members, InstrId last) const {
    for (InstrId m : members)
      for (ValueId v : p_.instrs[m].out)
        for (InstrId r : uses_.readers(v))
          if (r < last && !std::binary_search(members.begin(), members.end(), r)) return false;
    return true;
  }

  // How many values a loop of these members reads and gives.
  bool fits(const std::vector<InstrId>& members) const {
    if (members.size() > kMaxMembers) return false;
    LoopBuilder b(p_);
    size_t outs = 0;
    for (InstrId m : members) add_with_cheap(b, m);
    for (InstrId m : members)
      for (ValueId v : p_.instrs[m].out) outs += leaves(v, members);
    return b.n_in() <= kMaxIns && outs <= kMaxOuts && b.code_size() <= 200;
  }
  bool leaves(ValueId v, const std::vector<InstrId>& members) const {
    if (uses_.leaves(v)) return true;
    for (InstrId r : uses_.readers(v))
      if (!std::binary_search(members.begin(), members.end(), r)) return true;
    return false;
  }

  void add(InstrId k) {
    const Instr& i = p_.instrs[k];
    std::vector<int> groups;
    for (const Arg& a : i.in) {
      const InstrId m = uses_.maker(a.value);
      const int g = m == kNone ? kNone : items_[m].group;
      if (g != kNone && groups_[g].shape == shape_of(i) &&
          std::find(groups.begin(), groups.end(), g) == groups.end())
        groups.push_back(g);
    }
    // All producers' loops together, then each alone, the latest first, then one beside it.
    if (groups.size() > 1 && take(k, groups)) return;
    std::sort(groups.rbegin(), groups.rend());
    if (int beside = sibling(k); beside != kNone) groups.push_back(beside);
    for (int g : groups)
      if (take(k, {g})) return;
    items_[k].group = static_cast<int>(groups_.size());
    groups_.push_back({{k}, shape_of(i)});
  }

  // The loop just before k (views may stand between) that reads a whole operand of k.
  int sibling(InstrId k) const {
    const Instr& i = p_.instrs[k];
    for (InstrId before : IdRange<InstrId, -1>(InstrId(k.number() - 1), InstrId(-1))) {
      const Instr& other = p_.instrs[before];
      const int g = items_[before].group;
      if (g == kNone) {
        if (items_[before].cheap || (other.op && other.op->family == Family::view)) continue;
        return kNone;
      }
      if (!(groups_[g].shape == shape_of(i))) return kNone;
      for (InstrId m : groups_[g].members)
        for (const Arg& x : p_.instrs[m].in)
          for (const Arg& y : i.in)
            if (x.value != kNone && x.value == y.value &&
                p_.values[x.value].spec.shape == shape_of(i))
              return g;
      return kNone;
    }
    return kNone;
  }

  bool take(InstrId k, const std::vector<int>& groups) {
    std::vector<InstrId> members{k};
    for (int g : groups)
      members.insert(members.end(), groups_[g].members.begin(), groups_[g].members.end());
    std::sort(members.begin(), members.end());
    if (!legal(members, k) || !fits(members)) return false;
    for (int g : groups) groups_[g].members.clear();
    for (InstrId m : members) items_[m].group = groups[0];
    groups_[groups[0]].members = std::move(members);
    return true;
  }

  // Member m after the cheap instructions that it reads.
  void add_with_cheap(LoopBuilder& b, InstrId m) const {
    for (const Arg& a : p_.instrs[m].in) {
      const InstrId from = uses_.maker(a.value);
      if (from != kNone && items_[from].cheap && !b.has(a.value)) add_with_cheap(b, from);
    }
    b.add(p_.instrs[m]);
  }

  void emit() {
    PerInstr<Instr> out;
    for (InstrId k : items_.ids()) {
      const Item& item = items_[k];
      if (item.group == kNone) {
        out.push_back(p_.instrs[k]);
        continue;
      }
      const std::vector<InstrId>& members = groups_[item.group].members;
      if (members.back() != k) continue;
      out.push_back(make_loop(members));
    }
    p_.instrs = std::move(out);
  }

  Instr make_loop(const std::vector<InstrId>& members) const {
    const Instr& last = p_.instrs[members.back()];
    LoopBuilder b(p_);
    for (InstrId m : members) add_with_cheap(b, m);
    std::vector<ValueId> results;
    for (InstrId m : members)
      for (ValueId v : p_.instrs[m].out)
        if (leaves(v, members)) results.push_back(v);
    if (results.empty()) results.push_back(last.out[0]);
    // One instruction that takes nothing in with it stays what it is: its kernel may be faster.
    if (members.size() == 1) {
      bool inlined = false;
      for (const Arg& a : last.in) {
        const InstrId from = uses_.maker(a.value);
        inlined = inlined || (from != kNone && items_[from].cheap);
      }
      if (!inlined) return last;
    }
    Instr loop = b.finish(results);
    loop.scope = last.scope;
    loop.loc = last.loc;
    for (InstrId m : members) loop.recomputed = loop.recomputed || p_.instrs[m].recomputed;
    return loop;
  }

  Program& p_;
  UseDef uses_;
  PerInstr<Item> items_;
  std::vector<Group> groups_;
};

}  // namespace

void fuse_loops(Program& p) {
  if (runs_loops(p.device)) Fusion(p).run();
}

}  // namespace tandem::compiler
