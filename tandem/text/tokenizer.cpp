// SPDX-License-Identifier: Apache-2.0
// Tokenizer: reads the file's parts and runs them in order.
#include "tandem/text/tokenizer.h"

#include <algorithm>

#include "tandem/base/parallel.h"
#include "tandem/text/finish_internal.h"

namespace tandem::text {

struct Tokenizer::Impl {
  std::unique_ptr<Model> model;
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<PostProcessor> post_processor;
  std::unique_ptr<Decoder> decoder;
  std::optional<AddedTokens> added;
  std::string what;  ///< the file's name
  BudgetLimits limits;

  const std::string* token(uint32_t id) const {
    const AddedToken* a = added->find(id);
    return a ? &a->content : model->vocabulary.token(id);
  }
  Draft encode_one(std::string_view text, int64_t type_id) const;
};

namespace {

std::optional<Truncation> read_truncation(const io::Json* json) {
  if (!json || json->is_null()) return {};
  const Fields f(*json, "truncation");
  Truncation t;
  t.max_length = f.integer("max_length", 0, kMaxTokenId);
  const std::string s = f.text("strategy", "LongestFirst");
  TD_CHECK(s == "LongestFirst" || s == "OnlyFirst" || s == "OnlySecond", Format,
           "truncation: there is no strategy '{}'", s);
  t.strategy = s == "LongestFirst" ? Truncation::Strategy::longest_first
               : s == "OnlyFirst"  ? Truncation::Strategy::only_first
                                   : Truncation::Strategy::only_second;
  t.left = f.text("direction", "Right") == "Left";
  return t;
}

// A length requested by a file must not exhaust the memory.
constexpr int64_t kMaxPadding = int64_t{1} << 24;

std::optional<Padding> read_padding(const io::Json* json) {
  if (!json || json->is_null()) return {};
  const Fields f(*json, "padding");
  Padding p;
  const io::Json& strategy = f.at("strategy");
  if (strategy.as_object())
    p.length = Fields(strategy, "padding, strategy").integer("Fixed", 0, kMaxPadding);
  else
    TD_CHECK(f.text("strategy") == "BatchLongest", Format, "padding: there is no strategy '{}'",
             f.text("strategy"));
  p.left = f.text("direction", "Right") == "Left";
  p.multiple_of = f.integer("pad_to_multiple_of", 0, kMaxPadding, 0);
  p.id = f.integer("pad_id", 0, kMaxTokenId, 0);
  p.type_id = f.integer("pad_type_id", 0, kMaxTokenId, 0);
  return p;
}

template <class T>
void keep(std::vector<T>& v, size_t n, bool left) {
  if (left)
    v.erase(v.begin(), v.end() - static_cast<ptrdiff_t>(n));
  else
    v.resize(n);
}
void truncate(Draft& e, size_t n, bool left) {
  if (e.size() <= n) return;
  if (left) {
    std::vector<std::pair<size_t, std::string>> kept;
    for (auto& [i, text] : e.surfaces)
      if (i >= e.size() - n) kept.emplace_back(i - (e.size() - n), std::move(text));
    e.surfaces = std::move(kept);
  }
  keep(e.ids, n, left);
  keep(e.type_ids, n, left);
  keep(e.attention_mask, n, left);
  keep(e.special_tokens_mask, n, left);
  keep(e.offsets, n, left);
}

void truncate(std::vector<Draft>& v, const Truncation& t, size_t added) {
  const size_t most =
      static_cast<size_t>(std::max<int64_t>(0, t.max_length - static_cast<int64_t>(added)));
  size_t total = 0;
  for (const Draft& e : v) total += e.size();
  if (total <= most) return;
  if (t.strategy == Truncation::Strategy::longest_first) {
    size_t a = most, b = 0;
    if (v.size() == 2) {
      a = v[0].size();
      b = v[1].size();
      const bool swapped = a > b;
      if (swapped) std::swap(a, b);
      b = a > most ? a : std::max(a, most - a);
      if (a + b > most) {
        a = most / 2;
        b = a + most % 2;
      }
      if (swapped) std::swap(a, b);
      truncate(v[1], b, t.left);
    }
    truncate(v[0], a, t.left);
    return;
  }
  const size_t which = t.strategy == Truncation::Strategy::only_second;
  TD_CHECK(which < v.size(), Value, "truncation of the second text only, but there is one");
  TD_CHECK(v[which].size() > total - most, Value,
           "truncation to {} tokens would leave nothing of text {}", t.max_length, which + 1);
  truncate(v[which], v[which].size() - (total - most), t.left);
}

/// What a token takes in an Encoding, whose lists double as they grow.
constexpr size_t kTokenBytes = 2 * (4 * sizeof(int64_t) + sizeof(Encoding::Offsets));

void pad(Encoding& e, size_t length, const Padding& p) {
  if (e.size() >= length) return;
  const size_t n = length - e.size();
  Budget::take(n * kTokenBytes);
  const auto fill = [&](auto& v, auto value) { v.insert(p.left ? v.begin() : v.end(), n, value); };
  fill(e.ids, p.id);
  fill(e.type_ids, p.type_id);
  fill(e.attention_mask, int64_t{0});
  fill(e.special_tokens_mask, int64_t{1});
  fill(e.offsets, Encoding::Offsets{});
}
void pad(std::span<Encoding> v, const Padding& p) {
  size_t length = 0;
  for (const Encoding& e : v) length = std::max(length, e.size());
  if (p.length) length = static_cast<size_t>(*p.length);
  if (p.multiple_of > 0) {
    const auto m = static_cast<size_t>(p.multiple_of);
    length = (length + m - 1) / m * m;
  }
  for (Encoding& e : v) pad(e, length, p);
}

}  // namespace

Draft Tokenizer::Impl::encode_one(std::string_view text, int64_t type_id) const {
  TD_CHECK(text.size() < 1U << 30, Value, "a text of {} bytes is too long for a tokenizer",
           text.size());
  TD_CHECK(io::is_utf8(text), Value, "the text is not valid UTF-8");
  Pieces p;
  added->split(text, normalizer.get(), p);
  if (pre_tokenizer) pre_tokenizer->run(p);
  std::vector<uint32_t> chars;  // index of the character at each byte
  if (!is_ascii(text)) {
    chars.resize(text.size() + 1);
    uint32_t n = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if ((static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80)
        chars[i] = n - 1;
      else
        chars[i] = n++;
    }
    chars[text.size()] = n;
  }
  Draft e;
  const auto push = [&](uint32_t id, uint32_t begin, uint32_t end) {
    const ByteRange r = p.all.origin_of(begin, end);
    e.ids.push_back(id);
    e.offsets.push_back(chars.empty() ? Encoding::Offsets{r.begin, r.end}
                                      : Encoding::Offsets{chars[r.begin], chars[r.end]});
  };
  Budget::take(p.list.size() * sizeof(Piece) * 2);
  e.ids.reserve(text.size() / 3 + 4);
  e.offsets.reserve(text.size() / 3 + 4);
  std::vector<Token> tokens;
  for (const Piece& piece : p.list) {
    if (piece.token >= 0) {
      const AddedToken* a = added->find(static_cast<uint32_t>(piece.token));
      if (a && (a->lstrip || a->rstrip)) e.surfaces.emplace_back(e.size(), p.view(piece));
      push(static_cast<uint32_t>(piece.token), piece.begin, piece.end);
      continue;
    }
    tokens.clear();
    Budget::take((piece.end - piece.begin) * kTokenBytes);  // at most a token for each byte
    Budget::check_time();
    model->run(p.view(piece), tokens);
    for (const Token& t : tokens) push(t.id, piece.begin + t.begin, piece.begin + t.end);
  }
  e.type_ids.assign(e.size(), type_id);
  e.attention_mask.assign(e.size(), 1);
  e.special_tokens_mask.assign(e.size(), 0);
  return e;
}

namespace {
Encoding finish(std::vector<Draft> v, const PostProcessor* processor,
                const std::optional<Truncation>& truncation, bool add) {
  if (truncation) truncate(v, *truncation, add && processor ? processor->added(v.size() == 2) : 0);
  if (processor) processor->run(v, add);
  for (size_t i = 1; i < v.size(); ++i) append(v[0], v[i]);
  return std::move(v[0]);
}
}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Tokenizer Tokenizer::from_file(const FilePath& path, const BudgetLimits& limits) {
  return from_json(read_file(path, size_t{1} << 30), path.str(), limits);
}

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view what,
                               const BudgetLimits& limits) {
  const Budget budget(what, text.size(), limits);
  const io::Json json = io::parse_json(text, what, {.depth = 64, .values = size_t{1} << 24});
  try {
    const Fields f(json, "the file");
    auto impl = std::make_shared<Impl>();
    impl->what = what;
    impl->limits = limits;
    impl->model = make_model(f.at("model"));
    if (const io::Json* j = f.find("normalizer")) impl->normalizer = make_normalizer(*j);
    if (const io::Json* j = f.find("pre_tokenizer")) impl->pre_tokenizer = make_pre_tokenizer(*j);
    if (const io::Json* j = f.find("decoder")) impl->decoder = make_decoder(*j);
    impl->added.emplace(f.find("added_tokens"), impl->model->vocabulary, impl->normalizer.get());
    if (const io::Json* j = f.find("post_processor"))
      impl->post_processor =
          make_post_processor(*j, impl.get(), [](const void* owner, uint32_t id) {
            return static_cast<const Impl*>(owner)->token(id);
          });
    Tokenizer t(std::move(impl));
    t.truncation_ = read_truncation(f.find("truncation"));
    t.padding_ = read_padding(f.find("padding"));
    return t;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Format) throw;
    TD_FAIL(Format, "{}: {}", what, e.text());
  }
}

Encoding Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  const Budget budget(impl_->what, text.size(), impl_->limits);
  std::vector<Draft> v;
  v.push_back(impl_->encode_one(text, 0));
  Encoding e = finish(std::move(v), impl_->post_processor.get(), truncation_, add_special_tokens);
  if (padding_) pad({&e, 1}, *padding_);
  return e;
}
Encoding Tokenizer::encode_pair(std::string_view text, std::string_view pair,
                                bool add_special_tokens) const {
  const Budget budget(impl_->what, text.size() + pair.size(), impl_->limits);
  std::vector<Draft> v;
  v.push_back(impl_->encode_one(text, 0));
  v.push_back(impl_->encode_one(pair, 1));
  Encoding e = finish(std::move(v), impl_->post_processor.get(), truncation_, add_special_tokens);
  if (padding_) pad({&e, 1}, *padding_);
  return e;
}
std::vector<Encoding> Tokenizer::encode_batch(std::span<const std::string> texts,
                                              bool add_special_tokens) const {
  std::vector<Encoding> out(texts.size());
  parallel_for(0, static_cast<int64_t>(texts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::string& text = texts[static_cast<size_t>(i)];
      const Budget budget(impl_->what, text.size(), impl_->limits);
      std::vector<Draft> v;
      v.push_back(impl_->encode_one(text, 0));
      out[static_cast<size_t>(i)] =
          finish(std::move(v), impl_->post_processor.get(), truncation_, add_special_tokens);
    }
  });
  if (!padding_) return out;
  uint64_t given = 0;
  for (const std::string& text : texts) given += text.size();
  const Budget budget(impl_->what, given, impl_->limits);
  pad(out, *padding_);
  return out;
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  const Budget budget(impl_->what, ids.size_bytes(), impl_->limits);
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int64_t id : ids) {
    if (id < 0 || id > kMaxTokenId) continue;
    const std::string* t = impl_->token(static_cast<uint32_t>(id));
    if (!t) continue;
    const AddedToken* a = impl_->added->find(std::string_view(*t));
    if (skip_special_tokens && a && a->special) continue;
    Budget::take(sizeof(std::string) + 2 * t->size());  // there, and in the text
    tokens.push_back(*t);
  }
  if (impl_->decoder) impl_->decoder->run(tokens);
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !impl_->decoder) out.push_back(' ');
    out.append(tokens[i]);
  }
  return out;
}

std::string Tokenizer::token_bytes(int64_t id) const {
  if (id < 0 || id > kMaxTokenId) return "";
  const std::string* t = impl_->token(static_cast<uint32_t>(id));
  const AddedToken* a = t ? impl_->added->find(std::string_view(*t)) : nullptr;
  if (!t || (a && a->special)) return "";
  std::string bytes = *t;
  if (impl_->decoder && impl_->decoder->bytes(bytes)) return bytes;
  // What it adds after a token that reads as a character.
  std::vector<std::string> before = {"a"}, after = {"a", *t};
  if (impl_->decoder) {
    impl_->decoder->run(before);
    impl_->decoder->run(after);
  } else {
    after.insert(after.begin() + 1, " ");
  }
  const auto joined = [](const std::vector<std::string>& parts) {
    std::string out;
    for (const std::string& p : parts) out += p;
    return out;
  };
  const std::string first = joined(before), both = joined(after);
  return both.starts_with(first) ? both.substr(first.size()) : "";
}

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* a = impl_->added->find(token)) return a->id;
  const auto id = impl_->model->vocabulary.find(token);
  return id ? std::optional<int64_t>(*id) : std::nullopt;
}
std::optional<std::string> Tokenizer::id_to_token(int64_t id) const {
  if (id < 0 || id > kMaxTokenId) return {};
  const std::string* t = impl_->token(static_cast<uint32_t>(id));
  return t ? std::optional<std::string>(*t) : std::nullopt;
}
int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(impl_->model->vocabulary.size() + impl_->added->extra());
}
const std::optional<Truncation>& Tokenizer::truncation() const { return truncation_; }
const std::optional<Padding>& Tokenizer::padding() const { return padding_; }
Tokenizer Tokenizer::with_truncation(std::optional<Truncation> t) const {
  Tokenizer copy = *this;
  copy.truncation_ = t;
  return copy;
}
Tokenizer Tokenizer::with_padding(std::optional<Padding> p) const {
  Tokenizer copy = *this;
  copy.padding_ = p;
  return copy;
}

}  // namespace tandem::text
