// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding: a piece's characters are merged pair by pair, the pair of lowest rank first.
// Also the vocabulary class that all models share.
#include <algorithm>
#include <bit>
#include <queue>

#include "tandem/text/models_internal.h"

namespace tandem::text {

void Vocabulary::add(std::string_view token, uint32_t id, const std::string& part) {
  const auto [at, fresh] = ids_.emplace(std::string(token), id);
  TD_CHECK(fresh, Format, "{}: the token {} appears twice", part, io::quote_json(token));
  tokens_.emplace(id, &at->first);
}
void Vocabulary::set(std::string_view token, uint32_t id) {
  const auto at = ids_.insert_or_assign(std::string(token), id).first;
  tokens_.emplace(id, &at->first);
}
void Vocabulary::read(const io::Json::Object& object, const std::string& part) {
  ids_.reserve(object.size());
  tokens_.reserve(object.size());
  for (const auto& [token, id] : object) {
    TD_CHECK(id.as_int() && *id.as_int() >= 0 && *id.as_int() <= kMaxTokenId, Format,
             "{}: the token {} is to have a number in [0, {}], has {}", part, io::quote_json(token),
             kMaxTokenId, id.dump().substr(0, 40));
    add(token, static_cast<uint32_t>(*id.as_int()), part);
  }
}

namespace {

// Maps pairs of ids to {rank, id of the merged token}: open addressing, at most half full.
class Merges {
 public:
  struct Merge {
    uint32_t rank, id;
  };
  void reserve(size_t n) {
    const size_t size = std::bit_ceil(std::max<size_t>(16, n * 2 + 1));
    slots_.assign(size, Slot{kNone, {0, 0}});
  }
  void set(uint32_t a, uint32_t b, Merge m) { *slot(key(a, b)) = {key(a, b), m}; }
  const Merge* find(uint32_t a, uint32_t b) const {
    const Slot* s = const_cast<Merges*>(this)->slot(key(a, b));
    return s->key == kNone ? nullptr : &s->merge;
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static uint64_t key(uint32_t a, uint32_t b) { return static_cast<uint64_t>(a) << 32 | b; }
  Slot* slot(uint64_t k) {
    const size_t mask = slots_.size() - 1;
    uint64_t h = k * 0x9E3779B97F4A7C15U;
    size_t i = (h ^ h >> 32) & mask;
    while (slots_[i].key != k && slots_[i].key != kNone) i = (i + 1) & mask;
    return &slots_[i];
  }
  std::vector<Slot> slots_ = std::vector<Slot>(1, Slot{kNone, {0, 0}});
};

class Bpe : public Model {
 public:
  explicit Bpe(const Fields& f)
      : prefix_(f.text("continuing_subword_prefix", "")),
        suffix_(f.text("end_of_word_suffix", "")),
        fuse_unk_(f.flag("fuse_unk", false)),
        byte_fallback_(f.flag("byte_fallback", false)),
        ignore_merges_(f.flag("ignore_merges", false)) {
    vocabulary.read(f.object("vocab"), f.part());
    const std::string unk = f.text("unk_token", "");
    if (!unk.empty()) {
      unk_ = vocabulary.find(unk);
      TD_CHECK(unk_, Format, "{}: the unknown token {} is not in the vocabulary", f.part(),
               io::quote_json(unk));
    }
    read_merges(f);
    for (unsigned b = 0; b < 256; ++b)
      byte_ids_.push_back(vocabulary.find(byte_token(static_cast<unsigned char>(b))));
  }

  void run(std::string_view piece, std::vector<Token>& out) const override {
    if (piece.empty()) return;
    if (ignore_merges_) {
      if (const auto id = vocabulary.find(piece)) {
        out.push_back({*id, 0, static_cast<uint32_t>(piece.size())});
        return;
      }
    }
    if (piece.size() > kCachedBytes) return encode(piece, out);
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock) return encode(piece, out);
    if (const auto* known = cache_.find(piece)) {
      out.insert(out.end(), known->begin(), known->end());
      return;
    }
    const size_t first = out.size();
    encode(piece, out);
    cache_.add(piece, {out.data() + first, out.size() - first});
  }

 private:
  static constexpr size_t kCachedBytes = 64;
  struct Symbol {
    uint32_t id, begin, bytes;
    int32_t before, behind;
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;
    uint32_t id, bytes;
    bool operator<(const Candidate& o) const {  // the queue's top is the largest
      return rank != o.rank ? rank > o.rank : at > o.at;
    }
  };

  void read_merges(const Fields& f) {
    const io::Json::Array& list = f.array("merges");
    merges_.reserve(list.size());
    uint32_t rank = 0;
    std::string merged;
    for (const io::Json& merge : list) {
      std::string_view a, b;
      if (const std::string* s = merge.as_string()) {
        const size_t space = s->find(' ');
        TD_CHECK(space != s->npos && s->find(' ', space + 1) == s->npos, Format,
                 "{}: merge {} must be two tokens with a space between", f.part(), rank);
        a = std::string_view(*s).substr(0, space);
        b = std::string_view(*s).substr(space + 1);
      } else {
        const io::Json::Array* pair = merge.as_array();
        TD_CHECK(pair && pair->size() == 2 && (*pair)[0].as_string() && (*pair)[1].as_string(),
                 Format, "{}: merge {} must be two tokens", f.part(), rank);
        a = *(*pair)[0].as_string();
        b = *(*pair)[1].as_string();
      }
      TD_CHECK(!a.empty() && b.size() > prefix_.size() && b.substr(0, prefix_.size()) == prefix_,
               Format, "{}: merge {} merges {} and {}, which adds nothing", f.part(), rank,
               io::quote_json(a), io::quote_json(b));
      merged.assign(a).append(b.substr(prefix_.size()));
      const auto ia = vocabulary.find(a), ib = vocabulary.find(b), ij = vocabulary.find(merged);
      TD_CHECK(ia && ib && ij, Format, "{}: merge {}: {} is not in the vocabulary", f.part(), rank,
               io::quote_json(!ia   ? a
                              : !ib ? b
                                    : merged));
      merges_.set(*ia, *ib, {rank++, *ij});
    }
  }

  // The characters as symbols; unknown ones become the unknown token, their bytes, or nothing.
  void split(std::string_view piece, std::vector<Symbol>& s) const {
    uint32_t at = 0;
    const auto add = [&](uint32_t id, uint32_t bytes) {
      const auto n = static_cast<int32_t>(s.size());
      s.push_back({id, at, bytes, n - 1, n + 1});
      at += bytes;
    };
    uint32_t unk_bytes = 0;
    std::string decorated;
    for (size_t i = 0; i < piece.size();) {
      const auto n = static_cast<uint32_t>(char_bytes(piece[i]));
      std::string_view c = piece.substr(i, n);
      if ((i > 0 && !prefix_.empty()) || (i + n == piece.size() && !suffix_.empty())) {
        decorated =
            (i > 0 ? prefix_ : "") + std::string(c) + (i + n == piece.size() ? suffix_ : "");
        c = decorated;
      }
      i += n;
      if (const auto id = vocabulary.find(c)) {
        if (unk_bytes > 0) add(*unk_, std::exchange(unk_bytes, 0));
        add(*id, n);
        continue;
      }
      const auto has_id = [this](char b) {
        return byte_ids_[static_cast<unsigned char>(b)].has_value();
      };
      if (byte_fallback_ && std::all_of(c.begin(), c.end(), has_id)) {
        for (char b : c) add(*byte_ids_[static_cast<unsigned char>(b)], 1);
        continue;
      }
      if (!unk_) continue;
      if (unk_bytes > 0 && !fuse_unk_) add(*unk_, std::exchange(unk_bytes, 0));
      unk_bytes += n;
    }
    if (unk_bytes > 0) add(*unk_, unk_bytes);
    if (!s.empty()) s.back().behind = -1;
  }

  void encode(std::string_view piece, std::vector<Token>& out) const {
    std::vector<Symbol> s;
    s.reserve(piece.size());
    split(piece, s);
    std::vector<Candidate> heap;
    const auto consider = [&](int32_t at) {
      if (at < 0 || s[static_cast<size_t>(at)].behind < 0) return false;
      const Symbol& a = s[static_cast<size_t>(at)];
      const Symbol& b = s[static_cast<size_t>(a.behind)];
      const Merges::Merge* m = merges_.find(a.id, b.id);
      if (m) heap.push_back({m->rank, at, m->id, a.bytes + b.bytes});
      return m != nullptr;
    };
    for (size_t i = 0; i + 1 < s.size(); ++i) consider(static_cast<int32_t>(i));
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      const Candidate top = heap.back();
      heap.pop_back();
      Symbol& a = s[static_cast<size_t>(top.at)];
      if (a.bytes == 0 || a.behind < 0) continue;
      Symbol& b = s[static_cast<size_t>(a.behind)];
      const Merges::Merge* m = merges_.find(a.id, b.id);  // in their current state
      if (!m || m->id != top.id) continue;
      a.id = top.id;
      a.bytes += b.bytes;
      a.behind = b.behind;
      b.bytes = 0;
      if (a.behind >= 0) s[static_cast<size_t>(a.behind)].before = top.at;
      if (consider(a.before)) std::push_heap(heap.begin(), heap.end());
      if (consider(top.at)) std::push_heap(heap.begin(), heap.end());
    }
    for (const Symbol& x : s)
      if (x.bytes > 0) out.push_back({x.id, x.begin, x.begin + x.bytes});
  }

  std::string prefix_, suffix_;
  bool fuse_unk_, byte_fallback_, ignore_merges_;
  std::optional<uint32_t> unk_;
  std::vector<std::optional<uint32_t>> byte_ids_;
  Merges merges_;
  mutable std::mutex mutex_;
  mutable PieceCache cache_;
};

}  // namespace

const std::vector<Token>* PieceCache::find(std::string_view piece) const {
  const auto at = map_.find(piece);
  return at == map_.end() ? nullptr : &at->second;
}
void PieceCache::add(std::string_view piece, std::span<const Token> tokens) {
  if (map_.size() >= kMost) map_.clear();
  map_.emplace(std::string(piece), std::vector<Token>(tokens.begin(), tokens.end()));
}

std::unique_ptr<Model> make_bpe(const Fields& f) { return std::make_unique<Bpe>(f); }

}  // namespace tandem::text
