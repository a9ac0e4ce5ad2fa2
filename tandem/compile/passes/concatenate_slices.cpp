// SPDX-License-Identifier: Apache-2.0
// Gradients of slices that tile a tensor: the sum of slice_backward over pieces that do not meet
// and leave nothing out is one concatenation. (x.split(...) in the forward function gives it; each
// piece was written into a tensor of zeros, and these were added. A sum of x and zeros is x, but
// for a negative zero, which becomes a positive one: so zero is added to the result.)
#include <algorithm>

#include "tandem/compile/passes/emit.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/view/view.h"

namespace tandem::compiler {
namespace {

// The pieces that a tree of additions puts together.
class Pieces {
 public:
  explicit Pieces(const Rewrite& r) : r_(r), spec_(r.spec(r.root().out[0])) {}

  // The leaves of the tree; inner sums are read by nobody else.
  bool collect(const Instr& i) {
    for (const Arg& a : i.in) {
      const Instr* from = r_.maker(a.value);
      if (!from || r_.uses(a.value) != 1 || !(r_.spec(a.value) == spec_)) return false;
      if (from->op == &op::slice_backward ? !leaf(*from) : from->op != &op::add || !collect(*from))
        return false;
    }
    return all_.size() <= 32;
  }
  // Do they follow one another from the first element to the last?
  bool tile() {
    if (all_.size() < 2) return false;
    std::sort(all_.begin(), all_.end(),
              [](const Piece& a, const Piece& b) { return a.start < b.start; });
    int64_t at = 0;
    for (const Piece& piece : all_) {
      if (piece.start != at) return false;
      at += piece.length;
    }
    return Dim(at) == spec_.shape[dim_];
  }
  int dim() const { return dim_; }
  std::vector<ValueId> values() const {
    std::vector<ValueId> v;
    for (const Piece& piece : all_) v.push_back(piece.value);
    return v;
  }

 private:
  struct Piece {
    int64_t start, length;
    ValueId value;  ///< what stands there
  };
  bool leaf(const Instr& i) {
    const auto& a = *static_cast<const SliceBackwardAttrs*>(i.attrs.get());
    const int d = normalize_dim(a.dim, a.shape.rank());
    if ((dim_ != kNone && d != dim_) || a.range[2] != Dim(1)) return false;
    dim_ = d;
    all_.push_back({a.range[0].value(), a.range[1].value(), i.in[0].value});
    return true;
  }

  const Rewrite& r_;
  const Spec& spec_;
  std::vector<Piece> all_;
  int dim_ = kNone;
};

void concatenate(Rewrite& r) {
  Pieces pieces(r);
  if (!pieces.collect(r.root()) || !pieces.tile()) return;
  DimAttrs a;
  a.dim = pieces.dim();
  Emitter e(r.program());
  e.at(r.root());
  Arg all, zero;
  all.value = e.emit(op::cat, op::cat.attrs, &a, pieces.values());
  zero.is_number = true;
  zero.number = Scalar(0.0);
  Instr sum;
  sum.op = &op::add;
  sum.scope = r.root().scope;
  sum.loc = r.root().loc;
  sum.recomputed = r.root().recomputed;
  sum.in.push_back(all);
  sum.in.push_back(zero);
  r.become(std::move(sum));
}

}  // namespace

void concatenate_slices(Program& p) {
  static const std::vector<Rule> kRules = {{row(op::add, {any(), any()}), concatenate}};
  Rewriter(p).run(kRules);
  remove_dead(p);
}

}  // namespace tandem::compiler
