// SPDX-License-Identifier: Apache-2.0
// Damaged samples in each dataset of many files: they stop reading by name, or are skipped and
// counted, as configured; and check_files(), which finds them all.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tandem/data/audio.h"
#include "tandem/data/check_files.h"
#include "tandem/data/sets/record_datasets.h"
#include "tandem/data/sets/vision_datasets.h"
#include "tandem/tandem.h"
#include "tests/data/shards_helper.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

std::string png_of(int64_t value) { return io::encode_png(full({3, 4, 5}, value, DType::u8)); }
void put(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}
void expect_begins(const std::string& text, const std::string& begin) {
  EXPECT_EQ(text.substr(0, begin.size()), begin);
}

/// Sample 1 of three is damaged: with skip_damaged it is replaced by sample 2.
template <class D, class Field>
void expect_skips(const D& strict, const D& lenient, const std::string& error, Field x) {
  ASSERT_EQ(strict.size(), 3);
  expect_begins(error_of([&] { strict.get(1); }), "Format: " + error);
  EXPECT_EQ(strict.damaged(), 0);
  EXPECT_EQ(lenient.damaged(), 0);
  const D copy = lenient;  // copies share the count
  EXPECT_TRUE(equal(x(copy.get(1)), x(strict.get(2))));
  EXPECT_FALSE(equal(x(copy.get(1)), x(strict.get(0))));
  EXPECT_EQ(lenient.damaged(), 2);
  expect_begins(error_of([&] { lenient.get(3); }), "Index: ");
}

TEST(Damaged, Masks) {
  TempFolder f;
  for (int64_t k : {0, 1, 2}) {
    put(f / fmt::format("image/{}.png", k), png_of(10 * k));
    put(f / fmt::format("label/{}.png", k), png_of(k == 2 ? 255 : 0));
  }
  put(f / "label/1.png", png_of(0).substr(0, 50));
  expect_skips(ImageMaskFolder(f.path()), ImageMaskFolder(f.path(), {.skip_damaged = true}),
               "'" + (f / "label/1.png") + "' is damaged", [](const Example& e) { return e.y; });
}

TEST(Damaged, VocBoxes) {
  TempFolder f;
  const auto xml = [](int64_t x) {
    return fmt::format(
        "<annotation><object><name>a</name><bndbox><xmin>{}</xmin><ymin>0</ymin><xmax>4</xmax>"
        "<ymax>4</ymax></bndbox></object></annotation>",
        x);
  };
  for (int64_t k : {0, 1, 2}) {
    put(f / fmt::format("Annotations/{}.xml", k), xml(k));
    put(f / fmt::format("JPEGImages/{}.jpg", k), png_of(k));  // told by its bytes, not its name
  }
  put(f / "JPEGImages/1.jpg", "\xff\xd8\xff broken");
  expect_skips(VOCDetection(f.path()), VOCDetection(f.path(), {.skip_damaged = true}),
               "'" + (f / "JPEGImages/1.jpg") + "' is damaged",
               [](const Detection& d) { return d.boxes; });
  put(f / "Annotations/2.xml", xml(2).substr(0, 60));
  expect_begins(error_of([&] { VOCDetection v(f.path()); }),
                "Format: '" + (f / "Annotations/2.xml") + "' is not a complete <annotation>");
  const VOCDetection left(f.path(), {.skip_damaged = true});
  EXPECT_EQ(left.size(), 2);
  EXPECT_EQ(left.damaged(), 1);
}

TEST(Damaged, Sounds) {
  TempFolder f;
  for (int64_t k : {0, 1, 2})
    io::save_wav(full({1, 100}, 0.1 * static_cast<double>(k + 1)), 8000,
                 f / fmt::format("{}_x.wav", k));
  put(f / "1_x.wav", "RIFF");
  expect_skips(WavFolder(f.path()), WavFolder(f.path(), {.skip_damaged = true}),
               "'" + (f / "1_x.wav") + "'", [](const Example& e) { return e.x; });
}

std::string record_of(float x, int64_t y) {
  io::TFExample e;
  e["image"] = {.kind = io::TFFeature::Kind::floats, .floats = {x, x}};
  e["label"] = {.kind = io::TFFeature::Kind::ints, .ints = {y}};
  return io::tfrecord(io::write_tf_example(e));
}

TEST(Damaged, TFRecords) {
  TempFolder f;
  std::string bad = record_of(1, 1);
  bad[20] = static_cast<char>(bad[20] ^ 1);
  put(f / "a.tfrecord", record_of(0, 0) + bad + record_of(2, 2));
  const auto x = [](const Example& e) { return e.x; };
  expect_skips(TFRecordDataset({f / "a.tfrecord"}),
               TFRecordDataset({f / "a.tfrecord"}, {.skip_damaged = true}),
               "'" + (f / "a.tfrecord") + "': record 1 is damaged: its checksum is wrong", x);
  // A damaged length: the records before it, and the next file.
  std::string cut = record_of(1, 1);
  cut[0] = static_cast<char>(cut[0] ^ 1);
  put(f / "b-0.tfrecord", record_of(5, 5) + cut + record_of(6, 6));
  put(f / "b-1.tfrecord", record_of(7, 7));
  expect_begins(error_of([&] { TFRecordDataset d({f / "b-{0..1}.tfrecord"}); }),
                "Format: '" + (f / "b-0.tfrecord") + "': the length of record 1 is damaged");
  const TFRecordDataset left({f / "b-{0..1}.tfrecord"}, {.skip_damaged = true});
  ASSERT_EQ(left.size(), 2);
  EXPECT_EQ(left.damaged(), 1);
  EXPECT_EQ(left.get(1).y.item<int64_t>(), 7);
}

TEST(Damaged, TarShards) {
  TempFolder f;
  const std::string end(1024, '\0');
  const auto sample = [](const std::string& name, int64_t v) {
    return tar_entry(name + ".png", png_of(v)) + tar_entry(name + ".cls", std::to_string(v));
  };
  put(f / "a.tar", sample("0", 0) + tar_entry("1.png", png_of(1).substr(0, 40)) +
                       tar_entry("1.cls", "1") + sample("2", 2) + end);
  const auto x = [](const Example& e) { return e.x; };
  expect_skips(WebDataset({f / "a.tar"}), WebDataset({f / "a.tar"}, {.skip_damaged = true}),
               "'" + (f / "a.tar") + ": 1.png' is damaged", x);
  std::string bad = sample("3", 3);
  bad[0] = static_cast<char>(bad[0] ^ 1);
  put(f / "b.tar",
      sample("0", 0) + tar_entry("lonely.png", png_of(1)) + sample("2", 2) + bad + end);
  const WebDataset left({f / "b.tar"}, {.skip_damaged = true});
  ASSERT_EQ(left.size(), 2);
  EXPECT_EQ(left.damaged(), 2);  // the lonely one, and the shard's end
  EXPECT_EQ(left.get(1).y.item<int64_t>(), 2);
}

TEST(Damaged, NothingReadableThrows) {
  TempFolder f;
  put(f / "a_x.wav", "RIFF");
  put(f / "b_x.wav", "RIFF");
  const WavFolder d(f.path(), {.skip_damaged = true});
  expect_begins(error_of([&] { d.get(0); }), "Format: ");
  EXPECT_EQ(d.damaged(), 2);
}

TEST(Damaged, AFolderIsChecked) {
  TempFolder f;
  put(f / "in/b.png", png_of(1));
  put(f / "in/a.PNG", png_of(1).substr(0, 40));
  put(f / "in/empty.jpg", "");
  put(f / "in/deep/wrong.jpg", "text");
  io::save_wav(full({1, 100}, 0.5), 8000, f / "in/x.wav");
  put(f / "in/y.flac", "fLaC");
  std::string bad = record_of(1, 1);
  bad[20] = static_cast<char>(bad[20] ^ 1);
  put(f / "in/r.tfrecord", record_of(0, 0) + bad + record_of(2, 2) + "end");
  put(f / "in/s.tar", tar_entry("0.png", png_of(3)) + tar_entry("1.png", "x") +
                          tar_entry("1.cls", "1") + std::string(1024, '\0'));
  put(f / "in/cut.tar", tar_entry("0.png", png_of(3)).substr(0, 600));
  put(f / "in/notes.txt", "");
  const FolderReport r = check_files(f / "in");
  std::string kinds, damaged;
  for (const auto& k : r.kinds) kinds += fmt::format("{} {} {}\n", k.what, k.readable, k.damaged);
  EXPECT_EQ(kinds,
            "images 1 3\nsounds 1 1\nrecords of TFRecord files 2 2\nentries of tar shards 2 2\n");
  EXPECT_EQ(r.other, 1);
  EXPECT_EQ(r.readable(), 6);
  std::vector<std::string> paths;
  for (const DamagedFile& d : r.damaged) {
    paths.push_back(d.path);
    EXPECT_FALSE(d.reason.empty()) << d.path;
    EXPECT_EQ(d.reason.find(f.path().string()), std::string::npos) << d.reason;
    if (d.path == "empty.jpg") {
      EXPECT_EQ(d.reason, "is empty");
    }
    if (d.path == "deep/wrong.jpg") {
      EXPECT_EQ(d.reason, "is not a JPEG, PNG, WebP, TIFF or JPEG 2000 file");
    }
    if (d.path == "r.tfrecord" && d.reason[0] == 'r' && d.reason.find("sum") != std::string::npos) {
      EXPECT_EQ(d.reason, "record 1 is damaged: its checksum is wrong");
    }
  }
  EXPECT_EQ(paths,
            (std::vector<std::string>{"a.PNG", "cut.tar", "deep/wrong.jpg", "empty.jpg",
                                      "r.tfrecord", "r.tfrecord", "s.tar: 1.png", "y.flac"}));
  EXPECT_EQ(r.to_json().find("damaged")->as_array()->size(), 8U);
  std::filesystem::create_directory(f / "none");
  expect_begins(error_of([&] { check_files(f / "none"); }), "Value: there are no images, sounds");
  expect_begins(error_of([&] { check_files(f / "missing"); }), "Io: cannot list");
}

}  // namespace
}  // namespace tandem::data
