// SPDX-License-Identifier: Apache-2.0
// What the rows of a network mean for its codes. One table; rows that it does not name compute in
// floating point.
#pragma once

#include "tandem/quant/network.h"

namespace tandem::quant {

enum class Role : uint8_t {
  other,    ///< computes in floating point
  sums,     ///< of few codes, or means of many: add, cat, pooling by means
  passes,   ///< its results are some of its operand's elements: codes pass unchanged
  follows,  ///< computed where the result before it is: activations, an added constant
};
TD_API Role role_of(const Network& net, const Node& n);
/// Whether the row has operands x, weight, bias?, and `axis`, the dimension of its outputs in a
/// weight of `shape`.
TD_API bool has_weight(const Node& n, const Shape& shape, int& axis);
/// Whether it multiplies rows, the last dimension of x, by its weight: a linear layer.
TD_API bool multiplies_rows(const Layer& layer);
/// The dimension of its result that belongs to the weight's `axis`.
TD_API int result_axis(const Layer& layer);

}  // namespace tandem::quant
