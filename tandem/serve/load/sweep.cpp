// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/serve/load_test.h"

namespace tandem::serve {
namespace {

constexpr double kShares[] = {0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9};
constexpr int kCloser = 3;         // rates between the last within the bound and the first beyond
constexpr double kKeepsUp = 0.97;  // of a rate, answered in time

SweepPoint sweep_point(const SweepOptions& o, const LoadRequest& request, double rate) {
  LoadOptions load = o.load;
  load.rate = rate;
  LoadReport r;
  run_load(load, request, r);
  SweepPoint p{.rate = rate, .reached = r.rate()};
  p.p50 = r.latency.quantile(0.5);
  p.p90 = r.latency.quantile(0.9);
  p.p99 = r.latency.quantile(0.99);
  p.p999 = r.latency.quantile(0.999);
  p.most = r.latency.quantile(1);
  p.failed = r.other + r.broken + r.unanswered;
  // Few requests come in lumps: one more or less is not a rate that was missed.
  p.within =
      r.good() && p.p99 <= o.most_p99 && p.reached * r.seconds >= kKeepsUp * rate * r.seconds - 1;
  return p;
}

}  // namespace

SweepReport sweep_load(const SweepOptions& options, const LoadRequest& request,
                       const std::function<void(const SweepPoint&)>& said) {
  SweepReport report;
  report.most_p99 = options.most_p99;
  const auto add = [&](double rate) {
    const SweepPoint p = sweep_point(options, request, rate);
    if (said) said(p);
    const auto at = std::find_if(report.points.begin(), report.points.end(),
                                 [rate](const SweepPoint& q) { return q.rate > rate; });
    report.points.insert(at, p);
    return p.within;
  };
  std::vector<double> rates = options.rates;
  for (const double rate : rates)
    TD_CHECK(rate > 0 && std::isfinite(rate), Value, "{} is not a rate above 0", rate);
  const bool closer = rates.empty();
  if (closer) {
    LoadOptions closed = options.load;
    closed.rate = 0;
    LoadReport r;
    run_load(closed, request, r);
    TD_CHECK(r.good(), Io, "the closed loop that finds the rates failed: {}", r.text());
    report.closed_rate = r.rate();
    for (const double share : kShares) rates.push_back(share * r.rate());
  }
  std::sort(rates.begin(), rates.end());
  double low = 0, high = 0;
  for (const double rate : rates) {
    const bool within = add(rate);
    if (within && high == 0) low = rate;
    if (!within && high == 0) high = rate;
    if (!within && closer) break;  // higher rates are worse still
  }
  if (closer && high == 0) high = report.closed_rate;
  for (int i = 0; closer && i < kCloser && low > 0; ++i) {
    const double middle = (low + high) / 2;
    (add(middle) ? low : high) = middle;
  }
  return report;
}

}  // namespace tandem::serve
