// SPDX-License-Identifier: Apache-2.0
// The thread's context: modes, layer scopes, hooks, the running trace. One struct, read once per
// apply; `slow` tells whether anything but plain eager is on.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/graph/node.h"

namespace tandem {

struct Trace;
class Cell;
class ProfilerGuard;

/// A layer that is running: its path and the line that called it. Frames live on the stack.
struct ScopeFrame {
  uint32_t path = 0;  ///< interned
  SourceLocation loc;
  const ScopeFrame* parent = nullptr;
};
/// The id of a layer path ("encoder.0"); 0 is the empty path.
TD_API uint32_t intern_scope(std::string_view path);
TD_API const std::string& scope_path(uint32_t id);

/// Observes every op that runs on this thread (profiler, NaN watch). `before` may be skipped when
/// an op throws.
class TD_API OpHook {
 public:
  virtual ~OpHook() = default;
  virtual void before(const OpDef&, std::span<const Tensor> /*in*/) {}
  virtual void after(const OpDef&, std::span<const Tensor> /*out*/) {}
};

enum SlowFlags : uint32_t {
  kTracing = 1,
  kHooks = 2,
  kAnomaly = 4,
  kAutocast = 8,
  kRedirect = 16,   ///< functional_call: cell reads are replaced
  kRecompute = 32,  ///< checkpoint's second run: assign_ is ignored
  kProfile = 64,    ///< a ProfilerGuard records
};

struct Context {
  uint32_t slow = 0;
  bool grad_enabled = true;
  bool in_backward = false;
  bool deterministic = false;  ///< DeterministicGuard: kernels read it when they make a plan
  DType autocast_dtype = DType::bf16;
  bool narrow_batch_norm = false;  ///< NarrowBatchNormGuard
  Trace* trace = nullptr;
  ProfilerGuard* profiler = nullptr;
  const ScopeFrame* scope = nullptr;
  std::vector<OpHook*> hooks;
  /// functional_call and checkpoint: the values that replace reads of a cell.
  std::vector<std::pair<const Cell*, Tensor>>* redirect = nullptr;
  /// checkpoint's first run: which cells were read.
  std::vector<std::pair<Ref<RefCounted>, Tensor>>* cell_log = nullptr;
  /// AssignIf: assign_ stores where(pred, new, old).
  std::vector<Tensor> assign_if;
  Device device{};  ///< DeviceGuard: where ops without tensor inputs put their results
};
/// This thread's context.
TD_API Context& context();

/// The innermost line of the user's code: `loc` if it is one, else that of the layer scopes.
TD_API SourceLocation user_line(SourceLocation loc);
/// The current layer path, "" outside layers.
TD_API const std::string& current_layer();
/// `e` with op, layer and line filled in where missing.
TD_API Error with_place(const Error& e, const char* op, SourceLocation loc);
/// `e` as an error of `op`, the function that the user called, not of one that it is made of.
TD_API Error renamed(const Error& e, const char* op, SourceLocation loc);

/// Ops inside are not recorded for gradients.
class TD_API NoGradGuard {
 public:
  explicit NoGradGuard(bool no_grad = true) : old_(context().grad_enabled) {
    context().grad_enabled = !no_grad;
  }
  ~NoGradGuard() { context().grad_enabled = old_; }
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool old_;
};
/// Ops inside are recorded again.
class TD_API EnableGradGuard : NoGradGuard {
 public:
  EnableGradGuard() : NoGradGuard(false) {}
};
TD_API bool is_grad_enabled();

/// The first op that produces a NaN or infinity, forward or backward, throws Value with op, layer
/// path and the user's line.
class TD_API DetectAnomalyGuard {
 public:
  explicit DetectAnomalyGuard(bool on = true);
  ~DetectAnomalyGuard();
  DetectAnomalyGuard(const DetectAnomalyGuard&) = delete;
  DetectAnomalyGuard& operator=(const DetectAnomalyGuard&) = delete;

 private:
  uint32_t old_;
};

/// Matmuls and convolutions inside run in `dtype` (bf16 or f16); norms, softmax and losses stay in
/// f32.
class TD_API AutocastGuard {
 public:
  explicit AutocastGuard(DType dtype = DType::bf16, bool on = true);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  uint32_t old_;
  DType old_dtype_;
};

/// Under autocast, norms over the batch keep 16-bit inputs and results, as libraries for GPUs do;
/// their statistics are f32 as ever. For plans of other frameworks.
class TD_API NarrowBatchNormGuard {
 public:
  explicit NarrowBatchNormGuard(bool on = true) : old_(context().narrow_batch_norm) {
    context().narrow_batch_norm = on;
  }
  ~NarrowBatchNormGuard() { context().narrow_batch_norm = old_; }
  NarrowBatchNormGuard(const NarrowBatchNormGuard&) = delete;
  NarrowBatchNormGuard& operator=(const NarrowBatchNormGuard&) = delete;

 private:
  bool old_;
};

/// Every op inside gives the same bits at any thread count. Outside, all do except the rows marked
/// in docs/ops.md; under the guard those run on one thread where they cannot be split.
class TD_API DeterministicGuard {
 public:
  explicit DeterministicGuard(bool on = true) : old_(context().deterministic) {
    context().deterministic = on;
  }
  ~DeterministicGuard() { context().deterministic = old_; }
  DeterministicGuard(const DeterministicGuard&) = delete;
  DeterministicGuard& operator=(const DeterministicGuard&) = delete;

 private:
  bool old_;
};

/// Tensors that are made from nothing (zeros, rand, tensor({...}), parameters of modules) lie on
/// `device` while it lives. Throws Unsupported for a device that this process does not have.
class TD_API DeviceGuard {
 public:
  explicit DeviceGuard(Device device) : old_(context().device) {
    if (!is_host(device)) check_device(device);
    context().device = device;
  }
  ~DeviceGuard() { context().device = old_; }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  static void check_device(Device device);
  Device old_;
};

/// Calls `hook` for every op of this thread while it lives.
class TD_API HookGuard {
 public:
  explicit HookGuard(OpHook& hook);
  ~HookGuard();
  HookGuard(const HookGuard&) = delete;
  HookGuard& operator=(const HookGuard&) = delete;
};

/// Enters a layer.
class TD_API ScopeGuard {
 public:
  ScopeGuard(uint32_t path, SourceLocation loc) : frame_{path, loc, context().scope} {
    context().scope = &frame_;
  }
  ~ScopeGuard() { context().scope = frame_.parent; }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  ScopeFrame frame_;
};

}  // namespace tandem
