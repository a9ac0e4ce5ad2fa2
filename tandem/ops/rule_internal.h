// SPDX-License-Identifier: Apache-2.0
// Small tools shared by the rows of matmul, conv, pool, norm, loss, attention and rnn: checks made
// before a row is applied, sums back to a broadcast shape, batch dimensions, and dense copies for
// reference loops.
#pragma once

#include <algorithm>
#include <utility>

#include "tandem/base/parallel.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/batch.h"
#include "tandem/graph/infer.h"
#include "tandem/graph/vjp.h"
#include "tandem/tensor/allocator.h"

namespace tandem::detail {

/// Run `f`; an Error without op and line gets these.
template <class F>
decltype(auto) placed(const char* op, SourceLocation loc, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (!e.op().empty() && e.loc().file) throw;
    throw with_place(e, op, loc);
  }
}

/// Run `f`; an Error names `op`, the function the user called, instead of the row behind it.
template <class F>
decltype(auto) named(const char* op, SourceLocation loc, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (e.op() == op && e.loc().file) throw;
    throw renamed(e, op, loc);
  }
}

/// For rows that move or draw elements and compute nothing.
inline double no_flops(const InferCall&) { return 0; }
/// Every element of the output is read once and written once.
inline double bytes_moved(const InferCall& c) {
  const Shape& s = c.out[0].shape;
  return s.is_symbolic() ? 0
                         : 2.0 * static_cast<double>(s.numel().value()) *
                               static_cast<double>(size_of(c.out[0].dtype));
}
/// Throws Shape if a size is negative.
inline void check_sizes(const Shape& s) {
  for (Dim d : s)
    TD_CHECK(d.is_symbolic() || d.raw() >= 0, Shape, "sizes must not be negative, got {}",
             s.to_string());
}
/// Equal ranks and sizes; a symbolic size is taken to be equal, and checked later.
inline bool same_sizes(const Shape& a, const Shape& b) {
  bool same = a.rank() == b.rank();
  for (int i = 0; same && i < a.rank(); ++i) same = dims_equal(a[i], b[i]);
  return same;
}

/// `g` summed to a shape that broadcasts to g's shape.
inline Tensor reduce_to(Tensor g, const Shape& shape, SourceLocation loc) {
  if (!g.defined() || g.shape() == shape) return g;
  ShapeAttrs a{shape};
  return call(op::sum_to, &a, loc, std::move(g));
}

/// Product of dims first..last-1.
inline Dim product(const Shape& s, int first, int last) {
  Dim n = 1;
  for (int i = first; i < last; ++i) n = n * s[i];
  return n;
}

/// floor(a / b) for b > 0, with a fast path for numbers.
inline Dim floor_div(Dim a, int64_t b) {
  if (a.is_symbolic()) return floordiv(a, Dim(b));
  int64_t v = a.raw(), q = v / b;
  return Dim(q - (v % b < 0));
}

/// Sizes of x with [first, last) replaced by one dim, or by several.
inline Shape merged(const Shape& s, int first, int last) {
  Shape r;
  for (int i = 0; i < first; ++i) r.push_back(s[i]);
  r.push_back(product(s, first, last));
  for (int i = last; i < s.rank(); ++i) r.push_back(s[i]);
  return r;
}

/// Dims first and first + 1 merged: [a, b, ...] -> [a * b, ...].
inline Tensor merge_dims(const Tensor& t, int first, SourceLocation loc) {
  return t.reshape(merged(t.shape(), first, first + 2), loc);
}
/// The inverse: dim `at` split into [outer, rest].
inline Tensor split_dim(const Tensor& t, int at, Dim outer, Dim inner, SourceLocation loc) {
  Shape s = t.shape();
  s[at] = outer;
  s.insert(at + 1, inner);
  return t.reshape(s, loc);
}

/// Input i with the batch dimension in front: unchanged, or repeated without a copy.
inline Tensor with_batch(const BatchCall& c, int i) {
  const Tensor& t = c.in[i];
  if (!t.defined() || c.batched[i]) return t;
  Shape s = t.shape();
  s.insert(0, c.batch_size);
  return t.unsqueeze(0, c.node.loc).expand(s, c.node.loc);
}
/// Input i with ones after its batch dimension, so that its per-example rank is `rank`.
inline Tensor with_rank(const BatchCall& c, int i, int rank) {
  const Tensor& t = c.in[i];
  if (!t.defined() || !c.batched[i] || c.rank(i) >= rank) return t;
  Shape s = t.shape();
  for (int k = c.rank(i); k < rank; ++k) s.insert(1, 1);
  return t.reshape(s, c.node.loc);
}

/// The node's row applied to other inputs, with hidden outputs if the node has them.
inline void call_again(const BatchCall& c, const void* attrs, std::span<Operand> in, Tensor* out) {
  ApplyOptions options;
  options.hidden = c.node.out.size() > static_cast<size_t>(c.node.op->shown());
  apply(*c.node.op, attrs, in, out, c.node.loc, options);
}

// ---- reference loops
// Elements of `a` in row-major order, converted.
TD_API void read_dense(const Array& a, double* out);
TD_API void read_dense(const Array& a, uint64_t* out);
TD_API void read_dense(const Array& a, float* out);
/// The inverse; floats are rounded once, integers wrap.
TD_API void write_dense(const double* in, const Array& out);
TD_API void write_dense(const uint64_t* in, const Array& out);
TD_API void write_dense(const float* in, const Array& out);

/// A dense buffer of n elements that lives for one reference call.
template <class T>
class Dense {
 public:
  explicit Dense(int64_t n) : n_(n), p_(n ? static_cast<T*>(allocate(bytes())) : nullptr) {}
  /// The elements of `a`.
  explicit Dense(const Array& a) : Dense(a.numel) {
    if (n_) read_dense(a, p_);
  }
  Dense(const Dense&) = delete;
  Dense& operator=(const Dense&) = delete;
  ~Dense() {
    if (p_) deallocate(p_, bytes());
  }
  void fill(T v) {
    for (int64_t i = 0; i < n_; ++i) p_[i] = v;
  }
  void store(const Array& a) const {
    if (n_) write_dense(p_, a);
  }
  int64_t size() const { return n_; }
  T* get() const { return p_; }
  T& operator[](int64_t i) const { return p_[i]; }

 private:
  size_t bytes() const { return static_cast<size_t>(n_) * sizeof(T); }
  int64_t n_;
  T* p_;
};

/// parallel_for over rows that cost about `cost` operations each.
template <class F>
void parallel_for_rows(int64_t rows, int64_t cost, F&& f) {
  parallel_for(0, rows, std::max<int64_t>(1, 65536 / std::max<int64_t>(cost, 1)), f);
}

/// Call f(double{}) for a floating dtype, f(uint64_t{}) for integers (which wrap).
template <class F>
void with_accumulator(DType t, F&& f) {
  if (is_floating(t))
    f(double{});
  else
    f(uint64_t{});
}

}  // namespace tandem::detail
