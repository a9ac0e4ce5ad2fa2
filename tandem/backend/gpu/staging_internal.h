// SPDX-License-Identifier: Apache-2.0
// Copies to a device whose source may change when the call returns: the bytes go through pinned
// memory, so the host waits only when all of that is under way.
#pragma once

#include <mutex>

#include "tandem/backend/gpu/driver.h"

namespace tandem::gpu {

class Staging {
 public:
  explicit Staging(Context& context) : context_(context) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  Status copy_in(Address to, const void* host, size_t bytes, StreamRef stream);

 private:
  static constexpr size_t kPieces = 4, kPieceBytes = size_t{1} << 20;
  /// Filled from the front by copies of one stream; free again when `passed` has happened.
  struct Piece {
    char* at = nullptr;
    size_t used = 0;
    StreamRef stream = nullptr;
    EventRef passed = nullptr;
  };
  Status room(size_t bytes, StreamRef stream, Piece*& piece);
  Status close(Piece& piece);
  Status prepare(Piece& piece);

  Context& context_;
  std::mutex lock_;
  Piece pieces_[kPieces];
  size_t current_ = 0;
};

}  // namespace tandem::gpu
