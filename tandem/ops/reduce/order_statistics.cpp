// SPDX-License-Identifier: Apache-2.0
// The row `kthvalue`: one element of each sorted line. Its body sorts; a kernel may select.
#include "tandem/ops/reduce/order_statistics_internal.h"

#include "tandem/base/error.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

void kth_infer(InferCall& c) {
  const Spec& x = c.in[0];
  const KthvalueAttrs& a = c.get_attrs<KthvalueAttrs>();
  const int d = normalize_dim(a.dim, x.rank());
  const Dim n = x[d];
  TD_CHECK(n.is_symbolic() || n.value() > 0, Shape, "dimension {} of x {} is empty", d,
           x.shape.to_string());
  TD_CHECK(a.rank != static_cast<int64_t>(Rank::kth) ||
               (a.k >= 1 && (n.is_symbolic() || a.k <= n.value())),
           Value, "k must be in 1..{}, got {}", n.to_string(), a.k);
  Shape one = x.shape;
  one[d] = 1;
  c.out[0] = Spec(x.dtype, one, x.device);
  c.out[1] = Spec(DType::i64, one, x.device);
}

void kth_body(BodyCall& b) {
  const KthvalueAttrs& a = b.get_attrs<KthvalueAttrs>();
  const Tensor& x = b.in[0];
  const int d = normalize_dim(a.dim, x.dim());
  const auto sorted = sort(x, d);
  if (a.rank == static_cast<int64_t>(Rank::kth)) {
    b.out[0] = narrow(sorted.values, d, a.k - 1, 1);
    b.out[1] = narrow(sorted.indices, d, a.k - 1, 1);
    return;
  }
  const int64_t n = x.size(d);
  const Tensor nans = sum(isnan(x), {d}, true);
  // The middle of the numbers; the first NaN follows them.
  const Tensor at = a.rank == static_cast<int64_t>(Rank::nanmedian)
                        ? clamp_min(floor_divide((n - 1) - nans, 2), 0)
                        : where(nans > 0, n - nans, full(Shape(), (n - 1) / 2));
  b.out[0] = gather(sorted.values, d, at);
  b.out[1] = gather(sorted.indices, d, at);
}

void kth_vjp(VjpCall& c) {
  GatherAttrs a{c.get_attrs<KthvalueAttrs>().dim};
  FillAttrs f{c.in_shape(0), 0, c.grad().dtype()};
  c.results[0] = call(op::scatter, &a, c.loc(), call(op::fill, &f, c.loc()), c.out(1), c.grad());
}

}  // namespace

namespace op {
constinit const OpDef kthvalue =
    composite("kthvalue", {"x"}, fields<KthvalueAttrs>(), kth_body)
        .outputs({"values", "indices"})
        .infer(kth_infer)
        .vjp(kth_vjp, 0, 1u << 1)
        .doc(
            "The k-th smallest element along dim or the median, and its position; NaN is the "
            "largest.");
}  // namespace op

std::span<const OpDef* const> order_statistic_rows() {
  static constexpr const OpDef* kRows[] = {&op::kthvalue};
  return kRows;
}

}  // namespace tandem
