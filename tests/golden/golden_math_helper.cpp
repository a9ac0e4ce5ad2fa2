// SPDX-License-Identifier: Apache-2.0
// The golden cases' names of linear algebra, searching and segments -> Tandem's functions.
#include <optional>

#include "tandem/ops/ops.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {
namespace {

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
  t["lu_factor"] = [](const Case& g) { return all_of(lu_factor(g.t(0))); };
  t["lu"] = [](const Case& g) { return all_of(linalg::lu(g.t(0))); };
  CASE(lu_solve, linalg::lu_solve(g.t(0), g.t(1), g.t(2)));
  CASE(inv, inv(g.t(0)));
  CASE(det, det(g.t(0)));
  t["slogdet"] = [](const Case& g) { return all_of(slogdet(g.t(0))); };
  CASE(logdet, logdet(g.t(0)));
  t["qr"] = [](const Case& g) { return all_of(qr(g.t(0), g.s("mode", "reduced"))); };
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
  t["lstsq_all"] = [](const Case& g) { return all_of(lstsq(g.t(0), g.t(1), {}, g.s("driver"))); };
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

Ts picked(const Case& g, ValuesAndIndices (*f)(const Tensor&, int64_t, bool, SourceLocation)) {
  return all_of(f(g.t(0), g.i("dim", -1), g.b("keepdim"), SourceLocation::here()));
}
Ts unique_of(const Case& g) {
  std::optional<int64_t> dim;
  if (g.has("dim")) dim = g.i("dim");
  return all_of(g.op == "unique" ? unique(g.t(0), dim) : unique_consecutive(g.t(0), dim));
}
Ts quantile_of(const Case& g) {
  std::optional<int64_t> dim;
  if (g.has("dim")) dim = g.i("dim");
  const std::string how = g.s("interpolation", "linear");
  const Operand q = g.has("q") ? Operand(g.d("q")) : Operand(g.t(1));
  const auto f = g.op == "quantile" ? quantile : nanquantile;
  return {f(g.t(0), q, dim, g.b("keepdim"), how, SourceLocation::here())};
}

void add_searching(FnTable& t) {
  CASE(searchsorted, searchsorted(g.t(0), g.t(1), g.b("out_int32"), g.b("right")));
  CASE(bucketize, bucketize(g.t(0), g.t(1), false, g.b("right")));
  t["unique"] = t["unique_consecutive"] = unique_of;
  CASE(isin, isin(g.t(0), g.t(1), g.b("invert")));
  CASE(msort, msort(g.t(0)));
  t["kthvalue"] = [](const Case& g) {
    return all_of(kthvalue(g.t(0), g.i("k"), g.i("dim", -1), g.b("keepdim")));
  };
  t["median"] = [](const Case& g) -> Ts {
    return g.has("dim") ? picked(g, median) : Ts{median(g.t(0))};
  };
  t["nanmedian"] = [](const Case& g) -> Ts {
    return g.has("dim") ? picked(g, nanmedian) : Ts{nanmedian(g.t(0))};
  };
  CASE(mode, mode(g.t(0), g.i("dim"), g.b("keepdim")).values);
  t["quantile"] = t["nanquantile"] = quantile_of;
  CASE(nanmean, nanmean(g.t(0), g.list("dim")));
  CASE(histc, histc(g.t(0), g.i("bins"), g.d("min"), g.d("max")));
  t["histogram"] = [](const Case& g) {
    std::optional<std::pair<double, double>> range;
    if (g.has("range")) range = {-1, 2};
    return all_of(histogram(g.t(0), g.i("bins"), range, g.t(1), g.b("density")));
  };
  CASE(cov, cov(g.t(0), g.i("correction", 1), g.t(1), g.t(2)));
  CASE(corrcoef, corrcoef(g.t(0)));
}

void add_segments(FnTable& t) {
  CASE(scatter_reduce, scatter_reduce(g.t(0), g.i("dim"), g.t(1), g.t(2), g.s("reduce"),
                                      g.b("include_self", true)));
  CASE(index_reduce, index_reduce(g.t(0), g.i("dim"), g.t(1), g.t(2), g.s("reduce")));
  t["segment_reduce"] = [](const Case& g) -> Ts {
    if (g.has("offsets")) return {segment_reduce(g.t(0), g.s("reduce"), {}, g.t(1))};
    return {segment_reduce(g.t(0), g.s("reduce"), g.t(1))};
  };
  CASE(take, take(g.t(0), g.t(1)));
  CASE(put, put(g.t(0), g.t(1), g.t(2), g.b("accumulate")));
  CASE(masked_scatter, masked_scatter(g.t(0), g.t(1), g.t(2)));
}

void add_matrices(FnTable& t) {
  CASE(cdist, cdist(g.t(0), g.t(1), g.d("p", 2)));
  CASE(pdist, pdist(g.t(0), g.d("p", 2)));
  CASE(renorm, renorm(g.t(0), g.d("p"), g.i("dim"), g.d("maxnorm")));
  CASE(cross, cross(g.t(0), g.t(1), g.i("dim")));
  CASE(kron, kron(g.t(0), g.t(1)));
  CASE(inner, inner(g.t(0), g.t(1)));
  CASE(vdot, vdot(g.t(0), g.t(1)));
  CASE(addmv, addmv(g.t(0), g.t(1), g.t(2), g.number("beta", 1), g.number("alpha", 1)));
  CASE(addr, addr(g.t(0), g.t(1), g.t(2), g.number("beta", 1), g.number("alpha", 1)));
  CASE(addbmm, addbmm(g.t(0), g.t(1), g.t(2), g.number("beta", 1), g.number("alpha", 1)));
  CASE(trace, trace(g.t(0)));
  CASE(diag_embed, diag_embed(g.t(0), g.i("offset"), g.i("dim1", -2), g.i("dim2", -1)));
  CASE(diagflat, diagflat(g.t(0), g.i("offset")));
  CASE(block_diag, block_diag(g.rest()));
  t["vander"] = [](const Case& g) -> Ts {
    if (g.has("N")) return {vander(g.t(0), g.i("N"), g.b("increasing"))};
    return {vander(g.t(0))};
  };
  CASE(cartesian_prod, cartesian_prod(g.rest()));
  CASE(combinations, combinations(g.t(0), g.i("r", 2), g.b("with_replacement")));
}

std::optional<int64_t> length_of(const Case& g, const char* key) {
  return g.has(key) ? std::optional<int64_t>(g.i(key)) : std::nullopt;
}
StftOptions stft_options(const Case& g) {
  StftOptions o;
  o.hop_length = length_of(g, "hop_length");
  o.win_length = length_of(g, "win_length");
  o.window = g.t(1);
  o.center = g.b("center", true);
  if (g.has("pad_mode")) o.pad_mode = "constant";
  o.normalized = g.b("normalized");
  o.onesided = g.b("onesided", true);
  return o;
}

void add_transforms(FnTable& t) {
#define ONE(name) \
  CASE(name, fft::name(g.t(0), length_of(g, "n"), g.i("dim", -1), g.s("norm", "backward")))
  ONE(fft);
  ONE(ifft);
  ONE(rfft);
  ONE(irfft);
#undef ONE
#define MANY(name, dims) \
  CASE(name, fft::name(g.t(0), g.list("s"), g.list("dim", IntList dims), g.s("norm", "backward")))
  MANY(fftn, {});
  MANY(ifftn, {});
  MANY(rfftn, {});
  MANY(irfftn, {});
  MANY(fft2, (-2, -1));
  MANY(ifft2, (-2, -1));
  MANY(rfft2, (-2, -1));
  MANY(irfft2, (-2, -1));
#undef MANY
  CASE(fftfreq, fft::fftfreq(g.i("count"), g.d("d")));
  CASE(rfftfreq, fft::rfftfreq(g.i("count"), g.d("d")));
  CASE(fftshift, fft::fftshift(g.t(0), g.list("dim")));
  CASE(ifftshift, fft::ifftshift(g.t(0), g.list("dim")));
#define WINDOW(name) CASE(name, name(g.i("count"), g.b("periodic")))
  WINDOW(hann_window);
  WINDOW(hamming_window);
  WINDOW(blackman_window);
  WINDOW(bartlett_window);
  WINDOW(kaiser_window);
#undef WINDOW
  CASE(stft, stft(g.t(0), g.i("n_fft"), stft_options(g)));
  CASE(istft, istft(g.t(0), g.i("n_fft"), stft_options(g), length_of(g, "length")));
}

}  // namespace

void add_math(FnTable& t) {
  add_transforms(t);
  add_linalg(t);
  add_searching(t);
  add_segments(t);
  add_matrices(t);
}

}  // namespace tandem::golden
