// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/text/text_stream.h"

#include <algorithm>

namespace tandem::serve {
namespace {

constexpr size_t kContext = 6;  ///< tokens of the prompt: how a token reads depends on those before
constexpr std::string_view kUnfinished = "\xEF\xBF\xBD";  ///< bytes that are not a character yet

// The longest end of `text` that a stop may begin with.
size_t held_back(std::string_view text, const std::vector<std::string>& stops) {
  size_t most = 0;
  for (const std::string& stop : stops)
    for (size_t n = std::min(stop.size() - 1, text.size()); n > most; --n)
      if (text.substr(text.size() - n) == std::string_view(stop).substr(0, n)) most = n;
  return most;
}

}  // namespace

TextStream::TextStream(text::Tokenizer tokenizer, std::span<const int64_t> prompt,
                       std::vector<std::string> stops)
    : tokenizer_(std::move(tokenizer)), stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
  const auto tail = prompt.last(std::min(kContext, prompt.size()));
  ids_.assign(tail.begin(), tail.end());
  read_ = ids_.size();
}

// The text after what was given out; nothing while it ends inside a character, unless `whole`.
std::string TextStream::fresh_text(bool whole) {
  const std::span<const int64_t> all(ids_);
  const std::string before = tokenizer_.decode(all.subspan(from_, read_ - from_)),
                    now = tokenizer_.decode(all.subspan(from_));
  if (now.size() <= before.size() || (!whole && now.ends_with(kUnfinished))) return "";
  from_ = read_;
  read_ = ids_.size();
  return now.substr(before.size());
}

void TextStream::read(bool whole) {
  const std::string fresh = fresh_text(whole);
  characters_ += utf8_characters(fresh);
  held_ += fresh;
}

std::string TextStream::certain(bool whole) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    whole = true;
  }
  const size_t keep = whole ? 0 : held_back(held_, stops_);
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string TextStream::push(int64_t token) {
  if (stopped_) return "";
  ids_.push_back(token);
  read(false);
  return certain(false);
}

std::string TextStream::finish() {
  if (stopped_) return "";
  read(true);
  return certain(true);
}

}  // namespace tandem::serve
