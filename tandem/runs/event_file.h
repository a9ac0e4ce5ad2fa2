// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files: TFRecord frames (length, data, masked CRC-32C) around Event messages.
// Each event is one write, so a truncated file stays readable up to the cut.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/graph/trace.h"
#include "tandem/nn/module.h"
#include "tandem/runs/append_file.h"

namespace tandem::runs {

/// A setting of a run for TensorBoard's table of runs.
using HParam = std::variant<double, bool, std::string>;
using HParams = std::vector<std::pair<std::string, HParam>>;

/// Samples counted by the thresholds 0, 1/(n-1) ... 1 that their scores reach: what a
/// precision-recall curve is drawn from.
class TD_API PrCounts {
 public:
  /// Throws Value for less than two thresholds.
  explicit PrCounts(int64_t thresholds = 127);
  /// A score in 0..1 (others are moved to its ends; NaN is left out) of a sample that is of the
  /// class or not.
  void add(double score, bool of_class, double weight = 1);
  int64_t thresholds() const { return static_cast<int64_t>(hits_.size()); }
  /// Six rows of `thresholds` values: true positives, false positives, true negatives, false
  /// negatives, precision, recall.
  std::vector<float> table() const;

 private:
  std::vector<double> hits_, others_;  ///< by the highest threshold that is reached
};

class TD_API EventFile {
 public:
  /// Begins `folder`/events.out.tfevents.<time>.<host>.<pid>.<n>. With `resumed_at` >= 0 what
  /// earlier files of the folder hold of that step and later ones is not shown. Throws Io.
  explicit EventFile(const FilePath& folder, int64_t resumed_at = -1);
  void scalar(const std::string& tag, double value, int64_t step);
  /// Of any shape and numeric dtype; infinite and NaN elements are left out.
  void histogram(const std::string& tag, const Tensor& values, int64_t step);
  /// u8 or f32 in 0..1, [h, w] or [c, h, w] with 1, 3 or 4 channels.
  void image(const std::string& tag, const Tensor& image, int64_t step);
  /// Shown as Markdown.
  void text(const std::string& tag, std::string_view text, int64_t step);
  /// Ops as nodes below the path of their layer; parameters and buffers of `model` by their names.
  void graph(const Graph& graph, const nn::Module* model = nullptr);
  void pr_curve(const std::string& tag, const PrCounts& counts, int64_t step);
  /// `labels`: 0 and 1, or bool; `scores` of the same number of elements in 0..1. Throws Shape.
  void pr_curve(const std::string& tag, const Tensor& labels, const Tensor& scores, int64_t step,
                int64_t thresholds = 127);
  /// The settings that the scalars of this folder belong to, at the run's begin.
  void hparams(const HParams& settings);
  enum class RunEnd : uint8_t { success = 1, failure = 2 };
  /// And how it ended.
  void hparams_end(RunEnd end = RunEnd::success);
  const std::string& path() const { return file_.path(); }

 private:
  void value(std::string_view value, int64_t step);
  void event(std::string_view fields, int64_t step);
  AppendFile file_;
};

/// A Graph as TensorFlow's GraphDef, the form that TensorBoard draws.
TD_API std::string graph_def(const Graph& graph, const nn::Module* model = nullptr);

}  // namespace tandem::runs
