// SPDX-License-Identifier: Apache-2.0
// Time of a step by a roofline per kernel: each takes as long as its arithmetic or its bytes,
// whichever is longer. Kernels with the same limit share a rate, so their times add up as one
// quotient of sums.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tandem/base/error.h"
#include "tandem/plan/plan.h"

namespace tandem::plan {
namespace {

// Share of the memory bandwidth that large pointwise kernels reach on GPUs.
constexpr double kBandwidthShare = 0.8;
// Time from one kernel to the next: a framework's dispatch in eager, a replayed graph compiled.
constexpr double kEagerLaunch = 6e-6, kCompiledLaunch = 1.5e-6;
// Share of a link's rate that collectives reach.
constexpr double kLinkShare = 0.7;
// Between servers: one 200 Gbit/s card per GPU. Rings run over all cards of a server at once, so a
// server takes a whole message in at the rate of all of them.
constexpr double kBetweenServers = 25e9;
// What frameworks' fused kernels (norms, activations with their casts, losses) leave of the bytes
// that single pointwise ops move. One constant for all GPUs; a compiled program is counted as it
// is.
constexpr double kFused = 0.5;
// Of the passes, the share that hides communication.
constexpr double kOverlap = 2.0 / 3;

std::string kind_of(DType d, Precision p) {
  if (d == DType::bf16) return "bf16";
  if (d == DType::f16) return "f16";
  if (d == DType::i8 || d == DType::u8) return "int8";
  return p == Precision::tf32 ? "tf32" : "f32";
}

struct Group {
  double flops = 0, bytes = 0;
  int64_t kernels = 0;
  std::string kind;
  bool matrix = false, arithmetic = false;
};

struct Phases {
  Quantity forward, backward, update;
};

// The times of the kernels that `wanted` names, as a sum of quotients.
Quantity device_time(const Workload& w, Precision precision, const Gpu& gpu, const std::string& key,
                     const std::string& label, const std::vector<bool>& wanted, double fused = 1) {
  std::map<std::string, Group> groups;
  for (const Work& k : w.work) {
    if (!wanted[k.phase]) continue;
    const std::string kind = k.matrix ? kind_of(k.dtype, precision) : "f32";
    const double rate = gpu.peak(kind) * gpu.efficiency;
    const bool arithmetic = k.flops / rate > k.bytes / (gpu.bandwidth * kBandwidthShare);
    const std::string name = arithmetic ? (k.matrix ? "products in " + kind : "pointwise in f32")
                                        : std::string("moving bytes");
    Group& g = groups[name];
    g.flops += k.flops;
    g.bytes += k.bytes;
    ++g.kernels;
    g.kind = kind;
    g.matrix = k.matrix;
    g.arithmetic = arithmetic;
  }
  std::vector<Quantity> parts;
  int i = 0;
  for (const auto& [name, g] : groups) {
    const std::string at = fmt::format("{}.{}", key, ++i);
    if (g.arithmetic) {
      Quantity rate = product(
          at + ".rate", "rate", "FLOP/s", "",
          {given(at + ".peak", "peak of the " + gpu.name, gpu.peak(g.kind), "FLOP/s", gpu.source),
           given(at + ".efficiency", "efficiency", gpu.efficiency, "",
                 "the constant of this GPU; " + gpu.efficiency_from)});
      parts.push_back(quotient(
          at, name, "s", fmt::format("{} kernels that arithmetic holds back", g.kernels),
          given(at + ".flops", "FLOPs", g.flops, "FLOP", "the rows' cost columns over the dry run"),
          std::move(rate)));
    } else {
      Quantity rate = product(
          at + ".rate", "rate", "B/s", "",
          {given(at + ".bandwidth", "memory bandwidth", gpu.bandwidth, "B/s", gpu.source),
           given(at + ".share", "share", kBandwidthShare, "", "what large copies reach on GPUs")});
      Quantity bytes = product(
          at + ".moved", "bytes moved", "B", "",
          {given(at + ".bytes", "bytes", g.bytes, "B", "the rows' cost columns over the dry run"),
           given(at + ".fused", "fused", fused, "",
                 fused == 1 ? "counted as they run"
                            : "what frameworks' fused kernels leave of single ops' bytes")});
      parts.push_back(quotient(at, name, "s",
                               fmt::format("{} kernels that memory holds back", g.kernels),
                               std::move(bytes), std::move(rate)));
    }
  }
  if (parts.empty()) parts.push_back(given(key + ".0", "nothing", 0, "s", "no kernels"));
  return sum(key, label, "s", "", std::move(parts));
}

Quantity communication(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  // Gradients of the width that products have; with full sharding weights are gathered twice too.
  const double width = r.precision == Precision::f32 || r.precision == Precision::tf32 ? 4 : 2;
  const double passes = r.sharding >= 3 ? (r.recompute ? 4 : 3) * r.accumulate : 2;
  Quantity bytes =
      product("time.link.bytes", "bytes per GPU", "B",
              r.sharding >= 3 ? "gather the weights forward and backward, scatter the gradients"
                              : "ring all-reduce of the gradients",
              {given("parameters", "parameters", w.parameters, "", "counted in the model"),
               given("time.link.width", "bytes each", width, "B", "of gradients on the wire"),
               given("time.link.passes", "passes", passes * (n - 1) / n, "",
                     "times around the ring of n GPUs, (n - 1) / n each")});
  const bool inside = n <= gpu.per_server;
  Quantity rate = product(
      "time.link.rate", "rate", "B/s", "",
      {given("time.link.peak", inside ? gpu.link : "network between servers",
             inside ? gpu.link_rate : std::min(gpu.link_rate, kBetweenServers * gpu.per_server),
             "B/s", inside ? gpu.source : "200 Gbit/s per GPU, all cards of a server"),
       given("time.link.share", "share", kLinkShare, "", "what collectives reach")});
  return quotient("time.link", "communication", "s", "", std::move(bytes), std::move(rate));
}

}  // namespace

Quantity step_time(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  std::vector<bool> all(8, false), forward(8, false), backward(8, false), update(8, false);
  const auto set = [](std::vector<bool>& v, Phase p) { v[static_cast<size_t>(p)] = true; };
  set(forward, Phase::forward);
  set(backward, Phase::backward);
  set(update, Phase::update);
  std::vector<Quantity> parts;
  double hide = 0;
  const bool phases = !w.options.compiled && w.options.training;
  if (phases) {
    Quantity f = device_time(w, r.precision, gpu, "time.forward", "forward", forward, kFused);
    Quantity b = device_time(w, r.precision, gpu, "time.backward", "backward", backward, kFused);
    hide = b.value * kOverlap;
    if (r.sharding >= 3)
      hide = (f.value * (r.recompute ? 2 : 1) + b.value) * kOverlap * r.accumulate;
    if (r.recompute) {
      Quantity again = f;
      again.key = "time.recompute";
      again.label = "forward again";
      parts.push_back(std::move(again));
    }
    parts.push_back(std::move(f));
    parts.push_back(std::move(b));
  } else {
    // A compiled step is one list; everything of it counts.
    std::fill(all.begin(), all.end(), true);
    Quantity q = device_time(w, r.precision, gpu, "time.kernels",
                             w.options.training ? "forward, backward and update" : "forward", all);
    hide = q.value * (r.sharding >= 3 ? r.accumulate : 0.6) * kOverlap;
    if (r.recompute)
      parts.push_back(product("time.recompute", "forward again", "s", "",
                              {given("time.kernels", "the step", q.value, "s", "without it"),
                               given("time.recompute.share", "share", 1.0 / 3, "",
                                     "the forward part of forward and backward")}));
    parts.push_back(std::move(q));
  }
  const double launch = w.options.compiled ? kCompiledLaunch : kEagerLaunch;
  Quantity device = sum("time.device", "work of the GPU", "s", "", std::move(parts));
  Quantity host = product("time.host", "starting kernels", "s", "",
                          {given("time.kernel_count", "kernels", static_cast<double>(w.work.size()),
                                 "", "counted in the dry run"),
                           given("time.launch", "each", launch, "s",
                                 w.options.compiled ? "a replayed list" : "dispatch of one op")});
  Quantity micro =
      most("time.micro", "one batch", "s", "the GPU works while the host starts the next kernels",
           {std::move(device), std::move(host)});
  std::vector<Quantity> step;
  step.push_back(product("time.batches", "batches", "s", "",
                         {std::move(micro), given("accumulate", "accumulated", r.accumulate, "",
                                                  "batches of one step")}));
  if (phases) {
    // Each GPU updates its part of the state where that is sharded.
    step.push_back(
        quotient("time.update", "update", "s", "",
                 device_time(w, r.precision, gpu, "time.update.whole", "the optimizer", update),
                 given("time.update.parts", "GPUs that share it", r.sharding >= 1 ? n : 1, "",
                       "sharded optimizer state")));
  }
  if (n > 1) {
    Quantity link = communication(w, r, gpu, n);
    Quantity rest = sum("time.link.rest", "what is not hidden", "s", "",
                        {std::move(link), given("time.link.hidden", "hidden", -hide, "s",
                                                "two thirds of the passes hide it")});
    step.push_back(
        most("time.exposed", "waiting for the link", "s", "",
             {std::move(rest), given("time.exposed.none", "nothing", 0, "s", "at least")}));
  }
  return sum("time.step", "one step", "s", "", std::move(step));
}

Quantity throughput(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  Quantity units = product("units.step", w.unit + " per step", "", "",
                           {given("units.gpu", "of one GPU", w.units, "", "batch times its size"),
                            given("gpus", "GPUs", n, "", "asked for"),
                            given("accumulate", "accumulated", r.accumulate, "", "asked for")});
  return quotient("rate", w.unit + " per second", w.unit + "/s", "", std::move(units),
                  step_time(w, r, gpu, n));
}

}  // namespace tandem::plan
