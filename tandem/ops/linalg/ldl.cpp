// SPDX-License-Identifier: Apache-2.0
// The rows ldl_factor and ldl_solve: the decomposition of symmetric matrices by J. Bunch and L.
// Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems"
// (1977), in the layout of LAPACK's sytrf and sytrs for the lower triangle.
#include <cmath>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/linalg/factors.h"

namespace tandem {
namespace {

// ---- shape rules

void ldl_square(const InferCall& c) {
  const Spec& x = c.in[0];
  TD_CHECK(x.dtype == DType::f32 || x.dtype == DType::f64, DType,
           "{} is {}, expected float32 or float64\nConvert it with .to(float32).", c.op.in_names[0],
           to_string(x.dtype));
  TD_CHECK(x.rank() >= 2 && dims_equal(x[x.rank() - 2], x[x.rank() - 1]), Shape,
           "expected square matrices, got shape {}", x.shape.to_string());
}
void ldl_factor_infer(InferCall& c) {
  ldl_square(c);
  const Spec& x = c.in[0];
  Shape pivots = x.shape;
  pivots.erase(pivots.rank() - 1);
  c.out[0] = Spec(x.dtype, x.shape, x.device);
  c.out[1] = Spec(DType::i32, pivots, x.device);
}
void ldl_solve_infer(InferCall& c) {
  ldl_square(c);
  const Spec &x = c.in[0], &p = c.in[1], &b = c.in[2];
  TD_CHECK(p.dtype == DType::i32, DType, "pivots are {}, expected int32", to_string(p.dtype));
  TD_CHECK(b.dtype == x.dtype, DType, "LD is {}, B is {}\nConvert one of them.", to_string(x.dtype),
           to_string(b.dtype));
  bool fits = b.rank() == x.rank() && p.rank() + 1 == x.rank();
  for (int i = 0; fits && i + 1 < x.rank(); ++i)
    fits = dims_equal(b[i], x[i]) && dims_equal(p[i], x[i]);
  TD_CHECK(fits, Shape, "LD is {}, pivots are {}, B is {}\nB must have as many rows as LD.",
           x.shape.to_string(), p.shape.to_string(), b.shape.to_string());
  c.out[0] = Spec(b.dtype, b.shape, b.device);
}

// Leading dims are a batch already.
void ldl_batch(BatchCall& c) {
  std::vector<Operand> in;
  for (int i = 0; i < c.n_in(); ++i) in.emplace_back(detail::with_batch(c, i), c.node.loc);
  apply(*c.node.op, nullptr, in, c.out, c.node.loc);
}

// A is symmetric: the gradient of B solves the same system.
void ldl_solve_vjp(VjpCall& c) {
  if (c.needs(2)) c.results[2] = call(op::ldl_solve, nullptr, c.loc(), c.in(0), c.in(1), c.grad());
}

// ---- one matrix, row-major [n, n]

template <class T>
class Ldl {
 public:
  Ldl(T* a, int32_t* pivots, int64_t n) : a_(a), pivots_(pivots), n_(n) {}

  void factor() {
    for (int64_t k = 0; k < n_;) k += step(k);
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = i + 1; j < n_; ++j) at(i, j) = 0;
  }

 private:
  T& at(int64_t i, int64_t j) { return a_[i * n_ + j]; }
  T size(int64_t i, int64_t j) { return std::abs(at(i, j)); }

  // Eliminates column k, or k and k + 1; returns how many.
  int64_t step(int64_t k) {
    int64_t block = 1;
    const int64_t other = choose(k, block);
    const int64_t last = k + block - 1;
    if (other != last) exchange(k, last, other, block);
    if (block == 1) {
      eliminate_one(k);
      pivots_[k] = static_cast<int32_t>(other + 1);
    } else {
      eliminate_two(k);
      pivots_[k] = pivots_[k + 1] = static_cast<int32_t>(-(other + 1));
    }
    return block;
  }

  // The row that comes to the pivot's place, and whether the pivot is one number or a 2 x 2 block.
  int64_t choose(int64_t k, int64_t& block) {
    const T alpha = static_cast<T>((1 + std::sqrt(17.0)) / 8);
    int64_t row = k;
    T largest = 0;
    for (int64_t i = k + 1; i < n_; ++i)
      if (size(i, k) > largest) largest = size(i, k), row = i;
    const T here = size(k, k);
    if (here >= alpha * largest) return k;  // also for a column of zeros
    T in_row = 0;
    for (int64_t j = k; j < row; ++j) in_row = std::max(in_row, size(row, j));
    for (int64_t i = row + 1; i < n_; ++i) in_row = std::max(in_row, size(i, row));
    if (here >= alpha * largest * (largest / in_row)) return k;
    if (size(row, row) < alpha * in_row) block = 2;
    return row;
  }

  // Rows and columns `last` and `other` > last of the part that is left.
  void exchange(int64_t k, int64_t last, int64_t other, int64_t block) {
    for (int64_t i = other + 1; i < n_; ++i) std::swap(at(i, last), at(i, other));
    for (int64_t j = last + 1; j < other; ++j) std::swap(at(j, last), at(other, j));
    std::swap(at(last, last), at(other, other));
    if (block == 2) std::swap(at(k + 1, k), at(other, k));
  }

  void eliminate_one(int64_t k) {
    if (at(k, k) == 0) return;
    const T inverse = 1 / at(k, k);
    for (int64_t i = k + 1; i < n_; ++i)
      for (int64_t j = k + 1; j <= i; ++j) at(i, j) -= inverse * at(i, k) * at(j, k);
    for (int64_t i = k + 1; i < n_; ++i) at(i, k) *= inverse;
  }

  void eliminate_two(int64_t k) {
    const T corner = at(k + 1, k), low = at(k + 1, k + 1) / corner, high = at(k, k) / corner;
    const T factor = 1 / (low * high - 1) / corner;
    for (int64_t j = k + 2; j < n_; ++j) {
      const T first = factor * (low * at(j, k) - at(j, k + 1));
      const T second = factor * (high * at(j, k + 1) - at(j, k));
      for (int64_t i = j; i < n_; ++i) at(i, j) -= at(i, k) * first + at(i, k + 1) * second;
      at(j, k) = first;
      at(j, k + 1) = second;
    }
  }

  T* a_;
  int32_t* pivots_;
  int64_t n_;
};

template <class T>
class LdlSolver {
 public:
  LdlSolver(const T* a, const int32_t* pivots, int64_t n, T* b, int64_t columns)
      : a_(a), pivots_(pivots), n_(n), b_(b), columns_(columns) {}

  // Pivots that no decomposition has written would lead outside.
  bool valid() const {
    for (int64_t k = 0; k < n_; ++k) {
      const int64_t p = pivots_[k];
      if (p == 0 || std::abs(p) > n_) return false;
      if (p < 0 && (k + 1 == n_ || pivots_[k + 1] != p)) return false;
      if (p < 0) ++k;
    }
    return true;
  }

  void solve() {
    int64_t k = 0;
    while (k < n_) {
      if (pivots_[k] > 0) {
        exchange(k, pivots_[k] - 1);
        subtract_down(k, k + 1);
        for (int64_t j = 0; j < columns_; ++j) row(k)[j] /= at(k, k);
        k += 1;
      } else {
        exchange(k + 1, -pivots_[k] - 1);
        subtract_down(k, k + 2);
        subtract_down(k + 1, k + 2);
        divide_two(k);
        k += 2;
      }
    }
    for (k = n_ - 1; k >= 0;) {
      subtract_up(k, k + 1);
      if (pivots_[k] > 0) {
        exchange(k, pivots_[k] - 1);
        k -= 1;
      } else {
        subtract_up(k - 1, k + 1);
        exchange(k, -pivots_[k] - 1);
        k -= 2;
      }
    }
  }

 private:
  T at(int64_t i, int64_t j) const { return a_[i * n_ + j]; }
  T* row(int64_t i) { return b_ + i * columns_; }
  void exchange(int64_t i, int64_t j) {
    if (i != j) std::swap_ranges(row(i), row(i) + columns_, row(j));
  }
  // Rows from `first` on minus their multiple of row k, and the transposed.
  void subtract_down(int64_t k, int64_t first) {
    for (int64_t i = first; i < n_; ++i)
      for (int64_t j = 0; j < columns_; ++j) row(i)[j] -= at(i, k) * row(k)[j];
  }
  void subtract_up(int64_t k, int64_t first) {
    for (int64_t i = first; i < n_; ++i)
      for (int64_t j = 0; j < columns_; ++j) row(k)[j] -= at(i, k) * row(i)[j];
  }
  void divide_two(int64_t k) {
    const T corner = at(k + 1, k), high = at(k, k) / corner, low = at(k + 1, k + 1) / corner;
    const T factor = 1 / (high * low - 1);
    for (int64_t j = 0; j < columns_; ++j) {
      const T x = row(k)[j] / corner, y = row(k + 1)[j] / corner;
      row(k)[j] = (low * x - y) * factor;
      row(k + 1)[j] = (high * y - x) * factor;
    }
  }

  const T* a_;
  const int32_t* pivots_;
  int64_t n_;
  T* b_;
  int64_t columns_;
};

template <class F>
void with_real(DType t, F&& f) {
  if (t == DType::f64)
    f(double{});
  else
    f(float{});
}

void ldl_factor_loops(const KernelCall& k) {
  const Array &x = k.in[0], &y = k.out[0];
  const int64_t n = x.shape[x.rank - 1], matrices = n == 0 ? 0 : x.numel / (n * n);
  with_real(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    const detail::Packed<T> from(x);
    T* to = y.as<T>();
    std::copy_n(from.get(), x.numel, to);
    for (int64_t i = 0; i < matrices; ++i)
      Ldl<T>(to + i * n * n, k.out[1].as<int32_t>() + i * n, n).factor();
  });
}

void ldl_solve_loops(const KernelCall& k) {
  const Array &x = k.in[0], &b = k.in[2];
  const int64_t n = x.shape[x.rank - 1], columns = b.shape[b.rank - 1];
  const int64_t matrices = n == 0 ? 0 : x.numel / (n * n);
  with_real(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    const detail::Packed<T> ld(x), from(b);
    const detail::Packed<int32_t> pivots(k.in[1]);
    T* to = k.out[0].as<T>();
    std::copy_n(from.get(), b.numel, to);
    for (int64_t i = 0; i < matrices; ++i) {
      LdlSolver<T> solver(ld.get() + i * n * n, pivots.get() + i * n, n, to + i * n * columns,
                          columns);
      if (solver.valid())
        solver.solve();
      else
        detail::report_error(k, 1, i);
    }
  });
}

}  // namespace

namespace op {
constinit const OpDef ldl_factor =
    make_row("ldl_factor", Family::index, Types::custom, {"A"}, nullptr)
        .outputs({"LD", "pivots"})
        .flag(kNotDifferentiable)
        .infer(ldl_factor_infer)
        .batch(ldl_batch)
        .reference(ldl_factor_loops)
        .doc(
            "L and D of a symmetric matrix A = L D L^T in one matrix, and pivots as LAPACK's "
            "sytrf gives them.");
constinit const OpDef ldl_solve =
    make_row("ldl_solve", Family::index, Types::custom, {"LD", "pivots", "B"}, nullptr)
        .infer(ldl_solve_infer)
        .vjp(ldl_solve_vjp, 0b011)
        .batch(ldl_batch)
        .reference(ldl_solve_loops)
        .errors({"pivots of matrix {} are not those of ldl_factor"})
        .doc("X with A X = B from the decomposition of a symmetric A.");
}  // namespace op

std::span<const OpDef* const> factor_rows() {
  static constexpr const OpDef* kRows[] = {&op::ldl_factor, &op::ldl_solve};
  return kRows;
}

}  // namespace tandem
