// SPDX-License-Identifier: Apache-2.0
// Puts a plan together: dry runs, memory, the largest batch, time, and what follows from them.
#include "tandem/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/plan/asked.h"
#include "tandem/plan/names_internal.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {

Kept kept_of(const std::string& name) {
  const std::string kept = one_of(name, "--recompute", {"full", "selective", "matmuls"});
  return kept == "full"        ? Kept::boundaries
         : kept == "selective" ? Kept::half_matmuls
                               : Kept::matmuls;
}
const char* to_string(Kept k) {
  static const char* const kNames[] = {"full", "selective", "matmuls"};
  return kNames[static_cast<int>(k)];
}

Workload workload_for(const PlanRequest& r, int64_t per_gpu, bool compiled, bool training) {
  return dry_run(r.job, {.batch = per_gpu,
                         .compiled = compiled,
                         .training = training,
                         .precision = r.precision.value_or(Precision::amp_bf16),
                         .optimizer = r.optimizer,
                         .clip_norm = r.clip_norm && training,
                         .framework = r.framework,
                         .attention = r.attention,
                         .keep_gradients = r.framework == Framework::pytorch &&
                                           (r.keep_gradients || r.accumulate > 1)});
}

PlanRequest on(const PlanRequest& r, const Gpu& gpu) {
  PlanRequest out = r;
  if (!out.precision) out.precision = gpu.has_bf16() ? Precision::amp_bf16 : Precision::amp_f16;
  if (const int64_t micro = r.parallel.micro; micro > 0)
    out.accumulate = static_cast<int>(std::max<int64_t>(1, r.batch / (replicas(r, r.n) * micro)));
  return out;
}

int64_t per_gpu_batch(const PlanRequest& r, int n) {
  if (r.batch == 0 && r.parallel.micro > 0) return r.parallel.micro;
  if (r.batch == 0) return std::max<int64_t>(1, kUsualBatch / r.accumulate);
  return std::max<int64_t>(1, r.batch / (static_cast<int64_t>(replicas(r, n)) * r.accumulate));
}

bool lacks_bf16(const PlanRequest& r, const Gpu& gpu) {
  return r.precision && !gpu.has_bf16() && matmul_kind(*r.precision) == std::string("bf16");
}

void add_notes_of_gpu(std::vector<std::string>& notes, const PlanRequest& asked, const Gpu& gpu) {
  if (lacks_bf16(asked, gpu))
    notes.push_back(gpu.name + " has no bf16: its matmuls run at the rate of f32. Take f16.");
  else if (!gpu.has_bf16() && !asked.precision)
    notes.push_back(gpu.name + " has no bf16: f16 is planned.");
  if (gpu.assumed_efficiency())
    notes.push_back("The efficiency of " + gpu.name +
                    " is assumed, no published runs set it: times, costs and energy are rough.");
}

std::optional<Quantity> units_of(const PlanRequest& r) {
  if (r.tokens > 0) return given("units", r.job.unit + " to the end", r.tokens, "", "asked for");
  if (r.epochs <= 0 || !r.data) return {};
  return product(
      "units", r.job.unit + " to the end", "", "",
      {given("data.samples", "samples of " + r.data->name, r.data->samples, "", r.data->source),
       given("epochs", "epochs", r.epochs, "", "asked for"),
       given("units.sample", r.job.unit + " per sample", r.job.units_per_sample, "", "the job's")});
}

Quantity capacity_of(const Gpu& gpu) {
  return difference("memory.capacity", gpu.name, "B", "what programs may have of its memory",
                    {given("memory.card", "as it reports it", gpu.memory, "B", gpu.memory_from),
                     given("memory.driver", "kept by its driver", gpu.memory - gpu.usable(), "B",
                           "0.25 to 0.7 GiB; a program's own context is counted with it")});
}

namespace {
void check_parallel(const PlanRequest& r) {
  const Parallel& p = r.parallel;
  TD_CHECK(p.tensor >= 1 && p.pipeline >= 1 && p.interleave >= 1 && p.micro >= 0, Value,
           "a net cannot be spread as tp={}, pp={}, interleave={}, micro={}\nGive 1 and more.",
           p.tensor, p.pipeline, p.interleave, p.micro);
  TD_CHECK(r.n % p.parts() == 0, Value,
           "{} GPUs do not make groups of tp={} times pp={}\nGive --n as a multiple of {}.", r.n,
           p.tensor, p.pipeline, p.parts());
  TD_CHECK(p.parts() == 1 || !r.gpu.empty(), Value,
           "a net that is spread over GPUs needs to know which\nGive --gpu.");
  TD_CHECK(p.interleave == 1 || p.pipeline > 1, Value,
           "interleave={} is of pipelines\nGive pp=2 or more.", p.interleave);
  const auto layers = r.job.transformer_layers;
  const int64_t stages = int64_t{p.pipeline} * p.interleave;
  TD_CHECK(p.parts() == 1 || layers > 0, Value,
           "{} has no equal blocks to spread over GPUs\nUse --sharding.", r.job.name);
  TD_CHECK(p.parts() == 1 || layers >= stages, Value,
           "{} does not spread over {} stages: it has {} blocks\nGive a smaller pp.", r.job.name,
           stages, layers);
}
}  // namespace

void check_request(const PlanRequest& r, const Catalog& catalog) {
  constexpr int kMostGpus = 100000;
  constexpr int64_t kMostSamples = 1000000000;
  const auto within = [](const char* what, double v, double low, double high) {
    TD_CHECK(v >= low && v <= high, Value, "{} of {} cannot be planned\nGive {} to {}.", what, v,
             low, high);
  };
  within("a number of GPUs (--n)", r.n, 1, kMostGpus);
  within("a batch (--batch)", static_cast<double>(r.batch), 0, kMostSamples);
  within("a number of accumulated batches (--accumulate)", r.accumulate, 1, kMostSamples);
  within("a sharding stage (--sharding)", r.sharding, 0, 3);
  check_parallel(r);
  within("a budget (--budget)", r.budget, 0, 1e15);
  within("a deadline (--deadline)", r.deadline, 0, 1e12);
  within("a number of epochs (--epochs)", r.epochs, 0, 1e12);
  within("a number of tokens (--tokens)", r.tokens, 0, 1e30);
  TD_CHECK(r.epochs == 0 || r.tokens == 0, Value,
           "epochs and tokens are two ends\nGive --epochs or --tokens, not both.");
  TD_CHECK(r.epochs == 0 || r.data, Value,
           "epochs are of data\nGive --data, for example --data imagenet.");
  TD_CHECK((r.budget == 0 && r.deadline == 0) || units_of(r), Value,
           "a budget or a deadline needs an end\nGive --data with --epochs, or --tokens.");
  if (r.term == "spot") return;
  std::vector<std::string> names{"spot"};
  for (const Term& t : catalog.prices().terms) {
    if (t.name == r.term) return;
    names.push_back(t.name);
  }
  TD_FAIL(Value, "there is no term '{}'\n{}It is one of {}.", r.term, did_you_mean(r.term, names),
          fmt::join(names, ", "));
}

namespace {

// The largest batch of one GPU within its memory, by dry runs. Memory grows with the batch, ever
// more steeply until activations are its peak: a line through two runs says where to look, and what
// fits and what does not close in on the answer.
struct Largest {
  int64_t batch = 0;
  double bytes = 0;
  int runs = 0;
};
Largest largest_batch(const PlanRequest& r, double capacity, int n, const Workload& known) {
  Largest best;
  const auto bytes = [&](int64_t b) {
    ++best.runs;
    return memory_of(workload_for(r, b, known.options.compiled, true), r, n, 0).value;
  };
  constexpr int64_t kMost = 1'000'000'000;
  constexpr int kMostRuns = 16;
  struct At {
    int64_t batch = 0;
    double bytes = 0;
  };
  At fits, above;  // above.batch 0: none is known
  const auto look = [&](int64_t batch, double size) {
    (size <= capacity ? fits : above) = {batch, size};
  };
  const int64_t a = known.options.batch;
  const double at_a = memory_of(known, r, n, 0).value;
  look(a, at_a);
  At from = {a, at_a};  // of the line, with the run that came last
  for (int64_t g = fits.batch ? 2 * a : 1; best.runs < kMostRuns && g != a;) {
    const At now = {g, bytes(g)};
    look(g, now.bytes);
    if (fits.batch == kMost || (!fits.batch && above.batch == 1)) break;
    if (above.batch && above.batch - fits.batch <= 1 + fits.batch / 200) break;
    const At &p = fits.batch && above.batch ? fits : from,
             &q = fits.batch && above.batch ? above : now;
    const double slope = (q.bytes - p.bytes) / static_cast<double>(q.batch - p.batch);
    const double guess = slope > 0 ? static_cast<double>(p.batch) + (capacity - p.bytes) / slope
                                   : 16.0 * static_cast<double>(g);
    const int64_t high = above.batch ? above.batch - 1 : std::min(kMost, 64 * fits.batch);
    g = std::clamp(static_cast<int64_t>(std::min(guess, static_cast<double>(kMost))),
                   fits.batch + 1, std::max(high, fits.batch + 1));
    from = now;
  }
  best.batch = fits.batch;
  best.bytes = fits.bytes;
  return best;
}

// The GPU of a plan that names none: the cheapest that holds it, else the largest.
void choose_gpu(Plan& p, const PlanRequest& r, const Catalog& c) {
  for (const Ranked& k : rank(r, c, RankBy::cost))
    if (k.fits && k.n == r.n && k.changes.empty()) {
      p.gpu = c.gpu(k.gpu);
      p.notes.push_back(
          fmt::format("No --gpu was given: {} is the cheapest that is known to hold it.", k.gpu));
      return;
    }
  for (const Gpu& g : c.gpus())
    if (c.has_price(g) && g.memory > p.gpu.memory) p.gpu = g;
  p.notes.push_back(
      "No --gpu was given and none holds it as it is asked: --rank says which would, with sharding "
      "and recomputing.");
  TD_CHECK(!p.gpu.name.empty(), Value,
           "no GPU has a price\nGive --gpu and a file of prices that knows it (--prices).");
}

void add_memory(Plan& p, const PlanRequest& r, const Workload& w, const Workload& other) {
  const Quantity memory = memory_of(w, r, r.n, p.gpu.usable());
  p.fits = memory.value <= p.gpu.usable();
  p.figures.push_back(memory);
  const Quantity capacity = capacity_of(p.gpu);
  p.figures.push_back(
      difference("memory.free", "left of the GPU's memory", "B", "", {capacity, again(memory)}));
  const Largest largest = largest_batch(r, p.gpu.usable(), r.n, w);
  const Quantity one = given(
      "batch.largest.gpu", "of one GPU", static_cast<double>(largest.batch), "",
      largest.batch > 0
          ? fmt::format("{} dry runs; this one takes {}", largest.runs, show(largest.bytes, "B"))
          : "not even one sample fits");
  p.figures.push_back(product("batch.largest", "largest batch of a step", "", "",
                              {one, replicas_of(r, r.n), accumulated(r)}));
  p.figures.push_back(product(
      "batch", "batch of a step", "", "",
      {given("batch.gpu", "samples of one GPU and batch", static_cast<double>(w.options.batch), "",
             "the batch over GPUs and accumulated batches"),
       replicas_of(r, r.n), accumulated(r)}));
  p.batch = static_cast<int64_t>(p.figures.back().value);
  if (r.batch > 0 && p.batch != r.batch)
    p.notes.push_back(fmt::format(
        "The batch that was asked for cannot be shared out evenly: {} is planned.", p.batch));
  if (r.batch == 0 && w.options.batch < per_gpu_batch(r, r.n))
    p.notes.push_back(
        "No --batch was given and the usual one does not fit: it was halved until it does.");
  if (!p.fits)
    p.notes.push_back(fmt::format(
        "It does not fit: {} are needed, {} has {}. {}", show(memory), p.gpu.name, show(capacity),
        largest.batch > 0 ? fmt::format("A batch of {} per GPU fits.", show(one))
                          : std::string("No batch fits: shard, recompute, or take a larger GPU.")));
  const std::string mode = r.compiled ? "eager" : "compiled";
  Quantity second = prefixed(memory_of(other, r, r.n, p.gpu.usable()), mode);
  second.label = "memory of the " + mode + " mode";
  p.figures.push_back(std::move(second));
}

void add_limits(Plan& p, const PlanRequest& r, const Catalog& c, const Quantity& units) {
  const Quantity cost = *p.find("cost"), time = *p.find("time");
  const auto limit = [&](const char* key, const char* label, double v, const Quantity& is,
                         const char* text) {
    if (v <= 0) return;
    p.figures.push_back(given(key, label, v, is.unit, "asked for"));
    if (is.value <= v) return;
    p.within_limits = false;
    p.notes.push_back(
        fmt::format("It {} {}, the {} is {}.", text, show(is), label, show(p.figures.back())));
  };
  limit("budget", "budget", r.budget, cost, "costs");
  limit("deadline", "deadline", r.deadline, time, "takes");
  if (p.within_limits) return;
  // What else there is: the cheapest that keeps all limits, else the one that breaks them least.
  const std::vector<Ranked> all = rank(r, c, RankBy::cost);
  if (all.empty()) return;
  const auto over = [&](const Ranked& k) {
    return std::max(r.budget > 0 ? k.usd / r.budget : 0,
                    r.deadline > 0 ? k.seconds / r.deadline : 0);
  };
  const Ranked* best = &all[0];
  for (const Ranked& k : all)
    if (!best->allowed && (k.fits > best->fits || (k.fits == best->fits && over(k) < over(*best))))
      best = &k;
  const Gpu& gpu = c.gpu(best->gpu);
  PlanRequest theirs = on(r, gpu);
  theirs.sharding = best->sharding;
  theirs.recompute = best->recompute;
  theirs.batch = best->batch;
  const Workload w = workload_for(theirs, per_gpu_batch(theirs, best->n), r.compiled, true);
  const auto other = [&](Quantity q, const std::string& label) {
    q = prefixed(std::move(q), "other");
    q.label = label + fmt::format(" of {} x {}", best->n, best->gpu);
    p.figures.push_back(q);
    return q;
  };
  const Quantity rate = throughput(w, theirs, gpu, best->n);
  const Ending end = ending_of(theirs, c, gpu, best->n, w, &units, rate);
  other(rate, rate.label);
  for (const Quantity* q : {&*end.work, &end.save, &end.between, &end.interval, &end.lost})
    other(*q, q->label);
  const Quantity asked = other(*end.time, "time");
  const Quantity usd = other(cost_of(theirs, c, gpu, best->n, w, *end.time), "cost");
  p.notes.push_back(fmt::format("{}{} x {}{}: {} in {}.",
                                best->allowed ? "The cheapest that keeps the limits: "
                                : best->fits  ? "No known server keeps the limits; the nearest: "
                                              : "No known server holds it; the nearest: ",
                                best->n, best->gpu,
                                best->changes.empty() ? "" : " with " + best->changes, show(usd),
                                show(asked)));
}

}  // namespace

Plan make_plan(const PlanRequest& asked, const Catalog& catalog) {
  check_request(asked, catalog);
  Plan p;
  p.model = asked.job.name;
  p.n = asked.n;
  p.compiled = asked.compiled;
  if (asked.recompute) p.recompute = to_string(asked.kept);
  if (asked.gpu.empty())
    choose_gpu(p, asked, catalog);
  else
    p.gpu = catalog.gpu(asked.gpu);
  catalog.price(p.gpu);  // a GPU without one cannot be planned
  const PlanRequest r = on(asked, p.gpu);
  if (r.parallel.parts() > 1) p.spread = to_string(r.parallel, r.sharding);
  add_notes_of_gpu(p.notes, asked, p.gpu);
  const int64_t per_gpu = fitting_batch(r, p.gpu, r.n);
  p.eager_work = workload_for(r, per_gpu, false, true);
  p.compiled_work = workload_for(r, per_gpu, true, true);
  const Workload& w = r.compiled ? p.compiled_work : p.eager_work;
  const Workload& other = r.compiled ? p.eager_work : p.compiled_work;
  add_memory(p, r, w, other);
  add_savings(p, r, w);
  const Quantity rate = throughput(w, r, p.gpu, r.n);
  p.figures.push_back(rate);
  const std::string mode = r.compiled ? "eager" : "compiled";
  Quantity second = prefixed(throughput(other, r, p.gpu, r.n), mode);
  second.label += ", " + mode;
  p.figures.push_back(std::move(second));
  const std::optional<Quantity> units = units_of(r);
  const Ending end = ending_of(r, catalog, p.gpu, r.n, w, units ? &*units : nullptr, rate);
  if (end.time) {
    p.figures.push_back(*end.time);
    p.figures.push_back(*end.work);
  }
  add_data(p, r, catalog);
  for (const Quantity* q : {&end.save, &end.interval, &end.lost, &end.between})
    p.figures.push_back(*q);
  add_energy_and_cost(p, r, catalog, w, end.time ? &*end.time : nullptr);
  add_server(p, r);
  if (units) add_limits(p, r, catalog, *units);
  return p;
}

}  // namespace tandem::plan
