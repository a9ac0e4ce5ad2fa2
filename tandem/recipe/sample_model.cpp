// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/sample_model.h"

#include <algorithm>

#include "tandem/io/image.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/open_run.h"

namespace tandem::recipe {
namespace {

/// As torchvision's evaluation prepares images of ImageNet.
Preparation imagenet_images(const LoadedModel& model) {
  TD_CHECK(model.inputs.size() == 1 && model.inputs[0].shape.size() == 4, Value,
           "the model does not take images\nGive an .npy or .npz file.");
  const std::vector<int64_t>& shape = model.inputs[0].shape;
  const bool last = shape[3] == 3 && shape[1] != 3;  // where the channels are
  const int64_t channels = shape[last ? 3 : 1], size = shape[last ? 1 : 2], shorter = size * 8 / 7;
  TD_CHECK(size > 0 && shape[last ? 2 : 3] > 0, Value,
           "the model takes images of any size\nGive --image-size.");
  TD_CHECK(channels == 3 || channels < 0, Value,
           "this model takes {} channels, images have 3\nGive an .npy file.", channels);
  auto inputs = [=, dtype = model.inputs[0].dtype](const Tensor& image) {
    Tensor x = image.to(float32).unsqueeze(0);
    const int64_t h = x.size(2), w = x.size(3), least = std::min(h, w);
    const int64_t high = std::max(h * shorter / least, size),
                  wide = std::max(w * shorter / least, size);
    if (high != h || wide != w)
      x = interpolate(
          x, {.size = {high, wide}, .mode = "bilinear", .align_corners = false, .antialias = true});
    x = x.narrow(2, (high - size) / 2, size).narrow(3, (wide - size) / 2, size);
    const Tensor mean = tensor({0.485f, 0.456f, 0.406f}).reshape({1, 3, 1, 1});
    const Tensor deviation = tensor({0.229f, 0.224f, 0.225f}).reshape({1, 3, 1, 1});
    x = (x / 255 - mean) / deviation;
    return std::vector<Tensor>{(last ? x.permute({0, 2, 3, 1}).contiguous() : x).to(dtype)};
  };
  return {SampleKind::image,
          [inputs](std::string_view bytes, const std::string& name) {
            return PreparedBatch{inputs(io::decode_image(bytes, {}, name))};
          },
          inputs,
          {DType::u8, {3, shorter, shorter}}};
}

}  // namespace

Preparation preparation_of(const LoadedModel& model) {
  if (!model.opened) return imagenet_images(model);
  std::optional<Preparation> own = preparation_of(*model.opened);
  TD_CHECK(own, Unsupported,
           "the run's data is of type '{}', whose samples are not images\nGive an .npy file.",
           data_type(*model.opened));
  return *std::move(own);
}

SampleModel with_preparation(LoadedModel model, const std::string& shapes) {
  const Preparation prepared = preparation_of(model);
  TD_CHECK(prepared.inputs, Unsupported,
           "the model's samples are texts or rows of a table, which are no tensors");
  SampleModel out{.form = prepared.form};
  std::function<std::vector<Tensor>(const Tensor&)> candidates;
  if (model.opened) candidates = model.opened->model.candidates;
  out.model.run = [inner = model.run, ports = model.inputs, inputs = prepared.inputs,
                   candidates](const std::vector<Tensor>& samples) {
    std::vector<Tensor> x = inputs(samples.at(0));
    TD_CHECK(x.size() == ports.size(), Internal, "{} inputs were prepared of {}", x.size(),
             ports.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = x[i].to(ports[i].dtype);
    std::vector<Tensor> y = inner(x);
    return candidates ? candidates(y.at(0)) : y;
  };
  const char* name = prepared.kind == SampleKind::sound ? "sound" : "image";
  out.model.inputs = {{.name = name, .dtype = out.form.dtype, .shape = out.form.shape}};
  out.model.outputs = model.outputs;
  if (candidates) out.model.outputs = {{.name = "boxes"}, {.name = "scores"}};
  const bool open =
      std::any_of(out.form.shape.begin(), out.form.shape.end(), [](int64_t n) { return n < 0; });
  TD_CHECK(!open || !shapes.empty(), Value,
           "the model takes images of any size\nName one, as --shapes image:{}x240x320.",
           out.form.shape.at(0));
  if (!shapes.empty()) set_shapes(out.model, shapes);
  out.form.shape = out.model.inputs[0].shape;
  out.model.state = std::move(model.state);
  out.model.labels = std::move(model.labels);
  out.model.device = model.device;
  out.model.random_weights = model.random_weights;
  out.model.opened = std::move(model.opened);
  return out;
}

}  // namespace tandem::recipe
