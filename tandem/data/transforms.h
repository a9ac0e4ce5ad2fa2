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
/// As large as fits target_size, times a scale from the range. torchvision holds the picture's
/// width against the first number of target_size and its height against the second.
TD_API Transform ScaleJitter(std::array<int64_t, 2> target_size, Range scale_range = {0.1, 2.0},
                             ResizeArgs args = {});
/// The shorter side gets one of min_size, the longer at most max_size (0: any).
TD_API Transform RandomShortestSize(Sizes min_size, int64_t max_size = 0, ResizeArgs args = {});
/// The shorter side gets min_size .. max_size - 1.
TD_API Transform RandomResize(int64_t min_size, int64_t max_size, ResizeArgs args = {});
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
struct RandomIoUCropOptions {
  double min_scale = 0.3, max_scale = 1.0;
  double min_aspect_ratio = 0.5, max_aspect_ratio = 2.0;
  /// Overlaps of which one is drawn; 1 stands for the whole picture.
  std::vector<double> sampler_options = {0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0};
  int64_t trials = 40;  ///< before another overlap is drawn (100 times; then nothing is cut)
};
/// SSD's crop (Liu et al.): holds the middle of a box, and overlaps one such box by the drawn IoU.
/// Boxes whose middle is outside become zeros: put SanitizeBoundingBoxes after it. Throws Shape
/// without boxes.
TD_API Transform RandomIoUCrop(RandomIoUCropOptions options = {});
/// Five pictures u8 or f32 [5, c, h, w]: the corners (top left, top right, bottom left, bottom
/// right) and the middle of `image` [c, H, W]. Transforms of one picture go before it. Throws Value
/// when the size does not fit.
TD_API Tensor FiveCrop(const Tensor& image, Sizes size);
/// [10, c, h, w]: those five, then five of the flipped picture.
TD_API Tensor TenCrop(const Tensor& image, Sizes size, bool vertical_flip = false);
TD_API Transform RandomHorizontalFlip(double p = 0.5);
TD_API Transform RandomVerticalFlip(double p = 0.5);
TD_API Transform Pad(Sizes padding, Fill fill = {0},
                     PaddingMode padding_mode = PaddingMode::constant);
/// SSD's zoom: a canvas larger by a factor from side_range, the picture somewhere on it.
TD_API Transform RandomZoomOut(Fill fill = {0}, Range side_range = {1.0, 4.0}, double p = 0.5);
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
struct ElasticTransformOptions {
  /// Of x and y: how far pixels move (times the blurred noise, in half pixels), and the noise's
  /// blur in pixels, 0 for none.
  std::array<double, 2> alpha = {50, 50}, sigma = {5, 5};
  Interpolation interpolation = Interpolation::bilinear;
  Fill fill = {0};
};
/// Pixels move by Gaussian-blurred uniform noise (elastic_image, elastic_boxes).
TD_API Transform ElasticTransform(ElasticTransformOptions options = {});

// ---- colour
struct ColorJitterOptions {
  /// Ranges of factors (of hue: of shifts); {1, 1} (hue {0, 0}) changes nothing. torchvision's
  /// number b stands for {1 - b, 1 + b}.
  Range brightness = {1, 1}, contrast = {1, 1}, saturation = {1, 1}, hue = {0, 0};
};
TD_API Transform ColorJitter(ColorJitterOptions options = {});
struct RandomPhotometricDistortOptions {
  Range brightness = {0.875, 1.125}, contrast = {0.5, 1.5}, saturation = {0.5, 1.5},
        hue = {-0.05, 0.05};
  double p = 0.5;  ///< of each
};
/// SSD's colours: brightness, contrast (here or after hue), saturation, hue, order of channels.
TD_API Transform RandomPhotometricDistort(RandomPhotometricDistortOptions options = {});
/// One channel becomes three equal ones; more are left alone.
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
/// Adds a normal draw to each value; mean and sigma are shares of the range (of u8: 255). Without
/// `clip` f32 leaves 0..1 and u8 wraps around.
TD_API Transform GaussianNoise(double mean = 0.0, double sigma = 0.1, bool clip = true);
/// The picture as a row of d = c * h * w values, minus the mean [d], times the matrix [d, d], as
/// f32 [c, h, w]: whitening. Throws Shape, DType unless both are f32.
TD_API Transform LinearTransformation(Tensor transformation_matrix, Tensor mean_vector);
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
/// The boxes of a Vision are xyxy: other formats come in before, or go out after, all other
/// transforms.
TD_API Transform ConvertBoundingBoxFormat(BoundingBoxFormat format,
                                          BoundingBoxFormat old_format = BoundingBoxFormat::xyxy);

// ---- video
/// num_samples evenly spaced frames of [..., t, c, h, w], any dtype; frames repeat when t is
/// smaller.
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
struct AugMixOptions {
  int64_t severity = 3;  ///< 1 .. 10
  int64_t mixture_width = 3;
  int64_t chain_depth = -1;  ///< operations in a chain; not positive: 1 to 3
  double alpha = 1.0;
  bool all_ops = true;  ///< with Brightness, Color, Contrast and Sharpness
  Interpolation interpolation = Interpolation::bilinear;
  Fill fill = {};
};
/// The picture mixed with mixture_width chains of operations (Hendrycks et al.). Throws Unsupported
/// with boxes or a mask: they would have several places.
TD_API Transform AugMix(AugMixOptions options = {});

// ---- whole batches: x [n, c, h, w], y integers [n] -> x, y f32 [n, num_classes]
/// x is mixed with its neighbour in the batch, by a share from Beta(alpha, alpha).
TD_API Example MixUp(const Example& batch, int64_t num_classes, double alpha = 1.0);
/// A rectangle of the neighbour is pasted into x.
TD_API Example CutMix(const Example& batch, int64_t num_classes, double alpha = 1.0);

// ---- four pictures (MosaicDataset: of a dataset)
struct MosaicOptions {
  /// Where the four meet: shares of size, from the canvas's upper left.
  Range center_ratio_range = {0.5, 1.5};
  Fill fill = {};  ///< where no picture is; empty: gray, 114 of 255
};
/// Four pictures (top left, top right, bottom left, bottom right) on a canvas of twice `size`:
/// each is resized until it touches `size` {h, w} from inside and put with a corner on a point
/// drawn for all; what leaves the canvas is cut. Boxes with their labels and masks move along, and
/// boxes of less than a pixel are left out. RandomCrop(size), RandomAffine or Resize may follow.
/// Draws come from this thread's generator. Throws Value unless there are four; Shape, DType when
/// they differ in channels, dtype, or in what they have.
TD_API Vision Mosaic(const std::vector<Vision>& pictures, Sizes size, MosaicOptions options = {});

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
