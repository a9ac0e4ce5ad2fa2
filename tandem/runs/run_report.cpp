// SPDX-License-Identifier: Apache-2.0
// The pages of a run and of several beside each other.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <set>

#include "tandem/base/error.h"
#include "tandem/runs/progress.h"
#include "tandem/runs/run_record.h"

namespace tandem::runs {
namespace {

std::string short_number(double v) { return std::isfinite(v) ? fmt::format("{:.4g}", v) : "-"; }

std::string date(double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0) return "";
  char out[32];
  const auto t = static_cast<std::time_t>(seconds);
  std::tm local{};
  ::localtime_r(&t, &local);
  std::strftime(out, sizeof out, "%Y-%m-%d %H:%M", &local);
  return out;
}

std::string energy_text(double joules) {
  return joules >= 3.6e5 ? fmt::format("{:.3g} kWh", joules / 3.6e6)
         : joules >= 1e3 ? fmt::format("{:.3g} kJ", joules / 1e3)
                         : fmt::format("{:.3g} J", joules);
}

std::string from_base64(const std::string& text) {
  std::string out;
  uint32_t bits = 0;
  int held = 0;
  for (char c : text) {
    const int v = c >= 'A' && c <= 'Z'   ? c - 'A'
                  : c >= 'a' && c <= 'z' ? c - 'a' + 26
                  : c >= '0' && c <= '9' ? c - '0' + 52
                  : c == '+'             ? 62
                  : c == '/'             ? 63
                                         : -1;
    if (v < 0) break;
    bits = bits << 6 | static_cast<uint32_t>(v);
    held += 6;
    if (held >= 8) {
      held -= 8;
      out += static_cast<char>(bits >> held & 255);
    }
  }
  return out;
}

// "loss" of train and val in one chart; names without a split stand alone.
std::string stem(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == name.npos ? name : name.substr(slash + 1);
}

// What is evaluated first, then the step's own figures, the machine's last; else as they came.
int rank_of(const std::string& name, const std::vector<std::string>& all) {
  if (name.rfind("system/", 0) == 0) return 3;
  if (stem(name) == "loss") return 0;
  const auto evaluated = [&](const char* split) {
    return std::find(all.begin(), all.end(), split + stem(name)) != all.end();
  };
  return evaluated("val/") || evaluated("test/") ? 1 : 2;
}
std::vector<std::string> in_order(std::vector<std::string> names) {
  const std::vector<std::string> all = names;
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return rank_of(a, all) < rank_of(b, all);
  });
  return names;
}
// "grad_norm" for people.
std::string title_of(std::string name) {
  if (name == "lr") return "learning rate";
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

void curves(Page& page, const RunRecord& r) {
  std::set<std::string> drawn;
  std::vector<std::string> names;
  for (const auto& [name, s] : r.values) names.push_back(name);
  for (const std::string& name : in_order(names)) {
    if (name.rfind("system/", 0) == 0 || !drawn.insert(stem(name)).second) continue;
    std::vector<Series> group;
    for (const auto& [other, series] : r.values)
      if (stem(other) == stem(name) && other.rfind("system/", 0) != 0) {
        group.push_back(series);
        const size_t slash = other.find('/');
        group.back().name = slash == other.npos ? other : other.substr(0, slash);
      }
    page.chart(title_of(stem(name)), "step", group);
  }
  auto system = [&](const char* name, const char* title, double scale) {
    const Series* s = r.find(name);
    if (!s) return;
    Series one = *s;
    one.name = title;
    for (double& v : one.y) v *= scale;
    page.chart(title, "step", {one});
  };
  system("system/samples_per_s", "samples a second", 1);
  std::vector<Series> memory;
  for (const auto& [name, label] :
       {std::pair("system/memory_mb", "process"), std::pair("system/tensors_mb", "tensors")})
    if (const Series* s = r.find(name)) {
      memory.push_back(*s);
      memory.back().name = label;
    }
  page.chart("memory (MB)", "step", memory);
  system("system/waiting", "waiting for data (%)", 100);
}

void evaluated(Page& page, const io::Json& j) {
  if (!j.as_object()) return;
  const std::string split = io::text_of(j.find("split"));
  if (const io::Json* m = j.find("confusion"); m && m->as_array()) {
    std::vector<std::vector<double>> counts;
    std::vector<std::string> labels;
    for (const io::Json& row : *m->as_array()) {
      labels.push_back(std::to_string(labels.size()));
      counts.emplace_back();
      if (row.as_array())
        for (const io::Json& v : *row.as_array()) counts.back().push_back(io::number_of(&v));
    }
    bool square = !counts.empty() && counts.size() <= 64;
    for (const auto& row : counts) square = square && row.size() == counts.size();
    if (square) {
      page.matrix("Confusion (" + split + ")", labels, counts);
      std::vector<std::vector<std::string>> rows;
      for (size_t k = 0; k < counts.size(); ++k) {
        double given = 0, wanted = 0;
        for (size_t i = 0; i < counts.size(); ++i) {
          given += counts[i][k];
          wanted += counts[k][i];
        }
        const double right = counts[k][k], p = given > 0 ? right / given : 0,
                     q = wanted > 0 ? right / wanted : 0;
        rows.push_back({labels[k], fmt::format("{}", wanted), fmt::format("{:.4f}", p),
                        fmt::format("{:.4f}", q),
                        fmt::format("{:.4f}", p + q > 0 ? 2 * p * q / (p + q) : 0)});
      }
      page.table("Classes (" + split + ")", {"class", "samples", "precision", "recall", "f1"},
                 rows);
    }
  }
  if (const io::Json* bins = j.find("calibration"); bins && bins->as_array()) {
    Series given{"share that was right", {}, {}}, ideal{"ideal", {0, 1}, {0, 1}};
    for (const io::Json& b : *bins->as_array())
      if (const auto* a = b.as_array(); a && a->size() == 3 && io::number_of(&(*a)[0]) > 0) {
        given.x.push_back(io::number_of(&(*a)[1]));
        given.y.push_back(io::number_of(&(*a)[2]));
      }
    page.chart("calibration (" + split + ")", "probability given", {given, ideal});
  }
  if (const io::Json* worst = j.find("worst"); worst && worst->as_array()) {
    std::vector<Page::Image> images;
    for (const io::Json& s : *worst->as_array()) {
      Page::Image p{.png = from_base64(io::text_of(s.find("png"))),
                    .text = io::text_of(s.find("text"))};
      p.caption = fmt::format("#{}", io::number_of(s.find("index")));
      if (s.find("wanted"))
        p.caption +=
            fmt::format("\nwanted {}, given {} ({:.0f} %)", io::number_of(s.find("wanted")),
                        io::number_of(s.find("given")), 100 * io::number_of(s.find("probability")));
      p.caption += fmt::format("\nloss {:.3g}", io::number_of(s.find("loss")));
      if (!p.png.empty() || !p.text.empty()) images.push_back(std::move(p));
    }
    if (!images.empty()) page.images("Worst samples (" + split + ")", images);
  }
}

std::string count_text(double v) {
  return v >= 1e9   ? fmt::format("{:.2f} G", v / 1e9)
         : v >= 1e6 ? fmt::format("{:.2f} M", v / 1e6)
         : v >= 1e4 ? fmt::format("{:.1f} k", v / 1e3)
                    : fmt::format("{:.0f}", v);
}

// Of rank 0: which calls of the ranks took how long, and how much of that computing hid.
void communication(Page& page, const RunRecord& r) {
  if (!r.communication.as_array()) return;
  std::vector<std::vector<std::string>> rows;
  for (const io::Json& c : *r.communication.as_array()) {
    const auto number = [&](const char* key) { return io::number_of(c.find(key)); };
    const double mb = number("mb"), seconds = number("seconds"), exposed = number("exposed");
    rows.push_back({io::text_of(c.find("label")), fmt::format("{:.0f}", number("calls")),
                    fmt::format("{:.1f}", mb), fmt::format("{:.2f}", seconds),
                    seconds > 0 ? fmt::format("{:.2f}", mb / 1e3 / seconds) : "",
                    fmt::format("{:.2f}", exposed),
                    seconds > 0
                        ? fmt::format("{:.0f} %", 100 * std::clamp(1 - exposed / seconds, 0.0, 1.0))
                        : ""});
  }
  page.table("Communication of rank 0 (its last part of the run)",
             {"call", "calls", "MB", "seconds", "GB/s", "waited for (s)", "hidden"}, rows);
}

// Ranks that rank 0 waited for: one that is slower than the others is found here.
void late_ranks(Page& page, const RunRecord& r) {
  if (!r.late_ranks.as_array()) return;
  std::vector<std::vector<std::string>> rows;
  for (size_t rank = 1; rank < r.late_ranks.as_array()->size(); ++rank) {
    const io::Json& d = (*r.late_ranks.as_array())[rank];
    const double calls = io::number_of(d.find("calls")), seconds = io::number_of(d.find("seconds"));
    rows.push_back({fmt::format("{}", rank), fmt::format("{:.0f}", calls),
                    fmt::format("{:.2f}", seconds),
                    calls > 0 ? fmt::format("{:.2f}", 1e3 * seconds / calls) : ""});
  }
  if (!rows.empty())
    page.table("Ranks that came after rank 0",
               {"rank", "last of all in calls", "seconds after rank 0", "ms each"}, rows);
}

void layer_parts(Page& page, const RunRecord& r) {
  if (r.layers.empty()) return;
  const io::Json& last = r.layers.back();
  const io::Json* layers = last.find("layers");
  if (!layers || !layers->as_array()) return;
  double all = 0;
  for (const io::Json& l : *layers->as_array()) all += io::number_of(l.find("seconds"));
  std::vector<std::vector<std::string>> rows;
  auto stat = [](const io::Json& l, const char* what, const char* which) {
    const io::Json* v = l.find(what);
    return v ? short_number(io::number_of(v->find(which))) : std::string("");
  };
  for (const io::Json& l : *layers->as_array()) {
    const double flops = io::number_of(l.find("flops")), seconds = io::number_of(l.find("seconds"));
    std::string path = io::text_of(l.find("path"));
    rows.push_back(
        {path.empty() ? "(model itself)" : path, io::text_of(l.find("type")),
         io::text_of(l.find("output")), fmt::format("{}", io::number_of(l.find("parameters"))),
         flops > 0 ? count_text(flops) : "",
         all > 0 ? fmt::format("{:.1f} %", 100 * seconds / all) : "", stat(l, "activation", "rms"),
         stat(l, "weight", "rms"), stat(l, "gradient", "rms")});
  }
  page.table("Layers (one batch, forward and backward, at the end)",
             {"layer", "type", "output", "parameters", "FLOP", "time", "activation rms",
              "weight rms", "gradient rms"},
             rows);
  if (const io::Json* rect = last.find("rectifiers"); rect && rect->as_array()) {
    rows.clear();
    for (const io::Json& f : *rect->as_array())
      rows.push_back(
          {io::text_of(f.find("layer")).empty() ? "(model itself)" : io::text_of(f.find("layer")),
           io::text_of(f.find("op")), fmt::format("{:.1f} %", 100 * io::number_of(f.find("zeros"))),
           fmt::format("{}", io::number_of(f.find("units"))),
           fmt::format("{}", io::number_of(f.find("dead_units")))});
    if (!rows.empty())
      page.table("Rectifiers (dead: 0 for every sample of the batch)",
                 {"layer", "op", "zeros", "units", "dead units"}, rows);
  }
  // Gradients over time, layer by step.
  std::vector<std::string> names, columns;
  std::vector<std::vector<double>> values;
  for (const io::Json& l : *layers->as_array())
    if (l.find("gradient")) names.push_back(io::text_of(l.find("path")));
  if (names.empty() || r.layers.size() < 2) return;
  values.assign(names.size(), {});
  const size_t every = (r.layers.size() + 39) / 40;
  for (size_t k = 0; k < r.layers.size(); ++k) {
    if (k % every != 0 && k + 1 != r.layers.size()) continue;
    columns.push_back(fmt::format("{}", io::number_of(r.layers[k].find("step"))));
    const io::Json* now = r.layers[k].find("layers");
    for (size_t i = 0; i < names.size(); ++i) {
      double v = std::nan("");
      if (now && now->as_array())
        for (const io::Json& l : *now->as_array())
          if (io::text_of(l.find("path")) == names[i] && l.find("gradient"))
            v = io::number_of(l.find("gradient")->find("rms"));
      values[i].push_back(v);
    }
  }
  for (std::string& n : names)
    if (n.empty()) n = "(model itself)";
  page.heat("Root mean square of gradients, layer by step", names, columns, values);
}

}  // namespace

std::string run_report(const RunRecord& r) {
  Page page(r.name);
  const std::string best = r.headline();
  std::vector<std::pair<std::string, std::string>> facts{{"status", r.status},
                                                         {best, short_number(r.value(best))}};
  if (const io::Json* v = r.evaluation.find("values"); v && v->as_object())
    for (const auto& [name, value] : *v->as_object())
      if (name != best) facts.emplace_back(name, short_number(io::number_of(&value)));
  if (const double e = io::number_of(r.evaluation.find("calibration_error")); std::isfinite(e))
    facts.emplace_back("calibration error", fmt::format("{:.3g}", e));
  facts.emplace_back("steps, epochs", fmt::format("{}, {}", r.steps, r.epochs));
  facts.emplace_back("time", duration(r.seconds));
  if (r.seconds > 0 && r.samples > 0)
    facts.emplace_back("samples a second", fmt::format("{:.0f}", r.samples / r.seconds));
  if (r.peak_memory_mb > 0)
    facts.emplace_back("peak memory", fmt::format("{:.0f} MB", r.peak_memory_mb));
  if (!r.energy_source.empty()) {
    const bool modelled = r.energy_source.rfind("modelled", 0) == 0;
    facts.emplace_back(modelled ? "energy (modelled)" : "energy (measured)", energy_text(r.joules));
  }
  facts.emplace_back("started", date(r.started));
  for (const char* key : {"commit", "host", "system", "threads", "seed", "tandem"})
    if (const io::Json* v = r.environment.find(key);
        v && !(v->as_string() && v->as_string()->empty()))
      facts.emplace_back(key, v->as_string() ? *v->as_string() : v->dump());
  page.facts(facts);
  if (!r.energy_source.empty())
    page.note("Energy: " + r.energy_source +
              (r.energy_source.rfind("RAPL", 0) == 0
                   ? "; all that the processor drew meanwhile, other processes too."
                   : ", for want of readable counters; not a measurement."));
  curves(page, r);
  evaluated(page, r.evaluation);
  layer_parts(page, r);
  communication(page, r);
  late_ranks(page, r);
  if (!r.settings.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& [key, value] : r.settings) rows.push_back({key, value});
    page.table("Settings, defaults resolved", {"key", "value"}, rows);
  }
  if (!r.recipe.empty()) page.listing("recipe.yaml", r.recipe);
  return page.html();
}

std::string compare_report(const std::vector<RunRecord>& runs) {
  TD_CHECK(!runs.empty(), Value, "there are no runs to compare");
  Page page(fmt::format("{} runs", runs.size()));
  std::vector<std::string> labels;
  for (const RunRecord& r : runs) labels.push_back(r.folder.substr(r.folder.rfind('/') + 1));
  std::vector<std::string> names, evaluated_names;
  for (const RunRecord& r : runs) {
    for (const auto& [name, s] : r.values)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    if (const io::Json* v = r.evaluation.find("values"); v && v->as_object())
      for (const auto& [name, value] : *v->as_object())
        if (std::find(evaluated_names.begin(), evaluated_names.end(), name) ==
            evaluated_names.end())
          evaluated_names.push_back(name);
  }
  std::vector<std::string> head{"run", "status", "steps", "time"};
  std::vector<std::string> shown = evaluated_names;
  for (const std::string& n : names)
    if (n.rfind("val/", 0) == 0 || n == "train/loss") shown.push_back(n);
  head.insert(head.end(), shown.begin(), shown.end());
  std::vector<std::vector<std::string>> rows;
  for (size_t k = 0; k < runs.size(); ++k) {
    const RunRecord& r = runs[k];
    rows.push_back(
        {labels[k], r.status, fmt::format("{}", r.steps), fmt::format("{:.1f} s", r.seconds)});
    for (const std::string& n : shown) rows.back().push_back(short_number(r.value(n)));
  }
  page.table("Runs", head, rows);
  for (const std::string& n : in_order(names)) {
    std::vector<Series> group;
    for (size_t k = 0; k < runs.size(); ++k)
      if (const Series* s = runs[k].find(n)) {
        group.push_back(*s);
        group.back().name = labels[k];
      }
    page.chart(title_of(n), "step", group);
  }
  std::set<std::string> keys;
  for (const RunRecord& r : runs)
    for (const auto& [key, value] : r.settings) keys.insert(key);
  rows.clear();
  for (const std::string& key : keys) {
    std::vector<std::string> row{key};
    std::set<std::string> values;
    for (const RunRecord& r : runs) {
      const auto it = r.settings.find(key);
      row.push_back(it == r.settings.end() ? "-" : it->second);
      values.insert(row.back());
    }
    if (values.size() > 1) rows.push_back(row);
  }
  head.assign({"key"});
  head.insert(head.end(), labels.begin(), labels.end());
  if (rows.empty())
    page.note("The settings of these runs do not differ.");
  else
    page.table("Settings that differ", head, rows);
  return page.html();
}

}  // namespace tandem::runs
