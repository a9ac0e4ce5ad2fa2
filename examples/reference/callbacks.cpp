// SPDX-License-Identifier: Apache-2.0
// The example of docs/callbacks.md.
#include <tandem/tandem.h>
using namespace tandem;

// Ends the run when it is good enough.
struct StopAtLoss : train::Callback {
  double wanted;
  explicit StopAtLoss(double wanted) : wanted(wanted) {}
  void epoch_end(train::Trainer& trainer, const train::Logs& logs) override {
    if (train::find_log(logs, "train/loss") < wanted) trainer.stop("good enough");
  }
  const char* name() const override { return "StopAtLoss"; }
};

int main() {
  init();
  manual_seed(1);
  models::MLP net({64, 32, 10});
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  train::Trainer trainer(net, [](Tensor out, Tensor y) { return cross_entropy(out, y); }, opt,
                         {.max_epochs = 50, .metrics = {"accuracy"}, .progress = false});
  auto history = std::make_shared<train::History>();
  int64_t batches = 0;
  trainer.add(history)
      .add(std::make_shared<StopAtLoss>(0.2))
      .add(std::make_shared<train::EarlyStopping>(
          train::EarlyStoppingOptions{.monitor = "val/loss", .patience = 3}))
      .add(std::make_shared<train::ModelCheckpoint>(
          "best.safetensors", train::ModelCheckpointOptions{.save_best_only = true}))
      .add(std::make_shared<train::CSVLogger>("log.csv"))
      .add(std::make_shared<train::LambdaCallback>(train::LambdaCallbackOptions{
          .on_train_batch_end = [&](train::Trainer&, const train::Logs&) { ++batches; }}));
  train::FitResult r = trainer.fit(data::pipeline(data::Digits(), {.seed = 1}).shuffle().batch(64),
                                   data::pipeline(data::Digits({.train = false})).batch(128));
  print("{} after {} batches, losses {:.2f} to {:.2f}\n", r.reason, batches,
        (*history)["loss"].front(), (*history)["loss"].back());
  net.load_state_dict(load("best.safetensors"));
  return r.reason == "good enough" ? 0 : 1;
}
