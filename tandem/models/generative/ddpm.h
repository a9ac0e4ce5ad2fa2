// SPDX-License-Identifier: Apache-2.0
// DDPM: class-conditional denoising diffusion (Ho et al. 2020) of small gray images: a U-Net that
// predicts the noise, the cosine schedule of Nichol and Dhariwal (2021), classifier-free guidance
// (Ho and Salimans 2022), and the sampler DDIM (Song et al. 2021).
#pragma once

#include "tandem/nn/nn.h"

namespace tandem::models {

struct DDPMOptions {
  int64_t classes = 10;
  int64_t size = 28;  ///< height and width; a multiple of 4
  int64_t width = 16;
  int64_t steps = 400;
  double class_dropout = 0.1;

  /// All but classes and size, which the data says.
  template <class V>
  void fields(V& v) {
    v("width", width, {.doc = "channels of the first stage; a multiple of 4", .at_least = 4});
    v("steps", steps, {.doc = "steps of the noise", .at_least = 1});
    v("class_dropout", class_dropout,
      {.doc = "share of samples that are learned without their class",
       .at_least = 0,
       .at_most = 1});
  }
};

class TD_API DDPM : public nn::Module {
 public:
  /// Throws Value for a size or width that is not a multiple of 4.
  explicit DDPM(DDPMOptions options = {});
  /// The noise predicted in x [n, 1, size, size] at steps t i64 [n], for classes y i64 [n].
  Tensor forward(Tensor x, Tensor t, Tensor y);
  Tensor operator()(Tensor x, Tensor t, Tensor y, SourceLocation loc = SourceLocation::here());
  /// Mean squared error of the noise predicted at random steps; x in 0..1.
  Tensor loss(const Tensor& x, const Tensor& y);
  /// Images in 0..1 of the classes y [n], in `steps` steps. guidance 1: no guidance.
  Tensor sample(const Tensor& y, int64_t steps = 50, double guidance = 2.0);
  const DDPMOptions& options() const { return o_; }

  /// Two convolutions with norms; the embeddings of step and class are added between them.
  struct TD_API Block : nn::Module {
    Block(int64_t in, int64_t out, int64_t told);
    Tensor forward(Tensor x, Tensor told);
    Tensor operator()(Tensor x, Tensor told, SourceLocation loc = SourceLocation::here());
    nn::GroupNorm norm1, norm2;
    nn::Conv2d conv1, conv2;
    nn::Linear fc;
    std::optional<nn::Conv2d> skip;
  };

 private:
  DDPMOptions o_;
  Buffer kept_;   ///< [steps]: the fraction of the image's variance that is left
  Buffer waves_;  ///< [steps, 4 width]: sines and cosines of the step
  nn::Embedding label_;
  nn::Linear time1_, time2_;
  nn::Conv2d first_, last_;
  Block down1_, down2_, down3_, middle_, up2_, up1_;
  nn::GroupNorm norm_;
};

}  // namespace tandem::models
