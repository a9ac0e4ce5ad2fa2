// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/function_names_internal.h"

#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

namespace tandem::distributed {
namespace {

/// Parts of a file as arrays; empty where it has not as much.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : in_(path, std::ios::binary) {
    const std::vector<ElfW(Ehdr)> first = read<ElfW(Ehdr)>(0, 1);
    constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
    if (first.empty() || std::memcmp(first[0].e_ident, ELFMAG, SELFMAG) != 0 ||
        first[0].e_ident[EI_CLASS] != kClass || first[0].e_shentsize != sizeof(ElfW(Shdr)))
      return;
    relocated_ = first[0].e_type == ET_DYN;
    sections_ = read<ElfW(Shdr)>(first[0].e_shoff, first[0].e_shnum);
  }
  bool relocated() const { return relocated_; }
  const ElfW(Shdr) * table_of_symbols() const {
    for (const ElfW(Shdr) & s : sections_)
      if (s.sh_type == SHT_SYMTAB && s.sh_entsize == sizeof(ElfW(Sym)) &&
          s.sh_link < sections_.size())
        return &s;
    return nullptr;
  }
  std::vector<ElfW(Sym)> symbols(const ElfW(Shdr) & table) {
    return read<ElfW(Sym)>(table.sh_offset, table.sh_size / sizeof(ElfW(Sym)));
  }
  std::string name(const ElfW(Shdr) & table, const ElfW(Sym) & symbol) {
    const ElfW(Shdr)& names = sections_[table.sh_link];
    if (symbol.st_name >= names.sh_size) return "";
    const uint64_t most = std::min<uint64_t>(names.sh_size - symbol.st_name, 1000);
    const std::vector<char> text = read<char>(names.sh_offset + symbol.st_name, most);
    return {text.data(), ::strnlen(text.data(), text.size())};
  }

 private:
  template <class T>
  std::vector<T> read(uint64_t at, uint64_t count) {
    constexpr uint64_t kMost = uint64_t{1} << 26;  // of a file that is not what it says
    if (count > kMost) return {};
    std::vector<T> all(count);
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(at));
    in_.read(reinterpret_cast<char*>(all.data()), static_cast<std::streamsize>(count * sizeof(T)));
    if (!in_) all.clear();
    return all;
  }
  std::ifstream in_;
  bool relocated_ = false;
  std::vector<ElfW(Shdr)> sections_;
};

}  // namespace

FunctionAt function_at(const std::string& path, uint64_t base, uint64_t at) {
  ElfFile file(path);
  const ElfW(Shdr)* table = file.table_of_symbols();
  if (!table) return {};
  const uint64_t address = file.relocated() ? at - base : at;
  for (const ElfW(Sym) & s : file.symbols(*table))
    if ((s.st_info & 0xf) == STT_FUNC && s.st_value <= address && address - s.st_value < s.st_size)
      return {file.name(*table, s), address - s.st_value};
  return {};
}

}  // namespace tandem::distributed
