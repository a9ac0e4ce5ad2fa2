// SPDX-License-Identifier: Apache-2.0
// The values in an ONNX model: tensors of ONNX's element types, strings, sequences, and nothing (an
// absent or empty optional). Types without a Tandem dtype are stored in a wider one that holds all
// their values: uint16 in i32, uint32 in i64, 4- and 2-bit integers in i8 and u8, 8- and 4-bit
// floats in f32; uint64 is stored in i64, bit for bit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem::onnx {

/// Element types with the numbers of TensorProto.DataType.
enum class OnnxType : uint8_t {
  undefined = 0,
  f32 = 1,
  u8 = 2,
  i8 = 3,
  u16 = 4,
  i16 = 5,
  i32 = 6,
  i64 = 7,
  string = 8,
  b8 = 9,
  f16 = 10,
  f64 = 11,
  u32 = 12,
  u64 = 13,
  c64 = 14,
  c128 = 15,
  bf16 = 16,
  f8e4m3fn = 17,
  f8e4m3fnuz = 18,
  f8e5m2 = 19,
  f8e5m2fnuz = 20,
  u4 = 21,
  i4 = 22,
  f4e2m1 = 23,
  f8e8m0 = 24,
  u2 = 25,
  i2 = 26,
};

/// How Tandem stores an element type.
struct OnnxTypeInfo {
  const char* name;  ///< as in TensorProto.DataType, in lower case
  DType carrier;
  uint8_t bits;  ///< of one element in a file
  bool native;   ///< the carrier is the type itself
  bool floating, is_signed;
};
/// Throws Unsupported for complex numbers and for unknown types.
TD_API const OnnxTypeInfo& info_of(OnnxType type);
TD_API const char* to_string(OnnxType type);
/// The element type of a dtype.
TD_API OnnxType onnx_type_of(DType dtype);

struct OnnxStrings {
  std::vector<int64_t> shape;
  std::vector<std::string> values;
};

/// One value of a model. A handle: copies share.
class TD_API OnnxValue {
 public:
  using Sequence = std::vector<OnnxValue>;

  OnnxValue() = default;
  /// A tensor whose dtype is its element type.
  OnnxValue(Tensor t) : type_(onnx_type_of(t.dtype())), tensor_(std::move(t)) {}
  /// A tensor of `type`, stored in its carrier (throws DType otherwise).
  OnnxValue(Tensor t, OnnxType type);
  /// The memory of strings and sequences is charged to the open Budget while they live.
  explicit OnnxValue(OnnxStrings s);
  static OnnxValue sequence(Sequence items, OnnxType type = OnnxType::undefined);

  /// Nothing: an input that was not given, or an empty optional.
  bool is_none() const { return !is_tensor() && !strings_ && !sequence_; }
  bool is_tensor() const { return tensor_.defined(); }
  bool is_strings() const { return strings_ != nullptr; }
  bool is_sequence() const { return sequence_ != nullptr; }
  OnnxType type() const { return type_; }

  /// The tensor in its carrier; throws DType for anything else.
  const Tensor& tensor() const;
  const OnnxStrings& strings() const;
  const Sequence& items() const;
  /// Sizes of a tensor or of a tensor of strings.
  std::vector<int64_t> shape() const;
  /// "float32[2, 3]", "string[2]", "sequence of 3", "nothing"
  std::string describe() const;

 private:
  OnnxType type_ = OnnxType::undefined;
  Tensor tensor_;
  std::shared_ptr<const OnnxStrings> strings_;
  std::shared_ptr<const Sequence> sequence_;
};

/// Bits of a small float from a number, and back. `saturate`: values out of range become the
/// largest number, else NaN or infinity as the ONNX specification says. Ties go to even.
TD_API uint8_t encode_small_float(OnnxType type, float v, bool saturate = true);
TD_API float decode_small_float(OnnxType type, uint8_t bits);

/// `x` wrapped back into the range of a type that is stored in a wider carrier (integers wrap).
TD_API Tensor wrap_to(Tensor x, OnnxType type);
/// A tensor converted as ONNX's Cast does.
TD_API OnnxValue cast_value(const OnnxValue& v, OnnxType to, bool saturate = true,
                            const std::string& round_mode = "up");

}  // namespace tandem::onnx
