// SPDX-License-Identifier: Apache-2.0
// `tandem predict` of a run prepares an image like the run's test set: an image of each kind of
// data goes through `tandem eval --output` and `tandem predict`, and the outputs are the same to
// the bit. Masks, drawings and boxes as files and lines.
#include <gtest/gtest.h>

#include <array>

#include "tandem/data/sets/datasets.h"
#include "tandem/data/transforms/image_ops.h"
#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/io/tensorflow/tfrecord.h"
#include "tandem/models/vision/detector.h"
#include "tandem/tandem.h"
#include "tests/cli/tool_helper.h"
#include "tests/data/shards_helper.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using cli_test::has;
using cli_test::Result;
using cli_test::text_of;
using cli_test::tool;

Tensor noise(const Shape& shape) { return (rand(shape) * 255).to(DType::u8); }
std::string png(const Tensor& x) { return io::encode_png(x); }
std::string text_of_index(int64_t i) { return fmt::format("{:03}", i); }

class PredictRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
    manual_seed(7);
  }
  static void train(const std::string& name, const std::string& data, const std::string& model,
                    const std::string& loss) {
    write_file(folder_ / "recipe.yaml",
               "recipe: r\nseed: 0\ndata: " + data + "\nmodel: " + model + "\n" + loss +
                   "optim: {type: sgd, lr: 0.01}\ntrainer: {max_steps: 2, report: false, "
                   "metrics: []}\n");
    const Result r = tool("train " + (folder_ / "recipe.yaml") + " --quiet --run " +
                          (folder_ / name.c_str()) + " 2>&1");
    ASSERT_EQ(r.code, 0) << r.text << text_of(folder_ / "recipe.yaml");
  }
  // The output for sample `index` of the test set, of batches of one, by `tandem eval`.
  static Tensor evaluated(const std::string& run, int64_t index, const std::string& more) {
    const std::string file = folder_ / "evaluated.npz";
    const Result r =
        tool("eval " + (folder_ / run.c_str()) + " " + more + " --output " + file + " 2>&1");
    EXPECT_EQ(r.code, 0) << r.text;
    if (r.code != 0) return {};
    const StateDict all = io::load_npz(file);
    if (const Tensor* rows = all.find("output")) return rows->narrow(0, index, 1).clone();
    return all.at("output." + std::to_string(index));
  }
  static Tensor predicted(const std::string& run, const std::string& image) {
    const std::string file = folder_ / "predicted.npz";
    const Result r = tool("predict " + (folder_ / run.c_str()) + " --input " + image +
                          " --output " + file + " 2>&1");
    EXPECT_EQ(r.code, 0) << r.text;
    return r.code == 0 ? io::load_npz(file).at("output") : Tensor();
  }
  // Compares both ways.
  static void same(const std::string& run, int64_t index, const std::string& image,
                   const std::string& more = "data.eval_batch=1") {
    const Tensor want = evaluated(run, index, more), got = predicted(run, image);
    ASSERT_TRUE(want.defined() && got.defined()) << run;
    ASSERT_EQ(want.shape().to_string(), got.shape().to_string()) << run;
    EXPECT_EQ(want.to_vector<float>(), got.to_vector<float>()) << run;
  }
  static std::string at(const std::string& name) { return folder_ / name.c_str(); }
  static inline TempFolder folder_;
};

const char* const kLoss = "loss: {type: cross_entropy}\n";
const char* const kMlp = "{type: mlp, hidden: [8]}";
const char* const kGray = "{type: Normalize, mean: [0.3], std: [0.4]}";
const char* const kRgb = "{type: Normalize, mean: [0.1, 0.2, 0.3], std: [0.4, 0.3, 0.2]}";

TEST_F(PredictRun, ImagesInArrays) {
  // Of another size than the model's: the chain follows the data's own preparation.
  const std::string chain = "[{type: Resize, size: 12}, " + std::string(kGray) + "]";
  train("digits", "{type: digits, transforms: " + chain + ", test_transforms: " + chain + "}", kMlp,
        kLoss);
  const data::Digits test({.train = false});
  write_file(at("digit.png"), png(round(test.get(5).x * 255.0).to(DType::u8)));
  same("digits", 5, at("digit.png"));
  // A larger image is first resized to the data's size.
  const Tensor large = noise({1, 30, 20});
  write_file(at("large.png"), png(large));
  write_file(at("small.png"), png(data::resize_image(large, 8, 8)));
  EXPECT_EQ(predicted("digits", at("large.png")).to_vector<float>(),
            predicted("digits", at("small.png")).to_vector<float>());
  // A run from before the shape was recorded: the one after the transforms is used.
  train("before", "{type: digits, test_transforms: [" + std::string(kGray) + "]}", kMlp, kLoss);
  std::string kept = text_of(at("before/data.json"));
  kept.erase(kept.rfind(",\n \"image\""));
  write_file(at("before/data.json"), kept + "\n}\n");
  same("before", 5, at("digit.png"));

  StateDict arrays;
  arrays["x"] = noise({40, 6, 7, 3});
  arrays["y"] = remainder(arange(40), 2);
  arrays["tx"] = noise({9, 6, 7, 3});
  arrays["ty"] = remainder(arange(9), 2);
  io::save_npz(arrays, at("a.npz"));
  write_file(at("array.png"), png(arrays["tx"].select(0, 4).permute({2, 0, 1}).contiguous()));
  for (const std::string& more :
       {std::string("}"), ", test_transforms: [" + std::string(kRgb) + "]}"}) {
    const std::string run = more.size() > 1 ? "npy-chain" : "npy";
    train(
        run,
        "{type: npy, root: " + at("a.npz") + ", test_x: tx, test_y: ty, channels_last: true" + more,
        kMlp, kLoss);
    same(run, 4, at("array.png"));
  }
}

TEST_F(PredictRun, ImagesInFolders) {
  for (const char* set : {"train", "test"})
    for (int64_t i = 0; i < 8; ++i) {
      const std::string sub = at(set) + (i % 2 ? "/cat" : "/dog");
      fs::create_directories(sub);
      write_file(sub + "/" + text_of_index(i) + ".png", png(noise({3, 10 + i, 20 - i})));
    }
  // Sorted by class: cat/001, 003, 005, 007, dog/000, ...
  const std::string of_one = at("test") + "/cat/005.png";
  const std::string data =
      "{type: image_folder, root: " + at("train") + ", val_part: 0.25, test: " + at("test");
  train("folder", data + ", size: 8, test_transforms: [" + kRgb + "]}", kMlp, kLoss);
  same("folder", 2, of_one);
  const std::string resize = "{type: Resize, size: [8, 8]}, ";
  train("transformed",
        data + ", size: 0, transforms: [" + resize + kRgb + "], test_transforms: [" + resize +
            "{type: CenterCrop, size: 8}, " + kRgb + "]}",
        kMlp, kLoss);
  same("transformed", 2, of_one);
}

TEST_F(PredictRun, ImagesInRecords) {
  std::string shard, records;
  for (int64_t i = 0; i < 12; ++i) {
    const std::string bytes = png(noise({3, 9 + i, 14}));
    if (i == 3) write_file(at("record.png"), bytes);
    shard += data::tar_entry(text_of_index(i) + ".png", bytes);
    shard += data::tar_entry(text_of_index(i) + ".cls", std::to_string(i % 2));
    io::TFExample e;
    e["image"] = {.kind = io::TFFeature::Kind::bytes, .bytes = {bytes}};
    e["label"] = {.kind = io::TFFeature::Kind::ints, .ints = {i % 2}};
    records += io::tfrecord(io::write_tf_example(e));
  }
  write_file(at("a.tar"), shard + std::string(1024, '\0'));
  write_file(at("a.tfrecord"), records);
  for (const char* type : {"webdataset", "tfrecord"}) {
    const std::string file = at(type[0] == 'w' ? "a.tar" : "a.tfrecord");
    train(type,
          "{type: " + std::string(type) + ", root: " + file + ", test: " + file +
              ", classes: 2, size: 6, test_transforms: [" + kRgb + "]}",
          kMlp, kLoss);
    same(type, 3, at("record.png"));
  }
}

TEST_F(PredictRun, ImagesWithMasks) {
  for (const char* sub : {"m/image", "m/label"}) fs::create_directories(at(sub));
  for (int64_t i = 0; i < 5; ++i) {
    const int64_t h = 20 + 3 * i, w = 33 - 2 * i;  // other sizes than the crop's, and each its own
    write_file(at("m/image/") + text_of_index(i) + ".png", png(noise({1, h, w})));
    write_file(at("m/label/") + text_of_index(i) + ".png",
               png(((noise({1, h, w}) > 127).to(DType::u8) * 255).to(DType::u8)));
  }
  const std::string data =
      "{type: image_mask, root: " + at("m") + ", crop: 16, crops: 2, batch: 2, test_samples: 2";
  const char* const unet = "{type: unet, base: 2}";
  train("unet", data + ", normalize: image, test_transforms: [{type: RandomAutocontrast, p: 1}]}",
        unet, kLoss);
  for (int64_t i = 0; i < 2; ++i)
    same("unet", i, at("m/image/") + text_of_index(3 + i) + ".png", "");
  // A partly prepared image would be noticed.
  train("plain", data + "}", unet, kLoss);
  const std::string last = at("m/image/004.png");
  same("plain", 1, last, "");
  EXPECT_NE(predicted("plain", last).to_vector<float>(),
            predicted("unet", last).to_vector<float>());
  // The mask as an image of the same size.
  const Tensor y = predicted("unet", last);
  const std::string mask = at("mask.png");
  const Result r =
      tool("predict " + at("unet") + " --input " + last + " --output " + mask + " 2>&1");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "mask.png: 32 x 25 (h, w)")) << r.text;
  EXPECT_EQ(io::read_image(mask, {.mode = io::ImageMode::gray}).to(DType::i64).to_vector<int64_t>(),
            (argmax(y, 1) * 255).to_vector<int64_t>());
}

TEST_F(PredictRun, ImagesWithBoxes) {
  for (const char* sub : {"voc/JPEGImages", "voc/Annotations", "voc/ImageSets/Main"})
    fs::create_directories(at(sub));
  std::string ids;
  for (int64_t i = 0; i < 4; ++i) {
    const std::string id = text_of_index(i);
    ids += id + "\n";
    write_file(at("voc/JPEGImages/") + id + ".jpg", png(noise({3, 96, 160})));  // told by its bytes
    write_file(at("voc/Annotations/") + id + ".xml",
               "<annotation><object><name>" + std::string(i % 2 ? "red" : "white") +
                   "</name><bndbox><xmin>20</xmin><ymin>16</ymin><xmax>80</xmax><ymax>64</ymax>"
                   "</bndbox></object></annotation>");
  }
  for (const char* set : {"train", "test"})
    write_file(at("voc/ImageSets/Main/") + set + ".txt", ids);
  const std::string data = "{type: voc, root: " + at("voc") +
                           ", size: [32, 64], batch: 2, val: '', classes: [white, red]";
  const std::string image = at("voc/JPEGImages/002.jpg");
  const auto lines = [&](const char* run, const std::string& more) {
    const Result r = tool("predict " + at(run) + " --input " + image + " " + more + " 2>&1");
    EXPECT_EQ(r.code, 0) << r.text;
    return r.text;
  };
  train("voc", data + ", test_transforms: [" + kRgb + "]}", "{type: detector, width: 8}", "");
  same("voc", 2, image);
  // Names, scores, and corners in the file's pixels.
  const models::Detections d = models::Detector({.classes = 2, .width = 8})
                                   .decode(predicted("voc", image).squeeze(0), {.score = 0.001});
  ASSERT_GT(d.scores.size(0), 0);
  const auto b = d.boxes.to_vector<float>();
  const std::string first = fmt::format(
      "{:<12} {:.4f} {:8.1f} {:8.1f} {:8.1f} {:8.1f}\n",
      d.labels.select(0, 0).item<int64_t>() == 0 ? "white" : "red",
      d.scores.select(0, 0).item<float>(), b[0] * 2.5, b[1] * 3.0, b[2] * 2.5, b[3] * 3.0);
  const std::string all = lines("voc", "--score 0.001");
  EXPECT_TRUE(all.starts_with(first)) << first << all;
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), d.scores.size(0)) << all;
  EXPECT_EQ(lines("voc", "--score 0.001 --top 1"), first);
  EXPECT_EQ(lines("voc", "--score 0.9999"), "no box has a score of 0.9999 or more\n");
  // Through a chain that moves pixels, too; a cropped part keeps its place.
  train("moved",
        data +
            ", test_transforms: [{type: Resize, size: [64, 64]}, {type: Pad, padding: "
            "[32, 0]}]}",
        "{type: detector, width: 8}", "");
  same("moved", 2, image);
  const models::Detections m = models::Detector({.classes = 2, .width = 8})
                                   .decode(predicted("moved", image).squeeze(0), {.score = 0.001});
  ASSERT_GT(m.scores.size(0), 0);
  const float x1 = m.boxes.to_vector<float>()[0];
  EXPECT_TRUE(
      has(lines("moved", "--score 0.001 --top 1"), fmt::format(" {:8.1f} ", (x1 - 32) * 2.5)));
}

TEST_F(PredictRun, DrawingsAndMistakes) {
  train("vae", "{type: digits}", "{type: vae, hidden: 16, latent: 2}", "");
  write_file(at("eight.png"), png(noise({1, 8, 8})));
  const Tensor y = predicted("vae", at("eight.png"));
  ASSERT_EQ(tool("predict " + at("vae") + " --input " + at("eight.png") + " --output " +
                 at("drawn.png") + " >/dev/null")
                .code,
            0);
  EXPECT_EQ(io::read_image(at("drawn.png"), {.mode = io::ImageMode::gray})
                .to(DType::f32)
                .to_vector<float>(),
            round(y * 255.0).to_vector<float>());

  write_file(at("rows.csv"), "a,b,y\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n");
  train("rows", "{type: csv, root: " + at("rows.csv") + ", val_part: 0.5}", kMlp, kLoss);
  train("digit", "{type: digits}", kMlp, kLoss);
  const std::array<std::string, 3> kRows[] = {
      {"rows", "", "Give an .npy file"},
      {"digit", "--output " + at("x.png"), "the result [1, 10] is not an image"},
      {"vae", "", "Write it with --output y.npz or image.png"},
  };
  for (const auto& [run, more, want] : kRows) {
    const Result r =
        tool("predict " + at(run) + " --input " + at("eight.png") + " " + more + " 2>&1");
    EXPECT_EQ(r.code, 1) << run;
    EXPECT_TRUE(has(r.text, want)) << want << " in " << r.text;
  }
}

TEST_F(PredictRun, MnistOfFiles) {
  const char* all = std::getenv("TANDEM_DATA");
  if (!all || !fs::exists(std::string(all) + "/mnist")) GTEST_SKIP() << "TANDEM_DATA has no mnist";
  train("mnist", "{type: mnist, val_part: 0}", kMlp, kLoss);
  const data::MNIST test(std::string(all) + "/mnist", {.train = false});
  write_file(at("mnist.png"), png(round(test.get(77).x * 255.0).to(DType::u8)));
  same("mnist", 77, at("mnist.png"));
}

}  // namespace
}  // namespace tandem
