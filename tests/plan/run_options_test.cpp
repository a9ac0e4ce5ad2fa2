// SPDX-License-Identifier: Apache-2.0
// What a plan is told of the run that it stands for: whose training step, how attention is carried
// out, what is recomputed, whether gradients stay.
#include "tandem/ops/nn/attention_form.h"
#include "tandem/plan/jobs.h"
#include "tandem/plan/memory/caching_allocator_internal.h"
#include "tandem/plan/plan.h"
#include "tandem/tandem.h"
#include "tests/plan/plan_helper.h"

namespace tandem::plan {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(CachingAllocator, KeepsItsSegments) {
  CachingAllocator a;
  a.take(0, 1);  // a small one: a segment of 2 MiB
  EXPECT_EQ(a.reserved(), 2 * kMiB);
  a.take(1, kMiB);  // from the rest of it
  EXPECT_EQ(a.reserved(), 2 * kMiB);
  a.take(2, kMiB + 1);  // 20 MiB
  EXPECT_EQ(a.reserved(), 22 * kMiB);
  a.take(3, 11 * kMiB);  // the rest of that
  EXPECT_EQ(a.reserved(), 22 * kMiB);
  a.take(4, 31 * kMiB);  // its own, in steps of 2 MiB
  EXPECT_EQ(a.reserved(), 54 * kMiB);
  a.give_back(4);
  a.take(5, 30 * kMiB);  // the rest is 2 MiB: split off
  a.take(6, 2 * kMiB);
  EXPECT_EQ(a.reserved(), 54 * kMiB);
}

TEST(CachingAllocator, FreeNeighboursGrowTogether) {
  CachingAllocator a;
  for (int32_t k = 0; k < 4; ++k) a.take(k, 5 * kMiB);  // one segment
  EXPECT_EQ(a.reserved(), 20 * kMiB);
  for (int32_t k : {0, 2, 1}) a.give_back(k);
  a.take(9, 15 * kMiB);
  EXPECT_EQ(a.reserved(), 20 * kMiB);
  // What is free and not connected does not help.
  a.give_back(9);
  for (int32_t k = 10; k < 13; ++k) a.take(k, 5 * kMiB);
  a.give_back(10);
  a.give_back(12);
  a.take(20, 9 * kMiB);
  EXPECT_EQ(a.reserved(), 40 * kMiB);
}

// On a full card only what is wholly free is given back, and only when more is wanted.
TEST(CachingAllocator, GivesBackFreeSegmentsOnAFullCard) {
  for (const bool tight : {false, true}) {
    CachingAllocator a(tight);
    a.take(0, 30 * kMiB);
    a.give_back(0);
    a.take(1, 40 * kMiB);
    EXPECT_EQ(a.reserved(), (tight ? 40 : 70) * kMiB);
    a.take(2, 12 * kMiB);  // beside it
    EXPECT_EQ(a.reserved(), (tight ? 52 : 70) * kMiB);
    a.give_back(1);
    a.take(3, 10 * kMiB);  // a part of the first segment, which then is not wholly free
    a.take(4, 50 * kMiB);
    EXPECT_EQ(a.reserved(), (tight ? 102 : 120) * kMiB);
  }
}

Job small_bert(const JobOptions& o = {}) {
  return job_of_config(
      R"({"model_type":"bert","architectures":["BertForMaskedLM"],"hidden_size":128,
          "intermediate_size":256,"num_hidden_layers":4,"num_attention_heads":4,"vocab_size":1000,
          "attention_probs_dropout_prob":0.1})",
      "bert", o);
}

double activations(AttentionForm form, Framework framework = Framework::tandem) {
  const Job job = small_bert({.sequence = 256, .framework = framework});
  return dry_run(job, {.batch = 4, .compiled = false, .framework = framework, .attention = form})
      .memory.peak.of(MemoryCategory::activations);
}

TEST(RunOptions, ComposedAttentionKeepsItsWeights) {
  init();
  const double usual = activations(AttentionForm::usual);
  EXPECT_EQ(activations(AttentionForm::fused), usual);  // this model drops nothing by itself
  // Of four layers at the least: softmax, what is left of it, and a byte each for the mask.
  const double weights = 4.0 * 4 * 256 * 256;
  EXPECT_GE(activations(AttentionForm::composed) - usual, 4 * 9 * weights);
  // A kernel that drops inside is for dry runs.
  const Tensor q = ones({1, 1, 2, 2});
  AttentionFormGuard fused(AttentionForm::fused);
  EXPECT_ERROR(Unsupported, "no fused kernel supports dropout",
               scaled_dot_product_attention(q, q, q, {}, 0.5));
}

TEST(RunOptions, ComposedAttentionIsTheSameAttention) {
  init();
  manual_seed(3);
  const Tensor q = randn({2, 4, 5, 8}), k = randn({2, 2, 7, 8}), v = randn({2, 2, 7, 8});
  const auto attend = [&] { return scaled_dot_product_attention(q, k, v, {}, 0, false, 0, true); };
  const Tensor want = attend();
  AttentionFormGuard composed(AttentionForm::composed);
  EXPECT_LT((attend() - want).abs().amax().item<float>(), 1e-5);
}

// PyTorch's loss keeps the logarithms, and the gradients by both are there at once.
TEST(RunOptions, TheLossOfPyTorchTakesMore) {
  init();
  const double logits = 4.0 * 256 * 1000 * 4;
  EXPECT_GE(activations(AttentionForm::usual, Framework::pytorch),
            activations(AttentionForm::usual) + 0.9 * logits);
  const Workload w = dry_run(small_bert({.framework = Framework::pytorch}),
                             {.batch = 4, .compiled = false, .framework = Framework::pytorch});
  EXPECT_GE(w.reserved, w.memory.peak.total());
  EXPECT_LE(w.reserved, 1.5 * w.memory.peak.total());
}

TEST(RunOptions, WhatIsKeptStandsBetweenAllAndNothing) {
  init();
  PlanRequest r;
  r.job = find_job("llama:7b", {.sequence = 2048});
  r.sharding = 3;
  for (const bool compiled : {false, true}) {
    const Workload w =
        dry_run(r.job, {.batch = 2, .compiled = compiled, .precision = Precision::mixed_bf16});
    // Seven matmuls and attention of a block; the first, third, fifth and seventh in parallel.
    const double width = 4096, inner = 11008, tokens = 2 * 2048, layers = 32;
    EXPECT_DOUBLE_EQ(w.matmuls.bytes, layers * tokens * 2 * (6 * width + 2 * inner));
    EXPECT_DOUBLE_EQ(w.half_matmuls.bytes, layers * tokens * 2 * (4 * width + inner));
    double last = 0;
    r.recompute = true;
    for (const Kept kept : {Kept::boundaries, Kept::half_matmuls, Kept::matmuls}) {
      r.kept = kept;
      const double now = memory_of(w, r, 64).value;
      EXPECT_GT(now, last);
      last = now;
    }
    r.recompute = false;
    EXPECT_GT(memory_of(w, r, 64).value, last);
  }
}

// Between the blocks of a vision transformer go patches, not images.
TEST(RunOptions, BoundariesOfImages) {
  init();
  const Workload w = dry_run(find_job("vit:base"), {.batch = 8, .compiled = false});
  EXPECT_DOUBLE_EQ(w.boundary_bytes, 8.0 * (14 * 14 + 1) * 768 * 4);
}

TEST(RunOptions, GradientsThatStay) {
  init();
  PlanRequest r;
  r.job = small_bert({.sequence = 256});
  const Workload w = dry_run(r.job, {.batch = 16, .compiled = false});
  const double before = memory_of(w, r, 1).value;
  r.keep_gradients = true;
  EXPECT_GT(memory_of(w, r, 1).value, before);
}

TEST(RunOptions, NamesAndTheNearestOnes) {
  EXPECT_ERROR(Value, "pytorch", framework_of("pytroch"));
  EXPECT_ERROR(Value, "composed", attention_form_of("compose"));
  EXPECT_ERROR(Value, "selective", kept_of("selectiv"));
  for (const char* name : {"tandem", "pytorch"}) EXPECT_STREQ(to_string(framework_of(name)), name);
  for (const char* name : {"auto", "fused", "composed"})
    EXPECT_STREQ(to_string(attention_form_of(name)), name);
  for (const char* name : {"full", "selective", "matmuls"})
    EXPECT_STREQ(to_string(kept_of(name)), name);
}

TEST(RunOptions, ThePlanSaysThem) {
  init();
  PlanRequest r = request("gpt2:124m", "a100");
  r.compiled = false;
  r.framework = Framework::pytorch;
  r.attention = AttentionForm::composed;
  r.recompute = true;
  r.kept = Kept::half_matmuls;
  const Plan p = make_plan(r, Catalog::built_in());
  const io::Json json = to_json(p);
  EXPECT_EQ(*json.find("framework")->as_string(), "pytorch");
  EXPECT_EQ(*json.find("attention")->as_string(), "composed");
  EXPECT_EQ(*json.find("recompute")->as_string(), "selective");
  EXPECT_NE(to_text(p).find(", as in PyTorch, composed attention, recomputing (selective)"),
            std::string::npos);
  EXPECT_GT(p.at("memory.activations.matmuls").value, 0);
}

}  // namespace
}  // namespace tandem::plan
