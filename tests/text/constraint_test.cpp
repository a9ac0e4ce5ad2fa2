// SPDX-License-Identifier: Apache-2.0
// Texts held to grammars: whatever is drawn under a mask belongs to the grammar. JSON is read and
// checked against its schema by the reader and the checker of constraint_helper.h.
#include "tandem/text/constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <regex>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/philox.h"
#include "tests/text/constraint_helper.h"

namespace tandem::text {
namespace {

using io::Json;

Json json(const std::string& text) { return io::parse_json(text); }

/// Draws tokens under the mask. Closing ones are likelier, so that texts end; nothing where it does
/// not end within `most` tokens.
std::optional<std::string> draw(const std::shared_ptr<Constraint>& c, uint64_t seed,
                                int most = 1500) {
  ConstrainedText text(c);
  PhiloxStream random(seed);
  std::string out;
  std::vector<float> logits(static_cast<size_t>(vocabulary()->size()));
  for (int i = 0; i < most; ++i) {
    if (text.must_end() || (text.may_end() && random.next_below(3) == 0)) return out;
    for (float& l : logits) l = random.next_uniform();
    for (const unsigned char close : {'"', ']', '}'}) logits[close] += 0.7F;
    const bool any = text.mask(logits);
    if (!any && text.may_end()) return out;
    EXPECT_TRUE(any) << "nothing may follow " << out;
    const int64_t id = std::max_element(logits.begin(), logits.end()) - logits.begin();
    out += vocabulary()->of(id);
    EXPECT_TRUE(text.push(id)) << "the mask allowed a token that cannot follow " << out;
    if (testing::Test::HasFailure()) return out;
  }
  return std::nullopt;
}
TEST(TokenBytes, AreThoseThatATokenAddsToAText) {
  const Tokenizer bytes = tokenizer_with({" wor", "\xE2\x82"});
  EXPECT_EQ(bytes.token_bytes('a'), "a");
  EXPECT_EQ(bytes.token_bytes(0x80), "\x80") << "half a character";
  EXPECT_EQ(bytes.token_bytes(256), " wor");
  EXPECT_EQ(bytes.token_bytes(257), "\xE2\x82");
  EXPECT_EQ(bytes.token_bytes(258), "") << "special";
  EXPECT_EQ(bytes.token_bytes(259), "");
  const Tokenizer pieces = Tokenizer::from_json(
      R"({"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},)"
      R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ",)"
      R"("start":1,"stop":0}]},"model":{"type":"BPE","byte_fallback":true,"vocab":{"<0xC3>":0,)"
      R"("▁the":1,"x":2,"▁":3},"merges":[]}})");
  EXPECT_EQ(pieces.token_bytes(0), "\xC3");
  EXPECT_EQ(pieces.token_bytes(1), " the");
  EXPECT_EQ(pieces.token_bytes(2), "x");
  EXPECT_EQ(pieces.token_bytes(3), " ");
  const Tokenizer words = Tokenizer::from_json(
      R"({"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0,"b":1}}})");
  EXPECT_EQ(words.token_bytes(1), " b");
}

// The bytes of a text's tokens are those of the text.
TEST(TokenBytes, MakeUpTheTextsOfTokenizers) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const Json golden =
      json(read_file(std::string(root ? root : ".") + "/tests/golden/tokenizers.json"));
  for (const char* kind : {"gpt2", "roberta", "llama", "unigram"}) {
    const Tokenizer t = Tokenizer::from_json(golden.find(kind)->find("tokenizer")->dump(), kind);
    int compared = 0;
    for (const Json& c : *golden.find(kind)->find("cases")->as_array()) {
      const std::vector<int64_t> ids = t.encode(*c.as_array()->at(0).as_string(), false).ids;
      std::string bytes;
      for (const int64_t id : ids) bytes += t.token_bytes(id);
      const std::string text = t.decode(ids);
      EXPECT_TRUE(bytes == text || bytes == " " + text) << kind << ": " << text << "\n" << bytes;
      compared += text.empty() ? 0 : 1;
    }
    EXPECT_GT(compared, 20) << kind;
  }
}

TEST(Constraint, RegularExpressions) {
  const std::pair<const char*, std::vector<std::pair<const char*, bool>>> cases[] = {
      {"a|bc", {{"a", true}, {"bc", true}, {"b", false}, {"abc", false}}},
      {"^(?:ab){2,3}$", {{"abab", true}, {"ababab", true}, {"ab", false}, {"abababab", false}}},
      {"[^a-c]+?", {{"d\xC3\xBC", true}, {"", false}, {"da", false}}},
      {"(?P<y>\\d{4})-\\d\\d", {{"2026-11", true}, {"26-11", false}}},
      {".", {{"\xE2\x82\xAC", true}, {"\n", false}, {"xy", false}}},
      {"[\\]\\-x]*", {{"]-x", true}, {"", true}, {"y", false}}},
      {"\\u00fc\\x41\\.",
       {{"\xC3\xBC"
         "A.",
         true},
        {"uAx", false}}},
      {"(a*)*b", {{"aaab", true}, {"b", true}, {"a", false}}},
      {"", {{"", true}, {"a", false}}},
  };
  for (const auto& [pattern, texts] : cases) {
    const auto c = constraint(Grammar::regex(pattern));
    for (const auto& [text, want] : texts)
      EXPECT_EQ(holds(c, text), want) << pattern << " " << text;
  }
  for (const char* pattern : {"[a-f]{2,8}", "(yes|no|maybe)( please)?", "-?\\d+(\\.\\d{1,3})?",
                              "\\w+@\\w+\\.(com|org)", "[^\"\\\\]*x"}) {
    const auto c = constraint(Grammar::regex(pattern));
    for (uint64_t seed = 0; seed < 30; ++seed) {
      const std::optional<std::string> text = draw(c, seed);
      if (!text) continue;
      EXPECT_TRUE(std::regex_match(*text, std::regex(pattern))) << pattern << " " << *text;
    }
  }
  const std::vector<std::string> options = {"red", "red wine", "gr\xC3\xBCn"};
  const auto c = constraint(Grammar::choice(options));
  for (const std::string& o : options) EXPECT_TRUE(holds(c, o));
  EXPECT_FALSE(holds(c, "re"));
}

// Each bit is what pushing that token says.
TEST(Constraint, MasksAreWhatTokensDo) {
  const auto c = constraint(Grammar::json_schema(
      json(R"({"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer"}}})")));
  std::string so_far;
  for (const char* step :
       {"", "{\"", "name", "\":", " \"h", "\xC3", "\xBC", "\"", ", \"n\":", "-1"}) {
    so_far += step;
    ConstrainedText text(c);
    ASSERT_TRUE(text.push(so_far)) << so_far;
    std::vector<float> logits(static_cast<size_t>(vocabulary()->size()) + 5, 1.0F);
    text.mask(logits);
    for (int64_t id = 0; id < vocabulary()->size(); ++id) {
      ConstrainedText other(c);
      ASSERT_TRUE(other.push(so_far));
      EXPECT_EQ(other.push(id), logits[static_cast<size_t>(id)] == 1) << so_far << " then " << id;
    }
    EXPECT_EQ(logits.back(), -INFINITY) << "beyond the vocabulary";
  }
}

TEST(Constraint, AnyJsonObject) {
  const auto c = constraint(Grammar::json_object());
  EXPECT_TRUE(holds(c, R"({"a": [1, {"b": null}], "c": "\ud83d\ude00"})"));
  EXPECT_TRUE(holds(c, "{\n  \"a\": {}\n}"));
  EXPECT_FALSE(holds(c, R"({"a": "\ud83d"})"));
  EXPECT_FALSE(holds(c, "[1]"));
  EXPECT_FALSE(holds(c, R"({"a": 01})"));
  int ended = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const std::optional<std::string> text = draw(c, seed);
    if (!text) continue;
    ++ended;
    EXPECT_NO_THROW(EXPECT_TRUE(read_all(*text).as_object())) << *text;
  }
  EXPECT_GT(ended, 40);
  // Depth is bounded, and what is open can always be closed.
  ConstrainedText deep(c);
  ASSERT_TRUE(deep.push("{\"a\":"));
  int levels = 0;
  while (deep.push("[")) ++levels;
  EXPECT_GT(levels, 20);
  EXPECT_LT(levels, 64);
  for (; levels > 0; --levels) ASSERT_TRUE(deep.push("]"));
  EXPECT_TRUE(deep.push("}") && deep.must_end());
}

TEST(Constraint, DrawnTextsSatisfyTheirSchemas) {
  int drawn = 0, schemas = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    PhiloxStream random(seed, 7);
    const Json schema = random_schema(random, 3);
    SCOPED_TRACE(schema.dump());
    const auto c = constraint(Grammar::json_schema(schema));
    ++schemas;
    for (uint64_t k = 0; k < 6; ++k) {
      const std::optional<std::string> text = draw(c, seed * 100 + k);
      if (!text) continue;
      ++drawn;
      Json value;
      ASSERT_NO_THROW(value = read_all(*text)) << *text;
      ASSERT_TRUE(satisfies(value, schema, schema)) << *text;
    }
  }
  EXPECT_GT(drawn, schemas * 5) << "texts that end";
}

TEST(Constraint, SchemasThatReferToThemselves) {
  const Json tree =
      json(R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":)"
           R"({"anyOf":[{"type":"null"},{"$ref":"#/$defs/node"}]},"all":{"type":"array","items":)"
           R"({"$ref":"#/$defs/node"}}},"required":["v","next"],"additionalProperties":false}},)"
           R"("$ref":"#/$defs/node"})");
  const auto c = constraint(Grammar::json_schema(tree));
  EXPECT_TRUE(holds(c, R"({"v": 1, "next": {"v": 2, "next": null}, "all": []})"));
  EXPECT_FALSE(holds(c, R"({"v": 1})"));
  int drawn = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::optional<std::string> text = draw(c, seed);
    if (!text) continue;
    ++drawn;
    EXPECT_TRUE(satisfies(read_all(*text), tree, tree)) << *text;
  }
  EXPECT_GT(drawn, 20);
  const Json merged = json(
      R"({"$defs":{"base":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}},)"
      R"("allOf":[{"$ref":"#/$defs/base"},{"properties":{"a":{"minimum":3},"b":{"const":1}},)"
      R"("required":["b"]}]})");
  const auto m = constraint(Grammar::json_schema(merged));
  EXPECT_TRUE(holds(m, R"({"a": 3, "b": 1})"));
  EXPECT_FALSE(holds(m, R"({"a": 2, "b": 1})"));
  EXPECT_FALSE(holds(m, R"({"a": 3})"));
}

TEST(Constraint, Formats) {
  const std::pair<const char*, std::vector<std::pair<const char*, bool>>> cases[] = {
      {"date",
       {{"2024-02-29", true},
        {"2023-02-29", false},
        {"2000-02-29", true},
        {"2100-02-29", false},
        {"2023-04-31", false},
        {"2023-12-31", true}}},
      {"date-time", {{"2023-01-01T23:59:59.5Z", true}, {"2023-01-01T24:00:00Z", false}}},
      {"ipv4", {{"255.0.10.199", true}, {"256.0.0.1", false}, {"1.2.3", false}}},
      {"email", {{"a.b@example.org", true}, {"a@b", false}}},
      {"uuid", {{"123e4567-e89b-12d3-a456-426614174000", true}, {"123e4567", false}}}};
  for (const auto& [format, texts] : cases) {
    const auto c = constraint(
        Grammar::json_schema(Json::Object{{"type", "string"}, {"format", std::string(format)}}));
    for (const auto& [text, want] : texts)
      EXPECT_EQ(holds(c, "\"" + std::string(text) + "\""), want) << text;
  }
}

TEST(Constraint, RefusesByName) {
  const std::pair<const char*, const char*> schemas[] = {
      {R"({"type":"array","uniqueItems":true})", "'uniqueItems'"},
      {R"({"not":{}})", "'not'"},
      {R"({"type":"object","patternProperties":{}})", "'patternProperties'"},
      {R"({"type":"integer","multipleOf":3})", "'multipleOf'"},
      {R"({"type":"text"})", "no type \"text\""},
      {R"({"$ref":"http://a/b"})", "'$ref'"},
      {R"({"$ref":"#/$defs/none"})", "#/$defs/none"},
      {R"({"type":"string","format":"regex"})", "format \"regex\""},
      {R"({"type":"string","pattern":"a","minLength":2})", "'minLength' with 'pattern'"},
      {R"x({"type":"string","pattern":"(?=a)"})x", "groups that begin with '?'"},
      {R"({"oneOf":[{"type":"string"},{"minLength":1}]})", "'oneOf'"},
      {R"({"type":"number","minimum":0.5})", "bounds of a number"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "no text satisfies"},
      {R"({"enum":[1],"type":"string"})", "no text satisfies"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", "no text satisfies"},
      {R"({"type":"array","items":{"$ref":"#"},"minItems":1})", "no text satisfies"},
      {R"({"$ref":"#"})", "no text satisfies"},
      {R"({"type":"string","minLength":100000000})", "too large"},
      {R"("text")", "a schema is an object"},
      {"false", "no text satisfies"}};
  for (const auto& [schema, want] : schemas) {
    try {
      constraint(Grammar::json_schema(json(schema)));
      ADD_FAILURE() << schema << " was taken";
    } catch (const Error& e) {
      EXPECT_TRUE(says(e, want)) << schema << "\n" << e.what();
    }
  }
  const std::pair<const char*, const char*> patterns[] = {
      {"(a", "lacks its ')'"},
      {"a)", "this ')'"},
      {"[a", "lacks its ']'"},
      {"*a", "nothing to repeat"},
      {"a**", "nothing to repeat"},
      {"a{3,2}", "second bound"},
      {"\\bx", "not supported"},
      {"\\1", "not supported"},
      {"(?!a)", "groups that begin with '?'"},
      {"(?i)a", "groups that begin with '?'"},
      {"a^b", "^ or $ inside"},
      {"[z-a]", "in ascending order"},
      {"a++", "possessive"},
      {"\\p{L}", "not supported"},
      {"(((a{9999}){9999}){9999})", "too large"},
      {"[[:alpha:]]", "[:class:]"}};
  for (const auto& [pattern, want] : patterns) {
    try {
      constraint(Grammar::regex(pattern));
      ADD_FAILURE() << pattern << " was taken";
    } catch (const Error& e) {
      EXPECT_TRUE(says(e, want)) << pattern << "\n" << e.what();
    }
  }
  EXPECT_THROW(Grammar::choice({}), Error);
}

// What ambiguity, depth or repeats multiply ends with an error, and soon.
TEST(Constraint, HostileGrammars) {
  const char* schemas[] = {
      R"({"anyOf":[{"$ref":"#"},{"type":"array","items":{"$ref":"#"}},{"type":"null"}]})",
      (R"({"anyOf":[{"type":"array","items":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},)"
       R"({"type":"array","items":{"anyOf":[{"type":"null"},{"$ref":"#"}]}},{"const":1}]})"),
      R"({"allOf":[{"$ref":"#"},{"type":"object"}]})",
      R"({"$ref":"#","properties":{"a":{"$ref":"#"}}})"};
  for (const char* schema : schemas) {
    try {
      const auto c = constraint(Grammar::json_schema(json(schema)));
      ConstrainedText text(c);
      std::vector<float> logits(static_cast<size_t>(vocabulary()->size()), 0.0F);
      for (int i = 0; i < 60 && text.push("["); ++i) text.mask(logits);
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::Value || e.kind() == ErrorKind::Format) << e.what();
    }
  }
  for (const char* pattern : {"(a|a)*", "((a*)*)*", "(a?){100}(a?){100}", "(.*a){60}"}) {
    const auto c = constraint(Grammar::regex(pattern));
    for (uint64_t seed = 0; seed < 3; ++seed) {
      try {
        draw(c, seed, 100);
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::Value);
      }
    }
  }
}

TEST(Constraint, RandomBytesAreReadOrRefused) {
  const std::string_view symbols = "()[]{}*+?|^$\\.-,0123ab<>:P=!dwsux\"\n\xC3\xBC";
  int read = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    PhiloxStream random(seed, 3);
    std::string pattern;
    for (uint64_t n = random.next_below(24); n > 0; --n)
      pattern += symbols[random.next_below(symbols.size())];
    try {
      constraint(Grammar::regex(pattern));
      ++read;
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::Value || e.kind() == ErrorKind::Format) << e.what();
    }
  }
  EXPECT_GT(read, 100);
  // Schemas in which bytes were changed.
  read = 0;
  for (uint64_t seed = 0; seed < 8000; ++seed) {
    PhiloxStream random(seed, 4);
    std::string text = random_schema(random, 2).dump();
    for (uint64_t n = 1 + random.next_below(3); n > 0; --n)
      text[random.next_below(text.size())] =
          static_cast<char>("{}[]\",:01ae$#"[random.next_below(13)]);
    try {
      constraint(Grammar::json_schema(json(text)));
      ++read;
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::Value || e.kind() == ErrorKind::Format) << e.what();
    }
  }
  EXPECT_GT(read, 100);
}

// States that are forgotten under way are found again.
TEST(Constraint, LittleMemoryGivesTheSameMasks) {
  const Grammar g = Grammar::json_object();
  const auto large = std::make_shared<Constraint>(g, vocabulary()),
             small = std::make_shared<Constraint>(g, vocabulary(), size_t{1} << 16);
  ConstrainedText waits(small);
  ASSERT_TRUE(waits.push("{\"waits\": [1"));
  std::vector<float> left(static_cast<size_t>(vocabulary()->size())), right;
  int steps = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    ConstrainedText a(large), b(small);
    PhiloxStream random(seed);
    for (int i = 0; i < 100 && !a.must_end(); ++i, ++steps) {
      for (float& l : left) l = random.next_uniform();
      right = left;
      ASSERT_EQ(a.mask(left), b.mask(right));
      ASSERT_EQ(left, right);
      const int64_t id = std::max_element(left.begin(), left.end()) - left.begin();
      ASSERT_TRUE(a.push(id) && b.push(id));
      ASSERT_EQ(a.may_end(), b.may_end());
    }
  }
  EXPECT_GT(steps, 200);
  EXPECT_GT(small->masks(), large->masks()) << "some were made twice";
  EXPECT_TRUE(waits.push("2, {\"x\": true}]}") && waits.must_end());
}

// What a step costs beside the model, with the vocabulary of a large one: printed, not asserted.
TEST(Constraint, CostOfAStep) {
  std::vector<std::string> words;
  PhiloxStream random(9);
  std::set<std::string> known;
  while (words.size() < 150'000) {
    std::string w = random.next_below(2) ? " " : "";
    for (uint64_t n = 2 + random.next_below(7); n > 0; --n)
      w += static_cast<char>('a' + random.next_below(26));
    if (known.insert(w).second) words.push_back(w);
  }
  for (const char* w : {"{\"", "\":", "\": ", "\", \"", "\"}"}) words.emplace_back(w);
  const Tokenizer t = tokenizer_with(words);
  using Clock = std::chrono::steady_clock;
  const auto micros = [](Clock::duration d) {
    return std::chrono::duration<double, std::micro>(d).count();
  };
  const auto begin = Clock::now();
  const auto bytes = std::make_shared<const TokenBytes>(t, t.vocab_size());
  const auto built = Clock::now();
  const auto c = std::make_shared<Constraint>(
      Grammar::json_schema(json(
          R"({"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer"}}})")),
      bytes);
  std::vector<float> logits(static_cast<size_t>(t.vocab_size()), 0.0F);
  const std::string answer = R"({"name": "some words in a string", "n": 42})";
  std::vector<double> first, later;
  for (int round = 0; round < 20; ++round) {
    ConstrainedText text(c);
    for (const char ch : answer) {
      const auto from = Clock::now();
      text.mask(logits);
      ASSERT_TRUE(text.push(std::string_view(&ch, 1)));
      (round == 0 ? first : later).push_back(micros(Clock::now() - from));
    }
  }
  std::sort(first.begin(), first.end());
  std::sort(later.begin(), later.end());
  printf(
      "constraint, %lld tokens: vocabulary %.0f ms; a step %.1f us (median, masks built); "
      "with a new mask %.0f us (median), %.0f us (most)\n",
      static_cast<long long>(bytes->size()), micros(built - begin) / 1000, later[later.size() / 2],
      first[first.size() / 2], first.back());
}

}  // namespace
}  // namespace tandem::text
