// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the distributions: broadcasting parameters to one shape and dtype, checks.
// Not installed.
#pragma once

#include <initializer_list>

#include "tandem/distributions/distributions.h"

namespace tandem::distributions::detail {

/// Converts numbers and tensors to floating tensors of one shape and dtype.
void broadcast_parameters(std::initializer_list<const Operand*> from,
                          std::initializer_list<Tensor*> to);
/// Throw Value unless all of `ok` is true; unchecked in a trace.
void require(const char* name, const char* what, const Tensor& ok);
/// Derives both forms from one: of events (`binary`), or normalised over the last dimension.
void chances(const char* name, const Chances& p, bool binary, Tensor& probs, Tensor& logits);
/// -(value log p + (1 - value) log(1 - p)) from logits.
Tensor logistic_loss(const Tensor& logits, const Tensor& value);
/// Sums over the last n dimensions.
Tensor sum_last(const Tensor& x, int64_t n);
/// The divergence by a formula of register_kl; false if there is none for this pair.
bool registered_kl(const Distribution& p, const Distribution& q, Tensor& out);

}  // namespace tandem::distributions::detail
