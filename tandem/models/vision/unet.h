// SPDX-License-Identifier: Apache-2.0
// U-Net for segmentation (Ronneberger et al. 2015), padded convolutions with batch norm, with the
// keys of the widely used PyTorch version (milesial/Pytorch-UNet).
#pragma once

#include "tandem/nn/nn.h"

namespace tandem::models {

struct UNetOptions {
  int64_t n_channels = 3;
  int64_t n_classes = 2;
  bool bilinear = false;
  int64_t base = 64;

  /// All but channels and classes, which the data says.
  template <class V>
  void fields(V& v) {
    v("bilinear", bilinear, {.doc = "resize instead of transposed convolutions"});
    v("base", base, {.doc = "channels of the first stage; even", .at_least = 2});
  }
};

/// Two 3x3 convolutions, each with norm and ReLU: x [n, in, h, w] -> [n, out, h, w].
class TD_API DoubleConv : public nn::Module {
 public:
  DoubleConv(int64_t in, int64_t out, int64_t middle);
  Tensor forward(Tensor x);
  nn::Sequential double_conv;
};

/// Half the size, then DoubleConv.
class TD_API Down : public nn::Module {
 public:
  Down(int64_t in, int64_t out);
  Tensor forward(Tensor x);
  nn::Sequential maxpool_conv;
};

/// Twice the size, concatenated with the features of the way down, then DoubleConv.
class TD_API Up : public nn::Module {
 public:
  Up(int64_t in, int64_t out, bool bilinear);
  Tensor forward(Tensor x, Tensor beside);
  Tensor operator()(Tensor x, Tensor beside, SourceLocation loc = SourceLocation::here());
  nn::AnyModule up;
  DoubleConv conv;
};

/// The 1x1 convolution at the end.
class TD_API OutConv : public nn::Module {
 public:
  OutConv(int64_t in, int64_t out);
  Tensor forward(Tensor x);
  nn::Conv2d conv;
};

/// x [n, n_channels, h, w], h and w at least 16 -> logits [n, n_classes, h, w].
class TD_API UNet : public nn::Module {
 public:
  /// Throws Value for an odd `base`.
  explicit UNet(UNetOptions options = {});
  Tensor forward(Tensor x);
  DoubleConv inc;
  Down down1, down2, down3, down4;
  Up up1, up2, up3, up4;
  OutConv outc;
  UNetOptions options;
};

TD_API UNet unet(UNetOptions options = {});

}  // namespace tandem::models
