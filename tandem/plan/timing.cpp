// SPDX-License-Identifier: Apache-2.0
// Time of a step: what its kernels take (device_time.cpp), starting them, and exchange with other
// GPUs that nothing hides.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/plan/plan_internal.h"
#include "tandem/plan/simulate.h"

namespace tandem::plan {

Quantity parts_of(const PlanRequest& r) {
  return product(
      "parallel", "GPUs that share a net", "", "",
      {given("parallel.tp", "that share each layer", r.parallel.tensor, "", "asked for"),
       given("parallel.pp", "that hold consecutive layers", r.parallel.pipeline, "", "asked for")});
}
Quantity shared_by_parts(const PlanRequest& r, const std::string& key, const std::string& label,
                         const std::string& unit, Quantity whole) {
  if (r.parallel.parts() == 1) return whole;
  return quotient(key, label, unit, "layers and slices of one GPU", std::move(whole), parts_of(r));
}

namespace {

// Time from one kernel to the next: a framework's dispatch in eager, a replayed graph compiled.
constexpr double kEagerLaunch = 6e-6, kCompiledLaunch = 1.5e-6;
constexpr const char* kCallsFrom = "those by which NCCL chooses its algorithms (plan/simulate.h)";
// Of the passes, the share that hides communication.
constexpr double kOverlap = 2.0 / 3;

// Bytes a second between GPUs, `within` of a server or not. Rings run over all cards of a server at
// once, so a server takes a whole message in at the rate of all of them.
Quantity link_rate_of(const Gpu& gpu, const std::string& key, bool within, double between) {
  Quantity link =
      product(within ? key + ".rate" : key + ".within", "rate", "B/s", "",
              {given(key + ".peak", gpu.link, gpu.link_rate, "B/s", gpu.source),
               given("time.link.share", "share", kLinkShare, "", "what collectives reach")});
  if (within) return link;
  return least(
      key + ".rate", "rate", "B/s", "",
      {std::move(link),
       product(key + ".between", "between servers", "B/s", "",
               {given(key + ".network", "network cards", between, "B/s", gpu.network_from),
                given("time.network.share", "share", kNetworkShare, "",
                      "of large messages between servers, as Calculon takes it (SC 2023)")})});
}

// What the GPUs that share layers exchange for one microbatch: two sums of the values between
// blocks in each direction (Shoeybi et al. 2019), as scatter and gather where time is sliced, too.
Quantity layer_communication(const Workload& w, const PlanRequest& r, const Gpu& gpu) {
  const int tp = r.parallel.tensor;
  const bool twice = r.recompute && r.kept == Kept::boundaries;
  Quantity sums = product(
      "time.layers.sums", "sums of a microbatch", "", "",
      {given("time.layers.times", "sums in a block", twice ? 6 : 4, "",
             twice ? "two in each pass, and in the one that is repeated" : "two in each direction"),
       quotient("time.layers.blocks", "blocks of one GPU", "", "",
                given("memory.blocks", "blocks", w.blocks, "", "of the model"),
                given("parallel.pp", "that hold consecutive layers", r.parallel.pipeline, "",
                      "asked for"))});
  const SimulationOptions usual;
  Quantity calls = product(
      "time.layers.calls", "waiting of the calls", "s", "",
      {again(sums), sum("time.layers.call", "of each", "s", "",
                        {given("time.layers.start", "its start", usual.call, "s", kCallsFrom),
                         product("time.layers.hops", "hops of the ring", "s", "",
                                 {given("time.layers.others", "twice the others", 2 * (tp - 1), "",
                                        "the ring of those that share a layer"),
                                  given("time.layers.hop", "each",
                                        tp <= gpu.per_server ? usual.near_hop : usual.far_hop, "s",
                                        kCallsFrom)})})});
  Quantity bytes =
      product("time.layers.bytes", "bytes per GPU", "B", "",
              {given("time.boundary", "between two blocks", w.boundary_bytes, "B", "dry run"),
               std::move(sums),
               quotient("time.layers.ring", "of each", "", "n - 1 of n parts, there and back",
                        again(*find(calls, "time.layers.others")),
                        given("parallel.tp", "that share each layer", tp, "", "asked for"))});
  return sum("time.layers", "sums over slices", "s", "not hidden: the next layer waits for them",
             {quotient("time.layers.carry", "carrying them", "s", "", std::move(bytes),
                       link_rate_of(gpu, "time.layers", tp <= gpu.per_server, gpu.network)),
              std::move(calls)});
}

// What goes from stage to stage and back for one microbatch.
Quantity stage_communication(const Workload& w, const PlanRequest& r, const Gpu& gpu) {
  const Parallel& p = r.parallel;
  return quotient(
      "time.stages", "from stage to stage", "s", "there and back, for each stage of a GPU",
      product("time.stages.bytes", "bytes per GPU", "B", "",
              {given("time.boundary", "between two blocks", w.boundary_bytes, "B", "dry run"),
               given("time.stages.times", "times", 2.0 * p.interleave, "", "there and back"),
               quotient("time.stages.slice", "of one GPU", "", "a slice of each",
                        given("time.stages.one", "all", 1, "", "all of it"),
                        given("parallel.tp", "that share each layer", p.tensor, "", "asked for"))}),
      link_rate_of(gpu, "time.stages", p.parts() <= gpu.per_server, gpu.network));
}

Quantity communication(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  // As wide as the gradients are, which autocast leaves in f32; mixed precision reduces and gathers
  // in bf16. With full sharding weights are gathered twice too.
  const Precision precision = w.options.precision;
  const bool narrow = precision == Precision::pure_bf16 || precision == Precision::pure_f16 ||
                      precision == Precision::mixed_bf16;
  const double width = narrow ? 2 : 4;
  const bool gathers = r.sharding >= 3, late = gathers && r.late_gathers;
  Quantity passes = product(
      "time.link.passes", "times around the ring", "", "",
      {given("time.link.passes.all", "passes", gathers ? (r.recompute ? 4 : 3) - late : 2, "",
             late      ? "the weights forward, and the gradients"
             : gathers ? "the weights forward and backward, and the gradients"
                       : "scatter and gather"),
       given("time.link.passes.batches", "batches", gathers ? r.accumulate : 1, "",
             gathers ? "each gathers again" : "once for all batches of a step"),
       quotient("time.link.passes.ring", "of each", "", "n - 1 of n parts come from others",
                given("time.link.others", "the other GPUs", replicas(r, n) - 1, "", "n - 1"),
                replicas_of(r, n))});
  Quantity bytes = product(
      "time.link.bytes", "bytes per GPU", "B",
      gathers ? "gather the weights forward and backward, scatter the gradients"
              : "ring all-reduce of the gradients",
      {shared_by_parts(r, "parameters.gpu", "parameters of one GPU", "",
                       given("parameters", "parameters", w.parameters, "", "counted in the model")),
       given("time.link.width", "bytes each", width, "B",
             narrow ? "of gradients in 16 bits" : "of gradients in f32"),
       std::move(passes)});
  const bool inside = n <= gpu.per_server;
  // As many rings as GPUs of a server share a net take their turns on its cards.
  const int cards = std::max(1, gpu.per_server / std::min(gpu.per_server, r.parallel.parts()));
  Quantity rate = link_rate_of(gpu, "time.link", inside, gpu.network * cards);
  return quotient("time.link", "communication", "s", "", std::move(bytes), std::move(rate));
}

// What the exchange of gradients (and of sharded weights) takes beyond the passes that hide it.
Quantity waiting_for_link(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n,
                          std::vector<Quantity> hides) {
  Quantity hidden = product(
      "time.link.hidden", "hidden", "s", "",
      {shared_by_parts(r, "time.link.passes.gpu", "passes of one GPU", "s",
                       sum("time.link.passes.time", "passes beside it", "s", "", std::move(hides))),
       given("time.link.batches", "batches", r.sharding >= 3 ? r.accumulate : 1, "",
             r.sharding >= 3 ? "each hides its own" : "the last one of a step"),
       given("time.link.overlap", "share", kOverlap, "", "two thirds of the passes: assumed")});
  Quantity rest = difference("time.link.rest", "what is not hidden", "s", "",
                             {communication(w, r, gpu, n), std::move(hidden)});
  const bool late = r.sharding >= 3 && r.late_gathers;
  Quantity exposed =
      most(late ? "time.exposed.hidden" : "time.exposed", "waiting for the link", "s", "",
           {rest, given("time.exposed.none", "nothing", 0, "s", "at least")});
  if (!late) return exposed;
  Quantity once = quotient("time.gathers", "late gathers", "s", "one pass of the weights",
                           again(rest.parts[0]), again(*find(rest, "time.link.passes.all")));
  return sum("time.exposed", "waiting for the link", "s", "",
             {std::move(exposed), std::move(once)});
}

// A microbatch of nets that several GPUs share: their work and what they exchange.
Quantity spread(const Workload& w, const PlanRequest& r, const Gpu& gpu, Quantity micro) {
  micro.key = "time.micro.gpu";
  std::vector<Quantity> parts = {std::move(micro)};
  if (r.parallel.tensor > 1) parts.push_back(layer_communication(w, r, gpu));
  if (r.parallel.pipeline > 1) parts.push_back(stage_communication(w, r, gpu));
  return sum("time.micro", "one batch with its exchange", "s", "", std::move(parts));
}

// What a pipeline waits at both ends of a step (Narayanan et al. 2021, 2.2).
Quantity bubble(const PlanRequest& r, const Quantity& micro) {
  return product("time.bubble", "pauses of the pipeline", "s",
                 "a microbatch for each other stage, shorter with several stages a GPU",
                 {again(micro), quotient("time.bubble.times", "times", "", "",
                                         given("time.bubble.others", "other GPUs",
                                               r.parallel.pipeline - 1, "", "of the pipeline"),
                                         given("parallel.interleave", "stages of a GPU",
                                               r.parallel.interleave, "", "asked for"))});
}

// Adding each batch's gradients to the sum of a step. Sums are in f32 unless weights are narrower.
Quantity adding(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  const Precision p = w.options.precision;
  const bool pure = p == Precision::pure_bf16 || p == Precision::pure_f16;
  const double read = pure || p == Precision::mixed_bf16 ? 2 : 4, sum_width = pure ? 2 : 4;
  Quantity own =
      shared_by_parts(r, "parameters.gpu", "parameters of one GPU", "",
                      given("parameters", "parameters", w.parameters, "", "counted in the model"));
  if (r.sharding >= 2)
    own = quotient("time.adding.own", "gradients of one GPU", "", "its shard of them",
                   std::move(own), replicas_of(r, n));
  return quotient(
      "time.adding", "adding gradients", "s", "of each batch to the sum of the step",
      product("time.adding.bytes", "bytes", "B", "",
              {std::move(own), accumulated(r),
               given("time.adding.each", "bytes each", read + 2 * sum_width, "B",
                     "the new one is read, the sum read and written")}),
      product("time.adding.rate", "rate", "B/s", "",
              {given("time.adding.bandwidth", "memory bandwidth", gpu.bandwidth, "B/s", gpu.source),
               given("time.adding.share", "share", kBandwidthShare, "",
                     "what large copies reach on GPUs")}));
}

// The optimizer's kernels on a GPU that holds all of the state.
Quantity whole_update(const Workload& w, const Gpu& gpu) {
  Phases update{};
  update[static_cast<size_t>(Phase::update)] = true;
  if (w.options.precision != Precision::mixed_bf16)
    return device_time(w, gpu, "time.update.whole", "the optimizer", update);
  return product("time.update.whole", "the optimizer", "s", "",
                 {device_time(w, gpu, "time.update.narrow", "in 16 bits", update),
                  given("time.update.width", "times as wide", 2, "",
                        "weights, gradients and state in f32, of which the dry run has 16 bits")});
}

// The forward pass once more, less the matmuls whose results are kept. `forward`: of one pass.
Quantity again_in_backward(const Workload& w, const PlanRequest& r, Quantity forward,
                           Quantity share) {
  std::vector<Quantity> parts;
  parts.push_back(std::move(forward));
  parts.push_back(std::move(share));
  const Results& kept = r.kept == Kept::matmuls ? w.matmuls : w.half_matmuls;
  if (r.kept != Kept::boundaries && w.forward_flops > 0)
    parts.push_back(difference(
        "time.recompute.rest", "not kept", "", "by operations of the forward pass",
        {given("time.recompute.all", "the forward pass", 1, "", "all of it"),
         quotient(
             "time.recompute.kept", "results that are kept", "", "",
             given("time.recompute.kept.flops", "their operations", kept.flops, "FLOP", "dry run"),
             given("time.recompute.flops", "all operations", w.forward_flops, "FLOP",
                   "dry run"))}));
  return product("time.recompute", "forward again", "s", "", std::move(parts));
}

}  // namespace

Quantity gpus_of(int n) { return given("gpus", "GPUs", n, "", "of the plan"); }
Quantity replicas_of(const PlanRequest& r, int n) {
  if (r.parallel.parts() == 1) return gpus_of(n);
  return quotient("replicas", "copies of the net", "", "each with batches of its own", gpus_of(n),
                  parts_of(r));
}
Quantity accumulated(const PlanRequest& r) {
  return given("accumulate", "accumulated", r.accumulate, "", "batches of one step, asked for");
}

Quantity step_time(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  const auto phase = [](Phase p) { return static_cast<size_t>(p); };
  const auto only = [&](Phase p) {
    Phases v{};
    v[phase(p)] = true;
    return v;
  };
  const int ways = r.parallel.tensor;
  std::vector<Quantity> parts, hides;
  if (!w.options.compiled && w.options.training) {
    Quantity f = device_time(w, gpu, "time.forward", "forward", only(Phase::forward), ways);
    Quantity b = device_time(w, gpu, "time.backward", "backward", only(Phase::backward), ways);
    hides.push_back(again(b));
    if (r.sharding >= 3) hides.push_back(again(f));
    if (r.recompute)
      parts.push_back(again_in_backward(w, r, again(f),
                                        given("time.recompute.times", "times", 1, "",
                                              "every block once more in the backward pass")));
    if (r.recompute && r.sharding >= 3) hides.push_back(again(parts.back()));
    parts.push_back(std::move(f));
    parts.push_back(std::move(b));
  } else {
    // The passes of a compiled step are one list.
    Phases passes;
    passes.fill(true);
    passes[phase(Phase::update)] = false;
    Quantity q = device_time(w, gpu, "time.kernels",
                             w.options.training ? "forward and backward" : "forward", passes, ways);
    hides.push_back(product(
        "time.link.beside", "of the passes", "s", "",
        {again(q),
         r.sharding >= 3
             ? given("time.link.beside.share", "share", 1, "", "weights are gathered throughout")
             : given("time.link.beside.share", "share", 2.0 / 3, "", "the backward pass")}));
    if (r.recompute)
      parts.push_back(again_in_backward(w, r, again(q),
                                        given("time.recompute.share", "share", 1.0 / 3, "",
                                              "the forward part of forward and backward")));
    parts.push_back(std::move(q));
  }
  const double launch = w.options.compiled ? kCompiledLaunch : kEagerLaunch;
  Quantity device =
      shared_by_parts(r, "time.device", "work of the GPU", "s",
                      sum(r.parallel.parts() > 1 ? "time.device.net" : "time.device",
                          r.parallel.parts() > 1 ? "work of the net" : "work of the GPU", "s", "",
                          std::move(parts)));
  Quantity host = product(
      "time.host", "starting kernels", "s", "",
      {given("time.host.kernels", "kernels",
             static_cast<double>(w.work.size()) / r.parallel.pipeline, "",
             r.parallel.pipeline > 1 ? "counted in the dry run, over the stages"
                                     : "counted in the dry run"),
       given("time.launch", "each", launch, "s",
             w.options.compiled ? "a replayed list: assumed" : "dispatch of one op: assumed")});
  Quantity micro =
      most("time.micro", "one batch", "s", "the GPU works while the host starts the next kernels",
           {std::move(device), std::move(host)});
  std::vector<Quantity> step;
  if (r.parallel.parts() > 1 && w.options.training) micro = spread(w, r, gpu, std::move(micro));
  if (r.parallel.pipeline > 1) step.push_back(bubble(r, micro));
  step.push_back(product("time.batches", "batches", "s", "", {std::move(micro), accumulated(r)}));
  if (w.options.training) {
    if (r.accumulate > 1) step.push_back(adding(w, r, gpu, n));
    // Each GPU updates its part of the state where that is sharded.
    step.push_back(quotient(
        "time.update", "update", "s", "", whole_update(w, gpu),
        given("time.update.parts", "GPUs that share it", r.sharding >= 1 ? n : r.parallel.parts(),
              "", r.sharding >= 1 ? "sharded optimizer state" : "those that share the net")));
  }
  if (replicas(r, n) > 1) step.push_back(waiting_for_link(w, r, gpu, n, std::move(hides)));
  return sum("time.step", "one step", "s", "", std::move(step));
}

Quantity throughput(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  Quantity units = product(
      "units.step", w.unit + " per step", "", "",
      {given("batch.gpu", "samples of one GPU and batch", static_cast<double>(w.options.batch), "",
             "the batch over GPUs and accumulated batches"),
       given("units.sample", w.unit + " per sample", w.units / static_cast<double>(w.options.batch),
             "", "the job's"),
       replicas_of(r, n), accumulated(r)});
  return quotient("rate", w.unit + " per second", w.unit + "/s", "", std::move(units),
                  step_time(w, r, gpu, n));
}

}  // namespace tandem::plan
