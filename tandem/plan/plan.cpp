// SPDX-License-Identifier: Apache-2.0
// Puts a plan together: dry runs, memory, the largest batch, time, data, checkpoints, energy,
// money.
#include "tandem/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/base/philox.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {

// ---- data sets

DataSet data_set(const std::string& text) {
  static const std::vector<DataSet> kKnown = {
      {"mnist", 60000, 47e6, "yann.lecun.com: 60000 pictures of 28 x 28"},
      {"cifar10", 50000, 154e6, "50000 pictures of 32 x 32 x 3"},
      {"cifar100", 50000, 154e6, "50000 pictures of 32 x 32 x 3"},
      {"imagenet", 1281167, 147e9, "ILSVRC 2012: 1281167 JPEG photos"},
      {"imagenet21k", 14197122, 1.31e12, "14197122 JPEG photos"},
      {"coco", 118287, 19e9, "train2017"},
      {"glue-sst2", 67349, 4e6, "67349 sentences"},
      {"squad", 87599, 30e6, "version 1.1"},
  };
  std::vector<std::string> names;
  for (const DataSet& d : kKnown) {
    if (d.name == text) return d;
    names.push_back(d.name);
  }
  if (text.find('=') == text.npos) {
    const std::string near = nearest_word(text, names);
    TD_FAIL(Value, "there is no data set '{}'\n{}Known are {}; others: --data samples=50000,gb=12.",
            text, near.empty() ? "" : "Did you mean '" + near + "'? ", fmt::join(names, ", "));
  }
  DataSet d;
  d.name = "your data";
  d.source = "given";
  size_t at = 0;
  while (at <= text.size()) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    const size_t eq = part.find('=');
    const std::string key = part.substr(0, eq);
    double v = NAN;
    try {
      size_t used = 0;
      v = eq == part.npos ? NAN : std::stod(part.substr(eq + 1), &used);
      if (eq != part.npos && used != part.size() - eq - 1) v = NAN;
    } catch (const std::exception&) {}
    TD_CHECK((key == "samples" || key == "gb") && std::isfinite(v) && v > 0, Value,
             "'{}' is not part of a data set\nWrite --data samples=50000 or samples=50000,gb=12 "
             "(above 0).",
             part);
    (key == "samples" ? d.samples : d.bytes) = key == "samples" ? v : v * 1e9;
  }
  TD_CHECK(d.samples > 0, Value, "--data wants samples=...");
  return d;
}

// ---- spot

SpotResult simulate_spot(double work, double interval, double save, double rate, double restart,
                         int runs, uint64_t seed) {
  TD_CHECK(work > 0 && interval > 0 && save >= 0 && rate >= 0 && restart >= 0 && runs > 0, Value,
           "a simulation wants work and interval above 0");
  std::vector<double> times;
  double lost = 0;
  for (int k = 0; k < runs; ++k) {
    double now = 0, done = 0;
    uint64_t draw = 0;
    const auto next = [&] {
      const uint64_t bits = philox(seed, static_cast<uint32_t>(k), draw++, 0x73706f74).word64(0);
      const double u = (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
      return rate > 0 ? -std::log(u) / rate : INFINITY;
    };
    double taken = next();
    for (int64_t steps = 0; done < work && steps < 10000000; ++steps) {
      const double piece = std::min(interval, work - done);
      const double need = piece + (done + piece < work ? save : 0);
      if (now + need <= taken) {
        now += need;
        done += piece;
        continue;
      }
      // Taken away within the piece: it is lost.
      now = taken + restart;
      lost += 1;
      taken = now + next();
      if (now > 1e3 * work + 1e9) break;
    }
    times.push_back(now);
  }
  std::sort(times.begin(), times.end());
  SpotResult r;
  for (double t : times) r.mean += t / runs;
  r.p90 = times[static_cast<size_t>(0.9 * (runs - 1))];
  r.preemptions = lost / runs;
  return r;
}

// ---- the plan

Workload workload_for(const PlanRequest& r, int64_t per_gpu, bool compiled, bool training) {
  return dry_run(r.job, {.batch = per_gpu,
                         .compiled = compiled,
                         .training = training,
                         .precision = r.precision,
                         .optimizer = r.optimizer});
}

namespace {

int64_t per_gpu_batch(const PlanRequest& r, int n) {
  const int64_t batch = r.batch > 0 ? r.batch : 32;
  return std::max<int64_t>(1, batch / (static_cast<int64_t>(n) * r.accumulate));
}

// The largest batch of one GPU within its memory, by dry runs: memory is a line in the batch, so
// two runs say where to look and a last one confirms.
struct Largest {
  int64_t batch = 0;
  double bytes = 0;
  int runs = 0;
};
Largest largest_batch(const PlanRequest& r, double capacity, int n, bool compiled, bool training,
                      const Workload& known) {
  Largest best;
  const auto bytes = [&](int64_t b) {
    ++best.runs;
    return memory_of(workload_for(r, b, compiled, training), r, n).value;
  };
  int64_t a = known.options.batch;
  double at_a = memory_of(known, r, n).value;
  int64_t b = 2 * a;
  double at_b = bytes(b);
  const double slope = (at_b - at_a) / static_cast<double>(b - a);
  if (slope <= 0) return best;
  double guess = static_cast<double>(a) + (capacity - at_a) / slope;
  int64_t g = static_cast<int64_t>(std::floor(std::min(guess, 1e9)));
  for (int i = 0; i < 6 && g >= 1; ++i) {
    const double at = bytes(g);
    if (at <= capacity) {
      best.batch = g;
      best.bytes = at;
      break;
    }
    g -= std::max<int64_t>(1, static_cast<int64_t>((at - capacity) / slope) + (i > 1 ? g / 50 : 0));
  }
  return best;
}

Quantity limit(const std::string& key, const std::string& label, const Quantity& from, double v) {
  return given(key, label, v, from.unit, "of " + from.label);
}

double total_units(const PlanRequest& r) {
  if (r.tokens > 0) return r.tokens;
  if (r.epochs > 0 && r.data) return r.epochs * r.data->samples * r.job.units_per_sample;
  return 0;
}

}  // namespace

const Quantity* Plan::find(const std::string& key) const {
  for (const Quantity& q : figures)
    if (const Quantity* f = plan::find(q, key)) return f;
  return nullptr;
}
std::vector<std::string> Plan::keys() const {
  std::vector<std::string> all;
  for (const Quantity& q : figures)
    for (std::string& k : plan::keys(q)) all.push_back(std::move(k));
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}
const Quantity& Plan::at(const std::string& key) const {
  if (const Quantity* q = find(key)) return *q;
  const std::string near = nearest_word(key, keys());
  std::vector<std::string> roots;
  for (const Quantity& q : figures) roots.push_back(q.key);
  TD_FAIL(Value, "the plan has no figure '{}'\n{}Its figures are {}, and their parts.", key,
          near.empty() ? "" : "Did you mean '" + near + "'? ", fmt::join(roots, ", "));
}

void check_request(const PlanRequest& r, const Catalog& catalog) {
  TD_CHECK(r.n >= 1 && r.n <= 100000, Value, "{} GPUs cannot be planned\nGive --n 1 or more.", r.n);
  TD_CHECK(r.batch >= 0 && r.accumulate >= 1, Value,
           "batch {} and accumulate {} are to be positive", r.batch, r.accumulate);
  TD_CHECK(r.budget >= 0 && r.deadline >= 0, Value,
           "a budget of {} and a deadline of {} s are to be positive", r.budget, r.deadline);
  TD_CHECK(r.epochs >= 0 && r.tokens >= 0, Value, "epochs {} and tokens {} are to be positive",
           r.epochs, r.tokens);
  TD_CHECK(r.epochs == 0 || r.data || r.tokens > 0, Value,
           "epochs are of data\nGive --data, for example --data imagenet.");
  TD_CHECK(r.sharding >= 0 && r.sharding <= 3, Value,
           "there is no sharding stage {}\nIt is 0 to 3.", r.sharding);
  if (r.term == "spot") return;
  std::vector<std::string> names{"spot"};
  for (const Term& t : catalog.prices().terms) {
    if (t.name == r.term) return;
    names.push_back(t.name);
  }
  const std::string near = nearest_word(r.term, names);
  TD_FAIL(Value, "there is no term '{}'\n{}It is one of {}.", r.term,
          near.empty() ? "" : "Did you mean '" + near + "'? ", fmt::join(names, ", "));
}

Quantity price_hour(const PlanRequest& r, const Catalog& c, const Gpu& gpu, int n) {
  const GpuPrice& p = c.price(gpu);
  double discount = 0;
  if (r.term == "spot") discount = c.prices().spot_discount;
  for (const Term& t : c.prices().terms)
    if (t.name == r.term) discount = t.discount;
  Quantity card = given(
      "price.gpu", "one " + gpu.name + " an hour", p.typical, "USD",
      fmt::format("typical of {}; {:.2f} to {:.2f} are asked", c.prices().date, p.low, p.high));
  card.low = p.low;
  card.high = p.high;
  return product("price", "the server an hour", "USD", "",
                 {std::move(card), given("gpus", "GPUs", n, "", "asked for"),
                  given("price.term", "term " + r.term, 1 - discount, "",
                        fmt::format("{:.0f} % off the hourly price", discount * 100)),
                  given("price.surcharge", "surcharges", 1 + c.prices().surcharge, "",
                        "network, addresses, idle time: data/prices.json")});
}

Plan make_plan(const PlanRequest& r, const Catalog& catalog) {
  check_request(r, catalog);
  Plan p;
  p.model = r.job.name;
  p.n = r.n;
  p.compiled = r.compiled;
  if (!r.gpu.empty()) {
    p.gpu = catalog.gpu(r.gpu);
  } else {
    const std::vector<Ranked> all = rank(r, catalog, RankBy::cost);
    for (const Ranked& k : all)
      if (k.fits && k.n == r.n) {
        p.gpu = catalog.gpu(k.gpu);
        p.notes.push_back(
            fmt::format("The cheapest of {} servers of {} GPUs that fits was taken: {}.",
                        all.size(), r.n, k.gpu));
        break;
      }
    if (p.gpu.name.empty()) p.gpu = catalog.gpu("H200");
  }
  const int64_t per_gpu = per_gpu_batch(r, r.n);
  p.batch = per_gpu * r.n * r.accumulate;
  p.eager_work = workload_for(r, per_gpu, false, true);
  p.compiled_work = workload_for(r, per_gpu, true, true);
  const Workload& w = r.compiled ? p.compiled_work : p.eager_work;
  const Workload& other = r.compiled ? p.eager_work : p.compiled_work;

  // Memory.
  Quantity memory = memory_of(w, r, r.n);
  p.fits = memory.value <= p.gpu.memory;
  Quantity free = sum("memory.free", "left of the GPU's memory", "B", "",
                      {given("memory.capacity", p.gpu.name, p.gpu.memory, "B", p.gpu.source),
                       limit("memory.taken", "taken", memory, -memory.value)});
  const Largest largest = largest_batch(r, p.gpu.memory, r.n, r.compiled, true, w);
  const Quantity second = memory_of(other, r, r.n);
  p.figures.push_back(std::move(memory));
  p.figures.push_back(std::move(free));
  p.figures.push_back(
      product("batch.largest", "largest batch of a step", "", "",
              {given("batch.largest.gpu", "of one GPU", static_cast<double>(largest.batch), "",
                     largest.batch > 0 ? fmt::format("{} dry runs; this one takes {}", largest.runs,
                                                     show(largest.bytes, "B"))
                                       : "not even one sample fits"),
               given("gpus", "GPUs", r.n, "", "asked for"),
               given("accumulate", "accumulated", r.accumulate, "", "asked for")}));
  if (!p.fits)
    p.notes.push_back(fmt::format(
        "It does not fit: {} are needed, {} has {}. {}", show(p.figures[0]), p.gpu.name,
        show(p.gpu.memory, "B"),
        largest.batch > 0 ? fmt::format("A batch of {} per GPU fits.", largest.batch)
                          : std::string("No batch fits: shard, recompute, or take a larger GPU.")));
  p.figures.push_back(given(r.compiled ? "memory.eager" : "memory.compiled",
                            r.compiled ? "memory of the eager mode" : "memory of the compiled mode",
                            second.value, "B", "a dry run in the other mode"));

  // What would save memory.
  add_savings(p, r, w);

  // Time, data, checkpoints, energy, money.
  p.figures.push_back(throughput(w, r, p.gpu, r.n));
  const Quantity rate = p.figures.back();
  const double step = plan::find(rate, "time.step")->value;
  const double units = total_units(r);
  double seconds = 0;
  if (units > 0) {
    Quantity all = r.tokens > 0 ? given("units", w.unit, units, "", "asked for")
                                : product("units", w.unit, "", "",
                                          {given("data.samples", "samples of " + r.data->name,
                                                 r.data->samples, "", r.data->source),
                                           given("epochs", "epochs", r.epochs, "", "asked for"),
                                           given("units.sample", w.unit + " per sample",
                                                 r.job.units_per_sample, "", "the job's")});
    Quantity total = quotient("time", "time to the end", "s", "", std::move(all),
                              given("rate.value", "rate", rate.value, w.unit + "/s", "see rate"));
    seconds = total.value;
    p.figures.push_back(std::move(total));
  }
  add_data(p, r, catalog, rate.value, units);
  add_checkpoints(p, r, catalog, w, seconds);
  add_energy_and_cost(p, r, catalog, seconds);
  (void)step;
  add_server(p, r, catalog);
  if (r.budget > 0 || r.deadline > 0) {
    TD_CHECK(units > 0, Value,
             "a budget or a deadline needs an end\nGive --data with --epochs, or --tokens.");
    const Quantity* cost = p.find("cost");
    if (r.budget > 0 && cost && cost->value > r.budget) {
      p.within_limits = false;
      p.notes.push_back(
          fmt::format("It costs {}, the budget is {}.", show(*cost), show(r.budget, "USD")));
    }
    if (r.deadline > 0 && seconds > r.deadline) {
      p.within_limits = false;
      p.notes.push_back(fmt::format("It takes {}, the deadline is {}.", show(seconds, "s"),
                                    show(r.deadline, "s")));
    }
    if (!p.within_limits) {
      const std::vector<Ranked> all = rank(r, catalog, RankBy::cost);
      if (!all.empty() && all[0].allowed)
        p.notes.push_back(fmt::format("{} x {} keeps both: {} in {}.", all[0].n, all[0].gpu,
                                      show(all[0].usd, "USD"), show(all[0].seconds, "s")));
      else if (!all.empty())
        p.notes.push_back("No known server keeps the limits; the nearest is " +
                          fmt::format("{} x {}: {} in {}.", all[0].n, all[0].gpu,
                                      show(all[0].usd, "USD"), show(all[0].seconds, "s")));
    }
  }
  return p;
}

void check(const Plan& p) {
  for (const Quantity& q : p.figures) check(q);
}

std::string to_text(const Plan& p) {
  const Workload& w = p.compiled ? p.compiled_work : p.eager_work;
  std::string s = fmt::format("{} on {} x {}, batch {}, {}, {}, {}\n\n", p.model, p.n, p.gpu.name,
                              p.batch, to_string(w.options.precision),
                              p.compiled ? "compiled" : "eager", w.options.optimizer);
  for (const Quantity& q : p.figures) {
    s += fmt::format("{:<34} {:>12}", q.label, show(q));
    if (q.low && q.high && *q.high > *q.low * 1.001)
      s += fmt::format("   {} to {}", show(*q.low, q.unit), show(*q.high, q.unit));
    s += fmt::format("   [{}]\n", q.key);
    if (q.key == "memory")
      for (const Quantity& part : q.parts)
        if (part.value > 0)
          s += fmt::format("  {:<32} {:>12}   {:4.1f} %\n", part.label, show(part),
                           100 * part.value / q.value);
  }
  if (!p.server.empty()) {
    s += fmt::format("\n{:<16}{:<26}{:<26}{:<28}{}\n", "a server", "eager", "compiled",
                     "rule of thumb", "because");
    for (const ServerLine& l : p.server)
      s += fmt::format("{:<16}{:<26}{:<26}{:<28}{}\n", l.part, l.eager, l.compiled, l.thumb,
                       l.cause);
  }
  if (!p.notes.empty()) s += "\n";
  for (const std::string& n : p.notes) s += n + "\n";
  return s + "\nEvery figure: --why KEY, for example --why memory.\n";
}

io::Json to_json(const Plan& p) {
  io::Json::Object o;
  o.emplace_back("model", p.model);
  o.emplace_back("gpu", p.gpu.name);
  o.emplace_back("gpus", p.n);
  o.emplace_back("batch", p.batch);
  o.emplace_back("mode", p.compiled ? "compiled" : "eager");
  o.emplace_back("fits", p.fits);
  o.emplace_back("within_limits", p.within_limits);
  io::Json::Array figures, server, notes;
  for (const Quantity& q : p.figures) figures.push_back(to_json(q));
  for (const ServerLine& l : p.server)
    server.push_back(io::Json(io::Json::Object{{"part", l.part},
                                               {"eager", l.eager},
                                               {"compiled", l.compiled},
                                               {"rule_of_thumb", l.thumb},
                                               {"cause", l.cause}}));
  for (const std::string& n : p.notes) notes.push_back(io::Json(n));
  o.emplace_back("figures", std::move(figures));
  o.emplace_back("server", std::move(server));
  o.emplace_back("notes", std::move(notes));
  return io::Json(std::move(o));
}

}  // namespace tandem::plan
