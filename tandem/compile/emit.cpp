// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/emit.h"

#include "tandem/graph/infer.h"
#include "tandem/ops/view.h"

namespace tandem::compiler {

namespace {
size_t idx(int k) { return static_cast<size_t>(k); }
}  // namespace

int Emitter::emit(const OpDef& op, const AttrsType* type, const void* attrs,
                  std::span<const int> in) {
  Instr i;
  i.op = &op;
  if (attrs) i.attrs = AttrsHolder(type, attrs);
  i.scope = scope_;
  i.where = where_;
  InferCall c(op, attrs);
  for (int v : in) {
    Arg a;
    a.value = v;
    i.in.push_back(a);
    c.in.push_back(v == kNone ? Spec() : p_.values[idx(v)].spec);
    c.present.push_back(v != kNone);
    c.scalars.push_back({});
  }
  op.infer_fn(c);
  const int out = p_.add_value(c.out[0], Origin::instr, 0);
  i.out.push_back(out);
  p_.instrs.push_back(std::move(i));
  return out;
}

int Emitter::permute(int v, std::initializer_list<int64_t> dims) {
  PermuteAttrs a;
  for (int64_t d : dims) a.dims.push_back(d);
  return emit(op::permute, fields<PermuteAttrs>(), &a, {v});
}

int Emitter::view(int v, const Shape& shape) {
  ShapeAttrs a;
  for (int d = 0; d < shape.rank(); ++d) a.shape.push_back(shape[d]);
  return emit(op::view, fields<ShapeAttrs>(), &a, {v});
}

bool Emitter::rewrite(const std::function<int(const Instr&)>& by) {
  std::vector<Instr> old = std::move(p_.instrs);
  p_.instrs.clear();
  std::vector<std::pair<int, int>> renamed;
  for (Instr& i : old) {
    at(i);
    const int y = by(i);
    if (y == kNone)
      p_.instrs.push_back(std::move(i));
    else
      renamed.emplace_back(i.out[0], y);
  }
  p_.rename(renamed);
  return !renamed.empty();
}

size_t bytes_behind(const Tensor& t) {
  size_t n = size_of(t.dtype());
  for (int d = 0; d < t.dim(); ++d)
    if (t.impl()->strides[d] != 0) n *= static_cast<size_t>(t.size(d));
  return n;
}

std::vector<char> stable_values(const Program& p, bool cells) {
  std::vector<char> stable(p.values.size());
  for (size_t v = 0; v < p.values.size(); ++v) stable[v] = p.values[v].origin == Origin::constant;
  for (const Program::CellUse& u : p.cells)
    if (cells && u.entry != kNone && u.exit == kNone) stable[idx(u.entry)] = 1;
  for (const Instr& i : p.instrs) {
    if (!i.op || i.in.empty() || has_effect(i) || i.op->has(kRandom) || i.op->has(kDataSized) ||
        i.op->family == Family::control)
      continue;
    bool all = true, any = false;
    for (const Arg& a : i.in) {
      all = all && (a.value == kNone || stable[idx(a.value)]);
      any = any || a.value != kNone;
    }
    for (int v : i.out)
      if (v != kNone) stable[idx(v)] = all && any;
  }
  return stable;
}

}  // namespace tandem::compiler
