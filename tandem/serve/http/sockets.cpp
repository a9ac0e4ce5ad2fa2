// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "tandem/base/error.h"
#include "tandem/serve/http/connection_internal.h"

namespace tandem::serve {

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[parts.tm_wday], parts.tm_mday,
                     kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour, parts.tm_min,
                     parts.tm_sec);
}

void put_head(std::string& out, const HttpResponse& r, bool old, bool close,
              const std::string& date, bool pieces) {
  using namespace std::string_view_literals;  // whose sizes are known
  const auto put = [&out](std::string_view name, std::string_view value) {
    out.append(name).append(": "sv).append(value).append("\r\n"sv);
  };
  out.append(old ? "HTTP/1.0 "sv : "HTTP/1.1 "sv).append(std::to_string(r.status)).append(" "sv);
  out.append(status_text(r.status)).append("\r\n"sv);
  put("Date", date);
  if (!r.body.empty() || r.status == 200 || pieces) put("Content-Type", r.content_type);
  if (!pieces)
    put("Content-Length", std::to_string(r.body.size()));
  else if (!old)  // else the connection's end is the answer's
    put("Transfer-Encoding", "chunked");
  for (const auto& [name, value] : r.headers) put(name, value);
  if (close)
    put("Connection", "close");
  else if (old)
    put("Connection", "keep-alive");
  out.append("\r\n");
}

int listen_at(const std::string& host, int& port) {
  sockaddr_storage address{};
  socklen_t size = 0;
  const std::string name = host == "localhost" ? "127.0.0.1" : host;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (inet_pton(AF_INET, name.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    size = sizeof(sockaddr_in);
  } else if (inet_pton(AF_INET6, name.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    size = sizeof(sockaddr_in6);
  } else {
    TD_FAIL(Value, "'{}' is not an address\nGive one such as 127.0.0.1, ::1 or localhost.", host);
  }
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  TD_CHECK(fd >= 0, Io, "no socket: {}", std::strerror(errno));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // accepted sockets inherit it
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd, 1024) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    const int error = errno;
    close(fd);
    TD_FAIL(Io, "cannot listen at {} port {}: {}", host, port, std::strerror(error));
  }
  port = ntohs(address.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
  return fd;
}

int accept_at(int listener, std::string& remote) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const int fd =
      accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return fd;
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  const bool six = address.ss_family == AF_INET6;
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(
      address.ss_family,
      six ? static_cast<const void*>(&v6->sin6_addr) : static_cast<const void*>(&v4->sin_addr),
      text, sizeof text);
  remote = authority_of(text, ntohs(six ? v6->sin6_port : v4->sin_port));
  return fd;
}

ssize_t send_some(Connection& c) {
  const size_t behind = std::max(c.sent, c.out.size()) - c.out.size();  // of `large`
  iovec parts[2] = {{c.out.data() + std::min(c.sent, c.out.size()),
                     c.out.size() - std::min(c.sent, c.out.size())},
                    {c.large.data() + behind, c.large.size() - behind}};
  if (c.tls) {
    const iovec& part = parts[parts[0].iov_len == 0 ? 1 : 0];
    return c.tls->send(static_cast<const char*>(part.iov_base), part.iov_len);
  }
  if (parts[1].iov_len == 0)
    return send_to(c.fd, nullptr, static_cast<const char*>(parts[0].iov_base), parts[0].iov_len);
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  return sendmsg(c.fd, &message, MSG_NOSIGNAL);
}

ssize_t receive_from(int fd, TlsStream* tls, char* to, size_t most) {
  return tls ? tls->receive(to, most) : recv(fd, to, most, 0);
}
std::string problem_of(const TlsStream* tls) {
  return tls && !tls->problem().empty() ? tls->problem() : std::strerror(errno);
}
ssize_t send_to(int fd, TlsStream* tls, const char* from, size_t bytes) {
  return tls ? tls->send(from, bytes) : ::send(fd, from, bytes, MSG_NOSIGNAL);
}

}  // namespace tandem::serve
