// SPDX-License-Identifier: Apache-2.0
// `tandem data stats|validate|bench|export`: what a table holds, whether it is what it was, which
// files of a folder are damaged, how fast a recipe's pipeline gives samples, and those as arrays.
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "cli/commands_internal.h"
#include "cli/progress_internal.h"
#include "tandem/data/check_files.h"
#include "tandem/data/table_stats.h"
#include "tandem/init.h"
#include "tandem/io/npy.h"
#include "tandem/recipe/data_arrays.h"

namespace tandem::cli {
namespace {

struct DataOptions {
  std::string path, schema, against, write, out;
  recipe::DataArraysOptions arrays;
  std::vector<std::string> overrides;
  double most_drift = 0.1, seconds = 3;
  int64_t workers = -1, depth = 2;
  bool json = false, header = false, no_header = false, train = false;
  std::optional<bool> has_header() const {
    return header ? std::optional(true) : no_header ? std::optional(false) : std::nullopt;
  }
};

std::string cut(const std::string& s, size_t n) {
  return s.size() <= n ? s : s.substr(0, n - 1) + "~";
}

io::Json as_json(const data::TableStats& t) {
  io::Json::Array columns;
  for (const data::ColumnStats& c : t.columns) {
    io::Json::Object o{{"name", c.name},
                       {"type", to_string(c.type)},
                       {"missing", c.missing},
                       {"nonfinite", c.nonfinite},
                       {"distinct", c.distinct}};
    if (!c.sorted.empty())
      for (const auto& [key, v] :
           {std::pair("low", c.low), std::pair("median", c.median), std::pair("high", c.high),
            std::pair("mean", c.mean), std::pair("deviation", c.deviation)})
        o.emplace_back(key, v);
    io::Json::Object frequent;
    for (const auto& [value, n] : c.frequent) frequent.emplace_back(value, n);
    o.emplace_back("frequent", std::move(frequent));
    columns.push_back(std::move(o));
  }
  return io::Json::Object{{"file", t.name}, {"rows", t.rows}, {"columns", std::move(columns)}};
}

int stats_verb(const DataOptions& o) {
  const data::TableStats t = data::read_table_stats(o.path, o.has_header());
  if (!o.write.empty()) write_file(o.write, infer_schema(t).to_json().dump(1) + "\n");
  if (o.json) {
    fmt::print("{}\n", as_json(t).dump());
    return 0;
  }
  fmt::print("{}: {} rows, {} columns\n", t.name, t.rows, t.columns.size());
  fmt::print("{:<22} {:<8} {:>9} {:>9} {:>11} {:>11} {:>11} {:>11}  {}\n", "column", "type",
             "missing", "distinct", "low", "median", "high", "mean", "frequent");
  for (const data::ColumnStats& c : t.columns) {
    std::string often;
    for (size_t k = 0; k < std::min<size_t>(c.frequent.size(), 3); ++k)
      often += fmt::format("{}{} ({:.0f} %)", k ? ", " : "", cut(c.frequent[k].first, 18),
                           100.0 * static_cast<double>(c.frequent[k].second) /
                               static_cast<double>(std::max<int64_t>(c.rows, 1)));
    auto num = [&](double v) {
      return c.sorted.empty() ? std::string("") : fmt::format("{:.5g}", v);
    };
    fmt::print("{:<22} {:<8} {:>9} {:>9} {:>11} {:>11} {:>11} {:>11}  {}\n", cut(c.name, 22),
               to_string(c.type), c.missing, c.distinct, num(c.low), num(c.median), num(c.high),
               num(c.mean), often);
    if (c.nonfinite > 0) fmt::print("{:<22} {} infinite number(s)\n", "", c.nonfinite);
  }
  if (!o.write.empty()) fmt::print("schema: {}\n", o.write);
  return 0;
}

int validate_folder(const DataOptions& o) {
  TD_CHECK(o.schema.empty() && o.against.empty(), Value,
           "validate of a folder takes no --schema and no --against: '{}' is one", o.path);
  const data::FolderReport r = data::check_files(o.path);
  if (o.json) {
    fmt::print("{}\n", r.to_json().dump());
    return r.damaged.empty() ? 0 : 3;
  }
  for (const data::DamagedFile& d : r.damaged) fmt::print("{}: {}\n", d.path, d.reason);
  for (const data::FolderReport::Kind& k : r.kinds)
    fmt::print("{}: {} readable, {} damaged\n", k.what, k.readable, k.damaged);
  if (r.other > 0) fmt::print("{} other files were not read\n", r.other);
  fmt::print("{}: {}\n", o.path,
             r.damaged.empty() ? "valid" : fmt::format("{} damaged", r.damaged.size()));
  return r.damaged.empty() ? 0 : 3;
}

int validate_verb(const DataOptions& o) {
  if (std::filesystem::is_directory(o.path)) return validate_folder(o);
  TD_CHECK(
      !o.schema.empty() || !o.against.empty(), Value,
      "validate expects --schema FILE (`tandem data stats TABLE --write-schema FILE` makes one) "
      "or --against TABLE");
  const data::TableStats t = data::read_table_stats(o.path, o.has_header());
  std::vector<data::Anomaly> found;
  std::vector<data::Drift> drifts;
  if (!o.schema.empty())
    found = validate(
        t, data::Schema::from_json(io::parse_json(read_file(o.schema), o.schema), o.schema));
  if (!o.against.empty()) {
    const data::TableStats before = data::read_table_stats(o.against, o.has_header());
    if (o.schema.empty()) {
      // What the other table is, but for ranges and values, which drift evaluates.
      data::Schema s = infer_schema(before);
      for (data::ColumnSchema& c : s.columns) {
        c.low = c.high = {};
        c.values.clear();
        c.presence = 0;
      }
      found = validate(t, s);
    }
    drifts = drift(before, t);
    for (const data::Drift& d : drifts)
      if (d.jensen_shannon > o.most_drift)
        found.push_back({d.column, fmt::format("has drifted: divergence {:.3f} bits, at most {:g}",
                                               d.jensen_shannon, o.most_drift)});
  }
  if (o.json) {
    io::Json::Array a, b;
    for (const data::Anomaly& x : found)
      a.push_back(io::Json::Object{{"column", x.column}, {"what", x.what}});
    for (const data::Drift& d : drifts)
      b.push_back(io::Json::Object{{"column", d.column},
                                   {"jensen_shannon", d.jensen_shannon},
                                   {"l_infinity", d.l_infinity},
                                   {"missing", d.missing}});
    fmt::print(
        "{}\n",
        io::Json(io::Json::Object{{"anomalies", std::move(a)}, {"drift", std::move(b)}}).dump());
    return found.empty() ? 0 : 3;
  }
  if (!drifts.empty()) {
    fmt::print("{:<22} {:>16} {:>12} {:>10}\n", "column", "divergence, bits", "L infinity",
               "missing");
    for (const data::Drift& d : drifts)
      fmt::print("{:<22} {:>16.4f} {:>12.4f} {:>+9.1f}%\n", cut(d.column, 22), d.jensen_shannon,
                 d.l_infinity, 100 * d.missing);
  }
  for (const data::Anomaly& x : found)
    fmt::print("{}: {}\n", x.column.empty() ? "table" : x.column, x.what);
  fmt::print("{}: {}\n", o.path,
             found.empty() ? "valid" : fmt::format("{} anomalies", found.size()));
  return found.empty() ? 0 : 3;
}

/// Sums the loader's statistics over all passes.
struct Waiting : train::Callback {
  double waited = 0, seconds = 0, shown = 0;
  int64_t workers = 0, passes = 0;
  void add(const data::RunStats& s) {
    waited += s.waited;
    seconds += s.seconds;
    workers = s.workers;
    ++passes;
  }
  void epoch_end(train::Trainer& t, const train::Logs&) override {
    add(t.data()->stats());
    shown = seconds;
  }
  void fit_end(train::Trainer& t) override {
    if (shown == 0) add(t.data()->stats());  // stopped within the first pass
  }
  const char* name() const override { return "Waiting"; }
};

/// The recipe's training for a while: how much of it waits for data?
int train_bench(const DataOptions& o, const recipe::Recipe& r) {
  with_recipe(r, recipe::Registry::standard(), [&](recipe::RecipeParts& parts) {
    data::AnyPipeline p(parts.data.train.stage(), parts.data.train.seed(),
                        {.depth = o.depth, .workers = o.workers});
    train::TrainerOptions& t = parts.trainer.options();
    t.max_epochs = 1000000;
    t.max_seconds = o.seconds;
    t.validation.sanity_batches = 0;
    t.progress = false;
    const auto waiting = std::make_shared<Waiting>();
    parts.trainer.add(waiting);
    const train::FitResult fit = parts.trainer.fit(p);
    const double share = waiting->seconds > 0 ? waiting->waited / waiting->seconds : 0;
    const double rate = static_cast<double>(fit.steps) / fit.seconds;
    if (o.json)
      fmt::print("{}\n", io::Json(io::Json::Object{{"pipeline", p.text()},
                                                   {"waiting", share},
                                                   {"steps_per_second", rate},
                                                   {"passes", waiting->passes},
                                                   {"workers", waiting->workers},
                                                   {"seconds", fit.seconds}})
                             .dump());
    else
      fmt::print(
          "{}\n  {:.2f} % of the time waited for data   {:.1f} steps/s\n  {} worker(s) at the end, "
          "{} passes, {} steps in {:.1f} s\n",
          p.text(), 100 * share, rate, waiting->workers, waiting->passes, fit.steps, fit.seconds);
  });
  return 0;
}

int bench_verb(const DataOptions& o) {
  init();
  const recipe::Recipe r = recipe::Recipe::load(o.path, o.overrides);
  if (o.train) return train_bench(o, r);
  int code = 0;
  with_recipe(r, recipe::Registry::standard(), [&](recipe::RecipeParts& parts) {
    data::AnyPipeline p(parts.data.train.stage(), parts.data.train.seed(),
                        {.depth = o.depth, .workers = o.workers});
    TD_CHECK(p.size() > 0, Value, "there is no data");
    double samples = 0, bytes = 0, first = 0;
    int64_t batches = 0, epochs = 0;
    const auto begin = std::chrono::steady_clock::now();
    auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    while (seconds() < o.seconds) {
      p.begin_pass();
      std::vector<Tensor> batch;
      while (seconds() < o.seconds && p.next(batch)) {
        if (batches++ == 0) first = seconds();
        samples += batch.empty() || batch[0].dim() == 0 ? 1 : static_cast<double>(batch[0].size(0));
        for (const Tensor& t : batch)
          bytes += static_cast<double>(t.numel()) * static_cast<double>(size_of(t.dtype()));
      }
      ++epochs;
    }
    const double time = seconds();
    const data::RunStats s = p.stats();
    if (o.json) {
      fmt::print("{}\n", io::Json(io::Json::Object{
                                      {"pipeline", p.text()},
                                      {"samples_per_second", samples / time},
                                      {"batches_per_second", static_cast<double>(batches) / time},
                                      {"bytes_per_second", bytes / time},
                                      {"first_batch_seconds", first},
                                      {"workers", s.workers},
                                      {"damaged", parts.data.damaged ? parts.data.damaged() : 0},
                                      {"seconds", time}})
                             .dump());
    } else {
      fmt::print("{}\n  {:.0f} samples/s   {:.1f} batches/s   {:.1f} MB/s\n", p.text(),
                 samples / time, static_cast<double>(batches) / time, bytes / time / 1e6);
      fmt::print(
          "  first batch after {:.3f} s, {} worker(s) at the end, {} passes begun in {:.1f} s\n",
          first, s.workers, epochs, time);
      if (parts.data.damaged)
        fmt::print("  damaged samples were skipped {} time(s)\n", parts.data.damaged());
    }
  });
  return code;
}

int export_verb(const DataOptions& o) {
  init();
  const StateDict arrays = data_arrays(recipe::Recipe::load(o.path, o.overrides), o.arrays);
  io::save_npz(arrays, o.out);
  fmt::print("{}:", o.out);
  for (const auto& [name, t] : arrays)
    fmt::print(" {} {}{}", name, t.dtype(), t.shape().to_string());
  fmt::print("\n");
  return 0;
}

}  // namespace

void add_data(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand("data",
                                      "Inspect and check data\n\n"
                                      "  tandem data stats table.csv --write-schema schema.json\n"
                                      "  tandem data validate new.csv --schema schema.json\n"
                                      "  tandem data validate new.csv --against old.csv\n"
                                      "  tandem data validate images/\n"
                                      "  tandem data bench recipes/mnist-convnet.yaml\n"
                                      "  tandem data export recipes/digits-cnn.yaml -o test.npz");
  verb->require_subcommand(1);
  auto o = std::make_shared<DataOptions>();
  auto table = [o](CLI::App* v, const char* what) {
    v->add_option("table", o->path, what)->required();
    v->add_flag("--header", o->header, "The first line holds names; default: detected");
    v->add_flag("--no-header", o->no_header, "The first line holds values");
    v->add_flag("--json", o->json, "JSON on stdout");
  };
  CLI::App* stats = verb->add_subcommand("stats", "Types, missing values, ranges, frequent values");
  table(stats, "CSV, TSV (also .gz) or .jsonl");
  stats->add_option("--write-schema", o->write, "Write a schema that this table meets");
  stats->callback([o, &code] { code = stats_verb(*o); });
  CLI::App* check =
      verb->add_subcommand("validate",
                           "A table against a schema or another table, or a folder of "
                           "images, sounds and shards by reading it; 3: not met");
  table(check, "CSV, TSV (also .gz), .jsonl, or a folder");
  check->add_option("--schema", o->schema, "A schema as `stats --write-schema` writes it");
  check->add_option("--against", o->against, "Another table: same columns, and how far it drifted");
  check->add_option("--most-drift", o->most_drift, "Jensen-Shannon divergence in bits, 0 to 1")
      ->capture_default_str();
  check->callback([o, &code] { code = validate_verb(*o); });
  CLI::App* bench = verb->add_subcommand("bench", "Samples a second of a recipe's training data");
  bench->add_option("recipe", o->path, "A YAML file")->required();
  bench->add_option("overrides", o->overrides, "Changes, such as data.batch=256");
  bench->add_option("--seconds", o->seconds, "How long")->capture_default_str();
  bench->add_option("--workers", o->workers, "Threads; -1: as many as it takes")
      ->capture_default_str();
  bench->add_option("--depth", o->depth, "Elements kept ready a thread")->capture_default_str();
  bench->add_flag("--train", o->train,
                  "Train on it and report how much of the time is spent waiting for data");
  bench->add_flag("--json", o->json, "One line of JSON on stdout");
  bench->callback([o, &code] { code = bench_verb(*o); });
  CLI::App* arrays = verb->add_subcommand(
      "export", "A recipe's samples as its model gets them, as .npz: x0, x1 ..., labels");
  arrays->add_option("recipe", o->path, "A YAML file")->required();
  arrays->add_option("overrides", o->overrides, "Changes, such as data.batch=1");
  arrays->add_option("-o,--output", o->out, "An .npz file")->required();
  arrays->add_option("--part", o->arrays.part, "train, val or test")->capture_default_str();
  arrays->add_option("--samples", o->arrays.samples, "The first ones; 0: all");
  arrays->callback([o, &code] { code = export_verb(*o); });
}

}  // namespace tandem::cli
