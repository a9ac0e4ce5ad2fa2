// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tandem/base/copy_bytes.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/http/server.h"
#include "tandem/serve/model/priority_internal.h"
#include "tandem/serve/refusal_internal.h"
#include "tandem/tensor/lazy.h"

namespace tandem::serve {
namespace {

// Below it the way to another thread and back costs more than the model.
constexpr double kFast = 50e-6;
// Seconds after which those that wait behind others of higher priorities are looked at again.
constexpr double kLook = 10e-3;

std::string key_of(const std::vector<Tensor>& inputs) {
  std::string key;
  for (const Tensor& x : inputs) {
    for (int d = 1; d < x.dim(); ++d) key += fmt::format("{},", x.size(d));
    key += ';';
  }
  return key;
}

// Rows of a result, without the way through an op: there is one for each answer.
Tensor rows_of(const Tensor& y, int64_t from, int64_t rows) {
  const detail::TensorImpl& t = *y.impl();
  if (!y.is_contiguous() || !is_host(y.device()) || y.dim() == 0 || y.size(0) < from + rows ||
      t.numel == 0)
    return y.narrow(0, from, rows);
  Shape shape = y.shape();
  shape[0] = rows;
  const int64_t bytes = from * (t.numel / y.size(0)) * static_cast<int64_t>(size_of(y.dtype()));
  return Tensor(Ref<detail::TensorImpl>::adopt(
      detail::new_view(t, shape, t.strides, static_cast<char*>(t.data) + bytes, y.dtype())));
}

// As cat(): most are small, and it costs more than they do.
Tensor joined(const std::vector<Tensor>& parts) {
  const detail::TensorImpl& first = *parts[0].impl();
  int64_t rows = 0;
  for (const Tensor& x : parts) {
    bool plain = x.is_contiguous() && is_host(x.device()) && x.dim() > 0 &&
                 x.dtype() == first.dtype && x.dim() == first.shape.rank();
    for (int d = 1; plain && d < x.dim(); ++d) plain = x.shape()[d] == first.shape[d];
    if (!plain) return cat(parts, 0);
    rows += x.size(0);
  }
  Shape shape = first.shape;
  shape[0] = rows;
  const Tensor out(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, first.dtype, {})));
  auto* to = static_cast<char*>(out.impl()->data);
  for (const Tensor& x : parts) {
    const size_t bytes = static_cast<size_t>(x.numel()) * size_of(x.dtype());
    copy_bytes(to, x.data_ptr(), bytes);
    to += bytes;
  }
  return out;
}

double between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

Scheduler::Scheduler(std::shared_ptr<Servable> model, const SchedulerOptions& options)
    : model_(std::move(model)), options_(options) {
  for (const ModelPort& p : model_->inputs())
    keyed_ = keyed_ || std::any_of(p.shape.begin() + (p.shape.empty() ? 0 : 1), p.shape.end(),
                                   [](int64_t n) { return n < 0; });
  for (int i = 0; i < model_->instances(); ++i) threads_.emplace_back([this, i] { work(i); });
}

Scheduler::~Scheduler() {
  {
    const std::lock_guard hold(lock_);
    ends_ = true;
  }
  ready_.notify_all();
  for (std::thread& t : threads_) t.join();
  for (Waiting& w : queue_) finish(w, {.status = 503, .error = "the model is being unloaded"});
  std::vector<Waiting> of_turn;  // the loop may hold the turn for longer
  {
    const std::lock_guard hold(turn_->lock);
    of_turn = std::exchange(turn_->jobs, {});
    turn_->rows = 0;
  }
  for (Waiting& w : of_turn) finish(w, {.status = 503, .error = "the model is being unloaded"});
}

size_t Scheduler::waiting() const {
  const std::lock_guard hold(lock_);
  return queue_.size();
}

int64_t Scheduler::most_rows() const { return model_->batched() ? model_->sizes().back().rows : 1; }

void Scheduler::finish(Waiting& w, JobResult r) {
  auto& count = r.status == 200   ? counts_.ok
                : r.status == 429 ? counts_.displaced
                : r.status == 499 ? counts_.cancelled
                : r.status == 504 ? counts_.expired
                                  : counts_.failed;
  count.fetch_add(1, std::memory_order_relaxed);
  counts_.total.add(seconds_since(w.since));
  const std::function<void(JobResult)> done = std::move(w.job.done);
  try {
    done(std::move(r));
  } catch (const std::exception& e) {
    log_warning("an answer failed: {}", e.what());
  }
}

// Cancelled and late jobs are answered without being run.
bool Scheduler::too_late(Waiting& w) {
  if (w.job.gone && w.job.gone()) {
    finish(w, {.status = 499, .error = "the client went away"});
    return true;
  }
  if (w.job.timeout > 0 && seconds_since(w.since) > w.job.timeout) {
    finish(w, {.status = 504, .error = "the request waited longer than its timeout"});
    return true;
  }
  return false;
}

// Takes those out of the queue that too_late() answers: they may wait behind others for long.
std::vector<Scheduler::Waiting> Scheduler::take_hopeless() {
  std::vector<Waiting> out;
  const auto end = std::stable_partition(queue_.begin(), queue_.end(), [](const Waiting& w) {
    return !(w.job.gone && w.job.gone()) &&
           !(w.job.timeout > 0 && seconds_since(w.since) > w.job.timeout);
  });
  std::move(end, queue_.end(), std::back_inserter(out));
  queue_.erase(end, queue_.end());
  looked_ = Clock::now();
  return out;
}

void Scheduler::submit(Job job, bool here) {
  Waiting w{std::move(job), {}, {}, {}};
  if (keyed_ && model_->batched()) w.key = key_of(w.job.inputs);
  std::vector<Waiting> hopeless;
  std::optional<Waiting> displaced;
  {
    std::unique_lock hold(lock_);
    w.since = Clock::now();
    w.place = place_of(w.since, w.job.priority, options_.priority_step);
    levels_ = levels_ || w.job.priority != 0;
    if (queue_.size() >= options_.queue) hopeless = take_hopeless();
    if (!queue_.empty() && queue_.size() >= options_.queue && w.place < queue_.back().place &&
        w.job.priority < queue_.back().job.priority && !queue_.back().job.stays) {
      displaced = std::move(queue_.back());
      queue_.pop_back();
    }
    if (queue_.size() >= options_.queue) {
      hold.unlock();
      counts_.rejected.fetch_add(1, std::memory_order_relaxed);
      w.job.done({.status = 429, .error = fmt::format("{} requests wait already", options_.queue)});
      return;
    }
    counts_.accepted.fetch_add(1, std::memory_order_relaxed);
    // Shapes that were not seen before are compiled first: not on the thread of all connections.
    const bool known = !keyed_ && (w.job.rows == 1 || model_->batched());
    here = here && known && queue_.empty() && options_.delay_us <= 0 &&
           model_->seconds_of_one() * static_cast<double>(w.job.rows) < kFast;
    if (!here) put_in_order(queue_, std::move(w));
  }
  for (Waiting& h : hopeless) too_late(h);
  if (displaced)
    finish(*displaced, {.status = 429, .error = "a request of a higher priority took its place"});
  if (here)
    submit_here(std::move(w));
  else
    ready_.notify_one();
}

// What comes in the rest of the turn runs with it, up to a full batch.
void Scheduler::submit_here(Waiting w) {
  const std::shared_ptr<Turn> turn = turn_;
  const int64_t most = most_rows();
  const bool lasts = w.job.owner != nullptr;  // until the turn ends
  bool first = false, full = false;
  {
    const std::lock_guard hold(turn->lock);
    first = turn->jobs.empty();
    if (first) turn->jobs.reserve(static_cast<size_t>(most));
    turn->rows += w.job.rows;
    full = turn->rows >= most;
    put_in_order(turn->jobs, std::move(w));
  }
  if (full || !lasts || (first && !at_end_of_turn([turn] { run_turn(*turn); }))) run_turn(*turn);
}

void Scheduler::run_turn(Turn& turn) {
  for (;;) {
    std::vector<Waiting> batch;
    {
      const std::lock_guard hold(turn.lock);
      if (turn.jobs.empty()) return;
      const Scheduler& s = turn.scheduler;
      if (!s.keyed_ && turn.rows <= s.most_rows())
        batch = std::exchange(turn.jobs, {});
      else
        batch = s.take(turn.jobs);
      for (const Waiting& w : batch) turn.rows -= w.job.rows;
    }
    Scheduler& s = turn.scheduler;
    const std::shared_ptr<const void> owner = batch[0].job.owner;
    if (s.run_here(batch)) continue;
    {
      const std::lock_guard hold(s.lock_);
      for (Waiting& w : batch) put_in_order(s.queue_, std::move(w));
    }
    s.ready_.notify_one();
  }
}

bool Scheduler::run_here(std::vector<Waiting>& batch) {
  for (int i = 0; i < model_->instances(); ++i) {
    std::unique_lock instance(model_->lock_of(i), std::try_to_lock);
    if (!instance) continue;
    run(i, std::move(batch));
    return true;
  }
  return false;
}

void Scheduler::work(int instance) {
  const NoGradGuard no_grad;
  for (;;) {
    std::vector<Waiting> batch, hopeless;
    {
      std::unique_lock hold(lock_);
      ready_.wait(hold, [this] { return ends_ || !queue_.empty(); });
      if (ends_) return;
      // The instance may be busy with a job that another thread runs on it; what comes meanwhile
      // goes into the batch, unless another instance takes it.
      hold.unlock();
      std::unique_lock mine(model_->lock_of(instance), std::try_to_lock);
      if (!mine) {
        ready_.notify_one();
        mine.lock();
      }
      hold.lock();
      if (options_.delay_us > 0 && !queue_.empty() && model_->batched()) {
        const auto oldest =
            std::min_element(queue_.begin(), queue_.end(),
                             [](const Waiting& a, const Waiting& b) { return a.since < b.since; });
        const auto until =
            oldest->since + std::chrono::microseconds(static_cast<int64_t>(options_.delay_us));
        const auto full = static_cast<size_t>(most_rows());
        ready_.wait_until(hold, until, [&] { return ends_ || queue_.size() >= full; });
      }
      batch = take(queue_);
      if (levels_ && seconds_since(looked_) > kLook) hopeless = take_hopeless();
      const bool more = !queue_.empty();
      hold.unlock();
      for (Waiting& h : hopeless) too_late(h);
      if (more) ready_.notify_one();
      if (!batch.empty()) run(instance, std::move(batch));
    }
  }
}

// The first job and those after it that fit into one batch with it.
template <class Queue>
std::vector<Scheduler::Waiting> Scheduler::take(Queue& from) const {
  std::vector<Waiting> batch;
  if (from.empty()) return batch;
  batch.push_back(std::move(from.front()));
  from.erase(from.begin());
  const int64_t most = most_rows();
  int64_t rows = batch[0].job.rows;
  const std::string key = batch[0].key;
  for (auto at = from.begin(); at != from.end() && rows < most;) {
    if (at->key != key || rows + at->job.rows > most) {
      ++at;
      continue;
    }
    rows += at->job.rows;
    batch.push_back(std::move(*at));
    at = from.erase(at);
  }
  return batch;
}

void Scheduler::run(int instance, std::vector<Waiting> batch) {
  std::erase_if(batch, [this](Waiting& w) { return too_late(w); });
  if (batch.empty()) return;
  int64_t rows = 0;
  for (const Waiting& w : batch) rows += w.job.rows;
  if (batch.size() > 1 && run_together(instance, batch, rows)) return;
  // One that breaks the model must not break its neighbours.
  for (Waiting& w : batch) run_alone(instance, w);
}

bool Scheduler::run_together(int instance, std::vector<Waiting>& batch, int64_t rows) {
  const auto begin = Clock::now();
  std::vector<Tensor> outputs;
  std::vector<StepRun> steps;
  try {
    const int64_t filled = model_->filled(rows);
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < batch[0].job.inputs.size(); ++i) {
      std::vector<Tensor> parts;
      parts.reserve(static_cast<size_t>(filled));
      for (const Waiting& w : batch) parts.push_back(w.job.inputs[i]);
      const Tensor last = rows_of(parts.back(), batch.back().job.rows - 1, 1);
      parts.insert(parts.end(), static_cast<size_t>(filled - rows), last);
      inputs.push_back(joined(parts));
    }
    outputs = model_->run(instance, inputs, filled, &steps);
    for (const Tensor& y : outputs) {
      if (y.dim() == 0 || y.size(0) != filled) return false;  // rows are not the rows of the inputs
      detail::readable(y);
    }
  } catch (const std::exception&) {
    return false;
  }
  const double seconds = seconds_since(begin);
  counts_.runs.fetch_add(1, std::memory_order_relaxed);
  counts_.rows.fetch_add(static_cast<uint64_t>(rows), std::memory_order_relaxed);
  counts_.compute.add(seconds);
  int64_t from = 0;
  const AnswersTogether together;
  for (Waiting& w : batch) {
    JobResult r{.queue_seconds = between(w.since, begin),
                .compute_seconds = seconds,
                .began = begin,
                .batch = rows,
                .steps = steps};
    counts_.queue.add(r.queue_seconds);
    try {
      r.outputs.reserve(outputs.size());
      for (const Tensor& y : outputs) r.outputs.push_back(rows_of(y, from, w.job.rows));
    } catch (...) {  // out of memory: each client gets an answer all the same
      const Refusal refusal = refusal_of(std::current_exception());
      r.status = refusal.status;
      r.error = refusal.text;
    }
    from += w.job.rows;
    finish(w, std::move(r));
  }
  return true;
}

void Scheduler::run_alone(int instance, Waiting& w) {
  const auto begin = Clock::now();
  JobResult r{.queue_seconds = between(w.since, begin), .began = begin, .batch = w.job.rows};
  try {
    r.outputs = model_->run(instance, w.job.inputs, w.job.rows, &r.steps);
    r.compute_seconds = seconds_since(begin);
    if (w.job.rows == 1 && !keyed_) model_->took_alone(r.compute_seconds);
    counts_.runs.fetch_add(1, std::memory_order_relaxed);
    counts_.rows.fetch_add(static_cast<uint64_t>(w.job.rows), std::memory_order_relaxed);
    counts_.compute.add(r.compute_seconds);
    counts_.queue.add(r.queue_seconds);
  } catch (...) {
    const Refusal refusal = refusal_of(std::current_exception());
    r.status = refusal.status;
    r.error = refusal.text;
    r.compute_seconds = seconds_since(begin);
  }
  finish(w, std::move(r));
}

}  // namespace tandem::serve
