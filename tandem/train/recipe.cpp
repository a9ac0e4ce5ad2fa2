// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/recipe.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/folder.h"
#include "tandem/base/nearest.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tandem/train/recipe_events_internal.h"

namespace tandem::train {
namespace {

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
  const std::string near = nearest_word(type, names);
  o.fail("type", fmt::format("there is no {} '{}'{}", what, type,
                             near.empty() ? ". There are " + list_of(names)
                                          : fmt::format(", did you mean '{}'?", near)));
}

}  // namespace

Options::Options(const io::Yaml* map, std::string path, std::string what,
                 std::shared_ptr<io::Yaml> resolved)
    : map_(map), path_(std::move(path)), what_(std::move(what)), resolved_(std::move(resolved)) {
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

namespace {

io::Yaml scalar(std::string text, bool quoted = false) {
  io::Yaml y;
  y.kind = io::Yaml::Kind::scalar;
  y.text = std::move(text);
  y.quoted = quoted;
  return y;
}
io::Yaml scalar(double v) { return scalar(fmt::format("{}", v)); }
// A text that looks like a number wants quotes.
io::Yaml scalar_text(const std::string& v) {
  io::Yaml y = scalar(v);
  y.quoted = v.empty() || y.as_double() || y.as_bool();
  return y;
}
template <class T, class F>
io::Yaml list(const std::vector<T>& v, F each) {
  io::Yaml y;
  y.kind = io::Yaml::Kind::list;
  for (const T& x : v) y.items.push_back(each(x));
  return y;
}

}  // namespace

void Options::resolve(const std::string& key, const io::Yaml& value) {
  if (!resolved_) return;
  io::Yaml* at = resolved_.get();
  const std::string path = path_.empty() ? key : path_ + "." + key;
  for (size_t from = 0; from <= path.size();) {
    const size_t dot = std::min(path.find('.', from), path.size());
    const std::string word = path.substr(from, dot - from);
    at->kind = io::Yaml::Kind::map;
    auto it = std::find(at->keys.begin(), at->keys.end(), word);
    if (it == at->keys.end()) {
      at->keys.push_back(word);
      at->items.emplace_back();
      it = at->keys.end() - 1;
    }
    at = &at->items[static_cast<size_t>(it - at->keys.begin())];
    from = dot + 1;
  }
  *at = value;
}

double Options::number(const std::string& key, std::optional<double> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) {
    resolve(key, scalar(*otherwise));
    return *otherwise;
  }
  const auto d = v->as_double();
  if (!d) fail(key, fmt::format("wants a number, got '{}'", v->text));
  resolve(key, *v);
  return *d;
}
int64_t Options::whole(const std::string& key, std::optional<int64_t> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) {
    resolve(key, scalar(std::to_string(*otherwise)));
    return *otherwise;
  }
  const auto n = v->as_int();
  if (!n) fail(key, fmt::format("wants a whole number, got '{}'", v->text));
  resolve(key, *v);
  return *n;
}
bool Options::flag(const std::string& key, std::optional<bool> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) {
    resolve(key, scalar(*otherwise ? "true" : "false"));
    return *otherwise;
  }
  const auto b = v->as_bool();
  if (!b) fail(key, fmt::format("wants true or false, got '{}'", v->text));
  resolve(key, *v);
  return *b;
}
std::string Options::text(const std::string& key, std::optional<std::string> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) {
    resolve(key, scalar_text(*otherwise));
    return *otherwise;
  }
  if (v->kind != io::Yaml::Kind::scalar) fail(key, "wants a text");
  resolve(key, *v);
  return v->text;
}
std::vector<double> Options::numbers(const std::string& key,
                                     std::optional<std::vector<double>> otherwise) {
  const io::Yaml* v = want(key, otherwise.has_value());
  if (!v) {
    resolve(key, list(*otherwise, [](double x) { return scalar(x); }));
    return *otherwise;
  }
  std::vector<double> out;
  for (const io::Yaml& item : v->items) {
    if (!item.as_double()) fail(key, fmt::format("wants numbers, got '{}'", item.text));
    out.push_back(*item.as_double());
  }
  if (v->kind != io::Yaml::Kind::list) fail(key, "wants a list of numbers");
  resolve(key, *v);
  return out;
}
std::vector<std::string> Options::texts(const std::string& key,
                                        std::vector<std::string> otherwise) {
  const io::Yaml* v = want(key, true);
  if (!v) {
    resolve(key, list(otherwise, scalar_text));
    return otherwise;
  }
  if (v->kind != io::Yaml::Kind::list) fail(key, "wants a list");
  std::vector<std::string> out;
  for (const io::Yaml& item : v->items) out.push_back(item.text);
  resolve(key, *v);
  return out;
}
Options Options::part(const std::string& key) {
  const io::Yaml* v = want(key, true);
  return Options(v, path_.empty() ? key : path_ + "." + key, what_, resolved_);
}

void Options::finish() const {
  if (!map_) return;
  for (const std::string& key : map_->keys) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string near = nearest_word(key, known_);
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
  if (warmup < 0) o.fail("warmup_steps", fmt::format("wants 0 or more, got {}", warmup));
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
  if (t.clip_norm < 0) o.fail("clip_norm", "wants a norm above 0, or 0 for no clipping");
  if (t.max_epochs < 0) o.fail("epochs", fmt::format("wants 0 or more, got {}", t.max_epochs));
  if (t.accumulate < 1) o.fail("accumulate", fmt::format("wants 1 or more, got {}", t.accumulate));
  t.compile = o.flag("compile", t.compile);
  t.metrics = o.texts("metrics", {"accuracy"});
  t.train_metrics = o.flag("train_metrics", t.train_metrics);
  t.log_every = o.whole("log_every", t.log_every);
  if (t.log_every < 1)
    o.fail("log_every", fmt::format("wants 1 or more steps, got {}", t.log_every));
  t.val_every_epochs = o.whole("val_every", t.val_every_epochs);
  t.save_every_steps = o.whole("save_every", t.save_every_steps);
  t.checkpoints.keep_last = o.whole("keep", t.checkpoints.keep_last);
  t.monitor = o.text("monitor", "");
  const std::string precision = o.text("precision", "fp32");
  if (precision != "fp32" && precision != "bf16" && precision != "fp16")
    o.fail("precision", "wants fp32, bf16 or fp16");
  t.bf16 = precision == "bf16";
  t.f16 = precision == "fp16";
  const std::string nonfinite = o.text("on_nonfinite", "stop");
  if (nonfinite != "stop" && nonfinite != "skip" && nonfinite != "off")
    o.fail("on_nonfinite", "wants stop, skip or off");
  t.on_nonfinite = nonfinite == "stop"   ? OnNonFinite::stop
                   : nonfinite == "skip" ? OnNonFinite::skip
                                         : OnNonFinite::off;
  t.progress = progress;
  return t;
}

// What a model component asks of its data, and the form of its input: a run's model can then be
// made without the data.
void write_info(const std::string& folder, const RecipeData& data) {
  make_folders(folder);
  io::Json::Object info;
  for (const auto& [key, value] : data.info) info.emplace_back(key, value);
  io::Json::Object j{{"train", data.train.text()}, {"info", std::move(info)}};
  io::Json::Array fields;  // of the first batch, its size as the first dimension
  for (const Tensor& x : data.train.fields(0)) {
    io::Json::Array shape;
    for (int d = 0; d < x.dim(); ++d) shape.push_back(x.size(d));
    fields.push_back(
        io::Json::Object{{"dtype", to_string(x.dtype())}, {"shape", std::move(shape)}});
  }
  j.emplace_back("fields", std::move(fields));
  write_file(folder + "/data.json", io::Json(std::move(j)).dump(1) + "\n");
}

// What a component says of its arguments, with the place in the recipe. What names it already, and
// what is about files, stays as it is.
template <class F>
auto in_part(const Recipe& recipe, const char* part, F make) -> decltype(make()) {
  try {
    return make();
  } catch (const Error& e) {
    if ((e.kind() != ErrorKind::Value && e.kind() != ErrorKind::Shape) ||
        e.message().starts_with(recipe.file))
      throw;
    const io::Yaml* y = recipe.root.find(part);
    throw Error(e.kind(),
                fmt::format("{}{}: {}: {}{}", recipe.file,
                            y && y->line > 0 ? fmt::format(" line {}", y->line) : "", part,
                            e.op().empty() ? "" : e.op() + ": ", e.message()),
                e.hint(), "", e.where(), e.layer());
  }
}

// What a run logs, by name; `monitor` of trainer and early_stop must be among it.
void check_monitor(const Options& o, const std::string& monitor, const TrainerOptions& options,
                   bool has_val) {
  std::vector<std::string> known{"train/loss", "lr"};
  for (const std::string& m : options.metrics) {
    if (options.train_metrics) known.push_back("train/" + m);
    if (has_val) known.push_back("val/" + m);
  }
  if (has_val) known.emplace_back("val/loss");
  const std::string wanted = log_name(monitor);
  if (std::find(known.begin(), known.end(), wanted) != known.end()) return;
  std::sort(known.begin(), known.end());
  const std::string near = nearest_word(wanted, known);
  o.fail("monitor",
         fmt::format("'{}' is not logged{}{}", monitor,
                     near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
                     fmt::format("{}There are {}.{}", near.empty() ? ". " : " ", list_of(known),
                                 has_val ? ""
                                         : " This recipe has no validation data: "
                                           "data.val_part holds some out.")));
}

// The whole way of a recipe. With `use` its parts are handed over instead of trained.
RecipeRun go(const Recipe& recipe, const Registry& registry, const std::string& folder,
             bool progress, const std::vector<std::shared_ptr<Callback>>& callbacks,
             const std::function<void(RecipeParts&)>& use) {
  const auto resolved = std::make_shared<io::Yaml>();
  resolved->kind = io::Yaml::Kind::map;
  Options root(&recipe.root, "", recipe.file, resolved);
  root.text("recipe", "");
  root.text("note", "");
  const int64_t seed = root.whole("seed", 0);
  manual_seed(static_cast<uint64_t>(seed));
  if (root.has("agent")) {
    Options agent = root.part("agent");
    root.part("expect");
    root.finish();
    TD_CHECK(
        !use, Unsupported,
        "'{}' trains an agent in an environment: it has no data and model of its own to look at",
        recipe.file);
    const auto& run = component(registry.agent, agent, "agent");
    return run(agent, {.seed = static_cast<uint64_t>(seed),
                       .folder = folder,
                       .files = {{"recipe.yaml", recipe.root.dump()}},
                       .progress = progress});
  }
  Options data_o = root.part("data"), model_o = root.part("model"), loss_o = root.part("loss"),
          optim_o = root.part("optim"), sched_o = root.part("sched"),
          train_o = root.part("trainer");
  for (const char* elsewhere : {"expect", "search", "tune"}) root.part(elsewhere);
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
  const bool report = train_o.flag("report", true);
  const int64_t histograms = train_o.whole("histograms", 0);
  train_o.finish();
  const auto& make_data = component(registry.data, data_o, "data set");
  const auto& make_model = component(registry.model, model_o, "model");
  RecipeLoss loss;
  if (root.has("loss")) loss = component(registry.loss, loss_o, "loss")(loss_o);
  loss_o.finish();
  RecipeData data =
      in_part(recipe, "data", [&] { return make_data(data_o, static_cast<uint64_t>(seed)); });
  data_o.finish();
  if (early) check_monitor(stop_o, stop_o.text("monitor", "val/loss"), options, !!data.val);
  if (!options.monitor.empty()) check_monitor(train_o, options.monitor, options, !!data.val);
  RecipeModel model = in_part(recipe, "model", [&] { return make_model(model_o, data.info); });
  model_o.finish();
  if (model.step && loss) root.fail("loss", "this model has a loss of its own: leave 'loss' out");
  if (!model.step && !loss) root.fail("loss", "is missing");
  std::unique_ptr<optim::Optimizer> opt =
      in_part(recipe, "optim", [&] { return make_optimizer(optim_o, *model.module); });
  const int64_t per_epoch = (data.train.size() + options.accumulate - 1) / options.accumulate;
  int64_t total = per_epoch * options.max_epochs;
  if (options.max_steps >= 0) total = std::min(total, options.max_steps);
  const auto rate = make_schedule(sched_o, opt->lr(), total);
  std::unique_ptr<optim::LambdaLR> schedule;
  if (rate) schedule = std::make_unique<optim::LambdaLR>(*opt, optim::LambdaLROptions{rate});
  options.folder = folder;
  if (const io::Yaml* expect = recipe.root.find("expect")) {
    resolved->keys.emplace_back("expect");
    resolved->items.push_back(*expect);
  }
  if (!folder.empty())
    options.files = {{"recipe.yaml", recipe.root.dump()}, {"config.yaml", resolved->dump()}};
  const StepFunction step = model.step ? model.step : [&](const Batch& b) {
    const auto [output, target] = model.forward(b);
    return StepOutput{loss(output, target), output, target};
  };
  std::optional<Trainer> made;
  in_part(recipe, "trainer", [&] { made.emplace(*model.module, step, *opt, options); });
  Trainer& trainer = *made;
  if (schedule) trainer.schedule(*schedule);
  RecipeParts parts{data, model, trainer, *resolved};
  if (use) {
    use(parts);
    return {};
  }
  if (early) trainer.add(early);
  for (const auto& c : callbacks) trainer.add(c);
  if (!folder.empty()) {
    trainer.add(recipe_events(folder, *resolved, options.files[0].second, histograms));
    write_info(folder, data);
    if (report) trainer.add(std::make_shared<WatchLayers>());
  }
  RecipeRun run;
  run.fit = trainer.fit(data.train, data.val);
  if (!folder.empty()) save(model.module->state_dict(), folder + "/model.safetensors");
  if (run.fit.interrupted) return run;
  const std::string told = report ? folder : "";
  if (data.test)
    run.test = judge_run(parts, "test", told);
  else if (!told.empty())
    judge_run(parts, data.val ? "val" : "", told);
  return run;
}

}  // namespace

RecipeRun run_recipe(const Recipe& recipe, const Registry& registry, const std::string& folder,
                     bool progress, const std::vector<std::shared_ptr<Callback>>& callbacks) {
  return go(recipe, registry, folder, progress, callbacks, {});
}
void with_recipe(const Recipe& recipe, const Registry& registry,
                 const std::function<void(RecipeParts&)>& use) {
  go(recipe, registry, "", false, {}, use);
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
