// SPDX-License-Identifier: Apache-2.0
// Text changes that record where each byte comes from, and the five ways to split at
// matches.
#include "tandem/text/aligned_internal.h"

#include <algorithm>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"

namespace tandem::text {
namespace {

/// A new text takes the place of the old one, with the origin of each of its bytes.
class Exchange {
 public:
  explicit Exchange(size_t old) : old_(old) {}
  ~Exchange() { Budget::give_back(old_ * kByte); }
  static void take(size_t bytes) { Budget::take(bytes * kByte); }

 private:
  static constexpr size_t kByte = 2 * (1 + sizeof(ByteRange));  // lists double as they grow
  size_t old_;
};

}  // namespace

ByteRange Aligned::origin_of(uint32_t begin, uint32_t end) const {
  if (origin.empty()) return {base + begin, base + end};
  if (begin >= end || end > origin.size()) {
    const uint32_t at = begin < origin.size() ? origin[begin].begin
                        : origin.empty()      ? base
                                              : origin.back().end;
    return {at, at};
  }
  return {origin[begin].begin, origin[end - 1].end};
}

void Aligned::materialize() {
  if (!origin.empty() || text.empty()) return;
  origin.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto n = static_cast<uint32_t>(char_bytes(text[i]));
    const uint32_t at = base + static_cast<uint32_t>(i);
    origin.insert(origin.end(), n, ByteRange{at, at + n});
    i += n;
  }
}

void Aligned::transform(std::span<const Change> to, size_t removed_first) {
  materialize();
  const Exchange exchange(text.size());
  std::string made;
  std::vector<ByteRange> from;
  made.reserve(text.size() + 8);
  from.reserve(text.size() + 8);
  size_t at = 0;  // byte offset in the old text
  const auto skip = [&](size_t chars) {
    while (chars-- > 0 && at < text.size()) at += char_bytes(text[at]);
  };
  skip(removed_first);
  for (const Change& c : to) {
    ByteRange r{base, base};
    if (c.change > 0) {
      if (at > 0) r = origin[at - 1];
    } else {
      if (at < origin.size())
        r = origin[at];
      else if (!origin.empty())
        r = {origin.back().end, origin.back().end};
      skip(1 + static_cast<size_t>(-static_cast<int64_t>(c.change)));
    }
    append_char(made, c.c);
    from.resize(made.size(), r);
  }
  TD_CHECK(made.size() < 1U << 31, Value, "a text of {} bytes is too long for a tokenizer",
           made.size());
  Exchange::take(made.size());
  text = std::move(made);
  origin = std::move(from);
}

void Aligned::replace(std::span<const std::pair<uint32_t, uint32_t>> matches,
                      std::string_view content) {
  if (matches.empty()) return;
  materialize();
  const Exchange exchange(text.size());
  Exchange::take(text.size() + matches.size() * content.size());  // before any of it is there
  std::string made;
  std::vector<ByteRange> from;
  made.reserve(text.size());
  from.reserve(text.size());
  uint32_t at = 0;
  const auto keep = [&](uint32_t end) {
    made.append(text, at, end - at);
    from.insert(from.end(), origin.begin() + at, origin.begin() + end);
  };
  for (const auto& [begin, end] : matches) {
    keep(begin);
    made.append(content);
    from.resize(made.size(), end > 0 ? origin[end - 1] : ByteRange{base, base});
    at = end;
    TD_CHECK(made.size() < 1U << 31, Value, "a text of {} bytes is too long for a tokenizer",
             made.size());
  }
  keep(static_cast<uint32_t>(text.size()));
  text = std::move(made);
  origin = std::move(from);
}

void cover(std::span<const std::pair<uint32_t, uint32_t>> matches, uint32_t size,
           std::vector<Stretch>& out) {
  uint32_t from = 0;
  for (const auto& [begin, end] : matches) {
    if (from < begin) out.push_back({from, begin, false});
    out.push_back({begin, end, true});
    from = end;
  }
  if (from < size) out.push_back({from, size, false});
}

namespace {

// Merges matches into the stretch before them, or, going backwards (`next`), into the one after.
void merge(std::vector<Stretch>& v, bool next) {
  if (next) std::reverse(v.begin(), v.end());
  size_t n = 0;
  bool before = false;
  for (const Stretch s : v) {
    if (s.match && !before && n > 0)
      (next ? v[n - 1].begin : v[n - 1].end) = next ? s.begin : s.end;
    else
      v[n++] = s;
    before = s.match;
  }
  v.resize(n);
  if (next) std::reverse(v.begin(), v.end());
}

}  // namespace

void apply_behavior(std::vector<Stretch>& v, SplitBehavior behavior, uint32_t base,
                    std::vector<Piece>& out) {
  switch (behavior) {
    case SplitBehavior::removed:
      v.erase(std::remove_if(v.begin(), v.end(), [](const Stretch& s) { return s.match; }),
              v.end());
      break;
    case SplitBehavior::isolated:
      break;
    case SplitBehavior::merged_with_previous:
      merge(v, false);
      break;
    case SplitBehavior::merged_with_next:
      merge(v, true);
      break;
    case SplitBehavior::contiguous: {
      size_t n = 0;
      bool before = false;
      for (const Stretch s : v) {
        if (s.match == before && n > 0)
          v[n - 1].end = s.end;
        else
          v[n++] = s;
        before = s.match;
      }
      v.resize(n);
      break;
    }
  }
  for (const Stretch& s : v)
    if (s.begin < s.end) out.push_back({base + s.begin, base + s.end, -1});
}

}  // namespace tandem::text
