// SPDX-License-Identifier: Apache-2.0
// Files that a server and `tandem deploy` are pointed at, as readers: configurations in protobuf's
// text format, recorded requests, programs.
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tandem/io/text_proto.h"
#include "tandem/serve/deploy/elf_internal.h"
#include "tandem/serve/record.h"
#include "tests/readers/readers.h"

namespace tandem::readers {
namespace {

/// A file without a name while one reader looks at it.
class NamelessFile {
 public:
  explicit NamelessFile(std::string_view bytes) : fd_(memfd_create("reader", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      std::abort();
  }
  ~NamelessFile() { ::close(fd_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

template <class T>
void put(std::string& out, size_t at, const T& value) {
  if (out.size() < at + sizeof value) out.resize(at + sizeof value, '\0');
  std::memcpy(out.data() + at, &value, sizeof value);
}

// A program of headers alone: what it needs, a search path and a note of what it opens.
std::string small_program() {
  constexpr size_t kParts = sizeof(Elf64_Ehdr), kDynamic = 512, kTexts = 768, kNote = 1024;
  const std::string texts("\0libc.so.6\0$ORIGIN/../lib:/opt/lib\0/lib64/ld.so\0", 49),
      json = "[{\"soname\":[\"libx.so.1\"]}]";
  std::string out(2048, '\0');
  Elf64_Ehdr head{};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_ident[EI_DATA] = ELFDATA2LSB;
  head.e_machine = EM_X86_64;
  head.e_phoff = kParts;
  head.e_phentsize = sizeof(Elf64_Phdr);
  head.e_phnum = 4;
  put(out, 0, head);
  const auto part = [&out](size_t k, uint32_t type, uint64_t at, uint64_t bytes) {
    Elf64_Phdr p{};
    p.p_type = type;
    p.p_offset = p.p_vaddr = at;
    p.p_filesz = p.p_memsz = bytes;
    put(out, kParts + k * sizeof p, p);
  };
  part(0, PT_LOAD, 0, out.size());
  part(1, PT_DYNAMIC, kDynamic, 4 * sizeof(Elf64_Dyn));
  part(2, PT_NOTE, kNote, sizeof(Elf64_Nhdr) + 4 + json.size() + 1);
  part(3, PT_INTERP, kTexts + 36, 13);
  const std::pair<int64_t, uint64_t> dynamic[] = {
      {DT_STRTAB, kTexts}, {DT_NEEDED, 1}, {DT_RUNPATH, 11}, {DT_NULL, 0}};
  for (size_t k = 0; k < std::size(dynamic); ++k) {
    Elf64_Dyn d{};
    d.d_tag = dynamic[k].first;
    d.d_un.d_val = dynamic[k].second;
    put(out, kDynamic + k * sizeof d, d);
  }
  std::memcpy(out.data() + kTexts, texts.data(), texts.size());
  put(out, kNote, Elf64_Nhdr{4, static_cast<uint32_t>(json.size() + 1), 0x407c0c0a});
  std::memcpy(out.data() + kNote + sizeof(Elf64_Nhdr), "FDO", 4);
  std::memcpy(out.data() + kNote + sizeof(Elf64_Nhdr) + 4, json.data(), json.size());
  return out;
}

}  // namespace

std::vector<std::string> text_proto_seeds() {
  return {"name: \"m\" max_batch_size: 8\ninput [ { name: 'x' dims: [ -1, 3 ] } ]\n# end\n",
          "model_config_list { config { name: 'a\\x41\\101' base_path: \"/m\" } }",
          "a < b: 1.5 c: true > [x.y] { } list: [1, 2] e: []"};
}
void read_text_proto(std::string_view bytes) { io::parse_text_proto(bytes, "it.pbtxt"); }

std::vector<std::string> recorded_seeds() {
  const std::string one =
      "{\"at\":0.5,\"method\":\"POST\",\"path\":\"/predictions/m\",\"headers\":{\"accept\":\"*/"
      "*\"},"
      "\"body_bytes\":4,\"status\":200,\"answer_bytes\":3}\n[[1]abc\n";
  return {one, one + one, ""};
}
void read_recorded_requests(std::string_view bytes) {
  serve::read_recorded(NamelessFile(bytes).path());
}

std::vector<std::string> elf_seeds() { return {small_program()}; }
void read_program(std::string_view bytes) {
  const serve::ElfFacts facts = serve::read_elf(NamelessFile(bytes).path());
  for (const std::string& name : facts.needed)
    TD_CHECK(name.size() <= 4096, Internal, "a name of {} bytes", name.size());
}

}  // namespace tandem::readers
