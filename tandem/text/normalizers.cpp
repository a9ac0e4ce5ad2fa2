// SPDX-License-Identifier: Apache-2.0
// The normalisers of tokenizer files: normal forms, case, accents, replacement, BERT's clean-up and
// SentencePiece's table.
#include <array>
#include <cstring>

#include "tandem/base/budget.h"
#include "tandem/text/parts_internal.h"

namespace tandem::text {
namespace {

// Keep the characters for which keep(c) holds, transformed by map.
template <class Keep, class Map>
void filter(Aligned& t, Keep&& keep, Map&& map) {
  std::vector<Change> to;
  to.reserve(t.text.size());
  size_t removed_first = 0;
  bool changed = false;
  for (size_t i = 0; i < t.text.size();) {
    const char32_t c = next_char(t.text, i);
    if (!keep(c)) {
      changed = true;
      if (to.empty())
        ++removed_first;
      else
        --to.back().change;
      continue;
    }
    const char32_t made = map(c);
    changed = changed || made != c;
    to.push_back({made, 0});
  }
  if (changed) t.transform(to, removed_first);
}
constexpr auto kSame = [](char32_t c) { return c; };

void lower_case(Aligned& t) {
  if (is_ascii(t.text)) {
    for (char& c : t.text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    return;
  }
  std::vector<Change> to;
  to.reserve(t.text.size());
  char32_t room[2];
  for (size_t i = 0; i < t.text.size();) {
    int32_t change = 0;
    for (char32_t c : lower(next_char(t.text, i), room)) to.push_back({c, change++ ? 1 : 0});
  }
  t.transform(to);
}
void to_form(Aligned& t, NormalForm form) {
  if (is_ascii(t.text)) return;
  t.transform(normal_form(t.text, form));
}
void prepend(Aligned& t, std::string_view s) {
  if (t.text.empty() || s.empty()) return;
  Budget::take(2 * s.size() * (1 + sizeof(ByteRange)));
  t.materialize();
  const ByteRange first = t.origin[0];
  t.text.insert(0, s);
  t.origin.insert(t.origin.begin(), s.size(), first);
}

class FormNormalizer : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm f) : form_(f) {}
  void run(Aligned& t) const override { to_form(t, form_); }

 private:
  NormalForm form_;
};
class LowercaseNormalizer : public Normalizer {
 public:
  void run(Aligned& t) const override { lower_case(t); }
};
class StripAccentsNormalizer : public Normalizer {
 public:
  void run(Aligned& t) const override {
    if (!is_ascii(t.text))
      filter(
          t, [](char32_t c) { return !is_mark(c); }, kSame);
  }
};
class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void run(Aligned& t) const override {
    size_t begin = 0, end = t.text.size();
    for (size_t i = 0; left_ && i < t.text.size(); begin = i)
      if (!is_space(next_char(t.text, i))) break;
    if (right_) {
      size_t last = begin;
      for (size_t i = begin; i < t.text.size();)
        if (!is_space(next_char(t.text, i))) last = i;
      end = last;
    }
    if (begin == 0 && end == t.text.size()) return;
    t.materialize();
    t.text = t.text.substr(begin, end - begin);
    t.origin = std::vector<ByteRange>(t.origin.begin() + static_cast<ptrdiff_t>(begin),
                                      t.origin.begin() + static_cast<ptrdiff_t>(end));
  }

 private:
  bool left_, right_;
};

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}
class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const Fields& f)
      : clean_(f.flag("clean_text", true)),
        chinese_(f.flag("handle_chinese_chars", true)),
        lower_(f.flag("lowercase", true)),
        accents_(f.flag("strip_accents", lower_)) {}
  void run(Aligned& t) const override {
    if (clean_) clean(t);
    if (chinese_ && !is_ascii(t.text)) surround(t);
    if (accents_ && !is_ascii(t.text)) {
      to_form(t, NormalForm::nfd);
      filter(
          t, [](char32_t c) { return !is_nonspacing_mark(c); }, kSame);
    }
    if (lower_) lower_case(t);
  }

 private:
  static void clean(Aligned& t) {
    const auto keep = [](char32_t c) {
      if (c == '\t' || c == '\n' || c == '\r') return true;
      return c != 0 && c != 0xFFFD && (c < 0x7F ? c >= 0x20 : !is_other(c));
    };
    filter(t, keep, [](char32_t c) { return is_space(c) ? U' ' : c; });
  }
  static void surround(Aligned& t) {
    std::vector<Change> to;
    to.reserve(t.text.size());
    bool changed = false;
    for (size_t i = 0; i < t.text.size();) {
      const char32_t c = next_char(t.text, i);
      if (is_chinese(c)) {
        to.insert(to.end(), {{' ', 0}, {c, 1}, {' ', 1}});
        changed = true;
      } else {
        to.push_back({c, 0});
      }
    }
    if (changed) t.transform(to);
  }
  bool clean_, chinese_, lower_, accents_;
};

class NmtNormalizer : public Normalizer {
 public:
  void run(Aligned& t) const override {
    const auto keep = [](char32_t c) {
      return !((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
               c == 0x8F || c == 0x9F);
    };
    filter(t, keep, [](char32_t c) {
      const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      return space ? U' ' : c;
    });
  }
};
class ReplaceNormalizer : public Normalizer {
 public:
  explicit ReplaceNormalizer(const Fields& f)
      : pattern_(f.at("pattern"), f.part()), content_(f.text("content")) {}
  void run(Aligned& t) const override {
    std::vector<std::pair<uint32_t, uint32_t>> matches;
    const BudgetHold hold(t.text.size() * 2 * sizeof(matches[0]));
    Budget::check_time();
    pattern_.find_all(t.text, matches);
    t.replace(matches, content_);
  }

 private:
  Pattern pattern_;
  std::string content_;
};
class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string s) : s_(std::move(s)) {}
  void run(Aligned& t) const override { prepend(t, s_); }

 private:
  std::string s_;
};
class ByteLevelNormalizer : public Normalizer {
 public:
  void run(Aligned& t) const override {
    std::vector<Change> to;
    const BudgetHold hold(2 * t.text.size() * sizeof(Change));
    for (size_t i = 0; i < t.text.size();) {
      const size_t n = char_bytes(t.text[i]);
      for (size_t k = 0; k < n; ++k, ++i)
        to.push_back({char_of_byte(static_cast<unsigned char>(t.text[i])), k > 0});
    }
    t.transform(to);
  }
};

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}
std::string from_base64(std::string_view s) {
  std::string out;
  out.reserve(s.size() / 4 * 3);
  uint32_t bits = 0;
  int have = 0;
  while (!s.empty() && s.back() == '=') s.remove_suffix(1);
  for (char c : s) {
    const int v = base64_value(c);
    TD_CHECK(v >= 0, Format, "normalizer Precompiled: its table is not base64");
    bits = bits << 6 | static_cast<uint32_t>(v);
    if ((have += 6) >= 8) out.push_back(static_cast<char>(bits >> (have -= 8) & 255U));
  }
  return out;
}

class PrecompiledNormalizer : public Normalizer {
 public:
  explicit PrecompiledNormalizer(std::string bytes) : map_(std::move(bytes)) {}
  void run(Aligned& t) const override {
    std::vector<Change> to;
    to.reserve(t.text.size());
    bool changed = false;
    uint32_t begin = 0;
    for (const uint32_t end : grapheme_ends(t.text)) {
      const std::string_view cluster = std::string_view(t.text).substr(begin, end - begin);
      begin = end;
      if (cluster.size() < 6 && take(cluster, to)) {
        changed = true;
        continue;
      }
      for (size_t i = 0; i < cluster.size();) {
        const size_t from = i;
        const char32_t c = next_char(cluster, i);
        if (take(cluster.substr(from, i - from), to))
          changed = true;
        else
          to.push_back({c, 0});
      }
    }
    if (changed) t.transform(to);
  }

 private:
  // Looks up `part` in the table; if found, appends changes that add up to part's characters.
  bool take(std::string_view part, std::vector<Change>& to) const {
    size_t key_bytes = 0;
    const char* made = map_.find(part, false, key_bytes);
    if (!made) return false;
    int64_t old_count = 0, new_count = 0;
    for (size_t i = 0; i < part.size(); ++old_count) next_char(part, i);
    const std::string_view text(made);
    Budget::take(text.size() * 2 * sizeof(Change));
    for (size_t i = 0; i < text.size(); ++new_count) to.push_back({next_char(text, i), 0});
    const int64_t diff = new_count - old_count;
    for (int64_t k = 0; k < diff; ++k) to[to.size() - 1 - static_cast<size_t>(k)].change = 1;
    if (diff < 0 && !to.empty()) to.back().change += static_cast<int32_t>(diff);
    return true;
  }
  Charsmap map_;
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  void run(Aligned& t) const override {
    for (const auto& p : parts_) p->run(t);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

Charsmap::Charsmap(std::string bytes) {
  if (bytes.empty()) return;
  TD_CHECK(bytes.size() >= 4, Format, "the character table is truncated: {} bytes", bytes.size());
  uint32_t size = 0;
  std::memcpy(&size, bytes.data(), 4);
  TD_CHECK(size % 4 == 0 && size >= 4 && size <= bytes.size() - 4, Format,
           "the character table claims a trie of {} bytes in {}", size, bytes.size() - 4);
  units_.resize(size / 4);
  std::memcpy(units_.data(), bytes.data() + 4, size);
  texts_ = bytes.substr(4 + size);
  TD_CHECK(io::is_utf8(texts_), Format, "the strings of the character table are not UTF-8");
}

// The layout of a unit: bits 0-7 label, 8 has a leaf, 9 offset is shifted by 8, 10-30 offset;
// with bit 31 it is a leaf and bits 0-30 its value (darts-clone).
const char* Charsmap::find(std::string_view s, bool longest, size_t& key_bytes) const {
  if (units_.empty()) return nullptr;
  const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & 512U) >> 6); };
  const char* found = nullptr;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < s.size(); ++i) {
    const auto c = static_cast<unsigned char>(s[i]);
    node ^= c;
    if (c == 0 || node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if ((unit & 0x800000FFU) != c) break;
    node ^= offset(unit);
    if (node >= units_.size()) break;
    if (!(unit >> 8 & 1U)) continue;
    const uint32_t value = units_[node] & 0x7FFFFFFFU;
    if (value >= texts_.size() ||
        (value > 0 && (static_cast<unsigned char>(texts_[value]) & 0xC0U) == 0x80))
      break;
    found = texts_.c_str() + value;
    key_bytes = i + 1;
    if (!longest) break;
  }
  return found;
}

std::unique_ptr<Normalizer> make_normalizer(const io::Json& json, int depth) {
  TD_CHECK(depth < kMaxPartDepth, Format, "normalizers are nested more than {} deep",
           kMaxPartDepth);
  const std::string type = Fields(json, "normalizer").text("type");
  const Fields f(json, "normalizer " + type);
  if (type == "NFC") return std::make_unique<FormNormalizer>(NormalForm::nfc);
  if (type == "NFD") return std::make_unique<FormNormalizer>(NormalForm::nfd);
  if (type == "NFKC") return std::make_unique<FormNormalizer>(NormalForm::nfkc);
  if (type == "NFKD") return std::make_unique<FormNormalizer>(NormalForm::nfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "Strip")
    return std::make_unique<StripNormalizer>(f.flag("strip_left", true),
                                             f.flag("strip_right", true));
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(f);
  if (type == "Nmt") return std::make_unique<NmtNormalizer>();
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(f);
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(f.text("prepend"));
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Precompiled")
    return std::make_unique<PrecompiledNormalizer>(from_base64(f.text("precompiled_charsmap", "")));
  TD_CHECK(type == "Sequence", Format, "there is no normalizer '{}'", type);
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const io::Json& part : f.array("normalizers"))
    parts.push_back(make_normalizer(part, depth + 1));
  return std::make_unique<SequenceNormalizer>(std::move(parts));
}

Pattern::Pattern(const io::Json& json, const std::string& part) {
  const Fields f(json, part + ", pattern");
  if (f.find("Regex")) {
    regex_.emplace(f.text("Regex"));
  } else {
    literal_ = f.text("String");
  }
}

void Pattern::find_all(std::string_view s, std::vector<std::pair<uint32_t, uint32_t>>& out) const {
  if (regex_) return regex_->find_all(s, out);
  out.clear();
  if (literal_.empty()) return;
  for (size_t at = s.find(literal_); at != s.npos; at = s.find(literal_, at + literal_.size()))
    out.emplace_back(static_cast<uint32_t>(at), static_cast<uint32_t>(at + literal_.size()));
}

namespace {
struct ByteChars {
  std::array<char32_t, 256> chars{};
  std::array<int16_t, 512> bytes{};
  constexpr ByteChars() {
    for (auto& b : bytes) b = -1;
    char32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
      const char32_t c = shown ? static_cast<char32_t>(b) : next++;
      chars[static_cast<size_t>(b)] = c;
      bytes[c] = static_cast<int16_t>(b);
    }
  }
};
constexpr ByteChars kByteChars;
}  // namespace

char32_t char_of_byte(unsigned char b) { return kByteChars.chars[b]; }
int byte_of_char(char32_t c) { return c < 512 ? kByteChars.bytes[c] : -1; }

std::string byte_token(unsigned char b) { return fmt::format("<0x{:02X}>", b); }
int byte_of_token(std::string_view t) {
  if (t.size() != 6 || t.substr(0, 3) != "<0x" || t[5] != '>') return -1;
  int v = 0;
  for (char c : t.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    v = v * 16 + digit;
  }
  return v;
}

}  // namespace tandem::text
