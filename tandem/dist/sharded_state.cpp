// SPDX-License-Identifier: Apache-2.0
// DataParallel with sharded parameters: what optimizers update, norms over ranks, and states
// that look like those of one rank.
#include <algorithm>
#include <cmath>
#include <map>

#include "tandem/base/error.h"
#include "tandem/dist/all_names_internal.h"
#include "tandem/dist/collectives_internal.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/dist/sharded_params_internal.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
std::vector<Param> DataParallel::parameters() const {
  return sharded_ ? sharded_->shards() : net_.parameters();
}

Tensor DataParallel::get_total_norm(double p, SourceLocation loc) {
  const NoGradGuard no_grad;
  const Tensor own = optim::get_total_norm(parameters(), p, loc);
  if (!sharded_) return own;
  // A rank without gradients has no dtype and device of its own: all send the same one.
  const Device home = sharded_->home();
  const DType dtype = parameters().front().dtype();
  return detail::norm_over_ranks(own.to(home), p, engine_).to(dtype);
}

Tensor detail::norm_over_ranks(Tensor own, double p, const std::shared_ptr<Engine>& group) {
  own = own.to(DType::f64);
  const auto over_ranks = [&](const Tensor& x, ReduceOp op) {
    return all_reduce_labelled(x, op, group, {"norm of gradients"});
  };
  if (std::isinf(p)) return over_ranks(own, ReduceOp::max);
  return pow(over_ranks(pow(own, p), ReduceOp::sum), 1 / p);
}

Tensor DataParallel::clip_grad_norm_(double max_norm, double p, SourceLocation loc) {
  if (!sharded_) return optim::clip_grad_norm_(parameters(), max_norm, p, false, loc);
  TD_CHECK(p > 0, Value, "norm_type is {}, expected more than 0", p);
  const NoGradGuard no_grad;
  Tensor norm = get_total_norm(p, loc);
  optim::clip_grads_with_norm_(parameters(), max_norm, norm, loc);
  return norm;
}

std::function<Tensor(const Tensor&)> DataParallel::max_over_ranks() const {
  if (!sharded_) return {};
  // Wherever a rank's mark lies: all send one of the same place.
  return [e = engine_, home = sharded_->home()](const Tensor& x) {
    const Tensor most =
        detail::all_reduce_labelled(x.to(home), ReduceOp::max, e, {"overflow of gradients"});
    return most.to(x.device());
  };
}

std::optional<size_t> owner_of(const std::string& name, const std::vector<NamedParam>& params) {
  const size_t dot = name.rfind('.');
  const std::string owner = name.substr(0, dot == name.npos ? 0 : dot);
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].name == owner) return i;
  return {};
}

StateDict DataParallel::state_dict() {
  const NoGradGuard no_grad;
  const bool held = unsharded();
  if (sharded_) sharded_->gather_all();
  StateDict whole = net_.state_dict();
  if (sharded_ && !held) sharded_->drop_all();
  return whole;
}

void DataParallel::each_state(const SeeWhole& see) {
  const NoGradGuard no_grad;
  std::map<const Cell*, std::vector<std::string>> names;
  for (const auto& [name, p] : detail::all_names(net_)) names[p.cell().get()].push_back(name);
  const auto show = [&](const Param& p) {
    const auto at = names.find(p.cell().get());
    if (at == names.end()) return;
    const Tensor whole = p.value().detach();
    for (const std::string& name : at->second) see(name, whole);
    names.erase(at);
  };
  if (sharded_)
    sharded_->each_unit([&](const ShardedParams::Unit& u) {
      for (const size_t i : u.params) show(reducer_->params()[i].param);
    });
  for (const auto& [name, p] : net_.named_parameters()) show(p);
  for (const auto& [name, b] : net_.named_buffers()) see(name, b.value().detach());
}

std::pair<StateDict, bool> state_as_it_is(const optim::Optimizer& optimizer) {
  const DeferredInitGuard as_it_is;
  StateDict state = optimizer.state_dict();
  const bool deferred = std::any_of(state.begin(), state.end(), [](const auto& entry) {
    return tandem::detail::is_deferred(entry.second);
  });
  return {std::move(state), deferred};
}

void DataParallel::each_optim_state(const optim::Optimizer& optimizer, const SeeWhole& see) {
  const NoGradGuard no_grad;
  for (const auto& [name, v] : optimizer.state_dict()) {
    const std::optional<size_t> i = sharded_ ? owner_of(name, reducer_->params()) : std::nullopt;
    const bool moment = i && v.dim() > 0 && v.shape() == sharded_->places()[*i].shard.shape();
    see(name, moment ? sharded_->whole_of(*i, v) : v);
  }
}

StateDict DataParallel::optim_state_dict(const optim::Optimizer& optimizer) {
  StateDict whole;
  each_optim_state(optimizer, [&](const std::string& name, const Tensor& v) { whole[name] = v; });
  return whole;
}

void DataParallel::load_optim_state_dict(optim::Optimizer& optimizer, const StateDict& whole) {
  optimizer.load_state_dict(parts_of_optim_state(optimizer, whole));
}

// Moments have their parameter's shape; counts and options have no dimension.
StateDict DataParallel::parts_of_optim_state(const optim::Optimizer& optimizer,
                                             const StateDict& whole) const {
  if (!sharded_ || engine_->size() == 1) return whole;
  const NoGradGuard no_grad;
  const StateDict own = optimizer.state_dict();
  StateDict parts;
  for (const auto& [name, v] : whole) {
    const std::optional<size_t> i = owner_of(name, reducer_->params());
    const Tensor* mine = own.find(name);
    const bool moment = i && mine && mine->dim() == 1 && v.shape() == sharded_->places()[*i].shape;
    parts[name] = moment ? sharded_->part_of(*i, v) : v;
  }
  return parts;
}

void DataParallel::shard_optimizer(optim::Optimizer& optimizer) {
  if (!sharded_) return;
  const auto [state, deferred] = state_as_it_is(optimizer);
  const DeferredInitGuard parts_wait(deferred);  // too
  std::vector<Param> shards;
  for (const Param& p : optimizer.params()) shards.push_back(sharded_->shard_of(p));
  optimizer.replace_params(shards);
  load_optim_state_dict(optimizer, state);
}

void DataParallel::unshard_optimizer(optim::Optimizer& optimizer) {
  if (!sharded_) return;
  const StateDict state = optim_state_dict(optimizer);
  std::vector<Param> whole;
  for (const Param& p : optimizer.params()) {
    whole.push_back(p);
    for (size_t i = 0; i < reducer_->params().size(); ++i)
      if (sharded_->places()[i].shard == p) whole.back() = reducer_->params()[i].param;
  }
  const DeferredInitGuard no_zeros;  // the state takes their place
  optimizer.replace_params(whole);
  optimizer.load_state_dict(state);
}

void DataParallel::unshard() {
  if (sharded_) sharded_->gather_all();
}
void DataParallel::restore() {
  if (sharded_) sharded_->restore();
}
bool DataParallel::unsharded() const { return sharded_ && sharded_->held(); }
void DataParallel::reshard() {
  if (sharded_) sharded_->drop_all();
}

}  // namespace tandem::distributed
