// SPDX-License-Identifier: Apache-2.0
// Running one kernel call: its plan from the eager table, its scratch, the reference as fallback.
#include <cmath>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "tandem/base/parallel.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/dry_run.h"
#include "tandem/tensor/allocator.h"

namespace tandem {
namespace {

// Ready plans by (kernel, attrs, dtypes, shapes, strides, threads, DeterministicGuard).
struct PlanTable {
  std::shared_mutex lock;
  std::unordered_map<std::string, std::shared_ptr<const Plan>> plans;
};
PlanTable& plan_table() {
  static PlanTable* t = new PlanTable;
  return *t;
}
constexpr size_t kMaxPlans = 8192;

void append_raw(std::string& key, const void* p, size_t n) {
  key.append(static_cast<const char*>(p), n);
}

void append_array(std::string& key, const Array& a) {
  char head[3] = {static_cast<char>(a.dtype), static_cast<char>(a.rank),
                  static_cast<char>(a.is_scalar | (a.data != nullptr) << 1)};
  append_raw(key, head, 3);
  if (!a.shape) return;
  append_raw(key, a.shape, a.rank * sizeof(int64_t));
  if (a.strides) append_raw(key, a.strides, a.rank * sizeof(int64_t));
}

struct Scratch {
  void* p = nullptr;
  size_t n = 0;
  explicit Scratch(size_t bytes) : p(bytes ? detail::allocate(bytes) : nullptr), n(bytes) {}
  ~Scratch() {
    if (p) detail::deallocate(p, n);
  }
};

template <class T>
const char* scan(const Tensor& t) {
  bool inf = false;
  for (T v : t.to_vector<T>()) {
    if (v != v) return "NaN";
    inf |= std::isinf(v);
  }
  return inf ? "infinity" : nullptr;
}

}  // namespace

std::shared_ptr<const Plan> plan_of(const Kernel& kernel, const KernelCall& call) {
  thread_local std::string key;
  key.clear();
  const void* id[] = {reinterpret_cast<const void*>(kernel.prepare), &call.op};
  append_raw(key, id, sizeof id);
  int mode = num_threads() * 2 + context().deterministic;
  append_raw(key, &mode, sizeof mode);
  if (call.op.attrs) append_attr_bytes(call.op.attrs, call.attrs, key);
  for (int i = 0; i < call.n_in; ++i) append_array(key, call.in[i]);
  for (int i = 0; i < call.n_out; ++i) append_array(key, call.out[i]);
  PlanTable& t = plan_table();
  {
    std::shared_lock hold(t.lock);
    if (auto at = t.plans.find(key); at != t.plans.end()) return at->second;
  }
  std::shared_ptr<const Plan> made = kernel.prepare(call);
  std::unique_lock hold(t.lock);
  if (t.plans.size() >= kMaxPlans) t.plans.clear();
  return t.plans.emplace(key, std::move(made)).first->second;
}

void run_with(const Kernel* kernel, KernelCall& call, Device) {
  if (!kernel) {
    TD_CHECK(call.op.reference_fn, Unsupported, "no kernel and no reference for these inputs");
    call.op.reference_fn(call);
    return;
  }
  std::shared_ptr<const Plan> plan;
  if (kernel->prepare) {
    plan = plan_of(*kernel, call);
    call.plan = plan.get();
  }
  Scratch scratch(plan ? plan->workspace : 0);
  call.scratch = scratch.p;
  kernel->run(call);
}

void plan_dry(const Kernel* kernel, KernelCall& call) {
  if (!kernel || !kernel->prepare || is_dry_run_of_any_device()) return;
  const std::shared_ptr<const Plan> plan = plan_of(*kernel, call);
  if (plan->workspace == 0) return;
  DryMemory& books = *detail::dry_memory();
  books.give_back(books.take(plan->workspace, DryUse::scratch));
}

void run_kernel(const KernelCall& call, Device device) {
  KernelCall c = call;
  run_with(find_kernel(c, device.kind), c, device);
}

bool is_dense(const Tensor& t) {
  return t.is_contiguous() || (!t.is_symbolic() && is_dense(t.shape(), t.impl()->strides));
}

bool is_dense(const Shape& shape, const Strides& strides) {
  int order[kMaxRank], n = 0;
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i].raw() != 1) order[n++] = i;
  for (int i = 1; i < n; ++i)
    for (int k = i; k > 0 && strides[order[k]] < strides[order[k - 1]]; --k)
      std::swap(order[k], order[k - 1]);
  int64_t expect = 1;
  for (int k = 0; k < n; ++k) {
    if (strides[order[k]] != expect) return false;
    expect *= shape[order[k]].raw();
  }
  return true;
}

const char* first_non_finite(const Tensor& t) {
  if (t.is_symbolic()) return nullptr;
  return t.dtype() == DType::f64 ? scan<double>(t) : scan<float>(t);
}

}  // namespace tandem
