// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/unet.h"

#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

nn::AnyModule grow(int64_t in, bool bilinear) {
  if (bilinear)
    return nn::Upsample({.scale_factor = 2.0, .mode = "bilinear", .align_corners = true});
  return nn::ConvTranspose2d(in, in / 2, 2, {.stride = {2}});
}

int64_t checked(int64_t base) {
  TD_CHECK(base > 0 && base % 2 == 0, Value, "UNet expects an even number of channels, got {}",
           base);
  return base;
}

}  // namespace

DoubleConv::DoubleConv(int64_t in, int64_t out, int64_t middle)
    : double_conv(nn::Conv2d(in, middle, 3, {.padding = {1}, .bias = false}),
                  nn::BatchNorm2d(middle), nn::ReLU(),
                  nn::Conv2d(middle, out, 3, {.padding = {1}, .bias = false}), nn::BatchNorm2d(out),
                  nn::ReLU()) {
  TD_REGISTER(double_conv);
}
Tensor DoubleConv::forward(Tensor x) { return double_conv(std::move(x)); }

Down::Down(int64_t in, int64_t out) : maxpool_conv(nn::MaxPool2d(2), DoubleConv(in, out, out)) {
  TD_REGISTER(maxpool_conv);
}
Tensor Down::forward(Tensor x) { return maxpool_conv(std::move(x)); }

Up::Up(int64_t in, int64_t out, bool bilinear)
    : up(grow(in, bilinear)), conv(in, out, bilinear ? in / 2 : out) {
  TD_REGISTER(up, conv);
}
Tensor Up::forward(Tensor x, Tensor beside) {
  x = up(std::move(x));
  // Where a size was odd on the way down, a row or column is missing.
  const Dim dy = beside.shape(2) - x.shape(2), dx = beside.shape(3) - x.shape(3);
  if (dy != Dim(0) || dx != Dim(0)) {
    const Dim top = floordiv(dy, 2), left = floordiv(dx, 2);
    x = pad(std::move(x), {left, dx - left, top, dy - top});
  }
  return conv(cat({beside, x}, 1));
}
Tensor Up::operator()(Tensor x, Tensor beside, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(beside)); });
}

OutConv::OutConv(int64_t in, int64_t out) : conv(in, out, 1) { TD_REGISTER(conv); }
Tensor OutConv::forward(Tensor x) { return conv(std::move(x)); }

UNet::UNet(UNetOptions o)
    : inc(o.n_channels, checked(o.base), o.base),
      down1(o.base, 2 * o.base),
      down2(2 * o.base, 4 * o.base),
      down3(4 * o.base, 8 * o.base),
      down4(8 * o.base, 16 * o.base / (o.bilinear ? 2 : 1)),
      up1(16 * o.base, 8 * o.base / (o.bilinear ? 2 : 1), o.bilinear),
      up2(8 * o.base, 4 * o.base / (o.bilinear ? 2 : 1), o.bilinear),
      up3(4 * o.base, 2 * o.base / (o.bilinear ? 2 : 1), o.bilinear),
      up4(2 * o.base, o.base, o.bilinear),
      outc(o.base, o.n_classes),
      options(o) {
  TD_REGISTER(inc, down1, down2, down3, down4, up1, up2, up3, up4, outc);
}
Tensor UNet::forward(Tensor x) {
  const Tensor x1 = inc(std::move(x)), x2 = down1(x1), x3 = down2(x2), x4 = down3(x3);
  Tensor y = up1(down4(x4), x4);
  y = up2(std::move(y), x3);
  y = up3(std::move(y), x2);
  return outc(up4(std::move(y), x1));
}

UNet unet(UNetOptions o) { return UNet(o); }

}  // namespace tandem::models
