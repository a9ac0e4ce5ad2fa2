// SPDX-License-Identifier: Apache-2.0
// Transforms with the names, arguments and defaults of torchvision.transforms.v2. One draw moves a
// picture with its boxes and mask. In a loader or pipeline the draws are a function of (seed,
// epoch, sample); elsewhere they come from the default generator.
#pragma once

#include <functional>
#include <memory>

#include "tandem/base/philox.h"
#include "tandem/data/datasets.h"
#include "tandem/data/image_ops.h"

namespace tandem::data {

/// What is transformed together; undefined members are left alone.
struct Vision {
  Tensor image;   ///< u8 or f32 [c, h, w]
  Tensor boxes;   ///< f32 [n, 4]: x1, y1, x2, y2 in pixels
  Tensor labels;  ///< [n], of the boxes
  Tensor mask;    ///< u8 [k, h, w]: always resized and warped by nearest
};

class TD_API Transform {
 public:
  using Step = std::function<void(Vision&, PhiloxStream&)>;
  Transform(std::string name, Step step);
  /// Takes one offset of this thread's generator. Throws what its functions throw.
  Vision operator()(Vision v) const;
  Tensor operator()(const Tensor& image) const;
  /// The same with draws from `random`.
  void apply(Vision& v, PhiloxStream& random) const;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::shared_ptr<const Step> step_;
};
using Range = std::array<double, 2>;
using Sizes = std::vector<int64_t>;  ///< {both} or {height, width}

// ---- how many and which
TD_API Transform Compose(std::vector<Transform> transforms);
TD_API Transform RandomApply(std::vector<Transform> transforms, double p = 0.5);
/// One of them, with equal or given probabilities.
TD_API Transform RandomChoice(std::vector<Transform> transforms, std::vector<double> p = {});
TD_API Transform RandomOrder(std::vector<Transform> transforms);
TD_API Transform Lambda(std::function<Tensor(const Tensor&)> fn);

// ---- geometry
struct ResizeOptions {
  Interpolation interpolation = Interpolation::bilinear;
  int64_t max_size = 0;  ///< of the longer side, with one size; 0: none
  bool antialias = true;
};
/// One size: of the shorter side.
TD_API Transform Resize(Sizes size, ResizeOptions options = {});
TD_API Transform CenterCrop(Sizes size);
struct RandomCropOptions {
  Sizes padding = {};
  bool pad_if_needed = false;
  Fill fill = {0};
  PaddingMode padding_mode = PaddingMode::constant;
};
TD_API Transform RandomCrop(Sizes size, RandomCropOptions options = {});
struct RandomResizedCropOptions {
  Range scale = {0.08, 1.0}, ratio = {3.0 / 4.0, 4.0 / 3.0};
  Interpolation interpolation = Interpolation::bilinear;
  bool antialias = true;
};
TD_API Transform RandomResizedCrop(Sizes size, RandomResizedCropOptions options = {});
TD_API Transform RandomHorizontalFlip(double p = 0.5);
TD_API Transform RandomVerticalFlip(double p = 0.5);
TD_API Transform Pad(Sizes padding, Fill fill = {0},
                     PaddingMode padding_mode = PaddingMode::constant);
struct RandomRotationOptions {
  Interpolation interpolation = Interpolation::nearest;
  bool expand = false;
  std::optional<std::array<double, 2>> center = {};
  Fill fill = {0};
};
/// Degrees from a range.
TD_API Transform RandomRotation(Range degrees, RandomRotationOptions options = {});
struct RandomAffineOptions {
  std::optional<Range> translate = {};  ///< most of width and height
  std::optional<Range> scale = {};
  std::vector<double> shear = {};  ///< {x from, x to} or {x from, x to, y from, y to} in degrees
  Interpolation interpolation = Interpolation::nearest;
  Fill fill = {0};
  std::optional<std::array<double, 2>> center = {};
};
TD_API Transform RandomAffine(Range degrees, RandomAffineOptions options = {});
struct RandomPerspectiveOptions {
  double distortion_scale = 0.5, p = 0.5;
  Interpolation interpolation = Interpolation::bilinear;
  Fill fill = {0};
};
TD_API Transform RandomPerspective(RandomPerspectiveOptions options = {});

// ---- colour
struct ColorJitterOptions {
  /// Ranges of factors (of hue: of shifts); {1, 1} (hue {0, 0}) changes nothing. torchvision's
  /// number b stands for {1 - b, 1 + b}.
  Range brightness = {1, 1}, contrast = {1, 1}, saturation = {1, 1}, hue = {0, 0};
};
TD_API Transform ColorJitter(ColorJitterOptions options = {});
TD_API Transform Grayscale(int64_t num_output_channels = 1);
TD_API Transform RandomGrayscale(double p = 0.1);
TD_API Transform GaussianBlur(std::array<int64_t, 2> kernel_size, Range sigma = {0.1, 2.0});
TD_API Transform RandomInvert(double p = 0.5);
TD_API Transform RandomPosterize(int64_t bits, double p = 0.5);
TD_API Transform RandomSolarize(double threshold, double p = 0.5);
TD_API Transform RandomAdjustSharpness(double sharpness_factor, double p = 0.5);
TD_API Transform RandomAutocontrast(double p = 0.5);
TD_API Transform RandomEqualize(double p = 0.5);
TD_API Transform RandomChannelPermutation();

// ---- values
TD_API Transform Normalize(std::vector<double> mean, std::vector<double> std);
/// With `scale` u8 0..255 becomes f32 0..1.
TD_API Transform ToDtype(DType dtype, bool scale = false);
TD_API Transform ConvertImageDtype(DType dtype = DType::f32);
struct RandomErasingOptions {
  double p = 0.5;
  Range scale = {0.02, 0.33}, ratio = {0.3, 3.3};
  Fill value = {0};
};
TD_API Transform RandomErasing(RandomErasingOptions options = {});

// ---- boxes
/// Leave out boxes smaller than min_size on a side or min_area (with their labels).
TD_API Transform SanitizeBoundingBoxes(double min_size = 1.0, double min_area = 1.0);
TD_API Transform ClampBoundingBoxes();

// ---- policies
enum class AutoAugmentPolicy : uint8_t { imagenet, cifar10, svhn };
TD_API Transform AutoAugment(AutoAugmentPolicy policy = AutoAugmentPolicy::imagenet,
                             Interpolation interpolation = Interpolation::nearest, Fill fill = {});
TD_API Transform RandAugment(int64_t num_ops = 2, int64_t magnitude = 9,
                             int64_t num_magnitude_bins = 31,
                             Interpolation interpolation = Interpolation::nearest, Fill fill = {});
TD_API Transform TrivialAugmentWide(int64_t num_magnitude_bins = 31,
                                    Interpolation interpolation = Interpolation::nearest,
                                    Fill fill = {});

// ---- whole batches: x [n, c, h, w], y integers [n] -> x, y f32 [n, num_classes]
/// x is mixed with its neighbour in the batch, by a share from Beta(alpha, alpha).
TD_API Example MixUp(const Example& batch, int64_t num_classes, double alpha = 1.0);
/// A rectangle of the neighbour is pasted into x.
TD_API Example CutMix(const Example& batch, int64_t num_classes, double alpha = 1.0);

namespace detail {
/// One named operation of the policies ("ShearX", "Rotate", "Color" ...) at a signed magnitude.
TD_API void augment(Vision& v, const std::string& op, double magnitude, Interpolation mode,
                    const Fill& fill);
/// The size [height, width] that Resize gives.
TD_API std::array<int64_t, 2> resized(int64_t h, int64_t w, const Sizes& size, int64_t max_size);
// f applied to image and, by nearest, mask.
void both(Vision& v, const std::function<Tensor(const Tensor&, bool mask)>& f);
void crop_all(Vision& v, int64_t top, int64_t left, int64_t h, int64_t w);
void resize_all(Vision& v, int64_t h, int64_t w, ResizeArgs args);
void affine_all(Vision& v, const AffineArgs& a, Interpolation mode, const Fill& fill);
double between(PhiloxStream& random, double low, double high);
}  // namespace detail

}  // namespace tandem::data
