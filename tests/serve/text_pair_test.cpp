// SPDX-License-Identifier: Apache-2.0
// Models with an encoder and a decoder behind the server: the encoder reads a prompt once, and
// texts that grow together are those that each would be alone, and those of the library
// `transformers`.
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/text/text_engine.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/serve/text_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

using PairTokens = std::vector<int64_t>;

const char* const kPairs[] = {"t5", "bart"};

std::vector<PairTokens> pair_prompts() {
  std::vector<PairTokens> out = {{3}, {4, 5, 6}, {7, 8, 9, 10, 11, 12}, {31, 30}, {4, 5, 7}};
  PairTokens longer;
  for (int64_t i = 0; i < 17; ++i) longer.push_back(2 + i * 5 % 29);
  out.push_back(longer);
  return out;
}

TEST(PairEngine, TextsAreThoseOfEachAlone) {
  for (const char* family : kPairs) {
    SCOPED_TRACE(family);
    const auto model = golden_model(family);
    TextEngine engine(model, {.streams = 4, .length = 18, .block = 4});
    EXPECT_TRUE(engine.answers());
    EXPECT_EQ(engine.sizes(), (PairTokens{1, 2, 4})) << "not decoded together";
    const auto prompts = pair_prompts();
    const auto got = texts_together(engine, prompts, likeliest(14));
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(got[i], models::generate(*model, {prompts[i]}, likeliest(14))[0]) << i;
      EXPECT_EQ(got[i], engine.generate(prompts[i], likeliest(14))) << i;
    }
    EXPECT_EQ(engine.counts().blocks_held.load(), 0);
  }
}

// tests/golden/hf was written by the library.
TEST(PairEngine, TextsAreThoseOfTransformers) {
  for (const char* family : kPairs) {
    SCOPED_TRACE(family);
    const StateDict c = load(golden_path(std::string("hf/") + family + "/case.safetensors"));
    const Tensor ids = c.at("input_ids"), mask = c.at("attention_mask"), want = c.at("generated");
    TextEngine engine(golden_model(family), {.streams = 4, .length = 18, .block = 4});
    std::vector<PairTokens> prompts, expected;
    for (int64_t r = 0; r < ids.size(0); ++r) {
      prompts.push_back(
          masked_select(ids.select(0, r), mask.select(0, r).to(DType::b8)).to_vector<int64_t>());
      expected.push_back(want.select(0, r).to_vector<int64_t>());
    }
    EXPECT_EQ(texts_together(engine, prompts, {.max_new_tokens = 8, .min_new_tokens = 8}),
              expected);
  }
}

TEST(PairEngine, WithoutRoomTheYoungestBeginsAnew) {
  for (const char* family : kPairs) {
    SCOPED_TRACE(family);
    const auto model = golden_model(family);
    // Room for 24 tokens in all; each text has 16 at its end.
    TextEngine engine(model, {.streams = 3, .length = 18, .cache_tokens = 24, .block = 4});
    const std::vector<PairTokens> prompts = {{3, 4, 5}, {7, 8, 9, 10}, {11, 12}};
    const auto got = texts_together(engine, prompts, likeliest(15));
    for (size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(got[i], models::generate(*model, {prompts[i]}, likeliest(15))[0]) << i;
    EXPECT_GT(engine.counts().preempted.load(), 0U);
    EXPECT_EQ(engine.counts().blocks_held.load(), 0);
  }
}

TEST(PairEngine, PromptsAndAnswersHaveTheirOwnRoom) {
  const auto model = golden_model("t5");
  TextEngine engine(model, {.streams = 2, .length = 12, .block = 4});
  EXPECT_EQ(engine.room(12), 11);
  EXPECT_LT(engine.room(13), 0);
  const PairTokens prompt(12, 5);
  EXPECT_EQ(engine.generate(prompt, likeliest(11)),
            models::generate(*model, {prompt}, likeliest(11))[0]);
  EXPECT_THROW(engine.generate(PairTokens(13, 5), likeliest(2)), Error);
  EXPECT_THROW(TextEngine(model, {.adapters = {{"a", "b"}}}), Error);
  EXPECT_THROW(TextEngine(model, {.draft_from_text = true}), Error);
}

// Blocks for the prompt alone are enough to begin; what waits behind it comes next.
TEST(PairEngine, APromptMayFillTheCache) {
  const auto model = golden_model("t5");
  TextEngine engine(model, {.streams = 1, .length = 12, .block = 4});
  EXPECT_EQ(engine.blocks(), 3);
  for (const PairTokens& prompt : {PairTokens(12, 5), PairTokens{3, 4}}) {
    PairTokens got;
    std::promise<TextEnd> end;
    TextRequest r;
    r.prompt = prompt;
    r.options = likeliest(11);
    r.timeout = 20;
    r.token = [&got](const TextToken& t) {
      got.push_back(t.id);
      return true;
    };
    r.done = [&end](const TextEnd& e) { end.set_value(e); };
    engine.submit(std::move(r));
    const TextEnd e = end.get_future().get();
    EXPECT_EQ(e.status, 200) << e.error;
    EXPECT_EQ(got, models::generate(*model, {prompt}, likeliest(11))[0]);
  }
}

TEST(PairEngine, AnswersOpenAiClients) {
  const TempFolder t;
  for (const char* family : kPairs) {
    std::filesystem::copy(golden_path(std::string("hf/") + family), t / family);
    write_file(t / (std::string(family) + "/tokenizer.json"), word_tokenizer(32));
    write_file(t / (std::string(family) + "/serve.yaml"), "length: 18\n");
  }
  Running server({.models = t.path().string()});
  for (const char* family : kPairs) {
    SCOPED_TRACE(family);
    const HttpResponse r = server.post(
        "/v1/completions", fmt::format(R"({{"model":"{}","prompt":"w3 w4 w9","temperature":0,)"
                                       R"("max_tokens":6,"ignore_eos":true}})",
                                       family));
    ASSERT_EQ(r.status, 200) << r.body;
    const auto model = golden_model(family);
    const PairTokens tokens = models::generate(*model, {{3, 4, 9}}, likeliest(6))[0];
    std::string want;
    for (const int64_t id : tokens) want += fmt::format("{}w{}", want.empty() ? "" : " ", id);
    EXPECT_NE(r.body.find("\"text\":\"" + want + "\""), std::string::npos) << r.body << want;
    const auto refusal = [&](int64_t tokens, int64_t asked) {
      std::string prompt = "w3";
      for (int64_t i = 1; i < tokens; ++i) prompt += " w3";
      const HttpResponse no = server.post(
          "/v1/completions",
          fmt::format(R"({{"model":"{}","prompt":"{}","max_tokens":{}}})", family, prompt, asked));
      EXPECT_EQ(no.status, 400) << no.body;
      return no.body;
    };
    for (const auto& [body, why] :
         {std::pair(refusal(1, 18), "an answer may have 17 tokens, and was to have 18"),
          {refusal(19, 1), "a prompt may have 18 tokens, and has 19"}})
      EXPECT_NE(body.find(why), std::string::npos) << body;
  }
}

}  // namespace
}  // namespace tandem::serve
