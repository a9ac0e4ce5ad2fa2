// SPDX-License-Identifier: Apache-2.0
// What a plan costs: energy, money, buying instead of renting.
#include <fmt/format.h>

#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

Quantity in_kilowatts(const Quantity& power) {
  return quotient("power.kw", "power", "kW", "", again(power),
                  given("kilowatt", "a kilowatt", 1000, "W", "watts of a kilowatt"));
}
Quantity months(const Quantity& time) {
  return quotient("time.months", "months", "", "", again(time),
                  given("month", "a month", 30.4 * 86400, "s", "30.4 days"));
}

}  // namespace

Quantity per_hour(const Quantity& time) {
  return quotient("time.hours", "hours", "h", "", again(time),
                  given("hour", "an hour", 3600, "s", "seconds of an hour"));
}

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
    return product(key, label, "USD", "",
                   {quotient(key + ".gigabytes", "gigabytes", "", "", std::move(bytes),
                             given("gigabyte", "a gigabyte", 1e9, "B", "bytes of one")),
                    given(key + ".price", "a gigabyte a month", price.value, "USD", price.source),
                    months(time)});
  };
  return sum(
      "cost", "cost", "USD", "",
      {std::move(rent),
       store("cost.storage", "storage", 3, "data and three checkpoints", c.prices().storage_month),
       store("cost.cold", "cold storage", 20, "the original data and checkpoints to keep",
             c.prices().cold_month)});
}

void add_energy_and_cost(Plan& p, const PlanRequest& r, const Catalog& c, const Workload& w,
                         const Quantity* time) {
  const Quantity power = power_of(c, p.gpu, r.n);
  p.figures.push_back(power);
  const Quantity hour = price_hour(r, c, p.gpu, r.n);
  if (time) {
    p.figures.push_back(energy_of(power, *time));
    p.figures.push_back(cost_of(r, c, p.gpu, r.n, w, *time));
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

}  // namespace tandem::plan
