// SPDX-License-Identifier: Apache-2.0
// Convolutions and matmuls of dequantised codes multiply the codes: sums are exact in i32, then
// come bias, both scales, and whatever follows, which loops and epilogues take in. Eager code sums
// products of floats, so results differ in their last bits, and a code that is computed from them
// by at most one where a value lies half-way. What rounds again by the same step is done once.
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/conv/pool.h"
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/pointwise/quantize.h"

namespace tandem::compiler {
namespace {

// What dequantize_linear reads: codes, scale, zero point (kNone: 0).
struct Dequantised {
  ValueId codes, scale, zero;
  int64_t axis;
  static std::optional<Dequantised> of(const Rewrite& r, ValueId v) {
    const Instr* i = r.maker(v);
    if (!i || i->op != &op::dequantize_linear) return {};
    return Dequantised{i->in[0].value, i->in[1].value, operand(*i, 2),
                       static_cast<const QuantizeAttrs*>(i->attrs.get())->axis};
  }
};

class Products {
 public:
  Products(Rewrite& r, const PerValue<char>& stable) : r_(r), stable_(stable), root_(r.root()) {}

  void conv() {
    const auto& a = *static_cast<const ConvAttrs*>(root_.attrs.get());
    if (r_.spec(root_.in[0].value).rank() != 4 || !find(0) || (a.groups != 1 && !packs(a))) return;
    for (const Dim d : a.dilation)
      if (d != Dim(1)) return;
    const ValueId sum = r_.emit().emit(op::conv_integer, fields<ConvAttrs>(), &a,
                                       {x_->codes, w_->codes, x_->zero, w_->zero});
    finish(sum, Shape(1, columns_, 1, 1));
  }

  void matmul(int axis, bool turned) {
    if (r_.spec(root_.in[1].value).rank() != 2 || r_.spec(root_.in[0].value).rank() < 2 ||
        !find(axis))
      return;
    const ValueId w = turned ? r_.emit().permute(w_->codes, {1, 0}) : w_->codes;
    const ValueId sum =
        r_.emit().emit(op::matmul_integer, nullptr, nullptr, {x_->codes, w, x_->zero, w_->zero});
    finish(sum, Shape(columns_));
  }

 private:
  bool is_bytes(ValueId v) const {
    const DType t = r_.spec(v).dtype;
    return t == DType::u8 || t == DType::i8;
  }
  bool is_one(ValueId v) const { return r_.spec(v).shape.numel() == Dim(1); }
  bool stays(ValueId v) const { return v == kNone || (v.index() < stable_.size() && stable_[v]); }
  // Is there a packed form for the groups? No kernel takes them without one.
  bool packs(const ConvAttrs& a) const {
    return stays(w_->codes) && stays(w_->zero) && !stays(x_->codes) &&
           takes_depthwise_codes(r_.program(), a, r_.spec(x_->codes).shape,
                                 r_.spec(w_->codes).shape);
  }

  // Operands as codes; the outputs are along `axis` of the weight.
  bool find(int axis) {
    x_ = Dequantised::of(r_, root_.in[0].value);
    w_ = Dequantised::of(r_, root_.in[1].value);
    if (!x_ || !w_ || !is_bytes(x_->codes) || !is_bytes(w_->codes) || !is_one(x_->scale) ||
        r_.spec(root_.out[0]).dtype != DType::f32)
      return false;
    const Shape& w = r_.spec(w_->codes).shape;
    columns_ = w[axis].value();
    return is_one(w_->scale) || normalize_dim(w_->axis, w.rank()) == axis;
  }

  ValueId beside(ValueId v, const Shape& shape) {
    return is_one(v) ? r_.emit().view(v, Shape()) : r_.emit().view(v, shape);
  }
  ValueId cast(ValueId v, DType dtype) {
    const CastAttrs a{dtype};
    return r_.emit().emit(op::cast, fields<CastAttrs>(), &a, {v});
  }

  // Is the bias in steps of both scales? All of them are constants then.
  bool is_in_steps(const Dequantised& b) const {
    const auto numbers = [&](ValueId v) -> std::optional<Tensor> {
      const Value& value = r_.program().values[v];
      if (value.origin != Origin::constant) return {};
      return r_.program().constants[static_cast<size_t>(value.index)];
    };
    const auto x = numbers(x_->scale), w = numbers(w_->scale), s = numbers(b.scale);
    if (!x || !w || !s || b.zero != kNone || r_.spec(b.codes).dtype != DType::i32) return false;
    const double by = x->to_vector<double>()[0];
    const std::vector<double> each = w->to_vector<double>(), step = s->to_vector<double>();
    for (size_t i = 0; i < std::max(each.size(), step.size()); ++i) {
      const double want = by * each[each.size() == 1 ? 0 : i];
      constexpr double kSame = 1e-6;
      if (std::abs(step[step.size() == 1 ? 0 : i] - want) > kSame * want) return false;
    }
    return true;
  }

  void finish(ValueId sum, const Shape& shape) {
    const ValueId bias = operand(root_, 2);
    const auto codes = bias == kNone ? std::nullopt : Dequantised::of(r_, bias);
    const bool inside = codes && is_in_steps(*codes);
    if (inside) sum = r_.emit().emit(op::add, nullptr, nullptr, {sum, beside(codes->codes, shape)});
    const ValueId scale = r_.emit().emit(op::mul, nullptr, nullptr,
                                         {beside(x_->scale, shape), beside(w_->scale, shape)});
    ValueId y = r_.emit().emit(op::mul, nullptr, nullptr, {cast(sum, DType::f32), scale});
    if (bias != kNone && !inside)
      y = r_.emit().emit(op::add, nullptr, nullptr, {y, beside(bias, shape)});
    r_.replace(y);
  }

  Rewrite& r_;
  const PerValue<char>& stable_;
  const Instr& root_;
  std::optional<Dequantised> x_, w_;
  int64_t columns_ = 0;
};

bool same_number(const Rewrite& r, ValueId a, ValueId b) {
  if (a == b) return true;
  if (a == kNone || b == kNone) return false;
  Arg x, y;
  x.value = a;
  y.value = b;
  const auto m = number_of(const_cast<Rewrite&>(r).program(), x),
             n = number_of(const_cast<Rewrite&>(r).program(), y);
  return m && n && *m == *n && r.spec(a).dtype == r.spec(b).dtype;
}

// quantize(f(dequantize(quantize(x)))) by one step, where f picks elements by their order: the
// inner rounding changes nothing. One step is one scale and one zero point.
void round_once(Rewrite& r) {
  const Instr inner = r.instr("inner"), codes = r.instr("codes"), picked = r.instr("picked");
  const Instr& root = r.root();
  for (const size_t k : {size_t{1}, size_t{2}})
    if (!same_number(r, operand(root, k), operand(inner, k)) ||
        !same_number(r, operand(root, k), operand(codes, k)))
      return;
  if (r.spec(root.out[0]).dtype != r.spec(codes.out[0]).dtype) return;
  const ValueId y =
      r.emit().emit(*picked.op, picked.op->attrs, picked.attrs.get(), {codes.in[0].value});
  r.become(op::quantize_linear, root.attrs.get(),
           std::initializer_list<ValueId>{y, root.in[1].value, operand(root, 2)});
}

std::vector<Rule> rules(const PerValue<char>& stable) {
  const auto rounded = [](Pattern codes) {
    return row(op::dequantize_linear, {std::move(codes).as("codes")}).once().as("inner");
  };
  return {
      {row(op::conv, {any(), any()}), [&](Rewrite& r) { Products(r, stable).conv(); }},
      {row(op::linear, {any(), any()}), [&](Rewrite& r) { Products(r, stable).matmul(0, true); }},
      {row(op::matmul, {any(), any()}),
       [&](Rewrite& r) {
         const auto& a = *static_cast<const MatmulAttrs*>(r.root().attrs.get());
         if (!a.trans_a) Products(r, stable).matmul(a.trans_b ? 0 : 1, a.trans_b);
       }},
      {row(op::quantize_linear,
           {row(op::max_pool, {rounded(row(op::quantize_linear, {any()}).once())})
                .once()
                .as("picked")}),
       round_once},
      {row(op::quantize_linear,
           {of_family(Family::view, {rounded(row(op::quantize_linear, {any()}).once())})
                .once()
                .as("picked")}),
       round_once},
  };
}

}  // namespace

void integer_products(Program& p) {
  if (!p.inference || !has_own_kernel(op::packed_integer_conv, p.device)) return;
  const PerValue<char> stable = stable_values(p, p.weights_stay);
  Rewriter(p).run(rules(stable));
}

}  // namespace tandem::compiler
