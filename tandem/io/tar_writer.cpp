// SPDX-License-Identifier: Apache-2.0
// After pax(1) of POSIX.1-2017, "pax Interchange Format".
#include "tandem/io/tar_writer.h"

#include <fmt/format.h>

#include <array>

#include "tandem/base/error.h"

namespace tandem::io {
namespace {

constexpr size_t kTarBlock = 512, kShortName = 100;
constexpr uint64_t kOctalSize = uint64_t{1} << 33;  // of 11 digits

// "LENGTH KEY=VALUE\n", whose length counts its own digits.
std::string pax_record(std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length) ++length;
  return fmt::format("{} {}={}\n", length, key, value);
}

}  // namespace

void TarWriter::header(const std::string& name, char type, uint64_t size, int mode) {
  std::string more;
  if (name.size() > kShortName) more += pax_record("path", name);
  if (size >= kOctalSize) more += pax_record("size", std::to_string(size));
  if (!more.empty()) {
    header("pax", 'x', more.size(), 0644);
    file_.write(more);
    pad(more.size());
  }
  std::array<char, kTarBlock> block{};
  const auto put = [&block](size_t at, std::string_view text) {
    std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(0, std::string_view(name).substr(0, kShortName));
  put(100, fmt::format("{:07o}", mode));
  put(108, "0000000");  // user and group
  put(116, "0000000");
  put(124, fmt::format("{:011o}", size < kOctalSize ? size : 0));
  put(136, "00000000000");  // time
  put(148, "        ");     // the sum, while it is taken
  block[156] = type;
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + '\0');
  file_.write({block.data(), block.size()});
}

void TarWriter::pad(uint64_t size) {
  static constexpr std::array<char, kTarBlock> kZeros{};
  file_.write({kZeros.data(), (kTarBlock - size % kTarBlock) % kTarBlock});
}

void TarWriter::folder(const std::string& name, int mode) { header(name + "/", '5', 0, mode); }

void TarWriter::file(const std::string& name, std::string_view content, int mode) {
  TD_CHECK(!name.empty() && name[0] != '/', Value, "tar: '{}' is not a relative name", name);
  header(name, '0', content.size(), mode);
  file_.write(content);
  pad(content.size());
}

void TarWriter::commit() {
  file_.write(std::string(2 * kTarBlock, '\0'));
  file_.commit();
}

}  // namespace tandem::io
