// SPDX-License-Identifier: Apache-2.0
// ONNX casts between element types, by value and by bits.
#include <optional>

#include "tandem/base/ascii.h"
#include "tandem/graph/apply.h"
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/onnx/import/tensor_internal.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/view/bits.h"

namespace tandem::onnx {
namespace {

// Before opset 6 `to` was the type's name.
OnnxType wanted_type(const OnnxCall& c) {
  const OnnxAttribute* a = c.attribute("to");
  TD_CHECK(a, Format, "expected an attribute 'to'");
  if (a->kind == OnnxAttribute::s) {
    const std::string name = ascii_lower(a->text);
    for (unsigned i = 1; i <= static_cast<unsigned>(OnnxType::i2); ++i)
      if (name == to_string(static_cast<OnnxType>(i))) return static_cast<OnnxType>(i);
    TD_FAIL(Format, "there is no element type '{}'", a->text);
  }
  const int64_t to = c.attr("to", 0);
  TD_CHECK(to > 0 && to <= static_cast<int64_t>(OnnxType::i2), Format,
           "there is no element type {}", to);
  return static_cast<OnnxType>(to);
}

void cast(OnnxCall& c) {
  OnnxValue v = c.value(0);
  if (v.is_tensor()) v = OnnxValue(c.x(0), v.type());
  c.set(0, cast_value(v, wanted_type(c), c.attr("saturate", 1),
                      c.attr_choice("round_mode", "up", {"up", "down", "nearest"})));
}
void cast_like(OnnxCall& c) {
  OnnxValue v = c.value(0);
  if (v.is_tensor()) v = OnnxValue(c.x(0), v.type());
  c.set(0, cast_value(v, c.type(1), c.attr("saturate", 1),
                      c.attr_choice("round_mode", "up", {"up", "down", "nearest"})));
}

/// A dtype with the width of the type; nothing where the carrier holds numbers, not its bits.
std::optional<DType> dtype_of_bits(OnnxType type) {
  switch (type) {
    case OnnxType::b8:
      return DType::u8;
    case OnnxType::u16:
      return DType::i16;
    case OnnxType::u32:
      return DType::i32;
    case OnnxType::u64:
      return DType::i64;
    default:
      return info_of(type).native ? std::optional(info_of(type).carrier) : std::nullopt;
  }
}

/// Unsigned numbers of a wide carrier as signed ones of their width.
Tensor with_bits(const Tensor& x, OnnxType type) {
  const OnnxTypeInfo& info = info_of(type);
  if (info.bits != 16 && info.bits != 32) return x.to(*dtype_of_bits(type));
  if (info.native) return x;
  const int64_t half = int64_t{1} << (info.bits - 1);
  return where(x >= half, x - 2 * half, x).to(*dtype_of_bits(type));
}

void bit_cast(OnnxCall& c) {
  const OnnxType to = wanted_type(c);
  TD_CHECK(info_of(to).bits == info_of(c.type(0)).bits, DType,
           "expected a type as wide as {}, got {}", to_string(c.type(0)), to_string(to));
  const auto from = dtype_of_bits(c.type(0)), dtype = dtype_of_bits(to);
  if (!from || !dtype) {
    c.set(0, from_raw_bytes(to, c.value(0).shape(), raw_bytes(c.value(0))));
    return;
  }
  const Tensor y = bitcast(with_bits(c.x(0), c.type(0)), *dtype);
  if (to == OnnxType::b8)
    c.set(0, ne(y, 0));
  else if (info_of(to).carrier != *dtype)
    c.set(0, wrap_to(y.to(info_of(to).carrier), to), to);
  else
    c.set(0, y, to);
}

}  // namespace

std::span<const OnnxRow> onnx_cast_rows() {
  static constexpr OnnxRow kRows[] = {
      {"", "Cast", 1, 0, cast, {1, 1, "round_mode saturate to"}, &op::cast, export_cast},
      {"", "CastLike", 15, 0, cast_like, {2, 1, "round_mode saturate"}},
      {"", "BitCast", 26, 0, bit_cast, {1, 1, "to"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
