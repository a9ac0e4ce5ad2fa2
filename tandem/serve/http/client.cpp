// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/http/client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "tandem/base/ascii.h"
#include "tandem/base/error.h"
#include "tandem/serve/http/connection_internal.h"

namespace tandem::serve {

HttpUrl::HttpUrl(std::string_view url) {
  secure = url.starts_with("https://");
  TD_CHECK(secure || url.starts_with("http://"), Value,
           "'{}' is not an URL such as http://127.0.0.1:8000", url);
  if (secure) port = 443;
  const std::string_view rest = url.substr(secure ? 8 : 7);
  const size_t slash = std::min(rest.find('/'), rest.size());
  path = slash < rest.size() ? std::string(rest.substr(slash)) : "/";
  std::string_view name = rest.substr(0, slash);
  size_t colon = name.rfind(':');
  if (name.starts_with('[')) {
    const size_t end = name.find(']');
    TD_CHECK(end != std::string_view::npos, Value, "'{}' has a '[' without its ']'", url);
    host = std::string(name.substr(1, end - 1));
    colon = end + 1 < name.size() && name[end + 1] == ':' ? end + 1 : std::string_view::npos;
  } else {
    host = std::string(name.substr(0, colon));
  }
  if (colon != std::string_view::npos) {
    const auto digits = parse_digits(name.substr(colon + 1), 65535);
    TD_CHECK(digits && *digits > 0, Value, "'{}' has no port from 1 to 65535", url);
    port = static_cast<int>(*digits);
  }
  TD_CHECK(!host.empty(), Value, "'{}' names no host", url);
}
std::string authority_of(const std::string& host, int port) {
  return fmt::format("{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port);
}
std::string HttpUrl::authority() const { return authority_of(host, port); }

std::string request_text(const std::string& method, const std::string& path,
                         const std::string& host, std::string_view body,
                         const HttpHeaders& headers) {
  std::string out = method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n";
  for (const auto& [name, value] : headers) out += name + ": " + value + "\r\n";
  if (!body.empty() || method == "POST") out += fmt::format("Content-Length: {}\r\n", body.size());
  out += "\r\n";
  return out.append(body);
}

namespace {

// The body of an answer in chunks: gives how many bytes it takes, 0 where some are missing.
size_t read_chunks(std::string_view bytes, std::string& body) {
  for (size_t at = 0;;) {
    const size_t line = bytes.find("\r\n", at);
    if (line == std::string_view::npos) return 0;
    size_t size = 0;
    const char* end = bytes.data() + line;
    const auto [stop, code] = std::from_chars(bytes.data() + at, end, size, 16);
    TD_CHECK(code == std::errc() && stop == end && size < (size_t{1} << 40), Format,
             "a chunk of the answer has no size");
    if (bytes.size() < line + 2 + size + 2) return 0;
    body.append(bytes.substr(line + 2, size));
    at = line + 2 + size + 2;
    if (size == 0) return at;
  }
}

}  // namespace

size_t parse_response(std::string_view bytes, bool body, HttpResponse& out) {
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    TD_CHECK(bytes.size() < size_t{1} << 16, Format, "an answer's head has no end");
    return 0;
  }
  const std::string_view head = bytes.substr(0, end + 2);
  TD_CHECK(head.starts_with("HTTP/1.") && head.size() > 12, Format,
           "this is not an answer of HTTP/1.1");
  out = HttpResponse();
  out.status = static_cast<int>(parse_digits(head.substr(9, 3), 999).value_or(0));
  size_t length = 0;
  bool chunked = false;
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t next = head.find("\r\n", at);
    const std::string_view line = head.substr(at, next - at);
    at = next + 2;
    const size_t colon = line.find(':');
    TD_CHECK(colon != std::string_view::npos, Format, "a header of the answer has no colon");
    std::string name = ascii_lower(line.substr(0, colon));
    const std::string_view value =
        line.substr(std::min(line.size(), line.find_first_not_of(' ', colon + 1)));
    if (name == "content-length")
      length = parse_digits(value, uint64_t{1} << 40).value_or(0);
    else if (name == "content-type")
      out.content_type = std::string(value);
    if (name == "transfer-encoding") chunked = list_holds(value, "chunked");
    if (name == "connection" && list_holds(value, "close")) out.close = true;
    out.headers.emplace_back(std::move(name), std::string(value));
  }
  if (!body || out.status == 204 || (out.status >= 100 && out.status < 200)) return end + 4;
  if (chunked) {
    const size_t used = read_chunks(bytes.substr(end + 4), out.body);
    return used ? end + 4 + used : 0;
  }
  if (bytes.size() - end - 4 < length) return 0;
  out.body = std::string(bytes.substr(end + 4, length));
  return end + 4 + length;
}

int connect_to(const std::string& host, int port, double seconds) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  TD_CHECK(code == 0, Io, "{}: {}", host, gai_strerror(code));
  int error = 0, fd = -1;
  for (const addrinfo* a = found; a && fd < 0; a = a->ai_next) {
    fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
    error = errno;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  TD_CHECK(fd >= 0, Io, "nobody answers at {}: {}", authority_of(host, port), std::strerror(error));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  timeval patience{};
  patience.tv_sec = static_cast<time_t>(seconds);
  patience.tv_usec =
      static_cast<suseconds_t>((seconds - static_cast<double>(patience.tv_sec)) * 1e6);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return fd;
}

HttpClient::HttpClient(const std::string& host, int port, double seconds)
    : host_(authority_of(host, port)), fd_(connect_to(host, port, seconds)) {}
HttpClient::HttpClient(const HttpUrl& url, double seconds, const TlsTrust& trust)
    : HttpClient(url.host, url.port, seconds) {
  if (url.secure) tls_ = std::make_unique<TlsStream>(tls_client(trust, false), fd_, url.host);
}
HttpClient::~HttpClient() {
  if (tls_) tls_->finish();
  if (fd_ >= 0) close(fd_);
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send_to(fd_, tls_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    TD_CHECK(n > 0, Io, "{}: {}", host_, problem_of(tls_.get()));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

bool HttpClient::read_more() {
  std::array<char, 1 << 16> room;
  for (;;) {
    const ssize_t n = receive_from(fd_, tls_.get(), room.data(), room.size());
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = 0;
    if (n <= 0) return false;
    in_.append(room.data(), static_cast<size_t>(n));
    return true;
  }
}

bool HttpClient::closed() {
  while (read_more()) {}
  return errno != EAGAIN;
}

HttpResponse HttpClient::receive(bool body) {
  HttpResponse out;
  for (;;) {
    const size_t used = parse_response(in_, body, out);
    if (used > 0) {
      in_.erase(0, used);
      if (out.status != 100) return out;
      continue;
    }
    TD_CHECK(read_more(), Io, "{}: the connection ended before the answer", host_);
  }
}

HttpResponse HttpClient::request(const std::string& method, const std::string& path,
                                 std::string_view body, const HttpHeaders& headers) {
  send(request_text(method, path, host_, body, headers));
  return receive(method != "HEAD");
}

}  // namespace tandem::serve
