// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "tandem/backend/gpu/staging_internal.h"

namespace tandem::gpu {

namespace {
constexpr size_t kStagedAlignment = 64;
}

Staging::~Staging() {
  for (Piece& p : pieces_) {
    if (p.passed) (void)context_.destroy_event(p.passed);
    if (p.at) (void)context_.release_host(p.at);
  }
}

// No copy is added to the piece any more.
Status Staging::close(Piece& piece) {
  if (piece.used == 0) return {};
  return context_.record(piece.passed, piece.stream);
}

// Empty and not read by the device.
Status Staging::prepare(Piece& piece) {
  if (!piece.at) {
    void* at = nullptr;
    TD_GPU_TRY(context_.create_event(piece.passed));
    TD_GPU_TRY(context_.allocate_host(kPieceBytes, at));
    piece.at = static_cast<char*>(at);
  } else if (piece.used) {
    TD_GPU_TRY(context_.synchronize_event(piece.passed));
  }
  piece.used = 0;
  return {};
}

// A piece with room for some of the bytes, for copies of this stream.
Status Staging::room(size_t bytes, StreamRef stream, Piece*& piece) {
  piece = &pieces_[current_];
  const bool fits = piece->at && piece->stream == stream &&
                    kPieceBytes - piece->used >= std::min(bytes, kPieceBytes);
  if (fits) return {};
  TD_GPU_TRY(close(*piece));
  const size_t next = (current_ + 1) % kPieces;
  piece = &pieces_[next];
  TD_GPU_TRY(prepare(*piece));
  piece->stream = stream;
  current_ = next;
  return {};
}

Status Staging::copy_in(Address to, const void* host, size_t bytes, StreamRef stream) {
  std::lock_guard hold(lock_);
  const char* from = static_cast<const char*>(host);
  while (bytes > 0) {
    Piece* piece = nullptr;
    TD_GPU_TRY(room(bytes, stream, piece));
    const size_t n = std::min(bytes, kPieceBytes - piece->used);
    char* staged = piece->at + piece->used;
    std::memcpy(staged, from, n);
    TD_GPU_TRY(context_.copy_in(to, staged, n, stream));
    piece->used = std::min(kPieceBytes, piece->used + (n + kStagedAlignment - 1) /
                                                          kStagedAlignment * kStagedAlignment);
    from += n;
    to += n;
    bytes -= n;
  }
  return {};
}

}  // namespace tandem::gpu
