// SPDX-License-Identifier: Apache-2.0
// Models as source text for devices without an operating system: one C99 file and its header, with
// no dependency but <stdint.h>, no allocation and no input or output. Weights are constant arrays,
// loops have constant bounds, and everything that is computed lies in one arena whose size is a
// constant of the header. `tandem compile` calls this. docs/edge.md shows the whole way.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tandem/base/export.h"
#include "tandem/base/function_ref.h"
#include "tandem/graph/spec.h"
#include "tandem/tensor/tensor.h"

namespace tandem::edge {

/// An input or output by its name; sizes are numbers.
struct EdgePort {
  std::string name;
  Spec spec;
};

struct EdgeOptions {
  /// What the C names begin with; also the name of the header that the source includes.
  std::string name = "net";
};

/// What was written.
struct EdgeSource {
  std::string source, header;  ///< the text of NAME.c and NAME.h
  std::vector<EdgePort> inputs, outputs;
  size_t arena_bytes = 0;
  size_t lower_bound = 0;  ///< most bytes that one step needs alive at once: no plan is smaller
  size_t weight_bytes = 0;
  size_t steps = 0, functions = 0;  ///< calls in NAME_run(), and different functions among them
};

/// Runs the model once on symbolic tensors of the inputs' shapes and dtypes.
using EdgeForward = FunctionRef<std::vector<Tensor>(std::span<const Tensor>)>;

/// The model as C99. Batch norms are folded into convolutions, constants are computed, pointwise
/// ops become one loop. Pointwise ops, pooling by maxima and moves of elements give the bits of
/// eager code; sums run in the order of the loops, so matmuls, convolutions and means may differ
/// from it in the last bits. Missing output names become output0, output1 ... Throws Unsupported,
/// naming every op that has no C form and how often it stands in the model, where there is one;
/// Shape for a tensor of 2^31 elements or more; Value for a name that is not a C identifier.
TD_API EdgeSource write_c99(EdgeForward forward, std::span<const EdgePort> inputs,
                            std::span<const std::string> output_names,
                            const EdgeOptions& options = {});

}  // namespace tandem::edge
