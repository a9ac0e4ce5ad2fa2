// SPDX-License-Identifier: Apache-2.0
// What parameter servers and their workers send each other.
#pragma once

#include <vector>

#include "tandem/dist/parameter_server.h"
#include "tandem/graph/rng.h"

namespace tandem::distributed {

/// From rank 0 to a worker, before the values; without them where the worker may go.
struct TaskMessage {
  int64_t go = 0;
  ServerTask task;
  GeneratorState random;
};
/// From a worker to rank 0, before its gradients, buffers and note. The other servers get
/// gradients alone.
struct ResultMessage {
  int64_t update = 0, part = 0, note_bytes = 0;
  GeneratorState random;
};
/// From rank 0 to another server: what it does next. All that servers do to parameters is in one
/// order, that of these messages, so what they give for one task is of one version.
struct OrderMessage {
  enum Kind : int64_t {
    give,         ///< the values for `task` go to `worker`
    update,       ///< of which all parts are under way; `bytes` of a note follow
    send_values,  ///< to rank 0
    take_values,  ///< which follow
    send_state,   ///< of the optimizer, to rank 0: its size, then it
    take_state,   ///< `bytes` of it follow
    end,
  };
  int64_t kind = end, worker = 0, staleness = 0, bytes = 0;
  ServerTask task;
};

constexpr const char kTask[] = "a task", kValues[] = "parameters", kResult[] = "a result",
                     kGradients[] = "gradients", kOrder[] = "an order", kState[] = "moments";
/// Of calls that wait for rank 0, which validates and writes by itself meanwhile.
double server_patience();
/// What ends the group when a server fails.
constexpr const char kServerFailed[] = "training has failed on the parameter server";

/// Which server has each parameter, in order of the net's: the larger ones are dealt first, each to
/// the server that sends and receives least so far. Rank 0 begins with the buffers.
std::vector<int> servers_of(const nn::Module& net, int servers);

/// The parameters and gradients of one server's share as bytes, one after the other, and those of
/// buffers with the first server's.
class FlatNet {
 public:
  explicit FlatNet(const nn::Module& net, int servers = 1, int server = 0);

  /// Names, shapes and dtypes of the share, for compare_lines().
  std::vector<std::string> lines() const;
  const std::vector<Param>& parameters() const { return params_; }

  /// The version that they are of, then parameters and buffers.
  int64_t value_bytes() const { return kVersionBytes + param_bytes_ + buffer_bytes_; }
  void values_to(char* to, int64_t version) const;
  /// Gives the version.
  int64_t values_from(const char* from) const;

  /// A byte for each parameter, which says whether it has a gradient, then gradients and buffers.
  int64_t result_bytes() const {
    return static_cast<int64_t>(trained_.size()) + gradient_bytes_ + buffer_bytes_;
  }
  void result_to(char* to) const;
  /// Gradients: the mean over the parts; buffers: those of the first one.
  void results_from(const std::vector<const char*>& parts) const;

 private:
  static constexpr int64_t kVersionBytes = sizeof(int64_t);
  std::vector<Param> params_, trained_;
  std::vector<Buffer> buffers_;
  std::vector<std::string> lines_;
  int64_t param_bytes_ = 0, gradient_bytes_ = 0, buffer_bytes_ = 0;
};

/// Names, dtypes, shapes and elements, and back, on the host. Throws Format.
std::vector<char> bytes_of_state(const StateDict& state);
StateDict state_of_bytes(const std::vector<char>& bytes);

template <class T>
Array bytes_of(T& message) {
  return {&message, static_cast<int64_t>(sizeof message), DType::u8};
}
inline Array bytes_of(std::vector<char>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), DType::u8};
}

}  // namespace tandem::distributed
