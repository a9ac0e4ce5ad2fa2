// SPDX-License-Identifier: Apache-2.0
// What a plan costs beside the GPU: data and the cores that decode it, checkpoints, energy, money,
// spot machines, buying instead of renting.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

// One accelerator and its host fail about once in so long: 419 interruptions of 16384 GPUs in 54
// days (Llama 3, section 3.3.4), so 50700 hours each.
constexpr double kMtbfSeconds = 50700.0 * 3600;
// Writing a checkpoint: an NVMe disk's sustained rate.
constexpr double kWriteRate = 2e9;

double memory_of_largest(const Gpu& gpu, int n) { return gpu.memory * n; }

}  // namespace

void add_savings(Plan& p, const PlanRequest& r, const Workload& w) {
  const Quantity now = *p.find("memory");  // figures move when more come
  const auto saved = [&](const std::string& key, const std::string& label, PlanRequest other,
                         const Workload& work, int n, const std::string& why) {
    const Quantity then = memory_of(work, other, n);
    if (now.value - then.value < 0.001 * now.value) return;
    p.figures.push_back(
        sum("save." + key, label, "B", why,
            {given("save.now", "now", now.value, "B", "see memory"),
             given("save." + key + ".then", "then", -then.value, "B", "the same formulas")}));
  };
  PlanRequest other = r;
  if (!r.recompute && w.blocks > 1) {
    other.recompute = true;
    saved("recompute", "recompute would save", other, w, r.n,
          "every block's values are computed again in the backward pass: about a third more time");
  }
  if (r.precision == Precision::f32 || r.precision == Precision::tf32) {
    other = r;
    other.precision = Precision::amp_bf16;
    saved("bf16", "bf16 products would save", other,
          workload_for(other, w.options.batch, r.compiled, true), r.n,
          "autocast: products and what they keep in bf16, weights in f32");
  }
  if (r.precision != Precision::pure_bf16) {
    other = r;
    other.precision = Precision::pure_bf16;
    try {
      saved("pure_bf16", "everything in bf16 would save", other,
            workload_for(other, w.options.batch, r.compiled, true), r.n,
            "weights, gradients and optimizer state too: watch the loss");
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Unsupported) throw;  // it cannot be converted: nothing is saved
    }
  }
  if (!r.eight_bit_state && w.optimizer_bytes > 0) {
    other = r;
    other.eight_bit_state = true;
    saved("eight_bit", "8-bit optimizer state would save", other, w, r.n,
          "a byte in place of four per moment, and a scale per block");
  }
  for (int stage = r.sharding + 1; stage <= 3; ++stage) {
    other = r;
    other.sharding = stage;
    const int n = std::max(r.n, 8);
    const Quantity then = memory_of(w, other, n);
    p.figures.push_back(sum(fmt::format("save.shard{}", stage),
                            fmt::format("sharding stage {} over {} GPUs", stage, n), "B",
                            stage == 1   ? "optimizer state divided"
                            : stage == 2 ? "and gradients"
                                         : "and weights",
                            {given("save.now", "now", now.value, "B", "see memory"),
                             given(fmt::format("save.shard{}.then", stage), "then", -then.value,
                                   "B", "the same formulas")}));
  }
}

void add_data(Plan& p, const PlanRequest& r, const Catalog& c, double rate, double) {
  const Job& job = r.job;
  if (job.sample_bytes <= 0) return;
  double per_sample = job.sample_bytes;
  std::string from = job.sample_from;
  if (r.data && r.data->bytes > 0 && r.data->samples > 0) {
    per_sample = r.data->bytes / r.data->samples;
    from = r.data->source;
  }
  Quantity samples =
      quotient("data.samples_rate", "samples per second", "1/s", "",
               given("rate.value", "rate", rate, p.eager_work.unit + "/s", "see rate"),
               given("units.sample", "units per sample", job.units_per_sample, "", "the job's"));
  Quantity bytes =
      product("data.rate", "data rate", "B/s", "",
              {samples, given("data.sample", "bytes per sample", per_sample, "B", from)});
  const double need = bytes.value;
  p.figures.push_back(std::move(bytes));
  if (job.decode_seconds > 0)
    p.figures.push_back(
        product("data.cores", "CPU cores for decoding", "", "",
                {samples, given("data.decode", "seconds per sample", job.decode_seconds, "s", from),
                 given("data.headroom", "headroom", 1.25, "", "so that the GPU never waits")}));
  std::string disk = "none that is known";
  for (auto at = c.disks().rbegin(); at != c.disks().rend(); ++at)
    if (at->name != "network share" && at->read_rate >= 1.5 * need) {
      disk = at->name;
      break;
    }
  p.notes.push_back(
      fmt::format("Data: {} from disk keep the GPUs busy; {} is enough, a network of {:.2f} "
                  "Gbit/s too.",
                  show(need, "B/s"), disk, std::max(0.01, need * 8 * 1.2 / 1e9)));
}

void add_checkpoints(Plan& p, const PlanRequest& r, const Catalog& c, const Workload& w,
                     double seconds) {
  Quantity size =
      sum("checkpoint.size", "checkpoint", "B", "what a resume needs",
          {given("checkpoint.weights", "weights", w.weight_bytes, "B", "dry run"),
           given("checkpoint.optimizer", "optimizer state", w.optimizer_bytes, "B", "dry run")});
  Quantity save = quotient(
      "checkpoint.save", "to write one", "s", "", std::move(size),
      given("checkpoint.disk", "disk", kWriteRate, "B/s", "sustained writes of an NVMe disk"));
  const bool spot = r.term == "spot";
  const double servers = std::ceil(static_cast<double>(r.n) / p.gpu.per_server);
  Quantity between = spot ? quotient("checkpoint.mtbf", "between failures", "s", "",
                                     given("spot.day", "a day", 86400, "s",
                                           ""
                                           "seconds of a day"),
                                     given("spot.rate", "preemptions a day",
                                           std::max(1e-6, c.prices().preemptions_per_day * servers),
                                           "", "data/prices.json, per server"))
                          : quotient("checkpoint.mtbf", "between failures", "s", "",
                                     given("checkpoint.mtbf.one", "of one GPU", kMtbfSeconds, "s",
                                           "419 interruptions of 16384 GPUs in 54 days (Llama 3)"),
                                     given("gpus", "GPUs", r.n, "", "asked for"));
  const double best = std::sqrt(2 * save.value * between.value);
  const double interval = seconds > 0 ? std::min(best, seconds) : best;
  const double lost = std::min(1.0, save.value / interval + interval / (2 * between.value));
  p.figures.push_back(std::move(save));
  p.figures.push_back(
      given("checkpoint.interval", "checkpoint every", interval, "s",
            fmt::format("Young's formula: the root of 2 x {} x {}",
                        show(p.find("checkpoint.save")->value, "s"), show(between.value, "s"))));
  p.figures.push_back(sum("checkpoint.lost", "time lost to saving and failures", "", "",
                          {given("checkpoint.lost.save", "writing",
                                 std::min(1.0, p.find("checkpoint.save")->value / interval), "",
                                 "time of one over the interval"),
                           given("checkpoint.lost.again", "doing again",
                                 lost - std::min(1.0, p.find("checkpoint.save")->value / interval),
                                 "", "half an interval per failure")}));
  p.figures.push_back(std::move(between));
}

void add_energy_and_cost(Plan& p, const PlanRequest& r, const Catalog& c, double seconds) {
  Quantity gpus = product("power.gpus", "GPUs", "W", "",
                          {given("power.gpu", "one " + p.gpu.name, p.gpu.watts, "W", p.gpu.source),
                           given("gpus", "GPUs", r.n, "", "asked for"),
                           given("power.share", "share", kPowerShare, "",
                                 "of the board's limit while training: 0.7 to 0.85")});
  Quantity host = product("power.host", "host", "W", "",
                          {given("power.gpus.value", "GPUs", gpus.value, "W", "above"),
                           given("power.host.share", "share", kHostShare, "",
                                 "processor, memory, fans: 15 to 25 % of the GPUs")});
  Quantity server = sum("power.server", "server", "W", "", {std::move(gpus), std::move(host)});
  Quantity power =
      product("power", "power with cooling", "W", "",
              {std::move(server), given("power.pue", "building", c.prices().pue, "",
                                        "cooling and losses (PUE), data/prices.json")});
  const double watts = power.value;
  p.figures.push_back(std::move(power));
  Quantity hour = price_hour(r, c, p.gpu, r.n);
  const double usd_hour = hour.value;
  if (seconds <= 0) {
    p.figures.push_back(std::move(hour));
  } else {
    p.figures.push_back(product("energy", "energy", "kWh", "",
                                {given("power.value", "power", watts / 1000, "kW", "see power"),
                                 given("time.hours", "hours", seconds / 3600, "h", "see time")}));
    Quantity rent =
        product("cost.rent", "rent", "USD", "",
                {std::move(hour), given("time.hours", "hours", seconds / 3600, "h", "see time")});
    const double stored =
        (r.data ? std::max(r.data->bytes, r.data->samples * r.job.sample_bytes) : 0) +
        3 * p.find("checkpoint.size")->value;
    Quantity storage =
        product("cost.storage", "storage", "USD", "",
                {given("cost.storage.bytes", "bytes", stored, "B", "data and three checkpoints"),
                 given("cost.storage.price", "a byte a month", c.prices().storage_month, "USD",
                       "data/prices.json"),
                 given("time.months", "months", seconds / (30.4 * 86400), "", "see time")});
    p.figures.push_back(sum("cost", "cost", "USD", "", {std::move(rent), std::move(storage)}));
    if (r.term == "spot") {
      const double servers = std::ceil(static_cast<double>(r.n) / p.gpu.per_server);
      const SpotResult s = simulate_spot(
          seconds, p.find("checkpoint.interval")->value, p.find("checkpoint.save")->value,
          c.prices().preemptions_per_day * servers / 86400, c.prices().restart_seconds);
      p.figures.push_back(given("spot.time", "time on spot machines", s.mean, "s",
                                fmt::format("2000 simulated runs: {:.1f} preemptions, 9 of 10 end "
                                            "within {}",
                                            s.preemptions, show(s.p90, "s"))));
      p.figures.back().high = std::max(s.p90, s.mean);
      p.figures.back().low = std::min(seconds, s.mean);
      p.figures.push_back(
          product("spot.cost", "cost on spot machines", "USD", "",
                  {given("spot.hours", "hours", s.mean / 3600, "h", "see spot.time"),
                   given("price.value", "an hour", usd_hour, "USD", "see price")}));
    }
  }
  // Buying.
  const GpuPrice& price = c.price(p.gpu);
  Quantity buy =
      sum("buy", "buying the server", "USD", "",
          {product("buy.gpus", "GPUs", "USD", "",
                   {given("buy.gpu", "one", price.buy, "USD", "data/prices.json"),
                    given("gpus", "GPUs", r.n, "", "asked for")}),
           product("buy.host", "the rest", "USD", "",
                   {given("buy.host.one", "per GPU", price.host, "USD", "data/prices.json"),
                    given("gpus", "GPUs", r.n, "", "asked for")})});
  Quantity own = product(
      "buy.power", "electricity an hour", "USD", "",
      {given("power.value", "power", watts / 1000, "kW", "see power"),
       given("buy.electricity", "a kWh", c.prices().electricity, "USD", "data/prices.json")});
  Quantity gain = sum("buy.gain", "rent saved an hour", "USD", "",
                      {given("price.value", "rent", usd_hour, "USD", "see price"),
                       given("buy.power.minus", "electricity", -own.value, "USD", "of one's own")});
  if (gain.value > 0)
    p.figures.push_back(
        quotient("buy.hours", "hours until buying pays", "h", "", std::move(buy), std::move(gain)));
}

void add_server(Plan& p, const PlanRequest& r, const Catalog& c) {
  const Quantity eager = memory_of(p.eager_work, r, r.n);
  const Quantity compiled = memory_of(p.compiled_work, r, r.n);
  const auto line = [&](std::string part, std::string a, std::string b, std::string thumb,
                        std::string cause) {
    p.server.push_back(
        {std::move(part), std::move(a), std::move(b), std::move(thumb), std::move(cause)});
  };
  const auto both = [](double a, double b, const std::string& unit) {
    return std::pair(show(a, unit), show(b, unit));
  };
  const Quantity rate_eager = throughput(p.eager_work, r, p.gpu, r.n);
  const Quantity rate_compiled = throughput(p.compiled_work, r, p.gpu, r.n);
  line("GPU", fmt::format("{} x {}", r.n, p.gpu.name), fmt::format("{} x {}", r.n, p.gpu.name),
       "as many as one can pay", fmt::format("{} and {}", show(rate_eager), show(rate_compiled)));
  auto [va, vb] = both(eager.value, compiled.value, "B");
  line("VRAM", va + " each", vb + " each", "24 to 48 GB each", "memory by cause, above");
  const double cores_data = p.find("data.cores") ? p.find("data.cores")->value : 0;
  const double ratio = rate_compiled.value > 0 ? rate_eager.value / rate_compiled.value : 1;
  const double here = p.compiled ? 1 : 1 / ratio;
  const double cores_compiled = std::ceil(cores_data * here) + r.n + 2;
  const double cores_eager = std::ceil(cores_data * here * ratio) + 2.0 * r.n + 2;
  line("CPU cores", fmt::format("{:.0f}", cores_eager), fmt::format("{:.0f}", cores_compiled),
       fmt::format("{}", std::max(16, 8 * r.n)),
       "decoding, one per GPU that starts kernels (two in eager), two for the rest");
  const Workload& w = p.compiled ? p.compiled_work : p.eager_work;
  const double loader = 2e9 * r.n + 8 * static_cast<double>(w.options.batch) * r.n *
                                        std::max(r.job.sample_bytes, 600e3);
  const double checkpoint = p.find("checkpoint.size")->value;
  const double data = r.data ? std::max(r.data->bytes, 0.0) : 0;
  double ram = 4e9 + loader + checkpoint;
  const bool cached = data > 0 && data < 256e9;
  if (cached) ram += data;
  const std::string ram_text = show(ram, "B");
  line("RAM", ram_text, ram_text, show(2 * memory_of_largest(p.gpu, r.n), "B") + " (2 x VRAM)",
       fmt::format("system 4 GB, loader {}, one checkpoint {}{}", show(loader, "B"),
                   show(checkpoint, "B"), cached ? ", the data in the page cache" : ""));
  const double disk = 1.2 * data + 5 * checkpoint + 50e9;
  const double read = p.find("data.rate") ? p.find("data.rate")->value : 0;
  line("NVMe", show(disk, "B"), show(disk, "B"), "1 to 2 TB",
       fmt::format("data, five checkpoints, 50 GB of system; reads {} at the start of an epoch",
                   show(cached ? read : 1.2 * read, "B/s")));
  line("cold storage", show(data + 20 * checkpoint, "B"), show(data + 20 * checkpoint, "B"), "none",
       "the original data and checkpoints to keep");
  const Quantity* link = p.find("time.link");
  line("interconnect", r.n > 1 ? p.gpu.link : "any", r.n > 1 ? p.gpu.link : "any",
       "NVLink from 2 GPUs on",
       r.n > 1 && link ? fmt::format("{} of communication a step, {} of it not hidden", show(*link),
                                     show(*p.find("time.exposed")))
                       : "one GPU talks to nobody");
  const double watts = p.find("power.server")->value / kPowerShare;
  line("power supply", show(std::ceil(watts * 1.25 / 50) * 50, "W"),
       show(std::ceil(watts * 1.25 / 50) * 50, "W"),
       show(std::ceil((p.gpu.watts * r.n + 300) / 50) * 50, "W"),
       "GPUs at their limit and the host, a quarter in reserve");
  const double cool = p.find("power.server")->value;
  line("cooling", show(std::ceil(cool), "W"), show(std::ceil(cool), "W"), "as much as the supply",
       "what is drawn leaves as heat");
  (void)c;
}

}  // namespace tandem::plan
