// SPDX-License-Identifier: Apache-2.0
// The dispatcher. A short path for small equal-shaped f32 arrays of a one-instruction row, and the
// full one: autocast, infer and check, trace or run, tape, hooks.
#include "tandem/graph/apply.h"

#include <cmath>

#include "tandem/base/budget.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/backend.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/error_text.h"
#include "tandem/graph/profiler.h"
#include "tandem/graph/rng.h"
#include "tandem/graph/trace.h"
#include "tandem/tensor/device_memory.h"
#include "tandem/tensor/lazy.h"

namespace tandem {
namespace {

using detail::TensorImpl;

constexpr int64_t kFastElements = 16384;

bool same_dims(const TensorImpl& a, const TensorImpl& b) {
  if (a.shape.rank() != b.shape.rank()) return false;
  for (int i = 0; i < a.shape.rank(); ++i)
    if (!(a.shape[i] == b.shape[i])) return false;
  return true;
}

// The eager shortcut; false: take the full path. Nothing is moved until success is certain.
bool fast_path(const OpDef& op, const void* attrs, std::span<Operand> in, Tensor* out,
               const Context& c, SourceLocation loc) {
  const OpRuntime* r = op.runtime;
  if (!r || !r->fast_f32 || (c.slow & ~kShadowed) || in.size() > 2) return false;
  constexpr uint8_t kMask = detail::kContiguous | detail::kSymbolic | detail::kOnDevice;
  const TensorImpl* a = in[0].is_scalar() ? nullptr : in[0].tensor().impl();
  if (!a || (a->flags & kMask) != detail::kContiguous || a->dtype != DType::f32 ||
      a->numel > kFastElements)
    return false;
  const TensorImpl* b = a;
  if (in.size() == 2) {
    b = in[1].is_scalar() ? nullptr : in[1].tensor().impl();
    if (!b || (b->flags & kMask) != detail::kContiguous || b->dtype != DType::f32 ||
        !same_dims(*a, *b))
      return false;
  }
  bool record = c.grad_enabled && ((a->flags | b->flags) & detail::kRequiresGrad) &&
                !op.has(kNotDifferentiable);
  if (record) {
    Tensor ts[2];
    for (size_t i = 0; i < in.size(); ++i) ts[i] = in[i].take();
    Tensor y(Ref<TensorImpl>::adopt(detail::new_tensor(a->shape, DType::f32, a->device)));
    r->fast_f32(static_cast<float*>(y.impl()->data), static_cast<const float*>(a->data),
                static_cast<const float*>(b->data), a->numel);
    out[0] = std::move(y);
    record_tape(op, attrs, {ts, in.size()}, {}, {}, out, loc, {});
    return true;
  }
  // Reuse the whole block of a temporary, header and data.
  for (Operand& o : in) {
    if (!o.is_temporary() || !o.owned().impl()->donatable()) continue;
    Tensor y = std::move(o.owned());
    TensorImpl* i = y.impl();
    r->fast_f32(static_cast<float*>(i->data), static_cast<const float*>(a->data),
                static_cast<const float*>(b->data), i->numel);
    if (i->node) {
      i->node->drop_ref();
      i->node = nullptr;
    }
    i->flags &= static_cast<uint8_t>(~detail::kRequiresGrad);
    out[0] = std::move(y);
    return true;
  }
  TensorImpl* y = detail::new_tensor(a->shape, DType::f32, a->device);
  r->fast_f32(static_cast<float*>(y->data), static_cast<const float*>(a->data),
              static_cast<const float*>(b->data), a->numel);
  out[0] = Tensor(Ref<TensorImpl>::adopt(y));
  return true;
}

// ---- the full path

void check_input(const OpDef& op, const Tensor& t, int i, const Context& c) {
  if (!t.is_symbolic() || c.trace) return;
  const Node* n = node_of(t);
  TD_FAIL(Unsupported,
          "input '{}' is a value of a trace that has ended (made at {}:{})\n"
          "Return it from the traced function, or keep it in a Buffer.",
          op.in_names[i < op.n_in ? i : op.n_in - 1], n && n->loc.file ? n->loc.file : "?",
          n ? n->loc.line : 0);
}

// A deferred value is needed now, unless the op can wait, too.
TD_NOINLINE void bring_deferred(const Tensor& t, const Context& c) {
  if (t.defined() && (c.trace || !(c.slow & kDeferred)) && detail::is_deferred(t))
    detail::compute_in_place(*t.impl());
}

void gather_inputs(Call& k, std::span<Operand> in) {
  const OpDef& op = k.op;
  TD_CHECK(op.runtime, Unsupported,
           "op '{}' is not in the table\nCall tandem::init() first; register_op() adds your own.",
           op.name);
  int n = static_cast<int>(in.size());
  const bool absent = detail::any_absent();
  for (int i = 0; i < n; ++i) {
    bool scalar = in[i].is_scalar();
    k.scalars.push_back(scalar ? in[i].scalar() : Scalar());
    k.tensors.push_back(scalar ? Tensor() : in[i].take());
    const Tensor& t = k.tensors.back();
    if (TD_UNLIKELY(absent)) bring_deferred(t, k.context);
    int name = std::min(i, op.n_in - 1);
    if (!scalar && !t.defined()) {
      TD_CHECK(op.n_in > 0 && (op.optional(name) || i >= op.n_in), Value,
               "input '{}' is an undefined tensor\nWas it moved from, or never assigned?",
               op.in_names[name]);
    }
    if (t.defined()) check_input(op, t, i, k.context);
    k.infer.present.push_back(scalar ? 2 : t.defined() ? 1 : 0);
  }
  while (n++ < op.n_in) {  // trailing optional inputs may be omitted
    k.tensors.emplace_back();
    k.scalars.emplace_back();
    k.infer.present.push_back(0);
  }
}

bool wants_cast(const Tensor& t, DType to) {
  return t.defined() && is_floating(t.dtype()) && t.dtype() != to && t.dtype() != DType::f64;
}

void autocast_inputs(Call& k) {
  DType low = k.context.autocast_dtype, to = low;
  switch (k.op.autocast_class) {
    case Autocast::none:
      return;
    case Autocast::low:
      break;
    case Autocast::f32_inside:
      if (k.context.narrow_batch_norm && k.op.has(kBatchNorm)) return;
      [[fallthrough]];
    case Autocast::f32_io:
      to = DType::f32;
      break;
    case Autocast::promote:
      to = low;
      for (const Tensor& t : k.tensors)
        if (t.defined() && t.dtype() == DType::f32) to = DType::f32;
      break;
  }
  for (Tensor& t : k.tensors)
    if (wants_cast(t, to)) {
      CastAttrs a{to};
      t = call(op::cast, &a, k.loc, std::move(t));
    }
}

// Inputs on several devices: numbers in 0-d tensors of the host go to the others.
TD_COLD Device bring_together(Call& k) {
  Device device{};
  for (const Tensor& t : k.tensors)
    if (t.defined() && !is_host(t.device()) && is_host(device)) device = t.device();
  for (Tensor& t : k.tensors) {
    if (!t.defined() || t.device() == device) continue;
    TD_CHECK(is_host(t.device()) && t.dim() == 0, Device,
             "inputs are on {} and {}\nMove them with .to().", to_string(device),
             to_string(t.device()));
    t = move_to(t, device, k.loc);
  }
  return device;
}

// Where the op runs: where its tensors lie.
Device device_of(Call& k) {
  Device device = k.context.device;
  bool any = false;
  for (const Tensor& t : k.tensors) {
    if (!t.defined()) continue;
    if (any && !(t.device() == device)) return bring_together(k);
    device = t.device();
    any = true;
  }
  return device;
}

void infer(Call& k) {
  InferCall& c = k.infer;
  k.device = device_of(k);
  for (size_t i = 0; i < k.tensors.size(); ++i) {
    c.in.push_back(k.tensors[i].defined() ? spec_of(k.tensors[i]) : Spec());
    c.scalars.push_back(k.scalars[i]);
  }
  if (k.op.infer_fn)
    k.op.infer_fn(c);
  else if (k.op.family == Family::pointwise)
    infer_pointwise(c);
  else
    TD_FAIL(Internal, "the row has no shape rule\nAdd .infer() to it.");
  // Rules speak of shapes and dtypes; where the results lie follows from the inputs.
  if (TD_UNLIKELY(!is_host(k.device)) && !k.op.has(kSetsDevice))
    for (Spec& s : c.out) s.device = k.device;
  k.inferred = true;
}

bool any_requires_grad(const Call& k) {
  for (const Tensor& t : k.tensors)
    if (t.defined() && t.requires_grad()) return true;
  return false;
}

Strides dense_strides_like(const Tensor& t) { return t.impl()->strides; }

// A permuted but dense layout (channels last) of the output's shape, if an input has one.
bool dense_layout(const Call& k, const Shape& shape, Strides& strides) {
  for (const Tensor& t : k.tensors) {
    if (!t.defined() || !(t.shape() == shape)) continue;
    if (t.is_contiguous()) return false;
    if (is_dense(t)) {
      strides = dense_strides_like(t);
      return true;
    }
  }
  return false;
}

// An input whose buffer output `o` may reuse: same dtype, shape and a dense layout, held by nobody
// else and not read by the derivative.
int donor(const Call& k, const Spec& o, uint64_t used) {
  bool all = k.op.family == Family::pointwise;
  if (!all && !k.op.has(kReuseFirst)) return -1;
  if (k.context.slow & kAnomaly) return -1;  // outputs are compared with what the inputs held
  uint64_t saved = k.record ? saves_of(k.op) : 0;
  int n = all ? static_cast<int>(k.tensors.size()) : 1;
  for (int i = 0; i < n; ++i) {
    const Tensor& t = k.tensors[i];
    if (!t.defined() || (used >> i & 1) || (saved >> i & 1)) continue;
    if (t.dtype() == o.dtype && t.shape() == o.shape && t.impl()->donatable() && is_dense(t) &&
        (!k.dry || detail::is_dry(*t.impl())))
      return i;
  }
  return -1;
}

void allocate_outputs(Call& k, KernelCall& call, Array* arrays) {
  uint64_t used = 0;
  if (TD_UNLIKELY(!is_host(k.device))) detail::allocating_op() = k.op.name;
  for (int o = 0; o < k.op.n_out; ++o) {
    if (k.op.hidden(o) && !k.hidden) continue;
    const Spec& s = k.infer.out[o];
    int d = donor(k, s, used);
    if (d >= 0) {
      used |= uint64_t{1} << d;
      k.out[o] = detached_alias(k.tensors[d]);
    } else {
      Strides strides;
      const Kernel* kernel = k.choice.kernel;
      bool own = kernel && kernel->layout && kernel->layout(call, o, strides);
      if (!own && k.op.family == Family::pointwise) own = dense_layout(k, s.shape, strides);
      k.out[o] =
          Tensor(Ref<TensorImpl>::adopt((k.dry ? detail::new_dry_tensor : detail::new_tensor)(
              s.shape, s.dtype, s.device, own ? &strides : nullptr)));
    }
    arrays[o] = array_of(k.out[o]);
  }
}

void run_view(Call& k) {
  const Spec& s = k.infer.out[0];
  Tensor x = k.tensors[0];
  Strides strides;
  int64_t offset = 0;
  if (!k.op.view_fn(k.op_attrs, x.shape(), x.impl()->strides, s.shape, strides, offset)) {
    NoGradGuard no_grad;
    x = call(op::copy, nullptr, k.loc, x);
    bool ok = k.op.view_fn(k.op_attrs, x.shape(), x.impl()->strides, s.shape, strides, offset);
    TD_ASSERT(ok);
  }
  char* data = static_cast<char*>(x.impl()->data) + offset * static_cast<int64_t>(size_of(s.dtype));
  k.out[0] =
      Tensor(Ref<TensorImpl>::adopt(detail::new_view(*x.impl(), s.shape, strides, data, s.dtype)));
}

// In a dry run only small results computed from plain numbers are computed.
bool runs_dry(const Call& k) {
  constexpr int64_t kSmall = 4096;  // bytes
  const auto large = [](const Spec& s) {
    return s.shape.numel().value() * static_cast<int64_t>(size_of(s.dtype)) > kSmall;
  };
  for (const Tensor& t : k.tensors)
    if (t.defined() && (detail::is_dry(*t.impl()) || large(spec_of(t)))) return true;
  for (int o = 0; o < k.op.n_out; ++o)
    if ((!k.op.hidden(o) || k.hidden) && large(k.infer.out[o])) return true;
  return false;
}

// The same bytes on another device, in the same order.
void run_move(Call& k) {
  Tensor x = k.tensors[0];
  if (!is_dense(x)) {
    NoGradGuard no_grad;
    x = call(op::copy, nullptr, k.loc, x);
  }
  const detail::TensorImpl& from = *x.impl();
  const Device device = k.infer.out[0].device;
  if (!is_host(device)) detail::allocating_op() = k.op.name;
  k.dry = k.context.slow & kDryRun && runs_dry(k);
  Tensor y(Ref<TensorImpl>::adopt((k.dry ? detail::new_dry_tensor : detail::new_tensor)(
      from.shape, from.dtype, device, x.is_contiguous() ? nullptr : &from.strides)));
  if (!k.dry)
    detail::copy_bytes(y.impl()->data, device, from.data, from.device,
                       static_cast<size_t>(from.numel) * size_of(from.dtype));
  k.out[0] = std::move(y);
}

void run_body(Call& k) {
  // What the body makes from nothing lies where its inputs do.
  const DeviceGuard there(k.inferred ? k.device : device_of(k));
  BodyCall b{k.op, k.op_attrs, k.tensors, k.scalars, {}, k.hidden};
  k.op.body_fn(b);
  for (int o = 0; o < k.op.n_out; ++o) k.out[o] = std::move(b.out[o]);
}

// Row-major copies of the inputs that the kernel wants so. The tape keeps the inputs as they came.
TD_NOINLINE void make_row_major(Call& k, SmallVec<Array, 6>& in, std::vector<Tensor>& copies) {
  NoGradGuard no_grad;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!(k.choice.row_major >> i & 1)) continue;
    copies.push_back(tandem::call(op::copy, nullptr, k.loc, k.tensors[i]));
    in[i] = array_of(copies.back());
  }
}

// What a device's kernel needs besides its operands.
TD_NOINLINE void enter_queue(Call& k, KernelCall& call) {
  call.stream = current_stream(k.device);
  if (!k.choice.on_host) call.ticket = take_ticket(k.op, user_line(k.loc));
}

void run_eager(Call& k) {
  if (k.op.family == Family::view) return run_view(k);
  if (TD_UNLIKELY(k.op.has(kSetsDevice))) return run_move(k);
  SmallVec<Array, 6> in;
  for (size_t i = 0; i < k.tensors.size(); ++i) {
    Array a;
    if (k.infer.present[i] == 2) {
      a.is_scalar = true;
      a.scalar = k.scalars[i];
      a.dtype = a.scalar.dtype();
    } else if (k.tensors[i].defined()) {
      a = array_of(k.tensors[i]);
    }
    in.push_back(a);
  }
  Array out[kMaxOpOuts];
  ErrorWord error;
  KernelCall call{k.op, k.op_attrs, in.data(), static_cast<int>(in.size()),
                  out,  k.op.n_out, &error};
  call.device = k.device;
  for (int o = 0; o < k.op.n_out; ++o) {  // shapes for `supports` and `layout`
    if (k.op.hidden(o) && !k.hidden) continue;
    out[o].shape = k.infer.out[o].shape.data();
    out[o].rank = static_cast<uint8_t>(k.infer.out[o].rank());
    out[o].dtype = k.infer.out[o].dtype;
  }
  k.choice = choose_kernel(call);
  if (k.choice.way == KernelChoice::body && !(k.op.infer_fn && is_dry_run_of_any_device())) {
    NoGradGuard no_grad;
    return run_body(k);
  }
  std::vector<Tensor> copies;
  if (TD_UNLIKELY(k.choice.row_major != 0)) make_row_major(k, in, copies);
  if (TD_UNLIKELY(k.context.slow & kDryRun)) k.dry = runs_dry(k);
  allocate_outputs(k, call, out);
  if (k.op.has(kRandom)) call.rng = k.options.rng ? *k.options.rng : detail::next_rng_key();
  k.rng = call.rng;
  if (TD_UNLIKELY(k.dry)) return plan_dry(k.choice.kernel, call);
  if (TD_UNLIKELY(!is_host(k.device))) enter_queue(k, call);
  run_with(k.choice, call);
  if (TD_UNLIKELY(!is_host(k.device))) detail::allocating_op() = nullptr;
  if (error.code.load()) check_error_word(call);
}

// An infinity is intended where the op has no tensor inputs, an infinite number, or an input that
// already contains one (a mask of -inf); a NaN is intended only without tensor inputs.
void check_finite(const Call& k) {
  if (k.op.family == Family::create || k.op.n_in == 0 || (k.context.slow & kDryRun)) return;
  bool infinite = false;
  for (const Scalar& s : k.scalars) infinite |= is_floating(s.dtype()) && std::isinf(s.to_double());
  for (int o = 0; o < k.op.shown(); ++o) {
    const Tensor& y = k.out[o];
    if (!y.defined() || !is_floating(y.dtype())) continue;
    const char* what = first_non_finite(y);
    if (!what) continue;
    bool from_input = false, nan = std::string_view(what) == "NaN";
    for (const Tensor& t : k.tensors)
      from_input |= t.defined() && is_floating(t.dtype()) && first_non_finite(t);
    if (!nan && (infinite || from_input)) continue;
    TD_FAIL(Value,
            "output '{}' {} holds {}{}\nDetectAnomalyGuard is on; check the inputs and the "
            "step size.",
            k.op.out_names[o], y.shape().to_string(), what,
            from_input ? " (an input does already)" : "");
  }
}

void run_profiled(Call& k) {
  ProfilerGuard& profiler = *k.context.profiler;
  ProfileEvent e;
  e.name = k.op.name;
  e.scope = k.context.scope ? k.context.scope->path : 0;
  e.loc = user_line(k.loc);
  e.flops = flops_of(k.infer);
  e.bytes = bytes_of(k.infer);
  // Ops inside a body are part of this one.
  k.context.profiler = nullptr;
  e.start_ns = profiler.now();
  try {
    run_eager(k);
  } catch (...) {
    k.context.profiler = &profiler;
    throw;
  }
  e.end_ns = profiler.now();
  if (k.choice.on_host) e.name += kOnHostMark;
  k.context.profiler = &profiler;
  profiler.profile().events.push_back(std::move(e));
}

// What the op costs, to the open budget: a model from a file is running.
TD_NOINLINE void charge(const Call& k, bool recording) {
  if (recording) return Budget::count_traced();
  Budget::count();
  if (k.context.slow & kDryRun) return;
  double elements = 0;  // what is only moved or drawn takes time, too
  if (k.op.family != Family::view)
    for (const Spec& s : k.infer.out) elements += static_cast<double>(s.shape.numel().value());
  Budget::work(std::max(elements, flops_of(k.infer)));
}

void full_path(Call& k, std::span<Operand> in, Tensor* out) {
  Context& c = k.context;
  gather_inputs(k, in);
  if ((c.slow & kAutocast) && k.op.autocast_class != Autocast::none) autocast_inputs(k);
  const bool recording = c.trace && !(c.slow & kShadowed);
  if (recording)
    for (Tensor& t : k.tensors)
      if (t.defined()) t = c.trace->bring_in(t, k.loc);
  bool wanted = c.grad_enabled && any_requires_grad(k) && !k.op.has(kNotDifferentiable);
  // A composite without its own derivative is expanded into its body when a gradient is needed. Not
  // so in a backward walk: whether that is recorded must not change what it computes.
  bool expand = k.op.family == Family::composite && k.op.body_fn &&
                (!k.op.infer_fn || (wanted && !k.op.vjp_fn && !c.in_backward));
  if (expand) {
    if (k.op.infer_fn) infer(k);  // its checks and error texts come first
    run_body(k);
    for (int o = 0; o < k.op.n_out; ++o) out[o] = std::move(k.out[o]);
    return;
  }
  infer(k);
  if (TD_UNLIKELY(Budget::is_open())) charge(k, recording);
  k.record = wanted;
  k.hidden = k.options.hidden || wanted;
  if (recording) {
    record_trace(k, out);
    return;
  }
  if (TD_UNLIKELY(c.slow & kDeferred) && defer(k, out)) return;
  for (OpHook* h : c.hooks) h->before(k.op, k.tensors);
  if (TD_UNLIKELY(c.profiler != nullptr))
    run_profiled(k);
  else
    run_eager(k);
  if (c.slow & kAnomaly) check_finite(k);
  for (OpHook* h : c.hooks) h->after(k.op, {k.out, size_t(k.op.n_out)});
  if (k.record)
    record_tape(k.op, k.op_attrs, k.tensors, k.scalars, k.infer.present, k.out, k.loc, k.rng,
                k.options.hidden);
  for (int o = 0; o < k.op.n_out; ++o) out[o] = std::move(k.out[o]);
}

}  // namespace

void apply(const OpDef& op, const void* attrs, std::span<Operand> in, Tensor* out,
           SourceLocation loc) {
  Context& c = context();
  if (fast_path(op, attrs, in, out, c, loc)) return;
  apply(op, attrs, in, out, loc, ApplyOptions{});
}

// After a throw: temporaries go back to the operands they came from, so that update_() can restore
// a cell's value.
static void give_back(Call& k, std::span<Operand> in) {
  if (k.context.trace) return;
  for (size_t i = 0; i < std::min(in.size(), k.tensors.size()); ++i)
    if (in[i].is_temporary() && !in[i].owned().defined()) in[i].owned() = std::move(k.tensors[i]);
}

void apply(const OpDef& op, const void* attrs, std::span<Operand> in, Tensor* out,
           SourceLocation loc, const ApplyOptions& options) {
  Call k(op, attrs, loc, context(), options);
  try {
    full_path(k, in, out);
  } catch (const Error& e) {
    give_back(k, in);
    if (!e.op().empty() && e.loc().file) throw;
    throw with_place(e, op.name, loc);
  } catch (...) {
    give_back(k, in);
    throw;
  }
}

Tensor move_to(const Tensor& t, Device device, SourceLocation loc) {
  ToDeviceAttrs a{to_string(device)};
  return call(op::to_device, &a, loc, t);
}

Tensor call_list(const OpDef& op, const void* attrs, SourceLocation loc, std::span<const Tensor> in,
                 std::span<const Tensor> before) {
  std::vector<Operand> ins;
  ins.reserve(in.size() + before.size());
  for (const Tensor& t : before) ins.emplace_back(t, loc);
  for (const Tensor& t : in) ins.emplace_back(t, loc);
  Tensor out[kMaxOpOuts];
  apply(op, attrs, ins, out, loc);
  return std::move(out[0]);
}

}  // namespace tandem
