// SPDX-License-Identifier: Apache-2.0
// matmul and linear on oneDNN: large f32 products and all 16-bit ones. Left to the own product:
// what oneDNN would sum in an order that depends on the thread count (a transposed with a long k).
#ifdef TANDEM_HAVE_ONEDNN
#include "tandem/cpu/matmul_internal.h"
#include "tandem/cpu/onednn_internal.h"
#include "tandem/cpu/registry_internal.h"
#include "tandem/ops/matmul.h"

namespace tandem::detail {
namespace {

using namespace onednn;

constexpr int64_t kLeastWeight = 16384;  ///< elements of b
constexpr int64_t kLongestK =
    1024;  ///< of a transposed a: oneDNN 3.2 starts to split k above 4,000

// A matrix of unit stride in one dimension that does not overlap itself.
bool plain(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return (column == 1 && (row >= columns || rows == 1)) ||
         (row == 1 && (column >= rows || columns == 1));
}

bool supports(const KernelCall& c) {
  const DType t = c.in[0].dtype;
  if (!is_floating(t) || !computes(t)) return false;
  const bool linear = &c.op == &op::linear;
  if (linear && !(is_rows(c.in[0]) && (c.n_in < 3 || !c.in[2].present() || c.in[2].contiguous)))
    return false;
  MatmulProblem p = matmul_problem(c);
  if (p.products() == 0 || p.lead > 1) return false;
  if (!plain(p.m, p.k, p.am, p.ak) || !plain(p.k, p.n, p.bk, p.bn)) return false;
  if (p.lead && (p.a_step[0] < 0 || p.b_step[0] < 0)) return false;
  if (t != DType::f32) return true;
  // The choice does not look at m, so a row alone has the bits that it has among others.
  const bool transposed = p.ak != 1 && p.m > 1;
  return p.n >= 16 && p.n * p.k >= kLeastWeight && (!transposed || p.k <= kLongestK);
}

// Strides of rows x columns with those of dimensions of size 1 made harmless.
void clean(int64_t rows, int64_t columns, int64_t& row, int64_t& column) {
  if (rows == 1) row = column == 1 ? columns : columns * column;
  if (columns == 1) column = row == 1 ? rows : 1;
}

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  return plan_or_refuse(c, [&](PlanBuilder& b) {
    MatmulProblem p = matmul_problem(c);
    const DType t = c.in[0].dtype;
    clean(p.m, p.k, p.am, p.ak);
    clean(p.k, p.n, p.bk, p.bn);
    Dims a{p.m, p.k}, as{p.am, p.ak}, w{p.k, p.n}, ws{p.bk, p.bn}, y{p.m, p.n}, ys{p.n, 1};
    if (p.lead) {
      auto batch = [&](Dims& dims, Dims& strides, int64_t step, int64_t size) {
        dims.insert(dims.begin(), step ? p.batches : 1);
        strides.insert(strides.begin(), step ? step : size);
      };
      batch(a, as, p.a_step[0], p.m * p.k);
      batch(w, ws, p.b_step[0], p.k * p.n);
      y.insert(y.begin(), p.batches);
      ys.insert(ys.begin(), p.m * p.n);
    }
    Desc da = PlanBuilder::desc_of(t, a, as), dw = PlanBuilder::desc_of(t, w, ws),
         dy = PlanBuilder::desc_of(t, y, ys);
    const bool with_bias = c.n_in > 2 && c.in[2].present();
    std::vector<Step::Arg> args = {{DNNL_ARG_SRC, b.input(0, da)},
                                   {DNNL_ARG_WEIGHTS, b.input(1, dw)},
                                   {DNNL_ARG_DST, b.output(0, dy)}};
    dnnl::matmul::primitive_desc pd;
    if (with_bias) {
      Desc bias = PlanBuilder::desc_of(t, {1, p.n}, {p.n, 1});
      pd = dnnl::matmul::primitive_desc(engine(), da, dw, bias, dy, user_scratchpad());
      args.push_back({DNNL_ARG_BIAS, b.input(2, bias)});
    } else {
      pd = dnnl::matmul::primitive_desc(engine(), da, dw, dy, user_scratchpad());
    }
    b.add(pd, dnnl::matmul(pd), std::move(args), 2 * p.products());
  });
}

}  // namespace

void register_onednn_matmul_kernels() {
  for (const OpDef* op : {&op::matmul, &op::linear})
    register_kernel(DeviceKind::cpu, *op, {supports, nullptr, prepare, run_plan});
}

}  // namespace tandem::detail

#endif
