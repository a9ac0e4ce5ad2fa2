// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/files/folder.h"
#include "tandem/base/log.h"
#include "tandem/base/nearest.h"
#include "tandem/dist/process_group.h"
#include "tandem/dist/rank_device.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tandem/recipe/events_internal.h"
#include "tandem/recipe/parts/parts_internal.h"
#include "tandem/recipe/run_data.h"
#include "tandem/recipe/run_settings_internal.h"
#include "tandem/recipe/train.h"
#include "tandem/runs/run_folder.h"
#include "tandem/runs/run_record.h"

namespace tandem::recipe {
namespace {

template <class Map>
const typename Map::mapped_type& component(const Map& map, Options& o, const char* what) {
  const std::string type = o.text("type");
  if (auto it = map.find(type); it != map.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [name, f] : map) names.push_back(name);
  const std::string near = nearest_word(type, names);
  o.fail("type", fmt::format("there is no {} '{}'{}", what, type,
                             near.empty() ? fmt::format(". There are {}", fmt::join(names, ", "))
                                          : fmt::format(", did you mean '{}'?", near)));
}

// `trainer.parallel: tp=2,pp=2` for `{tp: 2, pp: 2}`.
void read_parallel_text(Recipe& r) {
  const io::Yaml* trainer = r.root.find("trainer");
  const io::Yaml* parallel = trainer ? trainer->find("parallel") : nullptr;
  if (!parallel || parallel->kind != io::Yaml::Kind::scalar || parallel->text.empty()) return;
  const std::string text = parallel->text;
  io::set_yaml(r.root, "trainer.parallel", "{}");
  for (const std::string& pair : words_of(text, ',')) {
    const size_t at = pair.find('=');
    TD_CHECK(
        at != pair.npos, Value,
        "{}: trainer.parallel: '{}' is not a size such as tp=2\nWrite trainer.parallel=tp=2,pp=2.",
        r.file, pair);
    io::set_yaml(r.root, "trainer.parallel." + pair.substr(0, at), pair.substr(at + 1));
  }
}

}  // namespace

Recipe Recipe::load(const FilePath& path, const std::vector<std::string>& overrides) {
  Recipe r;
  r.file = path.str();
  r.root = io::parse_yaml(read_file(path, size_t{1} << 20), r.file);
  TD_CHECK(r.root.kind == io::Yaml::Kind::map, Format, "{}: a recipe expects a map", r.file);
  for (const std::string& text : overrides) {
    const size_t at = text.find('=');
    TD_CHECK(at != text.npos, Value, "'{}' is not an override such as optim.lr=1e-3", text);
    io::set_yaml(r.root, text.substr(0, at), text.substr(at + 1));
  }
  read_parallel_text(r);
  return r;
}

std::string Recipe::name() const {
  const io::Yaml* n = root.find("recipe");
  return n && n->kind == io::Yaml::Kind::scalar ? n->text : "recipe";
}

namespace {

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
                   const train::TrainerOptions& options, const RecipeModel& model, bool has_val) {
  std::vector<std::string> known{"train/loss"}, figures = model.figures;
  for (const auto& [name, part] : model.optimizers) {
    figures.push_back(name + "_loss");
    known.push_back("lr/" + name);
  }
  if (model.optimizers.empty()) known.emplace_back("lr");
  for (const std::string& f : figures) {
    known.push_back("train/" + f);
    if (has_val) known.push_back("val/" + f);
  }
  for (const std::string& m : options.metrics) {
    if (options.logging.train_metrics) known.push_back("train/" + m);
    if (has_val) known.push_back("val/" + m);
  }
  if (has_val) known.emplace_back("val/loss");
  const std::string wanted = train::log_name(monitor);
  if (std::find(known.begin(), known.end(), wanted) != known.end()) return;
  std::sort(known.begin(), known.end());
  const std::string near = nearest_word(wanted, known);
  o.fail("monitor", fmt::format("'{}' is not logged{}{}", monitor,
                                near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
                                fmt::format("{}There are {}.{}", near.empty() ? ". " : " ",
                                            fmt::join(known, ", "),
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
RecipeRun run_agent(const Recipe& recipe, const Registry& registry, Options& root,
                    RunSettings& settings, int64_t seed, const std::string& folder, bool progress,
                    bool train) {
  Options agent = root.part("agent");
  root.part("expect");
  root.finish();
  TD_CHECK(train, Unsupported,
           "'{}' trains an agent in an environment: it has no data and model of its own to look at",
           recipe.file);
  const auto& run = component(registry.agent, agent, "agent");
  std::optional<runs::RunLock> lock;
  if (!folder.empty()) lock.emplace(folder);
  return run(agent, {.seed = static_cast<uint64_t>(seed),
                     .folder = folder,
                     .files =
                         [&] {
                           if (!folder.empty()) note_job(folder, recipe);
                           return settings.files();
                         },
                     .resume = {[&](const train::Snapshot& s) { settings.resume(s, folder); },
                                [&] { return settings.text(); }},
                     .progress = progress});
}

// A batch size that the recipe asks for is one that training has.
void check_batch(Options& o, const RecipeData& data) {
  if (!o.has("batch") || !o.is_number("batch") || data.train.size() > 1) return;
  const int64_t batch = o.whole("batch");
  if (data.train.size() == 0)
    o.fail("batch",
           fmt::format("{} leaves no whole batch to train on: there are fewer samples, and "
                       "drop_last drops them",
                       batch));
  const auto samples = static_cast<int64_t>(data.train.samples_of(0).size());
  if (samples > 0 && batch > samples)
    o.fail("batch",
           fmt::format("expected {} or less, as many samples as there are to train on, got {}",
                       samples, batch));
}

// One step takes the batches of at most one epoch.
void check_accumulation(Options& o, int64_t accumulate, int64_t batches) {
  if (accumulate > std::max<int64_t>(batches, 1))
    o.fail("accumulate", fmt::format("expected {} or less, as many batches as an epoch has, got {}",
                                     batches, accumulate));
}

void check_batches(Options& data_o, Options& train_o, int64_t accumulate, const RecipeData& data) {
  check_batch(data_o, data);
  check_accumulation(train_o, accumulate, data.train.size());
}

// The names under `export`, all of them known.
std::vector<std::string> exports_of(Options& root, const Registry& registry) {
  const std::vector<std::string> exports = root.texts("export", {});
  for (const std::string& name : exports)
    if (!registry.exporter.count(name)) {
      std::vector<std::string> names;
      for (const auto& [known, f] : registry.exporter) names.push_back(known);
      root.fail("export",
                fmt::format("there is no export '{}'. There are {}", name, fmt::join(names, ", ")));
    }
  return exports;
}

template <class Make>
RecipeModel model_of(const Recipe& recipe, const Make& make, Options& o, const RecipeData& data,
                     bool later) {
  const DeferredInitGuard values(later);
  RecipeModel model = in_part(recipe, "model", [&] { return make(o, data.info); });
  o.finish();
  return model;
}

RecipeOptimizers optimizers_of(const Recipe& recipe, Options& optim_o, Options& sched_o,
                               const RecipeModel& model, const train::TrainerOptions& options,
                               int64_t size, bool later) {
  const DeferredInitGuard moments(later);
  RecipeOptimizers all = in_part(recipe, "optim", [&] { return make_optimizers(optim_o, model); });
  const int64_t batches = train::planned_batches(options, size);
  const int64_t per_epoch = batches / options.accumulate + (batches % options.accumulate != 0);
  in_part(recipe, "sched",
          [&] { make_schedules(sched_o, all, train::planned_updates(options, size), per_epoch); });
  return all;
}

// The trainer of the model's step, or of its steps.
void make_trainer(std::optional<train::Trainer>& to, RecipeModel& model, train::StepFunction step,
                  const RecipeOptimizers& optimizers, const train::TrainerOptions& options) {
  if (model.updates)
    to.emplace(*model.module, model.updates, optimizers.named, options);
  else
    to.emplace(*model.module, std::move(step), *optimizers.made.front(), options);
  for (const RecipeSchedule& s : optimizers.schedules)
    if (!s.parts.empty()) to->schedule(*s.parts.back());
}

// Those that the recipe names.
void add_callbacks(train::Trainer& trainer, const TrainerPart& part,
                   const RecipeOptimizers& optimizers, const std::string& folder) {
  if (part.early_stop)
    trainer.add(std::make_shared<train::EarlyStopping>(part.early_stop->options));
  if (optimizers.plateau) trainer.add(optimizers.plateau);
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
    if (!told.empty() && holds_run(told)) report_anyway(told);  // not where it was refused
    throw;
  }
  if (!folder.empty())
    save(nn::prune::plain_state(parts.model.module->state_dict()), folder + "/model.safetensors");
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

// What a run leaves about itself, as soon as the folder is this process's own.
struct FolderBegins : train::Callback {
  const Recipe& recipe;
  std::string folder, data;  ///< `data`: data.json
  FolderBegins(const Recipe& r, std::string f, std::string d)
      : recipe(r), folder(std::move(f)), data(std::move(d)) {}
  void fit_begin(train::Trainer& t) override {
    note_job(folder, recipe);
    write_file(folder + "/data.json", data);
    for (const char* name : {"/nonfinite.txt", "/nonfinite_batch.safetensors"})
      remove_folder(folder + name);  // of a part that failed
    if (t.step() == 0) return;
    // Of the end of an earlier part: the checkpoints are newer from here on.
    for (const char* name : {"/model.safetensors", "/evaluation.json"})
      remove_folder(folder + name);
  }
  const char* name() const override { return "FolderBegins"; }
  bool reads_weights() const override { return false; }
};

/// Everything of a recipe that a run needs.
struct Going {
  const Recipe& recipe;
  RecipeParts& parts;
  const TrainerPart& part;
  const CompressPart& compress;
  const RecipeOptimizers& optimizers;
  RunSettings& settings;
  std::vector<ResumedRates>& rates;
  const std::shared_ptr<train::Callback>& samples;  ///< draws images at each epoch's end, or null
  bool main;                                        ///< false: another rank writes and tests
};

void place_model(const Recipe& recipe, RecipeModel& model, const std::string& device, bool later) {
  if (device == "cpu") return;
  const DeferredInitGuard values(later);
  in_part(recipe, "trainer", [&] {
    model.module->to(is_data_parallel(recipe) ? distributed::device_of_rank(device)
                                              : device_named(device));
  });
}

// Do ranks share out what they train, or does the host take the optimizer's state from a device?
// Then model and optimizer are shapes and recipes until the trainer knows who keeps what.
bool shared_out(const Recipe& recipe, const train::TrainerOptions& o, const std::string& device) {
  using train::TrainStrategy;
  const bool shares = o.parallel.spreads() || o.strategy == TrainStrategy::zero1 ||
                      o.strategy == TrainStrategy::zero2 || o.strategy == TrainStrategy::fsdp;
  return (shares && is_data_parallel(recipe)) ||
         (o.offload == train::TrainOffload::optimizer && device != "cpu");
}

// Trains what was made, with what recipes have besides: callbacks, the record of settings, exports.
RecipeRun train_made(const Going& g,
                     const std::vector<std::shared_ptr<train::Callback>>& callbacks) {
  train::Trainer& trainer = g.parts.trainer;
  const std::string folder = g.main ? trainer.options().folder : "";
  add_callbacks(trainer, g.part, g.optimizers, folder);
  for (const auto& c : compress_callbacks(g.compress)) trainer.add(c);
  for (const auto& c : callbacks) trainer.add(c);
  if (!folder.empty()) {
    if (g.samples) trainer.add(g.samples);
    trainer.add(
        recipe_events(folder, g.parts.resolved, g.settings.files()[0].second, g.part.histograms));
    if (g.part.report) trainer.add(std::make_shared<train::WatchLayers>());
    trainer.add(std::make_shared<FolderBegins>(g.recipe, folder, run_data_text(g.parts.data)));
  }
  trainer.on_resume({[&](const train::Snapshot& s) {
                       g.settings.resume(s, folder);
                       trainer.options().saving.files = g.settings.files();
                       for (ResumedRates& r : g.rates) r.before(s);
                     },
                     [&] {
                       for (ResumedRates& r : g.rates) r.after();
                       return g.settings.text();
                     }});
  if (!g.main) return {.fit = trainer.fit(g.parts.data.train, g.parts.data.val)};
  return train_parts(g.parts, folder, g.part.report);
}

// What a recipe says of itself; gives the seed, which counts from here on.
int64_t begin_recipe(Options& root) {
  for (const char* free : {"recipe", "note", "export", "expect", "search", "tune"})
    root.may_change(free);
  root.text("recipe", "");
  root.text("note", "");
  const int64_t seed = root.whole("seed", 0);
  if (seed < 0) root.fail("seed", fmt::format("expected 0 or more, got {}", seed));
  manual_seed(static_cast<uint64_t>(seed));
  return seed;
}

// A model has a loss of its own, or the recipe names one.
void check_loss(const Options& root, const RecipeModel& model, const RecipeLoss& loss) {
  if (model.step && loss) root.fail("loss", "this model has a loss of its own: leave 'loss' out");
  if (!model.step && !loss) root.fail("loss", "is missing");
}

// Makes the parts of a recipe and trains them. With `use` they are handed over instead.
RecipeRun go(const Recipe& recipe, const Registry& registry, const std::string& folder,
             bool progress, const std::vector<std::shared_ptr<train::Callback>>& callbacks,
             const std::function<void(RecipeParts&)>& use) {
  const auto resolved = std::make_shared<io::Yaml>();
  const auto resumable = std::make_shared<std::vector<std::string>>();
  resolved->kind = io::Yaml::Kind::map;
  Options root(&recipe.root, "", recipe.file, resolved, resumable);
  RunSettings settings(recipe, resolved, resumable);
  const int64_t seed = begin_recipe(root);
  const bool main = !is_data_parallel(recipe) || distributed::get_rank() == 0;
  TD_CHECK(!root.has("agent") || !is_data_parallel(recipe), Unsupported,
           "{}: agents are trained by one rank\nStart it without tandem launch.", recipe.file);
  if (root.has("agent"))
    return run_agent(recipe, registry, root, settings, seed, folder, progress, !use);
  Options data_o = root.part("data"), model_o = root.part("model"), loss_o = root.part("loss"),
          optim_o = root.part("optim"), sched_o = root.part("sched"),
          train_o = root.part("trainer");
  for (const char* elsewhere : {"expect", "search", "tune"}) root.part(elsewhere);
  const std::vector<std::string> exports = exports_of(root, registry);
  const CompressPart compress = read_compress(root);
  root.finish();
  // All of the text is checked before any data is read or any step is made.
  const TrainerPart part =
      in_part(recipe, "trainer", [&] { return read_trainer(train_o, progress); });
  train::TrainerOptions options = train::with_switches(part.options);
  // Does it leave something behind? Then nobody else may write there, before data is read.
  options.folder = options.debug.fast_dev_run == 0 && !options.debug.barebones ? folder : "";
  std::optional<runs::RunLock> lock;
  if (!options.folder.empty() && !use && main) lock.emplace(options.folder);
  const Options stop_o = train_o.part("early_stop");
  const auto& make_data = component(registry.data, data_o, "data set");
  const auto& make_model = component(registry.model, model_o, "model");
  RecipeLoss loss;
  if (root.has("loss")) loss = component(registry.loss, loss_o, "loss")(loss_o);
  loss_o.finish();
  RecipeData data =
      in_part(recipe, "data", [&] { return make_data(data_o, static_cast<uint64_t>(seed)); });
  data_o.finish();
  if (!use) check_batches(data_o, train_o, options.accumulate, data);
  const bool has_val = data.val || options.debug.overfit_batches > 0;
  const bool later = !use && shared_out(recipe, options, part.device);
  RecipeModel model = model_of(recipe, make_model, model_o, data, later);
  in_part(recipe, compress.prune ? "prune" : "quant",
          [&] { prepare_compressed(compress, *model.module, !use); });
  place_model(recipe, model, part.device, later);
  if (part.early_stop)
    check_monitor(stop_o, part.early_stop->options.monitor, options, model, has_val);
  if (!options.saving.monitor.empty())
    check_monitor(train_o, options.saving.monitor, options, model, has_val);
  check_loss(root, model, loss);
  const RecipeOptimizers optimizers =
      optimizers_of(recipe, optim_o, sched_o, model, options, data.train.size(), later);
  if (loss.prepare) in_part(recipe, "loss", [&] { loss.prepare(data); });
  if (const io::Yaml* expect = recipe.root.find("expect")) {
    resolved->keys.emplace_back("expect");
    resolved->items.push_back(*expect);
  }
  if (!folder.empty()) options.saving.files = settings.files();
  train::StepFunction step = step_of(model, loss, data);
  if (!use)
    step = in_part(recipe, "distill", [&] { return taught(compress, *model.module, step); });
  std::optional<train::Trainer> made;
  in_part(recipe, "trainer",
          [&] { make_trainer(made, model, std::move(step), optimizers, options); });
  RecipeParts parts{data, model, *made, *resolved};
  if (use) {
    use(parts);
    return {};
  }
  std::shared_ptr<train::Callback> samples;
  if (part.samples > 0 && main)
    samples = recipe_samples(train_o, model, data.facts, folder, part.samples);
  std::vector<ResumedRates> rates;
  for (size_t k = 0; k < optimizers.made.size(); ++k) rates.emplace_back(settings, optimizers, k);
  RecipeRun run = train_made(
      {recipe, parts, part, compress, optimizers, settings, rates, samples, main}, callbacks);
  if (!options.folder.empty() && !run.fit.interrupted && main)
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
  if (reduce != "mean" && reduce != "each") o.fail("reduce", "expected mean or each");
  e.each = reduce == "each";
  e.budget_seconds = o.number("budget_seconds", 0.0);
  o.finish();
  TD_CHECK((e.at_least || e.at_most) && !e.seeds.empty(), Value,
           "{}: expect expects at_least or at_most, and seeds", recipe.file);
  return e;
}

}  // namespace tandem::recipe
