// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/signature.h"
#include "tandem/onnx/import/packed_values_internal.h"

namespace tandem::onnx {
namespace {

using tandem::detail::CallParts;
using tandem::detail::CallReader;
using tandem::detail::Packed;

enum class Kind : uint8_t { none, tensor, strings, sequence };

void pack(const OnnxValue& v, CallParts& out) {
  const Kind kind = v.is_tensor()     ? Kind::tensor
                    : v.is_strings()  ? Kind::strings
                    : v.is_sequence() ? Kind::sequence
                                      : Kind::none;
  out.put(kind);
  out.put(v.type());
  if (kind == Kind::tensor) out.tensors.push_back(v.tensor());
  if (kind == Kind::strings) {
    Packed<std::vector<int64_t>>::flatten(v.strings().shape, out);
    Packed<std::vector<std::string>>::flatten(v.strings().values, out);
  }
  if (kind != Kind::sequence) return;
  out.put(v.items().size());
  for (const OnnxValue& i : v.items()) pack(i, out);
}

OnnxValue unpack(CallReader& in) {
  const auto kind = in.get<Kind>();
  const auto type = in.get<OnnxType>();
  if (kind == Kind::tensor) return OnnxValue(*in.tensor++, type);
  if (kind == Kind::strings) {
    std::vector<int64_t> shape = Packed<std::vector<int64_t>>::rebuild(in);
    return OnnxValue(OnnxStrings{std::move(shape), Packed<std::vector<std::string>>::rebuild(in)});
  }
  if (kind == Kind::none) return {};
  OnnxValue::Sequence items;
  for (size_t n = in.get<size_t>(); n > 0; --n) items.push_back(unpack(in));
  return OnnxValue::sequence(std::move(items), type);
}

}  // namespace

PackedValues::PackedValues(std::span<const OnnxValue> values) {
  CallParts parts;
  parts.put(values.size());
  for (const OnnxValue& v : values) pack(v, parts);
  tensors = std::move(parts.tensors);
  structure = std::move(parts.key);
}

std::vector<OnnxValue> unpack_values(const std::string& structure,
                                     std::span<const Tensor> tensors) {
  CallReader in{tensors.data(), structure.data()};
  std::vector<OnnxValue> out;
  for (size_t n = in.get<size_t>(); n > 0; --n) out.push_back(unpack(in));
  return out;
}

}  // namespace tandem::onnx
