// SPDX-License-Identifier: Apache-2.0
// A blocking HTTP/1.1 client over one connection, encrypted where the URL says https: for tests,
// `tandem bench-serve` and programs that talk to a server of their own. No redirects, no proxies.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tandem/serve/http/message.h"
#include "tandem/serve/tls/files.h"

namespace tandem::serve {

/// "http://127.0.0.1:8000/path" in its parts; the port is 80, and of https 443, where none is
/// given. Throws Value.
struct TD_API HttpUrl {
  explicit HttpUrl(std::string_view url);
  std::string host, path;  ///< path: "/" at least
  int port = 80;
  bool secure = false;            ///< https
  std::string authority() const;  ///< as the Host header has it
};

class TlsStream;

class TD_API HttpClient {
 public:
  /// Throws Io where nobody listens. `seconds`: patience for each read and write.
  HttpClient(const std::string& host, int port, double seconds = 30);
  /// Of https, throws what is thrown for files that cannot be used; a server that shows no
  /// certificate to be trusted is an Io error of the first send().
  explicit HttpClient(const HttpUrl& url, double seconds = 30, const TlsTrust& trust = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  HttpResponse get(const std::string& path) { return request("GET", path); }
  HttpResponse post(const std::string& path, std::string_view body,
                    const HttpHeaders& headers = {}) {
    return request("POST", path, body, headers);
  }
  /// Headers of the answer have their names in lower case. Throws Io where the connection ends.
  HttpResponse request(const std::string& method, const std::string& path,
                       std::string_view body = {}, const HttpHeaders& headers = {});
  /// Bytes as they are. Throws Io.
  void send(std::string_view bytes);
  /// The next answer; `body` false: of a HEAD.
  HttpResponse receive(bool body = true);
  /// True when the other side has closed the connection, waiting for it as long as for a read.
  bool closed();
  int fd() const { return fd_; }

 private:
  bool read_more();
  std::string host_, in_;
  int fd_ = -1;
  std::unique_ptr<TlsStream> tls_;
};

/// A request as bytes.
TD_API std::string request_text(const std::string& method, const std::string& path,
                                const std::string& host, std::string_view body,
                                const HttpHeaders& headers);
/// Reads an answer from the front of `bytes`: gives how many it takes, 0 where some are missing.
/// Throws Format for what is not an answer with a length or in chunks.
TD_API size_t parse_response(std::string_view bytes, bool body, HttpResponse& out);

}  // namespace tandem::serve
