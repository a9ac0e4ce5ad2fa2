// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention. The bodies define what a fused kernel must compute: scores in f32
// (f64), lines without any visible key give 0, and the derivative rebuilds the weights from lse.
#include "tandem/ops/nn/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/graph/dry_run.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/attention_form.h"
#include "tandem/ops/nn/paged_attention.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/create.h"

namespace tandem {
namespace {

using detail::placed;
using detail::reduce_to;

// ---- shape rules

// Leading dimensions of q combined with those of k, whose last one (heads) may divide q's.
Shape lead_with(const Shape& q, const Shape& k) {
  Shape a = q, b = k;
  a.resize(a.rank() - 2);
  b.resize(b.rank() - 2);
  if (a.rank() && b.rank()) {
    Dim hq = a.back(), &hk = b[b.rank() - 1];
    bool number = !hq.is_symbolic() && !hk.is_symbolic();
    if (number && hk.value() > 0 && hq.value() % hk.value() == 0) hk = hq;
  }
  return broadcast_shapes(a, b);
}

Shape with_last(Shape lead, Dim a, Dim b) {
  lead.push_back(a);
  lead.push_back(b);
  return lead;
}

struct Sizes {
  Shape lead;
  Dim l, s, e, f;
};

Sizes check_qkv(const InferCall& c, int first) {
  const Spec &q = c.in[first], &k = c.in[first + 1], &v = c.in[first + 2];
  TD_CHECK(q.rank() >= 2 && k.rank() >= 2 && v.rank() >= 2, Shape,
           "query is {}, key {}, value {}: each expects [..., length, features]",
           q.shape.to_string(), k.shape.to_string(), v.shape.to_string());
  TD_CHECK(is_floating(q.dtype) && q.dtype == k.dtype && q.dtype == v.dtype, DType,
           "query is {}, key {}, value {}: expected one floating dtype", to_string(q.dtype),
           to_string(k.dtype), to_string(v.dtype));
  int rq = q.rank(), rk = k.rank(), rv = v.rank();
  TD_CHECK(dims_equal(q[rq - 1], k[rk - 1]), Shape, "query {} has {} features, key {} has {}",
           q.shape.to_string(), q[rq - 1].to_string(), k.shape.to_string(), k[rk - 1].to_string());
  TD_CHECK(dims_equal(k[rk - 2], v[rv - 2]), Shape, "key {} has {} positions, value {} has {}",
           k.shape.to_string(), k[rk - 2].to_string(), v.shape.to_string(), v[rv - 2].to_string());
  Shape lead = lead_with(with_last(lead_with(q.shape, k.shape), 1, 1), v.shape);
  return {lead, q[rq - 2], k[rk - 2], q[rq - 1], v[rv - 1]};
}

void check_mask(const InferCall& c, int i, const Sizes& z) {
  if (!c.has(i)) return;
  const Spec& m = c.in[i];
  Shape scores = with_last(z.lead, z.l, z.s);
  TD_CHECK(is_bool(m.dtype) || is_floating(m.dtype), DType,
           "mask is {}, expected bool or a floating "
           "dtype",
           to_string(m.dtype));
  bool fits = m.rank() <= scores.rank();
  for (int k = 1; fits && k <= m.rank(); ++k) {
    Dim a = m[m.rank() - k];
    fits = a == Dim(1) || dims_equal(a, scores[scores.rank() - k]);
  }
  TD_CHECK(fits, Shape, "mask is {}, the scores are {}: it must broadcast to them",
           m.shape.to_string(), scores.to_string());
}

void attention_infer(InferCall& c) {
  Sizes z = check_qkv(c, 0);
  check_mask(c, 3, z);
  DType t = c.in[0].dtype;
  Shape lse = z.lead;
  lse.push_back(z.l);
  c.out[0] = Spec(t, with_last(z.lead, z.l, z.f), c.in[0].device);
  c.out[1] = Spec(accumulation_dtype(t), lse, c.in[0].device);
}

void attention_backward_infer(InferCall& c) {
  Sizes z = check_qkv(c, 1);
  check_mask(c, 6, z);
  for (int i = 0; i < 3; ++i) c.out[i] = Spec(c.in[1].dtype, c.in[i + 1].shape, c.in[0].device);
  bool mask = c.get_attrs<AttentionAttrs>().mask_grad;
  c.out[3] = mask ? Spec(c.in[6].dtype, c.in[6].shape, c.in[0].device)
                  : Spec(accumulation_dtype(c.in[1].dtype), {0}, c.in[0].device);
}

// ---- bodies

double scale_of(const AttentionAttrs& a, const Tensor& q) {
  return a.scale != 0 ? a.scale : 1.0 / std::sqrt(static_cast<double>(q.size(-1)));
}

// How many heads of q share one of k; 1 where they are equal or broadcast.
int64_t sharing(const Tensor& q, const Tensor& k) {
  if (q.dim() < 3 || k.dim() < 3) return 1;
  Dim hq = q.shape(-3), hk = k.shape(-3);
  if (hq.is_symbolic() || hk.is_symbolic() || hk == hq || hk == Dim(1)) return 1;
  return hq.value() / hk.value();
}

// [..., h', s, e] with each head repeated: [..., h' * n, s, e].
Tensor repeat_heads(const Tensor& k, int64_t n) {
  if (n == 1) return k;
  Shape s = k.shape(), merged = s;
  int at = s.rank() - 2;
  merged[at - 1] = s[at - 1] * Dim(n);
  s.insert(at, n);
  return k.unsqueeze(at).expand(s).reshape(merged);
}

// The inverse, for gradients, then summed to `shape`.
Tensor sum_heads(Tensor g, int64_t n, const Shape& shape, SourceLocation loc) {
  if (n > 1) {
    Shape s = g.shape();
    int at = s.rank() - 2;
    s[at - 1] = detail::floor_div(s[at - 1], n);
    s.insert(at, n);
    g = g.reshape(s).sum({at});
  }
  return reduce_to(std::move(g), shape, loc);
}

// q k^T * scale + mask, with -inf where a key is hidden.
Tensor scores(const AttentionAttrs& a, const Tensor& q, const Tensor& k, const Tensor& mask) {
  Tensor s = matmul(q, k, MatmulAttrs{false, true});
  if (const double scale = scale_of(a, q); scale != 1) s = std::move(s) * scale;
  if (a.causal) {
    Tensor row = arange_dim(s.shape(-2)).unsqueeze(1), column = arange_dim(s.shape(-1));
    s = where(column <= row, s, -INFINITY);
  }
  if (!mask.defined()) return s;
  if (is_bool(mask.dtype())) return where(mask, s, -INFINITY);
  DType t = s.dtype();
  return std::move(s) + mask.to(t);
}

void attention_body(BodyCall& c) {
  const auto& a = c.get_attrs<AttentionAttrs>();
  DType t = c.in[0].dtype();
  Tensor q = c.in[0].to(accumulation_dtype(t));
  Tensor k = repeat_heads(c.in[1].to(accumulation_dtype(t)), sharing(c.in[0], c.in[1]));
  Tensor v = repeat_heads(c.in[2].to(accumulation_dtype(t)), sharing(c.in[0], c.in[2]));
  if (k.shape(-2) == Dim(0)) {
    c.out[0] = matmul(matmul(q, k, MatmulAttrs{false, true}), v).to(t);
    c.out[1] = log(c.out[0].to(accumulation_dtype(t)).sum({-1}) * 0.0);
    return;
  }
  Tensor s = scores(a, q, k, c.in[3]);
  Tensor top = s.amax({-1}, true);
  top = where(top == -INFINITY, 0.0, top);
  Tensor e = (std::move(s) - top).exp();
  Tensor sum = e.sum({-1}, true);
  c.out[0] = (matmul(e, v) / where(sum == 0.0, 1.0, sum)).to(t);
  c.out[1] = (top + log(sum)).squeeze(-1);
  Shape want = c.out[0].shape();
  want.erase(want.rank() - 1);
  if (!(c.out[1].shape() == want)) c.out[1] = c.out[1].expand(want);
}

void attention_backward_body(BodyCall& c) {
  const auto& a = c.get_attrs<AttentionAttrs>();
  DType t = c.in[1].dtype();
  int64_t nk = sharing(c.in[1], c.in[2]), nv = sharing(c.in[1], c.in[3]);
  Tensor gy = c.in[0].to(accumulation_dtype(t)), q = c.in[1].to(accumulation_dtype(t)),
         y = c.in[4].to(accumulation_dtype(t));
  Tensor k = repeat_heads(c.in[2].to(accumulation_dtype(t)), nk),
         v = repeat_heads(c.in[3].to(accumulation_dtype(t)), nv);
  const Tensor &lse = c.in[5], &mask = c.in[6], &glse = c.in[7];
  Tensor safe = where(lse == -INFINITY, 0.0, lse).unsqueeze(-1);
  Tensor p = (scores(a, q, k, mask) - safe).exp();
  Tensor shift = (gy * y).sum({-1}, true);
  if (glse.defined()) shift = std::move(shift) - glse.unsqueeze(-1);
  Tensor ds = p * (matmul(gy, v, MatmulAttrs{false, true}) - shift);
  SourceLocation here = SourceLocation::here();
  double scale = scale_of(a, q);
  c.out[0] = reduce_to(matmul(ds, k) * scale, c.in[1].shape(), here).to(t);
  c.out[1] =
      sum_heads(matmul(ds, q, MatmulAttrs{true, false}) * scale, nk, c.in[2].shape(), here).to(t);
  c.out[2] = sum_heads(matmul(p, gy, MatmulAttrs{true, false}), nv, c.in[3].shape(), here).to(t);
  c.out[3] = a.mask_grad ? reduce_to(ds, mask.shape(), here).to(mask.dtype())
                         : zeros({0}, accumulation_dtype(t));
}

// ---- derivative and vmap

void attention_vjp(VjpCall& c) {
  AttentionAttrs a = c.get_attrs<AttentionAttrs>();
  SourceLocation loc = c.loc();
  a.mask_grad = c.has(3) && c.needs(3);
  Tensor y = c.out(0), gy = c.grad().defined() ? c.grad() : zeros_like(y, loc);
  Tensor mask = c.has(3) ? c.in(3) : Tensor(), out[kMaxOpOuts];
  Operand ins[] = {Operand(gy, loc),      Operand(c.in(0), loc),   Operand(c.in(1), loc),
                   Operand(c.in(2), loc), Operand(y, loc),         Operand(c.out(1), loc),
                   Operand(mask, loc),    Operand(c.grads[1], loc)};
  apply(op::attention_backward, &a, ins, out, loc);
  for (int i = 0; i < 3; ++i)
    if (c.needs(i)) c.results[i] = std::move(out[i]);
  if (a.mask_grad) c.results[3] = std::move(out[3]);
}

void attention_batch(BatchCall& c) {
  int rank = 2;
  for (int i = 0; i < c.n_in(); ++i)
    if (c.has(i)) rank = std::max(rank, c.rank(i));
  std::vector<Operand> ins;
  for (int i = 0; i < c.n_in(); ++i) {
    Tensor t = c.has(i) ? detail::with_rank(c, i, rank) : Tensor();
    if (i == 0 && !c.batched[0] && c.has(3) && c.batched[3]) {
      t = detail::with_batch(c, 0);  // a mask broadcasts to the scores, not vice versa
      Shape s = t.shape();
      while (s.rank() < rank + 1) s.insert(1, 1);
      t = t.reshape(s, c.node.loc);
    }
    ins.emplace_back(std::move(t), c.node.loc);
  }
  detail::call_again(c, c.node.attrs.get(), ins, c.out);
}

// Every input with the batch dimension first, padded with ones to the largest rank, so that sums
// over broadcast dimensions stay within an example.
void backward_batch(BatchCall& c) {
  SourceLocation loc = c.node.loc;
  int rank = 2;
  for (int i : {0, 1, 2, 3, 4, 6})
    if (c.has(i)) rank = std::max(rank, c.rank(i));
  std::vector<Operand> ins;
  for (int i = 0; i < c.n_in(); ++i) {
    if (!c.has(i)) {
      ins.emplace_back(Tensor(), loc);
      continue;
    }
    Tensor t = detail::with_batch(c, i);
    Shape s = t.shape();
    int want = i == 5 || i == 7 ? rank : rank + 1;
    while (s.rank() < want) s.insert(1, 1);
    ins.emplace_back(t.reshape(s, loc), loc);
  }
  Tensor out[kMaxOpOuts];
  apply(op::attention_backward, c.node.attrs.get(), ins, out, loc);
  for (int i = 0; i < 4; ++i) {
    Shape s{c.batch_size};
    if (i == 3 && !c.get_attrs<AttentionAttrs>().mask_grad) {
      s.push_back(0);
    } else {
      for (Dim d : c.node.in[i < 3 ? i + 1 : 6].shape) s.push_back(d);
    }
    c.out[i] = out[i].reshape(s, loc);
  }
}

thread_local AttentionForm t_form = AttentionForm::usual;
thread_local double t_dropout = 0;

// Pairs of a query and a key that it sees: of a causal call those up to the diagonal, as kernels
// skip the blocks above it.
double seen_pairs(const InferCall& c, const Shape& y, const Shape& k) {
  double heads = 1;
  for (int i = 0; i + 2 < y.rank(); ++i) heads *= static_cast<double>(y[i].value());
  const auto queries = static_cast<double>(y[y.rank() - 2].value()),
             keys = static_cast<double>(k[k.rank() - 2].value());
  if (!c.get_attrs<AttentionAttrs>().causal) return heads * queries * keys;
  const double below = std::min(queries, keys);
  return heads * (below * (below + 1) / 2 + (queries - below) * keys);
}

double attention_flops(const InferCall& c) {
  const Shape &y = c.out[0].shape, &k = c.in[1].shape;
  return 2 * seen_pairs(c, y, k) * static_cast<double>(k.back().value() + y.back().value());
}

// Five matmuls where the forward pass has two: the scores again, and one per gradient and factor.
double attention_backward_flops(const InferCall& c) {
  const Shape &y = c.in[0].shape, &k = c.in[2].shape;
  const auto e = static_cast<double>(k.back().value()), f = static_cast<double>(y.back().value());
  return 2 * seen_pairs(c, y, k) * (3 * e + 2 * f);
}

void check_form(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                double dropout_p, bool is_causal, bool enable_gqa) {
  TD_CHECK(q.defined() && k.defined() && v.defined(), Value,
           "query, key or value is an undefined tensor\nWas it moved from, or never assigned?");
  TD_CHECK(!is_causal || !mask.defined(), Value,
           "is_causal excludes a mask\nPut the causal part into the mask.");
  TD_CHECK(dropout_p >= 0 && dropout_p < 1, Value, "dropout_p is {}, expected 0 to below 1",
           dropout_p);
  TD_CHECK(enable_gqa || (sharing(q, k) == 1 && sharing(q, v) == 1), Shape,
           "query {} has {} heads, key {} has {}\nSet enable_gqa to let heads share keys.",
           q.shape().to_string(), q.shape(-3).to_string(), k.shape().to_string(),
           k.shape(-3).to_string());
  TD_CHECK(dropout_p == 0 || t_form != AttentionForm::fused || is_dry_run(), Unsupported,
           "no fused kernel supports dropout\nLeave out AttentionForm::fused.");
}

}  // namespace

namespace op {
constinit const OpDef attention =
    composite("attention", {"q", "k", "v", "mask?"}, fields<AttentionAttrs>(), attention_body)
        .outputs({"y", "lse!"})
        .infer(attention_infer)
        .vjp(attention_vjp, 15, 3)
        .batch(attention_batch)
        .autocast(Autocast::low)
        .flops(attention_flops)
        .doc("softmax(q k^T * scale + mask) v over the last two dimensions.");
constinit const OpDef attention_backward =
    composite("attention_backward", {"gy", "q", "k", "v", "y", "lse", "mask?", "glse?"},
              fields<AttentionAttrs>(), attention_backward_body)
        .outputs({"gq", "gk", "gv", "gmask"})
        .infer(attention_backward_infer)
        .batch(backward_batch)
        .flops(attention_backward_flops)
        .doc("Gradients of attention with respect to q, k, v and a floating mask.");
}  // namespace op

std::span<const OpDef* const> attention_rows() {
  static constexpr const OpDef* kRows[] = {&op::attention, &op::attention_backward,
                                           &op::paged_attention};
  return kRows;
}

AttentionFormGuard::AttentionFormGuard(AttentionForm form, double dropout_p)
    : old_form_(std::exchange(t_form, form)), old_dropout_(std::exchange(t_dropout, dropout_p)) {}
AttentionFormGuard::~AttentionFormGuard() {
  t_form = old_form_;
  t_dropout = old_dropout_;
}

Tensor scaled_dot_product_attention(Tensor q, Tensor k, Tensor v, Tensor mask, double dropout_p,
                                    bool is_causal, double scale, bool enable_gqa,
                                    SourceLocation loc) {
  return detail::named("scaled_dot_product_attention", loc, [&]() -> Tensor {
    check_form(q, k, v, mask, dropout_p, is_causal, enable_gqa);
    AttentionAttrs a{is_causal, scale, false};
    if (t_form == AttentionForm::composed) dropout_p = std::max(dropout_p, t_dropout);
    if (t_form == AttentionForm::fused || (dropout_p == 0 && t_form == AttentionForm::usual))
      return call(op::attention, &a, loc, std::move(q), std::move(k), std::move(v),
                  std::move(mask));
    int64_t nk = sharing(q, k), nv = sharing(q, v);
    scale = scale_of(a, q);
    q = std::move(q) * scale;  // scales q instead of the scores, since that product would be kept
    a.scale = 1;
    Tensor p = softmax(scores(a, q, repeat_heads(k, nk), mask), -1, {}, loc);
    if (dropout_p == 0) return matmul(std::move(p), repeat_heads(v, nv), loc);
    return matmul(dropout(std::move(p), dropout_p, true, loc), repeat_heads(v, nv), loc);
  });
}

}  // namespace tandem
