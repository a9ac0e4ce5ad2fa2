// SPDX-License-Identifier: Apache-2.0
// Tokenizers against tests/golden/tokenizers.json, made by the library `tokenizers`
// (tests/peers/tokenizers --golden): ids, offsets, pairs and decoded texts of every kind. Then
// truncation, padding, added tokens, threads, and invalid texts.
#include "tandem/text/tokenizer.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <regex.h>

#include <cstdlib>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/io/json.h"

namespace tandem::text {
namespace {

const io::Json& golden() {
  static const io::Json json = [] {
    const char* root = std::getenv("TANDEM_SOURCE_DIR");
    return io::parse_json(
        read_file(std::string(root ? root : ".") + "/tests/golden/tokenizers.json"), "golden");
  }();
  return json;
}
std::vector<int64_t> integers(const io::Json& json) {
  std::vector<int64_t> v;
  for (const io::Json& x : *json.as_array()) v.push_back(*x.as_int());
  return v;
}
Tokenizer tokenizer_of(const char* kind) {
  return Tokenizer::from_json(golden().find(kind)->find("tokenizer")->dump(), kind);
}

// Oniguruma has functions of these names with different structures behind them.
TEST(Tokenizer, LeavesTheRegularExpressionsOfPosixAlone) {
  tokenizer_of("gpt2").encode("loads Oniguruma");
  for (void* f : {reinterpret_cast<void*>(&regcomp), reinterpret_cast<void*>(&regexec)}) {
    Dl_info loc{};
    ASSERT_NE(dladdr(f, &loc), 0);
    EXPECT_EQ(std::string(loc.dli_fname).find("onig"), std::string::npos) << loc.dli_fname;
  }
  regex_t digits;
  ASSERT_EQ(regcomp(&digits, "^[0-9]+$", REG_EXTENDED | REG_NOSUB), 0);
  EXPECT_EQ(regexec(&digits, "1914", 0, nullptr, 0), 0);
  EXPECT_EQ(regexec(&digits, "onnx", 0, nullptr, 0), REG_NOMATCH);
  regfree(&digits);
}

TEST(Tokenizer, EveryKindGivesTheGoldenTokens) {
  ASSERT_GE(golden().as_object()->size(), 13U);
  for (const auto& [kind, entry] : *golden().as_object()) {
    SCOPED_TRACE(kind);
    const Tokenizer t = tokenizer_of(kind.c_str());
    for (const io::Json& c : *entry.find("cases")->as_array()) {
      const io::Json::Array& parts = *c.as_array();
      const std::string& text = *parts[0].as_string();
      const Encoding e = t.encode(text);
      EXPECT_EQ(e.ids, integers(parts[1])) << io::quote_json(text);
      std::vector<int64_t> offsets;
      for (const auto& o : e.offsets) {
        offsets.push_back(o.begin);
        offsets.push_back(o.end);
      }
      EXPECT_EQ(offsets, integers(parts[2])) << io::quote_json(text);
      EXPECT_EQ(t.decode(e.ids), *parts[3].as_string()) << io::quote_json(text);
    }
    const Encoding pair = t.encode_pair("Hello, world!", "again");
    EXPECT_EQ(pair.ids, integers((*entry.find("pair")->as_array())[0]));
    EXPECT_EQ(pair.type_ids, integers((*entry.find("pair")->as_array())[1]));
  }
}

TEST(Tokenizer, BatchesPadAndCut) {
  const Tokenizer plain = tokenizer_of("bert");
  const std::vector<std::string> texts = {"to be", "or not to be, that is the question", ""};
  const Tokenizer t = plain.with_truncation(Truncation{.max_length = 6})
                          .with_padding(Padding{.multiple_of = 4, .id = 9, .type_id = 1});
  const std::vector<Encoding> v = t.encode_batch(texts);
  ASSERT_EQ(v.size(), 3U);
  for (size_t i = 0; i < v.size(); ++i) {
    EXPECT_EQ(v[i].size(), 8U);
    Encoding alone = plain.with_truncation(t.truncation()).encode(texts[i]);
    EXPECT_LE(alone.size(), 6U);
    EXPECT_EQ(alone.ids.front(), 2);
    EXPECT_EQ(alone.ids.back(), 3);
    for (size_t k = 0; k < 8; ++k) {
      EXPECT_EQ(v[i].ids[k], k < alone.size() ? alone.ids[k] : 9);
      EXPECT_EQ(v[i].attention_mask[k], k < alone.size());
      EXPECT_EQ(v[i].type_ids[k], k < alone.size() ? 0 : 1);
    }
  }
  const Encoding left = plain.with_padding(Padding{.length = 12, .left = true}).encode("to be");
  EXPECT_EQ(left.size(), 12U);
  EXPECT_EQ(left.attention_mask[0], 0);
  EXPECT_EQ(left.ids.back(), 3);
}

TEST(Tokenizer, TruncationOfPairsFollowsItsStrategy) {
  const Tokenizer t = tokenizer_of("word_level");
  const std::string a = "the the the the the the", b = "you you";
  const auto length = [&](Truncation c) {
    const Encoding e = t.with_truncation(c).encode_pair(a, b);
    return std::pair(std::count(e.type_ids.begin(), e.type_ids.end(), 0),
                     std::count(e.type_ids.begin(), e.type_ids.end(), 1));
  };
  using S = Truncation::Strategy;
  EXPECT_EQ(length({.max_length = 5}), std::pair(3L, 2L));
  EXPECT_EQ(length({.max_length = 3}), std::pair(2L, 1L));
  EXPECT_EQ(length({.max_length = 4, .strategy = S::only_first}), std::pair(2L, 2L));
  EXPECT_EQ(length({.max_length = 7, .strategy = S::only_second}), std::pair(6L, 1L));
  EXPECT_THROW(length({.max_length = 2, .strategy = S::only_second}), Error);
}

TEST(Tokenizer, TokensAndNumbersGoBothWays) {
  const Tokenizer t = tokenizer_of("gpt2");
  for (int64_t id = 0; id < t.vocab_size(); ++id) {
    const auto token = t.id_to_token(id);
    ASSERT_TRUE(token) << id;
    EXPECT_EQ(t.token_to_id(*token), id);
  }
  EXPECT_FALSE(t.id_to_token(t.vocab_size()));
  EXPECT_FALSE(t.id_to_token(-1));
  EXPECT_FALSE(t.token_to_id("no such token"));
  EXPECT_EQ(t.decode(std::vector<int64_t>{-5, int64_t{1} << 40, t.vocab_size()}), "");
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer t = tokenizer_of("gpt2");
  const std::string text = "What, my dear Lady Disdain! are you yet living? 12 times";
  const Encoding want = t.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      for (int i = 0; i < 200; ++i) wrong[k] += t.encode(text).ids != want.ids;
    });
  for (std::thread& th : threads) th.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, LongWordsNeedNoQuadraticTime) {
  const Tokenizer t = tokenizer_of("gpt2");
  const std::string text(200000, 'a');
  EXPECT_EQ(t.decode(t.encode(text).ids), text);
}

TEST(Tokenizer, RefusesWhatIsNoText) {
  const Tokenizer t = tokenizer_of("bert");
  for (const char* bad : {"\xff", "a\xc3", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xc0\x80"}) {
    try {
      t.encode(bad);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Value);
    }
  }
}

}  // namespace
}  // namespace tandem::text
