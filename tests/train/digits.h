// SPDX-License-Identifier: Apache-2.0
// What the tests of training share: digits and their loss, a net with its optimizer, a callback
// that stops the run.
#pragma once

#include <csignal>

#include "tandem/tandem.h"
#include "tandem/train/callbacks.h"

namespace tandem::train {

inline Tensor loss_of(Tensor out, Tensor y) { return cross_entropy(out, y); }

/// Shuffled batches to train on; batches of 128 to test on.
inline data::Pipeline<data::Example> digits(bool train, int64_t batch = 64) {
  auto p = data::pipeline(data::Digits({.train = train}), {.seed = 4});
  return train ? p.shuffle().batch(batch) : p.batch(128);
}

/// A net and what trains it.
template <class Net>
struct Work {
  Net net;
  optim::AdamW opt{net.parameters(), {.lr = 1e-2}};
};
/// The same with a schedule over four epochs.
template <class Net>
struct ScheduledWork : Work<Net> {
  optim::CosineAnnealingLR cosine{this->opt, {.T_max = 92}};
};

/// Asks to stop after a step, as Ctrl-C does or by a call.
struct StopAt : Callback {
  int64_t at;
  bool signal;
  explicit StopAt(int64_t at, bool signal = true) : at(at), signal(signal) {}
  void step_end(Trainer& t, const Logs&) override {
    if (t.step() != at) return;
    if (signal)
      std::raise(SIGTERM);
    else
      t.stop("enough");
  }
  const char* name() const override { return "StopAt"; }
};

}  // namespace tandem::train
