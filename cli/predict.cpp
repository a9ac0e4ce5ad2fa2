// SPDX-License-Identifier: Apache-2.0
// `tandem predict MODEL --input x.npy|picture`: runs a model by name, or an ONNX file, on one
// input.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "cli/commands_internal.h"
#include "cli/model_internal.h"
#include "tandem/interop/weights.h"
#include "tandem/io/image.h"

namespace tandem::cli {
namespace {

struct PredictOptions {
  ModelArguments model;
  std::string input, output;
  int top = 5, threads = 0;
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

/// A picture for a recipe's model: of its channels and size, 0..1.
Tensor plain_picture(const std::string& path, const std::vector<int64_t>& sample) {
  TD_CHECK(sample[0] == 1 || sample[0] == 3, Value,
           "this model takes {} channels, pictures have 1 or 3\nGive an .npy file.", sample[0]);
  const Tensor x =
      io::read_image(path, {.mode = sample[0] == 1 ? io::ImageMode::gray : io::ImageMode::rgb});
  return interpolate(x.to(float32).unsqueeze(0), {.size = {sample[1], sample[2]},
                                                  .mode = "bilinear",
                                                  .align_corners = false,
                                                  .antialias = true}) /
         255;
}

/// The model's inputs from one file: an array or a picture for the only one, or arrays by name.
std::vector<Tensor> read_inputs(const std::string& path, const LoadedModel& model) {
  const ModelPort& first = model.inputs.at(0);
  if (path.ends_with(".npz") || path.ends_with(".safetensors") || path.ends_with(".npy"))
    return file_inputs(path, model);
  TD_CHECK(first.shape.size() == 4, Value, "the model does not take pictures\nGive an .npy file.");
  const std::vector<int64_t> sample(first.shape.begin() + 1, first.shape.end());
  return {(model.from_run ? plain_picture(path, sample) : picture(path, sample)).to(first.dtype)};
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
      "  tandem predict runs/digits-mlp --weights best --input x.npy");
  auto o = std::make_shared<PredictOptions>();
  verb->add_option("model", o->model.model,
                   "A model's name, a Hugging Face folder, an ONNX file, or a run's folder")
      ->required();
  verb->add_option("--input", o->input, ".npy, .npz (arrays by name), JPEG or PNG")->required();
  verb->add_option("--output", o->output, "Write the outputs here by name (.npz, .safetensors)");
  verb->add_option("--top", o->top, "Show this many classes");
  verb->add_flag("--bf16", o->bf16, "Products and convolutions in bf16, as under AutocastGuard");
  verb->add_option("--threads", o->threads, "Threads; 0: all cores");
  add_model_options(*verb, o->model);
  verb->callback([&code, o] {
    init();
    if (o->threads > 0) set_num_threads(o->threads);
    const LoadedModel model =
        is_run(o->model.model) ? load_run(o->model.model, o->model.weights) : load_model(o->model);
    if (model.random_weights)
      fmt::print(stderr, "no --weights: the values are the initial ones, drawn at random\n");
    NoGradGuard no_grad;
    const AutocastGuard autocast(DType::bf16, o->bf16);
    const std::vector<Tensor> inputs = read_inputs(o->input, model);
    auto forward = compile([&](const std::vector<Tensor>& in) { return model.run(in); });
    const std::vector<Tensor> outputs = forward(inputs);
    if (!o->output.empty()) {
      StateDict named;
      for (size_t i = 0; i < outputs.size(); ++i) {
        named[model.outputs.at(i).name] = outputs[i];
        fmt::print("{}: {} {} {}\n", o->output, model.outputs[i].name,
                   to_string(outputs[i].dtype()), shape_text(outputs[i].shape()));
      }
      interop::save_weights(named, o->output);
    } else {
      const Tensor& y = outputs.at(0);
      TD_CHECK(y.dim() == 2, Value, "the result has the shape {}\nWrite it with --output y.npz.",
               y.shape().to_string());
      print_top(y.to(float32), o->top);
    }
    code = 0;
  });
}

}  // namespace tandem::cli
