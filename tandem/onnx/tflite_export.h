// SPDX-License-Identifier: Apache-2.0
// Export of traced functions and modules as .tflite files, by way of the ONNX export: inference,
// with sizes as in the example.
#pragma once

#include <string>
#include <vector>

#include "tandem/onnx/export.h"

namespace tandem::onnx {

struct TfliteExportOptions {
  std::vector<std::string> input_names = {};   ///< "x", or "x0", "x1", ...
  std::vector<std::string> output_names = {};  ///< "y", or "y0", "y1", ...
  /// Read the file back and run it on the examples: throws Value when an output differs by more
  /// than atol + rtol times the largest expected value.
  bool verify = true;
  double rtol = 1e-4, atol = 1e-5;
};
struct TD_API TfliteExportReport {
  size_t operators = 0;
  uint64_t bytes = 0;
  double largest_error = -1, relative_error = -1;  ///< negative: not compared
  std::string to_string() const;
};

/// Throws Unsupported for what TFLite has no form for, naming all such ops; Value beyond 2 GB; Io;
/// and what `f` throws.
TD_API TfliteExportReport export_tflite_function(
    FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f, std::span<const Tensor> examples,
    const FilePath& path, const TfliteExportOptions& options = {});
/// The ONNX ops that have a form, sorted.
TD_API std::vector<std::string> tflite_exported_ops();

/// Write `f` of tensors (a module, a lambda) as the model `path`.
///     export_tflite(net, randn({1, 3, 224, 224}), "net.tflite");
template <class F>
TfliteExportReport export_tflite(F&& f, const Tensor& example, const FilePath& path,
                                 const TfliteExportOptions& options = {}) {
  NoGradGuard no_grad;
  return export_tflite_function(
      [&](std::span<const Tensor> x) {
        return std::vector<Tensor>{detail::call_or_forward(f, x[0])};
      },
      {&example, 1}, path, options);
}

}  // namespace tandem::onnx
