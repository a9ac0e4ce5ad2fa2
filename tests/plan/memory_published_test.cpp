// SPDX-License-Identifier: Apache-2.0
// How far the planned peak of memory is from published runs of PyTorch: each row of memory_runs.csv
// is planned with its own settings, none is fitted.
#include <cmath>
#include <map>
#include <sstream>

#include "tandem/base/files/file.h"
#include "tandem/plan/jobs.h"
#include "tandem/plan/plan.h"
#include "tandem/tandem.h"
#include "tests/plan/plan_helper.h"

namespace tandem::plan {
namespace {

// Models that sources describe and no family's size is.
Job job_of_row(const std::string& model, int64_t length, const JobOptions& asked) {
  JobOptions o = asked;
  if (model == "bert-large") {
    o.sequence = length;
    return job_of_config(
        R"({"model_type":"bert","architectures":["BertForSequenceClassification"],
            "hidden_size":1024,"intermediate_size":4096,"num_hidden_layers":24,
            "num_attention_heads":16,"vocab_size":30522,"num_labels":2,
            "attention_probs_dropout_prob":0.1})",
        model, o);
  }
  if (model == "gpt2-untied") {
    o.sequence = length;
    return job_of_config(
        R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"n_embd":768,"n_layer":12,
            "n_head":12,"vocab_size":50257,"n_positions":1024,"tie_word_embeddings":false,
            "attn_pdrop":0.1})",
        model, o);
  }
  if (model.rfind("llama", 0) == 0)
    o.sequence = length;
  else
    o.image_size = length;
  if (model == "vit_l_16") o.classes = 10;
  if (model.starts_with("resnet")) o.classes = asked.classes;
  return find_job(model, o);
}

struct PublishedRun {
  std::string text;
  PlanRequest request;
  int64_t batch = 0;
  bool allocated = false, fitted = false;
  double published = 0;
};

PublishedRun run_of(const std::vector<std::string>& f) {
  const auto more = [&](const char* word) { return f[11].find(word) != std::string::npos; };
  PublishedRun run;
  PlanRequest& r = run.request;
  JobOptions o{.framework = Framework::pytorch, .f32_loss = more("f32-loss")};
  if (f[0] == "tsn") o.classes = 400;
  r.job = job_of_row(f[1], std::stoll(f[2]), o);
  run.batch = std::stoll(f[3]);
  r.n = std::stoi(f[4]);
  r.sharding = std::stoi(f[5]);
  r.precision = precision_of(f[6]);
  r.optimizer = f[7];
  r.compiled = f[8] == "compiled";  // "part": the loss is not
  r.framework = Framework::pytorch;
  r.attention = attention_form_of(f[9]);
  r.recompute = f[10] != "none";
  if (r.recompute) r.kept = kept_of(f[10]);
  r.keep_gradients = more("keep-gradients");
  r.accumulate = more("accumulate") ? 4 : 1;
  r.eight_bit_state = more("eight-bit");
  run.allocated = f[12] == "allocated";
  run.fitted = f[12] == "fitted";
  const std::map<std::string, double> kUnits = {
      {"GiB", 1024.0 * 1048576}, {"MiB", 1048576.0}, {"GB", 1e9}};
  run.published = std::stod(f[14]) * kUnits.at(f[15]) - std::stod(f[13]) * 1048576;
  run.text = fmt::format("{:6} {:12} {:>5} x {:<3} {:>3} GPUs {:10} {:12} {:8} {:8} {:9}", f[0],
                         f[1], f[2], f[3], f[4], f[6], f[7], f[8], f[9], f[10]);
  return run;
}

// PyTorch's batch norm under autocast keeps its 16-bit input and statistics in f32, and a rectifier
// one tensor, so activations take about half of what they take in f32.
TEST(PlanMemory, BatchNormsUnderAutocastAreNarrow) {
  init();
  for (const char* model : {"resnet50", "densenet121"}) {
    const Job job = find_job(model, {.framework = Framework::pytorch});
    const auto activations = [&](Precision p, Framework f) {
      const Workload w =
          dry_run(job, {.batch = 32, .compiled = false, .precision = p, .framework = f});
      return w.memory.peak.of(MemoryCategory::activations);
    };
    const double wide = activations(Precision::f32, Framework::pytorch);
    for (const Precision p : {Precision::amp_f16, Precision::amp_bf16}) {
      EXPECT_LE(activations(p, Framework::pytorch), 0.6 * wide) << model << to_string(p);
      EXPECT_GT(activations(p, Framework::tandem), 0.8 * wide) << model << to_string(p);
    }
  }
}

TEST(Published, WholePeak) {
  init();
  std::istringstream in(read_file("tests/plan/memory_runs.csv", size_t{1} << 20));
  std::vector<double> errors;
  int fitted = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> f;
    std::istringstream s(line);
    for (std::string x; std::getline(s, x, ',');) f.push_back(x);
    ASSERT_EQ(f.size(), 16u) << line;
    const PublishedRun row = run_of(f);
    const PlanRequest& r = row.request;
    const Workload w = dry_run(r.job, {.batch = row.batch,
                                       .compiled = r.compiled,
                                       .precision = *r.precision,
                                       .optimizer = r.optimizer,
                                       .framework = r.framework,
                                       .attention = r.attention,
                                       .keep_gradients = r.keep_gradients || r.accumulate > 1});
    const Quantity memory = row.fitted ? memory_of(w, r, r.n, row.published) : memory_of(w, r, r.n);
    check(memory);
    double planned = memory.value;
    if (row.fitted) {
      ++fitted;
      print("{}: planned {:6.2f}, fitted into {:6.2f} GB\n", row.text, planned / 1e9,
            row.published / 1e9);
      EXPECT_LE(planned, row.published) << line;
      EXPECT_GE(planned, 0.6 * row.published) << line;  // full enough that it says something
      continue;
    }
    for (const Quantity& q : memory.parts)
      if (q.key == "memory.context" || (row.allocated && q.key == "memory.fragmentation"))
        planned -= q.value;
    errors.push_back(std::abs(planned / row.published - 1));
    print("{}: planned {:6.2f}, published {:6.2f} GB, {:+.1f} %\n", row.text, planned / 1e9,
          row.published / 1e9, 100 * (planned / row.published - 1));
    if (std::getenv("TANDEM_SHOW")) print("{}", explain(memory, 2));
  }
  print("memory of {} published runs: median error {:.1f} %, p90 {:.1f} %, most {:.1f} %\n",
        errors.size(), 100 * quantile(errors, 0.5), 100 * quantile(errors, 0.9),
        100 * quantile(errors, 1));
  EXPECT_GE(errors.size(), 20u);
  EXPECT_GE(fitted, 7);
  EXPECT_LE(quantile(errors, 0.9), 0.15);
  // All but the row of FSDP's first version. (Compilers evaluate arguments in other orders, so what
  // is alive beside what differs by half a percent.)
  EXPECT_LE(quantile(errors, 0.95), 0.16);
}

}  // namespace
}  // namespace tandem::plan
