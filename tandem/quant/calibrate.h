// SPDX-License-Identifier: Apache-2.0
// Post-training quantisation: a network watched on some of its data, its ranges, and what makes its
// rounding cheaper: equalised weights, corrected biases. All of it works on `batches`, the inputs
// of the network some samples at a time.
#pragma once

#include "tandem/quant/quantized.h"

namespace tandem::quant {

/// Batches of a network's inputs, walked through as often as needed. `see` is called with each.
using Batches = std::function<void(const std::function<void(std::span<const Tensor>)>& see)>;

/// Scale the channels between two layers so that their ranges in both weights are alike, where a
/// relu, pooling by maxima or nothing lies between them (Nagel et al., Data-Free Quantization
/// Through Weight Equalization and Bias Correction, https://arxiv.org/abs/1906.04721). The function
/// that the network computes stays. Returns how many pairs were changed.
TD_API int equalise(Network& net);

/// A quantised layer or a kept one, for reports.
struct LayerFigures {
  std::string name, row;
  bool quantised = false;
  Range range;              ///< of its input
  Step step;                ///< of its input
  int64_t bytes = 0;        ///< of weight and bias as they are now
  int64_t float_bytes = 0;  ///< as f32
  double weight_sqnr = 0;   ///< dB: signal to error of its rounded weight
  double output_sqnr = 0;   ///< dB: of the first output when this layer alone is quantised
};

/// A table, for reports.
struct TableFigures {
  std::string name;
  bool quantised = false;
  int64_t bytes = 0, float_bytes = 0;  ///< as it is now, and as f32
  double weight_sqnr = 0;              ///< dB: signal to error of its codes
};

/// A value that is rounded, for reports.
struct RangeFigures {
  std::string name;
  Range seen, range;           ///< its extremes, and what codes stand for
  std::vector<double> counts;  ///< of parts of the extremes; empty: nothing was counted
};

/// A network with what was seen of it: makes quantised versions of it.
class TD_API Calibrated {
 public:
  /// Watches the network on all batches; the steps of values that it learned in training
  /// (Network::learned) stay. Throws Value for values that are not finite, and where there are no
  /// batches, unless all steps were learned.
  Calibrated(Network& net, const Batches& batches, const QuantizeOptions& options);

  /// Quantised but for the layers and tables of options.keep_float and `kept` (their indices). Of a
  /// network that was trained with rounded weights, layers without stay in floating point, too.
  Quantized quantised(const std::vector<size_t>& kept = {}) const;
  /// Signal to quantisation error of the first output, in dB, for each layer quantised alone: of
  /// all batches, or of as many as give 8 samples and 262,144 results.
  std::vector<double> sensitivity(const Batches& batches) const;
  std::vector<LayerFigures> figures(const Quantized& q,
                                    const std::vector<double>& output_sqnr) const;
  std::vector<TableFigures> tables(const Quantized& q) const;
  /// Of each value that `q` rounds by a range of its own, from the first to the last.
  std::vector<RangeFigures> ranges(const Quantized& q, size_t bins) const;

 private:
  Plan plan_for(const std::vector<char>& on) const;
  std::vector<char> wanted() const;
  Quantized with(Plan plan, bool tables = true) const;
  std::vector<Step> steps_of(const Plan& plan) const;
  void correct_biases(const Batches& batches);
  void adapt_rounding(const Batches& batches);

  Network& net_;
  QuantizeOptions options_;
  std::map<ValueId, Seen> seen_;
  std::vector<LayerChange> changes_;  ///< of each layer
};

/// Signal to error of `got` beside `want`, in dB; 200 where they are equal.
TD_API double sqnr(std::span<const Tensor> want, std::span<const Tensor> got);

}  // namespace tandem::quant
