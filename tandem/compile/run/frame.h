// SPDX-License-Identifier: Apache-2.0
// What one running call of an Executable needs: its arena and its kernels' operands, the tensors
// that it was given or makes, and on a device that repeats work what is known of earlier calls.
#pragma once

#include "tandem/compile/run/executable.h"
#include "tandem/graph/step_graph.h"

namespace tandem {

/// A frame's recording, and what led to it (replay.cpp). Sources are the frame's.
struct Executable::Replays {
  std::unique_ptr<StepGraph> graph;
  std::vector<char*> last;     ///< where each source lay in the last call; nullptr: on the host
  std::vector<char> in_place;  ///< cells of the last call
  /// Sources that change places between calls have one of their own in `memory`, which is copied
  /// to or from around a replay; the others are used where they lie.
  std::vector<char> own;
  std::vector<size_t> place;  ///< of those, in `memory`
  /// The seed and the offset of random numbers, small values of the host, then the others.
  char* memory = nullptr;
  size_t bytes = 0, host_bytes = 0;
  std::vector<char> from_host;    ///< the first host_bytes of `memory`, of this call
  std::vector<uint32_t> tickets;  ///< of the recorded calls that may report
  Device device{};
  int64_t calls = 0, replayed = 0;  ///< in all; of this recording
  int tries = 0;                    ///< recordings since the last one that has paid
  std::string problem;              ///< why the last one was not made
  bool off = false;

  ~Replays();
  void forget_graph();
  void free_memory();
};

/// What a call gives or gets: an input, a cell, a gradient, a result.
struct Executable::Source {
  compiler::Base base;
  size_t index, bytes;
};

/// Addresses in the arena are set once, those of sources for each call.
struct Executable::Frame {
  void* arena = nullptr;
  size_t bytes = 0;
  Device device{};
  std::vector<Array> arrays;
  std::vector<Source> sources;
  struct Patch {
    size_t array, source;
    int64_t offset;
  };
  std::vector<Patch> patches;
  std::vector<char*> at;  ///< where the sources lie in this call
  bool dry = false;       ///< there is no arena behind the addresses
  Replays replays;

  ~Frame();
};

/// Tensors that hold what the addresses point to. Values of the host are there until bring().
struct Executable::Bound {
  std::vector<Tensor> inputs, captures, cells, cells_new, grads, grads_new, outputs, derived;
  std::vector<char> in_place;
  std::vector<const Tensor*> written;  ///< values of cells that are written, at entry
  std::vector<Cell*> locked;
  ~Bound();
};

/// How steps are run: where their random numbers start, and while they are recorded where the
/// device finds that, and the tickets of calls that are made again and again.
struct Executable::Way {
  RngKey entry;
  const void* key = nullptr;
  std::vector<uint32_t>* tickets = nullptr;
};

}  // namespace tandem
