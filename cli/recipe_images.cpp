// SPDX-License-Identifier: Apache-2.0
// Pictures with a class that recipes may name: mnist, cifar10, cifar100, image_folder. These and
// pictures of recipe_files.cpp take `transforms` and `test_transforms`, and `mixup` and `cutmix` of
// whole batches.
#include "cli/recipe_internal.h"
#include "tandem/data/image_folder.h"
#include "tandem/ops/ops.h"

namespace tandem::cli {
namespace {

using data::Example;
using train::DataFacts;
using train::Options;
using train::PreparedPicture;
using train::PreparePicture;
using train::RecipeData;

Rows::Map picture_map(const std::optional<data::Transform>& chain) {
  if (!chain) return {};
  return [chain](const Example& e) {
    return Example{transformed(chain, {e.x, {}, {}, {}}).image, e.y};
  };
}

double mixing(Options& o, const char* key) {
  const double alpha = o.number(key, 0.0);
  if (alpha < 0) o.fail(key, "wants the alpha of a Beta distribution above 0, or 0 for none");
  return alpha;
}

}  // namespace

io::ImageMode image_mode(Options& o, const char* otherwise) {
  return choice(o, "mode", {"gray", "rgb"}, otherwise) == "gray" ? io::ImageMode::gray
                                                                 : io::ImageMode::rgb;
}

Rows::Map judged_pictures(Options& o) { return picture_map(transform_chain(o, "test_transforms")); }
Tensor as_judged(const Rows::Map& judged, const Tensor& x) {
  return judged ? judged({x, tensor(int64_t{0})}).x : x;
}

RecipeData picture_batches(Options& o, uint64_t seed, Rows rows, int64_t classes) {
  rows.on_train = picture_map(transform_chain(o, "transforms"));
  rows.on_judged = judged_pictures(o);
  const double mixup = mixing(o, "mixup"), cutmix = mixing(o, "cutmix");
  // With both, each batch draws one of them, as torchvision's recipes do.
  if (mixup > 0 || cutmix > 0)
    rows.on_batch = [=](const Example& b) {
      const bool mix = cutmix == 0 || (mixup > 0 && rand({1}).item<float>() < 0.5F);
      return mix ? data::MixUp(b, classes, mixup) : data::CutMix(b, classes, cutmix);
    };
  const bool mixed = static_cast<bool>(rows.on_batch);
  RecipeData d = batches(o, seed, std::move(rows));
  d.mixed_labels = mixed;
  d.info["classes"] = classes;
  return d;
}

RecipeData array_batches(Options& o, uint64_t seed, Rows rows, int64_t classes) {
  const Tensor x = rows.train.size() > 0 ? rows.train.get(0).x : Tensor();
  RecipeData d = picture_batches(o, seed, std::move(rows), classes);
  if (x.defined()) d.facts.picture = {x.size(0), x.size(1), x.size(2)};
  return d;
}

PreparePicture array_pictures(Options& o, const DataFacts& facts) {
  TD_CHECK(facts.picture.size() == 3, Unsupported,
           "the run's samples are no pictures of 0..1\nGive an .npy file.");
  const int64_t channels = facts.picture[0], h = facts.picture[1], w = facts.picture[2];
  TD_CHECK(channels == 1 || channels == 3, Value,
           "this model takes {} channels, pictures have 1 or 3\nGive an .npy file.", channels);
  const io::ImageMode mode = channels == 1 ? io::ImageMode::gray : io::ImageMode::rgb;
  return [=, judged = judged_pictures(o)](const FilePath& file) {
    Tensor x = io::read_image(file, {.mode = mode});
    if (x.size(1) != h || x.size(2) != w) x = data::resize_image(x, h, w);
    return PreparedPicture{as_judged(judged, x.to(DType::f32) / 255.0)};
  };
}

namespace {

template <class D>
RecipeData train_and_test(Options& o, uint64_t seed, const char* folder, int64_t classes) {
  const std::string root = root_of(o, folder);
  return array_batches(o, seed,
                       {.train = samples(D(root), seed),
                        .test = samples(D(root, {.train = false}), seed),
                        .val_part = 0.05},
                       classes);
}

RecipeData mnist(Options& o, uint64_t seed) {
  return train_and_test<data::MNIST>(o, seed, "mnist", 10);
}
RecipeData cifar10(Options& o, uint64_t seed) {
  return train_and_test<data::CIFAR10>(o, seed, "cifar10", 10);
}
RecipeData cifar100(Options& o, uint64_t seed) {
  return train_and_test<data::CIFAR100>(o, seed, "cifar100", 100);
}

data::ImageFolderOptions folder_options(Options& o) {
  const int64_t side = o.whole("size", 64);
  if (side < 0)
    o.fail("size", "wants a side in pixels, or 0 where the transforms bring pictures to one size");
  data::ImageFolderOptions options{.skip_damaged = o.flag("skip_damaged", false)};
  if (side > 0) options.size = {side, side};
  return options;
}

PreparePicture folder_pictures(Options& o, const DataFacts&) {
  return [options = folder_options(o), judged = judged_pictures(o)](const FilePath& file) {
    return PreparedPicture{as_judged(judged, data::ImageFolder::read_picture(file, options))};
  };
}

RecipeData image_folder(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "images");
  const data::ImageFolderOptions options = folder_options(o);
  data::ImageFolder folder(root, options);
  const auto classes = static_cast<int64_t>(folder.classes().size());
  const std::string test = o.text("test", "");
  Rows rows{.train = samples(folder, seed), .val_part = 0.1};
  if (options.skip_damaged) rows.damaged.push_back(damaged_in(folder));
  if (!test.empty()) {
    const data::ImageFolder judged(test, options);
    rows.test = samples(judged, seed);
    if (options.skip_damaged) rows.damaged.push_back(damaged_in(judged));
  }
  RecipeData d = picture_batches(o, seed, std::move(rows), classes);
  d.facts.classes = folder.classes();
  return d;
}

}  // namespace

void add_image_components(train::Registry& r) {
  r.data["mnist"] = mnist;
  r.data["cifar10"] = cifar10;
  r.data["cifar100"] = cifar100;
  r.data["image_folder"] = image_folder;
  for (const char* type : {"mnist", "cifar10", "cifar100"}) r.picture[type] = array_pictures;
  r.picture["image_folder"] = folder_pictures;
}

}  // namespace tandem::cli
