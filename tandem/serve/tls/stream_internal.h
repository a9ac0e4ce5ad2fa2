// SPDX-License-Identifier: Apache-2.0
// Encrypted connections; openssl.cpp alone knows the library behind them.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "tandem/serve/tls/files.h"

namespace tandem::serve {

/// Certificates and rules that connections share. Those that are open keep theirs.
class TlsContext;
using TlsContextPtr = std::shared_ptr<const TlsContext>;

/// Throws Io or Format for files that cannot be used, naming them, Unsupported where TLS is not
/// built in. `http2`: clients may choose it.
TlsContextPtr tls_server(const TlsFiles& files, bool http2);
TlsContextPtr tls_client(const TlsTrust& trust, bool http2);

/// One connection's bytes, over a socket that is somebody else's to close. The first receive() or
/// send() shakes hands.
class TlsStream {
 public:
  /// Of a server.
  TlsStream(TlsContextPtr context, int fd);
  /// Of a client, which wants to see a certificate of `host`.
  TlsStream(TlsContextPtr context, int fd, const std::string& host);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  /// As recv(): 0 at the end, -1 with EAGAIN in errno where nothing is there yet, and with EPROTO
  /// where what came breaks the protocol: problem() says how. Give room for kTlsRecord bytes at
  /// least.
  ssize_t receive(char* to, size_t most);
  /// As send().
  ssize_t send(const char* from, size_t bytes);
  /// Tells the other side that no more is sent.
  void finish();

  bool established() const;
  /// receive() waits until the socket takes more bytes.
  bool wants_to_write() const { return wants_to_write_; }
  /// What came first was a request of plain HTTP.
  bool met_plain_http() const { return met_plain_http_; }
  const std::string& problem() const { return problem_; }

 private:
  struct Library;
  ssize_t failed(int result);
  std::unique_ptr<Library> library_;
  TlsContextPtr context_;
  bool wants_to_write_ = false, met_plain_http_ = false, broken_ = false;
  std::string problem_;
};

/// The most bytes of a record (RFC 8446, 5.1).
constexpr size_t kTlsRecord = size_t{1} << 14;

/// recv() and send() on a socket, encrypted where it has a stream.
ssize_t receive_from(int fd, TlsStream* tls, char* to, size_t most);
ssize_t send_to(int fd, TlsStream* tls, const char* from, size_t bytes);
/// Why the last of them failed.
std::string problem_of(const TlsStream* tls);

}  // namespace tandem::serve
