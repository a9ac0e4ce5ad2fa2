// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/tfjs_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <list>

#include "tandem/base/budget.h"
#include "tandem/base/files/folder.h"
#include "tandem/io/json.h"
#include "tandem/onnx/export/written_file_internal.h"
#include "tandem/onnx/onnx.h"
#include "tandem/onnx/tensorflow/keras_internal.h"
#include "tandem/onnx/tensorflow/tfjs_write_internal.h"
#include "tandem/onnx/tflite.h"
#include "tandem/onnx/tflite/builder_internal.h"
#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/onnx/tflite/traced_internal.h"
#include "tandem/onnx/tflite/writer_internal.h"

namespace tandem::onnx {

std::string TfjsExportReport::to_string() const {
  std::string s = fmt::format("{} nodes, {} bytes and {} file{} of weights", nodes, bytes, shards,
                              shards == 1 ? "" : "s");
  if (largest_error >= 0)
    s += fmt::format("; read back: largest error {:.2g}, {:.2g} of the largest value",
                     largest_error, relative_error);
  return s;
}

namespace {

namespace fs = std::filesystem;

void check_tfjs_options(const FilePath& path, const TfjsExportOptions& o) {
  constexpr std::string_view kKinds[] = {"", "float16", "uint8", "uint16"};
  TD_CHECK(std::find(std::begin(kKinds), std::end(kKinds), o.quantize) != std::end(kKinds), Value,
           "weights cannot be stored as '{}'\nThere are float16, uint8 and uint16.", o.quantize);
  TD_CHECK(o.shard_bytes > 0, Value, "a file of weights cannot have 0 bytes");
  TD_CHECK(path.str().ends_with(".json"), Value,
           "'{}': the name of a TensorFlow.js model ends with .json", path.str());
}

/// A .tflite file as a graph of TensorFlow.js's ops.
struct TfjsGraph {
  OnnxModelProto model;
  std::vector<TfliteScales> inputs, outputs;  ///< of codes, which are floats in the graph
  bool has_codes = false;
};
TfjsGraph graph_of_tflite(std::string_view bytes, const std::string& what) {
  const io::FlatDocument document(bytes, what);
  const TfliteModel m = parse_tflite(document);
  const TfliteSignature* s = find_tflite_signature(m, "", what);
  TfjsGraph out;
  out.model = TfliteBuilder(m, what, true).run(s ? s->graph : 0, s);
  const TfliteGraph& from = m.graphs.at(s ? s->graph : 0);
  const auto tensor = [&](int32_t i) -> const TfliteTensor& {
    return from.tensors[static_cast<size_t>(i)];
  };
  const auto scales = [&](int32_t i) {
    return tensor(i).is_quantised() ? tensor(i).scales : TfliteScales();
  };
  for (const int32_t i : from.inputs) out.inputs.push_back(scales(i));
  for (const int32_t i : from.outputs) out.outputs.push_back(scales(i));
  for (const TfliteOp& op : from.ops)
    for (const int32_t i : op.out) out.has_codes |= i >= 0 && tensor(i).is_quantised();
  return out;
}

/// The files of weights of an earlier export to `file` that it names: what the export calls them.
std::vector<std::string> earlier_shards(const fs::path& file, const std::string& prefix) {
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return names;
  io::Json model;
  try {
    model = io::parse_json(read_file(file.string()));
  } catch (const Error&) {  // something else lies there
    return names;
  }
  for (const io::Json& group : keras_entries(model.find("weightsManifest")))
    for (const io::Json& path : keras_entries(group.find("paths"))) {
      const std::string name = io::text_of(&path);
      if (!name.starts_with(prefix)) continue;
      uint64_t i = 0, count = 0;
      if (std::sscanf(name.c_str() + prefix.size(), "group1-shard%" SCNu64 "of%" SCNu64, &i,
                      &count) == 2 &&
          name == tfjs_shard_name(prefix, i, count))
        names.push_back(name);
    }
  return names;
}

/// Removes those that are plain files and not among the new ones.
void remove_shards(const fs::path& folder, const std::vector<std::string>& names,
                   const TfjsFiles& kept) {
  for (const std::string& name : names) {
    const bool stays = std::any_of(kept.shards.begin(), kept.shards.end(),
                                   [&](const auto& shard) { return shard.first == name; });
    std::error_code error;
    if (!stays && fs::is_regular_file(fs::symlink_status(folder / name, error)))
      fs::remove(folder / name, error);
  }
}

/// The model's ports by what the file calls them.
NamedTensors by_key(const TfjsFiles& files, const NamedTensors& ports) {
  NamedTensors out;
  for (const auto& [name, t] : ports) {
    const auto at = files.keys.find(name);
    out[at == files.keys.end() ? name : at->second] = t;
  }
  return out;
}

/// Files of weights first: whoever finds model.json finds them. What was there comes back on
/// errors.
TfjsExportReport write_tfjs_files(OnnxModelProto graph, const FilePath& path,
                                  const TfjsExportOptions& o, const NamedTensors& inputs,
                                  const NamedTensors& outputs, bool codes) {
  const fs::path file(path.str());
  const std::string stem = file.stem().string(), prefix = stem == "model" ? "" : stem + "-";
  const TfjsFiles files = write_tfjs_graph(std::move(graph), o.quantize, o.shard_bytes, prefix);
  if (file.has_parent_path()) make_folders(file.parent_path());
  const std::vector<std::string> earlier = earlier_shards(file, prefix);
  std::list<WrittenFile> written;
  TfjsExportReport report;
  report.nodes = files.nodes;
  report.shards = files.shards.size();
  const auto write = [&](const fs::path& to, const std::string& content) {
    written.emplace_back(to.string());
    write_file(to, content);
    report.bytes += content.size();
  };
  for (const auto& [name, content] : files.shards) write(file.parent_path() / name, content);
  write(file, files.json);
  if (o.verify && !outputs.empty()) {
    const WrittenErrors e = compare_written(path, by_key(files, inputs), by_key(files, outputs),
                                            {o.rtol, o.atol, codes || !o.quantize.empty()});
    report.largest_error = e.largest;
    report.relative_error = e.relative;
  }
  for (WrittenFile& f : written) f.keep();
  remove_shards(file.parent_path(), earlier, files);
  return report;
}

}  // namespace

TfjsExportReport export_tfjs_function(FunctionRef<std::vector<Tensor>(std::span<const Tensor>)> f,
                                      std::span<const Tensor> examples, const FilePath& path,
                                      const TfjsExportOptions& o) {
  check_tfjs_options(path, o);
  const TracedModel traced = traced_model(f, examples, o.input_names, o.output_names);
  const std::string bytes = TfliteWriter(traced.model, traced.values, TfliteTarget::tfjs).run();
  return write_tfjs_files(graph_of_tflite(bytes, "the model").model, path, o, traced.inputs,
                          traced.outputs, traced.has_codes);
}

TfjsExportReport export_tfjs_file(const FilePath& tflite, std::span<const Tensor> examples,
                                  const FilePath& path, const TfjsExportOptions& o) {
  check_tfjs_options(path, o);
  const auto file = make_ref<MappedFile>(tflite.str());
  TfjsGraph graph;
  {
    const Budget budget(tflite.str(), file->size());
    graph = graph_of_tflite(file->view(), tflite.str());
  }
  NamedTensors inputs, outputs;
  const auto numbers = [](const Tensor& t, const TfliteScales& s) {
    return s.scale.empty() ? t : tflite_numbers(t, s);
  };
  if (o.verify && !examples.empty()) {
    const OnnxModel model = OnnxModel::load(tflite);
    TD_CHECK(examples.size() == model.inputs().size(), Value, "'{}' has {} inputs, not {}",
             tflite.str(), model.inputs().size(), examples.size());
    const std::vector<Tensor> out = model({examples.begin(), examples.end()});
    for (size_t i = 0; i < examples.size(); ++i)
      inputs[model.inputs()[i].name] = numbers(examples[i], graph.inputs[i]);
    for (size_t i = 0; i < out.size(); ++i)
      outputs[model.outputs()[i].name] = numbers(out[i], graph.outputs[i]);
  }
  return write_tfjs_files(std::move(graph.model), path, o, inputs, outputs, graph.has_codes);
}

}  // namespace tandem::onnx
