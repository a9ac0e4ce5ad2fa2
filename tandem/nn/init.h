// SPDX-License-Identifier: Apache-2.0
// Initial values, named as torch.nn.init's functions (without the trailing underscore: they give
// new values). Draws come from the default generator.
#pragma once

#include "tandem/tensor/tensor.h"

namespace tandem::nn::init {

/// Uniform in [low, high).
TD_API Tensor uniform(Shape shape, double low, double high, DType dtype = DType::f32);
TD_API Tensor normal(Shape shape, double mean, double std, DType dtype = DType::f32);
/// (fan_in, fan_out) of a weight [out, in, ...kernel]; throws Shape below two dimensions.
TD_API std::pair<int64_t, int64_t> fans(const Shape& shape);
/// Uniform in +-1/sqrt(fan_in): PyTorch's default of Linear and Conv, weight and bias.
TD_API Tensor fan_in_uniform(Shape shape, int64_t fan_in, DType dtype = DType::f32);
/// He et al. 2015: +-gain sqrt(3 / fan_in), gain sqrt(2 / (1 + a^2)).
TD_API Tensor kaiming_uniform(Shape shape, double a = 0, DType dtype = DType::f32);
TD_API Tensor kaiming_normal(Shape shape, double a = 0, DType dtype = DType::f32);
/// Glorot and Bengio 2010: +-gain sqrt(6 / (fan_in + fan_out)).
TD_API Tensor xavier_uniform(Shape shape, double gain = 1, DType dtype = DType::f32);
TD_API Tensor xavier_normal(Shape shape, double gain = 1, DType dtype = DType::f32);
/// `w` with row i set to zero.
TD_API Tensor zero_row(Tensor w, int64_t i);

}  // namespace tandem::nn::init
