// SPDX-License-Identifier: Apache-2.0
// Metrics of trained models over a test set that are not sums over its batches.
#include <algorithm>
#include <array>
#include <cmath>

#include "tandem/graph/context.h"
#include "tandem/models/vision/lenet.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tandem/recipe/components/components_internal.h"

namespace tandem::recipe {
namespace {

/// Calls f on each batch of one plain pass.
template <class F>
void each_batch(data::AnyPipeline& all, F&& f) {
  all.set_epoch(0);
  all.begin_pass();
  for (train::Batch b; all.next(b);) f(b);
}

/// Mean over the classes of the variance of each pixel among the images of a class.
double variety(const Tensor& x, const Tensor& y, int64_t classes) {
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) {
    const Tensor own = index_select(x, 0, nonzero(y == c).flatten());
    if (own.size(0) > 1) sum += own.var({0}).mean().item<double>();
  }
  return sum / static_cast<double>(classes);
}

using Box = std::array<float, 4>;
struct FoundBox {
  float score;
  size_t image;
  Box box;
};
Box box_at(const std::vector<float>& v, size_t i) {
  return {v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]};
}

// Intersection over union.
float overlap(const Box& a, const Box& b) {
  const float w = std::min(a[2], b[2]) - std::max(a[0], b[0]);
  const float h = std::min(a[3], b[3]) - std::max(a[1], b[1]);
  if (w <= 0 || h <= 0) return 0;
  const float both = w * h;
  return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both);
}

// Boxes of one class, found ones and those of each image.
struct ClassBoxes {
  std::vector<FoundBox> found;
  std::vector<std::vector<Box>> real;
};

// Average precision by Pascal VOC's rule: the best overlapping box counts, once; a second one is
// wrong.
double average_precision(ClassBoxes& boxes) {
  size_t wanted = 0;
  std::vector<std::vector<char>> taken;
  for (const std::vector<Box>& image : boxes.real) {
    wanted += image.size();
    taken.emplace_back(image.size());
  }
  std::stable_sort(boxes.found.begin(), boxes.found.end(),
                   [](const FoundBox& a, const FoundBox& b) { return a.score > b.score; });
  std::vector<double> precision, recall;
  double hits = 0;
  for (size_t k = 0; k < boxes.found.size(); ++k) {
    const FoundBox& f = boxes.found[k];
    size_t best = 0;
    float most = 0;
    for (size_t j = 0; j < boxes.real[f.image].size(); ++j)
      if (const float v = overlap(f.box, boxes.real[f.image][j]); v > most) {
        most = v;
        best = j;
      }
    if (most >= 0.5F && !taken[f.image][best]) {
      taken[f.image][best] = 1;
      ++hits;
    }
    precision.push_back(hits / static_cast<double>(k + 1));
    recall.push_back(hits / static_cast<double>(std::max<size_t>(wanted, 1)));
  }
  // The area under the curve, made falling.
  double area = 0;
  for (size_t k = precision.size(); k-- > 1;)
    precision[k - 1] = std::max(precision[k - 1], precision[k]);
  for (size_t k = 0; k < precision.size(); ++k)
    area += precision[k] * (recall[k] - (k > 0 ? recall[k - 1] : 0));
  return area;
}

}  // namespace

namespace {

/// A LeNet that has learned a test set, and the set.
struct ImageReader {
  models::LeNet net;
  Tensor x, y;
  ImageReader(data::AnyPipeline& test, int64_t classes, int64_t channels)
      : net(models::LeNetOptions{.num_classes = classes, .in_channels = channels}) {
    optim::Adam opt(net.parameters(), {.lr = 2e-3});
    std::vector<Tensor> xs, ys;
    for (int epoch = 0; epoch < 4; ++epoch)
      each_batch(test, [&](const train::Batch& b) {
        for (int64_t at = 0; at < b[0].size(0); at += 64) {
          const int64_t n = std::min<int64_t>(64, b[0].size(0) - at);
          opt.zero_grad();
          cross_entropy(net(narrow(b[0], 0, at, n)), narrow(b[1], 0, at, n)).backward();
          opt.step();
        }
        if (epoch == 0) {
          xs.push_back(b[0]);
          ys.push_back(b[1]);
        }
      });
    net.eval();
    x = cat(xs, 0);
    y = cat(ys, 0);
  }
};

}  // namespace

train::Logs evaluate_digits(models::DDPM& net, data::AnyPipeline test, int64_t samples,
                            int64_t sampler_steps) {
  const int64_t classes = net.options().classes;
  ImageReader reader(test, classes, 1);
  NoGradGuard no_grad;
  std::vector<Tensor> drawn, asked;
  int64_t right = 0;
  for (int64_t at = 0; at < samples; at += 100) {
    const Tensor y = remainder(arange(at, std::min(at + 100, samples)), classes);
    const Tensor x = net.sample(y, sampler_steps);
    right += (reader.net(x).argmax(1) == y).sum().item<int64_t>();
    drawn.push_back(x);
    asked.push_back(y);
  }
  const double real = variety(reader.x, reader.y, classes);
  return {{"recognised", static_cast<double>(right) / static_cast<double>(samples)},
          {"variety", variety(cat(drawn, 0), cat(asked, 0), classes) / real}};
}

train::Logs evaluate_drawn(const std::function<Tensor(int64_t n)>& sample, data::AnyPipeline test,
                           int64_t samples, int64_t classes) {
  ImageReader reader(test, classes, test.fields(0)[0].size(1));
  NoGradGuard no_grad;
  std::vector<Tensor> drawn;
  for (int64_t at = 0; at < samples; at += 100)
    drawn.push_back(sample(std::min<int64_t>(100, samples - at)));
  const Tensor x = cat(drawn, 0);
  const Tensor p = softmax(reader.net(x), 1), read = p.argmax(1);
  const auto all = static_cast<double>(samples);
  const double confident = (p.amax({1}) >= 0.9).to(DType::f64).mean().item<double>();
  double entropy = 0, found = 0;
  for (int64_t c = 0; c < classes; ++c) {
    const double share = static_cast<double>((read == c).sum().item<int64_t>()) / all;
    if (share > 0) entropy -= share * std::log(share);
    if (share * static_cast<double>(classes) >= 0.2) ++found;
  }
  return {{"confident", confident},
          {"classes", found},
          {"evenness", entropy / std::log(static_cast<double>(classes))},
          {"variety", variety(x, read, classes) / variety(reader.x, reader.y, classes)}};
}

train::Logs evaluate_boxes(models::Detector& net, data::AnyPipeline test) {
  std::vector<ClassBoxes> all;     // by class
  size_t images = 0, classes = 0;  // classes: up to the last that has real boxes
  const auto row = [](auto& table, size_t c) -> auto& {
    if (table.size() <= c) table.resize(c + 1);
    return table[c];
  };
  NoGradGuard no_grad;
  const Device device = net.parameters().at(0).device();
  each_batch(test, [&](const train::Batch& b) {
    const Tensor out = net(b[0].to(device));
    for (int64_t i = 0; i < out.size(0); ++i, ++images) {
      const models::Detections d = net.decode(select(out, 0, i));
      const auto boxes = d.boxes.to_vector<float>(), scores = d.scores.to_vector<float>();
      const auto labels = d.labels.to_vector<int64_t>();
      for (size_t k = 0; k < scores.size(); ++k)
        row(all, static_cast<size_t>(labels[k]))
            .found.push_back({scores[k], images, box_at(boxes, k)});
      const auto want = select(b[1], 0, i).contiguous().to_vector<float>();
      const auto wanted = select(b[2], 0, i).contiguous().to_vector<int64_t>();
      for (size_t k = 0; k < wanted.size(); ++k)
        if (wanted[k] >= 0) {
          const auto c = static_cast<size_t>(wanted[k]);
          row(row(all, c).real, images).push_back(box_at(want, k));
          classes = std::max(classes, c + 1);
        }
    }
  });
  double sum = 0;
  train::Logs logs{{"map50", 0}};
  for (size_t c = 0; c < classes; ++c) {
    all[c].real.resize(images);
    const double area = average_precision(all[c]);
    sum += area;
    logs.emplace_back(fmt::format("ap50_{}", c), area);
  }
  logs[0].second = classes == 0 ? 0 : sum / static_cast<double>(classes);
  return logs;
}

}  // namespace tandem::recipe
