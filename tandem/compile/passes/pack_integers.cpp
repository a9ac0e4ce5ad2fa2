// SPDX-License-Identifier: Apache-2.0
// Matmuls and convolutions of 8-bit integers whose weight and its zero point are stable read them
// packed (ops/matmul/integer.h), as pack_weights() does with floats. Sums are exact, so the bits
// stay. What is added to each column becomes their bias. Where a kernel takes them, 3x3
// convolutions of stride 1 multiply transformed tiles (ops/matmul/integer_winograd.h), exactly,
// too.
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/matmul/integer_depthwise.h"
#include "tandem/ops/matmul/integer_winograd.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/create.h"

namespace tandem::compiler {
namespace {

class IntegerPacking {
 public:
  explicit IntegerPacking(const Program& p)
      : p_(p),
        stable_(stable_values(p, p.weights_stay)),
        winograd_(has_own_kernel(op::integer_winograd_conv, p.device)) {}

  std::vector<Rule> rules() const {
    return {{row(op::matmul_integer, {any("x"), any("w")}), [this](Rewrite& r) { matmul(r); }},
            {row(op::conv_integer, {any("x"), any("w")}), [this](Rewrite& r) { conv(r); }}};
  }

 private:
  bool stable(ValueId v) const { return v == kNone || (v.index() < stable_.size() && stable_[v]); }
  bool fits(const Rewrite& r) const {
    const ValueId x = r.value("x"), w = r.value("w");
    return stable(w) && !stable(x) && stable(operand(r.root(), 3)) &&
           r.spec(x).shape.numel().value() > 0 && r.spec(w).shape.numel().value() > 0;
  }

  // Is the zero point what packing takes from the weights anyway?
  bool natural_zero(const Rewrite& r) const {
    const bool is_signed = r.spec(r.value("w")).dtype == DType::i8;
    const ValueId zero = operand(r.root(), 3);
    if (zero == kNone) return is_signed;
    const Value& v = p_.values[zero];
    if (v.origin != Origin::constant) return false;
    for (const int64_t z : p_.constants[static_cast<size_t>(v.index)].to_vector<int64_t>())
      if (z != (is_signed ? 0 : 128)) return false;
    return true;
  }

  ValueId use(Rewrite& r, const OpDef& op, ValueId x, const PackedAttrs& a) const {
    const ValueId x_zero = operand(r.root(), 2), w = r.value("w");
    if (&op == &op::packed_integer_conv && transforms(r, a)) {
      const ValueId tiles = r.emit().emit(op::pack_integer_winograd, nullptr, nullptr, {w});
      return r.emit().emit(op::integer_winograd_conv, fields<PackedAttrs>(), &a,
                           {x, tiles, x_zero});
    }
    const ValueId packed = r.emit().emit(op::pack_integer, nullptr, nullptr, {w});
    if (natural_zero(r)) return r.emit().emit(op, fields<PackedAttrs>(), &a, {x, packed, x_zero});
    ValueId zero = operand(r.root(), 3);
    if (zero == kNone) zero = r.program().add_constant(zeros(Shape(), r.spec(w).dtype));
    return r.emit().emit(op, fields<PackedAttrs>(), &a, {x, packed, x_zero, ValueId(), zero});
  }

  bool transforms(const Rewrite& r, const PackedAttrs& a) const {
    for (int d = 0; d < 2; ++d)
      if (a.kernel[d].value() != 3 || a.stride[d].value() != 1 || a.padding[d].value() < 0 ||
          a.padding_end[d].value() < 0)
        return false;
    const int64_t channels = r.spec(r.value("x")).shape[1].value();
    return winograd_ && channels <= kMostIntegerWinogradChannels && natural_zero(r) &&
           transformed_tiles_pay(r.spec(r.root().out[0]).shape, channels, kIntegerWinogradOut);
  }

  void matmul(Rewrite& r) const {
    if (!fits(r)) return;
    PackedAttrs a;
    a.columns = r.emit().size(r.value("w"), 1);
    r.replace(use(r, op::packed_integer_matmul, r.value("x"), a));
  }

  void conv(Rewrite& r) const {
    const ValueId x = r.value("x"), w = r.value("w");
    const auto& a = *static_cast<const ConvAttrs*>(r.root().attrs.get());
    if (!fits(r) || r.spec(x).rank() != 4) return;
    if (a.groups != 1 && !takes_depthwise_codes(p_, a, r.spec(x).shape, r.spec(w).shape)) return;
    PackedAttrs p;
    p.columns = r.emit().size(w, 0);
    for (int d = 0; d < 2; ++d) {
      if (a.dilation[d].value() != 1) return;
      p.kernel.push_back(r.emit().size(w, d + 2));
      p.stride.push_back(a.stride[d]);
      p.padding.push_back(a.padding[d]);
      p.padding_end.push_back(a.padding_end[d]);
    }
    const ValueId image = r.emit().permute(x, {0, 2, 3, 1});
    const ValueId y =
        a.groups != 1 ? depthwise(r, image, p) : use(r, op::packed_integer_conv, image, p);
    r.replace(r.emit().permute(y, {0, 3, 1, 2}));
  }

  ValueId depthwise(Rewrite& r, ValueId image, const PackedAttrs& p) const {
    const ValueId packed = r.emit().emit(op::pack_integer_depthwise, nullptr, nullptr,
                                         {r.value("w"), operand(r.root(), 3)});
    return r.emit().emit(op::integer_depthwise_conv, fields<PackedAttrs>(), &p,
                         {image, packed, operand(r.root(), 2)});
  }

  const Program& p_;
  PerValue<char> stable_;
  bool winograd_;
};

// The root adds an integer for each column.
void take_bias(Rewrite& r) {
  Instr i = r.instr("y");
  const ValueId b = r.value("b");
  const Shape &s = r.spec(b).shape, &y = r.spec(i.out[0]).shape;
  const int64_t columns = y[y.rank() - 1].value();
  if (!(r.spec(i.out[0]) == r.spec(r.root().out[0])) || r.spec(b).dtype != DType::i32 ||
      operand(i, 3) != kNone || s.rank() == 0 || s.numel().value() != columns ||
      s[s.rank() - 1].value() != columns)
    return;
  while (i.in.size() <= 3) i.in.push_back({});
  i.in[3].value = b;
  r.become(std::move(i));
}

}  // namespace

bool takes_depthwise_codes(const Program& p, const ConvAttrs& a, const Shape& x, const Shape& w) {
  const int64_t channels = w[0].value();
  if (!has_own_kernel(op::integer_depthwise_conv, p.device) || x.rank() != 4 ||
      a.groups != channels || w[1].value() != 1 || x[1].value() != channels ||
      channels < kIntegerDepthwiseBlock || w[2].value() > kIntegerDepthwiseRows ||
      a.stride[0] != a.stride[1])
    return false;
  for (int d = 0; d < 2; ++d)
    if (a.dilation[d].value() != 1 || a.padding[d].value() < 0 || a.padding_end[d].value() < 0)
      return false;
  return true;
}

void take_integer_biases(Program& p) {
  if (!p.inference) return;
  const Pattern sums = with_flag(kPackedSums).read(1).as("y");
  Rewriter(p).run({{row(op::add, {sums, any("b")}).any_order(), take_bias}});
}

void pack_integers(Program& p) {
  if (!p.inference || !has_own_kernel(op::packed_integer_conv, p.device) ||
      !has_own_kernel(op::packed_integer_matmul, p.device))
    return;
  const IntegerPacking packing(p);
  Rewriter(p).run(packing.rules());
}

}  // namespace tandem::compiler
