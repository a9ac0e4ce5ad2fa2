// SPDX-License-Identifier: Apache-2.0
// Chapter 5. Sequences.
// The text around this program is docs/tutorial/05-sequences.md.
#include <tandem/tandem.h>
using namespace tandem;

struct Forecast : nn::Module {
  nn::LSTM lstm{1, 32, {.batch_first = true}};
  nn::Linear out{32, 1};
  Forecast() { TD_REGISTER(lstm, out); }
  Tensor forward(Tensor x) { return out(lstm(x).y); }  // [n, t, 1] -> the next value at each t
};

// n waves of t steps: [n, t, 1].
Tensor waves(int64_t n, int64_t t) {
  Tensor frequency = uniform({n, 1}, 0.2, 0.5), phase = uniform({n, 1}, 0, 6.28);
  return sin(frequency * arange(t) + phase).unsqueeze(2);
}

int main() {
  init();
  manual_seed(4);
  Forecast net;
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  for (int step = 0; step < 500; ++step) {
    Tensor w = waves(32, 41);
    Tensor loss = mse_loss(net(w.narrow(1, 0, 40)), w.narrow(1, 1, 40));
    opt.zero_grad();
    loss.backward();
    optim::clip_grad_norm_(net.parameters(), 1.0);
    opt.step();
    if (step % 100 == 99) print("step {} loss {:.5f}\n", step + 1, loss.item<float>());
  }

  NoGradGuard no_grad;
  Tensor w = waves(8, 60);
  nn::LSTMOutput state = net.lstm(w.narrow(1, 0, 50));
  std::vector<Tensor> guesses;
  for (int i = 0; i < 10; ++i) {
    Tensor guess = net.out(state.y.narrow(1, -1, 1));
    guesses.push_back(guess);
    state = net.lstm(guess, state.h, state.c);
  }
  float error = l1_loss(cat(guesses, 1), w.narrow(1, 50, 10)).item<float>();
  print("mean error over 10 steps into the unknown: {:.3f}\n", error);
  return error < 0.25f ? 0 : 1;
}
