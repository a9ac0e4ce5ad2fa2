// SPDX-License-Identifier: Apache-2.0
// What load tests and sweeps say: as text, as JSON, and as a page.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tandem/io/json.h"
#include "tandem/runs/page.h"
#include "tandem/serve/load_test.h"

namespace tandem::serve {
namespace {

constexpr double kLoadQuantiles[] = {0.5, 0.9, 0.99, 0.999, 1};
constexpr const char* kLoadQuantileNames[] = {"p50", "p90", "p99", "p99.9", "max"};

io::Json quantiles_json(const Histogram& h) {
  io::Json::Object out{{"mean", h.count() > 0 ? h.sum() / static_cast<double>(h.count()) : 0.0}};
  for (size_t i = 0; i < std::size(kLoadQuantiles); ++i)
    out.emplace_back(kLoadQuantileNames[i], h.quantile(kLoadQuantiles[i]));
  return out;
}
std::string quantiles_text(const Histogram& h) {
  std::string out;
  for (size_t i = 0; i < std::size(kLoadQuantiles); ++i)
    out += fmt::format("{}{} {:.0f} us", i ? "  " : "", kLoadQuantileNames[i],
                       h.quantile(kLoadQuantiles[i]) * 1e6);
  return out + "\n";
}

// Of each point, by its column in the table.
std::vector<std::string> row_of(const SweepPoint& p) {
  std::vector<std::string> out{fmt::format("{:.0f}", p.rate), fmt::format("{:.0f}", p.reached)};
  for (const double s : {p.p50, p.p90, p.p99, p.p999, p.most})
    out.push_back(fmt::format("{:.3f}", s * 1e3));
  out.push_back(std::to_string(p.failed));
  out.emplace_back(p.within ? "yes" : "no");
  return out;
}
std::vector<std::string> sweep_head() {
  return {"rate",     "answered", "p50 ms", "p90 ms", "p99 ms",
          "p99.9 ms", "max ms",   "failed", "within"};
}

std::string best_text(const SweepReport& r) {
  const double best = r.best();
  return best > 0 ? fmt::format("{:.0f} requests/s is the highest rate whose p99 is within {:g} ms",
                                best, r.most_p99 * 1e3)
                  : fmt::format("no rate has its p99 within {:g} ms", r.most_p99 * 1e3);
}

}  // namespace

std::string LoadReport::json() const {
  io::Json::Object out{{"seconds", seconds},
                       {"requests", ok},
                       {"other_status", other},
                       {"first_other_status", first_other},
                       {"first_other_text", one_line(first_text)},
                       {"broken", broken},
                       {"unanswered", unanswered},
                       {"requests_per_second", rate()},
                       {"latency_seconds", quantiles_json(latency)}};
  if (first_token.count() > 0) {
    out.emplace_back("tokens", tokens);
    out.emplace_back("tokens_per_second", token_rate());
    out.emplace_back("first_token_seconds", quantiles_json(first_token));
    out.emplace_back("next_token_seconds", quantiles_json(next_token));
  }
  return io::Json(std::move(out)).dump();
}

std::string LoadReport::text() const {
  std::string out = fmt::format("{:.{}f} requests/s ({} in {} s)", rate(), rate() < 100 ? 2 : 0,
                                in_time, seconds);
  if (other > 0)
    out += fmt::format(", {} with another status, the first {} ({})", other, first_other,
                       one_line(first_text));
  if (broken > 0) out += fmt::format(", {} broken connections", broken);
  if (unanswered > 0) out += fmt::format(", {} without an answer", unanswered);
  out += "\n" + quantiles_text(latency);
  if (first_token.count() > 0)
    out += fmt::format("{:.1f} tokens/s\nfirst token: {}next tokens: {}", token_rate(),
                       quantiles_text(first_token), quantiles_text(next_token));
  return out;
}

double SweepReport::best() const {
  double out = 0;
  for (const SweepPoint& p : points) {
    if (!p.within) break;
    out = p.rate;
  }
  return out;
}

std::string SweepReport::json() const {
  io::Json::Array all;
  for (const SweepPoint& p : points)
    all.push_back(io::Json::Object{
        {"rate", p.rate},
        {"requests_per_second", p.reached},
        {"failed", p.failed},
        {"within", p.within},
        {"latency_seconds",
         io::Json::Object{
             {"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"p99.9", p.p999}, {"max", p.most}}}});
  return io::Json(io::Json::Object{{"most_p99_seconds", most_p99},
                                   {"closed_requests_per_second", closed_rate},
                                   {"best_requests_per_second", best()},
                                   {"points", std::move(all)}})
      .dump();
}

std::string SweepReport::text() const {
  std::string out;
  const auto line = [&out](const std::vector<std::string>& cells) {
    for (const std::string& c : cells) out += fmt::format("{:>10}", c);
    out += "\n";
  };
  line(sweep_head());
  for (const SweepPoint& p : points) line(row_of(p));
  if (closed_rate > 0) out += fmt::format("closed loop: {:.0f} requests/s\n", closed_rate);
  return out + best_text(*this) + "\n";
}

std::string SweepReport::html(const std::string& title,
                              const std::vector<std::pair<std::string, std::string>>& facts) const {
  runs::Page page(title);
  page.facts(facts);
  page.note(best_text(*this) + ".");
  std::vector<runs::Series> series{
      {"p50", {}, {}}, {"p90", {}, {}}, {"p99", {}, {}}, {"p99.9", {}, {}}, {"bound", {}, {}}};
  std::vector<std::vector<std::string>> rows;
  for (const SweepPoint& p : points) {
    const double of[] = {p.p50, p.p90, p.p99, p.p999, most_p99};
    for (size_t i = 0; i < series.size(); ++i) {
      series[i].x.push_back(p.rate);
      series[i].y.push_back(of[i] * 1e3);
    }
    rows.push_back(row_of(p));
  }
  page.chart("Latency in ms", "requests/s that were due", series);
  page.table("Rates", sweep_head(), rows);
  return page.html();
}

}  // namespace tandem::serve
