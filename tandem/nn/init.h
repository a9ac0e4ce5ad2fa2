// SPDX-License-Identifier: Apache-2.0
// Initial values, named like torch.nn.init's functions (without the trailing underscore: they
// return new values; `p.assign_(init::orthogonal(p.shape()))` sets a parameter). Draws come from
// the default generator.
#pragma once

#include <string>

#include "tandem/tensor/tensor.h"

namespace tandem::nn::init {

/// Uniform in [low, high).
TD_API Tensor uniform(Shape shape, double low = 0, double high = 1, DType dtype = DType::f32);
TD_API Tensor normal(Shape shape, double mean = 0, double std = 1, DType dtype = DType::f32);
/// Normal, truncated to [a, b] (drawn through the inverse of the distribution function).
TD_API Tensor trunc_normal(Shape shape, double mean = 0, double std = 1, double a = -2,
                           double b = 2, DType dtype = DType::f32);
TD_API Tensor constant(Shape shape, double value, DType dtype = DType::f32);
/// Ones on the diagonal of a matrix; throws Shape for another rank.
TD_API Tensor eye(Shape shape, DType dtype = DType::f32);
/// A convolution's weight [out, in, ...kernel] that maps channel i to channel i in each group.
TD_API Tensor dirac(Shape shape, int64_t groups = 1, DType dtype = DType::f32);
/// A matrix [rows, rest] with orthonormal rows or columns, times gain (Saxe et al. 2014).
TD_API Tensor orthogonal(Shape shape, double gain = 1, DType dtype = DType::f32);
/// Normal, with the fraction `sparsity` of each column set to zero (Martens 2010); a matrix.
TD_API Tensor sparse(Shape shape, double sparsity, double std = 0.01, DType dtype = DType::f32);

/// (fan_in, fan_out) of a weight [out, in, ...kernel]; throws Shape below two dimensions.
TD_API std::pair<int64_t, int64_t> fans(const Shape& shape);
/// The recommended gain for a nonlinearity: linear, conv1d.., sigmoid 1, tanh 5/3, relu sqrt(2),
/// leaky_relu sqrt(2 / (1 + param^2)) (param 0.01 unless given), selu 3/4. Throws Value for others.
TD_API double calculate_gain(const std::string& nonlinearity, double param = 0.01);
/// Uniform in +-1/sqrt(fan_in): PyTorch's default for weight and bias of Linear and Conv.
TD_API Tensor fan_in_uniform(Shape shape, int64_t fan_in, DType dtype = DType::f32);

struct KaimingOptions {
  std::string mode = "fan_in";  ///< or "fan_out"
  std::string nonlinearity = "leaky_relu";
};
/// He et al. 2015: +-gain sqrt(3 / fan), gain of the nonlinearity with slope a.
TD_API Tensor kaiming_uniform(Shape shape, double a = 0, DType dtype = DType::f32,
                              const KaimingOptions& options = {});
TD_API Tensor kaiming_normal(Shape shape, double a = 0, DType dtype = DType::f32,
                             const KaimingOptions& options = {});
/// Glorot and Bengio 2010: +-gain sqrt(6 / (fan_in + fan_out)).
TD_API Tensor xavier_uniform(Shape shape, double gain = 1, DType dtype = DType::f32);
TD_API Tensor xavier_normal(Shape shape, double gain = 1, DType dtype = DType::f32);
/// LeCun et al. 1998: variance 1 / fan_in.
TD_API Tensor lecun_uniform(Shape shape, DType dtype = DType::f32);
TD_API Tensor lecun_normal(Shape shape, DType dtype = DType::f32);
/// `w` with row i set to zero.
TD_API Tensor zero_row(Tensor w, int64_t i);

}  // namespace tandem::nn::init
