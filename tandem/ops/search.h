// SPDX-License-Identifier: Apache-2.0
// Searching in sorted values, sets, equality of whole tensors. PyTorch's names and defaults. Those
// whose result is as large as the values say (unique) read them, and throw Unsupported in a trace.
#pragma once

#include <optional>

#include "tandem/graph/apply.h"

namespace tandem {

/// For each value the position in sorted_sequence at which it keeps the order: before equal ones,
/// or after them if `right`. The sequence is a vector, or has the leading dimensions of `values`
/// (throws Shape). int64, or int32 with out_int32. NaN goes behind everything.
TD_API Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values,
                           bool out_int32 = false, bool right = false, Where where = Where::here());
/// searchsorted with the boundaries second: the bucket of each value of x.
TD_API Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool out_int32 = false,
                        bool right = false, Where where = Where::here());

struct UniqueResult {
  Tensor output;   ///< the different values (slices), in order of value or of appearance
  Tensor inverse;  ///< where each element of x is in `output` (int64)
  Tensor counts;   ///< how often each occurs (int64)
};
/// The different values of x as a vector in rising order, or the different slices along `dim` in
/// lexical order. A gradient goes to the first of equal ones. NaNs are all different.
TD_API UniqueResult unique(const Tensor& x, std::optional<int64_t> dim = {},
                           Where where = Where::here());
/// The same for runs of equal neighbours, in order of appearance.
TD_API UniqueResult unique_consecutive(const Tensor& x, std::optional<int64_t> dim = {},
                                       Where where = Where::here());
/// Is each element (not, with invert) among test_elements?
TD_API Tensor isin(const Tensor& elements, const Tensor& test_elements, bool invert = false,
                   Where where = Where::here());

/// Is every pair close: |a - b| <= atol + rtol |b|? Reads values.
TD_API bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                     bool equal_nan = false, Where where = Where::here());
/// Same shape and values? Reads values.
TD_API bool equal(const Tensor& a, const Tensor& b, Where where = Where::here());

// ---- rows
struct SearchAttrs {
  bool right = false, out_int32 = false;
  template <class V>
  void fields(V& v) {
    v("right", right);
    v("out_int32", out_int32);
  }
};
namespace op {
extern TD_API const OpDef searchsorted;
}
/// The rows of this family.
TD_API std::span<const OpDef* const> search_rows();

}  // namespace tandem
