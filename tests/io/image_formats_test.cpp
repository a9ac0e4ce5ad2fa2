// SPDX-License-Identifier: Apache-2.0
// TIFF and JPEG 2000: what make_golden_images.py wrote, against what Pillow read from it; files
// that are truncated, changed, or claim more than they hold.
#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/ops/ops.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::io {
namespace {

std::string folder() {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/io/images/";
}

/// Whether the library that reads `name` is installed.
bool can_read(const std::string& name) {
  try {
    read_image(folder() + name);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Unsupported) return false;
    throw;
  }
  return true;
}

const char* const kFiles[] = {"rgb.tif", "rgb.jp2"};  // one of each library

TEST(ImageFormats, AsPillow) {
  for (const char* name : kFiles)
    if (!can_read(name)) GTEST_SKIP() << name << " cannot be read here";
  const struct {
    const char* name;
    int away = 0;  ///< greatest difference: roundings of other decoders
  } kCases[] = {
      {"rgb.tif"},        {"lzw.tif"},     {"packbits.tif"},    {"alpha.tif"},
      {"gray_alpha.tif"}, {"deep.tif", 1}, {"bits.tif"},        {"palette.tif"},
      {"jpeg.tif", 2},    {"cmyk.tif", 1}, {"turned2.tif"},     {"turned3.tif"},
      {"turned4.tif"},    {"turned5.tif"}, {"turned6.tif"},     {"turned7.tif"},
      {"turned8.tif"},    {"bigtiff.tif"}, {"deep_planes.tif"}, {"tiles_big_endian.tif"},
      {"rgb.jp2"},        {"alpha.jp2"},   {"gray_alpha.jp2"},  {"gray.j2k"},
      {"deep.jp2"},       {"tiles.jp2"},   {"precincts.j2k"},   {"lossy.j2k", 2},
      {"thinned.jp2", 1},
  };
  const StateDict truth = load_npz(folder() + "pixels.npz");
  EXPECT_EQ(truth.size(), std::size(kCases));
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensor want = truth.at(c.name).permute({2, 0, 1}).to(DType::i32);
    const Tensor got = read_image(folder() + c.name, {.mode = ImageMode::unchanged});
    ASSERT_EQ(got.shape(), want.shape());
    EXPECT_LE((got.to(DType::i32) - want).abs().amax().item<int32_t>(), c.away);
    const int64_t colors = got.size(0) >= 3 ? 3 : 1;
    const Tensor plain = got.narrow(0, 0, colors);
    const Tensor rgb = read_image(folder() + c.name);
    EXPECT_TRUE(equal(rgb, colors == 3 ? plain : contiguous(expand(plain, rgb.shape()))));
    const Tensor gray = read_image(folder() + c.name, {.mode = ImageMode::gray});
    const Tensor v = rgb.to(DType::i32);
    const Tensor luma = v[0] * 19595 + v[1] * 38470 + v[2] * 7471 + 32768;
    EXPECT_TRUE(equal(gray[0], bitwise_right_shift(luma, 16).to(DType::u8)));
  }
}

TEST(ImageFormats, DamagedFilesAreRefused) {
  for (const char* name :
       {"lzw.tif", "bigtiff.tif", "jpeg.tif", "rgb.jp2", "tiles.jp2", "precincts.j2k"}) {
    SCOPED_TRACE(name);
    if (!can_read(name)) GTEST_SKIP() << name << " cannot be read here";
    expect_robust(read_file(folder() + name), true,
                  [](const std::string& bytes) { decode_image(bytes, {.limit = 1 << 20}); });
  }
}

std::string big_endian(std::initializer_list<std::pair<uint64_t, int>> numbers) {
  std::string out;
  for (const auto& [v, bytes] : numbers)
    for (int k = bytes - 1; k >= 0; --k) out += static_cast<char>(v >> (8 * k));
  return out;
}

/// A bare codestream of one component: an image of w x h in tiles of t x t, precincts of 1 << p.
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

/// A TIFF file of one strip: little-endian, gray, w x h, a compression.
std::string tiff(uint64_t w, uint64_t h, uint64_t compression, const std::string& data) {
  std::string out = "II*" + std::string(1, '\0');
  const auto put = [&](uint64_t v, int bytes) {
    for (int k = 0; k < bytes; ++k) out += static_cast<char>(v >> (8 * k));
  };
  put(8 + data.size(), 4);
  out += data;
  const std::pair<uint64_t, uint64_t> tags[] = {{256, w},           {257, h}, {258, 8},
                                                {259, compression}, {262, 1}, {273, 8},
                                                {277, 1},           {278, h}, {279, data.size()}};
  put(std::size(tags), 2);
  for (const auto& [tag, v] : tags) {
    put(tag, 2);
    put(4, 2);
    put(1, 4);
    put(v, 4);
  }
  put(0, 4);
  return out;
}

TEST(ImageFormats, ClaimsAreCheckedFirst) {
  for (const char* name : kFiles)
    if (!can_read(name)) GTEST_SKIP() << name << " cannot be read here";
  const std::string one = tiff(2, 2, 1, "abcd");
  EXPECT_EQ(decode_image(one, {.mode = ImageMode::unchanged}).to_vector<uint8_t>(),
            (std::vector<uint8_t>{'a', 'b', 'c', 'd'}));
  const struct {
    std::string bytes, want;
    int64_t limit = int64_t{1} << 28;
  } kCases[] = {
      {one, "is an image of 2 x 2, at most 3 pixels are allowed", 3},
      {tiff(60000, 60000, 1, "abcd"), "at most 268435456 pixels are allowed"},
      {tiff(16000, 16000, 8, "abcd"), "goes over the limit 'bytes': 2197.3 MB came, 256.0 MB are"},
      {tiff(4000, 4000, 1, "abcd"), "is damaged: "},
      {tiff(2, 2, 34676, "abcd"), "has a compression (34676) that is not supported"},
      {one.substr(0, one.size() - 6), "is damaged: "},
      {codestream(8, 8, 8, 15), "is an image of 8 x 8, at most 63 pixels are allowed", 63},
      {codestream(60000, 60000, 60000, 15), "at most 268435456 pixels are allowed"},
      {codestream(16000, 16000, 16000, 15),
       "goes over the limit 'bytes': 2197.3 MB came, 256.0 MB are"},
      {codestream(4000, 4000, 4000, 0), "claims 16000000 precincts, more than its"},
      {codestream(1000, 1000, 4, 15), "claims 250 x 250 tiles, more than its"},
      {codestream(8, 8, 0, 15), "its size makes no sense"},
      {codestream(8, 8, 8, 15).substr(0, 80), "is truncated: its codestream has no end"},
  };
  for (const auto& c : kCases) {
    const std::string got = error_of([&] { decode_image(c.bytes, {.limit = c.limit}, "x"); });
    EXPECT_EQ(got.rfind("Format: 'x' ", 0), 0u) << got;
    EXPECT_NE(got.find(c.want), got.npos) << got;
  }
}

}  // namespace
}  // namespace tandem::io
