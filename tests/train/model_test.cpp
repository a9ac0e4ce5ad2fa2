// SPDX-License-Identifier: Apache-2.0
// The Keras-style API: it learns, equals the Trainer behind it, and names, weights, splits and
// callbacks have Keras's meaning. The losses' numbers were computed with Keras 3.
#include "tandem/train/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/files/folder.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::train {
namespace {

nn::Sequential small_net() {
  return nn::Sequential(nn::Flatten(), nn::Linear(64, 48), nn::ReLU(), nn::Linear(48, 10));
}

TEST(Model, LearnsAndEqualsItsTrainer) {
  data::Digits train({.train = true}), test({.train = false});
  manual_seed(1);
  nn::Sequential net = small_net();
  Model model(net);
  model.compile({.optimizer = optim::AdamOptions{.lr = 5e-3},
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"}});
  auto h = model.fit(train.x(), train.y(),
                     {.batch_size = 64, .epochs = 5, .verbose = 0, .validation_split = 0.1});
  EXPECT_EQ(h->epoch(), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(h->keys(), (std::vector<std::string>{"loss", "accuracy", "learning_rate", "val_loss",
                                                 "val_accuracy"}));
  EXPECT_LT((*h)["loss"].back(), (*h)["loss"].front());
  EXPECT_GT((*h)["val_accuracy"].back(), 0.9);
  const Logs evaluated = model.evaluate(test.x(), test.y());
  EXPECT_GT(find_log(evaluated, "accuracy"), 0.9);
  // predict() is the net's own answer, and evaluate() its loss.
  net.eval();
  NoGradGuard no_grad;
  const Tensor want = net(test.x());
  EXPECT_TRUE(allclose(model.predict(test.x()), want, 1e-5, 1e-5));
  EXPECT_NEAR(find_log(evaluated, "loss"), cross_entropy(want, test.y()).item<float>(), 1e-5);
  const double hits = (want.argmax(1) == test.y()).to(float64).mean().item<double>();
  EXPECT_NEAR(find_log(evaluated, "accuracy"), hits, 1e-9);
}

TEST(Model, AnotherFitContinuesAndATemporaryIsKept) {
  data::Digits d({.train = true});
  manual_seed(2);
  Model model(small_net());
  model.compile({.optimizer = "adam", .loss = "sparse_categorical_crossentropy"});
  const double first = (*model.fit(d.x(), d.y(), {.epochs = 2, .verbose = 0}))["loss"].back();
  const int64_t steps = model.trainer().step();
  auto h = model.fit(d.x(), d.y(), {.epochs = 4, .verbose = 0, .initial_epoch = 2});
  EXPECT_EQ(h->epoch(), (std::vector<int64_t>{2, 3}));
  EXPECT_LT((*h)["loss"].back(), first);
  EXPECT_EQ(model.trainer().step(), 2 * steps);
  EXPECT_EQ(model.optimizer().step_count().to(float64).item<double>(),
            static_cast<double>(2 * steps));
  // An endless pipeline, in epochs of a few steps.
  auto endless = data::pipeline(d, {.seed = 3}).shuffle().batch(32).repeat();
  h = model.fit(endless, {.epochs = 3, .verbose = 0, .steps_per_epoch = 7});
  EXPECT_EQ(h->epoch().size(), 3u);
  EXPECT_EQ(model.trainer().step(), 2 * steps + 21);
}

// A weight of k equals repeating the sample k times; and classes are weighted through their
// samples.
TEST(Model, WeightsOfSamplesAndClasses) {
  const Tensor x = tensor({{1.0f, 2.0f}, {-1.0f, 0.5f}, {0.3f, -2.0f}, {1.5f, 1.0f}});
  const Tensor y = tensor({0, 1, 2, 1});
  auto weight_after = [&](const FitOptions& o, bool pipeline) {
    manual_seed(3);
    nn::Linear net(2, 3);
    Model model(net);
    model.compile(
        {.optimizer = optim::SGDOptions{.lr = 0.5}, .loss = "sparse_categorical_crossentropy"});
    if (pipeline)
      model.fit(data::pipeline(data::TensorDataset(x, y)).batch(4), o);
    else
      model.fit(x, y, o);
    return net.weight.value();
  };
  const FitOptions plain{.epochs = 1, .verbose = 0, .shuffle = false};
  FitOptions by_sample = plain, by_class = plain, ones = plain;
  by_sample.sample_weight = tensor({1.0f, 3.0f, 0.0f, 3.0f});
  by_class.class_weight = {{1, 3.0}, {2, 0.0}};
  ones.sample_weight = tensor({1.0f, 1.0f, 1.0f, 1.0f});
  const Tensor want = weight_after(by_sample, false);
  EXPECT_TRUE(allclose(weight_after(by_class, false), want, 1e-6, 1e-6));
  EXPECT_TRUE(allclose(weight_after(by_class, true), want, 1e-6, 1e-6));
  EXPECT_TRUE(allclose(weight_after(ones, false), weight_after(plain, false), 1e-6, 1e-6));
  EXPECT_FALSE(allclose(weight_after(plain, false), want, 1e-3, 1e-3));
  // By hand: mean over four of w * loss.
  manual_seed(3);
  nn::Linear net(2, 3);
  Tensor loss =
      (cross_entropy(net(x), y, {.reduction = Reduction::none}) * tensor({1.0f, 3.0f, 0.0f, 3.0f}))
          .mean();
  loss.backward();
  EXPECT_TRUE(allclose(net.weight.value() - 0.5 * net.weight.grad(), want, 1e-5, 1e-6));
}

// y_true, y_pred -> loss, computed with keras.losses of Keras 3.
TEST(Model, LossesAreKerass) {
  const Tensor y = tensor({{0.0f, 1.0f, 0.5f}, {1.0f, 0.0f, 2.0f}});
  const Tensor p = tensor({{0.1f, 0.7f, 0.2f}, {0.6f, 0.3f, 0.1f}});
  const Tensor dense = tensor({{0.0f, 1.0f, 0.0f}, {1.0f, 0.0f, 0.0f}});
  struct Row {
    const char* name;
    Tensor target, output;
    bool from_logits;
    double want;
  };
  const Tensor labels = tensor({1, 0});
  const std::vector<Row> rows = {
#include "tests/train/golden/keras_losses.inc"
  };
  for (const Row& r : rows) {
    nn::Identity net;
    Model model(net, [&](const Batch& b) { return b[0]; });
    // Nothing to train: a parameter of its own keeps the optimizer happy.
    Param unused(zeros({1}));
    optim::SGD none({unused});
    model.compile({.optimizer = none, .loss = r.name, .from_logits = r.from_logits});
    EXPECT_NEAR(find_log(model.evaluate(r.output, r.target), "loss"), r.want,
                2e-5 * std::max(1.0, std::abs(r.want)))
        << r.name << (r.from_logits ? " of scores" : "");
  }
}

TEST(Model, SummaryWeightsAndPrediction) {
  TempFolder f;
  manual_seed(4);
  Model model(nn::Sequential(nn::Conv2d(1, 4, 3), nn::BatchNorm2d(4), nn::ReLU(), nn::Flatten(),
                             nn::Linear(4 * 6 * 6, 10)));
  const std::string text = model.summary({1, 8, 8});
  for (const char* part :
       {"0 (Conv2d)", "(None, 4, 6, 6)", "4 (Linear)", "(None, 10)", "1450", "Total params: 1507",
        "Trainable params: 1498", "Non-trainable params: 9"})
    EXPECT_NE(text.find(part), text.npos) << part << " in\n" << text;
  const Tensor x = randn({5, 1, 8, 8});
  const Tensor before = model.predict(x, {.batch_size = 2});  // without compile()
  EXPECT_EQ(before.shape(), Shape(5, 10));
  model.save_weights(f / "w.safetensors");
  model.compile({.optimizer = "sgd", .loss = "mse", .run_eagerly = true});
  model.fit(x, randn({5, 10}), {.epochs = 3, .verbose = 0});
  EXPECT_FALSE(allclose(model.predict(x), before));
  model.load_weights(f / "w.safetensors");
  EXPECT_TRUE(allclose(model.predict(x), before, 1e-6, 1e-6));
  EXPECT_GT(model.train_on_batch(x, randn({5, 10})), 0);
}

TEST(Model, ProbabilitiesInsteadOfScores) {
  data::Digits d({.train = true});
  auto run = [&](bool logits) {
    manual_seed(5);
    nn::Sequential net = small_net();
    Model model(net, [&](const Batch& b) { return logits ? net(b[0]) : softmax(net(b[0]), 1); });
    model.compile({.optimizer = "adam",
                   .loss = "sparse_categorical_crossentropy",
                   .metrics = {"accuracy"},
                   .from_logits = logits});
    auto h = model.fit(d.x(), d.y(), {.epochs = 2, .verbose = 0, .shuffle = false});
    if (!logits) {  // predict() gives what the net gives
      const Tensor p = model.predict(d.x());
      EXPECT_TRUE(allclose(p.sum({1}), ones({p.size(0)}), 1e-5, 1e-5));
    }
    return std::pair((*h)["loss"].back(), (*h)["accuracy"].back());
  };
  const auto a = run(true), b = run(false);
  EXPECT_NEAR(a.first, b.first, 1e-3);
  EXPECT_NEAR(a.second, b.second, 5e-3);
}

TEST(Model, CallbacksByKerasNames) {
  TempFolder f;
  data::Digits train({.train = true}), test({.train = false});
  manual_seed(6);
  Model model(small_net());
  model.compile(
      {.optimizer = "adam", .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
  int batches = 0, begins = 0;
  std::vector<double> rates;
  auto stop = std::make_shared<EarlyStopping>(
      EarlyStoppingOptions{.monitor = "val_accuracy", .patience = 3, .restore_best_weights = true});
  auto h = model.fit(
      train.x(), train.y(),
      {.epochs = 60,
       .verbose = 0,
       .callbacks = {stop, std::make_shared<CSVLogger>(f / "log.csv"),
                     std::make_shared<ModelCheckpoint>(
                         f / "w-{epoch:02d}-{val_loss:.2f}.safetensors",
                         ModelCheckpointOptions{.monitor = "val_loss", .save_best_only = true}),
                     std::make_shared<LearningRateScheduler>(
                         [](int64_t epoch, double lr) { return epoch == 0 ? lr : lr * 0.9; }),
                     std::make_shared<TensorBoard>(f / "events"),
                     std::make_shared<ReduceLROnPlateau>(), std::make_shared<TerminateOnNaN>(),
                     std::make_shared<LambdaCallback>(LambdaCallbackOptions{
                         .on_epoch_begin = [&](Trainer&) { ++begins; },
                         .on_epoch_end = [&](Trainer& t,
                                             const Logs&) { rates.push_back(t.optimizer().lr()); },
                         .on_train_batch_end = [&](Trainer&, const Logs&) { ++batches; }})},
       .validation_data = {test.x(), test.y()}});
  const size_t epochs = h->epoch().size();
  EXPECT_LT(epochs, 60u);
  EXPECT_EQ(begins, static_cast<int>(epochs));
  EXPECT_EQ(batches, static_cast<int>(epochs) * 45);
  EXPECT_NEAR(rates[1], 0.9e-3, 1e-9);
  EXPECT_NEAR(rates.back(), 1e-3 * std::pow(0.9, static_cast<double>(epochs - 1)), 1e-9);
  EXPECT_NEAR((*h)["learning_rate"][1], 0.9e-3, 1e-9);
  // The best weights are restored.
  const std::vector<double>& acc = (*h)["val_accuracy"];
  EXPECT_EQ(find_log(model.evaluate(test.x(), test.y(), {.batch_size = 32}), "accuracy"),
            *std::max_element(acc.begin(), acc.end()));
  const std::string first = fmt::format("w-01-{:.2f}.safetensors", (*h)["val_loss"][0]);
  EXPECT_TRUE(file_exists(f / first)) << first;
  EXPECT_EQ(io::Csv::read(f / "log.csv").rows(), epochs);
}

TEST(Model, BackupAndRestoreResumesToTheBit) {
  TempFolder f;
  data::Digits d({.train = true});
  struct Cut : Callback {
    int64_t at;
    explicit Cut(int64_t at) : at(at) {}
    void step_end(Trainer& t, const Logs&) override {
      if (t.step() == at) TD_FAIL(Internal, "power cut");
    }
    const char* name() const override { return "Cut"; }
  };
  auto run = [&](const std::string& folder, int64_t cut, int64_t freq) {
    manual_seed(7);
    nn::Sequential net = small_net();
    Model model(net);
    model.compile({.optimizer = "adam", .loss = "sparse_categorical_crossentropy"});
    FitOptions o{.epochs = 3, .verbose = 0};
    o.callbacks = {
        std::make_shared<BackupAndRestore>(f / folder, BackupAndRestoreOptions{.save_freq = freq}),
        std::make_shared<Cut>(cut)};
    try {
      model.fit(d.x(), d.y(), o);
    } catch (const Error&) {
      EXPECT_GT(cut, 0);
    }
    return net.state_dict();
  };
  const StateDict want = run("whole", -1, 0);
  EXPECT_FALSE(file_exists(f / "whole"));  // deleted at the end
  for (int64_t freq : {0, 10}) {
    const std::string folder = fmt::format("cut{}", freq);
    run(folder, 60, freq);
    EXPECT_TRUE(file_exists(f / folder + "/latest"));
    const StateDict got = run(folder, -1, freq);
    for (const auto& [name, value] : want) EXPECT_TRUE(equal(got.at(name), value)) << name;
  }
}

TEST(Model, MistakesAreNamed) {
  const Tensor x = randn({6, 2}), y = tensor({0, 1, 0, 1, 0, 1});
  nn::Linear net(2, 2);
  Model model(net);
  EXPECT_NE(error_of([&] { model.fit(x, y); }).find("the model is not compiled"),
            std::string::npos);
  const std::pair<std::function<void()>, const char*> kCases[] = {
      {[&] { model.compile({.optimizer = "adm", .loss = "mse"}); }, "did you mean 'adam'?"},
      {[&] { model.compile({.optimizer = "zzzzzzz", .loss = "mse"}); }, "sgd, adam, adamw"},
      {[&] { model.compile({.optimizer = "adam"}); }, "compile() expects a loss"},
      {[&] { model.compile({.loss = "sparse_categorical_crosentropy"}); },
       "did you mean 'sparse_categorical_crossentropy'?"},
      {[&] { model.compile({.loss = "mse", .metrics = {"acuracy"}}); }, "no metric 'acuracy'"},
      {[&] {
         model.compile({.loss = "sparse_categorical_crossentropy"});
         model.fit(x, y.narrow(0, 0, 5));
       },
       "as many rows"},
      {[&] { model.fit(x, y, {.batch_size = 0}); }, "batch_size expects at least 1"},
      {[&] { model.fit(x, y, {.validation_split = 1.5}); }, "validation_split expects"},
      {[&] { model.fit(x, y, {.validation_split = 0.95}); }, "leaves nothing"},
      {[&] {
         model.fit(x, randn({6}), {.class_weight = {{0, 2.0}}});
       },
       "class_weight expects labels"},
      {[&] {
         model.fit(x, y,
                   {.verbose = 0,
                    .callbacks = {std::make_shared<EarlyStopping>(
                        EarlyStoppingOptions{.monitor = "val_loss"})}});
       },
       "EarlyStopping watches 'val_loss', which is not logged"},
      {[&] {
         model.fit(x, y,
                   {.verbose = 0,
                    .callbacks = {std::make_shared<ModelCheckpoint>("{vall_loss}.safetensors")}});
       },
       "watches 'vall_loss'"},
      {[&] {
         model.compile({.loss = "mse"});
         model.fit(x, randn({6, 3}), {.verbose = 0});
       },
       "expects targets of the output's shape"},
      {[&] {
         model.compile({.loss = [](const Tensor& a, const Tensor&) { return a.mean(); }});
         model.fit(x, y, {.verbose = 0, .sample_weight = ones({6})});
       },
       "sample weights expect a loss with a value per sample"},
      {[&] { model.load_weights("no_such_file.safetensors"); }, "no_such_file"},
  };
  for (const auto& [call, want] : kCases) {
    const std::string what = error_of(call);
    EXPECT_NE(what.find(want), what.npos) << want << " in: " << what;
  }
}

}  // namespace
}  // namespace tandem::train
