// SPDX-License-Identifier: Apache-2.0
// Draws whose distribution depends on a tensor: gamma (with its derivative), Poisson, binomial.
// Element e uses the draws philox(seed, {offset, 0, 1, ...; e}), computed in f64 and rounded once.
#pragma once

#include "tandem/graph/apply.h"

namespace tandem {

/// Gamma variables with shape parameter `concentration` and rate 1 (Marsaglia and Tsang, "A simple
/// method for generating gamma variables", 2000). Differentiable once, by the implicit derivative
/// of M. Figurnov et al., "Implicit reparameterization gradients", 2018. Throws Value unless
/// positive.
TD_API Tensor sample_gamma(const Tensor& concentration,
                           SourceLocation loc = SourceLocation::here());
/// Number of events at mean `rate` (torch.poisson), in rate's dtype. Throws Value if negative.
TD_API Tensor poisson(const Tensor& rate, SourceLocation loc = SourceLocation::here());
/// Number of successes in `count` trials (torch.binomial), in prob's dtype; shapes must be equal.
/// Throws Value unless count >= 0 and 0 <= prob <= 1.
TD_API Tensor binomial(const Tensor& count, const Tensor& prob,
                       SourceLocation loc = SourceLocation::here());

// ---- rows
namespace op {
extern TD_API const OpDef sample_gamma, sample_gamma_backward, poisson, binomial;
}
/// The rows of this family.
TD_API std::span<const OpDef* const> sampling_rows();

}  // namespace tandem
