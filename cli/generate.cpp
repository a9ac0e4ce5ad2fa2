// SPDX-License-Identifier: Apache-2.0
// `tandem generate FOLDER`: text from a Hugging Face folder (config.json, safetensors,
// tokenizer.json), shown as it comes; text or images from a run folder.
#include <fmt/ranges.h>

#include <chrono>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/io/json.h"
#include "tandem/models/adapters.h"
#include "tandem/models/codes.h"
#include "tandem/models/text/generate.h"
#include "tandem/recipe/generate.h"
#include "tandem/recipe/generate_options.h"
#include "tandem/recipe/sample_files.h"
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
    {"--max-new-tokens", "INT", "Upper limit (50; characters of a run's model: 200)"},
    {"--min-new-tokens", "INT", "Lower limit (0)"},
    {"--sample", nullptr, "Sample tokens by their probability (a run's model always does)"},
    {"--temperature", "NUMBER", "Above 1: more varied (1)"},
    {"--top-k", "INT", "Sample from the k most likely, 0: all (50; for a run 0)"},
    {"--top-p", "NUMBER", "Sample from the most likely whose probabilities reach p (1)"},
    {"--repetition-penalty", "NUMBER", "Above 1: fewer repetitions (1)"},
    {"--n", "INT", "Images: how many (16)"},
    {"--label", "INT", "Images of this class; several: in turn; none: all in turn", true},
    {"--steps", "INT", "Sampler steps of a DDPM (the recipe's)"},
    {"--guidance", "NUMBER", "Guidance of a DDPM towards the class, 1: none (2)"},
    {"--seed", "INT", "Seed of the sampling (0)"},
    {"--adapter", "DIR", "A LoRA adapter of a Hugging Face folder, as peft writes it"},
    {"--dtype", "TEXT", "Of a Hugging Face folder's weights: f32, or bf16 (half the memory)"},
    {"--accuracy-level", "INT",
     "Of layers whose weights are codes: 4 rounds what they read to int8, 0: floats (the "
     "folder's)"},
    {"--output", "FILE", "Images: a grid (.png) or arrays (.npy, .npz, .safetensors)"},
    {"--columns", "INT", "Columns of the grid (as many as rows)"},
};

struct Arguments {
  std::string folder, weights, device = "cpu";
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

/// Texts after their prompts, as they are shown.
struct Shown {
  std::vector<std::string> prompts, texts;
  std::vector<int64_t> tokens;  ///< of each text
  const char* unit = "tokens";
  bool continues = true;  ///< the text continues the prompt
  bool streamed = false;  ///< it was printed while it was generated
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

void from_pretrained(const Arguments& a, recipe::Options& o) {
  models::GenerateOptions options = recipe::text_options(o, {.max_new_tokens = 50});
  Shown s{.prompts = recipe::prompt_rows(o, {}, options.do_sample)};
  const std::string dtype = o.text("--dtype", "f32");
  if (dtype != "f32" && dtype != "bf16")
    o.fail("--dtype", fmt::format("expected f32 or bf16, got '{}'", dtype));
  const std::string adapter = o.text("--adapter", "");
  const int64_t level = o.whole("--accuracy-level", -1);
  recipe::refuse_left(o, "a Hugging Face folder");
  if (s.prompts.empty()) o.fail("--prompt", "is missing");
  const text::Tokenizer tokenizer =
      text::Tokenizer::from_file(a.folder + "/tokenizer.json").with_padding({}).with_truncation({});
  const auto model = models::from_pretrained(a.folder);
  if (!adapter.empty()) models::merge_adapter(*model, models::load_adapter(adapter, *model));
  if (level != -1) models::set_accuracy_level(*model, level);
  if (dtype == "bf16") model->module().to(DType::bf16);
  const Device device = device_named(a.device);
  model->module().to(device);
  const DeviceGuard there(device);
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

void run_text(const Arguments& a, recipe::Options& o, const recipe::OpenedRun& run) {
  Shown s{.unit = "characters"};
  const std::vector<int64_t>& characters = run.data.facts.characters;
  s.lines = std::find(characters.begin(), characters.end(), -1) != characters.end();
  bool begun = false;
  const recipe::Generation g =
      recipe::prepare_generation(run, o, [&](size_t, const std::string& text) {
        if (s.streamed) print_now(begun ? text : s.prompts[0] + text);
        begun = true;
        return !interrupted();
      });
  recipe::refuse_left(o, fmt::format("the model '{}'", run.type));
  s.prompts = g.prompts;
  s.streamed = !a.json && s.prompts.size() == 1;
  s.seconds = seconds_of([&] { s.texts = g.make().texts; });
  for (const std::string& text : s.texts) s.tokens.push_back(static_cast<int64_t>(text.size()));
  show(s, a.json);
}

void run_arrays(const Arguments& a, recipe::Options& o, const recipe::OpenedRun& run) {
  const recipe::Generation g = recipe::prepare_generation(run, o);
  const std::string output = o.text("--output", "");
  const int64_t columns = o.whole("--columns", 0);
  recipe::refuse_left(o, fmt::format("the model '{}'", run.type));
  if (columns < 0) o.fail("--columns", fmt::format("expected 1 or more, got {}", columns));
  if (output.empty()) o.fail("--output", "is missing: a .png, .npy, .npz or .safetensors file");
  recipe::check_samples_file(output);
  recipe::RecipeSamples made;
  const double seconds = seconds_of([&] { made = g.make(); });
  recipe::write_samples(made, output, columns);
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
  fmt::print("{}: {} samples {}\n", output, n,
             recipe::shape_text(Shape(made.values.select(0, 0).shape())));
  fmt::print(stderr, "{:.2f} s, {:.1f} samples/s\n", seconds, static_cast<double>(n) / seconds);
}

int run(const Arguments& a) {
  init();
  const io::Yaml bag = bag_of(a);
  recipe::Options o(&bag, "", a.folder);
  if (!recipe::is_run(a.folder)) {
    TD_CHECK(file_exists(a.folder + "/config.json"), Io,
             "'{}' is neither a run folder (recipe.yaml, metrics.jsonl) nor a Hugging Face "
             "folder (config.json)",
             a.folder);
    TD_CHECK(a.weights.empty(), Value,
             "--weights is for runs: a Hugging Face folder has one set of weights");
    from_pretrained(a, o);
    return interrupted() ? 130 : 0;
  }
  const recipe::OpenedRun opened = recipe::open_run(a.folder, a.weights, device_named(a.device));
  NoGradGuard no_grad;
  (opened.model.generate.text ? run_text : run_arrays)(a, o, opened);
  return interrupted() ? 130 : 0;
}

}  // namespace

void add_generate(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "generate",
      "Text from a Hugging Face folder (GPT-2, Llama; T5 answers the prompt), text or images "
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
  verb->add_option("--weights", a->weights,
                   "Weights of a run: last (the default), or best by its monitor");
  add_device_option(*verb, a->device);
  verb->add_flag("--json", a->json, "Results as JSON");
  verb->callback([&code, a] { code = run(*a); });
}

}  // namespace tandem::cli
