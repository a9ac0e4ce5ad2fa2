// SPDX-License-Identifier: Apache-2.0
// What several parameter servers need beside one: calls among servers, an optimizer of which each
// has a share, and the side of a server that does what rank 0 says.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/dist/server_messages_internal.h"

namespace tandem::distributed {

/// The servers as a group, whose sums travel by send and recv of the whole group: so there is one
/// order of messages between two ranks, and a fault has the name that the whole group finds. Knows
/// all_reduce() and broadcast() alone, of small arrays.
std::shared_ptr<Engine> engine_of_servers(std::shared_ptr<Engine> all, int servers);

/// The optimizer of one of several servers: other servers' parameters are empty ones in it.
class OptimizerShare {
 public:
  OptimizerShare(optim::Optimizer& optimizer, const nn::Module& net, int servers, int server);

  optim::Optimizer& optimizer() const { return optimizer_; }
  /// Of a state, the entries of one server's parameters and, with `common`, those of none.
  StateDict entries_of(const StateDict& state, int server, bool common) const;
  /// Of a whole state what this optimizer loads: others' entries are those that it has.
  StateDict own_of(const StateDict& whole) const;
  /// The optimizer has all parameters again, without their moments.
  void end();

 private:
  int server_of(const std::string& entry) const;  // -1: of no parameter

  optim::Optimizer& optimizer_;
  int server_;
  std::vector<Param> whole_;
  std::unordered_map<std::string, int> server_by_name_;
};

/// A server beside rank 0.
class ShareSide {
 public:
  ShareSide(const nn::Module& net, int servers, Engine& engine);
  /// One that has not been dismissed ends the group.
  ~ShareSide();
  ShareSide(const ShareSide&) = delete;
  ShareSide& operator=(const ShareSide&) = delete;

  /// Do what rank 0 says up to the next update.
  std::optional<ServerUpdate> next_update(OptimizerShare* optimizer);

 private:
  struct Result {
    Work coming;
    std::vector<char> body;
  };
  struct Worker {
    std::shared_ptr<std::vector<char>> values;  ///< on their way
    Work sent;
  };
  void give(const OrderMessage& order);
  std::shared_ptr<std::vector<char>> values();
  void take_values();
  void send_state(const OptimizerShare& optimizer);
  void take_state(const OptimizerShare& optimizer, int64_t bytes);
  ServerUpdate take_update(const OrderMessage& order);
  void finish();

  FlatNet net_;
  Engine& engine_;
  int64_t version_ = 0;
  bool ended_ = false;
  std::shared_ptr<std::vector<char>> values_;              ///< of the present version
  std::vector<Worker> workers_;                            ///< by rank
  std::map<std::pair<int64_t, int64_t>, Result> results_;  ///< by update and part
};

}  // namespace tandem::distributed
