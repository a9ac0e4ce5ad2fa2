// SPDX-License-Identifier: Apache-2.0
// `tandem predict MODEL --input FILE`: what a run's model, a model by name or an ONNX file answers.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/recipe/open_run.h"
#include "tandem/recipe/predictor.h"
#include "tandem/recipe/sample_files.h"
#include "tandem/weights/weights.h"

namespace tandem::cli {
namespace {

struct PredictOptions {
  recipe::ModelSource model;
  std::string input, text, output, device = "cpu";
  int top = 0, threads = 0;
  double score = 0.3;
  bool bf16 = false;
};

/// What a model answers a text or a file with, or without either if it takes nothing.
recipe::Prediction ask(recipe::Predictor& predictor, bool takes_nothing, const PredictOptions& o) {
  if (takes_nothing && o.input.empty() && o.text.empty()) return predictor.arrays({});
  TD_CHECK(o.input.empty() != o.text.empty(), Value,
           "give the input once\nGive --input FILE or --text TEXT.");
  return o.text.empty() ? predictor.file(o.input) : predictor.text(o.text);
}

/// A mask or a drawing as a PNG file.
void write_image(const recipe::Prediction& p, const std::string& file) {
  TD_CHECK(p.image.defined(), Value,
           "'{}': the result {} is not an image\nWrite it as .npz or .safetensors.", file,
           p.outputs.at(0).second.shape().to_string());
  io::save_png(p.image, file);
  fmt::print("{}: {} x {} (h, w)\n", file, p.image.size(-2), p.image.size(-1));
}

/// The outputs by their names; the only one may be an array by itself.
void write_outputs(const recipe::Prediction& p, const std::string& file) {
  if (file.ends_with(".npy")) {
    TD_CHECK(p.outputs.size() == 1, Value, "'{}': there are {} outputs\nWrite them as .npz.", file,
             p.outputs.size());
    io::save_npy(p.outputs[0].second, file);
  } else {
    StateDict named;
    for (const auto& [name, y] : p.outputs) named[name] = y;
    weights::save_weights(named, file);
  }
  for (const auto& [name, y] : p.outputs)
    fmt::print("{}: {} {} {}\n", file, name, to_string(y.dtype()), recipe::shape_text(y.shape()));
}

void print(const recipe::Prediction& p, int top) {
  using Kind = recipe::PredictionKind;
  if (!p.note.empty()) fmt::print(stderr, "{}\n", p.note);
  TD_CHECK(p.kind != Kind::arrays && p.kind != Kind::image, Value,
           "the result has the shape {}\nWrite it with --output y.npz{}.",
           p.outputs.at(0).second.shape().to_string(),
           p.kind == Kind::image ? " or image.png" : "");
  fmt::print("{}", p.to_string(top));
}

}  // namespace

void add_predict(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "predict",
      "Run a model on an input\n\n"
      "  tandem predict runs/mnist-lenet5 --input digit.png\n"
      "  tandem predict runs/trec-cnn --text \"Who wrote Hamlet ?\"\n"
      "  tandem predict runs/adult-mlp --input people.csv\n"
      "  tandem predict runs/fsdd-cnn --input seven.wav\n"
      "  tandem predict runs/membrane-unet --input cells.png --output mask.png\n"
      "  tandem predict runs/bccd-detector --input blood.jpg --score 0.5\n"
      "  tandem predict runs/digits-mlp --weights best --input x.npy\n"
      "  tandem predict resnet50 --weights resnet50.pth --input cat.jpg --output y.npz\n\n"
      "The model of a run sees a file as it saw those of its test set; arrays are taken as they "
      "are");
  auto o = std::make_shared<PredictOptions>();
  verb->add_option("model", o->model.model,
                   "A model's name, a Hugging Face folder, an ONNX file, or a run's folder")
      ->required();
  verb->add_option("--input", o->input,
                   "JPEG, PNG, WAV, FLAC, CSV or text, as the run's data has it; arrays: .npy, or "
                   ".npz by name");
  verb->add_option("--text", o->text, "A text in place of a file; of tables a row of CSV");
  verb->add_option(
      "--output", o->output,
      "Write the outputs here by name (.npz, .safetensors; one alone: .npy); a mask or a drawing: "
      ".png");
  verb->add_option("--top", o->top, "Show this many classes (5), or boxes (all)");
  verb->add_option("--score", o->score, "Of boxes: the least that is shown (0.3)");
  verb->add_flag("--bf16", o->bf16, "Matmuls and convolutions in bf16, as under AutocastGuard");
  verb->add_option("--threads", o->threads, "Threads; 0: all cores");
  add_device_option(*verb, o->device);
  add_model_options(*verb, o->model);
  verb->callback([&code, o] {
    init();
    if (o->threads > 0) set_num_threads(o->threads);
    o->model.device = device_named(o->device);
    recipe::LoadedModel model =
        recipe::is_run(o->model.model)
            ? recipe::load_run(o->model.model, o->model.weights, o->model.device)
            : recipe::load_model(o->model);
    if (model.random_weights)
      fmt::print(stderr, "no --weights: the values are the initial ones, drawn at random\n");
    warn_of_unused(model);
    const bool takes_nothing = model.inputs.empty();
    recipe::Predictor predictor(std::move(model), {.bf16 = o->bf16, .score = o->score});
    const recipe::Prediction p = ask(predictor, takes_nothing, *o);
    if (const std::string note = predictor.note(); !note.empty()) fmt::print(stderr, "{}\n", note);
    if (recipe::is_png(o->output))
      write_image(p, o->output);
    else if (!o->output.empty())
      write_outputs(p, o->output);
    else
      print(p, o->top);
    code = 0;
  });
}

}  // namespace tandem::cli
