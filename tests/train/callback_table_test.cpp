// SPDX-License-Identifier: Apache-2.0
// Callbacks by name: every row is whole, and its example trains.
#include "tandem/train/callback_table.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/models/mlp.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/component_checks.h"
#include "tests/support/init.h"

namespace tandem::train {
namespace {

std::shared_ptr<Callback> made(const std::string& text, const std::string& folder) {
  const io::Yaml yaml = io::parse_yaml(text, "callback");
  recipe::Options o(&yaml, "", "callback");
  const ChosenCallback chosen = recipe::read_component(o, callbacks());
  o.finish();
  return make_callback(chosen, folder);
}

// Two epochs of a small net.
FitResult run(const std::shared_ptr<Callback>& callback) {
  manual_seed(1);
  models::MLP net({64, 8, 10});
  optim::Adam adam(net.parameters(), {.lr = 1e-2});
  Trainer trainer(net, [](const Tensor& x, const Tensor& y) { return cross_entropy(x, y); }, adam,
                  {.max_epochs = 2, .compile = false, .progress = false});
  trainer.add(callback);
  return trainer.fit(data::pipeline(data::Digits(), {.seed = 1}).take(64).batch(32));
}

TEST(CallbackTable, EveryRowIsWholeAndItsExampleTrains) {
  ASSERT_GE(callbacks().rows().size(), 11u);
  for (const CallbackRow* row : callbacks().rows()) {
    SCOPED_TRACE(row->name);
    check_component(callbacks(), *row);
    TempFolder folder;
    std::filesystem::create_directories(folder / "run");
    const FitResult fit = run(made(row->example, folder / "run"));
    EXPECT_EQ(fit.epochs, 2);
    EXPECT_EQ(fit.steps, 4);
  }
}

TEST(CallbackTable, OptionsReachTheCallback) {
  TempFolder folder;
  std::filesystem::create_directories(folder / "run");
  run(made("{type: csv_logger, path: a.csv, separator: ;}", folder / "run"));
  EXPECT_EQ(read_file(folder / "run/a.csv").rfind("epoch;", 0), 0u);
  run(made("{type: csv_logger, path: " + (folder / "b.csv") + "}", folder / "run"));
  EXPECT_TRUE(file_exists(folder / "b.csv"));
  // Nothing gets better by 1e9: the run ends after its first epoch without that.
  const FitResult fit =
      run(made("{type: early_stopping, monitor: train/loss, min_delta: 1e9, patience: 0}", ""));
  EXPECT_NE(fit.reason.find("early stopping"), fit.reason.npos) << fit.reason;
  EXPECT_EQ(error_of([] { made("{type: csv_logger, separator: ab}", ""); }),
            "Value: CSVLogger expects a separator of one character, got 'ab'.");
  EXPECT_NE(error_of([] {
              made("{type: early_stopping, mode: maximum}", "");
            }).find("mode: expected auto, min or max, got 'maximum'"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::train
