// SPDX-License-Identifier: Apache-2.0
// Creates tensors from nothing, from numbers and from C++ containers. Default dtypes are PyTorch's:
// float32 for floating numbers, int64 for integers. In a trace each creation is recorded.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "tandem/graph/apply.h"

namespace tandem {

TD_API Tensor zeros(Shape shape, DType dtype = DType::f32,
                    SourceLocation loc = SourceLocation::here());
TD_API Tensor ones(Shape shape, DType dtype = DType::f32,
                   SourceLocation loc = SourceLocation::here());
/// `value` everywhere; the dtype defaults to that of the number (float32, int64 or bool).
TD_API Tensor full(Shape shape, Scalar value, SourceLocation loc = SourceLocation::here());
TD_API Tensor full(Shape shape, Scalar value, DType dtype,
                   SourceLocation loc = SourceLocation::here());
/// Uninitialised memory; zeros in a trace.
TD_API Tensor empty(Shape shape, DType dtype = DType::f32,
                    SourceLocation loc = SourceLocation::here());

TD_API Tensor zeros_like(const Tensor& x, SourceLocation loc = SourceLocation::here());
TD_API Tensor zeros_like(const Tensor& x, DType dtype, SourceLocation loc = SourceLocation::here());
TD_API Tensor ones_like(const Tensor& x, SourceLocation loc = SourceLocation::here());
TD_API Tensor ones_like(const Tensor& x, DType dtype, SourceLocation loc = SourceLocation::here());
TD_API Tensor full_like(const Tensor& x, Scalar value, SourceLocation loc = SourceLocation::here());
TD_API Tensor full_like(const Tensor& x, Scalar value, DType dtype,
                        SourceLocation loc = SourceLocation::here());
TD_API Tensor empty_like(const Tensor& x, SourceLocation loc = SourceLocation::here());

/// 0, 1, ... below `end`; start, start + step, ... before `end`. int64 for integers, else float32.
TD_API Tensor arange(Scalar end, SourceLocation loc = SourceLocation::here());
TD_API Tensor arange(Scalar end, DType dtype, SourceLocation loc = SourceLocation::here());
TD_API Tensor arange(Scalar start, Scalar end, Scalar step = 1,
                     SourceLocation loc = SourceLocation::here());
TD_API Tensor arange(Scalar start, Scalar end, Scalar step, DType dtype,
                     SourceLocation loc = SourceLocation::here());
/// 0, 1, ... below a size that may be symbolic (int64).
TD_API Tensor arange_dim(Dim end, SourceLocation loc = SourceLocation::here());
/// `steps` numbers from `start` to `end`, both included.
TD_API Tensor linspace(double start, double end, int64_t steps, DType dtype = DType::f32,
                       SourceLocation loc = SourceLocation::here());
/// base to the power of linspace.
TD_API Tensor logspace(double start, double end, int64_t steps, double base = 10,
                       DType dtype = DType::f32, SourceLocation loc = SourceLocation::here());
/// [n, m] with ones on the diagonal; m defaults to n.
TD_API Tensor eye(int64_t n, int64_t m = -1, DType dtype = DType::f32,
                  SourceLocation loc = SourceLocation::here());
/// i64 [2, count]: row and column of each element of the lower (upper) triangle.
TD_API Tensor tril_indices(int64_t row, int64_t col, int64_t offset = 0,
                           SourceLocation loc = SourceLocation::here());
TD_API Tensor triu_indices(int64_t row, int64_t col, int64_t offset = 0,
                           SourceLocation loc = SourceLocation::here());

/// Captures a value in a compiled function as it is now. In eager: x itself.
TD_API Tensor constant(const Tensor& x, SourceLocation loc = SourceLocation::here());

namespace detail {
/// A tensor of `shape` from n dense elements of dtype `from`, stored as `dtype`.
TD_API Tensor make_tensor(const void* data, DType from, int64_t n, const Shape& shape, DType dtype,
                          SourceLocation loc);
TD_API void check_row_length(size_t got, size_t want, int level, SourceLocation loc);

template <class T>
constexpr DType literal_dtype() {
  if constexpr (std::is_same_v<T, bool>)
    return DType::b8;
  else if constexpr (std::is_floating_point_v<T>)
    return DType::f32;
  else if constexpr (std::is_integral_v<T>)
    return DType::i64;
  else
    return dtype_of<T>;
}
/// The element type that carries a C++ number: int64_t for every integer, else the type itself.
template <class T>
using Carrier = std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int64_t, T>;
/// Provides dense elements; std::vector<bool> has none.
template <class T>
struct Flat {
  std::unique_ptr<T[]> data;
  size_t n = 0;
  explicit Flat(size_t size) : data(new T[size]) {}
  template <class It>
  void append(It first, It last) {
    for (; first != last; ++first) data[n++] = static_cast<T>(*first);
  }
};
}  // namespace detail

template <class T>
concept TensorNumber = std::is_arithmetic_v<T> || Element<T>;

/// A 0-d tensor.
template <class T>
  requires std::is_arithmetic_v<T> Tensor tensor(T value,
                                                 SourceLocation loc = SourceLocation::here()) {
    return full(Shape(), Scalar(value), loc);
  }
template <class T>
  requires std::is_arithmetic_v<T> Tensor tensor(T value, DType dtype,
                                                 SourceLocation loc = SourceLocation::here()) {
    return full(Shape(), Scalar(value), dtype, loc);
  }

/// From braces: `tensor({1.f, 2.f})` float32, `tensor({1, 2})` int64, `tensor({{1, 2}, {3, 4}})`
/// [2, 2]. Rows must have equal lengths (throws Shape).
template <TensorNumber T>
Tensor tensor(std::initializer_list<T> v, DType dtype = detail::literal_dtype<T>(),
              SourceLocation loc = SourceLocation::here()) {
  using C = detail::Carrier<T>;
  detail::Flat<C> flat(v.size());
  flat.append(v.begin(), v.end());
  return detail::make_tensor(flat.data.get(), dtype_of<C>, int64_t(flat.n), Shape(flat.n), dtype,
                             loc);
}
template <TensorNumber T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> v,
              DType dtype = detail::literal_dtype<T>(),
              SourceLocation loc = SourceLocation::here()) {
  using C = detail::Carrier<T>;
  const size_t cols = v.size() ? v.begin()->size() : 0;
  for (const auto& row : v) detail::check_row_length(row.size(), cols, 1, loc);
  detail::Flat<C> flat(v.size() * cols);
  for (const auto& row : v) flat.append(row.begin(), row.end());
  return detail::make_tensor(flat.data.get(), dtype_of<C>, int64_t(flat.n), Shape(v.size(), cols),
                             dtype, loc);
}
template <TensorNumber T>
Tensor tensor(std::initializer_list<std::initializer_list<std::initializer_list<T>>> v,
              DType dtype = detail::literal_dtype<T>(),
              SourceLocation loc = SourceLocation::here()) {
  using C = detail::Carrier<T>;
  const size_t rows = v.size() ? v.begin()->size() : 0;
  const size_t cols = rows ? v.begin()->begin()->size() : 0;
  for (const auto& m : v) {
    detail::check_row_length(m.size(), rows, 1, loc);
    for (const auto& row : m) detail::check_row_length(row.size(), cols, 2, loc);
  }
  detail::Flat<C> flat(v.size() * rows * cols);
  for (const auto& m : v)
    for (const auto& row : m) flat.append(row.begin(), row.end());
  return detail::make_tensor(flat.data.get(), dtype_of<C>, int64_t(flat.n),
                             Shape(v.size(), rows, cols), dtype, loc);
}

/// From a vector, keeping its element type; the shape defaults to [v.size()].
template <class T>
  requires Element<detail::Carrier<T>> Tensor tensor(const std::vector<T>& v, Shape shape,
                                                     SourceLocation loc = SourceLocation::here()) {
    using C = std::conditional_t<Element<T>, T, detail::Carrier<T>>;
    detail::Flat<C> flat(v.size());
    flat.append(v.begin(), v.end());
    return detail::make_tensor(flat.data.get(), dtype_of<C>, int64_t(flat.n), shape, dtype_of<C>,
                               loc);
  }
template <class T>
  requires Element<detail::Carrier<T>> Tensor tensor(const std::vector<T>& v,
                                                     SourceLocation loc = SourceLocation::here()) {
    return tensor(v, Shape(v.size()), loc);
  }

// ---- rows (op::fill is declared in graph/apply.h)
struct ArangeAttrs {
  Scalar start, step = 1;
  IntList count;  ///< one Dim
  DType dtype = DType::i64;
  template <class V>
  void fields(V& v) {
    v("start", start);
    v("step", step);
    v("count", count);
    v("dtype", dtype);
  }
};
struct LinspaceAttrs {
  double start = 0, end = 1;
  int64_t steps = 0;
  DType dtype = DType::f32;
  template <class V>
  void fields(V& v) {
    v("start", start);
    v("end", end);
    v("steps", steps);
    v("dtype", dtype);
  }
};
struct EyeAttrs {
  int64_t n = 0, m = 0;
  DType dtype = DType::f32;
  template <class V>
  void fields(V& v) {
    v("n", n);
    v("m", m);
    v("dtype", dtype);
  }
};

namespace op {
extern TD_API const OpDef arange, linspace, eye;
}  // namespace op

/// The rows of this family.
TD_API std::span<const OpDef* const> create_rows();

}  // namespace tandem
