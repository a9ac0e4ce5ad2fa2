// SPDX-License-Identifier: Apache-2.0
// `tandem generate FOLDER --prompt TEXT`: text from a Hugging Face folder (config.json,
// safetensors, tokenizer.json), shown as it comes.
#include <fmt/core.h>

#include <chrono>

#include "cli/commands_internal.h"
#include "tandem/init.h"
#include "tandem/io/json.h"
#include "tandem/models/generate.h"
#include "tandem/text/tokenizer.h"

namespace tandem::cli {
namespace {

struct Arguments {
  std::string folder;
  std::vector<std::string> prompts;
  models::GenerateOptions options;
  bool json = false;
};

// Prints the text of a row as tokens come; a character that is not complete yet waits.
class Printer {
 public:
  explicit Printer(const text::Tokenizer& t) : tokenizer_(t) {}
  void add(int64_t token) {
    ids_.push_back(token);
    const std::string now = tokenizer_.decode(ids_);
    const bool cut = now.size() >= 3 && now.compare(now.size() - 3, 3, "\xEF\xBF\xBD") == 0;
    if (cut || now.size() < shown_) return;
    fmt::print("{}", now.substr(shown_));
    std::fflush(stdout);
    shown_ = now.size();
  }

 private:
  const text::Tokenizer& tokenizer_;
  std::vector<int64_t> ids_;
  size_t shown_ = 0;
};

int run(Arguments& a) {
  init();
  const text::Tokenizer tokenizer =
      text::Tokenizer::from_file(a.folder + "/tokenizer.json").with_padding({}).with_truncation({});
  const auto model = models::from_pretrained(a.folder);
  std::vector<std::vector<int64_t>> ids;
  for (const std::string& p : a.prompts) ids.push_back(tokenizer.encode(p).ids);
  Printer printer(tokenizer);
  const bool stream = !a.json && a.prompts.size() == 1;
  const bool continues = !model->is_encoder_decoder();
  if (stream && continues) fmt::print("{}", a.prompts[0]);
  a.options.streamer = [&](int64_t, int64_t token) {
    if (stream) printer.add(token);
    return !interrupted();
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto rows = models::generate(*model, ids, a.options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  size_t tokens = 0;
  io::Json::Array texts;
  for (size_t r = 0; r < rows.size(); ++r) {
    tokens += rows[r].size();
    const std::string text = tokenizer.decode(rows[r]);
    texts.push_back(io::Json::Object{{"prompt", a.prompts[r]},
                                     {"text", text},
                                     {"tokens", static_cast<int64_t>(rows[r].size())}});
    if (!stream && !a.json) fmt::print("{}{}\n\n", continues ? a.prompts[r] : "", text);
  }
  const double rate = static_cast<double>(tokens) / std::max(seconds.count(), 1e-9);
  if (a.json) {
    fmt::print("{}\n", io::Json(io::Json::Object{{"results", std::move(texts)},
                                                 {"seconds", seconds.count()},
                                                 {"tokens_per_second", rate}})
                           .dump());
  } else {
    fmt::print("{}", stream ? "\n" : "");
    fmt::print(stderr, "{} tokens in {:.2f} s, {:.1f} tokens/s\n", tokens, seconds.count(), rate);
  }
  return interrupted() ? 130 : 0;
}

}  // namespace

void add_generate(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "generate",
      "  tandem generate FOLDER --prompt \"Once upon a time\" --max-new-tokens 50\n\n"
      "Text from a Hugging Face folder (GPT-2, Llama; T5 answers the prompt)");
  auto a = std::make_shared<Arguments>();
  models::GenerateOptions& o = a->options;
  o.max_new_tokens = 50;
  verb->add_option("folder", a->folder, "With config.json, safetensors and tokenizer.json")
      ->required();
  verb->add_option("--prompt", a->prompts, "The text to continue; several give a batch")
      ->required();
  verb->add_option("--max-new-tokens", o.max_new_tokens, "At most so many (50)");
  verb->add_option("--min-new-tokens", o.min_new_tokens, "At least so many (0)");
  verb->add_flag("--sample", o.do_sample, "Draw tokens by their probability");
  verb->add_option("--temperature", o.temperature, "Above 1: more varied (1)");
  verb->add_option("--top-k", o.top_k, "Draw from the k likeliest, 0: all (50)");
  verb->add_option("--top-p", o.top_p, "Draw from the likeliest that reach p (1)");
  verb->add_option("--repetition-penalty", o.repetition_penalty, "Above 1: fewer repetitions (1)");
  verb->add_option("--seed", o.seed, "Of the draws (0)");
  verb->add_flag("--json", a->json, "Results as JSON");
  verb->callback([&code, a] { code = run(*a); });
}

}  // namespace tandem::cli
