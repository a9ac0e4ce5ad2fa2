// SPDX-License-Identifier: Apache-2.0
// Images with a class that recipes may name: mnist, cifar10, cifar100, image_folder. These and
// images of recipe_files.cpp take `transforms` and `test_transforms`, and `mixup` and `cutmix` of
// whole batches.
#include "tandem/data/sets/image_folder.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/components/source_fields_internal.h"

namespace tandem::recipe {
namespace {

using data::Example;

Rows::Map image_map(const std::optional<data::Transform>& chain) {
  if (!chain) return {};
  return [chain](const Example& e) {
    return Example{transformed(chain, {e.x, {}, {}, {}}).image, e.y};
  };
}

}  // namespace

Rows::Map evaluated_images(const ImageChains& chains) {
  return image_map(transform_chain(chains.test_transforms));
}
Tensor as_evaluated(const Rows::Map& evaluated, const Tensor& x) {
  return evaluated ? evaluated({x, tensor(int64_t{0})}).x : x;
}

RecipeData image_batches(const BatchOptions& options, const AugmentOptions& augment, uint64_t seed,
                         Rows rows, int64_t classes) {
  rows.on_train = image_map(transform_chain(augment.chains.transforms));
  rows.on_evaluated = evaluated_images(augment.chains);
  const double mixup = augment.mixup, cutmix = augment.cutmix;
  // With both, each batch draws one of them, as torchvision's recipes do.
  if (mixup > 0 || cutmix > 0)
    rows.on_batch = [=](const Example& b) {
      const bool mix = cutmix == 0 || (mixup > 0 && rand({1}).item<float>() < 0.5F);
      return mix ? data::MixUp(b, classes, mixup) : data::CutMix(b, classes, cutmix);
    };
  const bool mixed = static_cast<bool>(rows.on_batch);
  RecipeData d = batches(options, seed, std::move(rows));
  d.mixed_labels = mixed;
  d.info["classes"] = classes;
  return d;
}

RecipeData array_batches(const BatchOptions& options, const AugmentOptions& augment, uint64_t seed,
                         Rows rows, int64_t classes) {
  const Tensor x = rows.train.size() > 0 ? rows.train.get(0).x : Tensor();
  RecipeData d = image_batches(options, augment, seed, std::move(rows), classes);
  if (x.defined()) d.facts.image = {x.size(0), x.size(1), x.size(2)};
  return d;
}

Tensor batch_of_one(const Tensor& sample) { return stack({sample}).contiguous(); }

Preparation prepared_images(
    std::vector<int64_t> shape,
    std::function<Tensor(std::string_view bytes, const std::string& name)> decode,
    std::function<Tensor(const Tensor& image)> make) {
  auto inputs = [make = std::move(make)](const Tensor& image) {
    return std::vector<Tensor>{batch_of_one(make(image))};
  };
  return {SampleKind::image,
          [inputs, decode = std::move(decode)](std::string_view bytes, const auto& name) {
            return PreparedBatch{inputs(decode(bytes, name))};
          },
          inputs,
          {DType::u8, std::move(shape)}};
}

Preparation array_images(const ImageChains& chains, const RunData& run) {
  const DataFacts& facts = run.facts;
  TD_CHECK(facts.image.size() == 3, Unsupported,
           "the run's samples are not images of 0..1\nGive an .npy file.");
  const int64_t channels = facts.image[0], h = facts.image[1], w = facts.image[2];
  TD_CHECK(channels == 1 || channels == 3, Value,
           "this model takes {} channels, images have 1 or 3\nGive an .npy file.", channels);
  const io::ImageMode mode = channels == 1 ? io::ImageMode::gray : io::ImageMode::rgb;
  return prepared_images(
      {channels, h, w},
      [=](std::string_view bytes, const std::string& name) {
        const Tensor x = io::decode_image(bytes, {.mode = mode}, name);
        return x.size(1) != h || x.size(2) != w ? data::resize_image(x, h, w) : x;
      },
      [evaluated = evaluated_images(chains)](const Tensor& x) {
        return as_evaluated(evaluated, x.to(DType::f32) / 255.0);
      });
}

namespace {

/// A data set that comes as training and test files of arrays.
struct ArraySource {
  std::string root = {};
  AugmentOptions augment = {};
  BatchOptions batches = {.val_part = 0.05};

  template <class V>
  void fields(V& v) {
    root_field(v, root, "folder of the files; default: that of TANDEM_DATA");
    augment.fields(v);
    batches.fields(v);
  }
};
template <class D>
RecipeData train_and_test(const ArraySource& a, const Options& o, uint64_t seed, const char* folder,
                          int64_t classes) {
  const std::string root = root_of(o, a.root, folder);
  return array_batches(
      a.batches, a.augment, seed,
      {.train = samples(D(root), seed), .test = samples(D(root, {.train = false}), seed)}, classes);
}
RecipeData mnist(const ArraySource& a, const Options& o, uint64_t seed) {
  return train_and_test<data::MNIST>(a, o, seed, "mnist", 10);
}
RecipeData cifar10(const ArraySource& a, const Options& o, uint64_t seed) {
  return train_and_test<data::CIFAR10>(a, o, seed, "cifar10", 10);
}
RecipeData cifar100(const ArraySource& a, const Options& o, uint64_t seed) {
  return train_and_test<data::CIFAR100>(a, o, seed, "cifar100", 100);
}
Preparation images_of(const ArraySource& a, const Options&, const RunData& run) {
  return array_images(a.augment.chains, run);
}

struct FolderSource {
  std::string root = {}, test = {};
  int64_t size = 64;
  bool skip_damaged = false;
  AugmentOptions augment = {};
  BatchOptions batches = {};

  template <class V>
  void fields(V& v) {
    root_field(v, root, "a folder per class; default: TANDEM_DATA's images");
    test_field(v, test, "another such folder for the test");
    v("size", size,
      {.doc = "side that images are brought to; 0: the transforms bring them to one size",
       .unit = "pixels",
       .at_least = 0});
    skip_field(v, skip_damaged);
    augment.fields(v);
    batches.fields(v);
  }
  data::ImageFolderOptions options() const {
    data::ImageFolderOptions o{.skip_damaged = skip_damaged};
    if (size > 0) o.size = {size, size};
    return o;
  }
};
Preparation folder_images(const FolderSource& f, const Options&, const RunData&) {
  const int64_t side = f.size > 0 ? f.size : -1;
  return prepared_images(
      {3, side, side},
      [options = f.options()](std::string_view bytes, const std::string& name) {
        return data::ImageFolder::decode_pixels(bytes, options, name);
      },
      [evaluated = evaluated_images(f.augment.chains)](const Tensor& x) {
        return as_evaluated(evaluated, data::to_dtype_image(x, DType::f32, true));
      });
}
RecipeData image_folder(const FolderSource& f, const Options& o, uint64_t seed) {
  const data::ImageFolderOptions options = f.options();
  data::ImageFolder folder(root_of(o, f.root, "images"), options);
  const auto classes = static_cast<int64_t>(folder.classes().size());
  Rows rows{.train = samples(folder, seed)};
  if (options.skip_damaged) rows.damaged.push_back(damaged_in(folder));
  if (!f.test.empty()) {
    const data::ImageFolder evaluated(f.test, options);
    rows.test = samples(evaluated, seed);
    if (options.skip_damaged) rows.damaged.push_back(damaged_in(evaluated));
  }
  RecipeData d = image_batches(f.batches, f.augment, seed, std::move(rows), classes);
  d.facts.classes = folder.classes();
  return d;
}

}  // namespace

std::span<const DataRow> image_sources() {
  static constexpr DataRow kRows[] = {
      prepared_row<ArraySource, mnist, images_of>("mnist",
                                                  "MNIST's digits, 28 x 28, from IDX files.",
                                                  "{type: mnist, root: mnist, batch: 16}"),
      prepared_row<ArraySource, cifar10, images_of>(
          "cifar10", "CIFAR-10's images, 32 x 32, from its binary version.",
          "{type: cifar10, root: cifar10, transforms: [{type: RandomHorizontalFlip}]}"),
      prepared_row<ArraySource, cifar100, images_of>(
          "cifar100", "CIFAR-100's images with their 100 fine classes, from its binary version.",
          "{type: cifar100, root: cifar100, mixup: 0.2}"),
      prepared_row<FolderSource, image_folder, folder_images>(
          "image_folder", "JPEG, PNG, WebP, TIFF and JPEG 2000 files in a folder per class.",
          "{type: image_folder, root: images, size: 16, batch: 4}"),
  };
  return kRows;
}

}  // namespace tandem::recipe
