// SPDX-License-Identifier: Apache-2.0
// Metrics: numbers over many batches. Each holds sums only (the area under a curve: its scores), so
// that parts computed apart can be merged and a run can be resumed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem::train {

class TD_API Metric {
 public:
  virtual ~Metric() = default;
  /// Add a batch: what the model gave and what was wanted.
  virtual void update(const Tensor& output, const Tensor& target) = 0;
  /// NaN before the first update.
  virtual double compute() const = 0;
  const std::string& name() const { return name_; }
  bool higher_is_better() const { return higher_; }
  void reset() { sums_.clear(); }
  /// The sums. load_state() throws Value for a number of them that cannot be.
  const std::vector<double>& state() const { return sums_; }
  virtual void load_state(std::vector<double> state) { sums_ = std::move(state); }
  /// Add the batches of another one of the same kind.
  virtual void merge(const Metric& other);

 protected:
  Metric(std::string name, bool higher) : name_(std::move(name)), higher_(higher) {}
  std::string name_;
  bool higher_;
  std::vector<double> sums_;
};

enum class Average : uint8_t {
  macro,     ///< mean over the classes that occur
  micro,     ///< over all samples
  weighted,  ///< mean weighted by how often a class occurs
  binary,    ///< that of class 1, where there are two
};

/// Counts [class wanted][class given]. Outputs [n, classes, ...] (the largest counts) or, of two
/// classes, [n] or [n, 1] (above 0: class 1). Targets: integers of the other dimensions, or of the
/// output's shape with two classes.
class TD_API ConfusionMatrix : public Metric {
 public:
  enum class Kind : uint8_t { accuracy, precision, recall, f1 };
  explicit ConfusionMatrix(Kind kind = Kind::accuracy, Average average = Average::macro,
                           int64_t ignore_index = -100);
  void update(const Tensor& output, const Tensor& target) override;
  double compute() const override;
  void load_state(std::vector<double> state) override;
  void merge(const Metric& other) override;
  int64_t classes() const;
  /// i64 [classes, classes].
  Tensor matrix() const;
  /// Precision, recall or f1 of each class; 0 where it is 0 / 0.
  std::vector<double> per_class() const;

 private:
  double& count(int64_t want, int64_t got);
  Kind kind_;
  Average average_;
  int64_t ignore_;
};

/// Share of samples whose class is among the k largest outputs.
class TD_API TopKAccuracy : public Metric {
 public:
  explicit TopKAccuracy(int64_t k = 5);
  void update(const Tensor& output, const Tensor& target) override;
  double compute() const override;

 private:
  int64_t k_;
};

/// Area under the ROC curve of two classes, equal scores counted half (Mann-Whitney).
class TD_API AUC : public Metric {
 public:
  AUC() : Metric("auc", true) {}
  void update(const Tensor& output, const Tensor& target) override;
  double compute() const override;
  void merge(const Metric& other) override;
};

/// mae, mse, rmse or r2 over all elements.
class TD_API Regression : public Metric {
 public:
  enum class Kind : uint8_t { mae, mse, rmse, r2 };
  explicit Regression(Kind kind);
  void update(const Tensor& output, const Tensor& target) override;
  double compute() const override;

 private:
  Kind kind_;
};

/// By name: accuracy, top5_accuracy (any number), precision, recall, f1, f1_micro, f1_weighted,
/// f1_binary (and so of precision and recall), auc, mae, mse, rmse, r2. Throws Value with the names
/// there are.
TD_API std::unique_ptr<Metric> make_metric(const std::string& name);

}  // namespace tandem::train
