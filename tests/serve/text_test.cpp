// SPDX-License-Identifier: Apache-2.0
// Language models behind the server: texts that grow together are those that each would be alone.
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <regex>

#include "tandem/io/json.h"
#include "tandem/serve/http2/client.h"
#include "tandem/serve/model/servable.h"
#include "tandem/serve/text/block_pool.h"
#include "tandem/serve/text/text_engine.h"
#include "tandem/serve/text/text_stream.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/serve/text_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

using models::GenerateOptions;
using Tokens = std::vector<int64_t>;

std::string golden(const std::string& family) { return golden_path("hf/" + family); }
std::shared_ptr<models::PretrainedModel> model_of(const std::string& family) {
  return golden_model(family);
}
GenerateOptions greedy(int64_t n) { return likeliest(n); }

/// Every byte is a token, as byte-level BPE writes it.
text::Tokenizer byte_tokenizer() {
  std::string vocab;
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool own = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const int code = own ? b : next++;
    std::string c;
    if (code < 128)
      c = static_cast<char>(code);
    else
      c = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    vocab += fmt::format("{}{}:{}", b ? "," : "", io::quote_json(c), b);
  }
  return text::Tokenizer::from_json(
      R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
      R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
      vocab + R"(},"merges":[]}})");
}

TEST(Blocks, AreHeldSharedAndUsedAnew) {
  BlockPool pool(5, 2);
  EXPECT_EQ(pool.available(), 4);
  const int64_t a = *pool.take(), b = *pool.take();
  EXPECT_NE(a, 0);
  pool.publish(0, {1, 2}, a);
  pool.publish(a, {3, 4}, b);
  EXPECT_EQ(pool.find(0, {1, 2}), a);  // held twice now
  EXPECT_EQ(pool.find(0, {1, 3}), std::nullopt);
  EXPECT_EQ(pool.find(b, {1, 2}), std::nullopt) << "the same tokens after another text";
  pool.release(a), pool.release(a), pool.release(b);
  EXPECT_EQ(pool.available(), 4);
  EXPECT_EQ(pool.find(0, {1, 2}), a) << "it is known while nobody holds it";
  EXPECT_EQ(pool.find(a, {3, 4}), b);
  pool.release(b), pool.release(a);
  // Fresh blocks first, then the one that was released first.
  const int64_t c = *pool.take(), d = *pool.take();
  EXPECT_TRUE(c != a && c != b && d != a && d != b);
  EXPECT_EQ(*pool.take(), b);
  EXPECT_EQ(pool.find(0, {1, 2}), a);
  EXPECT_EQ(pool.find(a, {3, 4}), std::nullopt);
  EXPECT_EQ(pool.take(), std::nullopt);
  // A block of the same content as a known one stays unknown, and so does what follows it.
  pool.publish(0, {1, 2}, c);
  pool.publish(c, {5, 6}, d);
  EXPECT_EQ(pool.find(c, {5, 6}), std::nullopt);
  EXPECT_THROW(BlockPool(1, 16), Error);
}

TEST(Streams, GiveWholeCharactersAndNothingOfAStop) {
  const text::Tokenizer bytes = byte_tokenizer();
  const auto run = [&](const std::string& text, std::vector<std::string> stops) {
    TextStream s(bytes, Tokens{'x'}, std::move(stops));
    std::vector<std::string> out;
    for (const char c : text)
      if (!s.stopped()) out.push_back(s.push(static_cast<unsigned char>(c)));
    out.push_back(s.finish());
    std::string all;
    for (const std::string& part : out) {
      EXPECT_TRUE(io::is_utf8(part)) << text;
      all += part;
    }
    return all;
  };
  EXPECT_EQ(run("plain", {}), "plain");
  EXPECT_EQ(run("gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80!", {}),
            "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80!");
  EXPECT_EQ(run("one END two", {"END"}), "one ");
  EXPECT_EQ(run("one EN two EN", {"END"}), "one EN two EN");
  EXPECT_EQ(run("aab", {"ab", "b"}), "a");
  EXPECT_EQ(run("Q: x\nQ: y", {"\nQ:", ""}), "Q: x");
  TextStream s(bytes, {}, {"END"});
  EXPECT_EQ(s.push('E'), "") << "it may become a stop";
  EXPECT_EQ(s.push('X'), "EX");
}

// Prompts of several lengths, all at the same time.
void expect_texts_of_each_alone(const std::shared_ptr<models::PretrainedModel>& model,
                                int64_t piece = 5) {
  TextEngine engine(model, {.streams = 4, .length = 20, .block = 4, .piece = piece});
  const bool single = model->module().parameters()[0].dtype() == DType::f32;
  if (single) {
    EXPECT_EQ(engine.sizes(), (std::vector<int64_t>{1, 2, 4})) << "not decoded together";
  }
  std::vector<Tokens> prompts = {
      {3}, {4, 5, 6}, {7, 8, 9, 10, 11, 12}, {2, 3, 4, 5, 6, 7, 8, 9}, {31, 30}, {4, 5, 7}};
  const std::vector<Tokens> got = texts_together(engine, prompts, greedy(9));
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (single) {
      EXPECT_EQ(got[i], models::generate(*model, {prompts[i]}, greedy(9))[0]) << i;
    }
    EXPECT_EQ(got[i], engine.generate(prompts[i], greedy(9))) << i;
  }
  EXPECT_EQ(engine.counts().blocks_held.load(), 0);
}

TEST(Engine, TextsAreThoseOfEachAlone) {
  for (const char* family : {"gpt2", "llama", "qwen2", "qwen3", "gemma2", "gemma3", "mixtral"}) {
    SCOPED_TRACE(family);
    expect_texts_of_each_alone(model_of(family));
    expect_texts_of_each_alone(model_of(family), 64);
  }
}

// Weights and caches in bf16; sums over keys are rounded elsewhere than generate() rounds them.
TEST(Engine, HalfPrecision) {
  for (const char* family : {"gpt2", "llama", "gemma2", "mixtral"}) {
    SCOPED_TRACE(family);
    const auto model = model_of(family);
    model->module().to(DType::bf16);
    expect_texts_of_each_alone(model);
    const Tokens all = models::generate(*model, {{4, 5, 6}}, greedy(9))[0];
    EXPECT_EQ(all.size(), 9U);
    EXPECT_EQ(model->start_paged(2, 4).layers[0].k.dtype(), DType::bf16);
  }
}

// The tensors and the texts of a folder are answered from the same weights.
TEST(Engine, WeightsAreHeldOnce) {
  const auto single = Servable::load(golden("gpt2"), {}),
             half = Servable::load(golden("gpt2"), {.dtype = DType::bf16});
  ASSERT_TRUE(half->pretrained());
  for (const Param& p : half->pretrained()->module().parameters())
    EXPECT_EQ(p.dtype(), DType::bf16);
  const std::vector<Tensor> ids = {tensor(std::vector<int64_t>{3, 4, 5, 6}, Shape(1, 4))};
  const Tensor want = single->run(0, ids, 1)[0], got = half->run(0, ids, 1)[0];
  EXPECT_EQ(got.dtype(), DType::f32);
  EXPECT_TRUE(allclose(got, want, 0.05, 0.05));
  EXPECT_FALSE(equal(got, want)) << "computed in bf16";
}

TEST(Engine, WhatTextsHaveInCommonIsReadOnce) {
  TextEngine engine(model_of("llama"), {.streams = 2, .length = 20, .block = 4, .piece = 16});
  const Tokens first = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, second = {2, 3, 4, 5, 6, 7, 8, 9, 20, 21};
  const Tokens alone = engine.generate(second, greedy(6));
  const uint64_t before = engine.counts().prompt_tokens.load();
  engine.generate(first, greedy(2));
  EXPECT_EQ(engine.counts().prompt_tokens.load() - before, 2U) << "8 of 10 tokens were known";
  EXPECT_EQ(engine.generate(second, greedy(6)), alone);
}

TEST(Engine, WithoutRoomTheYoungestBeginsAnew) {
  const auto model = model_of("llama");
  // Room for 24 tokens in all; each text has 20 at its end.
  TextEngine engine(model,
                    {.streams = 3, .length = 20, .cache_tokens = 24, .block = 4, .piece = 8});
  const std::vector<Tokens> prompts = {{3, 4, 5, 6}, {7, 8, 9, 10}, {11, 12, 13, 14}};
  const std::vector<Tokens> got = texts_together(engine, prompts, greedy(16));
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(got[i], models::generate(*model, {prompts[i]}, greedy(16))[0]) << i;
  EXPECT_GT(engine.counts().preempted.load(), 0U);
}

TEST(Engine, SamplesByItsSeedAndItsOptions) {
  const auto model = model_of("gpt2");
  TextEngine engine(model, {.streams = 4, .length = 20, .block = 4});
  GenerateOptions o = greedy(12);
  o.do_sample = true;
  o.seed = 7;
  o.temperature = 1.5;
  const Tokens first = engine.generate({3, 4}, o);
  EXPECT_EQ(engine.generate({3, 4}, o), first);
  EXPECT_EQ(models::generate(*model, {{3, 4}}, o)[0], first);
  o.seed = 8;
  EXPECT_NE(engine.generate({3, 4}, o), first);
  GenerateOptions banned = greedy(5);
  const Tokens plain = engine.generate({3, 4}, banned);
  banned.logit_bias = {{plain[0], -100}};
  EXPECT_NE(engine.generate({3, 4}, banned)[0], plain[0]);
  GenerateOptions fresh = greedy(12);
  fresh.frequency_penalty = 50;
  const Tokens all = engine.generate({3, 4}, fresh);
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), all.size()) << "none comes twice";
}

TEST(Engine, RefusesAndCancels) {
  TextEngine engine(model_of("gpt2"), {.streams = 1, .length = 20, .block = 4, .queue = 1});
  const auto end_of = [&](TextRequest r) {
    std::mutex lock;
    std::condition_variable ready;
    std::optional<TextEnd> end;
    r.done = [&](const TextEnd& e) {
      const std::lock_guard hold(lock);
      end = e;
      ready.notify_one();
    };
    engine.submit(std::move(r));
    std::unique_lock hold(lock);
    ready.wait(hold, [&] { return end.has_value(); });
    return *end;
  };
  EXPECT_EQ(end_of({.prompt = {}}).status, 400);
  EXPECT_EQ(end_of({.prompt = {32}}).status, 400);
  EXPECT_EQ(end_of({.prompt = Tokens(20, 3)}).status, 400);
  EXPECT_EQ(end_of({.prompt = {3}, .options = {.temperature = -1}}).status, 400);
  EXPECT_EQ(end_of({.prompt = {3}, .options = {.max_new_tokens = 0}}).status, 200);
  EXPECT_EQ(end_of({.prompt = {3}, .options = greedy(5), .gone = [] { return true; }}).status, 499);
  const TextEnd cut = end_of({.prompt = {3}, .options = greedy(100)});
  EXPECT_EQ(cut.status, 200);
  EXPECT_EQ(cut.fresh, 19);
  EXPECT_FALSE(cut.stopped);
  int seen = 0;
  const TextEnd stopped = end_of(
      {.prompt = {3}, .options = greedy(9), .token = [&](const TextToken&) { return ++seen < 3; }});
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.fresh, 3);
  EXPECT_THROW(TextEngine(model_of("bert")), Error);
  EXPECT_EQ(engine.counts().blocks_held.load(), 0);
}

/// The characters of JSON with a few others, in a vocabulary of 32; token 1 ends a text.
std::string json_tokenizer() {
  std::string vocab;
  int id = 0;
  for (const char c : std::string_view("0* 123456789{}[]:,-\"abcdeflnrstu")) {
    if (id != 1)
      vocab += fmt::format("{}{}:{}", id ? "," : "", io::quote_json(std::string(1, c)), id);
    ++id;
  }
  return R"({"decoder":{"type":"ByteLevel"},"added_tokens":[{"id":1,"content":"<end>",)"
         R"("special":true}],"model":{"type":"BPE","vocab":{)" +
         vocab + R"(},"merges":[]}})";
}

class OpenAi : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    for (const char* family : {"gpt2", "llama"}) {
      std::filesystem::copy(golden(family), *folder_ / family,
                            std::filesystem::copy_options::recursive);
      write_file(*folder_ / (std::string(family) + "/tokenizer.json"), word_tokenizer(32));
    }
    write_file(*folder_ / "llama/chat_template.jinja",
               "{% for m in messages %}{{ 'w5 ' if m.role == 'user' else 'w6 ' }}{{ m.content }} "
               "{% endfor %}{% if add_generation_prompt %}w7{% endif %}");
    put_model(*folder_ / "scale.onnx", scale_model(2));
    // The same with room for texts that take a while.
    std::filesystem::copy(*folder_ / "llama", *folder_ / "long");
    std::string config = read_file(*folder_ / "llama/config.json");
    const std::string key = "\"max_position_embeddings\": ";
    const size_t at = config.find(key) + key.size();
    config.replace(at, config.find_first_of(",\n", at) - at, "8192");
    write_file(*folder_ / "long/config.json", config);
    write_file(*folder_ / "long/serve.yaml", "length: 8192\nstreams: 1\n");
    std::filesystem::copy(*folder_ / "long", *folder_ / "json");
    write_file(*folder_ / "json/tokenizer.json", json_tokenizer());
    write_file(*folder_ / "json/chat_template.jinja", "{{ messages[0].content }}");
    write_file(*folder_ / "json/serve.yaml", "length: 600\nstreams: 4\n");
    server_ = new Running({.models = folder_->path().string()});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  static io::Json json(const HttpResponse& r) { return io::parse_json(r.body); }
  static const io::Json& at(const io::Json& j, const std::string& key) {
    const io::Json* found = j.find(key);
    EXPECT_TRUE(found) << key << " of " << j.dump();
    static const io::Json none;
    return found ? *found : none;
  }
  static const io::Json& choice(const io::Json& j, size_t i = 0) {
    return at(j, "choices").as_array()->at(i);
  }
  static HttpResponse complete(const std::string& fields) {
    return server_->post("/v1/completions",
                         R"({"model":"gpt2","temperature":0,"ignore_eos":true,)" + fields + "}");
  }
  /// The events of a stream, without the last.
  static std::vector<io::Json> events(const HttpResponse& r) {
    std::vector<io::Json> out;
    EXPECT_TRUE(r.content_type.starts_with("text/event-stream")) << r.body;
    EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n")) << r.body;
    for (size_t from = 0; from < r.body.size();) {
      const size_t end = r.body.find("\n\n", from);
      const std::string line = r.body.substr(from, end - from);
      EXPECT_TRUE(line.starts_with("data: ")) << line;
      if (line != "data: [DONE]") out.push_back(io::parse_json(line.substr(6)));
      from = end + 2;
    }
    return out;
  }
  static inline TempFolder* folder_;
  static inline Running* server_;
};

TEST_F(OpenAi, Completions) {
  const auto model = model_of("gpt2");
  const Tokens tokens = models::generate(*model, {{3, 4}}, greedy(6))[0];
  std::string text;
  for (const int64_t t : tokens) text += fmt::format(" w{}", t);
  const HttpResponse r = complete(R"("prompt":"w3 w4","max_tokens":6,"logprobs":2)");
  ASSERT_EQ(r.status, 200) << r.body;
  const io::Json j = json(r);
  EXPECT_EQ(*at(j, "object").as_string(), "text_completion");
  EXPECT_EQ(*at(choice(j), "text").as_string(), text);
  EXPECT_EQ(*at(choice(j), "finish_reason").as_string(), "length");
  EXPECT_EQ(*at(at(j, "usage"), "prompt_tokens").as_int(), 2);
  EXPECT_EQ(*at(at(j, "usage"), "completion_tokens").as_int(), 6);
  const io::Json& p = at(choice(j), "logprobs");
  EXPECT_EQ(at(p, "tokens").as_array()->size(), 6U);
  EXPECT_EQ(at(p, "top_logprobs").as_array()->at(0).as_object()->size(), 2U);
  EXPECT_LT(io::number_of(&at(p, "token_logprobs").as_array()->at(0)), 0);
  const io::Json::Array& offsets = *at(p, "text_offset").as_array();
  size_t begins = 0;
  for (size_t k = 0; k < 6; ++k) {
    EXPECT_EQ(*offsets.at(k).as_int(), static_cast<int64_t>(begins));
    begins += fmt::format(" w{}", tokens[k]).size();
  }

  // The same as tokens, repeated, several at once, and in parts.
  EXPECT_EQ(*at(choice(json(complete(R"("prompt":[3,4],"max_tokens":6)"))), "text").as_string(),
            text);
  EXPECT_EQ(*at(choice(json(complete(R"("prompt":"w3 w4","max_tokens":6,"echo":true)"))), "text")
                 .as_string(),
            "w3 w4" + text);
  const io::Json many = json(complete(R"("prompt":["w3 w4",[9]],"n":2,"max_tokens":6)"));
  EXPECT_EQ(at(many, "choices").as_array()->size(), 4U);
  EXPECT_EQ(*at(choice(many, 1), "text").as_string(), text);
  const HttpResponse streamed = complete(
      R"("prompt":"w3 w4","max_tokens":6,"stream":true,"stream_options":{"include_usage":true})");
  ASSERT_EQ(streamed.status, 200) << streamed.body;
  std::string parts, reason;
  const std::vector<io::Json> all = events(streamed);
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    parts += *at(choice(all[i]), "text").as_string();
    if (const std::string* why = at(choice(all[i]), "finish_reason").as_string()) reason = *why;
  }
  EXPECT_EQ(parts, text);
  EXPECT_EQ(reason, "length");
  EXPECT_EQ(*at(at(all.back(), "usage"), "total_tokens").as_int(), 8);
  EXPECT_GE(all.size(), 6U) << "it comes in parts";

  const std::string third = fmt::format("w{}", tokens[2]);
  const io::Json stopped =
      json(complete(fmt::format(R"("prompt":"w3 w4","max_tokens":6,"stop":["{}"])", third)));
  EXPECT_EQ(*at(choice(stopped), "finish_reason").as_string(), "stop");
  EXPECT_EQ(at(choice(stopped), "text").as_string()->find(third), std::string::npos);
}

TEST_F(OpenAi, Chat) {
  const std::string messages =
      R"("messages":[{"role":"user","content":"w3 w4"},{"role":"assistant","content":"w9"}])";
  const HttpResponse r = server_->post(
      "/v1/chat/completions",
      R"({"model":"llama","temperature":0,"max_tokens":5,"logprobs":true,"top_logprobs":3,)" +
          messages + "}");
  ASSERT_EQ(r.status, 200) << r.body;
  const io::Json j = json(r);
  const Tokens prompt = {5, 3, 4, 6, 9, 7};
  const Tokens tokens = models::generate(*model_of("llama"), {prompt}, {.max_new_tokens = 5})[0];
  EXPECT_EQ(*at(at(j, "usage"), "prompt_tokens").as_int(), 6);
  EXPECT_EQ(*at(at(j, "usage"), "completion_tokens").as_int(), static_cast<int64_t>(tokens.size()));
  EXPECT_EQ(*at(at(choice(j), "message"), "role").as_string(), "assistant");
  const io::Json& content = at(at(choice(j), "logprobs"), "content");
  ASSERT_FALSE(content.as_array()->empty());
  EXPECT_EQ(at(content.as_array()->at(0), "top_logprobs").as_array()->size(), 3U);
  EXPECT_EQ(*at(content.as_array()->at(0), "token").as_string(), fmt::format("w{}", tokens[0]));
  const HttpResponse streamed = server_->post(
      "/v1/chat/completions",
      R"({"model":"llama","temperature":0,"max_tokens":5,"stream":true,)" + messages + "}");
  std::string parts;
  const std::vector<io::Json> all = events(streamed);
  EXPECT_EQ(*at(at(choice(all[0]), "delta"), "role").as_string(), "assistant");
  for (const io::Json& e : all)
    if (const io::Json* c = at(choice(e), "delta").find("content")) parts += *c->as_string();
  EXPECT_EQ(parts, *at(at(choice(j), "message"), "content").as_string());
  const HttpResponse in_parts = server_->post(
      "/v1/chat/completions",
      R"({"model":"llama","temperature":0,"max_tokens":5,"messages":[{"role":"user","content":)"
      R"([{"type":"text","text":"w3 "},{"type":"text","text":"w4"}]},)"
      R"({"role":"assistant","content":"w9"}]})");
  EXPECT_EQ(*at(at(choice(json(in_parts)), "message"), "content").as_string(), parts);
}

TEST_F(OpenAi, ListsModelsAndRefuses) {
  const io::Json list = json(server_->get("/v1/models"));
  EXPECT_EQ(at(list, "data").as_array()->size(), 4U) << "an ONNX file continues no texts";
  struct Case {
    const char *path, *body;
    int status;
    const char* text;
  };
  const Case cases[] = {
      {"completions", "", 400, "JSON"},
      {"completions", "[]", 400, "object"},
      {"completions", "{}", 400, "'model' is missing"},
      {"completions", R"({"model":"none","prompt":"w3"})", 404, "no model 'none'"},
      {"completions", R"({"model":"scale","prompt":"w3"})", 400, "does not continue texts"},
      {"completions", R"({"model":"gpt2"})", 400, "'prompt' is missing"},
      {"completions", R"({"model":"gpt2","prompt":[]})", 400, "prompt"},
      {"completions", R"({"model":"gpt2","prompt":[1.5]})", 400, "prompt"},
      {"completions", R"({"model":"gpt2","prompt":[99]})", 400, "vocabulary of 32"},
      {"completions", R"({"model":"gpt2","prompt":"w3","max_tokens":99})", 400, "20 tokens"},
      {"completions", R"({"model":"gpt2","prompt":"w3","n":1000000})", 400, "'n'"},
      {"completions", R"({"model":"gpt2","prompt":"w3","temperature":"hot"})", 400, "temperature"},
      {"completions", R"({"model":"gpt2","prompt":"w3","priority":-1})", 400, "priority"},
      {"completions", R"({"model":"gpt2","prompt":"w3","top_p":7})", 400, "'top_p'"},
      {"completions", R"({"model":"gpt2","prompt":"w3","logit_bias":{"99":1}})", 400, "logit_bias"},
      {"completions", R"({"model":"gpt2","prompt":"w3","temprature":1})", 400, "'temprature'"},
      {"completions", R"({"model":"gpt2","prompt":"w3","best_of":3})", 400, "best_of"},
      {"chat/completions", R"({"model":"gpt2","messages":[{"role":"user","content":"w3"}]})", 400,
       "no chat template"},
      {"chat/completions", R"({"model":"llama","messages":[]})", 400, "messages"},
      {"chat/completions", R"({"model":"llama","messages":[1]})", 400, "objects with a role"},
      {"chat/completions", R"({"model":"llama","messages":[{"content":"w3"}]})", 400,
       "needs a role"},
      {"chat/completions", R"({"model":"llama","messages":[{"role":"user"}]})", 400,
       "needs content"},
      {"chat/completions", R"({"model":"llama","messages":[{"role":"user","content":5}]})", 400,
       "is a text or a list of parts, got 5"},
      {"completions", R"({"model":"llama","prompt":"w3","max_tokens":2,"min_tokens":4})", 400,
       "'min_tokens' is 4, more than the 2"},
      {"chat/completions",
       R"({"model":"llama","messages":[{"role":"user","content":[{"type":"image_url"}]}]})", 400,
       "not text"},
      {"chat/completions",
       R"({"model":"llama","messages":[{"role":"user","content":""}],"tools":[1]})", 400,
       "'tools'"},
  };
  for (const Case& c : cases) {
    const HttpResponse r = server_->post(std::string("/v1/") + c.path, c.body);
    EXPECT_EQ(r.status, c.status) << c.body << "\n" << r.body;
    EXPECT_NE(r.body.find(c.text), std::string::npos) << c.body << "\n" << r.body;
    EXPECT_TRUE(at(json(r), "error").find("message")) << r.body;
  }
  EXPECT_EQ(server_->get("/v1/completions").status, 405);
  EXPECT_EQ(complete(R"("prompt":"w3","max_tokens":2)").status, 200);
}

// Answers of random weights, held to what is asked for: each is complete and valid.
TEST_F(OpenAi, ConstrainedAnswers) {
  const auto ask = [](const std::string& fields, int seed, bool chat) {
    return server_->post(
        chat ? "/v1/chat/completions" : "/v1/completions",
        fmt::format(R"({{"model":"json","seed":{},"temperature":1.5,"max_tokens":500,)"
                    R"("top_k":0,{},{}}})",
                    seed, fields,
                    chat ? R"("messages":[{"role":"user","content":"ab"}])" : R"("prompt":"ab")"));
  };
  const auto text_of = [](const HttpResponse& r, bool chat) {
    EXPECT_EQ(r.status, 200) << r.body;
    const io::Json j = json(r);
    EXPECT_EQ(*at(choice(j), "finish_reason").as_string(), "stop") << r.body;
    return chat ? *at(at(choice(j), "message"), "content").as_string()
                : *at(choice(j), "text").as_string();
  };
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer","minimum":3,"maximum":120},"b":)"
      R"({"type":"array","items":{"enum":["red","blue",null]},"maxItems":3},"c":)"
      R"({"type":"string","maxLength":5}},"required":["a","b"],"additionalProperties":false})";
  const std::string forms[] = {
      R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" + schema +
          "}}",
      R"("guided_json":)" + schema, R"("structured_outputs":{"json":)" + schema + "}"};
  std::set<std::string> all;
  for (int seed = 0; seed < 24; ++seed) {
    const bool chat = seed % 2 == 0;
    const std::string text = text_of(ask(forms[seed % 3], seed, chat), chat);
    const io::Json j = io::parse_json(text);
    const int64_t a = *at(j, "a").as_int();
    EXPECT_TRUE(a >= 3 && a <= 120) << text;
    ASSERT_TRUE(at(j, "b").as_array()) << text;
    EXPECT_LE(at(j, "b").as_array()->size(), 3U);
    for (const auto& [name, value] : *j.as_object())
      EXPECT_TRUE(name == "a" || name == "b" || name == "c") << text;
    all.insert(text);
  }
  EXPECT_GT(all.size(), 12U) << "the weights still choose";
  for (int seed = 0; seed < 6; ++seed) {
    const std::string one =
        text_of(ask(R"("guided_choice":["red","reduce","blue"])", seed, false), false);
    EXPECT_TRUE(one == "red" || one == "reduce" || one == "blue") << one;
    const std::string date =
        text_of(ask(R"x("guided_regex":"[12][0-9]{3}-(0[1-9]|1[0-2])")x", seed, true), true);
    EXPECT_EQ(date.size(), 7U);
    EXPECT_EQ(date[4], '-');
    const std::string word = text_of(
        ask(R"x("grammar":"root ::= \"-\" ab \"-\"\nab ::= [ab]{2,4}")x", seed, true), true);
    EXPECT_TRUE(std::regex_match(word, std::regex("-[ab]{2,4}-"))) << word;
  }
  // The same answer in parts, and without the token that ends a text.
  const std::string fields = R"("response_format":{"type":"json_object"},"ignore_eos":true,)"
                             R"("logit_bias":{"13":8,"19":8})";
  const HttpResponse whole = ask(fields, 3, false),
                     parts = ask(fields + R"(,"stream":true)", 3, false);
  std::string joined;
  for (const io::Json& e : events(parts)) joined += *at(choice(e), "text").as_string();
  EXPECT_EQ(joined, text_of(whole, false));
  EXPECT_TRUE(io::parse_json(joined).as_object()) << joined;

  const std::pair<const char*, const char*> refused[] = {
      {R"("guided_json":{"type":"array","uniqueItems":true})", "'uniqueItems' is not supported"},
      {R"("guided_json":"{")", "guided_json"},
      {R"("guided_regex":"(")", "'guided_regex': the regular expression, byte 1"},
      {R"("guided_regex":5)", "'guided_regex' expects a regular expression, got integer"},
      {R"("guided_choice":[])", "'guided_choice' expects a list of texts"},
      {R"("guided_choice":["a"],"guided_regex":"a")", "one is supported"},
      {R"("guided_grammar":"root ::= x")", "'guided_grammar': the grammar has no rule 'x'"},
      {R"("structured_outputs":{"grammar":"x"})", "after the name of a rule comes '::='"},
      {R"("grammar":["root ::= a"])", "'grammar' expects the rules of a grammar, got array"},
      {R"("grammar":"root ::= root","guided_regex":"a")", "hold the answer to two things"},
      {R"("response_format":{"type":"xml"})", "got 'xml'"},
      {R"("response_format":{"type":"json_schema"})", "expects a 'json_schema'"},
      {R"("guided_choice":["xyz"])", "no token of the model continues"}};
  for (const auto& [fields_of, want] : refused) {
    const HttpResponse r = ask(fields_of, 1, false);
    EXPECT_EQ(r.status, 400) << r.body;
    EXPECT_NE(r.body.find(want), std::string::npos) << fields_of << "\n" << r.body;
  }
}

TEST_F(OpenAi, StreamsOverHttp2) {
  if (!Http2Frames::available()) GTEST_SKIP() << "built without libnghttp2";
  Http2Client client("127.0.0.1", (*server_)->port());
  const std::string body =
      R"({"model":"gpt2","temperature":0,"ignore_eos":true,"prompt":"w3 w4","max_tokens":6)";
  const HttpResponse whole = client.request("POST", "/v1/completions", body + "}", {});
  const HttpResponse parts =
      client.request("POST", "/v1/completions", body + R"(,"stream":true})", {});
  std::string text;
  for (const io::Json& e : events(parts)) text += *at(choice(e), "text").as_string();
  EXPECT_EQ(text, *at(choice(json(whole)), "text").as_string());
}

TEST_F(OpenAi, AClientThatLeavesStopsItsText) {
  TextCounts& counts = (*server_)->repository().find("long")->text->engine.counts();
  {
    const auto client = server_->client();
    client->send(request_text(
        "POST", "/v1/completions", "h",
        R"({"model":"long","prompt":"w3","max_tokens":8000,"stream":true,"ignore_eos":true})", {}));
    for (int i = 0; i < 500 && counts.new_tokens.load() < 3; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (int i = 0; i < 500 && counts.cancelled.load() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(counts.cancelled.load(), 1U);
  EXPECT_LT(counts.new_tokens.load(), 8000U);
}

}  // namespace
}  // namespace tandem::serve
