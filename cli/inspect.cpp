// SPDX-License-Identifier: Apache-2.0
// `tandem inspect`: what a file of weights holds, or what a model by name costs.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/weights/weights.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string human(double n, const char* unit) {
  constexpr const char* kPrefix[] = {"", "K", "M", "G", "T"};
  int i = 0;
  for (; n >= 1000 && i < 4; ++i) n /= 1000;
  return fmt::format("{:.{}f} {}{}", n, i == 0 ? 0 : 2, kPrefix[i], unit);
}

Json weights_as_json(const std::string& path, const StateDict& tensors) {
  Json list = Json::array();
  std::map<std::string, int64_t> dtypes;
  int64_t elements = 0, bytes = 0;
  for (const auto& [name, t] : tensors) {
    list.push_back({{"name", name},
                    {"dtype", to_string(t.dtype())},
                    {"shape", std::vector<int64_t>(t.sizes().begin(), t.sizes().end())}});
    elements += t.numel();
    bytes += t.numel() * static_cast<int64_t>(size_of(t.dtype()));
    ++dtypes[to_string(t.dtype())];
  }
  const bool folder = std::filesystem::is_directory(path);
  return {{"file", path},
          {"format", folder ? "folder" : weights::to_string(weights::weights_format(path))},
          {"tensors", tensors.size()},
          {"elements", elements},
          {"bytes", bytes},
          {"dtypes", dtypes},
          {"entries", std::move(list)}};
}

void print_weights(const Json& j, bool all) {
  fmt::print("{}: {}\n{} tensors, {} elements, {}\n", j["file"].get<std::string>(),
             j["format"].get<std::string>(), j["tensors"].get<size_t>(),
             j["elements"].get<int64_t>(), human(j["bytes"].get<double>(), "B"));
  constexpr size_t kShown = 20;
  size_t shown = 0;
  for (const Json& e : j["entries"]) {
    if (!all && shown++ == kShown) {
      fmt::print("... and {} more (--all shows them)\n", j["entries"].size() - kShown);
      return;
    }
    fmt::print("  {:<56} {:<9} {}\n", e["name"].get<std::string>(), e["dtype"].get<std::string>(),
               e["shape"].dump());
  }
}

Json port_as_json(const recipe::ModelPort& p) {
  return {{"name", p.name}, {"dtype", to_string(p.dtype)}, {"shape", p.shape}};
}

Json model_as_json(const recipe::ModelSource& a, const std::string& shapes) {
  recipe::LoadedModel model = recipe::load_model(a);
  recipe::set_shapes(model, shapes);
  const recipe::ForwardFigures f = recipe::figures_of(model, recipe::random_inputs(model));
  Json inputs = Json::array(), outputs = Json::array(), ops = Json::object();
  for (const recipe::ModelPort& p : model.inputs) inputs.push_back(port_as_json(p));
  for (size_t i = 0; i < model.outputs.size(); ++i) {
    model.outputs[i].shape.clear();
    for (const Dim d : f.outputs.at(i)) model.outputs[i].shape.push_back(d.value());
    outputs.push_back(port_as_json(model.outputs[i]));
  }
  for (const auto& [name, n] : f.ops) ops[name] = n;
  return {{"model", a.model},
          {"inputs", std::move(inputs)},
          {"outputs", std::move(outputs)},
          {"parameters", model.parameters},
          {"buffers", model.buffers},
          {"weight_bytes", model.weight_bytes},
          {"flops", f.flops},
          {"peak_bytes", f.peak_bytes},
          {"ops", std::move(ops)}};
}

void print_model(const Json& j) {
  fmt::print("{}\n", j["model"].get<std::string>());
  for (const char* side : {"inputs", "outputs"})
    for (const Json& p : j[side])
      fmt::print("  {:<12} {} {} {}\n", side, p["name"].get<std::string>(),
                 p["dtype"].get<std::string>(), p["shape"].dump());
  fmt::print("  parameters   {} (and {} in buffers), {}\n", j["parameters"].get<int64_t>(),
             j["buffers"].get<int64_t>(), human(j["weight_bytes"].get<double>(), "B"));
  fmt::print("  forward      {}, {} beside the weights\n", human(j["flops"].get<double>(), "FLOP"),
             human(j["peak_bytes"].get<double>(), "B"));
  std::string ops;
  for (const auto& [name, n] : j["ops"].items())
    ops += fmt::format("{}{} {}", ops.empty() ? "" : ", ", n.get<int64_t>(), name);
  fmt::print("  ops          {}\n", ops);
}

}  // namespace

void add_inspect(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand("inspect",
                                      "What a file holds or a model costs\n\n"
                                      "  tandem inspect model.safetensors\n"
                                      "  tandem inspect resnet50.pth --all\n"
                                      "  tandem inspect model.onnx --shapes x:8x3x224x224\n"
                                      "  tandem inspect resnet50 --shapes x:8x3x224x224 --json");
  struct Options {
    recipe::ModelSource model;
    std::string shapes;
    bool json = false, all = false;
  };
  auto o = std::make_shared<Options>();
  verb->add_option("file", o->model.model,
                   "A file or folder of weights, an ONNX file, or a model's name")
      ->required();
  verb->add_option("--shapes", o->shapes, "Inputs of a model, as x:1x3x224x224");
  verb->add_flag("--json", o->json, "Everything as JSON");
  verb->add_flag("--all", o->all, "Every tensor");
  add_model_options(*verb, o->model);
  verb->callback([&code, o] {
    init();
    const bool file =
        !recipe::is_onnx(o->model.model) &&
        (file_exists(o->model.model) || o->model.model.find_first_of("/.") != std::string::npos);
    const Json j = file ? weights_as_json(o->model.model, weights::load_weights(o->model.model))
                        : model_as_json(o->model, o->shapes);
    if (o->json)
      fmt::print("{}\n", j.dump(2));
    else if (file)
      print_weights(j, o->all);
    else
      print_model(j);
    code = 0;
  });
}

}  // namespace tandem::cli
