// SPDX-License-Identifier: Apache-2.0
// Weights alone as codes of 2, 4 or 8 bits, in groups along the inputs: rounded to the nearest
// code, by GPTQ, which lets later inputs make up for the rounding of earlier ones, or after AWQ's
// scales, which give inputs with large values finer steps.
#pragma once

#include <string>
#include <string_view>

#include "tandem/ops/matmul/nbits.h"

namespace tandem::quant {

enum class WeightMethod : uint8_t {
  rtn,   ///< the nearest code
  gptq,  ///< Frantar et al. 2022, https://arxiv.org/abs/2210.17323
  awq,   ///< Lin et al. 2023, https://arxiv.org/abs/2306.00978
};
TD_API std::string to_string(WeightMethod m);
/// Of "rtn", "gptq", "awq"; throws Value for another word.
TD_API WeightMethod weight_method_of(std::string_view name);

struct WeightOptions {
  int64_t bits = 4;       ///< of a code: 2, 4 or 8
  int64_t group = 128;    ///< inputs that share a scale
  bool symmetric = true;  ///< codes around the middle one; else with a zero point
  double damp = 0.01;     ///< GPTQ: added to the diagonal, times its mean
  bool act_order = true;  ///< GPTQ: inputs with large values first
};

/// What a layer read: sums over rows of x.
struct InputSums {
  Tensor products;    ///< f32 [k, k]: of x^T x
  Tensor magnitudes;  ///< f32 [k]: of |x|
  int64_t rows = 0;
  /// Add x [..., k].
  TD_API void add(const Tensor& x);
};

/// The weight [n, k] as the nearest codes. Scales are numbers that f16 holds. Throws Value for a
/// group that is not positive or fills no whole bytes, and for values that are not finite.
TD_API PackedCodes round_weight(const Tensor& w, const WeightOptions& options = {});
/// The weight as the codes that GPTQ finds for inputs with these sums.
TD_API PackedCodes gptq_weight(const Tensor& w, const InputSums& inputs,
                               const WeightOptions& options = {});
/// The mean over rows of x of |x (w - v)^T|^2, for inputs with these sums.
TD_API double output_error(const Tensor& w, const Tensor& v, const InputSums& inputs);
/// AWQ's scales s [k] for weights that read the same inputs: w * s is rounded and x / s read
/// instead. Ones where no scales are better than none.
TD_API Tensor awq_scales(const std::vector<Tensor>& weights, const InputSums& inputs,
                         const WeightOptions& options = {});

}  // namespace tandem::quant
