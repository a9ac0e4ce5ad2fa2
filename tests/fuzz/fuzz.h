// SPDX-License-Identifier: Apache-2.0
// Shared by the libFuzzer programs. Bytes are read, or rejected with Format or Unsupported; any
// other exception fails the program. Each program creates its own initial inputs with the library's
// writers: TANDEM_FUZZ_SEEDS names the folder for them.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "tandem/base/error.h"
#include "tandem/init.h"

namespace tandem::fuzz {

/// Reads by `read`; 0 for libFuzzer.
inline int check(const std::function<void()>& read) {
  static const bool ready = (init(), true);
  (void)ready;
  try {
    read();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Format && e.kind() != ErrorKind::Unsupported) {
      std::fprintf(stderr, "refused as %s: %s\n", to_string(e.kind()), e.what());
      __builtin_trap();
    }
  }
  return 0;
}

/// A file in memory that holds the bytes of one run.
class File {
 public:
  explicit File(const char* end)
      : path_("/dev/shm/tandem_fuzz_" + std::to_string(getpid()) + end) {}
  ~File() { std::remove(path_.c_str()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  const std::string& write(const uint8_t* data, size_t size) {
    FILE* f = std::fopen(path_.c_str(), "wb");
    if (!f || std::fwrite(data, 1, size, f) != size || std::fclose(f) != 0) std::abort();
    return path_;
  }

 private:
  std::string path_;
};

/// The folder for initial inputs, with a trailing '/'; empty: none are requested.
inline std::string seeds() {
  const char* folder = std::getenv("TANDEM_FUZZ_SEEDS");
  if (!folder) return {};
  init();
  return std::string(folder) + "/";
}

}  // namespace tandem::fuzz
