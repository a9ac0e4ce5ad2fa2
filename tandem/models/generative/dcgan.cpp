// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/generative/dcgan.h"

#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

nn::ConvTranspose2d gan_up(int64_t in, int64_t out) {
  return nn::ConvTranspose2d(in, out, 4, {.stride = {2}, .padding = {1}, .bias = false});
}
nn::Conv2d gan_down(int64_t in, int64_t out) {
  return nn::Conv2d(in, out, 4, {.stride = {2}, .padding = {1}, .bias = false});
}

int64_t gan_quarter(const DCGANOptions& o) {
  TD_CHECK(o.size >= 4 && o.size % 4 == 0, Value,
           "DCGAN expects images whose size is a multiple of 4, got {}\nPad or resize them: "
           "transforms such as {{type: Resize, size: {}}}.",
           o.size, o.size / 4 * 4 + 4);
  return o.size / 4;
}

}  // namespace

DCGAN::DCGAN(DCGANOptions o)
    : generator(nn::ConvTranspose2d(o.latent, 2 * o.width, gan_quarter(o), {.bias = false}),
                nn::BatchNorm2d(2 * o.width), nn::ReLU(), gan_up(2 * o.width, o.width),
                nn::BatchNorm2d(o.width), nn::ReLU(), gan_up(o.width, o.channels), nn::Tanh()),
      discriminator(gan_down(o.channels, o.width), nn::LeakyReLU(0.2),
                    gan_down(o.width, 2 * o.width), nn::BatchNorm2d(2 * o.width),
                    nn::LeakyReLU(0.2),
                    nn::Conv2d(2 * o.width, 1, gan_quarter(o), {.bias = false})),
      o_(o) {
  TD_REGISTER(generator, discriminator);
  const NoGradGuard no_grad;
  for (const auto& [name, p] : named_parameters()) {
    const Tensor noise = randn(p.shape()) * 0.02;
    if (p.dim() == 4) p.assign_(noise);
    if (p.dim() == 1 && name.ends_with(".weight")) p.assign_(noise + 1.0);
  }
}

Tensor DCGAN::forward(Tensor z) { return generator(z.reshape({-1, o_.latent, 1, 1})); }

Tensor DCGAN::score(Tensor x) { return discriminator(std::move(x)).flatten(); }

Tensor DCGAN::noise_like(const Tensor& x) const { return randn({x.shape(0), o_.latent}); }

Tensor DCGAN::discriminator_loss(const Tensor& real, const Tensor& generated) {
  return binary_cross_entropy_with_logits(real, ones_like(real)) +
         binary_cross_entropy_with_logits(generated, zeros_like(generated));
}

Tensor DCGAN::generator_loss(const Tensor& generated) {
  return binary_cross_entropy_with_logits(generated, ones_like(generated));
}

Tensor DCGAN::sample(int64_t n) {
  const NoGradGuard no_grad;
  return (forward(randn({n, o_.latent})) + 1.0) * 0.5;
}

}  // namespace tandem::models
