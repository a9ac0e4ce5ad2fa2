// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/evaluation.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/base64.h"
#include "tandem/io/image.h"
#include "tandem/ops/ops.h"
#include "tandem/runs/page.h"

namespace tandem::train {
namespace {

// A matrix of more classes than this is no longer an image.
constexpr int64_t kMostClasses = 256;

std::string text_of(const Tensor& sample) {
  const Tensor flat = sample.reshape({-1});
  const int64_t n = std::min<int64_t>(flat.numel(), 12);
  std::string text;
  for (double v : flat.narrow(0, 0, n).to(DType::f64).to_vector<double>())
    text += fmt::format("{}{:.4g}", text.empty() ? "" : " ", v);
  return flat.numel() > n ? text + " ..." : text;
}

}  // namespace

std::string sample_png(const Tensor& sample) {
  if (!sample.defined() || sample.dtype() == DType::b8) return "";
  const bool plane = sample.dim() == 2;
  if (!plane && sample.dim() != 3) return "";
  const int64_t c = plane ? 1 : sample.size(0), h = sample.size(-2), w = sample.size(-1);
  if (c != 1 && c != 3 && c != 4) return "";
  if (h < 2 || w < 2 || h > 2048 || w > 2048) return "";
  if (sample.dtype() == DType::u8) return io::encode_png(sample.contiguous());
  if (!is_floating(sample.dtype())) return "";
  NoGradGuard no_grad;
  const Tensor x = sample.detach().to(DType::f32);
  const float low = x.amin().item<float>(), high = x.amax().item<float>();
  if (!std::isfinite(low) || !std::isfinite(high)) return "";
  const float span = high > low ? high - low : 1.0F;
  return io::encode_png(((x - low) * (255.0F / span) + 0.5F).to(DType::u8).contiguous());
}

void Evaluation::add(EvaluatedSample sample, const Batch& batch, int64_t row, bool drawn) {
  if (std::isnan(sample.loss)) sample.loss = INFINITY;
  const auto worse = [](const EvaluatedSample& a, const EvaluatedSample& b) {
    return a.loss != b.loss ? a.loss > b.loss : a.index < b.index;
  };
  if (static_cast<int64_t>(worst_.size()) == keep_ && !worse(sample, worst_.back())) return;
  if (drawn) {
    const Tensor x = batch[0].select(0, row);
    sample.png = sample_png(x);
    if (sample.png.empty()) sample.text = text_of(x);
  }
  worst_.insert(std::upper_bound(worst_.begin(), worst_.end(), sample, worse), std::move(sample));
  if (static_cast<int64_t>(worst_.size()) > keep_) worst_.pop_back();
}

void Evaluation::see(const Batch& batch, const StepOutput& step) {
  NoGradGuard no_grad;
  const int64_t first = samples_;
  const int64_t rows = batch.empty() || batch[0].dim() == 0 ? 0 : batch[0].size(0);
  samples_ += rows;
  const Tensor &out = step.output, &want = step.target;
  if (!out.defined() || !want.defined() || keep_ <= 0) return;
  Tensor p;  // [n, classes]
  std::vector<int64_t> labels;
  if (out.dim() == 2 && out.size(1) >= 2 && out.size(1) <= kMostClasses && want.dim() == 1 &&
      !is_floating(want.dtype()) && want.size(0) == out.size(0)) {
    p = softmax(out.to(DType::f64), 1);
    labels = want.to(DType::i64).to_vector<int64_t>();
  } else if (out.numel() == want.numel() && out.numel() == rows) {
    const std::vector<double> y = want.to(DType::f64).reshape({-1}).to_vector<double>();
    const bool binary = std::all_of(y.begin(), y.end(), [](double v) { return v == 0 || v == 1; });
    if (binary && (classes() == 2 || samples_ == rows)) {
      const Tensor one = sigmoid(out.to(DType::f64).reshape({-1}));
      p = stack({1.0 - one, one}, 1);
      for (double v : y) labels.push_back(static_cast<int64_t>(v));
    }
  }
  if (p.defined()) {
    const int64_t n = p.size(0), classes = p.size(1);
    if (matrix_.size() < static_cast<size_t>(classes)) {
      matrix_.assign(static_cast<size_t>(classes),
                     std::vector<double>(static_cast<size_t>(classes)));
      curves_.assign(classes == 2 ? 1 : static_cast<size_t>(classes), runs::PrCounts());
    }
    const std::vector<double> all = p.contiguous().to_vector<double>();
    for (int64_t i = 0; i < n; ++i) {
      const double* row = &all[static_cast<size_t>(i * classes)];
      const int64_t label = labels[static_cast<size_t>(i)];
      if (label < 0 || label >= classes) continue;  // ignored ones
      const int64_t given = std::max_element(row, row + classes) - row;
      matrix_[static_cast<size_t>(label)][static_cast<size_t>(given)] += 1;
      for (size_t c = 0; c < curves_.size(); ++c) {
        const auto k = static_cast<int64_t>(curves_.size() == 1 ? 1 : c);
        curves_[c].add(row[k], label == k);
      }
      Bin& bin = bins_[static_cast<size_t>(std::clamp(row[given] * 10, 0.0, 9.0))];
      bin.sum += row[given];
      bin.right += given == label;
      bin.count += 1;
      add({.index = n == rows ? first + i : first + i * rows / n,
           .loss = -std::log(std::max(row[label], 1e-300)),
           .wanted = label,
           .given = given,
           .probability = row[given]},
          batch, i, n == rows);
    }
    return;
  }
  if (out.shape() != want.shape() || out.dim() == 0 || out.size(0) != rows || rows == 0) return;
  const Tensor wrong = square(out.to(DType::f64) - want.to(DType::f64)).reshape({rows, -1});
  const std::vector<double> each = wrong.mean({1}).to_vector<double>();
  for (int64_t i = 0; i < rows; ++i)
    add({.index = first + i, .loss = each[static_cast<size_t>(i)]}, batch, i, true);
}

double Evaluation::calibration_error() const {
  double sum = 0, count = 0;
  for (const Bin& b : bins_) {
    sum += std::abs(b.sum - b.right);
    count += b.count;
  }
  return count > 0 ? sum / count : std::nan("");
}

void Evaluation::write_events(runs::EventFile& events, const std::string& split,
                              int64_t step) const {
  for (size_t c = 0; c < curves_.size(); ++c)
    events.pr_curve(fmt::format("{}/precision_recall/class_{}", split, curves_.size() == 1 ? 1 : c),
                    curves_[c], step);
  for (size_t k = 0; k < worst_.size(); ++k)
    if (!worst_[k].png.empty())
      events.image(fmt::format("{}/worst/{:02}_sample_{}", split, k, worst_[k].index),
                   io::decode_image(worst_[k].png), step);
}

io::Json Evaluation::to_json(const std::string& split, const Logs& logs) const {
  io::Json::Object values;
  for (const auto& [name, value] : logs) values.emplace_back(name, value);
  io::Json::Object j{{"split", split}, {"samples", samples_}, {"values", std::move(values)}};
  if (!matrix_.empty()) {
    io::Json::Array rows;
    for (const auto& r : matrix_) {
      io::Json::Array row;
      for (double v : r) row.push_back(static_cast<int64_t>(v));
      rows.push_back(std::move(row));
    }
    j.emplace_back("confusion", std::move(rows));
    j.emplace_back("calibration_error", calibration_error());
    io::Json::Array bins;
    for (const Bin& b : bins_)
      bins.push_back(io::Json::Array{b.count, b.count > 0 ? b.sum / b.count : 0.0,
                                     b.count > 0 ? b.right / b.count : 0.0});
    j.emplace_back("calibration", std::move(bins));
  }
  io::Json::Array worst;
  for (const EvaluatedSample& s : worst_) {
    io::Json::Object o{{"index", s.index}, {"loss", s.loss}};
    if (s.wanted >= 0) {
      o.emplace_back("wanted", s.wanted);
      o.emplace_back("given", s.given);
      o.emplace_back("probability", s.probability);
    }
    if (!s.png.empty()) o.emplace_back("png", base64(s.png));
    if (!s.text.empty()) o.emplace_back("text", s.text);
    worst.push_back(std::move(o));
  }
  j.emplace_back("worst", std::move(worst));
  return j;
}

}  // namespace tandem::train
