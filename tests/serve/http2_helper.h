// SPDX-License-Identifier: Apache-2.0
// For tests of HTTP/2: frames as they stand on the wire, and a server that says what it was asked.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <thread>

#include "tandem/serve/http/client.h"
#include "tandem/serve/http/server.h"
#include "tandem/serve/http2/client.h"
#include "tandem/serve/http2/frames.h"

namespace tandem::serve::wire {

/// A frame as it stands on the wire.
inline std::string frame(int type, int flags, uint32_t stream, std::string_view payload) {
  std::string out;
  for (const int shift : {16, 8, 0}) out += static_cast<char>(payload.size() >> shift);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(stream >> shift);
  return out.append(payload);
}
constexpr int kData = 0, kHeaders = 1, kPriority = 2, kReset = 3, kSettings = 4, kPushPromise = 5,
              kPing = 6, kGoaway = 7, kWindow = 8, kContinuation = 9;
constexpr int kAck = 1, kEndStream = 1, kEndHeaders = 4, kPadded = 8, kPriorityFlag = 32;

/// POST / with `path`, as HPACK without compression.
inline std::string head_block(const std::string& path) {
  std::string out = "\x83\x86";  // :method POST, :scheme http
  out += "\x41\x01h";            // :authority
  out += '\x44';
  out += static_cast<char>(path.size());
  return out + path;
}
inline const std::string kOpening = std::string(kHttp2Preface) + frame(kSettings, 0, 0, "");

/// The code of the GOAWAY in what a server sent; -1: none.
inline int goaway_code(std::string_view bytes) {
  while (bytes.size() >= 9) {
    size_t length = 0;
    for (int i = 0; i < 3; ++i) length = length << 8 | static_cast<unsigned char>(bytes[i]);
    if (bytes.size() < 9 + length) break;
    if (bytes[3] == 7 && length >= 8) return static_cast<unsigned char>(bytes[9 + 7]);
    bytes.remove_prefix(9 + length);
  }
  return -1;
}

/// An echo; requests to /stream are left without an answer.
class EchoServer {
 public:
  explicit EchoServer(HttpOptions options)
      : server_(std::move(options), [](const HttpExchangePtr& e) {
          if (e->request.path == "/stream") return;  // its answer never comes
          if (e->request.path == "/large") return e->answer({.body = std::string(1 << 18, 'x')});
          if (e->request.path == "/breaks") return e->write({.body = "one "});
          if (e->request.path == "/pieces") {
            for (const char* piece : {"one ", "two "}) e->write({.body = piece});
            return e->answer({.body = "three"});
          }
          e->answer({.content_type = "text/plain",
                     .headers = {{"X-Path", e->request.path}, {"Connection", "keep-alive"}},
                     .body = e->request.method + " " + e->request.query + " " + e->request.body});
        }) {
    thread_ = std::thread([this] { server_.run(); });
  }
  ~EchoServer() {
    server_.drain(0, 5);
    thread_.join();
  }
  HttpServer& operator*() { return server_; }
  HttpServer* operator->() { return &server_; }
  /// Sends bytes, and reads until the server has nothing to say for `seconds` or closes.
  std::string talk(const std::string& bytes, double seconds = 2) {
    HttpClient client("127.0.0.1", server_.port(), seconds);
    try {
      client.send(bytes);
    } catch (const Error&) {}
    std::string out(size_t{1} << 20, '\0');
    size_t n = 0;
    for (;;) {
      const ssize_t got = recv(client.fd(), out.data() + n, out.size() - n, 0);
      if (got <= 0) break;
      n += static_cast<size_t>(got);
      if (goaway_code(std::string_view(out).substr(0, n)) >= 0) break;
    }
    out.resize(n);
    return out;
  }
  void expect_healthy() {
    Http2Client client("127.0.0.1", server_.port(), 10);
    EXPECT_EQ(client.request("POST", "/a?q", "x").body, "POST q x");
  }

 private:
  HttpServer server_;
  std::thread thread_;
};

}  // namespace tandem::serve::wire
