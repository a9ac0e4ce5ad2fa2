// SPDX-License-Identifier: Apache-2.0
// A convolution whose result only a batch norm with given statistics reads becomes one convolution
// with a scaled weight and a shifted bias: conv(x, w) * s + t = conv(x, w * s) + t per channel.
// Where cells may change between calls the weight is scaled in every call; so there only if it is
// smaller than the image that is spared. Rounds otherwise than the two did.
#include "tandem/compile/emit.h"
#include "tandem/compile/passes.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/view.h"

namespace tandem::compiler {
namespace {

size_t idx(int k) { return static_cast<size_t>(k); }

class Folder {
 public:
  explicit Folder(Program& p)
      : p_(p),
        maker_(p.values.size(), kNone),
        uses_(p.count_uses()),
        stable_(stable_values(p, p.inference && p.weights_stay)) {
    for (size_t k = 0; k < p.instrs.size(); ++k)
      for (int v : p.instrs[k].out)
        if (v != kNone) maker_[idx(v)] = static_cast<int>(k);
  }

  void run() {
    std::vector<Instr> old = std::move(p_.instrs);
    std::vector<int> conv_of(old.size(), kNone);
    std::vector<char> gone(old.size());
    for (size_t k = 0; k < old.size(); ++k) {
      conv_of[k] = fits(old, old[k]);
      if (conv_of[k] != kNone) gone[idx(conv_of[k])] = 1;
    }
    std::vector<std::pair<int, int>> renamed;
    p_.instrs.clear();
    for (size_t k = 0; k < old.size(); ++k) {
      if (gone[k]) continue;
      if (conv_of[k] == kNone)
        p_.instrs.push_back(std::move(old[k]));
      else
        renamed.emplace_back(old[k].out[0], fold(old[idx(conv_of[k])], old[k]));
    }
    p_.rename(renamed);
  }

 private:
  const Spec& spec(int v) const { return p_.values[idx(v)].spec; }
  static int operand(const Instr& i, size_t k) { return k < i.in.size() ? i.in[k].value : kNone; }

  // The convolution that batch norm `norm` may take in, or kNone.
  int fits(const std::vector<Instr>& all, const Instr& norm) const {
    if (norm.op != &op::batch_norm_infer) return kNone;
    const int x = operand(norm, 0), k = x == kNone ? kNone : maker_[idx(x)];
    if (k == kNone || all[idx(k)].op != &op::conv || uses_[idx(x)] != 1) return kNone;
    const Instr& conv = all[idx(k)];
    const int w = operand(conv, 1);
    if (w == kNone || conv.in.size() > 3) return kNone;
    for (const Instr* i : {&conv, &norm})
      for (const Arg& a : i->in)
        if (a.is_number || (a.value != kNone && spec(a.value).dtype != spec(x).dtype)) return kNone;
    if (size_of(spec(x).dtype) < 4) return kNone;
    bool stays = stable_[idx(w)];
    for (size_t n = 1; n < norm.in.size(); ++n)
      stays = stays && (operand(norm, n) == kNone || stable_[idx(operand(norm, n))]);
    if (p_.inference && stays) return k;
    return 2 * spec(w).shape.numel().value() <= spec(x).shape.numel().value() ? k : kNone;
  }

  int fold(const Instr& conv, const Instr& norm) {
    std::vector<int> args;
    std::vector<Spec> specs;
    const auto take = [&](const Instr& i, size_t first) {
      for (size_t k = first; k < i.op->n_in; ++k)
        if (int v = operand(i, k); v != kNone) {
          args.push_back(v);
          specs.push_back(spec(v));
        }
    };
    take(conv, 0);
    take(norm, 1);
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
    Ref<Graph> g = trace(body, specs, Captures::as_inputs);
    return inline_graph(p_, *g, args, norm.scope, norm.where)[0];
  }

  Program& p_;
  std::vector<int> maker_, uses_;
  std::vector<char> stable_;
};

}  // namespace

void fold_norms(Program& p) { Folder(p).run(); }

}  // namespace tandem::compiler
