// SPDX-License-Identifier: Apache-2.0
// Files written byte by byte, where no writer of the library's writes what is wanted.
#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>

#include "tests/data/shards_helper.h"
#include "tests/readers/readers.h"

namespace tandem::readers {

std::string big_endian(std::initializer_list<std::pair<uint64_t, int>> numbers) {
  std::string out;
  for (const auto& [v, bytes] : numbers)
    for (int k = bytes - 1; k >= 0; --k) out += static_cast<char>(v >> (8 * k));
  return out;
}
std::string little_endian(std::initializer_list<std::pair<uint64_t, int>> numbers) {
  std::string out;
  for (const auto& [v, bytes] : numbers)
    for (int k = 0; k < bytes; ++k) out += static_cast<char>(k < 8 ? v >> (8 * k) : 0);
  return out;
}

std::string deflate(std::string_view data, uint64_t copies, bool raw, std::string_view head) {
  z_stream z{};
  if (deflateInit2(&z, 9, Z_DEFLATED, raw ? -MAX_WBITS : MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return {};
  std::string out;
  std::string room(1 << 16, '\0');
  const auto add = [&](std::string_view piece, int flush) {
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    z.avail_in = static_cast<uInt>(piece.size());
    do {
      z.next_out = reinterpret_cast<Bytef*>(room.data());
      z.avail_out = static_cast<uInt>(room.size());
      ::deflate(&z, flush);
      out.append(room, 0, room.size() - z.avail_out);
    } while (z.avail_out == 0);
  };
  add(head, Z_NO_FLUSH);
  for (uint64_t k = 0; k < copies; ++k) add(data, Z_NO_FLUSH);
  add("", Z_FINISH);
  deflateEnd(&z);
  return out;
}

namespace {
uint32_t crc_with(uint32_t crc, std::string_view s) {
  return static_cast<uint32_t>(
      crc32(crc, reinterpret_cast<const Bytef*>(s.data()), static_cast<uInt>(s.size())));
}
}  // namespace

std::string gzip_bomb(std::string_view head, uint64_t mebibytes, char fill) {
  const std::string piece(1 << 20, fill);
  uint32_t crc = crc_with(0, head);
  for (uint64_t k = 0; k < mebibytes; ++k) crc = crc_with(crc, piece);
  return std::string("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10) + deflate(piece, mebibytes, true, head) +
         little_endian({{crc, 4}, {head.size() + (mebibytes << 20), 4}});
}

std::string png(uint64_t w, uint64_t h) {
  const auto chunk = [](std::string_view kind, std::string_view data) {
    return big_endian({{data.size(), 4}}) + std::string(kind) + std::string(data) +
           std::string(4, '\0');
  };
  std::string s = "\x89PNG\r\n\x1a\n";
  s += chunk("IHDR", big_endian({{w, 4}, {h, 4}, {8, 1}, {2, 1}, {0, 1}, {0, 1}, {0, 1}}));
  s += chunk("IDAT", deflate(std::string(3 * w + 1, '\0'), h));
  s += chunk("IEND", "");
  repair_png(s);
  return s;
}

std::string tar_entry(std::string_view name, std::string_view bytes, char type) {
  return data::tar_entry(std::string(name), bytes, type);
}

std::string codestream(uint64_t w, uint64_t h, uint64_t t, uint64_t p) {
  return big_endian({{0xff4fff51, 4},
                     {41, 2},
                     {0, 2},
                     {w, 4},
                     {h, 4},
                     {0, 8},
                     {t, 4},
                     {t, 4},
                     {0, 8},
                     {1, 2},
                     {7, 1},
                     {1, 1},
                     {1, 1}}) +
         big_endian({{0xff52, 2},
                     {13, 2},
                     {1, 1},
                     {0, 1},
                     {1, 2},
                     {0, 1},
                     {0, 1},
                     {4, 1},
                     {4, 1},
                     {0, 1},
                     {1, 1},
                     {p << 4 | p, 1}}) +
         big_endian({{0xff90, 2}, {10, 2}, {0, 2}, {0, 4}, {0, 1}, {1, 1}, {0xff93, 2}}) +
         std::string(20, '\x80') + "\xff\xd9";
}

std::string tiff(uint64_t w, uint64_t h, uint64_t compression, std::string_view data) {
  std::string out =
      "II*" + std::string(1, '\0') + little_endian({{8 + data.size(), 4}}) + std::string(data);
  const std::pair<uint64_t, uint64_t> tags[] = {{256, w},           {257, h}, {258, 8},
                                                {259, compression}, {262, 1}, {273, 8},
                                                {277, 1},           {278, h}, {279, data.size()}};
  out += little_endian({{std::size(tags), 2}});
  for (const auto& [tag, v] : tags) out += little_endian({{tag, 2}, {4, 2}, {1, 4}, {v, 4}});
  return out + little_endian({{0, 4}});
}

std::string jpeg(uint64_t w, uint64_t h, int scans) {
  const auto segment = [](uint64_t marker, std::string_view data) {
    return big_endian({{marker, 2}, {data.size() + 2, 2}}) + std::string(data);
  };
  std::string s = big_endian({{0xffd8, 2}});
  s += segment(0xffdb, std::string(1, '\0') + std::string(64, '\x01'));
  s += segment(scans > 0 ? 0xffc2 : 0xffc0,
               big_endian({{8, 1}, {h, 2}, {w, 2}, {1, 1}, {1, 1}, {0x11, 1}, {0, 1}}));
  // One code of one bit: no difference, and no coefficients.
  for (const uint64_t table : {0x00, 0x10})
    s += segment(0xffc4, big_endian({{table, 1}, {1, 1}, {0, 8}, {0, 7}, {0, 1}}));
  const uint64_t blocks = ((w + 7) / 8) * ((h + 7) / 8);
  for (int k = 0; k < std::max(scans, 1); ++k) {
    const uint64_t from = scans == 0 || k == 0 ? 0 : 1 + 20 * (static_cast<uint64_t>(k - 1) % 3);
    const uint64_t to = scans == 0 ? 63 : k == 0 ? 0 : from == 41 ? 63 : from + 19;
    s += segment(0xffda, big_endian({{1, 1}, {1, 1}, {0, 1}, {from, 1}, {to, 1}, {0, 1}}));
    const uint64_t bits = blocks * (scans == 0 ? 2 : 1);
    std::string data(std::min<uint64_t>(bits / 8, 64), '\0');
    if (bits % 8 != 0) data += static_cast<char>(0xff >> (bits % 8));
    s += data;
  }
  return s + big_endian({{0xffd9, 2}});
}

std::string flac(int frames) {
  std::string s = "fLaC" + big_endian({{0x80, 1}, {34, 3}, {65535, 2}, {65535, 2}, {0, 3}, {0, 3}});
  s += big_endian({{uint64_t{44100} << 44 | uint64_t{7} << 41 | uint64_t{15} << 36 |
                        static_cast<uint64_t>(frames) * 65535,
                    8},
                   {0, 8},
                   {0, 8}});
  for (int k = 0; k < frames; ++k) {
    s += big_endian({{0xfff8, 2}, {0x79, 1}, {0x78, 1}});
    const auto n = static_cast<uint64_t>(k);  // coded as a character of UTF-8
    if (n < 0x80)
      s += static_cast<char>(n);
    else if (n < 0x800)
      s += big_endian({{0xC0 | n >> 6, 1}, {0x80 | (n & 63), 1}});
    else
      s += big_endian({{0xE0 | n >> 12, 1}, {0x80 | (n >> 6 & 63), 1}, {0x80 | (n & 63), 1}});
    s += big_endian({{65534, 2}, {0, 1}});
    for (int c = 0; c < 8; ++c) s += big_endian({{0, 3}});
    s += big_endian({{0, 2}});
  }
  repair_flac(s);
  return s;
}

std::string wav(std::string_view data, uint64_t channels) {
  return "RIFF" + little_endian({{36 + data.size(), 4}}) + "WAVEfmt " +
         little_endian({{16, 4},
                        {1, 2},
                        {channels, 2},
                        {8000, 4},
                        {16000 * channels, 4},
                        {2 * channels, 2},
                        {16, 2}}) +
         "data" + little_endian({{data.size(), 4}}) + std::string(data);
}

std::string zip(const std::vector<Member>& members) {
  std::string out, directory;
  for (const Member& m : members) {
    uint32_t crc = crc_with(0, m.head);
    for (uint64_t k = 0; k < m.copies; ++k) crc = crc_with(crc, m.data);
    const std::string packed =
        m.deflated ? deflate(m.data, m.copies, true, m.head) : m.head + m.data;
    const uint64_t size = m.head.size() + m.data.size() * m.copies;
    const auto common = little_endian({{m.deflated ? 8u : 0u, 2},
                                       {0, 4},
                                       {crc, 4},
                                       {packed.size(), 4},
                                       {size, 4},
                                       {m.name.size(), 2}});
    directory += little_endian({{0x02014b50, 4}, {20, 2}, {20, 2}, {0, 2}}) + common +
                 little_endian({{0, 2}, {0, 2}, {0, 2}, {0, 2}, {0, 4}, {out.size(), 4}}) + m.name;
    out += little_endian({{0x04034b50, 4}, {20, 2}, {0, 2}}) + common + little_endian({{0, 2}}) +
           m.name + packed;
  }
  const uint64_t at = out.size();
  return out + directory +
         little_endian({{0x06054b50, 4},
                        {0, 4},
                        {members.size(), 2},
                        {members.size(), 2},
                        {directory.size(), 4},
                        {at, 4},
                        {0, 2}});
}

}  // namespace tandem::readers
