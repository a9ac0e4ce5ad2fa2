// SPDX-License-Identifier: Apache-2.0
// Buffers, places, and the placeholders that a call binds.
#include "tandem/compile/lowering/stages.h"
#include "tandem/graph/apply_internal.h"

namespace tandem::compiler {
bool same_strides(const Shape& shape, const Strides& a, const Strides& b) {
  for (int d = 0; d < shape.rank(); ++d)
    if (shape[d].value() != 1 && a[d] != b[d]) return false;
  return true;
}

int Lowering::add_buffer(Base base, int index, size_t bytes) {
  Block b;
  b.base = base;
  b.index = index;
  b.bytes = bytes;
  l.buffers.push_back(b);
  return static_cast<int>(l.buffers.size()) - 1;
}

int Lowering::add_place(int buffer, const Spec& s, const Strides* strides) {
  Place place;
  place.buffer = buffer;
  place.shape = s.shape;
  place.dtype = s.dtype;
  place.strides = strides ? *strides : contiguous_strides(s.shape);
  place.contiguous = !strides || same_strides(s.shape, *strides, contiguous_strides(s.shape));
  l.places.push_back(place);
  return static_cast<int>(l.places.size()) - 1;
}

int Lowering::fresh(const Spec& s, const Strides* strides) {
  return add_place(add_buffer(Base::arena, kNone, bytes_of(s)), s, strides);
}

void Lowering::bind_placeholders() {
  const auto bind = [&](ValueId v, Base base, size_t index) {
    if (v == kNone) return;
    place_of[v] = add_place(add_buffer(base, static_cast<int>(index), bytes_of(spec(v))), spec(v));
  };
  const Program& p = program;
  for (size_t i = 0; i < p.inputs.size(); ++i) bind(p.inputs[i], Base::input, i);
  for (size_t i = 0; i < p.captures.size(); ++i) bind(p.captures[i], Base::capture, i);
  for (size_t i = 0; i < p.cells.size(); ++i) bind(p.cells[i].entry, Base::cell, i);
  for (size_t i = 0; i < p.grads.size(); ++i) bind(p.grads[i].entry, Base::grad, i);
  l.constants = p.constants;
  for (ValueId v : p.values.ids())
    if (p.values[v].origin == Origin::constant) {
      Tensor& constant = l.constants[p.values[v].index];
      if (!constant.defined()) continue;  // nobody reads it
      if (!constant.is_contiguous()) {
        NoGradGuard no_grad;
        constant = call(op::copy, nullptr, SourceLocation{}, constant);
      }
      constant = constant.to(p.device);
      bind(v, Base::constant, static_cast<size_t>(p.values[v].index));
    } else if (p.values[v].origin == Origin::derived) {
      bind(v, Base::derived, static_cast<size_t>(p.values[v].index));
    }
}

}  // namespace tandem::compiler
