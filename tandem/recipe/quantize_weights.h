// SPDX-License-Identifier: Apache-2.0
// A decoder with weights of 2, 4 or 8 bits as a Hugging Face folder in GPTQ's format, which
// `tandem generate`, `tandem serve` and other libraries read. `tandem quantize --weights` is this
// call.
#pragma once

#include <optional>
#include <string>

#include "tandem/io/json.h"
#include "tandem/quant/weights.h"

namespace tandem::recipe {

struct QuantizeWeightsOptions {
  quant::WeightMethod method = quant::WeightMethod::rtn;
  quant::WeightOptions weights;
  /// A text file, of which the first nine tenths calibrate and the rest is evaluated; a run's
  /// folder or a recipe, whose training and test sets do. Empty: the run's own, or none.
  std::string data = "";
  int64_t samples = 128;  ///< windows to calibrate with
  int64_t evaluated = 0;  ///< windows to evaluate with; 0: all
  int64_t length = 512;   ///< tokens of a window of a text file, or as many as the model reads
  /// Of the layers with codes (PackedCodes::accuracy_level); 4: what they read is rounded, too. It
  /// is written beside the codes.
  int64_t accuracy_level = 0;
};

struct TD_API QuantizeWeightsReport {
  std::string folder, method;
  int64_t bits = 0, group = 0, accuracy_level = 0;
  int64_t layers = 0, kept = 0;  ///< with codes, and those that stay numbers: sizes do not fit
  int64_t bytes_before = 0, bytes_after = 0;  ///< of all tensors; before: in f32
  int64_t tokens = 0;                         ///< that perplexity is over; 0: no data
  double perplexity_before = 0, perplexity_after = 0;
  std::string to_string() const;
  io::Json to_json() const;
};

/// Round the weights of `model`, a Hugging Face folder with a decoder or the folder of a run of the
/// model type gpt, and write the folder `out`. Throws Value where a method needs data and there is
/// none, Unsupported for other models, and what reading and writing throw.
TD_API QuantizeWeightsReport quantize_weights(const std::string& model, const std::string& out,
                                              const QuantizeWeightsOptions& options = {});

}  // namespace tandem::recipe
