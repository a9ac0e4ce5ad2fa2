// SPDX-License-Identifier: Apache-2.0
// Parses the messages of onnx.proto into structs (onnx/model.h). Field numbers are the
// specification's.
#include "tandem/base/budget.h"
#include "tandem/onnx/import/tensor_internal.h"
#include "tandem/onnx/model.h"

namespace tandem::onnx {
namespace {

using io::ProtoDocument;
using io::ProtoReader;

/// A new element of a list in a struct: two bytes of a file make one, and the list doubles as it
/// grows.
template <class T>
void charge() {
  Budget::take(2 * sizeof(T));
  Budget::count();
}

class Parser {
 public:
  explicit Parser(OnnxTensorSource source) : source_(std::move(source)) {}

  OnnxModelProto model(ProtoReader r) {
    OnnxModelProto m;
    while (r.next()) {
      switch (r.field()) {
        case 1:
          m.ir_version = r.int_value();
          break;
        case 2:
          m.producer = r.text();
          break;
        case 4:
          m.domain = r.text();
          break;
        case 5:
          m.model_version = r.int_value();
          break;
        case 7:
          graph(r.message(), m.graph);
          has_graph_ = true;
          break;
        case 8:
          opset(r.message(), m.opsets);
          break;
        case 14:
          m.metadata.push_back(pair(r.message()));
          break;
        case 25:
          m.functions.push_back(function(r.message()));
          break;
        default:
          break;
      }
    }
    if (!has_graph_) r.fail("it has no graph");
    return m;
  }

  OnnxValue tensor(ProtoReader r, std::string* name) { return parse_tensor(r, source_, name); }

  OnnxValue sequence(ProtoReader r, std::string* name) {
    OnnxValue::Sequence items;
    while (r.next()) {
      charge<OnnxValue>();
      switch (r.field()) {
        case 1:
          if (name) *name = r.text();
          break;
        case 3:
          items.push_back(tensor(r.message(), nullptr));
          break;
        case 5:
          items.push_back(sequence(r.message(), nullptr));
          break;
        case 7:
          items.push_back(optional(r.message(), nullptr));
          break;
        default:
          break;
      }
    }
    return OnnxValue::sequence(std::move(items));
  }

  OnnxValue optional(ProtoReader r, std::string* name) {
    OnnxValue v;
    while (r.next()) {
      switch (r.field()) {
        case 1:
          if (name) *name = r.text();
          break;
        case 3:
          v = tensor(r.message(), nullptr);
          break;
        case 5:
          v = sequence(r.message(), nullptr);
          break;
        case 7:
          v = optional(r.message(), nullptr);
          break;
        default:
          break;
      }
    }
    return v;
  }

 private:
  static std::string normal_domain(std::string d) { return d == "ai.onnx" ? "" : d; }

  static std::pair<std::string, std::string> pair(ProtoReader r) {
    charge<std::pair<std::string, std::string>>();
    std::pair<std::string, std::string> p;
    while (r.next()) {
      if (r.field() == 1) p.first = r.text();
      if (r.field() == 2) p.second = r.text();
    }
    return p;
  }

  static void opset(ProtoReader r, std::map<std::string, int64_t>& out) {
    std::string domain;
    int64_t version = 0;
    while (r.next()) {
      if (r.field() == 1) domain = r.text();
      if (r.field() == 2) version = r.int_value();
    }
    out[normal_domain(domain)] = version;
  }

  void graph(ProtoReader r, OnnxGraph& g) {
    while (r.next()) {
      switch (r.field()) {
        case 1:
          g.nodes.push_back(node(r.message()));
          break;
        case 2:
          g.name = r.text();
          break;
        case 5: {
          charge<std::pair<std::string, OnnxValue>>();
          std::string name;
          OnnxValue v = tensor(r.message(), &name);
          g.initializers.emplace_back(std::move(name), std::move(v));
          break;
        }
        case 11:
          g.inputs.push_back(port(r.message()));
          break;
        case 12:
          g.outputs.push_back(port(r.message()));
          break;
        case 15: {
          charge<std::pair<std::string, OnnxValue>>();
          std::string name;
          OnnxValue v = parse_sparse_tensor(r.message(), source_, &name);
          g.initializers.emplace_back(std::move(name), std::move(v));
          break;
        }
        default:
          break;
      }
    }
  }

  OnnxNode node(ProtoReader r) {
    charge<OnnxNode>();
    OnnxNode n;
    while (r.next()) {
      if (r.field() <= 2) charge<std::pair<std::string, int>>();  // a name, later a slot
      switch (r.field()) {
        case 1:
          n.inputs.push_back(r.text());
          break;
        case 2:
          n.outputs.push_back(r.text());
          break;
        case 3:
          n.name = r.text();
          break;
        case 4:
          n.op = r.text();
          break;
        case 5:
          n.attributes.push_back(attribute(r.message()));
          break;
        case 7:
          n.domain = normal_domain(r.text());
          break;
        case 8:
          n.overload = r.text();
          break;
        default:
          break;
      }
    }
    return n;
  }

  // Files of the first versions do not state the kind: the field that is present decides.
  OnnxAttribute attribute(ProtoReader r) {
    charge<OnnxAttribute>();
    OnnxAttribute a;
    auto kind = [&](OnnxAttribute::Kind k) {
      if (a.kind == OnnxAttribute::none) a.kind = k;
    };
    while (r.next()) {
      switch (r.field()) {
        case 1:
          a.name = r.text();
          break;
        case 2:
          a.float_value = r.float_value();
          kind(OnnxAttribute::f);
          break;
        case 3:
          a.int_value = r.int_value();
          kind(OnnxAttribute::i);
          break;
        case 4:
          a.text = r.text();
          kind(OnnxAttribute::s);
          break;
        case 5:
          a.tensor = tensor(r.message(), nullptr);
          kind(OnnxAttribute::t);
          break;
        case 6:
        case 11:
          charge<OnnxGraph>();
          a.graph_list.push_back(std::make_shared<OnnxGraph>());
          kind(r.field() == 6 ? OnnxAttribute::g : OnnxAttribute::graphs);
          graph(r.message(), *a.graph_list.back());
          break;
        case 7:
          r.append(a.float_list);
          kind(OnnxAttribute::floats);
          break;
        case 8:
          r.append(a.int_list);
          kind(OnnxAttribute::ints);
          break;
        case 9:
          charge<std::string>();
          a.text_list.push_back(r.text());
          kind(OnnxAttribute::strings);
          break;
        case 10:
          charge<OnnxValue>();
          a.tensor_list.push_back(tensor(r.message(), nullptr));
          kind(OnnxAttribute::tensors);
          break;
        case 14:
          a.type_spec = type(r.message());
          kind(OnnxAttribute::type);
          break;
        case 20:
          a.kind = static_cast<OnnxAttribute::Kind>(r.unsigned_value() & 0xFF);
          break;
        case 21:
          a.ref = r.text();
          break;
        case 22:
          a.tensor = parse_sparse_tensor(r.message(), source_, nullptr);
          kind(OnnxAttribute::sparse);
          break;
        default:
          break;
      }
    }
    return a;
  }

  OnnxPort port(ProtoReader r) {
    charge<OnnxPort>();
    OnnxPort p;
    while (r.next()) {
      if (r.field() == 1) p.name = r.text();
      if (r.field() == 2) p.type = type(r.message());
    }
    return p;
  }

  static void shape(ProtoReader r, OnnxTypeSpec& t) {
    t.has_shape = true;
    while (r.next()) {
      if (r.field() != 1) continue;
      ProtoReader d = r.message();
      int64_t size = -1;
      std::string name;
      while (d.next()) {
        if (d.field() == 1) size = d.int_value();
        if (d.field() == 2) name = d.text();
      }
      charge<std::pair<int64_t, std::string>>();
      t.dims.push_back(size);
      t.dim_names.push_back(std::move(name));
    }
  }

  OnnxTypeSpec type(ProtoReader r) {
    using Kind = OnnxTypeSpec::Kind;
    OnnxTypeSpec t;
    while (r.next()) {
      const uint32_t field = r.field();
      if (field == 1 || field == 8) {
        t.kind = field == 1 ? Kind::tensor : Kind::other;
        ProtoReader m = r.message();
        while (m.next()) {
          if (m.field() == 1) t.elem = static_cast<OnnxType>(m.unsigned_value() & 0xFF);
          if (m.field() == 2) shape(m.message(), t);
        }
      } else if (field == 4 || field == 9) {
        t.kind = field == 4 ? Kind::sequence : Kind::optional;
        ProtoReader m = r.message();
        while (m.next())
          if (m.field() == 1) {
            charge<OnnxTypeSpec>();
            t.inside = std::make_shared<const OnnxTypeSpec>(type(m.message()));
          }
        if (t.inside) t.elem = t.inside->elem;
      } else if (field == 5) {
        t.kind = Kind::other;
      }
    }
    return t;
  }

  OnnxFunction function(ProtoReader r) {
    charge<OnnxFunction>();
    OnnxFunction f;
    while (r.next()) {
      switch (r.field()) {
        case 1:
          f.name = r.text();
          break;
        case 4:
          charge<OnnxPort>();
          f.body.inputs.push_back({r.text(), {}});
          break;
        case 5:
          charge<OnnxPort>();
          f.body.outputs.push_back({r.text(), {}});
          break;
        case 6:
          charge<std::string>();
          f.attributes.push_back(r.text());
          break;
        case 7:
          f.body.nodes.push_back(node(r.message()));
          break;
        case 9:
          opset(r.message(), f.opsets);
          break;
        case 10:
          f.domain = normal_domain(r.text());
          break;
        case 11:
          f.default_attributes.push_back(attribute(r.message()));
          break;
        case 13:
          f.overload = r.text();
          break;
        default:
          break;
      }
    }
    f.body.name = f.name;
    return f;
  }

  OnnxTensorSource source_;
  bool has_graph_ = false;
};

}  // namespace

const OnnxAttribute* OnnxNode::find(std::string_view wanted) const {
  for (const OnnxAttribute& a : attributes)
    if (a.name == wanted) return &a;
  return nullptr;
}

OnnxModelProto parse_onnx_model(std::string_view bytes, const std::string& what,
                                Ref<MappedFile> file, const std::string& folder,
                                const BudgetLimits& limits) {
  const Budget budget(what, bytes.size(), limits);
  ProtoDocument document(bytes, what);
  return Parser({what, std::move(file), folder, {}}).model(document.reader());
}

OnnxValue parse_onnx_value(std::string_view bytes, const std::string& what,
                           const OnnxTypeSpec& spec, std::string* name) {
  const Budget budget(what, bytes.size());
  ProtoDocument document(bytes, what);
  Parser parser({what, {}, "", {}});
  if (spec.kind == OnnxTypeSpec::Kind::sequence) return parser.sequence(document.reader(), name);
  if (spec.kind == OnnxTypeSpec::Kind::optional) return parser.optional(document.reader(), name);
  return parser.tensor(document.reader(), name);
}

}  // namespace tandem::onnx
