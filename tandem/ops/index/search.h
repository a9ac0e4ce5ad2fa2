// SPDX-License-Identifier: Apache-2.0
// Searching in sorted values, sets, equality of tensors. PyTorch's names and defaults. Where the
// result's size depends on values (unique) they are read: Unsupported in a trace.
#pragma once

#include <optional>

#include "tandem/graph/apply.h"

namespace tandem {

/// For each value the position in sorted_sequence at which inserting it keeps the order: before
/// equal ones, or after them if `right`. The sequence is a vector, or has the leading dimensions of
/// `values` (throws Shape). int64, or int32 with out_int32. NaN goes after everything.
TD_API Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values,
                           bool out_int32 = false, bool right = false,
                           SourceLocation loc = SourceLocation::here());
/// searchsorted with the boundaries as second argument: the bucket of each value of x.
TD_API Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool out_int32 = false,
                        bool right = false, SourceLocation loc = SourceLocation::here());

/// The distinct values of x as a sorted vector, or the distinct slices along `dim` in lexical
/// order; with the index of each element of x among them, and how often each occurs (i64).
/// Gradients go to the first of equal ones. NaNs are all distinct.
TD_API UniqueResult unique(const Tensor& x, std::optional<int64_t> dim = {},
                           SourceLocation loc = SourceLocation::here());
/// The same for runs of equal adjacent elements, in order of appearance.
TD_API UniqueResult unique_consecutive(const Tensor& x, std::optional<int64_t> dim = {},
                                       SourceLocation loc = SourceLocation::here());
/// Whether each element is (is not, with invert) among test_elements.
TD_API Tensor isin(const Tensor& elements, const Tensor& test_elements, bool invert = false,
                   SourceLocation loc = SourceLocation::here());

/// Whether |a - b| <= atol + rtol |b| for every pair. Reads values.
TD_API bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                     bool equal_nan = false, SourceLocation loc = SourceLocation::here());
/// Whether shapes and values are equal. Reads values.
TD_API bool equal(const Tensor& a, const Tensor& b, SourceLocation loc = SourceLocation::here());

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
