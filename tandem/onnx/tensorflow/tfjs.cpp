// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/tensorflow/tfjs_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tandem/base/budget.h"
#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/onnx/tensorflow/flatten_internal.h"
#include "tandem/onnx/tensorflow/keras_internal.h"

namespace tandem::onnx {
namespace {

namespace fs = std::filesystem;
using io::Json;

constexpr std::string_view kTopology = "modelTopology";

// The file of a model: itself, or model.json in its folder.
std::string file_of(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? (fs::path(path) / "model.json").string() : path;
}

TfPort port_of(const std::string& key, const Json& info) {
  TfPort p;
  p.key = key.ends_with(":0") ? key.substr(0, key.size() - 2) : key;
  p.tensor = io::text_of(info.find("name"));
  if (p.tensor.empty()) p.tensor = key;
  p.type.kind = OnnxTypeSpec::Kind::tensor;
  const io::TfTypeInfo* type = io::find_tf_type(tfjs_type(info.find("dtype")));
  p.type.elem = type && type->onnx ? static_cast<OnnxType>(type->onnx) : OnnxType::f32;
  const Json* shape = info.find("tensorShape");
  const Json* unknown = shape ? shape->find("unknownRank") : nullptr;
  p.type.has_shape = shape && !(unknown && unknown->as_bool() && *unknown->as_bool());
  if (const Json* dims = p.type.has_shape ? shape->find("dim") : nullptr; dims && dims->as_array())
    for (const Json& d : *dims->as_array()) {
      const Json* size = d.find("size");
      p.type.dims.push_back(size ? std::max<int64_t>(tfjs_integer(*size), -1) : -1);
    }
  if (p.type.dims.size() > static_cast<size_t>(kMaxRank))
    TD_FAIL(Format, "the tensor '{}' has too many dimensions", p.tensor);
  p.type.dim_names.resize(p.type.dims.size());
  return p;
}

// What the converter says of inputs and outputs; a graph without it is taken as a frozen one.
TfSignature signature_of(const Json& model, const TfGraph& graph, const std::string& what) {
  const Json* s = model.find("signature");
  if (const Json* user = s ? nullptr : model.find("userDefinedMetadata"))
    s = user->find("signature");
  if (!s || !s->find("inputs") || !s->find("outputs")) return signature_of_graph(graph, what);
  TfSignature out;
  for (const auto& [side, ports] :
       {std::pair{s->find("inputs"), &out.inputs}, {s->find("outputs"), &out.outputs}}) {
    if (!side->as_object()) TD_FAIL(Format, "'{}': its signature is damaged", what);
    for (const auto& [key, info] : *side->as_object()) ports->push_back(port_of(key, info));
    std::sort(ports->begin(), ports->end(),
              [](const TfPort& a, const TfPort& b) { return a.key < b.key; });
  }
  TD_CHECK(!out.outputs.empty(), Format, "'{}': the graph has no outputs", what);
  return out;
}

OnnxModelProto graph_model(const Json& model, const Json& topology,
                           const std::vector<TfjsWeight>& weights, const std::string& what) {
  std::map<std::string, const TfjsWeight*> by_name;
  for (const TfjsWeight& w : weights) by_name[w.name] = &w;
  const std::string bytes = tfjs_graph_bytes(topology, by_name, what);
  const TfGraph graph = parse_tf_graph(bytes, what);
  const TfSignature signature = signature_of(model, graph, what);
  TfFlattener f(graph, nullptr, what);
  f.name_ports(signature);
  return f.run(signature);
}

OnnxModelProto layers_model(const Json& topology, const std::vector<TfjsWeight>& weights,
                            const std::string& what) {
  io::KerasFile file;
  file.by_name = true;
  file.name = what;
  // Keras's converter puts the model into `model_config`; what JavaScript saved is the model.
  const Json* config = topology.find("model_config");
  if (!config) config = &topology;
  file.config = config->as_string() ? *config->as_string() : config->dump();
  for (const TfjsWeight& w : weights) {
    const io::TfTypeInfo* type = io::find_tf_type(w.type);
    file.named.emplace_back(w.name, io::tensor_of_tf_bytes(*type, Shape(w.shape), w.bytes, w.name));
  }
  return build_keras_model(file, what);
}

}  // namespace

bool is_tfjs_model(const FilePath& path) {
  const std::string file = file_of(path.str());
  std::error_code error;
  if (!file.ends_with(".json") || !fs::is_regular_file(file, error)) return false;
  const auto bytes = make_ref<MappedFile>(file);
  return bytes->view().find(fmt::format("\"{}\"", kTopology)) != std::string_view::npos;
}

OnnxModelProto read_tfjs_model(const FilePath& path) {
  const std::string file = file_of(path.str());
  const auto bytes = make_ref<MappedFile>(file);
  Budget::add_given(bytes->size());
  const Json model = io::parse_json(bytes->view(), file);
  const Json* topology = model.find(kTopology);
  const Json* manifest = model.find("weightsManifest");
  TD_CHECK(topology && topology->as_object(), Format, "'{}': it has no {}", file, kTopology);
  TD_CHECK(manifest && manifest->as_array(), Format, "'{}': it has no weightsManifest", file);
  const std::vector<TfjsWeight> weights =
      read_tfjs_weights(*manifest, fs::path(file).parent_path().string(), file);
  return topology->find("node") ? graph_model(model, *topology, weights, file)
                                : layers_model(*topology, weights, file);
}

}  // namespace tandem::onnx
