// SPDX-License-Identifier: Apache-2.0
// Changes to images and sound that keep their structure: entries of TIFF directories, segments of
// JPEG and JPEG 2000, boxes of JP2, chunks of RIFF. A part is dropped, repeated, moved or changed
// within; the numbers that say how long parts are stay right, but where they are what is changed.
#include <algorithm>

#include "tests/readers/readers.h"

namespace tandem::readers {
namespace {

/// A part of a file: a head of `content - begin` bytes, and what it holds.
struct Part {
  size_t begin = 0, content = 0, end = 0;
};
using Parts = std::vector<Part>;

/// One number of 1, 2 or 4 bytes within from..end becomes an extreme one, or its neighbour.
void change_number(std::string& s, size_t from, size_t end, bool is_big, Random& random) {
  const size_t n = size_t{1} << random() % 3;
  if (end > s.size() || end < from + n) return;
  const size_t at = from + random() % (end - from - n + 1);
  const uint64_t held = is_big ? big(s, at, n) : little(s, at, n);
  const uint64_t v = random() % 3 == 0 ? held + random() % 3 - 1 : extreme(random);
  is_big ? put_big(s, at, v, n) : put_little(s, at, v, n);
}

/// Drops, repeats, moves or copies one of the parts; false: it is to be changed within.
bool rearrange(std::string& s, const Parts& parts, const Part& p, Random& random) {
  const std::string bytes = s.substr(p.begin, p.end - p.begin);
  const Part& other = parts[random() % parts.size()];
  switch (random() % 8) {
    case 0:
      s.erase(p.begin, bytes.size());
      return true;
    case 1:
      for (uint64_t k = 1 + random() % 3; k > 0; --k) s.insert(p.begin, bytes);
      return true;
    case 2:
      s.insert(other.begin, bytes);
      return true;
    case 3:
      s.replace(p.begin, bytes.size(), s.substr(other.begin, other.end - other.begin));
      return true;
    default:
      return false;
  }
}

// ---- RIFF: "WAVE" and "WEBP" hold chunks of a name, a size and that many bytes, to an even one

Parts chunks_of(std::string_view s) {
  Parts out;
  for (size_t at = 12; at + 8 <= s.size();) {
    const uint64_t n = std::min<uint64_t>(little(s, at + 4, 4), s.size() - at - 8);
    out.push_back({at, at + 8, at + 8 + n});
    at += 8 + n + n % 2;
  }
  return out;
}

}  // namespace

void repair_riff(std::string& s) {
  if (s.size() >= 8) put_little(s, 4, s.size() - 8, 4);
}

void mutate_riff(std::string& s, Random& random) {
  static constexpr const char* kNames[] = {"fmt ", "data", "LIST", "fact", "VP8 ",
                                           "VP8L", "VP8X", "ALPH", "ANIM", "ANMF"};
  const Parts parts = chunks_of(s);
  if (parts.empty()) return mutate_bytes(s, random);
  const Part& p = parts[random() % parts.size()];
  if (rearrange(s, parts, p, random)) return;
  switch (random() % 6) {
    case 0:  // another kind of chunk
      s.replace(p.begin, 4, kNames[random() % std::size(kNames)]);
      return;
    case 1:  // a length that is not so
      put_little(s, p.begin + 4, extreme(random), 4);
      return;
    case 2: {  // another length, and as many bytes
      const size_t held = p.end - p.content, n = random() % (2 * held + 2);
      s.replace(p.content, held,
                s.substr(p.content, held) + std::string(n > held ? n - held : 0, 0));
      if (n < held) s.erase(p.content + n, held - n);
      put_little(s, p.begin + 4, n, 4);
      return;
    }
    default:  // the first fields decide most
      change_number(s, p.content, random() % 2 ? std::min(p.end, p.content + 18) : p.end, false,
                    random);
  }
}

// ---- JPEG and JPEG 2000: segments of a marker, a length and that many bytes, then coded data

namespace {

struct Segments {
  Parts parts;
  size_t data = 0;  ///< where coded data begin
};
/// From the marker at `at` on; `last` is the one before the coded data, and has a length in JPEG.
Segments segments_of(std::string_view s, size_t at, uint64_t last, bool has_length) {
  Segments out;
  while (at + 4 <= s.size() && s[at] == '\xff') {
    const uint64_t marker = big(s, at, 2);
    if (marker == last && !has_length) {
      out.data = at + 2;
      return out;
    }
    const uint64_t n = big(s, at + 2, 2);
    if (n < 2 || n > s.size() - at - 2) break;
    out.parts.push_back({at, at + 4, at + 2 + n});
    at += 2 + n;
    if (marker == last) break;
  }
  out.data = at;
  return out;
}

void mutate_segments(std::string& s, const Segments& all, std::span<const uint64_t> markers,
                     Random& random) {
  if (all.parts.empty()) return mutate_bytes(s, random);
  if (random() % 4 == 0 && all.data < s.size()) {  // the coded data, and markers among them
    const size_t at = all.data + random() % (s.size() - all.data);
    if (random() % 4 == 0) {
      s.insert(at, big_endian({{markers[random() % markers.size()], 2}}));
    } else {
      s[at] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    }
    return;
  }
  const Part& p = all.parts[random() % all.parts.size()];
  if (rearrange(s, all.parts, p, random)) return;
  switch (random() % 6) {
    case 0:
      put_big(s, p.begin, markers[random() % markers.size()], 2);
      return;
    case 1:
      put_big(s, p.begin + 2, extreme(random), 2);
      return;
    default:
      change_number(s, p.content, p.end, true, random);
  }
}

}  // namespace

void mutate_jpeg(std::string& s, Random& random) {
  // Frames of each kind, tables, a restart interval, restarts, a comment, Adobe's segment, the end.
  static constexpr uint64_t kMarkers[] = {0xffc0, 0xffc1, 0xffc2, 0xffc3, 0xffc4, 0xffc9,
                                          0xffcc, 0xffda, 0xffdb, 0xffdc, 0xffdd, 0xffde,
                                          0xffd0, 0xffd7, 0xffe0, 0xffee, 0xfffe, 0xffd9};
  mutate_segments(s, segments_of(s, 2, 0xffda, true), kMarkers, random);
}

// ---- JPEG 2000: boxes of a length, a name and what they hold; "jp2h" holds boxes; "jp2c" the code

namespace {

void boxes_of(std::string_view s, size_t at, size_t end, Parts& out) {
  while (at + 8 <= end) {
    const uint64_t said = big(s, at, 4);
    const uint64_t n = said >= 8 && said <= end - at ? said : end - at;
    out.push_back({at, at + 8, at + n});
    if (s.substr(at + 4, 4) == "jp2h") boxes_of(s, at + 8, at + n, out);
    at += n;
  }
}

}  // namespace

void mutate_jpeg2000(std::string& s, Random& random) {
  // Sizes, coding and quantisation, of all and of a component, regions, order, lengths, a comment;
  // a part of a tile, its data, packets and their heads, the end.
  static constexpr uint64_t kMarkers[] = {0xff51, 0xff52, 0xff53, 0xff5c, 0xff5d, 0xff5e,
                                          0xff5f, 0xff55, 0xff57, 0xff58, 0xff60, 0xff61,
                                          0xff64, 0xff90, 0xff93, 0xff91, 0xff92, 0xffd9};
  static constexpr const char* kBoxes[] = {"jp2h", "ihdr", "bpcc", "colr", "pclr",
                                           "cmap", "cdef", "res ", "jp2c", "uuid"};
  const size_t code = s.find("\xff\x4f\xff\x51");
  Parts boxes;
  if (code != s.npos && code > 0) boxes_of(s, 0, code, boxes);
  if (boxes.empty() || random() % 3 != 0) {
    if (code == s.npos) return mutate_bytes(s, random);
    return mutate_segments(s, segments_of(s, code + 2, 0xff93, false), kMarkers, random);
  }
  const Part& p = boxes[random() % boxes.size()];
  if (rearrange(s, boxes, p, random)) return;
  switch (random() % 5) {
    case 0:
      s.replace(p.begin + 4, 4, kBoxes[random() % std::size(kBoxes)]);
      return;
    case 1:
      put_big(s, p.begin, extreme(random), 4);
      return;
    default:
      change_number(s, p.content, p.end, true, random);
  }
}

// ---- TIFF: directories of entries: tag, type, count, value or where it is

void mutate_tiff(std::string& s, Random& random) {
  if (s.size() < 16) return mutate_bytes(s, random);
  const bool is_big = s[0] == 'M', wide = (is_big ? s[3] : s[2]) == 43;
  const auto get = [&](size_t at, size_t n) { return is_big ? big(s, at, n) : little(s, at, n); };
  const auto put = [&](size_t at, uint64_t v, size_t n) {
    is_big ? put_big(s, at, v, n) : put_little(s, at, v, n);
  };
  const size_t where = wide ? 8 : 4, word = wide ? 8 : 4, heads = wide ? 8 : 2;
  const size_t entry = wide ? 20 : 12;
  const uint64_t at = get(where, word);
  if (at > s.size() - heads) return mutate_bytes(s, random);
  const uint64_t n = std::min<uint64_t>(get(at, heads), (s.size() - at - heads) / entry);
  if (n == 0) return mutate_bytes(s, random);
  const size_t e = at + heads + random() % n * entry;
  const size_t other = at + heads + random() % n * entry, next = at + heads + n * entry;
  const size_t count = e + 4, value = e + 4 + word;
  switch (random() % 12) {
    case 0: {  // sizes, bits, compression, strips and tiles, planes, predictor, palette, tables
      static constexpr uint64_t kTags[] = {254, 256, 257, 258, 259, 262, 266, 273,  274,
                                           277, 278, 279, 284, 317, 320, 322, 323,  324,
                                           325, 330, 338, 339, 347, 530, 532, 34675};
      return put(e, kTags[random() % std::size(kTags)], 2);
    }
    case 1:
      return put(e + 2, random() % 19, 2);
    case 2:
      return put(count, random() % 2 ? extreme(random) : get(count, word) + random() % 3 - 1, word);
    case 3:
      return put(value, extreme(random), word);
    case 4:
      return put(value, get(value, 2) + random() % 3 - 1, 2);
    case 5:  // compressions and other small numbers
      return put(value, random() % 2 ? random() % 10 : 32773 + random() % 200, 2);
    case 6:
      s.replace(e, entry, s.substr(other, entry));
      return;
    case 7:  // an entry's value is that of another one
      s.replace(value, word, s.substr(other + 4 + word, word));
      return;
    case 8:
      return put(at, random() % 2 ? extreme(random) : n + random() % 3 - 1, heads);
    case 9:  // the directory after it: itself, or anywhere
      if (next + word <= s.size()) put(next, random() % 2 ? at : extreme(random), word);
      return;
    case 10:
      return put(where, random() % 2 ? extreme(random) : random() % s.size(), word);
    default:  // what is not in the directory: pixels, lists, tables
      change_number(s, 8, at > 16 ? at : s.size(), is_big, random);
  }
}

}  // namespace tandem::readers
