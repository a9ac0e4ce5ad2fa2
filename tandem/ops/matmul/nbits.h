// SPDX-License-Identifier: Apache-2.0
// Matmul with a weight of 2, 4 or 8 bits whose codes are packed in bytes, with a scale (and a zero
// point) for each group of inputs: the layout of MatMulNBits in ONNX's domain com.microsoft, and
// its accuracy levels.
#pragma once

#include "tandem/graph/op_def.h"

namespace tandem {

/// The accuracy level at which x becomes codes.
inline constexpr int64_t kCodesOfInputs = 4;

/// Attributes of matmul_nbits.
struct NBitsAttrs {
  int64_t bits = 4;            ///< of a code: 2, 4 or 8
  int64_t accuracy_level = 0;  ///< see PackedCodes
  template <class V>
  void fields(V& v) {
    v("bits", bits);
    v("accuracy_level", accuracy_level);
  }
};

namespace op {
/// x [..., k], codes u8 [n, groups, bytes], scale [n, groups], zero? u8 [n, bytes of a row] ->
/// [..., n] in x's dtype.
extern TD_API const OpDef matmul_nbits;
}  // namespace op

/// A weight [n, k] as codes: (code - zero point) * scale. The lowest bits of a byte are its first
/// code; each group, and the zero points of each row, begin with a new byte.
struct PackedCodes {
  Tensor codes;      ///< u8 [n, groups, group * bits / 8]
  Tensor scale;      ///< floating [n, groups]
  Tensor zero = {};  ///< u8 [n, (groups * bits + 7) / 8]; undefined: 2^(bits - 1) everywhere
  int64_t bits = 4;
  /// How x may be rounded, in ONNX's numbers. 0 (not set) to 3 (f32, f16, bf16): products are of
  /// f32. 4 (int8): each group of x becomes codes of 8 bits around 0, of which the largest is 127;
  /// products of codes are added as integers, and what each group gives is scaled and added in f32.
  int64_t accuracy_level = 0;
};

/// The product of x [..., k] with the transposed weight: [..., n] in x's dtype, summed in f32. The
/// last group may extend beyond k. Gradients reach x and the scale; they are those of level 0.
/// Throws DType, Shape, Value.
TD_API Tensor matmul_nbits(Tensor x, const PackedCodes& w,
                           SourceLocation loc = SourceLocation::here());
/// Throws Value unless there is such a level.
TD_API void check_accuracy_level(int64_t level);
/// The codes of the last dimension of `bytes`, u8, as elements: [..., m] -> [..., m * 8 / bits].
TD_API Tensor unpack_codes(const Tensor& bytes, int64_t bits);
/// The inverse; the number of codes must fill whole bytes. Throws Shape.
TD_API Tensor pack_codes(const Tensor& codes, int64_t bits);
/// The weight as numbers, f32 [n, groups * group].
TD_API Tensor dequantize_codes(const PackedCodes& w);

}  // namespace tandem
