// SPDX-License-Identifier: Apache-2.0
// torch.special: the functions that tandem has under the same names, and the Bessel functions, Airy
// function and orthogonal polynomials, which are only here. The latter are computed in float64 and
// rounded once; integers become float32. All are differentiable.
#pragma once

#include "tandem/ops/aliases.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"

namespace tandem::special {

using tandem::digamma;
using tandem::entr;
using tandem::erf;
using tandem::erfc;
using tandem::erfcx;
using tandem::erfinv;
using tandem::exp2;
using tandem::expm1;
using tandem::gammainc;
using tandem::gammaincc;
using tandem::i0;
using tandem::i0e;
using tandem::i1;
using tandem::i1e;
using tandem::log1p;
using tandem::log_ndtr;
using tandem::log_softmax;
using tandem::logit;
using tandem::logsumexp;
using tandem::multigammaln;
using tandem::ndtr;
using tandem::ndtri;
using tandem::polygamma;
using tandem::round;
using tandem::sinc;
using tandem::softmax;
using tandem::xlog1py;
using tandem::xlogy;
using tandem::zeta;

#define TD_SPECIAL(name) \
  TD_API Tensor name(const Tensor& x, SourceLocation loc = SourceLocation::here());
/// sigmoid, lgamma and digamma under the names of torch.special.
TD_SPECIAL(expit)
TD_SPECIAL(gammaln)
TD_SPECIAL(psi)
/// Bessel functions of the first and second kind, of order 0 and 1. The second kind is -infinity at
/// 0 and NaN below.
TD_SPECIAL(bessel_j0)
TD_SPECIAL(bessel_j1)
TD_SPECIAL(bessel_y0)
TD_SPECIAL(bessel_y1)
/// Modified ones of the first (i0, i1) and second kind; scaled: times exp(x). The second kind is
/// infinity at 0 and NaN below.
TD_SPECIAL(modified_bessel_i0)
TD_SPECIAL(modified_bessel_i1)
TD_SPECIAL(modified_bessel_k0)
TD_SPECIAL(modified_bessel_k1)
TD_SPECIAL(scaled_modified_bessel_k0)
TD_SPECIAL(scaled_modified_bessel_k1)
/// sin(x) / x.
TD_SPECIAL(spherical_bessel_j0)
/// Ai(x).
TD_SPECIAL(airy_ai)
#undef TD_SPECIAL

/// Orthogonal polynomials of degree n, a number or an integer tensor that broadcasts (whose values
/// are read); 0 for a negative degree. Chebyshev's of four kinds, of x and of 2 x - 1; Hermite's (h
/// of physics, he of probability), Laguerre's, Legendre's.
#define TD_SPECIAL(name) \
  TD_API Tensor name(const Tensor& x, Operand n, SourceLocation loc = SourceLocation::here());
TD_SPECIAL(chebyshev_polynomial_t)
TD_SPECIAL(chebyshev_polynomial_u)
TD_SPECIAL(chebyshev_polynomial_v)
TD_SPECIAL(chebyshev_polynomial_w)
TD_SPECIAL(shifted_chebyshev_polynomial_t)
TD_SPECIAL(shifted_chebyshev_polynomial_u)
TD_SPECIAL(shifted_chebyshev_polynomial_v)
TD_SPECIAL(shifted_chebyshev_polynomial_w)
TD_SPECIAL(hermite_polynomial_h)
TD_SPECIAL(hermite_polynomial_he)
TD_SPECIAL(laguerre_polynomial_l)
TD_SPECIAL(legendre_polynomial_p)
#undef TD_SPECIAL

}  // namespace tandem::special
