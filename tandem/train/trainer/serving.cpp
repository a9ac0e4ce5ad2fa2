// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/trainer/serving_internal.h"

#include <algorithm>
#include <cmath>

#include "tandem/ops/ops.h"

namespace tandem::train {
namespace {

struct Positions : data::detail::Stage {
  data::detail::StageRef in;
  explicit Positions(data::detail::StageRef of) : in(std::move(of)) {}
  int64_t size() const override { return in->size(); }
  std::vector<Tensor> get(data::detail::Pass, int64_t) const override { return {}; }
  void origins(data::detail::Pass p, int64_t i, std::vector<int64_t>& out) const override {
    in->origins(p, i, out);
  }
  std::string text() const override { return in->text(); }
};

// Entries of a report beside the figures, whose names have no such sign before them.
constexpr const char kLoss[] = "#loss", kMetric[] = "#metric", kGroup[] = "#group";

}  // namespace

data::AnyPipeline Trainer::Serving::positions() const {
  data::AnyPipeline p(std::make_shared<Positions>(whole.stage()), whole.seed(), {.workers = 0});
  p.load_state(whole.state());
  return p;
}

void Trainer::join_server(const data::AnyPipeline& data) {
  TD_CHECK(!several(), Unsupported,
           "a step with several optimizers and a parameter server\nSet strategy = none.");
  TD_CHECK(!scaler_, Unsupported,
           "a gradient scaler and a parameter server\nSet precision = bf16 or fp32.");
  TD_CHECK(!options_.sync_batchnorm, Unsupported,
           "batch norms over all ranks and a parameter server\nSet strategy = ddp.");
  TD_CHECK(
      options_.average.type == AverageKind::none || options_.ps_servers == 1, Unsupported,
      "an average of weights of which {} servers have a share each\nSet average.type = none, or "
      "ps_servers = 1.",
      options_.ps_servers);
  serving_ = std::make_unique<Serving>(*this, data);
  if (serving_->shared() && serving_->server.is_server()) serving_->share_out();
}

void Trainer::Serving::share_out() {
  server.shard_optimizer(t.optimizer());
  t.compile_steps();  // the update's cells are others
}

void Trainer::Serving::make_whole() {
  if (!shared()) return;
  server.gather();
  server.unshard_optimizer();
  t.compile_steps();
}

// ---- rank 0

// What the update `ahead` after this one consists of, whose first batch is `begin`. Later epochs
// are not known before this one's validation.
std::optional<distributed::ServerTask> Trainer::Serving::task_of(int64_t ahead,
                                                                 int64_t begin) const {
  const TrainerOptions& o = t.options_;
  const int64_t batches = planned_batches(o, whole.size());
  const int64_t first = begin + ahead * o.accumulate;
  const int64_t end = std::min(batches, first + o.accumulate);
  if (first >= batches || (o.max_steps >= 0 && t.step_ + ahead >= o.max_steps)) return {};
  const int64_t workers = server.workers();
  bool equal = o.ps_staleness == 0;
  for (int64_t i = first; equal && i < end; ++i)
    equal = static_cast<int64_t>(whole.samples_of(i, t.epoch_).size()) % workers == 0;
  distributed::ServerTask task{.parts = equal ? workers : 1};
  task.numbers = {t.epoch_, first, end};
  return task;
}

Trainer::StepResult Trainer::Serving::step() {
  follow();
  const data::PipelineState at = pass->state();
  const int64_t end = at.position > 0 ? at.position : whole.size();
  const int64_t begin = end - t.micro_ - 1, update = server.updates();
  StepResult out;
  server.collect([&](int64_t next) { return task_of(next - update, begin); },
                 [&](const distributed::ServerUpdate& u) {
                   const double loss = take_reports(u.notes, out);
                   out.loss = full({}, loss, DType::f32);
                   return update_note(loss);
                 });
  out.norm = t.compiled_->update(out.loss.to(device_of(t.optimizer())));
  return out;
}

double Trainer::Serving::take_reports(const std::vector<std::string>& notes, StepResult& out) {
  rows = loss_sum = 0;
  reports.clear();
  double loss = 0;
  Logs figures;
  const auto parts = static_cast<double>(notes.size());
  for (const std::string& note : notes) {
    reports.push_back(unpack(note));
    for (const auto& [name, v] : reports.back()) {
      if (name == kLoss) {
        loss += v[0] / parts;
        loss_sum += v[1];
        rows += v[2];
      } else if (name != kMetric) {
        auto f = std::find_if(figures.begin(), figures.end(),
                              [&name = name](const auto& x) { return x.first == name; });
        if (f == figures.end()) f = figures.insert(figures.end(), {name, 0.0});
        f->second += v[0] / parts;
      }
    }
  }
  for (const auto& [name, value] : figures)
    out.figures.emplace_back(name, full({}, value, DType::f32));
  return loss;
}

std::string Trainer::Serving::update_note(double loss) const {
  NamedNumbers note{{kLoss, {loss}}};
  const optim::Optimizer& o = t.optimizer();
  const std::vector<std::string> names = o.option_names();
  for (size_t g = 0; shared() && g < o.num_groups(); ++g) {
    note.emplace_back(kGroup, std::vector<double>());
    for (const std::string& name : names) note.back().second.push_back(o.option(name, g));
  }
  return pack(note);
}

// Rank 0's schedules and callbacks set its options.
void Trainer::Serving::update(const std::string& note) const {
  optim::Optimizer& o = t.optimizer();
  const std::vector<std::string> names = o.option_names();
  double loss = 0;
  size_t g = 0;
  for (const auto& [name, v] : unpack(note)) {
    if (name == kLoss) loss = v[0];
    if (name != kGroup) continue;
    for (size_t k = 0; k < names.size(); ++k)
      if (o.option(names[k], g) != v[k]) o.set_option(names[k], v[k], g);
    ++g;
  }
  t.compiled_->update(full({}, loss, DType::f32).to(device_of(o)));
}

Batch Trainer::Serving::batch() const {
  const data::PipelineState at = pass->state();
  return whole.fields((at.position > 0 ? at.position : whole.size()) - 1, t.epoch_);
}

void Trainer::Serving::merge_metrics() {
  for (const NamedNumbers& of : reports) {
    size_t k = 0;
    for (const auto& [name, state] : of) {
      if (name != kMetric || k >= t.metrics_.size()) continue;
      Metric& whole_metric = *t.metrics_[k++];
      if (state.empty()) continue;
      const std::unique_ptr<Metric> part = make_metric(whole_metric.name());
      part->load_state(state);
      whole_metric.merge(*part);
    }
  }
}

// ---- the others

FitResult Trainer::Serving::work() {
  const StopGuard signals;  // the server hears of them too, and says when it is over
  const auto begin = Clock::now();
  FitResult result{.reason = "done"};
  t.model_.train();
  while (server.is_server()) {
    const std::optional<distributed::ServerUpdate> u = server.next_update();
    if (!u) break;
    update(u->notes[0]);
    ++result.steps;
  }
  while (!server.is_server()) {
    const std::optional<distributed::ServerTask> task = server.next_task();
    if (!task) break;
    server.give_result(*task, compute(*task));
    ++result.steps;
  }
  result.seconds = seconds_since(begin);
  return result;
}

Batch Trainer::Serving::load(const Element& e) {
  std::future<Batch> ahead = std::move(ahead_);
  if (ahead.valid() && expected_ == e) return ahead.get();
  return whole.part_of_batches(e.part, e.parts).fields(e.batch, e.epoch);
}

void Trainer::Serving::load_ahead(const Element& e) {
  if (whole.prefetch_options().workers == 0 || e.batch >= planned_batches(t.options_, whole.size()))
    return;
  expected_ = e;
  ahead_ = std::async(std::launch::async, [this, e] {
    return whole.part_of_batches(e.part, e.parts).fields(e.batch, e.epoch);
  });
}

std::string Trainer::Serving::compute(const distributed::ServerTask& task) {
  const auto [epoch, begin, end] = task.numbers;
  for (auto& m : t.metrics_) m->reset();
  double loss = 0, sum = 0, samples = 0;
  Logs figures;
  for (int64_t i = begin; i < end; ++i) {
    const Element here{epoch, i, task.part, task.parts};
    const Batch batch = load(here);
    // The same part of the next update; of whole batches the one after those of the others.
    Element next = here;
    next.batch = i + 1 < end || task.parts > 1 ? i + 1 : begin + server.workers() * (end - begin);
    load_ahead(next);
    const StepResult out = t.compiled_->train(batch, i == begin, false, t.due_optimizers(0));
    loss = out.loss.to(DType::f64).item<double>();
    sum += loss * batch_rows(batch);
    samples += batch_rows(batch);
    figures.clear();
    for (const auto& [name, value] : out.figures)
      figures.emplace_back(name, value.to(DType::f64).item<double>());
    if (t.options_.logging.train_metrics && out.output.defined() && out.target.defined())
      for (auto& m : t.metrics_) m->update(out.output, out.target);
  }
  NamedNumbers report{{kLoss, {loss, sum, samples}}};
  for (const auto& m : t.metrics_) report.emplace_back(kMetric, m->state());
  for (const auto& [name, value] : figures) report.emplace_back(name, std::vector<double>{value});
  return pack(report);
}

}  // namespace tandem::train
