// SPDX-License-Identifier: Apache-2.0
// The shape and dtype rule of every pointwise row: NumPy's broadcast, PyTorch's result type. Called
// by the dispatcher through a row's infer column, and by other rules for its promotion.
#include "tandem/graph/infer.h"

#include "tandem/graph/apply.h"
#include "tandem/graph/expression/scalar_program.h"

namespace tandem {
namespace {

// Promotion within one group of operands; `none` while it is empty.
struct Group {
  DType dtype = DType::b8;
  bool some = false;
  void add(DType t) {
    dtype = some ? promote(dtype, t) : t;
    some = true;
  }
};

// The group of higher rank decides; a lower one only counts with a higher category.
Group combine(const Group& high, const Group& low) {
  if (!high.some) return low;
  if (!low.some || is_floating(high.dtype)) return high;
  if (is_bool(high.dtype) || is_floating(low.dtype)) {
    Group g = high;
    g.add(low.dtype);
    return g;
  }
  return high;
}

bool is_number_input(const OpDef& op, int i) {
  return i < op.n_in && OpDef::last_char(op.in_names[i]) == '$';
}

const char* input_name(const OpDef& op, int i) {
  return op.in_names[i < op.n_in ? i : op.n_in - 1];
}

// An input's name without marks, for messages.
std::string shown_name(const OpDef& op, int i) {
  std::string name = input_name(op, i);
  while (!name.empty() && (name.back() == '$' || name.back() == '?' || name.back() == '*'))
    name.pop_back();
  return name;
}

[[noreturn]] TD_COLD void throw_broadcast(const InferCall& c, int first, int second, int dim) {
  const Shape &a = c.in[first].shape, &b = c.in[second].shape;
  const int back = std::max(a.rank(), b.rank()) - dim;
  TD_FAIL(Shape,
          "input '{}' is {}, input '{}' is {}: they do not broadcast, dimension {} from the right "
          "is {} and {}\nSizes must be equal, or one of them 1: unsqueeze() adds such a dimension.",
          shown_name(c.op, first), a.to_string(), shown_name(c.op, second), b.to_string(), back,
          a[a.rank() - back].to_string(), b[b.rank() - back].to_string());
}

// Which earlier input determined this size of dimension `dim` of the result.
int giver_of(const InferCall& c, int before, int from_right, Dim size) {
  for (int i = 0; i < before; ++i) {
    if (!c.has(i)) continue;
    const Shape& s = c.in[i].shape;
    if (s.rank() >= from_right && s[s.rank() - from_right] == size) return i;
  }
  return 0;
}

void broadcast_into(const InferCall& c, int i, Shape& out) {
  const Shape& s = c.in[i].shape;
  if (s == out) return;
  while (out.rank() < s.rank()) out.insert(0, Dim(1));
  const int lead = out.rank() - s.rank();
  for (int d = 0; d < s.rank(); ++d) {
    Dim& o = out[lead + d];
    if (s[d] == o || s[d] == Dim(1)) continue;
    if (o == Dim(1)) {
      o = s[d];
      continue;
    }
    if (!dims_equal(o, s[d]))
      throw_broadcast(c, giver_of(c, i, out.rank() - lead - d, o), i, lead + d);
    if (o.is_symbolic()) o = s[d];
  }
}

// An integer number together with a narrow integer dtype. Negative ones wrap in u8, as in PyTorch.
void check_number(const InferCall& c, int i, DType t) {
  const int64_t v = c.scalars[i].i;
  const int64_t top = t == DType::u8 ? 255 : (int64_t{1} << (8 * size_of(t) - 1)) - 1;
  const int64_t low = t == DType::u8 ? -255 : -top - 1;
  TD_CHECK(v >= low && v <= top, Value,
           "the number {} for '{}' does not fit {}\nConvert the tensor to a wider dtype first.", v,
           shown_name(c.op, i), to_string(t));
}

}  // namespace

DType promote_inputs(const InferCall& c, int first, int last) {
  Group dims, zero_dims, numbers;
  if (last < 0) last = c.n_in();
  for (int i = first; i < last; ++i) {
    if (c.is_scalar(i))
      numbers.add(c.scalars[i].dtype());
    else if (!c.has(i))
      continue;
    else if (c.in[i].rank() > 0)
      dims.add(c.in[i].dtype);
    else if (is_number_input(c.op, i))
      numbers.add(is_floating(c.in[i].dtype) ? DType::f32 : c.in[i].dtype);
    else
      zero_dims.add(c.in[i].dtype);
  }
  const Group g = combine(dims, combine(zero_dims, numbers));
  return g.some ? g.dtype : DType::f32;
}

PointwiseTypes pointwise_types(const InferCall& c) {
  switch (c.op.types) {
    case Types::floating: {
      const DType p = promote_inputs(c);
      const DType t = is_floating(p) ? p : DType::f32;
      return {t, t};
    }
    case Types::compare: {
      const DType p = promote_inputs(c);
      return {is_integral(p) ? DType::i64 : p, DType::b8};
    }
    case Types::logical:
      return {DType::b8, DType::b8};
    case Types::bits: {
      const DType p = promote_inputs(c);
      TD_CHECK(!is_floating(p), DType,
               "expected integers or bool, these inputs give {}\nConvert with .to(int64).",
               to_string(p));
      return {p, p};
    }
    case Types::cast:
      return {c.in[0].dtype, c.get_attrs<CastAttrs>().dtype};
    case Types::where: {
      TD_CHECK(!c.has(0) || c.in[0].dtype == DType::b8, DType,
               "'{}' expects bool, got {}\nCompare it with something, for example c != 0.",
               c.op.in_names[0], to_string(c.in[0].dtype));
      const DType p = promote_inputs(c, 1);
      return {p, p};
    }
    default: {
      const DType p = promote_inputs(c);
      return {p, p};
    }
  }
}

void infer_pointwise(InferCall& c) {
  const DType result = pointwise_types(c).result;
  if (is_integral(result) && result != DType::i64 && c.op.types != Types::cast)
    for (int i = 0; i < c.n_in(); ++i)
      if (c.is_scalar(i) && c.scalars[i].kind == 1) check_number(c, i, result);
  const Spec* first = nullptr;
  Shape shape;
  for (int i = 0; i < c.n_in(); ++i) {
    if (!c.has(i)) continue;
    if (!first) {
      first = &c.in[i];
      shape = first->shape;
    } else {
      broadcast_into(c, i, shape);
    }
  }
  for (Spec& s : c.out) {
    s.dtype = result;
    s.device = first ? first->device : Device{};
    s.shape = shape;
  }
}

// ---- the same rules for a kernel, which already knows the result dtype

DType compute_dtype(const OpDef& op, std::span<const OperandType> in, std::span<const DType> out) {
  switch (op.types) {
    case Types::logical:
      return DType::b8;
    case Types::cast:
      return in[0].dtype;
    case Types::compare:
      break;
    default:
      if (out.size() == 1) return out[0];
  }
  // Comparisons: the promoted type. Several outputs: the widest of all state tensors.
  Group dims, zero_dims, numbers;
  for (size_t i = 0; i < in.size(); ++i) {
    const OperandType& t = in[i];
    const bool number = is_number_input(op, static_cast<int>(i));
    if (t.kind == OperandType::tensor)
      dims.add(t.dtype);
    else if (t.kind == OperandType::number || (t.kind == OperandType::zero_dim && number))
      numbers.add(is_floating(t.dtype) ? DType::f32 : t.dtype);
    else if (t.kind == OperandType::zero_dim)
      zero_dims.add(t.dtype);
  }
  const Group g = combine(dims, combine(zero_dims, numbers));
  const DType p = g.some ? g.dtype : DType::f32;
  return op.types == Types::compare && is_integral(p) ? DType::i64 : p;
}

}  // namespace tandem
