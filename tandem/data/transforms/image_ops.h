// SPDX-License-Identifier: Apache-2.0
// Functions on one image, u8 (0..255) or f32 (0..1) [c, h, w], with the names, arguments and
// results of torchvision.transforms.v2.functional. The transforms call them; none is random.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem::data {

enum class Interpolation : uint8_t { nearest, nearest_exact, bilinear, bicubic };
enum class PaddingMode : uint8_t { constant, edge, reflect, symmetric };

/// Value per channel (or one for all) for places without image pixels, in the image's own range.
using Fill = std::vector<double>;

struct ResizeArgs {
  Interpolation interpolation = Interpolation::bilinear;
  bool antialias = true;
};

// Geometry. Sizes are [height, width], points (x, y) in pixels. All throw Shape for tensors that
// are not images, DType unless u8 or f32, Value for arguments out of range. Bilinear and bicubic
// with antialias match Pillow; for u8 images bit for bit.
TD_API Tensor resize_image(const Tensor& image, int64_t height, int64_t width,
                           ResizeArgs args = {});
/// 0 outside the image.
TD_API Tensor crop_image(const Tensor& image, int64_t top, int64_t left, int64_t height,
                         int64_t width);
TD_API Tensor center_crop_image(const Tensor& image, int64_t height, int64_t width);
TD_API Tensor horizontal_flip_image(const Tensor& image);
TD_API Tensor vertical_flip_image(const Tensor& image);
/// padding: {all}, {left and right, top and bottom} or {left, top, right, bottom}.
TD_API Tensor pad_image(const Tensor& image, const std::vector<int64_t>& padding,
                        const Fill& fill = {0}, PaddingMode mode = PaddingMode::constant);

/// Rotation by `angle` degrees clockwise, then translation in pixels, scale, and shear in degrees,
/// about `center` (default: the middle).
struct AffineArgs {
  double angle = 0;
  std::array<double, 2> translate = {0, 0};
  double scale = 1;
  std::array<double, 2> shear = {0, 0};
  std::optional<std::array<double, 2>> center = {};
};
TD_API Tensor affine_image(const Tensor& image, const AffineArgs& args,
                           Interpolation interpolation = Interpolation::nearest,
                           const Fill& fill = {});
/// Rotate by `angle` degrees counter-clockwise; with `expand` the result contains the whole image.
TD_API Tensor rotate_image(const Tensor& image, double angle,
                           Interpolation interpolation = Interpolation::nearest,
                           bool expand = false, std::optional<std::array<double, 2>> center = {},
                           const Fill& fill = {});
using Corners = std::array<std::array<double, 2>, 4>;
/// The map that takes `startpoints` to `endpoints` (top left, top right, bottom right, bottom
/// left).
TD_API Tensor perspective_image(const Tensor& image, const Corners& startpoints,
                                const Corners& endpoints,
                                Interpolation interpolation = Interpolation::bilinear,
                                const Fill& fill = {});
/// Boxes f32 [n, 4] (x1, y1, x2, y2) under the same maps, clipped to an image of that size.
TD_API Tensor affine_boxes(const Tensor& boxes, const AffineArgs& args, int64_t height,
                           int64_t width);
TD_API Tensor perspective_boxes(const Tensor& boxes, const Corners& startpoints,
                                const Corners& endpoints, int64_t height, int64_t width);
TD_API Tensor clamp_boxes(const Tensor& boxes, int64_t height, int64_t width);
/// Moves each pixel by displacement f32 [1, h, w, 2] = (x, y), in units where the image's width and
/// height are 2. Throws Shape for a displacement of another size.
TD_API Tensor elastic_image(const Tensor& image, const Tensor& displacement,
                            Interpolation interpolation = Interpolation::bilinear,
                            const Fill& fill = {});
/// Approximate: corners move by minus the displacement there, as if it were the inverse map.
TD_API Tensor elastic_boxes(const Tensor& boxes, const Tensor& displacement);
/// The four numbers of a box: corners, first corner and size, or centre and size.
enum class BoundingBoxFormat : uint8_t { xyxy, xywh, cxcywh };
/// Boxes f32 [n, 4].
TD_API Tensor convert_bounding_box_format(const Tensor& boxes, BoundingBoxFormat old_format,
                                          BoundingBoxFormat new_format);

// Colour
TD_API Tensor adjust_brightness_image(const Tensor& image, double brightness_factor);
TD_API Tensor adjust_contrast_image(const Tensor& image, double contrast_factor);
TD_API Tensor adjust_saturation_image(const Tensor& image, double saturation_factor);
/// hue_factor in -0.5 .. 0.5.
TD_API Tensor adjust_hue_image(const Tensor& image, double hue_factor);
TD_API Tensor adjust_sharpness_image(const Tensor& image, double sharpness_factor);
TD_API Tensor autocontrast_image(const Tensor& image);
TD_API Tensor equalize_image(const Tensor& image);
TD_API Tensor invert_image(const Tensor& image);
TD_API Tensor posterize_image(const Tensor& image, int64_t bits);
TD_API Tensor solarize_image(const Tensor& image, double threshold);
TD_API Tensor rgb_to_grayscale_image(const Tensor& image, int64_t num_output_channels = 1);
/// kernel_size {width, height}, odd; sigma {x, y}, by default 0.15 * kernel_size + 0.35.
TD_API Tensor gaussian_blur_image(const Tensor& image, std::array<int64_t, 2> kernel_size,
                                  std::optional<std::array<double, 2>> sigma = {});

// Values
// (image - mean) / std per channel of an f32 image.
TD_API Tensor normalize_image(const Tensor& image, const std::vector<double>& mean,
                              const std::vector<double>& std);
/// Convert between u8 and f32; with `scale` between 0..255 and 0..1.
TD_API Tensor to_dtype_image(const Tensor& image, DType dtype, bool scale = false);
/// Set a rectangle to `v`, one value per channel (or one for all).
TD_API Tensor erase_image(const Tensor& image, int64_t i, int64_t j, int64_t h, int64_t w,
                          const Fill& v);

}  // namespace tandem::data
