// SPDX-License-Identifier: Apache-2.0
// The pre-tokenisers of tokenizer files: they split a text into the pieces that the model sees.
// GPT-2's pattern is scanned by hand; all others run in the engine they were written for.
#include <algorithm>

#include "tandem/text/parts_internal.h"

namespace tandem::text {
namespace {

using Matches = std::vector<std::pair<uint32_t, uint32_t>>;

SplitBehavior behavior_of(const std::string& name, const std::string& part) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  TD_CHECK(name == "Contiguous", Format, "{}: there is no behavior '{}'", part, name);
  return SplitBehavior::contiguous;
}

// One character's class in GPT-2's pattern.
enum class CharKind : uint8_t { space, letter, number, other };
CharKind kind_of(char32_t c) {
  if (is_letter(c)) return CharKind::letter;
  if (is_space(c)) return CharKind::space;
  return is_number(c) ? CharKind::number : CharKind::other;
}

// The end of the match of '(?:[sdmt]|ll|ve|re) at `i`, or i.
size_t contraction(std::string_view s, size_t i) {
  if (s[i] != '\'' || i + 1 >= s.size()) return i;
  const char a = s[i + 1];
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
  const char b = i + 2 < s.size() ? s[i + 2] : '\0';
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? i + 3 : i;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ : every character is
// part of a match.
void scan_gpt2(std::string_view s, std::vector<Stretch>& out) {
  const auto run = [&](size_t i, CharKind kind) {  // the end of the run of `kind` that starts at i
    while (i < s.size()) {
      size_t next = i;
      if (kind_of(next_char(s, next)) != kind) break;
      i = next;
    }
    return i;
  };
  for (size_t i = 0; i < s.size();) {
    size_t end = contraction(s, i);
    if (end == i) {
      size_t next = i;
      CharKind kind = kind_of(next_char(s, next));
      if (s[i] == ' ' && next < s.size()) {
        size_t behind = next;
        const CharKind k = kind_of(next_char(s, behind));
        if (k != CharKind::space) {
          kind = k;
          next = behind;
        }
      }
      end = run(next, kind);
      if (kind == CharKind::space && end < s.size()) {  // the last space belongs to the next match
        size_t last = i, at = i;
        while (at < end) {
          last = at;
          next_char(s, at);
        }
        if (last > i) end = last;
      }
    }
    out.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(end), true});
    i = end;
  }
}

// Put `text` in front of pieces for which wanted(piece) holds; rebuilds all pieces. With `bytes`
// every byte becomes its character of byte-level vocabularies.
template <class Wanted>
void prepend_to(Pieces& p, std::string_view text, Wanted&& wanted) {
  if (std::none_of(p.list.begin(), p.list.end(), [&](const Piece& x) { return wanted(x); })) return;
  p.all.materialize();
  Aligned made;
  made.base = p.all.base;
  made.text.reserve(p.all.text.size() + 16);
  made.origin.reserve(p.all.text.size() + 16);
  for (Piece& piece : p.list) {
    const auto begin = static_cast<uint32_t>(made.text.size());
    if (wanted(piece)) {
      made.text.append(text);
      made.origin.resize(made.text.size(), p.all.origin[piece.begin]);
    }
    made.text.append(p.all.text, piece.begin, piece.end - piece.begin);
    made.origin.insert(made.origin.end(), p.all.origin.begin() + piece.begin,
                       p.all.origin.begin() + piece.end);
    piece.begin = begin;
    piece.end = static_cast<uint32_t>(made.text.size());
  }
  p.all = std::move(made);
}

void to_byte_chars(Pieces& p) {
  Aligned made;
  made.text.reserve(p.all.text.size() + p.all.text.size() / 4);
  made.origin.reserve(made.text.capacity());
  made.base = p.all.base;
  const bool plain = p.all.origin.empty();
  for (Piece& piece : p.list) {
    const auto begin = static_cast<uint32_t>(made.text.size());
    if (piece.token >= 0) {
      for (uint32_t i = piece.begin; i < piece.end; ++i) {
        made.text.push_back(p.all.text[i]);
        made.origin.push_back(plain ? ByteRange{p.all.base + piece.begin, p.all.base + piece.end}
                                    : p.all.origin[i]);
      }
    }
    for (uint32_t i = piece.begin; piece.token < 0 && i < piece.end;) {
      const auto n = static_cast<uint32_t>(char_bytes(p.all.text[i]));
      const ByteRange from =
          plain ? ByteRange{p.all.base + i, p.all.base + i + n} : p.all.origin[i];
      for (uint32_t k = 0; k < n; ++k, ++i) {
        const char32_t c = char_of_byte(static_cast<unsigned char>(p.all.text[i]));
        if (c < 0x80) {
          made.text.push_back(static_cast<char>(c));
        } else {
          made.text.push_back(static_cast<char>(0xC0U | c >> 6));
          made.text.push_back(static_cast<char>(0x80U | (c & 63U)));
        }
        made.origin.resize(made.text.size(), from);
      }
    }
    piece.begin = begin;
    piece.end = static_cast<uint32_t>(made.text.size());
  }
  p.all = std::move(made);
}

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  explicit ByteLevelPreTokenizer(const Fields& f)
      : prefix_(f.flag("add_prefix_space", true)), regex_(f.flag("use_regex", true)) {}
  void run(Pieces& p) const override {
    if (prefix_)
      prepend_to(p, " ", [&](const Piece& x) {
        return x.token < 0 && x.begin < x.end && p.all.text[x.begin] != ' ';
      });
    if (regex_) split_pieces(p, SplitBehavior::isolated, scan_gpt2);
    to_byte_chars(p);
  }

 private:
  bool prefix_, regex_;
};

class BertPreTokenizer : public PreTokenizer {
 public:
  void run(Pieces& p) const override {
    split_pieces(p, SplitBehavior::removed, [](std::string_view s, std::vector<Stretch>& out) {
      find_chars(s, out, [](char32_t c) { return is_space(c); });
    });
    split_pieces(p, SplitBehavior::isolated, [](std::string_view s, std::vector<Stretch>& out) {
      find_chars(s, out, punctuation);
    });
  }
  static bool punctuation(char32_t c) {
    if (c < 0x80) return c > 32 && c < 127 && !is_letter(c) && !is_number(c);
    return is_punctuation(c);
  }
};
class PunctuationPreTokenizer : public PreTokenizer {
 public:
  explicit PunctuationPreTokenizer(SplitBehavior b) : behavior_(b) {}
  void run(Pieces& p) const override {
    split_pieces(p, behavior_, [](std::string_view s, std::vector<Stretch>& out) {
      find_chars(s, out, BertPreTokenizer::punctuation);
    });
  }

 private:
  SplitBehavior behavior_;
};
class DigitsPreTokenizer : public PreTokenizer {
 public:
  explicit DigitsPreTokenizer(bool individual) : individual_(individual) {}
  void run(Pieces& p) const override {
    split_pieces(p, individual_ ? SplitBehavior::isolated : SplitBehavior::contiguous,
                 [](std::string_view s, std::vector<Stretch>& out) {
                   find_chars(s, out, [](char32_t c) { return is_number(c); });
                 });
  }

 private:
  bool individual_;
};
class DelimiterPreTokenizer : public PreTokenizer {
 public:
  explicit DelimiterPreTokenizer(char32_t c) : c_(c) {}
  void run(Pieces& p) const override {
    split_pieces(p, SplitBehavior::removed, [this](std::string_view s, std::vector<Stretch>& out) {
      find_chars(s, out, [this](char32_t c) { return c == c_; });
    });
  }

 private:
  char32_t c_;
};
class WhitespaceSplitPreTokenizer : public PreTokenizer {
 public:
  void run(Pieces& p) const override {
    split_pieces(p, SplitBehavior::removed, [](std::string_view s, std::vector<Stretch>& out) {
      find_chars(s, out, [](char32_t c) { return is_space(c); });
    });
  }
};
// \w+|[^\w\s]+
class WhitespacePreTokenizer : public PreTokenizer {
 public:
  void run(Pieces& p) const override {
    split_pieces(p, SplitBehavior::removed, [](std::string_view s, std::vector<Stretch>& out) {
      const auto kind = [](char32_t c) { return is_word(c) ? 0 : is_space(c) ? 1 : 2; };
      for (size_t i = 0; i < s.size();) {
        const auto begin = static_cast<uint32_t>(i);
        const int first = kind(next_char(s, i));
        for (size_t next = i; next < s.size(); i = next)
          if (kind(next_char(s, next)) != first) break;
        out.push_back({begin, static_cast<uint32_t>(i), first == 1});
      }
    });
  }
};
class FixedLengthPreTokenizer : public PreTokenizer {
 public:
  explicit FixedLengthPreTokenizer(int64_t n) : n_(n) {}
  void run(Pieces& p) const override {
    split_pieces(p, SplitBehavior::isolated, [this](std::string_view s, std::vector<Stretch>& out) {
      for (size_t i = 0; i < s.size();) {
        const auto begin = static_cast<uint32_t>(i);
        for (int64_t k = 0; k < n_ && i < s.size(); ++k) next_char(s, i);
        out.push_back({begin, static_cast<uint32_t>(i), true});
      }
    });
  }

 private:
  int64_t n_;
};
class SplitPreTokenizer : public PreTokenizer {
 public:
  explicit SplitPreTokenizer(const Fields& f)
      : pattern_(f.at("pattern"), f.part()),
        behavior_(behavior_of(f.text("behavior"), f.part())),
        invert_(f.flag("invert", false)) {}
  void run(Pieces& p) const override {
    Matches matches;
    split_pieces(p, behavior_, [&](std::string_view s, std::vector<Stretch>& out) {
      pattern_.find_all(s, matches);
      cover(matches, static_cast<uint32_t>(s.size()), out);
      if (invert_)
        for (Stretch& x : out) x.match = !x.match;
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  enum class Prepend : uint8_t { always, never, first };
  explicit MetaspacePreTokenizer(const Fields& f)
      : replacement_(f.text("replacement", "▁")), split_(f.flag("split", true)) {
    TD_CHECK(!replacement_.empty() && char_bytes(replacement_[0]) == replacement_.size(), Format,
             "{}: 'replacement' must be one character, is '{}'", f.part(), replacement_);
    const std::string scheme = f.text("prepend_scheme", "always");
    TD_CHECK(scheme == "always" || scheme == "never" || scheme == "first", Format,
             "{}: there is no 'prepend_scheme' '{}'", f.part(), scheme);
    prepend_ = scheme == "always"  ? Prepend::always
               : scheme == "never" ? Prepend::never
                                   : Prepend::first;
    if (!f.flag("add_prefix_space", true)) prepend_ = Prepend::never;
  }
  void run(Pieces& p) const override {
    replace_spaces(p);
    if (prepend_ != Prepend::never)
      prepend_to(p, replacement_, [&](const Piece& x) {
        if (x.token >= 0 || x.begin == x.end) return false;
        if (p.view(x).substr(0, replacement_.size()) == replacement_) return false;
        return prepend_ == Prepend::always || p.all.origin_of(x.begin, x.end).begin == 0;
      });
    if (!split_) return;
    split_pieces(p, SplitBehavior::merged_with_next,
                 [this](std::string_view s, std::vector<Stretch>& out) {
                   Matches matches;
                   for (size_t at = s.find(replacement_); at != s.npos;
                        at = s.find(replacement_, at + replacement_.size()))
                     matches.emplace_back(at, at + replacement_.size());
                   cover(matches, static_cast<uint32_t>(s.size()), out);
                 });
  }

 private:
  void replace_spaces(Pieces& p) const {
    if (p.all.text.find(' ') == std::string::npos) return;
    p.all.materialize();
    Aligned made;
    made.base = p.all.base;
    made.text.reserve(p.all.text.size() + p.all.text.size() / 2);
    made.origin.reserve(made.text.capacity());
    for (Piece& piece : p.list) {
      const auto begin = static_cast<uint32_t>(made.text.size());
      for (uint32_t i = piece.begin; i < piece.end; ++i) {
        if (piece.token < 0 && p.all.text[i] == ' ')
          made.text.append(replacement_);
        else
          made.text.push_back(p.all.text[i]);
        made.origin.resize(made.text.size(), p.all.origin[i]);
      }
      piece.begin = begin;
      piece.end = static_cast<uint32_t>(made.text.size());
    }
    p.all = std::move(made);
  }
  std::string replacement_;
  bool split_;
  Prepend prepend_;
};

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  void run(Pieces& p) const override {
    for (const auto& part : parts_) part->run(p);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

char32_t one_char(const Fields& f, const char* key) {
  const std::string s = f.text(key);
  TD_CHECK(!s.empty() && char_bytes(s[0]) == s.size(), Format,
           "{}: '{}' must be one character, is '{}'", f.part(), key, s);
  size_t i = 0;
  return next_char(s, i);
}

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const io::Json& json, int depth) {
  TD_CHECK(depth < kMaxPartDepth, Format, "pre-tokenizers are nested more than {} deep",
           kMaxPartDepth);
  const std::string type = Fields(json, "pre_tokenizer").text("type");
  const Fields f(json, "pre_tokenizer " + type);
  if (type == "ByteLevel") return std::make_unique<ByteLevelPreTokenizer>(f);
  if (type == "BertPreTokenizer") return std::make_unique<BertPreTokenizer>();
  if (type == "Whitespace") return std::make_unique<WhitespacePreTokenizer>();
  if (type == "WhitespaceSplit") return std::make_unique<WhitespaceSplitPreTokenizer>();
  if (type == "CharDelimiterSplit")
    return std::make_unique<DelimiterPreTokenizer>(one_char(f, "delimiter"));
  if (type == "Punctuation")
    return std::make_unique<PunctuationPreTokenizer>(
        behavior_of(f.text("behavior", "Isolated"), f.part()));
  if (type == "Digits")
    return std::make_unique<DigitsPreTokenizer>(f.flag("individual_digits", false));
  if (type == "Split") return std::make_unique<SplitPreTokenizer>(f);
  if (type == "Metaspace") return std::make_unique<MetaspacePreTokenizer>(f);
  if (type == "FixedLength")
    return std::make_unique<FixedLengthPreTokenizer>(f.integer("length", 1, kMaxTokenId, 5));
  TD_CHECK(type == "Sequence", Format, "there is no pre-tokenizer '{}'", type);
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const io::Json& part : f.array("pretokenizers"))
    parts.push_back(make_pre_tokenizer(part, depth + 1));
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

}  // namespace tandem::text
