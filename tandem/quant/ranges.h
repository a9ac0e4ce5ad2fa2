// SPDX-License-Identifier: Apache-2.0
// From the values that a tensor took to the range that its codes cover: the methods of calibration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem::quant {

enum class Method : uint8_t {
  min_max,         ///< from the least to the greatest value
  moving_average,  ///< of the least and the greatest value of each batch, with the factor 0.01
  percentile,      ///< without the values beyond it
  entropy,  ///< least divergence of the distribution of codes from that of values (Migacz, 8-bit
            ///< Inference with TensorRT, GTC 2017)
  mse,      ///< least mean squared error
};
TD_API std::string to_string(Method m);
/// Of "min-max", "moving-average", "percentile", "entropy", "mse"; throws Value for another word.
TD_API Method method_of(std::string_view name);
/// Does it look at the whole distribution, and therefore at the data twice?
inline bool wants_histogram(Method m) {
  return m == Method::percentile || m == Method::entropy || m == Method::mse;
}

/// Numbers from low to high; 0 is always one of them.
struct Range {
  double low = 0, high = 0;
};

/// What was seen of one tensor.
class TD_API Seen {
 public:
  /// First time through the data. Throws Value for numbers that are not finite, naming `what`.
  void see_extremes(const Tensor& x, const std::string& what);
  /// Second time, when the extremes are known.
  void count(const Tensor& x);
  bool anything() const { return batches_ > 0; }
  Range extremes() const { return all_; }
  /// How many values lie in each of `bins` parts of the extremes; empty: nothing was counted.
  std::vector<double> histogram(size_t bins) const;
  /// `percent`: of percentile, as 99.99; `levels`: how many codes there are.
  Range range(Method method, double percent, int levels) const;

 private:
  Range percentile(double percent) const;
  Range entropy(int levels) const;
  Range mse(int levels) const;
  double centre(size_t bin) const;
  double error_of(Range r, int levels) const;

  int64_t batches_ = 0;
  Range all_, average_;
  std::vector<double> bins_;
};

/// A step and the code of 0.
struct Step {
  float scale = 1;
  int64_t zero = 0;
};
/// The step with which the codes of `dtype` (u8, i8; i16 with the zero point 0) cover a range.
TD_API Step step_of(Range r, DType dtype);
/// The numbers that those codes stand for.
TD_API Range range_of(Step s, DType dtype);

}  // namespace tandem::quant
