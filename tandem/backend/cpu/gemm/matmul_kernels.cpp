// SPDX-License-Identifier: Apache-2.0
// matmul and linear on the own GEMM: small ones directly, large ones with a plan that holds the
// packing buffers of all threads. 16-bit matrices are widened to f32 where no dedicated kernel
// takes them (the processor lacks the instructions). Integers run the reference.
#include <algorithm>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/gemm/matmul_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/widened_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/epilogue.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/rule_internal.h"

namespace tandem::detail {
namespace {

constexpr size_t kStackBytes = 24 * 1024;
constexpr double kMultiplyAddsPerThread = 131072;

bool is_linear(const KernelCall& c) { return &c.op == &op::linear; }

void add_lead(MatmulProblem& p, int64_t size, int64_t a, int64_t b) {
  if (size == 1) return;
  p.batches *= size;
  if (p.lead > 0) {
    int i = p.lead - 1;
    if (p.a_step[i] == a * size && p.b_step[i] == b * size) {
      p.lead_size[i] *= size;
      p.a_step[i] = a;
      p.b_step[i] = b;
      return;
    }
  }
  p.lead_size[p.lead] = size;
  p.a_step[p.lead] = a;
  p.b_step[p.lead] = b;
  ++p.lead;
}

// A batch of a with a single b is one taller matmul.
void fold(MatmulProblem& p) {
  if (p.lead != 1 || p.b_step[0] != 0 || p.a_step[0] != p.am * p.m) return;
  if (p.m == 1) p.am = p.a_step[0];
  p.m *= p.lead_size[0];
  p.lead = 0;
  p.batches = 1;
}

MatmulProblem linear_problem(const KernelCall& c) {
  const Array &x = c.in[0], &w = c.in[1];
  MatmulProblem p;
  p.k = w.shape[1];
  p.n = w.shape[0];
  p.ak = x.strides[x.rank - 1];
  p.bn = w.strides[0];
  p.bk = w.strides[1];
  p.m = 1;
  for (int d = 0; d + 1 < x.rank; ++d) {
    if (x.shape[d] == 1) continue;
    p.m *= x.shape[d];
    p.am = x.strides[d];
  }
  return p;
}

MatmulProblem batched_problem(const KernelCall& c) {
  const auto& at = c.get_attrs<MatmulAttrs>();
  const Array &a = c.in[0], &b = c.in[1], &y = c.out[0];
  MatmulProblem p;
  const int ar = a.rank, br = b.rank;
  p.m = y.shape[y.rank - 2];
  p.n = y.shape[y.rank - 1];
  p.k = a.shape[ar - (at.trans_a ? 2 : 1)];
  p.am = a.strides[ar - (at.trans_a ? 1 : 2)];
  p.ak = a.strides[ar - (at.trans_a ? 2 : 1)];
  p.bk = b.strides[br - (at.trans_b ? 1 : 2)];
  p.bn = b.strides[br - (at.trans_b ? 2 : 1)];
  for (int d = 0; d + 2 < y.rank; ++d) {
    int da = d - (y.rank - ar), db = d - (y.rank - br);
    add_lead(p, y.shape[d], da >= 0 && a.shape[da] != 1 ? a.strides[da] : 0,
             db >= 0 && b.shape[db] != 1 ? b.strides[db] : 0);
  }
  fold(p);
  return p;
}

template <class T>
Gemm<T> gemm_of(const KernelCall& c, const MatmulProblem& p, int64_t batch) {
  Gemm<T> g;
  int64_t a, b;
  p.offsets(batch, a, b);
  g.m = p.m;
  g.n = p.n;
  g.k = p.k;
  g.a = c.in[0].as<T>() + a;
  g.am = p.am;
  g.ak = p.ak;
  g.b = c.in[1].as<T>() + b;
  g.bk = p.bk;
  g.bn = p.bn;
  g.c = c.out[0].as<T>() + batch * p.m * p.n;
  g.c_row = p.n;
  if (c.n_in > 2 && c.in[2].present()) g.bias = c.in[2].as<T>();
  return g;
}

bool takes(const KernelCall& c) {
  if (c.in[0].dtype != DType::f32 && c.in[0].dtype != DType::f64) return false;
  for (int d = 0; d < c.out[0].rank; ++d)
    if (c.out[0].shape[d] == 0) return false;
  if (!is_linear(c)) return true;
  return is_rows(c.in[0]) && (c.n_in < 3 || !c.in[2].present() || c.in[2].contiguous);
}

// ---- small matrices: no plan, packing on the stack

template <class T>
bool fits_stack(const MatmulProblem& p) {
  return p.m <= 512 && p.n <= 512 && gemm_scratch<T>(p.m, p.n, p.k) <= kStackBytes;
}

bool small_supports(const KernelCall& c) {
  if (!takes(c)) return false;
  MatmulProblem p = matmul_problem(c);
  if (p.multiply_adds() > kMultiplyAddsPerThread && p.batches < 4) return false;
  return c.in[0].dtype == DType::f32 ? fits_stack<float>(p) : fits_stack<double>(p);
}

template <class T>
void run_small(const KernelCall& c) {
  const MatmulProblem p = matmul_problem(c);
  const double each = p.multiply_adds() / static_cast<double>(p.batches);
  const auto grain = static_cast<int64_t>(kMultiplyAddsPerThread / 4 / std::max(each, 1.0));
  parallel_for(0, p.batches, std::max<int64_t>(grain, 1), [&](int64_t first, int64_t last) {
    alignas(64) char scratch[kStackBytes];
    for (int64_t i = first; i < last; ++i) gemm_serial(gemm_of<T>(c, p, i), scratch);
  });
}

void small_run(const KernelCall& c) {
  c.in[0].dtype == DType::f32 ? run_small<float>(c) : run_small<double>(c);
}

// ---- large ones

void large_run_with(const KernelCall& c, const Epilogue& epilogue);

struct GemmPlan : EpiloguePlan {
  MatmulProblem problem;
  int workers = 1;
  size_t part = 0;
};

template <class T>
std::shared_ptr<const Plan> make_plan(const KernelCall& c) {
  auto plan = std::make_shared<GemmPlan>();
  plan->problem = matmul_problem(c);
  const MatmulProblem& p = plan->problem;
  const double parts = p.multiply_adds() / kMultiplyAddsPerThread;
  plan->workers = std::max(1, static_cast<int>(std::min<double>(num_threads(), parts)));
  plan->part = gemm_scratch<T>(p.m, p.n, p.k);
  plan->workspace = plan->part * static_cast<size_t>(plan->workers);
  plan->run_with = large_run_with;
  return plan;
}

std::shared_ptr<const Plan> large_prepare(const KernelCall& c) {
  return c.in[0].dtype == DType::f32 ? make_plan<float>(c) : make_plan<double>(c);
}

template <class T>
void run_large(const KernelCall& c, const Epilogue* epilogue) {
  const auto& plan = *static_cast<const GemmPlan*>(c.plan);
  const MatmulProblem& p = plan.problem;
  if (p.batches < plan.workers || epilogue) {
    for (int64_t i = 0; i < p.batches; ++i) {
      Gemm<T> g = gemm_of<T>(c, p, i);
      g.epilogue = epilogue;
      gemm(g, plan.workers, c.scratch);
    }
    return;
  }
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w)
      for (int64_t i = p.batches * w / plan.workers; i < p.batches * (w + 1) / plan.workers; ++i)
        gemm_serial(gemm_of<T>(c, p, i), static_cast<char*>(c.scratch) + w * plan.part);
  });
}

void large_run_with(const KernelCall& c, const Epilogue& epilogue) {
  c.in[0].dtype == DType::f32 ? run_large<float>(c, &epilogue) : run_large<double>(c, &epilogue);
}

void large_run(const KernelCall& c) {
  c.in[0].dtype == DType::f32 ? run_large<float>(c, nullptr) : run_large<double>(c, nullptr);
}

EpilogueKind one_matmul(const KernelCall& c) {
  return matmul_problem(c).batches == 1 ? EpilogueKind::blocks : EpilogueKind::none;
}

constexpr Kernel kLarge{takes, nullptr, large_prepare, large_run};
constexpr Kernel kSmall{small_supports, nullptr, nullptr, small_run};

}  // namespace

bool is_rows(const Array& x) {
  int64_t size = 1, step = 0;
  for (int d = x.rank - 2; d >= 0; --d) {
    if (x.shape[d] == 1) continue;
    if (size != 1 && x.strides[d] != step * size) return false;
    if (size == 1) step = x.strides[d];
    size *= x.shape[d];
  }
  return true;
}

MatmulProblem matmul_problem(const KernelCall& c) {
  return is_linear(c) ? linear_problem(c) : batched_problem(c);
}

void register_gemm_kernels() {
  register_epilogue(large_prepare, one_matmul);
  for (const OpDef* op : {&op::matmul, &op::linear}) {
    register_kernel(DeviceKind::cpu, *op, kWidened);
    register_kernel(DeviceKind::cpu, *op, kLarge);
    register_kernel(DeviceKind::cpu, *op, kSmall);
  }
  register_narrow_matmul();
}

}  // namespace tandem::detail
