// SPDX-License-Identifier: Apache-2.0
// What recipes can set for their data and models: transforms and mixing, initial weights, frozen
// parts, LoRA, files of every kind, damaged samples.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/io/tensorflow/tfrecord.h"
#include "tandem/tandem.h"
#include "tests/cli/tool_helper.h"
#include "tests/data/shards_helper.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

using cli_test::has;
using cli_test::Result;
using cli_test::shell;
using cli_test::text_of;
using cli_test::tool;
using nlohmann::json;

class RecipeParts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
  }
  // The line of JSON of a run of digits-mlp (tests run in the source folder) with changes.
  static json digits(const std::string& changes, const std::string& before = "") {
    const Result r = shell(before + " " + std::string(std::getenv("TANDEM_TOOL")) +
                           " train recipes/digits-mlp.yaml --json trainer.epochs=2 "
                           "trainer.report=false " +
                           changes + " 2>/dev/null");
    EXPECT_EQ(r.code, 0) << r.text;
    return r.code == 0 ? json::parse(r.text) : json{};
  }
  // The error text of a run that must fail.
  static std::string mistake(const std::string& changes) {
    const Result r = tool("train recipes/digits-mlp.yaml --quiet --run " + (folder_ / "mistake") +
                          " " + changes + " 2>&1");
    EXPECT_EQ(r.code, 1) << changes;
    return r.text;
  }
  std::string run(const char* name) const { return "--run " + (folder_ / name); }
  std::string recipe(const std::string& text) const {
    write_file(folder_ / "recipe.yaml", text);
    return folder_ / "recipe.yaml";
  }
  // A training run of a whole recipe.
  json train(const std::string& text, const std::string& more = "") const {
    const Result r = tool("train " + recipe(text) + " --json " + more + " " + run("any") + " 2>" +
                          (folder_ / "stderr"));
    EXPECT_EQ(r.code, 0) << text_of(folder_ / "stderr") << text;
    std::filesystem::remove_all(folder_ / "any");
    return r.code == 0 ? json::parse(r.text) : json{};
  }
  static inline TempFolder folder_;
};

// ---- augmentation

TEST_F(RecipeParts, TransformsOfAnyThreadsGiveTheSameBits) {
  const std::string chain =
      "'data.transforms=[{type: RandomCrop, size: 8, padding: 1}, {type: RandomApply, p: 0.7, "
      "transforms: [{type: RandomRotation, degrees: 15, interpolation: bilinear}]}, {type: "
      "ColorJitter, brightness: 0.3}, {type: Normalize, mean: [0.3], std: [0.4]}]' "
      "'data.test_transforms=[{type: Normalize, mean: [0.3], std: [0.4]}]' ";
  const json one = digits(chain + run("t1"), "TANDEM_NUM_THREADS=1"),
             two = digits(chain + run("t2"), "TANDEM_NUM_THREADS=2"), plain = digits(run("t3"));
  EXPECT_EQ(one["test/loss"], two["test/loss"]);
  EXPECT_EQ(one["train/loss"], two["train/loss"]);
  EXPECT_NE(one["train/loss"], plain["train/loss"]);
  // The resolved recipe starts the same run again.
  const std::string config = folder_ / "t1/config.yaml";
  EXPECT_TRUE(has(text_of(config), "type: RandomRotation")) << text_of(config);
  const Result again = tool("train " + config + " --json " + run("t4") + " 2>/dev/null");
  ASSERT_EQ(again.code, 0) << again.text << text_of(config);
  EXPECT_EQ(json::parse(again.text)["test/loss"], one["test/loss"]);
}

TEST_F(RecipeParts, MixedBatchesTrain) {
  const json mixup = digits("data.mixup=0.2 " + run("m1")),
             both = digits("data.mixup=0.2 data.cutmix=1 trainer.epochs=4 " + run("m2")),
             plain = digits(run("m3"));
  EXPECT_NE(mixup["train/loss"], plain["train/loss"]);
  EXPECT_GT(both["test/accuracy"], 0.5);
  EXPECT_GT(both["train/accuracy"], 0.2);  // of the likelier class
}

TEST_F(RecipeParts, MistakesInTransformsNameTheirPlace) {
  std::string text = mistake("'data.transforms=[{type: RandomCorp, size: 8}]'");
  EXPECT_TRUE(has(text,
                  "data.transforms.0.type: there is no transform 'RandomCorp', did you mean "
                  "'RandomCrop'?"))
      << text;
  text = mistake("'data.transforms=[{type: RGB}, {type: RandomCrop, sise: 8}]'");
  EXPECT_TRUE(has(text, "data.transforms.1.sise: there is no such key, did you mean 'size'?"))
      << text;
  text = mistake("'data.transforms=[{type: Resize, size: 8, interpolation: bilinaer}]'");
  EXPECT_TRUE(
      has(text,
          "data.transforms.0.interpolation: expected nearest, nearest_exact, bilinear or bicubic, "
          "got 'bilinaer', did you mean 'bilinear'?"))
      << text;
  text = mistake("data.transforms=RGB");
  EXPECT_TRUE(has(text, "data.transforms: expected a list of maps")) << text;
  text = mistake("data.mixup=-1");
  EXPECT_TRUE(has(text, "data.mixup: expected 0 or more, got -1")) << text;
  const std::string file = recipe(
      "recipe: r\ndata:\n  type: digits\n  transforms:\n  - {type: RandomCrop, size: 8}\n  - "
      "{type: "
      "RandomRotaton}\nmodel: {type: mlp}\nloss: {type: cross_entropy}\noptim: {type: sgd}\n");
  text = tool("train " + file + " --quiet 2>&1").text;
  EXPECT_TRUE(has(text, "recipe.yaml line 6: data.transforms.1.type")) << text;
}

// Images of one value with masks of 1: whatever a net makes of them is equal for every tile, unless
// something from outside was drawn in.
TEST_F(RecipeParts, MarginsKeepBordersOut) {
  for (const char* sub : {"m/image", "m/label"}) {
    std::filesystem::create_directories(folder_ / sub);
    for (int i = 0; i < 4; ++i)
      write_file(folder_ / sub + "/" + std::to_string(i) + ".png",
                 io::encode_png(full({1, 48, 48}, 255, DType::u8)));
  }
  const std::string text =
      "recipe: m\nseed: 1\ndata: {type: image_mask, root: " + (folder_ / "m") +
      ", crop: 32, crops: 4, batch: 4, test_samples: 1, DATA}\nmodel: {type: unet, base: 2}\nloss: "
      "{type: cross_entropy}\noptim: {type: sgd, lr: 0}\ntrainer: {epochs: 1, report: false}\n";
  auto loss = [&](const std::string& data) {
    std::string one = text;
    one.replace(one.find("DATA"), 4, data);
    return train(one)["train/loss"];
  };
  const std::string turn =
      "transforms: [{type: RandomRotation, degrees: [30, 60]}, {type: ElasticTransform}]";
  const json still = loss("transforms: []");
  EXPECT_EQ(loss("margin: 20, " + turn), still);
  EXPECT_NE(loss(turn), still);
  // Images of one value are their own mean.
  EXPECT_NE(loss("transforms: [], normalize: image"), still);
}

// ---- fine-tuning

TEST_F(RecipeParts, BeginsFromARun) {
  digits(run("base"));
  const std::string from = " model.init_from=" + (folder_ / "base");
  const StateDict base = load(folder_ / "base/model.safetensors");

  digits("'model.freeze=[layers.0]' " + run("frozen") + from);
  const StateDict frozen = load(folder_ / "frozen/model.safetensors");
  EXPECT_TRUE(equal(frozen.at("layers.0.weight"), base.at("layers.0.weight")));
  EXPECT_FALSE(equal(frozen.at("layers.1.weight"), base.at("layers.1.weight")));

  // Rates decrease towards the input.
  digits("optim.layer_decay=1e-6 " + run("decay") + from);
  const StateDict decay = load(folder_ / "decay/model.safetensors");
  auto moved = [&](const char* name) {
    return (decay.at(name) - base.at(name)).abs().amax().item<float>();
  };
  EXPECT_LT(moved("layers.0.weight"), 1e-5F);
  EXPECT_GT(moved("layers.1.weight"), 1e-3F);

  // Without a step the weights are those of the file, in another format too.
  ASSERT_EQ(tool("convert " + (folder_ / "base/model.safetensors") + " " + (folder_ / "w.pth") +
                 " >/dev/null")
                .code,
            0);
  digits("trainer.max_steps=0 " + run("same") + " model.init_from=" + (folder_ / "w.pth"));
  EXPECT_TRUE(equal(load(folder_ / "same/model.safetensors").at("layers.1.weight"),
                    base.at("layers.1.weight")));

  // A run is evaluated and exported without the file that it started from.
  std::filesystem::rename(folder_ / "base", folder_ / "moved");
  EXPECT_EQ(tool("eval " + (folder_ / "frozen") + " --json 2>&1 >/dev/null").code, 0);
  EXPECT_EQ(
      tool("export " + (folder_ / "frozen") + " " + (folder_ / "f.onnx") + " 2>&1 >/dev/null").code,
      0);
  std::filesystem::rename(folder_ / "moved", folder_ / "base");

  // A mismatch is reported.
  const Result other = tool(
      "train recipes/digits-mlp.yaml --quiet trainer.max_steps=1 "
      "trainer.report=false model.hidden=[32] " +
      run("other") + from + " 2>&1");
  EXPECT_EQ(other.code, 0);
  EXPECT_TRUE(has(other.text, "1 loaded")) << other.text;  // the last bias
  EXPECT_TRUE(has(other.text, "layers.0.weight: [32, 64] in the model")) << other.text;
  EXPECT_TRUE(has(other.text, "stays as it was drawn")) << other.text;
  const std::string refused = mistake("model.strict=true model.hidden=[32]" + from);
  EXPECT_TRUE(has(refused, "model.init_from: ")) << refused;
  EXPECT_TRUE(has(refused, "Without `strict: true`")) << refused;
  EXPECT_FALSE(has(refused, "strict = false")) << refused;
  const std::string changed = tool("eval " + (folder_ / "frozen") + " model.hidden=[32] 2>&1").text;
  EXPECT_TRUE(has(changed, "need the model that was trained")) << changed;
  EXPECT_FALSE(has(changed, "strict = false")) << changed;
  EXPECT_TRUE(
      has(mistake("'model.freeze=[layer.0]'"),
          "model.freeze: 'layer.0' matches no parameter or module of the model, did you mean "
          "'layers.0'?"));
  EXPECT_TRUE(has(mistake("'model.freeze=[\"*\"]'"), "all parameters are frozen"));
  EXPECT_TRUE(has(mistake("optim.layer_decay=2"), "optim.layer_decay: expected a factor"));
}

TEST_F(RecipeParts, LoraTrainsAndIsMerged) {
  digits(run("lb"));
  digits("'model.lora={rank: 2, alpha: 4, on: [layers.0]}' " + run("lora") +
         " model.init_from=" + (folder_ / "lb"));
  const StateDict base = load(folder_ / "lb/model.safetensors"),
                  tuned = load(folder_ / "lora/model.safetensors");
  EXPECT_TRUE(equal(tuned.at("layers.0.weight"), base.at("layers.0.weight")));
  EXPECT_TRUE(equal(tuned.at("layers.1.bias"), base.at("layers.1.bias")));
  EXPECT_GT(tuned.at("layers.0.lora_B.weight").abs().amax().item<float>(), 0.0F);
  // Exports have the updates in their weights, and the plain names.
  ASSERT_EQ(
      tool("export " + (folder_ / "lora") + " " + (folder_ / "lora.safetensors") + " >/dev/null")
          .code,
      0);
  const StateDict merged = load(folder_ / "lora.safetensors");
  EXPECT_EQ(merged.size(), base.size());
  const Tensor want =
      base.at("layers.0.weight") +
      matmul(tuned.at("layers.0.lora_B.weight"), tuned.at("layers.0.lora_A.weight")) * 2.0;
  EXPECT_LT((merged.at("layers.0.weight") - want).abs().amax().item<float>(), 1e-6F);
  // The run evaluates as before, and starts another one.
  const Result eval = tool("eval " + (folder_ / "lora") + " --json 2>/dev/null");
  ASSERT_EQ(eval.code, 0) << eval.text;
  digits("trainer.max_steps=0 " + run("after") + " model.init_from=" + (folder_ / "lora"));
  EXPECT_TRUE(equal(load(folder_ / "after/model.safetensors").at("layers.0.weight"),
                    merged.at("layers.0.weight")));
  EXPECT_TRUE(has(mistake("'model.lora={rnk: 2}'"),
                  "model.lora.rnk: there is no such key, did you "
                  "mean 'rank'?"));
  EXPECT_TRUE(has(mistake("model.test_average=rotate"),
                  "test_average must be none, flip, flips or turns, not 'rotate'"));
}

// ---- files

// A net and a loss for rows with a class.
std::string rows(const std::string& data, const std::string& model = "{type: mlp, hidden: [8]}") {
  return "recipe: r\nseed: 0\ndata: " + data + "\nmodel: " + model +
         "\nloss: {type: cross_entropy}\noptim: {type: adam, lr: 0.02}\ntrainer: {epochs: 20, "
         "report: false}\n";
}

TEST_F(RecipeParts, ReadsFilesOfEveryKind) {
  std::string jsonl, text, tokens;
  for (int i = 0; i < 60; ++i) {
    jsonl += fmt::format("{{\"v\": [{}, {}], \"c\": {}}}\n", i % 3, i % 3 == 1 ? 1 : -1, i % 3);
    text += i % 2 ? "abcabc\n" : "abab\n";
  }
  write_file(folder_ / "a.jsonl", jsonl);
  json j = train(rows("{type: jsonl, root: " + (folder_ / "a.jsonl") +
                      ", x: v, y: c, test: " + (folder_ / "a.jsonl") + "}"));
  EXPECT_EQ(j["test/accuracy"], 1.0);

  write_file(folder_ / "a.txt", text);
  const std::string gru = "{type: char_rnn, cell: gru, embedding: 8, width: 16}";
  j = train(rows("{type: lines, root: " + (folder_ / "a.txt") + ", test: " + (folder_ / "a.txt") +
                     ", batch: 8}",
                 gru));
  EXPECT_LT(j["test/loss"], 0.5);  // chance: log 4

  for (int i = 0; i < 4000; ++i) tokens += std::string{static_cast<char>(i % 5), '\0'};
  write_file(folder_ / "a.bin", tokens);
  j = train(rows("{type: tokens, root: " + (folder_ / "a.bin") + ", block: 8, steps_per_epoch: 20}",
                 gru));
  EXPECT_LT(j["test/loss"], 0.2);

  const Tensor x = cat({zeros({40, 4, 4, 1}), full({40, 4, 4, 1}, 250)}, 0).to(DType::u8),
               y = cat({zeros({40, 1}), ones({40, 1})}, 0).to(DType::u8);
  StateDict arrays;
  for (const char* end : {"_train", "_test"}) {
    arrays["x" + std::string(end)] = x;
    arrays["y" + std::string(end)] = y;
  }
  io::save_npz(arrays, folder_ / "a.npz");
  j = train(rows("{type: npy, root: " + (folder_ / "a.npz") +
                 ", x: x_train, y: y_train, test_x: x_test, test_y: y_test, channels_last: true, "
                 "transforms: [{type: RandomHorizontalFlip}]}"));
  EXPECT_EQ(j["test/accuracy"], 1.0);
}

TEST_F(RecipeParts, ReadsShardsAndCountsDamage) {
  std::string shards[2], records;
  for (int i = 0; i < 40; ++i) {
    std::string png = io::encode_png(full({3, 6, 6}, i % 2 ? 200 : 20, DType::u8));
    if (i == 7) png = "no image";
    std::string& shard = shards[i % 2];
    shard += data::tar_entry(fmt::format("{:03}.png", i), png);
    shard += data::tar_entry(fmt::format("{:03}.cls", i), std::to_string(i % 2));
    io::TFExample e;
    e["image"] = {.kind = io::TFFeature::Kind::bytes, .bytes = {png}};
    e["label"] = {.kind = io::TFFeature::Kind::ints, .ints = {i % 2}};
    records += io::tfrecord(io::write_tf_example(e));
  }
  for (int k = 0; k < 2; ++k)
    write_file(folder_ / fmt::format("s-{}.tar", k), shards[k] + std::string(1024, '\0'));
  write_file(folder_ / "a.tfrecord", records);
  for (const std::string& source : {"type: webdataset, root: '" + (folder_ / "s-{0..1}.tar") + "'",
                                    "type: tfrecord, root: " + (folder_ / "a.tfrecord")}) {
    const std::string data =
        "{" + source + ", classes: 2, size: 4, batch: 8, transforms: [{type: RandomVerticalFlip}]";
    const json j = train(rows(data + ", skip_damaged: true}"));
    EXPECT_GE(j["data/damaged"], 1) << source;
    EXPECT_EQ(j["val/accuracy"], 1.0) << source;
    const Result r =
        tool("train " + recipe(rows(data + "}")) + " --quiet " + run("broken") + " 2>&1");
    EXPECT_EQ(r.code, 1) << source;
    std::filesystem::remove_all(folder_ / "broken");
  }
  recipe(rows("{type: tfrecord, root: " + (folder_ / "a.tfrecord") +
              ", classes: 2, skip_damaged: true}"));
  const Result bench = tool("data bench " + (folder_ / "recipe.yaml") + " --seconds 0.3 2>&1");
  EXPECT_TRUE(has(bench.text, "damaged samples were skipped")) << bench.text;
}

TEST_F(RecipeParts, DigitsStandInForOptdigits) {
  const Result r = shell("env -u TANDEM_DATA " + std::string(std::getenv("TANDEM_TOOL")) +
                         " train recipes/digits-cnn.yaml --quiet trainer.epochs=1 "
                         "trainer.report=false " +
                         run("stand-in") + " 2>&1");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_TRUE(has(r.text, "the 1,797 digits that the library carries stand in")) << r.text;
}

}  // namespace
}  // namespace tandem
