// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/search.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tandem/base/error.h"

namespace tandem::train {
namespace {

/// A number and nothing else.
double parse_number(const std::string& text, const std::string& name) {
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  TD_CHECK(
      !text.empty() && *end == 0 && std::isfinite(v), Value,
      "search.{}: '{}' is not a number\nWrite a range as 'log 1e-4..1e-1' or 'int 16..64', or a "
      "list of choices.",
      name, text);
  return v;
}

double normal_density(double x, double mean, double deviation) {
  const double z = (x - mean) / deviation;
  return std::exp(-0.5 * z * z) / (deviation * std::sqrt(2 * M_PI));
}
double normal_below(double x, double mean, double deviation) {
  return 0.5 * std::erfc((mean - x) / (deviation * std::sqrt(2.0)));
}

/// A mixture over 0..1: a normal at each point, cut off at the ends, and a flat part that keeps
/// everything possible (Bergstra et al. 2011).
struct Density {
  std::vector<double> points, widths;
  double at(double x) const {
    double sum = 1;  // the flat part
    for (size_t i = 0; i < points.size(); ++i)
      sum += normal_density(x, points[i], widths[i]) /
             std::max(normal_below(1, points[i], widths[i]) - normal_below(0, points[i], widths[i]),
                      1e-12);
    return sum / static_cast<double>(points.size() + 1);
  }
};

Density density_of(std::vector<double> points) {
  std::sort(points.begin(), points.end());
  Density d{points, {}};
  const double least = 1.0 / std::min(100.0, static_cast<double>(points.size()) + 2);
  for (size_t i = 0; i < points.size(); ++i) {
    const double left = i > 0 ? points[i] - points[i - 1] : points[i];
    const double right = i + 1 < points.size() ? points[i + 1] - points[i] : 1 - points[i];
    d.widths.push_back(std::clamp(std::max(left, right), least, 1.0));
  }
  return d;
}

}  // namespace

SearchRange SearchRange::parse(const std::string& name, const std::string& text) {
  SearchRange r{.name = name};
  std::string rest = text;
  for (bool more = true; more;) {
    more = false;
    while (!rest.empty() && rest.front() == ' ') rest.erase(0, 1);
    if (rest.rfind("log ", 0) == 0) {
      r.log = more = true;
      rest.erase(0, 4);
    } else if (rest.rfind("int ", 0) == 0) {
      r.whole = more = true;
      rest.erase(0, 4);
    }
  }
  const size_t dots = rest.find("..");
  TD_CHECK(dots != rest.npos, Value,
           "search.{}: '{}' is not a range\nWrite 'log 1e-4..1e-1' or 'int 16..64', or a list of "
           "choices.",
           name, text);
  r.low = parse_number(rest.substr(0, dots), name);
  r.high = parse_number(rest.substr(dots + 2), name);
  TD_CHECK(r.low < r.high && (!r.log || r.low > 0), Value,
           "search.{}: a range needs low < high{}, got {:g}..{:g}", name,
           r.log ? " and above 0" : "", r.low, r.high);
  return r;
}

std::string SearchRange::text_at(double place) const {
  place = std::clamp(place, 0.0, 1.0);
  if (!choices.empty()) {
    const auto n = static_cast<double>(choices.size());
    return choices[static_cast<size_t>(std::min(place * n, n - 1))];
  }
  double v = log ? low * std::pow(high / low, place) : low + (high - low) * place;
  if (whole)
    return std::to_string(std::clamp(std::llround(v), std::llround(low), std::llround(high)));
  return fmt::format("{:.6g}", v);
}

Search::Search(std::vector<SearchRange> ranges, SearchOptions options)
    : ranges_(std::move(ranges)), o_(options) {
  TD_CHECK(!ranges_.empty(), Value, "a search needs something to search over");
  TD_CHECK(o_.eta >= 2 && o_.grace >= 0 && o_.candidates >= 1 && o_.startup >= 0, Value,
           "a search expects eta >= 2, grace >= 0, candidates >= 1 and startup >= 0");
}

int64_t Search::grid_size() const {
  int64_t n = 1;
  for (const SearchRange& r : ranges_) {
    const int64_t k = r.choices.empty() ? r.steps : static_cast<int64_t>(r.choices.size());
    TD_CHECK(n <= 1000000 / std::max<int64_t>(k, 1), Value,
             "the grid has more than a million points");
    n *= k;
  }
  return n;
}

double Search::uniform(int64_t trial, uint64_t draw) const {
  return uniform_f64(philox(o_.seed, static_cast<uint32_t>(trial), draw).word64(0));
}

std::vector<double> Search::random_places(int64_t number) const {
  std::vector<double> p;
  for (size_t i = 0; i < ranges_.size(); ++i) p.push_back(uniform(number, i));
  return p;
}

std::vector<double> Search::tpe_places(int64_t number) const {
  std::vector<const Trial*> told;
  for (const Trial& t : trials_)
    if (t.result && std::isfinite(*t.result)) told.push_back(&t);
  if (static_cast<int64_t>(told.size()) < o_.startup) return random_places(number);
  std::stable_sort(told.begin(), told.end(), [&](const Trial* a, const Trial* b) {
    return o_.minimise ? *a->result < *b->result : *a->result > *b->result;
  });
  const auto n = static_cast<double>(told.size());
  const auto good = static_cast<size_t>(std::clamp(std::ceil(0.1 * n), 1.0, 25.0));
  std::vector<double> out;
  uint64_t draw = ranges_.size();
  for (size_t d = 0; d < ranges_.size(); ++d) {
    const size_t words = ranges_[d].choices.size();
    if (words > 0) {
      // Counts with one of each added.
      std::vector<double> l(words, 1), g(words, 1);
      for (size_t k = 0; k < told.size(); ++k)
        (k < good ? l : g)[std::min(
            static_cast<size_t>(told[k]->places[d] * static_cast<double>(words)), words - 1)] += 1;
      double sum = 0, sum_g = 0;
      for (size_t w = 0; w < words; ++w) {
        sum += l[w];
        sum_g += g[w];
      }
      double best = -1;
      size_t chosen = 0;
      for (int64_t c = 0; c < o_.candidates; ++c) {
        double u = uniform(number, draw++) * sum;
        size_t w = 0;
        while (w + 1 < words && u >= l[w]) u -= l[w++];
        const double ratio = (l[w] / sum) / (g[w] / sum_g);
        if (ratio > best) {
          best = ratio;
          chosen = w;
        }
      }
      out.push_back((static_cast<double>(chosen) + 0.5) / static_cast<double>(words));
      continue;
    }
    std::vector<double> below, above;
    for (size_t k = 0; k < told.size(); ++k)
      (k < good ? below : above).push_back(told[k]->places[d]);
    const Density l = density_of(below), g = density_of(above);
    double best = -1, chosen = 0.5;
    for (int64_t c = 0; c < o_.candidates; ++c) {
      const double pick = uniform(number, draw++) * static_cast<double>(l.points.size() + 1);
      double x = uniform(number, draw++);
      if (const auto i = static_cast<size_t>(pick); i < l.points.size()) {
        const double u = std::max(uniform(number, draw++), 1e-12), v = x;
        x = l.points[i] + l.widths[i] * std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
        if (x < 0 || x > 1) x = std::clamp(x, 0.0, 1.0);
      }
      const double ratio = l.at(x) / g.at(x);
      if (ratio > best) {
        best = ratio;
        chosen = x;
      }
    }
    out.push_back(chosen);
  }
  return out;
}

std::optional<Trial> Search::ask() {
  Trial t{.number = asked_ + 1};
  if (o_.sampler == Sampler::grid) {
    if (asked_ >= grid_size()) return {};
    int64_t rest = asked_;
    for (size_t d = ranges_.size(); d-- > 0;) {  // the last range turns fastest
      const SearchRange& r = ranges_[d];
      const int64_t k = r.choices.empty() ? r.steps : static_cast<int64_t>(r.choices.size());
      const auto at = static_cast<double>(rest % k);
      rest /= k;
      t.places.insert(t.places.begin(), !r.choices.empty() ? (at + 0.5) / static_cast<double>(k)
                                        : k > 1            ? at / static_cast<double>(k - 1)
                                                           : 0.5);
    }
  } else {
    t.places = o_.sampler == Sampler::tpe ? tpe_places(asked_) : random_places(asked_);
  }
  for (size_t d = 0; d < ranges_.size(); ++d)
    t.values.emplace_back(ranges_[d].name, ranges_[d].text_at(t.places[d]));
  ++asked_;
  return t;
}

bool Search::report(Trial& trial, int64_t epoch, double value) const {
  trial.reports.resize(static_cast<size_t>(std::max<int64_t>(epoch, 1)), std::nan(""));
  trial.reports.back() = value;
  if (o_.grace <= 0) return false;
  int64_t rung = o_.grace;
  while (rung < epoch) rung *= o_.eta;
  if (rung != epoch) return false;
  if (std::isnan(value)) return true;
  std::vector<double> here{value};
  for (const Trial& t : trials_)
    if (static_cast<int64_t>(t.reports.size()) >= epoch)
      if (const double v = t.reports[static_cast<size_t>(epoch - 1)]; std::isfinite(v))
        here.push_back(v);
  std::sort(here.begin(), here.end());
  if (!o_.minimise) std::reverse(here.begin(), here.end());
  // Fewer than eta came here: nothing to compare with yet.
  if (static_cast<int64_t>(here.size()) < o_.eta) return false;
  const double bar = here[here.size() / static_cast<size_t>(o_.eta) - 1];
  return o_.minimise ? value > bar : value < bar;
}

void Search::tell(Trial trial) {
  const int64_t number = trial.number;
  trials_.push_back(std::move(trial));
  asked_ = std::max({asked_, number, static_cast<int64_t>(trials_.size())});
}

const Trial* Search::best() const {
  const Trial* best = nullptr;
  for (const Trial& t : trials_)
    if (t.result && std::isfinite(*t.result) &&
        (!best || (o_.minimise ? *t.result < *best->result : *t.result > *best->result)))
      best = &t;
  return best;
}

// ---- the journal

io::Json to_json(const Trial& t) {
  io::Json::Array places, reports;
  for (double v : t.places) places.push_back(v);
  for (double v : t.reports) reports.push_back(v);
  io::Json::Object values;
  for (const auto& [name, value] : t.values) values.emplace_back(name, value);
  io::Json::Object j{{"number", t.number}, {"state", t.state}};
  if (t.result) j.emplace_back("result", *t.result);
  if (!t.note.empty()) j.emplace_back("note", t.note);
  j.emplace_back("values", std::move(values));
  j.emplace_back("places", std::move(places));
  j.emplace_back("reports", std::move(reports));
  return j;
}

Trial trial_of(const io::Json& j) {
  const io::Json *n = j.find("number"), *state = j.find("state"), *values = j.find("values"),
                 *places = j.find("places");
  TD_CHECK(n && n->as_int() && *n->as_int() >= 0 && state && state->as_string() && values &&
               values->as_object() && places && places->as_array(),
           Format, "a trial must have number, state, values and places");
  Trial t{.number = *n->as_int(), .state = *state->as_string()};
  for (const auto& [name, value] : *values->as_object()) {
    TD_CHECK(value.as_string(), Format, "a trial's values must be texts");
    t.values.emplace_back(name, *value.as_string());
  }
  for (const io::Json& p : *places->as_array()) t.places.push_back(io::number_of(&p));
  if (const io::Json* r = j.find("reports"); r && r->as_array())
    for (const io::Json& v : *r->as_array()) t.reports.push_back(io::number_of(&v));
  if (const double v = io::number_of(j.find("result")); !std::isnan(v)) t.result = v;
  if (const io::Json* note = j.find("note"); note && note->as_string()) t.note = *note->as_string();
  return t;
}

int64_t read_journal(const FilePath& path, Search& search) {
  if (!file_exists(path)) return 0;
  const std::string text = read_file(path);
  int64_t count = 0;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    Trial t;
    try {
      t = trial_of(io::parse_json(std::string_view(text).substr(at, end - at), path.str()));
    } catch (const Error&) {
      continue;  // cut off, or damaged
    }
    bool same = t.values.size() == search.ranges().size() && t.places.size() == t.values.size();
    for (size_t i = 0; same && i < t.values.size(); ++i)
      same = t.values[i].first == search.ranges()[i].name && t.places[i] >= 0 && t.places[i] <= 1;
    TD_CHECK(same, Value,
             "'{}' is the journal of a search over other settings\nGive another folder.",
             path.str());
    search.tell(std::move(t));
    ++count;
  }
  return count;
}

}  // namespace tandem::train
