// SPDX-License-Identifier: Apache-2.0
// Time of a step by a roofline per kernel: each takes as long as its arithmetic or its bytes,
// whichever is longer. Kernels with the same limit share a rate, so their times add up as one
// quotient of sums.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/plan/plan_internal.h"

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

enum Kind : uint8_t { kF32, kTf32, kF16, kBf16, kInt8, kKinds };
constexpr const char* kKindNames[kKinds] = {"f32", "tf32", "f16", "bf16", "int8"};

Kind kind_of(DType d, Precision p) {
  if (d == DType::bf16) return kBf16;
  if (d == DType::f16) return kF16;
  if (d == DType::i8 || d == DType::u8) return kInt8;
  return p == Precision::tf32 ? kTf32 : kF32;
}

// Kernels with the same limit: products of a kind, pointwise arithmetic, or moving bytes.
struct Group {
  double flops = 0, bytes = 0;
  int64_t kernels = 0;
};
constexpr size_t kPointwise = kKinds, kMoving = kKinds + 1, kGroups = kKinds + 2;

using Phases = std::array<bool, 8>;

// The times of the kernels of some phases, as a sum of quotients.
Quantity device_time(const Workload& w, Precision precision, const Gpu& gpu, const std::string& key,
                     const std::string& label, const Phases& wanted, double fused = 1) {
  // How much arithmetic each byte must bring for it to be the limit.
  double intensity[kKinds];
  for (size_t k = 0; k < kKinds; ++k)
    intensity[k] = gpu.peak(kKindNames[k]) * gpu.efficiency / (gpu.bandwidth * kBandwidthShare);
  Group groups[kGroups];
  for (const Work& k : w.work) {
    if (!wanted[k.phase]) continue;
    const Kind kind = k.matrix ? kind_of(k.dtype, precision) : kF32;
    const bool arithmetic = k.flops > k.bytes * intensity[kind];
    Group& g = groups[!arithmetic ? kMoving : k.matrix ? static_cast<size_t>(kind) : kPointwise];
    g.flops += k.flops;
    g.bytes += k.bytes;
    ++g.kernels;
  }
  std::vector<Quantity> parts;
  for (size_t i = 0; i < kGroups; ++i) {
    const Group& g = groups[i];
    if (g.kernels == 0) continue;
    const std::string at = fmt::format("{}.{}", key, parts.size() + 1);
    if (i == kMoving) {
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
      parts.push_back(quotient(at, "moving bytes", "s",
                               fmt::format("{} kernels that memory holds back", g.kernels),
                               std::move(bytes), std::move(rate)));
      continue;
    }
    const std::string kind = kKindNames[i == kPointwise ? static_cast<size_t>(kF32) : i];
    Quantity rate = product(
        at + ".rate", "rate", "FLOP/s", "",
        {given(at + ".peak", "peak of the " + gpu.name, gpu.peak(kind), "FLOP/s", gpu.source),
         given(at + ".efficiency", "efficiency", gpu.efficiency, "",
               "the constant of this GPU; " + gpu.efficiency_from)});
    parts.push_back(quotient(
        at, i == kPointwise ? "pointwise in f32" : "products in " + kind, "s",
        fmt::format("{} kernels that arithmetic holds back", g.kernels),
        given(at + ".flops", "FLOPs", g.flops, "FLOP", "the rows' cost columns over the dry run"),
        std::move(rate)));
  }
  if (parts.empty()) parts.push_back(given(key + ".0", "nothing", 0, "s", "no kernels"));
  return sum(key, label, "s", "", std::move(parts));
}

Quantity communication(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  // Gradients of the width that products have; with full sharding weights are gathered twice too.
  const double width = r.precision == Precision::f32 || r.precision == Precision::tf32 ? 4 : 2;
  const bool gathers = r.sharding >= 3;
  Quantity passes = product(
      "time.link.passes", "times around the ring", "", "",
      {given(
           "time.link.passes.all", "passes", gathers ? (r.recompute ? 4 : 3) : 2, "",
           gathers ? "the weights forward and backward, and the gradients" : "scatter and gather"),
       given("time.link.passes.batches", "batches", gathers ? r.accumulate : 1, "",
             gathers ? "each gathers anew" : "once for all batches of a step"),
       quotient("time.link.passes.ring", "of each", "", "n - 1 of n parts come from others",
                given("time.link.others", "the other GPUs", n - 1, "", "n - 1"), gpus_of(n))});
  Quantity bytes =
      product("time.link.bytes", "bytes per GPU", "B",
              gathers ? "gather the weights forward and backward, scatter the gradients"
                      : "ring all-reduce of the gradients",
              {given("parameters", "parameters", w.parameters, "", "counted in the model"),
               given("time.link.width", "bytes each", width, "B", "of gradients on the wire"),
               std::move(passes)});
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

Quantity gpus_of(int n) { return given("gpus", "GPUs", n, "", "of the plan"); }
Quantity accumulated(const PlanRequest& r) {
  return given("accumulate", "accumulated", r.accumulate, "", "batches of one step, asked for");
}

Quantity step_time(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  const auto only = [](Phase p) {
    Phases v{};
    v[static_cast<size_t>(p)] = true;
    return v;
  };
  const bool phases = !w.options.compiled && w.options.training;
  std::vector<Quantity> parts, hides;
  if (phases) {
    Quantity f =
        device_time(w, r.precision, gpu, "time.forward", "forward", only(Phase::forward), kFused);
    Quantity b = device_time(w, r.precision, gpu, "time.backward", "backward",
                             only(Phase::backward), kFused);
    hides.push_back(again(b));
    if (r.sharding >= 3) hides.push_back(again(f));
    if (r.recompute)
      parts.push_back(product("time.recompute", "forward again", "s", "",
                              {again(f), given("time.recompute.times", "times", 1, "",
                                               "every block once more in the backward pass")}));
    if (r.recompute && r.sharding >= 3) hides.push_back(again(parts.back()));
    parts.push_back(std::move(f));
    parts.push_back(std::move(b));
  } else {
    // A compiled step is one list; everything of it counts.
    Phases all;
    all.fill(true);
    Quantity q = device_time(w, r.precision, gpu, "time.kernels",
                             w.options.training ? "forward, backward and update" : "forward", all);
    hides.push_back(product(
        "time.link.beside", "of the step", "s", "",
        {again(q),
         r.sharding >= 3
             ? given("time.link.beside.share", "share", 1, "", "gathering goes on all the time")
             : given("time.link.beside.share", "share", 0.6, "", "the backward pass: assumed")}));
    if (r.recompute)
      parts.push_back(product("time.recompute", "forward again", "s", "",
                              {again(q), given("time.recompute.share", "share", 1.0 / 3, "",
                                               "the forward part of forward and backward")}));
    parts.push_back(std::move(q));
  }
  const double launch = w.options.compiled ? kCompiledLaunch : kEagerLaunch;
  Quantity device = sum("time.device", "work of the GPU", "s", "", std::move(parts));
  Quantity host = product(
      "time.host", "starting kernels", "s", "",
      {given("time.host.kernels", "kernels", static_cast<double>(w.work.size()), "",
             "counted in the dry run"),
       given("time.launch", "each", launch, "s",
             w.options.compiled ? "a replayed list: assumed" : "dispatch of one op: assumed")});
  Quantity micro =
      most("time.micro", "one batch", "s", "the GPU works while the host starts the next kernels",
           {std::move(device), std::move(host)});
  std::vector<Quantity> step;
  step.push_back(product("time.batches", "batches", "s", "", {std::move(micro), accumulated(r)}));
  if (phases) {
    // Each GPU updates its part of the state where that is sharded.
    step.push_back(quotient(
        "time.update", "update", "s", "",
        device_time(w, r.precision, gpu, "time.update.whole", "the optimizer", only(Phase::update)),
        given("time.update.parts", "GPUs that share it", r.sharding >= 1 ? n : 1, "",
              "sharded optimizer state")));
  }
  if (n > 1) {
    Quantity hidden = product(
        "time.link.hidden", "hidden", "s", "",
        {sum("time.link.passes.time", "passes beside it", "s", "", std::move(hides)),
         given("time.link.batches", "batches", r.sharding >= 3 ? r.accumulate : 1, "",
               r.sharding >= 3 ? "each hides its own" : "the last one of a step"),
         given("time.link.overlap", "share", kOverlap, "", "two thirds of the passes: assumed")});
    Quantity rest = difference("time.link.rest", "what is not hidden", "s", "",
                               {communication(w, r, gpu, n), std::move(hidden)});
    step.push_back(
        most("time.exposed", "waiting for the link", "s", "",
             {std::move(rest), given("time.exposed.none", "nothing", 0, "s", "at least")}));
  }
  return sum("time.step", "one step", "s", "", std::move(step));
}

Quantity throughput(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  Quantity units = product(
      "units.step", w.unit + " per step", "", "",
      {given("batch.gpu", "samples of one GPU and batch", static_cast<double>(w.options.batch), "",
             "the batch over GPUs and accumulated batches"),
       given("units.sample", w.unit + " per sample", w.units / static_cast<double>(w.options.batch),
             "", "the job's"),
       gpus_of(n), accumulated(r)});
  return quotient("rate", w.unit + " per second", w.unit + "/s", "", std::move(units),
                  step_time(w, r, gpu, n));
}

}  // namespace tandem::plan
