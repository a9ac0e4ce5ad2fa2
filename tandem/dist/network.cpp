// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/dist/network_internal.h"

namespace tandem::distributed {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const Address& at, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  TD_CHECK(error == 0, Io, "there is no address for the host '{}': {}\nIs MASTER_ADDR right?",
           at.host, ::gai_strerror(error));
  return Addresses(found, ::freeaddrinfo);
}

void set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

Address address_of(const sockaddr_storage& s, socklen_t bytes) {
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&s), bytes, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, static_cast<uint16_t>(std::atoi(port))};
}

bool ready(int fd, int16_t events, Deadline end) {
  pollfd p{fd, events, 0};
  do {
    if (::poll(&p, 1, poll_milliseconds(end)) > 0) return true;
  } while (Clock::now() < end);
  return false;
}

// A connection to one address; -1 with errno.
int connect_once(const addrinfo& a, Deadline end) {
  const int fd = ::socket(a.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, a.ai_protocol);
  if (fd < 0) return -1;
  int error = ::connect(fd, a.ai_addr, a.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    socklen_t bytes = sizeof error;
    if (ready(fd, POLLOUT, end)) ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
  }
  if (error == 0) return fd;
  ::close(fd);
  errno = error;
  return -1;
}

}  // namespace

int poll_milliseconds(Deadline end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, 1000));
}

void Fd::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string Address::text() const {
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port)
                                     : fmt::format("[{}]:{}", host, port);
}

Fd listen_on(const Address& at) {
  const Addresses all = resolve(at, true);
  int error = 0;
  for (const addrinfo* a = all.get(); a; a = a->ai_next) {
    Fd fd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol));
    const int on = 1;
    if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd && ::bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd.get(), 512) == 0)
      return fd;
    error = errno;
  }
  TD_CHECK(error != EADDRINUSE, Io,
           "the port of {} is taken: another job runs there\nGive this one another MASTER_PORT; "
           "`tandem launch` takes a free one.",
           at.text());
  TD_FAIL(Io, "this process cannot listen on {}: {}\nRank 0 must run on the host MASTER_ADDR.",
          at.text(), std::strerror(error));
}

Address local_address(const Fd& fd) {
  sockaddr_storage s{};
  socklen_t bytes = sizeof s;
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&s), &bytes);
  return address_of(s, bytes);
}

Address peer_address(const Fd& fd) {
  sockaddr_storage s{};
  socklen_t bytes = sizeof s;
  ::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&s), &bytes);
  return address_of(s, bytes);
}

Fd listen_beside(const Fd& fd) { return listen_on({local_address(fd).host, 0}); }

Fd connect_to(const Address& to, Deadline end) {
  constexpr std::chrono::milliseconds kLongestPause(200);
  const Addresses all = resolve(to, false);
  int error = 0;
  for (std::chrono::milliseconds pause(5);; pause = std::min(pause * 2, kLongestPause)) {
    for (const addrinfo* a = all.get(); a; a = a->ai_next) {
      if (const int fd = connect_once(*a, end); fd >= 0) {
        set_options(fd);
        return Fd(fd);
      }
      error = errno;
    }
    if (Clock::now() + pause > end) break;
    std::this_thread::sleep_for(pause);
  }
  TD_FAIL(Io, "nobody answers on {}: {}\nDoes rank 0 run there, and is the port open?", to.text(),
          std::strerror(error));
}

Fd accept_from(const Fd& listener) {
  Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd) set_options(fd.get());
  return fd;
}

int64_t read_some(int fd, void* data, size_t bytes) {
  const ssize_t n = ::recv(fd, data, bytes, 0);
  if (n > 0) return n;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (n == 0) errno = 0;
  return -1;
}

int64_t write_some(int fd, const void* data, size_t bytes) {
  const ssize_t n = ::send(fd, data, bytes, MSG_NOSIGNAL);
  if (n >= 0) return n;
  return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

bool read_all(const Fd& fd, void* data, size_t bytes, Deadline end) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const int64_t n = read_some(fd.get(), at, bytes);
    if (n < 0 || (n == 0 && !ready(fd.get(), POLLIN, end))) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool write_all(const Fd& fd, const void* data, size_t bytes, Deadline end) {
  auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const int64_t n = write_some(fd.get(), at, bytes);
    if (n < 0 || (n == 0 && !ready(fd.get(), POLLOUT, end))) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace tandem::distributed
