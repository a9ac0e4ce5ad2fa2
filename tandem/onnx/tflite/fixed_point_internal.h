// SPDX-License-Identifier: Apache-2.0
// Sigmoid and tanh of 16-bit fixed-point numbers with the roundings of gemmlowp's, which TFLite's
// reference kernels of recurrent layers use. As tables of all 65,536 inputs, from -32768 on.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::onnx {

struct TfliteFactor;

constexpr int64_t kFirstShort = -32768, kLastShort = 32767;

/// Of inputs with 3 bits before the point; results are shares of 32768.
std::vector<int64_t> fixed_sigmoid_table();
/// Of inputs with that many bits before the point, 0 to 6.
std::vector<int64_t> fixed_tanh_table(int integer_bits);

// ---- of 32 bits, one number at a time
/// v / 2^bits, halves away from zero.
int64_t fixed_divided(int64_t v, int64_t bits);
/// v times a factor: rounded to 31 bits (halves up), then to its shift (halves away from zero).
int64_t fixed_scaled(int64_t v, const TfliteFactor& f);
/// exp of a number that is not positive, with 5 bits before the point; a share of 2^31.
int64_t fixed_exp(int64_t a);
/// 1 / (1 + a) of shares of 2^31.
int64_t fixed_inverse(int64_t a);
/// 1 / sqrt(v) of a whole number.
TfliteFactor fixed_inverse_root(int64_t v);

}  // namespace tandem::onnx
