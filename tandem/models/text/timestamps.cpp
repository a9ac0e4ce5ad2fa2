// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/text/timestamps.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/base/error.h"

namespace tandem::models {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// log of the sum of exp over [from, to).
double log_sum(const std::vector<float>& logits, int64_t from, int64_t to) {
  const auto first = logits.begin() + from, last = logits.begin() + to;
  if (first == last) return kNever;
  const double top = *std::max_element(first, last);
  if (std::isinf(top)) return top;
  double sum = 0;
  for (auto i = first; i != last; ++i) sum += std::exp(*i - top);
  return top + std::log(sum);
}

}  // namespace

void apply_timestamp_rules(std::vector<float>& logits, std::span<const int64_t> fresh, int64_t eos,
                           const TimestampRules& rules) {
  const auto vocab = static_cast<int64_t>(logits.size()), begin = rules.no_timestamps_token_id + 1;
  TD_CHECK(
      begin > 0 && begin < vocab && eos >= 0 && eos < begin, Value,
      "no_timestamps_token_id is {}: it comes after the token that ends a text, {}, and before "
      "the last of {} tokens",
      begin - 1, eos, vocab);
  const auto never = [&](int64_t from, int64_t to) {
    std::fill(logits.begin() + from, logits.begin() + std::clamp(to, from, vocab), kNever);
  };
  never(begin - 1, begin);
  const size_t n = fresh.size();
  const bool last = n > 0 && fresh[n - 1] >= begin;
  const bool open = last && n > 1 && fresh[n - 2] < begin;  // the end of a piece of text
  if (last) open ? never(0, eos) : never(begin, vocab);
  const auto latest =
      std::find_if(fresh.rbegin(), fresh.rend(), [&](auto t) { return t >= begin; });
  // The next piece may begin where this one ended; no piece is empty.
  if (latest != fresh.rend()) never(begin, *latest + (open ? 0 : 1));
  if (n == 0) {
    never(0, begin);
    if (rules.max_initial_timestamp_index >= 0)
      never(std::min(begin + rules.max_initial_timestamp_index + 1, vocab), vocab);
  }
  const float text = *std::max_element(logits.begin(), logits.begin() + begin);
  if (log_sum(logits, begin, vocab) > text) never(0, begin);
}

}  // namespace tandem::models
