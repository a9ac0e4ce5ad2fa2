// SPDX-License-Identifier: Apache-2.0
// The table of rows, and the kernels that backends registered for them.
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tandem/graph/op_def.h"
#include "tandem/graph/run/kernel_tuning.h"

namespace tandem {
namespace {

struct NameTable {
  std::recursive_mutex lock;
  std::vector<const OpDef*> ops;
  std::unordered_map<std::string_view, const OpDef*> by_name;
  Kernel family[kDeviceKinds][9] = {};
  FastF32 (*fast)(const OpDef&) = nullptr;
  std::vector<std::pair<const OpDef*, OpRuntime*>> in_making;
};
NameTable& name_table() {
  static NameTable* t = new NameTable;  // rows are used until the last thread ends
  return *t;
}

}  // namespace

OpRuntime& runtime_of(const OpDef& op) {
  // Threads that compile at the same time may meet a row that nobody has used before.
  const std::atomic_ref<OpRuntime*> at(op.runtime);
  OpRuntime* r = at.load(std::memory_order_acquire);
  if (TD_LIKELY(r != nullptr)) return *r;
  NameTable& t = name_table();
  std::lock_guard hold(t.lock);
  r = at.load(std::memory_order_relaxed);
  if (r) return *r;
  // What is made of the row asks for it again: other threads see it when it is complete.
  for (const auto& [of, made] : t.in_making)
    if (of == &op) return *made;
  r = new OpRuntime;
  t.in_making.emplace_back(&op, r);
  if (t.fast && op.family == Family::pointwise) r->fast_f32 = t.fast(op);
  t.in_making.pop_back();
  at.store(r, std::memory_order_release);
  return *r;
}

void register_op(const OpDef& op) {
  TD_CHECK(!op.reference_fn || op.reference_dtypes || op.family == Family::pointwise, Value,
           "op '{}' does not say which dtypes its reference takes\nName them, for example "
           ".reference(loops, {{DType::f32}}): f16 and bf16 are then converted. kEveryDType is all "
           "of them.",
           op.name);
  detail::register_library_op(op);
}

void detail::register_library_op(const OpDef& op) {
  NameTable& t = name_table();
  std::lock_guard hold(t.lock);
  auto at = t.by_name.find(op.name);
  if (at != t.by_name.end() && at->second == &op) return;
  TD_CHECK(at == t.by_name.end(), Value,
           "an op named '{}' is registered already\nChoose another name.", op.name);
  TD_CHECK(op.doc_text && *op.doc_text, Value, "op '{}' has no doc\nAdd .doc(\"...\").", op.name);
  runtime_of(op).id = static_cast<int>(t.ops.size());
  t.ops.push_back(&op);
  t.by_name.emplace(op.name, &op);
}

std::span<const OpDef* const> all_ops() { return name_table().ops; }

const OpDef* find_op(std::string_view name) {
  NameTable& t = name_table();
  std::lock_guard hold(t.lock);
  auto at = t.by_name.find(name);
  return at == t.by_name.end() ? nullptr : at->second;
}

void register_kernel(DeviceKind device, const OpDef& op, const Kernel& kernel) {
  std::lock_guard hold(name_table().lock);
  OpRuntime& r = runtime_of(op);
  int d = static_cast<int>(device);
  r.kernels[d] = new OpRuntime::Entry{kernel, r.kernels[d]};
}

void register_family_kernel(DeviceKind device, Family family, const Kernel& kernel) {
  std::lock_guard hold(name_table().lock);
  name_table().family[static_cast<int>(device)][static_cast<int>(family)] = kernel;
}

void set_fast_f32_provider(FastF32 (*provider)(const OpDef&)) {
  NameTable& t = name_table();
  std::lock_guard hold(t.lock);
  t.fast = provider;
  for (const OpDef* op : t.ops)
    if (op->family == Family::pointwise) op->runtime->fast_f32 = provider(*op);
}

bool has_own_kernel(const OpDef& op, Device device) {
  return runtime_of(op).kernels[static_cast<int>(device.kind)] != nullptr;
}

const Kernel* find_kernel(const KernelCall& call, DeviceKind device) {
  int d = static_cast<int>(device);
  for (const OpRuntime::Entry* e = call.op.runtime->kernels[d]; e; e = e->older)
    if (!e->kernel.supports || e->kernel.supports(call)) {
      if (TD_LIKELY(!e->older || kernel_tuning() == KernelTuning::off)) return &e->kernel;
      return detail::tuned_kernel(call, device, e);
    }
  const Kernel& k = name_table().family[d][static_cast<int>(call.op.family)];
  return k.run && (!k.supports || k.supports(call)) ? &k : nullptr;
}

}  // namespace tandem
