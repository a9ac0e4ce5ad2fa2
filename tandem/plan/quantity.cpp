// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"

namespace tandem::plan {
namespace {

using How = Quantity::How;

double result(How how, const std::vector<Quantity>& parts) {
  double v = how == How::product ? 1 : 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double p = parts[i].value;
    switch (how) {
      case How::given:
      case How::again:
        break;
      case How::sum:
        v += p;
        break;
      case How::difference:
        v = i == 0 ? p : v - p;
        break;
      case How::product:
        v *= p;
        break;
      case How::quotient:
        v = i == 0 ? p : v / p;
        break;
      case How::most:
        v = i == 0 ? p : std::max(v, p);
        break;
      case How::least:
        v = i == 0 ? p : std::min(v, p);
        break;
      case How::whole:
        v = std::ceil(p * (1 - 1e-12));  // 3 that came out as 3.0000000001 stays 3
        break;
      case How::root:
        v = std::sqrt(p);
        break;
    }
  }
  return v;
}

Quantity make(How how, std::string& key, std::string& label, std::string& unit, std::string& why,
              std::vector<Quantity>&& parts) {
  Quantity q;
  q.key = std::move(key);
  q.label = std::move(label);
  q.unit = std::move(unit);
  q.why = std::move(why);
  q.how = how;
  q.value = result(how, parts);
  // The range of a sum is that of its parts.
  bool ranged = false;
  for (const Quantity& p : parts) ranged |= p.low || p.high;
  if (ranged && how == How::sum) {
    q.low = q.high = 0.0;
    for (const Quantity& p : parts) {
      *q.low += p.low.value_or(p.value);
      *q.high += p.high.value_or(p.value);
    }
  }
  q.parts = std::move(parts);
  return q;
}

std::vector<Quantity> one(Quantity&& q) {
  std::vector<Quantity> parts;
  parts.push_back(std::move(q));
  return parts;
}

// What stands before the first and the other parts.
struct Mark {
  const char *first, *other;
};
Mark mark(How how) {
  switch (how) {
    case How::sum:
      return {"  ", "+ "};
    case How::difference:
      return {"  ", "- "};
    case How::product:
      return {"  ", "× "};
    case How::quotient:
      return {"  ", "÷ "};
    case How::most:
      return {"the larger of ", "and "};
    case How::least:
      return {"the smaller of ", "and "};
    case How::whole:
      return {"rounded up ", ""};
    case How::root:
      return {"the root of ", ""};
    case How::given:
    case How::again:
      break;
  }
  return {"", ""};
}

void explain_to(std::string& out, const Quantity& q, int level, int depth,
                const std::string& before, const std::string& share) {
  out += fmt::format("{:{}}{}{} = {}", "", 2 * level, before, q.label, show(q));
  if (q.low && q.high && *q.high > *q.low)
    out += fmt::format(" (between {} and {})", show(*q.low, q.unit), show(*q.high, q.unit));
  out += share;
  const std::string why = q.how == How::again ? "see there" : q.why;
  out += why.empty() ? fmt::format("   [{}]", q.key) : fmt::format("   [{}: {}]", q.key, why);
  out += "\n";
  if (depth == 0) return;
  const Mark m = mark(q.how);
  for (size_t i = 0; i < q.parts.size(); ++i)
    explain_to(out, q.parts[i], level + 1, depth - 1, i == 0 ? m.first : m.other,
               q.how == How::sum && q.parts.size() > 1 && q.value != 0
                   ? ", " + show_share(q.parts[i], q)
                   : std::string());
}

}  // namespace

Quantity given(std::string key, std::string label, double value, std::string unit,
               std::string why) {
  Quantity q;
  q.key = std::move(key);
  q.label = std::move(label);
  q.value = value;
  q.unit = std::move(unit);
  q.why = std::move(why);
  return q;
}
Quantity again(const Quantity& q) {
  Quantity r;
  r.key = q.key;
  r.label = q.label;
  r.value = q.value;
  r.unit = q.unit;
  r.how = How::again;
  return r;
}
Quantity sum(std::string key, std::string label, std::string unit, std::string why,
             std::vector<Quantity> parts) {
  return make(How::sum, key, label, unit, why, std::move(parts));
}
Quantity difference(std::string key, std::string label, std::string unit, std::string why,
                    std::vector<Quantity> parts) {
  return make(How::difference, key, label, unit, why, std::move(parts));
}
Quantity product(std::string key, std::string label, std::string unit, std::string why,
                 std::vector<Quantity> parts) {
  return make(How::product, key, label, unit, why, std::move(parts));
}
Quantity quotient(std::string key, std::string label, std::string unit, std::string why, Quantity a,
                  Quantity b) {
  std::vector<Quantity> parts = one(std::move(a));
  parts.push_back(std::move(b));
  return make(How::quotient, key, label, unit, why, std::move(parts));
}
Quantity most(std::string key, std::string label, std::string unit, std::string why,
              std::vector<Quantity> parts) {
  return make(How::most, key, label, unit, why, std::move(parts));
}
Quantity least(std::string key, std::string label, std::string unit, std::string why,
               std::vector<Quantity> parts) {
  return make(How::least, key, label, unit, why, std::move(parts));
}

Quantity whole(std::string key, std::string label, std::string unit, std::string why,
               Quantity part) {
  return make(How::whole, key, label, unit, why, one(std::move(part)));
}
Quantity root(std::string key, std::string label, std::string unit, std::string why,
              Quantity part) {
  return make(How::root, key, label, unit, why, one(std::move(part)));
}

Quantity rounded_up(std::string key, std::string label, std::string unit, std::string why,
                    Quantity part, double step) {
  Quantity one_step = given(key + ".step", "steps of", step, unit, "as such things are sold");
  Quantity count = whole(key + ".steps", "steps", "", "",
                         quotient(key + ".exact", "exactly", "", "", std::move(part), one_step));
  return product(std::move(key), std::move(label), std::move(unit), std::move(why),
                 {std::move(count), again(one_step)});
}

Quantity prefixed(Quantity q, const std::string& prefix) {
  q.key = prefix + "." + q.key;
  for (Quantity& p : q.parts) p = prefixed(std::move(p), prefix);
  return q;
}

void check(const Quantity& q) {
  TD_CHECK(std::isfinite(q.value), Internal, "{} is not a finite number", q.key);
  if (q.low)
    TD_CHECK(*q.low <= q.value * (1 + 1e-9) + 1e-12, Internal, "{} is below its range", q.key);
  if (q.high)
    TD_CHECK(*q.high >= q.value * (1 - 1e-9) - 1e-12, Internal, "{} is above its range", q.key);
  if (q.how == How::given || q.how == How::again) {
    TD_CHECK(q.parts.empty(), Internal, "{} is given and has parts", q.key);
    TD_CHECK(q.how == How::again || !q.why.empty(), Internal,
             "{} is given and does not say by whom", q.key);
    return;
  }
  TD_CHECK(!q.parts.empty(), Internal, "{} has no parts", q.key);
  const double v = result(q.how, q.parts);
  TD_CHECK(std::abs(v - q.value) <= 1e-9 * std::max(std::abs(v), std::abs(q.value)), Internal,
           "{} is {} and its parts give {}", q.key, q.value, v);
  for (const Quantity& p : q.parts) check(p);
}

const Quantity* find(const Quantity& root, const std::string& key) {
  const Quantity* repeated = nullptr;
  if (root.key == key) {
    if (root.how != How::again) return &root;
    repeated = &root;
  }
  for (const Quantity& p : root.parts)
    if (const Quantity* q = find(p, key)) {
      if (q->how != How::again) return q;
      repeated = q;
    }
  return repeated;
}

std::vector<std::string> keys(const Quantity& root) {
  std::vector<std::string> all{root.key};
  for (const Quantity& p : root.parts)
    for (std::string& k : keys(p)) all.push_back(std::move(k));
  return all;
}

const char* words(Quantity::How how) {
  static const char* const kWords[] = {"",
                                       "see",
                                       "sum of",
                                       "difference of",
                                       "product of",
                                       "quotient of",
                                       "the larger of",
                                       "the smaller of",
                                       "rounded up:",
                                       "the root of"};
  return kWords[static_cast<int>(how)];
}

std::string explain(const Quantity& q, int depth) {
  std::string out;
  explain_to(out, q, 0, depth, "", "");
  return out;
}

io::Json to_json(const Quantity& q) {
  static const char* const kHow[] = {"given",    "again", "sum",   "difference", "product",
                                     "quotient", "most",  "least", "whole",      "root"};
  io::Json::Object o;
  o.emplace_back("key", q.key);
  o.emplace_back("label", q.label);
  o.emplace_back("value", q.value);
  o.emplace_back("unit", q.unit);
  if (q.low) o.emplace_back("low", *q.low);
  if (q.high) o.emplace_back("high", *q.high);
  o.emplace_back("how", kHow[static_cast<int>(q.how)]);
  if (!q.why.empty()) o.emplace_back("why", q.why);
  if (!q.parts.empty()) {
    io::Json::Array parts;
    for (const Quantity& p : q.parts) parts.push_back(to_json(p));
    o.emplace_back("parts", std::move(parts));
  }
  return io::Json(std::move(o));
}

}  // namespace tandem::plan
