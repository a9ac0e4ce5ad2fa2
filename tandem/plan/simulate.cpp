// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/simulate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "tandem/base/error.h"
#include "tandem/base/philox.h"
#include "tandem/dist/bucket_plan.h"
#include "tandem/dist/pipeline.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

double value_of(const Quantity& tree, const char* key, double otherwise = 0) {
  const Quantity* q = find(tree, key);
  return q ? q->value : otherwise;
}

/// What one GPU does in a step, and its link; seconds.
struct Pieces {
  double forward = 0, backward = 0;  ///< of one batch, with its exchange within a layer
  double hop = 0;                    ///< from one stage of a pipeline to the next
  double update = 0;
  double rate = 0;  ///< bytes a second between copies of the net
  double width = 4;
  double memory = 1;  ///< bytes a second of copies within a GPU
  int copies = 1;
  int together = 1;  ///< of these in a server
  /// Share of the backward pass after which each parameter's gradient is complete.
  std::vector<double> ready;
};

// Of eager steps by the kernels that write the gradients: the last parameters of a size have the
// first results of that size. Where these are not as many, and in compiled steps, whose order is
// not known here, a gradient is complete with the one before it, or by its part of all elements.
std::vector<double> ready_of(const Workload& w, const Gpu& gpu) {
  std::map<int64_t, std::vector<double>> results;  // seconds, by elements
  double all = 0;
  const std::vector<double> seconds = kernel_times(w, gpu);
  for (size_t k = 0; k < w.work.size(); ++k) {
    if (w.work[k].phase != static_cast<uint8_t>(Phase::backward)) continue;
    all += seconds[k];
    results[static_cast<int64_t>(w.work[k].sizes[2])].push_back(all);
  }
  std::map<int64_t, size_t> count, used;
  double elements = 0, done = 0, before = 0;
  for (const int64_t n : w.sizes) {
    ++count[n];
    elements += static_cast<double>(n);
  }
  std::vector<double> ready(w.sizes.size());
  for (size_t i = w.sizes.size(); i-- > 0;) {
    const int64_t n = w.sizes[i];
    done += static_cast<double>(n);
    const std::vector<double>& of = results[n];
    if (all == 0) before = done / elements;
    if (all > 0 && of.size() == count[n]) before = std::max(before, of[used[n]++] / all);
    ready[i] = before;
  }
  return ready;
}

Pieces pieces_of(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  const Quantity tree = step_time(w, r, gpu, n);
  Pieces p;
  p.copies = replicas(r, n);
  p.together = std::clamp(gpu.per_server / r.parallel.parts(), 1, p.copies);
  const double again = value_of(tree, "time.recompute");
  const double f = value_of(tree, "time.forward"), b = value_of(tree, "time.backward");
  const double all = f + b + again;
  const double share = all > 0 ? f / all : 1.0 / 3;
  const double stages = value_of(tree, "time.stages");
  const double micro = value_of(tree, "time.micro") - stages;
  p.forward = micro * share;
  p.backward = micro - p.forward + value_of(tree, "time.adding") / r.accumulate;
  p.hop = stages / 2 / r.parallel.interleave;
  p.update = value_of(tree, "time.update");
  p.rate = value_of(tree, "time.link.rate", 1);
  p.width = value_of(tree, "time.link.width", 4);
  p.memory = gpu.bandwidth * kBandwidthShare;
  p.ready = ready_of(w, gpu);
  return p;
}

/// Two streams, each in order.
struct Streams {
  double compute = 0, link = 0;
  /// Work that needs what came at `ready`.
  double work(double seconds, double ready = 0) {
    compute = std::max(compute, ready) + seconds;
    return compute;
  }
  double carry(double seconds, double ready) {
    link = std::max(link, ready) + seconds;
    return link;
  }
};

// Of a server's GPUs one passes on what leaves it.
int servers_of(const Pieces& p) { return (p.copies + p.together - 1) / p.together; }

/// Bytes around a ring, once: gather or scatter.
double once_around(const Pieces& p, double bytes, const SimulationOptions& o) {
  const double n = p.copies;
  if (p.copies == 1) return 0;
  const int servers = servers_of(p);
  return bytes * (n - 1) / n / p.rate + o.call + (p.copies - servers) * o.near_hop +
         (servers - 1) * o.far_hop;
}

/// A sum over all: twice around the ring, or up and down a tree over the servers and a chain in
/// each, which reaches nine tenths of the ring's rate, as NCCL counts it.
double sum_over_copies(const Pieces& p, double bytes, const SimulationOptions& o) {
  if (p.copies == 1) return 0;
  const double around = 2 * once_around(p, bytes, o) - o.call, n = p.copies;
  if (!o.trees) return around;
  const double levels = std::ceil(std::log2(static_cast<double>(servers_of(p))));
  const double tree = 2 * bytes * (n - 1) / n / (0.9 * p.rate) + o.call +
                      2 * ((p.together - 1) * o.near_hop + levels * o.far_hop);
  return std::min(around, tree);
}

// Gradients in the buckets of DataParallel, each reduced as soon as the pass has completed it.
double copies_step(const Workload& w, const PlanRequest& r, const Pieces& p,
                   const SimulationOptions& o, double factor) {
  Streams s;
  s.work(factor * (p.forward + p.backward) * (r.accumulate - 1));
  s.work(factor * p.forward);
  const double begin = s.compute;
  if (p.copies > 1) {
    std::vector<distributed::BucketItem> items;
    for (const int64_t n : w.sizes) items.push_back({DType::f32, n});
    const double part = 1.0 / r.parallel.parts();
    for (const std::vector<size_t>& bucket : distributed::bucket_plan(items)) {
      double elements = 0, ready = 0;
      for (const size_t i : bucket) {
        elements += static_cast<double>(w.sizes[i]);
        ready = std::max(ready, p.ready[i]);
      }
      const double bytes = elements * part * p.width;
      const double copying = o.copied ? 4 * bytes / p.memory : 0;  // each is read and written
      s.carry(sum_over_copies(p, bytes, o) + copying, begin + factor * p.backward * ready);
    }
  }
  s.work(factor * p.backward);
  s.work(p.update, s.link);
  // What each rank has updated goes to all.
  if (r.sharding >= 1 && p.copies > 1)
    s.work(once_around(p, w.parameters * 4 / r.parallel.parts(), o));
  return s.compute;
}

// Units of parameters are gathered one ahead, in both passes unless the backward pass gathers late,
// and gradients scattered behind.
double sharded_step(const Workload& w, const PlanRequest& r, const Pieces& p,
                    const SimulationOptions& o, double factor) {
  const int64_t units = std::max<int64_t>(1, static_cast<int64_t>(w.blocks)) + 1;
  const auto n = static_cast<double>(units);
  const double each =
      p.copies > 1 ? once_around(p, w.parameters * p.width / n / r.parallel.parts(), o) : 0;
  Streams s;
  for (int batch = 0; batch < r.accumulate; ++batch)
    for (const bool forward : {true, false}) {
      const double work = factor * (forward ? p.forward : p.backward) / n;
      double here = s.carry(each, s.compute);
      const bool ahead = forward || !r.late_gathers;
      for (int64_t k = 0; k < units; ++k) {
        const double begin = std::max(s.compute, here);
        const bool more = k + 1 < units;
        if (more && ahead) here = s.carry(each, begin);
        s.work(work, begin);
        if (more && !ahead) here = s.carry(each, s.compute);
        if (!forward) s.carry(each, s.compute);
      }
    }
  return s.work(p.update, s.link);
}

// The lists of passes that ranks run (dist/pipeline.h), against each other.
double pipeline_step(const Workload& w, const PlanRequest& r, const Pieces& p,
                     const SimulationOptions& o, const std::vector<double>& factors) {
  using distributed::PipelineAction;
  const int64_t ranks = r.parallel.pipeline, per = r.parallel.interleave, last = ranks * per - 1;
  const auto kind =
      per > 1 ? distributed::PipelineKind::interleaved : distributed::PipelineKind::one_f_one_b;
  std::vector<std::vector<PipelineAction>> lists;
  for (int64_t k = 0; k < ranks; ++k)
    lists.push_back(distributed::pipeline_actions(kind, k, ranks, per, r.accumulate));
  const auto place = [&](bool forward, int64_t stage, int64_t micro) {
    return static_cast<size_t>(((forward ? 0 : 1) * (last + 1) + stage) * r.accumulate + micro);
  };
  std::vector<double> done(static_cast<size_t>(2 * (last + 1) * r.accumulate), -1);
  std::vector<double> now(static_cast<size_t>(ranks), 0);
  std::vector<size_t> at(static_cast<size_t>(ranks), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t k = 0; k < lists.size(); ++k)
      for (; at[k] < lists[k].size(); ++at[k], moved = true) {
        const PipelineAction& a = lists[k][at[k]];
        const bool first = a.forward ? a.stage == 0 : a.stage == last;
        double ready = 0;
        if (!first) {
          const double came =
              done[place(a.forward, a.forward ? a.stage - 1 : a.stage + 1, a.microbatch)];
          if (came < 0) break;
          ready = came + p.hop;
        }
        const double work = (a.forward ? p.forward : p.backward) / static_cast<double>(per);
        now[k] = std::max(now[k], ready) + work * factors[k];
        done[place(a.forward, a.stage, a.microbatch)] = now[k];
      }
  }
  for (size_t k = 0; k < lists.size(); ++k) TD_ASSERT(at[k] == lists[k].size());
  double end = *std::max_element(now.begin(), now.end());
  // Gradients of a stage are complete in its last backward pass alone.
  if (p.copies > 1) {
    const double bytes = w.parameters * p.width / r.parallel.parts();
    end += std::max(0.0, sum_over_copies(p, bytes, o) - p.backward);
    if (r.sharding >= 1) end += once_around(p, w.parameters * 4 / r.parallel.parts(), o);
  }
  return end + p.update;
}

double step_of(const Workload& w, const PlanRequest& r, const Pieces& p, const SimulationOptions& o,
               const std::vector<double>& factors) {
  if (r.parallel.pipeline > 1) return pipeline_step(w, r, p, o, factors);
  return r.sharding >= 3 ? sharded_step(w, r, p, o, factors[0])
                         : copies_step(w, r, p, o, factors[0]);
}

// Of each stage the slowest of the ranks that hold it: all wait for it.
std::vector<double> late_factors(const PlanRequest& r, int n, const SimulationOptions& o,
                                 int step) {
  const int stages = r.parallel.pipeline;
  std::vector<double> slowest(static_cast<size_t>(stages), 0);
  for (int k = 0; k < n; ++k) {
    const PhiloxBlock b =
        philox(o.seed, static_cast<uint32_t>(step), static_cast<uint64_t>(k), 0x6c617465);
    const double u = (static_cast<double>(b.word64(0) >> 11) + 0.5) * 0x1p-53,
                 v = static_cast<double>(b.word64(1) >> 11) * 0x1p-53;
    const double z = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
    double& most = slowest[static_cast<size_t>(k % stages)];
    most = std::max(most, std::exp(o.late * z));
  }
  return slowest;
}

// The interval of checkpoints with which a month's work ends first, of several around Young's.
void add_goodput(const Workload& w, int n, const SimulationOptions& o, Simulation& s) {
  constexpr double kMonth = 30 * 86400.0;
  s.save = checkpoint_of(w).value / n / o.write_rate + 5;
  const double rate = n / kMtbfSeconds;
  s.failures_day = 86400 * rate;
  const double young = std::sqrt(2 * s.save / rate);
  double best = 0;
  for (const double times : {0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0}) {
    const double interval = std::min(kMonth, young * times);
    const SpotResult run = simulate_spot(kMonth, interval, s.save, rate, o.restart, 100, o.seed);
    if (best > 0 && run.mean >= best) continue;
    best = run.mean;
    s.interval = interval;
  }
  s.goodput = kMonth / best;
}

}  // namespace

Simulation simulate(const Workload& w, const PlanRequest& asked, const Gpu& gpu, int n,
                    const SimulationOptions& o) {
  TD_CHECK(n >= asked.parallel.parts() && n % asked.parallel.parts() == 0, Value,
           "{} GPUs cannot be cut into parts of {}", n, asked.parallel.parts());
  TD_CHECK(o.late >= 0 && std::min({o.near_hop, o.far_hop, o.call}) >= 0 && o.steps > 0 &&
               o.write_rate > 0,
           Value,
           "a simulation got late {}, hops {} and {}, a call {}, {} steps, {} bytes a second",
           o.late, o.near_hop, o.far_hop, o.call, o.steps, o.write_rate);
  PlanRequest r = asked;
  r.n = n;
  const Pieces p = pieces_of(w, r, gpu, n);
  Simulation s;
  s.n = n;
  s.compute = (p.forward + p.backward) * r.accumulate + p.update;
  const std::vector<double> even(static_cast<size_t>(r.parallel.pipeline), 1.0);
  const double undisturbed = step_of(w, r, p, o, even);
  Pieces near = p;  // a link that takes no time
  near.rate = 1e30;
  near.hop = 0;
  SimulationOptions no_hops = o;
  no_hops.near_hop = no_hops.far_hop = no_hops.call = 0;
  const double alone = step_of(w, r, near, no_hops, even);
  s.exposed = undisturbed - alone;
  s.pauses = alone - s.compute;
  double sum = 0;
  for (int k = 0; k < o.steps; ++k) sum += step_of(w, r, p, o, late_factors(r, n, o, k));
  s.step = sum / o.steps;
  s.late = s.step - undisturbed;
  s.rate = w.units * p.copies * r.accumulate / s.step;
  add_goodput(w, n, o, s);
  return s;
}

}  // namespace tandem::plan
