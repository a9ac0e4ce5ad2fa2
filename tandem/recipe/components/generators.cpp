// SPDX-License-Identifier: Apache-2.0
// How models of recipes generate samples: text character by character, images of a DDPM, a VAE
// or a GAN.
// Options have the names of `tandem generate`'s flags.
#include <fmt/ranges.h>

#include <cmath>

#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/components/characters_internal.h"
#include "tandem/recipe/components/components_internal.h"

namespace tandem::recipe {

models::GenerateOptions text_options(Options& o, models::GenerateOptions usual) {
  usual.max_new_tokens = o.whole("--max-new-tokens", usual.max_new_tokens);
  usual.min_new_tokens = o.whole("--min-new-tokens", usual.min_new_tokens);
  usual.do_sample = o.flag("--sample", usual.do_sample);
  usual.temperature = o.number("--temperature", usual.temperature);
  usual.top_k = o.whole("--top-k", usual.top_k);
  usual.top_p = o.number("--top-p", usual.top_p);
  usual.repetition_penalty = o.number("--repetition-penalty", usual.repetition_penalty);
  usual.seed = seed_option(o);
  return usual;
}

uint64_t seed_option(Options& o) {
  const int64_t seed = o.whole("--seed", 0);
  if (seed < 0) o.fail("--seed", fmt::format("expected 0 or more, got {}", seed));
  return static_cast<uint64_t>(seed);
}

std::vector<std::string> prompt_rows(Options& o, std::vector<std::string> otherwise, bool drawn) {
  const std::vector<std::string> prompts = o.texts("--prompt", std::move(otherwise));
  const int64_t each = o.whole("--num-return-sequences", 1);
  if (each < 1) o.fail("--num-return-sequences", fmt::format("expected 1 or more, got {}", each));
  if (each > 1 && !drawn)
    o.fail("--num-return-sequences", "expected --sample: without it they would be the same");
  std::vector<std::string> rows;
  for (const std::string& p : prompts) rows.insert(rows.end(), static_cast<size_t>(each), p);
  return rows;
}

namespace {

// ---- arrays

int64_t count_of(Options& o, int64_t otherwise) {
  const int64_t n = o.whole("--n", otherwise);
  if (n < 1) o.fail("--n", fmt::format("expected 1 or more samples, got {}", n));
  return n;
}

// `--label`, one or several in turn; none: all classes in turn.
std::vector<int64_t> labels_of(Options& o, int64_t n, int64_t classes) {
  std::vector<int64_t> given;
  for (const double v : o.numbers("--label", std::vector<double>{})) {
    if (!(v >= 0 && v < static_cast<double>(classes) && v == std::floor(v)))
      o.fail("--label", fmt::format("expected classes from 0 to {}, got {}", classes - 1, v));
    given.push_back(static_cast<int64_t>(v));
  }
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(given.empty() ? i % classes : given[static_cast<size_t>(i) % given.size()]);
  return out;
}

constexpr int64_t kAtOnce = 256;  // samples: what lies in memory stays small

}  // namespace

RecipeGenerator character_generator(std::function<Tensor(const Tensor&)> net, int64_t context) {
  auto start = [=](Options& o, const GenerateContext& c) -> std::function<RecipeSamples()> {
    const Characters characters(c.facts.characters);
    models::GenerateOptions g =
        text_options(o, {.max_new_tokens = 200, .do_sample = true, .top_k = 0});
    g.eos_token_id = characters.ends();
    std::vector<std::vector<int64_t>> rows;
    for (const std::string& p : c.prompts) {
      if (const std::string wrong = characters.mistake(p); !wrong.empty())
        o.fail("--prompt", wrong);
      rows.push_back(characters.encode(p));
    }
    if (c.stream)
      g.streamer = [=, stream = c.stream](int64_t row, int64_t token) {
        return stream(static_cast<size_t>(row), characters.character(token));
      };
    return [=] {
      RecipeSamples out;
      for (const auto& ids : models::generate(net, context, rows, g))
        out.texts.push_back(characters.decode(ids));
      return out;
    };
  };
  return {.text = true, .start = start};
}

RecipeGenerator ddpm_generator(std::shared_ptr<models::DDPM> net, int64_t sampler_steps) {
  auto start = [=](Options& o, const GenerateContext&) -> std::function<RecipeSamples()> {
    const int64_t n = count_of(o, 16), most = net->options().steps;
    const std::vector<int64_t> labels = labels_of(o, n, net->options().classes);
    const int64_t steps = o.whole("--steps", sampler_steps);
    const double guidance = o.number("--guidance", 2.0);
    const uint64_t seed = seed_option(o);
    if (steps < 1 || steps > most)
      o.fail("--steps", fmt::format("expected 1 to the model's {} steps, got {}", most, steps));
    return [=] {
      manual_seed(seed);
      const Tensor y = tensor(labels);
      std::vector<Tensor> parts;
      for (int64_t at = 0; at < n; at += kAtOnce)
        parts.push_back(net->sample(narrow(y, 0, at, std::min(kAtOnce, n - at)), steps, guidance));
      return RecipeSamples{.values = cat(parts, 0), .labels = labels};
    };
  };
  return {.start = start};
}

RecipeGenerator prior_generator(std::function<Tensor(int64_t n)> sample) {
  auto start = [=](Options& o, const GenerateContext&) -> std::function<RecipeSamples()> {
    const int64_t n = count_of(o, 16);
    const uint64_t seed = seed_option(o);
    return [=] {
      manual_seed(seed);
      std::vector<Tensor> parts;
      for (int64_t at = 0; at < n; at += kAtOnce)
        parts.push_back(sample(std::min(kAtOnce, n - at)));
      return RecipeSamples{.values = cat(parts, 0)};
    };
  };
  return {.start = start};
}

}  // namespace tandem::recipe
