// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/parameter_server.h"

#include <algorithm>
#include <deque>

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/dist/arrivals_internal.h"
#include "tandem/dist/collectives_internal.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/dist/server_share_internal.h"

namespace tandem::distributed {
namespace {

constexpr int64_t kMostNoteBytes = int64_t{1} << 24;  ///< that a worker sends with a result

}  // namespace

// ---- rank 0's side

/// Updates are given out from the front of `open_` on, which is the update that is collected next.
class ServerSide {
 public:
  ServerSide(const nn::Module& net, const ParameterServerOptions& options, Engine& engine)
      : net_(net, options.servers, 0),
        staleness_(options.staleness),
        engine_(engine),
        first_worker_(options.servers),
        workers_(static_cast<size_t>(engine.size())),
        orders_(static_cast<size_t>(options.servers)),
        arrivals_(engine.size()) {
    for (int s = 1; s < options.servers; ++s) {
      others_.emplace_back(net, options.servers, s);
      send_values(s);
    }
  }

  // Calls under way end with the group; then nobody waits any more.
  ~ServerSide() {
    if (!dismissed_) engine_.abort(kServerFailed);
    const auto settle = [](Work& w) {
      try {
        w.wait();
      } catch (...) {}
    };
    for (Worker& w : workers_) {
      settle(w.sent);
      settle(w.sent_values);
    }
    for (auto& to_one : orders_)
      for (Sent& o : to_one) {
        settle(o.first);
        settle(o.second);
      }
  }

  ServerUpdate collect(const ParameterServer::TaskOf& task_of,
                       const ParameterServer::NoteOf& note_of) {
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
    const std::string note = note_of ? note_of(u) : "";
    OrderMessage order{.kind = OrderMessage::update,
                       .staleness = u.staleness,
                       .bytes = static_cast<int64_t>(note.size()),
                       .task = done.task};
    for (int s = 1; s < first_worker_; ++s)
      tell(s, order, std::vector<char>(note.begin(), note.end()), kOrder);
    if (in_turn()) set_generator_state({generator_state().seed, done.random.offset});
    open_.pop_front();
    ++version_;
    return u;
  }

  void dismiss() {
    if (dismissed_) return;
    for (int r = first_worker_; r < engine_.size(); ++r)
      if (!worker(r).busy) let_go(r);
    while (std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.busy; })) {
      const int r = arrivals_.next();
      take(r);
      if (!worker(r).busy) let_go(r);
    }
    for (int s = 1; s < first_worker_; ++s) tell(s, {.kind = OrderMessage::end});
    for (Worker& w : workers_) w.sent.wait();
    for (auto& to_one : orders_)
      for (Sent& o : to_one) o.first.wait();
    dismissed_ = true;
  }

  void gather() {
    if (whole_ == version_) return;
    for (int s = 1; s < first_worker_; ++s) tell(s, {.kind = OrderMessage::send_values});
    for (int s = 1; s < first_worker_; ++s) {
      const FlatNet& share = others_[static_cast<size_t>(s) - 1];
      std::vector<char> values(static_cast<size_t>(share.value_bytes()));
      engine_.recv(bytes_of(values), s, {kValues, server_patience()}).wait();
      const int64_t version = share.values_from(values.data());
      TD_CHECK(version == version_, Internal, "server {} is at version {}, rank 0 at {}", s,
               version, version_);
    }
    whole_ = version_;
  }

  void scatter() {
    values_ = nullptr;
    for (int s = 1; s < first_worker_; ++s) {
      tell(s, {.kind = OrderMessage::take_values});
      send_values(s);
    }
    whole_ = version_;
  }

  StateDict optim_state(const OptimizerShare& own) {
    StateDict all = own.entries_of(own.optimizer().state_dict(), 0, true);
    for (int s = 1; s < first_worker_; ++s) tell(s, {.kind = OrderMessage::send_state});
    for (int s = 1; s < first_worker_; ++s) {
      int64_t size = 0;
      engine_.recv(bytes_of(size), s, {kState, server_patience()}).wait();
      std::vector<char> theirs(static_cast<size_t>(size));
      engine_.recv(bytes_of(theirs), s, {kState}).wait();
      for (const auto& [name, value] : state_of_bytes(theirs)) all[name] = value;
    }
    return all;
  }

  void give_state(const OptimizerShare& own, const StateDict& whole) {
    for (int s = 1; s < first_worker_; ++s) {
      std::vector<char> theirs = bytes_of_state(own.entries_of(whole, s, true));
      const auto bytes = static_cast<int64_t>(theirs.size());
      tell(s, {.kind = OrderMessage::take_state, .bytes = bytes}, std::move(theirs), kState);
    }
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
  /// To another server; it stays until it has been sent.
  struct Sent {
    std::unique_ptr<OrderMessage> order;
    std::vector<char> body;
    Work first, second;
  };
  Worker& worker(int rank) { return workers_[static_cast<size_t>(rank)]; }

  void tell(int server, const OrderMessage& order, std::vector<char> body = {},
            const char* label = "") {
    std::deque<Sent>& queue = orders_[static_cast<size_t>(server)];
    while (!queue.empty() && queue.front().first.done() && queue.front().second.done())
      queue.pop_front();
    queue.push_back({std::make_unique<OrderMessage>(order), std::move(body), {}, {}});
    Sent& now = queue.back();
    now.first = engine_.send(bytes_of(*now.order), server, {kOrder});
    if (!now.body.empty()) now.second = engine_.send(bytes_of(now.body), server, {label});
  }

  void send_values(int server) {
    const FlatNet& share = others_[static_cast<size_t>(server) - 1];
    std::vector<char> values(static_cast<size_t>(share.value_bytes()));
    share.values_to(values.data(), version_);
    engine_.send(bytes_of(values), server, {kValues}).wait();
  }

  // Does the server's generator run through the updates as that of one rank does?
  bool in_turn() const { return staleness_ == 0 || engine_.size() == first_worker_ + 1; }

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
    for (int r = first_worker_; r < engine_.size(); ++r) {
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
      net_.values_to(values_->data(), version_);
    }
    for (int s = 1; s < first_worker_; ++s)
      tell(s, {.kind = OrderMessage::give, .worker = r, .task = task});
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
  int64_t whole_ = 0;  ///< the version that the net has of all parameters
  Engine& engine_;
  int first_worker_;
  bool dismissed_ = false;
  std::shared_ptr<std::vector<char>> values_;  ///< of the present version
  std::deque<Open> open_;
  std::vector<Worker> workers_;           ///< by rank
  std::vector<FlatNet> others_;           ///< shares of servers 1 to first_worker_ - 1
  std::vector<std::deque<Sent>> orders_;  ///< by server
  Arrivals arrivals_;
};

// ---- a worker's side

class WorkerSide {
 public:
  WorkerSide(const nn::Module& net, int servers, Engine& engine)
      : module_(net), engine_(engine), bodies_(static_cast<size_t>(servers)) {
    for (int s = 0; s < servers; ++s) shares_.emplace_back(net, servers, s);
  }

  std::optional<ServerTask> next_task() {
    TaskMessage m;
    engine_.recv(bytes_of(m), 0, {kTask, server_patience()}).wait();
    if (!m.go) return {};
    std::vector<Work> coming;
    for (size_t s = 0; s < shares_.size(); ++s) {
      bodies_[s].resize(static_cast<size_t>(shares_[s].value_bytes()));
      coming.push_back(
          engine_.recv(bytes_of(bodies_[s]), static_cast<int>(s), {kValues, server_patience()}));
    }
    for (size_t s = 0; s < shares_.size(); ++s) {
      coming[s].wait();
      const int64_t version = shares_[s].values_from(bodies_[s].data());
      TD_CHECK(version == m.task.version, Internal, "the task is of version {}, server {} gave {}",
               m.task.version, s, version);
    }
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
    std::vector<Work> sent{engine_.send(bytes_of(m), 0, {kResult, server_patience()})};
    for (size_t s = 0; s < shares_.size(); ++s) {
      bodies_[s].resize(static_cast<size_t>(shares_[s].result_bytes()));
      shares_[s].result_to(bodies_[s].data());
      if (s == 0) bodies_[s].insert(bodies_[s].end(), note.begin(), note.end());
      sent.push_back(
          engine_.send(bytes_of(bodies_[s]), static_cast<int>(s), {kGradients, server_patience()}));
    }
    for (Work& w : sent) w.wait();
  }

 private:
  const nn::Module& module_;
  Engine& engine_;
  std::vector<FlatNet> shares_;  ///< by server
  std::vector<std::vector<char>> bodies_;
};

// ---- what all are made by

ParameterServer::ParameterServer(nn::Module& net, ParameterServerOptions options,
                                 std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)), parameters_(FlatNet(net).parameters()), net_(&net) {
  TD_CHECK(options.staleness >= 0, Value, "ParameterServer got a staleness of {}",
           options.staleness);
  TD_CHECK(options.servers >= 1, Value, "ParameterServer expects at least 1 server, got {}",
           options.servers);
  if (engine_->size() == 1) return;
  servers_ = options.servers;
  std::vector<std::string> lines = FlatNet(net).lines();
  lines.push_back(fmt::format("the option staleness={}", options.staleness));
  lines.push_back(fmt::format("the option servers={}", options.servers));
  compare_lines(*engine_, lines, "nets",
                "All ranks must build the same net, with the same options.");
  TD_CHECK(servers_ < engine_->size(), Value,
           "{} parameter servers and a worker are {} ranks, and there are {}\nStart at least {} "
           "(tandem launch -n {}; with --max-restarts, --min-ranks {} too), or set fewer servers "
           "(trainer.ps_servers).",
           servers_, servers_ + 1, engine_->size(), servers_ + 1, servers_ + 1, servers_ + 1);
  if (servers_ > 1 && is_server()) among_servers_ = engine_of_servers(engine_, servers_);
  if (is_server()) parameters_ = FlatNet(net, servers_, engine_->rank()).parameters();
  if (is_main())
    server_ = std::make_unique<ServerSide>(net, options, *engine_);
  else if (is_server())
    share_ = std::make_unique<ShareSide>(net, servers_, *engine_);
  else
    worker_ = std::make_unique<WorkerSide>(net, servers_, *engine_);
}

ParameterServer::~ParameterServer() = default;

std::vector<Param> ParameterServer::parameters() const { return parameters_; }

std::optional<ServerTask> ParameterServer::next_task() {
  TD_CHECK(worker_, Value, "next_task() is for workers, this is rank {} of {}", engine_->rank(),
           engine_->size());
  return worker_->next_task();
}

void ParameterServer::give_result(const ServerTask& task, const std::string& note) {
  TD_CHECK(worker_, Value, "give_result() is for workers, this is rank {} of {}", engine_->rank(),
           engine_->size());
  worker_->give_result(task, note);
}

ServerUpdate ParameterServer::collect(const TaskOf& task_of, const NoteOf& note_of) {
  TD_CHECK(server_, Value, "collect() is for rank 0 of several ranks, this is rank {} of {}",
           engine_->rank(), engine_->size());
  return server_->collect(task_of, note_of);
}

std::optional<ServerUpdate> ParameterServer::next_update() {
  TD_CHECK(share_, Value, "next_update() is for servers beside rank 0, this is rank {} of {}",
           engine_->rank(), engine_->size());
  std::optional<ServerUpdate> next = share_->next_update(optimizer_.get());
  if (!next) unshard_optimizer();
  return next;
}

int64_t ParameterServer::updates() const { return server_ ? server_->updates() : 0; }

void ParameterServer::dismiss() {
  if (server_) server_->dismiss();
}

// ---- several servers

void ParameterServer::shard_optimizer(optim::Optimizer& optimizer) {
  if (among_servers_)
    optimizer_ = std::make_shared<OptimizerShare>(optimizer, *net_, servers_, engine_->rank());
}

void ParameterServer::unshard_optimizer() {
  if (!optimizer_) return;
  const StateDict whole = server_ ? server_->optim_state(*optimizer_) : StateDict();
  optimizer_->end();
  if (server_) optimizer_->optimizer().load_state_dict(whole);
  optimizer_.reset();
}

void ParameterServer::gather() {
  if (server_) server_->gather();
}
void ParameterServer::scatter() {
  if (server_) server_->scatter();
}

StateDict ParameterServer::optim_state_dict(const optim::Optimizer& optimizer) {
  return optimizer_ && server_ ? server_->optim_state(*optimizer_) : optimizer.state_dict();
}

StateDict ParameterServer::parts_of_optim_state(const optim::Optimizer&, const StateDict& whole) {
  if (!optimizer_ || !server_) return whole;
  server_->give_state(*optimizer_, whole);
  return optimizer_->own_of(whole);
}

Tensor ParameterServer::get_total_norm(const std::vector<Param>& params, double norm_type,
                                       SourceLocation loc) {
  if (!among_servers_) return optim::get_total_norm(params, norm_type, loc);
  const NoGradGuard no_grad;
  const Tensor all =
      detail::all_reduce_labelled(optim::get_norm_terms(params, norm_type, loc), ReduceOp::sum,
                                  among_servers_, {"norm of gradients"}, loc);
  return optim::norm_of_terms(all, norm_type, loc);
}

Tensor ParameterServer::clip_grad_norm_(const std::vector<Param>& params, double max_norm,
                                        double norm_type, SourceLocation loc) {
  TD_CHECK(norm_type > 0, Value, "norm_type is {}, expected more than 0", norm_type);
  const NoGradGuard no_grad;
  Tensor norm = get_total_norm(params, norm_type, loc);
  optim::clip_grads_with_norm_(params, max_norm, norm, loc);
  return norm;
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
  if (share_) {
    while (next_update()) update();
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
  gather();
  unshard_optimizer();
  dismiss();
}

}  // namespace tandem::distributed
