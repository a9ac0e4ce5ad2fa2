// SPDX-License-Identifier: Apache-2.0
// Checksums of mutated files made right, and changes that keep the structure of a format.
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/hash/crc32c.h"
#include "tandem/io/tensorflow/tfrecord.h"
#include "tests/readers/readers.h"

namespace tandem::readers {

uint64_t little(std::string_view s, size_t at, size_t n) {
  uint64_t v = 0;
  for (size_t i = n; i-- > 0;) v = v << 8 | static_cast<unsigned char>(s[at + i]);
  return v;
}
uint64_t big(std::string_view s, size_t at, size_t n) {
  uint64_t v = 0;
  for (size_t i = 0; i < n; ++i) v = v << 8 | static_cast<unsigned char>(s[at + i]);
  return v;
}
void put_little(std::string& s, size_t at, uint64_t v, size_t n) {
  for (size_t i = 0; i < n; ++i) s[at + i] = static_cast<char>(v >> (8 * i));
}
void put_big(std::string& s, size_t at, uint64_t v, size_t n) {
  for (size_t i = 0; i < n; ++i) s[at + i] = static_cast<char>(v >> (8 * (n - 1 - i)));
}

namespace {

uint32_t crc_of(std::string_view s) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(s.data()), static_cast<uInt>(s.size())));
}

/// What a raw deflate stream holds: its checksum and size; up to 16 MiB.
bool inflated(std::string_view s, uint32_t& crc, uint64_t& size, size_t& used) {
  z_stream z{};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return false;
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(s.data()));
  z.avail_in = static_cast<uInt>(s.size());
  std::vector<unsigned char> piece(1 << 16);
  crc = 0;
  size = 0;
  int code = Z_OK;
  while (code == Z_OK && size < (16 << 20)) {
    z.next_out = piece.data();
    z.avail_out = static_cast<uInt>(piece.size());
    code = inflate(&z, Z_NO_FLUSH);
    const size_t n = piece.size() - z.avail_out;
    crc = static_cast<uint32_t>(crc32(crc, piece.data(), static_cast<uInt>(n)));
    size += n;
    if (n == 0 && z.avail_in == 0) break;
  }
  used = s.size() - z.avail_in;
  inflateEnd(&z);
  return code == Z_STREAM_END;
}

unsigned crc8(std::string_view s) {
  unsigned c = 0;
  for (const char x : s) {
    c ^= static_cast<unsigned char>(x);
    for (int k = 0; k < 8; ++k) c = (c & 0x80 ? c << 1 ^ 0x07 : c << 1) & 0xFF;
  }
  return c;
}
unsigned crc16(std::string_view s) {
  unsigned c = 0;
  for (const char x : s) {
    c ^= static_cast<unsigned>(static_cast<unsigned char>(x)) << 8;
    for (int k = 0; k < 8; ++k) c = (c & 0x8000 ? c << 1 ^ 0x8005 : c << 1) & 0xFFFF;
  }
  return c;
}

/// Where the checksum of a FLAC frame's header lies; 0: this is not a header.
size_t flac_header_end(std::string_view s, size_t at) {
  if (s.size() - at < 8 || s[at] != '\xff' ||
      (static_cast<unsigned char>(s[at + 1]) & 0xFE) != 0xF8)
    return 0;
  const auto sizes = static_cast<unsigned char>(s[at + 2]);
  const auto first = static_cast<unsigned char>(s[at + 4]);
  size_t n = 5;
  for (unsigned bit = 0x80; first & bit && bit > 1; bit >>= 1)
    if (bit != 0x80) ++n;
  if ((sizes >> 4) == 6) n += 1;
  if ((sizes >> 4) == 7) n += 2;
  if ((sizes & 15) == 12) n += 1;
  if ((sizes & 15) == 13 || (sizes & 15) == 14) n += 2;
  return at + n < s.size() ? at + n : 0;
}

}  // namespace

void repair_tfrecord(std::string& s) {
  for (size_t at = 0; s.size() - at >= 16;) {
    const uint64_t n = little(s, at, 8);
    if (n > s.size() - at - 16) {
      const std::string head = s.substr(at, 8);
      // A length of any size with its right checksum, which is that of a content of the same bytes.
      const std::string as_content = io::tfrecord(head);
      s.replace(at + 8, 4, as_content.substr(as_content.size() - 4));
      return;
    }
    s.replace(at, 16 + n, io::tfrecord(std::string_view(s).substr(at + 12, n)));
    at += 16 + n;
  }
}

void repair_tar(std::string& s) {
  for (size_t at = 0; at + 512 <= s.size();) {
    std::fill_n(s.begin() + static_cast<ptrdiff_t>(at) + 148, 8, ' ');
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(s[at + i]);
    std::string digits(7, '0');
    for (size_t i = 6; i-- > 0; sum /= 8) digits[i] = static_cast<char>('0' + sum % 8);
    digits[6] = '\0';
    s.replace(at + 148, 7, digits);
    uint64_t size = 0;
    for (size_t i = 124; i < 135; ++i)
      if (s[at + i] >= '0' && s[at + i] <= '7')
        size = size * 8 + static_cast<uint64_t>(s[at + i] - '0');
    if (size > s.size()) return;
    at += 512 + (size + 511) / 512 * 512;
  }
}

void repair_png(std::string& s) {
  for (size_t at = 8; at + 12 <= s.size();) {
    const uint64_t n = big(s, at, 4);
    if (n > s.size() - at - 12) return;
    put_big(s, at + 8 + n, crc_of(std::string_view(s).substr(at + 4, n + 4)), 4);
    at += 12 + n;
  }
}

void repair_gzip(std::string& s) {
  if (s.size() < 20 || s[0] != '\x1f' || s[1] != '\x8b' || s[3] != 0) return;
  uint32_t crc = 0;
  uint64_t size = 0;
  size_t used = 0;
  if (!inflated(std::string_view(s).substr(10), crc, size, used) || s.size() < 10 + used + 8)
    return;
  put_little(s, 10 + used, crc, 4);
  put_little(s, 14 + used, size, 4);
}

void repair_zip(std::string& s) {
  for (size_t at = s.find("PK\x01\x02"); at != s.npos && at + 46 <= s.size();
       at = s.find("PK\x01\x02", at + 46)) {
    const uint64_t header = little(s, at + 42, 4), packed = little(s, at + 20, 4);
    if (header + 30 > s.size() || s.compare(header, 4, "PK\x03\x04") != 0) continue;
    const uint64_t data = header + 30 + little(s, header + 26, 2) + little(s, header + 28, 2);
    if (data > s.size() || packed > s.size() - data) continue;
    const std::string_view content = std::string_view(s).substr(data, packed);
    uint32_t crc = 0;
    uint64_t size = packed;
    size_t used = 0;
    if (little(s, at + 10, 2) == 0)
      crc = crc_of(content);
    else if (!inflated(content, crc, size, used))
      continue;
    put_little(s, at + 16, crc, 4);
    put_little(s, header + 14, crc, 4);
    if (size != packed) put_little(s, at + 24, size, 4);
  }
}

void repair_flac(std::string& s) {
  if (s.size() > 42) s.replace(26, 16, std::string(16, '\0'));  // no MD5 sum: nothing to compare
  size_t frame = 0;
  const auto close = [&](size_t end) {
    if (frame > 0 && end >= frame + 8)
      put_big(s, end - 2, crc16(std::string_view(s).substr(frame, end - 2 - frame)), 2);
  };
  for (size_t at = 42; at + 8 < s.size(); ++at) {
    const size_t end = flac_header_end(s, at);
    if (end == 0) continue;
    close(at);
    s[end] = static_cast<char>(crc8(std::string_view(s).substr(at, end - at)));
    frame = at;
    at = end;
  }
  close(s.size());
}

// The blocks of a sorted table of TensorFlow: entries up to the empty meta index, and the two that
// the last 48 bytes name.
void repair_table(std::string& s) {
  if (s.size() < 64) return;
  size_t at = s.size() - 48;
  const auto number = [&] {
    uint64_t v = 0;
    for (int shift = 0; shift < 63 && at < s.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(s[at++]);
      v |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) break;
    }
    return v;
  };
  const auto close = [&](uint64_t from, uint64_t size) {
    if (from > s.size() || size > s.size() - from || s.size() - from - size < 5) return;
    const uint32_t c = crc32c(std::string_view(s).substr(from, size + 1));
    put_little(s, from + size + 1, (c >> 15 | c << 17) + 0xA282EAD8U, 4);
  };
  const uint64_t meta = number(), meta_size = number(), index = number(), index_size = number();
  if (meta >= 5) close(0, meta - 5);
  close(meta, meta_size);
  close(index, index_size);
}

// ---- changes that keep the structure

namespace {

constexpr uint64_t kExtremes[] = {0,
                                  1,
                                  2,
                                  3,
                                  7,
                                  8,
                                  127,
                                  128,
                                  255,
                                  256,
                                  65535,
                                  65536,
                                  (1ull << 20),
                                  (1ull << 28),
                                  (1ull << 31) - 1,
                                  1ull << 31,
                                  1ull << 32,
                                  1ull << 33,
                                  1ull << 40,
                                  (1ull << 62) - 1,
                                  1ull << 62,
                                  1ull << 63,
                                  ~0ull >> 1,
                                  ~0ull,
                                  ~0ull - 1};

}  // namespace

void put_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}
uint64_t extreme(Random& random) { return kExtremes[random() % std::size(kExtremes)]; }

namespace {

bool take_varint(std::string_view s, size_t& at, uint64_t& v) {
  v = 0;
  for (int shift = 0; shift < 70 && at < s.size(); shift += 7) {
    const auto b = static_cast<unsigned char>(s[at++]);
    v |= static_cast<uint64_t>(b & 0x7F) << (shift < 64 ? shift : 63);
    if (b < 0x80) return true;
  }
  return false;
}

struct Piece {
  size_t begin = 0, value = 0, end = 0;
  uint64_t key = 0, number = 0;
};
/// The fields of a message; false where it is none.
bool pieces_of(std::string_view s, std::vector<Piece>& out) {
  for (size_t at = 0; at < s.size();) {
    Piece p;
    p.begin = at;
    if (!take_varint(s, at, p.key) || p.key >> 3 == 0) return false;
    p.value = at;
    switch (p.key & 7) {
      case 0:
        if (!take_varint(s, at, p.number)) return false;
        break;
      case 1:
        at += 8;
        break;
      case 5:
        at += 4;
        break;
      case 2:
        if (!take_varint(s, at, p.number) || p.number > s.size() - at) return false;
        p.value = at;
        at += p.number;
        break;
      default:
        return false;
    }
    if (at > s.size()) return false;
    p.end = at;
    out.push_back(p);
  }
  return true;
}

std::string changed_message(std::string_view s, Random& random, int depth) {
  std::vector<Piece> pieces;
  if (!pieces_of(s, pieces) || pieces.empty()) {
    std::string any(s);
    if (!any.empty()) any[random() % any.size()] = static_cast<char>(extreme(random));
    return any;
  }
  const Piece& p = pieces[random() % pieces.size()];
  std::string middle;
  const unsigned what = static_cast<unsigned>(random() % 10);
  if (what == 0) {  // dropped
  } else if (what == 1) {
    for (uint64_t k = 2 + random() % 3; k > 0; --k) middle += s.substr(p.begin, p.end - p.begin);
  } else if (what == 2) {  // another field's content under this key
    const Piece& q = pieces[random() % pieces.size()];
    middle = s.substr(q.begin, q.end - q.begin);
  } else if ((p.key & 7) == 2) {
    const std::string_view inside = s.substr(p.value, p.end - p.value);
    std::vector<Piece> within;
    std::string made;
    if (depth < 12 && pieces_of(inside, within) && what < 9)
      made = changed_message(inside, random, depth + 1);
    else if (what == 3)
      made = std::string(inside.substr(0, inside.size() / 2));
    else
      for (made = inside; what > 6 && !made.empty();) {
        made[random() % made.size()] = static_cast<char>(extreme(random));
        break;
      }
    if (what == 4) put_varint(made, extreme(random));
    put_varint(middle, p.key);
    put_varint(middle, made.size());
    middle += made;
  } else {
    put_varint(middle, p.key);
    if ((p.key & 7) == 0) {
      put_varint(middle, what % 2 ? extreme(random) : p.number + random() % 3 - 1);
    } else {
      std::string v(s.substr(p.value, p.end - p.value));
      v[random() % v.size()] = static_cast<char>(extreme(random));
      middle += v;
    }
  }
  return std::string(s.substr(0, p.begin)) + middle + std::string(s.substr(p.end));
}

}  // namespace

void mutate_bytes(std::string& s, Random& random) {
  const size_t at = s.empty() ? 0 : random() % s.size();
  switch (random() % 9) {
    case 0:
      if (!s.empty()) s[at] = static_cast<char>(s[at] ^ (1 << random() % 8));
      return;
    case 1:
      if (!s.empty()) s[at] = static_cast<char>(extreme(random));
      return;
    case 2: {
      const size_t n = size_t{1} << random() % 4;
      if (s.size() >= n) put_little(s, random() % (s.size() - n + 1), extreme(random), n);
      return;
    }
    case 3: {
      const size_t n = size_t{1} << random() % 4;
      if (s.size() >= n) put_big(s, random() % (s.size() - n + 1), extreme(random), n);
      return;
    }
    case 4:
      s.erase(at, 1 + random() % 16);
      return;
    case 5:
      s.insert(at, s.substr(at / 2, 1 + random() % 64));
      return;
    case 6:
      s.insert(at, std::string(1 + random() % 8, static_cast<char>(random())));
      return;
    case 7:
      s.resize(at);
      return;
    default:
      for (int k = 0; k < 8 && !s.empty(); ++k)
        s[random() % s.size()] = static_cast<char>(random());
  }
}

void mutate_protobuf(std::string& s, Random& random) { s = changed_message(s, random, 0); }

void mutate_text(std::string& s, Random& random) {
  static constexpr const char* kWords[] = {"-1",
                                           "0",
                                           "1e308",
                                           "1e999",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "4294967296",
                                           "NaN",
                                           "[]",
                                           "{}",
                                           "\"\"",
                                           "null",
                                           "true",
                                           "[[[[",
                                           "}}",
                                           "\\u0000",
                                           "*a",
                                           "&a",
                                           "(a*)*b",
                                           ",",
                                           "\n",
                                           "\""};
  std::vector<std::pair<size_t, size_t>> found;
  for (size_t i = 0; i < s.size();) {
    size_t end = i;
    const auto word = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '.';
    };
    while (end < s.size() && word(s[end])) ++end;
    if (end > i) found.emplace_back(i, end - i);
    i = end + 1;
  }
  if (found.empty()) return mutate_bytes(s, random);
  const auto [at, n] = found[random() % found.size()];
  const auto [other, m] = found[random() % found.size()];
  switch (random() % 4) {
    case 0:
      s.replace(at, n, s.substr(other, m));
      return;
    case 1:
      s.insert(at, s.substr(std::min(at, other),
                            std::min<size_t>(200, at > other ? at - other : other - at)));
      return;
    default:
      s.replace(at, n, kWords[random() % std::size(kWords)]);
  }
}

void mutate(const Reader& r, std::string& bytes, Random& random) {
  for (uint64_t k = 1 + random() % 3; k > 0; --k) {
    if (r.mutate && random() % 4 != 0)
      r.mutate(bytes, random);
    else
      mutate_bytes(bytes, random);
  }
  if (r.repair && random() % 4 != 0) r.repair(bytes);
}

}  // namespace tandem::readers
