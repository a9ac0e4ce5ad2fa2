// SPDX-License-Identifier: Apache-2.0
// The functions and their types are those of webp/decode.h of libwebp 1.x, whose names and
// arguments are stable in libwebp.so.7.
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/base/opens_library.h"
#include "tandem/io/image/system_image_internal.h"
#include "tandem/io/shared_library_internal.h"

namespace tandem::io {
namespace {

struct Features {
  int width, height, has_alpha, has_animation, format;
  uint32_t pad[5];
};
constexpr int kDecoderAbi = 0x0200;  // its upper byte must match

struct LibWebp {
  int (*features)(const uint8_t*, size_t, Features*, int) = nullptr;
  uint8_t* (*rgb)(const uint8_t*, size_t, uint8_t*, size_t, int) = nullptr;
  uint8_t* (*rgba)(const uint8_t*, size_t, uint8_t*, size_t, int) = nullptr;
  bool whole = false;
  LibWebp() {
    SharedLibrary file(TD_OPENS_LIBRARY("libwebp.so.7"));
    file.find("WebPGetFeaturesInternal", features);
    file.find("WebPDecodeRGBInto", rgb);
    file.find("WebPDecodeRGBAInto", rgba);
    whole = file.whole();
  }
};

const LibWebp& lib_webp() {
  static const LibWebp found;
  return found;
}

}  // namespace

bool is_webp(std::string_view bytes) {
  return bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP";
}

Tensor decode_webp(std::string_view bytes, const ReadImageOptions& o, std::string_view name) {
  const LibWebp& webp = lib_webp();
  TD_CHECK(webp.whole, Unsupported,
           "'{}' is a WebP file, and libwebp.so.7 is not installed\nInstall it (Debian: libwebp7) "
           "or convert the image.",
           name);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  Features f{};
  TD_CHECK(webp.features(data, bytes.size(), &f, kDecoderAbi) == 0, Format, "'{}' is damaged",
           name);
  TD_CHECK(!f.has_animation, Unsupported, "'{}' is an animation\nSplit it into images first.",
           name);
  const int64_t w = f.width, h = f.height;
  check_image_size(w, h, o.limit, name);
  const int64_t stored = o.mode == ImageMode::unchanged && f.has_alpha ? 4 : 3;
  // The decoder holds the pixels, too.
  const BudgetHold hold(static_cast<uint64_t>(w * h * (stored + 4)));
  std::vector<uint8_t> rows(static_cast<size_t>(w * h * stored));
  const auto decode = stored == 4 ? webp.rgba : webp.rgb;
  TD_CHECK(decode(data, bytes.size(), rows.data(), rows.size(), static_cast<int>(w * stored)),
           Format, "'{}' is damaged or truncated", name);
  return image_of_pixels(
      {.data = rows.data(), .width = w, .height = h, .channels = stored, .stride = stored}, o.mode);
}

}  // namespace tandem::io
