// SPDX-License-Identifier: Apache-2.0
// What a plan costs beside the GPU: data and the cores that decode it, checkpoints, energy, money,
// spot machines, buying instead of renting.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

// One accelerator and its host fail about once in so long: 419 interruptions of 16384 GPUs in 54
// days (Llama 3, section 3.3.4), so 50700 hours each.
constexpr double kMtbfSeconds = 50700.0 * 3600;
// Writing a checkpoint: an NVMe disk's sustained rate.
constexpr double kWriteRate = 2e9;

Quantity per_hour(const Quantity& time) {
  return quotient("time.hours", "hours", "h", "", again(time),
                  given("hour", "an hour", 3600, "s", "seconds of an hour"));
}
Quantity in_kilowatts(const Quantity& power) {
  return quotient("power.kw", "power", "kW", "", again(power),
                  given("kilowatt", "a kilowatt", 1000, "W", "watts of a kilowatt"));
}
Quantity months(const Quantity& time) {
  return quotient("time.months", "months", "", "", again(time),
                  given("month", "a month", 30.4 * 86400, "s", "30.4 days"));
}
Quantity servers_of(const Gpu& gpu, int n) {
  return whole("servers", "servers", "", "",
               quotient("servers.exact", "servers, exactly", "", "", gpus_of(n),
                        given("servers.gpus", "GPUs of one", gpu.per_server, "",
                              "most in one server of " + gpu.name)));
}

}  // namespace

Quantity power_of(const Catalog& c, const Gpu& gpu, int n) {
  Quantity gpus =
      product("power.gpus", "GPUs", "W", "",
              {given("power.gpu", "one " + gpu.name, gpu.watts, "W", gpu.source), gpus_of(n),
               given("power.share", "share", kPowerShare, "",
                     "of the board's limit while training: 0.7 to 0.85")});
  Quantity host = product("power.host", "host", "W", "",
                          {again(gpus), given("power.host.share", "share", kHostShare, "",
                                              "processor, memory, fans: 15 to 25 % of the GPUs")});
  Quantity server = sum("power.server", "server", "W", "", {std::move(gpus), std::move(host)});
  return product("power", "power with cooling", "W", "",
                 {std::move(server), given("power.pue", "building", c.prices().pue.value, "",
                                           "cooling and losses (PUE); " + c.prices().pue.source)});
}

Quantity energy_of(const Quantity& power, const Quantity& time) {
  return product("energy", "energy", "kWh", "", {in_kilowatts(power), per_hour(time)});
}

Quantity price_hour(const PlanRequest& r, const Catalog& c, const Gpu& gpu, int n) {
  const GpuPrice& p = c.price(gpu);
  Term term{"spot", c.prices().spot.discount, c.prices().spot.source};
  if (r.term != "spot")
    for (const Term& t : c.prices().terms)
      if (t.name == r.term) term = t;
  Quantity card = given("price.gpu", "one " + gpu.name + " an hour", p.typical, "USD",
                        fmt::format("${:.2f} to ${:.2f} are asked; {} ({} of {})", p.low, p.high,
                                    p.source, c.prices().file, c.prices().date));
  card.low = p.low;
  card.high = p.high;
  return product(
      "price", "the server an hour", "USD", "",
      {std::move(card), gpus_of(n),
       given("price.term", "term " + term.name, 1 - term.discount, "",
             fmt::format("{:.0f} % off the hourly price; {}", term.discount * 100, term.source)),
       given("price.surcharge", "surcharges", 1 + c.prices().surcharge.value, "",
             "network, addresses, idle time; " + c.prices().surcharge.source)});
}

Quantity checkpoint_of(const Workload& w) {
  return sum("checkpoint.size", "checkpoint", "B", "what a resume needs",
             {given("checkpoint.weights", "weights", w.weight_bytes, "B", "dry run"),
              given("checkpoint.optimizer", "optimizer state", w.optimizer_bytes, "B", "dry run")});
}

Quantity data_bytes(const PlanRequest& r) {
  if (!r.data) return given("data.bytes", "data", 0, "B", "no --data was named");
  if (r.data->bytes > 0)
    return given("data.bytes", "data", r.data->bytes, "B", r.data->name + ": " + r.data->source);
  return product(
      "data.bytes", "data", "B", "",
      {given("data.samples", "samples of " + r.data->name, r.data->samples, "", r.data->source),
       given("data.sample.assumed", "bytes of one", r.job.sample_bytes, "B",
             r.job.sample_from.empty() ? "not known" : r.job.sample_from)});
}

Quantity stored_data(const PlanRequest& r) { return r.data ? again(data_bytes(r)) : data_bytes(r); }

Quantity cost_of(const PlanRequest& r, const Catalog& c, const Gpu& gpu, int n, const Workload& w,
                 const Quantity& time) {
  Quantity rent =
      product("cost.rent", "rent", "USD", "", {price_hour(r, c, gpu, n), per_hour(time)});
  const auto store = [&](const std::string& key, const std::string& label, double checkpoints,
                         const std::string& why, const Rate& price) {
    Quantity bytes =
        sum(key + ".bytes", "bytes", "B", why,
            {data_bytes(r), product(key + ".checkpoints", "checkpoints", "B", "",
                                    {checkpoint_of(w), given(key + ".count", "of them", checkpoints,
                                                             "", "kept at a time")})});
    return product(
        key, label, "USD", "",
        {std::move(bytes),
         given(key + ".price", "a byte a month", price.value, "USD", price.source), months(time)});
  };
  return sum(
      "cost", "cost", "USD", "",
      {std::move(rent),
       store("cost.storage", "storage", 3, "data and three checkpoints", c.prices().storage_month),
       store("cost.cold", "cold storage", 20, "the original data and checkpoints to keep",
             c.prices().cold_month)});
}

Quantity sample_rate(const PlanRequest& r, const Quantity& rate) {
  return quotient(
      "data.samples_rate", "samples per second", "1/s", "", again(rate),
      given("units.sample", r.job.unit + " per sample", r.job.units_per_sample, "", "the job's"));
}

Quantity decoding_cores(const PlanRequest& r, const Quantity& rate) {
  return product("data.cores", "CPU cores for decoding", "", "",
                 {sample_rate(r, rate),
                  given("data.decode", "seconds per sample", r.job.decode_seconds, "s",
                        r.job.decode_seconds > 0 ? r.job.sample_from : "nothing is decoded"),
                  given("data.headroom", "headroom", 1.25, "", "so that the GPU never waits")});
}

void add_data(Plan& p, const PlanRequest& r, const Catalog& c) {
  const Job& job = r.job;
  const Quantity rate = *p.find("rate");
  if (r.data) p.figures.push_back(data_bytes(r));
  if (job.sample_bytes <= 0) return;
  Quantity sample =
      r.data && r.data->bytes > 0
          ? quotient("data.sample", "bytes per sample", "B", "", stored_data(r),
                     given("data.samples", "samples of " + r.data->name, r.data->samples, "",
                           r.data->source))
          : given("data.sample", "bytes per sample", job.sample_bytes, "B", job.sample_from);
  p.figures.push_back(
      product("data.rate", "data rate", "B/s", "", {sample_rate(r, rate), std::move(sample)}));
  const Quantity need = p.figures.back();
  if (job.decode_seconds > 0) p.figures.push_back(decoding_cores(r, rate));
  p.figures.push_back(product(
      "data.network", "or a network of", "bit/s", "",
      {again(need), given("data.network.bits", "bits", 8, "", "of a byte"),
       given("data.network.headroom", "headroom", 1.2, "", "headers, and others on the network")}));
  std::string disk = "no disk that is known";
  for (auto at = c.disks().rbegin(); at != c.disks().rend(); ++at)
    if (at->name != "network share" && at->read_rate >= 1.5 * need.value) {
      disk = at->name;
      break;
    }
  p.notes.push_back(
      fmt::format("Data: {} from disk keep the GPUs busy; {} is enough, a network of "
                  "{} too.",
                  show(need), disk, show(p.figures.back())));
}

void add_checkpoints(Plan& p, const PlanRequest& r, const Catalog& c, const Workload& w,
                     const Quantity* time) {
  Quantity save = quotient(
      "checkpoint.save", "writing a checkpoint", "s", "", checkpoint_of(w),
      given("checkpoint.disk", "disk", kWriteRate, "B/s", "sustained writes of an NVMe disk"));
  const Quantity between =
      r.term == "spot"
          ? quotient("checkpoint.mtbf", "time between failures", "s", "",
                     given("day", "a day", 86400, "s", "seconds of a day"),
                     product("spot.rate", "preemptions a day", "", "",
                             {given("spot.rate.one", "of one server",
                                    std::max(1e-6, c.prices().spot.preemptions_per_day), "",
                                    c.prices().spot.source),
                              servers_of(p.gpu, r.n)}))
          : quotient("checkpoint.mtbf", "time between failures", "s", "",
                     given("checkpoint.mtbf.one", "of one GPU", kMtbfSeconds, "s",
                           "419 interruptions of 16384 GPUs in 54 days (Llama 3)"),
                     gpus_of(r.n));
  Quantity best = root("checkpoint.best", "least is lost with", "s", "Young's formula",
                       product("checkpoint.square", "its square", "", "",
                               {given("checkpoint.two", "two", 2, "", "Young's formula"),
                                again(save), again(between)}));
  std::vector<Quantity> bounds;
  bounds.push_back(std::move(best));
  if (time) bounds.push_back(again(*time));
  Quantity interval = least("checkpoint.interval", "checkpoint every", "s", "", std::move(bounds));
  const auto at_most_all = [](const std::string& key, const std::string& label, Quantity share) {
    return least(key, label, "", "",
                 {std::move(share), given("all", "all", 1, "", "no more can be lost")});
  };
  Quantity writing = at_most_all("checkpoint.lost.save", "writing",
                                 quotient("checkpoint.lost.save.share", "one over the interval", "",
                                          "", again(save), again(interval)));
  Quantity repeating =
      at_most_all("checkpoint.lost.again", "doing again",
                  quotient("checkpoint.lost.again.share", "half an interval per failure", "", "",
                           again(interval),
                           product("checkpoint.lost.failures", "twice the time between", "s", "",
                                   {given("checkpoint.two", "two", 2, "", "half an interval each"),
                                    again(between)})));
  p.figures.push_back(std::move(save));
  p.figures.push_back(std::move(interval));
  p.figures.push_back(at_most_all(
      "checkpoint.lost", "time lost to saving and failures",
      sum("checkpoint.lost.both", "both", "", "", {std::move(writing), std::move(repeating)})));
  p.figures.push_back(between);
}

namespace {

void add_spot(Plan& p, const PlanRequest& r, const Catalog& c, const Quantity& time) {
  const Quantity servers = servers_of(p.gpu, r.n);
  const SpotResult s = simulate_spot(
      time.value, p.find("checkpoint.interval")->value, p.find("checkpoint.save")->value,
      c.prices().spot.preemptions_per_day * servers.value / 86400, c.prices().spot.restart_seconds);
  Quantity spot = given("spot.time", "time on spot machines", s.mean, "s",
                        fmt::format("2000 simulated runs: {:.1f} preemptions, 9 of 10 end within "
                                    "{}; {}",
                                    s.preemptions, show(s.p90, "s"), c.prices().spot.source));
  spot.high = std::max(s.p90, s.mean);
  spot.low = std::min(time.value, s.mean);
  p.figures.push_back(spot);
  p.figures.push_back(product("spot.cost", "cost on spot machines", "USD", "",
                              {quotient("spot.hours", "hours", "h", "", again(spot),
                                        given("hour", "an hour", 3600, "s", "seconds of an hour")),
                               again(*p.find("price"))}));
}

}  // namespace

void add_energy_and_cost(Plan& p, const PlanRequest& r, const Catalog& c, const Workload& w,
                         const Quantity* time) {
  const Quantity power = power_of(c, p.gpu, r.n);
  p.figures.push_back(power);
  const Quantity hour = price_hour(r, c, p.gpu, r.n);
  if (time) {
    p.figures.push_back(energy_of(power, *time));
    p.figures.push_back(cost_of(r, c, p.gpu, r.n, w, *time));
    if (r.term == "spot") add_spot(p, r, c, *time);
  } else {
    p.figures.push_back(hour);
  }
  // Buying.
  const GpuPrice& price = c.price(p.gpu);
  Quantity buy = sum(
      "buy", "buying the server", "USD", "",
      {product("buy.gpus", "GPUs", "USD", "",
               {given("buy.gpu", "one", price.buy, "USD", price.buy_source), gpus_of(r.n)}),
       product(
           "buy.host", "the rest", "USD", "",
           {given("buy.host.one", "per GPU", price.host, "USD", price.buy_source), gpus_of(r.n)})});
  Quantity own =
      product("buy.power", "electricity an hour", "USD", "",
              {in_kilowatts(power), given("buy.electricity", "a kWh", c.prices().electricity.value,
                                          "USD", c.prices().electricity.source)});
  Quantity gain =
      difference("buy.gain", "rent saved an hour", "USD", "", {again(hour), std::move(own)});
  if (gain.value > 0)
    p.figures.push_back(
        quotient("buy.hours", "hours until buying pays", "h", "", std::move(buy), std::move(gain)));
}

void add_savings(Plan& p, const PlanRequest& r, const Workload& w) {
  const Quantity now = *p.find("memory");
  const auto saved = [&](const std::string& key, const std::string& label, const PlanRequest& other,
                         const Workload& work, int n, const std::string& why) {
    Quantity then = prefixed(memory_of(work, other, n), key);
    if (now.value - then.value < 0.001 * now.value) return;
    p.figures.push_back(difference("save." + key, label, "B", why, {again(now), std::move(then)}));
  };
  PlanRequest other = r;
  if (!r.recompute && w.blocks > 1) {
    other.recompute = true;
    saved("recompute", "recompute would save", other, w, r.n,
          "every block's values are computed again in the backward pass: about a third more time");
  }
  const auto narrower = [&](Precision precision, const std::string& key, const std::string& label,
                            const std::string& why) {
    other = r;
    other.precision = precision;
    try {
      saved(key, label, other, workload_for(other, w.options.batch, r.compiled, true), r.n, why);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Unsupported) throw;  // it cannot be converted: nothing is saved
    }
  };
  if (r.precision == Precision::f32 || r.precision == Precision::tf32)
    narrower(Precision::amp_bf16, "bf16", "bf16 products would save",
             "autocast: products and what they keep in bf16, weights in f32");
  if (r.precision != Precision::pure_bf16)
    narrower(Precision::pure_bf16, "pure_bf16", "everything in bf16 would save",
             "weights, gradients and optimizer state too: watch the loss");
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
    const std::string key = fmt::format("shard{}", stage);
    p.figures.push_back(difference("save." + key,
                                   fmt::format("sharding stage {} over {} GPUs", stage, n), "B",
                                   stage == 1   ? "optimizer state divided"
                                   : stage == 2 ? "and gradients"
                                                : "and weights",
                                   {again(now), prefixed(memory_of(w, other, n), key)}));
  }
}

}  // namespace tandem::plan
