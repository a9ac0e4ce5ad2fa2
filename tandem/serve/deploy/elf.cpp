// SPDX-License-Identifier: Apache-2.0
// After the System V ABI, chapters 4 and 5, and ld.so(8). Offsets come from the file: each is
// checked before it is followed.
#include <elf.h>
#include <glob.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "tandem/base/ascii.h"
#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/io/json.h"
#include "tandem/serve/deploy/elf_internal.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kOpenedNote = 0x407c0c0a;
constexpr size_t kLongestText = 4096;  // many entries may point to one text

class ElfReader {
 public:
  explicit ElfReader(const std::string& path) : file_(make_ref<MappedFile>(path)) {
    const std::string_view all = file_->view();
    const auto head = at<Elf64_Ehdr>(0);
    TD_CHECK(head && all.starts_with("\177ELF") && head->e_ident[EI_CLASS] == ELFCLASS64 &&
                 head->e_ident[EI_DATA] ==
                     (std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB),
             Format, "'{}' is not a 64-bit ELF program or library of this machine", path);
    facts_.machine = head->e_machine;
    TD_CHECK(head->e_phentsize == sizeof(Elf64_Phdr), Format, "'{}': damaged ELF header", path);
    for (size_t i = 0; i < head->e_phnum; ++i)
      parts_.push_back(want<Elf64_Phdr>(head->e_phoff + i * sizeof(Elf64_Phdr)));
    for (const Elf64_Phdr& p : parts_) {
      if (p.p_type == PT_INTERP) facts_.interpreter = text_in(piece(p.p_offset, p.p_filesz), 0);
      if (p.p_type == PT_NOTE) read_notes(piece(p.p_offset, p.p_filesz));
      if (p.p_type == PT_DYNAMIC) read_dynamic(p);
    }
  }
  ElfFacts take() { return std::move(facts_); }

 private:
  template <class T>
  std::optional<T> at(uint64_t offset) const {
    const std::string_view all = file_->view();
    if (offset > all.size() || all.size() - offset < sizeof(T)) return {};
    T out;
    std::memcpy(&out, all.data() + offset, sizeof out);
    return out;
  }
  template <class T>
  T want(uint64_t offset) const {
    const auto found = at<T>(offset);
    TD_CHECK(found, Format, "'{}' is truncated or damaged", file_->path());
    return *found;
  }
  std::string_view piece(uint64_t offset, uint64_t bytes) const {
    const std::string_view all = file_->view();
    TD_CHECK(offset <= all.size() && bytes <= all.size() - offset, Format,
             "'{}' is truncated or damaged", file_->path());
    return all.substr(offset, bytes);
  }
  std::string text_in(std::string_view table, uint64_t at) const {
    TD_CHECK(at < table.size(), Format, "'{}' is truncated or damaged", file_->path());
    const std::string_view rest = table.substr(at, kLongestText);
    return std::string(rest.substr(0, rest.find('\0')));
  }
  // The rest of the file from where an address of memory lies.
  std::string_view from_address(uint64_t address) const {
    for (const Elf64_Phdr& p : parts_)
      if (p.p_type == PT_LOAD && address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz)
        return piece(p.p_offset, p.p_filesz).substr(address - p.p_vaddr);
    return {};
  }

  void read_dynamic(const Elf64_Phdr& p) {
    std::vector<Elf64_Dyn> entries;
    uint64_t table = 0;
    bool newer = false;  // DT_RUNPATH: DT_RPATH does not count
    for (uint64_t k = 0; (k + 1) * sizeof(Elf64_Dyn) <= p.p_filesz; ++k) {
      entries.push_back(want<Elf64_Dyn>(p.p_offset + k * sizeof(Elf64_Dyn)));
      const Elf64_Dyn& d = entries.back();
      if (d.d_tag == DT_NULL) break;
      if (d.d_tag == DT_STRTAB) table = d.d_un.d_ptr;
      newer = newer || d.d_tag == DT_RUNPATH;
    }
    const std::string_view texts = from_address(table);
    for (const Elf64_Dyn& d : entries) {
      if (d.d_tag == DT_NEEDED) facts_.needed.push_back(text_in(texts, d.d_un.d_val));
      if (d.d_tag == DT_RUNPATH || (d.d_tag == DT_RPATH && !newer)) {
        std::string all = text_in(texts, d.d_un.d_val);
        for (size_t from = 0; from <= all.size();) {
          const size_t end = std::min(all.find(':', from), all.size());
          if (end > from) facts_.search.push_back(all.substr(from, end - from));
          from = end + 1;
        }
      }
    }
  }

  void read_notes(std::string_view notes) {
    const auto padded = [](uint64_t n) { return (n + 3) & ~uint64_t{3}; };
    while (notes.size() >= sizeof(Elf64_Nhdr)) {
      Elf64_Nhdr head;
      std::memcpy(&head, notes.data(), sizeof head);
      const uint64_t name = sizeof head, text = name + padded(head.n_namesz),
                     end = text + padded(head.n_descsz);
      if (end > notes.size()) return;
      if (head.n_type == kOpenedNote && notes.substr(name, 4) == std::string_view("FDO\0", 4))
        read_opened(text_in(notes.substr(text, head.n_descsz), 0));
      notes.remove_prefix(end);
    }
  }
  void read_opened(const std::string& text) {
    const io::Json json = io::parse_json(text, file_->path());
    if (!json.as_array()) return;
    for (const io::Json& entry : *json.as_array()) {
      const io::Json* names = entry.find("soname");
      if (!names || !names->as_array()) continue;
      for (const io::Json& name : *names->as_array())
        if (name.as_string()) facts_.opened.push_back(*name.as_string());
    }
  }

  Ref<MappedFile> file_;
  std::vector<Elf64_Phdr> parts_;
  ElfFacts facts_;
};

// The folders that ld.so.conf names, in its order.
void read_loader_config(const std::string& path, std::vector<std::string>& out, int depth = 0) {
  constexpr int kDeepest = 8;
  std::error_code error;
  if (depth > kDeepest || !fs::is_regular_file(path, error)) return;
  const std::string text = read_file(path, size_t{1} << 20);
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    std::string_view line = std::string_view(text).substr(from, end - from);
    line = trimmed(line.substr(0, line.find('#')));
    from = end + 1;
    if (line.starts_with("include ")) {
      glob_t found{};
      if (glob(std::string(trimmed(line.substr(8))).c_str(), 0, nullptr, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; ++i)
          read_loader_config(found.gl_pathv[i], out, depth + 1);
      globfree(&found);
    } else if (line.starts_with('/')) {
      out.emplace_back(line);
    }
  }
}

/// Libraries as the loader finds them.
class LibrarySearch {
 public:
  explicit LibrarySearch(int machine) : machine_(machine) {
    read_loader_config("/etc/ld.so.conf", folders_);
    for (const char* folder : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"})
      folders_.emplace_back(folder);
    if (const char* more = std::getenv("LD_LIBRARY_PATH")) {
      std::string_view all = more;
      while (!all.empty()) {
        const size_t end = std::min(all.find(':'), all.size());
        if (end > 0) first_.emplace_back(all.substr(0, end));
        all.remove_prefix(std::min(end + 1, all.size()));
      }
    }
  }
  /// "" where it is not there. `from`: the file that asks, which looks in `search` first.
  std::string find(const std::string& name, const std::string& from,
                   const std::vector<std::string>& search) const {
    if (name.find('/') != std::string::npos) return fits(name) ? name : "";
    std::vector<std::string> places = first_;
    for (std::string place : search) {
      for (const std::string_view origin : {"$ORIGIN", "${ORIGIN}"})
        if (const size_t at = place.find(origin); at != std::string::npos)
          place.replace(at, origin.size(), fs::path(from).parent_path().string());
      places.push_back(std::move(place));
    }
    places.insert(places.end(), folders_.begin(), folders_.end());
    for (const std::string& place : places)
      if (std::string path = (fs::path(place) / name).string(); fits(path)) return path;
    return "";
  }

 private:
  bool fits(const std::string& path) const {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return false;
    try {
      return read_elf(path).machine == machine_;
    } catch (const Error&) {  // of another word size, or a linker script
      return false;
    }
  }
  int machine_;
  std::vector<std::string> first_, folders_;
};

}  // namespace

ElfFacts read_elf(const std::string& path) { return ElfReader(path).take(); }

ProgramFiles files_of_program(const std::string& program) {
  ElfFacts facts = read_elf(program);
  TD_CHECK(!facts.interpreter.empty(), Format, "'{}' is not a program with a loader", program);
  const LibrarySearch search(facts.machine);
  ProgramFiles out{.program = program, .interpreter = facts.interpreter};
  const std::string loader = fs::path(facts.interpreter).filename().string();
  std::map<std::string, std::string> found;
  // What is still to be read, and whose folders it may be found in.
  std::vector<std::pair<std::string, ElfFacts>> open;
  open.emplace_back(fs::canonical(program).string(), std::move(facts));
  while (!open.empty()) {
    const std::pair<std::string, ElfFacts> asking = std::move(open.back());
    open.pop_back();
    const auto add = [&](const std::string& name, bool needed) {
      if (name == loader || found.count(name)) return;
      const std::string at = search.find(name, asking.first, asking.second.search);
      TD_CHECK(!needed || !at.empty(), Io, "'{}' needs the library {}, which is not installed",
               asking.first, name);
      if (at.empty()) {
        out.missing.push_back(name);
        return;
      }
      found[name] = at;
      open.emplace_back(fs::canonical(at).string(), read_elf(at));
    };
    for (const std::string& name : asking.second.needed) add(name, true);
    for (const std::string& name : asking.second.opened) add(name, false);
  }
  out.libraries.assign(found.begin(), found.end());
  const auto c = found.find("libc.so.6");
  out.folder = c == found.end() ? "/lib" : fs::path(c->second).parent_path().string();
  return out;
}

}  // namespace tandem::serve
