// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/components/characters_internal.h"

#include <algorithm>

#include "tandem/ops/ops.h"
#include "tandem/recipe/components/components_internal.h"

namespace tandem::recipe {
namespace {

// The character of `text` that the byte at `at` belongs to.
std::string whole_character(const std::string& text, size_t at) {
  const auto follows = [&](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  size_t begin = at, end = at + 1;
  while (begin > 0 && follows(begin)) --begin;
  while (end < text.size() && follows(end)) ++end;
  return text.substr(begin, end - begin);
}

}  // namespace

std::optional<int64_t> Characters::id(int64_t byte) const {
  const auto it = std::find(bytes_.begin(), bytes_.end(), byte);
  if (it == bytes_.end()) return {};
  return it - bytes_.begin();
}

std::string Characters::shown(int64_t i) const {
  const int64_t b = bytes_.at(static_cast<size_t>(i));
  if (b < 0) return "<end>";
  if (b == '\n') return "\\n";
  return b >= 32 && b < 127 ? std::string(1, static_cast<char>(b)) : fmt::format("\\x{:02x}", b);
}

std::string Characters::all() const {
  std::string out;
  for (size_t i = 0; i < bytes_.size(); ++i)
    if (bytes_[i] >= 0) out += shown(static_cast<int64_t>(i));
  return out;
}

std::string Characters::mistake(const std::string& text) const {
  for (size_t i = 0; i < text.size(); ++i)
    if (!id(static_cast<unsigned char>(text[i])))
      return fmt::format("the text that the model was trained on has no '{}'. It has {}",
                         whole_character(text, i), all());
  return text.empty() && !id(-1) && !id('\n') ? "expected a text to begin with" : "";
}

std::vector<int64_t> Characters::encode(const std::string& text) const {
  const std::string wrong = mistake(text);
  TD_CHECK(wrong.empty(), Value, "{}", wrong);
  std::vector<int64_t> ids;
  if (const auto end = id(-1)) ids.push_back(*end);
  for (const char c : text) ids.push_back(*id(static_cast<unsigned char>(c)));
  if (ids.empty()) ids.push_back(*id('\n'));
  return ids;
}

std::string Characters::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  for (const int64_t i : ids) text += character(i);
  return text;
}

std::string Characters::character(int64_t i) const {
  const int64_t byte = bytes_.at(static_cast<size_t>(i));
  return byte < 0 ? "" : std::string(1, static_cast<char>(byte));
}

std::vector<int64_t> Characters::ends() const {
  if (const auto end = id(-1)) return {*end};
  return {};
}

Preparation prepared_characters(const RunData& run) {
  TD_CHECK(
      !run.facts.characters.empty(), Unsupported,
      "the run is from before the character set of its data was kept\n`tandem train` of its recipe "
      "with --run and its folder writes them.");
  const Characters characters(run.facts.characters);
  const auto context = run.info.find("context");
  const size_t most = context == run.info.end() ? 0 : static_cast<size_t>(context->second);
  return {SampleKind::text, [=](std::string_view bytes, const std::string&) {
            if (characters.lines() && bytes.ends_with('\n')) bytes.remove_suffix(1);
            std::vector<int64_t> ids = characters.encode(std::string(bytes));
            if (most > 0 && ids.size() > most)
              ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(most));
            return PreparedBatch{{tensor(ids).unsqueeze(0)}};
          }};
}

}  // namespace tandem::recipe
