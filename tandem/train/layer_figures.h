// SPDX-License-Identifier: Apache-2.0
// Inspects every layer of a model during one step: shapes, parameters, time, FLOP, and statistics
// of activations, weights and gradients, with dead units. For any loop; the model is left
// unchanged.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/io/json.h"
#include "tandem/nn/module.h"

namespace tandem::train {

/// Of all elements of one or several tensors.
struct ValueFigures {
  int64_t count = 0;
  double mean = 0, deviation = 0, low = 0, high = 0, rms = 0;  ///< of the finite ones
  double zeros = 0;                                            ///< share, 0 .. 1
  int64_t nonfinite = 0;
};
TD_API ValueFigures value_figures(const std::vector<Tensor>& values);

/// One module; the root's path is "".
struct LayerFigures {
  std::string path, type;
  int64_t depth = 0;                   ///< dots in the path, and one
  int64_t parameters = 0;              ///< its own, without those of the layers inside
  int64_t trainable = 0, buffers = 0;  ///< of its own, elements
  bool called = false;                 ///< through operator() on one tensor
  Shape output;                        ///< of its last call
  double seconds = 0, flops = 0;       ///< of the ops in its own scope, forward and backward
  ValueFigures activation;             ///< of its output
  ValueFigures weight, gradient;       ///< of its own parameters
};
/// An op whose result has zeros: a rectifier, in most nets.
struct RectifierFigures {
  std::string layer, op;   ///< where it ran and what it is
  double zeros = 0;        ///< share of all elements
  int64_t units = 0;       ///< size of dimension 1
  int64_t dead_units = 0;  ///< that were 0 for every sample of the batch
};
struct ModelFigures {
  std::vector<LayerFigures> layers;
  std::vector<RectifierFigures> rectifiers;
  int64_t parameters = 0, trainable = 0, buffers = 0;  ///< elements; tied ones once
  int64_t bytes = 0;
  double gradient_norm = 0;
};

struct LayerFiguresOptions {
  bool gradients = true;   ///< call backward() on what `run` gives
  bool statistics = true;  ///< false: shapes, parameters and time only
};
/// `run` makes the loss of a batch, or, without gradients, anything. It runs op by op in evaluation
/// mode, so that neither dropout nor running statistics take part, and draws no random numbers that
/// the run would miss. The gradients of the model are empty afterwards.
TD_API ModelFigures model_figures(nn::Module& model, const std::function<Tensor()>& run,
                                  const LayerFiguresOptions& options = {});

/// As Keras's summary(): layers, shapes of outputs with the number of samples open, parameters.
TD_API std::string summary_table(const ModelFigures& figures, const std::string& name);
/// As an object for layers.jsonl: {"layers": [...], "rectifiers": [...] ...}.
TD_API io::Json to_json(const ModelFigures& figures);

}  // namespace tandem::train
