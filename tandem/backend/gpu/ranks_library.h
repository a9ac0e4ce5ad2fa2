// SPDX-License-Identifier: Apache-2.0
// A vendor's library of calls between the devices of several processes behind one small interface.
#pragma once

#include <memory>
#include <string>

#include "tandem/backend/gpu/driver.h"
#include "tandem/graph/device_ranks.h"

namespace tandem::gpu {

/// A device among those of its group. One thread at a time.
class RanksComm {
 public:
  virtual ~RanksComm() = default;
  /// Put the call into the stream.
  virtual Status call(const DeviceCall& call, StreamRef stream) = 0;
};

class RanksLibrary {
 public:
  virtual ~RanksLibrary() = default;
  virtual bool takes(DType dtype) const = 0;
  /// Of a new group: rank 0 makes it, and all join with it.
  virtual Status make_id(std::string& id) = 0;
  /// Waits for all ranks.
  virtual Status join(const std::string& id, int rank, int size,
                      std::unique_ptr<RanksComm>& made) = 0;
};

}  // namespace tandem::gpu
