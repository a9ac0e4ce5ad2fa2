// SPDX-License-Identifier: Apache-2.0
// Reads ModelProto, normalises as it specifies, and runs Unigram or BPE on the result.
#include "tandem/text/sentencepiece.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "tandem/base/budget.h"
#include "tandem/io/protobuf.h"
#include "tandem/text/parts_internal.h"

namespace tandem::text {

// What a ModelProto holds.
namespace model_proto {

enum class PieceKind : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

struct Entry {
  std::string text;
  float score = 0;
  PieceKind kind = PieceKind::normal;
};
struct File {
  std::vector<Entry> pieces;
  int64_t model = 1, unk = 0, bos = 1, eos = 2, pad = -1;
  bool byte_fallback = false, suffix = false;
  bool dummy_prefix = true, remove_extra = true, escape = true;
  std::string charsmap;
};

}  // namespace model_proto
using model_proto::Entry;
using model_proto::File;
using model_proto::PieceKind;

namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // the character that represents a space

Entry read_piece(io::ProtoReader r) {
  Entry e;
  while (r.next()) {
    if (r.field() == 1) e.text = r.text();
    if (r.field() == 2) e.score = r.float_value();
    if (r.field() == 3) {
      const uint64_t kind = r.unsigned_value();
      if (kind < 1 || kind > 6) r.fail(fmt::format("there are no pieces of type {}", kind));
      e.kind = static_cast<PieceKind>(kind);
    }
  }
  if (e.text.empty() || !io::is_utf8(e.text)) r.fail("a piece is empty or not UTF-8");
  if (!std::isfinite(e.score)) r.fail("the score of a piece is not finite");
  return e;
}

File read_file_of(std::string_view bytes, const std::string& what) {
  io::ProtoDocument document(bytes, what);
  io::ProtoReader r = document.reader();
  File f;
  const auto id_value = [](io::ProtoReader& x) {
    return static_cast<int64_t>(static_cast<int32_t>(x.int_value()));
  };
  while (r.next()) {
    if (r.field() == 1) Budget::take(6 * sizeof(Entry));  // the list, the vocabulary, the model
    if (r.field() == 1) f.pieces.push_back(read_piece(r.message()));
    if (r.field() == 2)
      for (io::ProtoReader t = r.message(); t.next();) {
        if (t.field() == 3) f.model = t.int_value();
        if (t.field() == 24) f.suffix = t.bool_value();
        if (t.field() == 35) f.byte_fallback = t.bool_value();
        if (t.field() == 40) f.unk = id_value(t);
        if (t.field() == 41) f.bos = id_value(t);
        if (t.field() == 42) f.eos = id_value(t);
        if (t.field() == 43) f.pad = id_value(t);
      }
    if (r.field() == 3)
      for (io::ProtoReader n = r.message(); n.next();) {
        if (n.field() == 2) f.charsmap = n.text();
        if (n.field() == 3) f.dummy_prefix = n.bool_value();
        if (n.field() == 4) f.remove_extra = n.bool_value();
        if (n.field() == 5) f.escape = n.bool_value();
      }
  }
  return f;
}

// Neighbouring pairs whose concatenation is a piece are merged, the one with the best score first.
class ScoredBpe {
 public:
  ScoredBpe(const std::vector<Entry>& pieces, const Vocabulary& v) : pieces_(pieces), v_(v) {}
  void run(std::string_view s, const std::vector<std::pair<uint32_t, bool>>& ends,
           std::vector<Token>& out) const {
    std::vector<Symbol> list;
    uint32_t begin = 0;
    for (const auto& [end, frozen] : ends) {
      const auto n = static_cast<int32_t>(list.size());
      list.push_back({begin, end, n - 1, n + 1, frozen});
      begin = end;
    }
    if (list.empty()) return;
    list.back().behind = -1;
    std::vector<Pair> heap;
    const auto consider = [&](int32_t a, int32_t b) {
      if (a < 0 || b < 0) return;
      const Symbol &x = list[static_cast<size_t>(a)], &y = list[static_cast<size_t>(b)];
      if (x.frozen || y.frozen) return;
      const auto id = v_.find(s.substr(x.begin, y.end - x.begin));
      if (!id || !mergeable(pieces_[*id].kind)) return;
      heap.push_back({pieces_[*id].score, a, b, y.end - x.begin});
      std::push_heap(heap.begin(), heap.end());
    };
    for (size_t i = 1; i < list.size(); ++i)
      consider(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      const Pair top = heap.back();
      heap.pop_back();
      Symbol &a = list[static_cast<size_t>(top.a)], &b = list[static_cast<size_t>(top.b)];
      if (a.gone || b.gone || a.behind != top.b || b.end - a.begin != top.size) continue;
      a.end = b.end;
      a.behind = b.behind;
      b.gone = true;
      if (a.behind >= 0) list[static_cast<size_t>(a.behind)].before = top.a;
      consider(a.before, top.a);
      consider(top.a, a.behind);
    }
    for (const Symbol& x : list) {
      if (x.gone) continue;
      const auto id = v_.find(s.substr(x.begin, x.end - x.begin));
      out.push_back({id ? *id : kNoToken, x.begin, x.end});
    }
  }
  static constexpr uint32_t kNoToken = ~0U;

 private:
  struct Symbol {
    uint32_t begin, end;
    int32_t before, behind;
    bool frozen, gone = false;
  };
  struct Pair {
    float score;
    int32_t a, b;
    uint32_t size;
    bool operator<(const Pair& o) const { return score != o.score ? score < o.score : a > o.a; }
  };
  static bool mergeable(PieceKind k) {
    return k == PieceKind::normal || k == PieceKind::user_defined;
  }
  const std::vector<Entry>& pieces_;
  const Vocabulary& v_;
};

}  // namespace

struct SentencePiece::Impl {
  File file;
  std::string what;  ///< the file's name
  BudgetLimits limits;
  std::optional<Charsmap> charsmap;
  std::unique_ptr<Model> unigram;
  Vocabulary vocabulary;
  std::vector<std::string> symbols;  // user-defined ones, longest first
  std::vector<int64_t> byte_ids;

  // Length in bytes of the user-defined symbol that is a prefix of s, or 0.
  size_t symbol_bytes(std::string_view s) const {
    Budget::work(static_cast<double>(symbols.size()));
    for (const std::string& x : symbols)
      if (s.substr(0, x.size()) == x) return x.size();
    return 0;
  }
  // The normal form of the first characters of s, and how many bytes they take.
  std::string_view first(std::string_view s, size_t& bytes) const {
    if ((bytes = symbol_bytes(s)) > 0) return s.substr(0, bytes);
    if (const char* made = charsmap->find(s, true, bytes)) return made;
    bytes = char_bytes(s[0]);
    return s.substr(0, bytes);
  }
  std::string normalize(std::string_view s) const;
  void push(std::vector<int64_t>& ids, std::string_view piece, uint32_t id) const;
};

std::string SentencePiece::Impl::normalize(std::string_view s) const {
  std::string out;
  size_t bytes = 0;
  while (file.remove_extra && !s.empty() && first(s, bytes) == " ") s.remove_prefix(bytes);
  if (s.empty()) return out;
  const std::string_view space = file.escape ? kSpace : std::string_view(" ");
  if (!file.suffix && file.dummy_prefix) out.append(space);
  bool after_space = file.remove_extra;
  while (!s.empty()) {
    std::string_view made = first(s, bytes);
    s.remove_prefix(bytes);
    while (after_space && !made.empty() && made[0] == ' ') made.remove_prefix(1);
    if (!made.empty()) {
      Budget::take(2 * space.size() * made.size());
      for (const char c : made)
        if (c == ' ')
          out.append(space);
        else
          out.push_back(c);
      after_space = made.back() == ' ';
    }
    if (!file.remove_extra) after_space = false;
  }
  while (file.remove_extra && out.size() >= space.size() &&
         out.compare(out.size() - space.size(), space.size(), space) == 0)
    out.resize(out.size() - space.size());
  if (file.suffix && file.dummy_prefix) out.append(space);
  return out;
}

// A piece, its bytes when it is unknown, or the unknown token (one for a whole run of them).
void SentencePiece::Impl::push(std::vector<int64_t>& ids, std::string_view piece,
                               uint32_t id) const {
  if (id != ScoredBpe::kNoToken && id != static_cast<uint32_t>(file.unk)) {
    ids.push_back(id);
  } else if (file.byte_fallback) {
    for (const char b : piece) ids.push_back(byte_ids[static_cast<unsigned char>(b)]);
  } else if (ids.empty() || ids.back() != file.unk) {
    ids.push_back(file.unk);
  }
}

SentencePiece SentencePiece::from_file(const FilePath& path, const BudgetLimits& limits) {
  return from_bytes(read_file(path, size_t{1} << 30), path.str(), limits);
}

SentencePiece SentencePiece::from_bytes(std::string_view bytes, std::string_view what_,
                                        const BudgetLimits& limits) {
  const std::string what(what_);
  const Budget budget(what, bytes.size(), limits);
  auto impl = std::make_shared<Impl>();
  impl->what = what;
  impl->limits = limits;
  File& f = impl->file;
  try {
    f = read_file_of(bytes, what);
    TD_CHECK(!f.pieces.empty(), Format, "there are no pieces");
    TD_CHECK(f.model == 1 || f.model == 2, Unsupported, "{}: models of type {} are not supported",
             what, f.model);
    const auto n = static_cast<int64_t>(f.pieces.size());
    TD_CHECK(
        f.unk >= 0 && f.unk < n && f.pieces[static_cast<size_t>(f.unk)].kind == PieceKind::unknown,
        Format, "the unknown token {} is not one of the {} pieces", f.unk, n);
    TD_CHECK(std::max({f.bos, f.eos, f.pad}) < n, Format,
             "a special token is not one of the pieces");
    impl->charsmap.emplace(f.charsmap);
    float best = FLT_MIN;  // as in the library: scores of user-defined symbols are about -0.1
    for (int64_t i = 0; i < n; ++i) {
      const Entry& e = f.pieces[static_cast<size_t>(i)];
      impl->vocabulary.add(e.text, static_cast<uint32_t>(i), "pieces");
      if (e.kind == PieceKind::normal) best = std::max(best, e.score);
      if (e.kind == PieceKind::user_defined) impl->symbols.push_back(e.text);
    }
    std::sort(impl->symbols.begin(), impl->symbols.end(),
              [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
    for (unsigned b = 0; f.byte_fallback && b < 256; ++b) {
      const auto id = impl->vocabulary.find(byte_token(static_cast<unsigned char>(b)));
      TD_CHECK(id, Format, "the piece {} of byte_fallback is missing",
               byte_token(static_cast<unsigned char>(b)));
      impl->byte_ids.push_back(*id);
    }
    if (f.model == 1) {
      std::vector<UnigramPiece> list;
      for (const Entry& e : f.pieces) {
        const bool own = e.kind == PieceKind::user_defined;
        const double score =
            own ? static_cast<double>(e.text.size()) * static_cast<double>(best) - 0.1 : e.score;
        list.push_back({e.text, score, own || e.kind == PieceKind::normal});
      }
      impl->unigram = make_unigram(std::move(list), static_cast<uint32_t>(f.unk), false, true);
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Format || e.message().find(what) != std::string::npos) throw;
    TD_FAIL(Format, "{}: {}", what, e.text());
  }
  return SentencePiece(std::move(impl));
}

std::vector<int64_t> SentencePiece::encode(std::string_view text) const {
  TD_CHECK(text.size() < 1U << 28, Value, "a text of {} bytes is too long for a tokenizer",
           text.size());
  TD_CHECK(io::is_utf8(text), Value, "the text is not valid UTF-8");
  const Budget budget(impl_->what, text.size(), impl_->limits);
  const std::string s = impl_->normalize(text);
  std::vector<Token> tokens;
  if (impl_->unigram) {
    impl_->unigram->run(s, tokens);
  } else {
    std::vector<std::pair<uint32_t, bool>> ends;
    for (size_t i = 0; i < s.size();) {
      const size_t own = impl_->symbol_bytes(std::string_view(s).substr(i));
      i += own > 0 ? own : char_bytes(s[i]);
      ends.emplace_back(static_cast<uint32_t>(i), own > 0);
    }
    ScoredBpe(impl_->file.pieces, impl_->vocabulary).run(s, ends, tokens);
  }
  std::vector<int64_t> ids;
  for (const Token& t : tokens)
    impl_->push(ids, std::string_view(s).substr(t.begin, t.end - t.begin), t.id);
  return ids;
}

std::string SentencePiece::decode(std::span<const int64_t> ids) const {
  const Budget budget(impl_->what, ids.size_bytes(), impl_->limits);
  std::string out, bytes;
  bool begin = impl_->file.dummy_prefix && !impl_->file.suffix;
  const auto flush = [&] {
    for (size_t i = 0; i < bytes.size();) {
      const size_t n = char_bytes(bytes[i]);
      const bool whole = i + n <= bytes.size() && io::is_utf8(std::string_view(bytes).substr(i, n));
      out.append(whole ? bytes.substr(i, n) : "\xEF\xBF\xBD");
      i += whole ? n : 1;
    }
    bytes.clear();
  };
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    const Entry& e = impl_->file.pieces[static_cast<size_t>(id)];
    if (e.kind == PieceKind::byte && byte_of_token(e.text) >= 0) {
      bytes.push_back(static_cast<char>(byte_of_token(e.text)));
      continue;
    }
    flush();
    if (e.kind == PieceKind::control) continue;
    Budget::take(2 * e.text.size());
    std::string_view t = e.kind == PieceKind::unknown ? std::string_view(" \xE2\x81\x87 ") : e.text;
    if (begin && t.substr(0, kSpace.size()) == kSpace) t.remove_prefix(kSpace.size());
    begin = false;
    while (!t.empty()) {
      const bool space = t.substr(0, kSpace.size()) == kSpace;
      out.append(space ? std::string_view(" ") : t.substr(0, 1));
      t.remove_prefix(space ? kSpace.size() : 1);
    }
  }
  flush();
  return out;
}

int64_t SentencePiece::vocab_size() const {
  return static_cast<int64_t>(impl_->file.pieces.size());
}
std::optional<int64_t> SentencePiece::piece_to_id(std::string_view piece) const {
  const auto id = impl_->vocabulary.find(piece);
  return id ? std::optional<int64_t>(*id) : std::nullopt;
}
std::optional<std::string> SentencePiece::id_to_piece(int64_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->file.pieces[static_cast<size_t>(id)].text;
}
int64_t SentencePiece::unk_id() const { return impl_->file.unk; }
int64_t SentencePiece::bos_id() const { return impl_->file.bos; }
int64_t SentencePiece::eos_id() const { return impl_->file.eos; }
int64_t SentencePiece::pad_id() const { return impl_->file.pad; }

}  // namespace tandem::text
