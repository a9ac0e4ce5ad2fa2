// SPDX-License-Identifier: Apache-2.0
// A plan as text and JSON, and the answers to --why. Every number that is printed is a figure of
// the plan.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tandem/base/error.h"
#include "tandem/plan/names_internal.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

// Every quantity of the plan, parts before what is made of them.
template <class F>
void visit(const Quantity& q, const F& f) {
  for (const Quantity& p : q.parts) visit(p, f);
  f(q);
}
template <class F>
void visit(const Plan& p, const F& f) {
  for (const Quantity& q : p.figures) visit(q, f);
  for (const ServerLine& l : p.server)
    for (const Quantity& q : l.figures) visit(q, f);
}

// Categories of a training step's memory that the table has even where they take nothing at the
// highest moment.
bool always_shown(const std::string& key) {
  return key == "memory.weights" || key == "memory.gradients" || key == "memory.optimizer" ||
         key == "memory.activations";
}

}  // namespace

std::string unusual_of(const Plan& p) {
  const WorkOptions& o = (p.compiled ? p.compiled_work : p.eager_work).options;
  std::string s;
  if (o.framework == Framework::pytorch) s += ", as in PyTorch";
  if (o.attention != AttentionForm::usual)
    s += fmt::format(", {} attention", to_string(o.attention));
  if (!p.spread.empty()) s += fmt::format(", spread as {}", p.spread);
  if (!p.recompute.empty()) s += fmt::format(", recomputing ({})", p.recompute);
  return s;
}

const Quantity* Plan::find(const std::string& key) const {
  const Quantity* repeated = nullptr;
  const auto look = [&](const Quantity& root) -> const Quantity* {
    const Quantity* q = plan::find(root, key);
    if (q && q->how != Quantity::How::again) return q;
    if (q) repeated = q;
    return nullptr;
  };
  for (const Quantity& q : figures)
    if (const Quantity* f = look(q)) return f;
  for (const ServerLine& l : server)
    for (const Quantity& q : l.figures)
      if (const Quantity* f = look(q)) return f;
  return repeated;
}

std::vector<std::string> Plan::keys() const {
  std::vector<std::string> all;
  visit(*this, [&](const Quantity& q) { all.push_back(q.key); });
  for (const ServerLine& l : server) all.push_back(l.key);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

const Quantity& Plan::at(const std::string& key) const {
  if (const Quantity* q = find(key)) return *q;
  std::vector<std::string> roots;
  for (const Quantity& q : figures) roots.push_back(q.key);
  for (const ServerLine& l : server) roots.push_back(l.key);
  TD_FAIL(Value, "the plan has no figure '{}'\n{}Its figures are {}, and their parts (--keys).",
          key, did_you_mean(key, keys()), fmt::join(roots, ", "));
}

void check(const Plan& p) {
  std::map<std::string, const Quantity*> seen;
  std::vector<const Quantity*> repeated;
  visit(p, [&](const Quantity& q) {
    if (q.how == Quantity::How::again) repeated.push_back(&q);
    const auto [at, fresh] = seen.try_emplace(q.key, &q);
    const Quantity& first = *at->second;
    TD_CHECK(std::abs(first.value - q.value) <=
                     1e-9 * std::max(std::abs(first.value), std::abs(q.value)) &&
                 first.unit == q.unit,
             Internal, "{} is {} and {}", q.key, show(first), show(q));
    if (!fresh && first.how == Quantity::How::again) at->second = &q;
  });
  for (const Quantity* q : repeated)
    TD_CHECK(seen.at(q->key)->how != Quantity::How::again, Internal,
             "{} is repeated and stands nowhere", q->key);
  for (const Quantity& q : p.figures) check(q);
  for (const ServerLine& l : p.server) {
    for (const Quantity& q : l.figures) check(q);
    for (const std::string& key : l.also)
      TD_CHECK(p.find(key), Internal, "{} shows {}, which stands nowhere", l.key, key);
  }
}

std::string explain(const Plan& p, const std::string& key) {
  for (const ServerLine& l : p.server) {
    if (l.key != key) continue;
    std::string s = fmt::format("{}: {}\n", l.part, l.cause);
    for (const Quantity& q : l.figures) s += explain(q);
    for (const std::string& k : l.also) s += explain(p.at(k));
    return s;
  }
  return explain(p.at(key));
}

std::string to_text(const Plan& p) {
  const Workload& w = p.compiled ? p.compiled_work : p.eager_work;
  std::string s =
      fmt::format("{} on {} x {}, batch {}, {}, {}{}{}\n\n", p.model, p.n, p.gpu.name, p.batch,
                  to_string(w.options.precision), p.compiled ? "compiled" : "eager",
                  w.options.training ? ", " + w.options.optimizer : "", unusual_of(p));
  for (const Quantity& q : p.figures) {
    s += fmt::format("{:<34} {:>12}", q.label, show(q));
    if (q.low && q.high && *q.high > *q.low * 1.001)
      s += fmt::format("   {} to {}", show(*q.low, q.unit), show(*q.high, q.unit));
    s += fmt::format("   [{}]\n", q.key);
    if (q.key == "memory")
      for (const Quantity& part : q.parts)
        if (part.value > 0 || (w.options.training && always_shown(part.key)))
          s += fmt::format("  {:<32} {:>12}   {:>6}   [{}]\n", part.label, show(part),
                           show_share(part, q), part.key);
  }
  if (!p.server.empty()) {
    s += fmt::format("\n{:<16}{:<26}{:<26}{:<28}{}\n", "a server", "eager", "compiled",
                     "rule of thumb", "because");
    for (const ServerLine& l : p.server)
      s += fmt::format("{:<16}{:<26}{:<26}{:<28}{}   [{}]\n", l.part, l.eager, l.compiled, l.thumb,
                       l.cause, l.key);
  }
  if (!p.notes.empty()) s += "\n";
  for (const std::string& n : p.notes) s += n + "\n";
  return s + "\nEvery figure: --why KEY, for example --why memory.\n";
}

io::Json to_json(const Plan& p) {
  io::Json::Object o;
  o.emplace_back("model", p.model);
  o.emplace_back("gpu", p.gpu.name);
  o.emplace_back("gpus", p.n);
  o.emplace_back("batch", p.batch);
  o.emplace_back("mode", p.compiled ? "compiled" : "eager");
  const WorkOptions& options = (p.compiled ? p.compiled_work : p.eager_work).options;
  o.emplace_back("framework", to_string(options.framework));
  o.emplace_back("attention", to_string(options.attention));
  o.emplace_back("recompute", p.recompute.empty() ? "none" : p.recompute);
  o.emplace_back("fits", p.fits);
  o.emplace_back("within_limits", p.within_limits);
  io::Json::Array figures, server, notes;
  for (const Quantity& q : p.figures) figures.push_back(to_json(q));
  for (const ServerLine& l : p.server) {
    io::Json::Array parts;
    for (const Quantity& q : l.figures) parts.push_back(to_json(q));
    server.push_back(io::Json(io::Json::Object{{"part", l.part},
                                               {"key", l.key},
                                               {"eager", l.eager},
                                               {"compiled", l.compiled},
                                               {"rule_of_thumb", l.thumb},
                                               {"cause", l.cause},
                                               {"figures", std::move(parts)}}));
  }
  for (const std::string& n : p.notes) notes.push_back(io::Json(n));
  o.emplace_back("figures", std::move(figures));
  o.emplace_back("server", std::move(server));
  o.emplace_back("notes", std::move(notes));
  return io::Json(std::move(o));
}

}  // namespace tandem::plan
