// SPDX-License-Identifier: Apache-2.0
// How a server ends: from drain() until its last answer is sent.
#include <sys/socket.h>
#include <unistd.h>

#include "tandem/serve/http/loop_internal.h"
#include "tandem/serve/http2/connection_internal.h"

namespace tandem::serve {
namespace {

// Connections that came last have so long to say something.
constexpr Seconds kLastWord = 0.2;

// A close would destroy what was sent and not read.
bool has_unread(const Connection& c) {
  char byte = 0;
  return recv(c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

}  // namespace

bool HttpLoop::drained() {
  const int calls = drains.load();
  if (calls == 0) return false;
  if (calls > 1) return true;
  if (drain_at_ < 0) drain_at_ = now();
  const Seconds since = now() - drain_at_ - drain_delay.load();
  end_http2(since >= kLastWord);
  if (since < 0) return false;
  if (listener_ >= 0) {
    // Who waits to be accepted believes to be connected, and may have sent a request.
    for (uint64_t before = accepted.load() + 1; before != accepted.load();) {
      before = accepted.load();
      accept_all();
    }
    ::close(listener_);
    listener_ = -1;
  }
  std::vector<Connection*> idle;
  for (auto& [id, c] : connections_)
    if (c->idle() && (c->http1 || since >= kLastWord) && !has_unread(*c)) idle.push_back(c.get());
  for (Connection* c : idle) close(*c);
  closed_.clear();
  return connections_.empty() || since > drain_wait.load();
}

}  // namespace tandem::serve
