// SPDX-License-Identifier: Apache-2.0
// The memory of one training or inference step: bytes by category at each moment of it. A dry run
// fills a StepMemory (plan/workload.h); the planner scales it to GPUs, shards and recomputation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::plan {

/// The phase of a step in which a kernel runs or a block of memory is taken.
enum class Phase : uint8_t { build, input, forward, backward, update };

/// What memory is held for.
enum class MemoryCategory : uint8_t {
  weights,
  gradients,
  optimizer,
  activations,
  workspace,
  input,
  count
};
inline constexpr size_t kMemoryCategories = static_cast<size_t>(MemoryCategory::count);
TD_API const char* to_string(MemoryCategory c);

/// Bytes by category at one moment.
struct Held {
  double bytes[kMemoryCategories] = {};
  double of(MemoryCategory c) const { return bytes[static_cast<size_t>(c)]; }
  void add(MemoryCategory c, double n) { bytes[static_cast<size_t>(c)] += n; }
  double total() const {
    double n = 0;
    for (double b : bytes) n += b;
    return n;
  }
};
struct Moment {
  Held held;
  std::string name;  ///< what ran then
};

/// A moment that may be the highest once parts of it are sharded or recomputed.
struct Peak {
  Held held;
  double in_blocks = 0;  ///< of its activations: those of the model's equal blocks
};

struct StepMemory {
  Held peak;                     ///< as tensors are sized, at the step's highest moment
  std::vector<Peak> peaks;       ///< no other moment has both more activations and more gradients
  std::vector<Moment> timeline;  ///< of one step, thinned to a few hundred moments
};

}  // namespace tandem::plan
