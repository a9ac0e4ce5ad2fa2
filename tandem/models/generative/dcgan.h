// SPDX-License-Identifier: Apache-2.0
// DCGAN: the convolutional generative adversarial network of Radford et al. (2016), for small
// square images: a generator of transposed convolutions and a discriminator of strided ones.
#pragma once

#include "tandem/nn/nn.h"

namespace tandem::models {

struct DCGANOptions {
  int64_t channels = 1;
  int64_t size = 28;  ///< height and width; a multiple of 4
  int64_t latent = 64;
  int64_t width = 32;

  /// All but channels and size, which the data says.
  template <class V>
  void fields(V& v) {
    v("latent", latent, {.doc = "normal numbers that an image is drawn from", .at_least = 1});
    v("width", width, {.doc = "channels next to the images; doubled once", .at_least = 1});
  }
};

/// Images inside are in -1..1. Weights are drawn from N(0, 0.02), as in the paper.
class TD_API DCGAN : public nn::Module {
 public:
  /// Throws Value for a size that is not a multiple of 4.
  explicit DCGAN(DCGANOptions options = {});
  /// z [n, latent] -> images in -1..1 [n, channels, size, size].
  Tensor forward(Tensor z);
  /// Images in -1..1 -> logits [n] of being real.
  Tensor score(Tensor x);
  /// Normal numbers [n, latent] for the n samples of x.
  Tensor noise_like(const Tensor& x) const;
  /// The discriminator's loss: binary cross-entropy on real (1) and generated (0) images.
  static Tensor discriminator_loss(const Tensor& real, const Tensor& generated);
  /// The generator's, which does not saturate: its images should be taken for real.
  static Tensor generator_loss(const Tensor& generated);
  /// n images in 0..1. In eval mode they do not depend on each other.
  Tensor sample(int64_t n);
  const DCGANOptions& options() const { return o_; }

  nn::Sequential generator, discriminator;

 private:
  DCGANOptions o_;
};

}  // namespace tandem::models
