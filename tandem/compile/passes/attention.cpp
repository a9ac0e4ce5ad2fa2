// SPDX-License-Identifier: Apache-2.0
// softmax(q k^T * scale + mask) v, written as matmuls by exporters, becomes the row `attention`
// where a kernel claims it: the matrix of scores then never exists as a whole. Only in programs
// without gradients; the derivative of attention has its own row.
#include <cmath>

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/attention.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/view.h"

namespace tandem::compiler {
namespace {

struct Found {
  ValueId q, k, v, mask;
  bool k_turned = false;  ///< k is [.., e, s]
  double scale = 1;
};

class Finding {
 public:
  Finding(Rewrite& r, Found& found) : r_(r), f_(found) {}

  bool run() {
    const Instr& outer = r_.root();
    const auto& a = *static_cast<const MatmulAttrs*>(outer.attrs.get());
    if (a.trans_a || a.trans_b) return false;
    ValueId s = r_.value("scores");
    const Spec scores = r_.spec(s);
    if (scores.rank() < 3 || scores.dtype != DType::f32 ||
        static_cast<const SoftmaxAttrs*>(r_.instr("softmax").attrs.get())->dim != scores.rank() - 1)
      return false;
    if (!unmask(s, scores)) return false;
    unscale(s, f_.scale);
    static const Pattern kMatmul = row(op::matmul, {any("q"), any("k")}).once();
    Bindings c;
    if (!r_.match(kMatmul, s, c)) return false;
    const auto& inner = *static_cast<const MatmulAttrs*>(r_.maker(s)->attrs.get());
    if (inner.trans_a) return false;
    f_.q = c.value("q");
    f_.k = c.value("k");
    f_.v = r_.value("v");
    f_.k_turned = !inner.trans_b;
    unscale(f_.q, f_.scale);
    unscale(f_.k, f_.scale);
    return f_.scale > 0 && std::isfinite(f_.scale) && alike(scores);
  }

 private:
  const Spec& spec(ValueId v) const { return r_.spec(v); }

  // v as something times a number: steps down to it and takes the number into the scale.
  void unscale(ValueId& v, double& scale) const {
    static const Pattern kMul = row(op::mul, {any("x"), number("n")}).any_order().once();
    static const Pattern kDiv = row(op::div, {any("x"), number("n")}).once();
    static const Pattern kNumbers = row(op::mul, {number("a"), number("b")});
    for (Bindings c, both;; v = c.value("x")) {
      const bool mul = r_.match(kMul, v, c);
      if ((!mul && !r_.match(kDiv, v, c)) || r_.match(kNumbers, v, both)) return;
      const ValueId n = c.value("n");
      if ((n != kNone && !is_floating(spec(n).dtype)) || !(spec(v) == spec(c.value("x")))) return;
      const double number = *number_of(r_.program(), c.arg("n"));
      if (!mul && number == 0) return;
      mul ? scale *= number : scale /= number;
    }
  }

  // Sums with masks lead to the scores; one mask may hold something else than zeros.
  bool unmask(ValueId& s, const Spec& scores) {
    static const Pattern kSum = row(op::add).once();
    Bindings none;
    while (r_.match(kSum, s, none)) {
      const Instr& sum = *r_.maker(s);
      const ValueId a = sum.in[0].value, b = sum.in[1].value;
      if (a == kNone || b == kNone) return false;
      const bool first = leads_on(a) && spec(a) == scores;
      const ValueId rest = first ? a : b, mask = first ? b : a;
      if (!(spec(rest) == scores)) return false;
      if (!all_zero(mask)) {
        if (f_.mask != kNone || spec(mask).dtype != DType::f32) return false;
        f_.mask = mask;
      }
      s = rest;
    }
    return true;
  }
  // Does v come, maybe scaled, from a matmul or a sum?
  bool leads_on(ValueId v) const {
    static const Pattern kFrom = one_of({&op::matmul, &op::add}).once();
    Bindings none;
    double scale = 1;
    unscale(v, scale);
    return r_.match(kFrom, v, none);
  }
  bool all_zero(ValueId v) const {
    const Value& x = r_.program().values[v];
    if (x.origin != Origin::constant || x.spec.dtype != DType::f32) return false;
    for (float f : r_.program().constants[static_cast<size_t>(x.index)].to_vector<float>())
      if (f != 0) return false;
    return true;
  }

  // One number of dimensions and heads: no broadcasting between the three.
  bool alike(const Spec& scores) const {
    for (ValueId v : {f_.q, f_.k, f_.v}) {
      if (spec(v).rank() != scores.rank()) return false;
      for (int d = 0; d + 2 < scores.rank(); ++d)
        if (!(spec(v).shape[d] == scores.shape[d])) return false;
    }
    return true;
  }

  Rewrite& r_;
  Found& f_;
};

void attend(Rewrite& r) {
  Found f;
  if (!Finding(r, f).run()) return;
  ValueId k = f.k;
  if (f.k_turned) {
    const int rank = r.spec(k).rank();
    PermuteAttrs turn;
    for (int d = 0; d < rank; ++d)
      turn.dims.push_back(d + 2 == rank ? rank - 1 : d + 1 == rank ? rank - 2 : d);
    k = r.emit().emit(op::permute, fields<PermuteAttrs>(), &turn, {k});
  }
  AttentionAttrs a;
  a.scale = f.scale;
  r.replace(r.emit().emit(op::attention, fields<AttentionAttrs>(), &a, {f.q, k, f.v, f.mask}));
}

}  // namespace

void fuse_attention(Program& p) {
  if (!p.inference || !has_own_kernel(op::attention, p.device)) return;
  static const std::vector<Rule> kRules = {
      {row(op::matmul, {row(op::softmax, {any("scores")}).once().as("softmax"), any("v")}), attend},
  };
  if (Rewriter(p).run(kRules)) remove_dead(p);
}

}  // namespace tandem::compiler
