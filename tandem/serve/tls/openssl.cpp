// SPDX-License-Identifier: Apache-2.0
// TLS by OpenSSL 3. Reads and writes go through a BIO of our own, because OpenSSL's for sockets
// would end the program with SIGPIPE when a client goes away.
#include "tandem/base/error.h"
#include "tandem/serve/tls/stream_internal.h"

#if TANDEM_HAVE_OPENSSL
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace tandem::serve {

class TlsContext {
 public:
  explicit TlsContext(const SSL_METHOD* method) : ssl(SSL_CTX_new(method)) {
    TD_CHECK(ssl, Memory, "OpenSSL made no context");
  }
  ~TlsContext() { SSL_CTX_free(ssl); }
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  SSL_CTX* ssl;
  bool http2 = false;
};

struct TlsStream::Library {
  SSL* ssl = nullptr;
  bool waits = false;  ///< of a client: its socket blocks
};

namespace {

// In the order of preference; a byte of length before each (RFC 7301).
constexpr unsigned char kProtocols[] = "\x02h2\x08http/1.1";
constexpr size_t kHttp1At = 3, kProtocolBytes = sizeof kProtocols - 1;

std::string last_error() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code ? ERR_reason_error_string(code) : nullptr;
  std::string text = reason ? reason : "unknown error";
  ERR_clear_error();
  return text;
}

// ---- bytes of a socket

int socket_of(BIO* b) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(b))); }

int bio_write(BIO* b, const char* from, int bytes) {
  BIO_clear_retry_flags(b);
  ssize_t n = 0;
  do n = ::send(socket_of(b), from, static_cast<size_t>(bytes), MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) BIO_set_retry_write(b);
  return static_cast<int>(n);
}

int bio_read(BIO* b, char* to, int bytes) {
  BIO_clear_retry_flags(b);
  ssize_t n = 0;
  do n = ::recv(socket_of(b), to, static_cast<size_t>(bytes), 0);
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) BIO_set_retry_read(b);
  return static_cast<int>(n);
}

long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO* bio_of(int fd) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tandem socket");
    BIO_meth_set_write(m, bio_write);
    BIO_meth_set_read(m, bio_read);
    BIO_meth_set_ctrl(m, bio_control);
    return m;
  }();
  BIO* b = BIO_new(method);
  BIO_set_data(b, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(b, 1);
  return b;
}

// ---- contexts

void check_file(bool ok, const std::string& what, const std::string& file) {
  if (ok) return;
  const unsigned long code = ERR_peek_error();
  const bool missing = ERR_GET_LIB(code) == ERR_LIB_SYS;
  const std::string why = missing ? std::strerror(ERR_GET_REASON(code)) : last_error();
  ERR_clear_error();
  if (missing) TD_FAIL(Io, "cannot read the {} '{}': {}", what, file, why);
  TD_FAIL(Format,
          "'{}' cannot be used as the {}: {}\nIt has to be in PEM form, and a "
          "key has to belong to its certificate and need no password.",
          file, what, why);
}

void use_certificate(SSL_CTX* ssl, const std::string& certificate, const std::string& key) {
  ERR_clear_error();
  check_file(SSL_CTX_use_certificate_chain_file(ssl, certificate.c_str()) == 1, "certificate",
             certificate);
  const std::string& from = key.empty() ? certificate : key;
  const bool holds_key = SSL_CTX_use_PrivateKey_file(ssl, from.c_str(), SSL_FILETYPE_PEM) == 1;
  TD_CHECK(holds_key || !key.empty(), Format,
           "'{}' holds the certificate, but no private key that can be used\nGive the key's file "
           "(--key).",
           certificate);
  check_file(holds_key, "private key", from);
}

void trust(SSL_CTX* ssl, const std::string& ca, const std::string& what) {
  ERR_clear_error();
  check_file(SSL_CTX_load_verify_locations(ssl, ca.c_str(), nullptr) == 1, what, ca);
}

int choose_protocol(SSL*, const unsigned char** out, unsigned char* size,
                    const unsigned char* wanted, unsigned wanted_size, void* argument) {
  const bool http2 = static_cast<const TlsContext*>(argument)->http2;
  const size_t from = http2 ? 0 : kHttp1At;
  unsigned char* found = nullptr;
  const int how =
      SSL_select_next_proto(&found, size, kProtocols + from,
                            static_cast<unsigned>(kProtocolBytes - from), wanted, wanted_size);
  *out = found;
  return how == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

void set_rules(SSL_CTX* ssl) {
  // Nobody is asked for the password of a key.
  SSL_CTX_set_default_passwd_cb(ssl, [](char*, int, int, void*) { return 0; });
  SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
  SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
}

bool is_address(const std::string& host) {
  in6_addr room;
  return inet_pton(AF_INET, host.c_str(), &room) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &room) == 1;
}

}  // namespace

bool tls_available() { return true; }

TlsContextPtr tls_server(const TlsFiles& files, bool http2) {
  auto c = std::make_shared<TlsContext>(TLS_server_method());
  c->http2 = http2;
  set_rules(c->ssl);
  use_certificate(c->ssl, files.certificate, files.key);
  SSL_CTX_set_alpn_select_cb(c->ssl, choose_protocol, c.get());
  if (!files.client_ca.empty()) {
    trust(c->ssl, files.client_ca, "certificates of clients' signers");
    SSL_CTX_set_client_CA_list(c->ssl, SSL_load_client_CA_file(files.client_ca.c_str()));
    SSL_CTX_set_verify(c->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  // Sessions are resumed by tickets alone, whose keys end with the context.
  SSL_CTX_set_session_cache_mode(c->ssl, SSL_SESS_CACHE_OFF);
  constexpr unsigned char kName[] = "tandem";
  SSL_CTX_set_session_id_context(c->ssl, kName, sizeof kName - 1);
  return c;
}

TlsContextPtr tls_client(const TlsTrust& t, bool http2) {
  auto c = std::make_shared<TlsContext>(TLS_client_method());
  c->http2 = http2;
  set_rules(c->ssl);
  SSL_CTX_set_verify(c->ssl, SSL_VERIFY_PEER, nullptr);
  if (t.ca.empty())
    SSL_CTX_set_default_verify_paths(c->ssl);
  else
    trust(c->ssl, t.ca, "certificates of servers' signers");
  if (!t.certificate.empty()) use_certificate(c->ssl, t.certificate, t.key);
  const size_t from = http2 ? 0 : kHttp1At, to = http2 ? kHttp1At : kProtocolBytes;
  SSL_CTX_set_alpn_protos(c->ssl, kProtocols + from, static_cast<unsigned>(to - from));
  return c;
}

// ---- streams

TlsStream::TlsStream(TlsContextPtr context, int fd)
    : library_(new Library), context_(std::move(context)) {
  library_->ssl = SSL_new(context_->ssl);
  TD_CHECK(library_->ssl, Memory, "OpenSSL made no connection");
  BIO* b = bio_of(fd);
  SSL_set_bio(library_->ssl, b, b);
  SSL_set_accept_state(library_->ssl);
}

TlsStream::TlsStream(TlsContextPtr context, int fd, const std::string& host)
    : TlsStream(std::move(context), fd) {
  SSL* ssl = library_->ssl;
  SSL_set_connect_state(ssl);
  library_->waits = true;
  if (is_address(host)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str());
  } else {
    SSL_set1_host(ssl, host.c_str());
    SSL_set_tlsext_host_name(ssl, host.c_str());
  }
}

TlsStream::~TlsStream() { SSL_free(library_->ssl); }

// What recv() and send() would give for a result of the library's that is not a count of bytes.
ssize_t TlsStream::failed(int result) {
  const int system = errno;
  switch (SSL_get_error(library_->ssl, result)) {
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_WANT_READ:
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_WANT_WRITE:
      wants_to_write_ = true;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_SYSCALL:
      broken_ = true;
      if (ERR_peek_error() == 0) {
        errno = system ? system : ECONNRESET;
        problem_ = std::strerror(errno);
        return -1;
      }
      break;
    default:
      broken_ = true;
      break;
  }
  const int reason = ERR_GET_REASON(ERR_peek_error());
  met_plain_http_ = reason == SSL_R_HTTP_REQUEST;
  const long verified = SSL_get_verify_result(library_->ssl);
  problem_ = last_error();
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && verified != X509_V_OK)
    problem_ += std::string(": ") + X509_verify_cert_error_string(verified);
  errno = EPROTO;
  return -1;
}

// As many whole records as are there and as there is room for: none is left half read inside the
// library, where epoll would not see it. Whoever waits gets one.
ssize_t TlsStream::receive(char* to, size_t most) {
  if (broken_) return 0;
  wants_to_write_ = false;
  size_t got = 0;
  while (most - got >= kTlsRecord) {
    ERR_clear_error();
    errno = 0;
    const int n =
        SSL_read(library_->ssl, to + got, static_cast<int>(std::min<size_t>(most - got, INT_MAX)));
    if (n <= 0) {
      if (got > 0 && SSL_get_error(library_->ssl, n) == SSL_ERROR_WANT_READ) break;
      const ssize_t result = failed(n);
      return got > 0 ? static_cast<ssize_t>(got) : result;
    }
    got += static_cast<size_t>(n);
    if (library_->waits) break;
  }
  return static_cast<ssize_t>(got);
}

ssize_t TlsStream::send(const char* from, size_t bytes) {
  if (broken_) {
    errno = EPROTO;
    return -1;
  }
  ERR_clear_error();
  errno = 0;
  const int n = SSL_write(library_->ssl, from, static_cast<int>(std::min<size_t>(bytes, INT_MAX)));
  if (n > 0) return n;
  const ssize_t result = failed(n);
  if (result == 0) errno = EPIPE;
  return result == 0 ? -1 : result;
}

void TlsStream::finish() {
  if (broken_ || !established()) return;
  ERR_clear_error();
  SSL_shutdown(library_->ssl);
  ERR_clear_error();
}

bool TlsStream::established() const { return SSL_is_init_finished(library_->ssl) == 1; }

}  // namespace tandem::serve

#else

namespace tandem::serve {

namespace {
[[noreturn]] void missing() {
  TD_FAIL(Unsupported,
          "TLS is not built in\nInstall libssl-dev and build again, or put a proxy in front.");
}
}  // namespace
class TlsContext {};
struct TlsStream::Library {};
bool tls_available() { return false; }
TlsContextPtr tls_server(const TlsFiles&, bool) { missing(); }
TlsContextPtr tls_client(const TlsTrust&, bool) { missing(); }
TlsStream::TlsStream(TlsContextPtr, int) { missing(); }
TlsStream::TlsStream(TlsContextPtr, int, const std::string&) { missing(); }
TlsStream::~TlsStream() = default;
ssize_t TlsStream::failed(int) { missing(); }
ssize_t TlsStream::receive(char*, size_t) { missing(); }
ssize_t TlsStream::send(const char*, size_t) { missing(); }
void TlsStream::finish() {}
bool TlsStream::established() const { return false; }

}  // namespace tandem::serve

#endif
