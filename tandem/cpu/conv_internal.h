// SPDX-License-Identifier: Apache-2.0
// One convolution as sizes, whichever of its three rows a call is, and the patches of channels-last
// input that make it a matrix product.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem {
struct ConvAttrs;
}

namespace tandem::detail {

struct ConvSizes {
  struct Axis {
    int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
    /// Outputs [first, last) whose input under tap k lies inside.
    void inside(int64_t k, int64_t& first, int64_t& last) const;
    int64_t at(int64_t o, int64_t k) const { return o * stride - padding + k * dilation; }
  };
  Axis axis[3];
  int64_t n = 0, c = 0, o = 0, groups = 1;
  int64_t taps = 1;    ///< kernel positions
  int64_t pixels = 1;  ///< outputs of one sample
  int64_t in_pixels = 1;

  ConvSizes(const ConvAttrs& a, const Array& x, const Array& w, const Array& y);
  int64_t group_in() const { return c / groups; }
  int64_t group_out() const { return o / groups; }
  /// Elements of a patch: taps * channels of a group, the tap outermost.
  int64_t patch() const { return taps * group_in(); }
};

/// Columns m0..m0+width-1 of the patches of pixels p0..p1-1 (counted over all samples) of x, which
/// is channels-last f32, for `group`: to[(p - p0) * to_row + m - m0]. What lies outside x is zero.
void gather_patches(const ConvSizes& s, const float* x, int64_t group, int64_t p0, int64_t p1,
                    int64_t m0, int64_t width, float* to, int64_t to_row);
/// The opposite for one sample: adds patches of pixels p0..p1-1 of sample n to gx.
void scatter_patches(const ConvSizes& s, const float* from, int64_t from_row, int64_t group,
                     int64_t p0, int64_t p1, float* gx);

/// The own kernel of conv_backward_weight (f32); prepare gives nothing for other dtypes.
std::shared_ptr<const Plan> own_conv_backward_weight_prepare(const KernelCall& c);
void own_conv_backward_weight_run(const KernelCall& c);

}  // namespace tandem::detail
