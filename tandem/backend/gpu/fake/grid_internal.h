// SPDX-License-Identifier: Apache-2.0
// The emulated grid: blocks and threads of a launch run one after another in an order that differs
// with each seed. Threads of a kernel with a barrier are fibers: each runs to the barrier, and only
// when all have reached it do they continue, in another order, so that a missing barrier gives
// other results for other seeds.
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
};

struct GridLaunch {
  codegen::TileCode code = nullptr;
  bool has_barrier = false;
  size_t shared_bytes = 0;
  Extent blocks, threads;
  std::vector<void*> slots;  ///< [0] is set for each thread, [1] is where the first argument lies
};

/// Runs it; "", or what went wrong: a barrier that some threads reach and others never do.
std::string run_grid(const GridLaunch& launch, uint64_t seed);

}  // namespace tandem::gpu
