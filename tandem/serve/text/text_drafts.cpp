// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/serve/text/text_drafts_internal.h"

namespace tandem::serve {
namespace {

constexpr int64_t kLongestMatch = 3, kShortestMatch = 2;
constexpr int64_t kSearched = 4096;  ///< tokens before the last that are looked through

// What followed the last occurrence of the text's last tokens.
std::vector<TextGuess> guess_from_text(const std::vector<int64_t>& tokens, int64_t count) {
  const auto size = static_cast<int64_t>(tokens.size());
  for (int64_t n = kLongestMatch; n >= kShortestMatch; --n) {
    const auto last = tokens.end() - std::min(n, size);
    for (int64_t at = size - n - 1; at >= std::max<int64_t>(0, size - kSearched); --at) {
      if (!std::equal(last, tokens.end(), tokens.begin() + at)) continue;
      // What followed may reach the end of the text: then it repeats.
      std::vector<TextGuess> out;
      for (int64_t k = at + n; k < at + n + count; ++k) {
        const int64_t token =
            k < size ? tokens[static_cast<size_t>(k)] : out[static_cast<size_t>(k - size)].token;
        out.push_back({token, {{static_cast<int32_t>(token)}, {1.0}, 1.0}});
      }
      return out;
    }
  }
  return {};
}

}  // namespace

TextDrafts::TextDrafts(const TextEngineOptions& o, const TextSteps& target) : piece_(o.piece) {
  if (!o.draft) return;
  // After a round in which all guesses were right, two tokens are new to the draft model.
  steps_ = std::make_unique<TextSteps>(o.draft, o, 2, target);
  steps_->warm_up(o.same_bits);
  TD_CHECK(steps_->vocabulary() == target.vocabulary(), Value,
           "the draft model has {} tokens, the model {}: they need one vocabulary",
           steps_->vocabulary(), target.vocabulary());
}

void TextDrafts::read(const TextPart& part) {
  if (!steps_) return;
  TextPart own = part;
  own.adapter = 0;  // adapters are the target model's
  steps_->run(std::span(&own, 1));
}

std::vector<std::vector<TextGuess>> TextDrafts::guess(std::span<const TextToGuess> texts) {
  if (steps_) return from_model(texts);
  std::vector<std::vector<TextGuess>> out;
  for (const TextToGuess& t : texts) out.push_back(guess_from_text(*t.tokens, t.count));
  return out;
}

std::vector<std::vector<TextGuess>> TextDrafts::from_model(std::span<const TextToGuess> texts) {
  std::vector<std::vector<TextGuess>> out(texts.size());
  std::vector<std::vector<int64_t>> tokens;
  int64_t rounds = 0;
  for (const TextToGuess& t : texts) {
    tokens.push_back(*t.tokens);
    rounds = std::max(rounds, t.count);
    const int64_t newest = std::min<int64_t>(2, steps_->wide());
    const auto size = static_cast<int64_t>(t.tokens->size());
    while (t.count > 0 && size - *t.read > newest) {
      const int64_t n = std::min(piece_, size - *t.read - 1);
      read({std::span(*t.tokens).subspan(static_cast<size_t>(*t.read), static_cast<size_t>(n)),
            *t.read, t.blocks});
      *t.read += n;
    }
  }
  for (int64_t round = 0; round < rounds; ++round) {
    std::vector<size_t> which;
    for (size_t i = 0; i < texts.size(); ++i)
      if (texts[i].count > round) which.push_back(i);
    const auto most = static_cast<size_t>(steps_->most_parts());
    for (size_t first = 0; first < which.size(); first += most) {
      const std::span group = std::span(which).subspan(first, std::min(most, which.size() - first));
      std::vector<TextPart> parts;
      for (const size_t i : group)
        parts.push_back({std::span(tokens[i]).subspan(static_cast<size_t>(*texts[i].read)),
                         *texts[i].read, texts[i].blocks});
      std::vector<std::vector<float>> logits = steps_->run(parts);
      for (size_t k = 0; k < group.size(); ++k) {
        const size_t i = group[k];
        const TextToGuess& t = texts[i];
        *t.read = static_cast<int64_t>(tokens[i].size());
        TextGuess g;
        g.from = models::token_choices(logits[k], tokens[i], t.fresh + round, *t.eos, *t.options);
        g.token = g.from.draw(t.options->do_sample ? t.draws->next_uniform() : 0);
        tokens[i].push_back(g.token);
        out[i].push_back(std::move(g));
      }
    }
  }
  return out;
}

TextChoice choose_token(const models::TokenChoices& choices, const TextGuess* guess,
                        PhiloxStream& draws, bool sampled) {
  const auto draw = [&] { return sampled ? draws.next_uniform() : 0; };
  if (!guess) return {choices.draw(draw())};
  if (!sampled) return {choices.draw(0), choices.draw(0) == guess->token};
  const double wanted = choices.probability(guess->token);
  if (draw() * guess->from.probability(guess->token) < wanted) return {guess->token, true};
  return {choices.without(guess->from).draw(draw())};
}

}  // namespace tandem::serve
