// SPDX-License-Identifier: Apache-2.0
// YAML with lines, overrides, and recipes whose mistakes are named with the nearest right word.
#include "tandem/train/recipe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/models/lenet.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"

namespace tandem::train {
namespace {

struct Init {
  Init() { init(); }
} const g_init;

TEST(Yaml, ValuesLinesAndBack) {
  io::Yaml y = io::parse_yaml("a: 1e-3\nb:\n  c: [1, two, \"3\"]\n  d: {e: true}\nf: null\n", "t");
  EXPECT_EQ(y.find("a")->as_double(), 1e-3);
  EXPECT_FALSE(y.find("a")->as_int());
  const io::Yaml& b = *y.find("b");
  EXPECT_EQ(b.line, 2);
  EXPECT_EQ(b.find("c")->line, 3);
  EXPECT_EQ(b.find("c")->items[0].as_int(), 1);
  EXPECT_EQ(b.find("c")->items[1].text, "two");
  EXPECT_FALSE(b.find("c")->items[2].as_int());  // a text
  EXPECT_EQ(b.find("d")->find("e")->as_bool(), true);
  EXPECT_EQ(y.find("f")->kind, io::Yaml::Kind::null);
  EXPECT_EQ(io::parse_yaml(y.dump()).dump(), y.dump());
  io::set_yaml(y, "b.d.e", "7");
  io::set_yaml(y, "new.x", "[1, 2]");
  EXPECT_EQ(y.find("b")->find("d")->find("e")->as_int(), 7);
  EXPECT_EQ(y.find("new")->find("x")->items.size(), 2u);
  EXPECT_EQ(error_of([&] { io::set_yaml(y, "a.b", "1"); }),
            "Value: 'a.b': what 'b' belongs to is no map.");
  EXPECT_EQ(error_of([] { io::parse_yaml("a: 1\na: 2\n", "f.yaml"); }),
            "Format: f.yaml line 2: the key 'a' comes twice.");
  EXPECT_EQ(
      error_of([] { io::parse_yaml("a: [1\nb: 2\n", "f.yaml"); }).rfind("Format: f.yaml line ", 0),
      0u);
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    const char before = static_cast<char>(c - 1);
    bomb += fmt::format("{0}: &{0} [*{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}]\n", c,
                        before);
  }
  EXPECT_EQ(error_of([&] { io::parse_yaml(bomb, "bomb"); }),
            "Format: bomb: too many values, or too deep.");
}

Registry registry() {
  Registry r = Registry::standard();
  r.data["digits"] = [](Options& o, uint64_t seed) {
    RecipeData d{
        data::pipeline(data::Digits(), {.seed = seed}).shuffle().batch(o.whole("batch", 64)),
        {},
        {},
        {}};
    d.test = data::pipeline(data::Digits({.train = false})).batch(128);
    d.info = {{"classes", 10}};
    return d;
  };
  r.model["mlp"] = [](Options& o, const std::map<std::string, int64_t>& info) {
    auto net = std::make_shared<models::MLP>(
        std::vector<int64_t>{64, o.whole("hidden", 32), info.at("classes")});
    return RecipeModel{
        net, [net](const Batch& b) { return std::pair<Tensor, Tensor>((*net)(b[0]), b[1]); }};
  };
  return r;
}

const char* const kRecipe =
    "recipe: small\nseed: 1\ndata: {type: digits, batch: 32}\nmodel:\n  type: mlp\n  hidden: 48\n"
    "loss: {type: cross_entropy}\noptim: {type: adam, lr: 5e-3}\nsched: {type: cosine}\n"
    "trainer: {epochs: 4, metrics: [accuracy]}\nexpect: {metric: test/accuracy, at_least: 0.9}\n";

TEST(Recipe, TrainsAndRepeats) {
  TempFolder f;
  write_file(f / "r.yaml", kRecipe);
  Recipe r = Recipe::load(f / "r.yaml", {"trainer.epochs=6"});
  RecipeRun a = run_recipe(r, registry(), f / "a", false), b = run_recipe(r, registry(), "", false);
  EXPECT_EQ(a.fit.epochs, 6);
  EXPECT_GT(find_log(a.test, "test/accuracy"), 0.9);
  EXPECT_EQ(a.test, b.test);  // same recipe and seed, same bits
  EXPECT_EQ(
      io::parse_yaml(read_file(f / "a/recipe.yaml")).find("trainer")->find("epochs")->as_int(), 6);
  EXPECT_EQ(load(f / "a/model.safetensors").at("layers.0.weight").shape(), Shape(48, 64));
  Expectation e = expectation_of(r);
  EXPECT_EQ(e.at_least, 0.9);
  EXPECT_EQ(e.seeds, (std::vector<int64_t>{0, 1, 2}));
}

TEST(Recipe, NamesTheNearestKey) {
  const std::pair<const char*, const char*> kCases[] = {
      {"optim.ls=1", "optim.ls: there is no such key, did you mean 'lr'?"},
      {"optm.lr=1", "optm: there is no such key, did you mean 'optim'?"},
      {"trainer.epoch=3", "trainer.epoch: there is no such key, did you mean 'epochs'?"},
      {"trainer.early_stop.patienc=3", "patienc: there is no such key, did you mean 'patience'?"},
      {"model.hiden=3", "model.hiden: there is no such key, did you mean 'hidden'?"},
      {"model.type=mpl", "model.type: there is no model 'mpl', did you mean 'mlp'?"},
      {"loss.type=zzzzzzzzzzz", "There are bce_with_logits, cross_entropy, mse"},
      {"optim.lr=fast", "optim.lr: wants a number, got 'fast'"},
      {"trainer.epochs=1.5", "trainer.epochs: wants a whole number, got '1.5'"},
      {"trainer.compile=yes", "trainer.compile: wants true or false, got 'yes'"},
      {"trainer.metrics=[acuracy]", "trainer: there is no metric 'acuracy'"},
      {"optim.lr=-1", "r.yaml line 8: optim: Adam wants lr >= 0, got -1"},
      {"data.batch=0", "r.yaml line 3: data: batch() wants a size > 0, got 0"},
      {"sched.warmup_steps=-1", "sched.warmup_steps: wants 0 or more, got -1"},
      {"trainer.clip_norm=-1", "trainer.clip_norm: wants a norm above 0"},
      {"trainer.log_every=0", "trainer.log_every: wants 1 or more steps, got 0"},
      {"trainer.monitor=train/acuracy", "did you mean 'train/accuracy'? There are lr, train/"},
      {"trainer.early_stop.monitor=val/loss", "data.val_part holds some out"},
      {"data=7", "'data' wants a map"},
  };
  TempFolder f;
  write_file(f / "r.yaml", kRecipe);
  for (const auto& [text, want] : kCases) {
    const std::string change = text;
    std::string what =
        error_of([&] { run_recipe(Recipe::load(f / "r.yaml", {change}), registry(), "", false); });
    EXPECT_EQ(what.rfind("Value: ", 0), 0u) << what;
    EXPECT_NE(what.find(want), what.npos) << what;
  }
  write_file(f / "bad.yaml", std::string(kRecipe) + "sceed: 3\n");
  EXPECT_EQ(
      error_of([&] { run_recipe(Recipe::load(f / "bad.yaml"), registry(), "", false); }),
      "Value: " + (f / "bad.yaml") + " line 12: sceed: there is no such key, did you mean 'seed'?");
}

TEST(Models, ParameterCounts) {
  EXPECT_EQ(models::lenet().num_parameters(), 61706);
  EXPECT_EQ(models::KerasConvNet().num_parameters(), 34826);
  EXPECT_EQ(models::GPT().num_parameters() - 64 * 128, 795904);  // without positions, nanoGPT
  models::GPT gpt;
  EXPECT_EQ(gpt(zeros({2, 7}, int64)).shape(), Shape(2, 7, 65));
  models::TextCNN cnn({.vocabulary = 50, .classes = 6});
  EXPECT_EQ(cnn(zeros({3, 9}, int64)).shape(), Shape(3, 6));
}

}  // namespace
}  // namespace tandem::train
