// SPDX-License-Identifier: Apache-2.0
// SavedModel folders and frozen graphs: which signature, which files.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "tandem/base/budget.h"
#include "tandem/onnx/tensorflow.h"
#include "tandem/onnx/tensorflow/flatten_internal.h"
#include "tandem/onnx/tensorflow/keras_internal.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/onnx/tensorflow/tfjs_internal.h"
#include "tandem/onnx/tflite.h"

namespace tandem::onnx {
namespace {

namespace fs = std::filesystem;

bool is_saved_model(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(fs::path(path) / "saved_model.pb", error);
}

const TfSignature& choose_signature(const TfSavedModel& m, const std::string& wanted,
                                    const std::string& what) {
  const TfSignature* only = nullptr;
  size_t count = 0;
  std::string names;
  for (const auto& [name, s] : m.signatures) {
    if (name == (wanted.empty() ? "serving_default" : wanted)) return s;
    if (name.starts_with("__saved_model")) continue;
    only = &s;
    ++count;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
  }
  if (wanted.empty() && count == 1) return *only;
  TD_CHECK(count > 0, Format, "'{}': this model has no signatures, so nothing in it can be called",
           what);
  TD_CHECK(!wanted.empty(), Value, "'{}': the model has several signatures\nName one of {}.", what,
           names);
  TD_FAIL(Value, "'{}': there is no signature '{}'\nIt has {}.", what, wanted, names);
}

OnnxModelProto read_saved_model(const std::string& folder, const std::string& signature) {
  const std::string path = (fs::path(folder) / "saved_model.pb").string();
  const auto file = make_ref<MappedFile>(path);
  Budget::add_given(file->size());
  const TfSavedModel m = parse_tf_saved_model(file->view(), path);
  const TfSignature& s = choose_signature(m, signature, path);
  std::optional<io::TensorBundle> bundle;
  const std::string index = (fs::path(folder) / "variables" / "variables.index").string();
  if (file_exists(index)) bundle.emplace(index);
  TfFlattener f(m.graph, bundle ? &*bundle : nullptr, path);
  f.name_ports(s);
  f.restore(m);
  return f.run(s);
}

/// The element type of a node's output, as far as its attributes tell.
OnnxType result_type(const TfNode& n) {
  constexpr std::string_view kConditions[] = {"Equal",     "NotEqual", "Less",
                                              "LessEqual", "Greater",  "GreaterEqual"};
  if (n.op.starts_with("Logical") ||
      std::find(std::begin(kConditions), std::end(kConditions), n.op) != std::end(kConditions))
    return OnnxType::b8;
  for (const char* name : {"DstT", "output_type", "out_type", "dtype", "T"})
    if (const OnnxAttribute* a = n.find(name); a && a->kind == OnnxAttribute::i)
      return static_cast<OnnxType>(a->int_value);
  return OnnxType::f32;
}

OnnxModelProto read_frozen_graph(const std::string& path) {
  const auto file = make_ref<MappedFile>(path);
  Budget::add_given(file->size());
  const TfGraph g = parse_tf_graph(file->view(), path);
  TfFlattener f(g, nullptr, path);
  const TfSignature s = signature_of_graph(g, path);
  f.name_ports(s);
  return f.run(s);
}

}  // namespace

TfSignature signature_of_graph(const TfGraph& g, const std::string& what) {
  TfSignature s;
  std::set<std::string> read;
  for (const TfNode& n : g.nodes)
    for (const std::string& i : n.inputs)
      read.insert(i.substr(i.starts_with('^') ? 1 : 0, i.find(':')));
  for (const TfNode& n : g.nodes) {
    TfPort p;
    p.key = n.name;
    p.tensor = n.name + ":0";
    p.type.kind = OnnxTypeSpec::Kind::tensor;
    p.type.elem = result_type(n);
    if (n.op == "Placeholder") {
      const OnnxAttribute* shape = n.find("shape");
      p.type.has_shape = shape && shape->kind == OnnxAttribute::ints;
      if (p.type.has_shape) p.type.dims = shape->int_list;
      p.type.dim_names.resize(p.type.dims.size());
      s.inputs.push_back(std::move(p));
    } else if (!read.count(n.name) && n.op != "Const" && n.op != "NoOp") {
      s.outputs.push_back(std::move(p));
    }
  }
  TD_CHECK(!s.outputs.empty(), Format, "'{}': the graph has no outputs", what);
  return s;
}

bool is_tensorflow_model(const FilePath& path) {
  const std::string& p = path.str();
  std::error_code error;
  if (fs::is_directory(p, error)) return is_saved_model(p) || is_tfjs_model(path);
  if (!fs::is_regular_file(p, error)) return false;
  if (is_tflite_model(make_ref<MappedFile>(p)->view())) return true;
  if (p.ends_with(".pb")) return is_tf_graph(make_ref<MappedFile>(p)->view());
  return is_tfjs_model(path) || is_keras_model(p);
}

OnnxModelProto read_tensorflow_model(const FilePath& path, const std::string& signature) {
  const std::string& p = path.str();
  if (is_saved_model(p)) return read_saved_model(p, signature);
  const bool tfjs = is_tfjs_model(path);
  if (!tfjs && is_tflite_model(make_ref<MappedFile>(p)->view()))
    return read_tflite_model(path, signature);
  TD_CHECK(signature.empty(), Value,
           "'{}': only SavedModel folders and .tflite files have signatures", p);
  if (tfjs) return read_tfjs_model(path);
  return p.ends_with(".pb") ? read_frozen_graph(p) : read_keras_model(p);
}

std::vector<std::string> tensorflow_signatures(const FilePath& path) {
  std::vector<std::string> names;
  std::error_code error;
  if (fs::is_regular_file(path.str(), error) &&
      is_tflite_model(make_ref<MappedFile>(path.str())->view()))
    return tflite_signatures(path);
  if (!is_saved_model(path.str())) return names;
  const std::string file = (fs::path(path.str()) / "saved_model.pb").string();
  const auto bytes = make_ref<MappedFile>(file);
  const Budget budget(file, bytes->size());
  for (const auto& [name, s] : parse_tf_saved_model(bytes->view(), file).signatures)
    if (!name.starts_with("__saved_model")) names.push_back(name);
  return names;
}

std::vector<std::string> tensorflow_ops() {
  std::vector<std::string> names;
  for (const auto& family : onnx_rows())
    for (const OnnxRow& r : family)
      if (r.import && std::string_view(r.domain) == kOnnxTf) names.emplace_back(r.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tandem::onnx
