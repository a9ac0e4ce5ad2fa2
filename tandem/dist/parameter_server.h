// SPDX-License-Identifier: Apache-2.0
// Training with parameter servers: the first ranks hold the parameters and the optimizer, the other
// ranks are workers that get parameters from them and send them gradients. TensorFlow's
// ParameterServerStrategy, with a bound on how old the parameters of a gradient may be.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/dist/process_group.h"
#include "tandem/nn/module.h"
#include "tandem/optim/optimizer.h"

namespace tandem::distributed {

struct ParameterServerOptions {
  /// The gradient of update u is computed from the parameters after at least u - staleness updates.
  /// 0: synchronous, all workers compute a part of the same update. With W workers at least W - 1
  /// keep all of them busy.
  int64_t staleness = 0;
  /// Ranks 0 to servers - 1 are servers, each for a share of the parameters: whole ones, dealt so
  /// that shares have about as many bytes. Rank 0 has the buffers too, and says what is done.
  int servers = 1;
};

/// What one worker computes: a part of an update's batch.
struct ServerTask {
  int64_t update = 0;           ///< counted from 0
  int64_t part = 0, parts = 1;  ///< the worker has rows part * n / parts to (part + 1) * n / parts
  int64_t version = 0;          ///< updates that the parameters have seen
  std::array<int64_t, 3> numbers{};  ///< what else the server says of it
};

/// What the workers have computed for an update; the gradients of this server's share are in the
/// net.
struct ServerUpdate {
  int64_t update = 0;
  int64_t staleness = 0;  ///< updates that were made since its parameters were given
  /// Of the workers' parts, in order; on a server beside rank 0 the one that rank 0 gives it.
  std::vector<std::string> notes;
};

class OptimizerShare;
class ServerSide;
class ShareSide;
class WorkerSide;

/// `distributed::ParameterServer server(net, {.staleness = 3});
///  server.run(steps, [&](const ServerTask& t) { loss_of(t).backward(); }, [&] { opt.step(); });`
///
/// Tasks are given to whichever worker is free; gradients are applied in the order of their
/// updates, so what has been applied is always a prefix of them. Parts of one update are averaged
/// by the tree of Engine::all_reduce. A worker's parameters are those of one version, the same on
/// all servers. A rank by itself computes and updates as without a server.
///
/// Of several servers each calls `update`, with gradients of its share alone, so that the optimizer
/// leaves out the others' parameters; shard_optimizer() spares it their moments.
class TD_API ParameterServer {
 public:
  /// All ranks call it, with the same net, whose values become rank 0's. Throws Value naming the
  /// first parameter and rank that differ, and where no rank is left to be a worker.
  explicit ParameterServer(nn::Module& net, ParameterServerOptions options = {},
                           std::shared_ptr<Engine> engine = world());
  /// A server that has not dismissed its workers ends the group.
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  bool is_server() const { return engine_->rank() < servers_; }
  /// Rank 0, which says what the other servers and the workers do.
  bool is_main() const { return engine_->rank() == 0; }
  int servers() const { return servers_; }
  int64_t workers() const { return engine_->size() - servers_; }
  /// A server's share of the parameters; of a worker, and of a rank by itself, all of them.
  std::vector<Param> parameters() const;
  Engine& engine() const { return *engine_; }

  /// Make `updates` updates: workers call `compute`, which leaves gradients in the net, servers
  /// `update`, where the net has their mean. All ranks call it, once. Then rank 0 has the whole net
  /// and, after shard_optimizer(), the whole optimizer.
  void run(int64_t updates, const std::function<void(const ServerTask&)>& compute,
           const std::function<void()>& update);

  // ---- within `update`, of all servers
  /// The norm of the gradients of all servers' shares, as optim::get_total_norm() gives it: with
  /// parameters of one dtype the same bits. `params`: those of the whole net, in the same order on
  /// all servers.
  Tensor get_total_norm(const std::vector<Param>& params, double norm_type = 2.0,
                        SourceLocation loc = SourceLocation::here());
  /// Scale the gradients so that this norm is at most `max_norm`; gives it.
  Tensor clip_grad_norm_(const std::vector<Param>& params, double max_norm, double norm_type = 2.0,
                         SourceLocation loc = SourceLocation::here());

  // ---- whose parts an optimizer updates. It must live until unshard_optimizer() or run()'s end.
  /// On each of several servers: moments of its share alone, which keep their values. Any optimizer
  /// will do, as parameters stay whole.
  void shard_optimizer(optim::Optimizer& optimizer);
  /// Rank 0: all of its parameters and moments again. Others: its parameters, with new moments.
  void unshard_optimizer();

  // ---- of rank 0, where the others need not call anything
  /// The net has the parameters of all servers. Costs nothing where it has them.
  void gather();
  /// All servers have the parameters of this net, such as those of a checkpoint.
  void scatter();
  /// The state of the optimizer that was given to shard_optimizer(), as one rank would have it.
  StateDict optim_state_dict(const optim::Optimizer& optimizer);
  /// What of a whole state is for this rank's load_state_dict(); the other servers load theirs.
  StateDict parts_of_optim_state(const optim::Optimizer& optimizer, const StateDict& whole);

  // ---- run() in single steps. Of a worker:
  /// Wait for a task; the net has the servers' parameters and buffers then, and the generator
  /// numbers that belong to the task. Nothing when rank 0 has dismissed the workers.
  std::optional<ServerTask> next_task();
  /// The net's gradients and buffers to the server.
  void give_result(const ServerTask& task, const std::string& note = "");

  // ---- of rank 0:
  /// What update `u` consists of (parts, numbers); nothing where it is not to be computed yet.
  using TaskOf = std::function<std::optional<ServerTask>(int64_t u)>;
  /// What the other servers are told of an update that was collected.
  using NoteOf = std::function<std::string(const ServerUpdate& u)>;
  /// Gradients of the update after those that were collected: the net's parameters are those after
  /// them. Gives out tasks of later updates as far as `task_of` knows them.
  ServerUpdate collect(const TaskOf& task_of, const NoteOf& note_of = {});
  /// Updates that were collected.
  int64_t updates() const;
  /// Wait for tasks under way, whose results are dropped, and let all others go.
  void dismiss();

  // ---- of a server beside rank 0:
  /// Wait for an update that rank 0 has collected. Nothing when it has dismissed the others.
  std::optional<ServerUpdate> next_update();

 private:
  std::shared_ptr<Engine> engine_;
  int servers_ = 1;
  std::vector<Param> parameters_;
  nn::Module* net_;
  std::shared_ptr<Engine> among_servers_;  ///< of several
  std::shared_ptr<OptimizerShare> optimizer_;
  std::unique_ptr<ServerSide> server_;
  std::unique_ptr<ShareSide> share_;
  std::unique_ptr<WorkerSide> worker_;
};

}  // namespace tandem::distributed
