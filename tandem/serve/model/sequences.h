// SPDX-License-Identifier: Apache-2.0
// Sequences: requests that belong together by a correlation id. A model with state gets, with each
// step, the state that its last step gave; the state stays in the process. Steps of one sequence
// run one after the other, steps of several together. A sequence stays with the version that it
// began with, also when a newer one is loaded.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tandem/serve/model/scheduler.h"

namespace tandem::serve {

struct ModelVersion;

/// Which sequence a request belongs to, as clients of Triton say it.
struct SequenceAsk {
  std::string id = "";   ///< empty: none
  bool is_text = false;  ///< 42 and "42" are two sequences
  bool start = false, end = false;
};

/// Of all sequences of a model since the start.
struct SequenceCounts {
  std::atomic<uint64_t> started{0}, ended{0}, expired{0}, refused{0};
  std::atomic<int64_t> open{0};
};

class TD_API Sequences {
 public:
  /// `idle_seconds` after its last step a sequence is given up; there are `most` at a time.
  Sequences(std::string model, double idle_seconds, size_t most);
  ~Sequences();
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  /// From now on; open sequences stay, also where there are more.
  void set_limits(double idle_seconds, size_t most);
  /// The version that a step of an open sequence runs on; nullptr where `ask` begins one, and where
  /// there is none.
  std::shared_ptr<ModelVersion> version_of(const SequenceAsk& ask) const;
  /// Runs a step; `job` has the inputs that clients see and one row. Throws Refusal where no such
  /// sequence is open, and where there are too many.
  void submit(const std::shared_ptr<ModelVersion>& v, const SequenceAsk& ask, Job job, bool here);
  const SequenceCounts& counts() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< shared with steps on their way
};

}  // namespace tandem::serve
