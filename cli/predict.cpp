// SPDX-License-Identifier: Apache-2.0
// `tandem predict MODEL --input x.npy|picture`: runs a model by name, or an ONNX file, on one
// input.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "cli/recipe_internal.h"
#include "cli/sample_files.h"
#include "tandem/interop/weights.h"
#include "tandem/io/image.h"

namespace tandem::cli {
namespace {

struct PredictOptions {
  ModelArguments model;
  std::string input, output;
  int top = 5, threads = 0;
  double score = 0.3;
  bool bf16 = false;
};

/// A picture as torchvision's evaluation prepares it: the shorter side resized to 8/7 of the
/// model's size (256 for 224), the middle cut out, scaled by ImageNet's means and deviations.
Tensor picture(const std::string& path, const std::vector<int64_t>& sample) {
  TD_CHECK(sample[0] == 3, Value,
           "this model takes {} channels, pictures have 3\nGive an .npy file.", sample[0]);
  const int64_t size = sample[1], shorter = size * 8 / 7;
  Tensor x = io::read_image(path).to(float32).unsqueeze(0);
  const int64_t h = x.size(2), w = x.size(3), least = std::min(h, w);
  x = interpolate(
      x, {.size = {std::max(h * shorter / least, size), std::max(w * shorter / least, size)},
          .mode = "bilinear",
          .align_corners = false,
          .antialias = true});
  x = x.narrow(2, (x.size(2) - size) / 2, size).narrow(3, (x.size(3) - size) / 2, size);
  const Tensor mean = tensor({0.485f, 0.456f, 0.406f}).reshape({1, 3, 1, 1});
  const Tensor deviation = tensor({0.229f, 0.224f, 0.225f}).reshape({1, 3, 1, 1});
  return (x / 255 - mean) / deviation;
}

// A run's model is called as its evaluation calls it, which gives the same bits.
bool runs_compiled(const LoadedModel& model) {
  const io::Yaml* trainer = model.opened ? model.opened->recipe.root.find("trainer") : nullptr;
  return train::Options(trainer, "trainer", "").flag("compile", true);
}

struct Inputs {
  std::vector<Tensor> tensors;
  /// Of a picture: where it comes from in the file, if that is known.
  std::optional<train::PreparedPicture> prepared = {};
};

/// The model's inputs from one file: an array or a picture for the only one, or arrays by name. A
/// run's model gets a picture as its test set's pictures are.
Inputs read_inputs(const std::string& path, const LoadedModel& model) {
  const ModelPort& first = model.inputs.at(0);
  if (path.ends_with(".npz") || path.ends_with(".safetensors") || path.ends_with(".npy"))
    return {file_inputs(path, model)};
  TD_CHECK(first.shape.size() == 4, Value, "the model does not take pictures\nGive an .npy file.");
  if (model.opened) {
    const train::PreparedPicture p = picture_preparation(*model.opened)(path);
    // A batch of one, in one piece of memory: kernels depend on how a tensor lies there.
    return {{stack({p.x}).contiguous().to(first.dtype)}, p};
  }
  const std::vector<int64_t> sample(first.shape.begin() + 1, first.shape.end());
  return {{picture(path, sample).to(first.dtype)}};
}

/// Boxes in pixels of the file's picture, where they lead back to it.
void print_boxes(const Tensor& y, const OpenedRun& run, const Inputs& in, double score, int most) {
  for (int64_t n = 0; n < y.size(0); ++n) {
    const train::FoundBoxes found = run.model.boxes(y.narrow(0, n, 1), score);
    const auto boxes = found.boxes.to_vector<float>(), scores = found.scores.to_vector<float>();
    const auto labels = found.labels.to_vector<int64_t>();
    const std::string row = y.size(0) > 1 ? fmt::format("{:<4}", n) : "";
    std::array<double, 4> from{1, 0, 1, 0};
    if (in.prepared && in.prepared->origin)
      from = *in.prepared->origin;
    else if (in.prepared)
      fmt::print(stderr, "pixels are those of the picture as it was prepared, {} x {} (h, w)\n",
                 in.prepared->x.size(1), in.prepared->x.size(2));
    if (scores.empty()) fmt::print("{}no box has a score of {} or more\n", row, score);
    for (size_t k = 0; k < scores.size() && (most == 0 || k < static_cast<size_t>(most)); ++k) {
      const auto label = static_cast<size_t>(labels[k]);
      const std::vector<std::string>& names = run.data.facts.classes;
      fmt::print("{}{:<12} {:.4f}", row,
                 label < names.size() ? names[label] : std::to_string(label), scores[k]);
      for (size_t c = 0; c < 4; ++c)
        fmt::print(" {:8.1f}", boxes[4 * k + c] * from[c % 2 * 2] + from[c % 2 * 2 + 1]);
      fmt::print("\n");
    }
  }
}

/// A mask or a drawing as a PNG file.
void write_picture(const Tensor& y, const LoadedModel& model, const std::string& file) {
  TD_CHECK(model.opened && model.opened->model.picture && y.size(0) == 1, Value,
           "'{}': the result {} is no picture\nWrite it as .npz or .safetensors.", file,
           y.shape().to_string());
  const Tensor drawn = model.opened->model.picture(y);
  write_file(file, io::encode_png(drawn));
  fmt::print("{}: {} x {} (h, w)\n", file, drawn.size(-2), drawn.size(-1));
}

void print_top(const Tensor& y, int top) {
  const Tensor p = softmax(y, 1);
  for (int64_t n = 0; n < y.size(0); ++n) {
    const auto [values, places] = topk(p.select(0, n), std::min<int64_t>(top, y.size(1)));
    for (int64_t i = 0; i < values.size(0); ++i)
      fmt::print("{}{:<6} {:.4f}\n", y.size(0) > 1 ? fmt::format("{:<4}", n) : "",
                 places.select(0, i).item<int64_t>(), values.select(0, i).item<float>());
  }
}

}  // namespace

void add_predict(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "predict",
      "Run a model on an input\n\n"
      "  tandem predict resnet50 --weights resnet50.pth --input cat.jpg\n"
      "  tandem predict resnet50 --weights resnet50.pth --input x.npy --output y.npz\n"
      "  tandem predict runs/digits-mlp --input x.npy\n"
      "  tandem predict runs/digits-mlp --weights best --input x.npy\n"
      "  tandem predict runs/mnist-lenet5 --input digit.png\n"
      "  tandem predict runs/membrane-unet --input cells.png --output mask.png\n"
      "  tandem predict runs/bccd-detector --input blood.jpg --score 0.5\n\n"
      "A run's model sees a picture as it saw those of its test set; arrays are taken as they are");
  auto o = std::make_shared<PredictOptions>();
  verb->add_option("model", o->model.model,
                   "A model's name, a Hugging Face folder, an ONNX file, or a run's folder")
      ->required();
  verb->add_option("--input", o->input, ".npy, .npz (arrays by name), JPEG or PNG")->required();
  verb->add_option(
      "--output", o->output,
      "Write the outputs here by name (.npz, .safetensors); a mask or a drawing: .png");
  CLI::Option* top =
      verb->add_option("--top", o->top, "Show this many classes (5), or boxes (all)");
  verb->add_option("--score", o->score, "Of boxes: the least that is shown (0.3)");
  verb->add_flag("--bf16", o->bf16, "Products and convolutions in bf16, as under AutocastGuard");
  verb->add_option("--threads", o->threads, "Threads; 0: all cores");
  add_model_options(*verb, o->model);
  verb->callback([&code, o, top] {
    init();
    if (o->threads > 0) set_num_threads(o->threads);
    const LoadedModel model =
        is_run(o->model.model) ? load_run(o->model.model, o->model.weights) : load_model(o->model);
    if (model.random_weights)
      fmt::print(stderr, "no --weights: the values are the initial ones, drawn at random\n");
    NoGradGuard no_grad;
    const AutocastGuard autocast(DType::bf16, o->bf16);
    const Inputs inputs = read_inputs(o->input, model);
    auto forward = compile([&](const std::vector<Tensor>& in) { return model.run(in); });
    const std::vector<Tensor> outputs =
        runs_compiled(model) ? forward(inputs.tensors) : model.run(inputs.tensors);
    const bool boxes = model.opened && model.opened->model.boxes;
    if (is_png(o->output)) {
      write_picture(outputs.at(0), model, o->output);
    } else if (!o->output.empty()) {
      StateDict named;
      for (size_t i = 0; i < outputs.size(); ++i) {
        named[model.outputs.at(i).name] = outputs[i];
        fmt::print("{}: {} {} {}\n", o->output, model.outputs[i].name,
                   to_string(outputs[i].dtype()), shape_text(outputs[i].shape()));
      }
      interop::save_weights(named, o->output);
    } else if (boxes) {
      print_boxes(outputs.at(0), *model.opened, inputs, o->score, top->count() > 0 ? o->top : 0);
    } else {
      const Tensor& y = outputs.at(0);
      TD_CHECK(y.dim() == 2, Value, "the result has the shape {}\nWrite it with --output y.npz{}.",
               y.shape().to_string(),
               model.opened && model.opened->model.picture ? " or picture.png" : "");
      print_top(y.to(float32), o->top);
    }
    code = 0;
  });
}

}  // namespace tandem::cli
