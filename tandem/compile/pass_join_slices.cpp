// SPDX-License-Identifier: Apache-2.0
// Gradients of slices that tile a tensor: the sum of slice_backward over pieces that do not meet
// and leave nothing out is one concatenation. (x.split(...) in the forward function gives it; each
// piece was written into a tensor of zeros, and these were added. A sum of x and zeros is x.)
#include <algorithm>

#include "tandem/compile/passes.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/view.h"

namespace tandem::compiler {
namespace {

size_t idx(int k) { return static_cast<size_t>(k); }

struct Piece {
  int64_t start, length;
  int value;  ///< what stands there
};

class Joiner {
 public:
  explicit Joiner(Program& p) : p_(p), maker_(p.values.size(), kNone), uses_(p.count_uses()) {
    for (size_t k = 0; k < p.instrs.size(); ++k)
      for (int v : p.instrs[k].out)
        if (v != kNone) maker_[idx(v)] = static_cast<int>(k);
  }

  void run() {
    for (size_t k = p_.instrs.size(); k-- > 0;) {
      Instr& i = p_.instrs[k];
      if (i.op != &op::add || i.in.size() != 2) continue;
      pieces_.clear();
      dim_ = kNone;
      if (!collect(i, true)) continue;
      std::sort(pieces_.begin(), pieces_.end(),
                [](const Piece& a, const Piece& b) { return a.start < b.start; });
      if (!tiles(p_.values[idx(i.out[0])].spec.shape)) continue;
      DimAttrs a;
      a.dim = dim_;
      i.op = &op::cat;
      i.attrs = AttrsHolder(op::cat.attrs, &a);
      i.in.clear();
      for (const Piece& piece : pieces_) {
        Arg x;
        x.value = piece.value;
        i.in.push_back(x);
      }
    }
    remove_dead(p_);
  }

 private:
  // The leaves of a tree of additions whose inner sums nobody else reads.
  bool collect(const Instr& i, bool root) {
    if (!root && uses_[idx(i.out[0])] != 1) return false;
    if (i.op == &op::slice_backward) return leaf(i);
    if (i.op != &op::add) return false;
    for (const Arg& a : i.in) {
      if (a.value == kNone || maker_[idx(a.value)] == kNone) return false;
      if (!(p_.values[idx(a.value)].spec == p_.values[idx(i.out[0])].spec)) return false;
      if (!collect(p_.instrs[idx(maker_[idx(a.value)])], false)) return false;
    }
    return pieces_.size() <= 32;
  }
  bool leaf(const Instr& i) {
    const auto& a = *static_cast<const SliceBackwardAttrs*>(i.attrs.get());
    int d = normalize_dim(a.dim, a.shape.rank());
    if ((dim_ != kNone && d != dim_) || a.range[2] != Dim(1)) return false;
    dim_ = d;
    pieces_.push_back({a.range[0].value(), a.range[1].value(), i.in[0].value});
    return true;
  }
  bool tiles(const Shape& whole) const {
    if (pieces_.size() < 2) return false;
    int64_t at = 0;
    for (const Piece& piece : pieces_) {
      if (piece.start != at) return false;
      at += piece.length;
    }
    return Dim(at) == whole[dim_];
  }

  Program& p_;
  std::vector<int> maker_, uses_;
  std::vector<Piece> pieces_;
  int dim_ = kNone;
};

}  // namespace

void join_slices(Program& p) { Joiner(p).run(); }

}  // namespace tandem::compiler
