// SPDX-License-Identifier: Apache-2.0
// The golden cases' names of linear algebra, searching and segments -> Tandem's functions.
#include <limits>

#include "tandem/ops/ops.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {
namespace {

#define CASE(name, ...) t[#name] = [](const Case& g) -> Ts { return {__VA_ARGS__}; }

Ts both(std::pair<Tensor, Tensor> p) { return {p.first, p.second}; }
Ts three(std::tuple<Tensor, Tensor, Tensor> p) {
  return {std::get<0>(p), std::get<1>(p), std::get<2>(p)};
}

linalg::Order order_of(const Case& g, const char* key) {
  const io::Json* v = g.attr(key);
  if (!v || !v->as_string()) return g.d(key);
  const std::string& s = *v->as_string();
  if (s == "inf" || s == "-inf") return g.d(key);
  return std::string_view(s);
}

Ts svd_rebuilt(const Case& g) {
  const auto [u, s, vh] = linalg::svd(g.t(0), false);
  return {u * u, s, vh * vh, matmul(u * exp(s).unsqueeze(-2), vh)};
}
Ts eigh_rebuilt(const Case& g) {
  const auto [w, v] = linalg::eigh(g.t(0), g.s("UPLO", "L"));
  return {w, v * v, matmul(v * exp(w).unsqueeze(-2), v.transpose(-2, -1))};
}
Ts linalg_norm(const Case& g) {
  if (!g.has("ord")) return {linalg::norm(g.t(0))};
  return {linalg::norm(g.t(0), order_of(g, "ord"))};
}
Ts cond(const Case& g) {
  if (!g.has("p")) return {linalg::cond(g.t(0))};
  return {linalg::cond(g.t(0), order_of(g, "p"))};
}

void add_linalg(FnTable& t) {
  using namespace linalg;
  CASE(cholesky, cholesky(g.t(0), g.b("upper")));
  CASE(cholesky_solve, cholesky_solve(g.t(0), g.t(1), g.b("upper")));
  CASE(cholesky_inverse, cholesky_inverse(g.t(0), g.b("upper")));
  CASE(solve, solve(g.t(0), g.t(1), g.b("left", true)));
  CASE(solve_triangular,
       solve_triangular(g.t(0), g.t(1), g.b("upper"), g.b("left", true), g.b("unitriangular")));
  t["lu_factor"] = [](const Case& g) { return both(lu_factor(g.t(0))); };
  t["lu"] = [](const Case& g) { return three(lu(g.t(0))); };
  CASE(lu_solve, lu_solve(g.t(0), g.t(1), g.t(2)));
  CASE(inv, inv(g.t(0)));
  CASE(det, det(g.t(0)));
  t["slogdet"] = [](const Case& g) { return both(slogdet(g.t(0))); };
  CASE(logdet, logdet(g.t(0)));
  t["qr"] = [](const Case& g) { return both(qr(g.t(0), g.s("mode", "reduced"))); };
  CASE(svdvals, svdvals(g.t(0)));
  t["svd_rebuilt"] = svd_rebuilt;
  t["eigh_rebuilt"] = eigh_rebuilt;
  CASE(eigvalsh, eigvalsh(g.t(0), g.s("UPLO", "L")));
  t["pinv"] = [](const Case& g) -> Ts {
    if (g.has("relative")) return {pinv(g.t(0), {}, g.d("relative"))};
    return {pinv(g.t(0))};
  };
  CASE(matrix_rank, matrix_rank(g.t(0)));
  CASE(lstsq, lstsq(g.t(0), g.t(1)).solution);
  CASE(matrix_power, matrix_power(g.t(0), g.i("n")));
  CASE(matrix_exp, matrix_exp(g.t(0)));
  CASE(matrix_norm,
       matrix_norm(g.t(0), order_of(g, "ord"), g.list("dim", {-2, -1}), g.b("keepdim")));
  CASE(vector_norm, vector_norm(g.t(0), g.d("ord", 2), g.list("dim")));
  t["linalg_norm"] = linalg_norm;
  t["cond"] = golden::cond;
  CASE(multi_dot, multi_dot(g.rest()));
  CASE(vecdot, vecdot(g.t(0), g.t(1), g.i("dim", -1)));
  CASE(linear_scan, linear_scan(g.t(0), g.t(1), g.i("dim"), g.b("reverse")));
}

}  // namespace

void add_math(FnTable& t) { add_linalg(t); }

}  // namespace tandem::golden
