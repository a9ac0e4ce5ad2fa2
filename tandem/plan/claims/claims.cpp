// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/claims/claims.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

// Above this many times the plan a statement is unlikely.
constexpr double kUnlikely = 1.3;

Quantity stated(const std::string& key, const std::string& label, double value,
                const std::string& unit) {
  return given(key, label, value, unit, "of the statement");
}

// The time that a statement leaves: its own, what its money pays, or what its energy lasts.
Quantity time_of_claim(const PlanRequest& r, const Claim& claim, const Catalog& c, const Gpu& gpu) {
  const auto in_hours = [](Quantity hours) {
    return product("claim.seconds", "time", "s", "",
                   {std::move(hours), given("hour", "an hour", 3600, "s", "seconds of an hour")});
  };
  if (claim.of == Claim::Of::cost)
    return in_hours(quotient("claim.hours", "what it pays", "h", "rent alone, at the typical price",
                             stated("claim.cost", "cost", claim.value, "USD"),
                             price_hour(r, c, gpu, r.n)));
  if (claim.of == Claim::Of::energy)
    return in_hours(
        quotient("claim.hours", "how long it lasts", "h", "",
                 stated("claim.energy", "energy", claim.value, "kWh"),
                 quotient("claim.kw", "power", "kW", "", power_of(c, gpu, r.n),
                          given("kilowatt", "a kilowatt", 1000, "W", "watts of a kilowatt"))));
  return stated("claim.seconds", "time", claim.value, "s");
}

Quantity rate_of_claim(const PlanRequest& r, const Claim& claim, const Catalog& c, const Gpu& gpu) {
  const std::string unit = r.job.unit + "/s";
  if (claim.of == Claim::Of::rate) return stated("claim.rate", "needed", claim.value, unit);
  const std::optional<Quantity> all = units_of(r);
  TD_CHECK(all, Value,
           "a claim of training expects an end\nGive --data with --epochs, or --tokens.");
  return quotient("claim.rate", "needed", unit, "",
                  stated("claim.units", r.job.unit, all->value, ""),
                  time_of_claim(r, claim, c, gpu));
}

// Does it fit? Lowers the batch of one GPU where the one that was asked for does not. False: `j` is
// the verdict.
bool evaluate_memory(Evaluated& j, const PlanRequest& r, const Gpu& gpu, int64_t& per_gpu,
                     Workload& w) {
  const auto memory = [&](int64_t b) {
    if (b != w.options.batch) w = workload_for(r, b, r.compiled, true);
    return memory_of(w, r, r.n, gpu.usable());
  };
  Quantity needed = memory(per_gpu);
  while (needed.value > gpu.usable() && per_gpu > 1) needed = memory(per_gpu /= 2);
  if (needed.value <= gpu.usable()) return true;
  Quantity least =
      quotient("claim.memory.least", "weights alone, of each GPU", "B", "divided over all",
               product("claim.memory.weights", "in 16 bits", "B", "",
                       {given("claim.parameters", "parameters", w.parameters, "", "dry run"),
                        given("claim.width", "bytes each", 2, "B", "in 16 bits")}),
               gpus_of(r.n));
  const bool never = least.value > gpu.usable();
  j.verdict = never ? Verdict::impossible : Verdict::unlikely;
  j.why = never
              ? fmt::format("It does not fit: its weights alone take {} of each {}, which has {}.",
                            show(least), gpu.name, show(gpu.usable(), "B"))
              : fmt::format(
                    "It does not fit as stated: one sample takes {}, {} has {}. "
                    "Sharding, recomputation or narrower numbers may help (tandem plan).",
                    show(needed), gpu.name, show(gpu.usable(), "B"));
  j.arithmetic = {std::move(needed), capacity_of(gpu), std::move(least)};
  return false;
}

// What hardware does, whatever a statement needs of it.
struct Rates {
  Quantity planned, limit;
};
Rates rates_of(const PlanRequest& r, const Gpu& gpu, const Workload& w) {
  Rates rates;
  Quantity flops = quotient("claim.flops", "FLOPs of one", "FLOP", "",
                            given("claim.flops.batch", "of a batch", w.matrix_flops(), "FLOP",
                                  "matmuls and convolutions of the dry run"),
                            given("claim.batch", "in it", w.units, "", "batch"));
  rates.limit = quotient("claim.limit", "upper bound", r.job.unit + "/s", "",
                         product("claim.peak", "peak", "FLOP/s", "",
                                 {given("claim.peak.one", "one " + gpu.name,
                                        gpu.peak(matmul_kind(*r.precision)), "FLOP/s", gpu.source),
                                  stated("gpus", "GPUs", r.n, "")}),
                         std::move(flops));
  rates.planned = throughput(w, r, gpu, r.n);
  rates.planned.key = "claim.planned";
  rates.planned.label = "planned";
  return rates;
}

// How often the data are seen in `seconds` at a rate.
Quantity epochs_at(const std::string& key, const std::string& label, const Quantity& rate,
                   const Quantity& seconds, const PlanRequest& r) {
  return quotient(
      key, label, "", "",
      product(key + ".units", r.job.unit + " in that time", "", "", {again(rate), again(seconds)}),
      product(
          "claim.epoch", r.job.unit + " of an epoch", "", "",
          {given("data.samples", "samples of " + r.data->name, r.data->samples, "", r.data->source),
           given("units.sample", r.job.unit + " per sample", r.job.units_per_sample, "",
                 "the job's")}));
}

// A statement of training on data that leaves out how often: what its time would be enough for.
void evaluate_open_end(Evaluated& j, const PlanRequest& r, const Gpu& gpu, Quantity seconds,
                       Rates rates) {
  Quantity most =
      epochs_at("claim.epochs.most", "epochs in that time, at the peak", rates.limit, seconds, r);
  Quantity planned =
      epochs_at("claim.epochs", "epochs in that time, as planned", rates.planned, seconds, r);
  j.verdict = Verdict::unclear;
  j.why = fmt::format(
      "Epochs are not stated. In {} more than {:.4g} epochs would be impossible on {} {}, whose "
      "peak gives {}, and more than {:.4g} unlikely: the plan ({}) gives {:.4g}.",
      show(seconds), most.value, r.n == 1 ? "one" : std::to_string(r.n), gpu.name,
      show(rates.limit), kUnlikely * planned.value, show(rates.planned), planned.value);
  j.arithmetic = {std::move(seconds), std::move(rates.planned), std::move(rates.limit),
                  std::move(planned), std::move(most)};
}

void evaluate_rate(Evaluated& j, const PlanRequest& r, Quantity wanted, Rates rates) {
  const Quantity &planned = rates.planned, &limit = rates.limit;
  // What the statement's time would do at the planned rate.
  std::optional<Quantity> epochs;
  const Quantity* seconds = find(wanted, "claim.seconds");
  if (seconds && r.data && r.epochs > 0)
    epochs = epochs_at("claim.epochs", "epochs in that time, as planned", planned, *seconds, r);
  const std::string instead =
      epochs ? fmt::format(" According to the plan, that time is enough for {:.1f} of {} epochs.",
                           epochs->value, show(r.epochs, ""))
             : "";
  if (wanted.value > limit.value) {
    j.verdict = Verdict::impossible;
    j.why = fmt::format("{} would be needed, and the hardware's peak gives {}.{}", show(wanted),
                        show(limit), instead);
  } else if (wanted.value > kUnlikely * planned.value) {
    j.verdict = Verdict::unlikely;
    j.why = fmt::format("{} are {:.1f} times the plan ({}) and {:.0f} % of the peak.{}",
                        show(wanted), wanted.value / planned.value, show(planned),
                        100 * wanted.value / limit.value, instead);
  } else {
    j.verdict = Verdict::possible;
    j.why = fmt::format("{} are needed, {} are planned, the peak is {}.", show(wanted),
                        show(planned), show(limit));
    epochs.reset();
  }
  j.arithmetic = {std::move(wanted), std::move(rates.planned), std::move(rates.limit)};
  if (epochs) j.arithmetic.push_back(std::move(*epochs));
}

}  // namespace

const char* to_string(Verdict v) {
  static const char* const kNames[] = {"possible", "unlikely", "impossible", "unclear"};
  return kNames[static_cast<int>(v)];
}

Evaluated check_claim(const PlanRequest& asked, const Claim& claim, const Catalog& c,
                      const std::string& statement) {
  TD_CHECK(claim.value > 0 && asked.n > 0, Value, "a claim expects a figure and GPUs above 0");
  TD_CHECK(!asked.gpu.empty(), Value, "a claim is about a GPU\nGive --gpu.");
  const Gpu& gpu = c.gpu(asked.gpu);
  check_request(asked, c);
  const PlanRequest r = on(asked, gpu);
  const bool open_end = claim.of != Claim::Of::rate && r.data && r.epochs == 0 && r.tokens == 0;
  Quantity wanted = open_end ? time_of_claim(r, claim, c, gpu) : rate_of_claim(r, claim, c, gpu);
  int64_t per_gpu = per_gpu_batch(r, r.n);
  Workload w = workload_for(r, per_gpu, r.compiled, true);
  Evaluated j;
  j.statement = statement;
  if (evaluate_memory(j, r, gpu, per_gpu, w)) {
    if (open_end)
      evaluate_open_end(j, r, gpu, std::move(wanted), rates_of(r, gpu, w));
    else
      evaluate_rate(j, r, std::move(wanted), rates_of(r, gpu, w));
    // The peak stands whatever the plan's efficiency is.
    if (gpu.assumed_efficiency() && j.verdict != Verdict::impossible)
      j.why += fmt::format(" The plan's efficiency of {} is assumed.", gpu.name);
    if (lacks_bf16(asked, gpu))
      j.why += fmt::format(" {} has no bf16: its matmuls run at the rate of f32.", gpu.name);
  }
  if (!claim.hardware_stated) {
    j.verdict = Verdict::unclear;
    j.why = fmt::format("The hardware is not stated: {} {} is an assumption. ",
                        r.n == 1 ? "one" : std::to_string(r.n), gpu.name) +
            j.why;
  }
  return j;
}

}  // namespace tandem::plan
