// SPDX-License-Identifier: Apache-2.0
// A graph of TensorFlow's nodes as JSON, as protobuf maps a GraphDef and TensorFlow.js reads it:
// whole numbers and texts in attributes are strings, texts in base64. Constants have no values in
// the JSON: the manifest says how they follow each other in the shards.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tandem/base/base64.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/onnx/tensorflow/tfjs_internal.h"
#include "tandem/onnx/tensorflow/tfjs_write_internal.h"

namespace tandem::onnx {
namespace {

using io::Json;

Json json_member(const char* key, Json value) {
  return Json(Json::Object{{key, std::move(value)}});
}
Json whole_text(int64_t v) { return fmt::format("{}", v); }
Json base64_text(std::string_view s) { return base64(s); }

/// The type of TensorFlow.js that holds an element type's values.
const char* tfjs_type_of(OnnxType type, const std::string& what) {
  using T = OnnxType;
  switch (type) {
    case T::f32:
    case T::f64:
    case T::f16:
    case T::bf16:
      return "float32";
    case T::i64:
    case T::i32:
    case T::i16:
    case T::i8:
    case T::u16:
    case T::u8:
      return "int32";
    case T::b8:
      return "bool";
    default:
      TD_FAIL(Unsupported, "'{}' is of {}, which TensorFlow.js does not have", what,
              to_string(type));
  }
}
Json type_value(std::string_view type) { return json_member("type", tfjs_type_named(type)->proto); }
Json shape_value(const std::vector<int64_t>& sizes) {
  if (sizes.empty()) return Json::Object{};
  Json::Array dims;
  for (const int64_t d : sizes) dims.push_back(json_member("size", whole_text(d)));
  return json_member("dim", std::move(dims));
}
template <class List, class F>
Json list_value(const char* kind, const List& list, F entry) {
  Json::Array values;
  for (const auto& v : list) values.push_back(entry(v));
  return json_member("list",
                     values.empty() ? Json(Json::Object{}) : json_member(kind, std::move(values)));
}

/// A name as TensorFlow takes it: characters that it does not have become "_".
std::string graph_name(const std::string& name) {
  std::string out = name;
  for (char& c : out) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && c != '.' && c != '/' && c != '-' && c != '_') c = '_';
  }
  if (out.empty() || out[0] == '_' || out[0] == '/' || out[0] == '-') out.insert(0, "n");
  return out;
}

class TfjsWriter {
 public:
  TfjsWriter(const std::string& weights, uint64_t shard_bytes, const std::string& prefix)
      : weights_(weights), shard_bytes_(shard_bytes), prefix_(prefix) {}

  TfjsFiles run(OnnxGraph& g) {
    fuse_tfjs_nodes(g);
    files_.nodes = g.nodes.size();
    // Ports keep their names.
    name_ports(g);
    for (const auto* ports : {&g.inputs, &g.outputs})
      for (const OnnxPort& p : *ports) add_name(p.name, files_.keys.at(p.name));
    for (const OnnxPort& p : g.inputs) placeholder(p);
    for (const auto& [name, v] : g.initializers) constant(name, v);
    for (const OnnxNode& n : g.nodes) node(n);
    Json::Object inputs, outputs;
    for (const OnnxPort& p : g.inputs) inputs.emplace_back(files_.keys.at(p.name), port(p));
    for (const OnnxPort& p : g.outputs) outputs.emplace_back(files_.keys.at(p.name), port(p));
    cut_shards();
    Json::Array paths;
    for (const auto& [name, bytes] : files_.shards) paths.emplace_back(name);
    const Json::Object group{{"paths", std::move(paths)}, {"weights", std::move(manifest_)}};
    constexpr int kProducer = 1395;  // the version of graphs that TensorFlow 2.12 writes
    files_.json =
        Json(Json::Object{
                 {"format", "graph-model"},
                 {"generatedBy", "Tandem " TANDEM_VERSION},
                 {"convertedBy", "Tandem " TANDEM_VERSION},
                 {"signature",
                  Json::Object{{"inputs", std::move(inputs)}, {"outputs", std::move(outputs)}}},
                 {"modelTopology", Json::Object{{"node", std::move(nodes_)},
                                                {"library", Json::Object{}},
                                                {"versions", json_member("producer", kProducer)}}},
                 {"weightsManifest", Json::Array{Json(group)}}})
            .dump();
    return std::move(files_);
  }

 private:
  // ":0" at the end of a name says that it is a node's first result, and is no part of a key.
  void name_ports(const OnnxGraph& g) {
    constexpr std::string_view kFirst = ":0";
    std::set<std::string> taken;
    for (const bool plain : {true, false})
      for (const auto* ports : {&g.inputs, &g.outputs})
        for (const OnnxPort& p : *ports) {
          std::string base = p.name;
          while (base.ends_with(kFirst)) base.resize(base.size() - kFirst.size());
          if ((base == p.name) != plain || files_.keys.count(p.name)) continue;
          if (base.empty()) base = "port";
          std::string key = base;
          for (int i = 1; !taken.insert(key).second; ++i) key = fmt::format("{}_{}", base, i);
          files_.keys[p.name] = std::move(key);
        }
  }
  /// What a node is called whose first result is `value`; `like`: its name is to be like this.
  const std::string& add_name(const std::string& value) { return add_name(value, value); }
  const std::string& add_name(const std::string& value, const std::string& like) {
    const auto [at, fresh] = names_.emplace(value, "");
    if (!fresh) return at->second;
    const std::string base = graph_name(like);
    std::string name = base;
    for (int i = 1; !used_.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
    return at->second = name;
  }
  void add(const std::string& name, std::string_view op, Json::Array inputs, Json::Object attr) {
    Json::Object n{{"name", name}, {"op", std::string(op)}};
    if (!inputs.empty()) n.emplace_back("input", std::move(inputs));
    n.emplace_back("attr", std::move(attr));
    nodes_.emplace_back(std::move(n));
  }

  void placeholder(const OnnxPort& p) {
    const std::string type = tfjs_type_of(p.type.elem, p.name);
    types_[p.name] = type;
    add(names_.at(p.name), "Placeholder", {},
        {{"dtype", type_value(type)}, {"shape", json_member("shape", shape_of(p))}});
  }
  static Json shape_of(const OnnxPort& p) {
    return p.type.has_shape ? shape_value(p.type.dims) : json_member("unknownRank", true);
  }
  Json port(const OnnxPort& p) const {
    return Json::Object{{"name", names_.at(p.name) + ":0"},
                        {"dtype", tfjs_type_named(types_.at(p.name))->proto},
                        {"tensorShape", shape_of(p)}};
  }

  // Small ones that load as equal numbers are one: codes count with their scales.
  void constant(const std::string& name, const OnnxValue& v) {
    TfjsStored s = store_tfjs_weight(name, v, weights_);
    types_[name] = s.dtype;
    constexpr size_t kSmall = 256;
    if (s.bytes.size() <= kSmall) {
      const auto [at, fresh] =
          small_.emplace(fmt::format("{} {} {} {} {} {}", s.dtype, s.quantization, s.scale, s.min,
                                     fmt::join(v.shape(), ","), s.bytes),
                         name);
      if (!fresh) {
        names_[name] = names_.at(at->second);
        return;
      }
    }
    const std::string node = add_name(name);
    const Json type = tfjs_type_named(s.dtype)->proto;
    add(node, "Const", {},
        {{"dtype", type_value(s.dtype)},
         {"value", json_member("tensor", Json::Object{{"dtype", type},
                                                      {"tensorShape", shape_value(v.shape())}})}});
    Json::Array sizes;
    for (const int64_t d : v.shape()) sizes.emplace_back(d);
    Json::Object entry{{"name", node}, {"shape", std::move(sizes)}, {"dtype", s.dtype}};
    if (s.quantization == "float16")
      entry.emplace_back("quantization",
                         Json::Object{{"dtype", s.quantization}, {"original_dtype", s.dtype}});
    else if (!s.quantization.empty())
      entry.emplace_back("quantization", Json::Object{{"dtype", s.quantization},
                                                      {"min", s.min},
                                                      {"scale", s.scale},
                                                      {"original_dtype", s.dtype}});
    manifest_.emplace_back(std::move(entry));
    bytes_ += s.bytes;
  }

  void node(const OnnxNode& n) {
    const TfjsOp* op = find_tfjs_op(n);
    TD_CHECK(op, Internal, "TensorFlow.js has no {}", n.op);
    const std::string name = add_name(n.outputs[0]);
    Json::Object attr = attributes(n, *op);
    add_types(n, *op, attr);
    Json::Array inputs;
    for (const std::string& i : n.inputs) inputs.emplace_back(names_.at(i));
    add(name, op->name, std::move(inputs), std::move(attr));
    for (size_t k = 1; k < n.outputs.size(); ++k)
      names_.emplace(n.outputs[k], fmt::format("{}:{}", name, k));
  }

  static Json::Object attributes(const OnnxNode& n, const TfjsOp& op) {
    Json::Object out;
    for (const OnnxAttribute& a : n.attributes) out.emplace_back(a.name, attribute(n, op, a));
    if (!op.more.empty()) out.emplace_back("data_format", json_member("s", base64_text("NHWC")));
    if (op.more == "window" && !n.find("dilations"))
      out.emplace_back("dilations", list_value("i", std::vector<int64_t>(4, 1), whole_text));
    return out;
  }
  static Json attribute(const OnnxNode& n, const TfjsOp& op, const OnnxAttribute& a) {
    constexpr std::string_view kFlags[] = {
        "keep_dims", "exclusive",     "reverse",           "adj_x",
        "adj_y",     "align_corners", "half_pixel_centers"};
    using K = OnnxAttribute::Kind;
    switch (a.kind) {
      case K::i:
        if (is_type(op, a)) return type_value(type_of(n, a));
        if (std::find(std::begin(kFlags), std::end(kFlags), a.name) != std::end(kFlags))
          return json_member("b", a.int_value != 0);
        return json_member("i", whole_text(a.int_value));
      case K::f:
        TD_CHECK(std::isfinite(a.float_value), Unsupported,
                 "{} '{}': its {} of {} has no form in TensorFlow.js", n.op, n.outputs[0], a.name,
                 a.float_value);
        return json_member("f", static_cast<double>(a.float_value));
      case K::s:
        return json_member("s", base64_text(a.text));
      case K::ints:
        return list_value("i", a.int_list, whole_text);
      case K::strings:
        return list_value("s", a.text_list, base64_text);
      default:
        TD_FAIL(Internal, "{} has the attribute '{}'", n.op, a.name);
    }
  }
  // Does the op's definition have inputs or results of the type that this attribute says?
  static bool is_type(const TfjsOp& op, const OnnxAttribute& a) {
    const auto among = [&](std::string_view types) {
      while (!types.empty()) {
        const size_t end = std::min(types.find(' '), types.size());
        if (const auto type = types.substr(0, end); type.substr(type.find('*') + 1) == a.name)
          return true;
        types.remove_prefix(std::min(end + 1, types.size()));
      }
      return false;
    };
    return among(op.in) || among(op.out);
  }
  // Whole numbers of less than 32 bits have no form that wraps around.
  static std::string type_of(const OnnxNode& n, const OnnxAttribute& a) {
    const auto type = static_cast<OnnxType>(a.int_value);
    TD_CHECK(a.name != "DstT" || is_floating(info_of(type).carrier) || info_of(type).bits >= 32 ||
                 type == OnnxType::b8,
             Unsupported, "'{}' becomes {}, which TensorFlow.js does not have", n.outputs[0],
             to_string(type));
    return tfjs_type_of(type, n.outputs[0]);
  }

  // The types that the op's definition names follow from the inputs'.
  void add_types(const OnnxNode& n, const TfjsOp& op, Json::Object& attr) {
    std::map<std::string, std::string> types;
    for (const OnnxAttribute& a : n.attributes)
      if (a.kind == OnnxAttribute::i && is_type(op, a)) types[a.name] = type_of(n, a);
    each_value(n, n.inputs, op.in, attr, [&](const std::string& type, const std::string& value) {
      if (!tfjs_type_named(type)) types.emplace(type, types_.at(value));
    });
    each_value(n, n.outputs, op.out, attr, [&](const std::string& type, const std::string& value) {
      if (!tfjs_type_named(type) && !types.count(type)) types[type] = "int32";
      types_[value] = tfjs_type_named(type) ? type : types.at(type);
    });
    for (const auto& [name, type] : types)
      if (!n.find(name)) attr.emplace_back(name, type_value(type));
    if (op.name == "_FusedConv2D")
      attr.emplace_back("TArgs", list_value("type", std::vector<int>(n.inputs.size() - 2),
                                            [](int) { return Json("DT_FLOAT"); }));
  }
  /// f(type, value) for each value; adds the attribute that counts them where there is one.
  template <class F>
  static void each_value(const OnnxNode& n, const std::vector<std::string>& values,
                         std::string_view types, Json::Object& attr, F f) {
    const auto fixed = static_cast<size_t>(std::count(types.begin(), types.end(), ' '));
    TD_CHECK(values.size() >= fixed, Internal, "{} has {} values", n.op, values.size());
    auto value = values.begin();
    while (!types.empty()) {
      const size_t end = std::min(types.find(' '), types.size());
      std::string type(types.substr(0, end));
      types.remove_prefix(std::min(end + 1, types.size()));
      size_t count = 1;
      if (const size_t star = type.find('*'); star != type.npos) {
        count = values.size() - fixed;
        const std::string counter = type.substr(0, star);
        if (!n.find(counter))
          attr.emplace_back(counter, json_member("i", whole_text(static_cast<int64_t>(count))));
        type.erase(0, star + 1);
      }
      for (size_t k = 0; k < count && value != values.end(); ++k) f(type, *value++);
    }
  }

  void cut_shards() {
    const uint64_t count = (bytes_.size() + shard_bytes_ - 1) / shard_bytes_;
    for (uint64_t i = 0; i < count; ++i)
      files_.shards.emplace_back(tfjs_shard_name(prefix_, i + 1, count),
                                 bytes_.substr(i * shard_bytes_, shard_bytes_));
  }

  const std::string& weights_;
  const uint64_t shard_bytes_;
  const std::string& prefix_;
  TfjsFiles files_;
  std::map<std::string, std::string> names_, types_, small_;
  std::set<std::string> used_;
  Json::Array nodes_, manifest_;
  std::string bytes_;
};

}  // namespace

std::string tfjs_shard_name(const std::string& prefix, uint64_t i, uint64_t count) {
  return fmt::format("{}group1-shard{}of{}.bin", prefix, i, count);
}

TfjsFiles write_tfjs_graph(OnnxModelProto model, const std::string& weights, uint64_t shard_bytes,
                           const std::string& prefix) {
  return TfjsWriter(weights, shard_bytes, prefix).run(model.graph);
}

}  // namespace tandem::onnx
