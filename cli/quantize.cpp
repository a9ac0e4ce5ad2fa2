// SPDX-License-Identifier: Apache-2.0
// `tandem quantize MODEL OUT.onnx`: a model with 8-bit weights and activations. With --weights
// int4 or int8 `tandem quantize MODEL OUT`: a decoder whose weights alone are codes.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/recipe/quantize.h"
#include "tandem/recipe/quantize_weights.h"

namespace tandem::cli {
namespace {

struct QuantizeVerb {
  recipe::ModelSource model;
  recipe::QuantizeFileOptions options;
  std::string out, report, method, activations = "u8";
  double max_loss = 0;
  int64_t group = 128, length = 512, accuracy_level = 0;
  bool per_tensor = false, no_bias = false, asymmetric = false, json = false;
};

// The bits of "int4"; 0: it is a file of weights.
int64_t code_bits(const std::string& weights) {
  for (const int64_t bits : {2, 4, 8})
    if (weights == fmt::format("int{}", bits)) return bits;
  TD_CHECK(!weights.starts_with("int") || std::filesystem::exists(weights), Value,
           "--weights {}: expected int2, int4, int8 or a file of weights", weights);
  return 0;
}

void add_weights_alone(CLI::App& verb, QuantizeVerb& o) {
  verb.add_option("--group", o.group, "Of --weights int4: inputs that share a scale (128)");
  verb.add_option("--accuracy-level", o.accuracy_level,
                  "Of --weights int4, as of ONNX's MatMulNBits: 4 rounds what layers read to int8 "
                  "and multiplies integers, which is faster; 0 (default): floats");
  verb.add_flag("--asymmetric", o.asymmetric, "Of --weights int4: a zero point for each group");
  verb.add_option("--length", o.length,
                  "Of --weights int4: tokens of a window of a text file (512)");
}

void refuse_options_of_weights_alone(const CLI::App& verb) {
  for (const char* name : {"--group", "--accuracy-level", "--asymmetric", "--length"})
    TD_CHECK(verb.count(name) == 0, Value,
             "{} is about a decoder whose weights alone are codes\nGive --weights int2, int4 or "
             "int8, too.",
             name);
}

void quantize_weights_alone(const QuantizeVerb& o, int64_t bits) {
  recipe::QuantizeWeightsOptions w;
  w.method = quant::weight_method_of(o.method.empty() ? "rtn" : o.method);
  w.weights.bits = bits;
  w.weights.group = o.group;
  w.weights.symmetric = !o.asymmetric;
  w.data = o.options.data;
  w.samples = o.options.samples;
  w.evaluated = o.options.evaluated;
  w.length = o.length;
  w.accuracy_level = o.accuracy_level;
  const recipe::QuantizeWeightsReport r = recipe::quantize_weights(o.model.model, o.out, w);
  fmt::print("{}", o.json ? r.to_json().dump(2) + "\n" : r.to_string());
}

void add_calibration(CLI::App& verb, QuantizeVerb& o) {
  verb.add_option(
      "--data", o.options.data,
      "A run's folder, a recipe, or inputs (.npy, .npz, .safetensors; for --weights int4 a text "
      "file); default: the data of the run");
  verb.add_option("--samples", o.options.samples, "Samples to calibrate with (256)");
  verb.add_option("--evaluate", o.options.evaluated, "Samples to evaluate with; 0: all");
  verb.add_option(
      "--method", o.method,
      "min-max, moving-average, percentile (default), entropy or mse; dynamic: each call rounds "
      "the inputs of linear layers over their own range, which needs no data; of --weights int4: "
      "rtn (default), gptq or awq");
  verb.add_option("--percentile", o.options.quant.percent,
                  "Of the method percentile: 99.9, 99.99 (default), 99.999");
}

void add_rounding(CLI::App& verb, QuantizeVerb& o) {
  verb.add_option("--activations", o.activations,
                  "Codes of activations: u8 (default), i8, or i16 (then --method is min-max unless "
                  "given)")
      ->check(CLI::IsMember({"u8", "i8", "i16"}));
  verb.add_flag("--per-tensor", o.per_tensor, "One scale for a weight, not one for each output");
  verb.add_flag("--equalise", o.options.quant.equalise,
                "Scale channels between layers to equal ranges first");
  verb.add_option(
      "--smooth", o.options.quant.smooth,
      "SmoothQuant: move large values of inputs of linear layers into their weights, by "
      "this share, as 0.5");
  verb.add_option(
      "--adaround", o.options.quant.adaround,
      "AdaRound: learn which weights to round up, in this number of steps for a layer, as "
      "1000");
  verb.add_option("--weight-bits", o.options.quant.weight_bits,
                  "Bits of a weight's codes: 8 (default) or down to 2");
  verb.add_flag("--no-bias-correction", o.no_bias, "Leave mean errors of layers in their results");
  verb.add_flag("--outputs", o.options.quant.outputs, "Round the model's outputs, too");
  verb.add_option("--keep-float", o.options.quant.keep_float,
                  "A layer that stays in floating point, by its name in the table; may be given "
                  "several times")
      ->allow_extra_args(false);
}

}  // namespace

void add_quantize(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "quantize",
      "A model with 8-bit weights and activations, as a QDQ ONNX file; with --weights int4 or int8 "
      "a decoder\nwhose weights alone are codes, as a Hugging Face folder in GPTQ's format\n\n"
      "  tandem quantize runs/mnist-lenet5 lenet-int8.onnx --max-loss 0.3\n"
      "  tandem quantize resnet18.onnx resnet18-int8.onnx --data images.npy --method entropy\n"
      "  tandem quantize net.onnx net-int8.onnx --data recipes/digits-cnn.yaml\n"
      "  tandem quantize Qwen3-0.6B qwen-int4 --weights int4 --method gptq --data text.txt\n\n"
      "Exit code 3 where no choice of layers meets --max-loss");
  auto o = std::make_shared<QuantizeVerb>();
  verb->add_option("model", o->model.model,
                   "A run's folder, an ONNX file, a model's name or a Hugging Face folder")
      ->required();
  verb->add_option("out", o->out, "The ONNX file to write; with --weights int4 the folder")
      ->required();
  add_calibration(*verb, *o);
  add_rounding(*verb, *o);
  add_weights_alone(*verb, *o);
  CLI::Option* loss = verb->add_option(
      "--max-loss", o->max_loss,
      "Points of accuracy that may be lost; the worst layers stay in floating point until then");
  verb->add_option(
      "--report", o->report,
      "Write the report as an HTML page, too: accuracy with each layer quantised alone, "
      "histograms with the chosen ranges");
  verb->add_flag("--json", o->json, "The report as JSON");
  add_model_options(*verb, o->model);
  add_onnx_options(*verb, o->options.onnx);
  verb->callback([&code, o, loss, verb] {
    init();
    if (const int64_t bits = code_bits(o->model.weights)) return quantize_weights_alone(*o, bits);
    refuse_options_of_weights_alone(*verb);
    o->options.quant.dynamic = o->method == "dynamic";
    if (!o->method.empty() && !o->options.quant.dynamic)
      o->options.quant.method = quant::method_of(o->method);
    const bool wide = o->activations == "i16";
    if (wide && o->method.empty()) o->options.quant.method = quant::Method::min_max;
    o->options.quant.activations = wide                     ? DType::i16
                                   : o->activations == "i8" ? DType::i8
                                                            : DType::u8;
    o->options.quant.per_channel = !o->per_tensor;
    o->options.quant.correct_bias = !o->no_bias;
    if (loss->count() > 0) o->options.max_loss = o->max_loss;
    o->options.page = !o->report.empty();
    const recipe::QuantizeReport r = recipe::quantize_file(o->model, o->out, o->options);
    if (!o->report.empty()) write_file(o->report, r.html());
    fmt::print("{}", o->json ? r.to_json().dump(2) + "\n" : r.to_string());
    code = r.met ? 0 : 3;
  });
}

}  // namespace tandem::cli
