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

// Share of the memory bandwidth that large pointwise kernels reach on GPUs.
constexpr double kBandwidthShare = 0.8;
// Time from one kernel to the next: a framework's dispatch in eager, a replayed graph compiled.
constexpr double kEagerLaunch = 6e-6, kCompiledLaunch = 1.5e-6;
// Between servers: one 200 Gbit/s card per GPU. Rings run over all cards of a server at once, so a
// server takes a whole message in at the rate of all of them.
constexpr double kBetweenServers = 25e9;
// Depthwise convolutions reach this share of the bandwidth, and convolutions in tf32 this share of
// the peak (their layout is NCHW there): EfficientNet-B0 and -B4, and ResNet-50, as NVIDIA
// publishes them for one A100 (tests/plan/conv_runs.csv). Assumed for all GPUs.
constexpr double kDepthwiseShare = 0.08, kTf32ConvShare = 0.2;
constexpr const char* kConvFrom =
    "NVIDIA's published runs of conv nets on one A100 (tests/plan/conv_runs.csv)";
// Under autocast the libraries' batch norms read and write 16 bits, and so does what follows them.
constexpr double kNarrow = 0.5;
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

// Kernels with the same limit: matmuls of a kind, pointwise arithmetic, or moving bytes.
struct Group {
  double flops = 0, bytes = 0;
  double wide = 0;  // of the bytes: those that are counted by half
  int64_t kernels = 0;
};
enum : size_t { kTf32Conv = kKinds, kPointwise, kMoving, kDepthwise, kGroups };

// Is all but matmuls half as wide on the GPU as in the dry run?
bool narrow_between_matmuls(const Workload& w) {
  const Precision p = w.options.precision;
  if (p != Precision::amp_bf16 && p != Precision::amp_f16) return false;
  return std::any_of(w.work.begin(), w.work.end(),
                     [](const Work& k) { return k.batch_norm && k.dtype == DType::f32; });
}

using Phases = std::array<bool, 8>;

// What a GPU reaches: operations and bytes a second, each as its figure shows it.
class Rates {
 public:
  explicit Rates(const Gpu& gpu) : gpu_(gpu) {}
  // Of matmuls: the one constant of the GPU. Convolutions in tf32 are not slower than in f32.
  bool tf32_conv() const {
    return gpu_.peak("tf32") * kTf32ConvShare > gpu_.peak("f32") * gpu_.efficiency;
  }
  double flops(size_t group) const {
    if (group == kTf32Conv) return gpu_.peak("tf32") * kTf32ConvShare;
    return gpu_.peak(kind(group)) * gpu_.efficiency;
  }
  double bytes(size_t group) const {
    return gpu_.bandwidth * (group == kDepthwise ? kDepthwiseShare : kBandwidthShare);
  }
  static const char* kind(size_t group) {
    return group == kPointwise ? "f32" : group == kTf32Conv ? "tf32" : kKindNames[group];
  }
  Quantity of(size_t group, const std::string& at) const {
    if (group == kMoving || group == kDepthwise)
      return product(
          at + ".rate", "rate", "B/s", "",
          {given(at + ".bandwidth", "memory bandwidth", gpu_.bandwidth, "B/s", gpu_.source),
           group == kMoving ? given(at + ".share", "share", kBandwidthShare, "",
                                    "what large copies reach on GPUs")
                            : given(at + ".share", "share", kDepthwiseShare, "", kConvFrom)});
    return product(
        at + ".rate", "rate", "FLOP/s", "",
        {given(at + ".peak", "peak of the " + gpu_.name, gpu_.peak(kind(group)), "FLOP/s",
               gpu_.source),
         group == kTf32Conv ? given(at + ".efficiency", "efficiency", kTf32ConvShare, "", kConvFrom)
                            : given(at + ".efficiency", "efficiency", gpu_.efficiency, "",
                                    "the constant of this GPU; " + gpu_.efficiency_from)});
  }

 private:
  const Gpu& gpu_;
};

std::string label_of(size_t group) {
  switch (group) {
    case kMoving:
      return "moving bytes";
    case kDepthwise:
      return "depthwise convolutions";
    case kTf32Conv:
      return "convolutions in tf32";
    case kPointwise:
      return "pointwise in f32";
    default:
      return std::string("matmuls in ") + kKindNames[group];
  }
}

// The bytes of a group, as a figure.
Quantity bytes_of(const Group& g, const std::string& at) {
  const char* const from = "the rows' cost columns over the dry run";
  if (g.wide == 0) return given(at + ".bytes", "bytes moved", g.bytes, "B", from);
  return sum(at + ".moved", "bytes moved", "B", "",
             {given(at + ".bytes", "of matmuls", g.bytes - g.wide, "B", from),
              product(at + ".narrow", "between matmuls", "B", "",
                      {given(at + ".wide", "as the dry run has it", g.wide, "B", from),
                       given(at + ".half", "16 of 32 bits", kNarrow, "",
                             "batch norms, and what follows them, read and write 16 bits under "
                             "autocast on GPUs")})});
}

// The times of the kernels of some phases, as a sum of quotients.
Quantity device_time(const Workload& w, const Gpu& gpu, const std::string& key,
                     const std::string& label, const Phases& wanted) {
  const Rates rates(gpu);
  const bool narrow = narrow_between_matmuls(w);
  const Precision precision = w.options.precision;
  Group groups[kGroups];
  for (const Work& k : w.work) {
    if (!wanted[k.phase]) continue;
    const bool half = narrow && !k.matrix && k.phase != static_cast<uint8_t>(Phase::update);
    size_t arithmetic = k.matrix ? static_cast<size_t>(kind_of(k.dtype, precision)) : kPointwise;
    if (arithmetic == kTf32 && k.convolution && rates.tf32_conv()) arithmetic = kTf32Conv;
    const size_t moving = k.depthwise ? kDepthwise : kMoving;
    const double by_bytes = k.bytes * (half ? kNarrow : 1) / rates.bytes(moving);
    Group& g = groups[k.flops / rates.flops(arithmetic) > by_bytes ? arithmetic : moving];
    g.flops += k.flops;
    g.bytes += k.bytes;
    if (half) g.wide += k.bytes;
    ++g.kernels;
  }
  std::vector<Quantity> parts;
  for (size_t i = 0; i < kGroups; ++i) {
    const Group& g = groups[i];
    if (g.kernels == 0) continue;
    const std::string at = fmt::format("{}.{}", key, parts.size() + 1);
    const bool bytes = i == kMoving || i == kDepthwise;
    parts.push_back(quotient(
        at, label_of(i), "s",
        fmt::format("{} kernels that {} holds back", g.kernels, bytes ? "memory" : "arithmetic"),
        bytes ? bytes_of(g, at)
              : given(at + ".flops", "FLOPs", g.flops, "FLOP",
                      "the rows' cost columns over the dry run"),
        rates.of(i, at)));
  }
  if (parts.empty()) parts.push_back(given(key + ".0", "nothing", 0, "s", "no kernels"));
  return sum(key, label, "s", "", std::move(parts));
}

// Bytes a second between GPUs, `within` of a server or not.
Quantity link_rate_of(const Gpu& gpu, const std::string& key, bool within, double between,
                      const char* why) {
  return product(key + ".rate", "rate", "B/s", "",
                 {given(key + ".peak", within ? gpu.link : "network between servers",
                        within ? gpu.link_rate : std::min(gpu.link_rate, between), "B/s",
                        within ? gpu.source : why),
                  given("time.link.share", "share", kLinkShare, "", "what collectives reach")});
}

// What the GPUs that share layers exchange for one microbatch: two sums of the values between
// blocks in each direction (Shoeybi et al. 2019), as scatter and gather where time is sliced, too.
Quantity layer_communication(const Workload& w, const PlanRequest& r, const Gpu& gpu) {
  const int tp = r.parallel.tensor;
  const bool twice = r.recompute && r.kept == Kept::boundaries;
  return quotient(
      "time.layers", "sums over slices", "s", "not hidden: the next layer waits for them",
      product("time.layers.bytes", "bytes per GPU", "B", "",
              {given("time.boundary", "between two blocks", w.boundary_bytes, "B", "dry run"),
               given("time.layers.times", "sums in a block", twice ? 6 : 4, "",
                     twice ? "two in each pass, and in the one that is repeated"
                           : "two in each direction"),
               quotient("time.layers.ring", "of each", "", "n - 1 of n parts, there and back",
                        given("time.layers.others", "twice the others", 2 * (tp - 1), "",
                              "the ring of those that share a layer"),
                        given("parallel.tp", "that share each layer", tp, "", "asked for")),
               quotient("time.layers.blocks", "blocks of one GPU", "", "",
                        given("memory.blocks", "blocks", w.blocks, "", "of the model"),
                        given("parallel.pp", "that hold consecutive layers", r.parallel.pipeline,
                              "", "asked for"))}),
      link_rate_of(gpu, "time.layers", tp <= gpu.per_server, kBetweenServers,
                   "200 Gbit/s per GPU"));
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
      link_rate_of(gpu, "time.stages", p.parts() <= gpu.per_server, kBetweenServers,
                   "200 Gbit/s per GPU"));
}

Quantity communication(const Workload& w, const PlanRequest& r, const Gpu& gpu, int n) {
  // As wide as the gradients are, which autocast leaves in f32; mixed precision reduces and gathers
  // in bf16. With full sharding weights are gathered twice too.
  const Precision precision = w.options.precision;
  const bool narrow = precision == Precision::pure_bf16 || precision == Precision::pure_f16 ||
                      precision == Precision::mixed_bf16;
  const double width = narrow ? 2 : 4;
  const bool gathers = r.sharding >= 3;
  Quantity passes = product(
      "time.link.passes", "times around the ring", "", "",
      {given(
           "time.link.passes.all", "passes", gathers ? (r.recompute ? 4 : 3) : 2, "",
           gathers ? "the weights forward and backward, and the gradients" : "scatter and gather"),
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
  Quantity rate = link_rate_of(
      gpu, "time.link", inside, kBetweenServers * cards,
      cards == gpu.per_server ? "200 Gbit/s per GPU, all cards of a server" : "200 Gbit/s per GPU");
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
  return most("time.exposed", "waiting for the link", "s", "",
              {std::move(rest), given("time.exposed.none", "nothing", 0, "s", "at least")});
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
  std::vector<Quantity> parts, hides;
  if (!w.options.compiled && w.options.training) {
    Quantity f = device_time(w, gpu, "time.forward", "forward", only(Phase::forward));
    Quantity b = device_time(w, gpu, "time.backward", "backward", only(Phase::backward));
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
                             w.options.training ? "forward and backward" : "forward", passes);
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
    // Each GPU updates its part of the state where that is sharded.
    step.push_back(quotient(
        "time.update", "update", "s", "",
        device_time(w, gpu, "time.update.whole", "the optimizer", only(Phase::update)),
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
