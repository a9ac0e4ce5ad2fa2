// SPDX-License-Identifier: Apache-2.0
// VAE: the variational autoencoder of Kingma and Welling (2014) with one hidden layer on each side
// and Bernoulli pixels.
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/view/dim_tensor.h"

namespace tandem::models {

struct VAEOptions {
  int64_t features = 784;  ///< of a sample, values in 0..1
  int64_t hidden = 400, latent = 20;

  /// All but the features, which the data says.
  template <class V>
  void fields(V& v) {
    v("hidden", hidden, {.doc = "width of the hidden layers", .at_least = 1});
    v("latent", latent, {.doc = "width of the code", .at_least = 1});
  }
};

struct VAE : nn::Module {
  explicit VAE(const VAEOptions& o)
      : fc1(o.features, o.hidden),
        mean(o.hidden, o.latent),
        logvar(o.hidden, o.latent),
        fc3(o.latent, o.hidden),
        fc4(o.hidden, o.features),
        latent(o.latent) {
    TD_REGISTER(fc1, mean, logvar, fc3, fc4);
  }
  /// z [n, latent] -> logits of the pixels [n, features].
  Tensor decode(const Tensor& z) { return fc4(relu(fc3(z))); }
  /// x [n, ...] -> logits of its pixels for one draw of z.
  Tensor forward(Tensor x) {
    const Tensor h = relu(fc1(flatten(x, 1)));
    return decode(draw(mean(h), logvar(h)));
  }
  /// The negative evidence lower bound in nats per sample, estimated with one draw of z.
  Tensor loss(const Tensor& batch) {
    const Tensor x = flatten(batch, 1), h = relu(fc1(x)), mu = mean(h), lv = logvar(h);
    const Tensor seen =
        binary_cross_entropy_with_logits(decode(draw(mu, lv)), x, {.reduction = Reduction::sum});
    const Tensor kl = -0.5 * (1 + lv - mu * mu - exp(lv)).sum();
    return (seen + kl) / dim_tensor(batch.shape(0)).to(seen.dtype());
  }
  /// Pixels [n, features] of n draws from the prior.
  Tensor sample(int64_t n) {
    NoGradGuard no_grad;
    return sigmoid(decode(randn({n, latent})));
  }
  nn::Linear fc1, mean, logvar, fc3, fc4;
  int64_t latent;

 private:
  static Tensor draw(const Tensor& mu, const Tensor& lv) {
    return mu + randn_like(mu) * exp(lv * 0.5);
  }
};

}  // namespace tandem::models
