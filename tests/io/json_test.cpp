// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/json.h"

#include <cmath>

#include "tests/io/io_helper.h"

namespace tandem {
namespace {

using io::is_utf8;
using io::Json;
using io::parse_json;
using io::quote_json;

TEST(Json, ReadsAndWritesTheSameText) {
  for (const char* text :
       {"null", "true", "false", "0", "-17", "9223372036854775807", "0.1", "1e+300", "\"a\"", "[]",
        "{}", "[1,[2,{\"k\":null}],\"x\"]", "{\"z\":1,\"a\":{\"b\":[]},\"m\":\"\"}"})
    EXPECT_EQ(parse_json(text).dump(), text);
  EXPECT_EQ(parse_json(" [ 1 , 2 ] ").dump(2), "[\n  1,\n  2\n]");
  EXPECT_EQ(parse_json("{\"a\":{\"b\":1}}").dump(2), "{\n  \"a\": {\n    \"b\": 1\n  }\n}");
  EXPECT_EQ(parse_json("\"\\u00e9\\n\\\"\\ud83d\\ude00\"").dump(),
            "\"\xC3\xA9\\n\\\"\xF0\x9F\x98\x80\"");
}

TEST(Json, Access) {
  const Json v = parse_json(R"({"b":true,"i":3,"d":2.5,"s":"x","a":[1,2],"n":null})");
  EXPECT_TRUE(*v.find("b")->as_bool());
  EXPECT_EQ(*v.find("i")->as_int(), 3);
  EXPECT_EQ(*v.find("d")->as_double(), 2.5);
  EXPECT_EQ(*v.find("s")->as_string(), "x");
  EXPECT_EQ(v.find("a")->as_array()->size(), 2u);
  EXPECT_TRUE(v.find("n")->is_null());
  EXPECT_EQ(v.find("none"), nullptr);
  EXPECT_EQ(v.find("i")->as_double(), nullptr);
  EXPECT_EQ(v.find("i")->find("x"), nullptr);
  EXPECT_EQ(*parse_json("18446744073709551615").as_double(), 18446744073709551615.0);
}

TEST(Json, Building) {
  const Json v(Json::Object{{"a", Json::Array{1, 2.5, "x", true, Json()}}, {"n", size_t{7}}});
  EXPECT_EQ(v.dump(), R"({"a":[1,2.5,"x",true,null],"n":7})");
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(std::string("\x01\x7F\t\xFF")).dump(), "\"\\u0001\\u007f\\t\xEF\xBF\xBD\"");
}

TEST(Json, Utf8) {
  EXPECT_TRUE(is_utf8("plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  for (const char* bad : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3",
                          "\x80", "\xF8\x88\x80\x80\x80", "\xE2\x82"})
    EXPECT_FALSE(is_utf8(bad)) << quote_json(bad);
}

TEST(JsonMustFail, Texts) {
  auto error = [](const std::string& text) {
    return error_of([&] { parse_json(text, "f.json"); });
  };
  EXPECT_EQ(error("{\"a\":1,\"a\":2}"),
            "Format: f.json: this JSON is rejected: the key \"a\" appears twice.");
  EXPECT_EQ(error(std::string(100000, '[')),
            "Format: f.json: this JSON is rejected: it is nested deeper than 64 levels.");
  EXPECT_TRUE(error("").starts_with("Format: f.json: invalid JSON at byte 1: "));
  EXPECT_TRUE(error("[1,]").starts_with("Format: f.json: invalid JSON at byte 4: "));
  EXPECT_TRUE(error("[1] 2").starts_with("Format: f.json: invalid JSON at byte 5: "));
  EXPECT_TRUE(error("\"\xFF\"").starts_with("Format: f.json: invalid JSON at byte 2: "));
  EXPECT_TRUE(error("1e999").starts_with("Format: f.json: invalid JSON at byte 5: "));
  EXPECT_EQ(error_of([] { parse_json("[1,2,3]", "f.json", {.values = 3}); }),
            "Format: f.json: this JSON is rejected: it holds too many values.");
  TempFolder folder;
  expect_robust(R"({"a":[1,2.5,"x\n",true,null],"b":{"c":-1}})", folder / "x", /*cuts_fail=*/true,
                [](const std::string& path) { parse_json(read_file(path)).dump(); });
}

}  // namespace
}  // namespace tandem
