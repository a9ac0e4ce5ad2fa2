// SPDX-License-Identifier: Apache-2.0
// Chapter 12. Training runs.
// The text around this program is docs/tutorial/12-training.md.
#include <tandem/tandem.h>

#include <filesystem>
using namespace tandem;

struct Net : nn::Module {
  nn::Linear fc1{64, 64}, fc2{64, 10};
  nn::Dropout drop{0.2};
  Net() { TD_REGISTER(fc1, drop, fc2); }
  Tensor forward(Tensor x) { return fc2(drop(relu(fc1(x.flatten(1))))); }
};

data::Pipeline<data::Example> digits(bool train) {
  auto p = data::pipeline(data::Digits({.train = train}), {.seed = 4});
  if (!train) return p.batch(128);
  return p.shuffle().batch(64).map([](data::Example e) {
    return data::Example{e.x + randn(e.x.shape()) * 0.05, e.y};
  });
}

// Trains for `epochs` in total, resuming from the folder's last checkpoint if there is one.
StateDict train_until(int64_t epochs, const std::string& folder) {
  manual_seed(1);
  Net net;
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  train::Trainer trainer(net, [](Tensor out, Tensor y) { return cross_entropy(out, y); }, opt,
                         {.max_epochs = epochs,
                          .clip_norm = 1.0,
                          .metrics = {"accuracy", "f1"},
                          .folder = folder,
                          .progress = false});
  trainer.add(std::make_shared<train::TensorBoard>(folder));
  train::FitResult r = trainer.fit(digits(true), digits(false));
  print("{} epochs, {} steps, accuracy {:.3f}\n", r.epochs, r.steps,
        train::find_log(r.logs, "val/accuracy"));
  return net.state_dict();
}

int main() {
  init();
  auto p = digits(true);
  int64_t batches = 0;
  for (auto [x, y] : p)
    if (++batches == 10) break;
  data::PipelineState here = p.state();
  print("{}: epoch {}, {} of {} batches\n", here.text, here.epoch, here.position, p.size());
  auto q = digits(true);
  q.load_state(here);
  auto [x, y] = *q.begin();
  print("batch 11 again: {}\n", equal(x, digits(true).get(10).x));

  std::filesystem::remove_all("runs12");
  train_until(3, "runs12/a");
  StateDict resumed = train_until(6, "runs12/a");
  StateDict whole = train_until(6, "runs12/b");
  print("bit-equal: {}\n", equal(resumed.at("fc1.weight"), whole.at("fc1.weight")));
  return equal(resumed.at("fc2.bias"), whole.at("fc2.bias")) ? 0 : 1;
}
