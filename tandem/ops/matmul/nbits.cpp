// SPDX-License-Identifier: Apache-2.0
// The row of nbits.h, a composite: loops of every device, batching and tests come from its body.
#include "tandem/ops/matmul/nbits.h"

#include <algorithm>
#include <limits>

#include "tandem/ops/ops.h"
#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

void check_code_bits(int64_t bits) {
  TD_CHECK(bits == 2 || bits == 4 || bits == 8, Value, "codes have {} bits, expected 2, 4 or 8",
           bits);
}

void nbits_infer(InferCall& c) {
  const auto& [bits, level] = c.get_attrs<NBitsAttrs>();
  check_code_bits(bits);
  check_accuracy_level(level);
  const Spec &x = c.in[0], &codes = c.in[1], &scale = c.in[2];
  TD_CHECK(is_floating(x.dtype) && is_floating(scale.dtype) && codes.dtype == DType::u8, DType,
           "x is {}, codes are {}, scale is {}: expected floating, uint8 and floating dtypes",
           to_string(x.dtype), to_string(codes.dtype), to_string(scale.dtype));
  TD_CHECK(x.rank() >= 1 && codes.rank() == 3 && scale.rank() == 2, Shape,
           "x is {}, codes are {}, scale is {}: expected [..., k], [n, groups, bytes] and [n, "
           "groups]",
           x.shape.to_string(), codes.shape.to_string(), scale.shape.to_string());
  TD_CHECK(dims_equal(codes[0], scale[0]) && dims_equal(codes[1], scale[1]), Shape,
           "scale is {}, codes are {}: expected a scale for each group", scale.shape.to_string(),
           codes.shape.to_string());
  const Dim k = x.shape[x.rank() - 1];
  if (!k.is_symbolic() && !codes.shape.is_symbolic()) {
    const int64_t group = codes[2].value() * 8 / bits, groups = codes[1].value();
    TD_CHECK(k.value() <= groups * group && (groups == 0 || k.value() > (groups - 1) * group),
             Shape, "x has {} inputs, the codes {} groups of {}", k.value(), groups, group);
  }
  if (c.has(3)) {
    const Spec& zero = c.in[3];
    TD_CHECK(zero.dtype == DType::u8, DType, "zero is {}, expected uint8", to_string(zero.dtype));
    const Shape& s = codes.shape;
    TD_CHECK(zero.rank() == 2 && dims_equal(zero[0], codes[0]) &&
                 (s.is_symbolic() || zero.shape.is_symbolic() ||
                  zero[1].value() == (s[1].value() * bits + 7) / 8),
             Shape,
             "zero is {}, codes are {}: expected a packed row of zero points for each output",
             zero.shape.to_string(), codes.shape.to_string());
  }
  Shape y = x.shape;
  y[y.rank() - 1] = codes[0];
  c.out[0] = Spec(x.dtype, y, x.device);
}

// Codes less their zero points, f32 [n, groups, group].
Tensor centred_codes(const PackedCodes& w) {
  const Tensor codes = unpack_codes(w.codes, w.bits).to(DType::f32);
  if (!w.zero.defined()) return codes - static_cast<double>(int64_t{1} << (w.bits - 1));
  const Tensor zero = unpack_codes(w.zero, w.bits).narrow(1, 0, w.codes.size(1));
  return codes - zero.to(DType::f32).unsqueeze(2);
}

constexpr double kLargestCode = 127, kLeastMagnitude = 1e-30;
constexpr int64_t kSumLanes = 16;

/// x as codes, numbers in f32 [rows, groups, group], and the step of each group [rows, groups, 1].
struct RoundedInputs {
  Tensor codes, scale;
};

// A group with a value that is not finite gives codes 0 and a step that is no number.
RoundedInputs round_inputs(const Tensor& x, int64_t groups, int64_t group) {
  const Tensor rows = pad(x, {0, groups * group - x.size(-1)}).reshape({-1, groups, group});
  const Tensor most = amax(abs(rows), {2}, true), finite = isfinite(most);
  const Tensor held = clamp_min(most, kLeastMagnitude);
  return {where(finite, round(rows * (kLargestCode / held)), 0),
          where(finite, held / kLargestCode, std::numeric_limits<double>::quiet_NaN())};
}

// Groups are added like this in every kernel: group g to lane g % 16, then the lanes in halves.
Tensor sum_of_groups(const Tensor& parts, int64_t groups) {
  const int64_t steps = std::max<int64_t>(1, (groups + kSumLanes - 1) / kSumLanes);
  const Tensor all = pad(parts, {0, 0, 0, 0, 0, steps * kSumLanes - groups});
  Tensor lanes = all.narrow(0, 0, kSumLanes) + 0.0;
  for (int64_t i = 1; i < steps; ++i) lanes = lanes + all.narrow(0, i * kSumLanes, kSumLanes);
  for (int64_t half = kSumLanes / 2; half > 0; half /= 2)
    lanes = lanes.narrow(0, 0, half) + lanes.narrow(0, half, half);
  return lanes.select(0, 0);
}

// Sums of products of codes are exact: in f32 where they are below 2^24.
Tensor integer_matmul(const Tensor& x, const PackedCodes& w) {
  const AutocastGuard exact_sums(DType::bf16, false);
  const int64_t groups = w.codes.size(1), group = w.codes.size(2) * 8 / w.bits;
  const RoundedInputs in = round_inputs(x.to(DType::f32), groups, group);
  const double bound = kLargestCode * static_cast<double>(group << w.bits);
  const DType exact = bound <= 1 << 24 ? DType::f32 : DType::f64;
  const Tensor sums =
      matmul(in.codes.to(exact).permute({1, 0, 2}), centred_codes(w).to(exact).permute({1, 2, 0}));
  const Tensor parts =
      sums.to(DType::f32) * w.scale.to(DType::f32).t().unsqueeze(1) * in.scale.permute({1, 0, 2});
  Shape y = x.shape();
  y[y.rank() - 1] = w.codes.shape(0);
  return sum_of_groups(parts, groups).reshape(y).to(x.dtype());
}

void nbits_body(BodyCall& c) {
  const auto& attrs = c.get_attrs<NBitsAttrs>();
  const PackedCodes w{c.in[1], c.in[2], c.in[3], attrs.bits};
  const Tensor& x = c.in[0];
  if (attrs.accuracy_level == kCodesOfInputs) {
    c.out[0] = integer_matmul(x, w);
    return;
  }
  const Tensor all = dequantize_codes(w);
  c.out[0] = linear(x.to(DType::f32), all.narrow(1, 0, x.size(-1))).to(x.dtype());
}

void nbits_vjp(VjpCall& c) {
  const PackedCodes w{c.in(1), c.in(2), c.has(3) ? c.in(3) : Tensor(),
                      c.get_attrs<NBitsAttrs>().bits};
  const Tensor g = c.grad().to(DType::f32);
  const int64_t k = c.in(0).size(-1);
  if (c.needs(0)) c.results[0] = matmul(g, dequantize_codes(w).narrow(1, 0, k)).to(c.in_dtype(0));
  if (!c.needs(2)) return;
  const Tensor codes = centred_codes(w);
  const Tensor rows = g.reshape({-1, w.codes.shape(0)}), x = c.in(0).to(DType::f32);
  Tensor dw = matmul(rows.t(), x.reshape({-1, k}));
  const int64_t beyond = codes.size(1) * codes.size(2) - k;
  if (beyond > 0) dw = pad(dw, {0, beyond});
  c.results[2] = sum(dw.reshape(codes.shape()) * codes, {2}).to(c.in_dtype(2));
}

double nbits_flops(const InferCall& c) {
  const Shape &x = c.in[0].shape, &codes = c.in[1].shape;
  return x.is_symbolic() || codes.is_symbolic()
             ? 0
             : 2.0 * static_cast<double>(x.numel().value()) * static_cast<double>(codes[0].value());
}

}  // namespace

namespace op {
constinit const OpDef matmul_nbits =
    composite("matmul_nbits", {"x", "codes", "scale", "zero?"}, fields<NBitsAttrs>(), nbits_body)
        .infer(nbits_infer)
        .vjp(nbits_vjp, 15)
        .flops(nbits_flops)
        .doc(
            "x times the transposed weight (codes - zero) * scale of packed 2, 4 or 8 bits; at "
            "accuracy_level 4 groups of x are rounded to 8 bits and codes multiplied.");
}  // namespace op

void check_accuracy_level(int64_t level) {
  TD_CHECK(level >= 0 && level <= kCodesOfInputs, Value,
           "the accuracy level is {}, expected 0 (not set), 1 (f32), 2 (f16), 3 (bf16) or 4 (int8)",
           level);
}

Tensor unpack_codes(const Tensor& bytes, int64_t bits) {
  check_code_bits(bits);
  if (bits == 8) return bytes;
  std::vector<int64_t> shifts;
  for (int64_t s = 0; s < 8; s += bits) shifts.push_back(s);
  Shape shape = bytes.shape();
  const int last = shape.rank() - 1;
  shape[last] = shape[last] * static_cast<int64_t>(shifts.size());
  const Tensor parts = bitwise_right_shift(bytes.unsqueeze(-1), tensor(shifts).to(DType::u8));
  return bitwise_and(parts, (int64_t{1} << bits) - 1).reshape(shape);
}

Tensor pack_codes(const Tensor& codes, int64_t bits) {
  check_code_bits(bits);
  if (bits == 8) return codes;
  const int64_t each = 8 / bits;
  Shape shape = codes.shape();
  const int last = shape.rank() - 1;
  TD_CHECK(codes.size(last) % each == 0, Shape, "{} codes of {} bits do not fill whole bytes",
           codes.size(last), bits);
  shape[last] = codes.size(last) / each;
  shape.push_back(each);
  const Tensor parts = codes.reshape(shape);
  Tensor bytes = parts.select(-1, 0);
  for (int64_t i = 1; i < each; ++i)
    bytes = bitwise_or(bytes, bitwise_left_shift(parts.select(-1, i), i * bits));
  return bytes;
}

Tensor dequantize_codes(const PackedCodes& w) {
  const Tensor numbers = centred_codes(w) * w.scale.to(DType::f32).unsqueeze(2);
  return numbers.reshape({w.codes.shape(0), -1});
}

Tensor matmul_nbits(Tensor x, const PackedCodes& w, SourceLocation loc) {
  const NBitsAttrs a{w.bits, w.accuracy_level};
  return call(op::matmul_nbits, &a, loc, std::move(x), w.codes, w.scale, w.zero);
}

}  // namespace tandem
