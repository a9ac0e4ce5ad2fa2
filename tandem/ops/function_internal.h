// SPDX-License-Identifier: Apache-2.0
// Small helpers of the view, index, creation and random families, in addition to those that all
// rows share (rule_internal.h). Not installed.
#pragma once

#include "tandem/graph/run/array_walk.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/strided_copy_internal.h"
#include "tandem/tensor/slice.h"

namespace tandem::detail {

/// Marks the user's call of a function written with public ops: errors inside name this
/// line.
class CallerScope {
 public:
  explicit CallerScope(SourceLocation loc)
      : frame_{context().scope ? context().scope->path : 0, loc, context().scope} {
    context().scope = &frame_;
  }
  ~CallerScope() { context().scope = frame_.parent; }
  CallerScope(const CallerScope&) = delete;
  CallerScope& operator=(const CallerScope&) = delete;

 private:
  ScopeFrame frame_;
};
/// Run the body of a function composed of public ops; an Error names `op` and the user's line, not
/// those of the body.
template <class F>
decltype(auto) composed(const char* op, SourceLocation loc, F&& f) {
  CallerScope scope(loc);
  try {
    return f();
  } catch (const Error& e) {
    throw with_place(Error(e.kind(), e.message(), e.hint(), op, SourceLocation(), e.layer()), op,
                     loc);
  }
}

/// The same for a body that makes tensors from nothing: they lie where `like` does.
template <class F>
decltype(auto) composed(const char* op, SourceLocation loc, const Tensor& like, F&& f) {
  const DeviceGuard there(like.defined() ? like.device() : context().device);
  return composed(op, loc, std::forward<F>(f));
}

inline Tensor call_view(Tensor x, const Shape& shape, SourceLocation loc) {
  ShapeAttrs a{shape};
  return call(op::view, &a, loc, std::move(x));
}

/// The shape with `d` in front.
inline Shape prepend(Dim d, const Shape& s) {
  Shape out(d);
  for (Dim x : s) out.push_back(x);
  return out;
}

/// One end of a slice in 0..n; a symbolic n needs no case for a non-negative number.
inline Dim slice_end(int64_t v, Dim n) {
  if (!n.is_symbolic()) {
    const int64_t size = n.raw();
    return v < 0 ? (v < -size ? 0 : v + size) : std::min(v, size);
  }
  if (v == Slice::kEnd) return n;
  if (v == 0 || v < -Slice::kEnd / 2) return 0;  // the latter is before every size
  return v < 0 ? max(n + Dim(v), Dim(0)) : min(Dim(v), n);
}
/// How many of `span` elements a slice with this positive step takes.
inline Dim slice_length(Dim span, int64_t step) {
  if (step == 1) return span;
  if (span.is_symbolic()) return floordiv(span + Dim(step - 1), Dim(step));
  return span.raw() == 0 ? 0 : (span.raw() - 1) / step + 1;
}

inline bool is_index_dtype(DType t) { return t == DType::i64 || t == DType::i32; }

/// Report a value error; the caller may have passed no error word.
inline void report_error(const KernelCall& k, int code, int64_t value) {
  if (k.error) k.error->report(code, value);
}

/// Element `i` of an index array at `p`.
inline int64_t index_at(const void* p, DType t, int64_t i) {
  return t == DType::i64 ? static_cast<const int64_t*>(p)[i] : static_cast<const int32_t*>(p)[i];
}

/// The elements of an array in row-major order: the array itself if its strides allow, else a
/// copy.
template <class T>
class Packed {
 public:
  explicit Packed(const Array& a) : copy_(a.contiguous ? 0 : a.numel), p_(a.as<T>()) {
    if (a.contiguous || a.numel == 0) return;
    Array dense = a;
    const Strides strides = row_major_strides(a);
    dense.data = copy_.get();
    dense.strides = strides.data();
    dense.contiguous = true;
    copy_array(dense, a);
    p_ = copy_.get();
  }
  const T* get() const { return p_; }
  const T& operator[](int64_t i) const { return p_[i]; }

 private:
  Dense<T> copy_;
  const T* p_;
};

/// Also true for NaN.
template <class T>
inline bool is_nonzero(T v) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return static_cast<float>(v) != 0;
  else
    return v != T(0);
}

/// Sum in T: 16-bit floats through f32, integers wrap, bool is or.
template <class T>
inline T add_as(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return T(static_cast<float>(a) + static_cast<float>(b));
  else
    return a + b;
}

/// `value` as an element of T, saturating and NaN-safe for integers.
template <class T>
inline T scalar_as(Scalar value) {
  if constexpr (std::is_same_v<T, bool>)
    return value.kind == 2 ? value.f != 0 : value.i != 0;
  else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return T(static_cast<float>(value.to_double()));
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(value.to_double());
  else
    return static_cast<T>(value.kind != 2        ? value.i
                          : !(value.f > -0x1p63) ? (value.f != value.f ? 0 : INT64_MIN)
                          : value.f >= 0x1p63    ? INT64_MAX
                                                 : static_cast<int64_t>(value.f));
}

}  // namespace tandem::detail
