// SPDX-License-Identifier: Apache-2.0
// How long a GPU's library takes for a matmul of a given shape: tiles, waves of them over the
// multiprocessors, and writing the result. Not installed.
#pragma once

#include <functional>
#include <optional>

#include "tandem/plan/workload.h"

namespace tandem::plan {

/// `batch` results of [m, n], each a sum over k.
struct MatmulShape {
  double batch = 1, m = 1, n = 1, k = 1;
};
/// The matmul that a kernel is, by its FLOPs and sizes; of a convolution the one that it is
/// computed as. None where its sizes are not those of a matmul.
std::optional<MatmulShape> matmul_shape(const Work& w);

/// What one of `ways` GPUs that share each layer computes: of attention's matmuls its heads, of a
/// layer's the larger dimension of its weights (Shoeybi et al. 2019), which `parameter` knows by
/// their elements.
MatmulShape matmul_slice(MatmulShape s, const Work& w, int ways,
                         const std::function<bool(double)>& parameter);

/// What the shape is spread over.
struct MatmulRates {
  double flops = 0;   ///< a second, of all multiprocessors with full tiles
  double narrow = 0;  ///< the same in 16 bits, to which the second-level cache is made
  double bytes = 0;   ///< a second, to memory
  int processors = 1;
  double width = 2;  ///< bytes of an element
};
double matmul_seconds(const MatmulShape& s, const MatmulRates& r);

}  // namespace tandem::plan
