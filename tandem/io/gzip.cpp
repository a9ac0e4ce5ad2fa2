// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/io/bytes_internal.h"

namespace tandem::io {
namespace {

constexpr int kGzipOnly = 16 + MAX_WBITS;

bool begins_as_gzip(std::string_view s) {
  return s.size() >= 2 && static_cast<unsigned char>(s[0]) == 0x1F &&
         static_cast<unsigned char>(s[1]) == 0x8B;
}

/// Inflates gzip members from `in`, which it advances. Zero bytes may follow the last member
/// (padding); anything else is an error.
class Inflater {
 public:
  Inflater() {
    if (inflateInit2(&z_, kGzipOnly) != Z_OK) TD_FAIL(Memory, "out of memory reading gzip data");
  }
  ~Inflater() { inflateEnd(&z_); }
  Inflater(const Inflater&) = delete;

  size_t read(std::string_view in, size_t& at, void* to, size_t bytes, const std::string& name) {
    size_t done = 0;
    while (!over_ && done < bytes) {
      z_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data() + at));
      z_.avail_in = static_cast<uInt>(std::min(in.size() - at, kZlibPiece));
      const uInt room = static_cast<uInt>(std::min(bytes - done, kZlibPiece));
      z_.next_out = static_cast<Bytef*>(to) + done;
      z_.avail_out = room;
      const uInt had = z_.avail_in;
      const int code = inflate(&z_, Z_NO_FLUSH);
      at += had - z_.avail_in;
      done += room - z_.avail_out;
      if (code == Z_STREAM_END) {
        next_member(in, at, name);
        continue;
      }
      TD_CHECK(code != Z_MEM_ERROR, Memory, "out of memory reading gzip data");
      TD_CHECK(code == Z_OK || code == Z_BUF_ERROR, Format, "'{}': the gzip data is damaged ({})",
               name, z_.msg ? z_.msg : "unexpected data");
      TD_CHECK(at < in.size() || z_.avail_out == 0, Format,
               "'{}': the gzip data ends early, after {} bytes of the file", name, in.size());
    }
    return done;
  }

 private:
  void next_member(std::string_view in, size_t& at, const std::string& name) {
    if (begins_as_gzip(in.substr(at))) {
      inflateReset(&z_);
      return;
    }
    over_ = true;
    for (; at < in.size(); ++at)
      TD_CHECK(in[at] == 0, Format, "'{}': unexpected bytes after the gzip data, at byte {}", name,
               at);
  }

  z_stream z_{};
  bool over_ = false;
};

}  // namespace

struct InputFile::Inflate : Inflater {};

InputFile::InputFile(const FilePath& path) : file_(make_ref<MappedFile>(path)) {
  if (begins_as_gzip(file_->view())) inflate_ = std::make_unique<Inflate>();
}
InputFile::~InputFile() = default;

size_t InputFile::read(void* to, size_t bytes) {
  if (inflate_) return inflate_->read(file_->view(), at_, to, bytes, file_->path());
  const size_t n = std::min(bytes, file_->size() - at_);
  if (n > 0) std::memcpy(to, file_->data() + at_, n);
  at_ += n;
  return n;
}

std::string InputFile::read_rest(size_t limit) {
  std::string text;
  size_t used = 0;
  for (;;) {
    const size_t piece = std::max<size_t>(64 << 10, used / 2);
    Budget::take(piece);
    text.resize(used + piece);
    const size_t n = read(text.data() + used, piece);
    used += n;
    TD_CHECK(used <= limit, Format, "'{}' holds more than the {} bytes that are allowed here",
             path(), limit);
    if (n < piece) break;
  }
  text.resize(used);
  return text;
}

uint64_t InputFile::most_bytes() const {
  const uint64_t left = file_->size() - at_;
  return inflate_ ? (left + 1) * 1032 + (64 << 10) : left;
}

std::string gzip(std::string_view text, int level) {
  TD_CHECK(level >= 0 && level <= 9, Value, "gzip: the level must be 0 to 9, got {}", level);
  z_stream z{};
  TD_CHECK(deflateInit2(&z, level, Z_DEFLATED, kGzipOnly, 8, Z_DEFAULT_STRATEGY) == Z_OK, Memory,
           "out of memory writing gzip data");
  std::string out;
  char piece[16 << 10];
  size_t at = 0;
  int code = Z_OK;
  while (code != Z_STREAM_END) {
    const size_t n = std::min(text.size() - at, kZlibPiece);
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data() + at));
    z.avail_in = static_cast<uInt>(n);
    z.next_out = reinterpret_cast<Bytef*>(piece);
    z.avail_out = sizeof piece;
    code = deflate(&z, at + n == text.size() ? Z_FINISH : Z_NO_FLUSH);
    at += n - z.avail_in;
    out.append(piece, sizeof piece - z.avail_out);
  }
  deflateEnd(&z);
  return out;
}

std::string gunzip(std::string_view data, size_t limit) {
  TD_CHECK(begins_as_gzip(data), Format, "this is not gzip data: it does not begin with 1f 8b");
  Inflater inflater;
  std::string text;
  size_t at = 0, used = 0;
  for (;;) {
    const size_t piece = std::max<size_t>(16 << 10, used / 2);
    Budget::take(piece);
    text.resize(used + piece);
    const size_t n = inflater.read(data, at, text.data() + used, piece, "gzip data");
    used += n;
    TD_CHECK(used <= limit, Format, "the gzip data holds more than the {} bytes allowed here",
             limit);
    if (n < piece) break;
  }
  text.resize(used);
  return text;
}

}  // namespace tandem::io
