// SPDX-License-Identifier: Apache-2.0
// Memory of this process as the system counts it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace tandem::bench {

/// Bytes of a line of /proc/self/status: "VmRSS:" resident now, "VmHWM:" at most, "RssAnon:"
/// without files; 0 where the system does not say.
inline int64_t resident_bytes(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(field, 0) == 0) return 1024 * std::atoll(line.c_str() + std::strlen(field));
  return 0;
}

}  // namespace tandem::bench
