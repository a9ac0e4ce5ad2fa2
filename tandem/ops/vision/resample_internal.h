// SPDX-License-Identifier: Apache-2.0
// Shared by the rows of resample.h and their loops: the weights of one resized dimension, and the
// loops of grid_sample. Used by resample.cpp, its references and the CPU kernels.
#pragma once

#include <vector>

#include "tandem/graph/kernel.h"
#include "tandem/ops/vision/resample.h"

namespace tandem::detail {

/// A linear map of one dimension, by rows: output o is the sum of weight[k] * input[at[k]] for k in
/// first[o] .. first[o + 1] - 1.
struct AxisMap {
  std::vector<int64_t> first, at;
  std::vector<double> weight;
  int64_t in = 0, out = 0;
  bool identity() const;
  AxisMap transposed() const;
};

/// The map of spatial dimension i from size `in` to size `out`.
TD_API AxisMap axis_map(const ResampleAttrs& a, int i, int64_t in, int64_t out);
/// The maps of a call of interpolate or interpolate_backward (transposed).
TD_API std::vector<AxisMap> axis_maps(const KernelCall& c);

void interpolate_reference(const KernelCall& c);
void grid_sample_reference(const KernelCall& c);
void grid_sample_backward_input_reference(const KernelCall& c);
TD_API void grid_sample_backward_grid_loops(const KernelCall& c);

}  // namespace tandem::detail
