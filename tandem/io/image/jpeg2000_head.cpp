// SPDX-License-Identifier: Apache-2.0
// Boxes of a JP2 file and markers of a codestream: ITU-T T.800 (2002), annexes A and I.
#include <algorithm>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/io/image/jpeg2000_internal.h"
#include "tandem/io/image/system_image_internal.h"

namespace tandem::io {
namespace {

constexpr std::string_view kBox("\0\0\0\x0cjP  \r\n\x87\n", 12), kStart("\xff\x4f\xff\x51", 4);

struct Bytes {
  std::string_view bytes, name;
  /// A big-endian number of `n` bytes.
  int64_t number(size_t at, size_t n) const {
    TD_CHECK(at <= bytes.size() && n <= bytes.size() - at, Format, "'{}' is truncated", name);
    uint64_t v = 0;
    for (size_t i = 0; i < n; ++i) v = v << 8 | static_cast<unsigned char>(bytes[at + i]);
    TD_CHECK(v <= uint64_t{1} << 62, Format, "'{}' is damaged: it says {}", name, v);
    return static_cast<int64_t>(v);
  }
};

/// The codestream: in a JP2 file, the contents of the first codestream box.
std::string_view codestream_of(const Bytes& file) {
  if (file.bytes.starts_with(kStart)) return file.bytes;
  for (size_t at = 0;;) {
    const auto left = static_cast<int64_t>(file.bytes.size() - at);
    int64_t size = file.number(at, 4), head = 8;
    file.number(at + 4, 4);
    const bool code = file.bytes.substr(at + 4, 4) == "jp2c";
    if (size == 1) {
      size = file.number(at + 8, 8);
      head = 16;
    } else if (size == 0 && code) {
      size = left;
    }
    TD_CHECK(size >= head, Format, "'{}' is damaged: a box has {} bytes", file.name, size);
    TD_CHECK(size <= left, Format, "'{}' is truncated: a box of {} bytes has {}", file.name, size,
             left);
    if (code)
      return file.bytes.substr(at + static_cast<size_t>(head), static_cast<size_t>(size - head));
    at += static_cast<size_t>(size);
  }
}

/// The image, its tiles, and by how much each component is subsampled.
struct Sizes {
  struct Axis {
    int64_t size, tiles;
  };
  Axis x, y;
  std::vector<std::pair<int64_t, int64_t>> steps;
};

Sizes sizes_of(const Bytes& code) {
  auto axis = [&](size_t at) {
    const int64_t end = code.number(at, 4), begin = code.number(at + 8, 4);
    const int64_t tile = code.number(at + 16, 4), first = code.number(at + 24, 4);
    TD_CHECK(begin < end && tile > 0 && first <= begin && tile > begin - first, Format,
             "'{}' is damaged: its size makes no sense", code.name);
    return Sizes::Axis{end - begin, (end - first + tile - 1) / tile};
  };
  Sizes s{axis(8), axis(12), {}};
  const int64_t components = code.number(40, 2);
  TD_CHECK(components >= 1 && components <= 4, Format, "'{}' has {} components, expected 1 to 4",
           code.name, components);
  for (size_t k = 0; k < static_cast<size_t>(components); ++k) {
    s.steps.emplace_back(code.number(43 + 3 * k, 1), code.number(44 + 3 * k, 1));
    TD_CHECK(s.steps[k].first > 0 && s.steps[k].second > 0, Format,
             "'{}' is damaged: its size makes no sense", code.name);
  }
  return s;
}

enum Marker : int64_t {
  kCoding = 0xff52,
  kCodingOfOne = 0xff53,
  kTilePart = 0xff90,
  kData = 0xff93,
  kEndOfCode = 0xffd9,
};

bool is_known(int64_t marker) {
  for (const int64_t m : {0x50, 0x51, 0x52, 0x53, 0x55, 0x57, 0x58, 0x59, 0x5c, 0x5d,
                          0x5e, 0x5f, 0x60, 0x61, 0x63, 0x64, 0x74, 0x75, 0x77, 0x78})
    if (marker == (0xff00 | m)) return true;
  return false;
}

/// The precincts of a coding style. Each has a packet, and each packet takes at least a byte.
void check_precincts(const Bytes& code, size_t at, bool of_one, const Sizes& s) {
  const size_t style = at + (of_one ? 5 : 4), levels_at = of_one ? at + 6 : at + 9;
  if ((code.number(style, 1) & 1) == 0) return;  // one precinct per resolution
  const int64_t levels = code.number(levels_at, 1);
  TD_CHECK(levels <= 32, Format, "'{}' is damaged: {} levels", code.name, levels);
  const int64_t only = of_one ? code.number(at + 4, 1) : -1;
  int64_t least = 0;
  for (int64_t r = 0; r <= levels; ++r) {
    const int64_t sides = code.number(levels_at + 5 + static_cast<size_t>(r), 1);
    for (size_t k = 0; k < s.steps.size(); ++k) {
      if (of_one && static_cast<int64_t>(k) != only) continue;
      const auto& [dx, dy] = s.steps[k];
      least += ((s.x.size / dx >> (levels - r)) >> (sides & 15)) *
               ((s.y.size / dy >> (levels - r)) >> (sides >> 4));
    }
  }
  const auto size = static_cast<int64_t>(code.bytes.size());
  TD_CHECK(least <= size, Format, "'{}' claims {} precincts, more than its {} bytes hold",
           code.name, least, size);
}

/// Walks the markers starting at `at`, up to one that ends a header; returns where that one is.
size_t walk_head(const Bytes& code, size_t at, const Sizes& s) {
  for (;;) {
    const int64_t marker = code.number(at, 2);
    if (marker == kTilePart || marker == kData || marker == kEndOfCode) return at;
    TD_CHECK(is_known(marker), Format, "'{}' is damaged: marker {:04x} at byte {} of its code",
             code.name, marker, at);
    const int64_t size = code.number(at + 2, 2);
    TD_CHECK(size >= 2, Format, "'{}' is damaged: marker {:04x} has {} bytes", code.name, marker,
             size);
    if (marker == kCoding || marker == kCodingOfOne)
      check_precincts(code, at, marker == kCodingOfOne, s);
    at += 2 + static_cast<size_t>(size);
  }
}

/// The headers of the image and of all tiles.
void walk_code(const Bytes& code, const Sizes& s) {
  size_t at = walk_head(code, 2, s);
  while (code.number(at, 2) == kTilePart) {
    const int64_t size = code.number(at + 6, 4);
    const size_t data = walk_head(code, at + 12, s);
    TD_CHECK(code.number(data, 2) == kData, Format, "'{}' is damaged: a tile has no data",
             code.name);
    if (size == 0) return;  // extends to the end
    TD_CHECK(static_cast<size_t>(size) >= data + 2 - at, Format,
             "'{}' is damaged: a tile has {} bytes", code.name, size);
    at += static_cast<size_t>(size);
  }
  TD_CHECK(code.number(at, 2) == kEndOfCode, Format, "'{}' is damaged: no tile begins at byte {}",
           code.name, at);
}

}  // namespace

bool is_jpeg2000(std::string_view bytes) {
  return bytes.starts_with(kBox) || bytes.starts_with(kStart);
}

uint64_t check_jpeg2000_head(std::string_view bytes, const ReadImageOptions& o,
                             std::string_view name) {
  const Bytes code{codestream_of({bytes, name}), name};
  TD_CHECK(code.bytes.starts_with(kStart), Format,
           "'{}' is damaged: its codestream does not begin as it should", name);
  const Sizes s = sizes_of(code);
  check_image_size(s.x.size, s.y.size, o.limit, name);
  constexpr int64_t kTileHead = 14;  // bytes in every tile header
  const auto size = static_cast<int64_t>(code.bytes.size());
  TD_CHECK(s.y.tiles <= size / kTileHead / s.x.tiles, Format,
           "'{}' claims {} x {} tiles, more than its {} bytes hold", name, s.x.tiles, s.y.tiles,
           size);
  std::string_view rest = code.bytes;
  while (!rest.empty() && rest.back() == '\0') rest.remove_suffix(1);
  TD_CHECK(rest.ends_with("\xff\xd9"), Format, "'{}' is truncated: its codestream has no end",
           name);
  walk_code(code, s);
  // Samples of 32 bits in the image and in the tile that is decoded, and our bytes.
  return static_cast<uint64_t>(s.x.size * s.y.size) * s.steps.size() * 9;
}

}  // namespace tandem::io
