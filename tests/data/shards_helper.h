// SPDX-License-Identifier: Apache-2.0
// Tar archives for tests: entry by entry, with custom headers.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace tandem::data {

/// The header of an entry of `size` bytes.
inline std::string tar_head(const std::string& name, size_t bytes, char type = '0') {
  std::string head(512, '\0');
  std::copy(name.begin(), name.end(), head.begin());
  const std::string size = fmt::format("{:011o}", bytes);
  std::copy(size.begin(), size.end(), head.begin() + 124);
  head[156] = type;
  std::string("ustar\00000", 8).copy(head.data() + 257, 8);
  std::fill_n(head.begin() + 148, 8, ' ');
  unsigned sum = 0;
  for (const char c : head) sum += static_cast<unsigned char>(c);
  fmt::format("{:06o}", sum).copy(head.data() + 148, 6);
  head[154] = '\0';
  return head;
}

/// A whole entry.
inline std::string tar_entry(const std::string& name, std::string_view bytes, char type = '0') {
  return tar_head(name, bytes.size(), type) + std::string(bytes) +
         std::string((512 - bytes.size() % 512) % 512, '\0');
}

}  // namespace tandem::data
