// SPDX-License-Identifier: Apache-2.0
// WordLevel, WordPiece and Unigram models, and the factory for all four.
#include <algorithm>
#include <cmath>

#include "tandem/base/budget.h"
#include "tandem/text/models_internal.h"

namespace tandem::text {
namespace {

uint32_t unknown_of(const Fields& f, const Vocabulary& v, const std::string& token) {
  const auto id = v.find(token);
  TD_CHECK(id, Format, "{}: the unknown token {} is not in the vocabulary", f.part(),
           io::quote_json(token));
  return *id;
}

class WordLevelModel : public Model {
 public:
  explicit WordLevelModel(const Fields& f) {
    vocabulary.read(f.object("vocab"), f.part());
    unk_ = vocabulary.find(f.text("unk_token", "<unk>"));
  }
  void run(std::string_view piece, std::vector<Token>& out) const override {
    auto id = vocabulary.find(piece);
    if (!id) id = unk_;
    TD_CHECK(id, Value, "the word {} is not in the vocabulary, which has no unknown token",
             io::quote_json(piece.substr(0, 80)));
    out.push_back({*id, 0, static_cast<uint32_t>(piece.size())});
  }

 private:
  std::optional<uint32_t> unk_;
};

class WordPieceModel : public Model {
 public:
  explicit WordPieceModel(const Fields& f)
      : prefix_(f.text("continuing_subword_prefix", "##")),
        most_(f.integer("max_input_chars_per_word", 1, kMaxTokenId, 100)) {
    vocabulary.read(f.object("vocab"), f.part());
    unk_ = unknown_of(f, vocabulary, f.text("unk_token", "[UNK]"));
    for (size_t id = 0, seen = 0; seen < vocabulary.size() && id <= kMaxTokenId; ++id) {
      const std::string* t = vocabulary.token(static_cast<uint32_t>(id));
      if (!t && id > 4 * vocabulary.size() + 1000) break;  // ids far apart: no bound is known
      if (!t) continue;
      ++seen;
      longest_ = std::max(longest_, t->size());
      if (seen == vocabulary.size()) bounded_ = true;
    }
  }

  void run(std::string_view piece, std::vector<Token>& out) const override {
    int64_t chars = 0;
    for (size_t i = 0; i < piece.size(); ++chars) i += char_bytes(piece[i]);
    const size_t first = out.size();
    if (chars > most_ || !greedy(piece, out)) {
      out.resize(first);
      out.push_back({unk_, 0, static_cast<uint32_t>(piece.size())});
    }
  }

 private:
  bool greedy(std::string_view piece, std::vector<Token>& out) const {
    std::string room;
    for (size_t begin = 0; begin < piece.size();) {
      size_t end = piece.size();
      if (bounded_ && end - begin > longest_) {
        end = begin + longest_;
        while (end > begin && (static_cast<unsigned char>(piece[end]) & 0xC0U) == 0x80) --end;
      }
      std::optional<uint32_t> id;
      while (begin < end) {
        std::string_view s = piece.substr(begin, end - begin);
        Budget::work(static_cast<double>(s.size()));
        if (begin > 0) s = room.assign(prefix_).append(s);
        if ((id = vocabulary.find(s))) break;
        do --end;
        while (end > begin && (static_cast<unsigned char>(piece[end]) & 0xC0U) == 0x80);
      }
      if (!id) return false;
      out.push_back({*id, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
      begin = end;
    }
    return true;
  }
  std::string prefix_;
  int64_t most_;
  uint32_t unk_;
  size_t longest_ = 0;
  bool bounded_ = false;
};

// A trie over bytes; the children of a node are adjacent and sorted by byte.
class Trie {
 public:
  explicit Trie(std::vector<std::pair<std::string_view, uint32_t>> keys) {
    std::sort(keys.begin(), keys.end());
    nodes_.push_back({});
    build(0, keys, 0);
    for (int b = 0; b < 256; ++b) first_[b] = child(0, static_cast<unsigned char>(b));
  }
  // Calls found(bytes, value) for each key that is a prefix of s.
  template <class Found>
  void prefixes(std::string_view s, Found&& found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < s.size(); ++i) {
      const auto c = static_cast<unsigned char>(s[i]);
      node = i == 0 ? first_[c] : child(node, c);
      if (node == 0) return;
      if (nodes_[node].value >= 0)
        found(static_cast<uint32_t>(i + 1), static_cast<uint32_t>(nodes_[node].value));
    }
  }

 private:
  struct Node {
    uint32_t child = 0;
    uint16_t children = 0;
    uint8_t byte = 0;
    int64_t value = -1;
  };
  struct Range {
    size_t begin, end, depth;
    uint32_t node;
  };
  void build(uint32_t, const std::vector<std::pair<std::string_view, uint32_t>>& keys, size_t) {
    std::vector<Range> work{{0, keys.size(), 0, 0}};
    while (!work.empty()) {
      Range r = work.back();
      work.pop_back();
      while (r.begin < r.end && keys[r.begin].first.size() == r.depth) {
        if (r.depth > 0) nodes_[r.node].value = keys[r.begin].second;
        ++r.begin;
      }
      nodes_[r.node].child = static_cast<uint32_t>(nodes_.size());
      for (size_t i = r.begin; i < r.end;) {
        const char c = keys[i].first[r.depth];
        size_t k = i;
        while (k < r.end && keys[k].first[r.depth] == c) ++k;
        work.push_back({i, k, r.depth + 1, static_cast<uint32_t>(nodes_.size())});
        nodes_.push_back({});
        nodes_.back().byte = static_cast<uint8_t>(c);
        ++nodes_[r.node].children;
        i = k;
      }
    }
  }
  uint32_t child(uint32_t node, uint8_t c) const {
    const Node& n = nodes_[node];
    uint32_t low = n.child, high = n.child + n.children;
    while (low < high) {
      const uint32_t mid = (low + high) / 2;
      if (nodes_[mid].byte < c)
        low = mid + 1;
      else
        high = mid;
    }
    return low < n.child + n.children && nodes_[low].byte == c ? low : 0;
  }
  std::vector<Node> nodes_;
  uint32_t first_[256] = {};
};

// Sums use type Score: one library computed its files with f64, the other with f32.
template <class Score>
class UnigramModel : public Model {
 public:
  UnigramModel(std::vector<UnigramPiece> pieces, std::optional<uint32_t> unk, bool byte_fallback)
      : unk_(unk), byte_fallback_(byte_fallback), trie_(keys(pieces)) {
    double least = INFINITY;
    for (size_t i = 0; i < pieces.size(); ++i) {
      vocabulary.set(pieces[i].text, static_cast<uint32_t>(i));
      scores_.push_back(static_cast<Score>(pieces[i].score));
      if (pieces[i].matched) least = std::min(least, pieces[i].score);
    }
    unk_score_ = static_cast<Score>(static_cast<Score>(least) - static_cast<Score>(10));
    for (unsigned b = 0; b < 256; ++b)
      byte_ids_.push_back(vocabulary.find(byte_token(static_cast<unsigned char>(b))));
  }

  void run(std::string_view piece, std::vector<Token>& out) const override {
    struct Best {
      Score score = 0;
      uint32_t id = 0;
      int64_t from = -1;
    };
    std::vector<Best> best(piece.size() + 1);
    for (size_t at = 0; at < piece.size();) {
      const Score here = best[at].score;
      const size_t n = char_bytes(piece[at]);
      bool single = false;
      const auto take = [&](size_t bytes, uint32_t id, Score score) {
        Best& b = best[at + bytes];
        const Score total = score + here;
        if (b.from < 0 || total > b.score) b = {total, id, static_cast<int64_t>(at)};
      };
      trie_.prefixes(piece.substr(at), [&](uint32_t bytes, uint32_t id) {
        take(bytes, id, scores_[id]);
        single = single || bytes == n;
      });
      if (!single) {
        TD_CHECK(unk_, Value, "the model has no unknown token, and none for {}",
                 io::quote_json(piece.substr(at, n)));
        take(n, *unk_, unk_score_);
      }
      at += n;
    }
    const size_t first = out.size();
    for (size_t end = piece.size(); end > 0;) {
      const Best& b = best[end];
      const auto begin = static_cast<uint32_t>(b.from);
      if (unk_ && b.id == *unk_ && out.size() > first && out.back().id == *unk_)
        out.back().begin = begin;
      else
        out.push_back({b.id, begin, static_cast<uint32_t>(end)});
      end = begin;
    }
    std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
    if (byte_fallback_) to_bytes(piece, first, out);
  }

 private:
  static std::vector<std::pair<std::string_view, uint32_t>> keys(
      const std::vector<UnigramPiece>& pieces) {
    std::vector<std::pair<std::string_view, uint32_t>> v;
    for (size_t i = 0; i < pieces.size(); ++i)
      if (pieces[i].matched) v.emplace_back(pieces[i].text, static_cast<uint32_t>(i));
    return v;
  }
  // Replaces unknown tokens by those of their bytes, where all exist.
  void to_bytes(std::string_view piece, size_t first, std::vector<Token>& out) const {
    std::vector<Token> made;
    for (size_t i = first; i < out.size(); ++i) {
      const Token t = out[i];
      const std::string_view s = piece.substr(t.begin, t.end - t.begin);
      const bool all = std::all_of(s.begin(), s.end(), [this](char b) {
        return byte_ids_[static_cast<unsigned char>(b)].has_value();
      });
      if (!unk_ || t.id != *unk_ || !all || vocabulary.find(s)) {
        made.push_back(t);
        continue;
      }
      for (char b : s) made.push_back({*byte_ids_[static_cast<unsigned char>(b)], t.begin, t.end});
    }
    out.resize(first);
    out.insert(out.end(), made.begin(), made.end());
  }

  std::optional<uint32_t> unk_;
  bool byte_fallback_;
  Trie trie_;
  std::vector<Score> scores_;
  Score unk_score_ = 0;
  std::vector<std::optional<uint32_t>> byte_ids_;
};

std::unique_ptr<Model> read_unigram(const Fields& f) {
  std::vector<UnigramPiece> pieces;
  for (const io::Json& entry : f.array("vocab")) {
    const io::Json::Array* pair = entry.as_array();
    TD_CHECK(pair && pair->size() == 2 && (*pair)[0].as_string() &&
                 ((*pair)[1].as_double() || (*pair)[1].as_int()),
             Format, "{}: entry {} must be a token and its score", f.part(), pieces.size());
    const io::Json& score = (*pair)[1];
    pieces.push_back({*(*pair)[0].as_string(),
                      score.as_int() ? static_cast<double>(*score.as_int()) : *score.as_double()});
    TD_CHECK(std::isfinite(pieces.back().score), Format, "{}: the score of entry {} is not finite",
             f.part(), pieces.size() - 1);
  }
  TD_CHECK(!pieces.empty(), Format, "{}: the vocabulary is empty", f.part());
  std::optional<uint32_t> unk;
  if (f.find("unk_id"))
    unk = static_cast<uint32_t>(f.integer("unk_id", 0, static_cast<int64_t>(pieces.size()) - 1));
  return make_unigram(std::move(pieces), unk, f.flag("byte_fallback", false), false);
}

}  // namespace

std::unique_ptr<Model> make_unigram(std::vector<UnigramPiece> pieces, std::optional<uint32_t> unk,
                                    bool byte_fallback, bool single) {
  if (single) return std::make_unique<UnigramModel<float>>(std::move(pieces), unk, byte_fallback);
  return std::make_unique<UnigramModel<double>>(std::move(pieces), unk, byte_fallback);
}

std::unique_ptr<Model> make_model(const io::Json& json) {
  const Fields any(json, "model");
  std::string type = any.text("type", "");
  if (type.empty())  // old files do not state it
    type = any.find("merges")                     ? "BPE"
           : any.find("unk_id")                   ? "Unigram"
           : any.find("max_input_chars_per_word") ? "WordPiece"
                                                  : "WordLevel";
  const Fields f(json, "model " + type);
  if (type == "BPE") return make_bpe(f);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(f);
  if (type == "Unigram") return read_unigram(f);
  TD_CHECK(type == "WordLevel", Format, "there is no model '{}'", type);
  return std::make_unique<WordLevelModel>(f);
}

}  // namespace tandem::text
