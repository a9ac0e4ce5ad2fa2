// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/recipe.h"

#include <algorithm>
#include <cmath>

#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tandem/train/callbacks.h"

namespace tandem::train {
namespace {

size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t best = std::min({row[j] + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1])});
      corner = std::exchange(row[j], best);
    }
  }
  return row[b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 2) + 1;
  for (const std::string& k : known)
    if (size_t d = distance(word, k); d < least) {
      least = d;
      best = k;
    }
  return best;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? "" : ", ") + n;
  return out;
}

template <class Map>
const typename Map::mapped_type& component(const Map& map, Options& o, const char* what) {
  const std::string type = o.text("type");
  if (auto it = map.find(type); it != map.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [name, f] : map) names.push_back(name);
  const std::string near = nearest(type, names);
  o.fail("type", fmt::format("there is no {} '{}'{}", what, type,
                             near.empty() ? ". There are " + list_of(names)
                                          : fmt::format(", did you mean '{}'?", near)));
}

}  // namespace

Options::Options(const io::Yaml* map, std::string path, std::string what)
    : map_(map), path_(std::move(path)), what_(std::move(what)) {
  TD_CHECK(!map_ || map_->kind == io::Yaml::Kind::map, Value, "{} line {}: '{}' wants a map", what_,
           map_->line, path_);
}

void Options::fail(const std::string& key, const std::string& what) const {
  const io::Yaml* v = map_ ? map_->find(key) : nullptr;
  const int line = v ? v->line : map_ ? map_->line : 0;
  TD_FAIL(Value, "{}{}: {}{}{}: {}", what_, line > 0 ? fmt::format(" line {}", line) : "", path_,
          path_.empty() ? "" : ".", key, what);
}

const io::Yaml* Options::want(const std::string& key, bool optional) {
  known_.push_back(key);
  const io::Yaml* v = map_ ? map_->find(key) : nullptr;
  if (v && v->kind == io::Yaml::Kind::null) v = nullptr;
  if (!v && !optional) {
    // A key that nearly is this one is more likely the mistake.
    finish();
    fail(key, "is missing");
  }
  return v;
}

double Options::number(const std::string& key, std::optional<double> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) return *otherwise;
  const auto d = v->as_double();
  if (!d) fail(key, fmt::format("wants a number, got '{}'", v->text));
  return *d;
}
int64_t Options::whole(const std::string& key, std::optional<int64_t> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) return *otherwise;
  const auto n = v->as_int();
  if (!n) fail(key, fmt::format("wants a whole number, got '{}'", v->text));
  return *n;
}
bool Options::flag(const std::string& key, std::optional<bool> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) return *otherwise;
  const auto b = v->as_bool();
  if (!b) fail(key, fmt::format("wants true or false, got '{}'", v->text));
  return *b;
}
std::string Options::text(const std::string& key, std::optional<std::string> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) return *otherwise;
  if (v->kind != io::Yaml::Kind::scalar) fail(key, "wants a text");
  return v->text;
}
std::vector<double> Options::numbers(const std::string& key,
                                     std::optional<std::vector<double>> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) return *otherwise;
  std::vector<double> out;
  for (const io::Yaml& item : v->items) {
    if (!item.as_double()) fail(key, fmt::format("wants numbers, got '{}'", item.text));
    out.push_back(*item.as_double());
  }
  if (v->kind != io::Yaml::Kind::list) fail(key, "wants a list of numbers");
  return out;
}
std::vector<std::string> Options::texts(const std::string& key,
                                        std::vector<std::string> otherwise) {
  const io::Yaml* v = want(key, true);
  if (!v) return otherwise;
  if (v->kind != io::Yaml::Kind::list) fail(key, "wants a list");
  std::vector<std::string> out;
  for (const io::Yaml& item : v->items) out.push_back(item.text);
  return out;
}
Options Options::part(const std::string& key) {
  const io::Yaml* v = want(key, true);
  return Options(v, path_.empty() ? key : path_ + "." + key, what_);
}

void Options::finish() const {
  if (!map_) return;
  for (const std::string& key : map_->keys) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string near = nearest(key, known_);
    fail(key, near.empty() ? fmt::format("there is no such key. There are {}", list_of(known_))
                           : fmt::format("there is no such key, did you mean '{}'?", near));
  }
}

Registry Registry::standard() {
  Registry r;
  r.loss["cross_entropy"] = [](Options& o) -> RecipeLoss {
    const double smoothing = o.number("label_smoothing", 0.0);
    return [smoothing](const Tensor& out, const Tensor& y) {
      return cross_entropy(out, y, {.label_smoothing = smoothing});
    };
  };
  r.loss["mse"] = [](Options&) -> RecipeLoss {
    return [](const Tensor& out, const Tensor& y) { return mse_loss(out, y); };
  };
  r.loss["bce_with_logits"] = [](Options&) -> RecipeLoss {
    return [](const Tensor& out, const Tensor& y) {
      return binary_cross_entropy_with_logits(out, y.to(out.dtype()));
    };
  };
  return r;
}

Recipe Recipe::load(const FilePath& path, const std::vector<std::string>& overrides) {
  Recipe r;
  r.file = path.str();
  r.root = io::parse_yaml(read_file(path, size_t{1} << 20), r.file);
  TD_CHECK(r.root.kind == io::Yaml::Kind::map, Format, "{}: a recipe wants a map", r.file);
  for (const std::string& text : overrides) {
    const size_t at = text.find('=');
    TD_CHECK(at != text.npos, Value, "'{}' is no override such as optim.lr=1e-3", text);
    io::set_yaml(r.root, text.substr(0, at), text.substr(at + 1));
  }
  return r;
}

std::string Recipe::name() const {
  const io::Yaml* n = root.find("recipe");
  return n && n->kind == io::Yaml::Kind::scalar ? n->text : "recipe";
}

namespace {

std::vector<double> two(Options& o, const char* key, double a, double b) {
  std::vector<double> v = o.numbers(key, std::vector<double>{a, b});
  if (v.size() != 2) o.fail(key, "wants two numbers");
  return v;
}

// Weight decay on matrices only where `decay: matrices` says so, as language models want it; or on
// the parameters of the modules that `decay_on` names.
optim::ParamList params_for(Options& o, const nn::Module& m, double decay) {
  const std::string on = o.text("decay", "all");
  if (on != "all" && on != "matrices") o.fail("decay", "wants 'all' or 'matrices'");
  const std::vector<std::string> modules = o.texts("decay_on", {});
  if (on == "all" && modules.empty()) return m.parameters();
  std::vector<bool> found(modules.size());
  optim::ParamGroup decayed, rest;
  for (const auto& [name, p] : m.named_parameters()) {
    bool named = modules.empty();
    for (size_t i = 0; i < modules.size(); ++i)
      if (name == modules[i] || name.starts_with(modules[i] + ".")) named = found[i] = true;
    const bool in = named && (on == "all" || p.dim() >= 2);
    (in ? decayed : rest).params.push_back(p);
  }
  for (size_t i = 0; i < modules.size(); ++i)
    if (!found[i])
      o.fail("decay_on", fmt::format("the model has no parameters under '{}'", modules[i]));
  decayed.weight_decay = decay;
  rest.weight_decay = 0.0;
  std::vector<optim::ParamGroup> groups;
  for (optim::ParamGroup* g : {&decayed, &rest})
    if (!g->params.empty()) groups.push_back(std::move(*g));
  return groups;
}

std::unique_ptr<optim::Optimizer> make_optimizer(Options& o, const nn::Module& m) {
  const std::string type = o.text("type");
  const double decay = o.number("weight_decay", type == "adamw" ? 0.01 : 0.0);
  optim::ParamList params = params_for(o, m, decay);
  std::unique_ptr<optim::Optimizer> opt;
  if (type == "sgd") {
    opt = std::make_unique<optim::SGD>(std::move(params),
                                       optim::SGDOptions{.lr = o.number("lr", 1e-2),
                                                         .momentum = o.number("momentum", 0.0),
                                                         .weight_decay = decay,
                                                         .nesterov = o.flag("nesterov", false)});
  } else if (type == "adam" || type == "adamw") {
    const double lr = o.number("lr", 1e-3), eps = o.number("eps", 1e-8);
    const std::vector<double> b = two(o, "betas", 0.9, 0.999);
    if (type == "adam")
      opt = std::make_unique<optim::Adam>(
          std::move(params),
          optim::AdamOptions{.lr = lr, .betas = {b[0], b[1]}, .eps = eps, .weight_decay = decay});
    else
      opt = std::make_unique<optim::AdamW>(
          std::move(params),
          optim::AdamWOptions{.lr = lr, .betas = {b[0], b[1]}, .eps = eps, .weight_decay = decay});
  } else if (type == "adadelta") {
    opt = std::make_unique<optim::Adadelta>(std::move(params),
                                            optim::AdadeltaOptions{.lr = o.number("lr", 1.0),
                                                                   .rho = o.number("rho", 0.9),
                                                                   .eps = o.number("eps", 1e-6),
                                                                   .weight_decay = decay});
  } else if (type == "rmsprop") {
    opt = std::make_unique<optim::RMSprop>(std::move(params),
                                           optim::RMSpropOptions{.lr = o.number("lr", 1e-2),
                                                                 .alpha = o.number("alpha", 0.99),
                                                                 .eps = o.number("eps", 1e-8),
                                                                 .weight_decay = decay});
  } else {
    o.fail("type", fmt::format("there is no optimizer '{}'. There are sgd, adam, adamw, adadelta, "
                               "rmsprop",
                               type));
  }
  o.finish();
  return opt;
}

// A factor of the base rate as a function of the step; empty for a constant rate.
std::function<double(int64_t)> make_schedule(Options& o, double lr, int64_t total) {
  if (!o.has("type")) {
    o.finish();
    return {};
  }
  const std::string type = o.text("type");
  const int64_t warmup = o.whole("warmup_steps", 0), steps = o.whole("steps", total);
  const double low = o.number("min_lr", 0.0) / lr;
  std::function<double(double)> shape;
  if (type == "constant")
    shape = [](double) { return 1.0; };
  else if (type == "cosine")
    shape = [low](double t) { return low + (1 - low) * 0.5 * (1 + std::cos(M_PI * t)); };
  else if (type == "linear")
    shape = [low](double t) { return 1 + (low - 1) * t; };
  else
    o.fail("type",
           fmt::format("there is no schedule '{}'. There are constant, cosine, linear", type));
  o.finish();
  return [=](int64_t step) {
    if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
    const double span = static_cast<double>(std::max<int64_t>(steps - warmup, 1));
    return shape(std::min(1.0, static_cast<double>(step - warmup) / span));
  };
}

TrainerOptions trainer_options(Options& o, bool progress) {
  TrainerOptions t;
  t.max_epochs = o.whole("epochs", t.max_epochs);
  t.max_steps = o.whole("max_steps", t.max_steps);
  t.max_seconds = o.number("max_seconds", t.max_seconds);
  t.accumulate = o.whole("accumulate", t.accumulate);
  t.clip_norm = o.number("clip_norm", t.clip_norm);
  t.compile = o.flag("compile", t.compile);
  t.metrics = o.texts("metrics", {"accuracy"});
  t.train_metrics = o.flag("train_metrics", t.train_metrics);
  t.log_every = o.whole("log_every", t.log_every);
  t.val_every_epochs = o.whole("val_every", t.val_every_epochs);
  t.save_every_steps = o.whole("save_every", t.save_every_steps);
  t.checkpoints.keep_last = o.whole("keep", t.checkpoints.keep_last);
  t.monitor = o.text("monitor", "");
  const std::string precision = o.text("precision", "fp32");
  if (precision != "fp32" && precision != "bf16") o.fail("precision", "wants fp32 or bf16");
  t.bf16 = precision == "bf16";
  const std::string nonfinite = o.text("on_nonfinite", "stop");
  if (nonfinite != "stop" && nonfinite != "skip" && nonfinite != "off")
    o.fail("on_nonfinite", "wants stop, skip or off");
  t.on_nonfinite = nonfinite == "stop"   ? OnNonFinite::stop
                   : nonfinite == "skip" ? OnNonFinite::skip
                                         : OnNonFinite::off;
  t.progress = progress;
  return t;
}

}  // namespace

RecipeRun run_recipe(const Recipe& recipe, const Registry& registry, const std::string& folder,
                     bool progress) {
  Options root(&recipe.root, "", recipe.file);
  root.text("recipe", "");
  root.text("note", "");
  const int64_t seed = root.whole("seed", 0);
  manual_seed(static_cast<uint64_t>(seed));
  if (root.has("agent")) {
    Options agent = root.part("agent");
    root.part("expect");
    root.finish();
    const auto& run = component(registry.agent, agent, "agent");
    return run(agent, {.seed = static_cast<uint64_t>(seed),
                       .folder = folder,
                       .files = {{"recipe.yaml", recipe.root.dump()}},
                       .progress = progress});
  }
  Options data_o = root.part("data"), model_o = root.part("model"), loss_o = root.part("loss"),
          optim_o = root.part("optim"), sched_o = root.part("sched"),
          train_o = root.part("trainer");
  root.part("expect");
  root.finish();
  // All of the text is checked before any data is read or any step is made.
  TrainerOptions options = trainer_options(train_o, progress);
  Options stop_o = train_o.part("early_stop");
  std::shared_ptr<EarlyStopping> early;
  if (train_o.has("early_stop"))
    early = std::make_shared<EarlyStopping>(
        EarlyStoppingOptions{.monitor = stop_o.text("monitor", "val/loss"),
                             .patience = stop_o.whole("patience", 3),
                             .restore_best_weights = stop_o.flag("restore_best", true)});
  stop_o.finish();
  train_o.finish();
  const auto& make_data = component(registry.data, data_o, "data set");
  const auto& make_model = component(registry.model, model_o, "model");
  RecipeLoss loss;
  if (root.has("loss")) loss = component(registry.loss, loss_o, "loss")(loss_o);
  loss_o.finish();
  RecipeData data = make_data(data_o, static_cast<uint64_t>(seed));
  data_o.finish();
  RecipeModel model = make_model(model_o, data.info);
  model_o.finish();
  if (model.step && loss) root.fail("loss", "this model has a loss of its own: leave 'loss' out");
  if (!model.step && !loss) root.fail("loss", "is missing");
  std::unique_ptr<optim::Optimizer> opt = make_optimizer(optim_o, *model.module);
  const int64_t per_epoch = (data.train.size() + options.accumulate - 1) / options.accumulate;
  int64_t total = per_epoch * options.max_epochs;
  if (options.max_steps >= 0) total = std::min(total, options.max_steps);
  const auto rate = make_schedule(sched_o, opt->lr(), total);
  std::unique_ptr<optim::LambdaLR> schedule;
  if (rate) schedule = std::make_unique<optim::LambdaLR>(*opt, optim::LambdaLROptions{rate});
  options.folder = folder;
  if (!folder.empty()) options.files = {{"recipe.yaml", recipe.root.dump()}};
  const StepFunction step = model.step ? model.step : [&](const Batch& b) {
    const auto [output, target] = model.forward(b);
    return StepOutput{loss(output, target), output, target};
  };
  Trainer trainer(*model.module, step, *opt, options);
  if (schedule) trainer.schedule(*schedule);
  if (early) trainer.add(early);
  if (!folder.empty()) trainer.add(std::make_shared<TensorBoard>(folder));
  RecipeRun run;
  run.fit = trainer.fit(data.train, data.val);
  if (data.test && !run.fit.interrupted) {
    run.test = trainer.validate(*data.test, "test/");
    if (model.judge) {
      model.module->eval();
      for (const auto& [key, value] : model.judge(*data.test))
        run.test.emplace_back("test/" + key, value);
    }
  }
  if (!folder.empty()) save(model.module->state_dict(), folder + "/model.safetensors");
  return run;
}

Expectation expectation_of(const Recipe& recipe) {
  const io::Yaml* block = recipe.root.find("expect");
  TD_CHECK(block, Value, "{} has no 'expect:'", recipe.file);
  Options o(block, "expect", recipe.file);
  Expectation e;
  e.metric = o.text("metric");
  if (o.has("at_least")) e.at_least = o.number("at_least");
  if (o.has("at_most")) e.at_most = o.number("at_most");
  if (!o.has("at_least")) o.number("at_least", 0.0);
  if (!o.has("at_most")) o.number("at_most", 0.0);
  for (double s : o.numbers("seeds", std::vector<double>{0, 1, 2}))
    e.seeds.push_back(static_cast<int64_t>(s));
  const std::string reduce = o.text("reduce", "mean");
  if (reduce != "mean" && reduce != "each") o.fail("reduce", "wants mean or each");
  e.each = reduce == "each";
  e.budget_seconds = o.number("budget_seconds", 0.0);
  o.finish();
  TD_CHECK((e.at_least || e.at_most) && !e.seeds.empty(), Value,
           "{}: expect wants at_least or at_most, and seeds", recipe.file);
  return e;
}

}  // namespace tandem::train
