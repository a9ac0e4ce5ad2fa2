// SPDX-License-Identifier: Apache-2.0
// Decompositions and solvers of stacks of matrices: a block of threads a matrix, or a thread a
// column where columns are independent. Working copies lie in the result or in scratch memory.
#include <algorithm>

#include "tandem/backend/gpu/rows/dense_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/ops/linalg/linalg.h"

namespace tandem::gpu {
namespace {

int64_t rows_of(const Array& a) { return a.shape[a.rank - 2]; }
int64_t columns_of(const Array& a) { return a.shape[a.rank - 1]; }
int64_t stack_of(const Array& a, int dropped) {
  int64_t n = 1;
  for (int d = 0; d < a.rank - dropped; ++d) n *= a.shape[d];
  return n;
}

// ---- LU with partial pivoting of the matrix A[r * n + c], m x n, which is changed in place; row
// s was swapped with row PIVOTS[s] - 1

constexpr const char* kLuText =
    R"td_text(
  for (td_i64 s = 0; s < m && s < n; ++s) {
    td_barrier();
    if (t == 0) {
      td_i64 best = s;
      for (td_i64 r = s + 1; r < m; ++r) {
        if (MAGNITUDE(A[r * n + s]) > MAGNITUDE(A[best * n + s])) best = r;
      }
      PIVOTS[s] = (td_i32)(best + 1);
    }
    td_barrier();
    const td_i64 other = PIVOTS[s] - 1;
    if (other != s) {
      for (td_i64 c = t; c < n; c += td_threads(x)) {
        const TI0 v = A[s * n + c];
        A[s * n + c] = A[other * n + c];
        A[other * n + c] = v;
      }
    }
    td_barrier();
    if (A[s * n + s] != 0) {
      for (td_i64 r = s + 1 + t; r < m; r += td_threads(x)) A[r * n + s] /= A[s * n + s];
    }
    td_barrier();
    const td_i64 width = n - s - 1;
    for (td_i64 e = t; e < (m - s - 1) * width; e += td_threads(x)) {
      const td_i64 r = s + 1 + e / width, c = s + 1 + e % width;
      A[r * n + c] -= A[r * n + s] * A[s * n + c];
    }
  }
  td_barrier();
)td_text";
constexpr const char* kLuWordsText =
    "#define MAGNITUDE(v) ((v) < 0 ? -(v) : (v))\n"
    "#define A (work + me * m * n)\n#define PIVOTS (swaps + me * n)\n";
constexpr const char* kLuEndText = "#undef MAGNITUDE\n#undef A\n#undef PIVOTS\n";
constexpr const char* kCopyText =
    "  for (td_i64 e = t; e < m * n; e += td_threads(x)) A[e] = I0(me * m * n + e);\n";
constexpr const char* kReportSingularText =
    "  if (t == 0) {\n    td_i32 singular = 0;\n"
    "    for (td_i64 s = 0; s < n; ++s) singular = singular || A[s * n + s] == 0;\n"
    "    if (singular) td_report(1, me);\n  }\n";

constexpr DenseKernel kLuFactor{.name = "lu_factor",
                                .blocks = true,
                                .body = {R"td_text(
#define MAGNITUDE(v) ((v) < 0 ? -(v) : (v))
#define A (td_out0 + me * m * n)
#define PIVOTS (td_out1 + me * (m < n ? m : n))
)td_text",
                                         kCopyText, kLuText, kLuEndText}};

// Each thread solves for some columns of the right side, which stands in the result.
constexpr const char* kSolveText =
    R"td_text(
    for (td_i64 s = 0; s < n; ++s) {
      const td_i64 other = PIVOTS[s] - 1;
      const TO0 v = O0(to + s * columns);
      P0(to + s * columns, O0(to + other * columns));
      P0(to + other * columns, v);
    }
    for (td_i64 r = 1; r < n; ++r) {
      TO0 v = O0(to + r * columns);
      for (td_i64 k = 0; k < r; ++k) v -= A[r * n + k] * O0(to + k * columns);
      P0(to + r * columns, v);
    }
    for (td_i64 r = n - 1; r >= 0; --r) {
      TO0 v = O0(to + r * columns);
      for (td_i64 k = r + 1; k < n; ++k) v -= A[r * n + k] * O0(to + k * columns);
      P0(to + r * columns, v / A[r * n + r]);
    }
  }
)td_text";

constexpr DenseKernel kSolve{
    .name = "solve",
    .reports = true,
    .blocks = true,
    .body = {kLuWordsText, kCopyText, kLuText, kReportSingularText, R"td_text(
  for (td_i64 c = t; c < columns; c += td_threads(x)) {
    const td_i64 to = me * n * columns + c;
    for (td_i64 r = 0; r < n; ++r) P0(to + r * columns, I1(to + r * columns));
)td_text",
             kSolveText, kLuEndText}};
constexpr DenseKernel kInverse{
    .name = "inverse",
    .reports = true,
    .blocks = true,
    .body = {kLuWordsText, kCopyText, kLuText, kReportSingularText, R"td_text(
  const td_i64 columns = n;
  for (td_i64 c = t; c < columns; c += td_threads(x)) {
    const td_i64 to = me * n * columns + c;
    for (td_i64 r = 0; r < n; ++r) P0(to + r * columns, r == c ? 1 : 0);
)td_text",
             kSolveText, kLuEndText}};

constexpr DenseKernel kDeterminant{.name = "det",
                                   .blocks = true,
                                   .body = {kLuWordsText, kCopyText, kLuText, R"td_text(
  if (t == 0) {
    TO0 v = 1;
    for (td_i64 s = 0; s < n; ++s) v *= PIVOTS[s] == s + 1 ? A[s * n + s] : -A[s * n + s];
    P0(me, v);
  }
)td_text",
                                            kLuEndText}};
constexpr DenseKernel kLogDeterminant{.name = "slogdet",
                                      .blocks = true,
                                      .body = {kLuWordsText, kCopyText, kLuText, R"td_text(
  if (t == 0) {
    TO0 sign = 1, sum = 0;
    for (td_i64 s = 0; s < n; ++s) {
      const TO0 v = A[s * n + s];
      if (PIVOTS[s] != s + 1) sign = -sign;
      sign *= v > 0 ? 1 : v < 0 ? -1 : v;
      sum += MATH(tdm_log)(MAGNITUDE(v));
    }
    P0(me, sign);
    P1(me, sum);
  }
)td_text",
                                               kLuEndText}};

// A copy of the matrices, and the swaps of their rows.
std::shared_ptr<const Plan> prepare_lu(const KernelCall& c) {
  const Array& a = c.in[0];
  return plan_dense(c, {static_cast<size_t>(a.numel) * size_of(a.dtype),
                        static_cast<size_t>(stack_of(a, 1)) * sizeof(int32_t)});
}
constexpr int64_t kNoColumns = -1;  // the kernel has no right side
void run_with_lu(const KernelCall& c, const DenseKernel& kernel, int64_t columns) {
  const Array& a = c.in[0];
  DenseCall call(c);
  call.number("m", rows_of(a)).number("n", columns_of(a));
  if (columns >= 0) call.number("columns", columns);
  call.scratch("work", a.dtype, a.numel).scratch("swaps", DType::i32, stack_of(a, 1));
  call.run(kernel, stack_of(a, 2));
}
void run_solve_row(const KernelCall& c) {
  if (c.in[0].numel > 0) run_with_lu(c, kSolve, columns_of(c.in[1]));
}
void run_inverse(const KernelCall& c) {
  if (c.in[0].numel > 0) run_with_lu(c, kInverse, kNoColumns);
}
void run_determinant(const KernelCall& c) { run_with_lu(c, kDeterminant, kNoColumns); }
void run_log_determinant(const KernelCall& c) { run_with_lu(c, kLogDeterminant, kNoColumns); }
void run_lu_factor_row(const KernelCall& c) {
  const Array& a = c.in[0];
  if (a.numel == 0) return;
  DenseCall(c).number("m", rows_of(a)).number("n", columns_of(a)).run(kLuFactor, stack_of(a, 2));
}

// Row numbers after the swaps: a thread a list.
constexpr DenseKernel kLuPermutation{.name = "lu_permutation", .reports = true, .body = {R"td_text(
  for (td_i64 r = 0; r < n; ++r) P0(me * n + r, r);
  for (td_i64 s = 0; s < count; ++s) {
    const td_i64 other = I0(me * count + s) - 1, own = O0(me * n + s);
    if (other < 0 || other >= n) {
      td_report(1, other + 1);
    } else {
      P0(me * n + s, O0(me * n + other));
      P0(me * n + other, own);
    }
  }
)td_text"}};
void run_lu_permutation_row(const KernelCall& c) {
  const Array &x = c.in[0], &y = c.out[0];
  if (y.numel == 0) return;
  const int64_t n = y.shape[y.rank - 1];
  DenseCall(c).number("n", n).number("count", x.shape[x.rank - 1]).run(kLuPermutation, y.numel / n);
}

// ---- triangles

// A thread a column of B.
constexpr DenseKernel kSolveTriangular{.name = "solve_triangular", .body = {R"td_text(
  const td_i64 c = me % columns, a = me / columns * n * n, to = me / columns * n * columns + c;
  for (td_i64 k = 0; k < n; ++k) {
    const td_i64 r = upper ? n - 1 - k : k;
    TO0 v = I1(to + r * columns);
    for (td_i64 j = upper ? r + 1 : 0; j < (upper ? n : r); ++j) {
      v -= I0(a + r * n + j) * O0(to + j * columns);
    }
    P0(to + r * columns, unit ? v : v / I0(a + r * n + r));
  }
)td_text"}};
void run_solve_triangular_row(const KernelCall& c) {
  const auto& attrs = c.get_attrs<linalg::TriangularAttrs>();
  if (c.out[0].numel == 0) return;
  DenseCall call(c);
  call.number("n", rows_of(c.in[1])).number("columns", columns_of(c.in[1]));
  call.number("upper", int64_t{attrs.upper}).number("unit", int64_t{attrs.unitriangular});
  call.run(kSolveTriangular, c.out[0].numel / rows_of(c.in[1]));
}

// The lower factor of A, or of A as its transpose, which is stored transposed too.
constexpr DenseKernel kCholesky{
    .name = "cholesky", .reports = true, .blocks = true, .body = {R"td_text(
#define L(r, c) td_out0[me * n * n + (upper ? (c) * n + (r) : (r) * n + (c))]
  for (td_i64 e = t; e < n * n; e += td_threads(x)) {
    const td_i64 r = e / n, c = e % n;
    L(r, c) = c > r ? 0 : I0(me * n * n + (upper ? c * n + r : r * n + c));
  }
  td_i32 failed = 0;
  for (td_i64 s = 0; s < n; ++s) {
    td_barrier();
    const TO0 pivot = L(s, s);
    td_barrier();
    failed = failed || !(pivot > 0);
    for (td_i64 r = s + t; r < n; r += td_threads(x)) {
      const TO0 root = MATH(tdm_sqrt)(pivot);
      L(r, s) = r == s ? root : L(r, s) / root;
    }
    td_barrier();
    const td_i64 left = n - s - 1;
    for (td_i64 e = t; e < left * left; e += td_threads(x)) {
      const td_i64 r = s + 1 + e / left, c = s + 1 + e % left;
      if (c <= r) L(r, c) -= L(r, s) * L(c, s);
    }
  }
  if (failed && t == 0) td_report(1, me);
#undef L
)td_text"}};
void run_cholesky_row(const KernelCall& c) {
  const Array& a = c.in[0];
  if (a.numel == 0) return;
  DenseCall call(c);
  call.number("n", rows_of(a)).number("upper", int64_t{c.get_attrs<linalg::CholeskyAttrs>().upper});
  call.run(kCholesky, stack_of(a, 2));
}

// ---- QR by Householder's reflections: R grows in `work`, a copy of A, with the reflections below
// its diagonal and their factors in `taus`; Q is then the product of them all and the unit matrix

constexpr DenseKernel kQr{.name = "qr", .blocks = true, .body = {R"td_text(
#define A (work + me * m * n)
#define TAU (taus + me * (m < n ? m : n))
  for (td_i64 e = t; e < m * n; e += td_threads(x)) A[e] = I0(me * m * n + e);
  const td_i64 steps = m < n ? m : n;
  for (td_i64 s = 0; s < steps; ++s) {
    td_barrier();
    TO0 below = 0;
    for (td_i64 r = s + 1; r < m; ++r) below += A[r * n + s] * A[r * n + s];
    const TO0 head = A[s * n + s];
    const TO0 length = MATH(tdm_sqrt)(head * head + below);
    const TO0 beta = head >= 0 ? -length : length;
    const td_i32 trivial = below == 0;
    td_barrier();
    for (td_i64 r = s + t; r < m; r += td_threads(x)) {
      if (r == s) {
        TAU[s] = trivial ? 0 : (beta - head) / beta;
        if (!trivial) A[r * n + s] = beta;
      } else if (!trivial) {
        A[r * n + s] /= head - beta;
      }
    }
    td_barrier();
    for (td_i64 c = s + 1 + t; c < n; c += td_threads(x)) {
      TO0 dot = A[s * n + c];
      for (td_i64 r = s + 1; r < m; ++r) dot += A[r * n + s] * A[r * n + c];
      dot *= TAU[s];
      A[s * n + c] -= dot;
      for (td_i64 r = s + 1; r < m; ++r) A[r * n + c] -= A[r * n + s] * dot;
    }
  }
  td_barrier();
  for (td_i64 c = t; c < q; c += td_threads(x)) {
    for (td_i64 r = 0; r < m; ++r) P0((me * m + r) * q + c, r == c ? 1 : 0);
    for (td_i64 s = steps - 1; s >= 0; --s) {
      TO0 dot = O0((me * m + s) * q + c);
      for (td_i64 r = s + 1; r < m; ++r) dot += A[r * n + s] * O0((me * m + r) * q + c);
      dot *= TAU[s];
      P0((me * m + s) * q + c, O0((me * m + s) * q + c) - dot);
      for (td_i64 r = s + 1; r < m; ++r) {
        P0((me * m + r) * q + c, O0((me * m + r) * q + c) - A[r * n + s] * dot);
      }
    }
  }
  for (td_i64 e = t; e < q * n; e += td_threads(x)) {
    const td_i64 r = e / n, c = e % n;
    P1(me * q * n + e, r < steps && c >= r ? A[r * n + c] : 0);
  }
#undef A
#undef TAU
)td_text"}};
int64_t smaller_side(const Array& a) { return std::min(rows_of(a), columns_of(a)); }
std::shared_ptr<const Plan> prepare_qr(const KernelCall& c) {
  const Array& a = c.in[0];
  const size_t size = size_of(a.dtype);
  return plan_dense(c, {static_cast<size_t>(a.numel) * size,
                        static_cast<size_t>(stack_of(a, 2) * smaller_side(a)) * size});
}
void run_qr_row(const KernelCall& c) {
  const Array& a = c.in[0];
  DenseCall call(c);
  call.number("m", rows_of(a)).number("n", columns_of(a)).number("q", columns_of(c.out[0]));
  call.scratch("work", a.dtype, a.numel);
  call.scratch("taus", a.dtype, stack_of(a, 2) * smaller_side(a)).run(kQr, stack_of(a, 2));
}

bool has_columns(const KernelCall& c) { return has_f64(c) && c.in[0].numel > 0; }

}  // namespace

void register_linalg(DeviceKind kind) {
  register_kernel(kind, op::lu_factor, {has_f64, nullptr, prepare_dense, run_lu_factor_row});
  register_kernel(kind, op::lu_permutation,
                  {has_f64, nullptr, prepare_dense, run_lu_permutation_row});
  register_kernel(kind, op::solve, {has_f64, nullptr, prepare_lu, run_solve_row});
  register_kernel(kind, op::inv, {has_f64, nullptr, prepare_lu, run_inverse});
  register_kernel(kind, op::det, {has_f64, nullptr, prepare_lu, run_determinant});
  register_kernel(kind, op::slogdet, {has_f64, nullptr, prepare_lu, run_log_determinant});
  register_kernel(kind, op::solve_triangular,
                  {has_f64, nullptr, prepare_dense, run_solve_triangular_row});
  register_kernel(kind, op::cholesky, {has_f64, nullptr, prepare_dense, run_cholesky_row});
  register_kernel(kind, op::qr, {has_columns, nullptr, prepare_qr, run_qr_row});
}

}  // namespace tandem::gpu
