// SPDX-License-Identifier: Apache-2.0
#include "tests/plan/plan_helper.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "tandem/plan/jobs.h"

namespace tandem::plan {
namespace {

double number(const io::Json& q, const char* key) {
  const io::Json* v = q.find(key);
  return v->as_int() ? static_cast<double>(*v->as_int()) : *v->as_double();
}
const std::string& text_of(const io::Json& q, const char* key) { return *q.find(key)->as_string(); }

// All quantities of a plan's JSON.
void each(const io::Json& plan, const std::function<void(const io::Json&)>& f) {
  const std::function<void(const io::Json&)> down = [&](const io::Json& q) {
    f(q);
    if (const io::Json* parts = q.find("parts"))
      for (const io::Json& p : *parts->as_array()) down(p);
  };
  for (const io::Json& q : *plan.find("figures")->as_array()) down(q);
  for (const io::Json& l : *plan.find("server")->as_array())
    for (const io::Json& q : *l.find("figures")->as_array()) down(q);
}

bool close(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

double worked_out(const std::string& how, const std::vector<double>& v) {
  double x = v[0];
  for (size_t k = 1; k < v.size(); ++k) {
    if (how == "sum") x += v[k];
    if (how == "difference") x -= v[k];
    if (how == "product") x *= v[k];
    if (how == "quotient") x /= v[k];
    if (how == "most") x = std::max(x, v[k]);
    if (how == "least") x = std::min(x, v[k]);
  }
  if (how == "whole") x = std::ceil(x - 1e-9 * std::abs(x));
  if (how == "root") x = std::sqrt(x);
  return x;
}

bool digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1) + 0.5)];
}

PlanRequest request(const std::string& model, const std::string& gpu) {
  PlanRequest r;
  r.job = find_job(model);
  r.gpu = gpu;
  r.batch = 32;
  return r;
}

std::vector<std::string> broken_sums(const io::Json& plan) {
  std::vector<std::string> broken;
  std::map<std::string, double> values;
  std::set<std::string> stand;
  each(plan, [&](const io::Json& q) {
    const std::string& key = text_of(q, "key");
    const auto [at, fresh] = values.try_emplace(key, number(q, "value"));
    if (!fresh && !close(at->second, number(q, "value"))) broken.push_back(key + " has two values");
    if (text_of(q, "how") != "again") stand.insert(key);
  });
  each(plan, [&](const io::Json& q) {
    const std::string &key = text_of(q, "key"), &how = text_of(q, "how");
    const io::Json* parts = q.find("parts");
    if (how == "again") {
      if (!stand.count(key)) broken.push_back(key + " is repeated and stands nowhere");
      return;
    }
    if (how == "given") {
      if (parts || !q.find("why")) broken.push_back(key + " is given without a reason");
      return;
    }
    if (!parts || parts->as_array()->empty()) {
      broken.push_back(key + " has no parts");
      return;
    }
    std::vector<double> v;
    for (const io::Json& p : *parts->as_array()) v.push_back(number(p, "value"));
    if (!close(worked_out(how, v), number(q, "value"))) broken.push_back(key + " does not add up");
  });
  return broken;
}

std::vector<std::string> shown_keys(const std::string& text) {
  std::vector<std::string> all;
  for (size_t at = text.find('['); at != text.npos; at = text.find('[', at + 1)) {
    const size_t end = text.find(']', at);
    if (end == text.npos) break;
    all.push_back(text.substr(at + 1, end - at - 1));
  }
  return all;
}

std::vector<std::string> unexplained_numbers(const std::string& text, const io::Json& plan,
                                             std::vector<std::string> words) {
  std::set<std::string> figures;
  each(plan, [&](const io::Json& q) {
    const std::string& unit = text_of(q, "unit");
    figures.insert(show(number(q, "value"), unit));
    for (const char* end : {"low", "high"})
      if (q.find(end)) figures.insert(show(number(q, end), unit));
    words.push_back(text_of(q, "label"));
    words.push_back("[" + text_of(q, "key") + "]");
    // The shares that a sum's parts have in it.
    if (text_of(q, "how") == "sum")
      for (const io::Json& p : *q.find("parts")->as_array()) {
        Quantity part, all;
        part.value = number(p, "value");
        all.value = number(q, "value");
        figures.insert(show_share(part, all));
      }
  });
  // Words go first, the longest before those that they hold.
  std::sort(words.begin(), words.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  std::string rest = text;
  for (const std::string& w : words) {
    if (std::none_of(w.begin(), w.end(), digit)) continue;
    for (size_t at = rest.find(w); at != rest.npos; at = rest.find(w, at))
      rest.replace(at, w.size(), w.size(), '_');
  }
  std::vector<std::string> left;
  for (size_t at = 0; at < rest.size(); ++at) {
    if (!digit(rest[at])) continue;
    const size_t from = at > 0 && (rest[at - 1] == '$' || rest[at - 1] == '-') ? at - 1 : at;
    size_t longest = 0;
    for (const std::string& f : figures) {
      const size_t end = from + f.size();
      if (f.size() > longest && rest.compare(from, f.size(), f) == 0 &&
          (end >= rest.size() ||
           (!digit(rest[end]) && !(rest[end] == '.' && digit(rest[end + 1])))))
        longest = f.size();
    }
    if (longest > 0) {
      at = from + longest - 1;
      continue;
    }
    size_t end = at;
    while (end < rest.size() && (digit(rest[end]) || rest[end] == '.')) ++end;
    const size_t before = at > 30 ? at - 30 : 0;
    left.push_back(rest.substr(before, end + 20 - before));
    at = end;
  }
  return left;
}

}  // namespace tandem::plan
