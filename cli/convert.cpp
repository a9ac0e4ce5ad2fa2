// SPDX-License-Identifier: Apache-2.0
// `tandem convert IN OUT`: weights from one format to another (those of an ONNX file, too), or a
// model to ONNX, TFLite or TensorFlow.js, checked by reading them back.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/onnx/summary.h"
#include "tandem/recipe/open_run.h"
#include "tandem/tandem.h"
#include "tandem/tensor/dtype_name.h"
#include "tandem/weights/weights.h"

namespace tandem::cli {

namespace {

struct Options {
  recipe::ModelSource model;
  std::string out, dtype, quantize;
  recipe::OnnxFileOptions onnx;
};

}  // namespace

void add_convert(CLI::App& app, int& code) {
  CLI::App* verb =
      app.add_subcommand("convert",
                         "Weights from one format to another, or a model to ONNX, TFLite or "
                         "TensorFlow.js\n\n"
                         "  tandem convert resnet50.pth resnet50.safetensors\n"
                         "  tandem convert folder model.npz --dtype float16\n"
                         "  tandem convert net.onnx weights.safetensors\n"
                         "  tandem convert resnet50 --weights w.pth resnet50.onnx\n"
                         "  tandem convert folder folder/model.onnx\n"
                         "  tandem convert net.onnx net.tflite\n"
                         "  tandem convert net.onnx web/model.json --quantize uint8");
  auto o = std::make_shared<Options>();
  verb->add_option("in", o->model.model,
                   ".safetensors, index.json, .pth, .pt, .bin, .npz, a folder, or a run's; for "
                   "ONNX a model's name, a Hugging Face folder or an ONNX file")
      ->required();
  verb->add_option(
          "out", o->out,
          ".safetensors, .pth, .pt, .bin, .npz, .onnx, .tflite, or .json for TensorFlow.js")
      ->required();
  verb->add_option("--dtype", o->dtype, "Cast floating tensors to this");
  verb->add_option("--quantize", o->quantize,
                   "Weights of a TensorFlow.js model: float16, uint8 or uint16");
  add_onnx_options(*verb, o->onnx);
  add_model_options(*verb, o->model);
  verb->callback([&code, o] {
    init();
    code = 0;
    const bool tflite = o->out.ends_with(".tflite"), tfjs = o->out.ends_with(".json");
    TD_CHECK(o->quantize.empty() || tfjs, Value,
             "--quantize is for models of TensorFlow.js (.json)\n`tandem quantize` makes networks "
             "of 8-bit codes.");
    if (recipe::is_onnx(o->out) || tflite || tfjs) {
      TD_CHECK(recipe::is_run(o->model.model) || recipe::is_model(o->model.model), Value,
               "'{}' is not a model, only weights\nName the model and give them with --weights.",
               o->model.model);
      TD_CHECK(o->dtype.empty(), Value, "--dtype is for files of weights, '{}' is a model{}",
               o->out,
               tfjs ? "\n--quantize says what the weights of a TensorFlow.js model are stored as: "
                      "float16, uint8 or uint16."
                    : "");
      return print_written(tfjs     ? recipe::write_tfjs(o->model, o->out, o->onnx, o->quantize)
                           : tflite ? recipe::write_tflite(o->model, o->out, o->onnx)
                                    : recipe::write_onnx(o->model, o->out, o->onnx));
    }
    // A run's folder stands for its weights.
    const std::string& in = o->model.model;
    StateDict tensors = recipe::is_run(in)    ? recipe::run_state(in)
                        : recipe::is_onnx(in) ? onnx::weights_of(onnx::OnnxModel::load(in))
                                              : weights::load_weights(in);
    TD_CHECK(!tensors.empty(), Value, "'{}' holds no weights", in);
    if (!o->dtype.empty()) {
      const DType to = dtype_named(o->dtype);
      StateDict cast;
      for (const auto& [name, t] : tensors) cast[name] = is_floating(t.dtype()) ? t.to(to) : t;
      tensors = std::move(cast);
    }
    write_and_print(tensors, o->out);
  });
}

}  // namespace tandem::cli
