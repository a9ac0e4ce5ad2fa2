// SPDX-License-Identifier: Apache-2.0
// Text as file formats and protocols mean it: ASCII alone, whatever the locale.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

/// Without blanks and tabs at both ends.
constexpr std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
inline std::string ascii_lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = ascii_lower(c);
  return out;
}

}  // namespace tandem
