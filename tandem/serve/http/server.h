// SPDX-License-Identifier: Apache-2.0
// HttpServer: HTTP/1.1 over epoll. One thread reads, writes and keeps the time of all connections;
// small requests are handled on it, larger ones on threads beside it. A handler answers at once or
// later, from any thread. Requests of one connection are handled one after the other, so answers to
// pipelined ones keep their order.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "tandem/serve/http/byte_account.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/tls/files.h"

namespace tandem::serve {

class HttpExchange;

struct HttpOptions {
  std::string host = "127.0.0.1";  ///< an address, or localhost
  int port = 0;                    ///< 0: one that is free
  HttpLimits limits = {};
  TlsFiles tls = {};          ///< empty: connections are not encrypted
  size_t connections = 1024;  ///< beyond it the one idle for longest is closed
  /// Of all requests that are read or handled, inflated, and of answers that wait for clients of
  /// HTTP/2.
  size_t bytes_in_flight = size_t{1} << 30;
  size_t inline_bytes = size_t{64} << 10;  ///< larger bodies are handled beside the loop
  std::function<bool(const HttpRequest&)> beside = {};  ///< smaller ones that go there, too
  int workers = 1;                                      ///< threads for them
  /// Requests of HTTP/2 that are handled from their head on, as an HttpStream.
  std::function<bool(const HttpRequest&)> streamed = {};
  /// Sees every complete request on the loop's thread, before it is handled there or elsewhere.
  std::function<void(const std::shared_ptr<HttpExchange>&)> begun = {};
  /// Sees what is refused without becoming one, as far as it was read.
  std::function<void(const HttpRequest&, const HttpResponse&)> refused = {};
  std::function<void()> reloaded = {};  ///< called by the loop after reload()
  double header_seconds =
      10;  ///< from a request's first byte to its last header; for TLS's handshake
  double idle_seconds = 60;     ///< between requests
  double rate_bytes = 1024;     ///< a second, the least of bodies and answers
  double rate_seconds = 10;     ///< over which that is measured
  double linger_seconds = 2;    ///< what still comes after a last answer is dropped for this long
  double answer_seconds = 120;  ///< until a handler must have answered
};

class RequestTrace;
class AccessRecord;

/// A request and the way to answer it. Answers count once; without one, it is a 500.
class TD_API HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  HttpRequest request;
  /// Sees the answer, or its pieces, before they are sent, on any thread; where the loop answers in
  /// the place of a handler that is late, twice. Set by HttpOptions::begun.
  std::function<void(HttpResponse& piece, bool last)> on_answer = {};
  /// The trace that it belongs to, if any.
  std::shared_ptr<RequestTrace> trace = {};
  /// Its line of the access log, if there is one.
  std::shared_ptr<AccessRecord> access = {};
  /// The server's, where what requests hold is counted; nullptr: nowhere.
  std::shared_ptr<ByteAccount> account = {};
  /// Counts bytes that the request holds besides its body as it came, until this ends: what that
  /// was inflated to, tensors. False where the server holds as many as it may.
  bool hold(size_t bytes) { return held_.add(account, bytes); }
  /// Bytes of the body that have come in pieces.
  std::atomic<uint64_t> received{0};
  /// The client has closed the connection: nobody reads the answer.
  bool gone() const { return gone_.load(std::memory_order_relaxed); }
  /// From any thread.
  virtual void answer(HttpResponse response) = 0;
  /// A piece of an answer, from any thread: the first begins it with its headers, and answer()
  /// gives the last. One that fails (500 and above) breaks the answer off.
  virtual void write(HttpResponse piece) = 0;
  /// Is this the thread that serves all connections? Nothing slow may be done there.
  virtual bool on_loop() const = 0;
  /// On that thread: `task` runs on one of those beside it, unless the server ends before; where
  /// there are none, at once. It must not throw.
  virtual void beside(std::function<void()> task) { task(); }
  void show(HttpResponse& piece, bool last) const {
    if (on_answer) on_answer(piece, last);
  }

 protected:
  std::atomic<bool> gone_{false};

 private:
  HeldBytes held_;
};
using HttpExchangePtr = std::shared_ptr<HttpExchange>;
/// While one lives, answers and pieces that its thread gives for a loop's thread are held; when the
/// last of the thread ends, all go at once. So a batch of answers wakes a loop once, and does not
/// take turns with it for a processor.
class TD_API AnswersTogether {
 public:
  AnswersTogether();
  ~AnswersTogether();
  AnswersTogether(const AnswersTogether&) = delete;
  AnswersTogether& operator=(const AnswersTogether&) = delete;
};

/// On a loop's thread: `task` is called there once the loop has read everything that had arrived
/// and before it waits for more, so that requests which arrive together can be run together. It
/// must not throw. False on other threads, which do not keep it.
TD_API bool at_end_of_turn(std::function<void()> task);

/// What it throws becomes a 500.
using HttpHandler = std::function<void(const HttpExchangePtr&)>;
/// The answer to what never became a request: a body in the protocol's form.
using HttpRefusal = std::function<HttpResponse(int status, const std::string& reason)>;

/// Counts since the start.
struct HttpCounts {
  uint64_t accepted = 0;  ///< connections
  uint64_t open = 0;      ///< connections now
  uint64_t requests = 0;  ///< complete ones
  uint64_t refused = 0;   ///< broken, too large or too slow ones
  uint64_t dropped = 0;   ///< connections closed because the client did not read or went away
};

class TD_API HttpServer {
 public:
  /// Binds and listens. Throws Io where the address cannot be had, and what is thrown for files of
  /// TLS that cannot be used: Io, Format, Unsupported.
  HttpServer(HttpOptions options, HttpHandler handler, HttpRefusal refusal = {});
  /// Stops at once where it still runs.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  /// "http://127.0.0.1:8000"
  std::string url() const;
  /// Serves on this thread until it is drained.
  void run();
  /// Stop: answers say "Connection: close" from now on; after `delay` seconds no more connections
  /// are accepted and idle ones are closed; run() returns when the last answer is sent, or after
  /// `wait` seconds more. A second call ends it at once. Safe in a signal handler.
  void drain(double delay, double wait) noexcept;
  bool draining() const;
  /// Reads the files of TLS again, for connections that come from now on. Files that cannot be used
  /// are warned of, and what was in use stays. Safe in a signal handler.
  void reload() noexcept;
  HttpCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::serve
