// SPDX-License-Identifier: Apache-2.0
// Tool calls: found in answers that come in parts, and answers that may be nothing else.
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/io/json.h"
#include "tandem/serve/text/tool_calls.h"
#include "tandem/text/constraint.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

constexpr const char* kHermes =
    "{% if tools %}{% for t in tools %}{{ t.function.name }}{% endfor %}<tool_call>{% endif %}"
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments.b }}"
    "{% endfor %}{{ m.content or '' }}{% endfor %}";
constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"bc","parameters":{"type":"object",)"
    R"("properties":{"b":{"$ref":"#/$defs/n"}},"required":["b"],"additionalProperties":false,)"
    R"("$defs":{"n":{"type":"integer","minimum":10,"maximum":99}}}}},)"
    R"({"type":"function","function":{"name":"cd","parameters":{"type":"object","properties":{}}}}])";

/// All parts of a text, pushed `step` bytes at a time.
ToolReader::Part read_in_parts(ToolForm form, const std::string& text, size_t step) {
  ToolReader reader(form);
  ToolReader::Part all;
  const auto add = [&](const ToolReader::Part& p) {
    all.text += p.text;
    all.calls.insert(all.calls.end(), p.calls.begin(), p.calls.end());
  };
  for (size_t i = 0; i < text.size(); i += step) add(reader.push(text.substr(i, step)));
  add(reader.finish());
  return all;
}

TEST(ToolReader, FindsCallsAtAnyCut) {
  struct Case {
    ToolForm form;
    std::string text, rest;
    std::vector<std::pair<std::string, std::string>> calls;
  };
  const ToolForm h = ToolForm::hermes, l = ToolForm::llama;
  const Case cases[] = {
      {h, "plain <b> text", "plain <b> text", {}},
      {h,
       "so: <tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>",
       "so: ",
       {{"f", "{\"x\":1}"}}},
      {h,
       "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\"}"
       "</tool_call>\n",
       "",
       {{"f", "{}"}, {"g", "{}"}}},
      {h, "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "", {{"f", "{}"}}},
      {h, "<tool_call>no</tool_call>!", "<tool_call>no</tool_call>!", {}},
      {h, "<tool_ca", "<tool_ca", {}},
      {h, "<tool_call>{\"na", "<tool_call>{\"na", {}},
      {l, " {\"name\": \"f\", \"parameters\": {\"x\": \"y\"}}", "", {{"f", "{\"x\":\"y\"}"}}},
      {l, "text {\"name\"", "text {\"name\"", {}},
      {l, "{\"other\": 1}", "{\"other\": 1}", {}},
  };
  for (const Case& c : cases)
    for (const size_t step : {size_t{1}, size_t{3}, size_t{1000}}) {
      const ToolReader::Part got = read_in_parts(c.form, c.text, step);
      EXPECT_EQ(got.text, c.rest) << c.text << " by " << step;
      ASSERT_EQ(got.calls.size(), c.calls.size()) << c.text << " by " << step;
      for (size_t i = 0; i < got.calls.size(); ++i) {
        EXPECT_EQ(got.calls[i].name, c.calls[i].first);
        EXPECT_EQ(got.calls[i].arguments, c.calls[i].second);
      }
    }
}

TEST(ToolForms, AreShownByTheTemplate) {
  EXPECT_EQ(tool_form_of(text::ChatTemplate(kHermes)), ToolForm::hermes);
  EXPECT_EQ(tool_form_of(text::ChatTemplate("{{ tools }}{\"name\": n, \"parameters\": p}")),
            ToolForm::llama);
  EXPECT_EQ(tool_form_of(text::ChatTemplate("{{ messages }}<tool_call>")), std::nullopt);
}

class Tools : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    const char* root = std::getenv("TANDEM_SOURCE_DIR");
    const std::string from = std::string(root ? root : ".") + "/tests/golden/hf/llama";
    std::filesystem::copy(from, *folder_ / "tools", std::filesystem::copy_options::recursive);
    std::string config = read_file(*folder_ / "tools/config.json");
    const std::string key = "\"max_position_embeddings\": ";
    const size_t at = config.find(key) + key.size();
    config.replace(at, config.find_first_of(",\n", at) - at, "8192");
    write_file(*folder_ / "tools/config.json", config);
    // 32 tokens: the characters of calls, and tokens of several; token 1 ends a text. None leads
    // into a word that the others cannot complete.
    std::string vocab;
    int id = 0;
    for (const char* token : {"0",
                              "*",
                              "1",
                              "2",
                              "3",
                              "4",
                              "5",
                              "6",
                              "7",
                              "8",
                              "9",
                              "{",
                              "}",
                              ":",
                              ",",
                              "\"",
                              "z",
                              "b",
                              "c",
                              "d",
                              "\xC4\xA0",
                              "\xC4\x8A",
                              "<tool_call>",
                              "</tool_call>",
                              "name",
                              "arguments",
                              "-",
                              "\xC4\xA0"
                              "bc",
                              "[",
                              "]",
                              "e",
                              "x"}) {
      if (id != 1) vocab += fmt::format("{}{}:{}", id ? "," : "", io::quote_json(token), id);
      ++id;
    }
    write_file(*folder_ / "tools/tokenizer.json",
               R"({"decoder":{"type":"ByteLevel"},"added_tokens":[{"id":1,"content":"<end>",)"
               R"("special":true}],"model":{"type":"BPE","vocab":{)" +
                   vocab + R"(},"merges":[]}})");
    std::filesystem::copy(*folder_ / "tools", *folder_ / "none");
    write_file(*folder_ / "tools/chat_template.jinja", kHermes);
    write_file(*folder_ / "none/chat_template.jinja", "{{ messages[0].content }}");
    for (const char* name : {"tools", "none"})
      write_file(*folder_ / (std::string(name) + "/serve.yaml"), "length: 600\nstreams: 2\n");
    server_ = new Running({.models = folder_->path().string()});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  static HttpResponse ask(const std::string& fields, const char* model = "tools") {
    return server_->post(
        "/v1/chat/completions",
        fmt::format(R"({{"model":"{}","temperature":1.5,"top_k":0,"max_tokens":300,{},)"
                    R"("messages":[{{"role":"user","content":"b"}}]}})",
                    model, fields));
  }
  static inline TempFolder* folder_;
  static inline Running* server_;
};

TEST_F(Tools, RequiredCallsAreMadeWithTheirSchema) {
  for (int seed = 0; seed < 12; ++seed) {
    const bool named = seed % 2 == 0;
    const std::string choice =
        named ? R"({"type":"function","function":{"name":"bc"}})" : R"("required")";
    const std::string fields =
        fmt::format(R"({},"tool_choice":{},"seed":{})", kTools, choice, seed);
    const HttpResponse r = ask(fields);
    ASSERT_EQ(r.status, 200) << r.body;
    const io::Json j = io::parse_json(r.body);
    const io::Json& c = j.find("choices")->as_array()->at(0);
    if (*c.find("finish_reason")->as_string() == "length") {
      EXPECT_FALSE(named) << r.body;  // "required" allows calls without end
      continue;
    }
    EXPECT_EQ(*c.find("finish_reason")->as_string(), "tool_calls") << r.body;
    EXPECT_TRUE(c.find("message")->find("content")->is_null()) << r.body;
    const io::Json::Array& calls = *c.find("message")->find("tool_calls")->as_array();
    ASSERT_FALSE(calls.empty());
    if (named) {
      EXPECT_EQ(calls.size(), 1U);
    }
    for (const io::Json& call : calls) {
      EXPECT_TRUE(call.find("id")->as_string()->starts_with("call_"));
      const std::string name = *call.find("function")->find("name")->as_string();
      const io::Json arguments =
          io::parse_json(*call.find("function")->find("arguments")->as_string());
      if (name == "bc") {
        const int64_t a = *arguments.find("b")->as_int();
        EXPECT_TRUE(a >= 10 && a <= 99) << r.body;
      } else {
        EXPECT_EQ(name, "cd");
        EXPECT_FALSE(named);
      }
    }
    // The same in a stream.
    const HttpResponse parts = ask(fields + R"(,"stream":true)");
    size_t streamed = 0;
    for (size_t at = 0; (at = parts.body.find("\"arguments\":", at)) != std::string::npos; ++at)
      ++streamed;
    EXPECT_EQ(streamed, calls.size()) << parts.body;
    EXPECT_NE(parts.body.find("\"finish_reason\":\"tool_calls\""), std::string::npos);
  }
}

TEST_F(Tools, TheTemplateSeesThem) {
  const auto prompt = [](const std::string& fields) {
    const HttpResponse r = ask(fields + R"(,"seed":1)");
    EXPECT_EQ(r.status, 200) << r.body;
    return *io::parse_json(r.body).find("usage")->find("prompt_tokens")->as_int();
  };
  EXPECT_EQ(prompt(R"("n":1)"), 1);
  EXPECT_GT(prompt(kTools), 4) << "bccd and the mark before b";
  EXPECT_EQ(prompt(kTools + std::string(R"(,"tool_choice":"none")")), 1);
  // Arguments of earlier calls are objects to the template.
  const HttpResponse r = server_->post(
      "/v1/chat/completions",
      R"({"model":"tools","max_tokens":1,"messages":[{"role":"assistant","content":null,)"
      R"("tool_calls":[{"id":"x","type":"function","function":{"name":"bc","arguments":)"
      R"("{\"b\": 123}"}}]},{"role":"tool","tool_call_id":"x","content":"bc"}]})");
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(*io::parse_json(r.body).find("usage")->find("prompt_tokens")->as_int(), 5) << "123bc";
}

TEST_F(Tools, Refusals) {
  const std::string tools = kTools;
  struct Case {
    const char* model;
    std::string fields;
    const char* text;
  };
  const Case cases[] = {
      {"none", tools, "chat template knows none"},
      {"tools", R"("tools":5)", "'tools' expects a list"},
      {"tools", R"("tools":[{"type":"search"}])", "entries of type function"},
      {"tools", R"("tools":[{"type":"function","function":{}}])", "needs a name"},
      {"tools", R"("tool_choice":"required")", "'tool_choice' requires 'tools'"},
      {"tools", tools + R"(,"tool_choice":"any")", "none, auto, required"},
      {"tools", tools + R"(,"tool_choice":{"type":"function","function":{"name":"zz"}})", "'zz'"},
      {"tools", tools + R"(,"tool_choice":"required","guided_choice":["a"])", "exclude each other"},
      {"tools",
       R"("tool_choice":"required","tools":[{"type":"function","function":{"name":"f",)"
       R"("parameters":{"type":"object","patternProperties":{}}}}])",
       "'patternProperties' is not supported"}};
  for (const Case& c : cases) {
    const HttpResponse r = ask(c.fields, c.model);
    EXPECT_EQ(r.status, 400) << c.fields << "\n" << r.body;
    EXPECT_NE(r.body.find(c.text), std::string::npos) << c.fields << "\n" << r.body;
  }
}

}  // namespace
}  // namespace tandem::serve
