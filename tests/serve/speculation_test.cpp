// SPDX-License-Identifier: Apache-2.0
// Speculative decoding: the texts are those of the model alone, token by token; sampled ones have
// its distribution.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tandem/io/json.h"
#include "tandem/models/text/token_choices.h"
#include "tandem/ops/ops.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/serve/text_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

using GuessedTokens = std::vector<int64_t>;

void expect_same_texts(const std::string& family, TextEngineOptions options, bool may_be_off,
                       TextCounts& sums) {
  const std::vector<GuessedTokens> prompts = {
      {3}, {4, 5, 6}, {7, 8, 9, 10, 11, 12}, {2, 3, 4, 5, 6, 7, 8, 9}, {31, 30}, {4, 5, 7}};
  const auto model = golden_model(family);
  TextEngine engine(model, options);
  for (int round = 0; round < 2; ++round) {
    const std::vector<GuessedTokens> got = texts_together(engine, prompts, likeliest(11));
    for (size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(got[i], models::generate(*model, {prompts[i]}, likeliest(11))[0]) << i;
  }
  EXPECT_EQ(engine.counts().blocks_held.load(), 0);
  if (!may_be_off) {
    EXPECT_GT(engine.counts().drafted_tokens.load(), 0U);
  }
  sums.drafted_tokens += engine.counts().drafted_tokens.load();
  sums.accepted_tokens += engine.counts().accepted_tokens.load();
  sums.preempted += engine.counts().preempted.load();
}

TEST(Speculation, TheLikeliestTextIsTheSame) {
  for (const std::string family : {"gpt2", "llama", "qwen2", "qwen3", "gemma2", "mixtral"}) {
    SCOPED_TRACE(family);
    const bool may_be_off = family == "mixtral";  // its experts round by the number of tokens
    const TextEngineOptions plain{.streams = 4, .length = 20, .block = 4, .piece = 5};
    TextCounts itself, another, text;
    TextEngineOptions o = plain;
    // Rotary models round several tokens at once otherwise than one by one.
    o.same_bits = family == "gpt2";
    o.draft = golden_model(family);
    o.speculate = 3;
    expect_same_texts(family, o, may_be_off, itself);
    EXPECT_EQ(itself.accepted_tokens.load(), itself.drafted_tokens.load())
        << "it agrees with itself";
    o.draft = golden_model(family == "gpt2" ? "llama" : "gpt2");
    expect_same_texts(family, o, may_be_off, another);
    if (!may_be_off) {
      EXPECT_LT(another.accepted_tokens.load(), another.drafted_tokens.load());
    }
    o.draft = nullptr;
    o.draft_from_text = true;
    expect_same_texts(family, o, true, text);
  }
}

TEST(Speculation, KeepsTheTextsOfModelsWhoseWideStepsMayRoundDifferently) {
  TextEngineOptions o{.streams = 2, .length = 20, .block = 4};
  o.draft = golden_model("llama");
  TextCounts sums;
  expect_same_texts("llama", o, true, sums);
}

// Where the pool has no room, texts are guessed at less, and begin again as they would otherwise.
TEST(Speculation, WithLittleRoom) {
  TextCounts sums;
  TextEngineOptions o{.streams = 3, .length = 20, .cache_tokens = 28, .block = 4, .piece = 8};
  o.draft = golden_model("gpt2");
  expect_same_texts("gpt2", o, false, sums);
  EXPECT_GT(sums.preempted.load(), 0U);
  EXPECT_GT(sums.accepted_tokens.load(), 0U);
}

TEST(Speculation, WhatRepeatsIsGuessedFromTheText) {
  const auto model = golden_model("gpt2");
  TextEngine engine(model, {.streams = 2, .length = 20, .block = 4, .draft_from_text = true});
  models::GenerateOptions o = likeliest(12);
  o.logit_bias = {{5, 100}};
  EXPECT_EQ(engine.generate({3, 4}, o), GuessedTokens(12, 5));
  EXPECT_GT(engine.counts().accepted_tokens.load(), 4U);
  EXPECT_LT(engine.counts().steps.load(), 9U);
}

// The exact distribution of the second and of the third token after `prompt`.
std::vector<std::vector<double>> exact_distributions(models::PretrainedModel& model,
                                                     const GuessedTokens& prompt,
                                                     const models::GenerateOptions& o,
                                                     int64_t vocabulary) {
  const NoGradGuard no_grad;
  const auto after = [&](const GuessedTokens& tokens) {
    const auto n = static_cast<int64_t>(tokens.size());
    std::vector<float> logits = model.forward({.input_ids = tensor(tokens, Shape(1, n))})
                                    .select(1, n - 1)
                                    .contiguous()
                                    .to_vector<float>();
    const models::TokenChoices c =
        models::token_choices(logits, tokens, n - static_cast<int64_t>(prompt.size()), {-1}, o);
    std::vector<double> p(static_cast<size_t>(vocabulary), 0);
    for (size_t i = 0; i < c.ids.size(); ++i)
      p[static_cast<size_t>(c.ids[i])] = c.weights[i] / c.sum;
    return p;
  };
  std::vector<std::vector<double>> out(2, std::vector<double>(static_cast<size_t>(vocabulary), 0));
  const std::vector<double> first = after(prompt);
  for (int64_t a = 0; a < vocabulary; ++a) {
    if (first[static_cast<size_t>(a)] == 0) continue;
    GuessedTokens tokens = prompt;
    tokens.push_back(a);
    const std::vector<double> second = after(tokens);
    for (int64_t b = 0; b < vocabulary; ++b) {
      const double p = first[static_cast<size_t>(a)] * second[static_cast<size_t>(b)];
      if (p == 0) continue;
      out[0][static_cast<size_t>(b)] += p;
      GuessedTokens longer = tokens;
      longer.push_back(b);
      const std::vector<double> third = after(longer);
      for (size_t c = 0; c < third.size(); ++c) out[1][c] += p * third[c];
    }
  }
  return out;
}

// Cells of few expected counts are put together.
double chi_square(const std::vector<double>& wanted, const std::vector<int64_t>& seen, int64_t n,
                  int& freedom) {
  double sum = 0, rest = 0, rest_seen = 0;
  freedom = -1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double expected = wanted[i] * static_cast<double>(n), got = static_cast<double>(seen[i]);
    if (expected < 8) {
      rest += expected;
      rest_seen += got;
      continue;
    }
    sum += (got - expected) * (got - expected) / expected;
    ++freedom;
  }
  if (rest > 0) {
    sum += (rest_seen - rest) * (rest_seen - rest) / rest;
    ++freedom;
  }
  return sum;
}

TEST(Speculation, SampledTextsHaveTheModelsDistribution) {
  constexpr int64_t kTexts = 4000;
  const auto model = golden_model("gpt2"), small = golden_model("llama");
  const GuessedTokens prompt = {3, 4, 5};
  models::GenerateOptions o = likeliest(5);
  o.do_sample = true;
  o.temperature = 1.3;
  o.top_k = 24;
  o.top_p = 0.95;
  o.frequency_penalty = 0.5;
  TextEngine engine(model, {.streams = 4, .length = 20, .block = 4, .draft = small});
  std::vector<std::vector<int64_t>> seen(2, std::vector<int64_t>(32, 0));
  for (int64_t i = 0; i < kTexts; ++i) {
    o.seed = static_cast<uint64_t>(i);
    const GuessedTokens text = engine.generate(prompt, o);
    for (size_t k = 0; k < 2; ++k) ++seen[k][static_cast<size_t>(text.at(k + 1))];
  }
  const auto wanted = exact_distributions(*model, prompt, o, 32);
  const auto guessed = exact_distributions(*small, prompt, o, 32);
  for (size_t k = 0; k < 2; ++k) {
    int freedom = 0;
    const double x = chi_square(wanted[k], seen[k], kTexts, freedom);
    // The mean is `freedom`, the deviation sqrt(2 freedom): 4.5 of them are one case in 100,000.
    EXPECT_LT(x, freedom + 4.5 * std::sqrt(2.0 * freedom)) << k << " " << freedom;
    EXPECT_GT(chi_square(guessed[k], seen[k], kTexts, freedom), 10 * freedom)
        << "it could not fail";
  }
  const uint64_t drafted = engine.counts().drafted_tokens.load();
  EXPECT_GT(engine.counts().accepted_tokens.load(), drafted / 10);
  EXPECT_LT(engine.counts().accepted_tokens.load(), drafted - drafted / 10);
  o.seed = 7;
  EXPECT_EQ(engine.generate(prompt, o), engine.generate(prompt, o));
}

TEST(Speculation, Settings) {
  const TempFolder t;
  for (const char* name : {"big", "small"}) {
    std::filesystem::create_directories(t / name);
    std::filesystem::copy(golden_path(*name == 'b' ? "hf/gpt2" : "hf/llama"), t / name);
    write_file(t / (std::string(name) + "/tokenizer.json"), word_tokenizer(32));
  }
  write_file(t / "big/serve.yaml", "draft: ../small\nspeculate: 2\n");
  write_file(t / "small/serve.yaml", "draft: prompt\n");
  Running server({.models = t.path().string()});
  const GuessedTokens tokens = models::generate(*golden_model("gpt2"), {{3, 4}}, likeliest(6))[0];
  std::string text;
  for (const int64_t id : tokens) text += fmt::format(" w{}", id);
  const HttpResponse r = server.post(
      "/v1/completions",
      R"({"model":"big","temperature":0,"ignore_eos":true,"prompt":"w3 w4","max_tokens":6})");
  EXPECT_TRUE(has(r.body, io::quote_json(text))) << r.body;
  const std::string metrics = server->metrics();
  EXPECT_TRUE(has(metrics, "kind=\"drafted\"")) << metrics;
  EXPECT_FALSE(has(metrics, "tandem_tokens_total{model=\"big\",version=\"1\",kind=\"drafted\"} 0"));
  write_file(t / "big/serve.yaml", "draft: ../../\n");
  EXPECT_TRUE(has(thrown([&] { server->repository().load("big"); }), "leads out of the folder"));
  write_file(t / "big/serve.yaml", "draft: ../none\n");
  EXPECT_TRUE(has(thrown([&] { server->repository().load("big"); }), "has no folder '../none'"));
}

}  // namespace
}  // namespace tandem::serve
