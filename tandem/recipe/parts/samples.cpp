// SPDX-License-Identifier: Apache-2.0
// `trainer.samples` of a recipe: what a model that generates images draws as it learns.
#include "tandem/base/files/folder.h"
#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/recipe/parts/parts_internal.h"
#include "tandem/recipe/sample_files.h"
#include "tandem/runs/event_file.h"

namespace tandem::recipe {
namespace {

class DrawSamples : public train::Callback {
 public:
  DrawSamples(nn::Module& module, std::function<RecipeSamples()> draw, std::string folder)
      : module_(module), draw_(std::move(draw)), folder_(std::move(folder)) {}
  void epoch_end(train::Trainer& t, const train::Logs&) override {
    const GeneratorState rng = generator_state();
    const bool training = module_.is_training();
    const NoGradGuard no_grad;
    const DeviceGuard there(t.optimizer().params().front().device());
    module_.eval();
    RecipeSamples drawn = draw_();
    drawn.values = drawn.values.cpu();
    module_.train(training);
    set_generator_state(rng);
    make_folders(folder_ + "/samples");
    write_samples(drawn, fmt::format("{}/samples/epoch-{:04}.png", folder_, t.epoch() + 1), 0);
    if (!events_) events_.emplace(folder_);
    events_->image("samples", image_grid(drawn.values), t.step());
  }
  const char* name() const override { return "DrawSamples"; }

 private:
  nn::Module& module_;
  std::function<RecipeSamples()> draw_;
  std::string folder_;
  std::optional<runs::EventFile> events_;
};

}  // namespace

std::shared_ptr<train::Callback> recipe_samples(const Options& o, const RecipeModel& model,
                                                const DataFacts& facts, const std::string& folder,
                                                int64_t count) {
  if (!model.generate || model.generate.text)
    o.fail("samples", "this model generates no images\nvae, ddpm and dcgan do.");
  io::Yaml n;
  n.kind = io::Yaml::Kind::scalar;
  n.text = std::to_string(count);
  io::Yaml map;
  map.kind = io::Yaml::Kind::map;
  map.keys.emplace_back("--n");
  map.items.push_back(std::move(n));
  Options options(&map, "", "trainer.samples");
  return std::make_shared<DrawSamples>(
      *model.module, model.generate.start(options, {.facts = facts, .prompts = {}, .stream = {}}),
      folder);
}

}  // namespace tandem::recipe
