// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/network.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "tandem/graph/apply.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"
#include "tandem/ops/stored.h"
#include "tandem/quant/roles.h"

namespace tandem::quant {
namespace {

bool is_symbolic(const Node& n) {
  return std::any_of(n.out.begin(), n.out.end(),
                     [](const NodeOutput& o) { return o.shape.is_symbolic(); });
}

// `t` of one entry for each output, beside a weight.
Tensor beside_weight(const Tensor& t, const Layer& layer) {
  Shape shape;
  for (int d = 0; d < layer.weight.dim(); ++d)
    shape.push_back(d == layer.axis ? layer.weight.shape(d) : Dim(1));
  return t.reshape(shape);
}

}  // namespace

Tensor as_constant(const Tensor& t) { return is_tracing() && t.defined() ? constant(t) : t; }

Network::Network(const Forward& f, std::span<const Spec> inputs) {
  const NoGradGuard no_grad;
  graph_ = trace([&](std::span<const Tensor> x) { return f(x); }, inputs, Captures::as_inputs);
  TD_CHECK(graph_->rng_draws == 0, Unsupported,
           "the network draws random numbers\nPut it into evaluation mode: net.eval().");
  find_known();
  find_learned();
  find_uses();
  find_layers();
  find_tables();
  find_results();
  TD_CHECK(!layers_.empty(), Value,
           "the network has no convolution and no matmul with a weight: there is nothing to "
           "quantise");
}

void Network::find_known() {
  const size_t n = graph_->nodes.size();
  known_.assign(n, 0);
  folded_.assign(n, 0);
  layer_at_.assign(n, -1);
  values_.resize(n);
  const auto set = [&](const Tensor& placeholder, const Tensor& value) {
    const uint32_t at = node_of(placeholder)->index;
    known_[at] = 1;
    values_[at] = {value};
  };
  for (const Graph::Capture& c : graph_->captures) set(c.inner, c.outer);
  for (const Graph::CellUse& u : graph_->cells)
    if (u.entry.defined()) set(u.entry, u.cell->read());
  for (const Ref<Node>& node : graph_->nodes) {
    if (known_[node->index] || is_symbolic(*node) || node->op->has(kEffect) ||
        node->op->has(kRandom) || node->op->family == Family::control)
      known_[node->index] |= node->op == &op::constant;
    else if (!node->in.empty())
      known_[node->index] = std::all_of(node->in.begin(), node->in.end(), [&](const NodeInput& i) {
        return !i.present || known_[i.from->index];
      });
  }
}

// What reads the rounded value reads the value itself from here on. Where two roundings of a value
// differ, the coarser one counts.
void Network::find_learned() {
  constexpr int64_t kLevels = 255;
  std::map<uint32_t, NodeInput> rounds;
  for (const Ref<Node>& n : graph_->nodes) {
    for (NodeInput& i : n->in)
      if (const auto at = i.from ? rounds.find(i.from->index) : rounds.end(); at != rounds.end())
        i = at->second;
    if (n->op != &op::fake_quantize || known_[n->index] || !n->in[0].from ||
        n->in[0].dtype != DType::f32 || is_output({n->index, 0}) || !is_known(n->in[1]) ||
        (n->in[2].present && !is_known(n->in[2])))
      continue;
    const auto& a = *static_cast<const FakeQuantizeAttrs*>(n->attrs.get());
    const Tensor scale = constant_of(n->in[1]), zero = constant_of(n->in[2]);
    if (a.high - a.low != kLevels || scale.numel() != 1) continue;
    const Step s{scale.reshape({}).to(DType::f32).item<float>(),
                 (zero.defined() ? zero.reshape({}).to(DType::i64).item<int64_t>() : 0) - a.low};
    const auto [at, is_new] = learned_.emplace(value_of(n->in[0]), s);
    if (!is_new && s.scale > at->second.scale) at->second = s;
    rounds.emplace(n->index, n->in[0]);
    folded_[n->index] = 1;
  }
}

void Network::find_uses() {
  uses_.resize(graph_->nodes.size());
  for (const Ref<Node>& n : graph_->nodes)
    uses_[n->index].resize(std::max<size_t>(n->out.size(), 1));
  for (const Ref<Node>& n : graph_->nodes)
    for (size_t i = 0; i < n->in.size(); ++i)
      if (n->in[i].from)
        uses_[n->in[i].from->index].at(n->in[i].from_index).push_back({n.get(), i});
}

bool Network::is_output(ValueId v) const {
  return std::any_of(graph_->outputs.begin(), graph_->outputs.end(), [&](const Tensor& t) {
    return node_of(t)->index == v.node && t.impl()->out_index == v.output;
  });
}

Tensor Network::constant_of(const NodeInput& i) {
  return i.present ? evaluate(*i.from, i.from_index) : Tensor();
}

Tensor Network::evaluate(const Node& n, size_t output) {
  std::vector<Tensor>& all = values_[n.index];
  if (all.empty() && n.op == &op::constant)
    all = {constant_value(*static_cast<const ConstantAttrs*>(n.attrs.get()))};
  if (all.empty()) {
    std::vector<Operand> in;
    in.reserve(n.in.size());
    for (const NodeInput& i : n.in) {
      if (i.is_scalar)
        in.emplace_back(i.scalar, n.loc);
      else
        in.emplace_back(constant_of(i), n.loc);
    }
    Tensor out[kMaxOpOuts];
    apply(*n.op, n.attrs.get(), in, out, n.loc);
    all.assign(out, out + n.out.size());
  }
  return all.at(output);
}

void Network::find_layers() {
  const NoGradGuard no_grad;
  std::set<std::string> names;
  for (const Ref<Node>& n : graph_->nodes) {
    Layer layer;
    layer.node = n.get();
    if (n->in.size() < 2 || known_[n->index] || !n->in[1].present || !is_known(n->in[1]) ||
        n->in[0].dtype != DType::f32 || n->in[1].dtype != DType::f32 ||
        !has_weight(*n, n->in[1].shape, layer.axis))
      continue;
    if (n->in.size() > 2 && n->in[2].present) {
      if (!is_known(n->in[2])) continue;
      layer.bias = constant_of(n->in[2]);
    }
    layer.weight = constant_of(n->in[1]).contiguous();
    learned_scale(layer);
    fold_norm(layer);
    layer.name = scope_path(n->scope);
    if (layer.name.empty() || names.count(layer.name))
      layer.name += (layer.name.empty() ? "" : ".") + std::string(n->op->name) + "_" +
                    std::to_string(layers_.size());
    names.insert(layer.name);
    layer_at_[n->index] = static_cast<int>(layers_.size());
    layers_.push_back(std::move(layer));
  }
}

void Network::find_tables() {
  std::set<std::string> names;
  for (const Layer& l : layers_) names.insert(l.name);
  for (const Ref<Node>& n : graph_->nodes) {
    if (n->op != &op::index || known_[n->index] || n->in.size() != 2 || !n->in[0].present ||
        !is_known(n->in[0]) || n->in[0].dtype != DType::f32 || n->in[0].shape.rank() != 2 ||
        static_cast<const IndexAttrs*>(n->attrs.get())->dim != 0)
      continue;
    Table table{scope_path(n->scope), n.get(), constant_of(n->in[0]).contiguous()};
    if (table.name.empty() || names.count(table.name))
      table.name += fmt::format("{}index_{}", table.name.empty() ? "" : ".", tables_.size());
    names.insert(table.name);
    tables_.push_back(std::move(table));
  }
}

void Network::find_results() {
  read_.assign(graph_->nodes.size(), 0);
  for (const Ref<Node>& n : graph_->nodes) {
    const bool first_alone = folded_[n->index] || layer_at_[n->index] >= 0;
    for (size_t i = 0; i < n->in.size() && !known_[n->index]; ++i)
      if (n->in[i].from && !(first_alone && i > 0)) read_[n->in[i].from->index] = 1;
  }
  for (const Tensor& t : graph_->outputs) read_[node_of(t)->index] = 1;
  for (const Ref<Node>& n : graph_->nodes)
    if (known_results(*n) && read_[n->index]) evaluate(*n, 0);
}

const std::vector<Tensor>* Network::known_results(const Node& n) const {
  static const std::vector<Tensor> kUnread;
  if (!known_[n.index] || n.op == &op::constant || n.in.empty()) return nullptr;
  return read_[n.index] ? &values_[n.index] : &kUnread;
}

void Network::learned_scale(Layer& layer) {
  const Node& n = *layer.node->in[1].from;
  if (n.op != &op::fake_quantize || n.in[2].present) return;
  const auto& a = *static_cast<const FakeQuantizeAttrs*>(n.attrs.get());
  const Tensor scale = constant_of(n.in[1]).to(DType::f32);
  const bool one = scale.numel() == 1;
  if (a.low != -a.high || a.high > layer.most_code ||
      (!one && normalize_dim(a.axis, layer.weight.dim()) != layer.axis))
    return;
  layer.scale = one ? scale.reshape({}) : scale;
  layer.most_code = a.high;
}

void Network::fold_norm(Layer& layer) {
  const ValueId y{layer.node->index, 0};
  if (uses(y).size() != 1 || is_output(y) || result_axis(layer) != 1) return;
  const Node& n = *uses(y)[0].node;
  if (n.op != &op::batch_norm_infer || uses(y)[0].operand != 0) return;
  for (size_t i = 1; i < n.in.size(); ++i)
    if (n.in[i].present && !is_known(n.in[i])) return;
  const Tensor mean = constant_of(n.in[1]), var = constant_of(n.in[2]),
               weight = n.in.size() > 3 ? constant_of(n.in[3]) : Tensor(),
               bias = n.in.size() > 4 ? constant_of(n.in[4]) : Tensor();
  Tensor factor = rsqrt(var + static_cast<const NormAttrs*>(n.attrs.get())->eps);
  if (weight.defined()) factor = factor * weight;
  layer.weight = layer.weight * beside_weight(factor, layer);
  if (layer.scale.defined()) layer.scale = layer.scale * abs(factor);
  const Tensor shift = layer.bias.defined() ? layer.bias - mean : -mean;
  layer.bias = bias.defined() ? shift * factor + bias : shift * factor;
  layer.norm = &n;
  folded_[n.index] = 1;
}

int64_t Network::weight_bytes() const {
  int64_t bytes = 0;
  for (const Layer& l : layers_)
    bytes += 4 * (l.weight.numel() + (l.bias.defined() ? l.bias.numel() : 0));
  for (const Table& t : tables_) bytes += 4 * t.weight.numel();
  return bytes;
}

void Network::scale_inputs(ValueId v, const Tensor& factor) {
  const Node& n = *graph_->nodes[v.node];
  const bool norm = n.op == &op::layer_norm || n.op == &op::rms_norm;
  const auto takes = [&](const NodeInput& i) { return !i.present || is_known(i); };
  if (!norm || is_output(v) || !n.in[1].present ||
      !std::all_of(n.in.begin() + 1, n.in.end(), takes))
    return void(input_scales_[v] = factor);
  const Tensor weight = constant_of(n.in[1]),
               bias = n.in.size() > 2 ? constant_of(n.in[2]) : Tensor();
  scaled_norms_[v.node] = {weight * factor, bias.defined() ? bias * factor : bias};
}

Tensor Network::input_scale(ValueId v) const {
  const auto at = input_scales_.find(v);
  return at == input_scales_.end() ? Tensor() : at->second;
}

const std::pair<Tensor, Tensor>* Network::scaled_norm(const Node& n) const {
  const auto at = scaled_norms_.find(n.index);
  return at == scaled_norms_.end() ? nullptr : &at->second;
}

void check_untrained(const Network& net, std::string_view what) {
  const bool learned = std::any_of(net.layers().begin(), net.layers().end(),
                                   [](const Layer& l) { return l.scale.defined(); });
  TD_CHECK(!learned && net.learned().empty(), Value,
           "the network was trained with the rounding of its channels as they are\nLeave {} out.",
           what);
}

// ---- Walk

std::vector<Tensor> Walk::run(std::span<const Tensor> inputs) {
  const NoGradGuard no_grad;
  scaled_.clear();
  return tandem::run(net_.graph(), inputs, *this);
}

bool Walk::before(const Node& n, std::span<Tensor> in, Tensor* out) {
  if (net_.is_folded(n)) {
    out[0] = in[0];
    return true;
  }
  if (const std::vector<Tensor>* known = net_.known_results(n)) {
    for (size_t o = 0; o < known->size(); ++o) out[o] = as_constant((*known)[o]);
    return true;
  }
  for (size_t k = 0; k < in.size(); ++k) {
    const NodeInput& i = n.in[k];  // parameters are constants in a trace
    if (i.from && i.from->in.empty() && i.from->op != &op::constant && net_.is_known(i))
      in[k] = as_constant(in[k]);
  }
  scale(n, in);
  operands(n, in);
  const int i = net_.layer_at(n);
  if (i < 0) return false;
  out[0] = layer(static_cast<size_t>(i), in[0]);
  return true;
}

void Walk::scale(const Node& n, std::span<Tensor> in) {
  if (const auto* norm = net_.scaled_norm(n)) {
    in[1] = as_constant(norm->first);
    if (in.size() > 2) in[2] = as_constant(norm->second);
  }
  if (net_.layer_at(n) < 0) return;
  const ValueId v = value_of(n.in[0]);
  const Tensor factor = net_.input_scale(v);
  if (!factor.defined()) return;
  Tensor& own = scaled_[v];
  if (!own.defined()) own = in[0] * as_constant(factor);
  in[0] = own;
}

Tensor Walk::layer(size_t index, const Tensor& x) {
  const Layer& l = net_.layers()[index];
  return call(l, x, as_constant(l.weight), as_constant(l.bias));
}

Tensor Walk::call(const Layer& layer, const Tensor& x, const Tensor& weight,
                  const Tensor& bias) const {
  const Node& n = *layer.node;
  const bool takes_bias = n.op->n_in > 2;
  Operand in[] = {Operand(x, n.loc), Operand(weight, n.loc), Operand(bias, n.loc)};
  Tensor out[kMaxOpOuts];
  apply(*n.op, attrs(), {in, takes_bias ? size_t{3} : size_t{2}}, out, n.loc);
  if (takes_bias || !bias.defined()) return out[0];
  // A norm that was folded has left one.
  Shape shape;
  for (int d = 0; d < out[0].dim(); ++d)
    shape.push_back(d == result_axis(layer) ? bias.shape(0) : Dim(1));
  return out[0] + bias.reshape(shape);
}

}  // namespace tandem::quant
