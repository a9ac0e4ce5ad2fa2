// SPDX-License-Identifier: Apache-2.0
// The page of a search.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tandem/recipe/tune.h"
#include "tandem/runs/page.h"

namespace tandem::recipe {
namespace {

/// Of a search, what the parts of its page share.
struct View {
  const train::Search& search;
  const TuneSettings& settings;
  bool better(double a, double b) const { return settings.search.minimise ? a < b : a > b; }
};

void add_facts(runs::Page& page, const View& v) {
  int64_t done = 0, stopped = 0, failed = 0;
  for (const train::Trial& t : v.search.trials())
    ++(t.state == "done" ? done : t.state == "stopped" ? stopped : failed);
  std::vector<std::pair<std::string, std::string>> facts{
      {"trials", fmt::format("{} done, {} stopped, {} failed", done, stopped, failed)},
      {"evaluated by", v.settings.metric + (v.settings.search.minimise ? ", low" : ", high")}};
  if (const train::Trial* best = v.search.best()) {
    facts.emplace_back("best", fmt::format("{:.5g} (trial {})", *best->result, best->number));
    for (const auto& [key, value] : best->values) facts.emplace_back(key, value);
  }
  page.facts(facts);
}

// Settings beside results, and results in the order of the trials with the best so far.
void add_results(runs::Page& page, const View& v) {
  std::vector<runs::Page::Axis> axes;
  for (const train::SearchRange& r : v.search.ranges())
    axes.push_back({.name = r.name, .log = r.log, .words = r.choices});
  axes.push_back({.name = v.settings.metric});
  std::vector<std::vector<double>> lines;
  runs::Series results{v.settings.metric, {}, {}}, lead{"best so far", {}, {}};
  double top = std::nan("");
  for (const train::Trial& t : v.search.trials()) {
    std::vector<double> line;
    for (size_t d = 0; d < v.search.ranges().size(); ++d) {
      const train::SearchRange& r = v.search.ranges()[d];
      const auto n = static_cast<double>(r.choices.size());
      line.push_back(n > 0 ? std::floor(std::min(t.places[d] * n, n - 1))
                           : std::strtod(t.values[d].second.c_str(), nullptr));
    }
    line.push_back(t.result ? *t.result : std::nan(""));
    if (t.result) {
      lines.push_back(line);
      if (std::isnan(top) || v.better(*t.result, top)) top = *t.result;
    }
    results.x.push_back(static_cast<double>(t.number));
    results.y.push_back(line.back());
    lead.x.push_back(static_cast<double>(t.number));
    lead.y.push_back(top);
  }
  if (!lines.empty()) page.parallel("Settings and results", axes, lines);
  page.chart("results", "trial", {results, lead});
}

void add_curves(runs::Page& page, const View& v) {
  std::vector<runs::Series> curves;
  for (const train::Trial& t : v.search.trials()) {
    runs::Series one{fmt::format("{}", t.number), {}, t.reports};
    for (size_t k = 0; k < t.reports.size(); ++k) one.x.push_back(static_cast<double>(k + 1));
    if (!one.x.empty()) curves.push_back(std::move(one));
  }
  page.chart(v.settings.metric + " by epoch", "epoch", curves);
}

void add_table(runs::Page& page, const View& v) {
  std::vector<const train::Trial*> order;
  for (const train::Trial& t : v.search.trials()) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [&](const train::Trial* a, const train::Trial* b) {
    if (!a->result || !b->result) return a->result.has_value() && !b->result;
    return v.better(*a->result, *b->result);
  });
  std::vector<std::string> head{"trial", "state", v.settings.metric, "epochs"};
  for (const train::SearchRange& r : v.search.ranges()) head.push_back(r.name);
  std::vector<std::vector<std::string>> rows;
  for (const train::Trial* t : order) {
    rows.push_back(
        {fmt::format("{}", t->number), t->note.empty() ? t->state : t->state + ": " + t->note,
         t->result ? fmt::format("{:.5g}", *t->result) : "", fmt::format("{}", t->reports.size())});
    for (const auto& [key, value] : t->values) rows.back().push_back(value);
  }
  page.table("Trials, best first", head, rows);
}

}  // namespace

std::string tune_report(const train::Search& search, const TuneSettings& settings,
                        const std::string& name) {
  runs::Page page("Search: " + name);
  const View v{search, settings};
  add_facts(page, v);
  add_results(page, v);
  add_curves(page, v);
  add_table(page, v);
  return page.html();
}

}  // namespace tandem::recipe
