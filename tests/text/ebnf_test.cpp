// SPDX-License-Identifier: Apache-2.0
// Grammars in EBNF: which texts they hold, against what plain code says of every short text, and
// what is refused.
#include <gtest/gtest.h>

#include <functional>
#include <regex>

#include "tandem/base/error.h"
#include "tests/support/init.h"
#include "tests/text/constraint_helper.h"

namespace tandem::text {
namespace {

struct EbnfCase {
  const char* name;
  std::string rules;
  std::string letters;  ///< all texts of up to `length` of them are asked
  size_t length;
  std::function<bool(const std::string&)> holds;
};

std::function<bool(const std::string&)> like(const std::string& pattern) {
  return [r = std::regex(pattern)](const std::string& s) { return std::regex_match(s, r); };
}

bool is_balanced(const std::string& s) {
  int open = 0;
  for (const char c : s)
    if ((open += c == '(' ? 1 : -1) < 0) return false;
  return open == 0;
}
bool is_mirrored(const std::string& s) { return std::equal(s.begin(), s.end(), s.rbegin()); }

TEST(Ebnf, HoldsTheTextsOfItsRules) {
  const EbnfCase cases[] = {
      {"texts", R"(root ::= "ab" | "a" | "")", "ab", 3, like("ab|a|")},
      {"sets", R"(root ::= [a-c]+ [^a-c\]] .)", "abd]", 4, like("[a-c]+[^a-c\\]][^]")},
      {"repeats", R"(root ::= "a"? "b"* "c"+ "ab"{1,2} "c"{2} "a"{0,} "b"{,1})", "abc", 7,
       like("a?b*c+(ab){1,2}c{2}a*b{0,1}")},
      {"groups", "root ::= ( \"a\" | \"b\" \"c\"? )* (\n \"d\"\n | x )\nx ::= [d] [a]", "abcd", 5,
       like("(a|bc?)*(d|da)")},
      {"a list by the last call", R"(root ::= "a" ("," root)?)", "a,", 5, like("a(,a)*")},
      {"balanced", "root ::= pair*\npair ::= \"(\" pair* \")\"", "()", 8, is_balanced},
      {"mirrored", R"(root ::= "a" root "a" | "b" root "b" | "a"? | "b")", "ab", 7, is_mirrored},
      {"rules in one line", "root::=a b a::=\"x\"  b ::= [yz] #end", "xyz", 3, like("x[yz]")},
      {"alternatives on lines of their own",
       "root ::=\n  \"x\"\n  | y # ::=\n\n# y ::= \"q\"\ny ::= \"y\"", "xy", 2, like("x|y")},
      {"empty alternatives", R"(root ::= "a" (  | "b") | )", "ab", 3, like("ab?|")},
      {"a rule that nothing calls", "other ::= \"b\"\nroot ::= \"a\"", "ab", 2, like("a")},
  };
  for (const EbnfCase& c : cases) {
    const auto grammar = constraint(Grammar::ebnf(c.rules));
    std::vector<std::string> texts = {""};
    for (size_t from = 0, n = 0; n <= c.length; ++n) {
      const size_t end = texts.size();
      for (; from < end; ++from) {
        const std::string s = texts[from];
        EXPECT_EQ(holds(grammar, s), c.holds(s)) << c.name << ": '" << s << "'";
        if (n < c.length)
          for (const char letter : c.letters) texts.push_back(s + letter);
      }
    }
  }
}

TEST(Ebnf, ReadsEscapesAndCharactersOfManyBytes) {
  const std::pair<const char*, std::string> same[] = {
      {R"(root ::= "\n\r\t\\\"\[\]")", "\n\r\t\\\"[]"},
      {R"(root ::= "\x41\u00fc\U0001F600")", "A\xC3\xBC\xF0\x9F\x98\x80"},
      {R"(root ::= [\u00fc] [^a] [ä-ü])", "\xC3\xBC\xE2\x82\xAC\xC3\xB6"},
      {R"(root ::= [\x30-9]{3})", "059"},
      {R"(root ::= [a\-z] [\]\\] [\^])", "-\\^"},
      {"root ::= .", "\xF0\x9F\x98\x80"},
  };
  for (const auto& [rules, text] : same)
    EXPECT_TRUE(holds(constraint(Grammar::ebnf(rules)), text)) << rules;
  EXPECT_FALSE(holds(constraint(Grammar::ebnf(R"(root ::= [a\-z])")), "b"));
  EXPECT_FALSE(holds(constraint(Grammar::ebnf("root ::= .")), "\xF0\x9F"));
}

TEST(Ebnf, RefusesByLineAndName) {
  const std::string deep(200, '(');
  std::string chain;
  for (int i = 0; i < 60; ++i)
    chain += "r" + std::to_string(i) + " ::= \"(\" r" + std::to_string(i + 1) + " \")\"\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "no rule 'root'"},
      {"start ::= \"a\"", "no rule 'root'"},
      {"root ::= numbr\nnumber ::= \"1\"", "no rule 'numbr'; did you mean 'number'?"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule 'root' is there already"},
      {"root : \"a\"", "line 1: after the name of a rule comes '::='"},
      {"root ::= \"a", "a text lacks its '\"'"},
      {"root ::= \"a\nb\"", "a text lacks its '\"'"},
      {"root ::= [a", "a set lacks its ']'"},
      {"root ::= [z-a]", "ascending order"},
      {"root ::= (\"a\"", "a group lacks its ')'"},
      {"root ::= \"a\")", "this ')' closes no group"},
      {"root ::= *", "neither a rule's name"},
      {"root ::= /a+/", "neither a rule's name"},
      {"root ::= (=\"a\")", "lookahead"},
      {"root ::= \"a\"{2,1}", "less than the first"},
      {"root ::= \"a\"{}", "must begin {n}"},
      {"root ::= \"a\"{,}", "must begin {n}"},
      {"root ::= \"a\"{99999}", "10000 repeats"},
      {"root ::= \"\\q\"", "this escape is not supported"},
      {"root ::= \"\\x4\"", "hexadecimal"},
      {"root ::= \"\\uD800\"", "no character"},
      {"root ::= \"\\U00110000\"", "no character"},
      {"root ::= \"\xff\"", "UTF-8"},
      {"root ::= root \"a\" | \"a\"", "'root' of the grammar begins with itself"},
      {"root ::= a\na ::= b* a \"x\" | \"y\"\nb ::= \"\" | \"z\"",
       "'a' of the grammar begins with"},
      {"root ::= a\na ::= (b | \"x\")?\nb ::= a", "begins with itself"},
      {"root ::= \"a\" root", "no text satisfies the grammar"},
      {"root ::= r0\n" + chain + "r60 ::= \"\"", "nested more than"},
      {"root ::= " + deep, "nested too deep"},
      {"root ::= (((\"a\"{1000}){1000}){1000}){1000}", "too large"},
      {std::string(300000, '#'), "longer than"},
  };
  for (const auto& [rules, want] : cases) {
    try {
      Grammar::ebnf(rules);
      ADD_FAILURE() << "accepted: " << rules.substr(0, 200);
    } catch (const Error& e) {
      EXPECT_TRUE(says(e, want)) << rules.substr(0, 200) << "\n" << e.text();
    }
  }
}

// Nothing that a client sends may do more than be refused.
TEST(Ebnf, RandomRulesAreReadOrRefused) {
  const std::string pieces[] = {"root", "::=",   "a",         "\"",       "[",       "]",   "(",
                                ")",    "|",     "*",         "+",        "?",       "{2}", "\n",
                                "#",    "\\",    "a-z",       "^",        ".",       " ",   "{,3}",
                                "b",    "\"x\"", "root ::= ", "\nb ::= ", "\xC3\xBC"};
  size_t read = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    PhiloxStream random(seed);
    std::string rules = seed % 2 ? "root ::= " : "";
    for (uint64_t n = random.next_below(24); n > 0; --n)
      rules += pieces[random.next_below(std::size(pieces))];
    try {
      const auto c = constraint(Grammar::ebnf(rules));
      ConstrainedText text(c);
      text.push("ax");
      ++read;
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::Value || e.kind() == ErrorKind::Format) << e.text();
    }
  }
  EXPECT_GT(read, 100U);
}

}  // namespace
}  // namespace tandem::text
