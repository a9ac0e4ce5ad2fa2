// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/compile/compile.h"
#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/text/text_steps_internal.h"

namespace tandem::serve {
namespace {

constexpr int64_t kUsualLength = 4096;
constexpr int64_t kUsualPairLength = 512;  // every step gathers as many keys
constexpr int64_t kSmallPiece = 16;

int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool same_floats(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

int64_t length_of(models::PretrainedModel& model, const TextEngineOptions& o) {
  int64_t most = model.max_positions();
  if (most == 0) most = model.config.integer("max_position_embeddings", kUsualLength);
  TD_CHECK(o.length >= 0 && o.length <= most, Value,
           "texts of {} tokens are longer than the model's {} positions", o.length, most);
  return o.length > 0 ? o.length
                      : std::min(most, models::paged_pair(model) ? kUsualPairLength : kUsualLength);
}

std::vector<models::Adapter> adapters_of(models::PretrainedModel& model,
                                         const std::vector<TextAdapter>& all) {
  std::vector<models::Adapter> out;
  for (const TextAdapter& a : all) out.push_back(models::load_adapter(a.folder, model));
  return out;
}

models::PagedCache pool_of(models::PretrainedModel& model, int64_t blocks, int64_t block) {
  models::PagedPair* pair = models::paged_pair(model);
  return pair ? pair->start_pair(blocks, block) : model.start_paged(blocks, block);
}

// What the keys and values of a token take; known from a pool of the least size.
double bytes_of_token(models::PretrainedModel& model) {
  double bytes = 0;
  for (const auto& layer : pool_of(model, 2, 1).layers)
    for (const Buffer* b : {&layer.k, &layer.v})
      bytes +=
          static_cast<double>(b->size(1) * b->size(2)) * static_cast<double>(size_of(b->dtype()));
  return bytes;
}

}  // namespace

double bytes_of_cache(models::PretrainedModel& model, const TextEngineOptions& o) {
  const int64_t tokens = o.streams * up(length_of(model, o), o.block) * o.block;
  return std::min(static_cast<double>(tokens) * bytes_of_token(model),
                  static_cast<double>(o.cache_bytes));
}

TextSteps::TextSteps(std::shared_ptr<models::PretrainedModel> model, const TextEngineOptions& o,
                     int64_t wide)
    : model_(std::move(model)),
      pair_(models::paged_pair(*model_)),
      length_(length_of(*model_, o)),
      wide_(wide) {
  TD_CHECK(!pair_ || (o.adapters.empty() && wide == 1), Unsupported,
           "a model with an encoder takes neither adapters nor a draft model");
  TD_CHECK(o.streams > 0 && o.block > 0 && o.piece > 0, Value,
           "streams, block and piece must be above 0, are {}, {} and {}", o.streams, o.block,
           o.piece);
  columns_ = up(length_, o.block);
  const double bytes = bytes_of_token(*model_) + (o.draft ? bytes_of_token(*o.draft) : 0);
  const int64_t wanted = o.streams * columns_;
  const auto room = static_cast<int64_t>(static_cast<double>(o.cache_bytes) / std::max(bytes, 1.0));
  const int64_t count =
      o.cache_tokens > 0 ? up(o.cache_tokens, o.block) : std::min(wanted, room / o.block);
  blocks_ = std::max<int64_t>(count, 1) + 1;
  if (count < columns_) {
    length_ = std::max<int64_t>(count, 1) * o.block;
    columns_ = std::max<int64_t>(count, 1);
    log_warning("texts may have {} tokens at most: the cache has no room for more", length_);
  }
  if (!o.adapters.empty()) adapters_.emplace(*model_, adapters_of(*model_, o.adapters));
  set_up(o);
}

TextSteps::TextSteps(std::shared_ptr<models::PretrainedModel> model, const TextEngineOptions& o,
                     int64_t wide, const TextSteps& target)
    : model_(std::move(model)),
      length_(target.length_),
      blocks_(target.blocks_),
      columns_(target.columns_),
      wide_(wide) {
  const int64_t most = model_->max_positions();
  TD_CHECK(most == 0 || most >= length_, Value,
           "the draft model has {} positions, and texts may have {} tokens\nSet length.", most,
           length_);
  set_up(o);
}

void TextSteps::set_up(const TextEngineOptions& o) {
  cache_ = pool_of(*model_, blocks_, o.block);
  for (int64_t n = 1; n < o.streams; n *= 2) sizes_.push_back(n);
  sizes_.push_back(o.streams);
  for (int64_t each = kSmallPiece; each < o.piece; each *= 2) pieces_.push_back({each, 1});
  pieces_.push_back({o.piece, 1});
  const auto step = [this](const std::vector<Tensor>& x) {
    std::optional<models::AdapterSet::Use> use;
    if (pair_) return pair_->decode_pair({x[0], x[1], x[2], x[3], x[4]}, x[5], cache_);
    if (x.size() > 5) use.emplace(*adapters_, x[5]);
    return model_->decode_paged({x[0], x[1], x[2], x[3], x[4]}, cache_);
  };
  auto compiled = std::make_shared<decltype(compile(step))>(
      compile(step, {.cache_size = 64, .name = "decode", .same_bits = false}));
  step_ = [compiled](const std::vector<Tensor>& x) { return (*compiled)(x); };
}

void TextSteps::read_prompt(std::span<const int64_t> ids, std::span<const int64_t> blocks) {
  const NoGradGuard no_grad;
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < static_cast<int64_t>(ids.size()); ++i)
    slots.push_back(blocks[static_cast<size_t>(i / cache_.block)] * cache_.block +
                    i % cache_.block);
  const Shape row(1, static_cast<int64_t>(ids.size()));
  pair_->read_prompt(tensor(std::vector<int64_t>(ids.begin(), ids.end()), row), tensor(slots, row),
                     cache_);
}

std::vector<std::vector<float>> TextSteps::run(std::span<const TextPart> parts) {
  const auto n = static_cast<int64_t>(parts.size());
  const auto longest = static_cast<int64_t>(
      std::max_element(parts.begin(), parts.end(), [](const TextPart& a, const TextPart& b) {
        return a.ids.size() < b.ids.size();
      })->ids.size());
  const int64_t size = *std::lower_bound(sizes_.begin(), sizes_.end(), n);
  if (longest == 1) return run_sized(parts, size, 1);
  if (longest <= wide_) return run_sized(parts, size, wide_);
  const PieceSize piece = read_with(longest);
  TD_ASSERT(n <= piece.parts);
  return run_sized(parts, size, piece.each);
}

TextSteps::PieceSize TextSteps::read_with(int64_t tokens) const {
  if (tokens <= wide_) return {wide_, most_parts()};
  return *std::find_if(pieces_.begin(), pieces_.end(),
                       [&](const PieceSize& p) { return p.each >= tokens; });
}

std::vector<std::vector<float>> TextSteps::run_wide(std::span<const TextPart> parts) {
  const auto n = static_cast<int64_t>(parts.size());
  return run_sized(parts, *std::lower_bound(sizes_.begin(), sizes_.end(), n), wide_, true);
}

std::vector<std::vector<float>> TextSteps::run_sized(std::span<const TextPart> parts, int64_t n,
                                                     int64_t l, bool every) {
  const NoGradGuard no_grad;
  const auto all = static_cast<size_t>(n * l);
  std::vector<int64_t> ids(all, 0), positions(all, -1), slots(all, 0),
      table(static_cast<size_t>(n * columns_), 0), last(static_cast<size_t>(n), 0),
      adapters(static_cast<size_t>(n), 0), prompts(pair_ ? all : 0, -1);
  bool adapted = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const TextPart& p = parts[i];
    const size_t row = i * static_cast<size_t>(l);
    for (size_t t = 0; t < p.ids.size(); ++t) {
      const int64_t at = p.position + static_cast<int64_t>(t);
      ids[row + t] = p.ids[t];
      positions[row + t] = at;
      if (pair_) prompts[row + t] = p.prompt - 1;
      slots[row + t] =
          p.blocks[static_cast<size_t>(at / cache_.block)] * cache_.block + at % cache_.block;
    }
    std::copy_n(p.blocks.begin(), std::min(p.blocks.size(), static_cast<size_t>(columns_)),
                table.begin() + static_cast<ptrdiff_t>(i) * columns_);
    last[i] = static_cast<int64_t>(p.ids.size()) - 1;
    adapters[i] = p.adapter;
    adapted = adapted || p.adapter != 0;
  }
  std::vector<Tensor> in = {tensor(ids, Shape(n, l)), tensor(positions, Shape(n, l)),
                            tensor(slots, Shape(n, l)), tensor(table, Shape(n, columns_)),
                            every ? arange(l).expand({n, l}).contiguous() : tensor(last, Shape(n))};
  if (adapted) in.push_back(tensor(adapters, Shape(n)));
  if (pair_) in.push_back(tensor(prompts, Shape(n, l)));
  const Tensor y = step_(in);
  const std::vector<float> logits = y.to(DType::f32).contiguous().to_vector<float>();
  const int64_t width = y.size(-1);
  const size_t each = every ? static_cast<size_t>(l) : 1;
  std::vector<std::vector<float>> out(parts.size() * each);
  for (size_t i = 0; i < out.size(); ++i)
    if (!every || i % each < parts[i / each].ids.size())
      out[i].assign(logits.begin() + static_cast<ptrdiff_t>(i) * width,
                    logits.begin() + static_cast<ptrdiff_t>(i + 1) * width);
  return out;
}

std::vector<std::vector<float>> TextSteps::each_alone(std::span<const TextPart> parts) {
  std::vector<std::vector<float>> out;
  for (const TextPart& p : parts) out.push_back(run_sized(std::span(&p, 1), 1, 1)[0]);
  return out;
}

// Compiles the steps that read one prompt, and learns the size of the vocabulary.
void TextSteps::warm_up_pieces() {
  const int64_t block = 1, zero = 0;
  const std::vector<int64_t> piece(static_cast<size_t>(pieces_.back().each), 0);
  for (int64_t adapter = 0; adapter <= (adapters_ ? 1 : 0); ++adapter) {
    const std::span first(&block, 1);
    for (const PieceSize& p : pieces_) {
      const auto fits = static_cast<size_t>(std::min(p.each, cache_.block));
      run_sized(std::vector{TextPart{std::span(piece).first(fits), 0, first, adapter}}, 1, p.each);
    }
    vocabulary_ = static_cast<int64_t>(
        run_sized(std::vector{TextPart{std::span(&zero, 1), 0, first, adapter}}, 1, 1)[0].size());
  }
}

// Compiles those that read several prompts at once, as many tokens as the largest piece has.
void TextSteps::warm_up_prompts(bool same_bits) {
  for (PieceSize& p : pieces_)
    for (const int64_t n : sizes_) {
      if (pair_ || n * p.each > pieces_.back().each) break;
      if (n == 1) continue;
      bool same = same_pieces(p.each, n, false);
      if (adapters_) same = same_pieces(p.each, n, true) && same;
      if (!same && same_bits) break;
      p.parts = n;
    }
}

// Whether the first two of `n` prompts, as long as `each` tokens and a block allow, have the bits
// that each has alone.
bool TextSteps::same_pieces(int64_t each, int64_t n, bool adapted) {
  const int64_t length = std::min(each, cache_.block);
  if (n > blocks_ - 1) return false;
  std::vector<int64_t> ids, blocks;
  for (int64_t i = 0; i < n * length; ++i) ids.push_back((i * 43 + 5) % vocabulary_);
  for (int64_t i = 0; i < n; ++i) blocks.push_back(i + 1);
  std::vector<TextPart> parts;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int64_t adapter =
        adapted ? static_cast<int64_t>(i + 1) % (adapters_->count() + 1) : int64_t{0};
    const auto w = static_cast<size_t>(length);
    parts.push_back(
        {std::span(ids).subspan(i * w, w), 0, std::span(blocks).subspan(i, 1), adapter});
  }
  const auto together = run_sized(parts, n, each);
  bool same = true;
  for (size_t i = 0; i < 2; ++i)  // a large model takes long
    same = same && same_floats(together[i], run_sized(std::span(parts).subspan(i, 1), 1, each)[0]);
  return same;
}

// Texts of one, two ... tokens, each in a block of its own, as many as there is room for; then the
// same with adapters and without in turn.
void TextSteps::warm_up(bool same_bits) {
  warm_up_pieces();
  const int64_t n = std::min(sizes_.back(), blocks_ - 1);
  std::vector<int64_t> ids, blocks;
  for (int64_t i = 0; i < n; ++i) {
    ids.push_back((i * 37 + 11) % vocabulary_);
    blocks.push_back(i + 1);
  }
  std::vector<TextPart> parts;
  for (size_t i = 0; i < ids.size(); ++i)
    parts.push_back({std::span(ids).subspan(i, 1), 0, std::span(blocks).subspan(i, 1)});
  for (size_t i = 0; pair_ && i < parts.size(); ++i) {
    parts[i].prompt = std::min<int64_t>(3 + static_cast<int64_t>(i) % 5, cache_.block);
    const std::vector<int64_t> prompt(static_cast<size_t>(parts[i].prompt), ids[i]);
    read_prompt(prompt, parts[i].blocks);
  }
  std::vector<TextPart> adapted = parts;
  if (adapters_)
    for (size_t i = 0; i < adapted.size(); ++i)
      adapted[i].adapter = static_cast<int64_t>(i + 1) % (adapters_->count() + 1);
  const auto alone = each_alone(parts);
  const auto adapted_alone = adapters_ ? each_alone(adapted) : alone;
  std::vector<int64_t> kept;
  for (const int64_t size : sizes_) {
    if (size > n) break;
    const auto of = static_cast<size_t>(size);
    bool same = true;
    const auto together = run_sized(std::span(parts).first(of), size, 1);
    for (size_t i = 0; i < of; ++i) same = same && same_floats(together[i], alone[i]);
    if (adapters_) {
      const auto mixed = run_sized(std::span(adapted).first(of), size, 1);
      for (size_t i = 0; i < of; ++i) {
        bool& still = adapted[i].adapter == 0 ? mixes_ : same;
        still = still && (!same_bits || same_floats(mixed[i], adapted_alone[i]));
      }
    }
    if (same || !same_bits)
      kept.push_back(size);
    else
      log_warning("texts are not decoded {} at a time: their bits would change", size);
  }
  sizes_ = kept;
  warm_up_prompts(same_bits);
  bool same = true;
  for (const int64_t size : sizes_) {
    if (wide_ == 1) break;
    same = same_when_wide(size, false) && same;
    if (adapters_) same = same_when_wide(size, true) && same;
  }
  if (same || !same_bits) return;
  log_warning("texts are decoded token by token: their bits would change with several at once");
  wide_ = 1;
}

// Texts of `wide` tokens read at once, and the first two of them token by token.
bool TextSteps::same_when_wide(int64_t size, bool adapted) {
  const int64_t each = up(wide_, cache_.block), n = std::min(size, (blocks_ - 1) / each);
  if (n == 0 || each > columns_) return false;
  const auto w = static_cast<size_t>(wide_);
  std::vector<int64_t> ids, blocks;
  for (int64_t i = 0; i < n * wide_; ++i) ids.push_back((i * 41 + 7) % vocabulary_);
  for (int64_t i = 0; i < n * each; ++i) blocks.push_back(i + 1);
  const auto blocks_of = [&](size_t i) {
    return std::span<const int64_t>(blocks).subspan(i * static_cast<size_t>(each),
                                                    static_cast<size_t>(each));
  };
  std::vector<TextPart> parts;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const int64_t adapter =
        adapted ? static_cast<int64_t>(i + 1) % (adapters_->count() + 1) : int64_t{0};
    parts.push_back({std::span(ids).subspan(i * w, w), 0, blocks_of(i), adapter});
  }
  const auto together = run_sized(parts, size, wide_, true);
  const auto last = run_sized(parts, size, wide_);
  bool same = true;
  for (size_t i = 0; i < std::min<size_t>(parts.size(), 2); ++i)
    for (size_t t = 0; t < w; ++t) {
      const TextPart one{parts[i].ids.subspan(t, 1), static_cast<int64_t>(t), blocks_of(i),
                         parts[i].adapter};
      const auto alone = run_sized(std::span(&one, 1), 1, 1)[0];
      same = same && same_floats(together[i * w + t], alone) &&
             (t + 1 < w || same_floats(last[i], alone));
    }
  return same;
}

}  // namespace tandem::serve
