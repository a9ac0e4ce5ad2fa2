// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/model_files.h"

#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>

#include "tandem/base/nearest.h"
#include "tandem/graph/context.h"
#include "tandem/io/safetensors.h"
#include "tandem/onnx/export.h"
#include "tandem/onnx/tfjs_export.h"
#include "tandem/onnx/tflite_export.h"
#include "tandem/quant/qat.h"
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

/// The name of dimension d if it may stay open, else "".
std::string open_name(const ModelPort& p, size_t d) {
  if (d < p.open.size() && !p.open[d].name.empty()) return p.open[d].name;
  if (p.shape[d] >= 0 || (d > 0 && is_floating(p.dtype))) return "";  // an image's is fixed
  return d == 0 ? "batch" : p.name == "decoder_input_ids" ? "target" : "length";
}

/// One "2=height" of `text` for input i; the name may be missing.
DynamicDim asked_dim(const std::string& part, const std::string& text, const ModelPort& p,
                     int64_t i) {
  const size_t equals = part.find('=');
  const char *begin = part.data(), *end = begin + std::min(equals, part.size());
  int64_t d = 0;
  const auto [rest, error] = std::from_chars(begin, end, d);
  TD_CHECK(error == std::errc() && rest == end && equals + 1 != part.size(), Value,
           "'{}' names no dimensions\nWrite x:0=batch,2=height, or all, or none.", text);
  const auto rank = static_cast<int64_t>(p.shape.size());
  TD_CHECK(d >= -rank && d < rank, Value, "'{}': '{}' has {} dimensions, {} is none of them", text,
           p.name, rank, d);
  if (d < 0) d += rank;
  std::string name =
      equals == part.npos ? open_name(p, static_cast<size_t>(d)) : part.substr(equals + 1);
  if (name.empty()) name = fmt::format("{}_{}", p.name, d);
  return {i, d, name};
}

/// Those of "x:0=batch,2=height".
void add_asked_dims(const std::string& text, const std::vector<ModelPort>& inputs,
                    std::vector<DynamicDim>& out) {
  const size_t colon = text.rfind(':');
  size_t i = 0;
  if (colon != text.npos) {
    std::vector<std::string> names;
    for (const ModelPort& p : inputs) names.push_back(p.name);
    const std::string name = text.substr(0, colon);
    while (i < names.size() && names[i] != name) ++i;
    const std::string near = i < names.size() ? "" : nearest_word(name, names);
    TD_CHECK(i < names.size(), Value, "there is no input '{}'\n{}The model has {}.", name,
             near.empty() ? "" : "Did you mean '" + near + "'? ", fmt::join(names, ", "));
  } else {
    TD_CHECK(inputs.size() == 1, Value,
             "'{}' does not say of which of the {} inputs\nWrite {}:0=batch, or all, or none.",
             text, inputs.size(), inputs[0].name);
  }
  std::stringstream parts(colon == text.npos ? text : text.substr(colon + 1));
  for (std::string part; std::getline(parts, part, ',');)
    out.push_back(asked_dim(part, text, inputs[i], static_cast<int64_t>(i)));
}

std::vector<DynamicDim> dynamic_dims(const std::vector<std::string>& asked,
                                     const std::vector<ModelPort>& inputs) {
  std::vector<DynamicDim> out;
  const bool all = asked == std::vector<std::string>{"all"};
  if (!all && !asked.empty()) {
    if (asked != std::vector<std::string>{"none"})
      for (const std::string& text : asked) add_asked_dims(text, inputs, out);
    return out;
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t d = 0; d < inputs[i].shape.size(); ++d) {
      const ModelPort& p = inputs[i];
      if (const std::string name = open_name(p, d);
          !name.empty() && (all || d >= p.open.size() || p.open[d].by_default))
        out.emplace_back(static_cast<int64_t>(i), static_cast<int64_t>(d), name);
    }
  return out;
}

}  // namespace

LoadedModel load_any(const ModelSource& source) {
  return is_run(source.model) ? load_run(source.model, source.weights) : load_model(source);
}

onnx::OnnxExportOptions export_options(LoadedModel& model, const OnnxFileOptions& o, bool open) {
  onnx::OnnxExportOptions options;
  options.opset = o.opset;
  if (open) options.dynamic = dynamic_dims(o.dynamic, model.inputs);
  for (ModelPort& p : model.inputs) {
    options.input_names.push_back(p.name);
    for (size_t d = 1; d < p.shape.size(); ++d)
      if (p.shape[d] < 0) p.shape[d] = is_floating(p.dtype) ? 224 : 8;  // images, texts
  }
  for (const ModelPort& p : model.outputs) options.output_names.push_back(p.name);
  set_shapes(model, o.shapes);
  return options;
}

OnnxFile write_onnx(const ModelSource& source, const std::string& out, const OnnxFileOptions& o) {
  LoadedModel model = load_any(source);
  if (model.opened) {
    nn::Module& net = *model.opened->model.module;
    if (quant::fix_rounding(net) > 0) model.state = net.state_dict();
  }
  // The sizes of another file's model may be computed from values: open ones are asked for.
  onnx::OnnxExportOptions options =
      export_options(model, o, !is_graph_file(source.model) || !o.dynamic.empty());
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

OnnxFile write_tflite(const ModelSource& source, const std::string& out, const OnnxFileOptions& o) {
  LoadedModel model = load_any(source);
  const onnx::OnnxExportOptions names = export_options(model, o, false);
  const auto r = onnx::export_tflite_function(
      [&](std::span<const Tensor> x) {
        NoGradGuard no_grad;
        return model.run({x.begin(), x.end()});
      },
      random_inputs(model), out,
      {.input_names = names.input_names, .output_names = names.output_names});
  return {fmt::format("{}: {}", out, r.to_string()), model.random_weights};
}

OnnxFile write_tfjs(const ModelSource& source, const std::string& out, const OnnxFileOptions& o,
                    const std::string& quantize) {
  LoadedModel model = load_any(source);
  const onnx::OnnxExportOptions names = export_options(model, o, false);
  const onnx::TfjsExportOptions options{
      .input_names = names.input_names, .output_names = names.output_names, .quantize = quantize};
  const std::vector<Tensor> examples = random_inputs(model);
  const auto run = [&](std::span<const Tensor> x) {
    NoGradGuard no_grad;
    return model.run({x.begin(), x.end()});
  };
  const auto r = source.model.ends_with(".tflite")
                     ? onnx::export_tfjs_file(source.model, examples, out, options)
                     : onnx::export_tfjs_function(run, examples, out, options);
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
