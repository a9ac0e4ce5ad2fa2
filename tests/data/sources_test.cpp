// SPDX-License-Identifier: Apache-2.0
// Files as datasets: CIFAR, text lines, JSON lines, tokens, folders of images; and the errors
// that name file and record.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "tandem/data/sets/record_datasets.h"
#include "tandem/tandem.h"
#include "tests/data/shards_helper.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

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
            "Format: '" + (f / "test_batch.bin") + "' is truncated: record 1 has 3 bytes of 3073.");
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
            "Format: '" + (f / "t") +
                "' line 201: more than the 7 bytes that are allowed in a line. "
                "Set `longest`, if this is a text file.");
  EXPECT_EQ(TextLines(f / "t", {.longest = 8}).size(), 201);
  write_file(f / "crlf", "1234567\r\n12345678\r\n");
  EXPECT_EQ(TextLines(f / "crlf", {.longest = 8}).line(1), "12345678");
  EXPECT_EQ(TextLines(f / "crlf", {.longest = ~uint64_t{0}}).size(), 2);
  EXPECT_NE(error_of([&] { TextLines(f / "crlf", {.longest = 7}); }).find("line 2"),
            std::string::npos);
  write_file(f / "empty", "");
  EXPECT_EQ(TextLines(f / "empty").size(), 0);
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
      {"[1]", "expected an object, got array"},
      {"{\"x\": [1]}", "the object has no member 'y'"},
      {"{\"x\": [1, \"a\"], \"y\": 1}", "'x' expects numbers, got string"},
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
            "Value: '" + (f / "t") + "' has 5 tokens there, a sample expects 6.");
  write_file(f / "odd", "abc");
  EXPECT_EQ(error_of([&] { TokenFile(f / "odd", {.dtype = DType::i16}); }),
            "Format: '" + (f / "odd") + "' has 3 bytes, no multiple of 2.");
}

TEST(Sources, Images) {
  TempFolder f;
  Tensor image = counting({3, 5, 7}, DType::u8);
  const std::string png = io::encode_png(image);
  EXPECT_TRUE(equal(io::decode_image(png), image));
  EXPECT_TRUE(equal(io::decode_image(io::encode_png(image[0]), {.mode = io::ImageMode::gray}),
                    unsqueeze(image[0], 0)));
  EXPECT_EQ(io::decode_image(io::encode_png(counting({4, 2, 2}, DType::u8)),
                             {.mode = io::ImageMode::unchanged})
                .size(0),
            4);
  io::save_png(image, f / "u8.png");
  EXPECT_EQ(read_file(f / "u8.png"), png);
  io::save_png(image.to(DType::f32) / 255.0, f / "f32.png");
  EXPECT_EQ(read_file(f / "f32.png"), png);
  io::save_png(tensor({-1.0, 0.5, 2.0, static_cast<double>(NAN)}).reshape({2, 2}).to(DType::f16),
               f / "clamped.png");
  EXPECT_TRUE(equal(io::read_image(f / "clamped.png", {.mode = io::ImageMode::gray}),
                    tensor({0, 128, 255, 0}).reshape({1, 2, 2}).to(DType::u8)));
  EXPECT_EQ(error_of([&] { io::decode_image(png, {.limit = 34}); }),
            "Format: 'image' is an image of 7 x 5, at most 34 pixels are allowed.");
  EXPECT_EQ(error_of([] { io::decode_image("", {}, "x.png"); }),
            "Format: 'x.png' is not a JPEG, PNG, WebP, TIFF or JPEG 2000 file: it is empty.");
  for (size_t n = 8; n + 12 < png.size(); n += 7)  // every cut file is refused
    EXPECT_EQ(error_of([&] { io::decode_image(png.substr(0, n), {}, "cut"); }).rfind("Format: ", 0),
              0u)
        << n;
  for (const char* sub : {"b", "a"}) {
    std::filesystem::create_directory(f / sub);
    write_file(f / (std::string(sub) + "/2.png"), png);
    write_file(f / (std::string(sub) + "/1.PNG"), io::encode_png(full({3, 5, 7}, 255, uint8)));
    write_file(f / (std::string(sub) + "/notes.txt"), "no image");
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
            "Value: ImageFolder: there is no .jpg, .jpeg, .png, .webp, .tif, .tiff or .jp2 in '" +
                (f / "c") + "'.");
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

std::string from_hex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return out;
}

TEST(Sources, TFRecord) {
  // tf.io.TFRecordWriter: an Example of three features, then an empty record
  const std::string golden = from_hex(
      "490000000000000036250ea30a470a190a05696d6167651210120e0a0c0000c03f000000c0000050400a170a05"
      "6c6162656c120e1a0c0a0af9ffffffffffffffff010a110a046e616d6512090a070a0261620a0100d03f049b00"
      "0000000000000029039807d8ea82a2");
  TempFolder f;
  write_file(f / "a.tfrecord", golden);
  const io::TFRecordFile file(f / "a.tfrecord");
  ASSERT_EQ(file.size(), 2);
  EXPECT_EQ(io::tfrecord(file.record(0)) + io::tfrecord(file.record(1)), golden);
  const io::TFExample e = io::parse_tf_example(file.record(0));
  EXPECT_EQ(e.at("image").floats, (std::vector<float>{1.5F, -2, 3.25F}));
  EXPECT_EQ(e.at("label").ints, std::vector<int64_t>{-7});
  EXPECT_EQ(e.at("name").bytes, (std::vector<std::string_view>{"ab", std::string_view("\0", 1)}));
  EXPECT_EQ(io::write_tf_example(e), file.record(0));
  const std::string one = golden.substr(0, 89);
  write_file(f / "b-00.tfrecord", one + one);
  write_file(f / "b-01.tfrecord", one);
  const TFRecordDataset all({f / "b-{00..01}.tfrecord"});
  EXPECT_EQ(all.size(), 3);
  EXPECT_EQ(all.get(2).x.to_vector<float>(), (std::vector<float>{1.5F, -2, 3.25F}));
  EXPECT_EQ(all.get(2).y.item<int64_t>(), -7);
  io::TFExample image = e;
  const Tensor pixels = (arange(2 * 3 * 3) * 9).to(DType::u8).reshape({3, 2, 3});
  const std::string png = io::encode_png(pixels);
  image["image"] = {.kind = io::TFFeature::Kind::bytes, .bytes = {png}};
  write_file(f / "c.tfrecord", io::tfrecord(io::write_tf_example(image)));
  EXPECT_TRUE(equal(TFRecordDataset({f / "c.tfrecord"}).get(0).x, pixels));
  const TFRecordDataset raw({f / "c.tfrecord"}, {.x_raw = DType::u8});
  EXPECT_EQ(raw.get(0).x.numel(), static_cast<int64_t>(png.size()));
  EXPECT_EQ(error_of([&] { TFRecordDataset({f / "a.tfrecord"}, {.x = "imag"}).get(0); }),
            "Format: '" + (f / "a.tfrecord") +
                "' record 0: there is no feature 'imag', it has (image, label, name).");
  std::string damaged = golden;
  damaged[40] ^= 1;
  write_file(f / "d", damaged);
  EXPECT_EQ(error_of([&] { TFRecordDataset({f / "d"}).get(0); }),
            "Format: '" + (f / "d") + "': record 0 is damaged: its checksum is wrong.");
  expect_robust(golden, f / "r", false, [](const std::string& path) {
    const TFRecordDataset d({path});
    for (int64_t i = 0; i < d.size(); ++i) d.example(i);
  });
}

TEST(Sources, WebP) {
  // Pillow: lossless 10 x 6, red 25 x, green 50 y, blue 200 in [2:4, 3:6]; then with alpha
  const std::string rgb = from_hex(
      "5249464638000000574542505650384c2b0000002f09400100b98ce87fec220adfff3028641b011ad3f9eb3d0a4b"
      "33c482c9b0f2bfc28a09103d3656faea0200");
  const std::string rgba = from_hex(
      "5249464640000000574542505650384c340000002f09400110b98ce87fec220adfff8041b691ca74fe7afb57980c"
      "b16032acfcafb0840409d1cbbe9f00a425d7d28b881331bfbc00");
  Tensor x;
  try {
    x = io::decode_image(rgb);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Unsupported) GTEST_SKIP() << e.what();
    throw;
  }
  ASSERT_EQ(x.shape(), Shape(3, 6, 10));
  EXPECT_TRUE(equal(x[0][4], (arange(10) * 25).to(DType::u8)));
  EXPECT_EQ(x[1][5][3].item<int64_t>(), 250);
  EXPECT_EQ(x[2].to(DType::i64).sum().item<int64_t>(), 6 * 200);
  const Tensor y = io::decode_image(rgba, {.mode = io::ImageMode::unchanged});
  ASSERT_EQ(y.shape(), Shape(4, 6, 10));
  EXPECT_TRUE(equal(y.narrow(0, 0, 3), x));
  EXPECT_EQ(y[3][0][0].item<int64_t>(), 7);
  const Tensor gray = io::decode_image(rgb, {.mode = io::ImageMode::gray});
  EXPECT_EQ(gray[0][2].to_vector<uint8_t>(),
            (std::vector<uint8_t>{59, 66, 74, 104, 111, 119, 104, 111, 118, 126}));
  for (size_t n = 12; n < rgb.size(); ++n)
    EXPECT_EQ(error_of([&] {
                io::decode_image(std::string_view(rgb).substr(0, n));
              }).rfind("Format: 'image' is damaged", 0),
              0U)
        << n;
}

TEST(Sources, WebDataset) {
  TempFolder f;
  const std::string png = io::encode_png(full({3, 4, 5}, 7, DType::u8));
  const std::string longer(120, 'n');
  const std::string end(1024, '\0');
  write_file(f / "s-0.tar", tar_entry("dir/", "", '5') + tar_entry("dir/a.cls", "3\n") +
                                tar_entry("dir/a.png", png) + tar_entry("dir/a.json", "{}") + end);
  write_file(f / "s-1.tar", tar_entry("././@LongLink", longer + ".png", 'L') +
                                tar_entry("cut", png) +
                                tar_entry("x", "134 path=" + longer + ".cls\n", 'x') +
                                tar_entry("cut", "12") + end);
  const WebDataset d({f / "s-{0..1}.tar"});
  ASSERT_EQ(d.size(), 2);
  EXPECT_EQ(d.get(0).y.item<int64_t>(), 3);
  EXPECT_EQ(d.get(1).y.item<int64_t>(), 12);
  EXPECT_TRUE(equal(d.get(1).x, full({3, 4, 5}, 7, DType::u8)));
  EXPECT_EQ(d.entry(0, "json"), "{}");
  EXPECT_EQ(d.name_of(1), (f / "s-1.tar") + ": " + longer);
  EXPECT_EQ(error_of([&] { d.entry(0, "txt"); }),
            "Value: " + (f / "s-0.tar") + ": dir/a has no entry 'txt', it has (cls, png, json).");
  write_file(f / "bad.tar", tar_entry("a.png", png) + end);
  EXPECT_EQ(error_of([&] { WebDataset({f / "bad.tar"}); }),
            "Value: '" + (f / "bad.tar") + "': the sample 'a' has no entry 'cls'.");
  write_file(f / "bad.tar", tar_entry("a.png", png) + tar_entry("a.cls", "cat") + end);
  EXPECT_EQ(error_of([&] { WebDataset({f / "bad.tar"}).get(0); }),
            "Format: " + (f / "bad.tar") + ": a.cls: 'cat' is not a number.");
  EXPECT_EQ(error_of([&] { expand_shards("a{1-2}"); }),
            "Value: 'a{1-2}': braces expect two numbers such as {000..007}.");
  // Truncated and damaged archives give Format, and nothing outside the file is exposed.
  const std::string whole = tar_entry("a.png", png) + tar_entry("a.cls", "1");
  const auto outcome = [&](const std::string& bytes) {
    std::ofstream(f / "r.tar", std::ios::binary) << bytes;
    return error_of([&] {
      const io::TarFile t(f / "r.tar");
      for (const auto& e : t.entries()) EXPECT_LE(e.bytes.size(), bytes.size());
    });
  };
  for (size_t n = 1; n < whole.size(); n += 61) {
    // The padding of an entry's last block may be missing.
    const bool fits = (n >= 512 + png.size() && n <= 1024) || n > 1536;
    EXPECT_EQ(outcome(whole.substr(0, n)).rfind("Format: ", 0), fits ? std::string::npos : 0) << n;
  }
  for (size_t n = 0; n < 512; n += 3) {
    std::string changed = whole;
    changed[n] = static_cast<char>(changed[n] ^ 0x11);
    EXPECT_EQ(outcome(changed).rfind("Format: ", 0), 0U) << n;
  }
}

}  // namespace
}  // namespace tandem::data
