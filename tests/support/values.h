// SPDX-License-Identifier: Apache-2.0
// The values of a tensor as a list, to be compared with others.
#pragma once

#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem {

inline std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }
inline std::vector<double> doubles(const Tensor& t) { return t.to_vector<double>(); }

}  // namespace tandem
