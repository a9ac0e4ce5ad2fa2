// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/tflite/traced_internal.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/files/folder.h"
#include "tandem/base/files/private_folder.h"
#include "tandem/onnx/export/write.h"
#include "tandem/onnx/onnx.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

namespace {

/// The ONNX model of f, in memory.
std::string onnx_bytes_of(FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f,
                          std::span<const Tensor> examples,
                          const std::vector<std::string>& input_names,
                          const std::vector<std::string>& output_names) {
  const PrivateFolder folder = PrivateFolder::temporary("export");
  TD_CHECK(folder, Io, "{}", folder.problem());
  const std::string path = folder.path() + "/model.onnx";
  struct Remove {
    const PrivateFolder& folder;
    ~Remove() { remove_folder(folder.path()); }
  } const remove{folder};
  OnnxExportOptions options;
  options.input_names = input_names;
  options.output_names = output_names;
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

/// The largest difference, and the largest finite number that is wanted. Equal entries are 0 apart,
/// the same infinity or NaN in both, too; a NaN in one of them is infinitely far.
std::pair<double, double> largest_difference(const Tensor& got, const Tensor& wanted) {
  const auto a = got.to(DType::f64).reshape({-1}).to_vector<double>(),
             b = wanted.to(DType::f64).reshape({-1}).to_vector<double>();
  double apart = 0, most = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (std::isfinite(b[i])) most = std::max(most, std::abs(b[i]));
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double d = std::abs(a[i] - b[i]);
    apart = std::isnan(d) ? INFINITY : std::max(apart, d);
  }
  return {apart, most};
}

}  // namespace

TracedModel traced_model(FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f,
                         std::span<const Tensor> examples,
                         const std::vector<std::string>& input_names,
                         const std::vector<std::string>& output_names) {
  TracedModel m;
  m.model = parse_onnx_model(onnx_bytes_of(f, examples, input_names, output_names), "the model");
  m.values = values_of(m.model, examples);
  for (const OnnxPort& p : m.model.graph.inputs)
    if (m.values.count(p.name)) m.inputs[p.name] = m.values.at(p.name).tensor();
  for (const OnnxPort& p : m.model.graph.outputs) m.outputs[p.name] = m.values.at(p.name).tensor();
  m.has_codes = std::any_of(m.model.graph.nodes.begin(), m.model.graph.nodes.end(),
                            [](const OnnxNode& n) { return n.op == "QuantizeLinear"; });
  return m;
}

WrittenErrors compare_written(const FilePath& path, const NamedTensors& inputs,
                              const NamedTensors& outputs, const WrittenLimits& limits) {
  const OnnxModel model = OnnxModel::load(path);
  std::vector<Tensor> in;
  for (const OnnxPort& p : model.inputs()) {
    const auto at = inputs.find(p.name);
    TD_CHECK(at != inputs.end(), Internal, "'{}' has an input '{}'", path.str(), p.name);
    in.push_back(at->second.to(info_of(p.type.elem).carrier));
  }
  const std::vector<Tensor> got = model(in);
  TD_CHECK(got.size() == outputs.size(), Internal, "'{}' has {} outputs", path.str(), got.size());
  WrittenErrors e;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto at = outputs.find(model.outputs()[i].name);
    TD_CHECK(at != outputs.end() && got[i].shape() == at->second.shape(), Internal,
             "'{}': output '{}' is {}", path.str(), model.outputs()[i].name,
             got[i].shape().to_string());
    if (got[i].numel() == 0) continue;
    const auto [apart, most] = largest_difference(got[i], at->second);
    e.largest = std::max(e.largest, apart);
    e.relative = std::max(e.relative, most > 0 ? apart / most : apart);
    TD_CHECK(limits.any || apart <= limits.atol + limits.rtol * most, Value,
             "'{}': output {} differs by {:.2g} from the function's, values are up to {:.2g}",
             path.str(), i, apart, most);
  }
  return e;
}

}  // namespace tandem::onnx
