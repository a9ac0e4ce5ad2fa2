// SPDX-License-Identifier: Apache-2.0
// Running one kernel call: its plan from the eager table, its scratch, copies for another device.
#include <cmath>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "tandem/base/parallel.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/backend.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/precision.h"
#include "tandem/tensor/device_memory.h"

namespace tandem {
namespace {

// Cached plans by (kernel, device, attrs, dtypes, shapes, strides, threads, DeterministicGuard,
// precision).
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
  Device device;
  Scratch(size_t bytes, Device device)
      : p(bytes ? detail::allocate(bytes, device) : nullptr), n(bytes), device(device) {}
  ~Scratch() {
    if (p) detail::deallocate(p, n, device);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

size_t span_bytes(const Array& a) {
  if (!a.data || a.numel == 0) return 0;
  int64_t last = 0;
  for (int d = 0; d < a.rank; ++d) last += (a.shape[d] - 1) * a.strides[d];
  return static_cast<size_t>(last + 1) * size_of(a.dtype);
}

// The operands of a call in host memory, with the strides that they have on the device.
class HostOperands {
 public:
  explicit HostOperands(const KernelCall& c) : call_(c) {
    for (int i = 0; i < c.n_in; ++i) in_.push_back(place(c.in[i]));
    for (int i = 0; i < c.n_out; ++i) out_.push_back(place(c.out[i]));
  }
  ~HostOperands() {
    for (const Block& b : blocks_) detail::deallocate(b.p, b.bytes);
  }
  HostOperands(const HostOperands&) = delete;
  HostOperands& operator=(const HostOperands&) = delete;

  KernelCall read() {
    for (int i = 0; i < call_.n_in; ++i)
      if (const size_t n = span_bytes(call_.in[i])) {
        detail::copy_bytes(in_[i].data, cpu, call_.in[i].data, call_.device, n);
        bytes_ += static_cast<int64_t>(n);
      }
    KernelCall c = call_;
    c.in = in_.data();
    c.out = out_.data();
    c.device = cpu;
    c.stream = {};
    c.scratch = nullptr;
    return c;
  }
  void write() {
    for (int i = 0; i < call_.n_out; ++i)
      if (const size_t n = span_bytes(call_.out[i])) {
        detail::copy_bytes(call_.out[i].data, call_.device, out_[i].data, cpu, n);
        bytes_ += static_cast<int64_t>(n);
      }
  }
  int64_t bytes() const { return bytes_; }

 private:
  struct Block {
    void* p;
    size_t bytes;
  };
  Array place(Array a) {
    if (!a.data) return a;
    const size_t n = std::max<size_t>(span_bytes(a), 1);
    blocks_.push_back({detail::allocate(n), n});
    a.data = blocks_.back().p;
    return a;
  }
  const KernelCall& call_;
  SmallVec<Array, 6> in_;
  SmallVec<Array, 4> out_;
  SmallVec<Block, 10> blocks_;
  int64_t bytes_ = 0;
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
  int mode = num_threads() * 4 + context().deterministic * 2 +
             (float32_matmul_precision() == MatmulPrecision::tf32);
  append_raw(key, &mode, sizeof mode);
  const uint8_t device[] = {static_cast<uint8_t>(call.device.kind), call.device.index};
  append_raw(key, device, sizeof device);
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

void run_with(const KernelChoice& choice, KernelCall& call) {
  if (TD_UNLIKELY(choice.on_host)) return run_by_copies(choice.kernel, call);
  const Kernel* kernel = choice.kernel;
  if (!kernel) return run_reference(call);
  std::shared_ptr<const Plan> plan;
  if (kernel->prepare) {
    plan = plan_of(*kernel, call);
    call.plan = plan.get();
  }
  Scratch scratch(plan ? plan->workspace : 0, call.device);
  call.scratch = scratch.p;
  kernel->run(call);
}

void run_by_copies(const Kernel* kernel, const KernelCall& call) {
  check_host_allowed(call);
  const DeviceGuard here(cpu);
  HostOperands operands(call);
  KernelCall c = operands.read();
  if (!kernel) {
    run_reference(c);
  } else {
    std::shared_ptr<const Plan> plan;
    if (!c.plan && kernel->prepare) {
      plan = plan_of(*kernel, c);
      c.plan = plan.get();
    }
    Scratch scratch(c.plan ? c.plan->workspace : 0, cpu);
    c.scratch = scratch.p;
    kernel->run(c);
  }
  operands.write();
  count_on_host(call.op, call.device, operands.bytes());
}

void plan_dry(const Kernel* kernel, KernelCall& call) {
  if (!kernel || !kernel->prepare || is_dry_run_of_any_device()) return;
  const std::shared_ptr<const Plan> plan = plan_of(*kernel, call);
  if (plan->workspace == 0) return;
  DryMemory& ledger = *detail::dry_memory();
  ledger.give_back(ledger.take(plan->workspace, DryUse::scratch));
}

void run_kernel(const KernelCall& call) {
  KernelCall c = call;
  run_with(choose_kernel(c), c);
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
