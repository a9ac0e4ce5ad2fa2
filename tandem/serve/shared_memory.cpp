// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/shared_memory_internal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "tandem/io/json.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/refusal_internal.h"

namespace tandem::serve {
namespace {

constexpr size_t kMostRegionName = 256, kMostKey = 255;
constexpr uint64_t kMostShared = std::numeric_limits<int64_t>::max();

// "/name" or "name" as shm_open wants it. Semaphores have their names there, too.
std::string object_name(const std::string& key) {
  const std::string_view plain = key.starts_with('/') ? std::string_view(key).substr(1) : key;
  const bool odd = plain.empty() || plain.size() > kMostKey || plain == "." || plain == ".." ||
                   plain.find('/') != std::string_view::npos ||
                   plain.find('\0') != std::string_view::npos;
  if (odd)
    refuse(400, "the key '{}' is not a plain name of shared memory, as \"/input_data\"",
           one_line(key, 64));
  if (plain.starts_with("sem.")) refuse(400, "the key '{}' is a semaphore's", one_line(key, 64));
  return "/" + std::string(plain);
}

uint64_t size_of_object(int fd) {
  struct stat s {};
  return fstat(fd, &s) == 0 && S_ISREG(s.st_mode) ? static_cast<uint64_t>(s.st_size) : 0;
}

}  // namespace

SharedRegion::SharedRegion(std::string name, std::string key, uint64_t offset, uint64_t bytes)
    : name_(std::move(name)), key_(std::move(key)), offset_(offset), bytes_(bytes) {
  if (bytes == 0) refuse(400, "region '{}' has no bytes", name_);
  if (offset > kMostShared || bytes > kMostShared - offset)
    refuse(400, "region '{}': {} bytes from byte {} on are more than any object has", name_, bytes,
           offset);
  const std::string object = object_name(key_);
  // shm_open follows no link; O_NONBLOCK: nor does it wait for the other end of a pipe.
  fd_ = shm_open(object.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0);
  if (fd_ < 0)
    refuse(400, "region '{}': the shared memory '{}' cannot be opened: {}", name_,
           one_line(key_, 64), std::strerror(errno));
  const uint64_t there = size_of_object(fd_);
  if (there < offset + bytes) {
    ::close(fd_);
    refuse(400, "region '{}' expects {} bytes from byte {} on, and '{}' has {}", name_, bytes,
           offset, one_line(key_, 64), there);
  }
}

SharedRegion::~SharedRegion() { ::close(fd_); }

void SharedRegion::read(uint64_t at, char* to, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = pread(fd_, to + done, bytes - done, static_cast<off_t>(offset_ + at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      refuse(400, "region '{}' ends after {} of {} bytes: its shared memory was cut off", name_,
             done, bytes);
    done += static_cast<size_t>(n);
  }
}

void SharedRegion::write(uint64_t at, std::string_view bytes) const {
  // A write beyond the end would make the object larger.
  if (size_of_object(fd_) < offset_ + at + bytes.size())
    refuse(400, "region '{}' has no {} bytes from byte {} on: its shared memory was cut off", name_,
           bytes.size(), at);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = pwrite(fd_, bytes.data() + done, bytes.size() - done,
                             static_cast<off_t>(offset_ + at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      refuse(503, "region '{}' took {} of {} bytes: {}", name_, done, bytes.size(),
             std::strerror(errno));
    done += static_cast<size_t>(n);
  }
}

void SharedMemory::check_allowed() const {
  if (!allowed_) refuse(403, "this server takes no shared memory; start it with --shared-memory");
}

void SharedMemory::add(const std::string& name, const std::string& key, uint64_t offset,
                       uint64_t bytes) {
  check_allowed();
  if (name.empty() || name.size() > kMostRegionName)
    refuse(400, "the name of a region has 1 to {} bytes, got {}", kMostRegionName, name.size());
  if (!io::is_utf8(name) || !io::is_utf8(key))
    refuse(400, "the name of a region and its key are texts in UTF-8");
  const auto region = std::make_shared<const SharedRegion>(name, key, offset, bytes);
  const std::lock_guard hold(lock_);
  if (regions_.contains(name))
    refuse(409, "region '{}' is registered already; unregister it first", one_line(name, 64));
  if (regions_.size() >= kMostRegions)
    refuse(429, "{} regions are registered, which is the most", kMostRegions);
  regions_.emplace(name, region);
}

void SharedMemory::remove(const std::string& name) {
  check_allowed();
  const std::lock_guard hold(lock_);
  if (name.empty())
    regions_.clear();
  else
    regions_.erase(name);
}

std::vector<SharedRegionPtr> SharedMemory::list(const std::string& name) const {
  check_allowed();
  const std::lock_guard hold(lock_);
  std::vector<SharedRegionPtr> out;
  for (const auto& [other, region] : regions_)
    if (name.empty() || other == name) out.push_back(region);
  if (!name.empty() && out.empty())
    refuse(404, "there is no region '{}' of shared memory", one_line(name, 64));
  return out;
}

SharedRange SharedMemory::range(const SharedAsk& ask, const std::string& what) const {
  check_allowed();
  if (ask.region.empty() || !ask.bytes)
    refuse(400, "{} expects both 'shared_memory_region' and 'shared_memory_byte_size'", what);
  if (*ask.bytes < 0 || ask.offset < 0)
    refuse(400, "{} has {} bytes from byte {} of shared memory on: neither may be negative", what,
           *ask.bytes, ask.offset);
  const SharedRange out{list(ask.region)[0], static_cast<uint64_t>(ask.offset),
                        static_cast<size_t>(*ask.bytes)};
  if (out.at > out.region->bytes() || out.bytes > out.region->bytes() - out.at)
    refuse(400, "{} has {} bytes from byte {} on of region '{}', which has {}", what, out.bytes,
           out.at, out.region->name(), out.region->bytes());
  return out;
}

}  // namespace tandem::serve
