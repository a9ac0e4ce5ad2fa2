// SPDX-License-Identifier: Apache-2.0
// LoRA adapters behind the server: texts of several adapters grow together, and each is that of the
// model into which its adapter was merged.
#include "tandem/models/adapters.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <map>
#include <set>

#include "tandem/io/json.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/serve/text_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

using AdaptedTokens = std::vector<int64_t>;

std::vector<TextAdapter> adapters_of_family(const std::string& family) {
  return {{"one", golden_path("adapters/" + family)},
          {"two", golden_path("adapters/" + family + "_other")}};
}

AdaptedTokens merged_text(const std::string& family, int64_t adapter, const AdaptedTokens& prompt,
                          int64_t n) {
  const auto model = golden_model(family);
  if (adapter > 0) {
    const std::string folder =
        adapters_of_family(family).at(static_cast<size_t>(adapter - 1)).folder;
    models::merge_adapter(*model, models::load_adapter(folder, *model));
  }
  return models::generate(*model, {prompt}, likeliest(n))[0];
}

std::future<AdaptedTokens> begin_text(TextEngine& engine, const AdaptedTokens& prompt,
                                      int64_t adapter, int64_t n) {
  auto tokens = std::make_shared<AdaptedTokens>();
  auto promise = std::make_shared<std::promise<AdaptedTokens>>();
  TextRequest r{.prompt = prompt, .options = likeliest(n), .adapter = adapter};
  r.token = [tokens](const TextToken& t) {
    tokens->push_back(t.id);
    return true;
  };
  r.done = [tokens, promise](const TextEnd& e) {
    EXPECT_EQ(e.status, 200) << e.error;
    promise->set_value(*tokens);
  };
  auto out = promise->get_future();
  engine.submit(std::move(r));
  return out;
}

TEST(AdaptedTexts, GrowTogetherAsEachAlone) {
  for (const std::string family : {"gpt2", "llama"}) {
    SCOPED_TRACE(family);
    TextEngine engine(golden_model(family), {.streams = 4,
                                             .length = 20,
                                             .block = 4,
                                             .piece = 5,
                                             .adapters = adapters_of_family(family)});
    EXPECT_EQ(engine.sizes(), (std::vector<int64_t>{1, 2, 4})) << "not decoded together";
    EXPECT_EQ(engine.adapter("two"), 2);
    EXPECT_EQ(engine.adapter("three"), 0);
    // One prompt for all, longer than a block: what they have in common is not shared.
    const AdaptedTokens prompt = {3, 4, 5, 6, 7, 8, 9, 10};
    std::set<AdaptedTokens> different;
    for (int round = 0; round < 2; ++round) {
      std::vector<std::future<AdaptedTokens>> texts;
      for (int64_t i = 0; i < 6; ++i) texts.push_back(begin_text(engine, prompt, i % 3, 9));
      for (size_t i = 0; i < texts.size(); ++i) {
        const AdaptedTokens got = texts[i].get();
        EXPECT_EQ(got, merged_text(family, static_cast<int64_t>(i) % 3, prompt, 9)) << i;
        different.insert(got);
      }
    }
    EXPECT_EQ(different.size(), 3U);
    EXPECT_GT(engine.counts().step_rows.load(), engine.counts().steps.load()) << "one by one";
    EXPECT_GT(engine.counts().shared_tokens.load(), 0U);
    TextRequest none{.prompt = prompt, .adapter = 3};
    none.done = [](const TextEnd& e) { EXPECT_EQ(e.status, 400); };
    engine.submit(std::move(none));
  }
}

// A draft model knows no adapters: it guesses for their texts, too, and changes none of them.
TEST(AdaptedTexts, WithADraftModel) {
  TextEngineOptions o{
      .streams = 3, .length = 20, .block = 4, .piece = 3, .adapters = adapters_of_family("gpt2")};
  o.draft = golden_model("gpt2");
  TextEngine engine(golden_model("gpt2"), o);
  const AdaptedTokens prompt = {3, 4, 5, 6, 7, 8, 9, 10};
  std::vector<std::future<AdaptedTokens>> texts;
  for (int64_t i = 0; i < 3; ++i) texts.push_back(begin_text(engine, prompt, i, 9));
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(texts[i].get(), merged_text("gpt2", static_cast<int64_t>(i), prompt, 9)) << i;
  EXPECT_GT(engine.counts().drafted_tokens.load(), 0U);
}

class AdaptedServer : public ::testing::Test {
 protected:
  static void put(const std::string& folder, const std::string& settings) {
    std::filesystem::create_directories(folder + "/adapters");
    std::filesystem::copy(golden_path("hf/llama"), folder);
    write_file(folder + "/tokenizer.json", word_tokenizer(32));
    write_file(folder + "/serve.yaml", settings);
    for (const TextAdapter& a : adapters_of_family("llama"))
      std::filesystem::copy(a.folder, folder + "/adapters/" + a.name);
  }
  static std::string text(const AdaptedTokens& tokens) {
    std::string out;
    for (const int64_t t : tokens) out += fmt::format(" w{}", t);
    return out;
  }
};

TEST_F(AdaptedServer, RequestsNameAModelOrAnAdapter) {
  const TempFolder t;
  put(t / "llama", "adapters: [one=adapters/one, two=adapters/two]\n");
  put(t / "other", "adapters: [two=adapters/two]\n");
  Running server({.models = t.path().string()});
  const auto ask = [&](const std::string& model) {
    return server.post("/v1/completions",
                       R"({"temperature":0,"ignore_eos":true,"prompt":"w3 w4","max_tokens":6,)"
                       R"("model":")" +
                           model + "\"}");
  };
  const std::pair<const char*, int64_t> names[] = {
      {"llama", 0}, {"one", 1}, {"llama:one", 1}, {"llama:two", 2}, {"other:two", 2}};
  for (const auto& [name, adapter] : names) {
    const HttpResponse r = ask(name);
    ASSERT_EQ(r.status, 200) << r.body;
    const io::Json j = io::parse_json(r.body);
    EXPECT_EQ(io::text_of(j.find("model")), name);
    const io::Json& choice = j.find("choices")->as_array()->at(0);
    EXPECT_EQ(io::text_of(choice.find("text")), text(merged_text("llama", adapter, {3, 4}, 6)))
        << name;
  }
  EXPECT_EQ(ask("two").status, 400);
  EXPECT_TRUE(has(ask("two").body, "several models have an adapter 'two'"));
  for (const char* unknown : {"three", "llama:three", "other:one", "none:one", "llama:", ":one"})
    EXPECT_EQ(ask(unknown).status, 404) << unknown;
  const io::Json list = io::parse_json(server.get("/v1/models").body);
  std::map<std::string, std::string> parents;
  for (const io::Json& m : *list.find("data")->as_array())
    parents.emplace(io::text_of(m.find("id")), io::text_of(m.find("parent")));
  EXPECT_EQ(parents["one"], "llama");
  EXPECT_EQ(parents["llama"], "");
  EXPECT_EQ(list.find("data")->as_array()->size(), 5U);
}

TEST_F(AdaptedServer, RefusesSettingsThatDoNotFit) {
  const TempFolder t;
  std::filesystem::create_directories(t / "outside");
  const std::pair<const char*, const char*> cases[] = {
      {"one", "expects entries as sql=adapters/sql"},
      {"a/b=adapters/one", "expects entries"},
      {"m=adapters/one", "has the model's name"},
      {"one=adapters/one, one=adapters/two", "two adapters 'one'"},
      {"one=adapters/none", "no folder 'adapters/none'"},
      {"one=../../outside", "leads out of the folder"},
      {"one=adapters", "adapter_config.json"},
  };
  for (const auto& [entries, says] : cases) {
    std::filesystem::remove_all(t / "models");
    put(t / "models/m", fmt::format("adapters: [{}]\n", entries));
    Repository repository({.folder = t / "models"});
    const std::string said = thrown([&] { repository.load("m"); });
    EXPECT_TRUE(has(said, says)) << entries << "\n" << said;
  }
  std::filesystem::remove_all(t / "models");
  put_model(t / "models/m/model.onnx", scale_model(2));
  std::filesystem::copy(golden_path("adapters/llama"), t / "models/m/one");
  write_file(t / "models/m/serve.yaml", "adapters: [one=one]\n");
  Repository repository({.folder = t / "models"});
  EXPECT_TRUE(has(thrown([&] { repository.load("m"); }), "not a language model"));
}

}  // namespace
}  // namespace tandem::serve
