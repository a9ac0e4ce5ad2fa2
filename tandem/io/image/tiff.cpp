// SPDX-License-Identifier: Apache-2.0
// The functions and their types are those of tiffio.h of libtiff 4.5 and later (libtiff.so.6). What
// crosses is pointers to its own, hidden, structs and plain integers: no layout is shared.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/base/opens_library.h"
#include "tandem/io/image/system_image_internal.h"
#include "tandem/io/shared_library_internal.h"

namespace tandem::io {
namespace {

struct Tiff;         // opaque, owned by libtiff
struct OpenOptions;  // opaque, owned by libtiff
using TiffReport = int (*)(Tiff*, void*, const char*, const char*, va_list);
using Transfer = int64_t (*)(void*, void*, int64_t);
using Seek = uint64_t (*)(void*, uint64_t, int);
using Close = int (*)(void*);
using Size = uint64_t (*)(void*);
using Map = int (*)(void*, void**, uint64_t*);
using Unmap = void (*)(void*, void*, uint64_t);

struct LibTiff {
  OpenOptions* (*new_options)() = nullptr;
  void (*free_options)(OpenOptions*) = nullptr;
  void (*set_most_memory)(OpenOptions*, int64_t) = nullptr;
  void (*on_error)(OpenOptions*, TiffReport, void*) = nullptr;
  void (*on_warning)(OpenOptions*, TiffReport, void*) = nullptr;
  Tiff* (*open)(const char*, const char*, void*, Transfer, Transfer, Seek, Close, Size, Map, Unmap,
                OpenOptions*) = nullptr;
  void (*close)(Tiff*) = nullptr;
  int (*get)(Tiff*, uint32_t, ...) = nullptr;
  int (*get_or_default)(Tiff*, uint32_t, ...) = nullptr;
  int (*set)(Tiff*, uint32_t, ...) = nullptr;
  int (*readable)(Tiff*, char*) = nullptr;
  int (*read)(Tiff*, uint32_t, uint32_t, uint32_t*, int, int) = nullptr;
  bool whole = false;
  LibTiff() {
    SharedLibrary file(TD_OPENS_LIBRARY("libtiff.so.6"));
    file.find("TIFFOpenOptionsAlloc", new_options);
    file.find("TIFFOpenOptionsFree", free_options);
    file.find("TIFFOpenOptionsSetMaxSingleMemAlloc", set_most_memory);
    file.find("TIFFOpenOptionsSetErrorHandlerExtR", on_error);
    file.find("TIFFOpenOptionsSetWarningHandlerExtR", on_warning);
    file.find("TIFFClientOpenExt", open);
    file.find("TIFFClose", close);
    file.find("TIFFGetField", get);
    file.find("TIFFGetFieldDefaulted", get_or_default);
    file.find("TIFFSetField", set);
    file.find("TIFFRGBAImageOK", readable);
    file.find("TIFFReadRGBAImageOriented", read);
    whole = file.whole();
  }
};

const LibTiff& lib_tiff() {
  static const LibTiff found;
  return found;
}

// ---- the file in memory; callbacks from C: nothing may be thrown here

struct TiffSource {
  std::string_view bytes;
  uint64_t at = 0;
  char error[256] = "";
};
TiffSource& tiff_source(void* p) { return *static_cast<TiffSource*>(p); }

int64_t read_bytes(void* p, void* to, int64_t n) {
  TiffSource& s = tiff_source(p);
  if (n <= 0 || s.at >= s.bytes.size()) return 0;
  const size_t left = s.bytes.size() - static_cast<size_t>(s.at);
  const size_t take = static_cast<size_t>(n) < left ? static_cast<size_t>(n) : left;
  std::memcpy(to, s.bytes.data() + s.at, take);
  s.at += take;
  return static_cast<int64_t>(take);
}
int64_t write_nothing(void*, void*, int64_t) { return 0; }
uint64_t seek_to(void* p, uint64_t offset, int whence) {
  TiffSource& s = tiff_source(p);
  if (whence == SEEK_CUR) offset += s.at;
  if (whence == SEEK_END) offset += s.bytes.size();
  return s.at = offset;
}
int close_nothing(void*) { return 0; }
uint64_t size_of(void* p) { return tiff_source(p).bytes.size(); }
int keep_error(Tiff*, void* p, const char*, const char* format, va_list arguments) {
  TiffSource& s = tiff_source(p);
  if (!s.error[0]) std::vsnprintf(s.error, sizeof s.error, format, arguments);
  return 1;  // libtiff's own handler, which prints, is not called
}
int drop_warning(Tiff*, void*, const char*, const char*, va_list) { return 1; }

// ---- tags

enum Tag : uint32_t {
  kWidth = 256,
  kHeight = 257,
  kBits = 258,
  kCompression = 259,
  kPhotometric = 262,
  kOrientation = 274,
  kSamples = 277,
  kExtraSamples = 338,
  kSampleFormat = 339,
};
constexpr uint16_t kAlpha = 1, kAlphaApart = 2;  // premultiplied alpha, or not

uint16_t small(Tiff* file, Tag tag, uint16_t otherwise) {
  uint16_t v = otherwise;
  return lib_tiff().get_or_default(file, tag, &v) == 1 ? v : otherwise;
}

/// Compressions that libtiff's authors maintain: none, CCITT, LZW, JPEG, deflate, packbits, LZMA,
/// ZSTD, WebP.
bool is_common(uint16_t compression) {
  for (const uint16_t c : {1, 2, 3, 4, 5, 7, 8, 32773, 32946, 34925, 50000, 50001})
    if (compression == c) return true;
  return false;
}

/// Which channels of an RGBA raster the file itself has.
struct Channels {
  int64_t count = 3;
  std::array<uint8_t, 4> at = {{0, 1, 2, 3}};
};

Channels channels_of(Tiff* file, uint16_t bits, uint16_t samples) {
  uint16_t extra = 0, *kinds = nullptr;
  if (lib_tiff().get_or_default(file, kExtraSamples, &extra, &kinds) != 1) extra = 0;
  const uint16_t kind = extra > 0 && kinds ? kinds[0] : 0;
  const bool alpha = kind == kAlpha || kind == kAlphaApart;
  const bool gray = small(file, kPhotometric, samples - extra == 1 ? 1 : 2) <= 1;
  if (gray && alpha && samples == 2 && bits == 8) return {2, {{0, 3, 0, 0}}};
  if (gray) return {1, {}};
  if (small(file, kPhotometric, 2) != 2 || !alpha) return {};
  // libtiff would premultiply the colors; they are wanted as stored.
  if (kind == kAlphaApart) lib_tiff().set(file, kExtraSamples, 1, &kAlpha);
  return {4};
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Raster = std::unique_ptr<uint32_t[], Free>;
/// Zeros that take no memory until they are written to.
Raster new_raster(int64_t pixels, std::string_view name) {
  Raster r(static_cast<uint32_t*>(std::calloc(static_cast<size_t>(pixels), 4)));
  TD_CHECK(r, Memory, "out of memory for the {} pixels of '{}'", pixels, name);
  return r;
}

/// The image in viewing orientation; width and height are swapped where it lies on its side.
Raster upright(Raster from, int64_t& w, int64_t& h, uint16_t orientation, std::string_view name) {
  if (orientation <= 1 || orientation > 8) return from;
  const bool lies = orientation >= 5;
  const bool turn_rows =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool turn_columns =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Raster to = new_raster(w * h, name);
  const int64_t wide = lies ? h : w, high = lies ? w : h;
  for (int64_t y = 0; y < high; ++y)
    for (int64_t x = 0; x < wide; ++x) {
      const int64_t row = lies ? x : y, column = lies ? y : x;
      to[static_cast<size_t>(y * wide + x)] = from[static_cast<size_t>(
          (turn_rows ? h - 1 - row : row) * w + (turn_columns ? w - 1 - column : column))];
    }
  w = wide;
  h = high;
  return to;
}

/// An open file and its input.
struct File {
  TiffSource source;
  Tiff* tiff = nullptr;
  explicit File(std::string_view bytes) : source{bytes} {
    const LibTiff& lib = lib_tiff();
    OpenOptions* options = lib.new_options();
    if (!options) return;
    lib.on_error(options, keep_error, &source);
    lib.on_warning(options, drop_warning, nullptr);
    lib.set_most_memory(options, static_cast<int64_t>(Budget::bytes_left()));
    tiff = lib.open("image", "rm", &source, read_bytes, write_nothing, seek_to, close_nothing,
                    size_of, nullptr, nullptr, options);
    lib.free_options(options);
  }
  ~File() {
    if (tiff) lib_tiff().close(tiff);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
};

}  // namespace

bool is_tiff(std::string_view bytes) {
  for (const std::string_view head : {"II*\0", "MM\0*", "II+\0", "MM\0+"})
    if (bytes.substr(0, 4) == std::string_view(head.data(), 4)) return true;
  return false;
}

Tensor decode_tiff(std::string_view bytes, const ReadImageOptions& o, std::string_view name) {
  const LibTiff& lib = lib_tiff();
  TD_CHECK(lib.whole, Unsupported,
           "'{}' is a TIFF file, and libtiff.so.6 is not installed\nInstall it (Debian: libtiff6) "
           "or convert the image.",
           name);
  File file(bytes);
  TD_CHECK(file.tiff, Format, "'{}' is damaged: {}", name, file.source.error);
  uint32_t wide = 0, high = 0;
  TD_CHECK(lib.get(file.tiff, kWidth, &wide) == 1 && lib.get(file.tiff, kHeight, &high) == 1,
           Format, "'{}' is damaged: its size is missing", name);
  int64_t w = wide, h = high;
  check_image_size(w, h, o.limit, name);
  const uint16_t bits = small(file.tiff, kBits, 1), samples = small(file.tiff, kSamples, 1);
  const uint16_t format = small(file.tiff, kSampleFormat, 1);
  TD_CHECK(samples >= 1 && samples <= 8 && bits <= 16 && (format == 1 || format == 4), Format,
           "'{}' cannot be an image of 8 bits: it has {} samples of {} bits{}", name, samples, bits,
           format == 3   ? ", floating"
           : format == 2 ? ", signed"
                         : "");
  const uint16_t compression = small(file.tiff, kCompression, 1);
  TD_CHECK(is_common(compression), Format, "'{}' has a compression ({}) that is not supported",
           name, compression);
  char reason[1024] = "";
  TD_CHECK(lib.readable(file.tiff, reason) == 1, Format, "'{}' cannot be read: {}", name, reason);
  // The raster, a second one where it is turned, and what libtiff itself holds.
  const BudgetHold hold(static_cast<uint64_t>(w * h) *
                        static_cast<uint64_t>(8 + (samples * bits + 7) / 8));
  const Channels channels = channels_of(file.tiff, bits, samples);
  // Asked for the image's own orientation, libtiff rotates nothing; it supports only half of them.
  const uint16_t orientation = small(file.tiff, kOrientation, 1);
  Raster raster = new_raster(w * h, name);
  const bool went = lib.read(file.tiff, wide, high, raster.get(), orientation, 1) == 1;
  TD_CHECK(went && !file.source.error[0], Format, "'{}' is damaged: {}", name, file.source.error);
  raster = upright(std::move(raster), w, h, orientation, name);
  return image_of_pixels({.data = reinterpret_cast<const uint8_t*>(raster.get()),
                          .width = w,
                          .height = h,
                          .channels = channels.count,
                          .stride = 4,
                          .at = channels.at},
                         o.mode);
}

}  // namespace tandem::io
