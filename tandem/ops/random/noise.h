// SPDX-License-Identifier: Apache-2.0
// Random functions of torch.nn.functional beside dropout: they drop channels, keep mean and
// variance, draw factors or samples. Outside training each is a fixed function.
#pragma once

#include "tandem/graph/apply.h"

namespace tandem {

/// Whole channels of x [n, c, l] or [c, l] (1d), [n, c, h, w] or [c, h, w] (2d), [n, c, d, h, w] or
/// [c, d, h, w] (3d) are zero with probability p, the others divided by 1 - p. Throws Value for p
/// outside 0..1, Shape for another number of dimensions.
TD_API Tensor dropout1d(Tensor x, double p = 0.5, bool training = true,
                        SourceLocation loc = SourceLocation::here());
TD_API Tensor dropout2d(Tensor x, double p = 0.5, bool training = true,
                        SourceLocation loc = SourceLocation::here());
TD_API Tensor dropout3d(Tensor x, double p = 0.5, bool training = true,
                        SourceLocation loc = SourceLocation::here());
/// Dropped elements become SELU's lower limit, and the result is scaled so that mean and variance
/// are kept (Klambauer et al. 2017).
TD_API Tensor alpha_dropout(Tensor x, double p = 0.5, bool training = false,
                            SourceLocation loc = SourceLocation::here());
/// The same for whole channels of [n, c, ...].
TD_API Tensor feature_alpha_dropout(Tensor x, double p = 0.5, bool training = false,
                                    SourceLocation loc = SourceLocation::here());
/// x where positive, else a factor times x, drawn per element from lower..upper in training,
/// else their mean.
TD_API Tensor rrelu(Tensor x, double lower = 1.0 / 8, double upper = 1.0 / 3, bool training = false,
                    SourceLocation loc = SourceLocation::here());
/// A draw of the Gumbel-softmax distribution with temperature tau along `dim` (Jang et al. 2017,
/// Maddison et al. 2017); `hard`: one-hot, with the gradient of the soft draw. `eps` has no effect,
/// as in PyTorch.
TD_API Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false,
                             double eps = 1e-10, int64_t dim = -1,
                             SourceLocation loc = SourceLocation::here());
/// Integers in [low, high) in x's shape, and by default its dtype.
TD_API Tensor randint_like(const Tensor& x, int64_t low, int64_t high,
                           SourceLocation loc = SourceLocation::here());
TD_API Tensor randint_like(const Tensor& x, int64_t high,
                           SourceLocation loc = SourceLocation::here());

}  // namespace tandem
