// SPDX-License-Identifier: Apache-2.0
// A recipe as something to plan: its model and loss on the shapes of one batch of its data.
#include "cli/plan_internal.h"
#include "tandem/base/nearest.h"
#include "tandem/graph/dry_run.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optimizers.h"
#include "tandem/recipe/recipe.h"

namespace tandem::cli {
namespace {

template <class Map>
const typename Map::mapped_type& component(const Map& known, recipe::Options& o, const char* what) {
  const std::string type = o.text("type");
  if (const auto at = known.find(type); at != known.end()) return at->second;
  std::vector<std::string> names;
  for (const auto& [name, make] : known) names.push_back(name);
  const std::string near = nearest_word(type, names);
  o.fail("type", std::string("there is no ") + what + " '" + type + "'" +
                     (near.empty() ? "" : ", did you mean '" + near + "'?"));
}

// The plan's name of a recipe's optimizer: what state it keeps decides.
std::string optimizer_of(recipe::Options& o) {
  const std::string type = o.text("type");
  const optim::OptimizerRow* row = optim::optimizers().find(type);
  if (!row || row->needs_closure) o.fail("type", optim::optimizers().unknown(type));
  const std::string name = row->type;
  return name == "SGD" && o.number("momentum", 0.0) > 0 ? "SGD-momentum" : name;
}

// As recipe::run_recipe() reads it.
void read_trainer(recipe::Options& o, plan::PlanRequest& r) {
  const train::TrainerOptions usual;
  r.compiled = o.flag("compile", usual.compile);
  r.accumulate = static_cast<int>(o.whole("accumulate", usual.accumulate));
  // The norm is taken to see that it is finite, too.
  r.clip_norm =
      o.number("clip_norm", usual.clip_norm) > 0 || o.text("on_nonfinite", "stop") != "off";
  const std::string precision = o.text("precision", "fp32");
  r.precision = plan::precision_of(precision);
  r.epochs = static_cast<double>(o.whole("epochs", usual.max_epochs));
}

}  // namespace

plan::PlanRequest recipe_request(const std::string& path) {
  auto recipe = std::make_shared<recipe::Recipe>(recipe::Recipe::load(path));
  auto registry = std::make_shared<recipe::Registry>(recipe::Registry::standard(false));
  recipe::Options root(&recipe->root, "", recipe->file);
  TD_CHECK(!root.has("agent"), Unsupported,
           "'{}' trains an agent in an environment: it has no batch of data to plan", path);
  plan::PlanRequest r;
  recipe::Options trainer_o = root.part("trainer"), optim_o = root.part("optim");
  read_trainer(trainer_o, r);
  if (root.has("optim")) r.optimizer = optimizer_of(optim_o);
  recipe::Options data_o = root.part("data");
  recipe::RecipeData data = component(registry->data, data_o, "data set")(
      data_o, static_cast<uint64_t>(root.whole("seed", 0)));
  const train::Batch sample = data.train.fields(0);
  TD_CHECK(!sample.empty(), Value, "{}: the data has no batch", path);
  const int64_t batch = sample[0].size(0);
  r.batch = batch * r.accumulate;
  plan::Job& job = r.job;
  job.name = recipe->name();
  double bytes = 0;
  for (const Tensor& t : sample)
    bytes += static_cast<double>(t.numel()) * static_cast<double>(size_of(t.dtype()));
  job.sample_bytes = bytes / static_cast<double>(batch);
  job.sample_from = "the batches of the recipe's data";
  r.data = {.name = "the recipe's data",
            .samples = static_cast<double>(data.train.size() * batch),
            .source = "its batches, the last one counted as full",
            .files = false};
  struct Shaped {
    Shape shape;
    DType dtype;
  };
  std::vector<Shaped> shapes;
  for (const Tensor& t : sample) shapes.push_back({t.shape(), t.dtype()});
  job.make = [recipe, registry, shapes, info = data.info](int64_t batch) {
    recipe::Options top(&recipe->root, "", recipe->file);
    recipe::Options model_o = top.part("model"), loss_o = top.part("loss");
    auto model = std::make_shared<recipe::RecipeModel>(
        component(registry->model, model_o, "model")(model_o, info));
    // A model may have a loss of its own.
    auto loss = std::make_shared<recipe::RecipeLoss>();
    if (!model->step) *loss = component(registry->loss, loss_o, "loss")(loss_o);
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
      if (model->step) return model->step(train::Batch(in.begin(), in.end())).loss;
      auto out = model->forward(train::Batch(in.begin(), in.end()));
      return (*loss)(out.first, out.second);
    };
    return m;
  };
  return r;
}

}  // namespace tandem::cli
