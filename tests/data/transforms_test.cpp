// SPDX-License-Identifier: Apache-2.0
// Transforms against torchvision v2's functions (a golden file; TANDEM_TRANSFORMS names another
// one) and Pillow's resizing, and the rules of drawing: repeatable, together with boxes and masks.
#include "tandem/data/transforms/transforms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "tandem/tandem.h"
#include "tests/data/images.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

Corners corners(const Tensor& t, bool moved) {
  const auto w = static_cast<double>(t.size(2)), h = static_cast<double>(t.size(1));
  if (moved) return {{{3, 2}, {w - 6, 1}, {w - 2, h - 5}, {4, h - 3}}};
  return {{{0, 0}, {w - 1, 0}, {w - 1, h - 1}, {0, h - 1}}};
}
Tensor one(const Transform& t, const Tensor& image) { return t(image); }
using I = Interpolation;
using Format = BoundingBoxFormat;

// As in make_golden_transforms.py.
Tensor waves(const Tensor& t) {
  std::vector<float> d;
  for (int64_t i = 0; i < t.size(1); ++i)
    for (int64_t j = 0; j < t.size(2); ++j) {
      const auto x = static_cast<double>(j), y = static_cast<double>(i);
      d.push_back(static_cast<float>(0.12 * std::sin(0.31 * x + 0.17 * y)));
      d.push_back(static_cast<float>(0.09 * std::cos(0.23 * x - 0.29 * y)));
    }
  return tensor(d, Shape(1, t.size(1), t.size(2), 2));
}
Tensor boxes(const Tensor& t) {
  const auto w = static_cast<float>(t.size(2)), h = static_cast<float>(t.size(1));
  return tensor({{3.0F, 4.0F, 20.5F, 17.25F},
                 {0.0F, 0.0F, w, h},
                 {w - 9.5F, 6.0F, w - 1, h - 2},
                 {7.0F, 9.0F, 7.5F, 9.5F}});
}
Tensor converted(const Tensor& t, Format from, Format to) {
  Vision v{t, boxes(t), {}, {}};
  return ConvertBoundingBoxFormat(to, from)(v).boxes;
}
Tensor piece(const Tensor& t, int64_t c, int64_t top, int64_t h, int64_t left, int64_t w) {
  return crop_image(narrow(t, 0, 0, c), top, left, h, w);
}
Transform whitening() {
  std::vector<float> m;
  for (int i = 0; i < 60; ++i)
    for (int j = 0; j < 60; ++j) m.push_back(static_cast<float>(0.1 * std::sin(0.7 * i + 1.3 * j)));
  return LinearTransformation(tensor(m, Shape(60, 60)), arange(60).to(DType::f32));
}

struct Row {
  const char* name;
  std::function<Tensor(const Tensor&)> f;
  double tolerance;   // of one value, in its own unit
  double misses = 0;  // share of values that may differ more: ties of nearest
};
// table: each transform that has golden data
const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"pil_bilinear", [](auto& t) { return resize_image(t, 24, 31); }, 1},
      {"pil_bicubic", [](auto& t) { return resize_image(t, 24, 31, {I::bicubic}); }, 1},
      {"resize_bilinear", [](auto& t) { return resize_image(t, 24, 31); }, 1},
      {"resize_up", [](auto& t) { return resize_image(t, 71, 90); }, 1},
      {"resize_bicubic", [](auto& t) { return resize_image(t, 24, 31, {I::bicubic}); }, 1},
      {"resize_plain",
       [](auto& t) {
         return resize_image(t, 24, 31, {I::bilinear, false});
       },
       1},
      {"resize_nearest", [](auto& t) { return resize_image(t, 24, 31, {I::nearest}); }, 0},
      {"resize_nearest_exact", [](auto& t) { return resize_image(t, 24, 31, {I::nearest_exact}); },
       0},
      {"resize_shorter", [](auto& t) { return one(Resize({20}), t); }, 1},
      {"center_crop",
       [](auto& t) {
         return one(CenterCrop({21, 30}), t);
       },
       0},
      {"center_crop_pad",
       [](auto& t) {
         return one(CenterCrop({400, 30}), t);
       },
       0},
      {"crop", [](auto& t) { return crop_image(t, -3, 5, 20, 25); }, 0},
      {"hflip", [](auto& t) { return one(RandomHorizontalFlip(1), t); }, 0},
      {"vflip", [](auto& t) { return one(RandomVerticalFlip(1), t); }, 0},
      {"pad",
       [](auto& t) {
         return one(Pad({3, 4, 5, 6}, {10, 20, 30}), t);
       },
       0},
      {"pad_reflect",
       [](auto& t) {
         return one(Pad({3, 4}, {0}, PaddingMode::reflect), t);
       },
       0},
      {"pad_symmetric",
       [](auto& t) {
         return one(Pad({3, 4}, {0}, PaddingMode::symmetric), t);
       },
       0},
      {"pad_edge", [](auto& t) { return one(Pad({2}, {0}, PaddingMode::edge), t); }, 0},
      {"rotate", [](auto& t) { return rotate_image(t, 33.5); }, 1, 2e-3},
      {"rotate_bilinear",
       [](auto& t) {
         return rotate_image(t, -21, I::bilinear, false, {}, {9, 8, 7});
       },
       1},
      {"rotate_expand", [](auto& t) { return rotate_image(t, 40, I::bilinear, true); }, 1},
      {"affine",
       [](auto& t) {
         return affine_image(t,
                             {.angle = 12.5, .translate = {3, -2}, .scale = 1.2, .shear = {4, -3}});
       },
       1, 2e-3},
      {"affine_bilinear",
       [](auto& t) {
         return affine_image(t, {.angle = -50, .translate = {0, 4}, .scale = 0.8, .shear = {7, 2}},
                             I::bilinear, {1, 2, 3});
       },
       1},
      {"affine_center",
       [](auto& t) {
         return affine_image(t, {.angle = 20, .center = std::array<double, 2>{5, 9}});
       },
       1, 2e-3},
      {"perspective",
       [](auto& t) { return perspective_image(t, corners(t, false), corners(t, true)); }, 1},
      {"brightness", [](auto& t) { return adjust_brightness_image(t, 1.37); }, 1},
      {"contrast", [](auto& t) { return adjust_contrast_image(t, 0.62); }, 1},
      {"saturation", [](auto& t) { return adjust_saturation_image(t, 1.9); }, 1},
      {"hue", [](auto& t) { return adjust_hue_image(t, 0.21); }, 1},
      {"hue_back", [](auto& t) { return adjust_hue_image(t, -0.4); }, 1},
      {"sharpness", [](auto& t) { return adjust_sharpness_image(t, 2.3); }, 1},
      {"autocontrast", [](auto& t) { return one(RandomAutocontrast(1), t); }, 1},
      {"equalize", [](auto& t) { return one(RandomEqualize(1), t); }, 0},
      {"invert", [](auto& t) { return one(RandomInvert(1), t); }, 0},
      {"posterize", [](auto& t) { return one(RandomPosterize(3, 1), t); }, 0},
      {"solarize", [](auto& t) { return one(RandomSolarize(100, 1), t); }, 0},
      {"grayscale", [](auto& t) { return one(Grayscale(3), t); }, 1},
      {"blur",
       [](auto& t) {
         return gaussian_blur_image(t, {5, 3}, std::array<double, 2>{1.3, 0.7});
       },
       1},
      {"erase",
       [](auto& t) {
         return erase_image(t, 4, 6, 10, 12, {7, 8, 9});
       },
       0},
      {"to_float", [](auto& t) { return one(ToDtype(DType::f32, true), t); }, 1e-7},
      {"normalize",
       [](auto& t) {
         return one(Compose({ToDtype(DType::f32, true),
                             Normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225})}),
                    t);
       },
       1e-6},
      {"elastic", [](auto& t) { return elastic_image(t, waves(t)); }, 1},
      {"elastic_fill",
       [](auto& t) {
         return elastic_image(t, waves(t), I::bilinear, {9, 8, 7});
       },
       1},
      {"elastic_nearest", [](auto& t) { return elastic_image(t, waves(t), I::nearest, {0}); }, 1,
       2e-3},
      {"elastic_boxes", [](auto& t) { return elastic_boxes(boxes(t), waves(t)); }, 1e-4},
      {"boxes_xywh", [](auto& t) { return converted(t, Format::xyxy, Format::xywh); }, 1e-5},
      {"boxes_cxcywh", [](auto& t) { return converted(t, Format::xyxy, Format::cxcywh); }, 1e-5},
      {"boxes_back", [](auto& t) { return converted(t, Format::cxcywh, Format::xyxy); }, 1e-5},
      {"scale_jitter",
       [](auto& t) {
         return one(ScaleJitter({30, 24}, {0.83, 0.83}), t);
       },
       1},
      {"shortest_size", [](auto& t) { return one(RandomShortestSize({20}, 26), t); }, 1},
      {"random_resize", [](auto& t) { return one(RandomResize(20, 21), t); }, 1},
      {"five_crop",
       [](auto& t) {
         return FiveCrop(t, {8, 11});
       },
       0},
      {"ten_crop", [](auto& t) { return TenCrop(t, {7}, true); }, 0},
      {"rgb", [](auto& t) { return one(RGB(), piece(t, 1, 0, 9, 0, t.size(2))); }, 0},
      {"noise_mean",
       [](auto& t) { return one(GaussianNoise(0.3, 0), piece(t, 3, 0, 9, 0, t.size(2))); }, 0},
      {"noise_unclipped",
       [](auto& t) { return one(GaussianNoise(-0.3, 0, false), piece(t, 3, 0, 9, 0, t.size(2))); },
       0},
      {"whitening", [](auto& t) { return one(whitening(), piece(t, 3, 2, 4, 3, 5)); }, 1e-3},
      {"subsample",
       [](auto& t) {
         return UniformTemporalSubsample(piece(t, 1, 0, 14, 0, 3).reshape({14, 1, 1, 3}), 5);
       },
       0},
      {"subsample_more",
       [](auto& t) {
         return UniformTemporalSubsample(piece(t, 1, 0, 3, 0, 3).reshape({3, 1, 1, 3}), 27);
       },
       0},
  };
  return all;
}

TEST(Transforms, EqualTorchvisions) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const char* other = std::getenv("TANDEM_TRANSFORMS");
  const StateDict golden =
      load(other ? std::string(other)
                 : std::string(root ? root : ".") + "/tests/data/transforms.safetensors");
  int64_t images = 0;
  for (; golden.contains(fmt::format("{}.image", images)); ++images) {
    const Tensor image = golden.at(fmt::format("{}.image", images));
    for (const Row& row : rows()) {
      SCOPED_TRACE(fmt::format("{}.{}", images, row.name));
      const Tensor want = golden.at(fmt::format("{}.{}", images, row.name));
      const Tensor got = row.f(image);
      ASSERT_EQ(got.shape(), want.shape());
      ASSERT_EQ(got.dtype(), want.dtype());
      const auto a = got.to_vector<float>(), b = want.to_vector<float>();
      size_t bad = 0;
      double worst = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        worst = std::max(worst, d);
        bad += d > row.tolerance;
      }
      EXPECT_LE(static_cast<double>(bad), row.misses * static_cast<double>(a.size()))
          << "worst " << worst;
    }
  }
  EXPECT_GE(images, 2);
}

// All random transforms, with a Vision that has everything.
const std::vector<Transform>& drawing() {
  static const std::vector<Transform> all = {
      RandomCrop({20, 30}),
      RandomCrop({50, 50}, {.padding = {4}, .pad_if_needed = true}),
      RandomResizedCrop({24}),
      RandomHorizontalFlip(),
      RandomVerticalFlip(),
      RandomRotation({-30, 30}),
      RandomRotation({-30, 30}, {.interpolation = I::bilinear, .expand = true}),
      RandomAffine({-10, 10},
                   {.translate = Range{0.1, 0.2}, .scale = Range{0.8, 1.2}, .shear = {-5, 5}}),
      RandomPerspective({.p = 1}),
      ColorJitter({{0.6, 1.4}, {0.6, 1.4}, {0.6, 1.4}, {-0.1, 0.1}}),
      RandomGrayscale(0.5),
      GaussianBlur({3, 3}),
      RandomInvert(),
      RandomChannelPermutation(),
      RandomErasing(),
      AutoAugment(),
      AutoAugment(AutoAugmentPolicy::cifar10),
      AutoAugment(AutoAugmentPolicy::svhn),
      RandAugment(),
      TrivialAugmentWide(),
      RandomApply({RandomInvert(1)}),
      RandomChoice({RandomInvert(1), Grayscale(3)}),
      RandomOrder({RandomInvert(1), RandomPosterize(2, 1)}),
      ElasticTransform({.sigma = {3, 3}}),
      ScaleJitter({40, 60}),
      RandomShortestSize({20, 24, 28, 32}),
      RandomResize(20, 40),
      RandomIoUCrop(),
      RandomZoomOut(),
      RandomPhotometricDistort(),
      GaussianNoise(),
  };
  return all;
}

// Decoders interleave the channels; functions that keep this layout give the bits of planes.
TEST(Transforms, PixelsWithTheirChannelsTogether) {
  manual_seed(3);
  const std::vector<std::array<int64_t, 3>> sizes = {{3, 37, 53}, {3, 1, 4},  {3, 2, 5}, {2, 9, 8},
                                                     {4, 17, 31}, {3, 64, 5}, {3, 5, 96}};
  const std::vector<std::array<int64_t, 2>> wanted = {{37, 20},  {11, 53}, {8, 9},
                                                      {90, 120}, {1, 1},   {3, 70}};
  for (const auto& [c, h, w] : sizes) {
    const Tensor planes = randint(256, {c, h, w}).to(DType::u8);
    const Tensor pixels = planes.permute({1, 2, 0}).contiguous().permute({2, 0, 1});
    const std::string what = planes.shape().to_string();
    ASSERT_FALSE(pixels.is_contiguous());
    EXPECT_TRUE(equal(pixels.contiguous(), planes)) << what;
    EXPECT_TRUE(equal(flip(pixels, {2}), flip(planes, {2}))) << what;
    for (const auto& [height, width] : wanted)
      for (const I mode : {I::bilinear, I::bicubic, I::nearest})
        for (const bool antialias : {true, false})
          EXPECT_TRUE(equal(resize_image(pixels, height, width, {mode, antialias}),
                            resize_image(planes, height, width, {mode, antialias})))
              << what << " to " << height << " x " << width << ' ' << static_cast<int>(mode)
              << antialias;
    EXPECT_TRUE(equal(crop_image(pixels, -2, 1, h + 3, 3), crop_image(planes, -2, 1, h + 3, 3)))
        << what;
    EXPECT_TRUE(equal(crop_image(pixels, h + 9, 0, 2, 2), zeros({c, 2, 2}, DType::u8))) << what;
    EXPECT_TRUE(equal(center_crop_image(pixels, 5, 40), center_crop_image(planes, 5, 40))) << what;
    EXPECT_TRUE(equal(horizontal_flip_image(pixels), horizontal_flip_image(planes))) << what;
    for (const bool scale : {true, false}) {
      const Tensor x = to_dtype_image(pixels, DType::f32, scale);
      EXPECT_TRUE(x.is_contiguous());
      EXPECT_TRUE(equal(x, to_dtype_image(planes, DType::f32, scale))) << what;
      EXPECT_TRUE(equal(x, planes.to(DType::f32) / (scale ? 255.0 : 1.0))) << what;
    }
  }
  // A batch, large enough for several threads.
  const Tensor batch = randint(256, {5, 3, 171, 253}).to(DType::u8);
  EXPECT_TRUE(
      equal(batch.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}).contiguous(), batch));
  const Tensor bytes = arange(256).to(DType::u8).reshape({1, 4, 64});
  EXPECT_TRUE(equal(to_dtype_image(bytes, DType::f32, true), bytes.to(DType::f32) / 255.0));
}

TEST(Transforms, NormalizeLeavesWhatOthersSee) {
  const Tensor x = rand({1, 6, 7}), before = x.clone();
  const Transform t = Normalize({0.25}, {0.5});
  EXPECT_TRUE(equal(one(t, x), (before - 0.25) / 0.5));
  EXPECT_TRUE(equal(x, before));
  const Tensor held = x.clone();
  EXPECT_TRUE(equal(one(Compose({ToDtype(DType::f32, true), t}), held), (before - 0.25) / 0.5));
  EXPECT_TRUE(equal(held, before));
}

TEST(Transforms, RandomGrayscaleKeepsTheChannels) {
  for (const int64_t channels : {1, 3}) {
    const Tensor image = ones({channels, 4, 5}, DType::u8) * 7;
    const Tensor gray = one(RandomGrayscale(1), image);
    EXPECT_EQ(gray.shape(), image.shape());
    EXPECT_EQ(gray.min().item<int>(), gray.max().item<int>()) << "of equal channels";
  }
}

TEST(Transforms, DrawsFollowTheGenerator) {
  for (const Transform& t : drawing()) {
    SCOPED_TRACE(t.name());
    int different = 0;
    std::vector<float> last;
    for (uint64_t sample = 0; sample < 24; ++sample) {
      const auto run = [&] {
        GeneratorGuard generator({sample, 5});
        return t(Vision{random_image(), tensor({{5.0F, 6.0F, 25.0F, 30.0F}}), tensor({1}), {}});
      };
      const Vision a = run(), b = run();
      ASSERT_EQ(a.image.to_vector<float>(), b.image.to_vector<float>());
      ASSERT_EQ(a.boxes.to_vector<float>(), b.boxes.to_vector<float>());
      different += a.image.to_vector<float>() != last;
      last = a.image.to_vector<float>();
    }
    EXPECT_GE(different, 4);
  }
}

// A filled rectangle, its mask and its box must still match after any geometric map.
TEST(Transforms, BoxesAndMasksMoveWithTheImage) {
  std::vector<uint8_t> pixels(3 * 40 * 60), mask(40 * 60);
  for (int64_t y = 10; y < 26; ++y)
    for (int64_t x = 15; x < 40; ++x) {
      mask[static_cast<size_t>(y * 60 + x)] = 1;
      for (int64_t k = 0; k < 3; ++k) pixels[static_cast<size_t>((k * 40 + y) * 60 + x)] = 255;
    }
  const std::vector<Transform> maps = {Resize({80, 90}),
                                       Resize({20}),
                                       CenterCrop({30, 40}),
                                       CenterCrop({50, 70}),
                                       RandomCrop({36, 50}),
                                       RandomResizedCrop({64}, {.scale = {0.6, 1}}),
                                       RandomHorizontalFlip(1),
                                       RandomVerticalFlip(1),
                                       Pad({3, 4, 5, 6}),
                                       RandomRotation({-30, 30}),
                                       RandomRotation({-30, 30}, {.expand = true}),
                                       RandomAffine({-20, 20}, {.translate = Range{0.1, 0.1},
                                                                .scale = Range{0.7, 1.3},
                                                                .shear = {-8, 8, -8, 8}}),
                                       RandomPerspective({.distortion_scale = 0.4, .p = 1}),
                                       ScaleJitter({60, 60}, {0.5, 1.5}),
                                       RandomShortestSize({30, 50}, 60),
                                       RandomResize(20, 60),
                                       RandomIoUCrop(),
                                       RandomZoomOut({0}, {1, 2}, 1)};
  for (const Transform& t : maps)
    for (uint64_t draw = 0; draw < 6; ++draw) {
      SCOPED_TRACE(fmt::format("{} {}", t.name(), draw));
      GeneratorGuard generator({draw, 0});
      const Vision v = t(Vision{tensor(pixels, Shape(3, 40, 60)),
                                tensor({{15.0F, 10.0F, 40.0F, 26.0F}}),
                                {},
                                tensor(mask, Shape(1, 40, 60))});
      const int64_t h = v.image.size(1), w = v.image.size(2);
      ASSERT_EQ(v.mask.shape(), Shape(1, h, w));
      const auto m = v.mask.to_vector<uint8_t>(), p = v.image.to_vector<uint8_t>();
      int64_t low_x = w, high_x = 0, low_y = h, high_y = 0, differ = 0;
      for (int64_t y = 0; y < h; ++y)
        for (int64_t x = 0; x < w; ++x) {
          const auto i = static_cast<size_t>(y * w + x);
          differ += (m[i] != 0) != (p[i] > 127);
          if (!m[i]) continue;
          low_x = std::min(low_x, x);
          high_x = std::max(high_x, x + 1);
          low_y = std::min(low_y, y);
          high_y = std::max(high_y, y + 1);
        }
      EXPECT_LE(differ, (h + w) * 2);  // borders that interpolate
      const auto b = v.boxes.to_vector<float>();
      EXPECT_NEAR(b[0], static_cast<float>(low_x), 1.6F);
      EXPECT_NEAR(b[1], static_cast<float>(low_y), 1.6F);
      EXPECT_NEAR(b[2], static_cast<float>(high_x), 1.6F);
      EXPECT_NEAR(b[3], static_cast<float>(high_y), 1.6F);
    }
}

TEST(Transforms, SanitizeLeavesOutWhatIsTooSmall) {
  Vision v{random_image(),
           tensor({{1.0F, 1.0F, 9.0F, 9.0F}, {3.0F, 3.0F, 3.5F, 9.0F}, {50.0F, 3.0F, 70.0F, 9.0F}}),
           tensor({4, 5, 6}),
           {}};
  v = SanitizeBoundingBoxes()(v);
  EXPECT_EQ(v.labels.to_vector<int64_t>(), std::vector<int64_t>{4});
  EXPECT_EQ(v.boxes.shape(), Shape(1, 4));
}

TEST(Transforms, MixUpAndCutMix) {
  GeneratorGuard generator({9, 0});
  const Tensor x = arange(4).to(DType::f32).reshape({4, 1, 1, 1}).expand({4, 1, 8, 8}).contiguous();
  const Example batch{x, tensor({0, 1, 2, 0})};
  for (int i = 0; i < 8; ++i)
    for (const Example& e : {MixUp(batch, 3), CutMix(batch, 3)}) {
      ASSERT_EQ(e.y.shape(), Shape(4, 3));
      for (const float s : e.y.sum({1}).to_vector<float>()) EXPECT_NEAR(s, 1, 1e-6F);
      // Sample 1 has class 1 by its own share, class 0 by its neighbour's, whose image is 0.
      const float share = e.y[1][1].item<float>();
      EXPECT_NEAR(e.x[1].mean().item<float>(), share, 1e-5F);
    }
  EXPECT_THROW(MixUp({x, tensor({0})}, 3), Error);
  EXPECT_THROW(CutMix(batch, 3, 0), Error);
}

TEST(Transforms, OfEvaluationCanBeTraced) {
  manual_seed(8);
  const Tensor u8 = (rand({3, 24, 31}) * 255).to(DType::u8), f32 = rand({3, 24, 31});
  const struct {
    const char* what;
    Transform transform;
    const Tensor& image;
    double apart = 0;  // levels of u8, or of 1
  } kCases[] = {
      {"to f32", ToDtype(DType::f32, true), u8, 1e-7},
      {"to u8", ToDtype(DType::u8, true), f32},
      {"crop", CenterCrop({11, 20}), u8},
      {"crop beyond", CenterCrop({30, 20}), u8},
      {"normalize", Compose({ToDtype(DType::f32, true), Normalize({0.4, 0.5, 0.6}, {0.2})}), u8,
       1e-6},
      {"smaller", Resize({12, 17}), u8, 1},
      {"larger, cubic", Resize({40, 50}, {.interpolation = Interpolation::bicubic}), u8, 1},
      {"smaller f32", Resize({13, 9}), f32, 1e-5},
      {"nearest", Resize({13, 40}, {.interpolation = Interpolation::nearest}), u8},
      {"nearest exact", Resize({40, 9}, {.interpolation = Interpolation::nearest_exact}), f32},
  };
  for (const auto& c : kCases) {
    const Tensor want = c.transform(c.image);
    const Tensor got = compile([&](const Tensor& x) { return c.transform(x); })(c.image);
    EXPECT_EQ(got.dtype(), want.dtype()) << c.what;
    ASSERT_EQ(got.shape().to_string(), want.shape().to_string()) << c.what;
    EXPECT_LE((got.to(DType::f32) - want.to(DType::f32)).abs().amax().item<float>(), c.apart)
        << c.what;
  }
  EXPECT_THROW(compile([](const Tensor& x) { return horizontal_flip_image(x); })(u8), Error);
}

TEST(Transforms, Errors) {
  const auto text = [](auto&& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  const auto has = [](const std::string& all, const char* part) {
    EXPECT_NE(all.find(part), std::string::npos) << all;
  };
  const Tensor p = random_image();
  has(text([&] { Resize({5, 6, 7}); }), "Resize: the size is");
  has(text([&] { Resize({8})(p[0]); }), "an image is [c, h, w], got [40, 60]");
  has(text([&] { Resize({8})(p.to(DType::i64)); }), "u8 or f32, got int64");
  has(text([&] { Normalize({0}, {1})(p); }), "normalize expects f32, got u8");
  has(text([&] { Normalize({0, 0}, {1})(p.to(DType::f32)); }), "one per channel (3), got 2");
  has(text([&] { Normalize({0}, {0})(p.to(DType::f32)); }), "std of channel 0 is 0");
  has(text([&] { RandomCrop({50, 50})(p); }), "50 x 50 does not fit into 40 x 60");
  has(text([&] { RandomHorizontalFlip(1.5); }), "p lies in 0 .. 1, got 1.5");
  has(text([&] { Pad({50}, {0}, PaddingMode::reflect)(p); }), "reflecting 40 x 60");
  has(text([&] { Pad({1, 2, 3})(p); }), "1, 2 or 4 numbers, got 3");
  has(text([&] { GaussianBlur({4, 3})(p); }), "kernel sizes are odd, got 4");
  has(text([&] { RandomPosterize(9, 1)(p); }), "0 to 8 bits, got 9");
  has(text([&] { resize_image(p, int64_t{1} << 25, 5); }), "cannot be made");
  has(text([&] { adjust_hue_image(p, 0.7); }), "-0.5 .. 0.5, got 0.7");
  has(text([&] {
        perspective_image(p, {{{0, 0}, {1, 1}, {2, 2}, {3, 3}}},
                          {{{0, 0}, {1, 1}, {2, 2}, {3, 3}}});
      }),
      "lie on a line");
}

}  // namespace
}  // namespace tandem::data
