// SPDX-License-Identifier: Apache-2.0
// Export of traced functions, modules and .tflite files as models of TensorFlow.js: a model.json
// with a graph of its ops, and the weights in files beside it. By way of the export to TFLite.
#pragma once

#include <string>
#include <vector>

#include "tandem/onnx/export.h"

namespace tandem::onnx {

struct TfjsExportOptions {
  std::vector<std::string> input_names = {};   ///< "x", or "x0", "x1", ...
  std::vector<std::string> output_names = {};  ///< "y", or "y0", "y1", ...
  /// What the files hold constants of 256 floats and more as: "" (as they are), "float16", or codes
  /// between their least and largest value, "uint8" or "uint16". They become floats when loaded.
  std::string quantize = "";
  uint64_t shard_bytes = uint64_t{4} << 20;  ///< of a file of weights, at most
  /// Read the files back and run them on the examples: throws Value when an output differs by more
  /// than atol + rtol times the largest expected value. Of quantised weights, and of models that
  /// round values to codes, the difference is only reported.
  bool verify = true;
  double rtol = 1e-4, atol = 1e-5;
};
struct TD_API TfjsExportReport {
  size_t nodes = 0;   ///< without constants
  size_t shards = 0;  ///< files of weights
  uint64_t bytes = 0;
  double largest_error = -1, relative_error = -1;  ///< negative: not compared
  std::string to_string() const;
};

/// Write `path`, whose name ends with .json, and its weights beside it, as group1-shard1of2.bin and
/// so on (after the file's name and "-" unless that is model.json). All files are there in the end,
/// or those that were there before; files of weights that an earlier model.json of the name listed
/// and the new one does not are removed. Throws Unsupported for what TensorFlow.js has no form for,
/// naming all such ops; Value for options and beyond 2 GB; Io; and what `f` throws.
TD_API TfjsExportReport export_tfjs_function(
    FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f, std::span<const Tensor> examples,
    const FilePath& path, const TfjsExportOptions& options = {});
/// The same of a .tflite file, with its names and open sizes. Codes become the floats that they
/// stand for. `examples`: for its inputs, in order; none: nothing is compared. Throws Format, too.
TD_API TfjsExportReport export_tfjs_file(const FilePath& tflite, std::span<const Tensor> examples,
                                         const FilePath& path,
                                         const TfjsExportOptions& options = {});

/// Write `f` of tensors (a module, a lambda) as the model `path`.
///     export_tfjs(net, randn({1, 3, 224, 224}), "web/model.json");
template <class F>
TfjsExportReport export_tfjs(F&& f, const Tensor& example, const FilePath& path,
                             const TfjsExportOptions& options = {}) {
  NoGradGuard no_grad;
  return export_tfjs_function(
      [&](std::span<const Tensor> x) {
        return std::vector<Tensor>{detail::call_or_forward(f, x[0])};
      },
      {&example, 1}, path, options);
}

}  // namespace tandem::onnx
