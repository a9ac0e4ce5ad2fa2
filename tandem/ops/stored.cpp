// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/stored.h"

#include <cstring>

#include "tandem/graph/trace.h"

namespace tandem {

Tensor StoredBox::get() const {
  Tensor t(Ref<detail::TensorImpl>::adopt(detail::new_tensor(spec.shape, spec.dtype, cpu)));
  std::memcpy(t.impl()->data, bytes.impl()->data, static_cast<size_t>(bytes.numel()));
  return t;
}

Tensor constant_value(const ConstantAttrs& a) {
  if (const auto* stored = dynamic_cast<const StoredBox*>(a.value.get())) return stored->get();
  return static_cast<const TensorBox*>(a.value.get())->value;
}

Spec constant_spec(const ConstantAttrs& a) {
  if (const auto* stored = dynamic_cast<const StoredBox*>(a.value.get())) return stored->spec;
  const auto* box = dynamic_cast<const TensorBox*>(a.value.get());
  TD_CHECK(box && box->value.defined(), Value, "the constant holds no tensor");
  return spec_of(box->value);
}

Tensor stored_constant(const Tensor& bytes, const Spec& spec, SourceLocation loc) {
  const int64_t wanted = spec.shape.numel().value() * static_cast<int64_t>(size_of(spec.dtype));
  TD_CHECK(bytes.dtype() == DType::u8 && bytes.is_contiguous() && bytes.numel() == wanted, Value,
           "{} bytes are not those of {}", bytes.numel(), spec.to_string());
  Ref<StoredBox> box = make_ref<StoredBox>(bytes, spec);
  if (!is_tracing()) return box->get();
  ConstantAttrs a{std::move(box)};
  return call(op::constant, &a, loc);
}

}  // namespace tandem
