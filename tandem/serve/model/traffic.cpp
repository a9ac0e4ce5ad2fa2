// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/traffic.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tandem/base/log.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/model/repository.h"

namespace tandem::serve {
namespace {

// Answers so far: those of the scheduler, and texts. What waited too long, or found no room to
// wait, failed as well.
struct Answered {
  uint64_t ok = 0, failed = 0;
  double p99 = 0;
  double failed_share() const {
    return ok + failed > 0 ? static_cast<double>(failed) / static_cast<double>(ok + failed) : 0;
  }
};
Answered answered_of(const ModelVersion& v) {
  const JobCounts& c = v.scheduler->counts();
  Answered out{c.ok, c.failed + c.expired + c.rejected + c.displaced, c.total.quantile(0.99)};
  if (v.text) {
    const TextCounts& t = v.text->engine.counts();
    out.ok += t.ok;
    out.failed += t.failed + t.rejected + t.displaced;
    if (t.first_token.count() > c.total.count()) out.p99 = t.first_token.quantile(0.99);
  }
  return out;
}

}  // namespace

double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinite;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].dtype() != b[i].dtype() || !(a[i].shape() == b[i].shape())) return kInfinite;
    if (a[i].numel() == 0) continue;
    const Tensor x = a[i].contiguous(), y = b[i].contiguous();
    if (std::memcmp(x.data_ptr(), y.data_ptr(),
                    static_cast<size_t>(x.numel()) * size_of(x.dtype())) == 0)
      continue;
    const std::vector<double> p = x.to(DType::f64).to_vector<double>(),
                              q = y.to(DType::f64).to_vector<double>();
    for (size_t k = 0; k < p.size(); ++k) {
      const bool same = p[k] == q[k] || (std::isnan(p[k]) && std::isnan(q[k]));
      const double d = same ? 0 : std::abs(p[k] - q[k]);
      most = std::max(most, std::isnan(d) ? kInfinite : d);
    }
  }
  return most;
}

void Traffic::set(const std::shared_ptr<ModelVersion>& stable,
                  const std::shared_ptr<ModelVersion>& canary,
                  const std::shared_ptr<ModelVersion>& shadow) {
  stable_ = stable;
  canary_ = canary;
  shadow_ = shadow;
}

std::string Traffic::broken_rule(const ModelVersion& stable, const ModelVersion& canary) const {
  const Answered a = answered_of(canary), b = answered_of(stable);
  const auto enough = [this](const Answered& x) {
    return x.ok + x.failed >= static_cast<uint64_t>(rule_.requests);
  };
  if (!enough(a)) return "";
  if (rule_.error_rate > 0 && a.failed_share() > b.failed_share() + rule_.error_rate)
    return fmt::format("{:.1f} % of its answers are errors, {:.1f} % of version {}'s",
                       100 * a.failed_share(), 100 * b.failed_share(), stable.version);
  if (rule_.p99_ratio > 0 && enough(b) && a.p99 > rule_.p99_ratio * b.p99)
    return fmt::format("its p99 is {:.2f} ms, that of version {} {:.2f} ms", a.p99 * 1e3,
                       stable.version, b.p99 * 1e3);
  return "";
}

std::shared_ptr<ModelVersion> Traffic::pick() {
  const std::shared_ptr<ModelVersion> stable = stable_.lock();
  if (share_ <= 0 || rolled_back_.load(std::memory_order_relaxed)) return stable;
  const std::shared_ptr<ModelVersion> canary = canary_.lock();
  if (!canary || !stable) return stable;
  // The n-th request is the canary's where n * share passes a whole number.
  const auto n = static_cast<double>(asked_.fetch_add(1, std::memory_order_relaxed));
  if (std::floor((n + 1) * share_) == std::floor(n * share_)) return stable;
  if (const std::string why = broken_rule(*stable, *canary); !why.empty()) {
    if (!rolled_back_.exchange(true))
      log_warning("version {} of '{}' gets no more requests: {}", canary->version, canary->name,
                  why);
    return stable;
  }
  return canary;
}

void Traffic::copy(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  constexpr size_t kMostWaiting = 32;
  const std::shared_ptr<ModelVersion> shadow = shadow_.lock();
  if (!shadow) return;
  if (shadow->scheduler->waiting() >= kMostWaiting) {
    shadow_counts_.skipped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Job job;
  job.rows = inputs.empty() || inputs[0].dim() == 0 ? 1 : std::max<int64_t>(inputs[0].size(0), 1);
  job.inputs = inputs;
  job.timeout = shadow->settings.timeout_ms / 1000;
  job.priority = shadow->settings.priority_levels;  // the last
  job.done = [this, shadow, outputs](const JobResult& r) {
    ShadowCounts& c = shadow_counts_;
    if (r.status != 200) {
      c.failed.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    const double d = largest_difference(outputs, r.outputs);
    (d == 0 ? c.equal : c.different).fetch_add(1, std::memory_order_relaxed);
    double most = c.difference.load();
    while (d > most && !c.difference.compare_exchange_weak(most, d)) {}
  };
  shadow->scheduler->submit(std::move(job));
}

}  // namespace tandem::serve
