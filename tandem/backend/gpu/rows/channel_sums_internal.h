// SPDX-License-Identifier: Apache-2.0
// Values of each channel from arrays [n, c, ...] in any order of memory: statistics of batch
// normalisation and the sums of its gradients. The grid of threads is that of reductions
// (reduce_text.cpp): neighbouring threads read along the channels, or along the other dimensions.
#pragma once

#include <string>
#include <vector>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/codegen/tile_loop.h"

namespace tandem::gpu {

/// What is computed, as text; "$" stands for the place of one of a group's channels. `ch` is the
/// channel, T the type of sums, v0, v1 the elements of the arrays, a<k>$ states, b<k> those of
/// other elements.
struct ChannelProgram {
  const char* name;
  int states;               ///< that are combined
  const char* locals;       ///< names of further variables: "s$, m$"
  const char* start;        ///< before all elements
  const char* take;         ///< one element
  const char* done;         ///< after the thread's elements
  const char* combine;      ///< b into a
  std::string finish = {};  ///< results of the channel
};

/// How it is cut, by shapes and strides alone but for `aligned`.
struct ChannelCut {
  codegen::TileLoop reduced;  ///< dimensions other than the channels', of each array
  int64_t channels = 0, count = 0;
  int64_t by[2] = {};  ///< strides of the channels
  bool columns = false, aligned = true;
  int group = 1, lanes = 1;
  int64_t pieces = 1;

  ChannelCut(const Array* const* arrays, int n);
  size_t bytes_of_parts(int states, DType sum) const {
    return static_cast<size_t>(states * pieces * channels) * size_of(sum);
  }
};

/// A value that finish or start read or write, by name.
struct ChannelArgument {
  Parameter parameter;
  Address at = 0;
  size_t bytes = 0;
  double value = 0;
};

/// Run it; parts of pieces lie at `parts`.
void run_channels(const KernelCall& c, const ChannelProgram& program, const ChannelCut& cut,
                  const Array* const* arrays, int n, DType sum,
                  const std::vector<ChannelArgument>& others, Address parts, uint64_t variant);

/// A kernel over the elements of arrays that share a shape, or are broadcast to it, in groups where
/// that goes. `body` reads and sets registers that have the arrays' names.
struct MappedArray {
  const char* name;
  const Array* array;
  bool is_result = false;
};
void run_mapped(const KernelCall& c, const char* name, const std::vector<MappedArray>& arrays,
                const std::string& body, const std::vector<ChannelArgument>& values,
                uint64_t variant);

}  // namespace tandem::gpu
