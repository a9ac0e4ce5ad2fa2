// SPDX-License-Identifier: Apache-2.0
// Training with a parameter server: rank 0 holds the net and the optimizer, the other ranks are
// workers that get parameters from it and send it gradients. TensorFlow's ParameterServerStrategy,
// with a bound on how old the parameters of a gradient may be.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/dist/process_group.h"
#include "tandem/nn/module.h"

namespace tandem::distributed {

struct ParameterServerOptions {
  /// The gradient of update u is computed from the parameters after at least u - staleness updates.
  /// 0: synchronous, all workers compute a part of the same update. With W workers at least W - 1
  /// keep all of them busy.
  int64_t staleness = 0;
};

/// What one worker computes: a part of an update's batch.
struct ServerTask {
  int64_t update = 0;           ///< counted from 0
  int64_t part = 0, parts = 1;  ///< the worker has rows part * n / parts to (part + 1) * n / parts
  int64_t version = 0;          ///< updates that the parameters have seen
  std::array<int64_t, 3> numbers{};  ///< what else the server says of it
};

/// What the workers have computed for an update; its gradients are in the net.
struct ServerUpdate {
  int64_t update = 0;
  int64_t staleness = 0;           ///< updates that were made since its parameters were given
  std::vector<std::string> notes;  ///< of the workers' parts, in order
};

class ServerSide;
class WorkerSide;

/// `distributed::ParameterServer server(net, {.staleness = 3});
///  server.run(steps, [&](const ServerTask& t) { loss_of(t).backward(); }, [&] { opt.step(); });`
///
/// Tasks are given to whichever worker is free; gradients are applied in the order of their
/// updates, so what has been applied is always a prefix of them. Parts of one update are averaged
/// by the tree of Engine::all_reduce. A rank by itself computes and updates as without a server.
class TD_API ParameterServer {
 public:
  /// All ranks call it, with the same net, whose values become rank 0's. Throws Value naming the
  /// first parameter and rank that differ.
  explicit ParameterServer(nn::Module& net, ParameterServerOptions options = {},
                           std::shared_ptr<Engine> engine = world());
  /// A server that has not dismissed its workers ends the group.
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  bool is_server() const { return engine_->rank() == 0; }
  int64_t workers() const { return engine_->size() - 1; }
  Engine& engine() const { return *engine_; }

  /// Make `updates` updates: workers call `compute`, which leaves gradients in the net, the server
  /// `update`, where the net has their mean. All ranks call it, once.
  void run(int64_t updates, const std::function<void(const ServerTask&)>& compute,
           const std::function<void()>& update);

  // ---- the same in single steps. Of a worker:
  /// Wait for a task; the net has the server's parameters and buffers then, and the generator
  /// numbers that belong to the task. Nothing when the server has dismissed its workers.
  std::optional<ServerTask> next_task();
  /// The net's gradients and buffers to the server.
  void give_result(const ServerTask& task, const std::string& note = "");

  // ---- of the server:
  /// What update `u` consists of (parts, numbers); nothing where it is not to be computed yet.
  using TaskOf = std::function<std::optional<ServerTask>(int64_t u)>;
  /// Gradients of the update after those that were collected: the net's parameters are those after
  /// them. Gives out tasks of later updates as far as `task_of` knows them.
  ServerUpdate collect(const TaskOf& task_of);
  /// Updates that were collected.
  int64_t updates() const;
  /// Wait for tasks under way, whose results are dropped, and let the workers go.
  void dismiss();

 private:
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<ServerSide> server_;
  std::unique_ptr<WorkerSide> worker_;
};

}  // namespace tandem::distributed
