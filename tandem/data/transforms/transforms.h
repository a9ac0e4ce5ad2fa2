// SPDX-License-Identifier: Apache-2.0
// Transforms with the names, arguments and defaults of torchvision.transforms.v2. One draw moves an
// image together with its boxes and mask. In a loader or pipeline the draws are a function of
// (seed, epoch, sample); elsewhere they come from the default generator.
#pragma once

#include <functional>
#include <memory>

#include "tandem/base/philox.h"
#include "tandem/data/sets/datasets.h"
#include "tandem/data/transforms/transform_options.h"

namespace tandem::data {

/// Data that is transformed together; undefined members are ignored.
struct Vision {
  Tensor image;   ///< u8 or f32 [c, h, w]
  Tensor boxes;   ///< f32 [n, 4]: x1, y1, x2, y2 in pixels
  Tensor labels;  ///< [n], of the boxes
  Tensor mask;    ///< u8 [k, h, w]: always resized and warped with nearest
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

// ---- combination
TD_API Transform Compose(std::vector<Transform> transforms);
TD_API Transform RandomApply(std::vector<Transform> transforms, double p = 0.5);
/// One of them, with equal or given probabilities.
TD_API Transform RandomChoice(std::vector<Transform> transforms, std::vector<double> p = {});
TD_API Transform RandomOrder(std::vector<Transform> transforms);
TD_API Transform Lambda(std::function<Tensor(const Tensor&)> fn);

// ---- geometry
/// One size: of the shorter side.
TD_API Transform Resize(Sizes size, ResizeOptions options = {});
/// As large as fits target_size, times a scale from the range. torchvision compares the image's
/// width with the first number of target_size and its height with the second.
TD_API Transform ScaleJitter(std::array<int64_t, 2> target_size, Range scale_range = {0.1, 2.0},
                             ResizeArgs args = {});
/// Sets the shorter side to one of min_size, the longer to at most max_size (0: any).
TD_API Transform RandomShortestSize(Sizes min_size, int64_t max_size = 0, ResizeArgs args = {});
/// Sets the shorter side to min_size .. max_size - 1.
TD_API Transform RandomResize(int64_t min_size, int64_t max_size, ResizeArgs args = {});
TD_API Transform CenterCrop(Sizes size);
TD_API Transform RandomCrop(Sizes size, RandomCropOptions options = {});
TD_API Transform RandomResizedCrop(Sizes size, RandomResizedCropOptions options = {});
/// SSD's crop (Liu et al.): holds the middle of a box, and overlaps one such box by the drawn IoU.
/// Boxes whose middle is outside become zeros: put SanitizeBoundingBoxes after it. Throws Shape
/// without boxes.
TD_API Transform RandomIoUCrop(RandomIoUCropOptions options = {});
/// Five images u8 or f32 [5, c, h, w]: the corners (top left, top right, bottom left, bottom right)
/// and the centre of `image` [c, H, W]. Put single-image transforms before it. Throws Value when
/// the size does not fit.
TD_API Tensor FiveCrop(const Tensor& image, Sizes size);
/// [10, c, h, w]: these five, then five of the flipped image.
TD_API Tensor TenCrop(const Tensor& image, Sizes size, bool vertical_flip = false);
TD_API Transform RandomHorizontalFlip(double p = 0.5);
TD_API Transform RandomVerticalFlip(double p = 0.5);
TD_API Transform Pad(Sizes padding, Fill fill = {0},
                     PaddingMode padding_mode = PaddingMode::constant);
/// SSD's zoom: a canvas larger by a factor from side_range, with the image at a random place on it.
TD_API Transform RandomZoomOut(Fill fill = {0}, Range side_range = {1.0, 4.0}, double p = 0.5);
/// Degrees from a range.
TD_API Transform RandomRotation(Range degrees, RandomRotationOptions options = {});
TD_API Transform RandomAffine(Range degrees, RandomAffineOptions options = {});
TD_API Transform RandomPerspective(RandomPerspectiveOptions options = {});
/// Pixels move by Gaussian-blurred uniform noise (elastic_image, elastic_boxes).
TD_API Transform ElasticTransform(ElasticTransformOptions options = {});

// ---- colour
TD_API Transform ColorJitter(ColorJitterOptions options = {});
/// SSD's colours: brightness, contrast (here or after hue), saturation, hue, order of channels.
TD_API Transform RandomPhotometricDistort(RandomPhotometricDistortOptions options = {});
/// Repeats a single channel three times; other images are unchanged.
TD_API Transform RGB();
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
/// Adds a normal draw to each value; mean and sigma are fractions of the range (for u8: 255).
/// Without `clip`, f32 leaves 0..1 and u8 wraps around.
TD_API Transform GaussianNoise(double mean = 0.0, double sigma = 0.1, bool clip = true);
/// The image as a row of d = c * h * w values, minus the mean [d], times the matrix [d, d], as f32
/// [c, h, w]: whitening. Throws Shape, DType unless both are f32.
TD_API Transform LinearTransformation(Tensor transformation_matrix, Tensor mean_vector);
TD_API Transform RandomErasing(RandomErasingOptions options = {});

// ---- boxes
// Remove boxes smaller than min_size on a side or min_area (with their labels).
TD_API Transform SanitizeBoundingBoxes(double min_size = 1.0, double min_area = 1.0);
TD_API Transform ClampBoundingBoxes();
/// The boxes of a Vision are xyxy: convert from other formats before, or to them after, all other
/// transforms.
TD_API Transform ConvertBoundingBoxFormat(BoundingBoxFormat format,
                                          BoundingBoxFormat old_format = BoundingBoxFormat::xyxy);

// ---- video
// num_samples evenly spaced frames of [..., t, c, h, w], any dtype; frames repeat when t is
// smaller.
TD_API Tensor UniformTemporalSubsample(const Tensor& video, int64_t num_samples);

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
/// The image mixed with mixture_width chains of operations (Hendrycks et al.). Throws Unsupported
/// with boxes or a mask: their position would be ambiguous.
TD_API Transform AugMix(AugMixOptions options = {});

// ---- whole batches: x [n, c, h, w], y integers [n] -> x, y f32 [n, num_classes]
// Mixes x with its neighbour in the batch, with a weight from Beta(alpha, alpha).
TD_API Example MixUp(const Example& batch, int64_t num_classes, double alpha = 1.0);
/// Pastes a rectangle of the neighbour into x.
TD_API Example CutMix(const Example& batch, int64_t num_classes, double alpha = 1.0);

// ---- four images (MosaicDataset: from a dataset)
struct MosaicOptions {
  /// Where the four meet: fractions of size, from the canvas's upper left.
  Range center_ratio_range = {0.5, 1.5};
  Fill fill = {};  ///< where no image lies; empty: gray, 114 of 255
};
/// Four images (top left, top right, bottom left, bottom right) on a canvas of twice `size`: each
/// is resized to fit within `size` {h, w} and placed with a corner on a common random point; what
/// leaves the canvas is cropped. Boxes with their labels and masks move along, and boxes smaller
/// than a pixel are dropped. RandomCrop(size), RandomAffine or Resize may follow. Draws come from
/// this thread's generator. Throws Value unless there are four images; Shape, DType when they
/// differ in channels, dtype, or in which members they have.
TD_API Vision Mosaic(const std::vector<Vision>& images, Sizes size, MosaicOptions options = {});

namespace detail {
/// One named operation of the policies ("ShearX", "Rotate", "Color" ...) at a signed magnitude.
TD_API void augment(Vision& v, const std::string& op, double magnitude, Interpolation mode,
                    const Fill& fill);
/// The size [height, width] that Resize gives.
TD_API std::array<int64_t, 2> resized(int64_t h, int64_t w, const Sizes& size, int64_t max_size);
// f applied to the image and, with nearest, to the mask.
void both(Vision& v, const std::function<Tensor(const Tensor&, bool mask)>& f);
void crop_all(Vision& v, int64_t top, int64_t left, int64_t h, int64_t w);
void resize_all(Vision& v, int64_t h, int64_t w, ResizeArgs args);
void affine_all(Vision& v, const AffineArgs& a, Interpolation mode, const Fill& fill);
/// A number of [low, high).
TD_API double between(PhiloxStream& random, double low, double high);
}  // namespace detail

}  // namespace tandem::data
