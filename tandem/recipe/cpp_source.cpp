// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/cpp_source.h"

#include <fmt/format.h>

#include <filesystem>

#include "tandem/base/files/file.h"
#include "tandem/graph/context.h"
#include "tandem/io/safetensors.h"
#include "tandem/models/registry.h"
#include "tandem/nn/nn.h"
#include "tandem/onnx/export.h"
#include "tandem/onnx/runner.h"
#include "tandem/onnx/summary.h"
#include "tandem/ops/control.h"
#include "tandem/quant/qat.h"
#include "tandem/recipe/open_run.h"

namespace tandem::recipe {
namespace {

// The p of a layer of type M; nothing where it is another layer.
template <class M>
std::optional<double> dropped_share(nn::Module& m) {
  static const auto forward = M().state().forward;
  if (m.state().forward != forward) return {};
  return static_cast<M&>(m).p;
}
template <class... M>
std::optional<double> first_dropped_share(nn::Module& m) {
  std::optional<double> p;
  ((p = p ? p : dropped_share<M>(m)), ...);
  return p;
}

// While it lives, layers that do nothing outside training show up in a trace.
class DropoutMarks {
 public:
  explicit DropoutMarks(nn::Module& net) {
    for (const auto& [path, m] : net.named_modules()) {
      edge::KnownModule known{path, m->type()};
      const auto p =
          first_dropped_share<nn::Dropout, nn::Dropout1d, nn::Dropout2d, nn::Dropout3d,
                              nn::AlphaDropout, nn::FeatureAlphaDropout, nn::DropPath>(*m);
      if (p && *p > 0 && !path.empty()) {
        known.arguments = fmt::format("{}", *p);
        hooks_.emplace_back(
            m, m->register_forward_hook(
                   [](nn::Module&, const Tensor&, const Tensor& y) { return identity(y); }));
      }
      modules.push_back(std::move(known));
    }
  }
  ~DropoutMarks() {
    for (const auto& [m, hook] : hooks_) m->remove_hook(hook);
  }
  DropoutMarks(const DropoutMarks&) = delete;
  DropoutMarks& operator=(const DropoutMarks&) = delete;

  std::vector<edge::KnownModule> modules;

 private:
  std::vector<std::pair<nn::Module*, int>> hooks_;
};

// A model of the registry, made once more with the values of `state`.
std::shared_ptr<nn::AnyModule> made_by_name(const ModelSource& source, const StateDict& state) {
  models::ModelOptions o;
  for (const auto& [name, t] : state)
    if (name.ends_with("weight") && (t.dim() == 2 || t.dim() == 4)) o.num_classes = t.size(0);
  if (source.image_size > 0 && source.model.starts_with("vit")) o.image_size = source.image_size;
  auto net = std::make_shared<nn::AnyModule>(models::make(source.model, o));
  net->load_state_dict(state);
  net->eval();
  return net;
}

// A namespace of the file's name that is none of Tandem's.
std::string name_space(const std::string& stem) {
  std::string s;
  for (const char c : stem) s += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (s.empty() || std::isdigit(static_cast<unsigned char>(s[0]))) s = "net_" + s;
  static const std::set<std::string> taken = {
      "Net",  "nn",      "optim",    "io",      "data",         "dist",   "train",  "models",
      "rl",   "quant",   "onnx",     "recipe",  "serve",        "plan",   "edge",   "weights",
      "runs", "text",    "tandem",   "std",     "op",           "detail", "linalg", "fft",
      "cli",  "special", "compiler", "codegen", "distributions"};
  return taken.contains(s) ? s + "_net" : s;
}

// The model's own weights may lie where the new ones are to be written.
void check_weights_file(const std::filesystem::path& weights, const std::filesystem::path& source) {
  std::error_code error;
  const auto folder = [](const std::filesystem::path& p) {
    return p.has_parent_path() ? p.parent_path() : std::filesystem::path(".");
  };
  const bool in_model = std::filesystem::equivalent(folder(weights), source, error);
  const bool beside = source.stem() == weights.stem() &&
                      std::filesystem::equivalent(folder(weights), folder(source), error);
  TD_CHECK(!std::filesystem::exists(weights, error) || (!in_model && !beside), Value,
           "'{}' may hold the weights of '{}'\nWrite the header under another name.",
           weights.string(), source.string());
}

edge::ModuleSource source_of(LoadedModel& model, const ModelSource& source,
                             const std::vector<DynamicDim>& open,
                             const edge::ModuleOptions& options) {
  std::vector<edge::EdgePort> inputs;
  const std::vector<Spec> specs = onnx::export_specs(random_inputs(model), open);
  for (size_t i = 0; i < specs.size(); ++i) inputs.push_back({model.inputs[i].name, specs[i]});
  const auto run = [&](std::span<const Tensor> x) { return model.run({x.begin(), x.end()}); };
  if (model.opened) return cpp_source(*model.opened->model.module, run, inputs, options);
  if (model.pretrained) return cpp_source(model.pretrained->module(), run, inputs, options);
  if (model.runner) return edge::write_module(run, inputs, options);
  const std::shared_ptr<nn::AnyModule> net = made_by_name(source, model.state);
  const auto call = [&](std::span<const Tensor> x) { return std::vector<Tensor>{(*net)(x[0])}; };
  return cpp_source(net->module(), call, inputs, options);
}

}  // namespace

edge::ModuleSource cpp_source(nn::Module& net, edge::EdgeForward forward,
                              std::span<const edge::EdgePort> inputs, edge::ModuleOptions options) {
  DropoutMarks marks(net);
  options.modules = marks.modules;
  return edge::write_module(forward, inputs, options);
}

CppFile write_cpp(const ModelSource& source, const std::string& out, const OnnxFileOptions& o) {
  const std::filesystem::path file(out);
  TD_CHECK(file.extension() == ".h", Value,
           "'{}' is not the name of a C++ header\nGive one such as net.h.", out);
  const std::filesystem::path weights =
      std::filesystem::path(file).replace_extension(".safetensors");
  check_weights_file(weights, source.model);
  LoadedModel model = load_any(source);
  const onnx::OnnxExportOptions names = export_options(model, o, true);
  CppFile result{
      .header = out, .weights = weights.string(), .random_weights = model.random_weights};
  edge::ModuleOptions options;
  options.name_space = name_space(file.stem().string());
  options.weights = weights.filename().string();
  options.model = std::filesystem::path(source.model).filename().string();
  if (model.runner) options.names = onnx::weights_of(model.runner->model());
  edge::ModuleSource text;
  try {
    text = source_of(model, source, names.dynamic, options);
  } catch (const Error& e) {
    // Sizes of a file's graph that it computes from values are those of its example.
    if (!model.runner || names.dynamic.empty() || !o.dynamic.empty()) throw;
    text = source_of(model, source, {}, options);
  }
  write_file(out, text.header);
  write_weights(text.weights, result.weights);
  result.layers = text.layers;
  result.classes = text.classes;
  result.calls = text.calls;
  return result;
}

}  // namespace tandem::recipe
