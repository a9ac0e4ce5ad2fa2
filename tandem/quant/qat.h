// SPDX-License-Identifier: Apache-2.0
// Quantisation-aware training: a net whose layers round their input and weight while they are
// trained, as the quantised network will, so that the weights learn to bear it. PyTorch's
// prepare_qat; Jacob et al., Quantization and Training of Neural Networks for Efficient
// Integer-Arithmetic-Only Inference, https://arxiv.org/abs/1712.05877.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/fields.h"
#include "tandem/nn/module.h"

namespace tandem::quant {

enum class Observer : uint8_t {
  moving_average,  ///< of each batch's extremes (PyTorch's MovingAverageMinMaxObserver)
  min_max,         ///< the extremes of all batches
};
constexpr const char* field_names(Observer) { return "moving_average min_max"; }

struct QatOptions {
  int64_t bits = 8;
  bool per_channel = true;
  Observer observer = Observer::moving_average;
  double averaging_constant = 0.01;
  bool learn_steps = false;
  int64_t start = 0;
  int64_t freeze_observers = -1;
  int64_t freeze_batch_norms = -1;
  std::vector<std::string> keep_float = {};
  std::vector<std::string> round_outputs = {};

  template <class V>
  void fields(V& v) {
    v("bits", bits,
      {.doc = "of the codes of weights; those of activations have 8", .at_least = 2, .at_most = 8});
    v("per_channel", per_channel, {.doc = "a scale for each output of a weight; else one"});
    v("observer", observer,
      {.doc = "range of an activation: a moving average of each batch's extremes, or the extremes "
              "of all batches"});
    v("averaging_constant", averaging_constant,
      {.doc = "share of a batch in the moving average", .above = 0, .at_most = 1});
    v("learn_steps", learn_steps,
      {.doc =
           "steps are trained with the weights, from what the ranges say on, by LSQ's derivative"});
    v("start", start,
      {.doc = "updates before the net is rounded and observed", .at_least = 0, .resumable = true});
    v("freeze_observers", freeze_observers,
      {.doc = "updates after which ranges stay as they are; -1: never",
       .at_least = -1,
       .resumable = true});
    v("freeze_batch_norms", freeze_batch_norms,
      {.doc = "updates after which batch norms use their running statistics and leave them as they "
              "are; -1: never",
       .at_least = -1,
       .resumable = true});
    v("keep_float", keep_float, {.doc = "patterns of layers that stay in floating point"});
    v("round_outputs", round_outputs,
      {.doc =
           "patterns of modules whose results are rounded, too, as those that residual sums add"});
  }
};

/// Round the input (u8, one scale) and the weight (symmetric) of every Linear, convolution and
/// transposed convolution without groups in `net`, with straight-through gradients (fake_quantize).
/// Ranges of inputs are observed in training mode alone and are buffers,
/// "conv1.input_fake_quant.min_val" and ".max_val" []; names of parameters stay. The results of
/// modules that options.round_outputs names are rounded in the same way
/// ("bn2.output_fake_quant.min_val"): operands of residual sums, which no layer reads, get learned
/// steps so. With options.learn_steps each step is multiplied by exp(p), where p is a parameter
/// that begins as 0, "conv1.input_fake_quant.log_step" [] and "conv1.weight_fake_quant.log_step"
/// [outputs] or []: an optimizer made after this call trains them, best one whose steps do not
/// follow the size of gradients, as Adam's do not (Esser et al., Learned Step Size Quantization,
/// https://arxiv.org/abs/1902.08153; the logarithm as in Jain et al.,
/// https://arxiv.org/abs/1903.08066). In evaluation mode a layer rounds once it has observed a
/// range. With a scale for each output, a batch norm that follows needs no folding in training: its
/// factor scales weight and step alike. Network (network.h) finds the steps that such a net has
/// learned: Calibrated(...).quantised() is its conversion to integers, and takes no data where
/// every rounded value was observed. Returns the layers' names. Throws Value where there are none,
/// for a pattern that matches none, for layers with a LoRA update and for a net that is prepared
/// already; Unsupported where the results of a module that does not take one tensor are to be
/// rounded.
TD_API std::vector<std::string> prepare_qat(nn::Module& net, const QatOptions& options = {});
/// Whether a layer of it is prepared.
TD_API bool is_prepared(nn::Module& net);
/// Before the update with that number, from 0: starts and freezes what QatOptions say. Compiled
/// functions are traced again where that changes them.
TD_API void set_qat_step(nn::Module& net, int64_t step);
/// Make constant what the layers have learned: weights become what their codes stand for, steps of
/// inputs become numbers. The net computes what it computed in evaluation mode; it is for export
/// and not trained any further. Returns the number of layers; those without a range stay as they
/// are.
TD_API size_t fix_rounding(nn::Module& net);

}  // namespace tandem::quant
