// SPDX-License-Identifier: Apache-2.0
// YAML with lines, overrides, and recipes whose mistakes are reported with the nearest valid word.
#include "tandem/recipe/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "tandem/models/vision/lenet.h"
#include "tandem/optim/schedules.h"
#include "tandem/recipe/fields.h"
#include "tandem/tandem.h"
#include "tandem/train/losses.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::recipe {
namespace {

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
            "Value: 'a.b': the parent of 'b' is not a map.");
  EXPECT_EQ(error_of([] { io::parse_yaml("a: 1\na: 2\n", "f.yaml"); }),
            "Format: f.yaml line 2: the key 'a' appears twice.");
  EXPECT_EQ(
      error_of([] { io::parse_yaml("a: [1\nb: 2\n", "f.yaml"); }).rfind("Format: f.yaml line ", 0),
      0u);
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    const char before = static_cast<char>(c - 1);
    bomb += fmt::format("{0}: &{0} [*{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}]\n", c,
                        before);
  }
  const std::string refused = error_of([&] { io::parse_yaml(bomb, "bomb"); });
  EXPECT_EQ(refused.rfind("Format: 'bomb' goes over the limit ", 0), 0u) << refused;
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
    return RecipeModel{net, [net](const train::Batch& b) {
                         return std::pair<Tensor, Tensor>((*net)(b[0]), b[1]);
                       }};
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
  EXPECT_GT(train::find_log(a.test, "test/accuracy"), 0.9);
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
      {"model.type=mlpp", "model.type: there is no model 'mlpp', did you mean 'mlp'?"},
      {"loss.type=zzzzzzzzzzz", "There are bce, bce_with_logits, binary_crossentropy"},
      {"loss.class_weights=[1, -2]", "loss.class_weights: expected 0 or more, got -2"},
      {"optim.type=adm", "optim.type: there is no optimizer 'adm', did you mean 'adam'?"},
      {"optim.type=lbfgs", "LBFGS calls its loss several times a step"},
      {"optim.betas=[0.9]", "optim.betas: expected 2 numbers, got 1"},
      {"optim.momentum=0.9", "optim.momentum: there is no such key"},
      {"sched.type=cosin", "sched.type: there is no schedule 'cosin', did you mean 'cosine'?"},
      {"sched.type=step", "sched.step_size: is missing"},
      {"distill.alpha=0.5", "distill.teacher: is missing"},
      {"distill.teachr=runs/x", "distill.teachr: there is no such key, did you mean 'teacher'?"},
      {"sched={type: onecycle, warmup_steps: 5}",
       "sched.warmup_steps: onecycle warms up by itself"},
      {"sched.unit=days", "sched.unit: expected steps or epochs, got 'days'"},
      {"trainer.val_every=0", "trainer.val_every: expected 1 or more epochs, got 0"},
      {"trainer.fast_dev_run=-1", "trainer.fast_dev_run: expected 0 or more, got -1"},
      {"trainer.limit_val_batches=-2", "trainer.limit_val_batches: expected -1 or more, got -2"},
      {"trainer.average.type=emma", "trainer.average.type: expected none, ema or swa, got 'emma'"},
      {"trainer.average={type: ema, decay: 2}", "trainer.average.decay: expected a number from 0"},
      {"trainer.average={type: swa, decay: 0.9}", "trainer.average.decay: there is no such key"},
      {"trainer.preempt_signal=KILL", "expects USR1, USR2, HUP or TERM, got 'KILL'"},
      {"trainer.preempt_url=azure", "expects aws, gcp or http://..., got 'azure'"},
      {"export=[onx]", "export: there is no export 'onx'. There are npz, onnx, pth, safetensors"},
      {"optim.lr=fast", "optim.lr: expected a number, got 'fast'"},
      {"trainer.epochs=1.5", "trainer.epochs: expected a whole number, got '1.5'"},
      {"trainer.compile=yes", "trainer.compile: expected true or false, got 'yes'"},
      {"trainer.metrics=[acuracy]", "trainer: there is no metric 'acuracy'"},
      {"optim.lr=-1", "r.yaml: optim.lr: expected 0 or more, got -1"},
      {"data.batch=0", "r.yaml line 3: data: batch() expects a size > 0, got 0"},
      {"data.batch=1e9",
       "r.yaml: data.batch: expected 1437 or less, as many samples as there are to "
       "train on, got 1000000000"},
      {"sched.warmup_steps=-1", "sched.warmup_steps: expected 0 or more, got -1"},
      {"trainer.clip_norm=-1", "trainer.clip_norm: expected 0 or more, got -1"},
      {"trainer.log_every=0", "trainer.log_every: expected 1 or more steps, got 0"},
      {"trainer.monitor=train/acuracy", "did you mean 'train/accuracy'? There are lr, train/"},
      {"trainer.early_stop.monitor=val/loss", "data.val_part holds some out"},
      {"data=7", "'data' expects a map"},
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

// What a run cannot have is refused, and what it has by default is not.
TEST(Recipe, BatchesAndListsAsTheyAre) {
  TempFolder f;
  write_file(f / "r.yaml",
             "data: {type: digits, val_part: 0}\nmodel: {type: mlp}\nloss: {type: cross_entropy}\n"
             "optim: {type: adam}\ntrainer: {epochs: 1}\n");
  const auto run = [&](const std::string& change) {
    return error_of(
        [&] { run_recipe(Recipe::load(f / "r.yaml", {change}), Registry::standard(), "", false); });
  };
  for (const auto& [change, want] : std::vector<std::pair<const char*, const char*>>{
           {"data.batch=1e9", "r.yaml: data.batch: expected 1437 or less"},
           {"trainer.accumulate=1e9",
            "r.yaml: trainer.accumulate: expected 23 or less, as many batches as an epoch has"},
           {"data.batch=1438", "as many samples as there are to train on, got 1438"},
           {"data={type: digits, batch: 1438, val_part: 0, drop_last: true}",
            "data.batch: 1438 leaves no whole batch to train on"},
           {"data={type: digits, batch: 1200, val_part: 0.5}", "data.batch: expected 719 or less"},
           {"data.batch=0", "data.batch: expected 1 or more, got 0"},
           {"data.eval_batch=0", "data.eval_batch: expected 1 or more, got 0"},
           {"model.hidden=12", "r.yaml: model.hidden: expected a list such as [12], got 12"},
           {"loss.class_weights=2", "loss.class_weights: expected a list such as [2], got 2"},
           {"sched={type: multistep, milestones: 3}", "milestones: expected a list such as [3]"},
       })
    EXPECT_NE(run(change).find(want), std::string::npos) << change << ": " << run(change);
  for (const char* change :
       {"data.batch=1437", "model.hidden=[12]", "data={type: digits, val_part: 0.99}",
        "data.transforms=[{type: Normalize, mean: 0.5, std: [0.2]}]"})
    EXPECT_EQ(run(change), "no error") << change;
}

// ---- breadth: every name of the tables trains

TEST(Recipe, EveryOptimizerTrains) {
  TempFolder f;
  write_file(f / "r.yaml", kRecipe);
  for (const optim::OptimizerRow* row : optim::optimizers().rows()) {
    const std::string name = row->name;
    if (row->needs_closure || name == "muon") continue;  // muon: below
    std::vector<std::string> changes = {fmt::format("optim={}", row->example), "data.batch=64"};
    if (name == "rprop") changes.insert(changes.end(), {"data.batch=1437", "trainer.epochs=20"});
    const RecipeRun run = run_recipe(Recipe::load(f / "r.yaml", changes), registry(), "", false);
    EXPECT_GT(train::find_log(run.fit.logs, "train/accuracy"), 0.3) << name;
  }
  // It is for nets whose parameters are all matrices, and says so.
  const std::string muon = error_of(
      [&] { run_recipe(Recipe::load(f / "r.yaml", {"optim.type=muon"}), registry(), "", false); });
  EXPECT_NE(muon.find("Muon expects matrices"), muon.npos) << muon;
}

// The rate after each of the 4 * 45 updates of kRecipe (batches of 32 of 1437 rows).
struct Rates : train::Callback {
  std::vector<double> lr;
  void step_end(train::Trainer& t, const train::Logs&) override {
    lr.push_back(t.optimizer().lr());
  }
  const char* name() const override { return "Rates"; }
};

// A row's example is read to its end, and every row has one of the lines above.
void expect_tested(const RegistryBase& registry, const std::set<std::string>& tested) {
  for (const Component* row : registry.components()) {
    EXPECT_TRUE(tested.count(row->name)) << "no test line for " << row->name;
    const io::Yaml yaml = io::parse_yaml(row->example, row->name);
    Options o(&yaml, registry.what(), row->name);
    for (const char* key : {"unit", "warmup_steps"})
      if (o.has(key)) o.text(key);
    EXPECT_EQ(read_any_component(o, registry).row, row);
    o.finish();
  }
}

TEST(Recipe, Schedules) {
  TempFolder f;
  write_file(f / "r.yaml", kRecipe);
  const double base = 5e-3;
  struct Point {
    size_t step;  ///< updates made
    double rate;
  };
  const struct {
    const char* change;
    std::vector<Point> want;
  } kCases[] = {
      {"{type: constant}", {{1, base}, {180, base}}},
      {"{type: cosine}", {{90, base / 2}, {180, 0}}},
      {"{type: cosine, min_lr: 1e-3}", {{90, 3e-3}, {180, 1e-3}}},
      {"{type: linear, warmup_steps: 20}", {{10, base * 11 / 21}, {20, base}, {100, base / 2}}},
      {"{type: step, step_size: 60, gamma: 0.5}", {{59, base}, {60, base / 2}, {180, base / 8}}},
      {"{type: step, step_size: 2, unit: epochs}", {{89, base}, {90, base / 10}}},
      {"{type: step, step_size: 50, warmup_steps: 20}",
       {{10, base * 11 / 21}, {20, base}, {69, base}, {70, base / 10}}},
      {"{type: multistep, milestones: [1, 3], unit: epochs, gamma: 0.1}",
       {{44, base}, {45, base / 10}, {135, base / 100}}},
      {"{type: exponential, gamma: 0.9}", {{10, base * std::pow(0.9, 10)}}},
      {"{type: exponential, gamma: 0.5, unit: epochs}",
       {{44, base}, {45, base / 2}, {90, base / 4}}},
      {"{type: polynomial, power: 2}", {{90, base / 4}, {180, 0}}},
      {"{type: cosine_restarts, t_0: 1, unit: epochs}", {{45, base}, {90, base}}},
      {"{type: onecycle, max_lr: 0.01}", {{54, 0.01}, {179, 0.01 / 25 / 1e4}}},
      {"{type: cyclic, base_lr: 1e-3, max_lr: 3e-3, step_size_up: 30}",
       {{30, 3e-3}, {60, 1e-3}, {90, 3e-3}}},
      {"{type: noam, model_size: 64, warmup_steps: 100}", {{99, 0.125 / 10}}},
      {"{type: plateau, monitor: train/loss, patience: 1, min_delta: 1e9, factor: 0.5}",
       {{90, base}, {91, base / 2}, {136, base / 4}}},
      {"{type: plateau, monitor: train/loss, warmup_steps: 20}",
       {{10, base * 11 / 21}, {180, base}}},
  };
  std::set<std::string> tested;
  for (const auto& c : kCases) {
    tested.insert(io::parse_yaml(c.change).find("type")->text);
    Recipe r = Recipe::load(f / "r.yaml");
    io::set_yaml(r.root, "sched", c.change);
    auto rates = std::make_shared<Rates>();
    run_recipe(r, registry(), "", false, {rates});
    ASSERT_EQ(rates->lr.size(), 180u) << c.change;
    for (const Point& p : c.want)
      EXPECT_NEAR(rates->lr[p.step - 1], p.rate, 1e-3 * std::abs(p.rate) + 1e-9)
          << c.change << " after " << p.step;
  }
  expect_tested(optim::schedules(), tested);
}

TEST(Recipe, Losses) {
  const Tensor x = tensor({0.5F, -1.0F, 2.0F, 0.1F, 0.2F, 0.7F}).reshape({2, 3});
  const Tensor y = tensor({2, 0}, int64);
  const Tensor p = x.sigmoid(), t = tensor({1.0F, 0.0F, 1.0F, 0.0F, 1.0F, 0.0F}).reshape({2, 3});
  const struct {
    const char* text;
    Tensor out, target, want;
  } kCases[] = {
      {"type: cross_entropy", x, y, cross_entropy(x, y)},
      {"{type: cross_entropy, label_smoothing: 0.1}", x, y,
       cross_entropy(x, y, {.label_smoothing = 0.1})},
      {"{type: cross_entropy, class_weights: [1, 2, 3]}", x, y,
       cross_entropy(x, y, {.weight = tensor({1.0F, 2.0F, 3.0F})})},
      {"{type: nll, class_weights: [1, 2, 3]}", log_softmax(x, 1), y,
       cross_entropy(x, y, {.weight = tensor({1.0F, 2.0F, 3.0F})})},
      {"type: mse", x, t, mse_loss(x, t)},
      {"type: mse", x.reshape({6, 1}), t.reshape({6}), mse_loss(x, t)},
      {"type: l1", x, t, l1_loss(x, t)},
      {"{type: smooth_l1, beta: 0.5}", x, t, smooth_l1_loss(x, t, {.beta = 0.5})},
      {"{type: huber, delta: 0.3}", x, t, huber_loss(x, t, {.delta = 0.3})},
      {"type: bce", p, t, binary_cross_entropy(p, t)},
      {"type: bce_with_logits", x, t, binary_cross_entropy_with_logits(x, t)},
      {"{type: bce_with_logits, pos_weight: [2, 2, 2]}", x, t,
       binary_cross_entropy_with_logits(x, t, {.pos_weight = tensor({2.0F, 2.0F, 2.0F})})},
      {"type: focal", x, t, sigmoid_focal_loss(x, t)},
      {"type: dice", p, t, dice_loss(p, t)},
      {"type: tversky", p, t, tversky_loss(p, t)},
      {"type: multi_margin", x, y, multi_margin_loss(x, y)},
      {"type: multilabel_soft_margin", x, t, multilabel_soft_margin_loss(x, t)},
      {"type: soft_margin", x, 2.0 * t - 1.0, soft_margin_loss(x, 2.0 * t - 1.0)},
      {"type: hinge_embedding", x, 2.0 * t - 1.0, hinge_embedding_loss(x, 2.0 * t - 1.0)},
      {"type: poisson_nll", x, t, poisson_nll_loss(x, t)},
      {"type: kl_div", log_softmax(x, 1), t,
       kl_div(log_softmax(x, 1), t, {.reduction = Reduction::sum}) / 2.0},
      {"type: hinge", x, t, relu(1.0 - (2.0 * t - 1.0) * x).mean()},
      {"type: log_cosh", x, t, log_cosh_loss(x, t)},
      {"type: mean_absolute_percentage_error", x, t + 1.0,
       (100.0 * abs((t + 1.0 - x) / (t + 1.0))).mean()},
      {"type: mape", x, t + 1.0, (100.0 * abs((t + 1.0 - x) / (t + 1.0))).mean()},
      {"type: mean_squared_error", x, t, mse_loss(x, t)},
      {"type: mae", x, t, l1_loss(x, t)},
      {"type: mean_absolute_error", x, t, l1_loss(x, t)},
      {"type: msle", p, t, square(log1p(p) - log1p(t)).mean()},
      {"type: mean_squared_logarithmic_error", p, t, square(log1p(p) - log1p(t)).mean()},
      {"type: logcosh", x, t, log_cosh_loss(x, t)},
      {"type: poisson", p, t, (p - t * log(p + 1e-7)).mean()},
      {"type: squared_hinge", x, t, square(relu(1.0 - (2.0 * t - 1.0) * x)).mean()},
      {"type: kl_divergence", p, p, zeros({})},
      {"type: cosine_similarity", x, x, full({}, -1.0)},
      {"type: sparse_categorical_crossentropy", x, y, cross_entropy(x, y)},
      {"type: categorical_crossentropy", x, one_hot(y, 3).to(float32), cross_entropy(x, y)},
      {"type: binary_crossentropy", x, t, binary_cross_entropy_with_logits(x, t)},
  };
  const Registry r = Registry::standard();
  std::set<std::string> tested;
  for (const auto& c : kCases) {
    const io::Yaml yaml = io::parse_yaml(c.text);
    Options o(&yaml, "loss", "test");
    const RecipeLoss loss = r.loss.at(o.text("type"))(o);
    o.finish();
    EXPECT_TRUE(allclose(loss(c.out, c.target), c.want, 1e-5, 1e-6)) << c.text;
    tested.insert(o.text("type"));
  }
  expect_tested(train::losses(), tested);
}

TEST(Recipe, BalancedClassWeightsAreCounted) {
  TempFolder f;
  write_file(f / "r.yaml", kRecipe);
  Registry r = registry();
  // Classes 0 and 1 with 30 and 90 samples: weights 2 and 2/3.
  r.data["two"] = [](Options&, uint64_t seed) {
    const data::Digits d({.train = true});
    std::vector<int64_t> labels(120, 1);
    for (size_t i = 0; i < 30; ++i) labels[i] = 0;
    RecipeData out{
        data::pipeline(data::TensorDataset(d.x().narrow(0, 0, 120), tensor(labels)), {.seed = seed})
            .batch(120),
        {},
        {},
        {}};
    out.info = {{"classes", 2}};
    return out;
  };
  auto first = [&](const char* weights) {
    Recipe one = Recipe::load(f / "r.yaml", {"data={type: two}", "trainer.epochs=1",
                                             fmt::format("loss.class_weights={}", weights)});
    return train::find_log(run_recipe(one, r, "", false).fit.logs, "train/loss");
  };
  EXPECT_EQ(first("balanced"), first("[2, 0.6666667]"));
  EXPECT_NE(first("balanced"), first("[1, 1]"));
}

TEST(Recipe, SwitchesAndAverages) {
  TempFolder f;
  write_file(f / "r.yaml", kRecipe);
  auto run = [&](std::vector<std::string> changes, const std::string& folder) {
    return run_recipe(Recipe::load(f / "r.yaml", changes), registry(), folder, false);
  };
  const RecipeRun fast = run({"trainer.fast_dev_run=2", "trainer.histograms=1"}, f / "fast");
  EXPECT_EQ(fast.fit.steps, 2);
  EXPECT_FALSE(std::isnan(train::find_log(fast.test, "test/loss")));
  EXPECT_FALSE(file_exists(f / "fast"));
  const RecipeRun over = run({"trainer.overfit_batches=1", "trainer.epochs=200",
                              "trainer.monitor=val/loss", "trainer.barebones=true"},
                             f / "over");
  EXPECT_GT(train::find_log(over.fit.logs, "val/accuracy"), 0.99);
  EXPECT_FALSE(file_exists(f / "over"));
  const RecipeRun plain = run({}, f / "plain");
  const RecipeRun ema = run(
      {"trainer.average={type: ema, decay: 0.98}", "export=[safetensors]", "trainer.keep_best=2"},
      f / "ema");
  EXPECT_NE(train::find_log(ema.test, "test/loss"), train::find_log(plain.test, "test/loss"));
  const StateDict weights = run_weights(f / "ema");
  EXPECT_FALSE(
      equal(weights.at("layers.0.weight"), run_weights(f / "plain").at("layers.0.weight")));
  // The same training underneath.
  const auto trained = [&](const char* name) {
    return train::Checkpoints(f / (std::string(name) + "/checkpoints")).load_latest()->model;
  };
  EXPECT_TRUE(equal(trained("ema").at("layers.0.weight"), trained("plain").at("layers.0.weight")));
  EXPECT_TRUE(equal(run_weights(f / "plain").at("layers.0.weight"),
                    trained("plain").at("layers.0.weight")));
}

TEST(Recipe, BestAndLastWeights) {
  TempFolder f;
  write_file(f / "r.yaml", kRecipe);
  Registry r = registry();
  r.data["digits"] = [make = r.data["digits"]](Options& o, uint64_t seed) {
    RecipeData d = make(o, seed);
    d.val = d.test;
    return d;
  };
  // The rate grows until the net gets worse: the last weights are not the best.
  const Recipe recipe = Recipe::load(
      f / "r.yaml", {"sched={type: step, step_size: 1, unit: epochs, gamma: 8}", "trainer.epochs=5",
                     "trainer.monitor=val/loss", "trainer.on_nonfinite=off"});
  auto losses = std::make_shared<train::History>();
  run_recipe(recipe, r, f / "run", false, {losses});
  const std::vector<double>& loss = (*losses)["val_loss"];
  const auto best = std::min_element(loss.begin(), loss.end()) - loss.begin();
  ASSERT_LT(best, 4) << "the last epoch must not be the best";
  auto evaluate = [&](RunWeights which) {
    double value = 0;
    with_recipe(recipe, r, [&](RecipeParts& parts) {
      parts.model.module->load_state_dict(run_weights(f / "run", which));
      value = train::find_log(evaluate_run(parts, "val", ""), "val/loss");
    });
    return value;
  };
  EXPECT_EQ(evaluate(RunWeights::best), loss[static_cast<size_t>(best)]);
  EXPECT_EQ(evaluate(RunWeights::last), loss.back());
  EXPECT_EQ(run_weights_of("best"), RunWeights::best);
  EXPECT_NE(error_of([] { run_weights_of("bets"); }).find("'last' or 'best', got 'bets'"),
            std::string::npos);
  run_recipe(Recipe::load(f / "r.yaml", {"trainer.epochs=1"}), registry(), f / "none", false);
  const std::string none = error_of([&] { run_weights(f / "none", RunWeights::best); });
  EXPECT_NE(none.find("no checkpoint with a value of its monitor"), none.npos) << none;
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
}  // namespace tandem::recipe
