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
constexpr int64_t kSmallPiece = 16;

int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t length_of(const models::PretrainedModel& model, const TextEngineOptions& o) {
  int64_t most = model.max_positions();
  if (most == 0) most = model.config.integer("max_position_embeddings", kUsualLength);
  TD_CHECK(o.length >= 0 && o.length <= most, Value,
           "texts of {} tokens are longer than the model's {} positions", o.length, most);
  return o.length > 0 ? o.length : std::min(most, kUsualLength);
}

// The compiled step: a call copies its handles and nothing else.
template <class F>
std::function<Tensor(Tensor, Tensor, Tensor, Tensor, Tensor)> compiled_step(F step) {
  auto compiled = std::make_shared<decltype(compile(step))>(
      compile(std::move(step), {.name = "decode", .same_bits = false}));
  return [compiled](const Tensor& ids, const Tensor& positions, const Tensor& slots,
                    const Tensor& table,
                    const Tensor& last) { return (*compiled)(ids, positions, slots, table, last); };
}

}  // namespace

TextSteps::TextSteps(std::shared_ptr<models::PretrainedModel> model, const TextEngineOptions& o)
    : model_(std::move(model)), length_(length_of(*model_, o)) {
  TD_CHECK(o.streams > 0 && o.block > 0 && o.piece > 0, Value,
           "streams, block and piece must be above 0, are {}, {} and {}", o.streams, o.block,
           o.piece);
  columns_ = up(length_, o.block);
  // What a token takes is known from a pool of the least size.
  double bytes = 0;
  for (const auto& layer : model_->start_paged(2, 1).layers)
    for (const Buffer* b : {&layer.k, &layer.v})
      bytes +=
          static_cast<double>(b->size(1) * b->size(2)) * static_cast<double>(size_of(b->dtype()));
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
  cache_ = model_->start_paged(blocks_, o.block);
  for (int64_t n = 1; n < o.streams; n *= 2) sizes_.push_back(n);
  sizes_.push_back(o.streams);
  pieces_ = {std::min(kSmallPiece, o.piece)};
  if (o.piece > kSmallPiece) pieces_.push_back(o.piece);
  step_ =
      compiled_step([this](Tensor ids, Tensor positions, Tensor slots, Tensor table, Tensor last) {
        return model_->decode_paged({std::move(ids), std::move(positions), std::move(slots),
                                     std::move(table), std::move(last)},
                                    cache_);
      });
}

std::vector<std::vector<float>> TextSteps::run(std::span<const TextPart> parts) {
  const auto n = static_cast<int64_t>(parts.size());
  const auto longest = static_cast<int64_t>(
      std::max_element(parts.begin(), parts.end(), [](const TextPart& a, const TextPart& b) {
        return a.ids.size() < b.ids.size();
      })->ids.size());
  if (longest == 1) return run_sized(parts, *std::lower_bound(sizes_.begin(), sizes_.end(), n), 1);
  TD_ASSERT(n == 1);
  return run_sized(parts, 1, *std::lower_bound(pieces_.begin(), pieces_.end(), longest));
}

std::vector<std::vector<float>> TextSteps::run_sized(std::span<const TextPart> parts, int64_t n,
                                                     int64_t l) {
  const NoGradGuard no_grad;
  const auto all = static_cast<size_t>(n * l);
  std::vector<int64_t> ids(all, 0), positions(all, -1), slots(all, 0),
      table(static_cast<size_t>(n * columns_), 0), last(static_cast<size_t>(n), 0);
  for (size_t i = 0; i < parts.size(); ++i) {
    const TextPart& p = parts[i];
    const size_t row = i * static_cast<size_t>(l);
    for (size_t t = 0; t < p.ids.size(); ++t) {
      const int64_t at = p.position + static_cast<int64_t>(t);
      ids[row + t] = p.ids[t];
      positions[row + t] = at;
      slots[row + t] =
          p.blocks[static_cast<size_t>(at / cache_.block)] * cache_.block + at % cache_.block;
    }
    std::copy_n(p.blocks.begin(), std::min(p.blocks.size(), static_cast<size_t>(columns_)),
                table.begin() + static_cast<ptrdiff_t>(i) * columns_);
    last[i] = static_cast<int64_t>(p.ids.size()) - 1;
  }
  const Tensor y =
      step_(tensor(ids, Shape(n, l)), tensor(positions, Shape(n, l)), tensor(slots, Shape(n, l)),
            tensor(table, Shape(n, columns_)), tensor(last, Shape(n)));
  const std::vector<float> logits = y.to(DType::f32).contiguous().to_vector<float>();
  const int64_t width = y.size(1);
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < parts.size(); ++i)
    out.emplace_back(logits.begin() + static_cast<ptrdiff_t>(i) * width,
                     logits.begin() + static_cast<ptrdiff_t>(i + 1) * width);
  return out;
}

// Texts of one, two ... tokens, each in a block of its own, as many as there is room for.
void TextSteps::warm_up(bool same_bits) {
  const int64_t n = std::min(sizes_.back(), blocks_ - 1);
  std::vector<int64_t> ids, blocks;
  for (int64_t i = 0; i < n; ++i) blocks.push_back(i + 1);
  const std::vector<int64_t> piece(static_cast<size_t>(pieces_.back()), 0);
  const auto first = std::span<const int64_t>(blocks).first(1);
  for (const int64_t l : pieces_) {
    const auto fits = static_cast<size_t>(std::min(l, cache_.block));
    run_sized(std::vector{TextPart{std::span(piece).first(fits), 0, first}}, 1, l);
  }
  const int64_t zero = 0;
  vocabulary_ = static_cast<int64_t>(
      run_sized(std::vector{TextPart{std::span(&zero, 1), 0, first}}, 1, 1)[0].size());
  for (int64_t i = 0; i < n; ++i) ids.push_back((i * 37 + 11) % vocabulary_);
  std::vector<TextPart> parts;
  std::vector<std::vector<float>> alone;
  for (size_t i = 0; i < ids.size(); ++i) {
    parts.push_back({std::span(ids).subspan(i, 1), 0, std::span(blocks).subspan(i, 1)});
    alone.push_back(run_sized(std::span(parts).last(1), 1, 1)[0]);
  }
  std::vector<int64_t> kept;
  for (const int64_t size : sizes_) {
    if (size > n) break;
    const auto together = run_sized(std::span(parts).first(static_cast<size_t>(size)), size, 1);
    bool same = true;
    for (size_t i = 0; i < together.size(); ++i)
      same = same &&
             std::memcmp(together[i].data(), alone[i].data(), alone[i].size() * sizeof(float)) == 0;
    if (same || !same_bits)
      kept.push_back(size);
    else
      log_warning("texts are not decoded {} at a time: their bits would change", size);
  }
  sizes_ = kept;
}

}  // namespace tandem::serve
