// SPDX-License-Identifier: Apache-2.0
// `tandem inspect`: what a file of weights, a graph or a tokenizer holds, or what a model by name
// costs. Nothing is run: figures come from dry runs.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/commands_internal.h"
#include "cli/edge_internal.h"
#include "cli/model_internal.h"
#include "tandem/base/files/file.h"
#include "tandem/edge/footprint.h"
#include "tandem/io/json.h"
#include "tandem/onnx/summary.h"
#include "tandem/onnx/tensorflow.h"
#include "tandem/text/tokenizer.h"
#include "tandem/weights/formats.h"
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

// Passes over what is not a file (load_weights says what is missing) and what a reader of weights
// knows; other files are refused as all that they might have been.
void check_weights_file(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return;
  const auto file = make_ref<MappedFile>(path);
  if (file->view().starts_with("\x93NUMPY")) return;
  std::string titles;
  for (const weights::WeightsFormat* f : weights::weights_formats().rows()) {
    if (f->holds(file->view(), path)) return;
    titles += fmt::format("{}{}", titles.empty() ? "" : ", ", weights::to_string(*f));
  }
  TD_FAIL(Format,
          "'{}' is neither a model (ONNX, TFLite, a frozen graph, a SavedModel, Keras) nor a "
          "tokenizer.json nor a file of weights ({})",
          path, titles);
}

// Sizes; an open one by its name, or -1.
Json shape_as_json(const std::vector<int64_t>& sizes, const std::vector<std::string>& names = {}) {
  Json shape = Json::array();
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] < 0 && d < names.size() && !names[d].empty())
      shape.push_back(names[d]);
    else
      shape.push_back(sizes[d]);
  return shape;
}
Json ports_as_json(const std::vector<recipe::ModelPort>& ports) {
  Json list = Json::array();
  for (const recipe::ModelPort& p : ports)
    list.push_back(
        {{"name", p.name}, {"dtype", to_string(p.dtype)}, {"shape", shape_as_json(p.shape)}});
  return list;
}

// Work and memory for these shapes, by a dry run.
recipe::ForwardFigures add_figures(Json& j, recipe::LoadedModel model, const std::string& shapes) {
  recipe::set_shapes(model, shapes);
  recipe::ForwardFigures f = recipe::figures_of(model);
  Json in = Json::array(), out = Json::array(), ops = Json::object();
  for (const recipe::ModelPort& p : model.inputs) in.push_back(p.shape);
  for (const Shape& s : f.outputs) out.push_back(s.to_vector());
  for (const auto& [name, n] : f.ops) ops[name] = n;
  j["input_shapes"] = std::move(in);
  j["output_shapes"] = std::move(out);
  j["flops"] = f.flops;
  j["peak_bytes"] = f.peak_bytes;
  j["ops"] = std::move(ops);
  return f;
}

// The output sizes that change with the inputs' open ones are open, too.
void set_open_outputs(recipe::LoadedModel& model, const recipe::ForwardFigures& for_ones) {
  recipe::LoadedModel other = model;
  for (recipe::ModelPort& p : other.inputs)
    for (int64_t& n : p.shape)
      if (n < 0) n = 2;
  const recipe::ForwardFigures for_twos = recipe::figures_of(other);
  for (size_t i = 0; i < model.outputs.size(); ++i) {
    std::vector<int64_t> shape = for_ones.outputs.at(i).to_vector();
    const std::vector<int64_t> twos = for_twos.outputs.at(i).to_vector();
    for (size_t d = 0; d < shape.size(); ++d)
      if (twos.size() == shape.size() && twos[d] != shape[d]) shape[d] = -1;
    model.outputs[i].shape = std::move(shape);
  }
}

Json model_as_json(const recipe::ModelSource& a, const std::string& shapes) {
  recipe::LoadedModel model = recipe::load_model(a);
  Json figures;
  const recipe::ForwardFigures f = add_figures(figures, model, shapes);
  Json unshaped;
  set_open_outputs(model, shapes.empty() ? f : add_figures(unshaped, model, ""));
  Json j = {{"model", a.model},
            {"inputs", ports_as_json(model.inputs)},
            {"outputs", ports_as_json(model.outputs)},
            {"parameters", model.parameters},
            {"buffers", model.buffers},
            {"weight_bytes", model.weight_bytes}};
  j.update(figures);
  return j;
}

Json onnx_port_as_json(const onnx::OnnxPort& p) {
  using Kind = onnx::OnnxTypeSpec::Kind;
  Json shape = nullptr;
  if (p.type.has_shape) shape = shape_as_json(p.type.dims, p.type.dim_names);
  const char* kind = p.type.kind == Kind::sequence   ? "sequence"
                     : p.type.kind == Kind::optional ? "optional"
                                                     : to_string(p.type.elem);
  return {{"name", p.name}, {"dtype", kind}, {"shape", std::move(shape)}};
}

// A graph is described by what its file says; no node of it runs.
Json onnx_as_json(const recipe::ModelSource& a, const std::string& shapes) {
  const onnx::OnnxModel model = onnx::OnnxModel::load(a.model);
  const onnx::OnnxSummary s = onnx::summarize(model);
  Json inputs = Json::array(), outputs = Json::array(), opsets = Json::object();
  for (const onnx::OnnxPort& p : model.inputs()) inputs.push_back(onnx_port_as_json(p));
  for (const onnx::OnnxPort& p : model.outputs()) outputs.push_back(onnx_port_as_json(p));
  for (const auto& [domain, version] : model.proto().opsets)
    opsets[domain.empty() ? "ai.onnx" : domain] = version;
  Json j = {{"model", a.model},
            {"inputs", std::move(inputs)},
            {"outputs", std::move(outputs)},
            {"opsets", std::move(opsets)},
            {"producer", model.proto().producer},
            {"parameters", s.parameters},
            {"parameters_in_constants", s.in_constants},
            {"buffers", s.buffers},
            {"weight_bytes", s.weight_bytes},
            {"nodes", s.nodes},
            {"node_ops", s.ops},
            {"unknown_ops", s.unknown_ops},
            {"unused", s.unused}};
  if (const auto names = onnx::tensorflow_signatures(a.model); !names.empty())
    j["signatures"] = names;
  if (shapes.empty()) return j;
  try {
    add_figures(j, recipe::load_model(a), shapes);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Unsupported) throw;
    j["unknown_figures"] = e.text();  // a size depends on values
  }
  return j;
}

std::string counts_text(const Json& counts) {
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [name, n] : counts.items()) sorted.emplace_back(-n.get<int64_t>(), name);
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (const auto& [n, name] : sorted)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", -n, name);
  return text;
}

std::string list_text(const Json& names, bool all) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!all && i == kShown) return text + fmt::format(" and {} more (--all)", names.size() - i);
    text += (i ? ", " : "") + names[i].get<std::string>();
  }
  return text;
}

void print_line(const char* title, const std::string& text) {
  fmt::print("  {:<12} {}\n", title, text);
}

void print_model(const Json& j, bool all) {
  fmt::print("{}\n", j["model"].get<std::string>());
  for (const char* side : {"inputs", "outputs"})
    for (const Json& p : j[side])
      print_line(
          side, fmt::format("{} {} {}", p["name"].get<std::string>(), p["dtype"].get<std::string>(),
                            p["shape"].is_null() ? "of any shape" : p["shape"].dump()));
  if (j.contains("signatures")) print_line("signatures", list_text(j["signatures"], all));
  if (j.contains("opsets")) {
    std::string text;
    for (const auto& [domain, version] : j["opsets"].items())
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", domain, version.get<int64_t>());
    print_line("opsets", text);
  }
  print_line("parameters",
             fmt::format("{} (and {} in buffers), {}", j["parameters"].get<int64_t>(),
                         j["buffers"].get<int64_t>(), human(j["weight_bytes"].get<double>(), "B")));
  if (const int64_t n = j.value("parameters_in_constants", int64_t{0}); n > 0)
    print_line("", fmt::format("{} of them in Constant nodes", n));
  if (j.contains("nodes"))
    print_line("nodes",
               fmt::format("{}: {}", j["nodes"].get<int64_t>(), counts_text(j["node_ops"])));
  for (const char* what : {"unknown_ops", "unused"})
    if (j.contains(what) && !j[what].empty())
      print_line(what == std::string("unused") ? "unused" : "unknown ops", list_text(j[what], all));
  if (!j.contains("flops")) {
    const std::string why = j.value("unknown_figures", std::string());
    print_line("forward", why.empty() ? "--shapes x:1x3x224x224 shows work and memory"
                                      : "not known without a run: " + why);
    return;
  }
  print_line("forward", fmt::format("{}, {} beside the weights, {} -> {}",
                                    human(j["flops"].get<double>(), "FLOP"),
                                    human(j["peak_bytes"].get<double>(), "B"),
                                    j["input_shapes"].dump(), j["output_shapes"].dump()));
  print_line("ops", counts_text(j["ops"]));
}

// ---- devices

Json edge_as_json(const recipe::ModelSource& a, const std::string& shapes) {
  const edge::EdgeSource net = compile_as_c({.model = a, .shapes = shapes}).net;
  const size_t code = edge::code_bytes(net);
  return {{"model", a.model},
          {"steps", net.steps},
          {"functions", net.functions},
          {"code_bytes", code ? Json(code) : Json(nullptr)},
          {"weight_bytes", net.weight_bytes},
          {"arena_bytes", net.arena_bytes},
          {"arena_lower_bound", net.lower_bound}};
}

void print_edge(const Json& j) {
  fmt::print("{} as C: {} steps, {} functions\n", j["model"].get<std::string>(),
             j["steps"].get<size_t>(), j["functions"].get<size_t>());
  print_line("code", j["code_bytes"].is_null()
                         ? "not known: there is no C compiler with binutils here"
                         : fmt::format("{} bytes (-Os)", j["code_bytes"].get<size_t>()));
  print_line("weights", fmt::format("{} bytes", j["weight_bytes"].get<size_t>()));
  print_line("arena", fmt::format("{} bytes (lower bound {})", j["arena_bytes"].get<size_t>(),
                                  j["arena_lower_bound"].get<size_t>()));
}

// ---- tokenizers

bool is_tokenizer(const std::string& path) {
  return std::filesystem::path(path).filename().string().ends_with("tokenizer.json");
}

Json tokenizer_as_json(const std::string& path) {
  const text::Tokenizer t = text::Tokenizer::from_file(path);  // checks every part
  const io::Json file = io::parse_json(read_file(path), path);
  const auto type_of = [&](const char* part) -> Json {
    const io::Json* p = file.find(part);
    const io::Json* type = p && p->as_object() ? p->find("type") : nullptr;
    if (!type || !type->as_string()) return nullptr;
    return *type->as_string();
  };
  Json added = Json::array();
  if (const io::Json* list = file.find("added_tokens"); list && list->as_array())
    for (const io::Json& one : *list->as_array()) {
      const io::Json* content = one.find("content");
      if (content && content->as_string()) added.push_back(*content->as_string());
    }
  Json j = {{"file", path}, {"format", "tokenizer"}, {"vocabulary", t.vocab_size()}};
  for (const char* part : {"model", "normalizer", "pre_tokenizer", "post_processor", "decoder"})
    j[part] = type_of(part);
  j["added_tokens"] = std::move(added);
  j["max_length"] = t.truncation() ? Json(t.truncation()->max_length) : Json(nullptr);
  return j;
}

void print_tokenizer(const Json& j, bool all) {
  fmt::print("{}: {} tokens\n", j["file"].get<std::string>(), j["vocabulary"].get<int64_t>());
  for (const char* part : {"model", "normalizer", "pre_tokenizer", "post_processor", "decoder"})
    if (!j[part].is_null()) fmt::print("  {:<16} {}\n", part, j[part].get<std::string>());
  if (!j["added_tokens"].empty())
    fmt::print("  {:<16} {}\n", "added_tokens", list_text(j["added_tokens"], all));
  if (!j["max_length"].is_null())
    fmt::print("  {:<16} {}\n", "max_length", j["max_length"].get<int64_t>());
}

}  // namespace

void add_inspect(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand("inspect",
                                      "What a file holds or a model costs; nothing is run\n\n"
                                      "  tandem inspect model.safetensors\n"
                                      "  tandem inspect resnet50.pth --all\n"
                                      "  tandem inspect model.onnx --shapes x:8x3x224x224\n"
                                      "  tandem inspect tokenizer.json\n"
                                      "  tandem inspect resnet50 --shapes x:8x3x224x224 --json\n"
                                      "  tandem inspect runs/digits-cnn --edge");
  struct Options {
    recipe::ModelSource model;
    std::string shapes;
    bool json = false, all = false, edge = false;
  };
  auto o = std::make_shared<Options>();
  verb->add_option(
          "file", o->model.model,
          "A file or folder of weights, a model's file (ONNX, SavedModel, Keras) or name, or "
          "a tokenizer.json")
      ->required();
  verb->add_option("--shapes", o->shapes,
                   "Inputs of a model, as x:1x3x224x224: work and memory for these");
  verb->add_flag("--json", o->json, "Everything as JSON");
  verb->add_flag("--all", o->all, "Every tensor");
  verb->add_flag("--edge", o->edge,
                 "Code, weights and memory of the model (or the run's) as C, for devices");
  add_model_options(*verb, o->model);
  verb->callback([&code, o] {
    init();
    const std::string& model = o->model.model;
    const bool graph = recipe::is_graph_file(model), tokenizer = is_tokenizer(model);
    const bool file = !graph && !tokenizer &&
                      (file_exists(model) || model.find_first_of("/.") != std::string::npos);
    if (file && !o->edge) check_weights_file(model);
    const Json j = o->edge     ? edge_as_json(o->model, o->shapes)
                   : tokenizer ? tokenizer_as_json(model)
                   : graph     ? onnx_as_json(o->model, o->shapes)
                   : file      ? weights_as_json(model, weights::load_weights(model))
                               : model_as_json(o->model, o->shapes);
    if (o->json)
      fmt::print("{}\n", j.dump(2));
    else if (o->edge)
      print_edge(j);
    else if (tokenizer)
      print_tokenizer(j, o->all);
    else if (file)
      print_weights(j, o->all);
    else
      print_model(j, o->all);
    code = 0;
  });
}

}  // namespace tandem::cli
