// SPDX-License-Identifier: Apache-2.0
// paged_attention: the body gathers each text's keys and says what the kernels, which read them
// where they lie, must compute.
#include "tandem/ops/nn/paged_attention.h"

#include <cmath>

#include "tandem/ops/index/index.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/attention.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/create.h"

namespace tandem {
namespace {

constexpr const char* kSlotText =
    "{} lies outside< of a pool k {k} with a table {table}>\n"
    "Blocks are below slots / block, positions below the table's columns times block.";

void check_integers(const Spec& s, const char* name) {
  TD_CHECK(is_integral(s.dtype) && s.rank() == 2, Shape, "{} is {} {}, expected integers [n, ...]",
           name, to_string(s.dtype), s.shape.to_string());
}

void paged_infer(InferCall& c) {
  const auto& a = c.get_attrs<PagedAttentionAttrs>();
  const Spec &q = c.in[0], &k = c.in[1], &v = c.in[2], &table = c.in[3], &at = c.in[4];
  TD_CHECK(a.block > 0 && a.softcap >= 0 && a.window >= 0, Value,
           "block must be above 0, softcap and window not below, are {}, {} and {}", a.block,
           a.softcap, a.window);
  TD_CHECK(
      q.rank() == 4 && k.rank() == 3 && v.rank() == 3, Shape,
      "query is {}, key {}, value {}: expected [n, heads, l, e], [slots, heads, e] and [slots, "
      "heads, f]",
      q.shape.to_string(), k.shape.to_string(), v.shape.to_string());
  TD_CHECK(is_floating(q.dtype) && q.dtype == k.dtype && q.dtype == v.dtype, DType,
           "query is {}, key {}, value {}: expected one floating dtype", to_string(q.dtype),
           to_string(k.dtype), to_string(v.dtype));
  check_integers(table, "table");
  check_integers(at, "positions");
  TD_CHECK(dims_equal(q[3], k[2]), Shape, "query {} has {} features, key {} has {}",
           q.shape.to_string(), q[3].to_string(), k.shape.to_string(), k[2].to_string());
  TD_CHECK(dims_equal(k[0], v[0]) && dims_equal(k[1], v[1]), Shape,
           "key {} and value {} must have the same slots and heads", k.shape.to_string(),
           v.shape.to_string());
  const bool known = !q[1].is_symbolic() && !k[1].is_symbolic();
  TD_CHECK(!known || (k[1].value() > 0 && q[1].value() % k[1].value() == 0), Shape,
           "{} heads of the query cannot share {} of the key", q[1].to_string(), k[1].to_string());
  TD_CHECK(dims_equal(table[0], q[0]) && dims_equal(at[0], q[0]) && dims_equal(at[1], q[2]), Shape,
           "table is {} and positions {} for a query {}: expected [n, blocks] and [n, l]",
           table.shape.to_string(), at.shape.to_string(), q.shape.to_string());
  c.out[0] = Spec(q.dtype, {q[0], q[1], q[2], v[2]}, q.device);
}

// [slots, heads, e] -> [n, heads, t * block, e]: each text's keys in their order.
Tensor gathered(const Tensor& pool, const Tensor& slots, Dim n, Dim length) {
  return index_select(pool, 0, slots)
      .reshape({n, length, pool.shape(1), pool.shape(2)})
      .transpose(1, 2);
}

void paged_body(BodyCall& c) {
  const auto& a = c.get_attrs<PagedAttentionAttrs>();
  const Tensor &q = c.in[0], table = c.in[3].to(DType::i64), at = c.in[4].to(DType::i64);
  const Dim n = q.shape(0), length = table.shape(1) * Dim(a.block);
  const Tensor slots = (table.unsqueeze(2) * a.block + arange(a.block)).reshape({-1});
  const Tensor k = gathered(c.in[1], slots, n, length), v = gathered(c.in[2], slots, n, length);
  const Tensor key = arange_dim(length).reshape({1, 1, 1, length}),
               asks = at.reshape({n, 1, at.shape(1), 1});
  Tensor seen = key <= asks;
  if (a.window > 0) seen = seen & (key > asks - a.window);
  if (a.softcap == 0) {
    c.out[0] = scaled_dot_product_attention(q, k, v, seen, 0, false, a.scale, true);
    return;
  }
  const DType wide = accumulation_dtype(q.dtype());
  const int64_t heads = k.size(1), group = q.size(1) / heads;
  const double scale = a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  const Tensor asked = q.to(wide).reshape({n, heads, group, q.shape(2), q.shape(3)});
  Tensor s = matmul(asked, k.to(wide).unsqueeze(2).transpose(-1, -2)) * (scale / a.softcap);
  seen = seen.unsqueeze(2);
  s = where(seen, tanh(s) * a.softcap, -1e30);
  const Tensor weights = softmax(s, -1) * (asks >= 0).unsqueeze(2).to(wide);
  c.out[0] = matmul(weights, v.to(wide).unsqueeze(2))
                 .reshape({n, q.shape(1), q.shape(2), v.shape(3)})
                 .to(q.dtype());
}

double paged_flops(const InferCall& c) {
  const Shape &q = c.in[0].shape, &v = c.in[2].shape, &table = c.in[3].shape;
  if (q.is_symbolic() || v.is_symbolic() || table.is_symbolic()) return 0;
  const auto number = [](Dim d) { return static_cast<double>(d.value()); };
  return 2.0 * number(q[0]) * number(q[1]) * number(q[2]) * number(table[1]) *
         static_cast<double>(c.get_attrs<PagedAttentionAttrs>().block) *
         (number(q[3]) + number(v[2]));
}

}  // namespace

namespace op {
constinit const OpDef paged_attention =
    composite("paged_attention", {"q", "k", "v", "table", "positions"},
              fields<PagedAttentionAttrs>(), paged_body)
        .infer(paged_infer)
        .flops(paged_flops)
        .errors({kSlotText})
        .doc(
            "Attention of texts whose keys and values lie in blocks of a common pool; position "
            "p of text i is slot table[i][p / block] * block + p % block.");
}  // namespace op

Tensor paged_attention(Tensor q, Tensor k, Tensor v, Tensor table, Tensor positions,
                       const PagedAttentionAttrs& attrs, SourceLocation loc) {
  Operand in[] = {Operand(std::move(q), loc), Operand(std::move(k), loc),
                  Operand(std::move(v), loc), Operand(std::move(table), loc),
                  Operand(std::move(positions), loc)};
  Tensor out[kMaxOpOuts];
  apply(op::paged_attention, &attrs, in, out, loc);
  return std::move(out[0]);
}

}  // namespace tandem
