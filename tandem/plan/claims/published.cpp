// SPDX-License-Identifier: Apache-2.0
// Published statements about PyTorch and TensorFlow, checked by arithmetic, and the page of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/plan/claims/claims.h"
#include "tandem/plan/claims/published_internal.h"
#include "tandem/plan/jobs.h"
#include "tandem/plan/plan_internal.h"
#include "tandem/plan/record_internal.h"

namespace tandem::plan {

MeasuredJob measured_job(const std::string& path) {
  const io::Json j = io::parse_json(read_file(path, size_t{1} << 20), path);
  Record r(j, path);
  r.schema(1, "run bench/claims_mnist again");
  MeasuredJob job;
  job.date = r.date("date");
  job.steps = r.positive("steps", 1e12);
  job.batch = r.positive("batch", 1e9);
  job.threads = r.positive("threads", 1e6);
  for (Record& e : r.rows("rows", 1, 100)) {
    MeasuredJob::Row row;
    row.name = e.text("name");
    e.called(row.name);
    row.wall = e.positive("wall", 1e9);
    row.cpu = e.positive("cpu", 1e9);
    row.peak = e.positive("peak", 1e15);
    job.rows.push_back(std::move(row));
  }
  return job;
}

Evaluated agree(const std::string& statement, Quantity from, Quantity other, double tolerance,
                const std::string& holds, const std::string& fails) {
  Evaluated j;
  j.statement = statement;
  const bool ok = std::abs(from.value / other.value - 1) <= tolerance;
  j.verdict = ok ? Verdict::possible : Verdict::impossible;
  j.why = ok ? holds : fails;
  j.arithmetic = {std::move(from), std::move(other)};
  return j;
}

Quantity said(const std::string& key, const std::string& label, double value,
              const std::string& unit) {
  return given(key, label, value, unit, "statement");
}

namespace {

// Measured 2026-11-22 on 2 cores, by the commands that the figures name; seconds.
constexpr double kBertCompile = 0.25, kOnnxHop = 2.6, kOnnxError = 9.2e-8, kRlEager = 1.85,
                 kRlCompiled = 1.41;

// Of ImageNet, without epochs: no statement says how many.
PlanRequest training(const std::string& model, const std::string& gpu, int64_t batch) {
  PlanRequest r;
  r.job = find_job(model);
  r.gpu = gpu;
  r.batch = batch;
  r.precision = Precision::amp_bf16;
  r.data = data_set("imagenet");
  r.optimizer = "SGD-momentum";
  return r;
}

// What both say first is said once.
Evaluated both(const Evaluated& a, const Evaluated& b, const std::string& statement) {
  Evaluated j;
  j.statement = statement;
  j.verdict = std::max(a.verdict, b.verdict);
  j.arithmetic = a.arithmetic;
  j.arithmetic.insert(j.arithmetic.end(), b.arithmetic.begin(), b.arithmetic.end());
  const auto differ = std::mismatch(a.why.begin(), a.why.end(), b.why.begin(), b.why.end()).first;
  const std::string same(a.why.begin(), differ);
  const size_t sentences = same.rfind(". ") == same.npos ? 0 : same.rfind(". ") + 2;
  j.why = a.why + " " + b.why.substr(sentences);
  return j;
}

// The fastest row of a framework.
const MeasuredJob::Row* fastest_row(const MeasuredJob& job, const std::string& framework) {
  const MeasuredJob::Row* best = nullptr;
  for (const MeasuredJob::Row& r : job.rows)
    if (r.name.starts_with(framework) && (!best || r.wall < best->wall)) best = &r;
  return best;
}

// What was measured of another job, beside a statement whose job is not named: it cannot decide.
void add_measured(Evaluated& j, const MeasuredJob& job) {
  const MeasuredJob::Row *torch = fastest_row(job, "PyTorch"), *tf = fastest_row(job, "TensorFlow");
  if (!torch || !tf) return;
  const std::string from =
      fmt::format("measured {}: {} steps of {} images of MNIST, {} threads, whole process",
                  job.date, job.steps, job.batch, job.threads);
  for (const MeasuredJob::Row& r : job.rows)
    for (bool memory : {false, true})
      j.arithmetic.push_back(given("claim.measured", r.name, memory ? r.peak : r.wall,
                                   memory ? "B" : "s", memory ? "highest resident memory" : from));
  j.arithmetic.push_back(quotient("claim.ratio.here", "TensorFlow to PyTorch here", "", "",
                                  given("claim.tf", tf->name, tf->wall, "s", from),
                                  given("claim.torch", torch->name, torch->wall, "s", from)));
  j.arithmetic.push_back(quotient("claim.memory.here", "memory, PyTorch to TensorFlow here", "", "",
                                  given("claim.torch.peak", torch->name, torch->peak, "B", from),
                                  given("claim.tf.peak", tf->name, tf->peak, "B", from)));
  j.why = fmt::format(
      "The job and the card are not named; the statement is of CUDA. What was measured here is "
      "another job on {} threads of a processor, the net of `make demo`: TensorFlow takes {:.2f} "
      "times as long as PyTorch (stated: 1.46), and PyTorch takes {:.2f} times as much memory "
      "(stated: 2.06). That neither confirms nor refutes it.",
      job.threads, tf->wall / torch->wall, torch->peak / tf->peak);
}

// 7.67 against 11.19 s and 3.5 against 1.7 GB, of a job that is not named.
Evaluated unnamed_job(const MeasuredJob* job) {
  Evaluated j;
  j.statement =
      "With CUDA, training takes 7.67 s (PyTorch) against 11.19 s (TensorFlow), with 3.5 against "
      "1.7 GB of RAM.";
  j.arithmetic = {
      quotient("claim.ratio", "ratio as stated", "", "", said("claim.a", "TensorFlow", 11.19, "s"),
               said("claim.b", "PyTorch", 7.67, "s")),
      quotient("claim.memory", "memory as stated", "", "", said("claim.c", "PyTorch", 3.5e9, "B"),
               said("claim.d", "TensorFlow", 1.7e9, "B"))};
  j.why =
      "The job is not named, so nothing can be computed from it. `bench/claims_mnist` measures "
      "the net of `make demo` on MNIST in its place; it was not run.";
  if (job) add_measured(j, *job);
  return j;
}

Evaluated imagenet_hours(const Catalog& c, const std::string& model, const std::string& gpu,
                         int64_t batch, bool hardware_stated, const std::string& statement) {
  const PlanRequest r = training(model, gpu, batch);
  const auto in = [&](double hours) {
    return check_claim(
        r, {.of = Claim::Of::time, .value = hours * 3600, .hardware_stated = hardware_stated}, c,
        "");
  };
  return both(in(4.2), in(5.1), statement);
}

Evaluated three_ratios() {
  return agree(
      "One source says that PyTorch trains ResNet-50 2.3 times as fast as TensorFlow, "
      "another 4.2 against 5.1 h, a third 2 to 5 %.",
      quotient("claim.hours", "5.1 h to 4.2 h", "", "", said("claim.a", "TensorFlow", 5.1, "h"),
               said("claim.b", "PyTorch", 4.2, "h")),
      said("claim.said", "stated", 2.3, ""), 0.1, "",
      "1.21, 2.3 and 1.05 contradict each other: at most one of them can be about the same job.");
}

PlanRequest bert() {
  PlanRequest r;
  r.job = find_job("bert:base", {.sequence = 128});
  r.gpu = "A100";
  r.batch = 256;
  r.precision = Precision::amp_bf16;
  // Devlin et al. 2018: 1e6 steps of 256 sequences, nine tenths of 128 tokens.
  r.tokens = 1e6 * 256 * 128;
  return r;
}

Evaluated bert_compile_time() {
  Evaluated j;
  j.statement = "BERT-base runs 10 % slower because of compile time.";
  const Quantity lost = product(
      "claim.compile", "compile time that 10 % would be", "s", "",
      {said("claim.days", "1.8 days", 1.8 * 86400, "s"), said("claim.share", "share", 0.1, "")});
  const Quantity ours =
      given("claim.compile.here", "tracing and planning its step here", kBertCompile, "s",
            "measured 2026-11-22, processor time of the whole command: `tandem plan bert:base "
            "--batch 256 --sequence 128 --gpu a100`");
  const Quantity share = quotient("claim.compile.share", "of 1.8 days", "", "", again(ours),
                                  said("claim.days", "1.8 days", 1.8 * 86400, "s"));
  j.verdict = Verdict::unlikely;
  j.why = fmt::format(
      "Compilation is done once: 10 % of 1.8 days would be {} of it. Here the step is traced and "
      "planned in {}, which is {:.4f} % of 1.8 days.",
      show(lost), show(ours), 100 * share.value);
  j.arithmetic = {lost, ours, share};
  return j;
}

Evaluated eight_gpus() {
  Evaluated j;
  j.statement =
      "8 GPUs scale at 90 % against 85 %; at $3.84 an hour a job of 10 hours costs $34.56 against "
      "$36.48.";
  const Quantity hour = said("claim.price", "an hour", 3.84, "USD");
  const Quantity ten = product("claim.rent", "10 h at $3.84", "USD", "",
                               {hour, said("claim.hours", "hours", 10, "h")});
  const Quantity slower = product(
      "claim.slower", "the same job at 85 %", "h", "",
      {said("claim.hours", "hours", 10, "h"),
       quotient("claim.scaling", "90 % to 85 %", "", "", said("claim.ninety", "scaling", 0.9, ""),
                said("claim.eightyfive", "scaling", 0.85, ""))});
  const Quantity more = product("claim.more", "its rent", "USD", "", {again(slower), hour});
  const Quantity saved =
      difference("claim.saved", "saved by better scaling", "USD", "", {again(more), again(ten)});
  const Quantity a = said("claim.said.a", "stated for 90 %", 34.56, "USD"),
                 b = said("claim.said.b", "stated for 85 %", 36.48, "USD");
  j.verdict =
      std::abs(a.value / ten.value - 1) <= 0.02 && std::abs(b.value / more.value - 1) <= 0.02
          ? Verdict::possible
          : Verdict::impossible;
  j.why = fmt::format(
      "10 hours cost {}, and the same job at 85 % takes {} and costs {}: better scaling saves {}. "
      "$34.56 and $36.48 are the price times 0.9 and 0.95: the author subtracted the scaling "
      "efficiency from the rent, although it adds to the hours.",
      show(ten), show(slower), show(more), show(saved));
  j.arithmetic = {ten, slower, more, saved, a, b};
  return j;
}

Evaluated saved_energy() {
  return agree(
      "EfficientNet-B4 takes 12 kWh (PyTorch) against 10 kWh (TensorFlow) on an RTX 4090, which "
      "saves $1.20 at $0.12 per kWh.",
      product("claim.saved", "2 kWh at $0.12", "USD", "",
              {difference("claim.kwh", "difference", "kWh", "",
                          {said("claim.a", "PyTorch", 12, "kWh"),
                           said("claim.b", "TensorFlow", 10, "kWh")}),
               said("claim.price", "a kWh", 0.12, "USD")}),
      said("claim.said", "stated", 1.20, "USD"), 0.05, "",
      "2 kWh are $0.24; $1.20 is the price of all 10 kWh.");
}

// The plan is low for this net: a published run of the card before says by how much.
Evaluated ten_kilowatt_hours(const Catalog& c) {
  const PlanRequest r = training("efficientnet_b4", "RTX 4090", 64);
  Evaluated j = check_claim(r, {Claim::Of::energy, 10}, c,
                            "EfficientNet-B4 is trained on ImageNet with 10 kWh on an RTX 4090.");
  PlanRequest other = training("efficientnet_b4", "RTX 3090", 96);
  other.job = find_job("efficientnet_b4", {.image_size = 320});
  const Workload w = workload_for(other, 96, other.compiled, true);
  Quantity planned = throughput(w, other, c.gpu("RTX 3090"), 1);
  planned.key = "claim.other.planned";
  planned.label = "planned on an RTX 3090";
  const Quantity more =
      quotient("claim.other", "measured to planned on an RTX 3090", "", "",
               given("claim.other.measured", "measured on an RTX 3090, batch 96 at 320 px", 354.99,
                     "images/s",
                     "huggingface/pytorch-image-models 5e7d47ca105a (2022), results/"
                     "benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv"),
               planned);
  const auto epochs = std::find_if(j.arithmetic.begin(), j.arithmetic.end(),
                                   [](const Quantity& q) { return q.key == "claim.epochs"; });
  TD_ASSERT(epochs != j.arithmetic.end());
  j.why += fmt::format(
      " That the host and cooling are counted is an assumption. Plans of this net are low: a "
      "published run on an RTX 3090 is {:.2f} times its plan. A plan that much higher gives {:.4g} "
      "epochs.",
      more.value, more.value * epochs->value);
  j.arithmetic.push_back(more);
  return j;
}

Evaluated quantised() {
  Evaluated j;
  j.statement = "Post-training quantisation makes a model 70 % smaller and loses less than 1 %.";
  const Quantity left = quotient("claim.left", "left by 8 of 32 bits", "", "",
                                 given("claim.eight", "bits", 8, "", "of a weight after it"),
                                 given("claim.whole", "bits", 32, "", "of a weight before it"));
  j.verdict = Verdict::possible;
  j.why =
      "By size: int8 weights leave 25 %, a reduction of 75 %, minus what stays in f32 (biases, "
      "norms, scales). The accuracy depends on the model and is not measured here: this repository "
      "has no quantisation yet.";
  j.arithmetic = {left};
  return j;
}

Evaluated onnx_hop() {
  Evaluated j;
  j.statement =
      "Moving to the other framework through ONNX takes under 5 minutes and keeps more than 99 % "
      "of the accuracy.";
  const std::string how =
      "measured 2026-11-22 on 2 cores: `tandem convert resnet50 resnet50.onnx`, which writes the "
      "file, reads it back and compares the outputs";
  const Quantity hop = given("claim.hop", "there and back", kOnnxHop, "s", how);
  const Quantity error =
      given("claim.error", "largest difference, of the largest output", kOnnxError, "", how);
  j.why = fmt::format(
      "The statement is of PyTorch and TensorFlow, and that way was not measured. From Tandem to a "
      "file and back to Tandem, ResNet-50 takes {} of the 5 minutes, and outputs differ by {} of "
      "the largest: the format loses nothing. What another framework reads from it depends on its "
      "importer; docs/onnx.md lists which operations pass here. Rewriting training code is not "
      "counted.",
      show(hop), show(error));
  j.arithmetic = {hop, error};
  return j;
}

Evaluated reinforcement() {
  Evaluated j;
  j.statement = "Reinforcement learning (Atari, with Spinning Up or RLlib) gains 15 % throughput.";
  const auto measured = [](const std::string& key, const std::string& label, double seconds,
                           const std::string& mode) {
    return given(key, label, seconds, "s",
                 "measured 2026-11-22 on 2 cores, processor time: `tandem train "
                 "recipes/cartpole-ppo.yaml agent.steps=20000 agent.compile=" +
                     mode + "`");
  };
  j.arithmetic = {
      quotient("claim.rl", "eager to compiled here", "", "",
               measured("claim.rl.eager", "PPO on CartPole, eager", kRlEager, "false"),
               measured("claim.rl.compiled", "PPO on CartPole, compiled", kRlCompiled, "true"))};
  j.why = fmt::format(
      "Atari games and the libraries Spinning Up and RLlib are named; the game, the agent's "
      "settings and the hardware are not, and none of these was run here. In such a loop most of "
      "the time goes to environments and to Python, not to the framework. Here, with environments "
      "in C++, compiling alone makes PPO on CartPole {:.2f} times as fast, so 15 % says little "
      "about a framework.",
      j.arithmetic[0].value);
  return j;
}

// MLCommons publishes its rounds with version and date.
Evaluated mlperf_round() {
  Evaluated j;
  j.statement = "Figures are taken from \"MLPerf v2.0\" of 2024.";
  j.verdict = Verdict::impossible;
  j.arithmetic = {difference(
      "claim.years", "years between", "", "",
      {said("claim.year", "year as stated", 2024, ""),
       given("claim.round", "year of v2.0", 2022, "",
             "mlcommons.org: MLPerf Inference v2.0 (April 2022), Training v2.0 (June 2022)")})};
  j.why =
      "Both rounds of that name, of training and of inference, are of 2022; those of 2024 are v4.0 "
      "and v4.1. Figures of v2.0 are two years older than stated, or of another round.";
  return j;
}

// Not arithmetic: the document itself says it.
Evaluated licence() {
  Evaluated j;
  j.statement = "PyTorch's licence is Apache 2.0.";
  j.verdict = Verdict::impossible;
  j.why =
      "PyTorch's file LICENSE is the BSD licence with three clauses. Apache 2.0 is TensorFlow's, "
      "which grants patents explicitly; both allow commercial use.";
  return j;
}

std::vector<Evaluated> about_training(const Catalog& c) {
  return {imagenet_hours(c, "resnet50", "A100", 256, false,
                         "ResNet-50 on ImageNet takes 4.2 h (PyTorch) or 5.1 h (TensorFlow)."),
          three_ratios(),
          imagenet_hours(
              c, "resnet101", "RTX 4090", 128, true,
              "ResNet-101 on ImageNet takes 4.2 h (PyTorch) or 5.1 h (TensorFlow) on an RTX 4090."),
          check_claim(bert(), {Claim::Of::time, 1.8 * 86400}, c,
                      "BERT-base is trained in 1.8 days on one A100 (the paper's 10^6 steps of "
                      "256 sequences, counted as 128 tokens each).")};
}

}  // namespace

std::vector<Evaluated> published_claims(const Catalog& c, const MeasuredJob* job) {
  std::vector<Evaluated> all{unnamed_job(job)};
  const auto add = [&](std::vector<Evaluated> more) {
    for (Evaluated& j : more) all.push_back(std::move(j));
  };
  add(about_training(c));
  add({bert_compile_time(), eight_gpus(), saved_energy(), ten_kilowatt_hours(c), quantised(),
       onnx_hop(), reinforcement()});
  add(claims_of_servers(c));
  add({mlperf_round(), licence()});
  return all;
}

std::string claims_page(const Catalog& c, const MeasuredJob* job) {
  std::string s = fmt::format(
      "# Published statements, evaluated\n\n<!-- made by `tandem plan --claims`; do not edit "
      "-->\n\n"
      "Widely repeated statements about PyTorch and TensorFlow, without naming the sources. Each "
      "is checked by arithmetic against the peak of the hardware (data/hardware.json of {}), a "
      "plan by dry run, lists of prices, and the statement's own figures. *impossible*: above the "
      "peak, more than memory can hold, or figures that contradict each other or a document. "
      "*unlikely*: more than 1.3 times the plan. *unclear*: the statement leaves out what would "
      "be needed, or what it is about was not measured. No GPU was used.\n\n",
      c.date());
  int k = 0;
  for (const Evaluated& j : published_claims(c, job)) {
    s += fmt::format("## {}. {}\n\n**{}.** {}\n\n", ++k, j.statement, to_string(j.verdict), j.why);
    if (j.arithmetic.empty()) continue;
    s += "```\n";
    for (const Quantity& q : j.arithmetic) s += explain(q, 2);
    s += "```\n\n";
  }
  return s;
}

}  // namespace tandem::plan
