// SPDX-License-Identifier: Apache-2.0
// The interpreter: runs nodes in order, each through its row, its equivalent op, or a function of
// the model. Inside a trace, nodes that only read known values are computed at once, so shapes that
// a model computes from shapes stay numbers.
#include "tandem/onnx/import/run_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "tandem/base/budget.h"
#include "tandem/base/log.h"
#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"
#include "tandem/onnx/import/reads_internal.h"
#include "tandem/onnx/import/stored_internal.h"
#include "tandem/onnx/onnx.h"
#include "tandem/onnx/tensorflow.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr int kMaxDepth = 64;  // of nested functions and graphs

void check_depth(int depth) {
  TD_CHECK(depth <= kMaxDepth, Format, "graphs and functions call each other more than {} deep",
           kMaxDepth);
}

bool is_known(const OnnxValue& v) {
  if (v.is_tensor()) return !v.tensor().is_symbolic();
  if (v.is_sequence())
    for (const OnnxValue& i : v.items())
      if (!is_known(i)) return false;
  return true;
}

// In a trace whose values may be read, everything before a read is known. What is not a size, an
// index or a text is recorded all the same: later nodes are compiled, too.
bool is_small(const OnnxValue& v) {
  constexpr int64_t kMost = 64;
  if (v.is_tensor()) return !is_floating(v.tensor().dtype()) && v.tensor().numel() <= kMost;
  if (v.is_sequence())
    for (const OnnxValue& i : v.items())
      if (!is_small(i)) return false;
  return true;
}

/// Of a tensor: 0 for what is none, or has no size yet.
uint64_t bytes_of(const OnnxValue& v) {
  if (!v.is_tensor() || v.tensor().shape().is_symbolic()) return 0;
  return static_cast<uint64_t>(v.tensor().numel()) * size_of(v.tensor().dtype());
}

bool draws(const OnnxNode& n) {
  return (n.row && n.row->draws) || (n.direct && n.direct->has(kRandom));
}

// Whether the node can be computed while the model is traced.
bool folds(const OnnxCall& c) {
  const OnnxNode& n = c.node();
  if (!is_tracing() || n.function || draws(n)) return false;
  for (const OnnxAttribute& a : n.attributes)
    if (!a.graph_list.empty()) return false;
  const bool all = values_hidden() && !(n.row && n.row->stays);
  for (const OnnxValue& v : c.in)
    if (!is_known(v) || !(all || is_small(v))) return false;
  return true;
}

// Whether the node has made much from little: a constant of such a size would stay in memory, the
// node computes it when it is needed.
bool has_grown(const OnnxCall& c) {
  constexpr uint64_t kFew = 1 << 20, kMost = 16;
  uint64_t in = 0, out = 0;
  for (const OnnxValue& v : c.in) in += bytes_of(v);
  for (const OnnxValue& v : c.out) out += bytes_of(v);
  return out > kFew && out > kMost * in;
}

// A tensor that a node made from numbers is a constant of the trace: later nodes may read it.
void unwrap_constant(OnnxValue& v) {
  if (!v.is_tensor() || !is_hidden(v.tensor())) return;
  const Node* n = node_of(v.tensor());
  if (!n || n->op != &op::constant) return;
  const auto* box = dynamic_cast<const TensorBox*>(
      static_cast<const ConstantAttrs*>(n->attrs.get())->value.get());
  if (box && box->value.defined()) v = OnnxValue(box->value, v.type());
}

void run_function(OnnxCall& c, const OnnxFunction& f, int depth) {
  std::map<std::string, const OnnxAttribute*> bindings;
  for (const OnnxAttribute& a : f.default_attributes) bindings[a.name] = &a;
  for (const OnnxAttribute& a : c.node().attributes) bindings[a.name] = c.attribute(a.name);
  std::vector<OnnxValue> out = run_onnx_graph(f.body, c.in, nullptr, &bindings, depth + 1);
  for (size_t i = 0; i < out.size(); ++i) c.set(i, std::move(out[i]));
}

void run_call(OnnxCall& c, int depth) {
  const OnnxNode& n = c.node();
  TD_CHECK(n.unread.empty(), Unsupported, "{}", n.unread);
  if (n.function) {
    run_function(c, *n.function, depth);
  } else if (n.row) {
    n.row->import(c);
  } else if (n.direct) {
    (n.domain == kOnnxTandem ? run_own : run_direct)(c, *n.direct);
  } else {
    TD_FAIL(Unsupported, "there is no op '{}' of domain '{}' in opset {}", n.op,
            n.domain.empty() ? "ai.onnx" : n.domain, n.version);
  }
}

}  // namespace

void run_onnx_node(OnnxFrame& frame, const OnnxNode& node) {
  check_depth(frame.depth);
  Budget::count(1 + (node.in.size() + node.out.size() + node.attributes.size()) / 16);
  Budget::check_time();
  OnnxCall c(node, frame);
  for (const int s : node.in)
    c.in.push_back(s < 0 ? OnnxValue() : frame.slots[static_cast<size_t>(s)]);
  c.out.resize(node.outputs.size());
  try {
    const bool fold = folds(c);
    if (fold) {
      const OutsideTrace outside;
      run_call(c, frame.depth);
    }
    if (!fold || (values_hidden() && has_grown(c))) {
      c.out.assign(node.outputs.size(), OnnxValue());
      run_call(c, frame.depth);
    }
  } catch (const Error& e) {
    if (e.layer().empty())
      throw Error(e.kind(), e.message(), e.hint(), e.op(), e.loc(),
                  fmt::format("{} '{}'", node.op,
                              !node.name.empty()     ? node.name
                              : node.outputs.empty() ? ""
                                                     : node.outputs[0]));
    throw;
  }
  for (size_t i = 0; i < node.out.size(); ++i) {
    if (node.out[i] < 0) continue;
    if (is_tracing()) unwrap_constant(c.out[i]);
    frame.slots[static_cast<size_t>(node.out[i])] = std::move(c.out[i]);
  }
}

std::vector<OnnxValue> run_onnx_graph(const OnnxGraph& g, std::span<const OnnxValue> inputs,
                                      OnnxFrame* around,
                                      const std::map<std::string, const OnnxAttribute*>* bindings,
                                      int depth) {
  check_depth(depth);
  TD_CHECK(inputs.size() <= g.input_slots.size(), Value, "graph '{}' takes {} inputs, got {}",
           g.name, g.input_slots.size(), inputs.size());
  const BudgetHold slots(static_cast<size_t>(g.slots) * sizeof(OnnxValue));
  Budget::count(1 + static_cast<size_t>(g.slots) / 16);
  OnnxFrame frame{g, bindings, depth, std::vector<OnnxValue>(static_cast<size_t>(g.slots))};
  for (const auto& [slot, value] : g.constants) frame.slots[static_cast<size_t>(slot)] = value;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].is_none()) frame.slots[static_cast<size_t>(g.input_slots[i])] = inputs[i];
  for (const auto& [outer, slot] : g.captures)
    frame.slots[static_cast<size_t>(slot)] = around->slots[static_cast<size_t>(outer)];
  for (const OnnxNode& n : g.nodes) {
    run_onnx_node(frame, n);
    for (const int s : n.done) frame.slots[static_cast<size_t>(s)] = OnnxValue();
  }
  std::vector<OnnxValue> out;
  for (const int s : g.output_slots) out.push_back(frame.slots[static_cast<size_t>(s)]);
  return out;
}

// ---- OnnxCall

const OnnxValue& OnnxCall::value(size_t i) const {
  TD_CHECK(has(i), Value, "expected input {}, which is absent", i);
  return in[i];
}

namespace {
// What lies on the host goes where the model runs.
Tensor brought(const Tensor& t) {
  const Device there = context().device;
  return is_host(there) || !is_host(t.device()) ? t : t.to(there);
}
}  // namespace

Tensor OnnxCall::x(size_t i) const {
  const Tensor& t = value(i).tensor();
  if (!is_tracing() || t.is_symbolic()) return brought(t);
  Tensor known;
  {
    const OutsideTrace outside;
    known = brought(t);
  }
  return constant(known);
}

namespace {
[[noreturn]] void fail_hidden(const Tensor& t, const std::string& what, bool is_condition) {
  if (ReadProbe* p = ReadProbe::current()) p->fails(t, is_condition);
  TD_FAIL(Unsupported, "reads {}, which is not known while the model is traced", what);
}
}  // namespace

bool OnnxCall::hidden(size_t i) const {
  return has(i) && in[i].is_tensor() && is_hidden(in[i].tensor());
}

const Tensor& OnnxCall::setting(size_t i) const {
  const Tensor& t = value(i).tensor();
  if (is_hidden(t))
    fail_hidden(t,
                i < node_.inputs.size() ? fmt::format("the value of '{}'", node_.inputs[i])
                                        : fmt::format("input {}", i),
                is_bool(t.dtype()));
  return t;
}

std::vector<double> OnnxCall::numbers(size_t i) const {
  return has(i) ? setting(i).to_vector<double>() : std::vector<double>();
}
std::vector<bool> OnnxCall::flags(size_t i) const {
  return has(i) ? setting(i).to_vector<bool>() : std::vector<bool>();
}

std::vector<int64_t> OnnxCall::ints(size_t i) const {
  const Tensor& t = setting(i);
  TD_CHECK(!is_floating(t.dtype()), DType, "expected integers as input {}, got {}", i,
           in[i].describe());
  return t.to_vector<int64_t>();
}

int64_t OnnxCall::int_at(size_t i) const {
  const std::vector<int64_t> v = ints(i);
  TD_CHECK(v.size() == 1, Shape, "expected one number as input {}, got {}", i, in[i].describe());
  return v[0];
}

double OnnxCall::number(size_t i) const {
  const Tensor& t = setting(i);
  TD_CHECK(t.numel() == 1, Shape, "expected one number as input {}, got {}", i, in[i].describe());
  return t.to_vector<double>()[0];
}

bool onnx_flag(const OnnxValue& v) {
  TD_CHECK(v.tensor().numel() == 1, Shape, "expected one condition, got {}", v.describe());
  if (is_hidden(v.tensor())) fail_hidden(v.tensor(), "a condition", true);
  return v.tensor().to_vector<bool>()[0];
}
bool OnnxCall::flag(size_t i) const {
  setting(i);
  return onnx_flag(value(i));
}

bool is_of_model(const OnnxCall& call, size_t i) {
  if (i >= call.node().in.size()) return false;  // a node that another one runs has no slots
  if (!call.has(i) || !call.value(i).is_tensor()) return false;
  const int slot = call.node().in[i];
  const OnnxGraph& g = call.frame().graph;
  for (const auto& [s, value] : g.constants)  // an input may stand in for it
    if (s == slot)
      return value.is_tensor() && value.tensor().impl() == call.value(i).tensor().impl();
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const OnnxNode& n) {
    return n.op == "Constant" && !n.out.empty() && n.out[0] == slot;
  });
}

const OnnxAttribute* OnnxCall::attribute(std::string_view name) const {
  const OnnxAttribute* a = node_.find(name);
  if (!a || a->ref.empty()) return a;
  if (!frame_.bindings) return nullptr;
  const auto it = frame_.bindings->find(a->ref);
  return it == frame_.bindings->end() ? nullptr : it->second;
}

namespace {
void want_kind(const OnnxAttribute& a, OnnxAttribute::Kind kind, const char* text) {
  TD_CHECK(a.kind == kind, Format, "its attribute '{}' is not {}", a.name, text);
}
}  // namespace

int64_t OnnxCall::attr(std::string_view name, int64_t otherwise) const {
  const OnnxAttribute* a = attribute(name);
  if (!a) return otherwise;
  want_kind(*a, OnnxAttribute::i, "an integer");
  return a->int_value;
}
double OnnxCall::attr_float(std::string_view name, double otherwise) const {
  const OnnxAttribute* a = attribute(name);
  if (!a) return otherwise;
  want_kind(*a, OnnxAttribute::f, "a number");
  return a->float_value;
}
std::string OnnxCall::attr_text(std::string_view name, std::string_view otherwise) const {
  const OnnxAttribute* a = attribute(name);
  if (!a) return std::string(otherwise);
  want_kind(*a, OnnxAttribute::s, "a text");
  return a->text;
}
std::string OnnxCall::attr_choice(std::string_view name, std::string_view otherwise,
                                  std::initializer_list<std::string_view> choices) const {
  std::string text = attr_text(name, otherwise), list;
  for (const std::string_view c : choices) {
    if (text == c) return text;
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", c);
  }
  TD_FAIL(Unsupported, "its attribute '{}' is '{}', known are {}", name, text, list);
}
std::vector<int64_t> OnnxCall::attr_ints(std::string_view name,
                                         std::vector<int64_t> otherwise) const {
  const OnnxAttribute* a = attribute(name);
  if (!a) return otherwise;
  want_kind(*a, OnnxAttribute::ints, "a list of integers");
  return a->int_list;
}
std::vector<float> OnnxCall::attr_floats(std::string_view name,
                                         std::vector<float> otherwise) const {
  const OnnxAttribute* a = attribute(name);
  if (!a) return otherwise;
  want_kind(*a, OnnxAttribute::floats, "a list of numbers");
  return a->float_list;
}
std::vector<std::string> OnnxCall::attr_texts(std::string_view name,
                                              std::vector<std::string> otherwise) const {
  const OnnxAttribute* a = attribute(name);
  if (!a) return otherwise;
  want_kind(*a, OnnxAttribute::strings, "a list of strings");
  return a->text_list;
}

std::optional<std::vector<int64_t>> OnnxCall::dims_from(size_t i, std::string_view name) const {
  if (has(i)) {
    TD_CHECK(!attribute(name), Format, "gives '{}' twice: as input {} and as an attribute", name,
             i);
    return ints(i);
  }
  if (attribute(name)) return attr_ints(name);
  return std::nullopt;
}

int OnnxCall::axis(std::string_view name, int64_t otherwise, int rank) const {
  return normalize_dim(attr(name, otherwise), rank);
}

void OnnxCall::set(size_t i, OnnxValue v) {
  if (i < out.size()) out[i] = std::move(v);
}

void OnnxCall::set_like(size_t i, Tensor t, size_t input) {
  const OnnxType like = type(input);
  if (t.dtype() != info_of(like).carrier) t = t.to(info_of(like).carrier);
  set(i, wrap_to(std::move(t), like), like);
}

const OnnxGraph& OnnxCall::graph(std::string_view name) const {
  const OnnxAttribute* a = attribute(name);
  TD_CHECK(a && a->graph_list.size() == 1, Format, "expected a graph as attribute '{}'", name);
  return *a->graph_list[0];
}

std::vector<OnnxValue> OnnxCall::run_graph(const OnnxGraph& graph,
                                           std::vector<OnnxValue> inputs) const {
  return run_onnx_graph(graph, inputs, &frame_, frame_.bindings, frame_.depth + 1);
}

// ---- OnnxModel

struct OnnxModel::State {
  OnnxModelProto proto;
  std::string bytes;   ///< of a model that was not read from a file
  std::string what;    ///< names it in errors
  uint64_t given = 0;  ///< bytes of its files
  BudgetLimits limits;
  Device device{};  ///< OnnxLoadOptions::device
  std::vector<OnnxPort> inputs;
  std::vector<size_t> input_at;  ///< their indices among the graph's inputs
  std::vector<std::pair<std::string, OnnxValue>> weights;
  std::vector<OnnxState> states;
  std::string unknown;                       ///< its ops that no row runs, with counts
  mutable std::atomic<uint64_t> told_of{0};  ///< outputs of another type than declared: a bit each
};

namespace {

void count_unknown(const OnnxGraph& g, std::map<std::string, int64_t>& counts) {
  for (const OnnxNode& n : g.nodes) {
    if (!n.row && !n.direct && !n.function)
      ++counts[n.domain.empty() ? n.op : n.domain + "." + n.op];
    for (const OnnxAttribute& a : n.attributes)
      for (const auto& inner : a.graph_list) count_unknown(*inner, counts);
  }
}

/// "2 of its ops are not supported: 3 Foo, 1 com.example.Bar"; "" where all nodes of the graph
/// itself can be run (what a branch holds may never be needed).
std::string unknown_of(const OnnxGraph& g) {
  std::map<std::string, int64_t> counts;
  count_unknown(g, counts);
  const auto known = [](const OnnxNode& n) { return n.row || n.direct || n.function; };
  if (std::all_of(g.nodes.begin(), g.nodes.end(), known)) return "";
  std::string list;
  for (const auto& [name, n] : counts)
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", n, name);
  return fmt::format("{} of its ops {} not supported: {}", counts.size(),
                     counts.size() == 1 ? "is" : "are", list);
}

const OnnxPort* port_of(const std::vector<OnnxPort>& ports, std::string_view name) {
  for (const OnnxPort& p : ports)
    if (p.name == name) return &p;
  return nullptr;
}

std::vector<OnnxState> states_of(const OnnxModelProto& m) {
  std::vector<OnnxState> out;
  std::set<std::string_view> inputs, outputs;
  for (const OnnxPort& p : m.graph.inputs) inputs.insert(p.name);
  for (const OnnxPort& p : m.graph.outputs) outputs.insert(p.name);
  constexpr std::string_view kPrefix = "tandem.state.";
  for (const auto& [key, output] : m.metadata) {
    if (!key.starts_with(kPrefix)) continue;
    const std::string input = key.substr(kPrefix.size());
    if (inputs.count(input) && outputs.count(output)) out.push_back({input, output});
  }
  return out;
}

OnnxValue value_for(const OnnxPort& port, const Tensor& x) {
  const OnnxType want = port.type.elem;
  if (!x.defined()) return OnnxValue();
  if (want != OnnxType::undefined && want != OnnxType::string && info_of(want).carrier == x.dtype())
    return OnnxValue(x, want);
  return OnnxValue(x);
}

}  // namespace

namespace {
void bring_weights(OnnxGraph& g, Device device) {
  for (auto& [slot, value] : g.constants)
    if (value.is_tensor() && is_floating(value.tensor().dtype()))
      value = OnnxValue(value.tensor().to(device), value.type());
  for (OnnxNode& n : g.nodes)
    for (OnnxAttribute& a : n.attributes)
      for (const auto& inner : a.graph_list) bring_weights(*inner, device);
}
// Numbers that are settings are integers, as a rule: these stay where they are read.
void bring_weights(OnnxModelProto& p, Device device) {
  if (is_host(device)) return;
  bring_weights(p.graph, device);
  for (OnnxFunction& f : p.functions) bring_weights(f.body, device);
}
}  // namespace

OnnxModel OnnxModel::from(std::shared_ptr<State> s, const OnnxLoadOptions& options) {
  OnnxModelProto& p = s->proto;
  warn_of_opsets(p, s->what);
  if (options.trainable) s->weights = make_trainable(p);
  const OnnxFunctionTable functions = onnx_function_table(p.functions);
  for (OnnxFunction& f : p.functions) {
    std::map<std::string, int64_t> opsets = p.opsets;
    for (const auto& [domain, version] : f.opsets) opsets[domain] = version;
    prepare_onnx_graph(f.body, opsets, functions);
  }
  prepare_onnx_graph(p.graph, p.opsets, functions);
  std::set<int> constant;
  for (const auto& [slot, value] : p.graph.constants) constant.insert(slot);
  for (size_t i = 0; i < p.graph.inputs.size(); ++i) {
    if (constant.count(p.graph.input_slots[i])) continue;
    s->inputs.push_back(p.graph.inputs[i]);
    s->input_at.push_back(i);
  }
  s->device = options.device;
  bring_weights(p, options.device);
  s->states = states_of(p);
  s->unknown = unknown_of(p.graph);
  OnnxModel m;
  m.state_ = std::move(s);
  return m;
}

OnnxModel OnnxModel::load(const FilePath& path, const OnnxLoadOptions& options) {
  auto s = std::make_shared<State>();
  if (is_tensorflow_model(path)) {
    s->what = path.str();
    s->limits = options.limits;
    const Budget budget(s->what, 0, s->limits);
    s->proto = read_tensorflow_model(path, options.signature);
    s->given = budget.given();
    return from(std::move(s), options);
  }
  const auto file = Ref<MappedFile>::adopt(new MappedFile(path));
  const size_t slash = path.str().rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.str().substr(0, slash + 1);
  s->what = path.str();
  s->limits = options.limits;
  const Budget budget(s->what, file->size(), s->limits);
  s->proto = parse_onnx_model(file->view(), path.str(), file, folder, s->limits);
  s->given = budget.given();
  return from(std::move(s), options);
}

OnnxModel OnnxModel::parse(std::string bytes, const std::string& name,
                           const OnnxLoadOptions& options) {
  auto s = std::make_shared<State>();
  s->bytes = std::move(bytes);
  s->what = name;
  s->limits = options.limits;
  const Budget budget(s->what, s->bytes.size(), s->limits);
  s->proto = parse_onnx_model(s->bytes, name, {}, "", s->limits);
  s->given = budget.given();
  return from(std::move(s), options);
}

const std::vector<OnnxPort>& OnnxModel::inputs() const { return state_->inputs; }
const std::vector<OnnxPort>& OnnxModel::outputs() const { return state_->proto.graph.outputs; }
const OnnxModelProto& OnnxModel::proto() const { return state_->proto; }
const std::vector<std::pair<std::string, OnnxValue>>& OnnxModel::weights() const {
  return state_->weights;
}
const std::vector<OnnxState>& OnnxModel::states() const { return state_->states; }

std::vector<OnnxValue> OnnxModel::run(std::span<const OnnxValue> inputs,
                                      const std::map<std::string, OnnxValue>& named) const {
  const OnnxGraph& g = state_->proto.graph;
  TD_CHECK(inputs.size() <= state_->inputs.size(), Value, "the model takes {} inputs, got {}",
           state_->inputs.size(), inputs.size());
  std::vector<OnnxValue> all(g.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) all[state_->input_at[i]] = inputs[i];
  for (const auto& [name, value] : named) {
    const OnnxPort* port = port_of(g.inputs, name);
    TD_CHECK(port, Value, "the model has no input '{}'", name);
    all[static_cast<size_t>(port - g.inputs.data())] = value;
  }
  uint64_t given = state_->given;
  for (const OnnxValue& v : all) given += bytes_of(v);
  const Budget budget(state_->what, given, state_->limits);
  const StoredScope weights;
  const DeviceGuard there(is_host(state_->device) ? context().device : state_->device);
  TD_CHECK(state_->unknown.empty(), Unsupported, "'{}': {}", state_->what, state_->unknown);
  for (OnnxValue& v : all)
    if (v.is_tensor() && is_floating(v.tensor().dtype()))
      v = OnnxValue(brought(v.tensor()), v.type());
  std::vector<OnnxValue> out = run_onnx_graph(g, all, nullptr, nullptr, 0);
  for (size_t i = 0; i < out.size() && i < g.outputs.size() && i < 64; ++i) {
    const OnnxType declared = g.outputs[i].type.elem;
    if (g.outputs[i].type.kind != OnnxTypeSpec::Kind::tensor || declared == OnnxType::undefined ||
        !out[i].is_tensor() || out[i].type() == declared)
      continue;
    const uint64_t bit = uint64_t{1} << i;
    if (!(state_->told_of.fetch_or(bit) & bit))
      log_warning("'{}' declares its output '{}' as {}, and it is {}", state_->what,
                  g.outputs[i].name, to_string(declared), to_string(out[i].type()));
  }
  return out;
}

Budget OnnxModel::open_budget(std::span<const OnnxValue> inputs) const {
  uint64_t given = state_->given;
  for (const OnnxValue& v : inputs) given += bytes_of(v);
  return Budget(state_->what, given, state_->limits);
}
const std::string& OnnxModel::name() const { return state_->what; }

std::vector<OnnxValue> OnnxModel::values_of(const std::vector<Tensor>& inputs) const {
  TD_CHECK(inputs.size() <= state_->inputs.size(), Value, "the model takes {} inputs, got {}",
           state_->inputs.size(), inputs.size());
  std::vector<OnnxValue> in;
  for (size_t i = 0; i < inputs.size(); ++i) in.push_back(value_for(state_->inputs[i], inputs[i]));
  return in;
}

std::vector<Tensor> OnnxModel::operator()(const std::vector<Tensor>& inputs,
                                          const std::map<std::string, Tensor>& named) const {
  const std::vector<OnnxValue> in = values_of(inputs);
  std::map<std::string, OnnxValue> others;
  for (const auto& [name, x] : named) {
    const OnnxPort* port = port_of(state_->proto.graph.inputs, name);
    TD_CHECK(port, Value, "the model has no input '{}'", name);
    others[name] = value_for(*port, x);
  }
  std::vector<Tensor> out;
  for (const OnnxValue& v : run(in, others)) {
    const Tensor& t = v.tensor();
    out.push_back(is_tracing() && !t.is_symbolic() ? constant(t) : t);
  }
  return out;
}

}  // namespace tandem::onnx
