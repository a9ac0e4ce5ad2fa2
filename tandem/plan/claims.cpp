// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/claims.h"

#include <fmt/format.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/plan/jobs.h"
#include "tandem/plan/plan_internal.h"
#include "tandem/plan/record_internal.h"

namespace tandem::plan {
namespace {

PlanRequest training(const Catalog&, const std::string& model, const std::string& gpu,
                     int64_t batch, double epochs, const std::string& precision = "bf16") {
  PlanRequest r;
  r.job = find_job(model);
  r.gpu = gpu;
  r.batch = batch;
  r.precision = precision_of(precision);
  r.data = data_set("imagenet");
  r.epochs = epochs;
  r.optimizer = "SGD-momentum";
  return r;
}

Judged both(const Judged& a, const Judged& b, const std::string& statement) {
  Judged j;
  j.statement = statement;
  j.verdict = std::max(a.verdict, b.verdict);
  j.arithmetic = a.arithmetic;
  j.arithmetic.insert(j.arithmetic.end(), b.arithmetic.begin(), b.arithmetic.end());
  j.why = a.why + " " + b.why;
  return j;
}

// Two figures of a statement that are to agree with each other.
Judged agree(const std::string& statement, Quantity from, Quantity said, double tolerance,
             const std::string& holds, const std::string& fails) {
  Judged j;
  j.statement = statement;
  const bool ok = std::abs(from.value / said.value - 1) <= tolerance;
  j.verdict = ok ? Verdict::possible : Verdict::impossible;
  j.why = ok ? holds : fails;
  j.arithmetic = {std::move(from), std::move(said)};
  return j;
}

}  // namespace

const char* to_string(Verdict v) {
  static const char* const kNames[] = {"possible", "unlikely", "impossible", "unclear"};
  return kNames[static_cast<int>(v)];
}

Judged check_training_claim(const PlanRequest& r, double seconds, const Catalog& c,
                            const std::string& statement) {
  TD_CHECK(seconds > 0 && r.n > 0, Value, "a claim wants a time and GPUs above 0");
  TD_CHECK(!r.gpu.empty(), Value, "a claim is about a GPU\nGive --gpu.");
  const Gpu& gpu = c.gpu(r.gpu);
  check_request(r, c);
  const std::optional<Quantity> all = units_of(r);
  TD_CHECK(all, Value, "a claim of training wants an end\nGive --data with --epochs, or --tokens.");
  const Workload w = workload_for(r, per_gpu_batch(r, r.n), r.compiled, true);
  Judged j;
  j.statement = statement;
  const double units = all->value;
  Quantity asked = quotient("claim.rate", "asked for", r.job.unit + "/s", "",
                            given("claim.units", r.job.unit, units, "", "of the statement"),
                            given("claim.seconds", "time", seconds, "s", "of the statement"));
  const std::string kind = r.precision == Precision::f32       ? "f32"
                           : r.precision == Precision::tf32    ? "tf32"
                           : r.precision == Precision::amp_f16 ? "f16"
                                                               : "bf16";
  Quantity flops = quotient("claim.flops", "FLOPs of one", "FLOP", "",
                            given("claim.flops.batch", "of a batch", w.matrix_flops(), "FLOP",
                                  "products and convolutions of the dry run"),
                            given("claim.batch", "in it", w.units, "", "batch"));
  Quantity limit = quotient(
      "claim.limit", "most by arithmetic", r.job.unit + "/s", "",
      product("claim.peak", "peak", "FLOP/s", "",
              {given("claim.peak.one", "one " + gpu.name, gpu.peak(kind), "FLOP/s", gpu.source),
               given("gpus", "GPUs", r.n, "", "of the statement")}),
      std::move(flops));
  Quantity planned = throughput(w, r, gpu, r.n);
  planned.key = "claim.planned";
  planned.label = "planned here";
  if (asked.value > limit.value) {
    j.verdict = Verdict::impossible;
    j.why = fmt::format("{} are asked of hardware whose peak gives {}.", show(asked), show(limit));
  } else if (asked.value > 1.3 * planned.value) {
    j.verdict = Verdict::unlikely;
    j.why = fmt::format("{} are {:.1f} times what is planned here ({}), {:.0f} % of the peak.",
                        show(asked), asked.value / planned.value, show(planned),
                        100 * asked.value / limit.value);
  } else {
    j.verdict = Verdict::possible;
    j.why = fmt::format("{} are asked, {} planned, the peak is {}.", show(asked), show(planned),
                        show(limit));
  }
  j.arithmetic = {std::move(asked), std::move(planned), std::move(limit)};
  return j;
}

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

namespace {

// 7.67 against 11.19 s and 3.5 against 1.7 GB, of a job that is not named.
Judged unnamed_job(const MeasuredJob* job) {
  Judged j;
  j.statement =
      "Training takes 7.67 s (PyTorch) against 11.19 s (TensorFlow), with 3.5 against 1.7 GB of "
      "RAM.";
  j.arithmetic = {quotient("claim.ratio", "ratio as stated", "", "",
                           given("claim.a", "TensorFlow", 11.19, "s", "statement"),
                           given("claim.b", "PyTorch", 7.67, "s", "statement")),
                  quotient("claim.memory", "memory as stated", "", "",
                           given("claim.c", "PyTorch", 3.5e9, "B", "statement"),
                           given("claim.d", "TensorFlow", 1.7e9, "B", "statement"))};
  const MeasuredJob::Row *torch = nullptr, *tf = nullptr;
  if (job)
    for (const MeasuredJob::Row& r : job->rows) {
      if (r.name.rfind("PyTorch", 0) == 0 && (!torch || r.wall < torch->wall)) torch = &r;
      if (r.name.rfind("TensorFlow", 0) == 0 && (!tf || r.wall < tf->wall)) tf = &r;
    }
  if (!torch || !tf) {
    j.why =
        "The job is not named, so nothing can be computed from it. `bench/claims_mnist` measures "
        "the net of `make demo` on MNIST in its place; it was not run.";
    return j;
  }
  const std::string from =
      fmt::format("measured {}: {} steps of {} pictures of MNIST, {} threads, whole process",
                  job->date, job->steps, job->batch, job->threads);
  for (const MeasuredJob::Row& r : job->rows)
    for (bool memory : {false, true})
      j.arithmetic.push_back(given("claim.measured", r.name, memory ? r.peak : r.wall,
                                   memory ? "B" : "s", memory ? "highest resident memory" : from));
  j.arithmetic.push_back(quotient("claim.ratio.here", "TensorFlow to PyTorch here", "", "",
                                  given("claim.tf", tf->name, tf->wall, "s", from),
                                  given("claim.torch", torch->name, torch->wall, "s", from)));
  j.arithmetic.push_back(quotient("claim.memory.here", "memory, PyTorch to TensorFlow here", "", "",
                                  given("claim.torch.peak", torch->name, torch->peak, "B", from),
                                  given("claim.tf.peak", tf->name, tf->peak, "B", from)));
  const double time = tf->wall / torch->wall, memory = torch->peak / tf->peak;
  const bool same_time = std::abs(time / (11.19 / 7.67) - 1) < 0.25;
  const bool same_memory = std::abs(memory / (3.5 / 1.7) - 1) < 0.25;
  j.verdict = same_time && same_memory ? Verdict::possible : Verdict::unlikely;
  j.why = fmt::format(
      "The job is not named. On the net of `make demo` TensorFlow takes {:.2f} times as long as "
      "PyTorch (1.46 is stated) and PyTorch {:.2f} times as much memory (2.06 is stated){}",
      time, memory,
      same_time && same_memory ? "." : ": another job may behave otherwise, this one does not so.");
  return j;
}

}  // namespace

std::vector<Judged> published_claims(const Catalog& c, const MeasuredJob* job) {
  std::vector<Judged> all;
  const auto hours = [](double h) { return h * 3600; };
  all.push_back(unnamed_job(job));
  all.push_back(
      both(check_training_claim(training(c, "resnet50", "A100", 256, 90), hours(4.2), c, ""),
           check_training_claim(training(c, "resnet50", "A100", 256, 90), hours(5.1), c, ""),
           "ResNet-50 on ImageNet takes 4.2 h (PyTorch) or 5.1 h (TensorFlow) on one A100 (90 "
           "epochs)."));
  {
    Judged j = agree(
        "One source says that PyTorch trains ResNet-50 2.3 times as fast as TensorFlow, "
        "another 4.2 against 5.1 h, a third 2 to 5 %.",
        quotient("claim.hours", "5.1 h to 4.2 h", "", "",
                 given("claim.a", "TensorFlow", 5.1, "h", "statement"),
                 given("claim.b", "PyTorch", 4.2, "h", "statement")),
        given("claim.said", "said", 2.3, "", "statement"), 0.1, "",
        "1.21, 2.3 and 1.05 contradict each other: at most one of them is of the same job.");
    all.push_back(std::move(j));
  }
  all.push_back(
      both(check_training_claim(training(c, "resnet101", "RTX 4090", 128, 90), hours(4.2), c, ""),
           check_training_claim(training(c, "resnet101", "RTX 4090", 128, 90), hours(5.1), c, ""),
           "ResNet-101 on ImageNet takes 4.2 h (PyTorch) or 5.1 h (TensorFlow) on one RTX 4090 (90 "
           "epochs)."));
  {
    PlanRequest r;
    r.job = find_job("bert:base", {.sequence = 128});
    r.gpu = "A100";
    r.batch = 256;
    // Devlin et al. 2018: 1e6 steps of 256 sequences, nine tenths of 128 tokens.
    r.tokens = 1e6 * 256 * 128;
    all.push_back(
        check_training_claim(r, 1.8 * 86400, c,
                             "BERT-base is trained in 1.8 days on one A100 (the paper's "
                             "10^6 steps of 256 sequences, counted as 128 tokens each)."));
    Judged j;
    j.statement = "BERT-base runs 10 % slower through compile time.";
    const Quantity lost = product("claim.compile", "compile time that 10 % would be", "s", "",
                                  {given("claim.days", "1.8 days", 1.8 * 86400, "s", "statement"),
                                   given("claim.share", "share", 0.1, "", "statement")});
    j.verdict = Verdict::unlikely;
    j.why = "Compilation is done once; a tenth of 1.8 days would be " + show(lost) +
            " of it. Here a 7B model is traced and planned in under 2 s.";
    j.arithmetic = {lost};
    all.push_back(std::move(j));
  }
  {
    const Quantity ten = product("claim.rent", "10 h at $3.84", "USD", "",
                                 {given("claim.price", "an hour", 3.84, "USD", "statement"),
                                  given("claim.hours", "hours", 10, "h", "statement")});
    all.push_back(
        agree("8 GPUs scale at 90 % against 85 %; at $3.84 an hour a job of 10 hours costs "
              "$34.56 against $36.48.",
              ten, given("claim.said", "said", 34.56, "USD", "statement"), 0.02, "",
              "10 hours cost $38.40. $34.56 is 9 hours and $36.48 is 9.5: the saving of "
              "scaling 90 : 85 would be 5.6 %, which is 10 against 10.6 hours."));
  }
  {
    const Quantity saved = product("claim.saved", "2 kWh at $0.12", "USD", "",
                                   {sum("claim.kwh", "difference", "kWh", "",
                                        {given("claim.a", "TensorFlow", 12, "kWh", "statement"),
                                         given("claim.b", "PyTorch", -10, "kWh", "statement")}),
                                    given("claim.price", "a kWh", 0.12, "USD", "statement")});
    all.push_back(
        agree("EfficientNet-B4 takes 12 against 10 kWh on an RTX 4090, which saves $1.20 at "
              "$0.12 per kWh.",
              saved, given("claim.said", "said", 1.20, "USD", "statement"), 0.05, "",
              "2 kWh are $0.24; $1.20 is the price of all 10 kWh."));
    // What energy ImageNet would take.
    PlanRequest r = training(c, "efficientnet_b4", "RTX 4090", 64, 90);
    const Gpu& gpu = c.gpu(r.gpu);
    const double joules = 10 * 3.6e6;
    all.push_back(check_training_claim(
        r, joules / (gpu.watts * kPowerShare), c,
        "EfficientNet-B4 is trained on ImageNet with 10 kWh on an RTX 4090 (90 epochs; the time is "
        "10 kWh at 80 % of 450 W)."));
  }
  {
    Judged j;
    j.statement = "Post-training quantisation makes a model 70 % smaller and loses less than 1 %.";
    const Quantity left = quotient("claim.left", "8 of 32 bits leave", "", "",
                                   given("claim.eight", "bits", 8, "", "of a weight after it"),
                                   given("claim.whole", "bits", 32, "", "of a weight before it"));
    j.verdict = Verdict::possible;
    j.why =
        "int8 weights leave 25 %, that is -75 %, less what stays in f32 (biases, norms, scales). "
        "The loss is a matter of the model; it is measured where quantised models are.";
    j.arithmetic = {left};
    all.push_back(std::move(j));
  }
  {
    Judged j;
    j.statement =
        "Going to the other framework by ONNX takes under 5 minutes and keeps above 99 % accuracy.";
    j.verdict = Verdict::possible;
    j.why =
        "Both read the same numbers; equal operations give equal answers up to rounding, so the "
        "accuracy is kept whole, not to 99 %. docs/onnx.md says which operations pass.";
    all.push_back(std::move(j));
  }
  {
    Judged j;
    j.statement = "Reinforcement learning gains 15 % throughput.";
    j.why =
        "Environment, agent and hardware are not named: environments written in Python, not the "
        "framework, are most of such a loop.";
    all.push_back(std::move(j));
  }
  return all;
}

std::string claims_page(const Catalog& c, const MeasuredJob* job) {
  std::string s = fmt::format(
      "# Published statements, judged\n\n<!-- made by `tandem plan --claims`; do not edit -->\n\n"
      "Statements about PyTorch and TensorFlow as they go around, without the sources' names. Each "
      "is "
      "held against arithmetic: the peak of the hardware (data/hardware.json of {}), a plan by dry "
      "run, "
      "and the statement's own figures. *impossible*: above the peak, or the figures contradict "
      "each "
      "other. *unlikely*: more than 1.3 times the plan. *unclear*: the statement leaves out what "
      "is "
      "needed. No GPU was used.\n\n",
      c.date());
  int k = 0;
  for (const Judged& j : published_claims(c, job)) {
    s += fmt::format("## {}. {}\n\n**{}.** {}\n\n", ++k, j.statement, to_string(j.verdict), j.why);
    if (j.arithmetic.empty()) continue;
    s += "```\n";
    for (const Quantity& q : j.arithmetic) s += explain(q, 2);
    s += "```\n\n";
  }
  return s;
}

}  // namespace tandem::plan
