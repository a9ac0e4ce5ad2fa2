// SPDX-License-Identifier: Apache-2.0
// Chat templates: what Jinja makes of them as Hugging Face's library sets it up, and what a hostile
// one may not do. tests/peers/chat_templates compares these and others with jinja2 itself.
#include "tandem/text/chat_template.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::text {
namespace {

io::Json json(const char* text) { return io::parse_json(text); }
std::string run(std::string_view jinja, const io::Json& extra = {}) {
  return ChatTemplate(jinja).render(
      json(R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes?"}])"), true,
      extra);
}

struct Rendered {
  const char *name, *jinja, *text;
};
const Rendered kRendered[] = {
    {"text", "a b", "a b"},
    {"print", "{{ 1 + 2 * 3 }}{{ 'x' ~ 1 }}{{ true }}{{ none }}{{ nothing }}", "7x1TrueNone"},
    {"numbers", "{{ 7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ 1.0 }} {{ 2 - 3 }}", "3 3.5 2 1.0 -1"},
    {"lists", "{{ [1, 'a', [2.5, none]] }} {{ {'a': 1} }}", "[1, 'a', [2.5, None]] {'a': 1}"},
    {"logic", "{{ 'a' if 1 < 2 and not (3 == 4) else 'b' }}{{ 0 or 'x' }}{{ '' and 'y' }}", "ax"},
    {"in", "{{ 'a' in 'cat' }}{{ 2 in [1, 2] }}{{ 'k' not in {'k': 1} }}", "TrueTrueFalse"},
    {"slices", "{{ [1, 2, 3][1:] }}{{ 'hello'[::-1] }}{{ 'hello'[-3:-1] }}{{ [1, 2][5] }}",
     "[2, 3]ollehll"},
    {"for", "{% for m in messages %}{{ loop.index }}{{ m['role'] }}:{{ m.content }};{% endfor %}",
     "1user:Hi;2assistant:Yes?;"},
    {"loop", "{% for x in 'abc' %}{{ x }}{{ ',' if not loop.last }}{% endfor %}", "a,b,c"},
    {"filtered", "{% for x in range(6) if x is even %}{{ x }}{{ loop.length }}{% endfor %}",
     "032343"},
    {"empty", "{% for x in [] %}x{% else %}none{% endfor %}", "none"},
    {"pairs", "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"},
    {"flow",
     "{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 4 %}"
     "{% break %}{% endif %}{{ x }}{% endfor %}",
     "023"},
    {"scope", "{% set x = 1 %}{% for i in [2] %}{% set x = i %}{% endfor %}{{ x }}", "1"},
    {"namespace",
     "{% set ns = namespace(x=1) %}{% for i in [2] %}{% set ns.x = i %}{% endfor %}{{ ns.x }}",
     "2"},
    {"set", "{% set a, b = [1, 2] %}{{ b }}{% set t %}in{{ a }}{% endset %}{{ t }}", "2in1"},
    {"elif", "{% if false %}a{% elif 1 == 1 %}b{% else %}c{% endif %}", "b"},
    {"macro", "{% macro f(x, y='!') %}<{{ x }}{{ y }}>{% endmacro %}{{ f(1) }}{{ f(2, y='?') }}",
     "<1!><2?>"},
    {"filters",
     "{{ ' a ' | trim }}{{ 'ab' | upper }}{{ [1, 2] | join('-') }}{{ x | default('d') }}"
     "{{ [3, 4] | last }}{{ 'abc' | length }}{{ 'a b' | title }}",
     "aAB1-2d43A B"},
    {"attributes",
     "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
     "{{ messages | map(attribute='role') | join(',') }}",
     "1user,assistant"},
    {"json", "{{ {'a': [1, 'x\"'], 'b': none} | tojson }}|{{ [1] | tojson(indent=2) }}",
     "{\"a\": [1, \"x\\\"\"], \"b\": null}|[\n  1\n]"},
    {"methods",
     "{{ ' x '.strip() }}{{ 'a,b'.split(',')[1] }}{{ 'abc'.startswith('ab') }}"
     "{{ {'k': 5}.get('k') }}{{ {'k': 5}.get('z', 6) }}{{ 'aXb'.replace('X', '-') }}"
     "{{ '\\n'.join(['p', 'q']) }}",
     "xbTrue56a-bp\nq"},
    {"tests",
     "{{ x is defined }}{{ messages is iterable }}{{ 'a' is string }}{{ 3 is number }}"
     "{{ {} is mapping }}{{ none is none }}{{ 1 is not none }}",
     "FalseTrueTrueTrueTrueTrueTrue"},
    {"unicode", "{{ '\xC3\xA9t\xC3\xA9'[1:] }}{{ '\xE2\x82\xAC' | tojson }}",
     "t\xC3\xA9\"\xE2\x82\xAC\""},
    {"comment", "a{# {{ x }} #}b", "ab"},
    {"breaks", "{% if true %}\nx\n{% endif %}\ny", "x\ny"},
    {"blanks", "a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  b\nc"},
    {"minus", "a  {%- if true -%}  b  {%- endif -%}  c {{- 'd' -}} e", "abcde"},
    {"braces", "{{ '}}' }}{{ '%}' }} {", "}}%} {"},
    {"objects", "{{ {'k': [1], 'z': {}} }}{{ {'a': {'b': {}}}.a }}",
     "{'k': [1], 'z': {}}{'b': {}}"},
    {"undefined",
     "{% for x in nothing %}x{% endfor %}{{ nothing | length }}{{ nothing is iterable }}", "0True"},
    {"quotes", R"({{ "it's" }}{{ 'a\'b\n' }})", "it'sa'b\n"},
    {"prompt", "{{ add_generation_prompt }}", "True"},
};

class Jinja : public ::testing::TestWithParam<Rendered> {};
TEST_P(Jinja, AsTheLibraryRunsIt) { EXPECT_EQ(run(GetParam().jinja), GetParam().text); }
INSTANTIATE_TEST_SUITE_P(Cases, Jinja, ::testing::ValuesIn(kRendered),
                         [](const auto& info) { return std::string(info.param.name); });

// The forms in which chat models are trained.
TEST(ChatTemplates, OfFolders) {
  const TempFolder folder;
  EXPECT_FALSE(ChatTemplate::of_folder(folder.path()));
  write_file(folder / "tokenizer_config.json", R"({
    "bos_token": {"content": "<s>"}, "eos_token": "</s>",
    "chat_template": "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"})");
  const io::Json messages = json(R"([{"role":"user","content":"Hi"}])");
  EXPECT_EQ(ChatTemplate::of_folder(folder.path())->render(messages), "<s>[user]Hi</s>[assistant]");
  EXPECT_EQ(ChatTemplate::of_folder(folder.path())->render(messages, false), "<s>[user]Hi</s>");
  write_file(folder / "chat_template.jinja", "{{ thinking }}{{ messages[0].content }}");
  EXPECT_EQ(
      ChatTemplate::of_folder(folder.path())->render(messages, true, json(R"({"thinking":1})")),
      "1Hi")
      << "a file of its own comes first";
}

struct Broken {
  const char *name, *jinja, *text;
};
const Broken kBroken[] = {
    {"open", "{{ 1", "'}}' is missing"},
    {"block", "a\n{% if x %}", "line 2: 'endif' is missing"},
    {"unknown", "{% include 'x' %}", "'include' is not supported"},
    {"text", "{{ 'a }}", "missing"},
    {"sign", "{{ 1 + }}", "'the end' is not understood"},
    {"bracket", "{{ 1 + ] }}", "']' is not understood"},
    {"filter", "{{ 1 | nofilter }}", "no filter 'nofilter'"},
    {"test", "{{ 1 is notest }}", "no test 'notest'"},
    {"function", "{{ open('x') }}", "no function 'open'"},
    {"method", "{{ 'a'.format() }}", "no method 'format'"},
    {"private", "{{ ''.__class__.__mro__ }}", "undefined"},
    {"undefined", "{{ a.b }}", "'b' of what is undefined"},
    {"raise", "{{ raise_exception('roles must alternate') }}", "roles must alternate"},
    {"zero", "{{ 1 // 0 }}", "division by zero"},
    {"long", "{% for i in range(100000000) %}{% endfor %}", "a million steps"},
    {"large", "{{ 'aaaaaaaa' * 100000000 }}", "16 MB"},
    {"doubling",
     "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}"
     "{% set ns.x = ns.x + ns.x %}{% endfor %}",
     "16 MB"},
    {"output", "{% for i in range(9000) %}{{ 'aaaaaaaaaaaaaaaa' * 500 }}{% endfor %}", "16 MB"},
    {"recursion", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "without an end"},
};
class BadJinja : public ::testing::TestWithParam<Broken> {};
TEST_P(BadJinja, SaysWhy) {
  try {
    const std::string out = run(GetParam().jinja);
    FAIL() << "gave " << out.size() << " bytes";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(GetParam().text), std::string::npos) << e.what();
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, BadJinja, ::testing::ValuesIn(kBroken),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ChatTemplates, DeepOnesDoNotExhaustTheStack) {
  const auto repeat = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  for (const std::string& t :
       {"{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}",
        "{{ " + repeat("not ", 100000) + "1 }}", "{{ " + repeat("-", 100000) + "1 }}",
        "{{ " + repeat("[", 100000) + " }}", "{{ 1" + repeat(" + 1", 100000) + " }}",
        "{{ x" + repeat(".a", 100000) + " }}", repeat("{% if 1 %}", 100000),
        "{% if 1 %}" + repeat("{% elif 1 %}", 100000) + "{% endif %}"})
    EXPECT_THROW(ChatTemplate{t}, Error) << t.substr(0, 40);
}

}  // namespace
}  // namespace tandem::text
