// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/zip_internal.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/io/bytes_internal.h"
#include "tandem/io/json.h"

namespace tandem::io {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                   kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                 kLocator64Bytes = 20;
constexpr uint16_t kExtra64 = 1, kExtraPadding = 0xd935;
constexpr uint32_t k32 = 0xFFFFFFFF;
constexpr uint16_t k16 = 0xFFFF;
constexpr size_t kMemberAlign = 64;
constexpr uint64_t kRatio = 1032;  // deflate's best ratio

template <class... T>
[[noreturn]] TD_COLD void fail(const MappedFile& file, fmt::format_string<T...> format,
                               const T&... args) {
  TD_FAIL(Format, "'{}': {}", file.path(), fmt::vformat(format, fmt::make_format_args(args...)));
}

uint32_t crc_of(uint32_t crc, const char* data, size_t bytes) {
  for (size_t n; bytes > 0; data += n, bytes -= n) {
    n = std::min(bytes, kZlibPiece);
    crc = static_cast<uint32_t>(
        crc32(crc, reinterpret_cast<const Bytef*>(data), static_cast<uInt>(n)));
  }
  return crc;
}

/// Offset of the end record: the last position from which its comment reaches the end of the file.
size_t find_end(const MappedFile& file) {
  const std::string_view all = file.view();
  if (all.size() < kEndBytes)
    fail(file, "this is not a zip file: {} bytes are too few", all.size());
  const size_t last = all.size() - kEndBytes;
  for (size_t i = 0; i <= std::min<size_t>(last, k16); ++i) {
    const size_t at = last - i;
    if (number_at<uint32_t>(all, at) == kEnd && number_at<uint16_t>(all, at + 20) == i) return at;
  }
  fail(file, "this is not a zip file, or it is truncated: its end record is missing");
}

}  // namespace

ZipReader::ZipReader(const FilePath& path) : file_(make_ref<MappedFile>(path)) {
  const std::string_view all = file_->view();
  const size_t end = find_end(*file_);
  uint64_t count = number_at<uint16_t>(all, end + 10), bytes = number_at<uint32_t>(all, end + 12),
           at = number_at<uint32_t>(all, end + 16);
  uint64_t disks = number_at<uint16_t>(all, end + 4) | number_at<uint16_t>(all, end + 6);
  uint64_t limit = end;
  const bool wide = count == k16 || bytes == k32 || at == k32;
  if (wide && end >= kLocator64Bytes &&
      number_at<uint32_t>(all, end - kLocator64Bytes) == kLocator64) {
    const uint64_t end64 = number_at<uint64_t>(all, end - kLocator64Bytes + 8);
    limit = end - kLocator64Bytes;
    if (end64 > limit || limit - end64 < kEnd64Bytes || number_at<uint32_t>(all, end64) != kEnd64)
      fail(*file_, "the zip file is damaged: its Zip64 end record is not at byte {}", end64);
    disks = number_at<uint32_t>(all, end64 + 16) | number_at<uint32_t>(all, end64 + 20);
    count = number_at<uint64_t>(all, end64 + 32);
    bytes = number_at<uint64_t>(all, end64 + 40);
    at = number_at<uint64_t>(all, end64 + 48);
    limit = end64;
  }
  if (disks != 0)
    fail(*file_, "the zip file is part of a multi-part archive, which is not supported");
  if (at > limit || bytes > limit - at)
    fail(*file_, "the zip file is damaged: its directory claims {} bytes at byte {} of {}", bytes,
         at, all.size());
  read_directory(at, bytes, count);
  check_overlap();
}

void ZipReader::read_directory(uint64_t at, uint64_t bytes, uint64_t count) {
  const std::string_view directory = file_->view().substr(at, bytes);
  size_t i = 0;
  while (i < directory.size()) {
    if (directory.size() - i < kCentralBytes || number_at<uint32_t>(directory, i) != kCentral)
      fail(*file_, "the zip file is damaged: entry {} of its directory is invalid",
           members_.size());
    const size_t size = kCentralBytes + number_at<uint16_t>(directory, i + 28) +
                        number_at<uint16_t>(directory, i + 30) +
                        number_at<uint16_t>(directory, i + 32);
    if (size > directory.size() - i)
      fail(*file_, "the zip file is damaged: entry {} of its directory is truncated",
           members_.size());
    read_member(directory.substr(i, size), at);
    i += size;
  }
  if (members_.size() != count)
    fail(*file_, "the zip file is damaged: its directory has {} entries, {} were announced",
         members_.size(), count);
}

void ZipReader::read_member(std::string_view e, uint64_t limit) {
  ZipMember m;
  const size_t name = number_at<uint16_t>(e, 28), extra = number_at<uint16_t>(e, 30);
  m.name = e.substr(kCentralBytes, name);
  const std::string quoted = quote_json(m.name);
  if (number_at<uint16_t>(e, 8) & 1) fail(*file_, "the member {} is encrypted", quoted);
  const uint16_t method = number_at<uint16_t>(e, 10);
  if (method != 0 && method != 8)
    fail(*file_,
         "the member {} is compressed by method {}, only stored and deflated ones can be read",
         quoted, method);
  m.deflated = method == 8;
  m.crc = number_at<uint32_t>(e, 16);
  m.packed = number_at<uint32_t>(e, 20);
  m.size = number_at<uint32_t>(e, 24);
  m.header = number_at<uint32_t>(e, 42);
  // Zip64: the extra field holds, in this order, the values that did not fit 32 bits.
  std::string_view more = e.substr(kCentralBytes + name, extra);
  while (more.size() >= 4) {
    const size_t n = number_at<uint16_t>(more, 2);
    if (n > more.size() - 4) break;
    std::string_view field = more.substr(4, n);
    if (number_at<uint16_t>(more, 0) == kExtra64)
      for (uint64_t* v : {&m.size, &m.packed, &m.header})
        if (*v == k32 && field.size() >= 8) {
          *v = number_at<uint64_t>(field, 0);
          field.remove_prefix(8);
        }
    more.remove_prefix(4 + n);
  }
  const std::string_view all = file_->view();
  if (m.header > limit || limit - m.header < kLocalBytes ||
      number_at<uint32_t>(all, m.header) != kLocal)
    fail(*file_, "the zip file is damaged: the member {} is not at byte {}", quoted, m.header);
  // The local header has its own name and extra field, whose lengths may differ.
  m.data = m.header + kLocalBytes + number_at<uint16_t>(all, m.header + 26) +
           number_at<uint16_t>(all, m.header + 28);
  if (m.data > limit || m.packed > limit - m.data)
    fail(*file_, "the member {} is truncated: {} bytes at byte {} of {}", quoted, m.packed, m.data,
         all.size());
  if (all.substr(m.header + kLocalBytes, number_at<uint16_t>(all, m.header + 26)) != m.name)
    fail(*file_, "the zip file is damaged: the member {} has a different name in its own header",
         quoted);
  if (m.deflated ? m.size / kRatio > m.packed + 64 : m.size != m.packed)
    fail(*file_, "the member {} cannot hold {} bytes in {}", quoted, m.size, m.packed);
  members_.push_back(std::move(m));
}

/// No byte of the file may belong to two members: else a small file could hold any amount of data.
void ZipReader::check_overlap() const {
  std::vector<const ZipMember*> sorted;
  for (const ZipMember& m : members_) sorted.push_back(&m);
  std::sort(sorted.begin(), sorted.end(),
            [](const ZipMember* a, const ZipMember* b) { return a->header < b->header; });
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i - 1]->data + sorted[i - 1]->packed > sorted[i]->header)
      fail(*file_, "the zip file is damaged: the members {} and {} overlap",
           quote_json(sorted[i - 1]->name), quote_json(sorted[i]->name));
}

std::string_view ZipReader::stored(const ZipMember& m) const {
  TD_ASSERT(!m.deflated);
  const std::string_view content = file_->view().substr(m.data, m.size);
  if (crc_of(0, content.data(), content.size()) != m.crc)
    fail(*file_, "the member {} is damaged: its checksum differs", quote_json(m.name));
  return content;
}

struct ZipStream::State {
  const MappedFile& file;
  const ZipMember& member;
  uint64_t at = 0, given = 0;
  uint32_t crc = 0;
  bool over = false;
  z_stream z{};
};

ZipStream::ZipStream(const ZipReader& zip, const ZipMember& member)
    : state_(new State{*zip.file(), member}) {
  if (member.deflated)
    TD_CHECK(inflateInit2(&state_->z, -MAX_WBITS) == Z_OK, Memory,
             "out of memory reading zip data");
}
ZipStream::~ZipStream() {
  if (state_->member.deflated) inflateEnd(&state_->z);
}

size_t ZipStream::read(void* to, size_t bytes) {
  State& s = *state_;
  const ZipMember& m = s.member;
  const std::string_view in = s.file.view().substr(m.data, m.packed);
  const size_t want = static_cast<size_t>(std::min<uint64_t>(bytes, m.size - s.given));
  size_t done = 0;
  auto* out = static_cast<char*>(to);
  if (!m.deflated && want > 0) {
    std::memcpy(out, in.data() + s.given, want);
    done = want;
  }
  // One byte of room past the content tells whether the stream ends where it should.
  char beyond;
  while (m.deflated && !s.over && (done < want || s.given + done == m.size)) {
    const bool full = done == want;
    const size_t room = full ? 1 : std::min(want - done, kZlibPiece);
    s.z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data() + s.at));
    s.z.avail_in = static_cast<uInt>(std::min<uint64_t>(in.size() - s.at, kZlibPiece));
    s.z.next_out = reinterpret_cast<Bytef*>(full ? &beyond : out + done);
    s.z.avail_out = static_cast<uInt>(room);
    const uInt had = s.z.avail_in;
    const int code = inflate(&s.z, Z_NO_FLUSH);
    s.at += had - s.z.avail_in;
    const size_t got = room - s.z.avail_out;
    if (full && got > 0)
      fail(s.file, "the member {} holds more than its {} bytes", quote_json(m.name), m.size);
    if (!full) done += got;
    s.over = code == Z_STREAM_END;
    TD_CHECK(code != Z_MEM_ERROR, Memory, "out of memory reading zip data");
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      fail(s.file, "the member {} is damaged ({})", quote_json(m.name),
           s.z.msg ? s.z.msg : "unexpected data");
    if (!s.over && s.at == in.size() && got == 0)
      fail(s.file, "the member {} ends early", quote_json(m.name));
  }
  s.crc = crc_of(s.crc, out, done);
  s.given += done;
  if (m.deflated && s.over && s.given < m.size && done < want)
    fail(s.file, "the member {} ends early: {} bytes of {}", quote_json(m.name), s.given, m.size);
  if (s.given == m.size && s.crc != m.crc)
    fail(s.file, "the member {} is damaged: its checksum differs", quote_json(m.name));
  return done;
}

namespace {

std::string deflate_all(const ZipPieces& content) {
  z_stream z{};
  TD_CHECK(deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK, Memory,
           "out of memory writing zip data");
  std::string out;
  std::vector<char> buffer(size_t{64} << 10);
  auto run = [&](std::string_view piece, int flush) {
    size_t at = 0;
    int code = Z_OK;
    do {
      const size_t n = std::min(piece.size() - at, kZlibPiece);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data() + at));
      z.avail_in = static_cast<uInt>(n);
      z.next_out = reinterpret_cast<Bytef*>(buffer.data());
      z.avail_out = static_cast<uInt>(buffer.size());
      code = deflate(&z, flush);
      at += n - z.avail_in;
      out.append(buffer.data(), buffer.size() - z.avail_out);
    } while (flush == Z_FINISH ? code != Z_STREAM_END : at < piece.size() || z.avail_out == 0);
  };
  for (const std::string_view piece : content) run(piece, Z_NO_FLUSH);
  run({}, Z_FINISH);
  deflateEnd(&z);
  return out;
}

/// The fields that local headers and directory entries share.
void put_common(std::string& s, const ZipMember& m, bool wide) {
  const bool ascii = std::all_of(m.name.begin(), m.name.end(), [](char c) { return c >= 0; });
  append_number<uint16_t>(s, wide ? 45 : 20);       // version needed to extract
  append_number<uint16_t>(s, ascii ? 0 : 1 << 11);  // the name is UTF-8
  append_number<uint16_t>(s, m.deflated ? 8 : 0);
  append_number<uint16_t>(s, 0);  // time and date: 1 January 1980, 00:00
  append_number<uint16_t>(s, 1 << 5 | 1);
  append_number<uint32_t>(s, m.crc);
  append_number<uint32_t>(s, m.packed >= k32 ? k32 : static_cast<uint32_t>(m.packed));
  append_number<uint32_t>(s, m.size >= k32 ? k32 : static_cast<uint32_t>(m.size));
  append_number<uint16_t>(s, static_cast<uint16_t>(m.name.size()));
}

}  // namespace

void ZipWriter::add(const std::string& name, const ZipPieces& content, bool deflate, size_t lead) {
  TD_CHECK(name.size() < 60000, Value, "a name of {} bytes is too long for a zip file",
           name.size());
  ZipMember m{.name = name, .deflated = deflate, .header = file_.written()};
  for (const std::string_view piece : content) {
    m.crc = crc_of(m.crc, piece.data(), piece.size());
    m.size += piece.size();
  }
  const std::string packed = deflate ? deflate_all(content) : "";
  m.packed = deflate ? packed.size() : m.size;
  std::string extra;
  const bool wide = m.size >= k32 || m.packed >= k32;
  if (wide) {  // a local header gives both sizes or none
    append_number<uint16_t>(extra, kExtra64);
    append_number<uint16_t>(extra, 16);
    append_number<uint64_t>(extra, m.size);
    append_number<uint64_t>(extra, m.packed);
  }
  if (!deflate) {
    const uint64_t at = m.header + kLocalBytes + name.size() + extra.size() + 4 + lead;
    const size_t padding = (kMemberAlign - at % kMemberAlign) % kMemberAlign;
    append_number<uint16_t>(extra, kExtraPadding);
    append_number<uint16_t>(extra, static_cast<uint16_t>(padding));
    extra.append(padding, '\0');
  }
  std::string head;
  append_number<uint32_t>(head, kLocal);
  put_common(head, m, wide);
  if (wide) {
    std::memset(head.data() + 18, 0xFF, 8);
  }
  append_number<uint16_t>(head, static_cast<uint16_t>(extra.size()));
  file_.write(head + name + extra);
  if (deflate)
    file_.write(packed);
  else
    for (const std::string_view piece : content) file_.write(piece);
  members_.push_back(std::move(m));
}

void ZipWriter::commit() {
  const uint64_t at = file_.written();
  for (const ZipMember& m : members_) {
    std::string extra;
    for (const uint64_t v : {m.size, m.packed, m.header})
      if (v >= k32) append_number<uint64_t>(extra, v);
    const bool wide = !extra.empty();
    std::string e;
    append_number<uint32_t>(e, kCentral);
    append_number<uint16_t>(e, wide ? 45 : 20);  // version made by
    put_common(e, m, wide);
    append_number<uint16_t>(e, static_cast<uint16_t>(wide ? extra.size() + 4 : 0));
    append_number<uint16_t>(e, 0);  // comment, disk, attributes
    append_number<uint16_t>(e, 0);
    append_number<uint16_t>(e, 0);
    append_number<uint32_t>(e, 0);
    append_number<uint32_t>(e, m.header >= k32 ? k32 : static_cast<uint32_t>(m.header));
    e += m.name;
    if (wide) {
      append_number<uint16_t>(e, kExtra64);
      append_number<uint16_t>(e, static_cast<uint16_t>(extra.size()));
      e += extra;
    }
    file_.write(e);
  }
  const uint64_t bytes = file_.written() - at, count = members_.size();
  std::string end;
  if (count >= k16 || bytes >= k32 || at >= k32) {
    append_number<uint32_t>(end, kEnd64);
    append_number<uint64_t>(end, kEnd64Bytes - 12);
    append_number<uint16_t>(end, 45);
    append_number<uint16_t>(end, 45);
    append_number<uint64_t>(end, 0);  // disks
    append_number<uint64_t>(end, count);
    append_number<uint64_t>(end, count);
    append_number<uint64_t>(end, bytes);
    append_number<uint64_t>(end, at);
    append_number<uint32_t>(end, kLocator64);
    append_number<uint32_t>(end, 0);
    append_number<uint64_t>(end, at + bytes);
    append_number<uint32_t>(end, 1);
  }
  const auto count16 = static_cast<uint16_t>(std::min<uint64_t>(count, k16));
  append_number<uint32_t>(end, kEnd);
  append_number<uint32_t>(end, 0);
  append_number<uint16_t>(end, count16);
  append_number<uint16_t>(end, count16);
  append_number<uint32_t>(end, static_cast<uint32_t>(std::min<uint64_t>(bytes, k32)));
  append_number<uint32_t>(end, static_cast<uint32_t>(std::min<uint64_t>(at, k32)));
  append_number<uint16_t>(end, 0);
  file_.write(end);
  file_.commit();
}

}  // namespace tandem::io
