// SPDX-License-Identifier: Apache-2.0
// generate(): the prompts fill the cache in one call, then one compiled step per token.
#include "tandem/models/text/generate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <unordered_map>

#include "tandem/base/philox.h"
#include "tandem/compile/compile.h"
#include "tandem/graph/context.h"
#include "tandem/models/text/token_choices.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

void check(const GenerateOptions& o) {
  TD_CHECK(o.max_new_tokens >= 0 && o.min_new_tokens >= 0, Value,
           "numbers of new tokens must not be negative, are {} and {}", o.max_new_tokens,
           o.min_new_tokens);
  TD_CHECK(o.temperature > 0, Value, "temperature must be above 0, is {}", o.temperature);
  TD_CHECK(o.top_k >= 0, Value, "top_k must not be negative, is {}", o.top_k);
  TD_CHECK(o.top_p > 0 && o.top_p <= 1, Value, "top_p must lie in (0, 1], is {}", o.top_p);
  TD_CHECK(o.min_p >= 0 && o.min_p <= 1, Value, "min_p must lie in [0, 1], is {}", o.min_p);
  TD_CHECK(o.repetition_penalty > 0, Value, "repetition_penalty must be above 0, is {}",
           o.repetition_penalty);
  TD_CHECK(std::isfinite(o.presence_penalty) && std::isfinite(o.frequency_penalty), Value,
           "penalties must be finite, are {} and {}", o.presence_penalty, o.frequency_penalty);
}

namespace {

// The rows as one batch, padded on the left; `start` gets the length of each row's padding.
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

// How many tokens sampling may choose from, starting with the likeliest: top_p, then min_p.
size_t kept_tokens(const std::vector<float>& logits, const std::vector<int32_t>& order,
                   size_t count, const GenerateOptions& o) {
  const double top = logits[static_cast<size_t>(order[0])];
  if (o.top_p < 1) {
    double sum = 0, part = 0;
    for (size_t i = 0; i < count; ++i) sum += std::exp(logits[static_cast<size_t>(order[i])] - top);
    size_t n = 0;
    while (n < count && part < o.top_p * sum)
      part += std::exp(logits[static_cast<size_t>(order[n++])] - top);
    count = std::max<size_t>(n, 1);
  }
  if (o.min_p == 0) return count;
  const double least = top + std::log(o.min_p);
  size_t n = 1;
  while (n < count && logits[static_cast<size_t>(order[n])] >= least) ++n;
  return n;
}

// Penalties and biases, in place.
void adjust(std::vector<float>& logits, const std::vector<int64_t>& tokens, int64_t fresh,
            const GenerateOptions& o) {
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
  if (o.presence_penalty != 0 || o.frequency_penalty != 0) {
    std::map<int64_t, int64_t> times;
    for (const int64_t t : std::span(tokens).last(static_cast<size_t>(fresh))) ++times[t];
    for (const auto& [t, n] : times)
      logits[static_cast<size_t>(t)] -=
          static_cast<float>(o.presence_penalty + o.frequency_penalty * static_cast<double>(n));
  }
  for (const auto& [t, bias] : o.logit_bias)
    if (t >= 0 && t < static_cast<int64_t>(logits.size()))
      logits[static_cast<size_t>(t)] += static_cast<float>(bias);
}

}  // namespace

double TokenChoices::probability(int64_t token) const {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] == token) return weights[i] / sum;
  return 0;
}

int64_t TokenChoices::draw(double uniform) const {
  double reached = 0;
  size_t i = 0;
  while (i + 1 < ids.size() && (reached += weights[i]) <= uniform * sum) ++i;
  return ids[i];
}

TokenChoices TokenChoices::without(const TokenChoices& other) const {
  std::unordered_map<int32_t, double> taken;
  for (size_t i = 0; i < other.ids.size(); ++i) taken[other.ids[i]] = other.weights[i] / other.sum;
  TokenChoices out;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto at = taken.find(ids[i]);
    const double left = weights[i] / sum - (at == taken.end() ? 0 : at->second);
    if (left <= 0) continue;
    out.ids.push_back(ids[i]);
    out.weights.push_back(left);
    out.sum += left;
  }
  return out.ids.empty() ? *this : out;
}

TokenChoices token_choices(std::vector<float>& logits, const std::vector<int64_t>& tokens,
                           int64_t fresh, const std::vector<int64_t>& eos,
                           const GenerateOptions& o) {
  constexpr float kNever = -INFINITY;
  adjust(logits, tokens, fresh, o);
  const auto never = [&](const std::vector<int64_t>& which) {
    for (const int64_t t : which)
      if (t >= 0 && t < static_cast<int64_t>(logits.size()))
        logits[static_cast<size_t>(t)] = kNever;
  };
  if (fresh < o.min_new_tokens) never(eos);
  never(o.suppress_tokens);
  if (fresh == 0) never(o.begin_suppress_tokens);
  if (o.timestamps.any()) {
    TD_CHECK(!eos.empty(), Value,
             "the rules of timestamps need a token that ends a text\nSet eos_token_id.");
    apply_timestamp_rules(logits, std::span(tokens).last(static_cast<size_t>(fresh)), eos[0],
                          o.timestamps);
  }
  if (!o.do_sample) {
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    return {{static_cast<int32_t>(best)}, {1.0}, 1.0};
  }
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
  order.resize(count);
  const double top = logits[static_cast<size_t>(order[0])];
  TokenChoices out{std::move(order), {}, 0};
  for (const int32_t t : out.ids) {
    out.weights.push_back(std::exp(logits[static_cast<size_t>(t)] - top));
    out.sum += out.weights.back();
  }
  return out;
}

int64_t next_token(std::vector<float>& logits, const std::vector<int64_t>& tokens, int64_t fresh,
                   const std::vector<int64_t>& eos, const GenerateOptions& o, double draw) {
  return token_choices(logits, tokens, fresh, eos, o).draw(draw);
}

namespace {

/// The growing texts: each takes its next token from its row of logits until it is finished.
class Rows {
 public:
  Rows(std::vector<std::vector<int64_t>> begin, std::vector<int64_t> eos, const GenerateOptions& o)
      : rows(std::move(begin)),
        out(rows.size()),
        eos_(std::move(eos)),
        done_(rows.size(), false),
        o_(o) {
    for (size_t r = 0; r < rows.size(); ++r)
      streams_.emplace_back(o.seed, 0, static_cast<uint64_t>(r));
  }
  /// Takes logits [n, vocabulary] after each row and returns the tokens; a finished row repeats its
  /// last one.
  std::vector<int64_t> take(const Tensor& logits, int64_t fresh) {
    const int64_t vocab = logits.size(1);
    const std::vector<float> all = logits.to_vector<float>();
    std::vector<int64_t> next;
    for (size_t r = 0; r < rows.size(); ++r) {
      if (done_[r]) {
        next.push_back(rows[r].back());
        continue;
      }
      std::vector<float> row(all.begin() + static_cast<ptrdiff_t>(r) * vocab,
                             all.begin() + static_cast<ptrdiff_t>(r + 1) * vocab);
      const double draw = o_.do_sample ? streams_[r].next_uniform() : 0;
      const int64_t token = next_token(row, rows[r], fresh, eos_, o_, draw);
      rows[r].push_back(token);
      out[r].push_back(token);
      next.push_back(token);
      done_[r] = std::find(eos_.begin(), eos_.end(), token) != eos_.end();
      if (o_.streamer && !o_.streamer(static_cast<int64_t>(r), token)) done_[r] = true;
    }
    return next;
  }
  bool all_done() const { return std::find(done_.begin(), done_.end(), false) == done_.end(); }

  std::vector<std::vector<int64_t>> rows, out;  ///< all tokens, and the new ones

 private:
  std::vector<int64_t> eos_;
  std::vector<bool> done_;
  std::vector<PhiloxStream> streams_;
  const GenerateOptions& o_;
};

int64_t longest_of(const std::vector<std::vector<int64_t>>& prompts) {
  size_t longest = 0;
  for (const auto& p : prompts) {
    TD_CHECK(!p.empty(), Value, "generate expects prompts of at least one token");
    longest = std::max(longest, p.size());
  }
  return static_cast<int64_t>(longest);
}

}  // namespace

namespace {

std::vector<std::vector<int64_t>> rows_of(const Tensor& ids) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t r = 0; r < ids.size(0); ++r)
    rows.push_back(ids.select(0, r).to(DType::i64).contiguous().to_vector<int64_t>());
  return rows;
}

// `texts` are the rows so far, `padding` the tokens before each.
std::vector<std::vector<int64_t>> continue_texts(PretrainedModel& model, const ModelInputs& prompt,
                                                 std::vector<std::vector<int64_t>> texts,
                                                 const std::vector<int64_t>& padding,
                                                 int64_t length, const GenerateOptions& o) {
  TD_CHECK(model.max_positions() == 0 || length <= model.max_positions(), Value,
           "{} tokens and {} new ones are more than the model's {} positions",
           length - o.max_new_tokens, o.max_new_tokens, model.max_positions());
  const NoGradGuard no_grad;
  const auto n = static_cast<int64_t>(texts.size());
  DecodeState state = model.start_decoding(n, length);
  state.start.assign_(tensor(padding));
  const auto step = [&](Tensor x) { return model.decode(x, state); };
  auto compiled = compile(step, {.name = "decode", .same_bits = false});
  Rows rows(std::move(texts),
            o.eos_token_id.empty() ? model.config.tokens("eos_token_id") : o.eos_token_id, o);
  Tensor logits = model.start(prompt, state);
  for (int64_t t = 0; t < o.max_new_tokens; ++t) {
    const std::vector<int64_t> next = rows.take(logits, t);
    if (t + 1 == o.max_new_tokens || rows.all_done()) break;
    const Tensor x = tensor(next, Shape(n, 1));
    logits = o.compiled ? compiled(x) : step(x);
  }
  return rows.out;
}

}  // namespace

std::vector<std::vector<int64_t>> generate(PretrainedModel& model,
                                           const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerateOptions& o) {
  check(o);
  const auto n = static_cast<int64_t>(prompts.size());
  if (n == 0 || o.max_new_tokens == 0) return std::vector<std::vector<int64_t>>(prompts.size());
  const int64_t longest = longest_of(prompts);
  std::vector<int64_t> padding;
  const ModelInputs in{.input_ids = pad_left(prompts, longest, padding)};
  if (!model.is_encoder_decoder())
    return continue_texts(model, in, prompts, padding, longest + o.max_new_tokens, o);
  const Tensor first = model.first_tokens(in, n);
  return continue_texts(model, in, rows_of(first), padding, first.size(1) + o.max_new_tokens, o);
}

std::vector<std::vector<int64_t>> generate_from(PretrainedModel& model, const ModelInputs& in,
                                                const GenerateOptions& o) {
  check(o);
  TD_CHECK(model.is_encoder_decoder(), Unsupported,
           "models of type '{}' have no encoder: generate() expects rows of tokens",
           model.config.model_type());
  const Tensor& read = in.input_features.defined() ? in.input_features : in.input_ids;
  TD_CHECK(read.defined() && read.dim() > 1, Value,
           "generate_from expects input_features or input_ids");
  const int64_t n = read.size(0);
  const Tensor first = model.first_tokens(in, n);
  TD_CHECK(first.dim() == 2 && first.size(0) == n && first.size(1) > 0, Shape,
           "decoder_input_ids expects [{}, 1 or more], got {}", n, first.shape().to_string());
  if (n == 0 || o.max_new_tokens == 0)
    return std::vector<std::vector<int64_t>>(static_cast<size_t>(n));
  const std::vector<int64_t> padding(static_cast<size_t>(n), 0);
  return continue_texts(model, in, rows_of(first), padding, first.size(1) + o.max_new_tokens, o);
}

std::vector<std::vector<int64_t>> generate(const std::function<Tensor(const Tensor&)>& net,
                                           int64_t context,
                                           const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerateOptions& o) {
  check(o);
  TD_CHECK(context > 0, Value, "generate expects a context above 0, got {}", context);
  const auto n = static_cast<int64_t>(prompts.size());
  if (n == 0 || o.max_new_tokens == 0) return std::vector<std::vector<int64_t>>(prompts.size());
  longest_of(prompts);
  const NoGradGuard no_grad;
  Rows texts(prompts, o.eos_token_id, o);
  for (int64_t t = 0; t < o.max_new_tokens && !texts.all_done(); ++t) {
    // The end of each row, aligned left; a causal net does not see what follows it.
    std::vector<int64_t> seen, last;
    int64_t wide = 0;
    for (const auto& row : texts.rows)
      wide = std::max(wide, std::min(context, static_cast<int64_t>(row.size())));
    for (const auto& row : texts.rows) {
      const auto k = std::min(wide, static_cast<int64_t>(row.size()));
      seen.insert(seen.end(), row.end() - k, row.end());
      seen.insert(seen.end(), static_cast<size_t>(wide - k), row.back());
      last.push_back(k - 1);
    }
    const Tensor all = net(tensor(seen, Shape(n, wide)));  // [n, wide, vocabulary]
    const Tensor at = tensor(last, Shape(n, int64_t{1}, int64_t{1}));
    texts.take(gather(all, 1, at.expand({n, 1, all.size(2)})).squeeze(1), t);
  }
  return texts.out;
}

}  // namespace tandem::models
