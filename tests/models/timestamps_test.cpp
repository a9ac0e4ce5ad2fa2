// SPDX-License-Identifier: Apache-2.0
// Whisper's rules on ten tokens: 0 to 3 are text, 4 ends it, 5 stands for "no timestamps", 6 to 9
// are timestamps.
#include "tandem/models/text/timestamps.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/models/text/generate.h"

namespace tandem::models {
namespace {

constexpr TimestampRules kRules{.no_timestamps_token_id = 5, .max_initial_timestamp_index = 2};

std::string possible(const std::vector<int64_t>& fresh, std::vector<float> logits) {
  apply_timestamp_rules(logits, fresh, 4, kRules);
  std::string out;
  for (const float l : logits) out += std::isinf(l) ? '.' : 'x';
  return out;
}

TEST(Timestamps, WhatMayFollow) {
  const std::vector<float> text = {5, 4, 3, 2, 1, 9, 0, 0, 0, 0};  // words are likelier
  const std::vector<float> time = {1, 1, 1, 1, 1, 9, 0, 0, 0, 1};  // but not than all timestamps
  struct Case {
    std::vector<int64_t> fresh;
    std::string with_text, with_time;
  };
  const Case cases[] = {
      {{}, "......xxx.", "......xxx."},            // a timestamp within the first second
      {{6}, "xxxxx.....", "xxxxx....."},           // then text
      {{6, 0}, "xxxxx..xxx", ".......xxx"},        // not the first one again
      {{6, 0, 8}, "....x...xx", "........xx"},     // its end: the same begins the next, or all ends
      {{6, 0, 8, 8}, "xxxxx.....", "xxxxx....."},  // a pair is complete
      {{6, 0, 8, 8, 1}, "xxxxx....x", "xxxxx....x"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(possible(c.fresh, text), c.with_text) << c.fresh.size();
    EXPECT_EQ(possible(c.fresh, time), c.with_time) << c.fresh.size();
  }
}

TEST(Timestamps, AreRulesOfGenerate) {
  std::vector<float> logits = {5, 4, 3, 2, 1, 9, 0, 0, 2, 0};
  const auto next = [&](std::vector<int64_t> tokens, int64_t fresh, const GenerateOptions& o) {
    std::vector<float> copy = logits;
    return next_token(copy, tokens, fresh, {4}, o, 0);
  };
  EXPECT_EQ(next({3}, 0, {}), 5);
  EXPECT_EQ(next({3}, 0, {.timestamps = kRules}), 8);
  EXPECT_EQ(next({3, 8}, 1, {.timestamps = kRules}), 0);
  EXPECT_EQ(next({3, 8}, 1, {.suppress_tokens = {0}, .timestamps = kRules}), 1);
  EXPECT_EQ(next({3}, 0, {.begin_suppress_tokens = {5, 0}}), 1);
  EXPECT_EQ(next({3, 1}, 1, {.begin_suppress_tokens = {5, 0}}), 5);
  EXPECT_THROW(next({3}, 0, {.timestamps = {.no_timestamps_token_id = 9}}), Error);
}

}  // namespace
}  // namespace tandem::models
