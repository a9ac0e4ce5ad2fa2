// SPDX-License-Identifier: Apache-2.0
// Tokenizer files that are truncated, nested, contradictory or claim too much: each gives a Format
// error that says what is wrong, and has no other effect.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/io/json.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text {
namespace {

// A file with `model`, and the other parts as given.
std::string file(const std::string& parts, const std::string& model = R"({"type":"WordLevel",
    "vocab":{"<unk>":0,"a":1,"b":2},"unk_token":"<unk>"})") {
  return "{\"version\":\"1.0\"," + (parts.empty() ? "" : parts + ",") + "\"model\":" + model + "}";
}
std::string nested(const char* key, const char* list, int depth) {
  std::string s = std::string("\"") + key + "\":";
  for (int i = 0; i < depth; ++i) s += std::string(R"({"type":"Sequence",")") + list + "\":[";
  for (int i = 0; i < depth; ++i) s += "]}";
  return s;
}
std::string bpe(const std::string& vocab, const std::string& merges, const std::string& more = "") {
  return file("",
              R"({"type":"BPE","vocab":{)" + vocab + R"(},"merges":[)" + merges + "]" + more + "}");
}

struct Case {
  const char* name;
  std::string json;
  const char* says;
};

// table: a file each and what is said of it
std::vector<Case> cases() {
  const std::string ab = R"("a":0,"b":1,"ab":2)";
  return {
      {"empty", "", ""},
      {"cut", R"({"model":{"type":"BPE","vocab":{"a":0)", ""},
      {"array", "[]", "object"},
      {"number", "7", "object"},
      {"no_model", R"({"version":"1.0"})", "no 'model'"},
      {"model_null", R"({"model":null})", "no 'model'"},
      {"model_text", R"({"model":"BPE"})", "object"},
      {"model_unknown", file("", R"({"type":"Magic"})"), "there is no model 'Magic'"},
      {"model_type_number", file("", R"({"type":3})"), "string"},
      {"deep_json", std::string(100000, '['), ""},
      {"deep_object",
       [] {
         std::string s;
         for (int i = 0; i < 5000; ++i) s += "{\"a\":";
         return s;
       }(),
       ""},
      {"key_twice", R"({"model":{},"model":{}})", ""},
      {"vocab_missing", file("", R"({"type":"WordLevel"})"), "no 'vocab'"},
      {"vocab_array", file("", R"({"type":"WordLevel","vocab":[1]})"), "object"},
      {"vocab_text_id", file("", R"({"type":"WordLevel","vocab":{"a":"1"}})"), "number"},
      {"vocab_negative", file("", R"({"type":"WordLevel","vocab":{"a":-1}})"), "number"},
      {"vocab_huge", file("", R"({"type":"WordLevel","vocab":{"a":99999999999}})"), "number"},
      {"vocab_fraction", file("", R"({"type":"WordLevel","vocab":{"a":0.5}})"), "number"},
      {"vocab_twice", file("", R"({"type":"WordLevel","vocab":{"a":0,"a":1}})"), ""},
      {"bpe_merge_unknown", bpe(ab, R"("a c")"), "not in the vocabulary"},
      {"bpe_merge_result_unknown", bpe(R"("a":0,"b":1)", R"("a b")"),
       "\"ab\" is not in the vocabulary"},
      {"bpe_merge_one", bpe(ab, R"("ab")"), "two tokens"},
      {"bpe_merge_three", bpe(ab, R"("a b c")"), "two tokens"},
      {"bpe_merge_empty", bpe(ab, R"("a ")"), "adds nothing"},
      {"bpe_merge_cycle",
       bpe(R"("a":0,"##":1)", R"("a ##")", R"(,"continuing_subword_prefix":"##")"), "adds nothing"},
      {"bpe_merge_number", bpe(ab, "1"), "two tokens"},
      {"bpe_merge_array_short", bpe(ab, R"(["a"])"), "two tokens"},
      {"bpe_merge_array_number", bpe(ab, R"(["a",1])"), "two tokens"},
      {"bpe_merges_object", file("", R"({"type":"BPE","vocab":{},"merges":{}})"), "array"},
      {"bpe_merges_missing", file("", R"({"type":"BPE","vocab":{}})"), "no 'merges'"},
      {"bpe_unk_unknown", bpe(ab, "", R"(,"unk_token":"<unk>")"), "unknown token"},
      {"bpe_flag_text", bpe(ab, "", R"(,"fuse_unk":"yes")"), "true or false"},
      {"wordpiece_unk_missing", file("", R"({"type":"WordPiece","vocab":{"a":0}})"),
       "unknown token"},
      {"wordpiece_chars_zero",
       file("", R"({"type":"WordPiece","vocab":{"[UNK]":0},"max_input_chars_per_word":0})"),
       "lie in"},
      {"wordpiece_chars_huge",
       file(
           "",
           R"({"type":"WordPiece","vocab":{"[UNK]":0},"max_input_chars_per_word":9223372036854775807})"),
       "lie in"},
      {"unigram_empty", file("", R"({"type":"Unigram","vocab":[]})"), "empty"},
      {"unigram_object", file("", R"({"type":"Unigram","vocab":{"a":1}})"), "array"},
      {"unigram_pair_short", file("", R"({"type":"Unigram","vocab":[["a"]]})"), "score"},
      {"unigram_score_text", file("", R"({"type":"Unigram","vocab":[["a","b"]]})"), "score"},
      {"unigram_score_infinite", file("", R"({"type":"Unigram","vocab":[["a",1e999]]})"), ""},
      {"unigram_unk_outside", file("", R"({"type":"Unigram","vocab":[["a",0]],"unk_id":1})"),
       "lie in"},
      {"unigram_unk_negative", file("", R"({"type":"Unigram","vocab":[["a",0]],"unk_id":-1})"),
       "lie in"},
      {"normalizer_unknown", file(R"("normalizer":{"type":"X"})"), "there is no normalizer 'X'"},
      {"normalizer_no_type", file(R"("normalizer":{})"), "no 'type'"},
      {"normalizer_array", file(R"("normalizer":[])"), "object"},
      {"normalizer_nested", file(nested("normalizer", "normalizers", 17)), "nested"},
      {"normalizer_sequence_text", file(R"("normalizer":{"type":"Sequence","normalizers":"NFC"})"),
       "array"},
      {"replace_no_pattern", file(R"("normalizer":{"type":"Replace","content":"x"})"),
       "no 'pattern'"},
      {"replace_bad_regex",
       file(R"("normalizer":{"type":"Replace","pattern":{"Regex":"("},"content":""})"),
       "regular expression"},
      {"replace_nested_regex",
       file(R"("normalizer":{"type":"Replace","pattern":{"Regex":")" + std::string(60000, '(') +
            R"("},"content":""})"),
       "regular expression"},
      {"replace_long_regex",
       file(R"("normalizer":{"type":"Replace","pattern":{"Regex":")" + std::string(70000, 'a') +
            R"("},"content":""})"),
       "too long"},
      {"charsmap_no_base64",
       file(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"!!!!"})"), "base64"},
      {"charsmap_cut", file(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"AAA="})"),
       "truncated"},
      {"charsmap_claims",
       file(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"////f////38="})"),
       "claims"},
      {"charsmap_texts",
       file(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAD//w=="})"),
       "UTF-8"},
      {"pre_unknown", file(R"("pre_tokenizer":{"type":"X"})"), "there is no pre-tokenizer 'X'"},
      {"pre_nested", file(nested("pre_tokenizer", "pretokenizers", 40)), ""},
      {"pre_split_behavior",
       file(R"("pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Explode"})"),
       "behavior"},
      {"pre_split_no_pattern", file(R"("pre_tokenizer":{"type":"Split","behavior":"Removed"})"),
       "no 'pattern'"},
      {"pre_split_bad_regex",
       file(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"[z-a]"},"behavior":"Removed"})"),
       "regular expression"},
      {"pre_metaspace_two", file(R"("pre_tokenizer":{"type":"Metaspace","replacement":"ab"})"),
       "one character"},
      {"pre_metaspace_scheme",
       file(R"("pre_tokenizer":{"type":"Metaspace","prepend_scheme":"maybe"})"), "prepend_scheme"},
      {"pre_delimiter_empty",
       file(R"("pre_tokenizer":{"type":"CharDelimiterSplit","delimiter":""})"), "one character"},
      {"pre_fixed_zero", file(R"("pre_tokenizer":{"type":"FixedLength","length":0})"), "lie in"},
      {"post_unknown", file(R"("post_processor":{"type":"X"})"), "there is no post-processor 'X'"},
      {"post_bert_sep",
       file(R"("post_processor":{"type":"BertProcessing","sep":"[SEP]","cls":["[CLS]",1]})"),
       "array"},
      {"post_bert_id",
       file(R"("post_processor":{"type":"BertProcessing","sep":["[SEP]",-1],"cls":["[CLS]",1]})"),
       "number"},
      {"post_template_token",
       file(
           R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[X]","type_id":0}}],"pair":[],"special_tokens":{}})"),
       "not described"},
      {"post_template_sequence",
       file(
           R"("post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"C","type_id":0}}],"pair":[],"special_tokens":{}})"),
       "no sequence"},
      {"post_template_b",
       file(
           R"("post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],"pair":[],"special_tokens":{}})"),
       "sequence B"},
      {"post_template_kind",
       file(
           R"("post_processor":{"type":"TemplateProcessing","single":[{"Nothing":{}}],"pair":[]})"),
       "SpecialToken"},
      {"post_template_ids",
       file(
           R"("post_processor":{"type":"TemplateProcessing","single":[],"pair":[],"special_tokens":{"x":{"id":"x","ids":["y"]}}})"),
       "ids"},
      {"post_nested", file(nested("post_processor", "processors", 17)), "nested"},
      {"decoder_unknown", file(R"("decoder":{"type":"X"})"), "there is no decoder 'X'"},
      {"decoder_nested", file(nested("decoder", "decoders", 17)), "nested"},
      {"decoder_strip_negative",
       file(R"("decoder":{"type":"Strip","content":" ","start":-1,"stop":0})"), "lie in"},
      {"decoder_strip_empty", file(R"("decoder":{"type":"Strip","content":"","start":1,"stop":0})"),
       "one character"},
      {"added_object", file(R"("added_tokens":{})"), "array"},
      {"added_no_id", file(R"("added_tokens":[{"content":"x"}])"), "no 'id'"},
      {"added_huge_id", file(R"("added_tokens":[{"content":"x","id":4294967296}])"), "lie in"},
      {"added_content", file(R"("added_tokens":[{"content":5,"id":1}])"), "string"},
      {"truncation_text", file(R"("truncation":"yes")"), "object"},
      {"truncation_negative", file(R"("truncation":{"max_length":-1})"), "lie in"},
      {"truncation_strategy", file(R"("truncation":{"max_length":5,"strategy":"X"})"), "strategy"},
      {"padding_huge", file(R"("padding":{"strategy":{"Fixed":1000000000000},"pad_id":0})"),
       "lie in"},
      {"padding_multiple",
       file(R"("padding":{"strategy":"BatchLongest","pad_to_multiple_of":1000000000000})"),
       "lie in"},
      {"padding_strategy", file(R"("padding":{"strategy":"X"})"), "strategy"},
      {"bad_utf8", "{\"model\":{\"type\":\"\xff\"}}", ""},
  };
}

TEST(HostileTokenizer, EachFileIsRefusedWithItsReason) {
  const auto all = cases();
  EXPECT_GE(all.size(), 80U);
  for (const Case& c : all) {
    try {
      Tokenizer::from_json(c.json, "it.json");
      ADD_FAILURE() << c.name << " was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Format) << c.name << ": " << e.what();
      EXPECT_NE(std::string(e.what()).find(c.says), std::string::npos)
          << c.name << ": " << e.what();
      EXPECT_NE(std::string(e.what()).find("it.json"), std::string::npos)
          << c.name << ": " << e.what();
    }
  }
}

// Truncated anywhere, or with any byte changed, a file is rejected or read as something that works.
TEST(HostileTokenizer, CutsAndFlipsSlow) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const io::Json golden = io::parse_json(
      read_file(std::string(root ? root : ".") + "/tests/golden/tokenizers.json"), "golden");
  int refused = 0;
  for (const char* kind : {"word_level", "t5", "gpt4", "llama", "bert"}) {
    const std::string whole = golden.find(kind)->find("tokenizer")->dump();
    const auto attempt = [&](const std::string& s) {
      try {
        const Tokenizer t = Tokenizer::from_json(s, kind);
        t.decode(t.encode("Now is the winter of our ﬁne discontent 42").ids);
      } catch (const Error& e) {
        refused += e.kind() == ErrorKind::Format;
        EXPECT_TRUE(e.kind() == ErrorKind::Format || e.kind() == ErrorKind::Value) << e.what();
      }
    };
    for (size_t n = 0; n < whole.size(); n += 1 + whole.size() / 60) attempt(whole.substr(0, n));
    for (size_t k = 0; k < 150; ++k) {
      std::string s = whole;
      s[(k * 7919 + 13) % s.size()] ^= static_cast<char>(1U << k % 7);
      attempt(s);
    }
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace tandem::text
