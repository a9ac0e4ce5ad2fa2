// SPDX-License-Identifier: Apache-2.0
// Recipes: a run as YAML. Every part is the name of a registered component and its arguments; there
// are not expressions. Options reads one part: what it was asked for is known, and what is left
// over at the end is an error that names the nearest right key and its line.
#pragma once

#include <array>
#include <map>

#include "tandem/io/yaml.h"
#include "tandem/models/open_dim.h"
#include "tandem/train/trainer.h"

namespace tandem::recipe {

/// One map of a recipe. Every get() is also a line of the resolved recipe.
class TD_API Options {
 public:
  /// `path`: where it stands, "optim"; `what`: the file's name. `resolved`, if given, is told every
  /// key that was asked for with the value that counts, and `resumable` the paths of may_change().
  Options(const io::Yaml* map, std::string path, std::string what,
          std::shared_ptr<io::Yaml> resolved = {},
          std::shared_ptr<std::vector<std::string>> resumable = {});
  double number(const std::string& key, std::optional<double> otherwise = {});
  int64_t whole(const std::string& key, std::optional<int64_t> otherwise = {});
  bool flag(const std::string& key, std::optional<bool> otherwise = {});
  std::string text(const std::string& key, std::optional<std::string> otherwise = {});
  /// A list of numbers; one number stands for a list of one.
  std::vector<double> numbers(const std::string& key, std::optional<std::vector<double>> otherwise);
  std::vector<std::string> texts(const std::string& key, std::vector<std::string> otherwise);
  /// A map inside this one; read it to its end before this one's.
  Options part(const std::string& key);
  /// The maps of a list, each to be read to its end. `otherwise` (it must outlive them) is the list
  /// where the recipe has none.
  std::vector<Options> parts(const std::string& key, const io::Yaml* otherwise = nullptr);
  bool has(const std::string& key) const { return map_ && map_->find(key); }
  /// Is it there and neither a list nor a map, nor a number?
  bool is_text(const std::string& key) const;
  bool is_number(const std::string& key) const;
  bool is_null(const std::string& key) const;
  /// A resumed run may have other values of `key` and of all below it.
  void may_change(const std::string& key);
  /// `key` is known, and this is its value in the resolved recipe.
  void resolve_as(const std::string& key, const io::Yaml& value);
  /// Throws Value for keys that nobody asked for.
  void finish() const;
  /// The keys that were asked for, and those that are there and were not.
  const std::vector<std::string>& known() const { return known_; }
  std::vector<std::string> left() const;
  /// Where it stands, "optim"; empty at the root.
  const std::string& path() const { return path_; }
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;

 private:
  const io::Yaml* want(const std::string& key, bool optional);
  void resolve(const std::string& key, const io::Yaml& value);
  std::string path_of(const std::string& key) const;
  const io::Yaml* map_;
  std::string path_, what_;
  std::vector<std::string> known_;
  std::shared_ptr<io::Yaml> resolved_;
  std::shared_ptr<std::vector<std::string>> resumable_;
};

/// What a run keeps of its data besides sizes, so that its model can be used without the data.
struct DataFacts {
  std::vector<std::string> classes = {};  ///< their names, where they have any
  /// Of text byte by byte: the byte of each id, or -1 for the end of a line, which also begins one
  /// too.
  std::vector<int64_t> characters = {};
  /// [c, h, w] of images that lie in arrays, before transforms.
  std::vector<int64_t> image = {};
  /// What else its Preparation needs, such as the words of a vocabulary; null: nothing.
  io::Json kept = {};
};
/// A field of the training batches, its batch size as the first dimension.
struct BatchField {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};
/// What data.json of a run's folder holds.
struct RunData {
  std::map<std::string, int64_t> info;
  std::vector<BatchField> fields;
  DataFacts facts;
};

/// What the samples of a data set are made of.
enum class SampleKind : uint8_t {
  image,  ///< a JPEG or PNG file
  sound,  ///< a WAV or FLAC file
  table,  ///< lines of CSV, a sample each
  text,   ///< a text, or lines with a text each
};
/// Samples as a model takes them.
struct PreparedBatch {
  train::Batch fields;  ///< the inputs, with a batch dimension
  /// Of an image, where pixels come from: x and y in the file are x * [0] + [1] and y * [2] + [3]
  /// of those here. Nothing if the preparation does not tell.
  std::optional<std::array<double, 4>> origin = {};
};
/// A sample after decoding: an image u8 [c, h, w], sound f32 [channels, time].
struct SampleForm {
  DType dtype = DType::u8;
  std::vector<int64_t> shape = {};  ///< -1: any size
  int64_t sample_rate = 0;          ///< of sound
};
/// Makes inputs of the bytes of a file in the way of the test set's samples.
struct Preparation {
  SampleKind kind = SampleKind::image;
  std::function<PreparedBatch(std::string_view bytes, const std::string& name)> read;
  /// The inputs of a decoded sample, by ops alone, so that a trace may hold them; empty where
  /// samples are not tensors.
  std::function<std::vector<Tensor>(const Tensor& sample)> inputs = {};
  SampleForm form = {};
};

/// What a data component gives.
struct RecipeData {
  data::AnyPipeline train;
  std::optional<data::AnyPipeline> val, test;
  std::map<std::string, int64_t> info;  ///< "classes", "vocabulary": what a model may ask for
  /// Training batches hold probabilities of classes (MixUp, CutMix): metrics take the likeliest.
  bool mixed_labels = false;
  /// How often damaged samples were met and passed over; none: they are not passed over. A run says
  /// it at its end, as "data/damaged".
  std::function<int64_t()> damaged = {};
  DataFacts facts = {};
};
/// Objects detected in an image, best first.
struct FoundBoxes {
  Tensor boxes;   ///< f32 [k, 4]: x1, y1, x2, y2 in pixels of the model's input
  Tensor scores;  ///< f32 [k] in 0..1
  Tensor labels;  ///< i64 [k]
};
/// What a model generated.
struct RecipeSamples {
  std::vector<std::string> texts = {};  ///< after each prompt
  Tensor values = {};                   ///< or arrays [n, ...]; images are 0..1
  std::vector<int64_t> labels = {};     ///< the classes that were asked for
};
/// What a model needs to generate samples, besides its options.
struct GenerateContext {
  DataFacts facts;
  std::vector<std::string> prompts = {};  ///< of text: a row for each
  /// Called with what is new in the text of a row; false stops the row.
  std::function<bool(size_t row, const std::string& text)> stream = {};
};
/// How a model generates samples.
struct RecipeGenerator {
  bool text = false;  ///< else arrays
  /// Reads its options ("--temperature") and gives the work, so that options left over are
  /// refused before it.
  std::function<std::function<RecipeSamples()>(Options&, const GenerateContext&)> start = {};
  explicit operator bool() const { return static_cast<bool>(start); }
};
/// What a model component gives: the module, and its output and target for a batch.
struct RecipeModel {
  std::shared_ptr<nn::Module> module;
  std::function<std::pair<Tensor, Tensor>(const train::Batch&)> forward = {};
  /// In place of `forward` for a model with a loss of its own; its recipe has no `loss:`.
  train::StepFunction step = {};
  /// Further figures of the trained model over the test set, such as "map50".
  std::function<train::Logs(data::AnyPipeline test)> evaluate = {};
  /// The module on inputs alone, for prediction and export, where that is not the output of
  /// `forward`: the fields of a batch that `predict_fields` names, from the first on.
  std::function<Tensor(const train::Batch& inputs)> predict = {};
  std::vector<std::string> predict_fields = {"x"};
  /// Of each of these fields, the dimensions that may have any size.
  std::vector<models::OpenDims> open = {{"batch"}};
  /// What `predict` gave for one image as an image u8 [c, h, w]: a mask, a drawing.
  std::function<Tensor(const Tensor& output)> image = {};
  /// And as boxes, those of at least this score.
  std::function<FoundBoxes(const Tensor& output, double score)> boxes = {};
  /// All that `boxes` chooses from, by ops alone: boxes [k, 4] and scores [k, classes].
  std::function<std::vector<Tensor>(const Tensor& output)> candidates = {};
  RecipeGenerator generate = {};
  /// A step with several optimizers; `step` is then train::sum_of_losses() of it.
  train::UpdateStep updates = {};
  /// Their names, each with the part of the module that it trains. `optim:` of the recipe is for
  /// all of them, or holds a part for each by its name; `sched:` likewise.
  std::vector<std::pair<std::string, nn::Module*>> optimizers = {};
  /// Names of the figures that the step gives besides its losses.
  std::vector<std::string> figures = {};
};
/// What a loss component gives: the loss of output and target. `prepare`, if there is one, sees the
/// data before the first step (class weights that are counted).
struct RecipeLoss {
  RecipeLoss() = default;
  template <class F>
    requires std::is_invocable_r_v<Tensor, F&, const Tensor&, const Tensor&> RecipeLoss(F f)
        : function(std::move(f)) {}
    Tensor operator()(const Tensor& output, const Tensor& target) const {
      return function(output, target);
    }
    explicit operator bool() const { return static_cast<bool>(function); }

    std::function<Tensor(const Tensor& output, const Tensor& target)> function = {};
    std::function<void(const RecipeData& data)> prepare = {};
};

struct RecipeRun {
  std::string folder = "";  ///< what it left; empty: nothing
  train::FitResult fit;
  train::Logs test;  ///< "test/loss", the metrics and what the model's `evaluate` says; empty
                     ///< without test data
};
/// What a component that trains by itself (an agent in an environment) needs.
struct RecipeContext {
  uint64_t seed = 0;
  std::string folder;  ///< empty: write no files
  /// To be kept in the folder and in checkpoints: asked for when all options have been read, and
  /// again when a run is resumed.
  std::function<std::vector<std::pair<std::string, std::string>>()> files = {};
  train::ResumeHooks resume = {};  ///< to be asked when a run is resumed
  bool progress = true;
};

/// The components that recipes may name; a program may add its own.
struct TD_API Registry {
  std::map<std::string, std::function<RecipeData(Options&, uint64_t seed)>> data;
  /// How samples that a user gives are prepared as those of the test set, by the data's part of
  /// the recipe and what the run keeps, without the data. Data of arrays alone has none.
  std::map<std::string, std::function<Preparation(Options&, const RunData&)>> prepare;
  std::map<std::string,
           std::function<RecipeModel(Options&, const std::map<std::string, int64_t>& info)>>
      model;
  std::map<std::string, std::function<RecipeLoss(Options&)>> loss;
  /// Of recipes with `agent:` in place of data, model, loss, optim, sched and trainer.
  std::map<std::string, std::function<RecipeRun(Options&, const RecipeContext&)>> agent;
  /// Of `export:`: the trained model out of a run folder that ended well, into it.
  std::map<std::string, std::function<void(const std::string& folder)>> exporter;
  /// All that the library has. Data is looked for under `data.root`, else under TANDEM_DATA.
  /// Without `init_weights` models come without the weights of `init_from`: for runs that have
  /// weights of their own.
  static Registry standard(bool init_weights = true);
};

/// A recipe as read from a file with its overrides.
struct TD_API Recipe {
  std::string file;
  io::Yaml root;
  /// `overrides`: "optim.lr=1e-3". Throws Io, Format, Value.
  static Recipe load(const FilePath& path, const std::vector<std::string>& overrides = {});
  std::string name() const;
};

/// Run a recipe; `folder` empty: write no files. Throws Value for a wrong key, naming the
/// nearest right one and its line.
TD_API RecipeRun run_recipe(const Recipe& recipe, const Registry& registry,
                            const std::string& folder, bool progress = true,
                            const std::vector<std::shared_ptr<train::Callback>>& callbacks = {});

/// A recipe put together and not yet run.
struct RecipeParts {
  RecipeData& data;
  RecipeModel& model;
  train::Trainer& trainer;
  const io::Yaml& resolved;  ///< every key with its value, defaults too
};
/// Make the parts of a recipe as run_recipe() does, and hand them to `use` in place of training.
TD_API void with_recipe(const Recipe& recipe, const Registry& registry,
                        const std::function<void(RecipeParts&)>& use);
/// The validation or test set of the parts through its model, into evaluation.json and report.html
/// of a run's folder. Gives the values. `outputs` is called with the model's output for each batch.
TD_API train::Logs evaluate_run(RecipeParts& parts, const std::string& split,
                                const std::string& folder,
                                const std::function<void(const Tensor& output)>& outputs = {});
enum class RunWeights : uint8_t {
  last,  ///< those that the run ended with: model.safetensors, else the newest checkpoint
  best,  ///< those of the checkpoint with the best value of the run's monitor
};
/// Of "last" and "best"; throws Value for another word.
TD_API RunWeights run_weights_of(const std::string& name);
/// The weights of a run's folder; of a run with an average, the average's. Throws Io when there are
/// none.
TD_API StateDict run_weights(const std::string& folder, RunWeights which = RunWeights::last);
/// The same into the run's model. Throws Value or Shape for another model than the run's.
TD_API void load_run_weights(nn::Module& model, const std::string& folder,
                             RunWeights which = RunWeights::last);

/// What `expect:` of a recipe wants.
struct Expectation {
  std::string metric;
  std::optional<double> at_least, at_most;
  std::vector<int64_t> seeds;
  bool each = false;          ///< every seed must meet it, not only their mean
  double budget_seconds = 0;  ///< 0: none
};
/// Throws Value when there is none or it is not whole.
TD_API Expectation expectation_of(const Recipe& recipe);

}  // namespace tandem::recipe
