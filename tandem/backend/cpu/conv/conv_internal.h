// SPDX-License-Identifier: Apache-2.0
// The sizes of one convolution, for each of its three rows, and the patches of channels-last input
// that turn it into a matmul.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem {
struct ConvAttrs;
}

namespace tandem::detail {

struct ConvSizes {
  struct Axis {
    int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
    /// Outputs [first, last) whose input under tap k is inside.
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
  /// Elements of a patch: taps * channels of a group, taps outermost.
  int64_t patch() const { return taps * group_in(); }
};

/// Columns m0..m0+width-1 of the patches of pixels p0..p1-1 (counted over all samples) of x, which
/// is channels-last f32, for `group`: to[(p - p0) * to_row + m - m0]. Elements outside x are zero.
void gather_patches(const ConvSizes& s, const float* x, int64_t group, int64_t p0, int64_t p1,
                    int64_t m0, int64_t width, float* to, int64_t to_row);
/// The inverse for one sample: adds patches of pixels p0..p1-1 of sample n to gx.
void scatter_patches(const ConvSizes& s, const float* from, int64_t from_row, int64_t group,
                     int64_t p0, int64_t p1, float* gx);

/// Where in scratch an activation is converted to channels-last, unless it already is.
struct ConvActivation {
  bool copy = false;
  size_t offset = 0;
};
struct ConvPlan : Plan {
  ConvActivation first, second;
  size_t weight = 0, parts_at = 0, workers_at = 0, worker_bytes = 0;
  int64_t parts = 1, columns = 0;  ///< for the derivative with respect to the weight
  int workers = 1;

  ConvActivation activation(const Array& a);
  size_t take(size_t bytes);
};
/// An f32 call without empty arrays and with a dense bias: what the own kernels support.
bool conv_supports_f32(const KernelCall& c);
/// The same for arrays of f32, f16 and bf16.
bool conv_supports_floats(const KernelCall& c);
/// Channels-last strides of output 0.
bool conv_layout(const KernelCall& c, int output, Strides& s);
/// The size of `n` f32, in whole cache lines.
size_t conv_bytes(int64_t elements);
char* conv_scratch(const KernelCall& c, size_t at);
/// Input i channels-last, in its own dtype; the second is for f32.
const void* conv_read_any(const KernelCall& c, int i, const ConvActivation& a);
inline const float* conv_read(const KernelCall& c, int i, const ConvActivation& a) {
  return static_cast<const float*>(conv_read_any(c, i, a));
}
/// Where output 0 is written channels-last, and how it then gets to its place.
void* conv_written_any(const KernelCall& c, const ConvActivation& a);
inline float* conv_written(const KernelCall& c, const ConvActivation& a) {
  return static_cast<float*>(conv_written_any(c, a));
}
void conv_store(const KernelCall& c, const ConvActivation& a);
/// w [o, i, ...k] as [o][tap][i].
void conv_pack_weight(const Array& w, float* to);
/// gw[o][i][tap] = sum over parts, in order, of partial[part][o][tap][i] for o in [first, last);
/// `row` has room for a row of w and 16 more. Leaves the sums in partial[0].
void add_weight_parts(const ConvSizes& s, float* partial, int64_t parts, float* row, int64_t first,
                      int64_t last, float* gw);

/// The own kernel of conv_backward_weight (f32); prepare returns nothing for other dtypes.
std::shared_ptr<const Plan> own_conv_backward_weight_prepare(const KernelCall& c);
void own_conv_backward_weight_run(const KernelCall& c);

}  // namespace tandem::detail
