// SPDX-License-Identifier: Apache-2.0
// A convolution whose result only a batch norm with given statistics reads becomes one convolution
// with a scaled weight and a shifted bias: conv(x, w) * s + t = conv(x, w * s) + t per channel.
// Where cells may change between calls the weight is scaled in every call; so there only if it is
// smaller than the image that is spared.
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/conv/conv.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/view.h"

namespace tandem::compiler {
namespace {

// The traced body that does both: operands of the convolution, then those of the norm after its
// first.
Ref<Graph> trace_both(const Instr& conv, const Instr& norm, const std::vector<Spec>& specs) {
  NoGradGuard no_grad;
  const auto body = [&](std::span<const Tensor> in) -> std::vector<Tensor> {
    size_t at = 0;
    const auto next = [&](const Instr& i, size_t k) {
      return operand(i, k) == kNone ? Tensor() : in[at++];
    };
    Tensor x = next(conv, 0), w = next(conv, 1), bias = next(conv, 2);
    Tensor mean = next(norm, 1), var = next(norm, 2), gamma = next(norm, 3), beta = next(norm, 4);
    Tensor scale = (var + static_cast<const NormAttrs*>(norm.attrs.get())->eps).rsqrt();
    if (gamma.defined()) scale = scale * gamma;
    Tensor shift = (bias.defined() ? bias - mean : -mean) * scale;
    if (beta.defined()) shift = shift + beta;
    Shape column{w.shape(0)};
    while (column.rank() < w.dim()) column.push_back(1);
    w = w * scale.reshape(column);
    return {tandem::conv(x, w, shift, *static_cast<const ConvAttrs*>(conv.attrs.get()))};
  };
  return trace(body, specs, Captures::as_inputs);
}

class NormFolding {
 public:
  explicit NormFolding(const Program& p)
      : inference_(p.inference), stable_(stable_values(p, p.inference && p.weights_stay)) {}

  void fold(Rewrite& r) const {
    const Instr conv = r.instr("conv"), &norm = r.root();  // a copy: what is emitted moves it
    if (!fits(r, conv, norm)) return;
    std::vector<ValueId> args;
    std::vector<Spec> specs;
    const auto take = [&](const Instr& i, size_t first) {
      for (size_t k = first; k < i.op->n_in; ++k)
        if (const ValueId v = operand(i, k); v != kNone) {
          args.push_back(v);
          specs.push_back(r.spec(v));
        }
    };
    take(conv, 0);
    take(norm, 1);
    const Ref<Graph> g = trace_both(conv, norm, specs);
    r.replace(inline_graph(r.program(), *g, args, norm.scope, norm.loc)[0]);
  }

 private:
  bool stable(ValueId v) const { return v.index() < stable_.size() && stable_[v]; }

  bool fits(const Rewrite& r, const Instr& conv, const Instr& norm) const {
    const Spec &x = r.spec(norm.in[0].value), &w = r.spec(conv.in[1].value);
    if (conv.in.size() > 3 || size_of(x.dtype) < 4) return false;
    for (const Instr* i : {&conv, &norm})
      for (const Arg& a : i->in)
        if (a.is_number || (a.value != kNone && r.spec(a.value).dtype != x.dtype)) return false;
    bool stays = stable(conv.in[1].value);
    for (size_t n = 1; n < norm.in.size(); ++n)
      stays = stays && (operand(norm, n) == kNone || stable(operand(norm, n)));
    return (inference_ && stays) || 2 * w.shape.numel().value() <= x.shape.numel().value();
  }

  bool inference_;
  PerValue<char> stable_;
};

}  // namespace

void fold_norms(Program& p) {
  const NormFolding folding(p);
  Rewriter(p).run({{row(op::batch_norm_infer, {row(op::conv, {any(), any()}).once().as("conv")}),
                    [&](Rewrite& r) { folding.fold(r); }}});
}

}  // namespace tandem::compiler
