// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/http_request.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"

namespace tandem::train {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

struct Address {
  std::string host, port = "80", path = "/";
};

Address address_of(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  TD_CHECK(url.starts_with(kScheme), Value,
           "'{}' is not a usable address\nWrite http://host[:port]/path.", url);
  Address a;
  std::string rest = url.substr(kScheme.size());
  if (const size_t slash = rest.find('/'); slash != rest.npos) {
    a.path = rest.substr(slash);
    rest.resize(slash);
  }
  const size_t colon = rest.rfind(':'), bracket = rest.rfind(']');
  if (colon != rest.npos && (bracket == rest.npos || colon > bracket)) {
    a.port = rest.substr(colon + 1);
    rest.resize(colon);
  }
  if (rest.size() > 2 && rest.front() == '[' && rest.back() == ']')
    rest = rest.substr(1, rest.size() - 2);
  a.host = rest;
  TD_CHECK(!a.host.empty() && !a.port.empty() && url.find_first_of("\r\n ") == url.npos, Value,
           "'{}' is not a usable address\nWrite http://host[:port]/path.", url);
  return a;
}

struct Socket {
  int fd = -1;
  explicit Socket(int fd) : fd(fd) {}
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
};

// Until the socket can be read or written; false when the time is up.
bool ready(int fd, short what, Clock::time_point end) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd p{fd, what, 0};
    const int n = ::poll(&p, 1, static_cast<int>(left));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

// The answer's bytes, or why there are none.
std::string talk(const addrinfo& to, const std::string& text, Clock::time_point end,
                 std::string& why) {
  const Socket s(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto give_up = [&](const char* loc) {
    why = std::string(loc) + ": " + (errno ? std::strerror(errno) : "no answer in time");
    return std::string();
  };
  errno = 0;
  if (s.fd < 0) return give_up("socket");
  if (::connect(s.fd, to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return give_up("connect");
    errno = 0;
    if (!ready(s.fd, POLLOUT, end)) return give_up("connect");
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(s.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      errno = error;
      return give_up("connect");
    }
  }
  for (size_t at = 0; at < text.size();) {
    errno = 0;
    if (!ready(s.fd, POLLOUT, end)) return give_up("send");
    const ssize_t n = ::send(s.fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return give_up("send");
    if (n > 0) at += static_cast<size_t>(n);
  }
  std::string got;
  char buffer[4096];
  while (got.size() < kMostBytes) {
    errno = 0;
    if (!ready(s.fd, POLLIN, end)) return give_up("read");
    const ssize_t n = ::recv(s.fd, buffer, sizeof buffer, 0);
    if (n == 0) break;
    if (n < 0 && errno != EAGAIN && errno != EINTR) return give_up("read");
    if (n > 0) got.append(buffer, static_cast<size_t>(n));
    // With a length the end need not be waited for.
    const size_t head = got.find("\r\n\r\n");
    const size_t length = got.find("Content-Length: ");
    if (head != got.npos && length < head &&
        got.size() - head - 4 >= std::strtoull(got.c_str() + length + 16, nullptr, 10))
      break;
  }
  return got;
}

}  // namespace

HttpReply http_request(const HttpRequest& r) {
  const Address a = address_of(r.url);
  const auto end = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1e3 * r.seconds));
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int code = ::getaddrinfo(a.host.c_str(), a.port.c_str(), &hints, &found);
  TD_CHECK(code == 0, Io, "'{}': {}", r.url, ::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  // 1.0: the answer is not cut into chunks and the connection ends with it.
  std::string text = r.method + " " + a.path + " HTTP/1.0\r\nHost: " + a.host + "\r\n";
  for (const auto& [name, value] : r.headers) text += name + ": " + value + "\r\n";
  if (!r.body.empty() || r.method != "GET")
    text += "Content-Length: " + std::to_string(r.body.size()) + "\r\n";
  text += "Connection: close\r\n\r\n" + r.body;
  std::string why, got;
  for (const addrinfo* to = list.get(); to && got.empty(); to = to->ai_next)
    got = talk(*to, text, end, why);
  TD_CHECK(!got.empty(), Io, "'{}' gives no answer ({})", r.url, why);
  const size_t head = got.find("\r\n\r\n"), space = got.find(' ');
  TD_CHECK(got.starts_with("HTTP/") && head != got.npos && space < head, Io,
           "'{}' gives no answer of HTTP", r.url);
  return {std::atoi(got.c_str() + space + 1), got.substr(head + 4)};
}

}  // namespace tandem::train
