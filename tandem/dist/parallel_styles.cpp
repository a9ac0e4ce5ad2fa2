// SPDX-License-Identifier: Apache-2.0
// parallelize_module(): which slice of which parameter a rank takes for each style, and what its
// layers then do around their own forward.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/dist/all_names_internal.h"
#include "tandem/dist/collectives_internal.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/dist/tensor_parallel.h"
#include "tandem/dist/tensor_parallel_internal.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/graph/trace.h"
#include "tandem/nn/attention.h"
#include "tandem/nn/fine_tune.h"
#include "tandem/nn/linear.h"
#include "tandem/nn/moe.h"
#include "tandem/nn/parametrize.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

using Group = std::shared_ptr<Engine>;
using Slice = TensorParallel::Slice;
using Forward = nn::detail::ModuleState::Forward;

/// What optimizers are told about slices, as long as a layer has some or somebody may ask for whole
/// states: updates that look at whole parameters are refused.
struct Roles {
  std::vector<Param> params;
  void give(const Param& p) {
    tandem::detail::set_shard_role(*p.cell(), tandem::detail::ShardRole::part);
    params.push_back(p);
  }
  Roles() = default;
  ~Roles() {
    for (const Param& p : params)
      tandem::detail::set_shard_role(*p.cell(), tandem::detail::ShardRole::none);
  }
  Roles(const Roles&) = delete;
  Roles& operator=(const Roles&) = delete;
};

/// A module that the plan names.
struct Chosen {
  std::string path;
  nn::Module* module = nullptr;
  Group group;
  std::vector<Slice>* slices = nullptr;
  std::shared_ptr<Roles> roles;  ///< held by what the layer does
};

std::map<std::string, Param> own_params(nn::Module& m) {
  struct Find : nn::MemberVisitor {
    std::map<std::string, Param> found;
    void param(const std::string& n, Param& p) override {
      if (p.defined()) found[n] = p;
    }
    void buffer(const std::string&, Buffer&) override {}
    void child(const std::string&, nn::Module&) override {}
  } find;
  m.visit_members(find);
  return find.found;
}

// Elements [begin, end) along dim of each block that rank r has, one block after the other.
Tensor slice_of_rank(const Tensor& whole, const Slice& s, int64_t r, int64_t ranks) {
  std::vector<Tensor> parts;
  int64_t at = 0;
  for (const int64_t block : s.blocks) {
    const auto [begin, end] = detail::share_of(block, r, ranks);
    parts.push_back(narrow(whole, s.dim, at + begin, end - begin));
    at += block;
  }
  return (parts.size() == 1 ? parts[0] : cat(parts, s.dim)).clone();
}

// Let this rank keep its slice of `p` alone. `even`: sizes must divide by the ranks.
void take_slice(const Chosen& c, const std::string& name, const Param& p, int64_t dim,
                std::vector<int64_t> blocks, bool even = true) {
  const std::string path = c.path.empty() ? name : c.path + "." + name;
  const int64_t ranks = c.group->size();
  for (const int64_t block : blocks)
    TD_CHECK(even ? block % ranks == 0 : block >= ranks, Shape,
             "'{}' {} does not divide into {} ranks along dimension {}: {} elements{}", path,
             p.shape().to_string(), ranks, dim, block,
             blocks.size() > 1 ? fmt::format(" in each of {} parts", blocks.size()) : "");
  for (const Slice& s : *c.slices)
    if (s.param == p) {  // tied, and the same way
      TD_CHECK(s.dim == dim && s.blocks == blocks, Value,
               "'{}' and '{}' are one parameter, of which the plan asks for two kinds of slices",
               s.name, path);
      return;
    }
  c.slices->push_back({path, p, dim, std::move(blocks)});
}

std::vector<int64_t> equal_blocks(const Chosen& c, int64_t size, int64_t parts) {
  TD_CHECK(parts > 0 && size % parts == 0, Shape, "'{}' has {} rows, which do not make {} parts",
           c.path, size, parts);
  return std::vector<int64_t>(static_cast<size_t>(parts), size / parts);
}

// The weight [out, in] and the bias (maybe undefined) of a layer like Linear.
std::pair<Param, Param> linear_params(const Chosen& c, const char* style) {
  const std::map<std::string, Param> own = own_params(*c.module);
  const auto weight = own.find("weight"), bias = own.find("bias");
  TD_CHECK(c.module->state().forward && weight != own.end() && weight->second.dim() == 2,
           Unsupported, "{} knows layers like Linear and Embedding, '{}' is a {}", style, c.path,
           c.module->type());
  return {weight->second, bias == own.end() ? Param() : bias->second};
}

void check_layout(Layout l, std::initializer_list<Layout> known, const Chosen& c) {
  TD_CHECK(std::find(known.begin(), known.end(), l) != known.end(), Unsupported,
           "the plan asks for the layout {} at '{}', where its style does not know it",
           to_string(l), c.path);
}

void apply(const ColwiseParallel& style, const Chosen& c) {
  check_layout(style.input, {Layout::replicated, Layout::sequence}, c);
  check_layout(style.output, {Layout::sharded, Layout::replicated}, c);
  const auto [weight, bias] = linear_params(c, "ColwiseParallel");
  const bool embeds = nn::detail::as_embedding(*c.module) != nullptr;
  const int64_t dim = embeds ? 1 : 0;
  const std::vector<int64_t> blocks = equal_blocks(c, weight.size(dim), style.parts);
  TD_CHECK(style.output == Layout::sharded || style.parts == 1, Unsupported,
           "a result in {} parts cannot be gathered: '{}' needs the output layout sharded",
           style.parts, c.path);
  take_slice(c, "weight", weight, dim, blocks);
  if (bias.defined()) take_slice(c, "bias", bias, 0, blocks);
  c.module->state().around = [style, embeds, g = c.group, roles = c.roles](nn::Module& m, Tensor x,
                                                                           Forward run) {
    if (!embeds) x = redistribute(x, style.input, Layout::shared, g, style.sequence_dim);
    return redistribute(run(&m, std::move(x)), Layout::sharded, style.output, g);
  };
}

// Rows of an embedding by the number of the whole vocabulary; zero where another rank has them.
// What no rank has is left for the lookup to find.
Tensor look_up(const nn::Embedding& m, const Tensor& ids, int64_t vocabulary, const Group& g) {
  const auto [begin, end] = detail::share_of(vocabulary, g->rank(), g->size());
  const Tensor elsewhere = ((ids >= 0) & (ids < vocabulary)) & ((ids < begin) | (ids >= end));
  std::optional<int64_t> padding = m.options.padding_idx;
  if (padding) padding = *padding - begin;
  if (padding && (*padding < 0 || *padding >= end - begin)) padding.reset();
  const Tensor rows = embedding(where(elsewhere, 0, ids - begin), m.weight, padding);
  return masked_fill(rows, elsewhere.unsqueeze(-1), 0.0);
}

void apply(const RowwiseParallel& style, const Chosen& c) {
  check_layout(style.input, {Layout::sharded, Layout::replicated}, c);
  check_layout(style.output, {Layout::replicated, Layout::sequence}, c);
  const auto [weight, bias] = linear_params(c, "RowwiseParallel");
  if (nn::detail::as_embedding(*c.module)) {
    const int64_t vocabulary = weight.size(0);
    take_slice(c, "weight", weight, 0, {vocabulary}, false);
    c.module->state().around = [style, vocabulary, g = c.group, roles = c.roles](
                                   nn::Module& m, const Tensor& ids, Forward) {
      const Tensor rows = look_up(*nn::detail::as_embedding(m), ids, vocabulary, g);
      return redistribute(rows, Layout::partial, style.output, g, style.sequence_dim);
    };
    return;
  }
  take_slice(c, "weight", weight, 1, {weight.size(1)});
  c.module->state().around = [style, b = bias, g = c.group, roles = c.roles](
                                 nn::Module& m, Tensor x, Forward run) {
    x = redistribute(std::move(x), style.input, Layout::sharded, g);
    if (!b.defined())
      return redistribute(run(&m, std::move(x)), Layout::partial, style.output, g,
                          style.sequence_dim);
    Tensor y;
    {
      const nn::detail::Substitute none(b, Tensor());
      y = run(&m, std::move(x));
    }
    y = redistribute(y, Layout::partial, style.output, g, style.sequence_dim);
    // Slices of time give each rank a part of the bias's gradient.
    const bool slices = style.output == Layout::sequence;
    const Tensor bias = slices ? detail::cross(detail::Crossing::copy, b, g) : b.value();
    return y + bias.to(y.dtype());  // as linear() adds it under autocast
  };
}

void apply(const AttentionParallel&, const Chosen& c) {
  nn::MultiheadAttention* m = nn::detail::as_attention(*c.module);
  TD_CHECK(m, Unsupported, "AttentionParallel knows nn::MultiheadAttention, '{}' is a {}", c.path,
           c.module->type());
  const int64_t ranks = c.group->size();
  TD_CHECK(m->num_heads % ranks == 0 && m->num_kv_heads % ranks == 0, Shape,
           "'{}' has {} heads and {} of keys, which do not divide by {} ranks\nTake as many ranks "
           "for tensor parallel (tp) as divide both.",
           c.path, m->num_heads, m->num_kv_heads, ranks);
  const int64_t q = m->num_heads * m->head_dim, kv = m->num_kv_heads * m->head_dim;
  for (const auto& [name, p] : own_params(*c.module)) {
    if (name.starts_with("in_proj"))
      take_slice(c, name, p, 0, {q, kv, kv});
    else
      take_slice(c, name, p, name.starts_with("bias_") ? 2 : 0, {p.size(name[0] == 'b' ? 2 : 0)});
  }
  m->state().entering = [g = c.group, roles = c.roles](const Tensor& x) {
    return redistribute(x, Layout::replicated, Layout::shared, g);
  };
  Chosen out = c;
  out.path += c.path.empty() ? "out_proj" : ".out_proj";
  out.module = &m->out_proj;
  apply(RowwiseParallel{}, out);
}

void apply(const SequenceParallel& style, const Chosen& c) {
  check_layout(style.input, {Layout::sequence, Layout::replicated}, c);
  check_layout(style.output, {Layout::sequence, Layout::replicated, Layout::shared}, c);
  TD_CHECK(c.module->state().forward, Unsupported,
           "SequenceParallel knows layers that take one tensor, '{}' is a {}", c.path,
           c.module->type());
  const std::vector<Param> own = c.module->parameters();  // of layers below it, too
  c.module->state().around = [style, own, g = c.group](nn::Module& m, Tensor x, Forward run) {
    std::vector<std::unique_ptr<nn::detail::Substitute>> scopes;
    for (const Param& p : own)
      scopes.push_back(std::make_unique<nn::detail::Substitute>(
          p, detail::cross(detail::Crossing::copy, p.value(), g)));
    x = redistribute(std::move(x), style.input, Layout::sequence, g, style.sequence_dim);
    const Tensor y = run(&m, std::move(x));
    while (!scopes.empty()) scopes.pop_back();  // the last one first
    return redistribute(y, Layout::sequence, style.output, g, style.sequence_dim);
  };
}

void apply(const ExpertParallel&, const Chosen& c) {
  nn::MoE* m = nn::detail::as_moe(*c.module);
  TD_CHECK(m, Unsupported, "ExpertParallel knows nn::MoE, '{}' is a {}", c.path, c.module->type());
  take_slice(c, "up_proj", m->up_proj, 0, {m->options.experts});
  take_slice(c, "down_proj", m->down_proj, 0, {m->options.experts});
  // [experts, capacity, width] -> [own experts, ranks * capacity, width], and back. The mean over
  // the ranks' losses asks for 1 / ranks of the gradients that come from all of them.
  const int64_t ranks = c.group->size();
  auto exchange = std::make_shared<nn::MoE::Exchange>();
  exchange->agree = [g = c.group](int64_t most) {
    if (is_tracing()) return most;  // it depends on shapes alone then, which are equal
    g->all_reduce({&most, 1, DType::i64}, ReduceOp::max, {"capacity of experts"}).wait();
    return most;
  };
  exchange->out = [ranks, g = c.group, roles = c.roles](const Tensor& x) {
    const Tensor rows = x.unflatten(0, {ranks, x.size(0) / ranks});
    const Tensor own = detail::all_to_all_scaled(rows, static_cast<double>(ranks), g);
    return own.transpose(0, 1).flatten(1, 2);
  };
  exchange->back = [ranks, g = c.group](const Tensor& y) {
    const Tensor rows = y.unflatten(1, {ranks, y.size(1) / ranks}).transpose(0, 1).contiguous();
    return detail::all_to_all_scaled(rows, 1 / static_cast<double>(ranks), g).flatten(0, 1);
  };
  m->set_exchange(std::move(exchange));
}

void apply(const PrepareModuleInput& style, const Chosen& c) {
  c.module->state().around = [style, g = c.group](nn::Module& m, const Tensor& x, Forward run) {
    return run(&m, redistribute(x, style.input, style.desired, g, style.sequence_dim));
  };
}

void apply(const PrepareModuleOutput& style, const Chosen& c) {
  c.module->state().around = [style, g = c.group](nn::Module& m, Tensor x, Forward run) {
    return redistribute(run(&m, std::move(x)), style.output, style.desired, g, style.sequence_dim);
  };
}

std::vector<Cell*> cells_of(const nn::Module& net) {
  std::vector<Cell*> cells;
  for (const Param& p : net.parameters()) cells.push_back(p.cell().get());
  for (const Buffer& b : net.buffers()) cells.push_back(b.cell().get());
  return cells;
}

// The modules that a pattern names: of those below each other the outermost.
std::vector<std::pair<std::string, nn::Module*>> matches(nn::Module& net,
                                                         const std::string& pattern) {
  std::vector<std::pair<std::string, nn::Module*>> out;
  std::vector<std::string> known;
  for (const auto& [path, m] : net.named_modules()) {
    known.push_back(path);
    const size_t dot = path.rfind('.');
    const bool below = dot != path.npos && nn::name_matches(pattern, path.substr(0, dot));
    if (!path.empty() && !below && nn::name_matches(pattern, path)) out.emplace_back(path, m);
  }
  if (out.empty()) {
    const std::string near = nearest_word(pattern, known);
    TD_FAIL(Value, "the plan's '{}' matches no module of the net{}", pattern,
            near.empty() ? "" : fmt::format(", did you mean '{}'?", near));
  }
  return out;
}

}  // namespace

struct TensorParallel::Aside {
  struct Layer {
    nn::Module* module;
    std::function<Tensor(nn::Module&, Tensor, Forward)> around;
    std::function<Tensor(const Tensor&)> entering;
  };
  std::vector<Layer> layers;
  bool whole = false;
};

TensorParallel parallelize_module(nn::Module& net, const ParallelPlan& plan, Group group) {
  return spread_module(net, plan, group, *group, store_shared);
}

TensorParallel spread_module(nn::Module& net, const ParallelPlan& plan, const Group& group,
                             Engine& source, const StoreShared& store) {
  const NoGradGuard no_grad;
  std::optional<DeferredInitGuard> as_they_are(std::in_place);  // shapes are what styles ask for
  TensorParallel out;
  out.net_ = &net;
  out.group_ = group;
  const auto roles = std::make_shared<Roles>();
  out.roles_ = roles;
  out.aside_ = std::make_shared<TensorParallel::Aside>();
  std::map<std::string, std::string> by;  // which pattern has named a module
  std::vector<std::pair<Chosen, const ParallelStyle*>> layers;
  for (const auto& [pattern, style] : plan)
    for (const auto& [path, m] : matches(net, pattern)) {
      const auto [at, fresh] = by.emplace(path, pattern);
      TD_CHECK(fresh, Value, "'{}' is named twice by the plan: '{}' and '{}'", path, at->second,
               pattern);
      layers.emplace_back(Chosen{path, m, group, &out.slices_, roles}, &style);
    }
  const std::vector<Cell*> cells = cells_of(net);
  if (group->size() == 1) {
    as_they_are.reset();
    share_cells(source, cells, "parameters",
                [&](size_t i, const Tensor& whole) { store(*cells[i], whole); });
    return out;
  }
  for (const auto& [path, m] : net.named_modules())
    TD_CHECK(!m->state().around && !m->state().entering, Unsupported,
             "'{}' is spread over ranks already\nOne plan, in one call, names all layers.", path);
  std::vector<std::string> lines;
  for (const auto& [name, p] : net.named_parameters())
    lines.push_back(
        fmt::format("parameter '{}' {}{}", name, to_string(p.dtype()), p.shape().to_string()));
  for (const auto& [c, style] : layers) lines.push_back("sharded layer '" + c.path + "'");
  compare_lines(*group, lines, "nets", "All ranks must build the same net, with the same plan.");
  for (const auto& [c, style] : layers)
    std::visit([&c = c](const auto& s) { apply(s, c); }, *style);
  as_they_are.reset();
  std::map<const Cell*, const Slice*> slice_of;
  for (const Slice& s : out.slices_) slice_of[s.param.cell().get()] = &s;
  share_cells(source, cells, "parameters", [&](size_t i, const Tensor& whole) {
    const auto at = slice_of.find(cells[i]);
    if (at == slice_of.end()) return store(*cells[i], whole);
    const Slice& s = *at->second;
    store(*cells[i], slice_of_rank(whole, s, group->rank(), group->size()));
    s.param.zero_grad();
    roles->give(s.param);
  });
  return out;
}

// ---- whole nets for a while

void TensorParallel::unshard() {
  if (group_->size() == 1 || aside_->whole) return;
  const NoGradGuard no_grad;
  for (const auto& [path, m] : net_->named_modules())
    TD_CHECK(!nn::detail::as_moe(*m), Unsupported,
             "'{}' has its experts on several ranks, which take tokens of all of them", path);
  for (const Slice& s : slices_) {
    s.param.cell()->replace(whole_of(s, s.param.value()));
    s.param.zero_grad();
  }
  for (const auto& [path, m] : net_->named_modules()) {
    auto& state = m->state();
    if (!state.around && !state.entering) continue;
    aside_->layers.push_back(
        {m, std::exchange(state.around, {}), std::exchange(state.entering, {})});
  }
  aside_->whole = true;
}

void TensorParallel::reshard() {
  if (group_->size() == 1 || !aside_->whole) return;
  const NoGradGuard no_grad;
  for (const Slice& s : slices_) {
    s.param.cell()->replace(own_of(s, s.param.value()));
    s.param.zero_grad();
  }
  for (Aside::Layer& l : aside_->layers) {
    l.module->state().around = std::move(l.around);
    l.module->state().entering = std::move(l.entering);
  }
  aside_->layers.clear();
  aside_->whole = false;
}

// ---- states and norms

const Slice* TensorParallel::slice_of(const std::string& name) const {
  for (const Slice& s : slices_)
    if (s.name == name) return &s;
  return nullptr;
}

// Is it of the shape that this rank's slice has, whether the net is whole now or not?
bool TensorParallel::is_slice(const Slice& s, const Tensor& value) const {
  if (value.dim() != s.param.dim()) return false;
  int64_t own = 0;
  for (const int64_t block : s.blocks) {
    const auto [begin, end] = detail::share_of(block, group_->rank(), group_->size());
    own += end - begin;
  }
  for (int64_t d = 0; d < value.dim(); ++d)
    if (value.size(d) != (d == s.dim ? own : s.param.size(d))) return false;
  return true;
}

Tensor TensorParallel::own_of(const Slice& s, const Tensor& whole) const {
  return slice_of_rank(whole, s, group_->rank(), group_->size());
}

// Ranks may have slices of different sizes: shorter ones are filled up on the way.
Tensor TensorParallel::whole_of(const Slice& s, const Tensor& own) const {
  const int64_t ranks = group_->size();
  const auto size_of_rank = [&](int64_t r) {
    int64_t n = 0;
    for (const int64_t block : s.blocks) {
      const auto [begin, end] = detail::share_of(block, r, ranks);
      n += end - begin;
    }
    return n;
  };
  Tensor in = movedim(own.detach(), {s.dim}, {0}).contiguous();
  if (const int64_t more = size_of_rank(0) - in.size(0); more > 0) {
    std::vector<int64_t> shape(in.sizes().begin(), in.sizes().end());
    shape[0] = more;
    in = cat({in, zeros(Shape(shape), in.dtype())}, 0);
  }
  const Tensor all = all_gather(in, group_);
  std::vector<Tensor> parts;
  std::vector<int64_t> at(static_cast<size_t>(ranks), 0);
  for (const int64_t block : s.blocks)
    for (int64_t r = 0; r < ranks; ++r) {
      const auto [begin, end] = detail::share_of(block, r, ranks);
      int64_t& from = at[static_cast<size_t>(r)];
      parts.push_back(narrow(select(all, 0, r), 0, from, end - begin));
      from += end - begin;
    }
  return movedim(cat(parts, 0), {0}, {s.dim}).contiguous();
}

StateDict TensorParallel::state_dict() const {
  const NoGradGuard no_grad;
  StateDict out = net_->state_dict();
  if (aside_->whole) return out;
  std::map<const Cell*, Tensor> whole;  // tied parameters are gathered once
  for (const Slice& s : slices_) whole[s.param.cell().get()] = whole_of(s, s.param.value());
  for (const auto& [name, p] : detail::all_names(*net_))
    if (const auto at = whole.find(p.cell().get()); at != whole.end()) out[name] = at->second;
  return out;
}

nn::LoadReport TensorParallel::load_state_dict(const StateDict& whole, bool strict) const {
  const NoGradGuard no_grad;
  if (aside_->whole) return net_->load_state_dict(whole, strict);
  StateDict own;
  const std::map<std::string, Param> names = detail::all_names(*net_);
  for (const auto& [name, value] : whole) {
    const auto named = names.find(name);
    const Slice* s = nullptr;
    for (const Slice& slice : slices_)
      if (named != names.end() && slice.param == named->second) s = &slice;
    if (!s) {
      own[name] = value;
      continue;
    }
    int64_t size = 0;
    for (const int64_t block : s->blocks) size += block;
    TD_CHECK(value.dim() == s->param.dim() && value.size(s->dim) == size, Shape,
             "'{}' has the shape {}, expected {} elements along dimension {}", name,
             value.shape().to_string(), size, s->dim);
    own[name] = own_of(*s, value);
  }
  return net_->load_state_dict(own, strict);
}

StateDict TensorParallel::optim_state_dict(const optim::Optimizer& optimizer) const {
  const NoGradGuard no_grad;
  StateDict out = optimizer.state_dict();
  for (auto& [name, value] : out) {
    const size_t dot = name.rfind('.');
    const Slice* s = dot == name.npos ? nullptr : slice_of(name.substr(0, dot));
    if (s && is_slice(*s, value)) out[name] = whole_of(*s, value);
  }
  return out;
}

StateDict TensorParallel::parts_of_optim_state(const optim::Optimizer& optimizer,
                                               const StateDict& whole) const {
  const NoGradGuard no_grad;
  const StateDict own = optimizer.state_dict();
  StateDict parts;
  for (const auto& [name, value] : whole) {
    const size_t dot = name.rfind('.');
    const Slice* s = dot == name.npos ? nullptr : slice_of(name.substr(0, dot));
    const Tensor* mine = own.find(name);
    const bool moment = s && mine && is_slice(*s, *mine);
    parts[name] = moment ? own_of(*s, value) : value;
  }
  return parts;
}

void TensorParallel::load_optim_state_dict(optim::Optimizer& optimizer,
                                           const StateDict& whole) const {
  optimizer.load_state_dict(parts_of_optim_state(optimizer, whole));
}

Tensor TensorParallel::get_total_norm(double p, SourceLocation loc) const {
  const NoGradGuard no_grad;
  TD_CHECK(p > 0, Value, "norm_type is {}, expected more than 0", p);
  std::vector<Param> sliced, others;
  for (const Param& param : net_->parameters()) {
    const bool part = std::any_of(slices_.begin(), slices_.end(),
                                  [&](const Slice& s) { return s.param == param; });
    (part ? sliced : others).push_back(param);
  }
  const auto norm = [&](const std::vector<Param>& params) {
    return params.empty() ? zeros({}, DType::f64)
                          : optim::get_total_norm(params, p, loc).to(DType::f64);
  };
  const DType dtype = net_->parameters().front().dtype();
  const Tensor parts = detail::norm_over_ranks(norm(sliced), p, group_), rest = norm(others);
  if (std::isinf(p)) return maximum(parts, rest).to(dtype);
  return pow(pow(parts, p) + pow(rest, p), 1 / p).to(dtype);
}

Tensor TensorParallel::clip_grad_norm_(double max_norm, double p, SourceLocation loc) const {
  const NoGradGuard no_grad;
  Tensor norm = get_total_norm(p, loc);
  optim::clip_grads_with_norm_(net_->parameters(), max_norm, norm, loc);
  return norm;
}

}  // namespace tandem::distributed
