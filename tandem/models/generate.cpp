// SPDX-License-Identifier: Apache-2.0
// generate(): the prompts fill the cache in one call, then one compiled step per token.
#include "tandem/models/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/base/philox.h"
#include "tandem/compile/compile.h"
#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

void check_options(const GenerateOptions& o) {
  TD_CHECK(o.max_new_tokens >= 0 && o.min_new_tokens >= 0, Value,
           "numbers of new tokens are to be 0 or more, are {} and {}", o.max_new_tokens,
           o.min_new_tokens);
  TD_CHECK(o.temperature > 0, Value, "temperature is to be above 0, is {}", o.temperature);
  TD_CHECK(o.top_k >= 0, Value, "top_k is to be 0 or more, is {}", o.top_k);
  TD_CHECK(o.top_p > 0 && o.top_p <= 1, Value, "top_p is to lie in (0, 1], is {}", o.top_p);
  TD_CHECK(o.repetition_penalty > 0, Value, "repetition_penalty is to be above 0, is {}",
           o.repetition_penalty);
}

// The rows side by side, padded on the left; `start` gets the length of each row's padding.
Tensor pad_left(const std::vector<std::vector<int64_t>>& prompts, int64_t length,
                std::vector<int64_t>& start) {
  std::vector<int64_t> ids;
  for (const auto& p : prompts) {
    start.push_back(length - static_cast<int64_t>(p.size()));
    ids.insert(ids.end(), static_cast<size_t>(start.back()), p[0]);
    ids.insert(ids.end(), p.begin(), p.end());
  }
  return tensor(ids, Shape(static_cast<int64_t>(prompts.size()), length));
}

// From the likeliest on: how many tokens sampling may choose from.
size_t kept_tokens(const std::vector<float>& logits, const std::vector<int32_t>& order,
                   size_t count, const GenerateOptions& o) {
  if (o.top_p >= 1) return count;
  const double top = logits[static_cast<size_t>(order[0])];
  double sum = 0, part = 0;
  for (size_t i = 0; i < count; ++i) sum += std::exp(logits[static_cast<size_t>(order[i])] - top);
  for (size_t i = 0; i < count; ++i) {
    part += std::exp(logits[static_cast<size_t>(order[i])] - top);
    if (part >= o.top_p * sum) return i + 1;
  }
  return count;
}

}  // namespace

int64_t next_token(std::vector<float>& logits, const std::vector<int64_t>& tokens, int64_t fresh,
                   const std::vector<int64_t>& eos, const GenerateOptions& o, double draw) {
  constexpr float kNever = -INFINITY;
  if (o.repetition_penalty != 1) {
    std::vector<int64_t> seen = tokens;
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    const auto penalty = static_cast<float>(o.repetition_penalty);
    for (const int64_t t : seen) {
      float& l = logits[static_cast<size_t>(t)];
      l = l < 0 ? l * penalty : l / penalty;
    }
  }
  if (fresh < o.min_new_tokens)
    for (const int64_t e : eos)
      if (e < static_cast<int64_t>(logits.size())) logits[static_cast<size_t>(e)] = kNever;
  if (!o.do_sample) return std::max_element(logits.begin(), logits.end()) - logits.begin();
  for (float& l : logits) l = static_cast<float>(l / o.temperature);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  size_t count = order.size();
  if (o.top_k > 0) count = std::min(count, static_cast<size_t>(o.top_k));
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
                    likelier);
  count = kept_tokens(logits, order, count, o);
  const double top = logits[static_cast<size_t>(order[0])];
  std::vector<double> sums;
  double sum = 0;
  for (size_t i = 0; i < count; ++i)
    sums.push_back(sum += std::exp(logits[static_cast<size_t>(order[i])] - top));
  const auto at = std::upper_bound(sums.begin(), sums.end(), draw * sum) - sums.begin();
  return order[std::min(static_cast<size_t>(at), count - 1)];
}

std::vector<std::vector<int64_t>> generate(PretrainedModel& model,
                                           const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerateOptions& o) {
  check_options(o);
  const auto n = static_cast<int64_t>(prompts.size());
  std::vector<std::vector<int64_t>> out(prompts.size());
  if (n == 0 || o.max_new_tokens == 0) return out;
  int64_t longest = 0;
  for (const auto& p : prompts) {
    TD_CHECK(!p.empty(), Value, "generate wants prompts of one token or more");
    longest = std::max(longest, static_cast<int64_t>(p.size()));
  }
  const int64_t length = longest + o.max_new_tokens;
  TD_CHECK(model.max_positions() == 0 || length <= model.max_positions(), Value,
           "{} tokens and {} new ones are more than the model's {} positions", longest,
           o.max_new_tokens, model.max_positions());
  const std::vector<int64_t> eos =
      o.eos_token_id.empty() ? model.config.tokens("eos_token_id") : o.eos_token_id;
  const NoGradGuard no_grad;
  DecodeState state = model.start_decoding(n, length);
  std::vector<int64_t> start;
  const Tensor ids = pad_left(prompts, longest, start);
  state.start.assign_(tensor(start));
  std::vector<PhiloxStream> streams;
  for (int64_t r = 0; r < n; ++r) streams.emplace_back(o.seed, 0, static_cast<uint64_t>(r));
  const auto step = [&](Tensor x) { return model.decode(x, state); };
  auto compiled = compile(step, {.name = "decode"});

  std::vector<std::vector<int64_t>> rows = prompts;
  if (model.is_encoder_decoder())
    rows.assign(prompts.size(), {model.config.integer("decoder_start_token_id", 0, 0)});
  std::vector<bool> done(prompts.size(), false);
  Tensor logits = model.decode(ids, state);
  for (int64_t t = 0; t < o.max_new_tokens; ++t) {
    const int64_t vocab = logits.size(1);
    const std::vector<float> all = logits.to_vector<float>();
    std::vector<int64_t> next;
    for (size_t r = 0; r < rows.size(); ++r) {
      if (done[r]) {
        next.push_back(rows[r].back());
        continue;
      }
      std::vector<float> row(all.begin() + static_cast<ptrdiff_t>(r) * vocab,
                             all.begin() + static_cast<ptrdiff_t>(r + 1) * vocab);
      const double draw = o.do_sample ? streams[r].next_uniform() : 0;
      const int64_t token = next_token(row, rows[r], t, eos, o, draw);
      rows[r].push_back(token);
      out[r].push_back(token);
      next.push_back(token);
      done[r] = std::find(eos.begin(), eos.end(), token) != eos.end();
      if (o.streamer && !o.streamer(static_cast<int64_t>(r), token)) done[r] = true;
    }
    if (t + 1 == o.max_new_tokens || std::find(done.begin(), done.end(), false) == done.end())
      break;
    const Tensor x = tensor(next, Shape(n, 1));
    logits = o.compiled ? compiled(x) : step(x);
  }
  return out;
}

}  // namespace tandem::models
