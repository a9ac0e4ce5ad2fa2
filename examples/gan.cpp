// SPDX-License-Identifier: Apache-2.0
// A generative adversarial net over the embedded digits: two nets, two optimizers and two losses in
// one compiled step. Writes what the generator draws to gan.png.
// test: 3
#include <tandem/tandem.h>

#include <cstdlib>

#include "tandem/io/image.h"
#include "tandem/recipe/sample_files.h"
#include "tandem/train/trainer.h"

using namespace tandem;

struct Gan : nn::Module {
  nn::Sequential generator{nn::Linear(16, 64), nn::ReLU(), nn::Linear(64, 64), nn::Tanh()};
  nn::Sequential discriminator{nn::Linear(64, 64), nn::LeakyReLU(0.2), nn::Linear(64, 1)};
  Gan() { TD_REGISTER(generator, discriminator); }

  static Tensor is(double real, const Tensor& logits) {
    return binary_cross_entropy_with_logits(logits, full_like(logits, real));
  }
  // Called with each batch, in training and in validation.
  train::StepOutput training_step(const train::Batch& b, train::Updates& update) {
    const Tensor x = b[0].flatten(1) * 2.0 - 1.0;
    const Tensor fake = generator(randn({x.shape(0), 16}));
    update("discriminator", is(1, discriminator(x)) + is(0, discriminator(fake.detach())));
    update("generator", is(1, discriminator(fake)));  // sees the discriminator's new weights
    return {};
  }
};

int main(int argc, char** argv) {
  init();
  manual_seed(0);
  Gan net;
  optim::Adam d(net.discriminator.parameters(), {.lr = 1e-3, .betas = {0.5, 0.999}});
  optim::Adam g(net.generator.parameters(), {.lr = 1e-3, .betas = {0.5, 0.999}});
  train::Trainer trainer(net, {{"discriminator", d}, {"generator", g}},
                         {.max_epochs = argc > 1 ? std::atoi(argv[1]) : 60});
  const train::FitResult run = trainer.fit(
      data::pipeline(data::Digits(), {.seed = 1}).shuffle().batch(64, {.drop_last = true}));
  print("discriminator {:.3f}, generator {:.3f}\n",
        train::find_log(run.logs, "train/discriminator_loss"),
        train::find_log(run.logs, "train/generator_loss"));
  const NoGradGuard no_grad;
  const Tensor drawn = (net.generator(randn({64, 16})) + 1.0) * 0.5;
  write_file("gan.png", io::encode_png(recipe::image_grid(drawn.reshape({64, 1, 8, 8}))));
}
