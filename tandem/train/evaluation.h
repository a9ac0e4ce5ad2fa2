// SPDX-License-Identifier: Apache-2.0
// Evaluation of a trained model on a set of samples in one pass: confusion matrix, calibration, and
// the samples with the highest loss, with their images.
#pragma once

#include "tandem/runs/event_file.h"
#include "tandem/train/trainer.h"

namespace tandem::train {

struct EvaluatedSample {
  int64_t index = 0;                ///< place in the set, from 0
  double loss = 0;                  ///< -log p of the right class, or the mean squared error
  int64_t wanted = -1, given = -1;  ///< classes; -1: numbers
  double probability = 0;           ///< of the class given
  std::string png, text;            ///< an image of the first field, or its first numbers
};

/// Show it the batches of Trainer::validate(). Outputs [n, classes] with integer targets [n], [n]
/// or [n, 1] with labels 0 and 1, and outputs of the target's shape are understood; of others
/// nothing but their number is kept.
class TD_API Evaluation {
 public:
  explicit Evaluation(int64_t keep = 16) : keep_(keep) {}
  void see(const Batch& batch, const StepOutput& step);

  int64_t samples() const { return samples_; }
  int64_t classes() const { return static_cast<int64_t>(matrix_.size()); }
  /// [wanted][given]; empty without classes.
  const std::vector<std::vector<double>>& matrix() const { return matrix_; }
  /// Highest loss first.
  const std::vector<EvaluatedSample>& worst() const { return worst_; }
  /// Mean distance of the probability given and the share that was right, over ten bins of the
  /// former, weighted by their samples (Guo et al. 2017). NaN without classes.
  double calibration_error() const;
  /// Of each class against all others by its probability; for two classes only that of class 1.
  const std::vector<runs::PrCounts>& curves() const { return curves_; }
  /// Precision-recall curves and the images of the worst samples, tags "<split>/...".
  void write_events(runs::EventFile& events, const std::string& split, int64_t step) const;
  /// As an object for evaluation.json.
  io::Json to_json(const std::string& split, const Logs& logs) const;

 private:
  void add(EvaluatedSample sample, const Batch& batch, int64_t row, bool drawn);
  int64_t keep_, samples_ = 0;
  std::vector<std::vector<double>> matrix_;
  std::vector<EvaluatedSample> worst_;
  std::vector<runs::PrCounts> curves_;
  struct Bin {
    double sum = 0, right = 0, count = 0;
  };
  std::array<Bin, 10> bins_;
};

/// An image of one sample as PNG: u8 or floating [h, w] or [1 or 3 or 4, h, w], scaled to its own
/// range; empty for other shapes.
TD_API std::string sample_png(const Tensor& sample);

}  // namespace tandem::train
