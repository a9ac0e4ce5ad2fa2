// SPDX-License-Identifier: Apache-2.0
// DDPM: denoising diffusion (Ho et al. 2020) of small gray pictures, asked for by class: a U-Net
// that guesses the noise, the cosine schedule of Nichol and Dhariwal (2021), guidance without a
// classifier (Ho and Salimans 2022), and the sampler DDIM (Song et al. 2021).
#pragma once

#include "tandem/nn/nn.h"

namespace tandem::models {

struct DDPMOptions {
  int64_t classes = 10;
  int64_t size = 28;           ///< height and width; a multiple of 4
  int64_t width = 16;          ///< channels of the first stage; a multiple of 4
  int64_t steps = 400;         ///< of the noise
  double class_dropout = 0.1;  ///< share of samples that are learnt without their class
};

class TD_API DDPM : public nn::Module {
 public:
  /// Throws Value for a size or width that is no multiple of 4.
  explicit DDPM(DDPMOptions options = {});
  /// The noise in x [n, 1, size, size] at steps t i64 [n], of classes y i64 [n] (`classes`: any).
  Tensor forward(Tensor x, Tensor t, Tensor y);
  Tensor operator()(Tensor x, Tensor t, Tensor y, Where where = Where::here());
  /// Mean squared error of the noise guessed at random steps; x in 0..1.
  Tensor loss(const Tensor& x, const Tensor& y);
  /// Pictures in 0..1 of the classes y [n], in `steps` steps. guidance 1: none.
  Tensor sample(const Tensor& y, int64_t steps = 50, double guidance = 2.0);
  const DDPMOptions& options() const { return o_; }

  /// Two convolutions with norms; what the step and the class say is added between them.
  struct TD_API Block : nn::Module {
    Block(int64_t in, int64_t out, int64_t told);
    Tensor forward(Tensor x, Tensor told);
    Tensor operator()(Tensor x, Tensor told, Where where = Where::here());
    nn::GroupNorm norm1, norm2;
    nn::Conv2d conv1, conv2;
    nn::Linear fc;
    std::optional<nn::Conv2d> skip;
  };

 private:
  DDPMOptions o_;
  Buffer kept_;   ///< [steps]: the share of the picture's variance that is left
  Buffer waves_;  ///< [steps, 4 width]: sines and cosines of the step
  nn::Embedding label_;
  nn::Linear time1_, time2_;
  nn::Conv2d first_, last_;
  Block down1_, down2_, down3_, middle_, up2_, up1_;
  nn::GroupNorm norm_;
};

}  // namespace tandem::models
