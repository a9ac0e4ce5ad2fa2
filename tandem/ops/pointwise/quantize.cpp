// SPDX-License-Identifier: Apache-2.0
// The rows of quantize.h. They are composites: loops, kernels of every device and batching come
// from their bodies; compile() also knows them as such (compile/passes).
#include "tandem/ops/pointwise/quantize.h"

#include "tandem/ops/ops.h"
#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

// ---- shape rules

bool is_one(const Shape& s) { return !s.is_symbolic() && s.numel().value() == 1; }

void check_step(const InferCall& c, int64_t axis) {
  const Spec &x = c.in[0], &scale = c.in[1];
  TD_CHECK(is_floating(scale.dtype), DType,
           "scale is {}, expected a floating dtype\nCast it with .to(float32).",
           to_string(scale.dtype));
  if (!is_one(scale.shape)) {
    const int d = normalize_dim(axis, x.rank());
    TD_CHECK(
        scale.rank() == 1 && dims_equal(scale[0], x[d]), Shape,
        "scale is {}, x is {}: expected one number or [{}], an entry for each index of dimension "
        "{}\nSet axis to the dimension that the scales belong to.",
        scale.shape.to_string(), x.shape.to_string(), x[d].to_string(), d);
  }
  if (!c.has(2)) return;
  TD_CHECK(detail::same_sizes(c.in[2].shape, scale.shape) ||
               (is_one(c.in[2].shape) && is_one(scale.shape)),
           Shape, "zero is {}, expected the shape of scale, {}", c.in[2].shape.to_string(),
           scale.shape.to_string());
}
void check_zero(const InferCall& c, DType want) {
  if (c.has(2))
    TD_CHECK(c.in[2].dtype == want, DType,
             "zero is {}, expected {}, the dtype of the codes\nCast it with .to().",
             to_string(c.in[2].dtype), to_string(want));
}
void check_real(const InferCall& c) {
  TD_CHECK(is_floating(c.in[0].dtype), DType,
           "x is {}, expected a floating dtype\nCast it with .to(float32).",
           to_string(c.in[0].dtype));
}

void quantize_infer(InferCall& c) {
  const auto& a = c.get_attrs<QuantizeAttrs>();
  check_real(c);
  TD_CHECK(a.dtype == DType::u8 || a.dtype == DType::i8 || a.dtype == DType::i16, DType,
           "codes of {} were asked for, expected uint8, int8 or int16", to_string(a.dtype));
  check_step(c, a.axis);
  check_zero(c, a.dtype);
  c.out[0] = Spec(a.dtype, c.in[0].shape, c.in[0].device);
}
void dequantize_infer(InferCall& c) {
  const DType t = c.in[0].dtype;
  TD_CHECK(t == DType::u8 || t == DType::i8 || t == DType::i16 || t == DType::i32, DType,
           "codes are {}, expected uint8, int8, int16 or int32", to_string(t));
  check_step(c, c.get_attrs<QuantizeAttrs>().axis);
  check_zero(c, t);
  c.out[0] = Spec(c.in[1].dtype, c.in[0].shape, c.in[0].device);
}
void fake_quantize_infer(InferCall& c) {
  const auto& a = c.get_attrs<FakeQuantizeAttrs>();
  check_real(c);
  check_step(c, a.axis);
  TD_CHECK(a.low < a.high, Value, "codes from {} to {} were asked for, expected low < high", a.low,
           a.high);
  c.out[0] = Spec(c.in[0].dtype, c.in[0].shape, c.in[0].device);
}

// ---- bodies

// Scale or zero point, to broadcast against x.
Tensor beside(const Tensor& s, const Tensor& x, int64_t axis, DType dtype) {
  if (is_one(s.shape())) return s.reshape(Shape()).to(dtype);
  Shape shape;
  const int d = normalize_dim(axis, x.dim());
  for (int i = 0; i < x.dim(); ++i) shape.push_back(i == d ? s.shape(0) : Dim(1));
  return s.reshape(shape).to(dtype);
}

void quantize_body(BodyCall& c) {
  const auto& a = c.get_attrs<QuantizeAttrs>();
  const Tensor& x = c.in[0];
  const DType wide = accumulation_dtype(x.dtype());
  Tensor y = round(x / beside(c.in[1], x, a.axis, x.dtype())).to(wide);
  if (c.in[2].defined()) y = std::move(y) + beside(c.in[2], x, a.axis, wide);
  constexpr double kBytes = 255, kWords = 65535;
  const double span = a.dtype == DType::i16 ? kWords : kBytes;
  const double low = a.dtype == DType::u8 ? 0 : -(span + 1) / 2;
  c.out[0] = clamp(std::move(y), low, low + span).to(a.dtype);
}

void dynamic_infer(InferCall& c) {
  check_real(c);
  const Shape& s = c.in[0].shape;
  TD_CHECK(s.is_symbolic() || s.numel().value() > 0, Shape,
           "x is {}: without elements there is no range", s.to_string());
  c.out[0] = Spec(DType::u8, s, c.in[0].device);
  c.out[1] = Spec(accumulation_dtype(c.in[0].dtype), Shape(), c.in[0].device);
  c.out[2] = Spec(DType::u8, Shape(), c.in[0].device);
}
void dynamic_body(BodyCall& c) {
  constexpr double kMost = 255;
  const Tensor x = c.in[0].to(accumulation_dtype(c.in[0].dtype()));
  const Tensor high = clamp_min(amax(x), 0), low = clamp_max(amin(x), 0);
  const Tensor scale = where(high == low, 1.0, high - low).to(x.dtype()) / kMost;
  const Tensor zero = round(clamp(-low / scale, 0, kMost)).to(DType::u8);
  c.out[0] = quantize_linear(x, scale, zero, 0);
  c.out[1] = scale;
  c.out[2] = zero;
}

// i32 has more digits than f32: what is rounded is the product alone.
DType dtype_of_codes(DType codes, DType scale) {
  return codes == DType::i32 ? DType::f64 : accumulation_dtype(scale);
}
Tensor centred(const Tensor& codes, const Tensor& zero, int64_t axis, DType dtype) {
  Tensor y = codes.to(dtype);
  return zero.defined() ? std::move(y) - beside(zero, codes, axis, dtype) : y;
}
void dequantize_body(BodyCall& c) {
  const auto& a = c.get_attrs<QuantizeAttrs>();
  const Tensor &codes = c.in[0], &scale = c.in[1];
  const DType wide = dtype_of_codes(codes.dtype(), scale.dtype());
  const Tensor y = centred(codes, c.in[2], a.axis, wide) * beside(scale, codes, a.axis, wide);
  c.out[0] = y.to(scale.dtype());
}

// x on the scale of codes, which broadcasts; the codes before they are clamped.
struct OnCodes {
  Tensor scale, zero, ratio, code;
  OnCodes(const Tensor& x, const Tensor& s, const Tensor& z, int64_t axis)
      : scale(beside(s, x, axis, accumulation_dtype(x.dtype()))),
        ratio(x.to(scale.dtype()) / scale),
        code(round(ratio)) {
    if (!z.defined()) return;
    zero = beside(z, x, axis, scale.dtype());
    code = std::move(code) + zero;
  }
  Tensor less_zero(Tensor t) const { return zero.defined() ? std::move(t) - zero : t; }
};

void fake_quantize_body(BodyCall& c) {
  const auto& a = c.get_attrs<FakeQuantizeAttrs>();
  const OnCodes on(c.in[0], c.in[1], c.in[2], a.axis);
  c.out[0] = (on.less_zero(clamp(on.code, a.low, a.high)) * on.scale).to(c.in[0].dtype());
}

// ---- derivatives

// What arrives at the elements, summed to the shape of scale or zero point.
Tensor to_step(const Tensor& g, int64_t axis, const Shape& shape, DType dtype) {
  if (is_one(shape)) return sum(g).reshape(shape).to(dtype);
  IntList others;
  const int d = normalize_dim(axis, g.dim());
  for (int i = 0; i < g.dim(); ++i)
    if (i != d) others.push_back(i);
  return (others.empty() ? g : sum(g, others)).to(dtype);
}

void dequantize_vjp(VjpCall& c) {
  if (!c.needs(1)) return;
  const int64_t axis = c.get_attrs<QuantizeAttrs>().axis;
  const DType wide = dtype_of_codes(c.in_dtype(0), c.in_dtype(1));
  const Tensor codes = centred(c.in(0), c.has(2) ? c.in(2) : Tensor(), axis, wide);
  c.results[1] = to_step(c.grad().to(wide) * codes, axis, c.in_shape(1), c.in_dtype(1));
}

void fake_quantize_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<FakeQuantizeAttrs>();
  const OnCodes on(c.in(0), c.in(1), c.has(2) ? c.in(2) : Tensor(), a.axis);
  const Tensor inside = logical_and(on.code >= a.low, on.code <= a.high);
  const Tensor g = c.grad().to(on.scale.dtype());
  if (c.needs(0)) c.results[0] = where(inside, g, 0.0).to(c.in_dtype(0));
  const auto to_step_of = [&](int i, const Tensor& gradient) {
    c.results[i] = to_step(gradient * a.gradient_factor, a.axis, c.in_shape(i), c.in_dtype(i));
  };
  if (c.needs(1)) {
    const Tensor clamped = on.less_zero(clamp(on.code, a.low, a.high));
    to_step_of(1, g * where(inside, round(on.ratio) - on.ratio, clamped));
  }
  if (c.needs(2)) to_step_of(2, where(inside, 0.0, -(g * on.scale)));
}

}  // namespace

namespace op {
constinit const OpDef quantize_linear =
    composite("quantize_linear", {"x", "scale", "zero?"}, fields<QuantizeAttrs>(), quantize_body)
        .infer(quantize_infer)
        .flag(kNotDifferentiable)
        .doc("Codes of 8 or 16 bits: clamp(round(x / scale) + zero), rounded half to even.");
constinit const OpDef dequantize_linear =
    composite("dequantize_linear", {"codes", "scale", "zero?"}, fields<QuantizeAttrs>(),
              dequantize_body)
        .infer(dequantize_infer)
        .vjp(dequantize_vjp, 5)
        .doc("What codes stand for: (codes - zero) * scale.");
constinit const OpDef fake_quantize =
    composite("fake_quantize", {"x", "scale", "zero?"}, fields<FakeQuantizeAttrs>(),
              fake_quantize_body)
        .infer(fake_quantize_infer)
        .vjp(fake_quantize_vjp, 7)
        .doc("x rounded to codes and back, with straight-through gradients.");
constinit const OpDef dynamic_quantize_linear =
    composite("dynamic_quantize_linear", {"x"}, nullptr, dynamic_body)
        .outputs({"codes", "scale", "zero"})
        .infer(dynamic_infer)
        .flag(kNotDifferentiable)
        .doc("Codes of 8 bits over the range of x, with their scale and zero point.");
}  // namespace op

std::span<const OpDef* const> quantize_rows() {
  static constexpr const OpDef* kRows[] = {&op::quantize_linear, &op::dequantize_linear,
                                           &op::fake_quantize, &op::dynamic_quantize_linear};
  return kRows;
}

Tensor quantize_linear(Tensor x, Tensor scale, Tensor zero, int64_t axis, DType dtype,
                       SourceLocation loc) {
  const QuantizeAttrs a{axis, dtype};
  return call(op::quantize_linear, &a, loc, std::move(x), std::move(scale), std::move(zero));
}
Tensor dequantize_linear(Tensor codes, Tensor scale, Tensor zero, int64_t axis,
                         SourceLocation loc) {
  const QuantizeAttrs a{axis, codes.dtype()};
  return call(op::dequantize_linear, &a, loc, std::move(codes), std::move(scale), std::move(zero));
}
DynamicCodes dynamic_quantize_linear(Tensor x, SourceLocation loc) {
  Tensor out[kMaxOpOuts];
  Operand in[] = {Operand(std::move(x), loc)};
  apply(op::dynamic_quantize_linear, nullptr, in, out, loc);
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}
Tensor fake_quantize(Tensor x, Tensor scale, Tensor zero, const FakeQuantizeAttrs& attrs,
                     SourceLocation loc) {
  return call(op::fake_quantize, &attrs, loc, std::move(x), std::move(scale), std::move(zero));
}
Tensor fake_quantize_per_tensor_affine(Tensor x, Tensor scale, Tensor zero_point, int64_t quant_min,
                                       int64_t quant_max, SourceLocation loc) {
  TD_CHECK(scale.numel() == 1, Shape, "scale is {}, expected one number",
           scale.shape().to_string());
  return fake_quantize(std::move(x), std::move(scale), std::move(zero_point),
                       {0, quant_min, quant_max, 1}, loc);
}
Tensor fake_quantize_per_tensor_affine(Tensor x, double scale, int64_t zero_point,
                                       int64_t quant_min, int64_t quant_max, SourceLocation loc) {
  TD_CHECK(zero_point >= quant_min && zero_point <= quant_max, Value,
           "zero_point is {}, expected one of the codes {} to {}", zero_point, quant_min,
           quant_max);
  return fake_quantize_per_tensor_affine(std::move(x), full(Shape(), scale, DType::f32),
                                         full(Shape(), static_cast<double>(zero_point), DType::f32),
                                         quant_min, quant_max, loc);
}
Tensor fake_quantize_per_channel_affine(Tensor x, Tensor scale, Tensor zero_point, int64_t axis,
                                        int64_t quant_min, int64_t quant_max, SourceLocation loc) {
  return fake_quantize(std::move(x), std::move(scale), std::move(zero_point),
                       {axis, quant_min, quant_max, 1}, loc);
}

}  // namespace tandem
