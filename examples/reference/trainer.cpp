// SPDX-License-Identifier: Apache-2.0
// The example of docs/trainer.md.
#include <tandem/tandem.h>
using namespace tandem;

data::Pipeline<data::Example> digits(bool train) {
  auto p = data::pipeline(data::Digits({.train = train}), {.seed = 1});
  return train ? p.shuffle().batch(64) : p.batch(128);
}

int main() {
  init();
  manual_seed(1);
  models::MLP net({64, 32, 10});
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  optim::CosineAnnealingLR cosine(opt, {.T_max = 4});
  train::TrainerOptions options{.max_epochs = 4, .clip_norm = 1.0, .metrics = {"accuracy"}};
  options.folder = "run";  // set one after the other, fields may come in any order
  options.progress = false;
  options.validation.sanity_batches = 0;
  options.saving = {.every_steps = 20, .monitor = "val/accuracy"};
  train::Trainer trainer(
      net, [](Tensor out, Tensor y) { return cross_entropy(out, y); }, opt, options);
  trainer.schedule(cosine, train::ScheduleEvery::epoch);
  train::FitResult r = trainer.fit(digits(true), digits(false));
  print("{} steps, {}\n", r.steps, r.reason);

  trainer.load_best();  // by val/accuracy
  train::Logs test = trainer.validate(digits(false), "test/");
  Tensor scores = trainer.predict(digits(false));
  print("accuracy {:.2f}, scores {}\n", train::find_log(test, "test/accuracy"), scores.shape());
  return train::find_log(test, "test/accuracy") > 0.85 ? 0 : 1;
}
