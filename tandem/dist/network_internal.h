// SPDX-License-Identifier: Apache-2.0
// Sockets of the TCP engine: owned descriptors, listeners, connections, whole messages with a
// deadline. All descriptors are non-blocking and closed on exec. Failures are Io errors with the
// address.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "tandem/base/clock.h"

namespace tandem::distributed {

using Deadline = Clock::time_point;
inline Deadline after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::min(seconds, 1e8)));
}
/// For poll(): at least 0, at most a second, so that a stop is noticed.
int poll_milliseconds(Deadline end);

/// A descriptor that is closed with its owner.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Fd& operator=(Fd&& o) noexcept {
    if (this != &o) {
      close();
      fd_ = std::exchange(o.fd_, -1);
    }
    return *this;
  }
  ~Fd() { close(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

/// This machine's name.
std::string host_name();

struct Address {
  std::string host;  ///< a name, or an address as text
  uint16_t port = 0;
  std::string text() const;  ///< "127.0.0.1:29500", "[::1]:29500"
};

/// Listens on the address; port 0: a free one.
Fd listen_on(const Address& at);
/// The local end of a socket, and the other one.
Address local_address(const Fd& fd);
Address peer_address(const Fd& fd);
/// A connection; tries again until the deadline while nobody listens there.
Fd connect_to(const Address& to, Deadline end);
/// A waiting connection, or none.
Fd accept_from(const Fd& listener);
/// A listener on a free port that is bound to the local address of that socket.
Fd listen_beside(const Fd& fd);

/// Bytes moved; 0 for "try later", -1 for an end or an error (errno; 0: the other side closed).
int64_t read_some(int fd, void* data, size_t bytes);
int64_t write_some(int fd, const void* data, size_t bytes);
/// Whole messages; false at the deadline or when the other side is gone.
bool read_all(const Fd& fd, void* data, size_t bytes, Deadline end);
bool write_all(const Fd& fd, const void* data, size_t bytes, Deadline end);

}  // namespace tandem::distributed
