// SPDX-License-Identifier: Apache-2.0
// Sigmoid and tanh of 16-bit fixed-point numbers with the roundings of gemmlowp's, which TFLite's
// reference kernels of recurrent layers use. As tables of all 65,536 inputs, from -32768 on.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::onnx {

constexpr int64_t kFirstShort = -32768, kLastShort = 32767;

/// Of inputs with 3 bits before the point; results are shares of 32768.
std::vector<int64_t> fixed_sigmoid_table();
/// Of inputs with that many bits before the point, 0 to 6.
std::vector<int64_t> fixed_tanh_table(int integer_bits);

}  // namespace tandem::onnx
