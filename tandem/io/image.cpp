// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/image.h"

#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/io/image/system_image_internal.h"
#include "tandem/tensor/pixels_internal.h"

namespace tandem::io {
namespace {

unsigned char* bytes_of(const Tensor& t) { return static_cast<unsigned char*>(t.impl()->data); }

// ---- JPEG: libjpeg reports by longjmp; nothing with a destructor lives in the jumping function

struct JpegErrors {
  jpeg_error_mgr manager;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};
void jpeg_failed(j_common_ptr info) {
  auto* e = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, e->text);
  std::longjmp(e->jump, 1);
}

// A few bytes make another scan over the whole image.
void jpeg_goes_on(j_common_ptr info) {
  if (Budget::is_late()) info->err->error_exit(info);
}

struct JpegReader {
  jpeg_decompress_struct info{};
  JpegErrors errors{};
  JpegReader() {
    info.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = jpeg_failed;
    errors.manager.output_message = [](j_common_ptr) {};
  }
  ~JpegReader() { jpeg_destroy_decompress(&info); }
  bool start(std::string_view bytes, const ReadImageOptions& o) {
    const ImageMode mode = o.mode;
    if (setjmp(errors.jump)) return false;
    jpeg_create_decompress(&info);
    info.progress = &errors.progress;
    errors.progress.progress_monitor = jpeg_goes_on;
    info.mem->max_memory_to_use = static_cast<long>(Budget::bytes_left());
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()),
                 static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&info, TRUE);
    if (mode == ImageMode::gray)
      info.out_color_space = JCS_GRAYSCALE;
    else if (mode == ImageMode::rgb || info.jpeg_color_space != JCS_GRAYSCALE)
      info.out_color_space = JCS_RGB;
    if (o.min_height > 0 && o.min_width > 0) {
      info.scale_denom = 8;
      for (info.scale_num = 1; info.scale_num < 8; info.scale_num *= 2) {
        jpeg_calc_output_dimensions(&info);
        if (int64_t{info.output_height} >= o.min_height &&
            int64_t{info.output_width} >= o.min_width)
          break;
      }
    }
    jpeg_calc_output_dimensions(&info);
    return true;
  }
  /// Pixels in decoder order: [height, width, components].
  bool decode(unsigned char* to) {
    if (setjmp(errors.jump)) return false;
    jpeg_start_decompress(&info);
    const auto row =
        static_cast<size_t>(info.output_width) * static_cast<size_t>(info.output_components);
    while (info.output_scanline < info.output_height) {
      constexpr JDIMENSION kMost = 16;
      JSAMPROW rows[kMost];
      const JDIMENSION n = std::min(kMost, info.output_height - info.output_scanline);
      for (JDIMENSION k = 0; k < n; ++k) rows[k] = to + (info.output_scanline + k) * row;
      jpeg_read_scanlines(&info, rows, n);
    }
    jpeg_finish_decompress(&info);
    return true;
  }
};

Tensor decode_jpeg(std::string_view bytes, const ReadImageOptions& o, std::string_view name) {
  JpegReader reader;
  TD_CHECK(reader.start(bytes, o), Format, "'{}' is damaged: {}", name, reader.errors.text);
  const J_COLOR_SPACE colors = reader.info.jpeg_color_space;
  TD_CHECK(colors != JCS_CMYK && colors != JCS_YCCK, Unsupported,
           "'{}' is a JPEG in CMYK, which is not supported\nConvert it to RGB.", name);
  const int64_t w = reader.info.output_width, h = reader.info.output_height;
  const int64_t c = reader.info.output_components;
  check_image_size(w, h, o.limit, name);
  Tensor out = detail::new_pixels(c, h, w);
  const bool done = reader.decode(bytes_of(out));
  Budget::check_time();
  TD_CHECK(done, Format, "'{}' is damaged: {}", name, reader.errors.text);
  // A truncated or broken image is filled up with gray and a warning: unusable for training.
  TD_CHECK(reader.info.err->num_warnings == 0, Format,
           "'{}' is damaged: {} warning(s) of its decoder", name, reader.info.err->num_warnings);
  return out;
}

// ---- PNG

struct PngImage {
  png_image image{};
  PngImage() { image.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&image); }
};

Tensor decode_png(std::string_view bytes, const ReadImageOptions& o, std::string_view name) {
  PngImage png;
  png_image& image = png.image;
  TD_CHECK(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()), Format,
           "'{}' is damaged: {}", name, image.message);
  check_image_size(image.width, image.height, o.limit, name);
  switch (o.mode) {
    case ImageMode::gray:
      image.format = PNG_FORMAT_GRAY;
      break;
    case ImageMode::rgb:
      image.format = PNG_FORMAT_RGB;
      break;
    case ImageMode::unchanged:
      image.format &= PNG_FORMAT_FLAG_COLOR | PNG_FORMAT_FLAG_ALPHA;
      break;
  }
  const int64_t w = image.width, h = image.height;
  const auto c = static_cast<int64_t>(PNG_IMAGE_SAMPLE_CHANNELS(image.format));
  Tensor out = detail::new_pixels(c, h, w);
  const png_color black{0, 0, 0};
  TD_CHECK(png_image_finish_read(&image, &black, bytes_of(out), 0, nullptr), Format,
           "'{}' is damaged: {}", name, image.message);
  return out;
}

}  // namespace

Tensor decode_image(std::string_view bytes, const ReadImageOptions& o, std::string_view name) {
  const Budget budget(name, bytes.size(), o.limits);
  if (bytes.starts_with("\xff\xd8\xff")) return decode_jpeg(bytes, o, name);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(bytes, o, name);
  if (is_webp(bytes)) return decode_webp(bytes, o, name);
  if (is_tiff(bytes)) return decode_tiff(bytes, o, name);
  if (is_jpeg2000(bytes)) return decode_jpeg2000(bytes, o, name);
  TD_FAIL(Format, "'{}' is not a JPEG, PNG, WebP, TIFF or JPEG 2000 file{}", name,
          bytes.empty() ? ": it is empty" : "");
}

Tensor read_image(const FilePath& path, const ReadImageOptions& options) {
  const Ref<MappedFile> file = make_ref<MappedFile>(path);
  return decode_image(file->view(), options, path.str());
}

namespace {

// One plane after the other, 0..255.
std::vector<unsigned char> pixels_of(const Tensor& image) {
  if (image.dtype() == DType::u8) return image.to_vector<unsigned char>();
  const std::vector<double> values = image.to(DType::f64).to_vector<double>();
  std::vector<unsigned char> out;
  out.reserve(values.size());
  for (double v : values)  // NaN is black
    out.push_back(static_cast<unsigned char>(v > 0 ? std::min(v, 1.0) * 255 + 0.5 : 0));
  return out;
}

}  // namespace

std::string encode_png(const Tensor& image) {
  TD_CHECK(image.defined() && (image.dtype() == DType::u8 || image.is_floating_point()), DType,
           "encode_png expects u8, or floats from 0 to 1, got {}",
           image.defined() ? to_string(image.dtype()) : "nothing");
  const int64_t c = image.dim() == 3 ? image.size(0) : 1;
  TD_CHECK((image.dim() == 2 || image.dim() == 3) && c >= 1 && c <= 4 && image.numel() > 0, Shape,
           "encode_png expects [h, w] or [c, h, w] with 1 to 4 channels, got {}",
           image.shape().to_string());
  const int64_t h = image.size(-2), w = image.size(-1);
  const std::vector<unsigned char> planes = pixels_of(image);
  std::vector<unsigned char> rows(planes.size());
  for (int64_t k = 0; k < c; ++k)
    for (int64_t i = 0; i < h * w; ++i)
      rows[static_cast<size_t>(i * c + k)] = planes[static_cast<size_t>(k * h * w + i)];
  static constexpr png_uint_32 kFormats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB,
                                             PNG_FORMAT_RGBA};
  PngImage png;
  png.image.width = static_cast<png_uint_32>(w);
  png.image.height = static_cast<png_uint_32>(h);
  png.image.format = kFormats[c - 1];
  png_alloc_size_t bytes = 0;
  std::string out;
  if (png_image_write_get_memory_size(png.image, bytes, 0, rows.data(), 0, nullptr)) {
    out.resize(bytes);
    if (png_image_write_to_memory(&png.image, out.data(), &bytes, 0, rows.data(), 0, nullptr)) {
      out.resize(bytes);
      return out;
    }
  }
  TD_FAIL(Internal, "encode_png: {}", png.image.message);
}

void save_png(const Tensor& image, const FilePath& path) { write_file(path, encode_png(image)); }

}  // namespace tandem::io
