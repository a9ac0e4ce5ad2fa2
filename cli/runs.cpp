// SPDX-License-Identifier: Apache-2.0
// Verbs for existing runs (`tandem runs list|compare`, `tandem report`, `tandem eval`) and for new
// recipes (`tandem init-config`, `tandem render-config`).
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "cli/commands_internal.h"
#include "cli/progress_internal.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/nearest.h"
#include "tandem/init.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/train.h"
#include "tandem/runs/run_folder.h"
#include "tandem/runs/run_record.h"
#include "tandem/weights/weights.h"

namespace tandem::cli {
namespace {

std::string short_number(double v) { return std::isfinite(v) ? fmt::format("{:.5g}", v) : "-"; }

std::string age(double started) {
  if (!std::isfinite(started)) return "-";
  const double s = static_cast<double>(std::time(nullptr)) - started;
  if (s < 90) return fmt::format("{:.0f} s ago", std::max(s, 0.0));
  if (s < 5400) return fmt::format("{:.0f} min ago", s / 60);
  if (s < 172800) return fmt::format("{:.0f} h ago", s / 3600);
  return fmt::format("{:.0f} days ago", s / 86400);
}

io::Json as_json(const runs::RunRecord& r) {
  io::Json::Object values;
  if (const io::Json* v = r.evaluation.find("values"); v && v->as_object())
    for (const auto& [name, value] : *v->as_object()) values.emplace_back(name, value);
  for (const auto& [name, s] : r.values)
    if (name.rfind("val/", 0) == 0 || name == "train/loss")
      if (std::none_of(values.begin(), values.end(),
                       [&n = name](const auto& e) { return e.first == n; }))
        values.emplace_back(name, r.last(name));
  return io::Json::Object{{"folder", r.folder},   {"name", r.name},
                          {"status", r.status},   {"started", r.started},
                          {"seconds", r.seconds}, {"steps", r.steps},
                          {"epochs", r.epochs},   {"values", std::move(values)}};
}

void print_rows(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> wide(rows[0].size());
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) wide[c] = std::max(wide[c], row[c].size());
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c)
      line += fmt::format("{:<{}}", row[c], c + 1 < row.size() ? wide[c] + 2 : 0);
    fmt::print("{}\n", line);
  }
}

struct RunsOptions {
  std::vector<std::string> folders;
  std::string folder = "runs", html, metric, split, weights = "last", outputs;
  bool json = false, no_plot = false;
};

int list_verb(const RunsOptions& o) {
  TD_CHECK(file_exists(o.folder), Io,
           "there is no folder '{}'\nName the folder that holds the runs.", o.folder);
  const std::vector<runs::RunRecord> runs = runs::list_runs(o.folder);
  if (o.json) {
    io::Json::Array all;
    for (const runs::RunRecord& r : runs) all.push_back(as_json(r));
    fmt::print("{}\n", io::Json(std::move(all)).dump());
    return 0;
  }
  if (runs.empty()) {
    fmt::print("no runs in '{}'\n", o.folder);
    return 0;
  }
  std::vector<std::vector<std::string>> rows{
      {"run", "status", "started", "time", "steps", "result"}};
  for (const runs::RunRecord& r : runs) {
    const std::string metric = r.headline();
    // Whether a process of another machine is still there cannot be seen from here.
    std::string status = r.status;
    if (const io::Json* host = r.environment.find("host");
        status == "running" && host && !runs::is_local(r))
      status += " on " + io::text_of(host);
    rows.push_back({r.folder.substr(r.folder.rfind('/') + 1), status, age(r.started),
                    duration(r.seconds), fmt::format("{}", r.steps),
                    fmt::format("{} {}", metric, short_number(r.value(metric)))});
  }
  print_rows(rows);
  return 0;
}

int compare_verb(const RunsOptions& o) {
  std::vector<runs::RunRecord> runs;
  for (const std::string& f : o.folders) runs.push_back(runs::read_run(f));
  if (!o.html.empty()) {
    write_file(o.html, runs::compare_report(runs));
    fmt::print("{}\n", o.html);
  }
  if (o.json) {
    io::Json::Array all;
    for (const runs::RunRecord& r : runs) all.push_back(as_json(r));
    fmt::print("{}\n", io::Json(std::move(all)).dump());
    return 0;
  }
  std::vector<std::string> labels, names, shown;
  for (const runs::RunRecord& r : runs) {
    labels.push_back(r.folder.substr(r.folder.rfind('/') + 1));
    for (const auto& [name, s] : r.values)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    if (const io::Json* v = r.evaluation.find("values"); v && v->as_object())
      for (const auto& [name, value] : *v->as_object())
        if (std::find(shown.begin(), shown.end(), name) == shown.end()) shown.push_back(name);
  }
  if (!o.metric.empty() && std::find(names.begin(), names.end(), o.metric) == names.end()) {
    const std::string near = nearest_word(o.metric, names);
    std::string all;
    for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
    TD_FAIL(Value, "no run has a curve '{}'{}", o.metric,
            near.empty() ? "\nThere are " + all : fmt::format(", did you mean '{}'?", near));
  }
  for (const std::string& n : names)
    if (n.rfind("val/", 0) == 0 || n == "train/loss") shown.push_back(n);
  if (!o.no_plot) {
    std::vector<std::string> drawn;
    if (!o.metric.empty())
      drawn = {o.metric};
    else
      for (const char* n : {"val/loss", "train/loss"})
        if (drawn.empty() && std::find(names.begin(), names.end(), n) != names.end())
          drawn.emplace_back(n);
    for (const std::string& n : drawn) {
      std::vector<runs::Series> group;
      for (size_t k = 0; k < runs.size(); ++k)
        if (const runs::Series* s = runs[k].find(n)) {
          group.push_back(*s);
          group.back().name = labels[k];
        }
      fmt::print("{}\n", runs::terminal_plot(n, group, 78, 12, isatty(STDOUT_FILENO) != 0));
    }
  }
  std::vector<std::vector<std::string>> rows{{""}};
  rows[0].insert(rows[0].end(), labels.begin(), labels.end());
  auto add = [&](const std::string& key, auto value) {
    rows.push_back({key});
    for (const runs::RunRecord& r : runs) rows.back().push_back(value(r));
  };
  for (const std::string& n : shown)
    add(n, [&](const runs::RunRecord& r) { return short_number(r.value(n)); });
  add("steps", [](const runs::RunRecord& r) { return fmt::format("{}", r.steps); });
  add("time", [](const runs::RunRecord& r) { return duration(r.seconds); });
  std::map<std::string, int> keys;
  for (const runs::RunRecord& r : runs)
    for (const auto& [key, value] : r.settings) keys[key] = 0;
  for (const auto& [key, unused] : keys) {
    auto value = [&, k = key](const runs::RunRecord& r) {
      const auto it = r.settings.find(k);
      return it == r.settings.end() ? std::string("-") : it->second;
    };
    bool differs = false;
    for (const runs::RunRecord& r : runs) differs = differs || value(r) != value(runs[0]);
    if (differs) add(key, value);
  }
  print_rows(rows);
  return 0;
}

// One array of all rows; one array per batch where the batches differ in more than their size.
void write_outputs(const std::vector<Tensor>& batches, const std::string& file) {
  const auto sample = [](const Tensor& y) { return Shape(y.select(0, 0).shape()); };
  bool equal = true;
  for (const Tensor& y : batches) equal = equal && sample(y) == sample(batches[0]);
  StateDict named;
  if (equal && !batches.empty())
    named["output"] = cat(batches, 0);
  else
    for (size_t i = 0; i < batches.size(); ++i) named[fmt::format("output.{}", i)] = batches[i];
  weights::save_weights(named, file);
}

int eval_verb(const RunsOptions& o) {
  init();
  const std::string run = o.folders.at(0);
  std::vector<Tensor> outputs;
  recipe::EvaluateOptions options{.split = o.split, .weights = o.weights};
  options.overrides.assign(o.folders.begin() + 1, o.folders.end());
  if (!o.outputs.empty()) options.outputs = [&](const Tensor& y) { outputs.push_back(y); };
  const train::Logs logs = recipe::evaluate(run, options);
  if (!o.outputs.empty()) write_outputs(outputs, o.outputs);
  if (o.json) {
    io::Json::Object j{{"folder", run}};
    for (const auto& [name, value] : logs) j.emplace_back(name, value);
    fmt::print("{}\n", io::Json(std::move(j)).dump());
  } else {
    for (const auto& [name, value] : logs) fmt::print("  {:<16} {:.5g}\n", name, value);
    if (runs::run_writer(run))
      fmt::print("'{}' is being trained: its evaluation and report stay as they are\n", run);
    else
      fmt::print("{}/report.html\n", run);
  }
  return 0;
}

// ---- new recipes

std::string list_of(const auto& map) {
  std::string out;
  for (const auto& [name, f] : map) out += (out.empty() ? "" : ", ") + name;
  return out;
}

struct ConfigOptions {
  std::string recipe, out, data = "digits", model = "mlp", loss = "cross_entropy", optim = "adamw",
                           sched = "cosine";
  std::vector<std::string> overrides;
};

std::string resolved_text(const recipe::Recipe& r) {
  std::string text;
  with_recipe(r, recipe::Registry::standard(),
              [&](recipe::RecipeParts& parts) { text = parts.resolved.dump(); });
  return text;
}

int render_verb(const ConfigOptions& o) {
  init();
  const std::string text = resolved_text(recipe::Recipe::load(o.recipe, o.overrides));
  if (o.out.empty())
    fmt::print("{}", text);
  else
    write_file(o.out, text);
  return 0;
}

int init_verb(const ConfigOptions& o) {
  init();
  const recipe::Registry all = recipe::Registry::standard();
  recipe::Recipe r;
  r.file = "the recipe";
  r.root = io::parse_yaml(fmt::format(
      "recipe: my-recipe\nseed: 0\ndata: {{type: {}}}\nmodel: {{type: {}}}\nloss: {{type: "
      "{}}}\noptim: {{type: {}}}\nsched: {{type: {}}}\ntrainer: {{epochs: 10}}\n",
      o.data, o.model, o.loss, o.optim, o.sched));
  for (const std::string& change : o.overrides) {
    const size_t at = change.find('=');
    TD_CHECK(at != change.npos, Value, "'{}' is not an override such as data.root=photos", change);
    io::set_yaml(r.root, change.substr(0, at), change.substr(at + 1));
  }
  std::string text = fmt::format(
      "# A recipe of `tandem init-config`: tandem train FILE [a.b=value ...]\n"
      "# data.type: {}\n# model.type: {}\n# loss.type: {}\n",
      list_of(all.data), list_of(all.model), list_of(all.loss));
  try {
    text += resolved_text(r);
  } catch (const Error& e) {
    // A wrong name is the user's mistake; missing data is not.
    if (e.kind() != ErrorKind::Io &&
        std::string(e.what()).find("is missing") == std::string::npos &&
        std::string(e.what()).find("is not given") == std::string::npos)
      throw;
    text += fmt::format("# Only the parts that were given, because the data is missing:\n# {}\n",
                        e.what());
    text += r.root.dump();
  }
  if (o.out.empty()) {
    fmt::print("{}", text);
  } else {
    TD_CHECK(!file_exists(o.out), Io, "'{}' is there already", o.out);
    write_file(o.out, text);
    fmt::print("{}\n", o.out);
  }
  return 0;
}

}  // namespace

void add_runs(CLI::App& app, int& code) {
  auto o = std::make_shared<RunsOptions>();
  CLI::App* verb = app.add_subcommand("runs",
                                      "List and compare runs\n\n"
                                      "  tandem runs list\n"
                                      "  tandem runs compare runs/a runs/b --html ab.html");
  verb->require_subcommand(1);
  CLI::App* list = verb->add_subcommand("list", "The runs in a folder, oldest first");
  list->add_option("folder", o->folder, "Folder of the runs")->capture_default_str();
  list->add_flag("--json", o->json, "JSON on stdout");
  list->callback([o, &code] { code = list_verb(*o); });
  CLI::App* compare =
      verb->add_subcommand("compare", "Compare the curves, figures and settings of runs");
  compare->add_option("runs", o->folders, "Folders of runs")->required();
  compare->add_option("--metric", o->metric, "The curve to plot, such as val/accuracy");
  compare->add_option("--html", o->html, "Write a page with all curves here");
  compare->add_flag("--no-plot", o->no_plot, "The table only");
  compare->add_flag("--json", o->json, "JSON on stdout");
  compare->callback([o, &code] { code = compare_verb(*o); });

  auto e = std::make_shared<RunsOptions>();
  CLI::App* eval = app.add_subcommand("eval",
                                      "Evaluate a run's model on its data and update its report\n\n"
                                      "  tandem eval runs/digits-mlp-20260101-120000\n"
                                      "  tandem eval runs/a --split val data.root=photos");
  eval->add_option("run", e->folders, "A run's folder, and changes to its recipe")->required();
  eval->add_option("--split", e->split, "test, val or train; default: the first there is");
  eval->add_option("--weights", e->weights,
                   "last: those that the run ended with; best: by its monitor")
      ->capture_default_str();
  eval->add_option("--output", e->outputs,
                   "Write the model's outputs here, in the order of the data (.npz, .safetensors)");
  eval->add_flag("--json", e->json, "One line of JSON on stdout");
  eval->callback([e, &code] { code = eval_verb(*e); });

  auto r = std::make_shared<RunsOptions>();
  CLI::App* report =
      app.add_subcommand("report", "Write report.html of a run from the files in its folder");
  report->add_option("run", r->folder, "A run's folder")->required();
  report->add_option("--html", r->html, "Output file; default: report.html in the folder");
  report->callback([r, &code] {
    const std::string out = r->html.empty() ? r->folder + "/report.html" : r->html;
    write_file(out, runs::run_report(runs::read_run(r->folder)));
    fmt::print("{}\n", out);
    code = 0;
  });
}

void add_config(CLI::App& app, int& code) {
  auto o = std::make_shared<ConfigOptions>();
  CLI::App* render =
      app.add_subcommand("render-config",
                         "A recipe with every default resolved\n\n"
                         "  tandem render-config recipes/digits-mlp.yaml optim.lr=1e-2");
  render->add_option("recipe", o->recipe, "A YAML file")->required();
  render->add_option("overrides", o->overrides, "Changes, such as optim.lr=1e-3");
  render->add_option("--out", o->out, "Write it here");
  render->callback([o, &code] { code = render_verb(*o); });
  auto i = std::make_shared<ConfigOptions>();
  CLI::App* init = app.add_subcommand(
      "init-config",
      "Write a starter recipe with every default spelled out\n\n"
      "  tandem init-config --data image_folder --model lenet data.root=photos --out my.yaml");
  init->add_option("overrides", i->overrides, "Changes, such as data.root=photos");
  init->add_option("--data", i->data, "Data set")->capture_default_str();
  init->add_option("--model", i->model, "Model")->capture_default_str();
  init->add_option("--loss", i->loss, "Loss")->capture_default_str();
  init->add_option("--optim", i->optim, "Optimizer")->capture_default_str();
  init->add_option("--sched", i->sched, "Schedule of the learning rate")->capture_default_str();
  init->add_option("--out", i->out, "Output file; default: the terminal");
  init->callback([i, &code] { code = init_verb(*i); });
}

}  // namespace tandem::cli
