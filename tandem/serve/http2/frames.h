// SPDX-License-Identifier: Apache-2.0
// HTTP/2's frames (RFC 9113), by libnghttp2: bytes become events of streams, and answers become
// bytes. Knows no sockets and keeps no bodies. frames.cpp alone sees the library; where the build
// did not find it, available() is false and nothing else may be called.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tandem/serve/http/message.h"

namespace tandem::serve {

/// What a client of HTTP/2 sends first.
constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Codes of RST_STREAM and GOAWAY.
enum class Http2Code : uint32_t {
  none = 0,
  protocol_error = 1,
  internal_error = 2,
  refused_stream = 7,
  cancel = 8,
  enhance_your_calm = 11,
};

/// What Http2Frames tells its owner while bytes are received or produced.
class Http2Events {
 public:
  virtual ~Http2Events() = default;
  virtual void begin_head(int32_t stream) = 0;
  /// False: it goes too far, and the connection ends with ENHANCE_YOUR_CALM.
  virtual bool header(int32_t stream, std::string_view name, std::string_view value) = 0;
  /// Of a head or, in the same stream once more, of trailers.
  virtual void end_head(int32_t stream) = 0;
  virtual void data(int32_t stream, std::string_view bytes) = 0;
  /// The other side sends nothing more.
  virtual void end(int32_t stream) = 0;
  virtual void closed(int32_t stream, Http2Code code) = 0;
  /// A frame that carries no request came: PING, SETTINGS, RST_STREAM, an empty DATA ... False as
  /// of header().
  virtual bool control(bool reset) = 0;
  /// The other side said GOAWAY.
  virtual void goaway() {}

  /// The bytes that a stream has to send, at most `most` of them; `ended`: these are the last ones.
  /// Nothing and not ended: the stream pauses until Http2Frames::resume().
  virtual std::string_view to_send(int32_t stream, size_t most, bool& ended) = 0;
  /// What follows the last bytes; empty: nothing.
  virtual HttpHeaders trailers(int32_t stream) = 0;
  /// `n` of those bytes were taken.
  virtual void sent(int32_t stream, size_t n) = 0;
};

struct Http2Limits {
  uint32_t streams = 256;                      ///< that are open at a time
  uint32_t header_bytes = uint32_t{32} << 10;  ///< of a head, each header counted with 32 more
  uint32_t window = uint32_t{4} << 20;         ///< bytes of a stream before they are taken
  uint32_t connection_window = uint32_t{16} << 20;
};

class TD_API Http2Frames {
 public:
  enum class Role : uint8_t { server, client };
  static bool available() noexcept;
  /// Throws Unsupported where the build has no libnghttp2.
  Http2Frames(Role role, const Http2Limits& limits, Http2Events& events);
  ~Http2Frames();
  Http2Frames(const Http2Frames&) = delete;
  Http2Frames& operator=(const Http2Frames&) = delete;

  /// False: the other side broke the protocol, or goes too far; what produce() gives says so.
  bool receive(std::string_view bytes);
  /// Append what is to be sent to `out`, until that holds about `most` bytes.
  void produce(std::string& out, size_t most);
  /// Neither side has anything to say any more.
  bool over() const;

  /// A client's request; the stream's number.
  int32_t request(const HttpHeaders& head, bool with_body);
  /// The head of an answer.
  void respond(int32_t stream, const HttpHeaders& head, bool with_body);
  /// to_send() has something again.
  void resume(int32_t stream);
  void reset(int32_t stream, Http2Code code);
  /// Bytes that data() gave were taken: as many more may come.
  void consume(int32_t stream, size_t bytes);
  /// Bytes of a stream that was closed.
  void consume_closed(size_t bytes);
  /// GOAWAY that takes no streams back: new ones may still be on their way.
  void announce_end();
  /// GOAWAY: streams that come from now on are ignored.
  void refuse_streams();
  /// GOAWAY, and the end of everything.
  void terminate(Http2Code code);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::serve
