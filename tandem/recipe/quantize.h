// SPDX-License-Identifier: Apache-2.0
// A model as a file with 8-bit weights and activations: calibrated and evaluated on a recipe's
// data, layers that lose too much kept in floating point. `tandem quantize` is this call.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/io/json.h"
#include "tandem/quant/calibrate.h"
#include "tandem/recipe/model_files.h"

namespace tandem::recipe {

struct QuantizeFileOptions {
  quant::QuantizeOptions quant;
  /// A run's folder, a recipe, or inputs as arrays (.npy, .npz, .safetensors); empty: the data of
  /// the run that the model is of. A recipe's training set calibrates, its test set (or the
  /// validation set) is evaluated; arrays do both.
  std::string data = "";
  int64_t samples = 256;  ///< to calibrate with
  int64_t evaluated = 0;  ///< samples to evaluate with; 0: all
  std::optional<double>
      max_loss;  ///< of accuracy, in points: keep layers in floating point until met
  OnnxFileOptions onnx;
  /// Find what QuantizeReport::html shows beyond the table: the accuracy with each layer quantised
  /// alone, and histograms.
  bool page = false;
};

/// How a model did on the data it is evaluated with.
struct QuantizeScore {
  int64_t samples = 0;
  std::optional<double> before, after;  ///< accuracy in 0..1, where the data has labels
  double agreement = 0;                 ///< how often both have the same largest output
  double sqnr = 0;                      ///< dB of the first output
};
struct TD_API QuantizeReport {
  std::string out;     ///< the name of the file
  std::string file;    ///< what was written, and how far it was checked
  std::string method;  ///< of calibration
  std::string fixed;   ///< why sizes are fixed that should be open; "": none are
  std::vector<quant::LayerFigures> layers;
  std::vector<quant::TableFigures> tables;  ///< of which rows are looked up
  std::vector<int64_t> table_steps;         ///< of each: as many as columns, or 1; in f32 0
  std::vector<std::string> why;             ///< a layer stayed in floating point; "": it did not
  std::vector<double> accuracy;  ///< with this layer alone quantised, 0..1; empty: not evaluated
  QuantizeScore alone;           ///< of the last of them: the samples, and the accuracy before
  std::vector<quant::RangeFigures> ranges;  ///< of what is rounded; empty: not asked for
  int equalised = 0;                        ///< pairs of layers
  int smoothed = 0;                         ///< values that linear layers read
  int64_t weight_bytes_before = 0, weight_bytes_after = 0, file_bytes = 0;
  QuantizeScore score;
  bool met = true;  ///< the loss is at most max_loss
  /// A table with a row for each layer, and the figures of the whole.
  std::string to_string() const;
  io::Json to_json() const;
  /// A page with everything in it: figures, layers, histograms.
  std::string html() const;
};

/// Quantise the model and write it as a QDQ ONNX file `out` (dynamic layers: DynamicQuantizeLinear
/// and MatMulInteger, and data is not needed). Throws Value where there is no data,
/// where it does not fit the model, or for `max_loss` without labels; Unsupported for a model whose
/// sizes depend on values; what reading and writing throw.
TD_API QuantizeReport quantize_file(const ModelSource& source, const std::string& out,
                                    const QuantizeFileOptions& options = {});

}  // namespace tandem::recipe
