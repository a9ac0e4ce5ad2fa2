// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "tandem/ops/ops.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/model/repository.h"
#include "tandem/serve/refusal_internal.h"

namespace tandem::serve {

struct SequenceStep {
  ModelVersionPtr version;
  SequenceAsk ask;
  Job job;
};

struct OpenSequence {
  ModelVersionPtr version;     ///< of the last step that was accepted
  bool open = true;            ///< its end was not accepted yet
  bool broken = false;         ///< its first step failed
  std::vector<Tensor> states;  ///< after the last step that ran; empty: the first ones
  std::deque<SequenceStep> waiting;
  bool busy = false;
  Clock::time_point last = Clock::now();
};
using OpenSequencePtr = std::shared_ptr<OpenSequence>;

namespace {

std::string key_of_sequence(const SequenceAsk& ask) { return (ask.is_text ? "s" : "n") + ask.id; }

std::string no_start(const std::string& model, const SequenceAsk& ask) {
  return fmt::format(
      "inference request for sequence {} to model '{}' must specify the START flag on the first "
      "request of the sequence",
      one_line(ask.id, 128), model);
}

}  // namespace

struct Sequences::State : std::enable_shared_from_this<Sequences::State> {
  State(std::string name, double seconds, size_t count)
      : model(std::move(name)), idle_seconds(seconds), most(count) {}

  void run_next(const std::string& key, const OpenSequencePtr& s, bool here);
  void finish(const std::string& key, const OpenSequencePtr& s, const SequenceStep& step,
              JobResult& r);
  void sweep();

  const std::string model;
  SequenceCounts counts;
  std::mutex lock;
  std::condition_variable changed;
  double idle_seconds;
  size_t most;
  bool ends = false;
  std::map<std::string, OpenSequencePtr> all;
  std::thread sweeping;
};

// Idle ones go. The lock is held.
void Sequences::State::sweep() {
  for (auto at = all.begin(); at != all.end();) {
    const OpenSequence& s = *at->second;
    if (s.busy || !s.waiting.empty() || seconds_since(s.last) <= idle_seconds) {
      ++at;
      continue;
    }
    counts.expired.fetch_add(1, std::memory_order_relaxed);
    at = all.erase(at);
  }
  counts.open.store(static_cast<int64_t>(all.size()), std::memory_order_relaxed);
}

// What a step gave. The lock is held.
void Sequences::State::finish(const std::string& key, const OpenSequencePtr& s,
                              const SequenceStep& step, JobResult& r) {
  s->busy = false;
  s->last = Clock::now();
  if (r.status == 200) {
    s->states = step.version->model->take_states(r.outputs);
    s->broken = false;
  } else if (step.ask.start) {
    s->broken = true;
  } else {
    // The state is that of the step before, which may be asked again.
    if (step.ask.end && s->waiting.empty()) s->open = true;
    return;
  }
  if (!step.ask.end && !s->broken) return;
  if (step.ask.end) counts.ended.fetch_add(1, std::memory_order_relaxed);
  s->states.clear();
  const auto at = all.find(key);
  if (s->waiting.empty() && at != all.end() && at->second == s) all.erase(at);
  counts.open.store(static_cast<int64_t>(all.size()), std::memory_order_relaxed);
}

void Sequences::State::run_next(const std::string& key, const OpenSequencePtr& s, bool here) {
  std::vector<SequenceStep> lost;  // steps of a sequence that never began
  auto step = std::make_shared<SequenceStep>();
  std::vector<Tensor> inputs;
  {
    const std::lock_guard hold(lock);
    if (s->busy) return;
    while (!s->waiting.empty() && s->broken && !s->waiting.front().ask.start) {
      lost.push_back(std::move(s->waiting.front()));
      s->waiting.pop_front();
    }
    const auto at = all.find(key);
    if (s->broken && s->waiting.empty() && at != all.end() && at->second == s) all.erase(at);
    if (!s->waiting.empty()) {
      *step = std::move(s->waiting.front());
      s->waiting.pop_front();
      s->busy = true;
      if (step->ask.start) s->states.clear();
      inputs = step->version->model->with_states(step->job.inputs, s->states, step->ask);
    }
  }
  for (SequenceStep& l : lost) l.job.done({.status = 400, .error = no_start(model, l.ask)});
  if (!step->version) return;
  Job job;
  job.inputs = std::move(inputs);
  job.timeout = step->job.timeout;
  job.priority = step->job.priority;
  job.stays = true;  // later steps need its state
  job.gone = step->job.gone;
  job.owner = step->version;
  // The state is there before the client knows, who may send the next step at once.
  job.done = [self = shared_from_this(), key, s, step](JobResult r) {
    {
      const std::lock_guard hold(self->lock);
      self->finish(key, s, *step, r);
    }
    step->job.done(std::move(r));
    self->run_next(key, s, false);
  };
  Scheduler& scheduler = *step->version->scheduler;
  scheduler.submit(std::move(job), here);
}

Sequences::Sequences(std::string model, double idle_seconds, size_t most)
    : state_(std::make_shared<State>(std::move(model), idle_seconds, most)) {
  state_->sweeping = std::thread([&s = *state_] {
    constexpr std::chrono::seconds kPause{1};
    std::unique_lock hold(s.lock);
    while (!s.ends) {
      if (s.all.empty())
        s.changed.wait(hold, [&s] { return s.ends || !s.all.empty(); });
      else
        s.changed.wait_for(hold, kPause, [&s] { return s.ends; });
      s.sweep();
    }
  });
}

Sequences::~Sequences() {
  std::map<std::string, OpenSequencePtr> all;
  {
    const std::lock_guard hold(state_->lock);
    state_->ends = true;
    all.swap(state_->all);
  }
  state_->changed.notify_all();
  state_->sweeping.join();
}

void Sequences::set_limits(double idle_seconds, size_t most) {
  const std::lock_guard hold(state_->lock);
  state_->idle_seconds = idle_seconds;
  state_->most = most;
}

ModelVersionPtr Sequences::version_of(const SequenceAsk& ask) const {
  if (ask.start || ask.id.empty()) return nullptr;
  const std::lock_guard hold(state_->lock);
  const auto at = state_->all.find(key_of_sequence(ask));
  return at == state_->all.end() ? nullptr : at->second->version;
}

void Sequences::submit(const ModelVersionPtr& v, const SequenceAsk& ask, Job job, bool here) {
  State& s = *state_;
  const std::string key = key_of_sequence(ask);
  v->model->with_states(job.inputs, {}, ask);  // what it throws is not the matter of others
  OpenSequencePtr sequence;
  {
    const std::lock_guard hold(s.lock);
    s.sweep();
    const auto at = s.all.find(key);
    if (at != s.all.end()) sequence = at->second;
    const auto refused = [&s] { s.counts.refused.fetch_add(1, std::memory_order_relaxed); };
    // Another version: it was started again between the look-up of its version and now.
    if (!ask.start && (!sequence || !sequence->open || sequence->version != v)) {
      refused();
      refuse(400, "{}", no_start(s.model, ask));
    }
    if (!sequence && s.all.size() >= s.most) {
      refused();
      refuse(429, "model '{}' keeps {} sequences already; one ends with sequence_end or after {} s",
             s.model, s.most, s.idle_seconds);
    }
    if (sequence && sequence->waiting.size() >= static_cast<size_t>(v->settings.queue)) {
      refused();
      refuse(429, "{} steps of sequence {} wait already", sequence->waiting.size(),
             one_line(ask.id, 128));
    }
    if (!sequence) sequence = s.all[key] = std::make_shared<OpenSequence>();
    if (ask.start) s.counts.started.fetch_add(1, std::memory_order_relaxed);
    sequence->version = v;
    sequence->open = !ask.end;
    sequence->last = Clock::now();
    sequence->waiting.push_back({v, ask, std::move(job)});
    s.counts.open.store(static_cast<int64_t>(s.all.size()), std::memory_order_relaxed);
  }
  s.changed.notify_one();
  s.run_next(key, sequence, here);
}

const SequenceCounts& Sequences::counts() const { return state_->counts; }

}  // namespace tandem::serve
