// SPDX-License-Identifier: Apache-2.0
// After pax(1) of POSIX.1-2017, "ustar Interchange Format", and GNU tar's manual.
#include "tandem/io/tar.h"

#include <algorithm>
#include <optional>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/base/files/mapped_pages.h"

namespace tandem::io {
namespace {

constexpr uint64_t kBlock = 512;

std::string text_at(std::string_view head, size_t at, size_t n) {
  const std::string_view s = head.substr(at, n);
  return std::string(s.substr(0, s.find('\0')));
}

// Octal digits between blanks and zero bytes, or GNU's binary form (highest bit set).
std::optional<uint64_t> octal_at(std::string_view head, size_t at, size_t n) {
  const std::string_view s = head.substr(at, n);
  uint64_t v = 0;
  if ((static_cast<unsigned char>(s[0]) & 0x80) != 0) {
    for (size_t i = n - 8; i < n; ++i) v = v << 8 | static_cast<unsigned char>(s[i]);
    for (size_t i = 1; i + 8 < n; ++i)
      if (s[i] != 0) return {};
    return v;
  }
  for (const char c : s) {
    if (c == ' ' || c == '\0') continue;
    if (c < '0' || c > '7') return {};
    v = v * 8 + static_cast<uint64_t>(c - '0');
  }
  return v;
}

bool sum_is_right(std::string_view head) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(head[i]);
  return octal_at(head, 148, 8) == sum;
}

// "LENGTH KEY=VALUE\n" ...: the value of `key`, if it is there.
std::optional<std::string> pax_value(std::string_view all, std::string_view key) {
  std::optional<std::string> found;
  while (!all.empty()) {
    size_t length = 0, at = 0;
    for (; at < all.size() && all[at] >= '0' && all[at] <= '9' && length < all.size(); ++at)
      length = length * 10 + static_cast<size_t>(all[at] - '0');
    if (length <= at + 1 || length > all.size()) return found;
    const std::string_view record = all.substr(at + 1, length - at - 2);
    const size_t equal = record.find('=');
    if (equal != record.npos && record.substr(0, equal) == key)
      found = std::string(record.substr(equal + 1));
    all.remove_prefix(length);
  }
  return found;
}

}  // namespace

TarFile::TarFile(const FilePath& path, TarFileOptions options) : file_(make_ref<MappedFile>(path)) {
  try {
    read_heads();
  } catch (const Error& e) {
    if (!options.keep_whole || e.kind() != ErrorKind::Format) throw;
    damage_ = e.what();
  }
}

void TarFile::read_heads() {
  const std::string_view all = file_->view();
  const Budget budget(this->path(), all.size());
  TD_CHECK(!all.starts_with("\x1f\x8b"), Format,
           "'{}' is compressed\nUnpack it with gunzip: entries are read in place.", this->path());
  std::string long_name;
  std::optional<uint64_t> long_size;
  for (uint64_t at = 0; at < all.size();) {
    TD_CHECK(all.size() - at >= kBlock, Format, "'{}' is truncated at byte {}", this->path(), at);
    const std::string_view head = all.substr(at, kBlock);
    passed_mapped(head.data(), kBlock);
    if (std::all_of(head.begin(), head.end(), [](char c) { return c == 0; })) break;
    TD_CHECK(sum_is_right(head), Format,
             "'{}': the header at byte {} is damaged, or this is not a tar archive", this->path(),
             at);
    const auto size = long_size ? long_size : octal_at(head, 124, 12);
    TD_CHECK(size && *size <= all.size() - at - kBlock, Format,
             "'{}': the entry at byte {} is truncated or its size is damaged", this->path(), at);
    const std::string_view bytes = all.substr(at + kBlock, *size);
    at += std::min(kBlock + (*size + kBlock - 1) / kBlock * kBlock, all.size() - at);
    const char type = head[156];
    if (type == 'L') {
      long_name = text_at(bytes, 0, bytes.size());
      continue;
    }
    if (type == 'x') {
      if (auto name = pax_value(bytes, "path")) long_name = *name;
      if (auto n = pax_value(bytes, "size")) {
        uint64_t v = 0;
        for (const char c : *n) v = v * 10 + static_cast<uint64_t>(c - '0');
        long_size = v;
      }
      continue;
    }
    if (type == '0' || type == '\0' || type == '7') {
      std::string name = long_name;
      if (name.empty()) {
        name = text_at(head, 0, 100);
        const std::string prefix = head.substr(257, 5) == "ustar" ? text_at(head, 345, 155) : "";
        if (!prefix.empty() && head[262] == '\0') name = prefix + "/" + name;
      }
      Budget::take(2 * sizeof(Entry) + name.size());
      Budget::count();
      entries_.push_back({std::move(name), bytes});
    }
    long_name.clear();
    long_size.reset();
  }
}

}  // namespace tandem::io
