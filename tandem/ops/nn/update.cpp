// SPDX-License-Identifier: Apache-2.0
// The optimizers' update rows. Each follows torch.optim's single-tensor code step by step: the same
// products are rounded, and factors that involve only numbers are f64, as there.
#include "tandem/ops/nn/update.h"

#include "tandem/graph/expression/scalar_eval.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/graph/infer.h"
#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

// ---- steps shared by several updates

/// a + value * b / c, as addcdiv rounds it.
E addcdiv_of(const E& a, const E& value, const E& b, const E& c) { return a + value * b / c; }
/// lerp_ toward g by 1 - beta (the formula that lerp uses for beta > 1/2).
E moment(const E& m, const E& g, const E& beta) { return m + (1 - beta) * (g - m); }
/// v * beta + (1 - beta) * g * g.
E square_moment(const E& v, const E& g, const E& beta) { return v * beta + (1 - beta) * g * g; }

void sgd_plain(const E* in, E* out) {
  const E &p = in[0], &g = in[1], &lr = in[2], &weight_decay = in[3];
  out[0] = p + -lr * (g + weight_decay * p);
}

void sgd(const E* in, E* out) {
  const E &p = in[0], &buf = in[2], &lr = in[3], &momentum = in[4], &dampening = in[5],
          &weight_decay = in[6], &nesterov = in[7], &first = in[8];
  const E g = in[1] + weight_decay * p;
  const E fresh = where(first, g, buf * momentum + (1 - dampening) * g);
  out[0] = p + -lr * where(nesterov, g + momentum * fresh, fresh);
  out[1] = fresh;
}

// The numeric inputs of the Adam family, after the state tensors.
struct AdamNumbers {
  explicit AdamNumbers(const E* n)
      : lr(n[0]),
        beta1(n[1]),
        beta2(n[2]),
        eps(n[3]),
        weight_decay(n[4]),
        bias1(n[5]),
        bias2(n[6]) {}
  const E &lr, &beta1, &beta2, &eps, &weight_decay, &bias1, &bias2;
};

void adam_family(const E* in, E* out, bool decoupled, bool amsgrad) {
  const AdamNumbers n(in + (amsgrad ? 5 : 4));
  E p = in[0], g = in[1];
  if (decoupled)
    p = p * (1 - n.lr * n.weight_decay);
  else
    g = g + n.weight_decay * p;
  const E m = moment(in[2], g, n.beta1), v = square_moment(in[3], g, n.beta2);
  E top = v;
  if (amsgrad) out[3] = top = maximum(in[4], v);
  const E denominator = sqrt(top) / sqrt(n.bias2) + n.eps;
  out[0] = addcdiv_of(p, -(n.lr / n.bias1), m, denominator);
  out[1] = m;
  out[2] = v;
}
void adam(const E* in, E* out) { adam_family(in, out, false, false); }
void adamw(const E* in, E* out) { adam_family(in, out, true, false); }
void adam_amsgrad(const E* in, E* out) { adam_family(in, out, false, true); }
void adamw_amsgrad(const E* in, E* out) { adam_family(in, out, true, true); }

void rmsprop_family(const E* in, E* out, bool centered, bool momentum) {
  const E &p = in[0], &old_square = in[2];
  int next = 3, o = 1;
  const E old_mean = centered ? in[next++] : E();
  const E old_buf = momentum ? in[next++] : E();
  const E &lr = in[next], &alpha = in[next + 1], &eps = in[next + 2], &weight_decay = in[next + 3];
  const E g = in[1] + weight_decay * p;
  const E square = out[o++] = square_moment(old_square, g, alpha);
  E spread = square;
  if (centered) {
    const E mean = out[o++] = moment(old_mean, g, alpha);
    spread = square + -1.0 * mean * mean;
  }
  const E root = sqrt(spread) + eps;
  if (!momentum) {
    out[0] = addcdiv_of(p, -lr, g, root);
    return;
  }
  const E buf = out[o++] = old_buf * in[next + 4] + g / root;
  out[0] = p + -lr * buf;
}
void rmsprop(const E* in, E* out) { rmsprop_family(in, out, false, false); }
void rmsprop_momentum(const E* in, E* out) { rmsprop_family(in, out, false, true); }
void rmsprop_centered(const E* in, E* out) { rmsprop_family(in, out, true, false); }
void rmsprop_centered_momentum(const E* in, E* out) { rmsprop_family(in, out, true, true); }

void adagrad(const E* in, E* out) {
  const E &p = in[0], &lr = in[3], &eps = in[4], &weight_decay = in[5];
  const E g = in[1] + weight_decay * p;
  const E sum = in[2] + g * g;
  out[0] = addcdiv_of(p, -lr, g, sqrt(sum) + eps);
  out[1] = sum;
}

void adadelta(const E* in, E* out) {
  const E &p = in[0], &lr = in[4], &rho = in[5], &eps = in[6], &weight_decay = in[7];
  const E g = in[1] + weight_decay * p;
  const E square = square_moment(in[2], g, rho);
  const E delta = sqrt(in[3] + eps) / sqrt(square + eps) * g;
  out[0] = p + -lr * delta;
  out[1] = square;
  out[2] = square_moment(in[3], delta, rho);
}

void adamax(const E* in, E* out) {
  const E &p = in[0], &lr = in[4], &beta1 = in[5], &beta2 = in[6], &eps = in[7],
          &weight_decay = in[8], &bias1 = in[9];
  const E g = in[1] + weight_decay * p;
  const E m = moment(in[2], g, beta1);
  const E u = maximum(in[3] * beta2, abs(g) + eps);
  out[0] = addcdiv_of(p, -(lr / bias1), m, u);
  out[1] = m;
  out[2] = u;
}

// Weight decay on the parameter itself or through the gradient.
void decay(const E& decoupled, const E& lr, const E& weight_decay, E& p, E& g) {
  g = g + where(decoupled, 0.0, weight_decay) * p;
  p = p * where(decoupled, 1 - lr * weight_decay, 1.0);
}

void nadam(const E* in, E* out) {
  const E &lr = in[4], &beta1 = in[5], &beta2 = in[6], &eps = in[7], &weight_decay = in[8],
          &decoupled = in[9], &bias2 = in[10], &mu = in[11], &mu_next = in[12], &product = in[13];
  E p = in[0], g = in[1];
  decay(decoupled, lr, weight_decay, p, g);
  const E m = moment(in[2], g, beta1), v = square_moment(in[3], g, beta2);
  const E denominator = sqrt(v / bias2) + eps;
  p = addcdiv_of(p, -lr * (1 - mu) / (1 - product), g, denominator);
  out[0] = addcdiv_of(p, -lr * mu_next / (1 - product * mu_next), m, denominator);
  out[1] = m;
  out[2] = v;
}

void radam(const E* in, E* out) {
  const E &lr = in[4], &beta1 = in[5], &beta2 = in[6], &eps = in[7], &weight_decay = in[8],
          &decoupled = in[9], &bias1 = in[10], &bias2 = in[11], &rect = in[12];
  E p = in[0], g = in[1];
  decay(decoupled, lr, weight_decay, p, g);
  const E m = moment(in[2], g, beta1), v = square_moment(in[3], g, beta2);
  const E step = m / bias1 * lr;
  const E adaptive = sqrt(bias2) / (sqrt(v) + eps);
  out[0] = p - where(rect > 0, step * adaptive * rect, step);
  out[1] = m;
  out[2] = v;
}

void rprop(const E* in, E* out) {
  const E &p = in[0], &g = in[1], &eta_minus = in[4], &eta_plus = in[5];
  const E same = g * in[2];
  const E factor = where(same > 0, eta_plus, where(same < 0, eta_minus, 1.0));
  const E size = minimum(maximum(in[3] * factor, in[6]), in[7]);
  const E kept = where(same < 0, 0.0, g);
  out[0] = p + -1.0 * sign(kept) * size;
  out[1] = kept;
  out[2] = size;
}

void asgd(const E* in, E* out) {
  const E &p = in[0], &ax = in[2], &lambd = in[3], &weight_decay = in[4], &eta = in[5], &mu = in[6];
  const E g = in[1] + weight_decay * p;
  const E fresh = p * (1 - lambd * eta) + -eta * g;
  out[0] = fresh;
  out[1] = where(mu == 1, fresh, ax + (fresh - ax) * mu);
}

void lion(const E* in, E* out) {
  const E &p = in[0], &g = in[1], &m = in[2], &lr = in[3], &beta1 = in[4], &beta2 = in[5],
          &weight_decay = in[6];
  out[0] = p * (1 - lr * weight_decay) + -lr * sign(m * beta1 + (1 - beta1) * g);
  out[1] = m * beta2 + (1 - beta2) * g;
}

void lars(const E* in, E* out) {
  const E &p = in[0], &lr = in[3], &momentum = in[4], &dampening = in[5], &weight_decay = in[6],
          &nesterov = in[7], &first = in[8], &trust = in[9];
  const E g = (in[1] + weight_decay * p) * trust;
  const E fresh = where(first, g, in[2] * momentum + (1 - dampening) * g);
  out[0] = p + -lr * where(nesterov, g + momentum * fresh, fresh);
  out[1] = fresh;
}

void lamb(const E* in, E* out) {
  const E &beta1 = in[4], &beta2 = in[5], &eps = in[6], &weight_decay = in[7], &bias1 = in[8],
          &bias2 = in[9];
  const E m = moment(in[2], in[1], beta1), v = square_moment(in[3], in[1], beta2);
  out[0] = m / bias1 / (sqrt(v / bias2) + eps) + weight_decay * in[0];
  out[1] = m;
  out[2] = v;
}

void sparse_adam(const E* in, E* out) {
  const E &p = in[0], &g = in[1], &lr = in[4], &beta1 = in[5], &beta2 = in[6], &eps = in[7],
          &bias1 = in[8], &bias2 = in[9];
  const E m = in[2] + (g - in[2]) * (1 - beta1), v = in[3] + (g * g - in[3]) * (1 - beta2);
  const E untouched = g == 0;
  out[0] = where(untouched, p, p + -(lr * sqrt(bias2) / bias1) * (m / (sqrt(v) + eps)));
  out[1] = where(untouched, in[2], m);
  out[2] = where(untouched, in[3], v);
}

void decoupled(const E* in, E* out) { out[0] = in[0] * (1 - in[2] * in[3]) + -in[4] * in[1]; }

// ---- rows

bool is_number(const char* name) { return OpDef::last_char(name) == '$'; }

void infer_update(InferCall& c) {
  for (int i = 0; i < c.n_in(); ++i) {
    const char* name = c.op.in_names[i];
    if (is_number(name)) {
      TD_CHECK(!c.has(i) || c.in[i].rank() == 0, Shape,
               "'{}' expects a number or a 0-d tensor, got {}", name, c.in[i].shape.to_string());
      continue;
    }
    TD_CHECK(c.has(i), Value, "'{}' expects a tensor", name);
    TD_CHECK(is_floating(c.in[i].dtype), DType, "'{}' expects a floating dtype, got {}", name,
             to_string(c.in[i].dtype));
    const Shape &p = c.in[0].shape, &s = c.in[i].shape;
    bool same = p.rank() == s.rank();
    for (int d = 0; same && d < p.rank(); ++d) same = dims_equal(p[d], s[d]);
    TD_CHECK(same, Shape, "the parameter is {}, '{}' is {}: shapes must be equal", p.to_string(),
             name, s.to_string());
  }
  // Inputs are p, g, state...; outputs p, state...
  for (int o = 0; o < c.op.n_out; ++o) c.out[o] = c.in[o == 0 ? 0 : o + 1];
}

// All tensors get the batch dimension: they must have the parameter's shape. Per-example numbers do
// not fit into one call.
void update_batch(BatchCall& c) {
  std::vector<Operand> ins;
  for (int i = 0; i < c.n_in(); ++i) {
    bool number = is_number(c.node.op->in_names[i]);
    if (number && c.batched[i]) c.by_slices = true;
    if (c.node.in[i].is_scalar) {
      ins.emplace_back(c.node.in[i].scalar, c.node.loc);
    } else {
      Tensor t = number ? c.in[i] : detail::with_batch(c, i);
      ins.emplace_back(std::move(t), c.node.loc);
    }
  }
  if (!c.by_slices) detail::call_again(c, nullptr, ins, c.out);
}

constexpr OpDef update_row(const char* name, Names ins, Names outs, ExprFn expr, const char* doc) {
  return make_row(name, Family::pointwise, Types::arith, ins, nullptr)
      .outputs(outs)
      .infer(infer_update)
      .batch(update_batch)
      .expr(expr)
      .reference(pointwise_reference)
      .flag(kNotDifferentiable)
      .doc(doc);
}

}  // namespace

namespace op {
constinit const OpDef sgd_plain_update =
    update_row("sgd_plain_update", {"p", "g", "lr$", "weight_decay$"}, {"p"}, sgd_plain,
               "Step of SGD without momentum.");
constinit const OpDef sgd_update = update_row(
    "sgd_update",
    {"p", "g", "buf", "lr$", "momentum$", "dampening$", "weight_decay$", "nesterov$", "first$"},
    {"p", "buf"}, sgd, "Step of SGD with momentum.");
constinit const OpDef adam_update = update_row(
    "adam_update",
    {"p", "g", "m", "v", "lr$", "beta1$", "beta2$", "eps$", "weight_decay$", "bias1$", "bias2$"},
    {"p", "m", "v"}, adam, "Step of Adam; weight decay through the gradient.");
constinit const OpDef adamw_update = update_row(
    "adamw_update",
    {"p", "g", "m", "v", "lr$", "beta1$", "beta2$", "eps$", "weight_decay$", "bias1$", "bias2$"},
    {"p", "m", "v"}, adamw, "Step of AdamW; weight decay on the parameter.");
constinit const OpDef adam_amsgrad_update =
    update_row("adam_amsgrad_update",
               {"p", "g", "m", "v", "vmax", "lr$", "beta1$", "beta2$", "eps$", "weight_decay$",
                "bias1$", "bias2$"},
               {"p", "m", "v", "vmax"}, adam_amsgrad, "Step of Adam, amsgrad form.");
constinit const OpDef adamw_amsgrad_update =
    update_row("adamw_amsgrad_update",
               {"p", "g", "m", "v", "vmax", "lr$", "beta1$", "beta2$", "eps$", "weight_decay$",
                "bias1$", "bias2$"},
               {"p", "m", "v", "vmax"}, adamw_amsgrad, "Step of AdamW, amsgrad form.");
constinit const OpDef rmsprop_update =
    update_row("rmsprop_update", {"p", "g", "square", "lr$", "alpha$", "eps$", "weight_decay$"},
               {"p", "square"}, rmsprop, "Step of RMSprop.");
constinit const OpDef rmsprop_momentum_update =
    update_row("rmsprop_momentum_update",
               {"p", "g", "square", "buf", "lr$", "alpha$", "eps$", "weight_decay$", "momentum$"},
               {"p", "square", "buf"}, rmsprop_momentum, "Step of RMSprop with momentum.");
constinit const OpDef rmsprop_centered_update =
    update_row("rmsprop_centered_update",
               {"p", "g", "square", "mean", "lr$", "alpha$", "eps$", "weight_decay$"},
               {"p", "square", "mean"}, rmsprop_centered, "Step of centered RMSprop.");
constinit const OpDef rmsprop_centered_momentum_update = update_row(
    "rmsprop_centered_momentum_update",
    {"p", "g", "square", "mean", "buf", "lr$", "alpha$", "eps$", "weight_decay$", "momentum$"},
    {"p", "square", "mean", "buf"}, rmsprop_centered_momentum,
    "Step of centered RMSprop with momentum.");
constinit const OpDef adagrad_update =
    update_row("adagrad_update", {"p", "g", "sum", "lr$", "eps$", "weight_decay$"}, {"p", "sum"},
               adagrad, "Step of Adagrad; lr is lr / (1 + (step - 1) * lr_decay).");
constinit const OpDef adadelta_update = update_row(
    "adadelta_update", {"p", "g", "square", "delta", "lr$", "rho$", "eps$", "weight_decay$"},
    {"p", "square", "delta"}, adadelta, "Step of Adadelta.");
constinit const OpDef adamax_update =
    update_row("adamax_update",
               {"p", "g", "m", "u", "lr$", "beta1$", "beta2$", "eps$", "weight_decay$", "bias1$"},
               {"p", "m", "u"}, adamax, "Step of Adamax.");
constinit const OpDef nadam_update =
    update_row("nadam_update",
               {"p", "g", "m", "v", "lr$", "beta1$", "beta2$", "eps$", "weight_decay$",
                "decoupled$", "bias2$", "mu$", "mu_next$", "mu_product$"},
               {"p", "m", "v"}, nadam, "Step of NAdam.");
constinit const OpDef radam_update =
    update_row("radam_update",
               {"p", "g", "m", "v", "lr$", "beta1$", "beta2$", "eps$", "weight_decay$",
                "decoupled$", "bias1$", "bias2$", "rect$"},
               {"p", "m", "v"}, radam, "Step of RAdam.");
constinit const OpDef rprop_update = update_row(
    "rprop_update", {"p", "g", "prev", "step_size", "eta_minus$", "eta_plus$", "min$", "max$"},
    {"p", "prev", "step_size"}, rprop, "Step of Rprop.");
constinit const OpDef asgd_update =
    update_row("asgd_update", {"p", "g", "ax", "lambd$", "weight_decay$", "eta$", "mu$"},
               {"p", "ax"}, asgd, "Step of averaged SGD.");
constinit const OpDef lion_update =
    update_row("lion_update", {"p", "g", "m", "lr$", "beta1$", "beta2$", "weight_decay$"},
               {"p", "m"}, lion, "Step of Lion.");
constinit const OpDef lars_update =
    update_row("lars_update",
               {"p", "g", "buf", "lr$", "momentum$", "dampening$", "weight_decay$", "nesterov$",
                "first$", "trust$"},
               {"p", "buf"}, lars, "Step of LARS; trust scales the gradient with its decay.");
constinit const OpDef lamb_direction = update_row(
    "lamb_direction",
    {"p", "g", "m", "v", "beta1$", "beta2$", "eps$", "weight_decay$", "bias1$", "bias2$"},
    {"direction", "m", "v"}, lamb, "Direction of LAMB, before its trust ratio.");
constinit const OpDef sparse_adam_update =
    update_row("sparse_adam_update",
               {"p", "g", "m", "v", "lr$", "beta1$", "beta2$", "eps$", "bias1$", "bias2$"},
               {"p", "m", "v"}, sparse_adam, "Step of Adam where the gradient is nonzero.");
constinit const OpDef decoupled_update =
    update_row("decoupled_update", {"p", "direction", "lr$", "weight_decay$", "rate$"}, {"p"},
               decoupled, "p (1 - lr weight_decay) - rate direction.");
}  // namespace op

std::span<const OpDef* const> update_rows() {
  static constexpr const OpDef* kRows[] = {&op::sgd_plain_update,
                                           &op::sgd_update,
                                           &op::adam_update,
                                           &op::adamw_update,
                                           &op::adam_amsgrad_update,
                                           &op::adamw_amsgrad_update,
                                           &op::rmsprop_update,
                                           &op::rmsprop_momentum_update,
                                           &op::rmsprop_centered_update,
                                           &op::rmsprop_centered_momentum_update,
                                           &op::adagrad_update,
                                           &op::adadelta_update,
                                           &op::adamax_update,
                                           &op::nadam_update,
                                           &op::radam_update,
                                           &op::rprop_update,
                                           &op::asgd_update,
                                           &op::lion_update,
                                           &op::lars_update,
                                           &op::lamb_direction,
                                           &op::sparse_adam_update,
                                           &op::decoupled_update};
  return kRows;
}

}  // namespace tandem
