// SPDX-License-Identifier: Apache-2.0
// The functions and their types are those of openjpeg.h of OpenJPEG 2.1 and later
// (libopenjp2.so.7). Two of its structs cross: the decoded image and its components, below. Where
// the header is installed the compiler compares them.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#if __has_include(<openjpeg-2.5/openjpeg.h>)
#include <openjpeg-2.5/openjpeg.h>
#define TD_HAS_OPENJPEG_HEADER
#endif

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/base/opens_library.h"
#include "tandem/io/image/jpeg2000_internal.h"
#include "tandem/io/image/system_image_internal.h"
#include "tandem/io/shared_library_internal.h"

namespace tandem::io {
namespace {

struct Component {
  uint32_t dx, dy, width, height, x0, y0, bits, bits_again, is_signed, resolutions, factor;
  int32_t* data;
  uint16_t alpha;
};
struct Image {
  uint32_t x0, y0, x1, y1, components;
  int32_t color_space;
  Component* component;
  uint8_t* profile;
  uint32_t profile_size;
};
constexpr int kGray = 2, kYcc = 3, kEYcc = 4, kCmyk = 5;  // values of OPJ_COLOR_SPACE

#ifdef TD_HAS_OPENJPEG_HEADER
#define TD_SAME(ours, a, theirs, b) static_assert(offsetof(ours, a) == offsetof(theirs, b))
static_assert(sizeof(Component) == sizeof(opj_image_comp_t) &&
              sizeof(Image) == sizeof(opj_image_t));
TD_SAME(Component, width, opj_image_comp_t, w);
TD_SAME(Component, height, opj_image_comp_t, h);
TD_SAME(Component, bits, opj_image_comp_t, prec);
TD_SAME(Component, is_signed, opj_image_comp_t, sgnd);
TD_SAME(Component, data, opj_image_comp_t, data);
TD_SAME(Component, alpha, opj_image_comp_t, alpha);
TD_SAME(Image, components, opj_image_t, numcomps);
TD_SAME(Image, color_space, opj_image_t, color_space);
TD_SAME(Image, component, opj_image_t, comps);
static_assert(kGray == OPJ_CLRSPC_GRAY && kYcc == OPJ_CLRSPC_SYCC && kEYcc == OPJ_CLRSPC_EYCC &&
              kCmyk == OPJ_CLRSPC_CMYK);
#undef TD_SAME
#endif

struct Codec;   // opaque, owned by OpenJPEG
struct Stream;  // opaque, owned by OpenJPEG
using JpegReport = void (*)(const char*, void*);
constexpr int kCodestream = 0, kJp2 = 2;  // values of OPJ_CODEC_FORMAT

struct OpenJpeg {
  Codec* (*new_codec)(int) = nullptr;
  void (*free_codec)(Codec*) = nullptr;
  int (*on_error)(Codec*, JpegReport, void*) = nullptr;
  void (*defaults)(void*) = nullptr;
  int (*set_up)(Codec*, void*) = nullptr;
  Stream* (*new_stream)(size_t, int) = nullptr;
  void (*free_stream)(Stream*) = nullptr;
  void (*on_read)(Stream*, size_t (*)(void*, size_t, void*)) = nullptr;
  void (*on_skip)(Stream*, int64_t (*)(int64_t, void*)) = nullptr;
  void (*on_seek)(Stream*, int (*)(int64_t, void*)) = nullptr;
  void (*set_data)(Stream*, void*, void (*)(void*)) = nullptr;
  void (*set_length)(Stream*, uint64_t) = nullptr;
  int (*read_header)(Stream*, Codec*, Image**) = nullptr;
  int (*decode)(Codec*, Stream*, Image*) = nullptr;
  void (*free_image)(Image*) = nullptr;
  bool whole = false;
  OpenJpeg() {
    SharedLibrary file(TD_OPENS_LIBRARY("libopenjp2.so.7"));
    file.find("opj_create_decompress", new_codec);
    file.find("opj_destroy_codec", free_codec);
    file.find("opj_set_error_handler", on_error);
    file.find("opj_set_default_decoder_parameters", defaults);
    file.find("opj_setup_decoder", set_up);
    file.find("opj_stream_create", new_stream);
    file.find("opj_stream_destroy", free_stream);
    file.find("opj_stream_set_read_function", on_read);
    file.find("opj_stream_set_skip_function", on_skip);
    file.find("opj_stream_set_seek_function", on_seek);
    file.find("opj_stream_set_user_data", set_data);
    file.find("opj_stream_set_user_data_length", set_length);
    file.find("opj_read_header", read_header);
    file.find("opj_decode", decode);
    file.find("opj_image_destroy", free_image);
    whole = file.whole();
  }
};

const OpenJpeg& open_jpeg() {
  static const OpenJpeg found;
  return found;
}

// ---- the file in memory; callbacks from C: nothing may be thrown here

struct JpegSource {
  std::string_view bytes;
  size_t at = 0;
  char error[256] = "";
};
JpegSource& jpeg_source(void* p) { return *static_cast<JpegSource*>(p); }

size_t read_bytes(void* to, size_t n, void* p) {
  JpegSource& s = jpeg_source(p);
  n = std::min(n, s.bytes.size() - s.at);
  if (n == 0) return static_cast<size_t>(-1);
  std::memcpy(to, s.bytes.data() + s.at, n);
  s.at += n;
  return n;
}
int seek_to(int64_t at, void* p) {
  JpegSource& s = jpeg_source(p);
  if (at < 0 || static_cast<uint64_t>(at) > s.bytes.size()) return 0;
  s.at = static_cast<size_t>(at);
  return 1;
}
int64_t skip(int64_t n, void* p) {
  JpegSource& s = jpeg_source(p);
  if (n < 0 || static_cast<uint64_t>(n) > s.bytes.size() - s.at) return -1;
  s.at += static_cast<size_t>(n);
  return n;
}
void keep_error(const char* text, void* p) {
  JpegSource& s = jpeg_source(p);
  if (s.error[0]) return;
  std::snprintf(s.error, sizeof s.error, "%s", text);
  if (char* end = std::strchr(s.error, '\n')) *end = 0;
}

/// A decoder, its input, and the image it produces.
struct Decoder {
  JpegSource source;
  Codec* codec = nullptr;
  Stream* stream = nullptr;
  Image* image = nullptr;
  explicit Decoder(std::string_view bytes) : source{bytes} {
    const OpenJpeg& lib = open_jpeg();
    codec = lib.new_codec(bytes[0] == '\xff' ? kCodestream : kJp2);
    stream = lib.new_stream(size_t{1} << 16, 1);
    if (!codec || !stream) return;
    lib.on_error(codec, keep_error, &source);
    lib.on_read(stream, read_bytes);
    lib.on_skip(stream, skip);
    lib.on_seek(stream, seek_to);
    lib.set_data(stream, &source, nullptr);
    lib.set_length(stream, bytes.size());
  }
  ~Decoder() {
    const OpenJpeg& lib = open_jpeg();
    if (image) lib.free_image(image);
    if (stream) lib.free_stream(stream);
    if (codec) lib.free_codec(codec);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool run() {
    const OpenJpeg& lib = open_jpeg();
    // Its layout is private to the library, which fills it in: about 8 KiB; this leaves room for
    // more.
    alignas(16) char settings[size_t{1} << 16];
    lib.defaults(settings);
    return codec && stream && lib.set_up(codec, settings) &&
           lib.read_header(stream, codec, &image) && image && lib.decode(codec, stream, image) &&
           !source.error[0];
  }
};

/// One component as 8 bits in every `stride`-th byte, scaled up to the image's size.
void take(const Component& c, int64_t width, int64_t height, uint8_t* to, int64_t stride) {
  const int64_t top = (int64_t{1} << c.bits) - 1, shift = c.is_signed ? (top + 1) / 2 : 0;
  for (int64_t y = 0; y < height; ++y) {
    const int32_t* row = c.data + y * c.height / height * c.width;
    for (int64_t x = 0; x < width; ++x) {
      const int64_t v = std::clamp<int64_t>(row[x * c.width / width] + shift, 0, top);
      to[(y * width + x) * stride] = static_cast<uint8_t>((v * 255 + top / 2) / top);
    }
  }
}

/// ITU-R 601 as in JPEG files, with 16 fraction bits.
void rgb_of_ycc(uint8_t* p) {
  const int y = p[0] << 16, b = p[1] - 128, r = p[2] - 128;
  const int rgb[3] = {y + 91881 * r, y - 22554 * b - 46802 * r, y + 116130 * b};
  for (int k = 0; k < 3; ++k)
    p[k] = static_cast<uint8_t>(std::clamp((rgb[k] + 0x8000) >> 16, 0, 255));
}

}  // namespace

Tensor decode_jpeg2000(std::string_view bytes, const ReadImageOptions& o, std::string_view name) {
  const OpenJpeg& lib = open_jpeg();
  TD_CHECK(lib.whole, Unsupported,
           "'{}' is a JPEG 2000 file, and libopenjp2.so.7 is not installed\nInstall it (Debian: "
           "libopenjp2-7) or convert the image.",
           name);
  const BudgetHold hold(check_jpeg2000_head(bytes, o, name));
  Decoder decoder(bytes);
  TD_CHECK(decoder.run(), Format, "'{}' is damaged: {}", name, decoder.source.error);
  const Image& image = *decoder.image;
  const int64_t channels = image.components;
  TD_CHECK(channels >= 1 && channels <= 4 && image.color_space != kEYcc &&
               image.color_space != kCmyk && (image.color_space != kGray || channels <= 2),
           Format, "'{}' has {} channels in a color space ({}) that is not supported", name,
           channels, image.color_space);
  int64_t w = 0, h = 0;
  for (int64_t k = 0; k < channels; ++k) {
    const Component& c = image.component[k];
    TD_CHECK(c.data && c.width > 0 && c.height > 0 && c.bits >= 1 && c.bits <= 31, Format,
             "'{}' is damaged: component {} is empty", name, k);
    w = std::max<int64_t>(w, c.width);
    h = std::max<int64_t>(h, c.height);
  }
  check_image_size(w, h, o.limit, name);
  std::vector<uint8_t> pixels(static_cast<size_t>(w * h * channels));
  for (int64_t k = 0; k < channels; ++k)
    take(image.component[k], w, h, pixels.data() + k, channels);
  if (image.color_space == kYcc && channels >= 3)
    for (size_t i = 0; i < pixels.size(); i += static_cast<size_t>(channels))
      rgb_of_ycc(pixels.data() + i);
  return image_of_pixels(
      {.data = pixels.data(), .width = w, .height = h, .channels = channels, .stride = channels},
      o.mode);
}

}  // namespace tandem::io
