// SPDX-License-Identifier: Apache-2.0
// A data parallel run (TrainStrategy::ddp and those that shard state): each rank has its part
// of every batch and of a validation's batches; gradients, losses, metrics and the wish to stop are
// shared, and rank 0 writes.
#include <algorithm>
#include <cstring>
#include <map>

#include "tandem/base/hash/hash.h"
#include "tandem/base/log.h"
#include "tandem/dist/objects.h"
#include "tandem/ops/ops.h"
#include "tandem/train/trainer/serving_internal.h"

namespace tandem::train {
namespace {

/// The elements of a pass that one rank evaluates. With `even` there are as many on every rank: one
/// that has run out sees the last element once more.
struct OwnElements : data::detail::Stage {
  data::detail::StageRef in;
  int64_t n, rank, ranks;
  bool even;
  OwnElements(data::detail::StageRef in, int64_t n, int64_t rank, int64_t ranks, bool even)
      : in(std::move(in)), n(n), rank(rank), ranks(ranks), even(even) {}
  int64_t own() const { return n > rank ? (n - rank + ranks - 1) / ranks : 0; }
  int64_t at(int64_t i) const { return std::min(rank + i * ranks, n - 1); }
  int64_t size() const override { return even ? (n + ranks - 1) / ranks : own(); }
  std::vector<Tensor> get(data::detail::Pass p, int64_t i) const override {
    return in->get(p, at(i));
  }
  void origins(data::detail::Pass p, int64_t i, std::vector<int64_t>& out) const override {
    in->origins(p, at(i), out);
  }
  std::string text() const override { return in->text(); }
};

// Stages draw numbers for their own layers: all of them continue from the last one's place.
uint64_t furthest(distributed::Engine& engine, uint64_t offset) {
  auto most = static_cast<int64_t>(offset);
  engine.all_reduce({&most, 1, DType::i64}, distributed::ReduceOp::max, {"random numbers"}).wait();
  return static_cast<uint64_t>(most);
}

[[noreturn]] void refuse_average() {
  TD_FAIL(
      Unsupported,
      "an average of weights of which ranks, or the host, hold parts\nSet average.type = none, or "
      "strategy = ddp and offload = none.");
}

/// Stands for a callback of rank 0 on the others: it keeps its place and name.
struct AbsentCallback : Callback {
  std::shared_ptr<Callback> of;
  explicit AbsentCallback(std::shared_ptr<Callback> c) : of(std::move(c)) {}
  const char* name() const override { return of->name(); }
  bool reads_weights() const override { return of->reads_weights(); }
};

std::vector<NamedNumbers> of_all_ranks(distributed::Engine& engine, const NamedNumbers& own) {
  std::vector<NamedNumbers> all;
  for (const std::string& text : distributed::all_gather_text(engine, pack(own), "metrics"))
    all.push_back(unpack(text));
  return all;
}

}  // namespace

Trainer::Ranks::Ranks(nn::Module& net, const TrainerOptions& o)
    : spread(o.parallel.spreads()
                 ? std::make_unique<distributed::ModelParallel>(
                       net, distributed::ModelParallelSizes{o.parallel.tp, o.parallel.pp},
                       distributed::world())
                 : nullptr),
      model(net,
            {.sync_batchnorm = o.sync_batchnorm,
             .sharding = sharding_of(o.strategy),
             .ignored = spread ? spread->elsewhere() : std::vector<std::string>(),
             .offload_optimizer = o.offload == TrainOffload::optimizer},
            spread ? spread->data_group() : distributed::world()) {
  quiet.emplace(model);
}

Trainer::WholeParams::WholeParams(Trainer& t, bool wanted)
    : t_(t), on_(wanted && t.sharded() && !t.ranks_->unsharded()) {
  if (wanted && t_.serving_) t_.serving_->server.gather();
  if (wanted && t_.sharded()) t_.ranks_->unshard();
}

// Ranks may have other callbacks than rank 0.
void Trainer::Ranks::agree_on_ends(bool reads_weights) {
  int64_t reads = reads_weights ? 1 : 0;
  engine().all_reduce({&reads, 1, DType::i64}, distributed::ReduceOp::max, {"callbacks"}).wait();
  whole_at_ends = spread || reads > 0;
}

// What `parallel` says must fit the ranks, and what else the run is to do.
void Trainer::check_parallel(int64_t ranks) const {
  const ParallelOptions& p = options_.parallel;
  constexpr int64_t kMost = 1 << 20;  // so that products of them have no overflow
  for (const auto& [name, size] : {std::pair{"tp", p.tp}, {"pp", p.pp}, {"dp", p.dp}})
    TD_CHECK(size <= kMost, Value,
             "parallel asks for {}={}, and there {} {} rank{}\nSet a size of at most {}.", name,
             size, ranks == 1 ? "is" : "are", ranks, ranks == 1 ? "" : "s", ranks);
  const int64_t parts = p.tp * p.pp, wanted = parts * std::max<int64_t>(1, p.dp);
  const std::string asked = fmt::format("parallel asks for tp={},pp={}", p.tp, p.pp) +
                            (p.dp > 0 ? fmt::format(",dp={}", p.dp) : "");
  TD_CHECK(p.dp > 0 ? ranks == wanted : ranks % parts == 0, Value,
           "{}, {} ranks, and there {} {}\nStart it with tandem launch -n {}, or set other sizes "
           "(tp=1,pp=1 for one rank).",
           asked, p.dp > 0 ? std::to_string(wanted) : fmt::format("a multiple of {}", parts),
           ranks == 1 ? "is" : "are", ranks, wanted);
  if (!p.spreads()) return;
  TD_CHECK(options_.strategy == TrainStrategy::automatic || options_.strategy == TrainStrategy::ddp,
           Unsupported,
           "{}, which goes with data parallel copies alone\nSet strategy = auto, or leave out "
           "parallel.",
           asked);
  TD_CHECK(is_host(device_of(optimizer())), Unsupported,
           "{}, which nets on {} do not know yet\nTrain on the CPU, or leave out parallel.", asked,
           to_string(device_of(optimizer())));
}

std::string pack(const NamedNumbers& all) {
  std::string text;
  for (const auto& [name, v] : all) {
    text += fmt::format("{}\n{}\n", name, v.size());
    text.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(double));
  }
  return text;
}

NamedNumbers unpack(std::string_view text) {
  const auto line = [&text] {
    const size_t end = text.find('\n');
    const std::string l(text.substr(0, end));
    text.remove_prefix(end + 1);
    return l;
  };
  NamedNumbers all;
  while (!text.empty()) {
    const std::string name = line();
    std::vector<double> v(std::stoul(line()));
    if (!v.empty()) std::memcpy(v.data(), text.data(), v.size() * sizeof(double));
    text.remove_prefix(v.size() * sizeof(double));
    all.emplace_back(name, std::move(v));
  }
  return all;
}

namespace {

void check_offload(TrainStrategy strategy, bool several) {
  TD_CHECK(strategy != TrainStrategy::ps, Unsupported,
           "offload = optimizer and strategy = ps: the optimizer is the servers'\nSet "
           "strategy = zero1, or leave out offload.");
  TD_CHECK(strategy != TrainStrategy::none || distributed::find_place().size == 1, Unsupported,
           "offload = optimizer on several ranks that train by themselves (strategy = none)\nSet "
           "strategy = zero1, or start one rank.");
  TD_CHECK(!several, Unsupported,
           "offload = optimizer and a step with several optimizers\nLeave out offload.");
}

// Each rank takes its part of whole batches, which must be the same on all of them.
void check_same_data(distributed::Engine& engine, const data::AnyPipeline& data) {
  const std::string own = fmt::format("{} batches, seed {}", data.size(), data.seed());
  const std::vector<std::string> all = distributed::all_gather_text(engine, own, "data");
  for (size_t r = 1; r < all.size(); ++r)
    TD_CHECK(all[r] == all[0], Value,
             "the ranks train on different data: rank 0 has {}, rank {} has {}\nAll ranks make the "
             "same pipeline, of which each takes its part. manual_seed(1) at the start of the "
             "program gives all of them the same seed.",
             all[0], r, all[r]);
}

}  // namespace

// What an optimizer on the host does not go with.
void Trainer::join_ranks(const data::AnyPipeline& data) {
  ranks_.reset();
  serving_.reset();
  if (options_.parallel.spreads() || options_.parallel.dp > 0)
    check_parallel(distributed::find_place().size);
  const bool offloads =
      options_.offload == TrainOffload::optimizer && !is_host(device_of(optimizer()));
  if (offloads) {
    check_offload(options_.strategy, several());
  } else {
    if (options_.strategy == TrainStrategy::none) return;
    if (options_.strategy == TrainStrategy::automatic && distributed::find_place().size == 1)
      return;
    if (distributed::world()->size() == 1) return;
  }
  if (options_.strategy == TrainStrategy::ps) return join_server(data);
  TD_CHECK(
      !several(), Unsupported,
      "a step with several optimizers on several ranks\nSet strategy = none (each rank trains by "
      "itself), or run it as one rank.");
  if (options_.parallel.spreads() && options_.average.type != AverageKind::none) refuse_average();
  check_same_data(*distributed::world(), data);
  const Device device = device_of(optimizer());
  ranks_ = std::make_unique<Ranks>(model_, options_);
  if (offloads) ranks_->offloaded = device;
  if (offloads && options_.compile && ranks_->rank() == 0)
    log_warning("offload = optimizer: steps run op by op, as a compiled one runs on one device");
  if (sharded()) {
    share_out();
    ranks_->agree_on_ends(!extra_.empty() ||
                          std::any_of(callbacks_.begin(), callbacks_.end(),
                                      [](const auto& c) { return c->reads_weights(); }));
  }
  if (ranks_->rank() == 0) return;
  for (auto& c : callbacks_)
    if (c->only_main_rank()) c = std::make_shared<AbsentCallback>(c);
}

bool Trainer::sharded() const {
  return ranks_ && (ranks_->spread || ranks_->offloaded ||
                    Ranks::sharding_of(options_.strategy) != distributed::Sharding::none);
}

void Trainer::share_out() {
  if (options_.average.type != AverageKind::none) refuse_average();
  ranks_->shard_optimizer(optimizer());
  if (scaler_) scaler_->set_max_over_ranks(ranks_->max_over_ranks());
  compile_steps();  // the update's cells are others
}

// The run is over: model and optimizer are those of one rank again. All ranks call it.
void Trainer::make_whole() {
  if (serving_) serving_->make_whole();
  if (!sharded()) return;
  ranks_->make_whole(optimizer());
  ranks_->offloaded.reset();
  if (scaler_) scaler_->set_max_over_ranks({});
  compile_steps();
}

void Trainer::leave_ranks() {
  if (scaler_) scaler_->set_max_over_ranks({});
  ranks_.reset();
  serving_.reset();
  for (auto& c : callbacks_)
    if (const auto absent = std::dynamic_pointer_cast<AbsentCallback>(c)) c = absent->of;
}

bool Trainer::stop_asked() const { return ranks_ ? ranks_->stop : stop_requested(); }

bool Trainer::over_time() const {
  return options_.max_seconds > 0 &&
         seconds_before_ + seconds_since(fit_start_) > options_.max_seconds;
}

// Is the batch that was delivered last everybody's as a whole, as it has no equal parts?
bool Trainer::whole_batch() const {
  const data::PipelineState at = data_->state();
  const int64_t position = at.position > 0 ? at.position - 1 : data_->size() - 1;
  const std::vector<int64_t> ids =
      data_->samples_of(position, at.position > 0 ? at.epoch : at.epoch - 1);
  return static_cast<int64_t>(ids.size()) % ranks_->parts() != 0;
}

std::vector<double> Trainer::sums_over_ranks(std::vector<double> own) const {
  ranks_->engine()
      .all_reduce({own.data(), static_cast<int64_t>(own.size()), DType::f64},
                  distributed::ReduceOp::sum, {"losses"})
      .wait();
  return own;
}

// The step of all ranks: what compiled_->train does, with the mean of the ranks' gradients. Random
// numbers are the rank's own; the state that is kept is rank 0's.
Trainer::StepResult Trainer::step_on_ranks(const Batch& batch, bool first, bool update,
                                           int64_t due) {
  Ranks& r = *ranks_;
  r.model.sync_buffers();
  const GeneratorState rng = generator_state();
  if (r.part() > 0)
    set_generator_state({hash_combine(rng.seed, static_cast<uint64_t>(r.part())), rng.offset});
  // The last backward pass of an update reduces while it computes.
  const bool overlap = update && !r.staged();
  if (overlap) r.quiet.reset();
  StepResult out =
      r.staged() ? step_in_stages(batch, first) : compiled_->train(batch, first, false, due);
  if (overlap) r.quiet.emplace(r.model);
  const uint64_t drawn = generator_state().offset;
  set_generator_state({rng.seed, r.staged() ? furthest(r.engine(), drawn) : drawn});
  const std::vector<double> sums =
      sums_over_ranks({out.loss.to(DType::f64).item<double>(), stop_requested() ? 1.0 : 0.0,
                       over_time() ? 1.0 : 0.0});
  r.stop = sums[1] > 0;
  r.late = sums[2] > 0;
  out.loss = full({}, sums[0] / static_cast<double>(r.size()), DType::f32);
  if (!update) return out;
  if (r.spread) r.spread->reduce_gradients();
  if (!overlap) r.model.reduce_gradients();
  out.norm = compiled_->update(out.loss);
  return out;
}

// Forward and backward pass through the stages of a pipeline, op by op.
Trainer::StepResult Trainer::step_in_stages(const Batch& batch, bool first) {
  if (first) optimizer().zero_grad();
  const auto rows = static_cast<int64_t>(batch_rows(batch));
  const int64_t wanted =
      options_.parallel.micro > 0 ? options_.parallel.micro : 4 * options_.parallel.pp;
  const double share = 1.0 / static_cast<double>(options_.accumulate);
  StepResult out;
  std::vector<Tensor> outputs, targets;
  std::map<std::string, Tensor> figures;
  double passes = 0, loss = 0;
  ranks_->spread->step(rows, wanted, [&](int64_t begin, int64_t end) {
    Batch part;
    for (const Tensor& t : batch)
      part.push_back(
          t.defined() && t.dim() > 0 && t.size(0) == rows ? narrow(t, 0, begin, end - begin) : t);
    StepOutput o;
    {
      const AutocastGuard cast = autocast_of(options_);
      o = step_function_(part);
    }
    TD_CHECK(o.loss.defined() && o.loss.numel() == 1, Shape,
             "the step's loss expects one element, got {}\nReduce it: loss.mean().",
             o.loss.defined() ? o.loss.shape().to_string() : "none");
    ++passes;
    loss += o.loss.detach().to(DType::f64).item<double>();
    if (o.output.defined()) outputs.push_back(o.output.detach());
    if (o.target.defined()) targets.push_back(o.target.detach());
    for (const auto& [name, value] : o.figures) {
      Tensor& sum = figures[name];
      sum = sum.defined() ? sum + value.detach() : value.detach();
    }
    const Tensor scaled = options_.accumulate > 1 ? o.loss * share : o.loss;
    return scaler_ ? scaler_->scale(scaled) : scaled;
  });
  if (!outputs.empty()) out.output = cat(outputs, 0);
  if (!targets.empty()) out.target = cat(targets, 0);
  for (const auto& [name, sum] : figures) out.figures.emplace_back(name, sum / passes);
  // The last stage has seen it: the sum over all ranks divides by their number.
  const double stages = static_cast<double>(options_.parallel.pp);
  out.loss = full({}, passes > 0 ? loss / passes * stages : 0, DType::f64);
  return out;
}

// Of the first `count` elements (-1: all); then `count` is how many of the result's are this
// rank's.
data::AnyPipeline Trainer::own_elements(const data::AnyPipeline& data, int64_t& count,
                                        bool even) const {
  const int64_t n = count < 0 ? data.size() : std::min(count, data.size());
  auto part = std::make_shared<OwnElements>(data.stage(), n, ranks_->rank(), ranks_->size(), even);
  count = part->own();
  return {std::move(part), data.seed(), data.prefetch_options()};
}

// Sums of all ranks in place of this one's.
void Trainer::merge_ranks(std::vector<Mean>& figures, std::vector<std::unique_ptr<Metric>>& metrics,
                          std::vector<double>* sums) const {
  NamedNumbers own{{"", sums ? *sums : std::vector<double>()}};
  for (const auto& m : metrics) own.emplace_back("", m->state());
  for (const Mean& f : figures) own.emplace_back(f.name, std::vector<double>{f.sum, f.count});
  std::vector<std::unique_ptr<Metric>> merged;
  for (const std::string& name : options_.metrics) merged.push_back(make_metric(name));
  figures.clear();
  if (sums) sums->assign(sums->size(), 0);
  for (const NamedNumbers& of : of_all_ranks(ranks_->engine(), own)) {
    for (size_t i = 0; sums && i < sums->size(); ++i) (*sums)[i] += of[0].second[i];
    for (size_t i = 0; i < merged.size(); ++i) {
      if (of[1 + i].second.empty()) continue;
      const std::unique_ptr<Metric> part = make_metric(options_.metrics[i]);
      part->load_state(of[1 + i].second);
      merged[i]->merge(*part);
    }
    for (size_t k = 1 + merged.size(); k < of.size(); ++k) {
      const auto& [name, v] = of[k];
      auto at = std::find_if(figures.begin(), figures.end(),
                             [&name = name](const Mean& m) { return m.name == name; });
      if (at == figures.end()) at = figures.insert(figures.end(), Mean{name});
      at->sum += v[0];
      at->count += v[1];
    }
  }
  metrics = std::move(merged);
}

// train_logs() over all ranks. All of them call it.
Logs Trainer::epoch_logs() {
  if (!ranks_) return train_logs();
  const WholeSums whole(*this);
  return train_logs();
}

Trainer::WholeSums::WholeSums(Trainer& t) : t_(t), figures_(t.figures_) {
  if (!t.ranks_) return;
  metrics_ = std::move(t.metrics_);
  t.metrics_.clear();
  for (const auto& m : metrics_) {
    t.metrics_.push_back(make_metric(m->name()));
    if (!m->state().empty()) t.metrics_.back()->load_state(m->state());
  }
  t.merge_ranks(t.figures_, t.metrics_, nullptr);
}
Trainer::WholeSums::~WholeSums() {
  if (!t_.ranks_) return;
  t_.metrics_ = std::move(metrics_);
  t_.figures_ = std::move(figures_);
}

// The newest checkpoint, the same on all ranks.
std::optional<Snapshot> Trainer::load_shared() const {
  std::optional<Snapshot> s = checkpoints_->load_latest();
  if (!ranks_) return s;
  const std::string own = s ? std::to_string(s->step) : "none";
  const std::string main = distributed::broadcast_text(ranks_->engine(), own, "checkpoint");
  TD_CHECK(
      own == main, Io,
      "rank {} finds the checkpoint of step {} in '{}', rank 0 that of step {}\nAll ranks read the "
      "run's folder: it must lie on a file system of all machines.",
      ranks_->rank(), own, checkpoints_->folder(), main);
  return s;
}

}  // namespace tandem::train
