// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: data sets, models, agents and exporters that recipes may
// name.
#pragma once

#include <cstdlib>

#include "tandem/data/pipeline.h"
#include "tandem/data/sets/datasets.h"
#include "tandem/data/transforms/transform_table.h"
#include "tandem/io/image.h"
#include "tandem/models/generative/ddpm.h"
#include "tandem/models/text/generate.h"
#include "tandem/models/vision/detector.h"
#include "tandem/recipe/component_rows.h"
#include "tandem/recipe/generate_options.h"
#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

std::span<const DataRow> row_sources();
std::span<const DataRow> census_sources();
std::span<const DataRow> text_sources();
std::span<const DataRow> image_sources();
std::span<const DataRow> file_sources();
std::span<const DataRow> media_sources();
std::span<const DataRow> crop_sources();
/// Called once.
std::vector<ModelRow> model_rows();
/// What all models take, around each: after them.
void add_fine_tuning(Registry& registry, bool load);
void add_agent_components(Registry& registry);
void add_exporters(Registry& registry);

/// The `root` that was given, else `folder` under TANDEM_DATA.
std::string root_of(const Options& o, const std::string& given, const std::string& folder);
/// Of a name such as "f32" or "float32" at `key`; else the error names the key.
DType dtype_at(const Options& o, const char* key, const std::string& name);

/// Rows with a target as a recipe treats them.
struct Rows {
  using Samples = data::Pipeline<data::Example>;
  using Map = std::function<data::Example(const data::Example&)>;
  Samples train;
  std::optional<Samples> val = {}, test = {};
  Map on_train = {}, on_evaluated = {};  ///< of samples, each time they are read
  Map on_batch = {};                     ///< of training batches
  /// Counts of damaged samples that were passed over.
  std::vector<std::function<int64_t()>> damaged = {};
};
/// The sum of such counts; nothing where there is none.
std::function<int64_t()> sum_of(const std::vector<std::function<int64_t()>>& counts);
/// How rows become batches.
struct BatchOptions {
  int64_t batch = 64, eval_batch = 256;
  bool shuffle = true, drop_last = false;
  double val_part = 0.1;

  template <class V>
  void fields(V& v) {
    v("batch", batch, {.doc = "samples of a training batch", .at_least = 1});
    v("eval_batch", eval_batch,
      {.doc = "samples of a batch in validation and test", .at_least = 1});
    v("shuffle", shuffle, {.doc = "a new order in each epoch"});
    v("drop_last", drop_last, {.doc = "leave out an epoch's last batch where it is smaller"});
    v("val_part", val_part,
      {.doc = "share of the training samples held out for validation, where the data has none",
       .at_least = 0,
       .below = 1});
  }
};
/// Shuffled batches to train on, plain ones to evaluate by. Of numbers in one row it tells the
/// model "features"; of images "channels" and "size" too.
RecipeData batches(const BatchOptions& options, uint64_t seed, Rows rows);
template <data::Dataset D>
Rows::Samples samples(D dataset, uint64_t seed) {
  return data::pipeline(std::move(dataset), {.seed = seed});
}
/// How many damaged samples `dataset` has passed over; it shares the count with its copies.
template <class D>
std::function<int64_t()> damaged_in(const D& dataset) {
  return [dataset] { return dataset.damaged(); };
}

// Augmentation.

/// What images go through on their way to the model, in training and in evaluation.
struct ImageChains {
  std::vector<data::ChosenTransform> transforms = {}, test_transforms = {};

  template <class V>
  void fields(V& v) {
    v("transforms", transforms, {.doc = "augmentation of training images"});
    v("test_transforms", test_transforms,
      {.doc = "what images go through in validation, test and prediction"});
  }
};
/// Of images with a class.
struct AugmentOptions {
  ImageChains chains = {};
  double mixup = 0, cutmix = 0;

  template <class V>
  void fields(V& v) {
    chains.fields(v);
    v("mixup", mixup,
      {.doc = "alpha of the Beta distribution that MixUp draws from; 0: none", .at_least = 0});
    v("cutmix", cutmix,
      {.doc = "the same of CutMix; with both, each batch draws one of them", .at_least = 0});
  }
};
/// Those of YAML: "[{type: RandomHorizontalFlip}]".
std::vector<data::ChosenTransform> transforms_of(const char* yaml);
/// As one; nothing for an empty list.
std::optional<data::Transform> transform_chain(const std::vector<data::ChosenTransform>& chosen);
/// An image, u8 or f32 0..1, through the chain: it begins as u8, as torchvision's examples do, and
/// ends as f32, 0..1 unless the chain made it something else.
data::Vision transformed(const std::optional<data::Transform>& chain, data::Vision v);
/// Images with a class through their chains and mixed, as batches.
RecipeData image_batches(const BatchOptions& options, const AugmentOptions& augment, uint64_t seed,
                         Rows rows, int64_t classes);
/// The same of images that lie in arrays of one shape, 0..1; a run keeps the shape.
RecipeData array_batches(const BatchOptions& options, const AugmentOptions& augment, uint64_t seed,
                         Rows rows, int64_t classes);
/// An image for such a run: of the arrays' channels, brought to their size, 0..1 and through
/// `test_transforms`.
Preparation array_images(const ImageChains& chains, const RunData& run);
/// A sample as a batch, in one piece of memory: kernels depend on how a tensor lies there.
Tensor batch_of_one(const Tensor& sample);
/// Of images u8 [c, h, w] of this shape, which `decode` reads and `make` turns into f32 [c, h, w].
Preparation prepared_images(
    std::vector<int64_t> shape,
    std::function<Tensor(std::string_view bytes, const std::string& name)> decode,
    std::function<Tensor(const Tensor& image)> make);
/// What data.json of a run keeps under `key`. Throws Unsupported for a run from before it did.
const io::Json& kept(const RunData& run, const char* key);
/// `test_transforms` as images with a class go through them; nothing where there are none.
Rows::Map evaluated_images(const ImageChains& chains);
Tensor as_evaluated(const Rows::Map& evaluated, const Tensor& x);

// What models generate.

/// Text by the run's character set: net(ids [n, t]) -> logits [n, t, vocabulary].
RecipeGenerator character_generator(std::function<Tensor(const Tensor&)> net, int64_t context);
RecipeGenerator ddpm_generator(std::shared_ptr<models::DDPM> net, int64_t sampler_steps);
/// Of models that draw n samples at once from a prior.
RecipeGenerator prior_generator(std::function<Tensor(int64_t n)> sample);

// Metrics of trained models over a test set.

/// "recognised": the share of `samples` drawn digits that a LeNet, trained on the test set alone,
/// reads as the class that was asked for; "variety": their variance within a class, with 1 that of
/// the test set.
train::Logs evaluate_digits(models::DDPM& net, data::AnyPipeline test, int64_t samples,
                            int64_t sampler_steps);
/// Of images [n, c, 28, 28] drawn from nothing, what a LeNet that learned the classes of the test
/// set makes of them: "confident", the share that it gives one class 0.9 and more; "classes", how
/// many classes at least a fifth of an even share is read as; "evenness", the entropy of the
/// classes read, 1 where all come alike; "variety" within a class, with 1 that of the test set.
train::Logs evaluate_drawn(const std::function<Tensor(int64_t n)>& sample, data::AnyPipeline test,
                           int64_t samples, int64_t classes);
/// "map50": the mean over the classes of the average precision at an overlap of 0.5.
train::Logs evaluate_boxes(models::Detector& net, data::AnyPipeline test);

}  // namespace tandem::recipe
