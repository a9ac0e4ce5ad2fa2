// SPDX-License-Identifier: Apache-2.0
#include "tandem/edge/prelude_internal.h"

#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "tandem/codegen/prelude_text.h"
#include "tandem/edge/text_internal.h"

namespace tandem::edge {
namespace {

struct Declaration {
  std::string text, name;
  std::vector<std::string> words;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::vector<std::string> words_of(std::string_view s) {
  std::vector<std::string> words;
  for (size_t at = 0; at < s.size();) {
    size_t end = at;
    while (end < s.size() && is_word(s[end])) ++end;
    if (end > at && !std::isdigit(static_cast<unsigned char>(s[at])))
      words.emplace_back(s.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// As the file that it goes into writes it.
std::string portable(std::string s) {
  replace_all(s, " __attribute__((always_inline))", "");
  for (const char* width : {"8", "16", "32", "64"}) {
    const std::string w = width;
    replace_all(s, "__UINT" + w + "_TYPE__", "uint" + w + "_t");
    replace_all(s, "__INT" + w + "_TYPE__", "int" + w + "_t");
  }
  return s;
}

// A function's name stands before its parameters, that of a type or a table at the end.
std::string name_of(std::string_view text) {
  const size_t attribute = text.find("__attribute__((");
  const size_t from = attribute == std::string_view::npos ? 0 : text.find("))", attribute) + 2;
  const bool type = text.substr(0, 7) == "typedef";
  const size_t end = type ? text.rfind(';') : text.find_first_of("([=", from);
  const std::vector<std::string> words = words_of(text.substr(from, end - from));
  return words.empty() ? "" : words.back();
}

std::vector<Declaration> split(std::string_view all) {
  std::vector<Declaration> found;
  int depth = 0;
  size_t begin = 0;
  bool body = false;  // a function's, not a table's or a struct's
  char last = 0;
  for (size_t at = 0; at < all.size(); ++at) {
    const char c = all[at];
    if (c == '{' || c == '(') {
      body = body || (c == '{' && depth == 0 && last == ')');
      ++depth;
    } else if (c == '}' || c == ')') {
      --depth;
    }
    const bool ends = depth == 0 && (c == ';' || (c == '}' && body));
    if (!std::isspace(static_cast<unsigned char>(c))) last = c;
    if (!ends) continue;
    while (begin < at && std::isspace(static_cast<unsigned char>(all[begin]))) ++begin;
    Declaration d;
    d.text = portable(std::string(all.substr(begin, at + 1 - begin)));
    d.name = name_of(d.text);
    d.words = words_of(d.text);
    if (!d.name.empty()) found.push_back(std::move(d));
    begin = at + 1;
    body = false;
  }
  return found;
}

}  // namespace

std::string prelude_for(const std::string& text) {
  static const std::vector<Declaration> all = split(codegen::kPreludeFunctions);
  std::multimap<std::string, size_t> by_name;
  for (size_t k = 0; k < all.size(); ++k) by_name.emplace(all[k].name, k);
  std::set<size_t> taken;
  std::vector<std::string> open = words_of(text);
  while (!open.empty()) {
    const std::string word = std::move(open.back());
    open.pop_back();
    const auto [first, last] = by_name.equal_range(word);
    for (auto it = first; it != last; ++it)
      if (taken.insert(it->second).second)
        open.insert(open.end(), all[it->second].words.begin(), all[it->second].words.end());
  }
  std::string s;
  for (const size_t k : taken) s += all[k].text + "\n";
  return s;
}

}  // namespace tandem::edge
