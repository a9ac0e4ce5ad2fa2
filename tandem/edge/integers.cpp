// SPDX-License-Identifier: Apache-2.0
// A quantised network on its codes. The result of quantize_linear is computed from the codes that
// its operand was dequantised from: sums of products are exact in i32; a step of one scale becomes
// a step of another by a multiplier m and a shift s,
//   code = clamp(zero + floor((sum * m + 2^(s - 1)) / 2^s)),   ratio = m / 2^s, 2^30 <= m <= 2^31
// (halves are rounded up), in i64, so that every processor computes the same codes. Channels of a
// weight share s. Bounds, views, maxima and concatenations work on the codes themselves.
#include <cmath>

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/edge/program_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/conv/pool.h"
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"

namespace tandem::edge {
namespace {

using compiler::Instr;
using compiler::kNone;
using compiler::operand;
using compiler::Rewrite;
using compiler::Rule;
using compiler::ValueId;

constexpr int64_t kMostKnown = 1 << 16;  ///< elements of scales, zero points and biases

// What follows from constants alone; undefined where it does not.
Tensor known(Rewrite& r, ValueId v) {
  if (v == kNone) return {};
  const compiler::Value& value = r.program().values[v];
  if (value.origin == compiler::Origin::constant)
    return r.program().constants[static_cast<size_t>(value.index)];
  const Instr* i = r.maker(v);
  if (!i || !i->op || i->out.size() != 1 || i->op->has(kRandom) || i->op->has(kDataSized) ||
      i->op->family == Family::control || value.spec.shape.numel().value() > kMostKnown)
    return {};
  std::vector<Tensor> values;  // operands refer to them
  for (const compiler::Arg& a : i->in) {
    values.push_back(a.is_number ? Tensor() : known(r, a.value));
    if (a.value != kNone && !values.back().defined()) return {};
  }
  std::vector<Operand> in;
  for (size_t k = 0; k < values.size(); ++k)
    if (i->in[k].is_number)
      in.emplace_back(i->in[k].number, i->loc);
    else
      in.emplace_back(values[k], i->loc);
  Tensor out[kMaxOpOuts];
  apply(*i->op, i->attrs.get(), in, out, i->loc);
  return out[0];
}

using Numbers = std::vector<double>;
double at(const Numbers& v, size_t i) { return v[v.size() == 1 ? 0 : i]; }

// How codes stand for numbers: one scale and zero point, or one for each index of `axis`.
struct CodeStep {
  ValueId codes;
  DType dtype;
  Numbers scale, zero;
  int64_t axis;

  bool is_one() const { return scale.size() == 1; }
  // Of quantize_linear and dequantize_linear: `codes` is the result, or the operand.
  static std::optional<CodeStep> of(Rewrite& r, const Instr& i) {
    const Tensor scale = known(r, operand(i, 1)), zero = known(r, operand(i, 2));
    if (!scale.defined() || (operand(i, 2) != kNone && !zero.defined())) return {};
    const ValueId codes = i.op == &op::quantize_linear ? i.out[0] : i.in[0].value;
    const Numbers scales = scale.to_vector<double>();
    for (const double x : scales)
      if (!(x > 0) || !std::isfinite(x)) return {};
    const auto& a = *static_cast<const QuantizeAttrs*>(i.attrs.get());
    const Numbers zeros = zero.defined() ? zero.to_vector<double>() : Numbers{0};
    return CodeStep{codes, r.spec(codes).dtype, scales, zeros, a.axis};
  }
  // What v was dequantised from.
  static std::optional<CodeStep> behind(Rewrite& r, ValueId v) {
    const Instr* i = v == kNone ? nullptr : r.maker(v);
    if (!i || i->op != &op::dequantize_linear) return {};
    return of(r, Instr(*i));
  }
  bool is_byte() const { return dtype == DType::u8 || dtype == DType::i8; }
  double least() const { return dtype == DType::i8 ? -128 : 0; }
  // The code of a bound, as quantize_linear computes it.
  double code_of(double x) const {
    const double code = std::nearbyint(static_cast<float>(x) / static_cast<float>(scale[0]));
    return std::clamp(code + zero[0], least(), least() + 255);
  }
};

struct FixedPoint {
  std::vector<int64_t> multiplier;
  int64_t shift;

  static std::optional<FixedPoint> of(const Numbers& ratios) {
    double most = 0;
    for (const double x : ratios) most = std::max(most, std::isfinite(x) ? x : 0);
    int exponent = 0;
    std::frexp(most, &exponent);
    const int shift = 31 - exponent;
    if (most <= 0 || shift < 1 || shift > 62) return {};
    FixedPoint f{{}, shift};
    for (const double x : ratios) f.multiplier.push_back(std::llround(std::ldexp(x, shift)));
    return f;
  }
};

ValueId inline_body(Rewrite& r, const std::vector<ValueId>& args,
                    FunctionRef<Tensor(std::span<const Tensor>)> body) {
  std::vector<Spec> specs;
  for (const ValueId v : args) specs.push_back(r.spec(v));
  const auto one = [&](std::span<const Tensor> in) { return std::vector{body(in)}; };
  const Ref<Graph> g = trace(one, specs, Captures::as_inputs);
  return compiler::inline_graph(r.program(), *g, args, r.root().scope, r.root().loc)[0];
}

// Shift, zero point and bounds after the multiplication.
Tensor to_codes(const Tensor& scaled, int64_t shift, const CodeStep& to) {
  const Tensor code =
      bitwise_right_shift(scaled + (int64_t{1} << (shift - 1)), shift) + std::llround(to.zero[0]);
  const auto least = static_cast<int64_t>(to.least());
  return clamp(code, least, least + 255).to(to.dtype);
}

// ---- sums of products

// A convolution or matmul of codes, and what is added to each of its columns.
struct IntegerProduct {
  CodeStep x, w;
  Instr instr;
  Tensor bias;  ///< known; undefined: none
  int64_t columns;
  bool turned;  ///< a matrix [n, k]

  double step(size_t column) const { return x.scale[0] * at(w.scale, column); }
  Numbers ratios(double by) const {
    Numbers v;
    for (size_t k = 0; k < static_cast<size_t>(w.is_one() && !bias.defined() ? 1 : columns); ++k)
      v.push_back(step(k) / by);
    return v;
  }
  // In steps of the sums.
  Numbers bias_in_steps() const {
    Numbers b = bias.to(DType::f64).to_vector<double>(), codes;
    for (size_t k = 0; k < static_cast<size_t>(columns); ++k)
      codes.push_back(std::nearbyint(at(b, k) / step(k)));
    return codes;
  }

  static std::optional<IntegerProduct> behind(Rewrite& r, ValueId v);
  static std::optional<IntegerProduct> of(Rewrite& r, const Instr& i, const Tensor& bias);
  // [.., n, ..] as the sums have it.
  Shape beside(size_t n) const {
    Shape s{static_cast<int64_t>(n)};
    if (instr.op == &op::conv)
      for (int d = 2; d < rank; ++d) s.push_back(1);
    return s;
  }
  int rank = 0;  ///< of the sums

  template <class T>
  ValueId constant(Rewrite& r, const std::vector<T>& v) const {
    return r.program().add_constant(tensor(v, beside(v.size())));
  }
  ValueId zero_of(Rewrite& r, const CodeStep& s) const {
    bool none = true;
    for (const double z : s.zero) none = none && z == 0;
    if (none) return kNone;
    const Tensor zero = tensor(s.zero).to(s.dtype);
    return r.program().add_constant(s.is_one() ? zero.reshape(Shape()) : zero);
  }
  // What the zero point of x adds to the sums of each column, to be taken off with the bias; empty
  // where padding makes it differ from place to place.
  std::vector<int64_t> zero_sums(Rewrite& r) const {
    const Tensor codes = known(r, w.codes);
    if (x.zero[0] == 0 || !codes.defined()) return {};
    for (const double z : w.zero)
      if (z != 0) return {};
    if (instr.op == &op::conv) {
      const auto& a = *static_cast<const ConvAttrs*>(instr.attrs.get());
      for (const IntList* padding : {&a.padding, &a.padding_end})
        for (int d = 0; d < padding->rank(); ++d)
          if ((*padding)[d] != Dim(0)) return {};
    }
    const Tensor by_column = instr.op == &op::conv ? codes.flatten(1) : turned ? codes : codes.t();
    std::vector<int64_t> sums;
    for (const double v : sum(by_column.to(DType::i64), {1}).to_vector<double>())
      sums.push_back(std::llround(x.zero[0] * v));
    return sums;
  }
  // A constant matrix [k, n] as [n, k], so that products are dot products; else the codes.
  ValueId rows_of_weights(Rewrite& r) const {
    const compiler::Value& value = r.program().values[w.codes];
    if (instr.op != &op::matmul || turned || value.origin != compiler::Origin::constant)
      return w.codes;
    const Tensor codes = r.program().constants[static_cast<size_t>(value.index)];
    return r.program().add_constant(codes.t().contiguous());
  }
  // The sums with the bias, which i32 holds, in i64.
  ValueId sums(Rewrite& r) const {
    const ValueId rows = rows_of_weights(r);
    std::vector<ValueId> args = {x.codes, rows};
    const std::vector<int64_t> off = zero_sums(r);
    const ValueId x_zero = off.empty() ? zero_of(r, x) : kNone, w_zero = zero_of(r, w);
    for (const ValueId z : {x_zero, w_zero})
      if (z != kNone) args.push_back(z);
    const bool adds = bias.defined() || !off.empty();
    if (adds) {
      const Numbers steps = bias.defined() ? bias_in_steps() : Numbers(off.size());
      std::vector<int32_t> codes;
      for (size_t k = 0; k < steps.size(); ++k)
        codes.push_back(
            static_cast<int32_t>(static_cast<int64_t>(steps[k]) - (off.empty() ? 0 : off[k])));
      args.push_back(constant(r, codes));
    }
    return inline_body(r, args, [&](std::span<const Tensor> in) {
      size_t k = 2;
      const Tensor zx = x_zero == kNone ? Tensor() : in[k++];
      const Tensor zw = w_zero == kNone ? Tensor() : in[k++];
      const Tensor sum =
          instr.op == &op::conv
              ? conv_integer(in[0], in[1], zx, zw,
                             *static_cast<const ConvAttrs*>(instr.attrs.get()))
              : matmul_integer(in[0], turned || rows != w.codes ? in[1].t() : in[1], zx, zw);
      return (adds ? sum + in[k] : sum).to(DType::i64);
    });
  }
};

std::optional<IntegerProduct> IntegerProduct::of(Rewrite& r, const Instr& i, const Tensor& bias) {
  const auto x = CodeStep::behind(r, i.in[0].value), w = CodeStep::behind(r, i.in[1].value);
  if (!x || !w || !x->is_byte() || !w->is_byte() || !x->is_one() ||
      r.spec(i.out[0]).dtype != DType::f32)
    return {};
  const Shape& shape = r.spec(w->codes).shape;
  const bool conv = i.op == &op::conv;
  bool turned = i.op == &op::linear;
  if (i.op == &op::matmul) {
    const auto& a = *static_cast<const MatmulAttrs*>(i.attrs.get());
    if (a.trans_a) return {};
    turned = a.trans_b;
  }
  if (!conv && (shape.rank() != 2 || r.spec(x->codes).rank() < 2)) return {};
  const int axis = conv || turned ? 0 : 1;
  if (!w->is_one() && normalize_dim(w->axis, shape.rank()) != axis) return {};
  const int64_t columns = shape[axis].value();
  if (bias.defined() && bias.numel() != columns && bias.numel() != 1) return {};
  // A sum with its bias stays within i32.
  constexpr int64_t kLargestProduct = 255 * 255;
  const int64_t products = shape.numel().value() / std::max<int64_t>(columns, 1);
  if (products > INT32_MAX / kLargestProduct) return {};
  const auto room = static_cast<double>(INT32_MAX - products * kLargestProduct);
  const IntegerProduct p{*x, *w, i, bias, columns, turned, r.spec(i.out[0]).rank()};
  if (bias.defined())
    for (const double b : p.bias_in_steps())
      if (!(std::abs(b) <= room)) return {};
  return p;
}

// conv, linear, matmul, or a matmul and a bias that is added to its columns.
std::optional<IntegerProduct> IntegerProduct::behind(Rewrite& r, ValueId v) {
  const Instr* maker = v == kNone ? nullptr : r.maker(v);
  if (!maker || !maker->op) return {};
  const Instr i = *maker;
  if (i.op == &op::conv || i.op == &op::linear || i.op == &op::matmul) {
    const Tensor bias = known(r, operand(i, 2));
    if (operand(i, 2) != kNone && !bias.defined()) return {};
    return of(r, i, bias);
  }
  if (i.op != &op::add) return {};
  for (const size_t k : {size_t{0}, size_t{1}}) {
    const Tensor bias = known(r, operand(i, 1 - k));
    const Instr* product = operand(i, k) == kNone ? nullptr : r.maker(operand(i, k));
    if (!bias.defined() || !product || product->op != &op::matmul) continue;
    if (bias.numel() != 1 && bias.shape(-1) != bias.shape().numel()) continue;
    return of(r, Instr(*product), bias);
  }
  return {};
}

bool quantised_product(Rewrite& r, const CodeStep& to, ValueId from) {
  const auto p = IntegerProduct::behind(r, from);
  if (!p) return false;
  const auto f = FixedPoint::of(p->ratios(to.scale[0]));
  if (!f) return false;
  const ValueId sums = p->sums(r), multiplier = p->constant(r, f->multiplier);
  r.replace(inline_body(r, {sums, multiplier}, [&](std::span<const Tensor> in) {
    return to_codes(in[0] * in[1], f->shift, to);
  }));
  return true;
}

// A product whose result stays a number: one multiplication by the step of its sums.
void plain_product(Rewrite& r) {
  const Instr root = r.root();
  const Tensor bias = known(r, operand(root, 2));
  if (operand(root, 2) != kNone && !bias.defined()) return;
  const auto p = IntegerProduct::of(r, root, bias);
  if (!p) return;
  std::vector<float> steps;
  for (const double x : p->ratios(1)) steps.push_back(static_cast<float>(x));
  const ValueId sums = p->sums(r), step = p->constant(r, steps);
  r.replace(inline_body(r, {sums, step},
                        [](std::span<const Tensor> in) { return in[0].to(DType::f32) * in[1]; }));
}

// ---- from codes to codes

bool from_other_codes(Rewrite& r, const CodeStep& to, ValueId from) {
  const auto x = CodeStep::behind(r, from);
  if (!x || !x->is_one() || !x->is_byte()) return false;
  if (x->scale == to.scale && x->zero == to.zero && x->dtype == to.dtype)
    return r.replace(x->codes), true;
  const auto f = FixedPoint::of({x->scale[0] / to.scale[0]});
  if (!f) return false;
  r.replace(inline_body(r, {x->codes}, [&](std::span<const Tensor> in) {
    const Tensor centred = in[0].to(DType::i64) - std::llround(x->zero[0]);
    return to_codes(centred * f->multiplier[0], f->shift, to);
  }));
  return true;
}

bool quantised_sum(Rewrite& r, const CodeStep& to, ValueId from) {
  const Instr i = *r.maker(from);
  const auto a = CodeStep::behind(r, operand(i, 0)), b = CodeStep::behind(r, operand(i, 1));
  for (const auto* x : {&a, &b})
    if (!*x || !(*x)->is_one() || !(*x)->is_byte()) return false;
  const auto f = FixedPoint::of({a->scale[0] / to.scale[0], b->scale[0] / to.scale[0]});
  if (!f) return false;
  r.replace(inline_body(r, {a->codes, b->codes}, [&](std::span<const Tensor> in) {
    const Tensor x = in[0].to(DType::i64) - std::llround(a->zero[0]);
    const Tensor y = in[1].to(DType::i64) - std::llround(b->zero[0]);
    return to_codes(x * f->multiplier[0] + y * f->multiplier[1], f->shift, to);
  }));
  return true;
}

// A mean over dimensions, or over the whole plane by pooling.
bool quantised_mean(Rewrite& r, const CodeStep& to, ValueId from) {
  const Instr i = *r.maker(from);
  const auto x = CodeStep::behind(r, operand(i, 0));
  if (!x || !x->is_one() || !x->is_byte()) return false;
  const Spec before = r.spec(x->codes), after = r.spec(from);
  ReduceAttrs over;
  if (i.op == &op::mean) {
    over = *static_cast<const ReduceAttrs*>(i.attrs.get());
  } else {
    const auto& a = *static_cast<const PoolAttrs*>(i.attrs.get());
    if (a.divisor_override) return false;
    for (int d = 2; d < before.rank(); ++d) {
      const bool whole =
          !a.output.empty() || (a.kernel[d - 2] == before.shape[d] && a.padding[d - 2] == Dim(0));
      if (after.shape[d] != Dim(1) || !whole) return false;
      over.dims.push_back(d);
    }
    over.keepdim = true;
  }
  const auto count = static_cast<double>(before.shape.numel().value()) /
                     static_cast<double>(after.shape.numel().value());
  const auto f = FixedPoint::of({x->scale[0] / (to.scale[0] * count)});
  if (!f) return false;
  r.replace(inline_body(r, {x->codes}, [&](std::span<const Tensor> in) {
    const auto zeros = std::llround(x->zero[0] * count);
    return to_codes((sum(in[0], over.dims, over.keepdim) - zeros) * f->multiplier[0], f->shift, to);
  }));
  return true;
}

// Means of windows of one size, padding counted: a sum of products with ones, channel by channel.
bool quantised_windows(Rewrite& r, const CodeStep& to, ValueId from) {
  const Instr i = *r.maker(from);
  const auto x = CodeStep::behind(r, operand(i, 0));
  const auto& a = *static_cast<const PoolAttrs*>(i.attrs.get());
  if (!x || !x->is_one() || !x->is_byte() || !a.output.empty() || a.ceil_mode || a.divisor_override)
    return false;
  const int64_t channels = r.spec(x->codes).shape[1].value();
  ConvAttrs sums{.stride = a.stride,
                 .padding = a.padding,
                 .dilation = a.kernel,
                 .groups = channels,
                 .padding_end = a.padding};
  Shape window{channels, 1};
  double count = 1;
  for (size_t d = 0; d < static_cast<size_t>(a.kernel.rank()); ++d) {
    const int at = static_cast<int>(d);
    if (a.padding[at] != Dim(0) && !a.count_include_pad) return false;
    sums.dilation[at] = 1;
    window.push_back(a.kernel[at]);
    count *= static_cast<double>(a.kernel[at].value());
  }
  const auto f = FixedPoint::of({x->scale[0] / (to.scale[0] * count)});
  if (!f) return false;
  const ValueId ones_of = r.program().add_constant(ones(window, DType::i8));
  std::vector<ValueId> args = {x->codes, ones_of};
  if (x->zero[0] != 0) args.push_back(r.program().add_constant(full({}, x->zero[0], x->dtype)));
  r.replace(inline_body(r, args, [&](std::span<const Tensor> in) {
    const Tensor sum = conv_integer(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), {}, sums);
    return to_codes(sum.to(DType::i64) * f->multiplier[0], f->shift, to);
  }));
  return true;
}

// ---- what works on codes as on numbers, because rounding keeps their order

ValueId quantised(Rewrite& r, const Instr& root, ValueId v) {
  const auto& a = *static_cast<const QuantizeAttrs*>(root.attrs.get());
  return r.emit().emit(op::quantize_linear, fields<QuantizeAttrs>(), &a,
                       {v, operand(root, 1), operand(root, 2)});
}

bool quantised_bounds(Rewrite& r, const CodeStep& to, ValueId from) {
  const Instr root = r.root(), i = *r.maker(from);
  double low = -INFINITY, high = INFINITY;
  const auto bound = [&](size_t k) { return i.in[k].is_number ? i.in[k].number.to_double() : NAN; };
  if (i.op == &op::relu || i.op == &op::relu6) low = 0;
  if (i.op == &op::relu6) high = 6;
  if (i.op == &op::clamp || i.op == &op::clamp_min) low = bound(1);
  if (i.op == &op::clamp || i.op == &op::clamp_max) high = bound(i.op == &op::clamp ? 2 : 1);
  if (std::isnan(low) || std::isnan(high) || low > high) return false;
  const double least = to.code_of(low), greatest = to.code_of(high);
  const ValueId q = quantised(r, root, i.in[0].value);
  const bool all = least == to.least() && greatest == to.least() + 255;
  r.replace(all ? q : inline_body(r, {q}, [&](std::span<const Tensor> in) {
    return clamp(in[0], static_cast<int64_t>(least), static_cast<int64_t>(greatest));
  }));
  return true;
}

bool quantised_places(Rewrite& r, const CodeStep&, ValueId from) {
  const Instr root = r.root(), i = *r.maker(from);
  std::vector<ValueId> in;
  for (const compiler::Arg& a : i.in) {
    if (a.is_number || a.value == kNone) return false;
    in.push_back(quantised(r, root, a.value));
  }
  r.replace(r.emit().emit(*i.op, i.op->attrs, i.attrs.get(), in));
  return true;
}

bool quantised_padding(Rewrite& r, const CodeStep& to, ValueId from) {
  const Instr root = r.root(), i = *r.maker(from);
  PadAttrs a = *static_cast<const PadAttrs*>(i.attrs.get());
  a.value = static_cast<int64_t>(to.code_of(a.value.to_double()));
  r.replace(r.emit().emit(op::pad, fields<PadAttrs>(), &a, {quantised(r, root, i.in[0].value)}));
  return true;
}

using CodeRule = bool (*)(Rewrite&, const CodeStep&, ValueId);
struct OnCodes {
  const OpDef* op;
  CodeRule apply;
};
constexpr OnCodes kOnCodes[] = {
    {&op::conv, quantised_product},     {&op::linear, quantised_product},
    {&op::matmul, quantised_product},   {&op::add, quantised_product},
    {&op::add, quantised_sum},          {&op::mean, quantised_mean},
    {&op::avg_pool, quantised_mean},    {&op::avg_pool, quantised_windows},
    {&op::pad, quantised_padding},      {&op::dequantize_linear, from_other_codes},
    {&op::relu, quantised_bounds},      {&op::relu6, quantised_bounds},
    {&op::clamp, quantised_bounds},     {&op::clamp_min, quantised_bounds},
    {&op::clamp_max, quantised_bounds}, {&op::max_pool, quantised_places},
    {&op::cat, quantised_places},
};

void on_codes(Rewrite& r) {
  const ValueId from = r.root().in[0].value;
  const Instr* maker = r.maker(from);
  if (!maker || !maker->op || maker->out[0] != from) return;
  const auto to = CodeStep::of(r, Instr(r.root()));
  if (!to || !to->is_one() || !to->is_byte()) return;  // codes of 16 bits stay with floats
  const OpDef* op = maker->op;
  for (const OnCodes& rule : kOnCodes)
    if (rule.op == op && rule.apply(r, *to, from)) return;
  if (op->family == Family::view) quantised_places(r, *to, from);
}

// Codes that a loop makes are seen through a view, which ends the loop.
void end_loop_at_codes(Rewrite& r) {
  const Instr root = r.root();
  const DType t = r.spec(root.out[0]).dtype;
  if ((t != DType::u8 && t != DType::i8) || r.spec(root.in[0].value).dtype == t) return;
  const ValueId codes =
      r.emit().emit(op::cast, fields<CastAttrs>(), root.attrs.get(), {root.in[0].value});
  r.replace(r.emit().view(codes, r.spec(codes).shape));
}

}  // namespace

void keep_codes(compiler::Program& p) {
  using compiler::any, compiler::row;
  const std::vector<Rule> rules = {{row(op::cast, {any()}), end_loop_at_codes}};
  compiler::Rewriter(p).run(rules);
}

void compute_on_codes(compiler::Program& p) {
  using compiler::any, compiler::row;
  const std::vector<Rule> codes = {{row(op::quantize_linear, {any()}), on_codes}};
  while (compiler::Rewriter(p).run(codes)) compiler::merge_common(p);
  const std::vector<Rule> plain = {{row(op::conv, {any(), any()}), plain_product},
                                   {row(op::linear, {any(), any()}), plain_product},
                                   {row(op::matmul, {any(), any()}), plain_product}};
  compiler::Rewriter(p).run(plain);
  compiler::merge_common(p);
}

}  // namespace tandem::edge
