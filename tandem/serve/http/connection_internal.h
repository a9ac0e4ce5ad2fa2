// SPDX-License-Identifier: Apache-2.0
// One client's connection as the loop keeps it: bytes in and out, the request being read, and the
// times at which patience ends. Only the loop's thread touches it.
#pragma once

#include <memory>
#include <string>

#include "tandem/serve/http/parser.h"
#include "tandem/serve/http/server.h"
#include "tandem/serve/tls/stream_internal.h"

namespace tandem::serve {

using Seconds = double;  ///< of a steady clock

class Http2Connection;

/// Bytes must flow at a least rate; measured over windows, so that a fast start buys no patience.
struct FlowWatch {
  Seconds since = -1;  ///< -1: nothing is awaited
  uint64_t bytes = 0;
  void start(Seconds now) {
    since = now;
    bytes = 0;
  }
  void stop() { since = -1; }
  /// True when the window is over and too little came.
  bool too_slow(Seconds now, const HttpOptions& o) {
    if (since < 0 || now - since < o.rate_seconds) return false;
    if (static_cast<double>(bytes) < o.rate_bytes * (now - since)) return true;
    start(now);
    return false;
  }
};

struct Connection {
  Connection(int fd, uint64_t id, const HttpLimits& limits, Seconds now, std::string remote);
  ~Connection();
  int fd;
  uint64_t id;
  std::string remote;              ///< the client's address
  std::unique_ptr<TlsStream> tls;  ///< nullptr: bytes are as they are
  HttpParser parser;
  std::string in;     ///< bytes after the request that is being handled
  std::string out;    ///< of answers, from `sent` on
  std::string large;  ///< the body of the last of them, if it is large: it is not copied
  size_t sent = 0;
  std::weak_ptr<HttpExchange> waiting;  ///< the request that is being handled
  bool in_pieces = false;               ///< its answer has begun and comes in pieces
  bool handling = false;                ///< from a complete request to its answer
  bool keep_alive = true;               ///< of that request
  bool old = false;                     ///< it was one of HTTP/1.0
  bool head_only = false;               ///< it was a HEAD
  bool closing = false;                 ///< close when `out` is sent
  bool lingering = false;               ///< what still comes is read and dropped
  bool ended = false;                   ///< the client sends no more
  uint32_t events = 0;                  ///< as epoll watches it
  size_t charged = 0;                   ///< of the bytes in flight
  Seconds changed;                      ///< since when it is idle, reads headers, or is handled
  FlowWatch body, answer;
  std::unique_ptr<Http2Connection> http2;  ///< after its preface
  bool http1 = false;                      ///< bytes came that are not that preface

  bool idle() const;
  size_t unsent() const { return out.size() + large.size() - sent; }
};

/// The head of an answer as bytes, appended to `out`; of one in pieces without a length.
void put_head(std::string& out, const HttpResponse& response, bool old, bool close,
              const std::string& date, bool pieces = false);
/// As send(), of what the connection has to send.
ssize_t send_some(Connection& c);
/// "Sun, 06 Nov 1994 08:49:37 GMT", now.
std::string http_date();
/// A listening socket; its port in `port`. Throws Io.
int listen_at(const std::string& host, int& port);
/// A client's connection and its address; negative: see errno.
int accept_at(int listener, std::string& remote);
/// A connection with so much patience for each read and write. Throws Io.
int connect_to(const std::string& host, int port, double seconds);
/// "127.0.0.1:8000", "[::1]:8000"
std::string authority_of(const std::string& host, int port);

}  // namespace tandem::serve
