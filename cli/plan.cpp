// SPDX-License-Identifier: Apache-2.0
// `tandem plan MODEL`: which server a model needs, how long, how much.
#include <fmt/core.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>

#include "cli/commands_internal.h"
#include "cli/plan_internal.h"
#include "tandem/base/files/file.h"
#include "tandem/init.h"
#include "tandem/plan/asked.h"
#include "tandem/plan/claims/claims.h"
#include "tandem/plan/hardware/machine.h"
#include "tandem/plan/jobs.h"
#include "tandem/plan/plan.h"
#include "tandem/plan/report.h"
#include "tandem/plan/scaling.h"

namespace tandem::cli {
namespace {

struct PlanOptions {
  std::string model, precision, mode, optimizer, data, gpu, rank_by, serve, hardware, prices,
      term = "hourly", deadline, shapes, loss, html, claim, profile, measured, batch, sequence,
      image_size, epochs, tokens, budget, n, sharding, accumulate, parallel, recompute,
      framework = "tandem", attention = "auto";
  std::vector<std::string> why;
  bool scaling = false, claims = false, json = false, rank = false, eight_bit = false,
       clip_norm = false, keep_gradients = false, f32_loss = false, show_keys = false;
};

constexpr int64_t kMost = 1000000000;

int64_t count(const std::string& text, const char* option, int64_t low, int64_t high = kMost) {
  return text.empty() ? 0 : plan::whole_number(text, option, low, high);
}

// Options of training, which a fleet that answers has no use for.
std::string training_option(const PlanOptions& o) {
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const std::string*>>{{"--batch", &o.batch},
                                                               {"--optimizer", &o.optimizer},
                                                               {"--data", &o.data},
                                                               {"--epochs", &o.epochs},
                                                               {"--tokens", &o.tokens},
                                                               {"--n", &o.n},
                                                               {"--sharding", &o.sharding},
                                                               {"--accumulate", &o.accumulate},
                                                               {"--parallel", &o.parallel},
                                                               {"--recompute", &o.recompute},
                                                               {"--budget", &o.budget},
                                                               {"--deadline", &o.deadline}})
    if (!value->empty()) return name;
  return o.eight_bit ? "--eight-bit-state" : o.clip_norm ? "--clip-norm" : "";
}

// Options that say nothing together are refused, not ignored.
void check_together(const PlanOptions& o) {
  const bool serve = !o.serve.empty(), claim = !o.claim.empty();
  struct Pair {
    bool both;
    std::string wrong, instead;
  };
  const std::string of_training = serve ? training_option(o) : "";
  for (const Pair& p :
       {Pair{o.rank && serve, "--rank compares servers for training, --serve plans a fleet",
             "Leave out --rank: without --gpu, --serve finds the cheapest fleet of all GPUs."},
        Pair{o.rank && !o.gpu.empty(), "--rank compares all GPUs, --gpu names one",
             "Leave out one of them; --prices and --hardware take files of fewer GPUs."},
        Pair{o.rank && claim, "--rank and --check-claim are two questions",
             "Leave out one of them; a claim is about one --gpu."},
        Pair{o.rank && (!o.why.empty() || o.show_keys), "a ranking has no figures to explain",
             "Give --gpu and --n of a row in place of --rank."},
        Pair{!o.rank && !o.rank_by.empty(), "--by is the order of a ranking", "Give --rank too."},
        Pair{serve && claim, "--check-claim is about training, --serve plans a fleet",
             "Leave out one of them."},
        Pair{serve && o.gpu == "this", "a fleet is planned of GPUs that can be rented",
             "Give another --gpu, or none for the cheapest."},
        Pair{!of_training.empty(), of_training + " is for training, --serve plans a fleet",
             "Leave out " + of_training + "; a fleet's GPUs and batches are what it takes."},
        Pair{o.rank && !o.parallel.empty(), "--rank compares servers for nets that a GPU holds",
             "Leave out --rank: --parallel auto compares ways to spread a net."},
        Pair{o.gpu == "this" && !o.parallel.empty(), "this machine is one rank",
             "Give another --gpu, or leave out --parallel."},
        Pair{!o.accumulate.empty() && !o.parallel.empty() &&
                 (o.parallel == "auto" || o.parallel.find("micro") != std::string::npos),
             "--accumulate and a microbatch say the same", "Leave out one of them."},
        Pair{!o.sharding.empty() && !o.parallel.empty() &&
                 (o.parallel == "auto" || o.parallel.find("zero") != std::string::npos),
             "--sharding and zero say the same", "Leave out one of them."},
        Pair{o.scaling && (o.claims || !o.model.empty()),
             "--scaling writes one page and plans no model", "Leave out the model and --claims."},
        Pair{o.claims && !o.model.empty(), "--claims writes one page and plans no model",
             "Leave out the model, or ask --check-claim of it."}})
    TD_CHECK(!p.both, Value, "{}\n{}", p.wrong, p.instead);
}

// The model, or the recipe unchanged; then the options.
plan::PlanRequest request_of(const PlanOptions& o) {
  const bool recipe = o.model.ends_with(".yaml") || o.model.ends_with(".yml");
  plan::PlanRequest r;
  plan::JobOptions job;
  if (!o.sequence.empty()) job.sequence = count(o.sequence, "--sequence", 1);
  if (!o.image_size.empty()) job.image_size = count(o.image_size, "--image-size", 1, 1 << 16);
  job.shapes = o.shapes;
  job.loss = o.loss;
  job.framework = plan::framework_of(o.framework);
  job.f32_loss = o.f32_loss;
  if (recipe) r = recipe_request(o.model);
  if (!o.batch.empty()) r.batch = count(o.batch, "--batch", 1);
  if (!o.precision.empty()) r.precision = plan::precision_of(o.precision);
  if (!o.mode.empty())
    r.compiled = plan::one_of(o.mode, "--mode", {"compiled", "eager"}) == "compiled";
  if (!o.optimizer.empty()) r.optimizer = o.optimizer;
  if (!o.data.empty()) r.data = plan::data_set(o.data);
  TD_CHECK(o.epochs.empty() || o.tokens.empty(), Value,
           "epochs and tokens are two ends\nGive --epochs or --tokens, not both.");
  if (!o.epochs.empty()) r.epochs = plan::amount(o.epochs, "--epochs");
  if (!o.tokens.empty()) {
    r.tokens = plan::amount(o.tokens, "--tokens");
    r.epochs = 0;  // a recipe's
  }
  r.gpu = o.gpu;
  if (!o.n.empty()) r.n = static_cast<int>(count(o.n, "--n", 1, 100000));
  if (!o.sharding.empty()) r.sharding = static_cast<int>(count(o.sharding, "--sharding", 0, 3));
  if (!o.accumulate.empty())
    r.accumulate = static_cast<int>(count(o.accumulate, "--accumulate", 1));
  if (!o.parallel.empty() && o.parallel != "auto") plan::read_parallel(o.parallel, r, !o.n.empty());
  r.recompute = !o.recompute.empty();
  if (r.recompute) r.kept = plan::kept_of(o.recompute);
  r.keep_gradients = o.keep_gradients;
  r.framework = job.framework;
  r.attention = plan::attention_form_of(o.attention);
  r.eight_bit_state = o.eight_bit;
  r.clip_norm |= o.clip_norm;
  if (!o.budget.empty()) r.budget = plan::dollars(o.budget, "--budget");
  if (!o.deadline.empty()) r.deadline = plan::duration(o.deadline, "--deadline");
  r.term = o.term;
  if (!recipe) r.job = plan::find_job(o.model, job);  // last, as it may read files
  return r;
}

io::Json ranked_json(const std::vector<plan::Ranked>& all) {
  io::Json::Array rows;
  for (const plan::Ranked& k : all)
    rows.push_back(io::Json(io::Json::Object{{"gpu", k.gpu},
                                             {"n", k.n},
                                             {"fits", k.fits},
                                             {"allowed", k.allowed},
                                             {"pareto", k.pareto},
                                             {"batch", k.batch},
                                             {"changes", k.changes},
                                             {"efficiency_assumed", k.assumed},
                                             {"lacks_bf16", k.lacks_bf16},
                                             {"memory", k.memory},
                                             {"rate", k.rate},
                                             {"seconds", k.seconds},
                                             {"usd", k.usd},
                                             {"kwh", k.kwh}}));
  return io::Json(std::move(rows));
}

void evaluate(const PlanOptions& o, const plan::PlanRequest& r, const plan::Catalog& catalog,
              int& code) {
  const plan::Evaluated j = plan::check_claim(r, plan::claim_of(o.claim), catalog,
                                              fmt::format("{} in {}", o.model, o.claim));
  if (j.verdict != plan::Verdict::possible) code = 3;
  if (o.json) {
    io::Json::Array arithmetic;
    for (const plan::Quantity& q : j.arithmetic) arithmetic.push_back(plan::to_json(q));
    fmt::print("{}\n", io::Json(io::Json::Object{{"statement", j.statement},
                                                 {"verdict", plan::to_string(j.verdict)},
                                                 {"why", j.why},
                                                 {"arithmetic", std::move(arithmetic)}})
                           .dump(2));
    return;
  }
  fmt::print("{}: {}\n{}\n", j.statement, plan::to_string(j.verdict), j.why);
  for (const plan::Quantity& q : j.arithmetic) fmt::print("{}", plan::explain(q));
}

void rank_all(const PlanOptions& o, const plan::PlanRequest& r, const plan::Catalog& catalog,
              int& code) {
  const std::string by =
      plan::one_of(o.rank_by.empty() ? "cost" : o.rank_by, "--by", {"cost", "time", "energy"});
  const std::vector<plan::Ranked> all = plan::rank(r, catalog,
                                                   by == "time"     ? plan::RankBy::time
                                                   : by == "energy" ? plan::RankBy::energy
                                                                    : plan::RankBy::cost);
  fmt::print("{}", o.json ? ranked_json(all).dump(2) + "\n" : plan::to_text(all, r));
  if (all.empty() || !all[0].allowed) code = 3;
  if (o.html.empty() || all.empty()) return;
  // The page is the best server's plan beside all others.
  plan::PlanRequest best = r;
  best.gpu = all[0].gpu;
  best.n = all[0].n;
  best.sharding = all[0].sharding;
  best.recompute = all[0].recompute;
  write_file(o.html, plan::html_report(plan::make_plan(best, catalog), all, best));
  fmt::print(stderr, "{}\n", o.html);
}

void run_plan(const PlanOptions& o, int& code) {
  init();
  check_together(o);
  const plan::Catalog catalog = plan::Catalog::load(o.hardware, o.prices);
  code = 0;
  if (o.claims) {
    // What bench/claims_mnist left, where it is there.
    const std::string file = o.measured.empty() ? "docs/claims_mnist.json" : o.measured;
    std::optional<plan::MeasuredJob> job;
    if (!o.measured.empty() || file_exists(file)) job = plan::measured_job(file);
    fmt::print("{}", plan::claims_page(catalog, job ? &*job : nullptr));
    return;
  }
  if (o.scaling) {
    // What bench/dist_scaling left, and the published rows of this repository.
    const std::string measured = o.measured.empty() ? "docs/scaling.json" : o.measured;
    std::vector<std::string> rows;
    for (const char* file : {"tests/plan/mosaic_runs.csv", "tests/plan/scaling_runs.csv"})
      if (file_exists(file)) rows.emplace_back(file);
    const std::string shares = "tests/plan/horovod_runs.csv";
    fmt::print("{}", plan::scaling_page(
                         catalog, !o.measured.empty() || file_exists(measured) ? measured : "",
                         rows, file_exists(shares) ? shares : ""));
    return;
  }
  TD_CHECK(!o.model.empty(), Value,
           "there is no model to plan\nGive a name (tandem plan resnet50), family:size or a file.");
  plan::PlanRequest r = request_of(o);
  if (o.parallel == "auto") r = plan::best_parallel(r, catalog);
  if (!o.claim.empty()) {
    evaluate(o, r, catalog, code);
    return;
  }
  if (o.rank) {
    rank_all(o, r, catalog, code);
    return;
  }
  const plan::Plan p = o.gpu == "this" ? plan::machine_plan(r, machine_profile_of(o.profile))
                       : o.serve.empty()
                           ? plan::make_plan(r, catalog)
                           : plan::serve_plan(r, plan::serve_request(o.serve), catalog);
  plan::check(p);
  if (!o.html.empty()) {
    write_file(o.html,
               plan::html_report(p,
                                 o.serve.empty() ? plan::rank(r, catalog, plan::RankBy::cost)
                                                 : std::vector<plan::Ranked>(),
                                 r));
    fmt::print(stderr, "{}\n", o.html);
  }
  if (!o.why.empty()) {
    for (const std::string& key : o.why) fmt::print("{}", plan::explain(p, key));
    return;
  }
  if (o.show_keys) {
    for (const std::string& k : p.keys()) fmt::print("{}\n", k);
    return;
  }
  fmt::print("{}", o.json ? plan::to_json(p).dump(2) + "\n" : plan::to_text(p));
  if (!o.json) {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    fmt::print(stderr, "planned in {:.2f} s, {} MB\n",
               static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                   static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6,
               use.ru_maxrss / 1024);
  }
  if (!p.fits || !p.within_limits) code = 3;
}

}  // namespace

plan::MachineProfile machine_profile_of(const std::string& file) {
  return plan::read_machine_profile(file);
}

void add_plan(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "plan",
      "Which server a model needs, how long training takes and what it costs\n\n"
      "  tandem plan resnet50 --gpu 4090 --batch 256 --data imagenet --epochs 90\n"
      "  tandem plan llama:7b --gpu h100 --n 8 --batch 64 --sharding 3 --tokens 1e9\n"
      "  tandem plan resnet50 --rank --data imagenet --epochs 90 --deadline 24h\n"
      "  tandem plan llama:70b --gpu h100 --parallel tp=8,pp=4,dp=2 --batch 256 --tokens 1e9\n"
      "  tandem plan bert:base --serve rps=500,p99=20ms --gpu l4");
  auto o = std::make_shared<PlanOptions>();
  verb->add_option(
      "model", o->model,
      "A model's name, family:size, a recipe, an ONNX file, a config.json or its folder");
  verb->add_flag("--claims", o->claims, "Published statements, evaluated, as a page");
  verb->add_flag("--scaling", o->scaling,
                 "Jobs of 8 to 16,384 GPUs simulated, against published runs, as a page");
  verb->add_option("--measured", o->measured,
                   "With --claims: what bench/claims_mnist wrote (docs/claims_mnist.json); with "
                   "--scaling: what bench/dist_scaling wrote (docs/scaling.json)");
  verb->add_option("--check-claim", o->claim,
                   "Is it so on that GPU, and why: 4.2h, $500, 10kWh or 2500/s");
  verb->add_option("--profile", o->profile, "File of `bench --machine`, for --gpu this");
  verb->add_option("--batch", o->batch,
                   "Samples of a step, all GPUs together (else 32 for each GPU, or what fits)");
  verb->add_option("--precision", o->precision,
                   "f32, tf32, bf16, f16 (autocast), pure-bf16, pure-f16 or mixed-bf16 (from f32 "
                   "weights)");
  verb->add_option("--mode", o->mode, "eager or compiled");
  verb->add_option("--optimizer", o->optimizer, "AdamW, SGD, SGD-momentum, ...");
  verb->add_option("--data", o->data, "imagenet, cifar10, ..., a folder, or samples=50000,gb=12");
  verb->add_option("--epochs", o->epochs, "Times through the data");
  verb->add_option("--tokens", o->tokens,
                   "Tokens (or samples) in all, in place of epochs: 1e9, 300M, 1.2B");
  verb->add_option("--gpu", o->gpu, "GPU; none: the cheapest that fits; this: this machine");
  verb->add_option("--n", o->n, "Number of GPUs");
  verb->add_option("--sharding", o->sharding, "ZeRO stage: 0 to 3");
  verb->add_option("--accumulate", o->accumulate, "Batches of a step, one after the other");
  verb->add_option(
      "--parallel", o->parallel,
      "How the net is spread: tp=8,pp=4,dp=2,zero=1,micro=1,interleave=2, or auto: the "
      "fastest way that fits --n GPUs");
  verb->add_flag("--recompute{full}", o->recompute,
                 "Recompute every block in the backward pass; --recompute=selective keeps "
                 "attention's and every second matmul's results, as torchtitan, "
                 "--recompute=matmuls all of these");
  verb->add_option("--framework", o->framework,
                   "tandem, or pytorch: its loss and its caching allocator");
  verb->add_option("--attention", o->attention,
                   "auto, fused (one kernel, whatever it drops) or composed (scores, softmax and "
                   "dropout are kept)");
  verb->add_flag("--f32-loss", o->f32_loss, "Logits become f32 before the loss");
  verb->add_flag("--keep-gradients", o->keep_gradients,
                 "Gradients are there in the forward pass too: zeroed, not set free");
  verb->add_flag("--clip-norm", o->clip_norm, "Gradients are clipped by the norm of all");
  verb->add_flag("--eight-bit-state", o->eight_bit, "Optimizer state in 8 bits");
  verb->add_option("--sequence", o->sequence, "Tokens of a sample");
  verb->add_option("--image-size", o->image_size, "Size of the images");
  verb->add_option("--shapes", o->shapes, "Inputs of an ONNX file, as x:8x3x224x224");
  verb->add_option(
      "--loss", o->loss,
      "Loss to add after the first output of an ONNX file: cross_entropy, mse or output");
  verb->add_option("--budget", o->budget, "US dollars: 500, $500, 1.5k");
  verb->add_option("--deadline", o->deadline, "36h, 2d, 90m, 1d12h");
  verb->add_option("--term", o->term, "hourly, \"1 year\", \"3 years\" or spot");
  verb->add_flag("--rank", o->rank, "All known servers side by side");
  verb->add_option("--by", o->rank_by, "Rank by cost (if not given), time or energy");
  verb->add_option("--serve", o->serve, "A fleet that answers: rps=200,p99=50ms");
  verb->add_option("--why", o->why, "Where a figure comes from: memory, time.step, cost, ...")
      ->allow_extra_args(false);
  verb->add_flag("--keys", o->show_keys, "What --why may be asked");
  verb->add_option("--hardware", o->hardware, "File in place of data/hardware.json");
  verb->add_option("--prices", o->prices, "File in place of data/prices.json");
  verb->add_option("--html", o->html, "Write the plan as a page, too");
  verb->add_flag("--json", o->json, "The plan as JSON");
  verb->callback([&code, o] { run_plan(*o, code); });
}

}  // namespace tandem::cli
