// SPDX-License-Identifier: Apache-2.0
// The golden cases' names of make_golden_names.py -> Tandem's functions.
#include <optional>

#include "tandem/ops/ops.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {
namespace {

std::vector<int64_t> numbers_of(const Case& g, const char* key) {
  const IntList list = g.list(key);
  return list.to_vector();
}
std::optional<int64_t> maybe(const Case& g, const char* key) {
  const io::Json* v = g.attr(key);
  return v && v->as_int() ? std::optional<int64_t>(*v->as_int()) : std::nullopt;
}
bool is_list(const Case& g, const char* key) { return g.attr(key)->as_array() != nullptr; }

// A number of sections, or indices.
template <class One, class Many>
Ts parts(const Case& g, One&& one, Many&& many) {
  const char* key = "indices_or_sections";
  if (is_list(g, key)) return many(numbers_of(g, key));
  return one(g.i(key));
}

Reduction named_reduction(const Case& g) {
  const std::string s = g.s("reduction", "mean");
  return s == "sum" ? Reduction::sum : s == "none" ? Reduction::none : Reduction::mean;
}

// ---- shapes

void add_shapes(FnTable& t) {
#define LIST_OR_ONE(name)                  \
  t[#name] = [](const Case& g) -> Ts {     \
    if (g.n() == 1) return {name(g.t(0))}; \
    return name(g.rest());                 \
  }
  LIST_OR_ONE(atleast_1d);
  LIST_OR_ONE(atleast_2d);
  LIST_OR_ONE(atleast_3d);
#undef LIST_OR_ONE
  CASE(hstack, hstack(g.rest()));
  CASE(vstack, vstack(g.rest()));
  CASE(dstack, dstack(g.rest()));
  CASE(column_stack, column_stack(g.rest()));
  CASE(row_stack, row_stack(g.rest()));
  CASE(concatenate, concatenate(g.rest(), g.i("dim")));
#define SPLIT(name, ...)                                                               \
  t[#name] = [](const Case& g) {                                                       \
    return parts(                                                                      \
        g, [&](int64_t n) { return name(g.t(0), n __VA_ARGS__); },                     \
        [&](const std::vector<int64_t>& at) { return name(g.t(0), at __VA_ARGS__); }); \
  }
  SPLIT(tensor_split, , g.i("dim"));
  SPLIT(hsplit);
  SPLIT(vsplit);
  SPLIT(dsplit);
#undef SPLIT
  CASE(ravel, ravel(g.t(0)));
  CASE(fliplr, fliplr(g.t(0)));
  CASE(flipud, g.t(0).flipud());
  CASE(adjoint, g.t(0).adjoint());
  CASE(moveaxis, moveaxis(g.t(0), g.list("source"), g.list("destination")));
  CASE(swapaxes, swapaxes(g.t(0), g.i("dim0"), g.i("dim1")));
  CASE(swapdims, g.t(0).swapdims(g.i("dim0"), g.i("dim1")));
  CASE(narrow_copy, narrow_copy(g.t(0), g.i("dim"), g.i("start"), g.i("length")));
  t["method.reshape_as"] = [](const Case& g) -> Ts { return {g.t(0).reshape_as(g.t(1))}; };
  t["method.sum_to_size"] = [](const Case& g) -> Ts {
    return {g.t(0).sum_to_size(g.list("size"))};
  };
  CASE(as_strided, as_strided(g.t(0), g.list("size"), g.list("stride"), g.i("storage_offset")));
  CASE(as_strided_scatter,
       as_strided_scatter(g.t(0), g.t(1), g.list("size"), g.list("stride"), g.i("storage_offset")));
  CASE(slice_scatter, slice_scatter(g.t(0), g.t(1), g.i("dim"), maybe(g, "start"), maybe(g, "end"),
                                    g.i("step", 1)));
  CASE(select_scatter, select_scatter(g.t(0), g.t(1), g.i("dim"), g.i("index")));
  CASE(diagonal_scatter,
       diagonal_scatter(g.t(0), g.t(1), g.i("offset"), g.i("dim1", 0), g.i("dim2", 1)));
  CASE(argwhere, argwhere(g.t(0)));
  CASE(nonzero_static, nonzero_static(g.t(0), g.i("size"), g.i("fill_value", -1)));
  t["unravel_index"] = [](const Case& g) { return unravel_index(g.t(0), g.list("shape")); };
}

// ---- elements

void add_elements(FnTable& t) {
  CASE(gcd, gcd(g.at(0), g.at(1)));
  CASE(lcm, lcm(g.at(0), g.at(1)));
  CASE(nextafter, nextafter(g.at(0), g.at(1)));
  t["frexp"] = [](const Case& g) { return all_of(frexp(g.t(0))); };
  CASE(ldexp, ldexp(g.at(0), g.at(1)));
  CASE(float_power, float_power(g.at(0), g.at(1)));
  CASE(angle, angle(g.t(0)));
  CASE(isreal, isreal(g.t(0)));
  CASE(sgn, sgn(g.t(0)));
  CASE(positive, positive(g.t(0)));
  CASE(dist, dist(g.t(0), g.t(1), g.d("p", 2)));
  CASE(absolute, absolute(g.t(0)));
  CASE(arccos, arccos(g.t(0)));
  CASE(arccosh, arccosh(g.t(0)));
  CASE(arcsin, arcsin(g.t(0)));
  CASE(arcsinh, arcsinh(g.t(0)));
  CASE(arctan, arctan(g.t(0)));
  CASE(arctanh, arctanh(g.t(0)));
  CASE(fix, fix(g.t(0)));
  CASE(negative, negative(g.t(0)));
  CASE(arctan2, arctan2(g.at(0), g.at(1)));
  CASE(divide, divide(g.at(0), g.at(1)));
  CASE(multiply, g.t(0).multiply(g.at(1)));
  CASE(subtract, g.t(0).subtract(g.at(1)));
  CASE(greater, greater(g.at(0), g.at(1)));
  CASE(greater_equal, greater_equal(g.at(0), g.at(1)));
  CASE(less, g.t(0).less(g.at(1)));
  CASE(less_equal, less_equal(g.at(0), g.at(1)));
  CASE(not_equal, not_equal(g.at(0), g.at(1)));
  CASE(clip, clip(g.t(0), g.d("min"), g.d("max")));
  CASE(ger, ger(g.t(0), g.t(1)));
}

// ---- sums and differences

void add_sums(FnTable& t) {
#define AT_OR_APART(name)                                          \
  t[#name] = [](const Case& g) -> Ts {                             \
    if (g.n() == 2) return {name(g.t(0), g.t(1), g.i("dim", -1))}; \
    return {name(g.t(0), g.d("dx", 1), g.i("dim", -1))};           \
  }
  AT_OR_APART(trapezoid);
  AT_OR_APART(cumulative_trapezoid);
  AT_OR_APART(trapz);
#undef AT_OR_APART
  t["gradient"] = [](const Case& g) {
    return gradient(g.t(0), g.d("spacing", 1), g.has("dim") ? IntList(g.i("dim")) : IntList(),
                    g.i("edge_order", 1));
  };
  t["gradient_at"] = [](const Case& g) {
    return gradient(g.t(0), g.rest(1), {}, g.i("edge_order", 1));
  };
  t["histogramdd"] = [](const Case& g) {
    std::vector<double> range;
    if (g.has("range")) range = {-1, 1, -2, 0.5};
    const HistogramddResult r = histogramdd(g.t(0), g.list("bins"), range, g.t(1), g.b("density"));
    Ts out{r.hist};
    for (const Tensor& e : r.bin_edges) out.push_back(e);
    return out;
  };
}

// ---- linear algebra and transforms

void add_decompositions(FnTable& t) {
  t["linalg.cholesky_ex"] = [](const Case& g) {
    return all_of(linalg::cholesky_ex(g.t(0), g.b("upper")));
  };
  CASE(cholesky_info, linalg::cholesky_ex(g.t(0)).info);
  t["linalg.inv_ex"] = [](const Case& g) { return all_of(linalg::inv_ex(g.t(0))); };
  CASE(inv_info, linalg::inv_ex(g.t(0)).info);
  t["linalg.solve_ex"] = [](const Case& g) { return all_of(linalg::solve_ex(g.t(0), g.t(1))); };
  t["linalg.lu_factor_ex"] = [](const Case& g) { return all_of(linalg::lu_factor_ex(g.t(0))); };
  CASE(lu_info, linalg::lu_factor_ex(g.t(0)).info);
  t["linalg.ldl_factor"] = [](const Case& g) { return all_of(linalg::ldl_factor(g.t(0))); };
  CASE(ldl_info, linalg::ldl_factor_ex(g.t(0)).info);
  t["ldl_solve_of"] = [](const Case& g) -> Ts {
    const auto r = linalg::ldl_factor(g.t(0));
    return {linalg::ldl_solve(r.LD, r.pivots, g.t(1))};
  };
  CASE(ldl_solve, linalg::ldl_solve(g.t(0), g.t(1), g.t(2)));
  t["geqrf"] = [](const Case& g) { return all_of(geqrf(g.t(0))); };
  t["linalg.householder_product"] = [](const Case& g) -> Ts {
    return {linalg::householder_product(g.t(0), g.t(1))};
  };
  CASE(orgqr, g.t(0).orgqr(g.t(1)));
  CASE(ormqr, ormqr(g.t(0), g.t(1), g.t(2), g.b("left"), g.b("transpose")));
  t["linalg.matrix_sqrth"] = [](const Case& g) -> Ts { return {linalg::matrix_sqrth(g.t(0))}; };
  t["linalg.polar"] = [](const Case& g) { return all_of(linalg::polar(g.t(0))); };
  t["lu_unpack"] = [](const Case& g) { return all_of(lu_unpack(g.t(0), g.t(1))); };
  t["triangular_solve"] = [](const Case& g) {
    return all_of(triangular_solve(g.t(0), g.t(1), g.b("upper"), g.b("transpose")));
  };
  CASE(eigh_top, lobpcg(g.t(0), g.i("k"), {}, g.b("largest")).eigenvalues);
}

void add_linear(FnTable& t) {
  t["linalg.tensorinv"] = [](const Case& g) -> Ts {
    return {linalg::tensorinv(g.t(0), g.i("ind"))};
  };
  t["linalg.tensorsolve"] = [](const Case& g) -> Ts {
    return {linalg::tensorsolve(g.t(0), g.t(1), g.list("dims"))};
  };
  t["linalg.cross"] = [](const Case& g) -> Ts {
    return {linalg::cross(g.t(0), g.t(1), g.i("dim", -1))};
  };
  t["linalg.diagonal"] = [](const Case& g) -> Ts {
    return {linalg::diagonal(g.t(0), g.i("offset"))};
  };
  t["linalg.vander"] = [](const Case& g) -> Ts { return {linalg::vander(g.t(0), maybe(g, "N"))}; };
  t["linalg.vecdot"] = [](const Case& g) -> Ts { return {linalg::vecdot(g.t(0), g.t(1))}; };
  CASE(lu_solve_of, lu_solve(g.t(0), g.t(1), g.t(2)));
  CASE(inverse, inverse(g.t(0)));
  CASE(pinverse, g.t(0).pinverse());
  CASE(chain_matmul, chain_matmul(g.rest()));
#define FFT(name)                                                                       \
  t["fft." #name] = [](const Case& g) -> Ts {                                           \
    return {fft::name(g.t(0), maybe(g, "n"), g.i("dim", -1), g.s("norm", "backward"))}; \
  }
#define FFTN(name)                                               \
  t["fft." #name] = [](const Case& g) -> Ts {                    \
    return {fft::name(g.t(0), {}, {}, g.s("norm", "backward"))}; \
  }
  FFT(hfft);
  FFT(ihfft);
  FFTN(hfftn);
  FFTN(ihfftn);
#undef FFT
#undef FFTN
  t["fft.hfft2"] = [](const Case& g) -> Ts { return {fft::hfft2(g.t(0))}; };
  t["fft.ihfft2"] = [](const Case& g) -> Ts { return {fft::ihfft2(g.t(0))}; };
}

// ---- torch.nn.functional

void add_functional(FnTable& t) {
  t["F.embedding_bag"] = [](const Case& g) -> Ts {
    EmbeddingBagArguments a;
    const std::string mode = g.s("mode");
    a.mode = mode;
    a.offsets = g.t(2);
    a.include_last_offset = g.b("include_last_offset");
    a.padding_idx = maybe(g, "padding_idx");
    return {embedding_bag(g.t(0), g.t(1), a)};
  };
  t["F.embedding_bag_weighted"] = [](const Case& g) -> Ts {
    return {embedding_bag(g.t(0), g.t(1), {.mode = "sum", .per_sample_weights = g.t(2)})};
  };
  t["F.linear_cross_entropy"] = [](const Case& g) -> Ts {
    return {linear_cross_entropy(g.t(0), g.t(1), g.t(2),
                                 {.linear_bias = g.t(3),
                                  .reduction = named_reduction(g),
                                  .ignore_index = g.i("ignore_index", -100),
                                  .label_smoothing = g.d("label_smoothing")})};
  };
  t["F.conv_tbc"] = [](const Case& g) -> Ts {
    return {conv_tbc(g.t(0), g.t(1), g.t(2), g.i("pad"))};
  };
  t["F.unfold"] = [](const Case& g) -> Ts {
    return {unfold(g.t(0), g.list("kernel_size"), {1}, g.list("padding"), g.list("stride"))};
  };
  t["F.upsample_bilinear"] = [](const Case& g) -> Ts {
    return {upsample_bilinear(g.t(0), {}, factor_of(g, "scale_factor"))};
  };
  t["F.upsample_nearest"] = [](const Case& g) -> Ts {
    return {upsample_nearest(g.t(0), g.list("size"))};
  };
  t["F.fractional_max_pool3d"] = [](const Case& g) {
    return all_of(fractional_max_pool3d_with_indices(
        g.t(0), g.list("kernel_size"),
        {.output_size = g.list("output_size"), .random_samples = g.t(1)}));
  };
  t["F.rrelu"] = [](const Case& g) -> Ts { return {rrelu(g.t(0))}; };
  t["F.alpha_dropout"] = [](const Case& g) -> Ts { return {alpha_dropout(g.t(0))}; };
  t["F.dropout2d"] = [](const Case& g) -> Ts { return {dropout2d(g.t(0), 0.5, false)}; };
}

// ---- torch.special

void add_special(FnTable& t) {
#define OF_X(name) t["special." #name] = [](const Case& g) -> Ts { return {special::name(g.t(0))}; }
  OF_X(expit);
  OF_X(gammaln);
  OF_X(psi);
  OF_X(bessel_j0);
  OF_X(bessel_j1);
  OF_X(bessel_y0);
  OF_X(bessel_y1);
  OF_X(modified_bessel_i0);
  OF_X(modified_bessel_i1);
  OF_X(modified_bessel_k0);
  OF_X(modified_bessel_k1);
  OF_X(scaled_modified_bessel_k0);
  OF_X(scaled_modified_bessel_k1);
  OF_X(spherical_bessel_j0);
  OF_X(airy_ai);
#undef OF_X
#define OF_DEGREE(name)                                                       \
  t["special." #name] = [](const Case& g) -> Ts {                             \
    return {special::name(g.t(0), g.has("n") ? Operand(g.i("n")) : g.at(1))}; \
  }
  OF_DEGREE(chebyshev_polynomial_t);
  OF_DEGREE(chebyshev_polynomial_u);
  OF_DEGREE(chebyshev_polynomial_v);
  OF_DEGREE(chebyshev_polynomial_w);
  OF_DEGREE(shifted_chebyshev_polynomial_t);
  OF_DEGREE(shifted_chebyshev_polynomial_u);
  OF_DEGREE(shifted_chebyshev_polynomial_v);
  OF_DEGREE(shifted_chebyshev_polynomial_w);
  OF_DEGREE(hermite_polynomial_h);
  OF_DEGREE(hermite_polynomial_he);
  OF_DEGREE(laguerre_polynomial_l);
  OF_DEGREE(legendre_polynomial_p);
#undef OF_DEGREE
}

}  // namespace

void add_names(FnTable& t) {
  add_shapes(t);
  add_elements(t);
  add_sums(t);
  add_decompositions(t);
  add_linear(t);
  add_functional(t);
  add_special(t);
}

}  // namespace tandem::golden
