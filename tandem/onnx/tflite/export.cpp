// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/files/folder.h"
#include "tandem/base/files/private_folder.h"
#include "tandem/onnx/export/write.h"
#include "tandem/onnx/tflite.h"
#include "tandem/onnx/tflite/model_internal.h"
#include "tandem/onnx/tflite/writer_internal.h"
#include "tandem/onnx/tflite_export.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

std::string TfliteExportReport::to_string() const {
  std::string s = fmt::format("{} operators, {} bytes", operators, bytes);
  if (largest_error >= 0)
    s += fmt::format("; read back: largest error {:.2g}, {:.2g} of the largest value",
                     largest_error, relative_error);
  return s;
}

std::vector<std::string> tflite_exported_ops() { return tflite_written_ops(); }

namespace {

/// The ONNX model of f, in memory.
std::string onnx_bytes_of(FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f,
                          std::span<const Tensor> examples, const TfliteExportOptions& o) {
  const PrivateFolder folder = PrivateFolder::temporary("tflite");
  TD_CHECK(folder, Io, "{}", folder.problem());
  const std::string path = folder.path() + "/model.onnx";
  struct Remove {
    const PrivateFolder& folder;
    ~Remove() { remove_folder(folder.path()); }
  } const remove{folder};
  OnnxExportOptions options;
  options.input_names = o.input_names;
  options.output_names = o.output_names;
  options.opset = 20;
  options.external_data = false;
  options.verify = false;
  export_onnx_function(f, examples, path, options);
  return read_file(path);
}

/// What a run gives for every value of the graph.
std::map<std::string, OnnxValue> values_of(OnnxModelProto model, std::span<const Tensor> examples) {
  for (const OnnxNode& n : model.graph.nodes)
    for (const std::string& o : n.outputs) {
      bool there = o.empty();
      for (const OnnxPort& p : model.graph.outputs) there = there || p.name == o;
      if (there) continue;
      OnnxPort port;
      port.name = o;
      port.type.kind = OnnxTypeSpec::Kind::tensor;
      model.graph.outputs.push_back(std::move(port));
    }
  OnnxLoadOptions options;
  options.limits = {int64_t{1} << 50, int64_t{1} << 50, int64_t{1} << 50, int64_t{1} << 60, 1e9};
  const OnnxModel all = OnnxModel::parse(write_onnx_model(model), "the model", options);
  const std::vector<OnnxValue> in(examples.begin(), examples.end());
  const std::vector<OnnxValue> out = all.run(in);
  std::map<std::string, OnnxValue> values;
  for (size_t i = 0; i < out.size(); ++i) values[all.outputs()[i].name] = out[i];
  for (size_t i = 0; i < in.size(); ++i) values[all.inputs()[i].name] = in[i];
  return values;
}

void compare_written(const FilePath& path, std::span<const Tensor> examples,
                     const std::vector<Tensor>& want, const TfliteExportOptions& o, bool codes,
                     TfliteExportReport& report) {
  const std::vector<Tensor> got = OnnxModel::load(path)({examples.begin(), examples.end()});
  TD_CHECK(got.size() == want.size(), Internal, "'{}' has {} outputs", path.str(), got.size());
  report.largest_error = report.relative_error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    TD_CHECK(got[i].shape() == want[i].shape(), Internal, "'{}': output {} is {}", path.str(), i,
             got[i].shape().to_string());
    if (got[i].numel() == 0) continue;
    const auto most = want[i].to(DType::f64).abs().max().item<double>();
    const auto apart = (got[i].to(DType::f64) - want[i].to(DType::f64)).abs().max().item<double>();
    report.largest_error = std::max(report.largest_error, apart);
    report.relative_error = std::max(report.relative_error, most > 0 ? apart / most : apart);
    TD_CHECK(codes || apart <= o.atol + o.rtol * most, Value,
             "'{}': output {} differs by {:.2g} from the function's, values are up to {:.2g}",
             path.str(), i, apart, most);
  }
}

}  // namespace

TfliteExportReport export_tflite_function(
    FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f, std::span<const Tensor> examples,
    const FilePath& path, const TfliteExportOptions& o) {
  const std::string bytes = onnx_bytes_of(f, examples, o);
  const OnnxModelProto model = parse_onnx_model(bytes, "the model");
  const std::map<std::string, OnnxValue> values = values_of(model, examples);
  const std::string file = TfliteWriter(model, values).run();
  write_file(path, file);
  TfliteExportReport report;
  report.bytes = file.size();
  const io::FlatDocument document(file, path.str());
  report.operators = parse_tflite(document).graphs[0].ops.size();
  if (o.verify) {
    std::vector<Tensor> want;
    for (const OnnxPort& p : model.graph.outputs) want.push_back(values.at(p.name).tensor());
    // Layers of codes round by themselves: their results may be a code apart.
    const bool codes = std::any_of(model.graph.nodes.begin(), model.graph.nodes.end(),
                                   [](const OnnxNode& n) { return n.op == "QuantizeLinear"; });
    compare_written(path, examples, want, o, codes, report);
  }
  return report;
}

}  // namespace tandem::onnx
