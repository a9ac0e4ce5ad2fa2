// SPDX-License-Identifier: Apache-2.0
// How models of recipes make samples: text letter by letter, and digits of a DDPM or a VAE. Options
// have the names of `tandem generate`'s flags.
#include <fmt/ranges.h>

#include <cmath>

#include "cli/recipe_internal.h"
#include "tandem/graph/context.h"
#include "tandem/models/vae.h"
#include "tandem/ops/ops.h"

namespace tandem::cli {

using train::GenerateContext;
using train::Options;
using train::RecipeGenerator;
using train::RecipeSamples;

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
  if (seed < 0) o.fail("--seed", fmt::format("wants 0 or more, got {}", seed));
  return static_cast<uint64_t>(seed);
}

std::vector<std::string> prompt_rows(Options& o, std::vector<std::string> otherwise, bool drawn) {
  const std::vector<std::string> prompts = o.texts("--prompt", std::move(otherwise));
  const int64_t each = o.whole("--num-return-sequences", 1);
  if (each < 1) o.fail("--num-return-sequences", fmt::format("wants 1 or more, got {}", each));
  if (each > 1 && !drawn)
    o.fail("--num-return-sequences", "wants --sample: without it they would be the same");
  std::vector<std::string> rows;
  for (const std::string& p : prompts) rows.insert(rows.end(), static_cast<size_t>(each), p);
  return rows;
}

namespace {

// ---- text

// The character of `text` that the byte at `at` belongs to.
std::string character(const std::string& text, size_t at) {
  const auto follows = [&](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  size_t begin = at, end = at + 1;
  while (begin > 0 && follows(begin)) --begin;
  while (end < text.size() && follows(end)) ++end;
  return text.substr(begin, end - begin);
}

/// Ids and letters of a run's data.
class Letters {
 public:
  explicit Letters(std::vector<int64_t> bytes) : bytes_(std::move(bytes)) {}
  /// A line begins with its end; other text is as it is, and what is empty begins a line.
  std::vector<int64_t> encode(Options& o, const std::string& text) const {
    std::vector<int64_t> ids;
    if (const auto end = id(-1)) ids.push_back(*end);
    for (size_t i = 0; i < text.size(); ++i) {
      const auto one = id(static_cast<unsigned char>(text[i]));
      if (!one)
        o.fail("--prompt", fmt::format("the text that the model was trained on has no '{}'. It "
                                       "has {}",
                                       character(text, i), all()));
      ids.push_back(*one);
    }
    if (!ids.empty()) return ids;
    const auto line = id('\n');
    if (!line) o.fail("--prompt", "wants a text to begin with");
    return {*line};
  }
  std::string decode(const std::vector<int64_t>& ids) const {
    std::string text;
    for (const int64_t i : ids) text += letter(i);
    return text;
  }
  std::string letter(int64_t i) const {
    const int64_t byte = bytes_.at(static_cast<size_t>(i));
    return byte < 0 ? "" : std::string(1, static_cast<char>(byte));
  }
  std::vector<int64_t> ends() const {
    if (const auto end = id(-1)) return {*end};
    return {};
  }

 private:
  std::optional<int64_t> id(int64_t byte) const {
    const auto it = std::find(bytes_.begin(), bytes_.end(), byte);
    if (it == bytes_.end()) return {};
    return it - bytes_.begin();
  }
  // As one reads them; bytes of longer characters as numbers.
  std::string all() const {
    std::string out;
    for (const int64_t b : bytes_)
      if (b == '\n')
        out += "\\n";
      else if (b >= 32 && b < 127)
        out += static_cast<char>(b);
      else if (b >= 0)
        out += fmt::format("\\x{:02x}", b);
    return out;
  }
  std::vector<int64_t> bytes_;
};

// ---- arrays

int64_t count_of(Options& o, int64_t otherwise) {
  const int64_t n = o.whole("--n", otherwise);
  if (n < 1) o.fail("--n", fmt::format("wants 1 or more samples, got {}", n));
  return n;
}

// `--label`, one or several in turn; none: all classes in turn.
std::vector<int64_t> labels_of(Options& o, int64_t n, int64_t classes) {
  std::vector<int64_t> given;
  for (const double v : o.numbers("--label", std::vector<double>{})) {
    if (!(v >= 0 && v < static_cast<double>(classes) && v == std::floor(v)))
      o.fail("--label", fmt::format("wants classes from 0 to {}, got {}", classes - 1, v));
    given.push_back(static_cast<int64_t>(v));
  }
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(given.empty() ? i % classes : given[static_cast<size_t>(i) % given.size()]);
  return out;
}

constexpr int64_t kAtOnce = 256;  // samples: what lies in memory stays small

}  // namespace

RecipeGenerator letter_generator(std::function<Tensor(const Tensor&)> net, int64_t context) {
  auto start = [=](Options& o, const GenerateContext& c) -> std::function<RecipeSamples()> {
    const Letters letters(c.facts.letters);
    models::GenerateOptions g =
        text_options(o, {.max_new_tokens = 200, .do_sample = true, .top_k = 0});
    g.eos_token_id = letters.ends();
    std::vector<std::vector<int64_t>> rows;
    for (const std::string& p : c.prompts) rows.push_back(letters.encode(o, p));
    if (c.stream)
      g.streamer = [=, stream = c.stream](int64_t row, int64_t token) {
        return stream(static_cast<size_t>(row), letters.letter(token));
      };
    return [=] {
      RecipeSamples out;
      for (const auto& ids : models::generate(net, context, rows, g))
        out.texts.push_back(letters.decode(ids));
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
      o.fail("--steps", fmt::format("wants 1 to the model's {} steps, got {}", most, steps));
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

RecipeGenerator vae_generator(std::shared_ptr<models::VAE> net, std::vector<int64_t> sample) {
  auto start = [=](Options& o, const GenerateContext&) -> std::function<RecipeSamples()> {
    const int64_t n = count_of(o, 16);
    const uint64_t seed = seed_option(o);
    return [=] {
      manual_seed(seed);
      std::vector<int64_t> shape{n};
      shape.insert(shape.end(), sample.begin(), sample.end());
      return RecipeSamples{.values = net->sample(n).reshape(shape)};
    };
  };
  return {.start = start};
}

}  // namespace tandem::cli
