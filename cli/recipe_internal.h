// SPDX-License-Identifier: Apache-2.0
// What recipes may name: the tool's data sets, models and agents on top of the library's own.
#pragma once

#include <cstdlib>

#include "tandem/data/datasets.h"
#include "tandem/data/pipeline.h"
#include "tandem/data/transforms.h"
#include "tandem/io/image.h"
#include "tandem/models/ddpm.h"
#include "tandem/models/detector.h"
#include "tandem/models/generate.h"
#include "tandem/train/recipe.h"
#include "tandem/train/run_data.h"

namespace tandem::models {
struct VAE;
}

namespace tandem::cli {

/// Losses, data sets, models and agents. Data is looked for under `data.root`, else under
/// TANDEM_DATA. Without `init` models come without the weights of `init_from`: for runs that have
/// weights of their own.
train::Registry recipe_registry(bool init = true);
void add_data_components(train::Registry& registry);
void add_sentences(train::Registry& registry);
void add_image_components(train::Registry& registry);
void add_media_components(train::Registry& registry);
void add_file_components(train::Registry& registry);
void add_model_components(train::Registry& registry);
/// What all models take, around each: after them.
void add_fine_tuning(train::Registry& registry, bool load);
void add_agent_components(train::Registry& registry);
void add_exporters(train::Registry& registry);

/// A run's model with its weights, made without its data, in eval mode.
struct OpenedRun {
  train::Recipe recipe;
  train::RunData data;
  std::string type;  ///< of the model
  train::RecipeModel model;
};
/// `weights`: "last" (or "") or "best", by the run's monitor.
OpenedRun open_run(const std::string& folder, const std::string& weights = "");
/// How the pictures of its test set are prepared. Throws Unsupported where they are none.
train::PreparePicture picture_preparation(const OpenedRun& run);

/// `root` of a data component, else `folder` under TANDEM_DATA.
std::string root_of(train::Options& o, const char* folder);
/// A text that is one of `names`; else the error names the nearest.
std::string choice(train::Options& o, const std::string& key, const std::vector<std::string>& names,
                   std::optional<std::string> otherwise = {});
/// "f32" or "float32".
DType dtype_option(train::Options& o, const std::string& key, DType otherwise);

/// Rows with a target as a recipe treats them.
struct Rows {
  using Samples = data::Pipeline<data::Example>;
  using Map = std::function<data::Example(const data::Example&)>;
  Samples train;
  std::optional<Samples> val = {}, test = {};
  double val_part = 0;                ///< of `train`, held out where there is no `val`
  Map on_train = {}, on_judged = {};  ///< of samples, each time they are read
  Map on_batch = {};                  ///< of training batches
  /// Counts of damaged samples that were passed over.
  std::vector<std::function<int64_t()>> damaged = {};
};
/// The sum of such counts; nothing where there is none.
std::function<int64_t()> sum_of(const std::vector<std::function<int64_t()>>& counts);
/// Shuffled batches to train on, plain ones to judge by (batch, eval_batch, shuffle, drop_last,
/// val_part). Of numbers in one row it tells the model "features"; of pictures "channels" and
/// "size" too.
train::RecipeData batches(train::Options& o, uint64_t seed, Rows rows);
template <data::Dataset D>
Rows::Samples samples(D dataset, uint64_t seed) {
  return data::pipeline(std::move(dataset), {.seed = seed});
}
/// How many damaged samples `dataset` has passed over; it shares the count with its copies.
template <class D>
std::function<int64_t()> damaged_in(const D& dataset) {
  return [dataset] { return dataset.damaged(); };
}

/// `mode`: gray or rgb.
io::ImageMode image_mode(train::Options& o, const char* otherwise);

// Augmentation.

/// The transforms that a list of maps names; `otherwise` is the list where there is none.
std::vector<data::Transform> transform_list(train::Options& o, const std::string& key,
                                            const io::Yaml* otherwise = nullptr);
/// The same as one; nothing for an empty list.
std::optional<data::Transform> transform_chain(train::Options& o, const std::string& key,
                                               const io::Yaml* otherwise = nullptr);
/// A picture, u8 or f32 0..1, through the chain: it begins as u8, as torchvision's examples do, and
/// ends as f32, 0..1 unless the chain made it something else.
data::Vision transformed(const std::optional<data::Transform>& chain, data::Vision v);
/// Pictures with a class: `transforms`, `test_transforms`, `mixup`, `cutmix`, then batches().
train::RecipeData picture_batches(train::Options& o, uint64_t seed, Rows rows, int64_t classes);
/// The same of pictures that lie in arrays of one shape, 0..1; a run keeps the shape.
train::RecipeData array_batches(train::Options& o, uint64_t seed, Rows rows, int64_t classes);
/// A file for such a run: of the arrays' channels, brought to their size, 0..1 and through
/// `test_transforms`.
train::PreparePicture array_pictures(train::Options& o, const train::DataFacts& facts);
/// `test_transforms` as pictures with a class go through them; nothing where there are none.
Rows::Map judged_pictures(train::Options& o);
Tensor as_judged(const Rows::Map& judged, const Tensor& x);

// What models make by themselves.

/// --max-new-tokens and the others of text, from `usual` on.
models::GenerateOptions text_options(train::Options& o, models::GenerateOptions usual);
uint64_t seed_option(train::Options& o);
/// --prompt, each --num-return-sequences times. `drawn`: they may differ.
std::vector<std::string> prompt_rows(train::Options& o, std::vector<std::string> otherwise,
                                     bool drawn);
/// Text by the letters of the run's data: net(ids [n, t]) -> logits [n, t, vocabulary].
train::RecipeGenerator letter_generator(std::function<Tensor(const Tensor&)> net, int64_t context);
train::RecipeGenerator ddpm_generator(std::shared_ptr<models::DDPM> net, int64_t sampler_steps);
/// `sample`: the shape of one.
train::RecipeGenerator vae_generator(std::shared_ptr<models::VAE> net, std::vector<int64_t> sample);

// What trained models are judged by, over a test set.

/// "recognised": the share of `samples` drawn digits that a LeNet, trained on the test set alone,
/// reads as the class that was asked for; "frechet": the distance of Fréchet between its features
/// of drawn and real digits.
train::Logs judge_digits(models::DDPM& net, data::AnyPipeline test, int64_t samples,
                         int64_t sampler_steps);
/// "map50": the mean over the classes of the average precision at an overlap of 0.5.
train::Logs judge_boxes(models::Detector& net, data::AnyPipeline test);

}  // namespace tandem::cli
