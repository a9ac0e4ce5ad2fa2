// SPDX-License-Identifier: Apache-2.0
// GraphDef, FunctionDef, SavedModel and TensorProto, parsed field by field.
// tensorflow/core/framework/*.proto, tensorflow/core/protobuf/{saved_model,meta_graph}.proto
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/budget.h"
#include "tandem/io/protobuf.h"
#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/onnx/tensorflow/graph_def_internal.h"

namespace tandem::onnx {
namespace {

using io::ProtoReader;

constexpr int kResource = 20;

OnnxType tf_type(int64_t number) {
  const io::TfTypeInfo* t = io::find_tf_type(number);
  return t ? static_cast<OnnxType>(t->onnx) : OnnxType::undefined;
}

/// Sizes, -1 where open; nothing where even their number is open.
bool shape_of_proto(ProtoReader m, std::vector<int64_t>& dims) {
  bool known = true;
  while (m.next()) {
    if (m.field() == 3 && m.bool_value()) known = false;
    if (m.field() != 2) continue;
    ProtoReader dim = m.message();
    int64_t size = 0;
    while (dim.next())
      if (dim.field() == 1) size = dim.int_value();
    dims.push_back(size < 0 ? -1 : size);
    if (dims.size() > 254) m.fail("a tensor has too many dimensions");
  }
  return known;
}

struct TensorFields {
  int64_t type = 0;
  std::vector<int64_t> dims;
  std::string_view content;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> ints;  ///< of all integer types, halves and booleans
  std::vector<std::string> texts;
};

TensorFields tensor_fields(ProtoReader& m) {
  TensorFields f;
  while (m.next()) {
    switch (m.field()) {
      case 1:
        f.type = m.int_value();
        break;
      case 2:
        shape_of_proto(m.message(), f.dims);
        break;
      case 4:
        f.content = m.bytes();
        break;
      case 5:
        m.append(f.floats);
        break;
      case 6:
        m.append(f.doubles);
        break;
      case 7:
      case 10:
      case 11:
      case 13:
      case 16:
      case 17:
        m.append(f.ints);
        break;
      case 8:
        Budget::take(2 * sizeof(std::string));
        f.texts.push_back(m.text());
        break;
      default:
        break;
    }
  }
  return f;
}

/// The values of a list as bytes of `width` each; the last one stands for all that are missing.
template <class T>
std::string repeated(const std::vector<T>& list, uint64_t n, size_t width) {
  std::string out(n * width, '\0');
  for (uint64_t i = 0; i < n && !list.empty(); ++i)
    std::memcpy(out.data() + i * width, &list[std::min<uint64_t>(i, list.size() - 1)], width);
  return out;
}

OnnxValue tensor_of_proto(ProtoReader m, const std::string& what) {
  TensorFields f = tensor_fields(m);
  const io::TfTypeInfo* type = io::find_tf_type(f.type);
  if (!type) m.fail(fmt::format("a constant has the element type {}", f.type));
  if (f.dims.size() > kMaxRank)
    m.fail(fmt::format("a constant has {} dimensions, at most {} are possible", f.dims.size(),
                       kMaxRank));
  uint64_t n = 1;
  for (const int64_t d : f.dims)
    if (d < 0 || __builtin_mul_overflow(n, static_cast<uint64_t>(d), &n) || n >> 40)
      m.fail("a constant has an impossible shape");
  const uint64_t width =
      std::max<uint64_t>(type->bytes, type->number == 7 ? sizeof(std::string) : 1);
  Budget::take(2 * n * width);
  Budget::give_back(2 * n * width);
  if (type->number == 7) {
    if (f.texts.empty()) f.texts.emplace_back();
    const std::string last = f.texts.back();
    if (f.texts.size() > n) m.fail("a constant has more strings than its shape");
    f.texts.resize(n, last);
    return OnnxValue(OnnxStrings{f.dims, std::move(f.texts)});
  }
  if (type->bytes == 0 || type->onnx == 0) return OnnxValue();  // only an op that is unknown has it
  const auto as = static_cast<OnnxType>(type->onnx);
  const std::string name = what + ": a constant";
  if (!f.content.empty() || n == 0)
    return OnnxValue(io::tensor_of_tf_bytes(*type, Shape(f.dims), f.content, name), as);
  const std::string bytes = type->number == 1   ? repeated(f.floats, n, type->bytes)
                            : type->number == 2 ? repeated(f.doubles, n, type->bytes)
                                                : repeated(f.ints, n, type->bytes);
  return OnnxValue(io::tensor_of_tf_bytes(*type, Shape(f.dims), bytes, name), as);
}

/// A list(...) attribute; of its kinds one is filled.
void list_attribute(ProtoReader m, OnnxAttribute& a) {
  using Kind = OnnxAttribute;
  a.kind = Kind::ints;
  std::vector<int64_t> types;
  while (m.next()) {
    switch (m.field()) {
      case 2:
        a.kind = Kind::strings;
        a.text_list.push_back(m.text());
        break;
      case 3:
      case 5:
        m.append(a.int_list);
        break;
      case 4:
        a.kind = Kind::floats;
        m.append(a.float_list);
        break;
      case 6:
        types.clear();
        m.append(types);
        for (const int64_t t : types) a.int_list.push_back(static_cast<int64_t>(tf_type(t)));
        break;
      case 9: {  // functions
        a.kind = Kind::strings;
        ProtoReader f = m.message();
        while (f.next())
          if (f.field() == 1) a.text_list.push_back(f.text());
        break;
      }
      default:
        break;
    }
  }
}

void attribute_value(ProtoReader m, OnnxAttribute& a, const std::string& what) {
  using Kind = OnnxAttribute;
  while (m.next()) {
    switch (m.field()) {
      case 1:
        list_attribute(m.message(), a);
        break;
      case 2:
        a.kind = Kind::s;
        a.text = m.text();
        break;
      case 3:
        a.kind = Kind::i;
        a.int_value = m.int_value();
        break;
      case 4:
        a.kind = Kind::f;
        a.float_value = m.float_value();
        break;
      case 5:
        a.kind = Kind::i;
        a.int_value = m.bool_value();
        break;
      case 6:
        a.kind = Kind::i;
        a.int_value = static_cast<int64_t>(tf_type(m.int_value()));
        a.type_spec.kind = OnnxTypeSpec::Kind::tensor;  // tells it from a number
        break;
      case 7:
        a.kind = shape_of_proto(m.message(), a.int_list) ? Kind::ints : Kind::none;
        break;
      case 8:
        a.kind = Kind::t;
        a.tensor = tensor_of_proto(m.message(), what);
        break;
      case 9:
        a.ref = m.text();
        break;
      case 10: {
        a.kind = Kind::s;
        ProtoReader f = m.message();
        while (f.next())
          if (f.field() == 1) a.text = f.text();
        break;
      }
      default:
        break;
    }
  }
}

/// An entry of a map: calls f(key, reader of the value), if both are there in this order.
template <class F>
void map_entry(ProtoReader m, F&& f) {
  std::string key;
  while (m.next()) {
    if (m.field() == 1) key = m.text();
    if (m.field() == 2) f(key, m);
  }
}

TfNode node_of(ProtoReader m, const std::string& what) {
  Budget::count();
  TfNode n;
  while (m.next()) {
    switch (m.field()) {
      case 1:
        n.name = m.text();
        break;
      case 2:
        n.op = m.text();
        break;
      case 3:
        n.inputs.push_back(m.text());
        break;
      case 5:
        map_entry(m.message(), [&](const std::string& key, ProtoReader& value) {
          if (key.starts_with("_")) return;  // hints of TensorFlow's own
          OnnxAttribute a;
          a.name = key;
          attribute_value(value.message(), a, what);
          n.attributes.push_back(std::move(a));
        });
        break;
      default:
        break;
    }
  }
  return n;
}

TfArgument argument_of(ProtoReader m) {
  TfArgument a;
  while (m.next()) {
    if (m.field() == 1) a.name = m.text();
    if (m.field() == 3) {
      const int64_t type = m.int_value();
      a.type = tf_type(type);
      a.is_resource = type == kResource;
    }
  }
  return a;
}

void function_signature(ProtoReader m, TfFunction& f) {
  while (m.next()) {
    if (m.field() == 1) f.name = m.text();
    if (m.field() == 2) f.inputs.push_back(argument_of(m.message()));
    if (m.field() == 3) f.outputs.push_back(argument_of(m.message()));
  }
}

TfFunction function_of(ProtoReader m, const std::string& what) {
  TfFunction f;
  while (m.next()) {
    switch (m.field()) {
      case 1:
        function_signature(m.message(), f);
        break;
      case 3:
        f.nodes.push_back(node_of(m.message(), what));
        break;
      case 4:
        map_entry(m.message(),
                  [&](const std::string& key, ProtoReader& v) { f.results[key] = v.text(); });
        break;
      case 6:
        map_entry(m.message(), [&](const std::string&, ProtoReader& v) {
          f.control_results.push_back(v.text());
        });
        break;
      default:
        break;
    }
  }
  return f;
}

TfGraph graph_of(ProtoReader m, const std::string& what) {
  TfGraph g;
  while (m.next()) {
    if (m.field() == 1) g.nodes.push_back(node_of(m.message(), what));
    if (m.field() != 2) continue;
    ProtoReader library = m.message();
    while (library.next()) {
      if (library.field() != 1) continue;
      TfFunction f = function_of(library.message(), what);
      const std::string name = f.name;
      if (!g.functions.emplace(name, std::move(f)).second)
        library.fail(fmt::format("the function '{}' is defined twice", name));
    }
  }
  return g;
}

void tensor_info(ProtoReader m, TfPort& p) {
  p.type.kind = OnnxTypeSpec::Kind::tensor;
  while (m.next()) {
    if (m.field() == 1) p.tensor = m.text();
    if (m.field() == 2) p.type.elem = tf_type(m.int_value());
    if (m.field() == 3) p.type.has_shape = shape_of_proto(m.message(), p.type.dims);
    if (m.field() == 4 || m.field() == 5) p.type.kind = OnnxTypeSpec::Kind::other;
  }
  if (!p.type.has_shape) p.type.dims.clear();
  p.type.dim_names.resize(p.type.dims.size());
}

TfSignature signature_of(ProtoReader m) {
  TfSignature s;
  while (m.next()) {
    if (m.field() != 1 && m.field() != 2) continue;
    std::vector<TfPort>& side = m.field() == 1 ? s.inputs : s.outputs;
    map_entry(m.message(), [&](const std::string& key, ProtoReader& v) {
      TfPort p;
      p.key = key;
      tensor_info(v.message(), p);
      side.push_back(std::move(p));
    });
  }
  for (std::vector<TfPort>* side : {&s.inputs, &s.outputs})
    std::sort(side->begin(), side->end(),
              [](const TfPort& a, const TfPort& b) { return a.key < b.key; });
  return s;
}

struct MetaGraph {
  TfSavedModel model;
  bool serves = false;
};

void meta_info(ProtoReader m, MetaGraph& g) {
  while (m.next()) {
    if (m.field() == 4) g.serves |= m.text() == "serve";
    if (m.field() == 5) g.model.version = m.text();
  }
}

MetaGraph meta_graph(ProtoReader m, const std::string& what) {
  MetaGraph g;
  while (m.next()) {
    switch (m.field()) {
      case 1:
        meta_info(m.message(), g);
        break;
      case 2:
        g.model.graph = graph_of(m.message(), what);
        break;
      case 3: {
        ProtoReader saver = m.message();
        while (saver.next()) {
          if (saver.field() == 1) g.model.file_name = saver.text();
          if (saver.field() == 3) g.model.restore_op = saver.text();
        }
        break;
      }
      case 5:
        map_entry(m.message(), [&](const std::string& key, ProtoReader& v) {
          g.model.signatures[key] = signature_of(v.message());
        });
        break;
      default:
        break;
    }
  }
  return g;
}

}  // namespace

const OnnxAttribute* TfNode::find(std::string_view attribute) const {
  for (const OnnxAttribute& a : attributes)
    if (a.name == attribute) return &a;
  return nullptr;
}

TfGraph parse_tf_graph(std::string_view bytes, const std::string& what) {
  io::ProtoDocument document(bytes, what);
  return graph_of(document.reader(), what);
}

TfSavedModel parse_tf_saved_model(std::string_view bytes, const std::string& what) {
  io::ProtoDocument document(bytes, what);
  ProtoReader m = document.reader();
  std::vector<MetaGraph> graphs;
  while (m.next())
    if (m.field() == 2) graphs.push_back(meta_graph(m.message(), what));
  TD_CHECK(!graphs.empty(), Format, "'{}': it has no graph", what);
  for (MetaGraph& g : graphs)
    if (g.serves) return std::move(g.model);
  return std::move(graphs[0].model);
}

bool is_tf_graph(std::string_view bytes) {
  if (bytes.size() < 4) return false;
  try {
    io::ProtoDocument document(bytes, "graph");
    ProtoReader m = document.reader();
    int nodes = 0;
    while (m.next()) {
      if (m.field() < 1 || m.field() > 5) return false;
      if (m.field() != 1) continue;
      ProtoReader node = m.message();
      bool name = false, op = false;
      while (node.next()) {
        name |= node.field() == 1;
        op |= node.field() == 2;
        if (node.field() < 1 || node.field() > 9) return false;
      }
      if (!name || !op) return false;
      if (++nodes >= 4) return true;
    }
    return nodes > 0;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace tandem::onnx
