// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/averaged.h"

#include <algorithm>

#include "tandem/graph/cells/update.h"
#include "tandem/graph/trace.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/create.h"

namespace tandem::optim::detail {

Averager::Averager(AveragedModelOptions options) : n_averaged(zeros({}, DType::i64)), o_(options) {
  TD_CHECK(o_.decay || !o_.warmup, Value, "AveragedModel: warmup needs a decay");
  TD_CHECK(!o_.decay || (*o_.decay >= 0 && *o_.decay <= 1), Value,
           "AveragedModel expects decay in 0..1, got {}", *o_.decay);
}

void Averager::update(nn::Module& average, nn::Module& model, SourceLocation loc) {
  auto to = average.named_parameters(), from = model.named_parameters();
  auto to_buffers = average.named_buffers(), from_buffers = model.named_buffers();
  TD_CHECK(to.size() == from.size() && to_buffers.size() == from_buffers.size(), Value,
           "the average has {} parameters, the model {}: they must be of one structure", to.size(),
           from.size());
  std::vector<Pair> cells;
  for (size_t i = 0; i < to.size(); ++i)
    cells.push_back({to[i].second.cell(), from[i].second.cell(), true});
  for (size_t i = 0; i < to_buffers.size(); ++i)
    cells.push_back({to_buffers[i].second.cell(), from_buffers[i].second.cell(), o_.use_buffers});
  update(cells, loc);
}

void Averager::update(const std::vector<Pair>& cells, SourceLocation loc) try {
  NoGradGuard no_grad;
  TD_CHECK(!is_tracing(), Unsupported,
           "update_parameters reads its count\nCall it outside the trace.");
  const int64_t n = n_averaged.value().item<int64_t>();
  const auto count = static_cast<double>(n + 1);
  double decay = o_.decay.value_or(0);
  if (o_.warmup) decay = std::min(decay, (1 + count) / (10 + count));
  const double weight = o_.decay ? 1 - decay : 1.0 / count;
  std::vector<CellUpdate> list;
  for (const Pair& p : cells) {
    const Tensor v = p.model->read().detach();
    if (n == 0 || !p.mean || !is_floating(v.dtype())) {
      p.average->assign(v, loc);
      continue;
    }
    CellUpdate& u = list.emplace_back();
    u.row = &op::lerp;
    u.cells.push_back(p.average.get());
    u.other = v;
    u.numbers.push_back(weight);
  }
  update_many_(list, loc);
  n_averaged.assign_(n + 1, loc);
} catch (const Error& e) {
  if (!e.op().empty() && e.loc().file) throw;
  throw with_place(e, "AveragedModel", loc);
}

StateDict Averager::state_dict(const nn::Module& average) const {
  StateDict d;
  d["n_averaged"] = n_averaged.value();
  for (const auto& [name, v] : average.state_dict()) d["module." + name] = v;
  return d;
}

void Averager::load_state_dict(nn::Module& average, const StateDict& state) {
  StateDict inner;
  for (const auto& [name, v] : state)
    if (name.rfind("module.", 0) == 0) inner[name.substr(7)] = v;
  const Tensor* n = state.find("n_averaged");
  TD_CHECK(n && n->numel() == 1, Value, "AveragedModel: the state has no 'n_averaged'");
  average.load_state_dict(inner);
  n_averaged.assign_(n->reshape({}));
}

BatchNormReset::BatchNormReset(nn::Module& model) : model_(model), training_(model.is_training()) {
  for (auto& [name, m] : model.named_modules()) {
    nn::detail::BatchNorm* b = nn::detail::as_batch_norm(*m);
    if (!b || !b->running_mean.defined()) continue;
    b->running_mean.assign_(0.0);
    b->running_var.assign_(1.0);
    b->num_batches_tracked.assign_(0);
    found_.emplace_back(b, b->options.momentum);
    b->options.momentum.reset();
  }
  model.train();
}

BatchNormReset::~BatchNormReset() {
  for (auto& [m, momentum] : found_) nn::detail::as_batch_norm(*m)->options.momentum = momentum;
  model_.train(training_);
}

}  // namespace tandem::optim::detail

namespace tandem::optim {

WeightAverage::WeightAverage(nn::Module& model, AveragedModelOptions options) : averager_(options) {
  auto add = [&](const std::string& name, const Ref<Cell>& cell, bool mean) {
    names_.push_back(name);
    cells_.push_back({make_ref<Cell>(cell->read().detach(), false), cell, mean});
  };
  for (const auto& [name, p] : model.named_parameters()) add(name, p.cell(), true);
  for (const auto& [name, b] : model.named_buffers()) add(name, b.cell(), averager_.use_buffers());
}

void WeightAverage::update(SourceLocation loc) {
  TD_CHECK(!swapped_, Value,
           "WeightAverage: the model holds the averages now\nswap() them back before update().");
  averager_.update(cells_, loc);
}

void WeightAverage::swap() {
  NoGradGuard no_grad;
  for (const auto& p : cells_) {
    const Tensor average = p.average->read().detach(), now = p.model->read().detach();
    p.model->assign(average, SourceLocation::here());
    p.average->assign(now, SourceLocation::here());
  }
  swapped_ = !swapped_;
}

int64_t WeightAverage::count() const { return averager_.n_averaged.value().item<int64_t>(); }

StateDict WeightAverage::state_dict() const {
  StateDict d;
  d["n_averaged"] = averager_.n_averaged.value();
  for (size_t i = 0; i < cells_.size(); ++i)
    d["module." + names_[i]] = (swapped_ ? cells_[i].model : cells_[i].average)->read().detach();
  return d;
}

void WeightAverage::load_state_dict(const StateDict& state) {
  const Tensor* n = state.find("n_averaged");
  TD_CHECK(n && n->numel() == 1, Value, "WeightAverage: the state has no 'n_averaged'");
  TD_CHECK(state.size() == cells_.size() + 1, Value,
           "WeightAverage: the state has {} values, the model {}", state.size() - 1, cells_.size());
  for (size_t i = 0; i < cells_.size(); ++i) {
    const Tensor& v = state.at("module." + names_[i]);
    const Tensor have = cells_[i].average->read();
    TD_CHECK(v.shape() == have.shape() && v.dtype() == have.dtype(), Shape,
             "WeightAverage: '{}' expects {} {}, the state has {} {}", names_[i],
             to_string(have.dtype()), have.shape().to_string(), to_string(v.dtype()),
             v.shape().to_string());
  }
  for (size_t i = 0; i < cells_.size(); ++i)
    (swapped_ ? cells_[i].model : cells_[i].average)
        ->assign(state.at("module." + names_[i]), SourceLocation::here());
  averager_.n_averaged.assign_(n->reshape({}));
}

StateDict WeightAverage::weights_of(const StateDict& state) {
  StateDict out;
  const Tensor* n = state.find("n_averaged");
  if (!n || n->item<int64_t>() == 0) return out;
  for (const auto& [name, v] : state)
    if (name.starts_with("module.")) out[name.substr(7)] = v;
  return out;
}

}  // namespace tandem::optim
