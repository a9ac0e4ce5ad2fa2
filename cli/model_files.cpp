// SPDX-License-Identifier: Apache-2.0
// What convert and export write: a model as ONNX, weights as a file of any format. Both are read
// back and compared before the verb ends well.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/model_internal.h"
#include "tandem/interop/onnx_export.h"
#include "tandem/interop/weights.h"
#include "tandem/tensor/strided.h"

namespace tandem::cli {
namespace {

std::vector<char> bytes_of(const Tensor& t) {
  std::vector<char> out(static_cast<size_t>(t.numel()) * size_of(t.dtype()));
  if (!out.empty()) detail::copy_row_major(*t.impl(), out.data(), t.dtype());
  return out;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && bytes_of(a) == bytes_of(b);
}

}  // namespace

void add_onnx_options(CLI::App& verb, OnnxArguments& a) {
  verb.add_option("--opset", a.opset, "Opset of an ONNX model, 17 to 22");
  verb.add_option("--shapes", a.shapes, "Sizes of the example, as x:1x3x224x224");
}

void write_onnx(const ModelArguments& arguments, const std::string& out, const OnnxArguments& o) {
  LoadedModel model = is_run(arguments.model) ? load_run(arguments.model, arguments.weights)
                                              : load_model(arguments);
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
      if (!is_onnx(arguments.model))
        options.dynamic.emplace_back(static_cast<int64_t>(i), static_cast<int64_t>(d), name);
      if (d > 0) p.shape[d] = 8;
    }
  }
  for (const ModelPort& p : model.outputs) options.output_names.push_back(p.name);
  set_shapes(model, o.shapes);
  options.state = model.state;
  const std::filesystem::path file(out), in(arguments.model);
  std::error_code error;
  if (std::filesystem::exists(in / "model.safetensors", error) &&
      std::filesystem::equivalent(in, file.has_parent_path() ? file.parent_path() : ".", error)) {
    const StateDict there = load(in / "model.safetensors");
    bool equal = true;
    for (const auto& [name, t] : model.state)
      equal = equal && there.contains(name) && same(there.at(name), t);
    if (equal) options.weights = "model.safetensors";
  }
  const auto r = interop::export_onnx_function(
      [&](std::span<const Tensor> x) {
        NoGradGuard no_grad;
        return model.run({x.begin(), x.end()});
      },
      random_inputs(model), out, options);
  if (!o.quiet) fmt::print("{}: {}\n", out, r.to_string());
}

void write_weights(const StateDict& tensors, const std::string& out) {
  interop::save_weights(tensors, out);
  const StateDict back = interop::load_weights(out);
  TD_CHECK(back.size() == tensors.size(), Io, "'{}' holds {} tensors, {} were written", out,
           back.size(), tensors.size());
  for (const auto& [name, t] : tensors)
    TD_CHECK(back.contains(name) && same(back.at(name), t), Io,
             "'{}': tensor '{}' does not read back", out, name);
  fmt::print("{}: {} tensors, read back and equal\n", out, tensors.size());
}

}  // namespace tandem::cli
