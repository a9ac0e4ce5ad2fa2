// SPDX-License-Identifier: Apache-2.0
// Fusion: pointwise instructions over one space become one loop. A loop stands where its last
// member stood; so a member may join only if nothing outside reads the loop's values before that.
// Values of one element and fills are computed again inside each loop that reads them.
#include <algorithm>

#include "tandem/compile/loop_builder.h"
#include "tandem/compile/passes.h"
#include "tandem/graph/apply.h"

namespace tandem::compiler {
namespace {

constexpr size_t kMaxIns = 18, kMaxOuts = 6, kMaxMembers = 24;
/// A value of one element is computed again where it is read if so few others lead to it.
constexpr int kMaxCheapIns = 4, kMaxCheapInstrs = 12;

class Fusion {
 public:
  explicit Fusion(Program& p) : p_(p), maker_(p.values.size(), kNone) {
    for (size_t k = 0; k < p.instrs.size(); ++k) {
      Item item;
      item.fusable = LoopBuilder::fusable(p.instrs[k]);
      if (item.fusable && is_cheap(p.instrs[k])) count_cheap(p.instrs[k], item);
      items_.push_back(item);
      for (int v : p.instrs[k].out)
        if (v != kNone) maker_[static_cast<size_t>(v)] = static_cast<int>(k);
    }
    find_uses();
  }

  void run() {
    for (int k = 0; k < static_cast<int>(items_.size()); ++k) {
      if (!items_[at(k)].fusable || items_[at(k)].cheap) continue;
      join(k);
    }
    emit();
  }

 private:
  struct Item {
    bool fusable = false, cheap = false;
    int cheap_ins = 0, cheap_instrs = 0;  ///< what a cheap one takes into a loop
    int group = kNone;
  };
  struct Group {
    std::vector<int> members;  // in program order
    Shape shape;
  };

  static size_t at(int k) { return static_cast<size_t>(k); }
  const Shape& shape_of(const Instr& i) const { return p_.values[at(i.out[0])].spec.shape; }

  // Recomputed where it is read: one element, or the same value everywhere.
  bool is_cheap(const Instr& i) const {
    if (i.op == &op::fill) return true;
    return p_.values[at(i.out[0])].spec.shape.numel() == Dim(1) && shape_of(i).rank() == 0;
  }

  void count_cheap(const Instr& i, Item& item) const {
    item.cheap_instrs = 1;
    for (const Arg& a : i.in) {
      if (a.value == kNone) continue;
      const int from = maker_[at(a.value)];
      const bool along = from != kNone && items_[at(from)].cheap;
      item.cheap_ins += along ? items_[at(from)].cheap_ins : 1;
      item.cheap_instrs += along ? items_[at(from)].cheap_instrs : 0;
    }
    item.cheap = item.cheap_ins <= kMaxCheapIns && item.cheap_instrs <= kMaxCheapInstrs;
  }

  void find_uses() {
    readers_.resize(p_.values.size());
    for (size_t k = 0; k < p_.instrs.size(); ++k)
      for (const Arg& a : p_.instrs[k].in)
        if (a.value != kNone) readers_[at(a.value)].push_back(static_cast<int>(k));
    is_result_.resize(p_.values.size());
    for (int v : p_.results()) is_result_[at(v)] = 1;
  }

  // Would all readers outside `members` come after `last`?
  bool legal(const std::vector<int>& members, int last) const {
    for (int m : members)
      for (int v : p_.instrs[at(m)].out)
        for (int r : readers_[at(v)])
          if (r < last && !std::binary_search(members.begin(), members.end(), r)) return false;
    return true;
  }

  // How many values a loop of these members reads and gives.
  bool fits(const std::vector<int>& members) const {
    if (members.size() > kMaxMembers) return false;
    LoopBuilder b(p_);
    size_t outs = 0;
    for (int m : members) add_with_cheap(b, m);
    for (int m : members)
      for (int v : p_.instrs[at(m)].out) outs += leaves(v, members);
    return b.n_in() <= kMaxIns && outs <= kMaxOuts && b.code_size() <= 200;
  }
  bool leaves(int v, const std::vector<int>& members) const {
    if (is_result_[at(v)]) return true;
    for (int r : readers_[at(v)])
      if (!std::binary_search(members.begin(), members.end(), r)) return true;
    return false;
  }

  void join(int k) {
    const Instr& i = p_.instrs[at(k)];
    std::vector<int> groups;
    for (const Arg& a : i.in) {
      int m = a.value == kNone ? kNone : maker_[at(a.value)];
      int g = m == kNone ? kNone : items_[at(m)].group;
      if (g != kNone && groups_[at(g)].shape == shape_of(i) &&
          std::find(groups.begin(), groups.end(), g) == groups.end())
        groups.push_back(g);
    }
    // All producers' loops together, then each alone, the latest first, then one beside it.
    if (groups.size() > 1 && take(k, groups)) return;
    std::sort(groups.rbegin(), groups.rend());
    if (int beside = sibling(k); beside != kNone) groups.push_back(beside);
    for (int g : groups)
      if (take(k, {g})) return;
    items_[at(k)].group = static_cast<int>(groups_.size());
    groups_.push_back({{k}, shape_of(i)});
  }

  // The loop just before k (views may stand between) that reads a whole operand of k.
  int sibling(int k) const {
    const Instr& i = p_.instrs[at(k)];
    for (int before = k - 1; before >= 0; --before) {
      const Instr& other = p_.instrs[at(before)];
      const int g = items_[at(before)].group;
      if (g == kNone) {
        if (items_[at(before)].cheap || (other.op && other.op->family == Family::view)) continue;
        return kNone;
      }
      if (!(groups_[at(g)].shape == shape_of(i))) return kNone;
      for (int m : groups_[at(g)].members)
        for (const Arg& x : p_.instrs[at(m)].in)
          for (const Arg& y : i.in)
            if (x.value != kNone && x.value == y.value &&
                p_.values[at(x.value)].spec.shape == shape_of(i))
              return g;
      return kNone;
    }
    return kNone;
  }

  bool take(int k, const std::vector<int>& groups) {
    std::vector<int> members{k};
    for (int g : groups)
      members.insert(members.end(), groups_[at(g)].members.begin(), groups_[at(g)].members.end());
    std::sort(members.begin(), members.end());
    if (!legal(members, k) || !fits(members)) return false;
    for (int g : groups) groups_[at(g)].members.clear();
    for (int m : members) items_[at(m)].group = groups[0];
    groups_[at(groups[0])].members = std::move(members);
    return true;
  }

  // Member m after the cheap instructions that it reads.
  void add_with_cheap(LoopBuilder& b, int m) const {
    for (const Arg& a : p_.instrs[at(m)].in) {
      int from = a.value == kNone ? kNone : maker_[at(a.value)];
      if (from != kNone && items_[at(from)].cheap && !b.has(a.value)) add_with_cheap(b, from);
    }
    b.add(p_.instrs[at(m)]);
  }

  void emit() {
    std::vector<Instr> out;
    for (int k = 0; k < static_cast<int>(items_.size()); ++k) {
      const Item& item = items_[at(k)];
      if (item.group == kNone) {
        out.push_back(p_.instrs[at(k)]);
        continue;
      }
      const std::vector<int>& members = groups_[at(item.group)].members;
      if (members.back() != k) continue;
      out.push_back(make_loop(members));
    }
    p_.instrs = std::move(out);
  }

  Instr make_loop(const std::vector<int>& members) const {
    const Instr& last = p_.instrs[at(members.back())];
    LoopBuilder b(p_);
    for (int m : members) add_with_cheap(b, m);
    std::vector<int> results;
    for (int m : members)
      for (int v : p_.instrs[at(m)].out)
        if (leaves(v, members)) results.push_back(v);
    if (results.empty()) results.push_back(last.out[0]);
    // One instruction that takes nothing in with it stays what it is: its kernel may be faster.
    if (members.size() == 1) {
      bool inlined = false;
      for (const Arg& a : last.in) {
        int from = a.value == kNone ? kNone : maker_[at(a.value)];
        inlined = inlined || (from != kNone && items_[at(from)].cheap);
      }
      if (!inlined) return last;
    }
    Instr loop = b.finish(results);
    loop.scope = last.scope;
    loop.where = last.where;
    for (int m : members) loop.again = loop.again || p_.instrs[at(m)].again;
    return loop;
  }

  Program& p_;
  std::vector<Item> items_;
  std::vector<int> maker_;
  std::vector<Group> groups_;
  std::vector<std::vector<int>> readers_;
  std::vector<char> is_result_;
};

}  // namespace

void fuse_loops(Program& p) { Fusion(p).run(); }

}  // namespace tandem::compiler
