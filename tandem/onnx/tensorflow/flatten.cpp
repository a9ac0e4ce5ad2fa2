// SPDX-License-Identifier: Apache-2.0
// Bodies in order, references between nodes, and the graph that comes out.
#include "tandem/onnx/tensorflow/flatten_internal.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/budget.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"

namespace tandem::onnx {
namespace {

constexpr int kMostCalls = 64;         ///< functions inside functions
constexpr size_t kMostOutputs = 4096;  ///< of a node

/// Names of outputs, in order, of ops that have several; all others have one, which may be a list.
struct OutputNames {
  const char* op;
  const char* names;
};
constexpr OutputNames kOutputNames[] = {
    {"FusedBatchNorm", "y batch_mean batch_variance reserve_space_1 reserve_space_2"},
    {"FusedBatchNormV2", "y batch_mean batch_variance reserve_space_1 reserve_space_2"},
    {"FusedBatchNormV3",
     "y batch_mean batch_variance reserve_space_1 reserve_space_2 reserve_space_3"},
    {"TopKV2", "values indices"},
    {"Unique", "y idx"},
    {"UniqueV2", "y idx"},
    {"UniqueWithCounts", "y idx count"},
    {"UniqueWithCountsV2", "y idx count"},
    {"LogMatrixDeterminant", "sign log_abs_determinant"},
    {"ListDiff", "out idx"},
    {"SparseSoftmaxCrossEntropyWithLogits", "loss backprop"},
    {"SoftmaxCrossEntropyWithLogits", "loss backprop"},
    {"Switch", "output_false output_true"},
    {"Merge", "output value_index"},
    {"MaxPoolWithArgmax", "output argmax"},
    {"NonMaxSuppressionV4", "selected_indices valid_outputs"},
    {"NonMaxSuppressionV5", "selected_indices selected_scores valid_outputs"},
    {"CombinedNonMaxSuppression", "nmsed_boxes nmsed_scores nmsed_classes valid_detections"},
    {"Qr", "q r"},
    {"Svd", "s u v"},
    {"SelfAdjointEigV2", "e v"},
    {"TensorListPopBack", "output_handle tensor"},
    {"BroadcastGradientArgs", "r0 r1"},
    {"StatelessRandomGetKeyCounter", "key counter"},
};

size_t output_position(const std::string& op, const std::string& output, size_t k,
                       const std::string& what) {
  for (const OutputNames& o : kOutputNames) {
    if (op != o.op) continue;
    std::string_view names = o.names;
    for (size_t i = 0; !names.empty(); ++i) {
      const size_t space = names.find(' ');
      if (names.substr(0, space) == output) return i + k;
      names = space == std::string_view::npos ? std::string_view() : names.substr(space + 1);
    }
    TD_FAIL(Format, "'{}': {} has no output '{}'", what, op, output);
  }
  return k;
}

bool number_of_text(std::string_view text, size_t& v) {
  if (text.empty() || text.size() > 6) return false;
  v = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    v = v * 10 + static_cast<size_t>(c - '0');
  }
  return true;
}

/// A reference in three parts at most: "node", "1", or "node", "output", "1".
std::vector<std::string> parts_of(const std::string& ref) {
  std::vector<std::string> out;
  size_t from = 0;
  for (;;) {
    const size_t colon = ref.find(':', from);
    out.push_back(ref.substr(from, colon - from));
    if (colon == std::string::npos) return out;
    from = colon + 1;
  }
}

}  // namespace

void TfFlattener::fail(const std::string& why) const { TD_FAIL(Format, "'{}': {}", what_, why); }

bool TfFlattener::resolve(const TfBody& b, const std::string& ref, size_t& node,
                          size_t& output) const {
  const std::vector<std::string> parts = parts_of(ref[0] == '^' ? ref.substr(1) : ref);
  const auto it = b.index.find(parts[0]);
  output = 0;
  if (it == b.index.end()) {
    if (b.given.count(parts[0])) return false;
    fail(fmt::format("a node reads '{}', which is never defined", ref));
  }
  node = it->second;
  size_t k = 0;
  if (parts.size() > 3 || (parts.size() >= 2 && parts.size() != 2 && !number_of_text(parts[2], k)))
    fail(fmt::format("'{}' names no output", ref));
  if (parts.size() == 2 && number_of_text(parts[1], k)) {
    output = k;
  } else if (parts.size() >= 2) {
    const TfNode& n = b.nodes[node];
    const auto f = graph_.functions.find(n.op);
    if (f == graph_.functions.end()) {
      output = output_position(n.op, parts[1], k, what_);
    } else {
      const std::vector<TfArgument>& all = f->second.outputs;
      const auto o = std::find_if(all.begin(), all.end(),
                                  [&](const TfArgument& a) { return a.name == parts[1]; });
      if (o == all.end()) fail(fmt::format("'{}' names no output", ref));
      output = static_cast<size_t>(o - all.begin());
    }
  }
  if (output >= kMostOutputs) fail(fmt::format("'{}' names no output", ref));
  return true;
}

void TfFlattener::open(TfBody& b) const {
  Budget::count(b.nodes.size());
  for (size_t i = 0; i < b.nodes.size(); ++i)
    if (!b.index.emplace(b.nodes[i].name, i).second)
      fail(fmt::format("the node '{}' is defined twice", b.nodes[i].name));
  b.done.assign(b.nodes.size(), 0);
  b.outputs.assign(b.nodes.size(), 1);
  b.values.resize(b.nodes.size());
}

std::vector<size_t> TfFlattener::order(const TfBody& b, const std::vector<std::string>& refs,
                                       const std::vector<std::string>& effects) const {
  enum : char { fresh, entered, left };
  std::vector<char> state(b.nodes.size(), fresh);
  std::vector<size_t> out;
  std::vector<std::pair<size_t, size_t>> stack;  // a node, the input to visit next
  const auto enter = [&](const std::string& ref) {
    size_t node = 0, output = 0;
    if (ref.empty()) fail("a node has an input without a name");
    if (!resolve(b, ref, node, output) || b.done[node] || state[node] == left) return;
    if (b.given.count(b.nodes[node].name)) return;
    if (state[node] == entered) fail(fmt::format("the nodes around '{}' form a cycle", ref));
    state[node] = entered;
    stack.emplace_back(node, 0);
  };
  const auto visit = [&](const std::string& ref) {
    enter(ref);
    while (!stack.empty()) {
      const size_t node = stack.back().first;
      const std::vector<std::string>& inputs = b.nodes[node].inputs;
      if (stack.back().second < inputs.size()) {
        enter(inputs[stack.back().second++]);
        continue;
      }
      state[node] = left;
      out.push_back(node);
      stack.pop_back();
    }
  };
  for (const std::string& ref : refs) visit(ref);
  for (const std::string& ref : effects) visit(ref);
  return out;
}

std::vector<TfValue> TfFlattener::run_body(TfBody& b, const std::vector<std::string>& refs,
                                           const std::vector<std::string>& effects) {
  const std::vector<size_t> all = order(b, refs, effects);
  const auto count = [&](const std::string& ref) {
    size_t node = 0, output = 0;
    if (ref[0] != '^' && resolve(b, ref, node, output))
      b.outputs[node] = std::max(b.outputs[node], output + 1);
  };
  for (const size_t i : all)
    for (const std::string& ref : b.nodes[i].inputs) count(ref);
  for (const std::string& ref : refs) count(ref);
  for (const size_t i : all) run_node(b, i);
  std::vector<TfValue> out;
  for (const std::string& ref : refs) out.push_back(value_of(b, ref, nullptr));
  return out;
}

TfValue TfFlattener::value_of(const TfBody& b, const std::string& ref, const TfNode* reader) const {
  size_t node = 0, output = 0;
  const bool is_node = resolve(b, ref, node, output);
  if (const auto it = b.given.find(is_node ? b.nodes[node].name : parts_of(ref)[0]);
      it != b.given.end())
    return it->second;
  const std::vector<TfValue>& all = b.values[node];
  if (output >= all.size())
    fail(fmt::format("'{}' reads '{}', and {} gives {} values", reader ? reader->name : "the graph",
                     ref, b.nodes[node].op, all.size()));
  return all[output];
}

void TfFlattener::run_node(TfBody& b, size_t i) {
  const TfNode& n = b.nodes[i];
  Budget::count();
  Budget::check_time();
  std::vector<TfValue> in, out;
  for (const std::string& ref : n.inputs)
    if (ref[0] != '^') in.push_back(value_of(b, ref, &n));
  if (const Handler h = find_handler(n.op))
    (this->*h)(b, n, in, out);
  else if (graph_.functions.count(n.op))
    out = call(n.op, std::move(in), b.scope + n.name);
  else
    emit(b, n, in, out);
  b.values[i] = std::move(out);
  b.done[i] = 1;
}

namespace {

/// Attributes that say what the inputs show anyway, or how to compute. Those that a row reads stay.
bool is_tf_hint(const OnnxAttribute& a) {
  return a.type_spec.kind == OnnxTypeSpec::Kind::tensor || a.name.starts_with('T') ||
         a.name == "N" || a.name == "use_cudnn_on_gpu" ||
         (a.kind == OnnxAttribute::i && a.int_value == 0);
}

/// Whether a node computes with complex numbers although its row does not name their type.
bool is_complex(const TfNode& n) {
  const OnnxAttribute* type = n.find("T");
  if (!type) type = n.find("SrcT");
  if (!type || type->kind != OnnxAttribute::i) return false;
  const auto t = static_cast<OnnxType>(type->int_value);
  if (t != OnnxType::c64 && t != OnnxType::c128) return false;
  OnnxNode node;
  node.op = n.op;
  node.domain = kOnnxTf;
  node.row = find_onnx_row(kOnnxTf, n.op, 1);
  node.attributes = {*type};
  return node.row && !unread_of(node).empty();
}

}  // namespace

void TfFlattener::emit(TfBody& b, const TfNode& n, const std::vector<TfValue>& in,
                       std::vector<TfValue>& out) {
  OnnxNode node;
  OnnxAttributes kept;
  node.op = n.op;
  node.domain = kOnnxTf;
  node.name = b.scope + n.name;
  node.row = find_onnx_row(kOnnxTf, n.op, 1);
  for (const OnnxAttribute& a : n.attributes) {
    node.attributes = {a};
    const bool read = unread_of(node).empty();
    if (read || !is_tf_hint(a)) kept.push_back(a);
  }
  node.attributes = std::move(kept);
  Budget::take(sizeof(OnnxNode) + 64 * in.size());
  for (const TfValue& v : in) node.inputs.push_back(use(v, n.name));
  const size_t count = b.outputs[static_cast<size_t>(&n - b.nodes.data())];
  for (size_t k = 0; k < count; ++k) {
    const std::string name = unique(k == 0 ? node.name : fmt::format("{}:{}", node.name, k));
    node.outputs.push_back(name);
    out.push_back({name});
  }
  if (!node.row || is_complex(n))
    unknown_[node.outputs[0]] = n.op + (node.row ? " of complex numbers" : "");
  graph().nodes.push_back(std::move(node));
}

std::vector<TfValue> TfFlattener::call(const std::string& name, std::vector<TfValue> arguments,
                                       const std::string& scope) {
  const TfFunction& f = function(name);
  if (arguments.size() != f.inputs.size())
    fail(fmt::format("the function '{}' takes {} arguments, got {}", name, f.inputs.size(),
                     arguments.size()));
  if (depth_ >= kMostCalls)
    fail(fmt::format("functions call each other more than {} deep", kMostCalls));
  ++depth_;
  TfBody b{f.nodes, scope + "/", {}};
  for (size_t i = 0; i < arguments.size(); ++i) b.given[f.inputs[i].name] = std::move(arguments[i]);
  open(b);
  std::vector<std::string> refs;
  for (const TfArgument& o : f.outputs) {
    const auto it = f.results.find(o.name);
    if (it == f.results.end() || it->second.empty())
      fail(fmt::format("the function '{}' has no result '{}'", name, o.name));
    refs.push_back(it->second);
  }
  std::vector<TfValue> out = run_body(b, refs, f.control_results);
  --depth_;
  return out;
}

// ---- the imported graph

std::string TfFlattener::unique(const std::string& wanted) {
  std::string name = wanted;
  for (size_t i = 1; !used_.insert(name).second; ++i) name = fmt::format("{}#{}", wanted, i);
  return name;
}

std::string TfFlattener::constant(const std::string& wanted, OnnxValue v) {
  const std::string name = unique(wanted);
  constant_at_[name] = model_.graph.initializers.size();
  model_.graph.initializers.emplace_back(name, std::move(v));
  return name;
}

std::string TfFlattener::add(const char* op, const char* domain, std::vector<std::string> inputs,
                             const std::string& wanted, std::vector<OnnxAttribute> attributes) {
  OnnxNode node;
  node.op = op;
  node.domain = domain;
  node.inputs = std::move(inputs);
  node.name = wanted;
  node.outputs = {unique(wanted)};
  node.attributes = std::move(attributes);
  graph().nodes.push_back(std::move(node));
  return graph().nodes.back().outputs[0];
}

std::string TfFlattener::use(const TfValue& v, const std::string& reader) {
  if (v.variable >= 0) {
    Variable& x = variables_[static_cast<size_t>(v.variable)];
    if (x.is_reference) return read(x);
    TD_FAIL(Unsupported, "'{}': node '{}' takes the variable '{}' itself, which is not supported",
            what_, reader, x.name);
  }
  if (v.name.empty()) fail(fmt::format("node '{}' reads a value that no node gives", reader));
  return v.name;
}

namespace {

void reads_of(const OnnxGraph& g, std::set<std::string>& names) {
  for (const OnnxNode& n : g.nodes) {
    names.insert(n.inputs.begin(), n.inputs.end());
    for (const OnnxAttribute& a : n.attributes)
      for (const auto& inner : a.graph_list) reads_of(*inner, names);
  }
  for (const OnnxPort& p : g.outputs) names.insert(p.name);
}

void for_all_nodes(const OnnxGraph& g, FunctionRef<void(const OnnxNode&)> see) {
  for (const OnnxNode& n : g.nodes) {
    see(n);
    for (const OnnxAttribute& a : n.attributes)
      for (const auto& inner : a.graph_list) for_all_nodes(*inner, see);
  }
}

}  // namespace

void remove_unused(OnnxGraph& g) {
  std::set<std::string> needed;
  for (const OnnxPort& p : g.outputs) needed.insert(p.name);
  std::vector<OnnxNode> kept;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    OnnxNode& n = g.nodes[i];
    const bool used = std::any_of(n.outputs.begin(), n.outputs.end(),
                                  [&](const std::string& o) { return needed.count(o) > 0; });
    if (!used) continue;
    needed.insert(n.inputs.begin(), n.inputs.end());
    for (const OnnxAttribute& a : n.attributes)
      for (const auto& inner : a.graph_list) {
        remove_unused(*inner);
        reads_of(*inner, needed);
      }
    kept.push_back(std::move(n));
  }
  std::reverse(kept.begin(), kept.end());
  g.nodes = std::move(kept);
  std::erase_if(g.initializers, [&](const auto& i) { return !needed.count(i.first); });
}

void TfFlattener::check_known() const {
  std::map<std::string, int64_t> found;
  for_all_nodes(model_.graph, [&](const OnnxNode& n) {
    const auto it = n.outputs.empty() ? unknown_.end() : unknown_.find(n.outputs[0]);
    if (it != unknown_.end()) ++found[it->second];
  });
  if (found.empty()) return;
  std::vector<std::pair<std::string, int64_t>> all(found.begin(), found.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string list;
  for (const auto& [op, n] : all) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", n, op);
  TD_FAIL(Unsupported, "'{}': {} of its ops {} not supported: {}", what_, all.size(),
          all.size() == 1 ? "is" : "are", list);
}

// A variable that is written gets an input, whose initializer is its first value, and an output.
void TfFlattener::add_states() {
  OnnxGraph& g = model_.graph;
  for (Variable& v : variables_) {
    if (!v.written) continue;
    TD_CHECK(v.is_initial || v.first.empty(), Unsupported,
             "'{}': the first value of the variable '{}' is computed, which is not supported",
             what_, v.name);
    if (v.first.empty()) continue;  // written before it is read
    OnnxPort in{v.name, v.type}, out{add("Identity", "", {v.value}, v.name + "/after"), v.type};
    g.inputs.push_back(std::move(in));
    model_.metadata.emplace_back("tandem.state." + v.name, out.name);
    g.outputs.push_back(std::move(out));
  }
}

void TfFlattener::name_ports(const TfSignature& signature) {
  for (const TfPort& p : signature.inputs) input_names_.push_back(unique(p.key));
  for (const TfPort& p : signature.outputs) output_names_.push_back(unique(p.key));
}

void TfFlattener::restore(const TfSavedModel& saved) {
  if (saved.restore_op.empty() || !bundle_) return;
  restoring_ = true;
  stack_ = {&model_.graph};
  TfBody b{graph_.nodes, "", {}};
  if (!saved.file_name.empty()) b.given[parts_of(saved.file_name)[0]] = {"the checkpoint"};
  open(b);
  run_body(b, {}, {parts_of(saved.restore_op)[0]});
  restoring_ = false;
  unknown_.clear();
}

OnnxModelProto TfFlattener::run(const TfSignature& signature) {
  model_.ir_version = 10;
  model_.producer = "TensorFlow";
  model_.opsets = {{"", 23}, {kOnnxTf, 1}};
  OnnxGraph& g = model_.graph;
  stack_ = {&g};
  TfBody b{graph_.nodes, "", {}};
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TfPort& p = signature.inputs[i];
    if (p.type.kind != OnnxTypeSpec::Kind::tensor)
      TD_FAIL(Unsupported, "'{}': the input '{}' is not a dense tensor", what_, p.key);
    OnnxPort port{input_names_.at(i), p.type};
    b.given[parts_of(p.tensor)[0]] = {port.name};
    g.inputs.push_back(std::move(port));
  }
  open(b);
  std::vector<std::string> refs, effects;
  for (const TfPort& p : signature.outputs) {
    if (p.type.kind != OnnxTypeSpec::Kind::tensor)
      TD_FAIL(Unsupported, "'{}': the output '{}' is not a dense tensor", what_, p.key);
    if (p.tensor.empty()) fail(fmt::format("the output '{}' names no value", p.key));
    refs.push_back(p.tensor);
  }
  const std::vector<TfValue> values = run_body(b, refs, effects);
  for (size_t i = 0; i < values.size(); ++i) {
    const TfPort& p = signature.outputs[i];
    OnnxNode node;
    node.op = "Identity";
    node.name = p.key;
    node.inputs = {use(values[i], p.key)};
    node.outputs = {output_names_.at(i)};
    g.nodes.push_back(std::move(node));
    g.outputs.push_back({output_names_[i], p.type});
  }
  add_states();
  remove_unused(g);  // effects kept nodes in order: checks, logging, variables that nobody reads
  check_known();
  return std::move(model_);
}

const TfFunction& TfFlattener::function(const std::string& name) const {
  const auto it = graph_.functions.find(name);
  if (it == graph_.functions.end()) fail(fmt::format("there is no function '{}'", name));
  return it->second;
}

std::string TfFlattener::function_of(const TfNode& n, const char* attribute) const {
  const OnnxAttribute* a = n.find(attribute);
  if (!a || a->text.empty())
    fail(fmt::format("node '{}' ({}) names no function as '{}'", n.name, n.op, attribute));
  return a->text;
}

}  // namespace tandem::onnx
