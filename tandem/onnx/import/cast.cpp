// SPDX-License-Identifier: Apache-2.0
// ONNX casts between element types, by value and by bits.
#include "tandem/graph/apply.h"
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/onnx/import/tensor_internal.h"

namespace tandem::onnx {
namespace {

// Before opset 6 `to` was the type's name.
OnnxType wanted_type(const OnnxCall& c) {
  const OnnxAttribute* a = c.attribute("to");
  TD_CHECK(a, Format, "wants an attribute 'to'");
  if (a->kind == OnnxAttribute::s) {
    std::string name = a->text;
    for (char& ch : name) ch = static_cast<char>(ch >= 'A' && ch <= 'Z' ? ch + 32 : ch);
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

void bit_cast(OnnxCall& c) {
  const OnnxType to = wanted_type(c);
  TD_CHECK(info_of(to).bits == info_of(c.type(0)).bits, DType, "wants a type as wide as {}, got {}",
           to_string(c.type(0)), to_string(to));
  c.set(0, from_raw_bytes(to, c.value(0).shape(), raw_bytes(c.value(0))));
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
