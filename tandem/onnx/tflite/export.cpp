// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tandem/onnx/export/written_file_internal.h"
#include "tandem/onnx/tflite/model_internal.h"
#include "tandem/onnx/tflite/traced_internal.h"
#include "tandem/onnx/tflite/writer_internal.h"
#include "tandem/onnx/tflite_export.h"

namespace tandem::onnx {

std::string TfliteExportReport::to_string() const {
  std::string s = fmt::format("{} operators, {} bytes", operators, bytes);
  if (largest_error >= 0)
    s += fmt::format("; read back: largest error {:.2g}, {:.2g} of the largest value",
                     largest_error, relative_error);
  return s;
}

std::vector<std::string> tflite_exported_ops() { return tflite_written_ops(); }

TfliteExportReport export_tflite_function(
    FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f, std::span<const Tensor> examples,
    const FilePath& path, const TfliteExportOptions& o) {
  const TracedModel traced = traced_model(f, examples, o.input_names, o.output_names);
  const std::string file = TfliteWriter(traced.model, traced.values).run();
  WrittenFile written(path.str());
  write_file(path, file);
  TfliteExportReport report;
  report.bytes = file.size();
  const io::FlatDocument document(file, path.str());
  report.operators = parse_tflite(document).graphs[0].ops.size();
  if (o.verify) {
    // Layers of codes round by themselves: their results may be a code apart.
    const WrittenErrors e =
        compare_written(path, traced.inputs, traced.outputs, {o.rtol, o.atol, traced.has_codes});
    report.largest_error = e.largest;
    report.relative_error = e.relative;
  }
  written.keep();
  return report;
}

}  // namespace tandem::onnx
