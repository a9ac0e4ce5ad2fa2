// SPDX-License-Identifier: Apache-2.0
// What is asked for when a trained network is quantised.
#pragma once

#include <string>
#include <vector>

#include "tandem/quant/ranges.h"

namespace tandem::quant {

struct QuantizeOptions {
  Method method = Method::percentile;
  double percent = 99.99;         ///< of percentile: 99.9, 99.99, 99.999
  DType activations = DType::u8;  ///< u8 or i8, asymmetric; i16, symmetric
  /// Linear layers alone: each call rounds their inputs over their own range (u8).
  bool dynamic = false;
  bool per_channel = true;  ///< a scale for each output of a weight; else one
  int64_t weight_bits = 8;  ///< of a weight's codes, 2 to 8, where none were learned
  bool equalise = false;    ///< cross-layer equalisation before calibration
  double smooth = 0;        ///< SmoothQuant's alpha (smooth.h); 0: not
  /// Steps of AdaRound (adaround.h) for each layer; 0: weights are rounded to the nearest code.
  int64_t adaround = 0;
  bool correct_bias = true;                  ///< mean errors of layers go into their bias
  bool outputs = false;                      ///< round the network's outputs to codes, too
  bool histograms = false;                   ///< of what is rounded, whatever the method
  std::vector<std::string> keep_float = {};  ///< names of layers that stay in floating point
};

}  // namespace tandem::quant
