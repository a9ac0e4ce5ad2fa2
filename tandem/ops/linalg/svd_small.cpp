// SPDX-License-Identifier: Apache-2.0
// The decomposition of small matrices by one-sided Jacobi rotations (Hestenes), in f64: columns are
// turned in pairs until all are orthogonal; then their lengths are the singular values. What it
// does not do well, which is columns that vanish, is left to svd().
#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/ops/linalg/svd_internal.h"

namespace tandem::detail {
namespace {

constexpr int64_t kMost = kSmallSvd;
constexpr int kSweeps = 20;
constexpr double kEps = std::numeric_limits<double>::epsilon();

// Columns of a and of the rotations, each with room for whole vectors.
struct Small {
  typedef double Part __attribute__((vector_size(16), may_alias));
  static Part& part(double* x, int64_t i) { return *reinterpret_cast<Part*>(x + i); }
  static Part part(const double* x, int64_t i) { return *reinterpret_cast<const Part*>(x + i); }

  alignas(32) double a[kMost * kMost], v[kMost * kMost], length[kMost];
  int64_t m, n, step;  // m >= n
  double tolerance;    // of the cosine between two columns

  double dot(const double* x, const double* y) const {
    Part sum[4] = {};
    for (int64_t i = 0; i < step; i += 8)
      for (int64_t k = 0; k < 4; ++k) sum[k] += part(x, i + 2 * k) * part(y, i + 2 * k);
    const Part all = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    return all[0] + all[1];
  }
  void turn(double* x, double* y, double c, double s) const {
    for (int64_t i = 0; i < step; i += 2) {
      Part &p = part(x, i), &q = part(y, i);
      const Part before = p;
      p = before * c - q * s;
      q = before * s + q * c;
    }
  }
  // Makes two columns orthogonal; false when they were already.
  bool join(int64_t p, int64_t q) {
    double *x = a + p * step, *y = a + q * step;
    const double across = dot(x, y);
    if (!(across * across > tolerance * tolerance * length[p] * length[q])) return false;
    const double zeta = (length[q] - length[p]) / (across + across);
    const double t = std::copysign(1.0, zeta) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
    const double c = 1 / std::sqrt(1 + t * t);
    turn(x, y, c, c * t);
    turn(v + p * step, v + q * step, c, c * t);
    length[p] -= t * across;
    length[q] += t * across;
    return true;
  }
  // One pass over all pairs, in rounds of pairs that share no column, so that they need not wait
  // for one another; false when every pair was orthogonal already.
  bool sweep() {
    bool turned = false;
    for (int64_t j = 0; j < n; ++j) length[j] = dot(a + j * step, a + j * step);
    const int64_t last =
        n - 1 + n % 2;  // the column that stays, if there is one; the rest go round
    for (int64_t round = 0; round < last; ++round)
      for (int64_t k = 0; 2 * k < last; ++k) {
        const int64_t i = (round + k) % last, j = k == 0 ? last : (round + last - k) % last;
        if (std::max(i, j) < n) turned |= join(std::min(i, j), std::max(i, j));
      }
    return turned;
  }
};

}  // namespace

template <class T>
bool svd_small(const T* x, int64_t rows, int64_t columns, T* u, T* s, T* v) {
  Small w;
  const bool wide = rows < columns;
  w.m = wide ? columns : rows;
  w.n = wide ? rows : columns;
  w.step = (w.m + 7) / 8 * 8;
  w.tolerance = sizeof(T) == 4 ? 0x1p-32 : kEps;
  if (w.m > kMost) return false;
  double largest = 0;
  for (int64_t i = 0; i < rows * columns; ++i) largest = std::max<double>(largest, std::abs(x[i]));
  if (!(largest > 0)) return false;
  // A power of two, so that nothing is rounded and no square overflows.
  const double scale = std::ldexp(1.0, -std::ilogb(largest));
  if (!std::isfinite(scale) || !(scale > 0)) return false;
  std::fill_n(w.a, w.n * w.step, 0.0);
  std::fill_n(w.v, w.n * w.step, 0.0);
  for (int64_t j = 0; j < w.n; ++j) w.v[j * w.step + j] = 1;
  for (int64_t i = 0; i < w.m; ++i)
    for (int64_t j = 0; j < w.n; ++j)
      w.a[j * w.step + i] = scale * (wide ? x[j * columns + i] : x[i * columns + j]);
  int sweeps = 0;
  while (sweeps < kSweeps && w.sweep()) ++sweeps;
  if (sweeps == kSweeps) return false;
  int64_t order[kMost];  // longest first
  for (int64_t j = 0; j < w.n; ++j) {
    const double length = std::sqrt(w.dot(w.a + j * w.step, w.a + j * w.step));
    w.length[j] = length;
    int64_t at = j;
    for (; at > 0 && w.length[order[at - 1]] < length; --at) order[at] = order[at - 1];
    order[at] = j;
  }
  const double least = w.length[order[w.n - 1]], most = w.length[order[0]];
  if (!(least > most * 16 * kEps)) return false;
  T *left = wide ? v : u, *right = wide ? u : v;  // of the columns, and of the rotations
  for (int64_t k = 0; k < w.n; ++k) {
    const double *a = w.a + order[k] * w.step, *r = w.v + order[k] * w.step;
    const double length = w.length[order[k]];
    s[k] = static_cast<T>(length / scale);
    // The entry of u that is largest is positive.
    const double* of_u = wide ? r : a;
    const int64_t size = wide ? w.n : w.m;
    int64_t at = 0;
    for (int64_t i = 1; i < size; ++i)
      if (std::abs(of_u[i]) > std::abs(of_u[at])) at = i;
    const double sign = of_u[at] < 0 ? -1 : 1;
    for (int64_t i = 0; i < w.m; ++i) left[i * w.n + k] = static_cast<T>(sign * a[i] / length);
    for (int64_t i = 0; i < w.n; ++i) right[i * w.n + k] = static_cast<T>(sign * r[i]);
  }
  return true;
}
template bool svd_small(const float*, int64_t, int64_t, float*, float*, float*);
template bool svd_small(const double*, int64_t, int64_t, double*, double*, double*);

}  // namespace tandem::detail
