// SPDX-License-Identifier: Apache-2.0
// What a load test says over a connection and hears from it, by protocol: requests become bytes,
// bytes become answers. Knows no sockets and no clock.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tandem/serve/load_test.h"

namespace tandem::serve {

/// How many bytes are kept of the text of an answer that is not good.
constexpr size_t kLoadText = 300;
struct LoadAnswer {
  int status = 0;         ///< of HTTP, or of gRPC where that failed
  bool good = false;      ///< 2xx, and complete
  bool lost = false;      ///< the server gave the request up without an answer
  int64_t tokens = -1;    ///< of a text, where the server says so
  std::string text = {};  ///< of one that is not good
};
/// Hears what happens to the requests; `slot` is what LoadWire::ask() was given.
class LoadSink {
 public:
  virtual ~LoadSink() = default;
  /// A piece of a text came.
  virtual void piece(size_t slot) = 0;
  virtual void answered(size_t slot, const LoadAnswer& answer) = 0;
};

/// Whatever all connections send.
struct LoadScript {
  LoadScript(LoadRequest r, std::string authority);
  LoadRequest request;
  std::string text;  ///< as HTTP/1.1
  HttpHeaders head;  ///< as HTTP/2
  uint64_t asked = 0;
  bool numbered() const { return request.number_at != LoadRequest::kNoNumber; }
  /// Write the next number into `bytes`, whose end is the body.
  void put_number(std::string& bytes);
};

class LoadWire {
 public:
  virtual ~LoadWire() = default;
  /// Begin a request. Over HTTP/1.1 the last one has been answered.
  virtual void ask(size_t slot) = 0;
  /// Bytes that are to be sent next; valid until the next call of anything else.
  virtual std::string_view unsent() = 0;
  virtual void sent(size_t n) = 0;
  /// False: the connection is of no more use.
  virtual bool take(std::string_view bytes, LoadSink& sink) = 0;
};
std::unique_ptr<LoadWire> http1_wire(LoadScript& script);
/// Throws Unsupported where the build has no libnghttp2.
std::unique_ptr<LoadWire> http2_wire(LoadScript& script);

/// A text that comes as OpenAI's server-sent events.
class LoadEvents {
 public:
  /// Bytes of the body.
  void take(std::string_view bytes, size_t slot, LoadSink& sink);
  /// The last event came, and none was an error.
  bool complete() const { return ended_ && !failed_; }
  int64_t tokens() const { return tokens_; }

 private:
  void event(std::string_view text, size_t slot, LoadSink& sink);
  std::string line_;
  bool ended_ = false, failed_ = false;
  int64_t tokens_ = -1;
};

}  // namespace tandem::serve
