// SPDX-License-Identifier: Apache-2.0
// What random transforms guarantee besides their functions' values (transforms_test.cpp): ranges
// and defaults of their draws, boxes that stay on their objects, errors.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tandem/tandem.h"
#include "tests/data/images.h"
#include "tests/support/init.h"
#include "tests/support/values.h"

namespace tandem::data {
namespace {

Tensor constant(double v, int64_t h, int64_t w, DType dtype = DType::u8, int64_t c = 3) {
  return full({c, h, w}, v).to(dtype);
}
Vision only(const Tensor& image) { return {image, {}, {}, {}}; }
/// f(vision) for a few seeds.
template <class F>
void draws(int count, const Transform& t, const Vision& v, F&& f) {
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(fmt::format("{} {}", t.name(), i));
    GeneratorGuard generator({static_cast<uint64_t>(i), 2});
    f(t(v));
  }
}
void throws(const std::function<void()>& f, const char* part) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown, wanted: " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Augment, ElasticMovesAllTogether) {
  // No strength: nothing moves.
  const Vision still = ElasticTransform({.alpha = {0, 0}})(
      Vision{random_image(), tensor({{5.0F, 6.0F, 25.0F, 30.0F}}), {}, random_image()});
  EXPECT_LE((still.image.to(DType::f32) - random_image().to(DType::f32)).abs().max().item<float>(),
            1);
  EXPECT_EQ(values(still.mask), values(random_image()));
  const auto b = values(still.boxes);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(b[i], (std::array{5.F, 6.F, 25.F, 30.F}[i]), 1e-3F);

  // A rectangle, its mask and its box.
  Tensor mask = erase_image(constant(0, 60, 80, DType::u8, 1), 15, 20, 30, 40, {1});
  const Vision v{mask * 255, tensor({{20.0F, 15.0F, 60.0F, 45.0F}}), {}, mask};
  bool moved = false;
  draws(8, ElasticTransform({.alpha = {120, 120}}), v, [&](const Vision& e) {
    const auto m = values(e.mask), p = values(e.image), box = values(e.boxes);
    float low_x = 80, high_x = 0, low_y = 60, high_y = 0;
    int differ = 0;
    for (size_t i = 0; i < m.size(); ++i) {
      differ += (m[i] > 0) != (p[i] > 127);
      if (m[i] == 0) continue;
      const auto x = static_cast<float>(i % 80), y = static_cast<float>(i / 80);
      low_x = std::min(low_x, x);
      high_x = std::max(high_x, x + 1);
      low_y = std::min(low_y, y);
      high_y = std::max(high_y, y + 1);
    }
    EXPECT_LE(differ, 140);
    const std::array want{low_x, low_y, high_x, high_y};
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(box[i], want[i], 4);  // corners stand for sides
    moved = moved || m != values(mask);
  });
  EXPECT_TRUE(moved);
  throws([] { ElasticTransform({.sigma = {0, 5}}); }, "both sigmas are positive, or both 0, got 0");
  throws([] { ElasticTransform()(constant(0, 15, 60)); }, "blurs over 41 pixels");
  throws(
      [] {
        elastic_image(random_image(), zeros({1, 40, 50, 2}));
      },
      "is [1, 40, 60, 2], got [1, 40, 50, 2]");
  throws([] { elastic_boxes(zeros({1, 4}), zeros({40, 60, 2})); }, "[1, h, w, 2], got [40, 60, 2]");
  throws([] { elastic_boxes(zeros({3}), zeros({1, 40, 60, 2})); }, "boxes are [n, 4], got [3]");
}

TEST(Augment, CropsAreStacked) {
  const Tensor p = random_image();
  const Tensor five = FiveCrop(p, {16, 24}), ten = TenCrop(p, {16});
  EXPECT_EQ(five.shape(), Shape(5, 3, 16, 24));
  EXPECT_EQ(ten.shape(), Shape(10, 3, 16, 16));
  EXPECT_EQ(values(five[3]), values(crop_image(p, 24, 36, 16, 24)));
  // The flipped image's upper right is the upper left, flipped.
  EXPECT_EQ(values(ten[6]), values(horizontal_flip_image(ten[0])));
  throws([&] { FiveCrop(p, {50}); }, "FiveCrop: 50 x 50 does not fit into 40 x 60");
  throws([&] { TenCrop(p[0], {50}); }, "an image is [c, h, w], got [40, 60]");
  throws([] { UniformTemporalSubsample(ones({3, 4, 5}), 2); }, "[..., t, c, h, w], got [3, 4, 5]");
  throws([] { UniformTemporalSubsample(ones({2, 3, 4, 5}), 0); }, "at least one sample, got 0");
}

TEST(Augment, SizesStayInTheirRanges) {
  const Vision v = only(random_image());
  draws(20, ScaleJitter({60, 40}, {0.5, 1.5}), v, [](const Vision& r) {
    EXPECT_GE(r.image.size(1), 20);
    EXPECT_LE(r.image.size(1), 60);
    EXPECT_NEAR(static_cast<double>(r.image.size(2)), 1.5 * static_cast<double>(r.image.size(1)),
                1.5);
  });
  std::set<int64_t> shorter, resized;
  draws(40, RandomShortestSize({10, 20, 40}, 45), v, [&](const Vision& r) {
    shorter.insert(r.image.size(1));
    EXPECT_LE(r.image.size(2), 45);
  });
  EXPECT_EQ(shorter, (std::set<int64_t>{10, 20, 30}));  // 40 x 60 is more than 45
  draws(60, RandomResize(8, 12), v, [&](const Vision& r) { resized.insert(r.image.size(1)); });
  EXPECT_EQ(resized, (std::set<int64_t>{8, 9, 10, 11}));
  throws([] { ScaleJitter({0, 5}); }, "the target size is positive, got 0 x 5");
  throws([] { ScaleJitter({5, 5}, {0, 1}); }, "scales are positive, got 0");
  throws([] { RandomShortestSize({}); }, "at least one size");
  throws([] { RandomShortestSize({8, -1}); }, "sizes are positive, got -1");
  throws([] { RandomResize(8, 8); }, "0 < min_size < max_size, got 8 and 8");
}

TEST(Augment, ZoomOutKeepsTheImage) {
  const Tensor p = random_image();
  const Vision v{p, tensor({{0.0F, 0.0F, 60.0F, 40.0F}}), {}, constant(1, 40, 60, DType::u8, 1)};
  int64_t least = 1000, most = 0;
  draws(40, RandomZoomOut({7}, {1, 4}, 1), v, [&](const Vision& z) {
    const auto b = values(z.boxes);
    const auto x = static_cast<int64_t>(b[0]), y = static_cast<int64_t>(b[1]);
    EXPECT_EQ(values(crop_image(z.image, y, x, 40, 60)), values(p));
    EXPECT_EQ(z.mask.to(DType::i64).sum().item<int64_t>(), 2400);
    const Tensor rest = z.image.to(DType::i64).sum() - p.to(DType::i64).sum();
    EXPECT_EQ(rest.item<int64_t>(), 7 * (z.image.numel() - p.numel()));
    least = std::min(least, z.image.size(1));
    most = std::max(most, z.image.size(1));
  });
  EXPECT_LE(least, 60);
  EXPECT_GE(most, 140);
  EXPECT_LE(most, 160);
  int same = 0;
  draws(40, RandomZoomOut(), v, [&](const Vision& z) { same += z.image.size(1) == 40; });
  EXPECT_NEAR(same, 20, 10);  // p is a half
  throws([] { RandomZoomOut({0}, {0.5, 2}); }, "sides grow by 1 or more, got 0.5");
}

TEST(Augment, IoUCropHoldsABoxByItsMiddle) {
  // Pixels that store their position: channel 0 is x, channel 1 is y.
  const int64_t h = 60, w = 80;
  const Tensor x = arange(w).reshape({1, 1, w}).expand({1, h, w});
  const Tensor y = arange(h).reshape({1, h, 1}).expand({1, h, w});
  const std::vector<float> boxes{10, 10, 30, 35, 40, 20, 75, 55, 2, 50, 8, 58};
  const Vision v{cat({x, y}).to(DType::u8), tensor(boxes, Shape(3, 4)), tensor({4, 5, 6}), {}};
  int cut = 0;
  for (const double least : {0.0, 0.3, 0.7})
    draws(20, RandomIoUCrop({.sampler_options = {least}}), v, [&](const Vision& c) {
      const double left = c.image[0][0][0].to(DType::f64).item<double>();
      const double top = c.image[1][0][0].to(DType::f64).item<double>();
      const auto ch = static_cast<double>(c.image.size(1)),
                 cw = static_cast<double>(c.image.size(2));
      EXPECT_EQ(values(c.labels), (std::vector<float>{4, 5, 6}));
      if (c.image.shape() == v.image.shape()) return;
      ++cut;
      EXPECT_GE(cw / ch, 0.5);
      EXPECT_LE(cw / ch, 2.0);
      EXPECT_GE(std::min(cw / 80, ch / 60), 0.28);
      const auto got = values(c.boxes);
      double best = 0;
      for (size_t i = 0; i < 3; ++i) {
        std::array<double, 4> b;
        for (size_t k = 0; k < 4; ++k)
          b[k] = static_cast<double>(boxes[4 * i + k]) - (k % 2 ? top : left);
        const double mx = (b[0] + b[2]) / 2, my = (b[1] + b[3]) / 2;
        const bool inside = mx > 0 && mx < cw && my > 0 && my < ch;
        const double area = (b[2] - b[0]) * (b[3] - b[1]);
        for (size_t k = 0; k < 4; ++k)
          EXPECT_NEAR(static_cast<double>(got[4 * i + k]),
                      inside ? std::clamp(b[k], 0.0, k % 2 ? ch : cw) : 0, 1e-4);
        const double common =
            static_cast<double>((got[4 * i + 2] - got[4 * i]) * (got[4 * i + 3] - got[4 * i + 1]));
        best = std::max(best, common / (area + cw * ch - common));
      }
      EXPECT_GE(best, least - 1e-6);
      EXPECT_GT(best, 0);
    });
  EXPECT_GE(cut, 25);
  for (const Vision& same : {RandomIoUCrop({.sampler_options = {1.0}})(v),
                             RandomIoUCrop({.sampler_options = {0.999}})(v),
                             RandomIoUCrop()(Vision{v.image, zeros({0, 4}), {}, {}})})
    EXPECT_EQ(same.image.shape(), v.image.shape());
  throws([&] { RandomIoUCrop()(only(v.image)); }, "RandomIoUCrop expects boxes [n, 4], got none");
  throws([] { RandomIoUCrop({.max_scale = 2}); }, "scales lie in 0 .. 1, got 0.3 .. 2");
  throws([] { RandomIoUCrop({.sampler_options = {}}); }, "at least one of sampler_options");
}

TEST(Augment, PhotometricDistortIsItsParts) {
  const Tensor p = random_image();
  EXPECT_EQ(values(RandomPhotometricDistort({.p = 0})(p)), values(p));
  // All parts with known factors: contrast in one of two places, one of six channel orders.
  std::vector<std::vector<float>> wanted;
  for (const bool first : {true, false}) {
    Tensor t = adjust_brightness_image(p, 1.1);
    if (first) t = adjust_contrast_image(t, 0.8);
    t = adjust_hue_image(adjust_saturation_image(t, 1.3), 0.02);
    if (!first) t = adjust_contrast_image(t, 0.8);
    for (const auto& o : {tensor({0, 1, 2}), tensor({0, 2, 1}), tensor({1, 0, 2}),
                          tensor({1, 2, 0}), tensor({2, 0, 1}), tensor({2, 1, 0})})
      wanted.push_back(values(index_select(t, 0, o)));
  }
  std::set<int64_t> seen;
  draws(60,
        RandomPhotometricDistort({.brightness = {1.1, 1.1},
                                  .contrast = {0.8, 0.8},
                                  .saturation = {1.3, 1.3},
                                  .hue = {0.02, 0.02},
                                  .p = 1}),
        only(p), [&](const Vision& v) {
          const auto at = std::find(wanted.begin(), wanted.end(), values(v.image));
          ASSERT_NE(at, wanted.end());
          seen.insert(at - wanted.begin());
        });
  EXPECT_GE(seen.size(), 10U);
  throws(
      [] {
        RandomPhotometricDistort({.hue = {-0.7, 0}});
      },
      "RandomPhotometricDistort: hue lies in -0.5 .. 0.5, got -0.7 .. 0");
  throws([] { RandomPhotometricDistort({.p = 2}); }, "p lies in 0 .. 1, got 2");
}

TEST(Augment, GaussianNoiseHasItsSpread) {
  GeneratorGuard generator({8, 0});
  const Tensor gray = constant(0.5, 100, 100, DType::f32);
  const Tensor wide = GaussianNoise(0.2, 0.3, false)(gray) - 0.5;
  EXPECT_NEAR(wide.mean().item<float>(), 0.2F, 0.01F);
  EXPECT_NEAR((wide - 0.2).square().mean().sqrt().item<float>(), 0.3F, 0.01F);
  const Tensor cut = GaussianNoise(0.2, 0.3)(gray);
  EXPECT_EQ(cut.min().item<float>(), 0.0F);
  EXPECT_EQ(cut.max().item<float>(), 1.0F);
  const Tensor bytes = GaussianNoise()(constant(128, 100, 100)).to(DType::f32) - 128;
  EXPECT_NEAR(bytes.mean().item<float>(), 0.0F, 0.5F);
  EXPECT_NEAR(bytes.square().mean().sqrt().item<float>(), 25.5F, 0.5F);
  throws([] { GaussianNoise(0, -1); }, "sigma is not negative, got -1");
}

TEST(Augment, ColoursAndValues) {
  EXPECT_EQ(values(RGB()(random_image())), values(random_image()));
  throws(
      [] {
        LinearTransformation(zeros({3, 4}), zeros({3}));
      },
      "a matrix [d, d] and a mean [d] are expected, got [3, 4] and [3]");
  throws(
      [] {
        LinearTransformation(zeros({3, 3}).to(DType::f64), zeros({3}));
      },
      "matrix and mean are f32, got float64 and float32");
  throws(
      [] {
        LinearTransformation(zeros({3, 3}), zeros({3}))(random_image());
      },
      "an image [3, 40, 60] has 7200 values, the matrix is [3, 3]");
  throws(
      [] {
        convert_bounding_box_format(zeros({2, 5}), BoundingBoxFormat::xyxy, {});
      },
      "boxes are [n, 4], got [2, 5]");
}

TEST(Augment, AugMixIsAMixture) {
  // An operation that does not change colours leaves a dark gray unchanged, or adds black outside.
  for (const DType dtype : {DType::u8, DType::f32}) {
    const double gray = dtype == DType::u8 ? 64 : 0.25;
    int brighter = 0;
    for (const bool all_ops : {false, true})
      draws(20, AugMix({.chain_depth = 1, .all_ops = all_ops}), only(constant(gray, 40, 40, dtype)),
            [&](const Vision& v) {
              ASSERT_EQ(v.image.dtype(), dtype);
              const double most = static_cast<double>(v.image.to(DType::f32).max().item<float>());
              brighter += most > gray * 1.0001;
              if (all_ops) return;
              EXPECT_LE(most, gray * 1.0001);
              EXPECT_GE(static_cast<double>(v.image[0][20][20].to(DType::f32).item<float>()),
                        gray * 0.98);
            });
    EXPECT_GE(brighter, 1);
  }
  std::set<std::vector<float>> seen;
  draws(12, AugMix(), only(random_image()), [&](const Vision& v) { seen.insert(values(v.image)); });
  EXPECT_EQ(seen.size(), 12U);
  std::vector<std::vector<float>> twice;
  for (int i = 0; i < 2; ++i) {
    GeneratorGuard generator({77, 1});
    twice.push_back(
        values(AugMix({.severity = 10, .mixture_width = 2, .chain_depth = 4})(random_image())));
  }
  EXPECT_EQ(twice[0], twice[1]);
  throws([] { AugMix({.severity = 11}); }, "the severity lies in 1 .. 10, got 11");
  throws([] { AugMix({.mixture_width = 0}); }, "mixture_width and alpha are positive, got 0 and 1");
  throws(
      [] {
        AugMix()(Vision{random_image(), zeros({1, 4}), {}, {}});
      },
      "AugMix takes an image alone, got boxes too");
}

// Four images of one value each, with a box around all of it and a mask.
std::vector<Vision> four(DType dtype = DType::u8) {
  std::vector<Vision> out;
  const int64_t sizes[4][2] = {{20, 30}, {50, 20}, {16, 16}, {40, 90}};
  for (int64_t k = 0; k < 4; ++k) {
    const int64_t h = sizes[k][0], w = sizes[k][1];
    const double v = static_cast<double>(10 * (k + 1)) / (dtype == DType::u8 ? 1 : 255);
    const auto fw = static_cast<float>(w), fh = static_cast<float>(h);
    out.push_back({constant(v, h, w, dtype), tensor({{0.0F, 0.0F, fw, fh}}), tensor({k + 1}),
                   constant(static_cast<double>(k + 1), h, w, DType::u8, 1)});
  }
  return out;
}

TEST(Augment, MosaicPutsBoxesOnTheirImages) {
  std::set<int64_t> meetings;
  for (uint64_t draw = 0; draw < 20; ++draw) {
    SCOPED_TRACE(draw);
    GeneratorGuard generator({draw, 0});
    const Vision m = Mosaic(four(), {32, 48});
    ASSERT_EQ(m.image.shape(), Shape(3, 64, 96));
    ASSERT_EQ(m.mask.shape(), Shape(1, 64, 96));
    ASSERT_EQ(values(m.labels), (std::vector<float>{1, 2, 3, 4}));
    const auto b = values(m.boxes), p = values(m.image), mask = values(m.mask);
    std::vector<float> want(64 * 96, 114.0F), want_mask(64 * 96, 0.0F);
    for (size_t k = 0; k < 4; ++k)
      for (auto y = static_cast<size_t>(b[4 * k + 1]); y < static_cast<size_t>(b[4 * k + 3]); ++y)
        for (auto x = static_cast<size_t>(b[4 * k]); x < static_cast<size_t>(b[4 * k + 2]); ++x) {
          want[y * 96 + x] = static_cast<float>(10 * (k + 1));
          want_mask[y * 96 + x] = static_cast<float>(k + 1);
        }
    EXPECT_EQ(std::vector<float>(p.begin(), p.begin() + 64 * 96), want);
    EXPECT_EQ(mask, want_mask);
    // All meet in one point: lower right of the first, upper left of the last.
    EXPECT_EQ(b[2], b[12]);
    EXPECT_EQ(b[3], b[13]);
    EXPECT_GE(b[2], 24);
    EXPECT_LE(b[2], 72);
    meetings.insert(static_cast<int64_t>(b[2]));
  }
  EXPECT_GE(meetings.size(), 8U);
  const Vision f = Mosaic(four(DType::f32), {8});
  EXPECT_NEAR(f.image.max().item<float>(), 114.0F / 255, 1e-6F);

  std::vector<Vision> bad = four();
  bad.pop_back();
  throws([&] { Mosaic(bad, {32}); }, "Mosaic expects four images, got 3");
  bad = four();
  bad[2].image = bad[2].mask;
  throws([&] { Mosaic(bad, {32}); }, "images of equal channels are expected, got 3 and 1");
  bad = four();
  bad[1].image = bad[1].image.to(DType::f32);
  throws([&] { Mosaic(bad, {32}); }, "images of one dtype are expected, got uint8 and float32");
  bad = four();
  bad[3].boxes = {};
  throws([&] { Mosaic(bad, {32}); }, "either all images have boxes (labels, a mask) or none");
  throws(
      [] {
        Mosaic(four(), {32}, {.center_ratio_range = {1, 3}});
      },
      "lies in 0 .. 2, got 1 .. 3");
}

struct Boxed {
  int64_t size() const { return 4; }
  Detection get(int64_t i) const {
    const Vision v = four()[static_cast<size_t>(i)];
    return {v.image, v.boxes, v.labels};
  }
};

TEST(Augment, MosaicOfADataset) {
  const auto run = [](uint64_t seed, int64_t workers) {
    const Transform cut = Compose({RandomCrop({24}), SanitizeBoundingBoxes()});
    DataLoader loader(MosaicDataset(Boxed(), {24}, {.transform = cut}),
                      {.num_workers = workers, .seed = seed});
    std::vector<std::vector<float>> out;
    for (const Detection& d : loader) {
      EXPECT_EQ(d.image.shape(), Shape(1, 3, 24, 24));
      EXPECT_EQ(d.boxes.size(1), d.labels.size(1));
      out.push_back(values(d.image));
    }
    return out;
  };
  EXPECT_EQ(run(5, 0), run(5, 2));
  EXPECT_NE(run(5, 0), run(6, 0));
  const MosaicDataset whole(Boxed(), {24});
  for (int64_t i = 0; i < whole.size(); ++i)
    EXPECT_EQ(whole.get(i).labels[0].item<int64_t>(), i + 1);  // its own is the first
}

}  // namespace
}  // namespace tandem::data
