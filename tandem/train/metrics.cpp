// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"

namespace tandem::train {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Scores of two classes: [n], [n, 1], or the second column minus the first of [n, 2].
std::vector<double> scores_of(const Tensor& output) {
  NoGradGuard no_grad;
  Tensor x = output.to(DType::f64);
  if (x.dim() == 2 && x.size(1) == 2) x = select(x, 1, 1) - select(x, 1, 0);
  return x.to_vector<double>();
}

std::vector<int64_t> labels_of(const Tensor& target) {
  return target.to(DType::i64).to_vector<int64_t>();
}

void check_count(size_t outputs, size_t targets, const std::string& name) {
  TD_CHECK(outputs == targets, Shape, "{}: {} outputs and {} targets", name, outputs, targets);
}

const char* name_of(ConfusionMatrix::Kind kind) {
  static constexpr const char* kNames[] = {"accuracy", "precision", "recall", "f1"};
  return kNames[static_cast<size_t>(kind)];
}
const char* name_of(Regression::Kind kind) {
  static constexpr const char* kNames[] = {"mae", "mse", "rmse", "r2"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

void Metric::merge(const Metric& other) {
  if (sums_.empty()) sums_.resize(other.sums_.size());
  for (size_t i = 0; i < other.sums_.size(); ++i) sums_[i] += other.sums_[i];
}

ConfusionMatrix::ConfusionMatrix(Kind kind, Average average, int64_t ignore_index)
    : Metric(name_of(kind), true), kind_(kind), average_(average), ignore_(ignore_index) {
  if (kind != Kind::accuracy && average == Average::micro) name_ += "_micro";
  if (kind != Kind::accuracy && average == Average::weighted) name_ += "_weighted";
  if (kind != Kind::accuracy && average == Average::binary) name_ += "_binary";
}

int64_t ConfusionMatrix::classes() const {
  return static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(sums_.size()))));
}

double& ConfusionMatrix::count(int64_t want, int64_t got) {
  const int64_t n = classes(), need = std::max({n, want + 1, got + 1});
  if (need > n) {
    std::vector<double> wider(static_cast<size_t>(need * need));
    for (int64_t i = 0; i < n; ++i) std::copy_n(sums_.begin() + i * n, n, wider.begin() + i * need);
    sums_ = std::move(wider);
  }
  return sums_[static_cast<size_t>(want * need + got)];
}

void ConfusionMatrix::update(const Tensor& output, const Tensor& target) {
  NoGradGuard no_grad;
  const std::vector<int64_t> want = labels_of(target);
  std::vector<int64_t> got;
  int64_t classes = 2;
  if (output.dim() >= 2 && output.size(1) > 1 && output.numel() > target.numel()) {
    classes = output.size(1);
    got = argmax(output, 1).to_vector<int64_t>();
  } else {
    for (double s : scores_of(output)) got.push_back(s > 0);
  }
  check_count(got.size(), want.size(), name_);
  TD_CHECK(classes <= 65536, Value, "{}: {} classes, 65536 is the most", name_, classes);
  count(classes - 1, classes - 1);
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == ignore_) continue;
    TD_CHECK(want[i] >= 0 && want[i] < classes, Index, "{}: target {} of {} classes", name_,
             want[i], classes);
    ++count(want[i], got[i]);
  }
}

void ConfusionMatrix::load_state(std::vector<double> state) {
  const auto n = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(state.size()))));
  TD_CHECK(n * n == state.size(), Value, "{}: {} counts are not a square matrix", name_,
           state.size());
  sums_ = std::move(state);
}

void ConfusionMatrix::merge(const Metric& other) {
  const std::vector<double>& o = other.state();
  const auto n = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(o.size()))));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) count(i, j) += o[static_cast<size_t>(i * n + j)];
}

Tensor ConfusionMatrix::matrix() const {
  std::vector<int64_t> whole(sums_.begin(), sums_.end());
  return tensor(whole, {classes(), classes()});
}

std::vector<double> ConfusionMatrix::per_class() const {
  const int64_t n = classes();
  std::vector<double> out;
  for (int64_t c = 0; c < n; ++c) {
    double row = 0, column = 0;
    const double hit = sums_[static_cast<size_t>(c * n + c)];
    for (int64_t k = 0; k < n; ++k) {
      row += sums_[static_cast<size_t>(c * n + k)];
      column += sums_[static_cast<size_t>(k * n + c)];
    }
    const double below = kind_ == Kind::precision ? column
                         : kind_ == Kind::f1      ? (row + column) / 2
                                                  : row;
    out.push_back(below > 0 ? hit / below : 0);
  }
  return out;
}

double ConfusionMatrix::compute() const {
  const int64_t n = classes();
  double total = 0, hit = 0, weighted = 0, sum = 0, present = 0;
  const std::vector<double> each = per_class();
  for (int64_t c = 0; c < n; ++c) {
    double row = 0, column = 0;
    for (int64_t k = 0; k < n; ++k) {
      row += sums_[static_cast<size_t>(c * n + k)];
      column += sums_[static_cast<size_t>(k * n + c)];
    }
    total += row;
    hit += sums_[static_cast<size_t>(c * n + c)];
    weighted += row * each[static_cast<size_t>(c)];
    if (row + column > 0) {
      sum += each[static_cast<size_t>(c)];
      ++present;
    }
  }
  if (total == 0) return kNone;
  if (kind_ == Kind::accuracy || average_ == Average::micro) return hit / total;
  if (average_ == Average::binary) {
    TD_CHECK(n <= 2, Value, "{} is of two classes, there are {}\nUse {}, {}_micro or {}_weighted.",
             name_, n, name_of(kind_), name_of(kind_), name_of(kind_));
    return n == 2 ? each[1] : 0;
  }
  return average_ == Average::weighted ? weighted / total : sum / present;
}

TopKAccuracy::TopKAccuracy(int64_t k) : Metric(fmt::format("top{}_accuracy", k), true), k_(k) {
  TD_CHECK(k > 0, Value, "top-k accuracy expects k > 0, got {}", k);
}

void TopKAccuracy::update(const Tensor& output, const Tensor& target) {
  TD_CHECK(output.dim() == 2, Shape, "{} expects outputs [n, classes], got {}", name_,
           output.shape().to_string());
  const std::vector<double> x = output.to(DType::f64).to_vector<double>();
  const std::vector<int64_t> y = labels_of(target);
  const int64_t classes = output.size(1);
  check_count(static_cast<size_t>(output.size(0)), y.size(), name_);
  sums_.resize(2);
  for (size_t i = 0; i < y.size(); ++i) {
    TD_CHECK(y[i] >= 0 && y[i] < classes, Index, "{}: target {} of {} classes", name_, y[i],
             classes);
    const double* row = x.data() + i * static_cast<size_t>(classes);
    int64_t before = 0;  // ties go to the lower class
    for (int64_t c = 0; c < classes; ++c)
      before += row[c] > row[y[i]] || (row[c] == row[y[i]] && c < y[i]);
    sums_[0] += before < k_;
    ++sums_[1];
  }
}

double TopKAccuracy::compute() const {
  return sums_.size() < 2 || sums_[1] == 0 ? kNone : sums_[0] / sums_[1];
}

void AUC::update(const Tensor& output, const Tensor& target) {
  const std::vector<double> x = scores_of(output);
  const std::vector<int64_t> y = labels_of(target);
  check_count(x.size(), y.size(), name_);
  for (size_t i = 0; i < x.size(); ++i) {
    TD_CHECK(y[i] == 0 || y[i] == 1, Index, "auc: target {} of 2 classes", y[i]);
    sums_.push_back(x[i]);
    sums_.push_back(static_cast<double>(y[i]));
  }
}

void AUC::merge(const Metric& other) {
  sums_.insert(sums_.end(), other.state().begin(), other.state().end());
}

double AUC::compute() const {
  const size_t n = sums_.size() / 2;
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return sums_[2 * a] < sums_[2 * b]; });
  double positives = 0, ranks = 0;
  for (size_t i = 0; i < n;) {
    size_t end = i;
    while (end < n && sums_[2 * order[end]] == sums_[2 * order[i]]) ++end;
    const double rank = (static_cast<double>(i + 1) + static_cast<double>(end)) / 2;
    for (end = std::max(end, i + 1); i < end; ++i)
      if (sums_[2 * order[i] + 1] == 1) {
        ++positives;
        ranks += rank;
      }
  }
  const double negatives = static_cast<double>(n) - positives;
  if (positives == 0 || negatives == 0) return kNone;
  return (ranks - positives * (positives + 1) / 2) / (positives * negatives);
}

Regression::Regression(Kind kind) : Metric(name_of(kind), kind == Kind::r2), kind_(kind) {}

void Regression::update(const Tensor& output, const Tensor& target) {
  const std::vector<double> x = output.to(DType::f64).to_vector<double>(),
                            y = target.to(DType::f64).to_vector<double>();
  check_count(x.size(), y.size(), name_);
  sums_.resize(5);  // n, |d|, d^2, y, y^2
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = x[i] - y[i];
    sums_[0] += 1;
    sums_[1] += std::abs(d);
    sums_[2] += d * d;
    sums_[3] += y[i];
    sums_[4] += y[i] * y[i];
  }
}

double Regression::compute() const {
  if (sums_.size() < 5 || sums_[0] == 0) return kNone;
  const double n = sums_[0];
  switch (kind_) {
    case Kind::mae:
      return sums_[1] / n;
    case Kind::mse:
      return sums_[2] / n;
    case Kind::rmse:
      return std::sqrt(sums_[2] / n);
    case Kind::r2:
      return 1 - sums_[2] / (sums_[4] - sums_[3] * sums_[3] / n);
  }
  return kNone;
}

std::unique_ptr<Metric> make_metric(const std::string& name) {
  using C = ConfusionMatrix;
  if (name.starts_with("top") && name.ends_with("_accuracy")) {
    const std::string k = name.substr(3, name.size() - 12);
    if (!k.empty() && k.size() < 7 && k.find_first_not_of("0123456789") == k.npos)
      return std::make_unique<TopKAccuracy>(std::stoll(k));
  }
  if (name == "auc") return std::make_unique<AUC>();
  for (auto kind : {C::Kind::accuracy, C::Kind::precision, C::Kind::recall, C::Kind::f1})
    for (auto average : {Average::macro, Average::micro, Average::weighted, Average::binary})
      if (auto m = std::make_unique<C>(kind, average); m->name() == name) return m;
  for (auto kind :
       {Regression::Kind::mae, Regression::Kind::mse, Regression::Kind::rmse, Regression::Kind::r2})
    if (auto m = std::make_unique<Regression>(kind); m->name() == name) return m;
  TD_FAIL(Value,
          "there is no metric '{}'\nThere are accuracy, top5_accuracy, precision, recall, f1 (also "
          "_micro, _weighted, _binary), auc, mae, mse, rmse and r2.",
          name);
}

}  // namespace tandem::train
