// SPDX-License-Identifier: Apache-2.0
// Writes event files for tests/peers/tensorboard: `kinds FOLDER` one value of every kind, whose
// numbers the test knows; `endless FOLDER` scalars until it is killed.
#include <cmath>
#include <cstring>

#include "tandem/tandem.h"

using namespace tandem;

namespace {

struct Net : nn::Module {
  nn::Linear fc1{3, 4}, fc2{4, 2};
  nn::BatchNorm1d norm{4};
  Net() { TD_REGISTER(fc1, norm, fc2); }
  Tensor forward(Tensor x) { return fc2(relu(norm(fc1(x)))); }
};

void kinds(const char* folder) {
  runs::EventFile events(folder);
  for (int64_t step = 0; step < 5; ++step)
    events.scalar("train/loss", 1.0 / static_cast<double>(step + 1), step);
  events.scalar("train/nan", NAN, 3);
  events.histogram("weights", arange(-50, 51).to(float32) / 10, 2);
  events.image("image", arange(0, 3 * 4 * 6).reshape({3, 4, 6}).to(uint8), 3);
  events.text("notes", "learning rate **0.1**, {\"a\": \xc3\xa4}", 4);
  const Tensor scores = arange(0, 101).to(float32) / 100;
  events.pr_curve("curve", scores > 0.4, scores * scores, 5);
  events.hparams({{"lr", 0.25}, {"nesterov", true}, {"optimizer", std::string("sgd")}});
  events.hparams_end();
  Net net;
  const Ref<Graph> graph =
      trace([&](std::span<const Tensor> x) { return std::vector<Tensor>{net.forward(x[0]).sum()}; },
            std::vector<Spec>{Spec(float32, {5, 3})}, Captures::refuse);
  events.graph(*graph, &net);
}

}  // namespace

int main(int argc, char** argv) {
  init();
  if (argc != 3) return 2;
  if (std::strcmp(argv[1], "kinds") == 0) {
    kinds(argv[2]);
    return 0;
  }
  runs::EventFile events(argv[2]);
  print("ready\n");
  std::fflush(stdout);
  for (int64_t step = 0;; ++step) events.scalar("step", static_cast<double>(step), step);
}
