// SPDX-License-Identifier: Apache-2.0
// A text passing through a tokenizer: the current text, the origin of each of its bytes, and the
// pieces it was split into. Normalisers change the text, pre-tokenisers split it (some change it,
// too), the model turns pieces into tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/unicode_internal.h"

namespace tandem::text {

/// Bytes begin to end (exclusive) of a text.
struct ByteRange {
  uint32_t begin = 0, end = 0;
};

/// A text and its origin: byte i comes from byte origin[i] of the original text. Empty: nothing was
/// changed, and the text starts at byte `base` of the original.
struct Aligned {
  std::string text;
  std::vector<ByteRange> origin;
  uint32_t base = 0;

  /// The original range of bytes [begin, end); both are character boundaries.
  ByteRange origin_of(uint32_t begin, uint32_t end) const;
  /// Fill `origin` if it is empty.
  void materialize();
  /// Replace the whole text. `removed_first`: number of characters dropped at its start.
  void transform(std::span<const Change> to, size_t removed_first = 0);
  /// Replace each of `matches` by `content`.
  void replace(std::span<const std::pair<uint32_t, uint32_t>> matches, std::string_view content);
};

/// A piece of a text; `token` >= 0: it already is that token.
struct Piece {
  uint32_t begin = 0, end = 0;
  int64_t token = -1;
};
struct Pieces {
  Aligned all;
  std::vector<Piece> list;
  std::string_view view(const Piece& p) const {
    return std::string_view(all.text).substr(p.begin, p.end - p.begin);
  }
};

/// What happens to a match when a text is split at it.
enum class SplitBehavior : uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};

/// A stretch of a piece: a match of a pattern, or what lies between two.
struct Stretch {
  uint32_t begin, end;
  bool match;
};
/// Split each piece that is not a token. `find` appends the stretches of a piece, which cover it.
template <class Find>
void split_pieces(Pieces& p, SplitBehavior behavior, Find&& find);
/// Appends the parts that `behavior` makes of `stretches`, offset by `base`; drops empty ones.
void apply_behavior(std::vector<Stretch>& stretches, SplitBehavior behavior, uint32_t base,
                    std::vector<Piece>& out);

template <class Find>
void split_pieces(Pieces& p, SplitBehavior behavior, Find&& find) {
  std::vector<Piece> out;
  out.reserve(p.list.size() + p.all.text.size() / 4);
  std::vector<Stretch> stretches;
  for (const Piece& piece : p.list) {
    if (piece.token >= 0) {
      out.push_back(piece);
      continue;
    }
    stretches.clear();
    find(p.view(piece), stretches);
    apply_behavior(stretches, behavior, piece.begin, out);
  }
  p.list = std::move(out);
}
/// The stretches of `s` for a property of characters: each match is a single character.
template <class Is>
void find_chars(std::string_view s, std::vector<Stretch>& out, Is&& is) {
  uint32_t from = 0;
  for (size_t i = 0; i < s.size();) {
    const auto begin = static_cast<uint32_t>(i);
    if (!is(next_char(s, i))) continue;
    if (from < begin) out.push_back({from, begin, false});
    from = static_cast<uint32_t>(i);
    out.push_back({begin, from, true});
  }
  if (from < s.size()) out.push_back({from, static_cast<uint32_t>(s.size()), false});
}
/// Builds stretches from the ranges of matches.
void cover(std::span<const std::pair<uint32_t, uint32_t>> matches, uint32_t size,
           std::vector<Stretch>& out);

}  // namespace tandem::text
