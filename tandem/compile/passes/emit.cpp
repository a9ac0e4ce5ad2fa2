// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/passes/emit.h"

#include "tandem/graph/infer.h"
#include "tandem/ops/view/view.h"

namespace tandem::compiler {

ValueId Emitter::emit(const OpDef& op, const AttrsType* type, const void* attrs,
                      std::span<const ValueId> in) {
  Instr i;
  i.op = &op;
  if (attrs) i.attrs = AttrsHolder(type, attrs);
  i.scope = scope_;
  i.loc = loc_;
  InferCall c(op, attrs);
  for (ValueId v : in) {
    Arg a;
    a.value = v;
    i.in.push_back(a);
    c.in.push_back(v == kNone ? Spec() : p_.values[v].spec);
    c.present.push_back(v != kNone);
    c.scalars.push_back({});
  }
  op.infer_fn(c);
  const ValueId out = p_.add_value(c.out[0], Origin::instr, 0);
  i.out.push_back(out);
  p_.instrs.push_back(std::move(i));
  return out;
}

ValueId Emitter::permute(ValueId v, std::initializer_list<int64_t> dims) {
  PermuteAttrs a;
  for (int64_t d : dims) a.dims.push_back(d);
  return emit(op::permute, fields<PermuteAttrs>(), &a, {v});
}

ValueId Emitter::view(ValueId v, const Shape& shape) {
  ShapeAttrs a;
  for (int d = 0; d < shape.rank(); ++d) a.shape.push_back(shape[d]);
  return emit(op::view, fields<ShapeAttrs>(), &a, {v});
}

size_t bytes_behind(const Tensor& t) {
  size_t n = size_of(t.dtype());
  for (int d = 0; d < t.dim(); ++d)
    if (t.impl()->strides[d] != 0) n *= static_cast<size_t>(t.size(d));
  return n;
}

PerValue<char> stable_values(const Program& p, bool cells) {
  PerValue<char> stable(p.values.size());
  for (ValueId v : p.values.ids()) stable[v] = p.values[v].origin == Origin::constant;
  for (const Program::CellUse& u : p.cells)
    if (cells && u.entry != kNone && u.exit == kNone) stable[u.entry] = 1;
  for (const Instr& i : p.instrs) {
    if (!i.op || i.in.empty() || has_effect(i) || i.op->has(kRandom) || i.op->has(kDataSized) ||
        i.op->family == Family::control)
      continue;
    bool all = true, any = false;
    for (const Arg& a : i.in) {
      all = all && (a.value == kNone || stable[a.value]);
      any = any || a.value != kNone;
    }
    for (ValueId v : i.out)
      if (v != kNone) stable[v] = all && any;
  }
  return stable;
}

}  // namespace tandem::compiler
