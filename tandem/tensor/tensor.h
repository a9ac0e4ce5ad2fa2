// SPDX-License-Identifier: Apache-2.0
// Tensor: a handle to an immutable value. Copying shares; ops give new tensors; nothing changes a
// value that somebody holds. The methods are a fixed set, declared here and defined in
// ops/methods.cpp and grad/backward.cpp; later ops are functions only.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "tandem/tensor/scalar.h"
#include "tandem/tensor/slice.h"
#include "tandem/tensor/tensor_impl.h"

namespace tandem {

class Tensor;

/// Read the tensor's elements in row-major order as T (no conversion: T must be the dtype).
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
  // A temporary cannot be assigned to: `x[i] = v` does not compile. Write
  // `x = index_put(std::move(x), i, v)`.
  Tensor& operator=(const Tensor& o) & = default;
  Tensor& operator=(Tensor&& o) & noexcept = default;

  // ---- what it is
  bool defined() const { return static_cast<bool>(impl_); }
  DType dtype() const { return get().dtype; }
  Device device() const { return get().device; }
  int dim() const { return get().shape.rank(); }
  /// Size of dimension `d` (may be negative); throws Shape if it is symbolic.
  int64_t size(int64_t d, Where where = Where::here()) const { return shape(d, where).value(); }
  const Shape& shape() const { return get().shape; }
  Dim shape(int64_t d, Where where = Where::here()) const;
  std::span<const int64_t> sizes() const { return get().shape.values(); }
  int64_t stride(int64_t d) const;
  std::span<const int64_t> strides() const { return {get().strides.data(), size_t(dim())}; }
  int64_t numel() const;
  bool is_contiguous() const { return get().has(detail::kContiguous); }
  /// True inside a trace: there is no value yet.
  bool is_symbolic() const { return get().has(detail::kSymbolic); }
  bool is_floating_point() const { return is_floating(dtype()); }

  // ---- reading
  /// The one element as T; throws Shape unless numel() is 1, Unsupported in a trace.
  template <Element T>
  T item(Where where = Where::here()) const {
    T v;
    read_item(&v, dtype_of<T>, where);
    return v;
  }
  /// Pointer to the first element; throws DType unless T is the dtype, Unsupported in a trace.
  template <Element T>
  const T* data(Where where = Where::here()) const {
    return static_cast<const T*>(checked_data(dtype_of<T>, where));
  }
  /// The same for writing: copies the data first if others hold it.
  template <Element T>
  T* mutable_data(Where where = Where::here()) & {
    return static_cast<T*>(unshared_data(dtype_of<T>, where));
  }
  /// All elements in row-major order, cast to T.
  template <Element T>
  std::vector<T> to_vector(Where where = Where::here()) const {
    auto n = static_cast<size_t>(numel());
    if constexpr (std::is_same_v<T, bool>) {  // a vector<bool> has no bytes to copy into
      std::vector<uint8_t> bytes(n);
      copy_out(bytes.data(), DType::b8, where);
      return std::vector<bool>(bytes.begin(), bytes.end());
    } else {
      std::vector<T> v(n);
      copy_out(v.data(), dtype_of<T>, where);
      return v;
    }
  }
  explicit operator bool() const;

  // ---- gradients (grad/backward.cpp)
  bool requires_grad() const { return get().has(detail::kRequiresGrad); }
  /// Make this leaf ask for a gradient. Throws Value on a result of ops, DType unless floating.
  Tensor& requires_grad_(bool on = true, Where where = Where::here()) &;
  Tensor requires_grad_(bool on = true, Where where = Where::here()) &&;
  /// The gradient that backward() left here, undefined if none.
  Tensor grad() const;
  /// Empty the gradient slot.
  void zero_grad() const;
  /// Gradients of this value into every leaf that asks for one. `gradient` defaults to 1 for a
  /// one-element tensor.
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false,
                Where where = Where::here()) const;
  /// The same value, cut off from the tape.
  Tensor detach() const;

  // ---- dtype, layout, views (ops/methods.cpp)
  Tensor to(DType dtype, Where where = Where::here()) const;
  Tensor contiguous(Where where = Where::here()) const;
  Tensor clone(Where where = Where::here()) const;
  Tensor reshape(Shape shape, Where where = Where::here()) const;
  Tensor view(Shape shape, Where where = Where::here()) const;
  Tensor flatten(int64_t start = 0, int64_t end = -1, Where where = Where::here()) const;
  Tensor transpose(int64_t a, int64_t b, Where where = Where::here()) const;
  Tensor permute(IntList dims, Where where = Where::here()) const;
  Tensor t(Where where = Where::here()) const;
  Tensor squeeze(Where where = Where::here()) const;
  Tensor squeeze(int64_t dim, Where where = Where::here()) const;
  Tensor unsqueeze(int64_t dim, Where where = Where::here()) const;
  Tensor expand(Shape shape, Where where = Where::here()) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length, Where where = Where::here()) const;
  Tensor select(int64_t dim, int64_t index, Where where = Where::here()) const;
  Tensor slice(int64_t dim, int64_t start, int64_t end, int64_t step = 1,
               Where where = Where::here()) const;
  std::vector<Tensor> split(int64_t size, int64_t dim = 0, Where where = Where::here()) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0, Where where = Where::here()) const;
  std::vector<Tensor> unbind(int64_t dim = 0, Where where = Where::here()) const;
  Tensor operator[](detail::Located<int64_t> i) const;
  Tensor operator[](detail::Located<Slice> s) const;
  Tensor operator[](detail::Located<Tensor> index) const;

  // ---- reductions
  Tensor sum(IntList dims = {}, bool keepdim = false, Where where = Where::here()) const;
  Tensor mean(IntList dims = {}, bool keepdim = false, Where where = Where::here()) const;
  Tensor prod(IntList dims = {}, bool keepdim = false, Where where = Where::here()) const;
  Tensor amax(IntList dims = {}, bool keepdim = false, Where where = Where::here()) const;
  Tensor amin(IntList dims = {}, bool keepdim = false, Where where = Where::here()) const;
  /// The largest (smallest) element of all.
  Tensor max(Where where = Where::here()) const;
  Tensor min(Where where = Where::here()) const;
  /// (values, indices) along `dim`; the lowest index wins a tie.
  std::pair<Tensor, Tensor> max(int64_t dim, bool keepdim = false,
                                Where where = Where::here()) const;
  std::pair<Tensor, Tensor> min(int64_t dim, bool keepdim = false,
                                Where where = Where::here()) const;
  Tensor argmax(Where where = Where::here()) const;
  Tensor argmax(int64_t dim, bool keepdim = false, Where where = Where::here()) const;
  Tensor argmin(Where where = Where::here()) const;
  Tensor argmin(int64_t dim, bool keepdim = false, Where where = Where::here()) const;
  Tensor any(IntList dims = {}, bool keepdim = false, Where where = Where::here()) const;
  Tensor all(IntList dims = {}, bool keepdim = false, Where where = Where::here()) const;
  Tensor var(IntList dims = {}, int64_t correction = 1, bool keepdim = false,
             Where where = Where::here()) const;
  Tensor std(IntList dims = {}, int64_t correction = 1, bool keepdim = false,
             Where where = Where::here()) const;
  Tensor logsumexp(IntList dims, bool keepdim = false, Where where = Where::here()) const;
  Tensor cumsum(int64_t dim, Where where = Where::here()) const;
  Tensor cumprod(int64_t dim, Where where = Where::here()) const;
  Tensor softmax(int64_t dim, Where where = Where::here()) const;
  Tensor log_softmax(int64_t dim, Where where = Where::here()) const;

  // ---- element by element
  Tensor abs(Where where = Where::here()) const;
  Tensor exp(Where where = Where::here()) const;
  Tensor log(Where where = Where::here()) const;
  Tensor sqrt(Where where = Where::here()) const;
  Tensor rsqrt(Where where = Where::here()) const;
  Tensor square(Where where = Where::here()) const;
  Tensor sin(Where where = Where::here()) const;
  Tensor cos(Where where = Where::here()) const;
  Tensor tanh(Where where = Where::here()) const;
  Tensor sigmoid(Where where = Where::here()) const;
  Tensor relu(Where where = Where::here()) const;
  Tensor pow(const class Operand& exponent) const;
  Tensor clamp(Scalar lo, Scalar hi, Where where = Where::here()) const;
  Tensor masked_fill(const Tensor& mask, Scalar value, Where where = Where::here()) const;

  // ---- products and indices
  Tensor matmul(const Tensor& other, Where where = Where::here()) const;
  Tensor index_select(int64_t dim, const Tensor& index, Where where = Where::here()) const;
  Tensor gather(int64_t dim, const Tensor& index, Where where = Where::here()) const;
  Tensor tril(int64_t diagonal = 0, Where where = Where::here()) const;
  Tensor triu(int64_t diagonal = 0, Where where = Where::here()) const;

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
  void read_item(void* out, DType dtype, Where where) const;
  const void* checked_data(DType dtype, Where where) const;
  void* unshared_data(DType dtype, Where where);
  void copy_out(void* out, DType dtype, Where where) const;

  Ref<detail::TensorImpl> impl_;
};

/// A tensor or a number where an op takes either; remembers the caller's line and whether the
/// tensor was a temporary (whose buffer may then be reused). Lives for one expression only.
class Operand {
 public:
  Operand(const Tensor& t, Where where = Where::here()) : tensor_(&t), where_(where) {}
  Operand(Tensor&& t, Where where = Where::here())
      : owned_(std::move(t)), tensor_(nullptr), where_(where) {}
  template <class T>
    requires std::is_arithmetic_v<T> Operand(T v, Where where = Where::here())
        : scalar_(v), is_scalar_(true), where_(where) {}
    Operand(Scalar v, Where where = Where::here()) : scalar_(v), is_scalar_(true), where_(where) {}
    /// From a Param or Buffer: its present value.
    template <class P>
      requires requires(const P& p) {
        { p.value() } -> std::same_as<Tensor>;
      }
    Operand(const P& p, Where where = Where::here())
        : owned_(p.value()), tensor_(nullptr), where_(where) {}
    Operand(const Operand&) = delete;
    Operand(Operand&& o) = default;

    bool is_scalar() const { return is_scalar_; }
    Scalar scalar() const { return scalar_; }
    const Tensor& tensor() const { return tensor_ ? *tensor_ : owned_; }
    /// The handle to give to an op: moved out of a temporary, else a copy.
    Tensor take() {
      if (tensor_) return *tensor_;
      return std::move(owned_);  // not by ?:, where clang copies
    }
    bool is_temporary() const { return !tensor_ && !is_scalar_; }
    bool refers_to(const Tensor& t) const { return tensor_ == &t; }
    Tensor& owned() { return owned_; }
    Where where() const { return where_; }

   private:
    Tensor owned_;
    const Tensor* tensor_ = nullptr;
    Scalar scalar_;
    bool is_scalar_ = false;
    Where where_;
};

// Element by element with broadcasting and promotion; comparisons give a bool tensor.
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

// `x += y` rebinds the handle x; other handles keep the old value. When it throws, x keeps its own.
TD_API Tensor& operator+=(Tensor& a, Operand b);
TD_API Tensor& operator-=(Tensor& a, Operand b);
TD_API Tensor& operator*=(Tensor& a, Operand b);
TD_API Tensor& operator/=(Tensor& a, Operand b);

/// A tensor over `data` without copying. The memory must outlive every handle; it is never
/// written through the tensor.
TD_API Tensor from_blob(const void* data, Shape shape, DType dtype);

/// The values as PyTorch prints them, with dtype when it is not the default.
TD_API std::string to_string(const Tensor& t);

}  // namespace tandem

template <>
struct fmt::formatter<tandem::Tensor> : tandem::detail::ToStringFormatter<tandem::Tensor> {};
