// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/averaged.h"

#include "tandem/graph/trace.h"
#include "tandem/graph/update.h"
#include "tandem/nn/norm.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"

namespace tandem::optim::detail {

Averager::Averager(AveragedModelOptions options) : n_averaged(zeros({}, DType::i64)), o_(options) {
  TD_CHECK(!o_.decay || (*o_.decay >= 0 && *o_.decay <= 1), Value,
           "AveragedModel wants decay in 0..1, got {}", *o_.decay);
}

void Averager::update(nn::Module& average, nn::Module& model, Where where) try {
  NoGradGuard no_grad;
  TD_CHECK(!is_tracing(), Unsupported,
           "update_parameters reads its count\nCall it outside the trace.");
  auto to = average.named_parameters(), from = model.named_parameters();
  auto to_buffers = average.named_buffers(), from_buffers = model.named_buffers();
  TD_CHECK(to.size() == from.size() && to_buffers.size() == from_buffers.size(), Value,
           "the average has {} parameters, the model {}: they must be of one structure", to.size(),
           from.size());
  int64_t n = n_averaged.value().item<int64_t>();
  double weight = o_.decay ? 1 - *o_.decay : 1.0 / static_cast<double>(n + 1);
  std::vector<CellUpdate> list;
  const auto take = [&](const Ref<Cell>& cell, const Tensor& v, bool mean) {
    if (n == 0 || !mean) return cell->assign(v, where);
    CellUpdate& u = list.emplace_back();
    u.row = &op::lerp;
    u.cells.push_back(cell.get());
    u.other = v;
    u.numbers.push_back(weight);
  };
  for (size_t i = 0; i < to.size(); ++i)
    take(to[i].second.cell(), from[i].second.value().detach(), true);
  for (size_t i = 0; i < to_buffers.size(); ++i)
    take(to_buffers[i].second.cell(), from_buffers[i].second.value(),
         o_.use_buffers && is_floating(to_buffers[i].second.dtype()));
  update_many_(list, where);
  n_averaged.assign_(n + 1, where);
} catch (const Error& e) {
  if (!e.op().empty() && e.where().file) throw;
  throw with_place(e, "AveragedModel", where);
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
