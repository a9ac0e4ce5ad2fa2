// SPDX-License-Identifier: Apache-2.0
// Added tokens: found in the text before the model sees it, the longest one at the leftmost
// position.
#include <algorithm>

#include "tandem/base/budget.h"
#include "tandem/text/finish_internal.h"

namespace tandem::text {

void AddedTokens::Finder::add(std::string content, const AddedToken& t) {
  if (content.empty()) return;
  contents.push_back(std::move(content));
  tokens.emplace(contents.back(), &t);
}
void AddedTokens::Finder::finish() {
  for (const auto& [content, token] : tokens)
    lengths[static_cast<unsigned char>(content[0])].push_back(
        static_cast<uint32_t>(content.size()));
  for (auto& l : lengths) {
    std::sort(l.begin(), l.end(), std::greater<>());
    l.erase(std::unique(l.begin(), l.end()), l.end());
  }
}

namespace {
bool ends_with_word(std::string_view s) {
  size_t i = s.size();
  while (i > 0 && (static_cast<unsigned char>(s[--i]) & 0xC0U) == 0x80) {}
  return !s.empty() && is_word(next_char(s, i));
}
bool starts_with_word(std::string_view s) {
  size_t i = 0;
  return !s.empty() && is_word(next_char(s, i));
}
uint32_t without_trailing_spaces(std::string_view s) {
  size_t end = s.size();
  while (end > 0) {
    size_t i = end;
    while ((static_cast<unsigned char>(s[--i]) & 0xC0U) == 0x80) {}
    size_t next = i;
    if (!is_space(next_char(s, next))) break;
    end = i;
  }
  return static_cast<uint32_t>(end);
}
uint32_t leading_spaces(std::string_view s) {
  size_t n = 0;
  for (size_t i = 0; i < s.size(); n = i)
    if (!is_space(next_char(s, i))) break;
  return static_cast<uint32_t>(n);
}
}  // namespace

std::vector<AddedTokens::Finder::Match> AddedTokens::Finder::matches(std::string_view s) const {
  std::vector<Match> out;
  if (tokens.empty()) return out;
  uint32_t from = 0;
  for (size_t i = 0; i < s.size();) {
    const AddedToken* t = nullptr;
    size_t n = 0;
    for (const uint32_t length : lengths[static_cast<unsigned char>(s[i])]) {
      if (length > s.size() - i) continue;
      Budget::work(length);
      const auto at = tokens.find(s.substr(i, length));
      if (at == tokens.end()) continue;
      t = at->second;
      n = length;
      break;
    }
    if (!t) {
      ++i;
      continue;
    }
    auto begin = static_cast<uint32_t>(i), end = static_cast<uint32_t>(i + n);
    i = end;
    Budget::check_time();
    if (t->single_word && (ends_with_word(s.substr(0, begin)) || starts_with_word(s.substr(end))))
      continue;
    if (t->lstrip) begin = std::max(without_trailing_spaces(s.substr(0, begin)), from);
    if (t->rstrip) end += leading_spaces(s.substr(end));
    if (begin < from) continue;
    out.push_back({begin, end, t});
    from = end;
  }
  return out;
}

AddedTokens::AddedTokens(const io::Json* json, const Vocabulary& vocabulary,
                         const Normalizer* normalizer) {
  if (!json || json->is_null()) return;
  TD_CHECK(json->as_array(), Format, "added_tokens must be an array, is {}", json->kind());
  for (const io::Json& entry : *json->as_array()) {
    const Fields f(entry, "added_tokens");
    auto t = std::make_unique<AddedToken>();
    t->content = f.text("content");
    t->id = static_cast<uint32_t>(f.integer("id", 0, kMaxTokenId));
    t->single_word = f.flag("single_word", false);
    t->lstrip = f.flag("lstrip", false);
    t->rstrip = f.flag("rstrip", false);
    t->special = f.flag("special", false);
    t->normalized = f.flag("normalized", !t->special);
    if (t->content.empty() || by_content_.count(t->content)) continue;
    if (const auto id = vocabulary.find(t->content))
      t->id = *id;
    else
      ++extra_;
    by_id_.emplace(t->id, t.get());
    by_content_.emplace(t->content, t.get());
    tokens_.push_back(std::move(t));
  }
  raw_.contents.reserve(tokens_.size());  // views into them stay valid
  normalized_.contents.reserve(tokens_.size());
  for (const auto& t : tokens_) {
    if (!t->normalized) {
      raw_.add(t->content, *t);
      continue;
    }
    Aligned a{t->content, {}, 0};
    if (normalizer) normalizer->run(a);
    normalized_.add(std::move(a.text), *t);
  }
  raw_.finish();
  normalized_.finish();
}

const AddedToken* AddedTokens::find(uint32_t id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : at->second;
}
const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto at = by_content_.find(content);
  return at == by_content_.end() ? nullptr : at->second;
}

// Appends a normalised segment to `out`, split at the tokens that match normalised text.
void AddedTokens::append(Aligned& segment, Pieces& out) const {
  const auto base = static_cast<uint32_t>(out.all.text.size());
  uint32_t from = 0;
  for (const auto& m : normalized_.matches(segment.text)) {
    if (from < m.begin) out.list.push_back({base + from, base + m.begin, -1});
    out.list.push_back({base + m.begin, base + m.end, m.token->id});
    from = m.end;
  }
  const auto size = static_cast<uint32_t>(segment.text.size());
  if (from < size) out.list.push_back({base + from, base + size, -1});
  if (base == 0) {
    out.all = std::move(segment);
    return;
  }
  segment.materialize();
  out.all.materialize();
  out.all.text.append(segment.text);
  out.all.origin.insert(out.all.origin.end(), segment.origin.begin(), segment.origin.end());
}

void AddedTokens::split(std::string_view text, const Normalizer* normalizer, Pieces& out) const {
  const auto plain = [&](uint32_t begin, uint32_t end) {
    if (begin >= end) return;
    Aligned a{std::string(text.substr(begin, end - begin)), {}, begin};
    if (normalizer) normalizer->run(a);
    append(a, out);
  };
  uint32_t from = 0;
  for (const auto& m : raw_.matches(text)) {
    plain(from, m.begin);
    from = m.end;
    const auto base = static_cast<uint32_t>(out.all.text.size());
    if (base == 0) {
      out.all = {std::string(text.substr(m.begin, m.end - m.begin)), {}, m.begin};
      out.all.materialize();
    } else {
      out.all.materialize();
      Aligned a{std::string(text.substr(m.begin, m.end - m.begin)), {}, m.begin};
      a.materialize();
      out.all.text.append(a.text);
      out.all.origin.insert(out.all.origin.end(), a.origin.begin(), a.origin.end());
    }
    out.list.push_back({base, base + (m.end - m.begin), m.token->id});
  }
  plain(from, static_cast<uint32_t>(text.size()));
}

}  // namespace tandem::text
