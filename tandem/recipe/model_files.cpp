// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/model_files.h"

#include <filesystem>

#include "tandem/graph/context.h"
#include "tandem/io/safetensors.h"
#include "tandem/onnx/export.h"
#include "tandem/recipe/open_run.h"
#include "tandem/tensor/strided.h"
#include "tandem/weights/weights.h"

namespace tandem::recipe {
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

OnnxFile write_onnx(const ModelSource& source, const std::string& out, const OnnxFileOptions& o) {
  LoadedModel model =
      is_run(source.model) ? load_run(source.model, source.weights) : load_model(source);
  onnx::OnnxExportOptions options;
  options.opset = o.opset;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    ModelPort& p = model.inputs[i];
    options.input_names.push_back(p.name);
    for (size_t d = 0; d < p.shape.size(); ++d) {
      if (p.shape[d] >= 0) continue;
      const char* name = d == 0 ? "batch" : p.name == "decoder_input_ids" ? "target" : "length";
      const bool image = d > 0 && is_floating(p.dtype);  // of one size
      if (!is_onnx(source.model) && !image)
        options.dynamic.emplace_back(static_cast<int64_t>(i), static_cast<int64_t>(d), name);
      if (d > 0) p.shape[d] = image ? 224 : 8;
    }
  }
  for (const ModelPort& p : model.outputs) options.output_names.push_back(p.name);
  set_shapes(model, o.shapes);
  options.state = model.state;
  const std::filesystem::path file(out), in(source.model);
  std::error_code error;
  if (std::filesystem::exists(in / "model.safetensors", error) &&
      std::filesystem::equivalent(in, file.has_parent_path() ? file.parent_path() : ".", error)) {
    const StateDict there = load(in / "model.safetensors");
    bool equal = true;
    for (const auto& [name, t] : model.state)
      equal = equal && there.contains(name) && same(there.at(name), t);
    if (equal) options.weights = "model.safetensors";
  }
  const auto r = onnx::export_onnx_function(
      [&](std::span<const Tensor> x) {
        NoGradGuard no_grad;
        return model.run({x.begin(), x.end()});
      },
      random_inputs(model), out, options);
  return {fmt::format("{}: {}", out, r.to_string()), model.random_weights};
}

void write_weights(const StateDict& tensors, const std::string& out) {
  weights::save_weights(tensors, out);
  const StateDict back = weights::load_weights(out);
  TD_CHECK(back.size() == tensors.size(), Io, "'{}' holds {} tensors, {} were written", out,
           back.size(), tensors.size());
  for (const auto& [name, t] : tensors)
    TD_CHECK(back.contains(name) && same(back.at(name), t), Io,
             "'{}': tensor '{}' does not read back", out, name);
}

}  // namespace tandem::recipe
