// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks: a header that says which call they belong to, then elements. A
// receiver compares the header with its own call, so ranks that make different calls are told apart
// before anything is added up.
#pragma once

#include <string>

#include "tandem/dist/engine.h"

namespace tandem::distributed {

struct WireHeader {
  uint32_t magic = 0x54444D43;  // "TDMC"
  CallKind kind = CallKind::barrier;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  uint8_t phase = 0;
  int64_t number = 0;  ///< of the call in its lane
  int64_t count = 0;   ///< what the ranks must agree on: elements of `out`, or sent
  int32_t peer = 0;    ///< the root
  uint32_t step = 0;   ///< the sender's; not compared
  uint64_t bytes = 0;  ///< that follow
  char label[48] = "";

  /// Do both belong to one message?
  bool fits(const WireHeader& other) const;
  std::string text() const;  ///< "all_reduce sum float32[10] 'bucket 0'"
};
WireHeader header_of(const Call& call, int64_t number);

/// One message under way, in either direction.
class Transfer {
 public:
  Transfer(int peer, bool sends, WireHeader header, void* data, size_t bytes);
  enum State : uint8_t { kGoing, kDone, kLost };
  int peer() const { return peer_; }
  bool sends() const { return sends_; }
  /// Has the other side come to this call?
  bool came() const { return !sends_ && at_ >= sizeof(WireHeader); }
  bool done() const { return at_ == sizeof(WireHeader) + want_.bytes; }
  /// The other side's step, once its header is there.
  uint32_t came_in_step() const { return came_.step; }
  /// Move what the socket takes or has. Throws Value where the other side makes another call.
  State move(int fd, int rank);

 private:
  void check(int rank) const;
  int peer_;
  bool sends_;
  WireHeader want_, came_;
  char* data_;
  size_t at_ = 0;
};

}  // namespace tandem::distributed
