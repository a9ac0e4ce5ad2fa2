// SPDX-License-Identifier: Apache-2.0
// What is asked for when a trained network is quantised.
#pragma once

#include <string>
#include <vector>

#include "tandem/quant/ranges.h"

namespace tandem::quant {

struct QuantizeOptions {
  Method method = Method::percentile;
  double percent = 99.99;                    ///< of percentile: 99.9, 99.99, 99.999
  DType activations = DType::u8;             ///< u8 or i8, asymmetric
  bool per_channel = true;                   ///< a scale for each output of a weight; else one
  bool equalise = false;                     ///< cross-layer equalisation before calibration
  bool correct_bias = true;                  ///< mean errors of layers go into their bias
  bool outputs = false;                      ///< round the network's outputs to codes, too
  std::vector<std::string> keep_float = {};  ///< names of layers that stay in floating point
};

}  // namespace tandem::quant
