// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "tandem/base/budget.h"
#include "tandem/base/log.h"
#include "tandem/compile/compile.h"
#include "tandem/compile/run/executable.h"
#include "tandem/graph/context.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/profiler.h"
#include "tandem/io/npy.h"
#include "tandem/models/pretrained.h"
#include "tandem/models/registry.h"
#include "tandem/onnx/named_shapes.h"
#include "tandem/onnx/runner.h"
#include "tandem/onnx/summary.h"
#include "tandem/onnx/tensorflow.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/graph_model_internal.h"
#include "tandem/recipe/open_run.h"
#include "tandem/weights/formats.h"
#include "tandem/weights/weights.h"

namespace tandem::recipe {

namespace {

/// The classes that a file's last matrix or 1x1 convolution has: rows of the last weight.
int64_t classes_of(const StateDict& weights) {
  int64_t rows = 0;
  for (const auto& [name, t] : weights)
    if (name.ends_with("weight") && (t.dim() == 2 || t.dim() == 4)) rows = t.size(0);
  return rows;
}
bool has_positions(const std::string& model) { return model.starts_with("vit"); }

models::ModelOptions options_of(const ModelSource& a) {
  models::ModelOptions o;
  if (a.num_classes > 0) o.num_classes = a.num_classes;
  if (a.image_size > 0 && has_positions(a.model)) o.image_size = a.image_size;
  return o;
}

std::vector<Tensor> all_to(Device device, std::vector<Tensor> values) {
  for (Tensor& t : values)
    if (t.defined()) t = t.to(device);
  return values;
}

// What the model makes from nothing is made on its device.
void run_on(LoadedModel& m, Device device) {
  m.device = device;
  if (is_host(device)) return;
  m.run = [run = std::move(m.run), device](const std::vector<Tensor>& in) {
    const DeviceGuard there(device);
    return run(all_to(device, in));
  };
}

// Weights of a file into a model by name.
void load_weights_into(nn::Module& net, const StateDict& weights, const ModelSource& a) {
  const weights::WeightsReport report = weights::load_into(net, weights, {.strict = false});
  if (report.ok()) return;
  TD_CHECK(a.partial && report.loaded > 0, Value, "the weights in '{}' do not fit {}: {}{}",
           a.weights, a.model, report.to_string(),
           report.loaded > 0
               ? "Name the model that they were saved from, or load those that fit with --partial."
               : "Name the model that they were saved from.");
  log_warning("{}: {}what is missing or of another shape stays as it was drawn", a.weights,
              report.to_string());
}

constexpr const char* kModelsAre =
    "Models are ONNX files (.onnx), TFLite files, frozen graphs (.pb), Keras files, folders of "
    "runs "
    "(recipe.yaml), of Hugging Face (config.json) or SavedModels, and the names of `tandem inspect "
    "--list`.";

// What a file that holds no network holds.
std::string content_of(const std::string& path) {
  const auto file = make_ref<MappedFile>(path);
  const std::string_view all = file->view();
  if (all.empty()) return "an empty file";
  for (const weights::WeightsFormat* f : weights::weights_formats().rows())
    if (f->holds(all, path)) return fmt::format("a file of weights ({})", weights::to_string(*f));
  constexpr size_t kHead = 16;
  return fmt::format("a file of {} bytes that begins with {:?}", all.size(), all.substr(0, kHead));
}

// A name that is that of a file or a folder, or can be none but one, is no misspelt model's name.
void check_is_name(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status found = fs::status(name, error);
  TD_CHECK(!fs::is_directory(found), Value, "'{}' is a folder without a model\n{}", name,
           kModelsAre);
  TD_CHECK(!fs::exists(found), Value, "'{}' is not a model: it is {}\n{}", name, content_of(name),
           kModelsAre);
  TD_CHECK(name.find_first_of("./\\") == name.npos, Io, "there is no file or folder '{}'\n{}", name,
           kModelsAre);
}

LoadedModel from_registry(const ModelSource& a) {
  models::ModelOptions o = options_of(a);
  if (!is_model(a.model)) check_is_name(a.model);
  const models::ModelInfo info = models::info(a.model);  // refuses an unknown name at once
  std::vector<int64_t> sample = info.input;
  StateDict weights;
  if (!a.weights.empty()) {
    weights = weights::load_weights(a.weights);
    if (!o.num_classes && classes_of(weights) > 0) o.num_classes = classes_of(weights);
  }
  auto net = std::make_shared<nn::AnyModule>(models::make(a.model, o));
  if (!a.weights.empty()) load_weights_into(net->module(), weights, a);
  net->eval();
  net->module().to(a.device);
  LoadedModel m;
  if (a.image_size > 0) sample[1] = sample[2] = a.image_size;
  m.inputs = {{.name = "x",
               .shape = {-1, sample[0], sample[1], sample[2]},
               .open = models::image_dims(info.any_size)}};
  m.outputs = {{"y", DType::f32, {}}};
  m.run = [net](const std::vector<Tensor>& in) { return std::vector<Tensor>{(*net)(in.at(0))}; };
  for (const auto& [name, t] : net->state_dict()) {
    m.buffers += t.numel();
    m.weight_bytes += t.numel() * static_cast<int64_t>(size_of(t.dtype()));
  }
  m.state = net->state_dict();
  m.parameters = net->num_parameters();
  m.buffers -= m.parameters;
  m.random_weights = a.weights.empty();
  return m;
}

// The names under "id2label", if there is one for each class.
std::vector<std::string> labels_of(const models::ModelConfig& c) {
  std::vector<std::string> out;
  const io::Json* names = c.object("id2label");
  for (int64_t i = 0; names && i < c.num_labels(); ++i) {
    const io::Json* name = names->find(std::to_string(i));
    if (!name || !name->as_string()) return {};
    out.push_back(*name->as_string());
  }
  return out;
}

// Scores of classes are called logits; "problem_type" says which kind they are.
Answer answer_of(const models::PretrainedModel& m) {
  const std::string first = m.output_names().at(0);
  if (first == "sentence_embedding") return Answer::numbers;
  if (first != "logits" && first != "logits_per_image") return Answer::values;
  const std::string kind = m.config.text("problem_type", "");
  if (kind == "multi_label_classification") return Answer::chances;
  return kind == "regression" ? Answer::numbers : Answer::classes;
}

LoadedModel from_folder(const ModelSource& a) {
  std::shared_ptr<models::PretrainedModel> net = models::from_pretrained(a.model);
  net->module().to(a.device);
  LoadedModel m;
  m.inputs = net->inputs();
  for (const std::string& name : net->output_names()) m.outputs.push_back({name, DType::f32, {}});
  m.answer = answer_of(*net);
  if (m.outputs[0].name == "logits") m.labels = labels_of(net->config);
  m.run = [net, ports = m.inputs](const std::vector<Tensor>& in) {
    models::ModelInputs all;
    for (size_t i = 0; i < in.size(); ++i) all.at(ports.at(i).name) = in[i];
    return net->run(all);
  };
  m.pretrained = net;
  m.state = net->module().state_dict();
  for (const auto& [name, t] : m.state) {
    m.buffers += t.numel();
    m.weight_bytes += t.numel() * static_cast<int64_t>(size_of(t.dtype()));
  }
  m.parameters = net->module().num_parameters();
  m.buffers -= m.parameters;
  m.from_file = true;
  return m;
}

ModelPort port_of(const onnx::OnnxPort& p, const std::string& path) {
  using Kind = onnx::OnnxTypeSpec::Kind;
  const bool tensor = p.type.kind == Kind::tensor || p.type.kind == Kind::none;
  TD_CHECK(tensor && p.type.elem != onnx::OnnxType::string, Unsupported,
           "'{}': '{}' is {}, this command runs models of tensors of numbers", path, p.name,
           tensor ? "a tensor of texts" : "no tensor");
  ModelPort out{.name = p.name, .shape = p.type.dims};
  if (p.type.elem != onnx::OnnxType::undefined) out.dtype = onnx::info_of(p.type.elem).carrier;
  return out;
}

Scores first_scores(const onnx::OnnxModel& model) {
  switch (onnx::scores_of(model, 0)) {
    case onnx::OnnxScores::probabilities:
      return Scores::probabilities;
    case onnx::OnnxScores::log_probabilities:
      return Scores::log_probabilities;
    default:
      return Scores::unknown;
  }
}

// --image-size is what the open height and width of images are.
void set_image_size(ModelPort& p, int64_t size) {
  if (size <= 0 || p.shape.size() != 4) return;
  const size_t first = p.shape[1] < 0 && p.shape[3] > 0 ? 1 : 2;  // channels first, or last
  for (size_t d = first; d < first + 2; ++d)
    if (p.shape[d] < 0) p.shape[d] = size;
}

LoadedModel from_onnx(const ModelSource& a) {
  TD_CHECK(a.weights.empty(), Value, "'{}' holds its own weights\nLeave out --weights.", a.model);
  return graph_model(onnx::OnnxModel::load(a.model, {.signature = a.signature, .device = a.device}),
                     a);
}

}  // namespace

LoadedModel graph_model(onnx::OnnxModel graph, const ModelSource& a) {
  auto runner = std::make_shared<onnx::OnnxRunner>(std::move(graph));
  const onnx::OnnxModel& model = runner->model();
  LoadedModel m;
  for (const onnx::OnnxPort& p : model.inputs()) {
    m.inputs.push_back(port_of(p, a.model));
    set_image_size(m.inputs.back(), a.image_size);
  }
  for (const onnx::OnnxPort& p : model.outputs()) m.outputs.push_back(port_of(p, a.model));
  if (!m.outputs.empty()) m.scores = first_scores(model);
  onnx::OnnxSummary s = onnx::summarize(model);
  m.parameters = s.parameters;
  m.buffers = s.buffers;
  m.weight_bytes = s.weight_bytes;
  m.unused = std::move(s.unused);
  m.run = [runner](const std::vector<Tensor>& in) { return runner->model()(in); };
  m.runner = std::move(runner);
  m.from_file = true;
  run_on(m, a.device);
  return m;
}

bool is_onnx(const std::string& model) { return model.ends_with(".onnx"); }
bool is_graph_file(const std::string& model) {
  return is_onnx(model) || onnx::is_tensorflow_model(model);
}

namespace {
bool is_folder(const std::string& model) {
  const std::filesystem::path folder(model);
  return std::filesystem::is_regular_file(folder / "config.json") ||
         std::filesystem::is_regular_file(folder / "modules.json");
}
}  // namespace

bool is_model(const std::string& model) {
  if (is_graph_file(model) || is_folder(model)) return true;
  const auto all = models::list();
  return std::any_of(all.begin(), all.end(), [&](const auto& m) { return m.name == model; });
}

LoadedModel load_model(const ModelSource& a) {
  if (is_graph_file(a.model)) return from_onnx(a);
  LoadedModel m = is_folder(a.model) ? from_folder(a) : from_registry(a);
  run_on(m, a.device);
  return m;
}

LoadedModel load_run(const std::string& folder, const std::string& weights, Device device) {
  const OpenedRun run = open_run(folder, weights, device);
  const RecipeModel& made = run.model;
  TD_CHECK(made.predict, Unsupported, "the model '{}' has no output for an input alone{}", run.type,
           made.generate ? "\n`tandem generate` shows what it makes." : "");
  LoadedModel m;
  m.parameters = made.module->num_parameters();
  m.state = made.module->state_dict();
  const size_t n = made.predict_fields.size();
  TD_CHECK(run.data.fields.size() >= n, Format, "'{}/data.json' has {} fields, '{}' takes {}",
           folder, run.data.fields.size(), run.type, n);
  for (size_t i = 0; i < n; ++i) {
    const BatchField& field = run.data.fields[i];
    ModelPort port{.name = made.predict_fields[i], .dtype = field.dtype, .shape = field.shape};
    if (i < made.open.size()) port.open = made.open[i];
    // Rows that stand for themselves may be any number; a graph's belong together.
    if (n == 1 && !port.shape.empty()) port.shape[0] = -1;
    m.inputs.push_back(std::move(port));
  }
  m.outputs.push_back({.name = "output", .shape = {-1}});
  m.labels = run.data.facts.classes;
  m.run = [made](const std::vector<Tensor>& in) { return std::vector<Tensor>{made.predict(in)}; };
  m.opened = std::make_shared<const OpenedRun>(run);
  run_on(m, device);
  return m;
}

StateDict run_state(const std::string& folder, const std::string& weights) {
  const Recipe recipe = Recipe::load(folder + "/recipe.yaml");
  const io::Yaml* model = recipe.root.find("model");
  if (model && model->find("lora")) return load_run(folder, weights).state;
  return run_weights(folder, run_weights_of(weights.empty() ? "last" : weights));
}

namespace {
// An input that was left out: every token counts, all are of the first type.
Tensor usual_input(const ModelPort& p, const Tensor& first) {
  if (p.name == "attention_mask") return ones_like(first).to(p.dtype);
  if (!is_floating(p.dtype)) return zeros_like(first).to(p.dtype);
  Shape shape(p.shape);
  if (p.shape[0] < 0) shape[0] = first.shape(0);
  return rand(shape).to(p.dtype);
}
}  // namespace

std::vector<Tensor> file_inputs(const std::string& path, const LoadedModel& model) {
  if (path.ends_with(".npy")) {
    TD_CHECK(model.inputs.size() == 1, Value,
             "the model takes {} inputs\nGive an .npz file with arrays by their names.",
             model.inputs.size());
    const Tensor x = io::load_npy(path).to(model.inputs[0].dtype);
    return {x.dim() + 1 == static_cast<int64_t>(model.inputs[0].shape.size()) ? x.unsqueeze(0) : x};
  }
  const StateDict d = weights::load_weights(path);
  std::vector<Tensor> out;
  const bool only = d.size() == 1 && model.inputs.size() == 1;
  for (const ModelPort& p : model.inputs) {
    if (p.optional && !d.contains(p.name)) {
      out.push_back(usual_input(p, out.at(0)));
      continue;
    }
    out.push_back((only ? d.begin()->second : d.at(p.name)).to(p.dtype));
  }
  for (const auto& [name, t] : d) {
    const bool taken =
        only || std::any_of(model.inputs.begin(), model.inputs.end(),
                            [&, &name = name](const ModelPort& p) { return p.name == name; });
    TD_CHECK(taken, Value, "'{}' holds '{}', which is not an input of the model", path, name);
  }
  return out;
}

void set_shapes(LoadedModel& model, const std::string& text) {
  TD_CHECK(!model.inputs.empty(), Value, "the model takes no input");
  std::vector<std::string> names;
  for (const ModelPort& p : model.inputs) names.push_back(p.name);
  const auto given = onnx::named_shapes(text, names);
  for (size_t k = 0; k < given.size(); ++k) {
    ModelPort& p = model.inputs[k];
    if (!given[k].empty()) p.shape = given[k];
    for (int64_t& n : p.shape)
      if (n < 0) n = 1;
  }
}

std::string shape_text(const Shape& s) {
  std::string out;
  for (const Dim d : s) out += (out.empty() ? "" : "x") + std::to_string(d.value());
  return out.empty() ? "scalar" : out;
}

std::vector<Tensor> random_inputs(const LoadedModel& model) {
  // Shapes come from the file.
  std::optional<Budget> budget;
  if (model.from_file) budget.emplace("the model", static_cast<uint64_t>(model.weight_bytes));
  std::vector<Tensor> out;
  for (const ModelPort& p : model.inputs)
    out.push_back(is_floating(p.dtype)         ? randn(Shape(p.shape)).to(p.dtype)
                  : p.name == "attention_mask" ? ones(Shape(p.shape), p.dtype)
                                               : zeros(Shape(p.shape), p.dtype));
  return out;
}

ForwardFigures figures_of(const LoadedModel& model) {
  ForwardFigures f;
  const NoGradGuard no_grad;
  const DryRunGuard dry;
  const std::vector<Tensor> inputs = random_inputs(model);
  {
    ProfilerGuard profiler;  // eager: one event per op of the model, before anything is fused
    for (const Tensor& y : model.run(inputs)) f.outputs.push_back(y.shape());
    std::map<std::string, int64_t> count;
    for (const ProfileEvent& e : profiler.profile().events) {
      f.flops += e.flops;
      ++count[e.name];
    }
    f.ops.assign(count.begin(), count.end());
  }
  std::stable_sort(f.ops.begin(), f.ops.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  auto planned =
      compile([&](const std::vector<Tensor>& in) { return model.run(in); }, {.same_bits = false});
  planned(inputs);
  f.peak_bytes = planned.executable()->peak_bytes();
  return f;
}

}  // namespace tandem::recipe
