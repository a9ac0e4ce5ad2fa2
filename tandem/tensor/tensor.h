// SPDX-License-Identifier: Apache-2.0
// Tensor: a handle to an immutable value. Copying shares; ops return new tensors; nothing changes a
// value that somebody holds. Most methods are functions of other rooms: methods.def lists them, and
// ops/methods.cpp and grad/backward.cpp define them.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/tensor/scalar.h"
#include "tandem/tensor/slice.h"
#include "tandem/tensor/tensor_impl.h"

namespace tandem {

class Tensor;
class Operand;
class TensorIndices;  // ops/index/index.h
struct StftOptions;   // ops/linalg/fft.h
using Tensors = std::vector<Tensor>;
#include "tandem/tensor/results.def"

/// A C++ type that elements of some dtype have.
template <class T>
concept Element = requires {
  DTypeOf<T>::value;
};

class TD_API Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<detail::TensorImpl> impl) : impl_(std::move(impl)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  // A temporary cannot be assigned to: `x[i] = v` does not compile. Write `x =
  // index_put(std::move(x), i, v)`.
  Tensor& operator=(const Tensor& o) & = default;
  Tensor& operator=(Tensor&& o) & noexcept = default;

  // ---- properties
  bool defined() const { return static_cast<bool>(impl_); }
  DType dtype() const { return get().dtype; }
  Device device() const { return get().device; }
  int dim() const { return get().shape.rank(); }
  /// Size of dimension `d` (may be negative); throws Shape if it is symbolic.
  int64_t size(int64_t d, SourceLocation loc = SourceLocation::here()) const {
    return shape(d, loc).value();
  }
  const Shape& shape() const { return get().shape; }
  Dim shape(int64_t d, SourceLocation loc = SourceLocation::here()) const;
  std::span<const int64_t> sizes() const { return get().shape.values(); }
  int64_t stride(int64_t d) const;
  std::span<const int64_t> strides() const { return {get().strides.data(), size_t(dim())}; }
  int64_t numel() const;
  bool is_contiguous() const { return get().has(detail::kContiguous); }
  bool is_symbolic() const { return get().has(detail::kSymbolic); }  ///< in a trace: no value yet
  bool is_floating_point() const { return is_floating(dtype()); }
  int ndimension() const { return dim(); }
  bool is_signed() const { return dtype() != DType::u8 && dtype() != DType::b8; }
  bool is_same_size(const Tensor& other) const { return shape() == other.shape(); }
  int64_t nelement() const { return numel(); }
  int64_t element_size() const { return static_cast<int64_t>(size_of(dtype())); }  ///< in bytes
  /// The number of its device, -1 on the host.
  int64_t get_device() const { return is_host(device()) ? -1 : int64_t{device().index}; }

  // ---- reading
  // The single element as T; throws Shape unless numel() is 1, Unsupported in a trace.
  template <Element T>
  T item(SourceLocation loc = SourceLocation::here()) const {
    T v;
    read_item(&v, dtype_of<T>, loc);
    return v;
  }
  /// Pointer to the first element; throws DType unless T is the dtype, Unsupported in a trace,
  /// Device unless it is on the host.
  template <Element T>
  const T* data(SourceLocation loc = SourceLocation::here()) const {
    return static_cast<const T*>(checked_data(dtype_of<T>, loc));
  }
  /// The same for writing: first copies the data if others hold it.
  template <Element T>
  T* mutable_data(SourceLocation loc = SourceLocation::here()) & {
    return static_cast<T*>(unshared_data(dtype_of<T>, loc));
  }
  /// All elements in row-major order, cast to T.
  template <Element T>
  std::vector<T> to_vector(SourceLocation loc = SourceLocation::here()) const {
    auto n = static_cast<size_t>(numel());
    if constexpr (std::is_same_v<T, bool>) {  // a vector<bool> has no bytes to copy into
      std::vector<uint8_t> bytes(n);
      copy_out(bytes.data(), DType::b8, loc);
      return std::vector<bool>(bytes.begin(), bytes.end());
    } else {
      std::vector<T> v(n);
      copy_out(v.data(), dtype_of<T>, loc);
      return v;
    }
  }
  /// The same, under PyTorch's name.
  template <Element T>
  std::vector<T> tolist(SourceLocation loc = SourceLocation::here()) const {
    return to_vector<T>(loc);
  }
  /// The address of the first element, whatever its dtype; errors as of data().
  const void* data_ptr(SourceLocation loc = SourceLocation::here()) const {
    return checked_data(dtype(), loc);
  }
  const void* const_data_ptr(SourceLocation loc = SourceLocation::here()) const {
    return checked_data(dtype(), loc);
  }
  explicit operator bool() const;

  // ---- gradients (grad/backward.cpp)
  bool requires_grad() const { return get().has(detail::kRequiresGrad); }
  /// Make this leaf require a gradient. Throws Value on a result of ops, DType unless floating.
  Tensor& requires_grad_(bool on = true, SourceLocation loc = SourceLocation::here()) &;
  Tensor requires_grad_(bool on = true, SourceLocation loc = SourceLocation::here()) &&;
  /// What backward() left in this leaf, undefined if none. Throws Value on a result of ops.
  Tensor grad(SourceLocation loc = SourceLocation::here()) const;
  /// Empty the gradient slot.
  void zero_grad() const;
  /// Gradients of this value with respect to every leaf that requires one. `gradient` defaults to 1
  /// for a one-element tensor.
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false,
                SourceLocation loc = SourceLocation::here()) const;
  /// The same value, detached from the tape.
  Tensor detach() const;

  // ---- dtype and device (ops/methods.cpp)
  Tensor to(DType dtype, SourceLocation loc = SourceLocation::here()) const;
  /// The same value on that device (itself if it is there), and on the host; gradients cross.
  Tensor to(Device device, SourceLocation loc = SourceLocation::here()) const;
  Tensor cpu(SourceLocation loc = SourceLocation::here()) const;
  Tensor type_as(const Tensor& other, SourceLocation loc = SourceLocation::here()) const {
    return to(other.dtype(), loc);
  }
  Tensor half(SourceLocation loc = SourceLocation::here()) const { return to(DType::f16, loc); }
  Tensor bfloat16(SourceLocation loc = SourceLocation::here()) const {
    return to(DType::bf16, loc);
  }
  Tensor byte(SourceLocation loc = SourceLocation::here()) const { return to(DType::u8, loc); }

  // ---- functions whose first argument is this tensor
#include "tandem/tensor/methods.def"

  // ---- and those with another order of arguments
  Tensor operator[](detail::Located<int64_t> i) const;
  Tensor operator[](detail::Located<Slice> s) const;
  Tensor operator[](detail::Located<Tensor> index) const;
  /// This where the condition holds, else `other`.
  Tensor where(const Tensor& condition, Operand other,
               SourceLocation loc = SourceLocation::here()) const;
  Tensor polygamma(int64_t n, SourceLocation loc = SourceLocation::here()) const;
  /// `some`: without the columns of Q that this does not need.
  QrResult qr(bool some = true, SourceLocation loc = SourceLocation::here()) const;
  /// See histogram(): of `bins` equal parts from the smallest to the largest element.
  HistogramResult histogram(int64_t bins, const Tensor& weight = {}, bool density = false,
                            SourceLocation loc = SourceLocation::here()) const;
  /// Tensors of this one's dtype, or of another.
  Tensor new_tensor(const Tensor& data, std::optional<DType> dtype = {},
                    SourceLocation loc = SourceLocation::here()) const;
  Tensor new_zeros(Shape size, std::optional<DType> dtype = {},
                   SourceLocation loc = SourceLocation::here()) const;
  Tensor new_ones(Shape size, std::optional<DType> dtype = {},
                  SourceLocation loc = SourceLocation::here()) const;
  Tensor new_empty(Shape size, std::optional<DType> dtype = {},
                   SourceLocation loc = SourceLocation::here()) const;
  Tensor new_empty_strided(Shape size, IntList stride, std::optional<DType> dtype = {},
                           SourceLocation loc = SourceLocation::here()) const;
  Tensor new_full(Shape size, Scalar value, std::optional<DType> dtype = {},
                  SourceLocation loc = SourceLocation::here()) const;

  // ---- for the library's own rooms
  detail::TensorImpl* impl() const { return impl_.get(); }
  const Ref<detail::TensorImpl>& ref() const { return impl_; }
  Ref<detail::TensorImpl> take() && { return std::move(impl_); }

 private:
  const detail::TensorImpl& get() const {
    if (TD_UNLIKELY(!impl_)) throw_undefined();
    return *impl_;
  }
  [[noreturn]] TD_COLD void throw_undefined() const;
  void read_item(void* out, DType dtype, SourceLocation loc) const;
  const void* checked_data(DType dtype, SourceLocation loc) const;
  void* unshared_data(DType dtype, SourceLocation loc);
  void copy_out(void* out, DType dtype, SourceLocation loc) const;

  Ref<detail::TensorImpl> impl_;
};

// ---- results of several tensors; fields() visits them with their names
#define TD_VISIT(a) v(#a, a);
#define TD_VISIT_3(a, ...) TD_VISIT(a) __VA_OPT__(TD_VISIT(__VA_ARGS__))
#define TD_VISIT_2(a, ...) TD_VISIT(a) __VA_OPT__(TD_VISIT_3(__VA_ARGS__))
#define RESULT(type, first, ...) \
  struct type {                  \
    Tensor first, __VA_ARGS__;   \
    template <class Visitor>     \
    void fields(Visitor& v) {    \
      TD_VISIT(first)            \
      TD_VISIT_2(__VA_ARGS__)    \
    }                            \
  };
#include "tandem/tensor/results.def"
#undef TD_VISIT_2
#undef TD_VISIT_3
#undef TD_VISIT

/// A tensor or a number where an op takes either; remembers the caller's line and whether the
/// tensor was a temporary (whose buffer may then be reused). Lives for one expression only.
class Operand {
 public:
  Operand(const Tensor& t, SourceLocation loc = SourceLocation::here()) : tensor_(&t), loc_(loc) {}
  Operand(Tensor&& t, SourceLocation loc = SourceLocation::here())
      : owned_(std::move(t)), tensor_(nullptr), loc_(loc) {}
  template <class T>
    requires std::is_arithmetic_v<T> Operand(T v, SourceLocation loc = SourceLocation::here())
        : scalar_(v), is_scalar_(true), loc_(loc) {}
    Operand(Scalar v, SourceLocation loc = SourceLocation::here())
        : scalar_(v), is_scalar_(true), loc_(loc) {}
    /// From a Param or Buffer: its current value.
    template <class P>
      requires requires(const P& p) {
        { p.value() } -> std::same_as<Tensor>;
      }
    Operand(const P& p, SourceLocation loc = SourceLocation::here())
        : owned_(p.value()), tensor_(nullptr), loc_(loc) {}
    Operand(const Operand&) = delete;
    Operand(Operand&& o) = default;

    bool is_scalar() const { return is_scalar_; }
    Scalar scalar() const { return scalar_; }
    const Tensor& tensor() const { return tensor_ ? *tensor_ : owned_; }
    /// The handle to pass to an op: moved out of a temporary, else a copy.
    Tensor take() {
      if (tensor_) return *tensor_;
      return std::move(owned_);  // not by ?:, where clang copies
    }
    bool is_temporary() const { return !tensor_ && !is_scalar_; }
    bool refers_to(const Tensor& t) const { return tensor_ == &t; }
    Tensor& owned() { return owned_; }
    SourceLocation loc() const { return loc_; }

   private:
    Tensor owned_;
    const Tensor* tensor_ = nullptr;
    Scalar scalar_;
    bool is_scalar_ = false;
    SourceLocation loc_;
};

// Elementwise with broadcasting and promotion; comparisons give a bool tensor.
#define TD_BINARY_OPERATOR(symbol) TD_API Tensor operator symbol(Operand a, Operand b);
TD_BINARY_OPERATOR(+)
TD_BINARY_OPERATOR(-)
TD_BINARY_OPERATOR(*)
TD_BINARY_OPERATOR(/)
TD_BINARY_OPERATOR(%)
TD_BINARY_OPERATOR(==)
TD_BINARY_OPERATOR(!=)
TD_BINARY_OPERATOR(<)
TD_BINARY_OPERATOR(<=)
TD_BINARY_OPERATOR(>)
TD_BINARY_OPERATOR(>=)
TD_BINARY_OPERATOR(&)
TD_BINARY_OPERATOR(|)
TD_BINARY_OPERATOR(^)
#undef TD_BINARY_OPERATOR
TD_API Tensor operator-(Operand a);
TD_API Tensor operator~(Operand a);

// `x += y` rebinds the handle x; other handles keep the old value. A leaf stays one, with its
// gradient, under NoGradGuard only; elsewhere x is the result of an op then.
TD_API Tensor& operator+=(Tensor& a, Operand b);
TD_API Tensor& operator-=(Tensor& a, Operand b);
TD_API Tensor& operator*=(Tensor& a, Operand b);
TD_API Tensor& operator/=(Tensor& a, Operand b);

/// A tensor over `data`, which is not copied, never written, and must outlive every handle.
TD_API Tensor from_blob(const void* data, Shape shape, DType dtype);

/// The values as PyTorch prints them, with dtype when it is not the default.
TD_API std::string to_string(const Tensor& t);

}  // namespace tandem

template <>
struct fmt::formatter<tandem::Tensor> : tandem::detail::ToStringFormatter<tandem::Tensor> {};
