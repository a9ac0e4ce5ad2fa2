// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/table_stats.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <unordered_map>

#include "tandem/base/ascii.h"
#include "tandem/base/error.h"
#include "tandem/base/nearest.h"

namespace tandem::data {
namespace {

constexpr size_t kMostValues = 10000;
constexpr size_t kListed = 50;  ///< most distinct strings that a schema lists

bool is_missing(std::string_view f) {
  for (const char* word : {"", "NA", "N/A", "null", "NULL", "None", "NaN", "nan", "?"})
    if (f == word) return true;
  return false;
}

std::optional<double> number_of(std::string_view f) {
  const std::string text(f);
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != 0 || text.find_first_of("xX") != text.npos) return {};
  return v;
}

/// Collects one column's values as they arrive.
struct Gather {
  std::string name;
  int64_t rows = 0, missing = 0, nonfinite = 0, texts = 0;
  bool whole = true;
  std::vector<double> numbers;
  std::unordered_map<std::string, int64_t> counts;

  void add(std::string_view field) {
    ++rows;
    field = trimmed(field);
    if (is_missing(field)) {
      ++missing;
      return;
    }
    if (const auto v = number_of(field)) {
      if (std::isfinite(*v)) {
        whole = whole && *v == std::floor(*v) && std::abs(*v) < 9e15;
        numbers.push_back(*v);
      } else {
        ++nonfinite;
      }
    } else {
      ++texts;
    }
    const auto it = counts.find(std::string(field));
    if (it != counts.end())
      ++it->second;
    else if (counts.size() < kMostValues)
      counts.emplace(field, 1);
  }

  ColumnStats stats() && {
    ColumnStats c{
        .name = std::move(name), .rows = rows, .missing = missing, .nonfinite = nonfinite};
    // A single string makes the column one of strings: its numbers are then taken as spelled.
    c.type = texts > 0                           ? ColumnType::text
             : numbers.empty() && nonfinite == 0 ? ColumnType::empty
             : whole && nonfinite == 0           ? ColumnType::integer
                                                 : ColumnType::number;
    std::vector<std::pair<std::string, int64_t>> all(counts.begin(), counts.end());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    c.distinct = static_cast<int64_t>(all.size());
    c.frequent.assign(all.begin(),
                      all.begin() + static_cast<ptrdiff_t>(std::min<size_t>(all.size(), 10)));
    if (c.type == ColumnType::text) {
      c.counts = std::move(all);
      return c;
    }
    std::sort(numbers.begin(), numbers.end());
    if (!numbers.empty()) {
      double sum = 0, squares = 0;
      for (double v : numbers) sum += v;
      const auto n = static_cast<double>(numbers.size());
      c.mean = sum / n;
      for (double v : numbers) squares += (v - c.mean) * (v - c.mean);
      c.deviation = std::sqrt(squares / n);
      c.low = numbers.front();
      c.high = numbers.back();
      c.median = numbers[numbers.size() / 2];
    }
    c.sorted = std::move(numbers);
    return c;
  }
};

TableStats finished(std::vector<Gather> columns, int64_t rows, const std::string& name) {
  TableStats t{.name = name, .rows = rows};
  for (Gather& g : columns) t.columns.push_back(std::move(g).stats());
  return t;
}

TableStats json_lines(const FilePath& path) {
  const std::string text = read_file(path);
  std::vector<Gather> columns;
  std::map<std::string, size_t> place;
  int64_t rows = 0, line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view one = trimmed(std::string_view(text).substr(at, end - at));
    at = end + 1;
    ++line;
    if (one.empty() || one == "\r") continue;
    const std::string loc = fmt::format("{} line {}", path.str(), line);
    const io::Json j = io::parse_json(one, loc);
    TD_CHECK(j.as_object(), Format, "{}: expected an object, got {}", loc, j.kind());
    for (const auto& [key, value] : *j.as_object()) {
      TD_CHECK(!value.as_object(), Format, "{}: '{}' is an object; a table expects plain values",
               loc, key);
      const auto [it, fresh] = place.emplace(key, columns.size());
      if (fresh) {
        columns.push_back({.name = key});
        columns.back().rows = columns.back().missing = rows;  // the rows before had none
      }
      const std::string* s = value.as_string();
      columns[it->second].add(s ? *s : value.dump());
    }
    ++rows;
    for (Gather& g : columns)
      for (; g.rows < rows; ++g.rows) ++g.missing;
  }
  return finished(std::move(columns), rows, path.str());
}

ColumnType type_of(const std::string& name, const std::string& what) {
  for (ColumnType t :
       {ColumnType::empty, ColumnType::integer, ColumnType::number, ColumnType::text})
    if (name == to_string(t)) return t;
  TD_FAIL(Format, "{}: there is no type '{}'. There are empty, integer, number, text", what, name);
}

double json_number(const io::Json& j, const std::string& what) {
  if (j.as_double()) return *j.as_double();
  TD_CHECK(j.as_int(), Format, "{}: expected a number, got {}", what, j.kind());
  return static_cast<double>(*j.as_int());
}

void check_keys(const io::Json& j, const std::vector<std::string>& known, const std::string& what) {
  TD_CHECK(j.as_object(), Format, "{}: expected an object, got {}", what, j.kind());
  for (const auto& [key, value] : *j.as_object()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest_word(key, known);
    TD_FAIL(Format, "{}: there is no key '{}'{}", what, key,
            near.empty() ? "" : fmt::format(", did you mean '{}'?", near));
  }
}

/// Jensen-Shannon divergence in bits of two counts over the same bins.
double divergence(const std::vector<double>& a, const std::vector<double>& b) {
  double na = 0, nb = 0, sum = 0;
  for (double v : a) na += v;
  for (double v : b) nb += v;
  if (na == 0 || nb == 0) return na == nb ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const double p = a[i] / na, q = b[i] / nb, m = (p + q) / 2;
    if (p > 0) sum += 0.5 * p * std::log2(p / m);
    if (q > 0) sum += 0.5 * q * std::log2(q / m);
  }
  return std::clamp(sum, 0.0, 1.0);
}

}  // namespace

const char* to_string(ColumnType t) {
  constexpr const char* kNames[] = {"empty", "integer", "number", "text"};
  return kNames[static_cast<size_t>(t)];
}

const ColumnStats* TableStats::find(const std::string& column) const {
  for (const ColumnStats& c : columns)
    if (c.name == column) return &c;
  return nullptr;
}

TableStats table_stats(const io::Csv& table, const std::string& name) {
  std::vector<Gather> columns(table.columns());
  for (size_t c = 0; c < columns.size(); ++c) {
    columns[c].name = table.names().empty() ? fmt::format("column {}", c + 1)
                                            : std::string(trimmed(table.names()[c]));
    for (size_t r = 0; r < table.rows(); ++r) columns[c].add(table.field(r, c));
  }
  return finished(std::move(columns), static_cast<int64_t>(table.rows()), name);
}

TableStats read_table_stats(const FilePath& path, std::optional<bool> header) {
  const std::string& name = path.str();
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return json_lines(path);
  io::CsvOptions o;
  if (name.ends_with(".tsv") || name.ends_with(".tsv.gz")) o.delimiter = '\t';
  if (header) {
    o.header = *header;
  } else {
    o.header = false;
    const io::Csv first = io::Csv::read(path, o);
    bool texts = first.rows() > 1;
    for (size_t c = 0; texts && c < first.columns(); ++c) {
      const std::string_view f = trimmed(first.field(0, c));
      texts = !is_missing(f) && !number_of(f);
    }
    o.header = texts;
    if (!texts) return table_stats(first, name);
    // Covers tables of strings below as well: a header only where some column changes its type.
    bool differs = false;
    for (size_t c = 0; c < first.columns(); ++c)
      for (size_t r = 1; r < std::min<size_t>(first.rows(), 20); ++r)
        differs = differs || number_of(trimmed(first.field(r, c)));
    if (!differs) {
      // Column names do not appear again as values.
      for (size_t c = 0; c < first.columns() && !differs; ++c) {
        bool again = false;
        for (size_t r = 1; r < first.rows(); ++r)
          again = again || first.field(r, c) == first.field(0, c);
        differs = !again;
      }
      if (!differs) return table_stats(first, name);
    }
  }
  return table_stats(io::Csv::read(path, o), name);
}

Schema infer_schema(const TableStats& stats) {
  Schema s;
  for (const ColumnStats& c : stats.columns) {
    ColumnSchema one{.name = c.name, .type = c.type};
    one.presence =
        c.rows > 0 ? static_cast<double>(c.rows - c.missing) / static_cast<double>(c.rows) : 0;
    // A little less than what was observed, unless nothing was missing.
    if (one.presence < 1) one.presence = std::floor(one.presence * 90) / 100;
    if (!c.sorted.empty()) {
      one.low = c.low;
      one.high = c.high;
    }
    if (c.type == ColumnType::text && c.counts.size() <= kListed)
      for (const auto& [value, n] : c.counts) one.values.push_back(value);
    std::sort(one.values.begin(), one.values.end());
    s.columns.push_back(std::move(one));
  }
  return s;
}

io::Json Schema::to_json() const {
  io::Json::Array all;
  for (const ColumnSchema& c : columns) {
    io::Json::Object o{{"name", c.name}, {"type", to_string(c.type)}, {"presence", c.presence}};
    if (c.low) o.emplace_back("low", *c.low);
    if (c.high) o.emplace_back("high", *c.high);
    if (!c.values.empty()) {
      io::Json::Array values;
      for (const std::string& v : c.values) values.push_back(v);
      o.emplace_back("values", std::move(values));
    }
    all.push_back(std::move(o));
  }
  return io::Json::Object{{"least_rows", least_rows}, {"columns", std::move(all)}};
}

Schema Schema::from_json(const io::Json& j, const std::string& what) {
  check_keys(j, {"least_rows", "columns"}, what);
  Schema s;
  if (const io::Json* n = j.find("least_rows"))
    s.least_rows = static_cast<int64_t>(json_number(*n, what + ": least_rows"));
  const io::Json* all = j.find("columns");
  TD_CHECK(all && all->as_array(), Format, "{}: \"columns\" expects a list", what);
  for (const io::Json& c : *all->as_array()) {
    check_keys(c, {"name", "type", "presence", "low", "high", "values"}, what);
    const io::Json *name = c.find("name"), *type = c.find("type");
    TD_CHECK(name && name->as_string() && type && type->as_string(), Format,
             "{}: a column expects \"name\" and \"type\"", what);
    ColumnSchema one{.name = *name->as_string()};
    const std::string loc = what + ": " + one.name;
    one.type = type_of(*type->as_string(), loc);
    if (const io::Json* v = c.find("presence")) one.presence = json_number(*v, loc);
    if (const io::Json* v = c.find("low")) one.low = json_number(*v, loc);
    if (const io::Json* v = c.find("high")) one.high = json_number(*v, loc);
    if (const io::Json* v = c.find("values")) {
      TD_CHECK(v->as_array(), Format, "{}: \"values\" expects a list", loc);
      for (const io::Json& x : *v->as_array()) {
        TD_CHECK(x.as_string(), Format, "{}: values must be strings", loc);
        one.values.push_back(*x.as_string());
      }
    }
    s.columns.push_back(std::move(one));
  }
  return s;
}

std::vector<Anomaly> validate(const TableStats& t, const Schema& schema) {
  std::vector<Anomaly> out;
  if (t.rows < schema.least_rows)
    out.push_back({"", fmt::format("{} rows, expected at least {}", t.rows, schema.least_rows)});
  std::vector<std::string> known;
  for (const ColumnSchema& c : schema.columns) known.push_back(c.name);
  for (const ColumnStats& c : t.columns)
    if (std::find(known.begin(), known.end(), c.name) == known.end()) {
      const std::string near = nearest_word(c.name, known);
      out.push_back({c.name, "the schema has no such column" +
                                 (near.empty() ? "" : fmt::format(", did you mean '{}'?", near))});
    }
  for (const ColumnSchema& want : schema.columns) {
    const ColumnStats* c = t.find(want.name);
    auto say = [&](std::string what) { out.push_back({want.name, std::move(what)}); };
    if (!c) {
      say("the column is missing");
      continue;
    }
    const bool fits = want.type == c->type || c->type == ColumnType::empty ||
                      (want.type == ColumnType::number && c->type == ColumnType::integer) ||
                      want.type == ColumnType::text;
    if (!fits && want.type != ColumnType::empty)
      say(fmt::format("is of type {}, expected {}{}", to_string(c->type), to_string(want.type),
                      c->type == ColumnType::text && !c->frequent.empty()
                          ? fmt::format(" (such as '{}')", c->frequent[0].first)
                          : ""));
    const double present =
        c->rows > 0 ? static_cast<double>(c->rows - c->missing) / static_cast<double>(c->rows) : 0;
    if (present < want.presence - 1e-12)
      say(fmt::format("{} of {} values are missing: {:.4g} are there, expected {:.4g}", c->missing,
                      c->rows, present, want.presence));
    if (c->nonfinite > 0) say(fmt::format("{} infinite number(s)", c->nonfinite));
    if (!c->sorted.empty() && fits) {
      if (want.low && c->low < *want.low) say(fmt::format("{:g} is below {:g}", c->low, *want.low));
      if (want.high && c->high > *want.high)
        say(fmt::format("{:g} is above {:g}", c->high, *want.high));
    }
    if (!want.values.empty()) {
      const std::set<std::string> right(want.values.begin(), want.values.end());
      int64_t wrong = 0;
      std::string first;
      for (const auto& [value, n] : c->type == ColumnType::text ? c->counts : c->frequent)
        if (!right.count(value)) {
          wrong += n;
          if (first.empty()) first = value;
        }
      if (wrong > 0)
        say(fmt::format("{} value(s) that the schema does not know, such as '{}'", wrong, first));
    }
  }
  return out;
}

std::vector<Drift> drift(const TableStats& a, const TableStats& b) {
  std::vector<Drift> out;
  for (const ColumnStats& x : a.columns) {
    const ColumnStats* y = b.find(x.name);
    if (!y) continue;
    Drift d{.column = x.name};
    auto lost = [](const ColumnStats& c) {
      return c.rows > 0 ? static_cast<double>(c.missing) / static_cast<double>(c.rows) : 0.0;
    };
    d.missing = lost(*y) - lost(x);
    const bool texts = x.type == ColumnType::text || y->type == ColumnType::text;
    std::vector<double> p, q;
    if (texts) {
      std::map<std::string, std::pair<double, double>> both;
      double n = 0, m = 0;
      for (const auto& [value, k] : x.type == ColumnType::text ? x.counts : x.frequent) {
        both[value].first += static_cast<double>(k);
        n += static_cast<double>(k);
      }
      for (const auto& [value, k] : y->type == ColumnType::text ? y->counts : y->frequent) {
        both[value].second += static_cast<double>(k);
        m += static_cast<double>(k);
      }
      for (const auto& [value, k] : both) {
        p.push_back(k.first);
        q.push_back(k.second);
        d.l_infinity = std::max(d.l_infinity,
                                std::abs(k.first / std::max(n, 1.0) - k.second / std::max(m, 1.0)));
      }
    } else if (!x.sorted.empty()) {
      // Bins between the first set's quantiles; a very frequent value stays in one bin.
      std::vector<double> edges;
      for (size_t k = 1; k < 20; ++k) {
        const double e = x.sorted[k * x.sorted.size() / 20];
        if (edges.empty() || e > edges.back()) edges.push_back(e);
      }
      p.assign(edges.size() + 1, 0);
      q = p;
      auto fill = [&](const std::vector<double>& v, std::vector<double>& bins) {
        for (double u : v)
          bins[static_cast<size_t>(std::lower_bound(edges.begin(), edges.end(), u) -
                                   edges.begin())] += 1;
      };
      fill(x.sorted, p);
      fill(y->sorted, q);
    } else {
      d.jensen_shannon = y->sorted.empty() ? 0 : 1;
    }
    if (!p.empty()) d.jensen_shannon = divergence(p, q);
    out.push_back(std::move(d));
  }
  std::stable_sort(out.begin(), out.end(), [](const Drift& u, const Drift& v) {
    return u.jensen_shannon > v.jensen_shannon;
  });
  return out;
}

}  // namespace tandem::data
