// SPDX-License-Identifier: Apache-2.0
// What several ranks do of a training, and what a host does beside its device.
#pragma once

#include <cstdint>

#include "tandem/base/fields.h"

namespace tandem::train {

/// What several ranks do (docs/distributed.md).
enum class TrainStrategy : uint8_t {
  automatic,  ///< ddp where the environment says that there are several
  none,       ///< each trains by itself
  ddp,        ///< one net: each has its part of every batch
  zero1,      ///< and of the optimizer's state
  zero2,      ///< and of the gradients
  fsdp,       ///< and of the parameters
  ps,         ///< rank 0 holds parameters and optimizer, the others compute gradients for it
};
constexpr const char* field_names(TrainStrategy) { return "auto none ddp zero1 zero2 fsdp ps"; }

/// What of the training of a model on a device the host holds (docs/distributed.md).
enum class TrainOffload : uint8_t {
  none,
  optimizer,  ///< the optimizer's state, its updates and a copy of the parameters
};
constexpr const char* field_names(TrainOffload) { return "none optimizer"; }

/// A net whose layers are spread over ranks (docs/distributed.md): what a rank cannot hold, or what
/// is to be computed sooner than one rank does it.
struct ParallelOptions {
  int64_t tp = 1, pp = 1, dp = 0, micro = 0;
  bool spreads() const { return tp > 1 || pp > 1; }

  template <class V>
  void fields(V& v) {
    v("tp", tp,
      {.doc = "ranks that hold slices of the same layers (tensor parallel)",
       .at_least = 1,
       .resumable = true});
    v("pp", pp,
      {.doc = "stages of a pipeline, each with a part of the blocks",
       .at_least = 1,
       .resumable = true});
    v("dp", dp,
      {.doc = "copies of the net, each with a part of every batch; 0: as many as there are ranks "
              "for",
       .at_least = 0,
       .resumable = true});
    v("micro", micro,
      {.doc = "microbatches in which a batch passes through a pipeline, or the next smaller number "
              "that divides it; 0: four for each stage",
       .at_least = 0,
       .resumable = true});
  }
};

}  // namespace tandem::train
