// SPDX-License-Identifier: Apache-2.0
// HttpStream: a request over HTTP/2 that is read and answered in pieces, as the streaming calls of
// gRPC are. HttpOptions::streamed chooses such requests by their head; all others are handled when
// they are complete, like those of HTTP/1.1.
#pragma once

#include <functional>
#include <string_view>

#include "tandem/serve/http/server.h"

namespace tandem::serve {

/// `request.body` stays empty. answer() is the last piece, with the trailers.
class TD_API HttpStream : public HttpExchange {
 public:
  /// Nobody waits for the answer any more.
  void leave() { gone_.store(true, std::memory_order_relaxed); }
  /// As many more bytes may come for on_body(); `held`: what the handler keeps of those before. On
  /// the loop's thread.
  virtual void take(size_t bytes, size_t held) = 0;
  /// Bytes of the answer that the client has not taken yet. On the loop's thread.
  virtual size_t unsent() const = 0;
  /// Has on_tick() called soon, from any thread.
  virtual void nudge() = 0;

  // ---- set by the handler; called on the loop's thread
  /// What the client sends, as it comes; `ended`: it sends no more. It may send a few megabytes
  /// before take() says that they are done with.
  std::function<void(std::string_view bytes, bool ended)> on_body;
  /// Now and then, after nudge(), and after pieces of the answer were written. `ending`: the server
  /// is shut down and the stream should end.
  std::function<void(bool ending)> on_tick;
};

}  // namespace tandem::serve
