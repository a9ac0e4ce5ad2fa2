// SPDX-License-Identifier: Apache-2.0
// A blocking HTTP/2 client over one connection, with prior knowledge: for tests, load tests and
// programs that call a server of their own, by gRPC too. Several requests may be on their way.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tandem/serve/http/client.h"
#include "tandem/serve/http2/frames.h"

namespace tandem::serve {

class TD_API Http2Client : private Http2Events {
 public:
  /// Throws Io where nobody listens, Unsupported without libnghttp2. `seconds`: patience for each
  /// read and write.
  Http2Client(const std::string& host, int port, double seconds = 30,
              const Http2Limits& limits = {});
  /// Encrypted where the URL says https; as HttpClient's.
  explicit Http2Client(const HttpUrl& url, double seconds = 30, const TlsTrust& trust = {});
  ~Http2Client() override;
  Http2Client(const Http2Client&) = delete;
  Http2Client& operator=(const Http2Client&) = delete;

  /// Ask and wait. Trailers of the answer are in `trailers`.
  HttpResponse request(const std::string& method, const std::string& path,
                       std::string_view body = {}, const HttpHeaders& headers = {});
  /// A unary call of gRPC: `message` as it stands in a body.
  HttpResponse call(const std::string& path, std::string_view message,
                    const HttpHeaders& headers = {});

  // ---- streams
  /// Send a request's head and `body`; with `open` more() follows.
  int32_t start(const std::string& method, const std::string& path, std::string_view body,
                const HttpHeaders& headers, bool open = false);
  void more(int32_t stream, std::string_view bytes, bool end);
  void reset(int32_t stream, Http2Code code = Http2Code::cancel);
  /// What has come of an answer so far.
  const HttpResponse& answer(int32_t stream) const { return streams_.at(stream).answer; }
  bool done(int32_t stream) const { return streams_.at(stream).done; }
  /// With which code the stream ended.
  Http2Code code(int32_t stream) const { return streams_.at(stream).code; }
  /// Forget it; gives its answer.
  HttpResponse take(int32_t stream);
  /// Waits until the answer is complete. Throws Io where the connection ends or patience does.
  HttpResponse wait(int32_t stream);
  /// Waits until that much of the body has come, or the answer is complete.
  void wait_for(int32_t stream, size_t bytes);

  // ---- the connection
  /// Read once and handle it, then write; false: the connection has ended, or nothing came in time.
  bool step();
  /// Write what is to be written.
  void flush();
  bool said_goaway() const { return goaway_; }
  int fd() const { return fd_; }

 private:
  struct Stream {
    std::string out;
    size_t out_at = 0;
    bool out_ended = true, headed = false, done = false;
    HttpResponse answer;
    Http2Code code = Http2Code::none;
  };
  void begin_head(int32_t) override {}
  bool header(int32_t id, std::string_view name, std::string_view value) override;
  void end_head(int32_t id) override;
  void data(int32_t id, std::string_view bytes) override;
  void end(int32_t) override {}
  void closed(int32_t id, Http2Code code) override;
  bool control(bool) override { return true; }
  void goaway() override { goaway_ = true; }
  std::string_view to_send(int32_t id, size_t most, bool& ended) override;
  HttpHeaders trailers(int32_t) override { return {}; }
  void sent(int32_t id, size_t n) override;

  std::string authority_, out_;
  int fd_ = -1;
  std::unique_ptr<TlsStream> tls_;
  bool goaway_ = false;
  std::map<int32_t, Stream> streams_;
  Http2Frames frames_;
};

}  // namespace tandem::serve
