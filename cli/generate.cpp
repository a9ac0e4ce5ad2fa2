// SPDX-License-Identifier: Apache-2.0
// `tandem generate FOLDER`: text from a Hugging Face folder (config.json, safetensors,
// tokenizer.json), shown as it comes; text or pictures from the folder of a run.
#include <fmt/ranges.h>

#include <chrono>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "cli/recipe_internal.h"
#include "cli/sample_files.h"
#include "tandem/io/json.h"
#include "tandem/text/tokenizer.h"

namespace tandem::cli {
namespace {

struct Flag {
  const char* name;
  const char* type;  ///< none: a switch
  const char* help;
  bool several = false;
};
// Of models, those that each takes; what is not here is the verb's own.
constexpr Flag kFlags[] = {
    {"--prompt", "TEXT", "The text to continue; several give a batch", true},
    {"--num-return-sequences", "INT", "Texts for each prompt (1)"},
    {"--max-new-tokens", "INT", "At most so many (50; letters of a run's model: 200)"},
    {"--min-new-tokens", "INT", "At least so many (0)"},
    {"--sample", nullptr, "Draw tokens by their probability (a run's model always does)"},
    {"--temperature", "NUMBER", "Above 1: more varied (1)"},
    {"--top-k", "INT", "Draw from the k likeliest, 0: all (50; of a run 0)"},
    {"--top-p", "NUMBER", "Draw from the likeliest that reach p (1)"},
    {"--repetition-penalty", "NUMBER", "Above 1: fewer repetitions (1)"},
    {"--n", "INT", "Pictures: how many (16)"},
    {"--label", "INT", "Pictures of this class; several: in turn; none: all in turn", true},
    {"--steps", "INT", "Of a DDPM's sampler (those of the recipe)"},
    {"--guidance", "NUMBER", "Of a DDPM towards the class, 1: none (2)"},
    {"--seed", "INT", "Of the draws (0)"},
    {"--output", "FILE", "Pictures: a grid (.png) or arrays (.npy, .npz, .safetensors)"},
    {"--columns", "INT", "Of the grid (as many as rows)"},
};

struct Arguments {
  std::string folder, weights;
  std::map<std::string, std::vector<std::string>> given;
  bool json = false;
};

// What was given, as models read their options.
io::Yaml bag_of(const Arguments& a) {
  io::Yaml bag;
  bag.kind = io::Yaml::Kind::map;
  for (const Flag& f : kFlags) {
    const auto it = a.given.find(f.name);
    if (it == a.given.end() || it->second.empty()) continue;
    io::Yaml value;
    value.kind = io::Yaml::Kind::scalar;
    io::Yaml list;
    list.kind = io::Yaml::Kind::list;
    for (const std::string& text : it->second) {
      value.text = text;
      list.items.push_back(value);
    }
    bag.keys.emplace_back(f.name);
    bag.items.push_back(f.several ? std::move(list) : std::move(value));
  }
  return bag;
}

void refuse_left(const train::Options& o, const std::string& model) {
  const std::vector<std::string> left = o.left();
  TD_CHECK(left.empty(), Value, "{} does not take {}\nIt takes {}.", model, fmt::join(left, ", "),
           fmt::join(o.known(), ", "));
}

/// Texts behind their prompts, as they are shown.
struct Shown {
  std::vector<std::string> prompts, texts;
  std::vector<int64_t> tokens;  ///< of each text
  const char* unit = "tokens";
  bool continues = true;  ///< the text goes on from the prompt
  bool streamed = false;  ///< it has been shown as it came
  bool lines = false;     ///< each text is a line
  double seconds = 0;
};

void show(const Shown& s, bool json) {
  int64_t count = 0;
  for (const int64_t n : s.tokens) count += n;
  const double rate = static_cast<double>(count) / std::max(s.seconds, 1e-9);
  if (json) {
    io::Json::Array texts;
    for (size_t r = 0; r < s.texts.size(); ++r)
      texts.push_back(io::Json::Object{
          {"prompt", s.prompts[r]}, {"text", s.texts[r]}, {"tokens", s.tokens[r]}});
    fmt::print("{}\n", io::Json(io::Json::Object{{"results", std::move(texts)},
                                                 {"seconds", s.seconds},
                                                 {"tokens_per_second", rate}})
                           .dump());
    return;
  }
  if (s.streamed)
    fmt::print("\n");
  else
    for (size_t r = 0; r < s.texts.size(); ++r)
      fmt::print("{}{}{}", s.continues ? s.prompts[r] : "", s.texts[r], s.lines ? "\n" : "\n\n");
  fmt::print(stderr, "{} {} in {:.2f} s, {:.1f} {}/s\n", count, s.unit, s.seconds, rate, s.unit);
}

template <class F>
double seconds_of(F f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print_now(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// ---- a Hugging Face folder

// Prints the text of a row as tokens come; a character that is not complete yet waits.
class Printer {
 public:
  explicit Printer(const text::Tokenizer& t) : tokenizer_(t) {}
  void add(int64_t token) {
    ids_.push_back(token);
    const std::string now = tokenizer_.decode(ids_);
    const bool cut = now.size() >= 3 && now.compare(now.size() - 3, 3, "\xEF\xBF\xBD") == 0;
    if (cut || now.size() < shown_) return;
    print_now(now.substr(shown_));
    shown_ = now.size();
  }

 private:
  const text::Tokenizer& tokenizer_;
  std::vector<int64_t> ids_;
  size_t shown_ = 0;
};

void from_pretrained(const Arguments& a, train::Options& o) {
  models::GenerateOptions options = text_options(o, {.max_new_tokens = 50});
  Shown s{.prompts = prompt_rows(o, {}, options.do_sample)};
  refuse_left(o, "a Hugging Face folder");
  if (s.prompts.empty()) o.fail("--prompt", "is missing");
  const text::Tokenizer tokenizer =
      text::Tokenizer::from_file(a.folder + "/tokenizer.json").with_padding({}).with_truncation({});
  const auto model = models::from_pretrained(a.folder);
  std::vector<std::vector<int64_t>> ids, rows;
  for (const std::string& p : s.prompts) ids.push_back(tokenizer.encode(p).ids);
  Printer printer(tokenizer);
  s.streamed = !a.json && s.prompts.size() == 1;
  s.continues = !model->is_encoder_decoder();
  if (s.streamed && s.continues) print_now(s.prompts[0]);
  options.streamer = [&](int64_t, int64_t token) {
    if (s.streamed) printer.add(token);
    return !interrupted();
  };
  s.seconds = seconds_of([&] { rows = models::generate(*model, ids, options); });
  for (const auto& row : rows) {
    s.tokens.push_back(static_cast<int64_t>(row.size()));
    s.texts.push_back(tokenizer.decode(row));
  }
  show(s, a.json);
}

// ---- a run

void check_letters(const OpenedRun& run, const std::string& folder) {
  if (!run.data.facts.letters.empty()) return;
  train::Options o(run.recipe.root.find("data"), "data", run.recipe.file);
  const std::string type = o.text("type", "");
  TD_CHECK(type == "chars" || type == "lines", Unsupported,
           "data of type '{}' keeps no letters: what the model writes are ids of a tokenizer\n"
           "chars and lines keep theirs.",
           type);
  TD_FAIL(Unsupported,
          "'{}/data.json' has no \"letters\": the run is from before they were kept\n"
          "`tandem train {}/recipe.yaml --run {}` writes them, and trains no further where the run "
          "is done.",
          folder, folder, folder);
}

void run_text(const Arguments& a, train::Options& o, const OpenedRun& run) {
  check_letters(run, a.folder);
  Shown s{.unit = "letters"};
  const std::vector<int64_t>& letters = run.data.facts.letters;
  s.lines = std::find(letters.begin(), letters.end(), -1) != letters.end();
  s.prompts = prompt_rows(o, {""}, true);
  s.streamed = !a.json && s.prompts.size() == 1;
  bool begun = false;
  const train::GenerateContext context{.facts = run.data.facts,
                                       .prompts = s.prompts,
                                       .stream = [&](size_t, const std::string& text) {
                                         if (s.streamed)
                                           print_now(begun ? text : s.prompts[0] + text);
                                         begun = true;
                                         return !interrupted();
                                       }};
  const auto work = run.model.generate.start(o, context);
  refuse_left(o, fmt::format("the model '{}'", run.type));
  s.seconds = seconds_of([&] { s.texts = work().texts; });
  for (const std::string& text : s.texts) s.tokens.push_back(static_cast<int64_t>(text.size()));
  show(s, a.json);
}

void run_arrays(const Arguments& a, train::Options& o, const OpenedRun& run) {
  const auto work = run.model.generate.start(o, {.facts = run.data.facts});
  const std::string output = o.text("--output", "");
  const int64_t columns = o.whole("--columns", 0);
  refuse_left(o, fmt::format("the model '{}'", run.type));
  if (columns < 0) o.fail("--columns", fmt::format("wants 1 or more, got {}", columns));
  if (output.empty()) o.fail("--output", "is missing: a .png, .npy, .npz or .safetensors file");
  check_samples_file(output);
  train::RecipeSamples made;
  const double seconds = seconds_of([&] { made = work(); });
  write_samples(made, output, columns);
  const int64_t n = made.values.size(0);
  if (a.json) {
    io::Json::Array shape, labels;
    for (int d = 0; d < made.values.dim(); ++d) shape.emplace_back(made.values.size(d));
    for (const int64_t label : made.labels) labels.emplace_back(label);
    fmt::print("{}\n", io::Json(io::Json::Object{{"output", output},
                                                 {"shape", std::move(shape)},
                                                 {"labels", std::move(labels)},
                                                 {"seconds", seconds}})
                           .dump());
    return;
  }
  fmt::print("{}: {} samples {}\n", output, n, shape_text(Shape(made.values.select(0, 0).shape())));
  fmt::print(stderr, "{:.2f} s, {:.1f} samples/s\n", seconds, static_cast<double>(n) / seconds);
}

int run(const Arguments& a) {
  init();
  const io::Yaml bag = bag_of(a);
  train::Options o(&bag, "", a.folder);
  if (!is_run(a.folder)) {
    TD_CHECK(file_exists(a.folder + "/config.json"), Io,
             "'{}' is neither the folder of a run (recipe.yaml, metrics.jsonl) nor a Hugging Face "
             "folder (config.json)",
             a.folder);
    TD_CHECK(a.weights.empty(), Value,
             "--weights is of runs: a Hugging Face folder has one set of weights");
    from_pretrained(a, o);
    return interrupted() ? 130 : 0;
  }
  const OpenedRun opened = open_run(a.folder, a.weights);
  TD_CHECK(opened.model.generate, Unsupported,
           "the model '{}' answers inputs and makes nothing of its own\n`tandem predict {} --input "
           "...` shows its answers.",
           opened.type, a.folder);
  NoGradGuard no_grad;
  (opened.model.generate.text ? run_text : run_arrays)(a, o, opened);
  return interrupted() ? 130 : 0;
}

}  // namespace

void add_generate(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "generate",
      "Text from a Hugging Face folder (GPT-2, Llama; T5 answers the prompt), text or pictures "
      "from a run (gpt, char_rnn; ddpm, vae)\n\n"
      "  tandem generate FOLDER --prompt \"Once upon a time\" --max-new-tokens 50\n"
      "  tandem generate runs/shakespeare --prompt \"ROMEO:\" --max-new-tokens 300 "
      "--temperature 0.8\n"
      "  tandem generate runs/names --num-return-sequences 10 --seed 1\n"
      "  tandem generate runs/mnist-ddpm --n 64 --label 3 --output digits.png");
  auto a = std::make_shared<Arguments>();
  verb->add_option("folder", a->folder,
                   "Of Hugging Face (config.json, safetensors, tokenizer.json), or of a run")
      ->required();
  for (const Flag& f : kFlags) {
    std::vector<std::string>& given = a->given[f.name];
    if (!f.type)
      verb->add_flag_callback(
          f.name, [&given] { given = {"true"}; }, f.help);
    else if (auto* option = verb->add_option(f.name, given, f.help)->type_name(f.type); !f.several)
      option->expected(1);
  }
  verb->add_option("--weights", a->weights, "Of a run: last (the default), or best by its monitor");
  verb->add_flag("--json", a->json, "Results as JSON");
  verb->callback([&code, a] { code = run(*a); });
}

}  // namespace tandem::cli
