// SPDX-License-Identifier: Apache-2.0
// `tandem convert IN OUT`: weights from one format to another, or a model to ONNX, checked by
// reading them back.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/interop/onnx_export.h"
#include "tandem/interop/weights.h"
#include "tandem/tandem.h"
#include "tandem/tensor/strided.h"

namespace tandem::cli {
namespace {

std::vector<char> bytes_of(const Tensor& t) {
  std::vector<char> out(static_cast<size_t>(t.numel()) * size_of(t.dtype()));
  if (!out.empty()) detail::copy_row_major(*t.impl(), out.data(), t.dtype());
  return out;
}

/// The dtype of a name such as "float16" or "f16"; throws Value.
DType dtype_named(const std::string& name) {
#define X(short_name, type, text) \
  if (name == #short_name || name == text) return DType::short_name;
  TD_FOR_EACH_DTYPE(X)
#undef X
  TD_FAIL(Value, "there is no dtype '{}'\nTry float32, float16 or bfloat16.", name);
}

struct Options {
  ModelArguments model;
  std::string out, dtype, shapes;
  int opset = 18;
};

/// The model as an ONNX file whose weights lie beside it. In the folder of the model itself the
/// weights that are there serve. Open dimensions keep names; `--shapes` gives the sizes of the
/// example that the result is checked with.
void to_onnx(const Options& o) {
  LoadedModel model = load_model(o.model);
  if (model.random_weights)
    fmt::print(stderr, "no --weights: the values are the initial ones, drawn at random\n");
  interop::OnnxExportOptions options;
  options.opset = o.opset;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    ModelPort& p = model.inputs[i];
    options.input_names.push_back(p.name);
    for (size_t d = 0; d < p.shape.size(); ++d) {
      if (p.shape[d] >= 0) continue;
      const char* name = d == 0 ? "batch" : p.name == "decoder_input_ids" ? "target" : "length";
      if (!is_onnx(o.model.model))
        options.dynamic.emplace_back(static_cast<int64_t>(i), static_cast<int64_t>(d), name);
      if (d > 0) p.shape[d] = 8;
    }
  }
  for (const ModelPort& p : model.outputs) options.output_names.push_back(p.name);
  set_shapes(model, o.shapes);
  options.state = model.state;
  const std::filesystem::path out(o.out), in(o.model.model);
  std::error_code error;
  if (std::filesystem::exists(in / "model.safetensors", error) &&
      std::filesystem::equivalent(in, out.has_parent_path() ? out.parent_path() : ".", error)) {
    const StateDict there = load(in / "model.safetensors");
    bool equal = true;
    for (const auto& [name, t] : model.state)
      equal = equal && there.contains(name) && there.at(name).dtype() == t.dtype() &&
              there.at(name).shape() == t.shape() && bytes_of(there.at(name)) == bytes_of(t);
    if (equal) options.weights = "model.safetensors";
  }
  const auto r = interop::export_onnx_function(
      [&](std::span<const Tensor> x) {
        NoGradGuard no_grad;
        return model.run({x.begin(), x.end()});
      },
      random_inputs(model), o.out, options);
  fmt::print("{}: {}\n", o.out, r.to_string());
}

}  // namespace

void add_convert(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand("convert",
                                      "Weights from one format to another, or a model to ONNX\n\n"
                                      "  tandem convert resnet50.pth resnet50.safetensors\n"
                                      "  tandem convert folder model.npz --dtype float16\n"
                                      "  tandem convert resnet50 --weights w.pth resnet50.onnx\n"
                                      "  tandem convert folder folder/model.onnx");
  auto o = std::make_shared<Options>();
  verb->add_option("in", o->model.model,
                   ".safetensors, index.json, .pth, .pt, .bin, .npz, a folder, or a run's; for "
                   "ONNX a model's name, a Hugging Face folder or an ONNX file")
      ->required();
  verb->add_option("out", o->out, ".safetensors, .pth, .pt, .bin, .npz or .onnx")->required();
  verb->add_option("--dtype", o->dtype, "Cast floating tensors to this");
  verb->add_option("--opset", o->opset, "Opset of an ONNX model, 17 to 22");
  verb->add_option("--shapes", o->shapes, "Sizes of the example, as x:1x3x224x224");
  add_model_options(*verb, o->model);
  verb->callback([&code, o] {
    init();
    code = 0;
    if (is_onnx(o->out)) {
      TD_CHECK(is_model(o->model.model), Value,
               "'{}' is no model, only weights\nName the model and give them with --weights.",
               o->model.model);
      return to_onnx(*o);
    }
    // A run's folder stands for its weights.
    const std::string& in = o->model.model;
    StateDict tensors =
        file_exists(in + "/metrics.jsonl") ? train::run_weights(in) : interop::load_weights(in);
    if (!o->dtype.empty()) {
      const DType to = dtype_named(o->dtype);
      StateDict cast;
      for (const auto& [name, t] : tensors) cast[name] = is_floating(t.dtype()) ? t.to(to) : t;
      tensors = std::move(cast);
    }
    interop::save_weights(tensors, o->out);
    const StateDict back = interop::load_weights(o->out);
    TD_CHECK(back.size() == tensors.size(), Io, "'{}' holds {} tensors, {} were written", o->out,
             back.size(), tensors.size());
    for (const auto& [name, t] : tensors)
      TD_CHECK(back.contains(name) && back.at(name).dtype() == t.dtype() &&
                   back.at(name).shape() == t.shape() && bytes_of(back.at(name)) == bytes_of(t),
               Io, "'{}': tensor '{}' does not read back", o->out, name);
    fmt::print("{}: {} tensors, read back and equal\n", o->out, tensors.size());
  });
}

}  // namespace tandem::cli
