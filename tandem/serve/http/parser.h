// SPDX-License-Identifier: Apache-2.0
// Reads one HTTP/1.1 request after the other from bytes as they come (RFC 9112). It is strict where
// leniency lets two readers of one stream disagree: bare line feeds, folded headers, blanks before
// colons, repeated or listed lengths, a length beside chunks. What breaks a limit ends the request
// with the status that says so. It never holds more than the limits allow.
#pragma once

#include "tandem/serve/http/message.h"

namespace tandem::serve {

class TD_API HttpParser {
 public:
  explicit HttpParser(const HttpLimits& limits = {}) : limits_(limits) {}

  /// Reads from the front of `bytes` up to the end of a request; gives how many were used. Uses
  /// nothing once a request is complete or refused.
  size_t feed(std::string_view bytes);

  bool done() const { return state_ == State::done; }
  bool failed() const { return state_ == State::failed; }
  /// Of a request that was refused: the status to answer with, and why.
  int status() const { return status_; }
  const std::string& reason() const { return reason_; }
  /// Nothing of a request has come.
  bool idle() const { return state_ == State::first_line && head_bytes_ == 0; }
  /// The head is complete, the body is not.
  bool in_body() const { return state_ > State::header && state_ < State::done; }
  /// The client waits for "100 Continue" before it sends the body: true once.
  bool take_continue();
  /// Bytes that the body holds so far.
  size_t body_bytes() const { return request_.body.capacity(); }

  /// What is known of the request so far.
  const HttpRequest& partial() const { return request_; }
  /// The complete request; the parser then waits for the next one.
  HttpRequest take();

 private:
  enum class State : uint8_t {
    first_line,
    header,
    body,  ///< of a known length
    chunk_size,
    chunk_data,
    chunk_end,
    trailer,
    done,
    failed,
  };
  void fail(int status, std::string reason);
  void line(std::string_view line);
  void first_line(std::string_view line);
  bool set_target(std::string_view target);
  void header(std::string_view line);
  void end_of_head();
  bool set_length();
  void chunk_size(std::string_view line);
  size_t take_body(std::string_view bytes);

  HttpLimits limits_;
  HttpRequest request_;
  State state_ = State::first_line;
  std::string partial_;  ///< the beginning of a line
  size_t head_bytes_ = 0, chunks_ = 0;
  uint64_t left_ = 0;  ///< of the body or the chunk
  bool continue_ = false;
  int status_ = 0;
  std::string reason_;
};

}  // namespace tandem::serve
