// SPDX-License-Identifier: Apache-2.0
// Files as datasets: CIFAR, text lines, JSON lines, tokens, folders of pictures; and the errors
// that name file and record.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "tandem/tandem.h"
#include "tests/io/io_helper.h"

namespace tandem::data {
namespace {

struct Init {
  Init() { init(); }
} const g_init;

std::string cifar_record(int labels, int label, int fill) {
  std::string r(static_cast<size_t>(labels) - 1, '\x01');
  r += static_cast<char>(label);
  for (int k = 0; k < 3072; ++k) r += static_cast<char>(k < 1024 ? fill : k < 2048 ? 2 * fill : 0);
  return r;
}

TEST(Sources, Cifar) {
  TempFolder f;
  for (int k = 1; k <= 5; ++k)
    write_file(f / fmt::format("data_batch_{}.bin", k), cifar_record(1, k, k));
  write_file(f / "test_batch.bin", cifar_record(1, 9, 100) + cifar_record(1, 0, 50));
  CIFAR10 train(f.path()), test(f.path(), {.train = false});
  EXPECT_EQ(train.size(), 5);
  EXPECT_EQ(train.labels().to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  Example e = test.get(1);
  EXPECT_EQ(e.x.shape(), Shape(3, 32, 32));
  EXPECT_EQ(e.x[0][0][0].item<float>(), 50.0f / 255.0f);
  EXPECT_EQ(e.x[1][31][31].item<float>(), 100.0f / 255.0f);
  EXPECT_EQ(e.y.item<int64_t>(), 0);
  EXPECT_TRUE(equal(test.get_many(std::vector<int64_t>{1, 0}).x, stack({e.x, test.get(0).x})));
  write_file(f / "train.bin", cifar_record(2, 99, 3));
  CIFAR100 fine(f.path());
  EXPECT_EQ(fine.labels().to_vector<int64_t>(), std::vector<int64_t>{99});
  EXPECT_EQ(fine.coarse_labels().to_vector<int64_t>(), std::vector<int64_t>{1});
  write_file(f / "test_batch.bin", cifar_record(1, 3, 1) + "cut");
  EXPECT_EQ(error_of([&] { CIFAR10(f.path(), {.train = false}); }),
            "Format: '" + (f / "test_batch.bin") + "' is cut: record 1 has 3 bytes of 3073.");
  write_file(f / "test_batch.bin", cifar_record(1, 3, 1) + cifar_record(1, 10, 1));
  EXPECT_EQ(error_of([&] { CIFAR10(f.path(), {.train = false}); }),
            "Format: '" + (f / "test_batch.bin") + "': record 1 has label 10 of 10 classes.");
}

TEST(Sources, TextLines) {
  TempFolder f;
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("line {}{}\n", i, i % 3 ? "" : "\r") + "\n";
  write_file(f / "t", text + "no end");
  TextLines lines(f / "t");
  ASSERT_EQ(lines.size(), 201);
  for (int i : {0, 1, 63, 64, 65, 127, 128, 199}) {
    EXPECT_EQ(lines.line(i), fmt::format("line {}", i));
    EXPECT_EQ(lines.number(i), 2 * i + 1);
  }
  EXPECT_EQ(lines.line(200), "no end");
  EXPECT_EQ(lines.get(200).to_vector<unsigned char>().back(), 'd');
  EXPECT_EQ(TextLines(f / "t", {.skip_empty = false}).size(), 401);
  EXPECT_EQ(error_of([&] { lines.line(201); }), "Index: sample 201 of a dataset of 201.");
  EXPECT_EQ(error_of([&] { TextLines(f / "t", {.longest = 7}); }),
            "Format: '" + (f / "t") + "' line 201: 8 bytes, at most 7 are allowed in a line.");
  write_file(f / "empty", "");
  EXPECT_EQ(TextLines(f / "empty").size(), 0);
}

TEST(Sources, AFileMuchLargerThanMemoryCostsLittle) {
  TempFolder f;
  const std::string path = f / "big";
  {  // 2 GB of holes with a short line at either end
    std::ofstream out(path, std::ios::binary);
    out << "first\n";
    for (int64_t at = 1; at <= 2048; ++at) {
      out.seekp(at << 20);
      out << "\n";
    }
    out << "last\n";
  }
  TextLines lines(path);
  EXPECT_EQ(lines.size(), 2050);
  EXPECT_EQ(lines.line(0), "first");
  EXPECT_EQ(lines.line(2049), "last");
}

TEST(Sources, JsonLines) {
  TempFolder f;
  write_file(f / "j",
             "{\"x\": [[1, 2.5], [3, true]], \"y\": 4}\n\n{\"y\": 1, \"x\": [[0, 0], [0, 9]]}\n");
  JsonLines j(f / "j");
  ASSERT_EQ(j.size(), 2);
  Example e = pipeline(j).batch(2).get(0);
  EXPECT_EQ(e.x.to_vector<float>(), (std::vector<float>{1, 2.5, 3, 1, 0, 0, 0, 9}));
  EXPECT_EQ(e.y.to_vector<int64_t>(), (std::vector<int64_t>{4, 1}));
  const std::pair<const char*, const char*> kBad[] = {
      {"[1]", "wants an object, got array"},
      {"{\"x\": [1]}", "the object has no member 'y'"},
      {"{\"x\": [1, \"a\"], \"y\": 1}", "'x' wants numbers, got string"},
      {"{\"x\": [[1], [1, 2]], \"y\": 1}", "the arrays of 'x' have different sizes"},
      {"{\"x\": [1", ""},
  };
  for (const auto& [text, want] : kBad) {
    write_file(f / "bad", "{}\n" + std::string(text) + "\n");
    std::string what = error_of([&] { JsonLines(f / "bad").get(1); });
    EXPECT_EQ(what.rfind("Format: '" + (f / "bad") + "' line 2", 0), 0u) << what;
    EXPECT_NE(what.find(want), what.npos) << what;
  }
}

TEST(Sources, TokenFiles) {
  TempFolder f;
  std::string bytes;
  for (int i = 0; i < 10; ++i) bytes += {static_cast<char>(i), '\x80'};
  write_file(f / "t", bytes);
  TokenFile t(f / "t", {.dtype = DType::i16, .block = 3});
  ASSERT_EQ(t.size(), 3);
  EXPECT_EQ(t.get(2).x.to_vector<int64_t>(), (std::vector<int64_t>{0x8006, 0x8007, 0x8008}));
  EXPECT_EQ(t.get(2).y.to_vector<int64_t>(), (std::vector<int64_t>{0x8007, 0x8008, 0x8009}));
  TokenFile dense(f / "t", {.dtype = DType::u8, .block = 3, .stride = 1, .from = 0.5});
  EXPECT_EQ(dense.tokens(), 10);
  EXPECT_EQ(dense.size(), 7);
  EXPECT_EQ(pipeline(dense).batch(7).get(0).y[6].to_vector<int64_t>(),
            (std::vector<int64_t>{0x80, 9, 0x80}));
  EXPECT_EQ(error_of([&] { TokenFile(f / "t", {.dtype = DType::i32, .block = 5}); }),
            "Value: '" + (f / "t") + "' has 5 tokens there, a sample wants 6.");
  write_file(f / "odd", "abc");
  EXPECT_EQ(error_of([&] { TokenFile(f / "odd", {.dtype = DType::i16}); }),
            "Format: '" + (f / "odd") + "' has 3 bytes, no multiple of 2.");
}

TEST(Sources, Pictures) {
  TempFolder f;
  Tensor picture = counting({3, 5, 7}, DType::u8);
  const std::string png = io::encode_png(picture);
  EXPECT_TRUE(equal(io::decode_image(png), picture));
  EXPECT_TRUE(equal(io::decode_image(io::encode_png(picture[0]), {.mode = io::ImageMode::gray}),
                    unsqueeze(picture[0], 0)));
  EXPECT_EQ(io::decode_image(io::encode_png(counting({4, 2, 2}, DType::u8)),
                             {.mode = io::ImageMode::unchanged})
                .size(0),
            4);
  EXPECT_EQ(error_of([&] { io::decode_image(png, {.limit = 34}); }),
            "Format: 'image' is a picture of 7 x 5, at most 34 pixels are allowed.");
  EXPECT_EQ(error_of([] { io::decode_image("", {}, "x.png"); }),
            "Format: 'x.png' is no JPEG and no PNG file: it is empty.");
  for (size_t n = 8; n + 12 < png.size(); n += 7)  // every cut file is refused
    EXPECT_EQ(error_of([&] { io::decode_image(png.substr(0, n), {}, "cut"); }).rfind("Format: ", 0),
              0u)
        << n;
  for (const char* sub : {"b", "a"}) {
    std::filesystem::create_directory(f / sub);
    write_file(f / (std::string(sub) + "/2.png"), png);
    write_file(f / (std::string(sub) + "/1.PNG"), io::encode_png(full({3, 5, 7}, 255, uint8)));
    write_file(f / (std::string(sub) + "/notes.txt"), "no picture");
  }
  ImageFolder folder(f.path());
  EXPECT_EQ(folder.classes(), (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(folder.size(), 4);
  EXPECT_EQ(folder.get(2).x.amin().item<float>(), 1.0f);
  EXPECT_EQ(folder.get(2).y.item<int64_t>(), 1);
  EXPECT_EQ(ImageFolder(f.path(), {.size = {8, 4}}).get(3).x.shape(), Shape(3, 8, 4));
  write_file(f / "a/2.png", png.substr(0, 40));
  std::string what = error_of([&] { folder.get(1); });
  EXPECT_EQ(what.rfind("Format: '" + (f / "a/2.png") + "' is damaged", 0), 0u) << what;
  ImageFolder lenient(f.path(), {.skip_damaged = true});
  EXPECT_TRUE(equal(lenient.get(1).x, lenient.get(2).x));
  EXPECT_EQ(lenient.damaged(), 1);
  std::filesystem::create_directory(f / "c");
  EXPECT_EQ(error_of([&] { ImageFolder(f.path()); }),
            "Value: ImageFolder: there is no .jpg, .jpeg or .png in '" + (f / "c") + "'.");
}

TEST(Sources, JpegFilesOfAFolder) {
  const char* root = std::getenv("TANDEM_DATA");
  if (!root) GTEST_SKIP() << "TANDEM_DATA is not set";
  const std::string path = std::string(root) + "/bccd/JPEGImages/BloodImage_00000.jpg";
  Tensor x = io::read_image(path);
  EXPECT_EQ(x.shape(), Shape(3, 480, 640));
  EXPECT_EQ(io::read_image(path, {.mode = io::ImageMode::gray}).shape(), Shape(1, 480, 640));
  const std::string bytes = read_file(path);
  for (size_t part = 1; part < 8; ++part)
    EXPECT_EQ(error_of([&] {
                io::decode_image(bytes.substr(0, bytes.size() * part / 8));
              }).rfind("Format: 'image' is damaged", 0),
              0u);
}

}  // namespace
}  // namespace tandem::data
