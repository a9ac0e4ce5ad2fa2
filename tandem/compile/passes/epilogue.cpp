// SPDX-License-Identifier: Apache-2.0
// Epilogues: a loop that reads the result of a matmul, a convolution or a batch norm (bias,
// activation, residual, the derivative of an activation, an optimizer's update of that weight)
// moves up to right after it if all else that it reads is there by then. The lowering then runs it
// on each block that was just made.
#include <algorithm>

#include "tandem/compile/passes/edits.h"
#include "tandem/compile/passes/loop_builder.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/program/use_def.h"

namespace tandem::compiler {
namespace {

/// Elements of what counts as a few numbers: learning rates and step counts of all parameters.
constexpr int64_t kNumbers = 4096;

class Epilogues {
 public:
  explicit Epilogues(Program& p) : p_(p), uses_(p), edits_(p), early_(p.instrs.size()) {
    for (const Program::CellUse& u : p.cells)
      if (u.entry != kNone && u.exit != kNone) entry_of_exit_.emplace_back(u.exit, u.entry);
  }

  void run() {
    for (InstrId k : p_.instrs.ids()) {
      const EpilogueKind kind = kind_of(p_.instrs[k]);
      if (kind == EpilogueKind::none) continue;
      const auto readers = uses_.readers(p_.instrs[k].out[0]);
      if (readers.empty()) continue;
      const InstrId loop = readers.front();
      std::vector<InstrId> numbers;
      if (edits_.is_removed(loop) || !fits(k, loop, kind) || !can_move(k, loop, numbers)) continue;
      std::sort(numbers.begin(), numbers.end());
      for (InstrId m : numbers) {
        edits_.move_before(k, m);
        early_[m] = 1;
      }
      edits_.move_after(k, loop);
    }
    edits_.apply();
  }

 private:
  const Shape& shape(ValueId v) const { return p_.values[v].spec.shape; }

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
  bool fits(InstrId maker, InstrId k, EpilogueKind kind) const {
    const Instr& i = p_.instrs[k];
    const Shape& whole = shape(p_.instrs[maker].out[0]);
    if (!LoopBuilder::fusable(i) || i.out.empty() || i.in.size() > 16) return false;
    for (ValueId v : i.out)
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

  // If k makes the new value of a cell: does nobody read the old one from `maker` on? It would have
  // to be kept.
  bool may_write(InstrId maker, InstrId k) const {
    for (ValueId v : p_.instrs[k].out)
      for (const auto& cell : entry_of_exit_) {
        if (cell.first != v) continue;
        for (InstrId r : uses_.readers(cell.second))
          if (r != k && r >= maker) return false;
      }
    return true;
  }

  // May `k` stand right after `maker`? `numbers`: instructions of few elements that go before it.
  bool can_move(InstrId maker, InstrId k, std::vector<InstrId>& numbers) const {
    if (!may_write(maker, k)) return false;
    for (const Arg& a : p_.instrs[k].in)
      if (!there(a, maker, numbers)) return false;
    return true;
  }
  bool there(const Arg& a, InstrId maker, std::vector<InstrId>& numbers) const {
    const InstrId from = uses_.maker(a.value);
    if (from <= maker || early_[from] ||
        std::find(numbers.begin(), numbers.end(), from) != numbers.end())
      return true;
    const Instr& i = p_.instrs[from];
    const bool view = i.op && i.op->family == Family::view;
    if (edits_.is_removed(from) || numbers.size() > 32 || (!view && !LoopBuilder::fusable(i)))
      return false;
    for (ValueId v : i.out)
      if (shape(v).numel().value() > kNumbers) return false;
    if (!may_write(maker, from)) return false;
    for (const Arg& x : i.in)
      if (!there(x, maker, numbers)) return false;
    numbers.push_back(from);
    return true;
  }

  Program& p_;
  UseDef uses_;
  Edits edits_;
  PerInstr<char> early_;  ///< numbers that were moved up
  std::vector<std::pair<ValueId, ValueId>> entry_of_exit_;
};

}  // namespace

void place_epilogues(Program& p) { Epilogues(p).run(); }

}  // namespace tandem::compiler
