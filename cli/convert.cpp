// SPDX-License-Identifier: Apache-2.0
// `tandem convert IN OUT`: weights from one format to another, or a model to ONNX, checked by
// reading them back.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/interop/weights.h"
#include "tandem/tandem.h"

namespace tandem::cli {

DType dtype_named(const std::string& name) {
#define X(short_name, type, text) \
  if (name == #short_name || name == text) return DType::short_name;
  TD_FOR_EACH_DTYPE(X)
#undef X
  TD_FAIL(Value, "there is no dtype '{}'\nTry float32, float16 or bfloat16.", name);
}

namespace {

struct Options {
  ModelArguments model;
  std::string out, dtype;
  OnnxArguments onnx;
};

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
  add_onnx_options(*verb, o->onnx);
  add_model_options(*verb, o->model);
  verb->callback([&code, o] {
    init();
    code = 0;
    if (is_onnx(o->out)) {
      TD_CHECK(is_run(o->model.model) || is_model(o->model.model), Value,
               "'{}' is no model, only weights\nName the model and give them with --weights.",
               o->model.model);
      return write_onnx(o->model, o->out, o->onnx);
    }
    // A run's folder stands for its weights.
    const std::string& in = o->model.model;
    StateDict tensors = is_run(in) ? run_state(in) : interop::load_weights(in);
    if (!o->dtype.empty()) {
      const DType to = dtype_named(o->dtype);
      StateDict cast;
      for (const auto& [name, t] : tensors) cast[name] = is_floating(t.dtype()) ? t.to(to) : t;
      tensors = std::move(cast);
    }
    write_weights(tensors, o->out);
  });
}

}  // namespace tandem::cli
