// SPDX-License-Identifier: Apache-2.0
// The dispatcher. Every op, eager or traced, forward or backward, goes through apply(): autocast,
// infer and check, trace or run, tape, hooks.
#pragma once

#include "tandem/graph/context.h"
#include "tandem/graph/infer.h"

namespace tandem {

/// Run or record `op`. `in` are tensors (absent: undefined) and numbers; a temporary whose buffer
/// nobody else holds may be reused for an output. Fills op.n_out outputs (hidden ones only if a
/// gradient needs them).
TD_API void apply(const OpDef& op, const void* attrs, std::span<Operand> in, Tensor* out,
                  SourceLocation loc);

/// One-output op on any mix of tensors and numbers.
template <class... In>
Tensor call(const OpDef& op, const void* attrs, SourceLocation loc, In&&... in) {
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(std::forward<In>(in), loc)...};
  apply(op, attrs, ins, out, loc);
  return std::move(out[0]);
}
/// The same for an op without tensor inputs.
inline Tensor call(const OpDef& op, const void* attrs, SourceLocation loc) {
  Tensor out[kMaxOpOuts];
  apply(op, attrs, {}, out, loc);
  return std::move(out[0]);
}
/// A variadic op.
TD_API Tensor call_list(const OpDef& op, const void* attrs, SourceLocation loc,
                        std::span<const Tensor> in, std::span<const Tensor> before = {});

/// `t` on another device, as an op: gradients cross.
TD_API Tensor move_to(const Tensor& t, Device device, SourceLocation loc);

/// apply() for a node that is run again: `rng` replaces the generator, `hidden` makes the hidden
/// outputs too.
struct ApplyOptions {
  const RngKey* rng = nullptr;
  bool hidden = false;
};
TD_API void apply(const OpDef& op, const void* attrs, std::span<Operand> in, Tensor* out,
                  SourceLocation loc, const ApplyOptions& options);

/// Throw Value if `word` has an error, with the row's text.
TD_API void check_error_word(const OpDef& op, const ErrorWord& word);

/// Run the op's kernel or reference on concrete arrays of call.device; allocates scratch. No
/// checks, no tape.
TD_API void run_kernel(const KernelCall& call);

/// An Array over a tensor's bytes.
inline Array array_of(const Tensor& t) {
  const detail::TensorImpl& i = *t.impl();
  Array a;
  a.data = i.data;
  a.shape = i.shape.data();
  a.strides = i.strides.data();
  a.numel = i.numel;
  a.dtype = i.dtype;
  a.rank = static_cast<uint8_t>(i.shape.rank());
  a.contiguous = i.flags & detail::kContiguous;
  return a;
}

// ---- the rows that the dispatcher itself needs (defined in ops)
namespace op {
extern TD_API const OpDef cast, copy, fill, add, sum_to, view, to_device;
}
struct ToDeviceAttrs {
  std::string device = "cpu";
  template <class V>
  void fields(V& v) {
    v("device", device);
  }
};
struct CastAttrs {
  DType dtype = DType::f32;
  template <class V>
  void fields(V& v) {
    v("dtype", dtype);
  }
};
struct ShapeAttrs {
  IntList shape;
  template <class V>
  void fields(V& v) {
    v("shape", shape);
  }
};
struct FillAttrs {
  IntList shape;
  Scalar value;
  DType dtype = DType::f32;
  template <class V>
  void fields(V& v) {
    v("shape", shape);
    v("value", value);
    v("dtype", dtype);
  }
};

}  // namespace tandem
