// SPDX-License-Identifier: Apache-2.0
// The emulated grid: blocks and threads of a launch run one after another in an order that differs
// with each seed. Threads of a kernel with a barrier are fibers: each runs to the barrier, and only
// when all have reached it do they continue, in another order, so that a missing barrier gives
// other results for other seeds. Where a kernel has words of warps, one warp after the other runs
// to the barrier, its lanes from meeting to meeting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/backend/gpu/arguments.h"
#include "tandem/codegen/emit_c.h"

namespace tandem::gpu {

/// What a thread knows of itself; struct td_grid of the host's prelude.
struct GridThread {
  Extent thread, block, threads, blocks;
  char* shared;
  void (*barrier)(GridThread*);
  char* lanes;                ///< where the lanes of a warp show each other what they have
  void (*meet)(GridThread*);  ///< a barrier of the warp
  uint32_t turn;              ///< meetings so far
};

struct GridLaunch {
  codegen::TileCode code = nullptr;
  bool has_barrier = false;
  bool warps = false;  ///< threads of a warp meet
  size_t shared_bytes = 0;
  Extent blocks, threads;
  std::vector<void*> slots;  ///< [0] is set for each thread, [1] is where the first argument lies
};

/// Runs it; "", or what went wrong: a barrier that some threads reach and others never do.
std::string run_grid(const GridLaunch& launch, uint64_t seed);

}  // namespace tandem::gpu
