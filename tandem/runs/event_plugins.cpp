// SPDX-License-Identifier: Apache-2.0
// Values of TensorBoard's plugins pr_curves and hparams: tensors with metadata that hold the
// plugins' own messages (plugins/pr_curve/plugin_data.proto, plugins/hparams/plugin_data.proto).
#include <algorithm>
#include <cmath>

#include "tandem/base/clock.h"
#include "tandem/ops/ops.h"
#include "tandem/runs/event_file.h"
#include "tandem/runs/event_plugins_internal.h"

namespace tandem::runs {
namespace {

using Message = io::ProtoWriter;

// A tensor of f32.
Message tensor_message(const std::vector<int64_t>& sizes, const std::vector<float>& values) {
  Message shape, tensor;
  for (const int64_t n : sizes) {
    Message size;
    size.add_int(1, n);
    shape.add_message(2, size);
  }
  tensor.add_varint(1, 1);  // DT_FLOAT
  tensor.add_message(2, shape);
  if (!values.empty()) tensor.add_packed(5, values);
  return tensor;
}

std::string tagged(const std::string& tag, const Message& tensor, const Message& metadata) {
  Message m;
  m.add_bytes(1, tag);
  m.add_message(8, tensor);
  m.add_message(9, metadata);
  return m.str();
}

// One of HParamsPluginData's kinds; what matters is in the metadata, the tensor is empty.
std::string hparams_value(const char* tag, uint32_t field, const Message& info) {
  Message data;
  data.add_message(field, info);
  return tagged(tag, tensor_message({0}, {}), tensorboard_metadata("hparams", data.str()));
}

}  // namespace

PrCounts::PrCounts(int64_t thresholds) {
  TD_CHECK(thresholds >= 2, Value,
           "a precision-recall curve expects two thresholds or more, got {}", thresholds);
  hits_.resize(static_cast<size_t>(thresholds));
  others_.resize(static_cast<size_t>(thresholds));
}

void PrCounts::add(double score, bool of_class, double weight) {
  if (std::isnan(score)) return;
  const double last = static_cast<double>(hits_.size() - 1);
  const auto at = static_cast<size_t>(std::floor(std::clamp(score, 0.0, 1.0) * last));
  (of_class ? hits_ : others_)[at] += weight;
}

std::vector<float> PrCounts::table() const {
  const size_t n = hits_.size();
  std::vector<double> tp(n), fp(n);
  for (size_t i = n; i-- > 0;) {
    tp[i] = hits_[i] + (i + 1 < n ? tp[i + 1] : 0);
    fp[i] = others_[i] + (i + 1 < n ? fp[i + 1] : 0);
  }
  constexpr double kLeast = 1e-7;  // nothing reaches a threshold: 0, as TensorBoard has it
  std::vector<float> out(6 * n);
  for (size_t i = 0; i < n; ++i) {
    const double tn = fp[0] - fp[i], fn = tp[0] - tp[i];
    const double row[] = {tp[i],
                          fp[i],
                          tn,
                          fn,
                          tp[i] / std::max(kLeast, tp[i] + fp[i]),
                          tp[i] / std::max(kLeast, tp[i] + fn)};
    for (size_t k = 0; k < 6; ++k) out[k * n + i] = static_cast<float>(row[k]);
  }
  return out;
}

void EventFile::pr_curve(const std::string& tag, const PrCounts& counts, int64_t step) {
  Message data;
  data.add_int(2, counts.thresholds());
  value(tagged(tag, tensor_message({6, counts.thresholds()}, counts.table()),
               tensorboard_metadata("pr_curves", data.str())),
        step);
}

void EventFile::pr_curve(const std::string& tag, const Tensor& labels, const Tensor& scores,
                         int64_t step, int64_t thresholds) {
  TD_CHECK(labels.defined() && scores.defined() && labels.numel() == scores.numel(), Shape,
           "pr_curve expects a score for each label, got labels {} and scores {}",
           labels.defined() ? labels.shape().to_string() : "none",
           scores.defined() ? scores.shape().to_string() : "none");
  NoGradGuard no_grad;
  const std::vector<double> y = labels.to(DType::f64).to_vector<double>(),
                            p = scores.to(DType::f64).to_vector<double>();
  PrCounts counts(thresholds);
  for (size_t i = 0; i < y.size(); ++i) counts.add(p[i], y[i] != 0);
  pr_curve(tag, counts, step);
}

void EventFile::hparams(const HParams& settings) {
  Message start;
  for (const auto& [name, setting] : settings) {
    Message v, entry;
    if (const double* number = std::get_if<double>(&setting))
      v.add_double(2, *number);
    else if (const bool* flag = std::get_if<bool>(&setting))
      v.add_varint(4, *flag);
    else
      v.add_bytes(3, std::get<std::string>(setting));
    entry.add_bytes(1, name);
    entry.add_message(2, v);
    start.add_message(1, entry);
  }
  start.add_double(5, unix_time());
  value(hparams_value("_hparams_/session_start_info", 3, start), 0);
}

void EventFile::hparams_end(RunEnd end) {
  Message info;
  info.add_varint(1, static_cast<uint64_t>(end));
  info.add_double(2, unix_time());
  value(hparams_value("_hparams_/session_end_info", 4, info), 0);
}

}  // namespace tandem::runs
