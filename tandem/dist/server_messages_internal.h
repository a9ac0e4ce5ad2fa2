// SPDX-License-Identifier: Apache-2.0
// What a parameter server and its workers send each other.
#pragma once

#include <vector>

#include "tandem/dist/parameter_server.h"
#include "tandem/graph/rng.h"

namespace tandem::distributed {

/// From the server, before the net's values; without them where the worker may go.
struct TaskMessage {
  int64_t go = 0;
  ServerTask task;
  GeneratorState random;
};
/// From a worker, before its gradients, buffers and note.
struct ResultMessage {
  int64_t update = 0, part = 0, note_bytes = 0;
  GeneratorState random;
};

/// Parameters, gradients and buffers of a net as bytes, one after the other.
class FlatNet {
 public:
  explicit FlatNet(const nn::Module& net);

  /// Names, shapes and dtypes, for compare_lines().
  std::vector<std::string> lines() const;

  int64_t value_bytes() const { return param_bytes_ + buffer_bytes_; }
  void values_to(char* to) const;
  void values_from(const char* from) const;

  /// A byte for each parameter, which says whether it has a gradient, then gradients and buffers.
  int64_t result_bytes() const {
    return static_cast<int64_t>(trained_.size()) + gradient_bytes_ + buffer_bytes_;
  }
  void result_to(char* to) const;
  /// Gradients: the mean over the parts; buffers: those of the first one.
  void results_from(const std::vector<const char*>& parts) const;

 private:
  std::vector<Param> params_, trained_;
  std::vector<Buffer> buffers_;
  std::vector<std::string> lines_;
  int64_t param_bytes_ = 0, gradient_bytes_ = 0, buffer_bytes_ = 0;
};

template <class T>
Array bytes_of(T& message) {
  return {&message, static_cast<int64_t>(sizeof message), DType::u8};
}
inline Array bytes_of(std::vector<char>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), DType::u8};
}

}  // namespace tandem::distributed
