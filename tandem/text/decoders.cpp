// SPDX-License-Identifier: Apache-2.0
// The decoders of tokenizer files: from token strings back to text.
#include <algorithm>

#include "tandem/base/budget.h"
#include "tandem/text/parts_internal.h"

namespace tandem::text {
namespace {

void replace_all(std::string& s, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  std::string out;
  size_t at = 0;
  for (size_t hit; (hit = s.find(from, at)) != s.npos; at = hit + from.size())
    out.append(s, at, hit - at).append(to);
  s = out.append(s, at);
}

// Bytes as text; invalid UTF-8 becomes U+FFFD, one for each maximal part of a character.
std::string lossy(std::string_view s) {
  if (io::is_utf8(s)) return std::string(s);
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const auto at = [&](size_t k) { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0U; };
    const unsigned c = at(i);
    size_t want = c < 0x80                ? 1
                  : c >= 0xC2 && c < 0xE0 ? 2
                  : c >= 0xE0 && c < 0xF0 ? 3
                  : c >= 0xF0 && c < 0xF5 ? 4
                                          : 0;
    size_t have = want > 0 ? 1 : 0;
    unsigned low = 0x80, high = 0xBF;
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
    while (have > 0 && have < want && at(i + have) >= low && at(i + have) <= high) {
      ++have;
      low = 0x80;
      high = 0xBF;
    }
    if (want > 0 && have == want)
      out.append(s.substr(i, want));
    else
      out.append("\xEF\xBF\xBD");
    i += std::max<size_t>(1, have);
  }
  return out;
}

class ByteLevelDecoder : public Decoder {
 public:
  void run(std::vector<std::string>& tokens) const override {
    std::string all;
    for (std::string& t : tokens) {
      bytes(t);
      all.append(t);
    }
    tokens = {lossy(all)};
  }
  // A token with other characters stands for itself.
  bool bytes(std::string& t) const override {
    std::string out;
    for (size_t i = 0; i < t.size();) {
      const int b = byte_of_char(next_char(t, i));
      if (b < 0) return true;
      out.push_back(static_cast<char>(b));
    }
    t = std::move(out);
    return true;
  }
};

void clean_up(std::string& s) {
  static constexpr std::pair<const char*, const char*> kPairs[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kPairs) replace_all(s, from, to);
}

class WordPieceDecoder : public Decoder {
 public:
  explicit WordPieceDecoder(const Fields& f)
      : prefix_(f.text("prefix", "##")), cleanup_(f.flag("cleanup", true)) {}
  void run(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& t = tokens[i];
      if (i > 0) {
        if (!prefix_.empty() && t.compare(0, prefix_.size(), prefix_) == 0)
          t.erase(0, prefix_.size());
        else
          t.insert(0, 1, ' ');
      }
      if (cleanup_) clean_up(t);
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};
class BpeDecoder : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void run(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};
class MetaspaceDecoder : public Decoder {
 public:
  explicit MetaspaceDecoder(const Fields& f) : replacement_(f.text("replacement", "▁")) {
    TD_CHECK(!replacement_.empty() && char_bytes(replacement_[0]) == replacement_.size(), Format,
             "{}: 'replacement' must be one character", f.part());
    strip_ = f.text("prepend_scheme", "always") != "never" && f.flag("add_prefix_space", true);
  }
  void run(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], replacement_, i == 0 && strip_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool strip_;
};
class ByteFallbackDecoder : public Decoder {
 public:
  void run(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (io::is_utf8(bytes))
        out.push_back(bytes);
      else
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      bytes.clear();
    };
    for (std::string& t : tokens) {
      const int b = byte_of_token(t);
      if (b >= 0) {
        bytes.push_back(static_cast<char>(b));
        continue;
      }
      flush();
      out.push_back(std::move(t));
    }
    flush();
    tokens = std::move(out);
  }
  bool bytes(std::string& t) const override {
    const int b = byte_of_token(t);
    if (b >= 0) t.assign(1, static_cast<char>(b));
    return b >= 0;
  }
};
class FuseDecoder : public Decoder {
 public:
  void run(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& t : tokens) {
      Budget::take(t.size());
      all.append(t);
    }
    tokens = {std::move(all)};
  }
};
class StripDecoder : public Decoder {
 public:
  explicit StripDecoder(const Fields& f)
      : content_(f.text("content", " ")),
        start_(f.integer("start", 0, kMaxTokenId, 0)),
        stop_(f.integer("stop", 0, kMaxTokenId, 0)) {
    TD_CHECK(!content_.empty() && char_bytes(content_[0]) == content_.size(), Format,
             "{}: 'content' must be one character", f.part());
  }
  void run(std::vector<std::string>& tokens) const override {
    const size_t n = content_.size();
    for (std::string& t : tokens) {
      size_t begin = 0, end = t.size();
      for (int64_t k = 0; k < start_ && t.compare(begin, n, content_) == 0; ++k) begin += n;
      for (int64_t k = 0; k < stop_ && end >= begin + n && t.compare(end - n, n, content_) == 0;
           ++k)
        end -= n;
      t = t.substr(begin, end - begin);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};
class ReplaceDecoder : public Decoder {
 public:
  explicit ReplaceDecoder(const Fields& f)
      : pattern_(f.at("pattern"), f.part()), content_(f.text("content")) {}
  void run(std::vector<std::string>& tokens) const override {
    std::vector<std::pair<uint32_t, uint32_t>> matches;
    for (std::string& t : tokens) {
      pattern_.find_all(t, matches);
      std::string out;
      size_t at = 0;
      Budget::take(t.size() + matches.size() * content_.size());
      const BudgetHold hold(matches.size() * 2 * sizeof(matches[0]));
      for (const auto& [begin, end] : matches) {
        out.append(t, at, begin - at).append(content_);
        at = end;
      }
      Budget::give_back(t.size());
      t = out.append(t, at);
    }
  }

 private:
  Pattern pattern_;
  std::string content_;
};
class CtcDecoder : public Decoder {
 public:
  explicit CtcDecoder(const Fields& f)
      : pad_(f.text("pad_token", "<pad>")),
        word_(f.text("word_delimiter_token", "|")),
        cleanup_(f.flag("cleanup", true)) {}
  void run(std::vector<std::string>& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    std::vector<std::string> out;
    for (std::string& t : tokens) {
      replace_all(t, pad_, "");
      if (cleanup_) {
        clean_up(t);
        replace_all(t, word_, " ");
      }
      if (!t.empty()) out.push_back(std::move(t));
    }
    tokens = std::move(out);
  }

 private:
  std::string pad_, word_;
  bool cleanup_;
};
class SequenceDecoder : public Decoder {
 public:
  explicit SequenceDecoder(std::vector<std::unique_ptr<Decoder>> parts)
      : parts_(std::move(parts)) {}
  void run(std::vector<std::string>& tokens) const override {
    for (const auto& p : parts_) p->run(tokens);
  }
  bool bytes(std::string& t) const override {
    return std::any_of(parts_.begin(), parts_.end(), [&](const auto& p) { return p->bytes(t); });
  }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const io::Json& json, int depth) {
  TD_CHECK(depth < kMaxPartDepth, Format, "decoders are nested more than {} deep", kMaxPartDepth);
  const std::string type = Fields(json, "decoder").text("type");
  const Fields f(json, "decoder " + type);
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(f);
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(f.text("suffix", "</w>"));
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(f);
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Strip") return std::make_unique<StripDecoder>(f);
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(f);
  if (type == "CTC") return std::make_unique<CtcDecoder>(f);
  TD_CHECK(type == "Sequence", Format, "there is no decoder '{}'", type);
  std::vector<std::unique_ptr<Decoder>> parts;
  for (const io::Json& part : f.array("decoders")) parts.push_back(make_decoder(part, depth + 1));
  return std::make_unique<SequenceDecoder>(std::move(parts));
}

}  // namespace tandem::text
