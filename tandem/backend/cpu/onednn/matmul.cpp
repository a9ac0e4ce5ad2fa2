// SPDX-License-Identifier: Apache-2.0
// matmul and linear on oneDNN: 16-bit matmuls (the own ones are as fast in f32). oneDNN's choices,
// and with them the bits, depend on how many threads it is given, so calls are split into parts of
// rows, columns or batches by the shape, each run by one thread.
#ifdef TANDEM_HAVE_ONEDNN
#include <algorithm>

#include "tandem/backend/cpu/gemm/matmul_internal.h"
#include "tandem/backend/cpu/onednn/plans_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/matmul/matmul.h"

namespace tandem::detail {
namespace {

using namespace onednn;

// A matrix of unit stride in one dimension that does not overlap itself.
bool plain(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return (column == 1 && (row >= columns || rows == 1)) ||
         (row == 1 && (column >= rows || columns == 1));
}

// oneDNN's best kernels only take dense matrices: others are copied to dense first.
bool dense(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return (column == 1 && row == columns) || (row == 1 && column == rows);
}

bool supports(const KernelCall& c) {
  const DType t = c.in[0].dtype;
  if (size_of(t) != 2 || !is_floating(t) || !computes(t)) return false;
  const bool linear = &c.op == &op::linear;
  if (linear && !(is_rows(c.in[0]) && (c.n_in < 3 || !c.in[2].present() || c.in[2].contiguous)))
    return false;
  MatmulProblem p = matmul_problem(c);
  if (p.multiply_adds() == 0 || p.lead > 1) return false;
  if (!plain(p.m, p.k, p.am, p.ak) || !plain(p.k, p.n, p.bk, p.bn)) return false;
  return !p.lead || (p.a_step[0] >= 0 && p.b_step[0] >= 0);
}

// Strides of rows x columns, with those of size-1 dimensions made harmless.
void clean(int64_t rows, int64_t columns, int64_t& row, int64_t& column) {
  if (rows == 1) row = column == 1 ? columns : columns * column;
  if (columns == 1) column = row == 1 ? rows : 1;
}

// The plan of `p` as one primitive; operands are addressed from the call's data pointers.
std::shared_ptr<const Plan> make_plan(const KernelCall& c, MatmulProblem p, int64_t c_row) {
  return plan_or_refuse([&](PlanBuilder& b) {
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
    Desc dy = PlanBuilder::desc_of(t, y, ys);
    Data da = b.input(0, PlanBuilder::desc_of(t, a, as));
    Data dw = b.input(1, PlanBuilder::desc_of(t, w, ws));
    Data out = b.output(0, dy), to = out;
    if (!p.lead) {
      if (!dense(p.m, p.k, p.am, p.ak)) da = b.as(da, PlanBuilder::desc_of(t, a, {p.k, 1}));
      if (!dense(p.k, p.n, p.bk, p.bn))
        dw = b.as(dw, PlanBuilder::desc_of(t, w, p.bk == 1 ? Dims{1, p.k} : Dims{p.n, 1}));
      if (c_row != p.n && p.m > 1) {
        out = b.output(0, PlanBuilder::desc_of(t, y, {c_row, 1}));
        to = b.temporary(dy);
      }
    }
    std::vector<Step::Arg> args = {{DNNL_ARG_SRC, da}, {DNNL_ARG_WEIGHTS, dw}, {DNNL_ARG_DST, to}};
    dnnl::matmul::primitive_desc pd;
    if (c.n_in > 2 && c.in[2].present()) {
      Desc bias = PlanBuilder::desc_of(t, {1, p.n}, {p.n, 1});
      pd = dnnl::matmul::primitive_desc(engine(), da.desc, dw.desc, bias, dy, user_scratchpad());
      args.push_back({DNNL_ARG_BIAS, b.input(2, bias)});
    } else {
      pd = dnnl::matmul::primitive_desc(engine(), da.desc, dw.desc, dy, user_scratchpad());
    }
    b.add(pd, dnnl::matmul(pd), std::move(args), 2 * p.multiply_adds());
    if (to.place.kind == Place::scratch) b.reorder(to, out);
  });
}

struct MatmulPlan : Plan {
  std::shared_ptr<const Plan> part, last;  ///< of `chunk` rows, columns or batches, and the rest
  int64_t size = 0, chunk = 0, parts = 1;
  int64_t step[4] = {};  ///< bytes from one row (column, batch) to the next, for a, b, bias and c
  int workers = 1;
  size_t worker_bytes = 0;
};

bool usable(const std::shared_ptr<const Plan>& p) {
  return static_cast<const DnnlPlan&>(*p).usable;
}

constexpr int64_t kUnit = 128;  ///< rows or columns of a part: the other operand is packed for each

bool cut_rows(const MatmulProblem& p) { return p.m >= p.n; }

MatmulProblem part_of(const MatmulProblem& p, int64_t count) {
  MatmulProblem q = p;
  if (p.lead) {
    q.batches = q.lead_size[0] = count;
  } else if (cut_rows(p)) {
    q.m = count;
  } else {
    q.n = count;
  }
  return q;
}

void cut(MatmulPlan& plan, const MatmulProblem& p, int64_t element) {
  constexpr double kMultiplyAddsPerPart = 2e6;
  constexpr double kMostParts = 16;
  plan.size = p.lead ? p.batches : cut_rows(p) ? p.m : p.n;
  const auto wish =
      static_cast<int64_t>(std::clamp(p.multiply_adds() / kMultiplyAddsPerPart, 1.0, kMostParts));
  const int64_t unit = p.lead ? 1 : kUnit;
  plan.chunk = ((plan.size + wish - 1) / wish + unit - 1) / unit * unit;
  plan.parts = (plan.size + plan.chunk - 1) / plan.chunk;
  if (p.lead) {
    plan.step[0] = p.a_step[0] * element;
    plan.step[1] = p.b_step[0] * element;
    plan.step[3] = p.m * p.n * element;
  } else if (cut_rows(p)) {
    plan.step[0] = p.am * element;
    plan.step[3] = p.n * element;
  } else {
    plan.step[1] = p.bn * element;
    plan.step[2] = plan.step[3] = element;
  }
}

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<MatmulPlan>();
  const MatmulProblem p = matmul_problem(c);
  cut(*plan, p, static_cast<int64_t>(size_of(c.in[0].dtype)));
  const int64_t rest = plan->size - (plan->parts - 1) * plan->chunk;
  plan->part = make_plan(c, part_of(p, std::min(plan->chunk, plan->size)), p.n);
  plan->last = rest == plan->chunk ? plan->part : make_plan(c, part_of(p, rest), p.n);
  if (!usable(plan->part)) return plan->part;
  if (!usable(plan->last)) return plan->last;
  plan->workers = static_cast<int>(std::min<int64_t>(num_threads(), plan->parts));
  plan->worker_bytes = whole_lines(std::max(plan->part->workspace, plan->last->workspace));
  plan->workspace = plan->worker_bytes * static_cast<size_t>(plan->workers);
  return plan;
}

void run(const KernelCall& c) {
  const auto* made = dynamic_cast<const MatmulPlan*>(c.plan);
  if (!made) return run_plan(c);  // oneDNN rejected it
  const MatmulPlan& plan = *made;
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w)
      for (int64_t i = plan.parts * w / plan.workers; i < plan.parts * (w + 1) / plan.workers;
           ++i) {
        KernelCall part = c;
        Array in[3], out = c.out[0];
        for (int k = 0; k < c.n_in; ++k) {
          in[k] = c.in[k];
          if (in[k].data) in[k].data = in[k].as<char>() + i * plan.chunk * plan.step[k];
        }
        out.data = out.as<char>() + i * plan.chunk * plan.step[3];
        part.in = in;
        part.out = &out;
        part.plan = (i + 1 < plan.parts ? plan.part : plan.last).get();
        part.scratch = static_cast<char*>(c.scratch) + static_cast<size_t>(w) * plan.worker_bytes;
        run_plan(part);
      }
  });
}

}  // namespace

void register_onednn_matmul_kernels() {
  for (const OpDef* op : {&op::matmul, &op::linear})
    register_kernel(DeviceKind::cpu, *op, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail

#endif
