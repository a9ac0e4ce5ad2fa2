// SPDX-License-Identifier: Apache-2.0
// Published statements about renting GPUs and about what a server needs.
#include <fmt/format.h>

#include "tandem/plan/claims/published_internal.h"
#include "tandem/plan/jobs.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

// ResNet-50 through ImageNet, 90 times: what prices and servers are tried on.
PlanRequest photo_job(const std::string& gpu) {
  PlanRequest r;
  r.job = find_job("resnet50");
  r.gpu = gpu;
  r.batch = 256;
  r.precision = Precision::amp_bf16;
  r.data = data_set("imagenet");
  r.epochs = 90;
  r.optimizer = "SGD-momentum";
  return r;
}

// What eight cards cost at AWS, against its list, and what that makes of ten hours.
Evaluated eight_at_aws() {
  const Quantity server = product(
      "claim.server", "eight cards an hour, as stated", "USD", "",
      {said("claim.card", "a card an hour", 3.84, "USD"), said("claim.cards", "cards", 8, "")});
  const Quantity list =
      given("claim.list", "p4d.24xlarge (8 x A100 40GB) an hour", 32.77, "USD",
            "AWS's price in US East in the second quarter of 2024, as xither.com/compare/"
            "gpu-compute-costs-on-prem-vs-cloud-vs-spot-instances (2024) quotes it");
  const Quantity ten = product(
      "claim.ten", "ten hours of all eight", "USD", "",
      {again(server), given("claim.hours", "hours", 10, "h", "of the statement on scaling")});
  Evaluated j = agree("8 x A100 at AWS cost $3.84 a card and hour.", server, list, 0.1, "", "");
  j.why = fmt::format(
      "{} an hour for all eight; AWS's list said {} then, so the price is {:.0f} % below it. Ten "
      "hours of such a server are {}: the $34.56 and $36.48 of statement 7 would be one card's "
      "rent.",
      show(server), show(list), 100 * (1 - server.value / list.value), show(ten));
  j.arithmetic.push_back(ten);
  return j;
}

Evaluated hour_of_an_a100(const Catalog& c) {
  const GpuPrice& p = c.price(c.gpu("A100 80GB"));
  Quantity typical = given("claim.typical", "typical price of an A100 80GB", p.typical, "USD",
                           p.source + " (" + c.prices().file + " of " + c.prices().date + ")");
  typical.low = p.low;
  typical.high = p.high;
  Evaluated j = agree("An A100 costs 2 to 3 dollars an hour; elsewhere it is $1.92.",
                      said("claim.a", "elsewhere", 1.92, "USD"),
                      said("claim.b", "at least", 2, "USD"), 0.05, "", "");
  j.why = fmt::format(
      "$1.92 is 4 % below the range, and rounded to whole dollars it is 2; it is also half of the "
      "$3.84 of statement 7. The list of this repository says {} to {}, typically {}.",
      show(p.low, "USD"), show(p.high, "USD"), show(typical));
  j.arithmetic.push_back(std::move(typical));
  return j;
}

// What is left of a discount when preemptions take time.
Evaluated preemptible(const Catalog& c) {
  PlanRequest r = on(photo_job("A100"), c.gpu("A100"));
  const Gpu& gpu = c.gpu("A100");
  const Workload w = workload_for(r, 256, r.compiled, true);
  const Quantity rate = throughput(w, r, gpu, 1), units = *units_of(r);
  const auto seconds = [&](const char* term) {
    r.term = term;
    return ending_of(r, c, gpu, 1, w, &units, rate).time->value;
  };
  const double hourly = seconds("hourly"), spot = seconds("spot");
  const Quantity left = difference("claim.left", "left of the price", "", "",
                                   {given("claim.whole", "all of it", 1, "", "the hourly price"),
                                    said("claim.off", "taken off", 0.7, "")});
  const Quantity longer = quotient("claim.longer", "times as long", "", "",
                                   given("claim.spot", "on machines that are taken away", spot, "s",
                                         "2000 simulated runs; " + c.prices().spot.source),
                                   given("claim.hourly", "by the hour", hourly, "s",
                                         "the plan of ResNet-50 on ImageNet, 90 epochs, one A100"));
  const Quantity saved =
      difference("claim.saved", "saved in the end", "", "",
                 {given("claim.whole", "all of it", 1, "", "the hourly price"),
                  product("claim.paid", "paid", "", "", {again(left), again(longer)})});
  Evaluated j;
  j.statement = "Preemptible machines cost 70 % less.";
  j.verdict = Verdict::possible;
  j.why = fmt::format(
      "60 to 70 % off are asked for (February 2026), so 70 % is the upper end. Preemptions and "
      "checkpoints make a run {:.3f} times as long, so {:.1f} % are saved in the end; that a "
      "machine is taken away {} times a day is assumed.",
      longer.value, 100 * saved.value, show(c.prices().spot.preemptions_per_day, ""));
  j.arithmetic = {left, longer, saved};
  return j;
}

// The rule of thumb for a server, held against two jobs.
Evaluated server_rules(const Catalog& c) {
  PlanRequest card = photo_job("4090");
  card.batch = 128;  // what it holds
  const Plan photos = make_plan(card, c);
  PlanRequest seven;
  seven.job = find_job("llama:7b");
  seven.gpu = "A100";
  seven.batch = 1;
  const Workload w = workload_for(on(seven, c.gpu("A100")), 1, true, true);
  Quantity language = memory_of(w, on(seven, c.gpu("A100")), 1);
  language.key = "claim.llama";
  language.label = "memory of llama:7b, one sample, AdamW";
  Quantity ram = photos.at("server.ram.need"), twice = photos.at("server.ram.thumb"),
           cores = photos.at("server.cores.compiled"), memory = photos.at("memory");
  memory.label = "memory of ResNet-50, batch 128";
  const Quantity reads = photos.at("data.rate");
  Evaluated j;
  j.statement =
      "A server needs twice the cards' memory as RAM, 16 cores or more, cards of 24 to 48 GB, and "
      "NVMe.";
  j.why = fmt::format(
      "It depends on the job, which is not named. ResNet-50 on ImageNet on one RTX 4090 takes {} "
      "of RAM (the rule: {}), {} cores (16 and more) to decode photos, {} of the card, and {} from "
      "disk, which a SATA SSD has as well. llama:7b takes {} without sharding, more than any card "
      "of 48 GB, and no cores to decode.",
      show(ram), show(twice), show(cores), show(memory), show(reads), show(language));
  j.arithmetic = {std::move(ram), std::move(twice),   std::move(cores), std::move(memory),
                  reads,          std::move(language)};
  return j;
}

}  // namespace

std::vector<Evaluated> claims_of_servers(const Catalog& c) {
  return {eight_at_aws(), hour_of_an_a100(c), preemptible(c), server_rules(c)};
}

}  // namespace tandem::plan
