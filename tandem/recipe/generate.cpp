// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/generate.h"

#include <fmt/ranges.h>

#include "tandem/graph/context.h"
#include "tandem/recipe/generate_options.h"

namespace tandem::recipe {
namespace {

/// Options as a map, in the way of a recipe's part.
class Bag {
 public:
  Bag() { map_.kind = io::Yaml::Kind::map; }
  template <class T>
  void set(const char* name, const std::optional<T>& value) {
    if (value) add(name, scalar(fmt::format("{}", *value)));
  }
  template <class T>
  void set(const char* name, const std::vector<T>& values) {
    if (values.empty()) return;
    io::Yaml list;
    list.kind = io::Yaml::Kind::list;
    for (const T& v : values) list.items.push_back(scalar(fmt::format("{}", v)));
    add(name, std::move(list));
  }
  const io::Yaml& map() const { return map_; }

 private:
  static io::Yaml scalar(std::string text) {
    io::Yaml y;
    y.kind = io::Yaml::Kind::scalar;
    y.text = std::move(text);
    return y;
  }
  void add(const char* name, io::Yaml value) {
    map_.keys.emplace_back(name);
    map_.items.push_back(std::move(value));
  }
  io::Yaml map_;
};

void check_letters(const OpenedRun& run) {
  if (!run.data.facts.characters.empty()) return;
  Options o(run.recipe.root.find("data"), "data", run.recipe.file);
  const std::string type = o.text("type", "");
  TD_CHECK(type == "chars" || type == "lines", Unsupported,
           "data of type '{}' keeps no characters: the model generates token ids\n"
           "Data of types chars and lines keeps them.",
           type);
  const std::string folder = run.folder;
  TD_FAIL(Unsupported,
          "'{}/data.json' has no \"characters\": the run is from before they were kept\n"
          "`tandem train {}/recipe.yaml --run {}` writes them, and trains no further if the run is "
          "done.",
          folder, folder, folder);
}

}  // namespace

Generation prepare_generation(const OpenedRun& run, Options& o,
                              std::function<bool(size_t row, const std::string& text)> stream) {
  TD_CHECK(run.model.generate, Unsupported,
           "the model '{}' answers inputs and generates nothing\n`tandem predict {} --input ...` "
           "shows its answers.",
           run.type, run.folder);
  Generation g{.text = run.model.generate.text};
  GenerateContext context{.facts = run.data.facts, .stream = std::move(stream)};
  if (g.text) {
    check_letters(run);
    g.prompts = context.prompts = prompt_rows(o, {""}, true);
  }
  const DeviceGuard there(run.device);
  g.make = [make = run.model.generate.start(o, context), device = run.device] {
    const DeviceGuard there(device);
    RecipeSamples made = make();
    if (made.values.defined()) made.values = made.values.cpu();
    return made;
  };
  return g;
}

void refuse_left(const Options& o, const std::string& model) {
  const std::vector<std::string> left = o.left();
  TD_CHECK(left.empty(), Value, "{} does not take {}\nIt takes {}.", model, fmt::join(left, ", "),
           fmt::join(o.known(), ", "));
}

RecipeSamples generate(const OpenedRun& run, const GenerateOptions& given) {
  Bag bag;
  bag.set("--prompt", given.prompts);
  bag.set("--num-return-sequences", given.num_return_sequences);
  bag.set("--max-new-tokens", given.max_new_tokens);
  bag.set("--min-new-tokens", given.min_new_tokens);
  bag.set("--temperature", given.temperature);
  bag.set("--top-k", given.top_k);
  bag.set("--top-p", given.top_p);
  bag.set("--repetition-penalty", given.repetition_penalty);
  bag.set("--n", given.n);
  bag.set("--label", given.labels);
  bag.set("--steps", given.steps);
  bag.set("--guidance", given.guidance);
  bag.set("--seed", given.seed);
  Options o(&bag.map(), "", run.folder);
  const NoGradGuard no_grad;
  const Generation g = prepare_generation(run, o, given.stream);
  refuse_left(o, fmt::format("the model '{}'", run.type));
  return g.make();
}

RecipeSamples generate(const std::string& run, const GenerateOptions& options,
                       const std::string& weights) {
  return generate(open_run(run, weights, options.device), options);
}

}  // namespace tandem::recipe
