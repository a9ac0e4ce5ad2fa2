// SPDX-License-Identifier: Apache-2.0
// Keras's models as graphs: Sequential and Functional, inside each other, and where the variables
// of their layers are in the file.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tandem/base/budget.h"
#include "tandem/onnx/tensorflow/keras_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

using io::Json;

constexpr int kMostModels = 32;  ///< inside each other

struct TensorName {
  std::string layer;
  int64_t node = 0, index = 0;
  int rank = 0;  ///< 0: unknown
};

std::string key_of(const std::string& layer, int64_t node, int64_t index) {
  return fmt::format("{}/{}/{}", layer, node, index);
}

/// ["layer", 0, 0]
bool is_history(const Json& j) {
  const std::vector<Json>& a = keras_entries(&j);
  return a.size() >= 3 && a[0].as_string() && a[1].as_int() && a[2].as_int();
}
TensorName history_of(const Json& j) {
  const std::vector<Json>& a = keras_entries(&j);
  return {*a[0].as_string(), *a[1].as_int(), *a[2].as_int(), 0};
}
/// All of ["a", 0, 0], [["a", 0, 0], ["b", 0, 0]] or {"x": ["a", 0, 0]}.
void histories_of(const Json& j, std::vector<TensorName>& out, int depth = 0) {
  if (depth > 16) return;
  if (is_history(j)) {
    out.push_back(history_of(j));
  } else if (const Json::Object* o = j.as_object()) {
    for (const auto& [key, v] : *o) histories_of(v, out, depth + 1);
  } else {
    for (const Json& v : keras_entries(&j)) histories_of(v, out, depth + 1);
  }
}

}  // namespace

// A transcription of Keras's two regular expressions, (.)([A-Z][a-z]+) and ([a-z])([A-Z]).
std::string keras_snake_case(std::string_view name) {
  const auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
  std::string words, out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') words += c;
  std::string first;
  for (size_t i = 0; i < words.size();) {
    if (i + 2 < words.size() && upper(words[i + 1]) && lower(words[i + 2])) {
      first += words[i];
      first += '_';
      for (++i, first += words[i++]; i < words.size() && lower(words[i]); ++i) first += words[i];
    } else {
      first += words[i++];
    }
  }
  for (size_t i = 0; i < first.size(); ++i) {
    if (i > 0 && lower(first[i - 1]) && upper(first[i])) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(first[i])));
  }
  return out;
}

// ---- variables

Tensor KerasWeights::at(size_t i) const {
  if (by_name_) {
    TD_CHECK(i < names_.size(), Format,
             "'{}': the layer '{}' has {} variables, number {} is needed", file_name(), path_,
             names_.size(), i);
    const Variable& v = names_[i];
    return v.value.defined() ? v.value : file_.weights->tensor(v.dataset);
  }
  io::Hdf5File::Object found = 0;
  TD_CHECK(exists_ && file_.weights->find(group_, fmt::format("vars/{}", i), found), Format,
           "'{}': there is no '{}/vars/{}'", file_name(), path_, i);
  return file_.weights->tensor(found);
}

KerasWeights KerasWeights::child(const std::string& attribute, const std::string& name) const {
  if (by_name_) {
    Names of;
    for (const Variable& v : names_)
      if (name.empty() || ("/" + v.path + "/").find("/" + name + "/") != std::string::npos)
        of.push_back(v);
    return KerasWeights(file_, std::move(of), path_ + "/" + name);
  }
  KerasWeights out(file_, 0, path_ + "/" + attribute);
  out.exists_ = exists_ && file_.weights->find(group_, attribute, out.group_);
  return out;
}

// ---- nodes

void KerasBuilder::fail(const std::string& why) const { TD_FAIL(Format, "'{}': {}", what_, why); }
void KerasBuilder::lacks(const KerasCall& c, const std::string& what) const {
  TD_FAIL(Unsupported, "'{}': the layer '{}' ({}): {} is not supported", what_, c.name, c.type,
          what);
}

std::string KerasBuilder::node(const KerasCall& c, const char* op, Values inputs,
                               OnnxAttributes attributes, const char* domain) {
  Budget::count();
  Budget::take(sizeof(OnnxNode));
  OnnxNode n;
  n.op = op;
  n.domain = domain;
  n.name = c.name;
  n.inputs = std::move(inputs);
  n.attributes = std::move(attributes);
  std::string out = c.name;
  for (int i = 1; !used_.insert(out).second; ++i) out = fmt::format("{}#{}", c.name, i);
  n.outputs = {out};
  model_.graph.nodes.push_back(std::move(n));
  return out;
}

std::string KerasBuilder::constant(const std::string& name, const Tensor& t) {
  std::string out = name;
  for (int i = 1; !used_.insert(out).second; ++i) out = fmt::format("{}#{}", name, i);
  model_.graph.initializers.emplace_back(out, OnnxValue(t));
  return out;
}
std::string KerasBuilder::numbers(const std::vector<int64_t>& v) {
  return constant("numbers", tensor(v, Shape(static_cast<int64_t>(v.size()))));
}
std::string KerasBuilder::number(double v) {
  return constant("number", full(Shape(), v, DType::f32));
}

// ---- models

OnnxModelProto KerasBuilder::run() {
  const Json config = io::parse_json(file_.config, what_);
  const std::string type = io::text_of(config.find("class_name"));
  if (!is_keras_model_type(type))
    TD_FAIL(Unsupported,
            "'{}': the model is of the class '{}', only Sequential and Functional ones can be "
            "built from a file\nSave it with model.export() as a SavedModel.",
            what_, type);
  count_unknown(config, 0);
  if (!unknown_.empty()) {
    std::string list;
    for (const auto& [name, n] : unknown_)
      list += fmt::format("{}{} {}", list.empty() ? "" : ", ", n, name);
    TD_FAIL(Unsupported,
            "'{}': {} of its layers' classes {} not supported: {}\nSave it with model.export() as "
            "a SavedModel.",
            what_, unknown_.size(), unknown_.size() == 1 ? "is" : "are", list);
  }
  model_.ir_version = 10;
  model_.producer = "Keras";
  model_.opsets = {{"", 23}, {kOnnxTf, 1}, {kOnnxKeras, 1}, {kOnnxTandem, 1}};
  KerasWeights::Names named;
  for (const auto& [path, value] : file_.named) named.push_back({path, 0, value});
  const KerasWeights weights = file_.by_name ? KerasWeights(file_, std::move(named), "")
                                             : KerasWeights(file_, file_.group, "");
  const Values out = model(config, {}, weights);
  for (size_t i = 0; i < out.size(); ++i) {
    OnnxPort p;
    p.name = out.size() == 1 ? "output" : fmt::format("output_{}", i);
    for (int k = 1; !used_.insert(p.name).second; ++k) p.name += "_";
    p.type.kind = OnnxTypeSpec::Kind::tensor;
    OnnxNode n;  // the file does not state the type of a result
    n.op = "Identity";
    n.inputs = {out[i]};
    n.outputs = {p.name};
    model_.graph.nodes.push_back(std::move(n));
    model_.graph.outputs.push_back(std::move(p));
  }
  if (model_.graph.outputs.empty()) fail("the model has no outputs");
  remove_unused(model_.graph);  // masks that no layer reads
  return std::move(model_);
}

void KerasBuilder::count_unknown(const Json& layer, int depth) {
  if (depth > kMostModels) fail(fmt::format("models are nested more than {} deep", kMostModels));
  Budget::count();
  const std::string type = io::text_of(layer.find("class_name"));
  if (is_keras_model_type(type)) {
    for (const Json& l : keras_entries(&keras_member(keras_member(layer, "config"), "layers")))
      count_unknown(l, depth + 1);
  } else if (is_operation(layer) ? !has_operation(type)
                                 : type != "InputLayer" && !find_layer(type)) {
    ++unknown_[type];
  }
  for (const char* inner : {"layer", "backward_layer"})
    if (const Json* l = keras_member(layer, "config").find(inner); l && l->as_object())
      count_unknown(*l, depth + 1);
}

std::string KerasBuilder::input(const Json& layer) {
  const Json& config = keras_member(layer, "config");
  OnnxPort p;
  p.name = io::text_of(config.find("name"));
  if (p.name.empty()) p.name = "input";
  for (int k = 1; !used_.insert(p.name).second; ++k) p.name += "_";
  p.type.kind = OnnxTypeSpec::Kind::tensor;
  const int64_t dtype = keras_dtype(io::text_of(config.find("dtype")));
  p.type.elem = dtype == 0 ? OnnxType::f32 : static_cast<OnnxType>(dtype);
  const Json* shape = config.find("batch_shape");
  if (!shape) shape = config.find("batch_input_shape");
  p.type.has_shape = shape && shape->as_array();
  if (p.type.has_shape)
    for (const Json& d : keras_entries(shape)) p.type.dims.push_back(d.as_int() ? *d.as_int() : -1);
  if (p.type.dims.size() > static_cast<size_t>(kMaxRank)) fail("an input has too many dimensions");
  p.type.dim_names.resize(p.type.dims.size());
  ranks_[p.name] = static_cast<int>(p.type.dims.size());
  model_.graph.inputs.push_back(p);
  return p.name;
}

/// A group for each layer by class and place; in the older layout by the names of the layers.
std::vector<KerasWeights> KerasBuilder::weights_of(const std::vector<Json>& layers,
                                                   const KerasWeights& weights) const {
  std::vector<KerasWeights> out;
  std::map<std::string, int> counts;
  const KerasWeights all = weights.child("layers", "");
  for (const Json& l : layers) {
    const std::string name = io::text_of(keras_member(l, "config").find("name"));
    // A group of its own.
    if (weights.by_name() && depth_ == 1 && file_.weights && !is_operation(l)) {
      KerasWeights::Names names;
      io::Hdf5File::Object group = 0, dataset = 0;
      if (file_.weights->find(file_.group, name, group))
        for (const std::string& w : io::keras_texts(*file_.weights, group, "weight_names"))
          if (file_.weights->find(group, w, dataset)) {
            std::string path = w.ends_with(":0") ? w.substr(0, w.size() - 2) : w;
            names.push_back({std::move(path), dataset});
          }
      out.emplace_back(file_, std::move(names), name);
      continue;
    }
    if (is_operation(l)) {
      out.push_back(all);
      continue;
    }
    std::string type = io::text_of(l.find("class_name"));
    if (type == "GroupQueryAttention") type = "GroupedQueryAttention";  // the class in Python
    std::string group = keras_snake_case(type);
    if (const int n = counts[group]++; n > 0) group = fmt::format("{}_{}", group, n);
    out.push_back(all.child(group, name));
  }
  return out;
}

KerasBuilder::Values KerasBuilder::model(const Json& layer, const Values& inputs,
                                         const KerasWeights& weights) {
  if (depth_ >= kMostModels) fail(fmt::format("models are nested more than {} deep", kMostModels));
  ++depth_;
  const Json& config = keras_member(layer, "config");
  Values out = io::text_of(layer.find("class_name")) == "Sequential"
                   ? sequential(config, inputs, weights)
                   : functional(config, inputs, weights);
  --depth_;
  return out;
}

KerasBuilder::Values KerasBuilder::sequential(const Json& config, Values values,
                                              const KerasWeights& weights) {
  const std::vector<Json>& layers = keras_entries(&keras_member(config, "layers"));
  const std::vector<KerasWeights> all = weights_of(layers, weights);
  for (size_t i = 0; i < layers.size(); ++i) {
    const Json& inner = keras_member(layers[i], "config");
    KerasCall c{inner,
                io::text_of(inner.find("name")),
                io::text_of(layers[i].find("class_name")),
                values,
                {},
                {},
                {},
                keras_input_rank(layers[i]),
                all[i]};
    if (c.type == "InputLayer") {
      if (values.empty()) values = {input(layers[i])};
      continue;
    }
    if (values.empty()) {  // Keras 2: the first layer may state the input's shape
      const Json* shape = inner.find("batch_input_shape");
      if (!shape && config.find("build_input_shape")) {
        OnnxPort p;
        const Json::Object spec{
            {"config", Json(Json::Object{{"name", "input"},
                                         {"batch_shape", *config.find("build_input_shape")}})}};
        c.inputs = values = {input(Json(spec))};
      } else if (shape) {
        const Json::Object spec{
            {"config", Json(Json::Object{{"name", c.name + "_input"}, {"batch_shape", *shape}})}};
        c.inputs = values = {input(Json(spec))};
      } else {
        fail("the model does not state the shape of its input");
      }
    }
    values = call(layers[i], c);
  }
  return values;
}

namespace {

/// The values and other arguments that one call of a layer takes.
struct Arguments {
  std::vector<TensorName> tensors;
  std::vector<const Json*> all;  ///< in order; nullptr: the next tensor
  std::vector<std::pair<std::string, TensorName>> named;
  std::vector<std::string> options;
  std::vector<std::pair<std::string, const Json*>> constants;
};

void flatten_arguments(const Json& j, Arguments& out, int depth = 0) {
  if (depth > 16) return;
  if (io::text_of(j.find("class_name")) == "__keras_tensor__") {
    const Json& history = keras_member(keras_member(j, "config"), "keras_history");
    if (!is_history(history)) return;
    out.tensors.push_back(history_of(history));
    out.tensors.back().rank =
        static_cast<int>(keras_entries(keras_member(j, "config").find("shape")).size());
    out.all.push_back(nullptr);
  } else if (const Json::Array* a = j.as_array()) {
    bool tensors = false;
    for (const Json& v : *a) tensors |= v.as_object() != nullptr;
    if (!tensors) out.all.push_back(&j);
    for (const Json& v : *a)
      if (tensors) flatten_arguments(v, out, depth + 1);
  } else {
    out.all.push_back(&j);
  }
}

Arguments arguments_of(const Json& node) {
  Arguments out;
  if (node.as_array()) {  // Keras 2: [["layer", 0, 0, {}], ...]
    histories_of(node, out.tensors);
    return out;
  }
  for (const Json& a : keras_entries(&keras_member(node, "args"))) flatten_arguments(a, out);
  if (const Json::Object* named = keras_member(node, "kwargs").as_object())
    for (const auto& [key, value] : *named) {
      if ((value.as_bool() && *value.as_bool()) || (value.as_int() && *value.as_int() != 0))
        out.options.push_back(key);
      if (value.as_int() || value.as_double()) out.constants.emplace_back(key, &value);
      const std::vector<Json>& list = keras_entries(&value);
      for (size_t i = 0; i < std::max<size_t>(1, list.size()); ++i) {
        Arguments one;
        flatten_arguments(list.empty() ? value : list[i], one);
        if (one.tensors.size() == 1)
          out.named.emplace_back(list.empty() ? key : fmt::format("{}/{}", key, i), one.tensors[0]);
      }
    }
  return out;
}

}  // namespace

void KerasBuilder::call_nodes(const Json& layer, const KerasWeights& weights, Tensors& tensors) {
  const Json& config = keras_member(layer, "config");
  std::string name = io::text_of(layer.find("name"));
  if (name.empty()) name = io::text_of(config.find("name"));
  const std::vector<Json>& nodes = keras_entries(&keras_member(layer, "inbound_nodes"));
  for (size_t k = 0; k < nodes.size(); ++k) {
    if (tensors.count(key_of(name, static_cast<int64_t>(k), 0))) continue;
    keras2_ |= nodes[k].as_array() != nullptr;
    const Arguments a = arguments_of(nodes[k]);
    KerasCall c{config,
                name,
                io::text_of(layer.find("class_name")),
                {},
                a.all,
                {},
                a.options,
                keras_input_rank(layer),
                weights,
                a.constants};
    if (c.rank == 0 && !a.tensors.empty()) c.rank = a.tensors[0].rank;
    const auto value = [&](const TensorName& t) {
      const auto it = tensors.find(key_of(t.layer, t.node, t.index));
      return it == tensors.end() ? std::string() : it->second;
    };
    bool ready = true;
    for (const TensorName& t : a.tensors) c.inputs.push_back(value(t));
    for (const auto& [key, t] : a.named) c.named.emplace_back(key, value(t));
    for (const std::string& v : c.inputs) ready = ready && !v.empty();
    for (const auto& v : c.named) ready = ready && !v.second.empty();
    if (!ready) continue;  // another pass comes
    const Values out = call(layer, c);
    for (size_t i = 0; i < out.size(); ++i)
      tensors[key_of(name, static_cast<int64_t>(k), static_cast<int64_t>(i))] = out[i];
  }
}

KerasBuilder::Values KerasBuilder::functional(const Json& config, const Values& inputs,
                                              const KerasWeights& weights) {
  const std::vector<Json>& layers = keras_entries(&keras_member(config, "layers"));
  const std::vector<KerasWeights> all = weights_of(layers, weights);
  Tensors tensors;
  std::vector<TensorName> in, out;
  histories_of(keras_member(config, "input_layers"), in);
  histories_of(keras_member(config, "output_layers"), out);
  const bool outermost = depth_ == 1;
  if (!outermost && inputs.size() != in.size())
    fail(fmt::format("the model '{}' takes {} inputs, got {}", io::text_of(config.find("name")),
                     in.size(), inputs.size()));
  for (size_t i = 0; i < in.size(); ++i) {
    const std::string key = key_of(in[i].layer, 0, 0);
    if (!outermost) {
      tensors[key] = inputs[i];
      continue;
    }
    for (const Json& l : layers)
      if (!tensors.count(key) && io::text_of(keras_member(l, "config").find("name")) == in[i].layer)
        tensors[key] = input(l);
  }
  // Layers are listed in the order of their making, calls of shared ones may come later: passes
  // are repeated while they find more.
  const auto find = [&](const TensorName& t) {
    return tensors.find(key_of(t.layer, t.node, t.index));
  };
  for (size_t before = 0; before != tensors.size();) {
    before = tensors.size();
    Budget::check_time();
    for (size_t i = 0; i < layers.size(); ++i) call_nodes(layers[i], all[i], tensors);
  }
  Values result;
  for (const TensorName& t : out) {
    // Nodes of a shared model count from its own first call.
    auto it = find(t);
    if (it == tensors.end()) fail(fmt::format("the output of '{}' is never computed", t.layer));
    result.push_back(it->second);
  }
  return result;
}

bool is_keras_model(const FilePath& path) {
  const auto file = make_ref<MappedFile>(path);
  const std::string_view content = file->view();
  const Budget budget(path.str(), content.size());
  if (!io::is_keras_archive(content, path)) {
    if (!io::Hdf5File::is_hdf5(content)) return false;
    const io::Hdf5File h5(path);
    const std::vector<std::string> all = h5.attributes(h5.root());
    return std::find(all.begin(), all.end(), "model_config") != all.end();
  }
  return true;
}

OnnxModelProto read_keras_model(const FilePath& path) {
  Budget::add_given(make_ref<MappedFile>(path)->size());
  return build_keras_model(io::open_keras_file(path), path.str());
}

OnnxModelProto build_keras_model(const io::KerasFile& file, const std::string& what) {
  TD_CHECK(!file.config.empty(), Format, "'{}': it holds weights only, no architecture", what);
  return KerasBuilder(file, what).run();
}

}  // namespace tandem::onnx
