// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/parameter_server.h"

#include <algorithm>
#include <deque>

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/dist/arrivals_internal.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/dist/server_messages_internal.h"

namespace tandem::distributed {
namespace {

// The server validates and writes by itself meanwhile: it may take longer than other calls.
double patience() { return 12 * engine_options().timeout; }

constexpr const char kTask[] = "a task", kValues[] = "parameters", kResult[] = "a result",
                     kGradients[] = "gradients";
constexpr int64_t kMostNoteBytes = int64_t{1} << 24;  ///< that a worker sends with a result

}  // namespace

// ---- the server's side

/// Updates are given out from the front of `open_` on, which is the update that is collected next.
class ServerSide {
 public:
  ServerSide(const nn::Module& net, int64_t staleness, Engine& engine)
      : net_(net),
        staleness_(staleness),
        engine_(engine),
        workers_(static_cast<size_t>(engine.size())),
        arrivals_(engine.size()) {}

  // Calls under way end with the group; then nobody waits any more.
  ~ServerSide() {
    if (!dismissed_) engine_.abort("training has failed on the parameter server");
    for (Worker& w : workers_) {
      try {
        w.sent.wait();
        w.sent_values.wait();
      } catch (...) {}
    }
  }

  ServerUpdate collect(const ParameterServer::TaskOf& task_of) {
    values_ = nullptr;  // an update has been made since
    engine_.set_step(version_ + 1);
    for (;;) {
      // First the update, so that who is free gets the newest parameters.
      if (!open_.empty() && open_.front().came == open_.front().task.parts) break;
      give_out(task_of);
      TD_CHECK(!open_.empty(), Value, "there is no task for update {}", version_);
      take(arrivals_.next());
    }
    const Open& done = open_.front();
    std::vector<const char*> parts;
    ServerUpdate u{.update = version_, .staleness = version_ - done.oldest, .notes = {}};
    for (const std::vector<char>& result : done.results) {
      parts.push_back(result.data());
      const size_t bytes = static_cast<size_t>(net_.result_bytes());
      u.notes.emplace_back(result.data() + bytes, result.size() - bytes);
    }
    net_.results_from(parts);
    if (in_turn()) set_generator_state({generator_state().seed, done.random.offset});
    open_.pop_front();
    ++version_;
    return u;
  }

  void dismiss() {
    for (int r = 1; r < engine_.size(); ++r)
      if (!worker(r).busy) let_go(r);
    while (std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.busy; })) {
      const int r = arrivals_.next();
      take(r);
      if (!worker(r).busy) let_go(r);
    }
    for (Worker& w : workers_) w.sent.wait();
    dismissed_ = true;
  }

  int64_t updates() const { return version_; }
  bool synchronous() const { return staleness_ == 0; }

 private:
  struct Worker {
    bool busy = false, has_result = false;
    TaskMessage task;
    std::shared_ptr<std::vector<char>> values;  ///< on their way
    Work sent, sent_values;
    ResultMessage result;
    std::vector<char> body;
  };
  struct Open {
    ServerTask task;
    int64_t given = 0, came = 0, oldest = 0;
    std::vector<std::vector<char>> results;
    GeneratorState random;
  };
  Worker& worker(int rank) { return workers_[static_cast<size_t>(rank)]; }

  // Does the server's generator run through the updates as that of one rank does?
  bool in_turn() const { return staleness_ == 0 || engine_.size() == 2; }

  GeneratorState random_of(const ServerTask& t) const {
    const GeneratorState own = generator_state();
    if (!in_turn()) return {hash_combine(own.seed, static_cast<uint64_t>(t.update)), 0};
    return t.part == 0
               ? own
               : GeneratorState{hash_combine(own.seed, static_cast<uint64_t>(t.part)), own.offset};
  }

  // The update of which a part is to be computed next; null where nothing may be now.
  Open* next_open(const ParameterServer::TaskOf& task_of) {
    for (Open& o : open_)
      if (o.given < o.task.parts) return &o;
    const int64_t update = version_ + static_cast<int64_t>(open_.size());
    if (update - version_ > staleness_) return nullptr;
    std::optional<ServerTask> task = task_of(update);
    if (!task) return nullptr;
    TD_CHECK(task->parts >= 1, Value, "update {} has {} parts", update, task->parts);
    task->update = update;
    open_.push_back({.task = *task, .oldest = version_, .results = {}, .random = {}});
    open_.back().results.resize(static_cast<size_t>(task->parts));
    return &open_.back();
  }

  void give_out(const ParameterServer::TaskOf& task_of) {
    for (int r = 1; r < engine_.size(); ++r) {
      if (worker(r).busy) continue;
      Open* o = next_open(task_of);
      if (!o) return;
      ServerTask task = o->task;
      task.part = o->given++;
      task.version = version_;
      give(r, task);
    }
  }

  void give(int r, const ServerTask& task) {
    Worker& w = worker(r);
    w.sent.wait();
    w.sent_values.wait();
    if (!values_) {
      values_ = std::make_shared<std::vector<char>>(static_cast<size_t>(net_.value_bytes()));
      net_.values_to(values_->data());
    }
    w.task = {1, task, random_of(task)};
    w.values = values_;
    w.sent = engine_.send(bytes_of(w.task), r, {kTask});
    w.sent_values = engine_.send(bytes_of(*w.values), r, {kValues});
    w.busy = true;
    w.has_result = false;
    arrivals_.expect(r, engine_.recv(bytes_of(w.result), r, {kResult}));
  }

  // What the message says becomes a size and a place here.
  static void check_result(int r, const Worker& w) {
    const ResultMessage& got = w.result;
    const ServerTask& asked = w.task.task;
    TD_CHECK(got.update == asked.update && got.part == asked.part, Value,
             "the parameter server expects from rank {} the result of part {} of update {}, got "
             "that of part {} of update {}\ngive_result() takes the task that next_task() gave.",
             r, asked.part, asked.update, got.part, got.update);
    TD_CHECK(got.note_bytes >= 0 && got.note_bytes <= kMostNoteBytes, Value,
             "the parameter server expects from rank {} a note of at most {} bytes, got {}", r,
             kMostNoteBytes, got.note_bytes);
  }

  // A message of that worker is here.
  void take(int r) {
    Worker& w = worker(r);
    if (!w.has_result) {
      check_result(r, w);
      w.has_result = true;
      w.body.resize(static_cast<size_t>(net_.result_bytes() + w.result.note_bytes));
      arrivals_.expect(r, engine_.recv(bytes_of(w.body), r, {kGradients}));
      return;
    }
    w.busy = false;
    for (Open& o : open_)
      if (o.task.update == w.result.update) {
        ++o.came;
        o.oldest = std::min(o.oldest, w.task.task.version);
        if (w.result.part == 0) o.random = w.result.random;
        o.results[static_cast<size_t>(w.result.part)] = std::move(w.body);
      }
  }

  void let_go(int r) {
    Worker& w = worker(r);
    w.sent.wait();
    w.task = {};
    w.sent = engine_.send(bytes_of(w.task), r, {kTask});
  }

  FlatNet net_;
  int64_t staleness_, version_ = 0;
  Engine& engine_;
  bool dismissed_ = false;
  std::shared_ptr<std::vector<char>> values_;  ///< of the present version
  std::deque<Open> open_;
  std::vector<Worker> workers_;  ///< by rank
  Arrivals arrivals_;
};

// ---- a worker's side

class WorkerSide {
 public:
  WorkerSide(const nn::Module& net, Engine& engine) : module_(net), net_(net), engine_(engine) {}

  std::optional<ServerTask> next_task() {
    TaskMessage m;
    engine_.recv(bytes_of(m), 0, {kTask, patience()}).wait();
    if (!m.go) return {};
    values_.resize(static_cast<size_t>(net_.value_bytes()));
    engine_.recv(bytes_of(values_), 0, {kValues, patience()}).wait();
    net_.values_from(values_.data());
    for (const Param& p : module_.parameters()) p.zero_grad();
    set_generator_state(m.random);
    engine_.set_step(m.task.update + 1);
    return m.task;
  }

  void give_result(const ServerTask& task, const std::string& note) {
    TD_CHECK(static_cast<int64_t>(note.size()) <= kMostNoteBytes, Value,
             "give_result() expects a note of at most {} bytes, got {}", kMostNoteBytes,
             note.size());
    ResultMessage m{task.update, task.part, static_cast<int64_t>(note.size()), generator_state()};
    std::vector<char> body(static_cast<size_t>(net_.result_bytes()));
    net_.result_to(body.data());
    body.insert(body.end(), note.begin(), note.end());
    Work first = engine_.send(bytes_of(m), 0, {kResult, patience()});
    Work second = engine_.send(bytes_of(body), 0, {kGradients, patience()});
    first.wait();
    second.wait();
  }

 private:
  const nn::Module& module_;
  FlatNet net_;
  Engine& engine_;
  std::vector<char> values_;
};

// ---- what both are made by

ParameterServer::ParameterServer(nn::Module& net, ParameterServerOptions options,
                                 std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)) {
  TD_CHECK(options.staleness >= 0, Value, "ParameterServer got a staleness of {}",
           options.staleness);
  if (engine_->size() == 1) return;
  std::vector<std::string> lines = FlatNet(net).lines();
  lines.push_back(fmt::format("the option staleness={}", options.staleness));
  compare_lines(*engine_, lines, "nets",
                "All ranks must build the same net, with the same options.");
  if (is_server())
    server_ = std::make_unique<ServerSide>(net, options.staleness, *engine_);
  else
    worker_ = std::make_unique<WorkerSide>(net, *engine_);
}

ParameterServer::~ParameterServer() = default;

std::optional<ServerTask> ParameterServer::next_task() {
  TD_CHECK(worker_, Value, "next_task() is for workers, this is rank 0 of {}", engine_->size());
  return worker_->next_task();
}

void ParameterServer::give_result(const ServerTask& task, const std::string& note) {
  TD_CHECK(worker_, Value, "give_result() is for workers, this is rank 0 of {}", engine_->size());
  worker_->give_result(task, note);
}

ServerUpdate ParameterServer::collect(const TaskOf& task_of) {
  TD_CHECK(server_, Value, "collect() is for the server of several ranks, this is rank {} of {}",
           engine_->rank(), engine_->size());
  return server_->collect(task_of);
}

int64_t ParameterServer::updates() const { return server_ ? server_->updates() : 0; }

void ParameterServer::dismiss() {
  if (server_) server_->dismiss();
}

void ParameterServer::run(int64_t updates, const std::function<void(const ServerTask&)>& compute,
                          const std::function<void()>& update) {
  if (worker_) {
    while (const std::optional<ServerTask> task = next_task()) {
      compute(*task);
      give_result(*task);
    }
    return;
  }
  const int64_t parts = std::max<int64_t>(1, server_ && server_->synchronous() ? workers() : 1);
  for (int64_t u = 0; u < updates; ++u) {
    if (server_)
      collect([&](int64_t next) {
        return next < updates ? std::optional(ServerTask{.update = next, .parts = parts})
                              : std::nullopt;
      });
    else
      compute({.update = u, .version = u});
    update();
  }
  dismiss();
}

}  // namespace tandem::distributed
