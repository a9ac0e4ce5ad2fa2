// SPDX-License-Identifier: Apache-2.0
// Products of one tensor with several packed weights become one product with the columns of all,
// where only views and attention read the results: the projections to queries, keys and values.
// Packed weights lie in panels of columns, so theirs come one behind the other; the joined weight
// follows from weights alone and leaves the calls (derive_values()). What was a result is a slice
// of the columns, and sums are as they were.
#include "tandem/compile/emit.h"
#include "tandem/compile/passes.h"
#include "tandem/ops/attention.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/packed.h"
#include "tandem/ops/view.h"

namespace tandem::compiler {
namespace {

size_t idx(int k) { return static_cast<size_t>(k); }

class Joining {
 public:
  explicit Joining(Program& p)
      : p_(p), e_(p), maker_(p.values.size(), kNone), readers_(p.values.size()) {
    for (size_t k = 0; k < p.instrs.size(); ++k) {
      for (int v : p.instrs[k].out)
        if (v != kNone) maker_[idx(v)] = static_cast<int>(k);
      for (const Arg& a : p.instrs[k].in)
        if (a.value != kNone) readers_[idx(a.value)].push_back(static_cast<int>(k));
    }
    for (int v : p.results()) readers_[idx(v)].push_back(kNone);
  }

  void run() {
    find_groups();
    std::erase_if(groups_, [](const auto& g) { return g.size() < 2; });
    if (groups_.empty()) return;
    old_ = std::move(p_.instrs);
    p_.instrs.clear();
    done_.resize(old_.size());
    std::vector<const std::vector<int>*> group_of(old_.size());
    for (const std::vector<int>& g : groups_) group_of[idx(g[0])] = &g;
    for (size_t k = 0; k < old_.size(); ++k) {
      if (done_[k]) continue;
      if (group_of[k])
        join(*group_of[k]);
      else
        p_.instrs.push_back(std::move(old_[k]));
      done_[k] = 1;
    }
    p_.rename(renamed_);
  }

 private:
  static const PackedAttrs& attrs(const Instr& i) {
    return *static_cast<const PackedAttrs*>(i.attrs.get());
  }
  static int operand(const Instr& i, size_t k) { return k < i.in.size() ? i.in[k].value : kNone; }

  void find_groups() {
    for (size_t k = 0; k < p_.instrs.size(); ++k) {
      if (!joinable(p_.instrs[k])) continue;
      std::vector<int>* home = nullptr;
      for (std::vector<int>& g : groups_)
        if (g.size() < kMaxOpIns && alike(p_.instrs[idx(g[0])], p_.instrs[k])) home = &g;
      if (!home) home = &groups_.emplace_back();
      home->push_back(static_cast<int>(k));
    }
  }

  bool joinable(const Instr& i) const {
    return (i.op == &op::packed_product || i.op == &op::packed_product_bf16) &&
           operand(i, 3) == kNone && attrs(i).columns % kPackedPanel == 0 && only_seen(i.out[0]);
  }
  // Do its elements' places not matter to whoever reads it?
  bool only_seen(int v) const {
    for (int k : readers_[idx(v)]) {
      if (k == kNone) return false;
      const Instr& i = p_.instrs[idx(k)];
      if (i.op == &op::attention || i.op == &op::matmul) continue;
      if (!i.op || i.op->family != Family::view || !only_seen(i.out[0])) return false;
    }
    return true;
  }
  static bool alike(const Instr& a, const Instr& b) {
    return a.op == b.op && operand(a, 0) == operand(b, 0) &&
           (operand(a, 2) == kNone) == (operand(b, 2) == kNone) && attrs(a).tail == attrs(b).tail &&
           attrs(a).low == attrs(b).low && attrs(a).high == attrs(b).high;
  }

  // What makes v goes before what comes next.
  void pull(int v) {
    const int k = v == kNone ? kNone : maker_[idx(v)];
    if (k == kNone || done_[idx(k)]) return;
    done_[idx(k)] = 1;
    for (const Arg& a : old_[idx(k)].in) pull(a.value);
    p_.instrs.push_back(std::move(old_[idx(k)]));
  }

  int cat(const std::vector<int>& group, size_t operand_index) {
    std::vector<int> parts;
    for (int k : group) parts.push_back(operand(old_[idx(k)], operand_index));
    if (parts[0] == kNone) return kNone;
    const DimAttrs along_first{};
    return e_.emit(op::cat, op::cat.attrs, &along_first, parts);
  }

  void join(const std::vector<int>& group) {
    PackedAttrs a = attrs(old_[idx(group[0])]);
    a.columns = 0;
    for (int k : group) {
      a.columns += attrs(old_[idx(k)]).columns;
      pull(operand(old_[idx(k)], 1));
      pull(operand(old_[idx(k)], 2));
    }
    const Instr& first = old_[idx(group[0])];
    e_.at(first);
    const int w = cat(group, 1), b = cat(group, 2);
    const int y = e_.emit(*first.op, fields<PackedAttrs>(), &a, {operand(first, 0), w, b});
    int64_t start = 0;
    for (int k : group) {
      const Instr& i = old_[idx(k)];
      e_.at(i);
      SliceAttrs s;
      s.dim = e_.shape(y).rank() - 1;
      for (const int64_t n : {start, attrs(i).columns, int64_t{1}}) s.range.push_back(n);
      renamed_.emplace_back(i.out[0], e_.emit(op::slice, fields<SliceAttrs>(), &s, {y}));
      start += attrs(i).columns;
      done_[idx(k)] = 1;
    }
  }

  Program& p_;
  Emitter e_;
  std::vector<int> maker_;
  std::vector<std::vector<int>> readers_;  ///< of a value: instructions; kNone: it leaves
  std::vector<std::vector<int>> groups_;
  std::vector<Instr> old_;
  std::vector<char> done_;
  std::vector<std::pair<int, int>> renamed_;
};

}  // namespace

void join_products(Program& p) {
  if (p.inference) Joining(p).run();
}

}  // namespace tandem::compiler
