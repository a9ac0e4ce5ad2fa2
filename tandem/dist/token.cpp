// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/files/private_folder.h"
#include "tandem/base/hash/sha256.h"
#include "tandem/dist/token_internal.h"

namespace tandem::distributed {

Bytes32 hmac(std::string_view key, std::string_view text) {
  constexpr size_t kBlock = 64;
  std::string k(key);
  if (k.size() > kBlock) {
    const Bytes32 h = sha256(k);
    k.assign(reinterpret_cast<const char*>(h.data()), h.size());
  }
  k.resize(kBlock, '\0');
  std::string inner, outer;
  for (const char c : k) {
    inner += static_cast<char>(c ^ 0x36);
    outer += static_cast<char>(c ^ 0x5C);
  }
  const Bytes32 h = sha256(inner.append(text));
  return sha256(outer.append(reinterpret_cast<const char*>(h.data()), h.size()));
}

bool equal(const Bytes32& a, const Bytes32& b) {
  unsigned differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned>(a[i] ^ b[i]);
  return differs == 0;
}

Bytes32 random_bytes() {
  Bytes32 bytes;
  TD_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), Io,
           "the system gives no random bytes: {}", std::strerror(errno));
  return bytes;
}

std::string random_token() {
  std::string text;
  for (const unsigned char b : random_bytes()) text += fmt::format("{:02x}", b);
  return text;
}

std::string job_token() {
  if (const char* given = std::getenv("TANDEM_TOKEN"); given && *given) {
    TD_CHECK(
        std::strlen(given) >= 16, Value,
        "TANDEM_TOKEN has {} characters, expected at least 16\nMake one with `openssl rand -hex "
        "32`, the same for all ranks.",
        std::strlen(given));
    return given;
  }
  const PrivateFolder folder = PrivateFolder::cache();
  TD_CHECK(
      folder, Io,
      "the ranks of a job must prove that they belong together, and there is no secret: {}\nSet "
      "TANDEM_TOKEN to the same 16 or more characters for all ranks.",
      folder.problem());
  // Ranks that start at the same time must read the same one: the lock lets the first of them make
  // it.
  constexpr const char* kName = "dist-token";
  if (const int fd = folder.open_file("dist-token.lock", O_RDWR | O_CREAT); fd >= 0) {
    ::flock(fd, LOCK_EX);
    if (const int there = folder.open_file(kName, O_RDONLY); there >= 0)
      ::close(there);
    else
      folder.write(kName, random_token());
    ::close(fd);
  }
  return folder.read(kName, 4096);
}

}  // namespace tandem::distributed
