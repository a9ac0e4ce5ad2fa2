// SPDX-License-Identifier: Apache-2.0
// softmax(q k^T * scale + mask) v, written as products by exporters, becomes the row `attention`
// where a kernel claims it: the matrix of scores then never exists as a whole. Only in programs
// without gradients; the derivative of attention has its own row.
#include <cmath>
#include <optional>

#include "tandem/compile/emit.h"
#include "tandem/compile/passes.h"
#include "tandem/ops/attention.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/softmax.h"
#include "tandem/ops/view.h"

namespace tandem::compiler {
namespace {

size_t idx(int k) { return static_cast<size_t>(k); }

class Fusing {
 public:
  explicit Fusing(Program& p)
      : p_(p), e_(p), maker_(p.values.size(), kNone), uses_(p.count_uses()) {
    for (size_t k = 0; k < p.instrs.size(); ++k)
      for (int v : p.instrs[k].out)
        if (v != kNone) maker_[idx(v)] = static_cast<int>(k);
  }

  void run() {
    old_ = std::move(p_.instrs);
    p_.instrs.clear();
    std::vector<std::pair<int, int>> renamed;
    for (const Instr& i : old_) {
      Found f;
      if (find(i, f)) {
        e_.at(i);
        renamed.emplace_back(i.out[0], emit(f));
      } else {
        p_.instrs.push_back(i);
      }
    }
    if (renamed.empty()) return;
    p_.rename(renamed);
    remove_dead(p_);
  }

 private:
  struct Found {
    int q = kNone, k = kNone, v = kNone, mask = kNone;
    bool k_turned = false;  ///< k is [.., e, s]
    double scale = 1;
  };

  const Spec& spec(int v) const { return p_.values[idx(v)].spec; }
  // The instruction that makes v, if it is of that row and v is used once.
  const Instr* made_by(int v, const OpDef& row) const {
    if (v == kNone || maker_[idx(v)] == kNone || uses_[idx(v)] != 1) return nullptr;
    const Instr& i = old_[idx(maker_[idx(v)])];
    return i.op == &row ? &i : nullptr;
  }
  std::optional<double> number(const Arg& a) const {
    if (a.is_number) return a.number.to_double();
    if (a.value == kNone) return {};
    const Value& v = p_.values[idx(a.value)];
    if (v.origin != Origin::constant || v.spec.shape.numel().value() != 1 ||
        !is_floating(v.spec.dtype))
      return {};
    return p_.constants[idx(v.index)].to_vector<double>()[0];
  }

  // v as something times a number: steps down to it.
  void unscale(int& v, double& scale) const {
    for (;;) {
      if (const Instr* i = made_by(v, op::mul)) {
        const auto a = number(i->in[0]), b = number(i->in[1]);
        if (!a == !b) return;
        if (!same_shape(v, i->in[a ? 1 : 0].value)) return;
        scale *= a ? *a : *b;
        v = i->in[a ? 1 : 0].value;
      } else if (const Instr* d = made_by(v, op::div)) {
        const auto b = number(d->in[1]);
        if (!b || *b == 0 || !same_shape(v, d->in[0].value)) return;
        scale /= *b;
        v = d->in[0].value;
      } else {
        return;
      }
    }
  }
  bool same_shape(int a, int b) const { return b != kNone && spec(a) == spec(b); }

  bool all_zero(int v) const {
    const Value& x = p_.values[idx(v)];
    if (x.origin != Origin::constant || x.spec.dtype != DType::f32) return false;
    for (float f : p_.constants[idx(x.index)].to_vector<float>())
      if (f != 0) return false;
    return true;
  }

  bool find(const Instr& i, Found& f) const {
    if (i.op != &op::matmul || i.in[0].value == kNone || i.in[1].value == kNone) return false;
    const auto& outer = *static_cast<const MatmulAttrs*>(i.attrs.get());
    if (outer.trans_a || outer.trans_b) return false;
    const Instr* soft = made_by(i.in[0].value, op::softmax);
    if (!soft) return false;
    int s = soft->in[0].value;
    const int rank = spec(s).rank();
    if (rank < 3 || spec(s).dtype != DType::f32 ||
        static_cast<const SoftmaxAttrs*>(soft->attrs.get())->dim != rank - 1)
      return false;
    while (const Instr* sum = made_by(s, op::add)) {
      const int a = sum->in[0].value, b = sum->in[1].value;
      if (a == kNone || b == kNone) return false;
      const bool first = scores(a) && spec(a) == spec(s);
      const int rest = first ? a : b, mask = first ? b : a;
      if (!(spec(rest) == spec(s))) return false;
      if (!all_zero(mask)) {
        if (f.mask != kNone || spec(mask).dtype != DType::f32) return false;
        f.mask = mask;
      }
      s = rest;
    }
    unscale(s, f.scale);
    const Instr* product = made_by(s, op::matmul);
    if (!product) return false;
    const auto& inner = *static_cast<const MatmulAttrs*>(product->attrs.get());
    if (inner.trans_a) return false;
    f.q = product->in[0].value;
    f.k = product->in[1].value;
    f.v = i.in[1].value;
    f.k_turned = !inner.trans_b;
    if (f.q == kNone || f.k == kNone) return false;
    unscale(f.q, f.scale);
    unscale(f.k, f.scale);
    // One number of dimensions and heads: no broadcasting between the three.
    for (int v : {f.q, f.k, f.v}) {
      if (spec(v).rank() != rank) return false;
      for (int d = 0; d + 2 < rank; ++d)
        if (!(spec(v).shape[d] == spec(s).shape[d])) return false;
    }
    return f.scale > 0 && std::isfinite(f.scale);
  }
  // Does v come, maybe scaled, from a product?
  bool scores(int v) const {
    double scale = 1;
    unscale(v, scale);
    return made_by(v, op::matmul) || made_by(v, op::add);
  }

  int emit(const Found& f) {
    int k = f.k;
    if (f.k_turned) {
      const int rank = spec(k).rank();
      PermuteAttrs turn;
      for (int d = 0; d < rank; ++d)
        turn.dims.push_back(d + 2 == rank ? rank - 1 : d + 1 == rank ? rank - 2 : d);
      k = e_.emit(op::permute, fields<PermuteAttrs>(), &turn, {k});
    }
    AttentionAttrs a;
    a.scale = f.scale;
    return e_.emit(op::attention, fields<AttentionAttrs>(), &a, {f.q, k, f.v, f.mask});
  }

  Program& p_;
  Emitter e_;
  std::vector<Instr> old_;
  std::vector<int> maker_, uses_;
};

}  // namespace

void fuse_attention(Program& p) {
  const OpRuntime& r = runtime_of(op::attention);
  if (p.inference && r.kernels[static_cast<int>(DeviceKind::cpu)]) Fusing(p).run();
}

}  // namespace tandem::compiler
