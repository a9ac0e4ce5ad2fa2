// SPDX-License-Identifier: Apache-2.0
// Epilogues: a loop that reads the result of a matrix product, a convolution or a batch norm (bias,
// activation, residual, the slope of an activation, an optimizer's update of that weight) moves up
// to right behind it if all else that it reads is there by then. The lowering then runs it on each
// block that was just made.
#include <algorithm>

#include "tandem/compile/loop_builder.h"
#include "tandem/compile/passes.h"

namespace tandem::compiler {
namespace {

/// Elements of what counts as a few numbers: learning rates and step counts of all parameters.
constexpr int64_t kNumbers = 4096;

size_t idx(int k) { return static_cast<size_t>(k); }

class Epilogues {
 public:
  explicit Epilogues(Program& p)
      : p_(p),
        maker_(p.values.size(), kNone),
        readers_(p.values.size()),
        taken_(p.instrs.size()),
        early_(p.instrs.size()) {
    for (size_t k = 0; k < p.instrs.size(); ++k) {
      for (int v : p.instrs[k].out)
        if (v != kNone) maker_[idx(v)] = static_cast<int>(k);
      for (const Arg& a : p.instrs[k].in)
        if (a.value != kNone) readers_[idx(a.value)].push_back(static_cast<int>(k));
    }
    for (const Program::CellUse& u : p.cells)
      if (u.entry != kNone && u.exit != kNone) entry_of_exit_.emplace_back(u.exit, u.entry);
  }

  void run() {
    const size_t n = p_.instrs.size();
    std::vector<std::vector<int>> after(n);
    std::vector<std::vector<int>> before(n);
    for (size_t k = 0; k < n; ++k) {
      const int product = static_cast<int>(k);
      const EpilogueKind kind = kind_of(p_.instrs[k]);
      if (kind == EpilogueKind::none) continue;
      const std::vector<int>& readers = readers_[idx(p_.instrs[k].out[0])];
      if (readers.empty()) continue;
      const int loop = readers.front();
      std::vector<int> numbers;
      if (taken_[idx(loop)] || !fits(product, loop, kind) || !can_move(product, loop, numbers))
        continue;
      taken_[idx(loop)] = 1;
      for (int m : numbers) taken_[idx(m)] = early_[idx(m)] = 1;
      std::sort(numbers.begin(), numbers.end());
      before[k] = std::move(numbers);
      after[k].push_back(loop);
    }
    std::vector<Instr> out;
    for (size_t k = 0; k < n; ++k) {
      if (taken_[k]) continue;
      for (int m : before[k]) out.push_back(std::move(p_.instrs[idx(m)]));
      out.push_back(std::move(p_.instrs[k]));
      for (int m : after[k]) out.push_back(std::move(p_.instrs[idx(m)]));
    }
    p_.instrs = std::move(out);
  }

 private:
  const Shape& shape(int v) const { return p_.values[idx(v)].spec.shape; }

  static int64_t last(const Shape& s) { return s[s.rank() - 1].value(); }

  EpilogueKind kind_of(const Instr& i) const {
    EpilogueKind epilogue = EpilogueKind::none;
    if (i.op && !i.out.empty() && i.out[0] != kNone && i.op->family != Family::pointwise &&
        shape(i.out[0]).rank() >= 2)
      row_major_kernel(p_, i, epilogue);
    return epilogue;
  }

  // A loop over the whole result whose other operands are of its shape or numbers, with blocks also
  // rows or columns.
  bool fits(int product, int k, EpilogueKind kind) const {
    const Instr& i = p_.instrs[idx(k)];
    const Shape& whole = shape(p_.instrs[idx(product)].out[0]);
    if (!LoopBuilder::fusable(i) || i.out.empty() || i.in.size() > 16) return false;
    for (int v : i.out)
      if (!(shape(v) == whole)) return false;
    const int64_t n = whole.numel().value(), columns = last(whole);
    for (const Arg& a : i.in) {
      if (a.value == kNone) continue;
      const Shape& s = shape(a.value);
      const int64_t m = s.numel().value();
      if (m == n || m == 1) continue;
      if (kind == EpilogueKind::ranges || m != columns || last(s) != columns) return false;
    }
    return true;
  }

  // If k makes the new value of a cell: does nobody read the old one from `product` on? It would
  // have to be kept.
  bool may_write(int product, int k) const {
    for (int v : p_.instrs[idx(k)].out)
      for (const auto& cell : entry_of_exit_) {
        if (cell.first != v) continue;
        for (int r : readers_[idx(cell.second)])
          if (r != k && r >= product) return false;
      }
    return true;
  }

  // May `k` stand right behind `product`? `numbers`: instructions of few elements that go before
  // it.
  bool can_move(int product, int k, std::vector<int>& numbers) const {
    if (!may_write(product, k)) return false;
    for (const Arg& a : p_.instrs[idx(k)].in)
      if (!there(a, product, numbers)) return false;
    return true;
  }
  bool there(const Arg& a, int product, std::vector<int>& numbers) const {
    const int from = a.value == kNone ? kNone : maker_[idx(a.value)];
    if (from <= product || early_[idx(from)] ||
        std::find(numbers.begin(), numbers.end(), from) != numbers.end())
      return true;
    const Instr& i = p_.instrs[idx(from)];
    const bool view = i.op && i.op->family == Family::view;
    if (taken_[idx(from)] || numbers.size() > 32 || (!view && !LoopBuilder::fusable(i)))
      return false;
    for (int v : i.out)
      if (shape(v).numel().value() > kNumbers) return false;
    if (!may_write(product, from)) return false;
    for (const Arg& x : i.in)
      if (!there(x, product, numbers)) return false;
    numbers.push_back(from);
    return true;
  }

  Program& p_;
  std::vector<int> maker_;
  std::vector<std::vector<int>> readers_;
  std::vector<char> taken_, early_;  ///< moved; numbers, which stand before an earlier product
  std::vector<std::pair<int, int>> entry_of_exit_;
};

}  // namespace

void place_epilogues(Program& p) { Epilogues(p).run(); }

}  // namespace tandem::compiler
