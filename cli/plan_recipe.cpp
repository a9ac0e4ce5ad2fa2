// SPDX-License-Identifier: Apache-2.0
// A recipe as something to plan: its model and loss on the shapes of one batch of its data.
#include "cli/plan_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/base/nearest.h"
#include "tandem/graph/dry_run.h"
#include "tandem/ops/ops.h"

namespace tandem::cli {
namespace {

template <class Map>
const typename Map::mapped_type& component(const Map& known, train::Options& o, const char* what) {
  const std::string type = o.text("type");
  if (const auto at = known.find(type); at != known.end()) return at->second;
  std::vector<std::string> names;
  for (const auto& [name, make] : known) names.push_back(name);
  const std::string near = nearest_word(type, names);
  o.fail("type", std::string("there is no ") + what + " '" + type + "'" +
                     (near.empty() ? "" : ", did you mean '" + near + "'?"));
}

}  // namespace

plan::Job recipe_job(const std::string& path, int64_t* batch) {
  auto recipe = std::make_shared<train::Recipe>(train::Recipe::load(path));
  auto registry = std::make_shared<train::Registry>(recipe_registry());
  train::Options root(&recipe->root, "", recipe->file);
  train::Options data_o = root.part("data");
  train::RecipeData data = component(registry->data, data_o, "data set")(
      data_o, static_cast<uint64_t>(root.whole("seed", 0)));
  const train::Batch sample = data.train.fields(0);
  TD_CHECK(!sample.empty(), Value, "{}: the data has no batch", path);
  plan::Job job;
  job.name = recipe->name();
  if (batch) *batch = sample[0].size(0);
  double bytes = 0;
  for (const Tensor& t : sample)
    bytes += static_cast<double>(t.numel()) * static_cast<double>(size_of(t.dtype()));
  job.sample_bytes = bytes / static_cast<double>(sample[0].size(0));
  job.sample_from = "the batches of the recipe's data";
  struct Shaped {
    Shape shape;
    DType dtype;
  };
  std::vector<Shaped> shapes;
  for (const Tensor& t : sample) shapes.push_back({t.shape(), t.dtype()});
  job.make = [recipe, registry, shapes, info = data.info](int64_t batch) {
    train::Options top(&recipe->root, "", recipe->file);
    train::Options model_o = top.part("model"), loss_o = top.part("loss");
    auto model = std::make_shared<train::RecipeModel>(
        component(registry->model, model_o, "model")(model_o, info));
    auto loss =
        std::make_shared<train::RecipeLoss>(component(registry->loss, loss_o, "loss")(loss_o));
    auto m = std::make_shared<plan::JobModel>();
    m->parameters = model->module->parameters();
    m->buffers = model->module->buffers();
    m->to = [model](DType d) { model->module->to(d); };
    m->train = [model](bool on) { model->module->train(on); };
    for (const Shaped& s : shapes) {
      Shape shape = s.shape;
      if (shape.rank() > 0) shape[0] = batch;
      m->inputs.push_back(zeros(shape, s.dtype));
    }
    m->forward = [model](const std::vector<Tensor>& in) {
      return model->forward(train::Batch(in.begin(), in.end())).first;
    };
    m->loss = [model, loss](const std::vector<Tensor>& in) {
      auto out = model->forward(train::Batch(in.begin(), in.end()));
      return (*loss)(out.first, out.second);
    };
    return m;
  };
  return job;
}

}  // namespace tandem::cli
