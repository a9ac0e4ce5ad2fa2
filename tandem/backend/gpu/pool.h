// SPDX-License-Identifier: Apache-2.0
// Pool: device memory for tensors. A driver's own release waits for the whole device, so blocks are
// cut from large segments and used again in stream order: at once by the stream that gave them
// back, behind an event by others, and by others only where the device would be full otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/backend/gpu/driver.h"
#include "tandem/base/export.h"

namespace tandem::gpu {

struct PoolStats {
  int64_t allocated = 0, max_allocated = 0;  ///< bytes that are in use, rounded up
  int64_t reserved = 0, max_reserved = 0;    ///< bytes that the pool has from the driver
  int64_t blocks = 0, segments = 0;          ///< in use; of the driver
  int64_t largest_free = 0;                  ///< the largest block that lies ready
  int64_t allocations = 0;                   ///< calls of allocate() since the start
  int64_t from_other_streams = 0;            ///< blocks taken over behind an event
  int64_t retries = 0;        ///< the driver was asked again after free segments were given back
  int64_t out_of_memory = 0;  ///< errors thrown
};

/// Memory of one device; may be used by many threads. Must go before its context.
class TD_API Pool {
 public:
  /// `device` ("cuda:0") is for messages.
  Pool(Context& context, std::string device);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// At least `bytes` (0 counts as 1), aligned to 256, for work in `stream`. `holder` names what
  /// they are for, as the layer or op, in the text of an error; not copied before it is needed, so
  /// it must outlive the block. Throws Memory with the largest holders; the pool keeps working.
  Address allocate(size_t bytes, StreamRef stream, const char* holder);
  /// Give back; work that is queued in the block's streams may still use it. Throws Internal for an
  /// address that is not in use.
  void release(Address at);
  /// Other streams use the block too: it is not used again before their work so far is done, as
  /// seen from release().
  void add_stream(Address at, StreamRef stream);
  /// Before a stream is destroyed: what it gave back is for all. Throws what the wait for it gives.
  void forget_stream(StreamRef stream);
  /// Give segments without a block in use back to the driver; how many bytes that were.
  int64_t empty_cache();

  PoolStats stats() const;
  void reset_peaks();
  /// Bytes by holder, largest first.
  std::vector<std::pair<std::string, int64_t>> holders() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::gpu
