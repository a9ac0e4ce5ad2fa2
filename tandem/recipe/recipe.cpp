// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/recipe.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/folder.h"
#include "tandem/base/log.h"
#include "tandem/base/nearest.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tandem/recipe/events_internal.h"
#include "tandem/recipe/parts_internal.h"
#include "tandem/recipe/run_data.h"
#include "tandem/runs/run_record.h"

namespace tandem::recipe {
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
    from = dot + 1;
    if (at->kind == io::Yaml::Kind::list) {  // parts() has made its maps
      at = &at->items.at(std::stoul(word));
      continue;
    }
    at->kind = io::Yaml::Kind::map;
    auto it = std::find(at->keys.begin(), at->keys.end(), word);
    if (it == at->keys.end()) {
      at->keys.push_back(word);
      at->items.emplace_back();
      it = at->keys.end() - 1;
    }
    at = &at->items[static_cast<size_t>(it - at->keys.begin())];
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
  if (v->as_double()) {
    resolve(key, *v);
    return {*v->as_double()};
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
std::vector<Options> Options::parts(const std::string& key, const io::Yaml* otherwise) {
  const io::Yaml* v = want(key, true);
  if (!v) v = otherwise;
  if (v && v->kind != io::Yaml::Kind::list)
    fail(key, fmt::format("wants a list of maps, such as [{{type: ...}}], got '{}'", v->text));
  io::Yaml empty;
  empty.kind = io::Yaml::Kind::map;
  std::vector<Options> out;
  const size_t n = v ? v->items.size() : 0;
  resolve(key, list(std::vector<io::Yaml>(n, empty), [](const io::Yaml& y) { return y; }));
  for (size_t i = 0; i < n; ++i)
    out.emplace_back(&v->items[i],
                     fmt::format("{}{}{}.{}", path_, path_.empty() ? "" : ".", key, i), what_,
                     resolved_);
  return out;
}

bool Options::is_text(const std::string& key) const {
  const io::Yaml* v = map_ ? map_->find(key) : nullptr;
  return v && v->kind == io::Yaml::Kind::scalar && !v->as_double();
}

bool Options::is_number(const std::string& key) const {
  const io::Yaml* v = map_ ? map_->find(key) : nullptr;
  return v && v->as_double();
}
bool Options::is_null(const std::string& key) const {
  const io::Yaml* v = map_ ? map_->find(key) : nullptr;
  return v && v->kind == io::Yaml::Kind::null;
}
void Options::resolve_as(const std::string& key, const io::Yaml& value) {
  known_.push_back(key);
  resolve(key, value);
}

std::vector<std::string> Options::left() const {
  std::vector<std::string> out;
  if (!map_) return out;
  for (const std::string& key : map_->keys)
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) out.push_back(key);
  return out;
}
void Options::finish() const {
  for (const std::string& key : left()) {
    const std::string near = nearest_word(key, known_);
    fail(key, near.empty() ? fmt::format("there is no such key. There are {}", list_of(known_))
                           : fmt::format("there is no such key, did you mean '{}'?", near));
  }
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

std::unique_ptr<optim::Optimizer> make_optimizer(Options& o, const nn::Module& m) {
  const RecipeOptimizer read = read_optimizer(o);
  RecipeParams params = recipe_params(o, m, read.weight_decay);
  o.finish();
  std::unique_ptr<optim::Optimizer> opt = read.make(std::move(params.groups));
  for (size_t g = 0; g < params.factors.size(); ++g)
    if (params.factors[g] != 1) opt->set_lr(opt->lr(g) * params.factors[g], g);
  return opt;
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
                e.hint(), "", e.loc(), e.layer());
  }
}

// What a run logs, by name; `monitor` of trainer and early_stop must be among it.
void check_monitor(const Options& o, const std::string& monitor,
                   const train::TrainerOptions& options, bool has_val) {
  std::vector<std::string> known{"train/loss", "lr"};
  for (const std::string& m : options.metrics) {
    if (options.logging.train_metrics) known.push_back("train/" + m);
    if (has_val) known.push_back("val/" + m);
  }
  if (has_val) known.emplace_back("val/loss");
  const std::string wanted = train::log_name(monitor);
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

// The report of a run that did not come to its end, as far as its files go.
void report_anyway(const std::string& folder) {
  try {
    write_file(folder + "/report.html", runs::run_report(runs::read_run(folder)));
  } catch (const Error& e) {
    log_warning("there is no report: {}", e.what());
  }
}

// A recipe with an agent, which trains in an environment.
RecipeRun run_agent(const Recipe& recipe, const Registry& registry, Options& root, int64_t seed,
                    const std::string& folder, bool progress, bool train) {
  Options agent = root.part("agent");
  root.part("expect");
  root.finish();
  TD_CHECK(train, Unsupported,
           "'{}' trains an agent in an environment: it has no data and model of its own to look at",
           recipe.file);
  const auto& run = component(registry.agent, agent, "agent");
  return run(agent, {.seed = static_cast<uint64_t>(seed),
                     .folder = folder,
                     .files = {{"recipe.yaml", recipe.root.dump()}},
                     .progress = progress});
}

// The names under `export`, all of them known.
std::vector<std::string> exports_of(Options& root, const Registry& registry) {
  const std::vector<std::string> exports = root.texts("export", {});
  for (const std::string& name : exports)
    if (!registry.exporter.count(name)) {
      std::vector<std::string> names;
      for (const auto& [known, f] : registry.exporter) names.push_back(known);
      root.fail("export",
                fmt::format("there is no export '{}'. There are {}", name, list_of(names)));
    }
  return exports;
}

RecipeSchedule schedule_of(Options& o, optim::Optimizer& optimizer,
                           const train::TrainerOptions& options, int64_t size) {
  const int64_t batches = train::planned_batches(options, size);
  const int64_t per_epoch = batches / options.accumulate + (batches % options.accumulate != 0);
  return make_schedule(o, optimizer, train::planned_updates(options, size), per_epoch);
}

// Those that the recipe names.
void add_callbacks(train::Trainer& trainer, const TrainerPart& part, const RecipeSchedule& schedule,
                   const std::string& folder) {
  if (part.early_stop)
    trainer.add(std::make_shared<train::EarlyStopping>(part.early_stop->options));
  if (schedule.plateau) trainer.add(schedule.plateau);
  for (const train::ChosenCallback& c : part.callbacks)
    trainer.add(train::make_callback(c, folder));
}

// A batch through the model and its loss.
train::StepFunction step_of(RecipeModel& model, RecipeLoss& loss, const RecipeData& data) {
  if (model.step) return model.step;
  return [&](const train::Batch& b) {
    const auto [output, target] = model.forward(b);
    const bool mixed = data.mixed_labels && is_floating(target.dtype());
    return train::StepOutput{loss(output, target), output, mixed ? argmax(target, 1) : target};
  };
}

// Trains and evaluates; leaves weights and reports in the run's folder, if there is one.
RecipeRun train_parts(RecipeParts& parts, const std::string& folder, bool report) {
  const std::string told = report ? folder : "";
  RecipeData& data = parts.data;
  RecipeRun run;
  try {
    run.fit = parts.trainer.fit(data.train, data.val);
  } catch (...) {
    if (!told.empty()) report_anyway(told);
    throw;
  }
  if (!folder.empty()) save(parts.model.module->state_dict(), folder + "/model.safetensors");
  if (run.fit.interrupted) {
    if (!told.empty() && !run.fit.preempted) report_anyway(told);
  } else if (data.test) {
    run.test = evaluate_run(parts, "test", told);
  } else if (!told.empty()) {
    evaluate_run(parts, data.val ? "val" : "", told);
  }
  if (data.damaged) run.fit.logs.emplace_back("data/damaged", static_cast<double>(data.damaged()));
  return run;
}

// Makes the parts of a recipe and trains them. With `use` they are handed over instead.
RecipeRun go(const Recipe& recipe, const Registry& registry, const std::string& folder,
             bool progress, const std::vector<std::shared_ptr<train::Callback>>& callbacks,
             const std::function<void(RecipeParts&)>& use) {
  const auto resolved = std::make_shared<io::Yaml>();
  resolved->kind = io::Yaml::Kind::map;
  Options root(&recipe.root, "", recipe.file, resolved);
  root.text("recipe", "");
  root.text("note", "");
  const int64_t seed = root.whole("seed", 0);
  manual_seed(static_cast<uint64_t>(seed));
  if (root.has("agent")) return run_agent(recipe, registry, root, seed, folder, progress, !use);
  Options data_o = root.part("data"), model_o = root.part("model"), loss_o = root.part("loss"),
          optim_o = root.part("optim"), sched_o = root.part("sched"),
          train_o = root.part("trainer");
  for (const char* elsewhere : {"expect", "search", "tune"}) root.part(elsewhere);
  const std::vector<std::string> exports = exports_of(root, registry);
  root.finish();
  // All of the text is checked before any data is read or any step is made.
  const TrainerPart part =
      in_part(recipe, "trainer", [&] { return read_trainer(train_o, progress); });
  train::TrainerOptions options = train::with_switches(part.options);
  const Options stop_o = train_o.part("early_stop");
  const auto& make_data = component(registry.data, data_o, "data set");
  const auto& make_model = component(registry.model, model_o, "model");
  RecipeLoss loss;
  if (root.has("loss")) loss = component(registry.loss, loss_o, "loss")(loss_o);
  loss_o.finish();
  RecipeData data =
      in_part(recipe, "data", [&] { return make_data(data_o, static_cast<uint64_t>(seed)); });
  data_o.finish();
  const bool has_val = data.val || options.debug.overfit_batches > 0;
  if (part.early_stop) check_monitor(stop_o, part.early_stop->options.monitor, options, has_val);
  if (!options.saving.monitor.empty())
    check_monitor(train_o, options.saving.monitor, options, has_val);
  RecipeModel model = in_part(recipe, "model", [&] { return make_model(model_o, data.info); });
  model_o.finish();
  if (model.step && loss) root.fail("loss", "this model has a loss of its own: leave 'loss' out");
  if (!model.step && !loss) root.fail("loss", "is missing");
  std::unique_ptr<optim::Optimizer> opt =
      in_part(recipe, "optim", [&] { return make_optimizer(optim_o, *model.module); });
  const RecipeSchedule schedule = in_part(
      recipe, "sched", [&] { return schedule_of(sched_o, *opt, options, data.train.size()); });
  if (loss.prepare) in_part(recipe, "loss", [&] { loss.prepare(data); });
  // Does it leave something behind?
  options.folder = options.debug.fast_dev_run == 0 && !options.debug.barebones ? folder : "";
  if (const io::Yaml* expect = recipe.root.find("expect")) {
    resolved->keys.emplace_back("expect");
    resolved->items.push_back(*expect);
  }
  if (!folder.empty())
    options.saving.files = {{"recipe.yaml", recipe.root.dump()}, {"config.yaml", resolved->dump()}};
  const train::StepFunction step = step_of(model, loss, data);
  std::optional<train::Trainer> made;
  in_part(recipe, "trainer", [&] { made.emplace(*model.module, step, *opt, options); });
  train::Trainer& trainer = *made;
  if (!schedule.parts.empty()) trainer.schedule(*schedule.parts.back());
  RecipeParts parts{data, model, trainer, *resolved};
  if (use) {
    use(parts);
    return {};
  }
  add_callbacks(trainer, part, schedule, options.folder);
  for (const auto& c : callbacks) trainer.add(c);
  if (!options.folder.empty()) {
    trainer.add(recipe_events(folder, *resolved, options.saving.files[0].second, part.histograms));
    write_run_data(folder, data);
    if (part.report) trainer.add(std::make_shared<train::WatchLayers>());
  }
  RecipeRun run = train_parts(parts, options.folder, part.report);
  if (!options.folder.empty() && !run.fit.interrupted)
    for (const std::string& name : exports) registry.exporter.at(name)(folder);
  return run;
}

}  // namespace

RecipeRun run_recipe(const Recipe& recipe, const Registry& registry, const std::string& folder,
                     bool progress,
                     const std::vector<std::shared_ptr<train::Callback>>& callbacks) {
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

}  // namespace tandem::recipe
