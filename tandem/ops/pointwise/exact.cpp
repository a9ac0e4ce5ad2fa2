// SPDX-License-Identifier: Apache-2.0
// The rows gcd and nextafter, which no expression over floating numbers can say, and functions
// composed of them and others.
#include "tandem/ops/pointwise/exact.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/queries.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::composed;
using detail::Packed;

// ---- rows

void infer_pair(InferCall& c, bool integers) {
  const Spec &a = c.in[0], &b = c.in[1];
  TD_CHECK(a.dtype == b.dtype && (integers ? is_integral(a.dtype) : is_floating(a.dtype)), DType,
           "expected two {} tensors of one dtype, got {} and {}", integers ? "integer" : "floating",
           to_string(a.dtype), to_string(b.dtype));
  TD_CHECK(detail::same_sizes(a.shape, b.shape), Shape, "a is {}, b is {}: expected equal shapes",
           a.shape.to_string(), b.shape.to_string());
  c.out[0] = Spec(a.dtype, a.shape, a.device);
}
void gcd_infer(InferCall& c) { infer_pair(c, true); }
void nextafter_infer(InferCall& c) { infer_pair(c, false); }

void pair_batch(BatchCall& c) {
  c.out[0] =
      call(*c.node.op, nullptr, c.node.loc, detail::with_batch(c, 0), detail::with_batch(c, 1));
}

template <class T>
T divisor(T a, T b) {
  // Magnitudes without sign, so that the least number has one.
  const auto magnitude = [](T v) {
    const auto u = static_cast<uint64_t>(v);
    return v < 0 ? uint64_t{0} - u : u;
  };
  uint64_t x = magnitude(a), y = magnitude(b);
  while (y != 0) {
    const uint64_t r = x % y;
    x = y;
    y = r;
  }
  return static_cast<T>(x);
}

// The bits of floating numbers of one sign are ordered like the numbers.
template <class T>
T neighbour(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  using Wide = std::conditional_t<sizeof(T) == 8, double, float>;
  const auto x = static_cast<Wide>(a), to = static_cast<Wide>(b);
  if (x != x) return a;
  if (to != to || x == to) return b;
  Bits bits;
  std::memcpy(&bits, &a, sizeof(T));
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  if (x == 0)
    bits = static_cast<Bits>((to < 0 ? kSign : Bits{0}) + 1);
  else
    bits = static_cast<Bits>((x < to) == (x > 0) ? bits + 1 : bits - 1);
  T y;
  std::memcpy(&y, &bits, sizeof(T));
  return y;
}

template <class T, class F>
void each_pair(const KernelCall& k, F&& f) {
  const Packed<T> a(k.in[0]), b(k.in[1]);
  T* y = k.out[0].as<T>();
  detail::parallel_for_rows(k.out[0].numel, 64, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) y[i] = f(a[i], b[i]);
  });
}

void gcd_loops(const KernelCall& k) {
  visit_dtype(k.in[0].dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) each_pair<T>(k, divisor<T>);
  });
}
void nextafter_loops(const KernelCall& k) {
  visit_dtype(k.in[0].dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (!std::is_integral_v<T>) each_pair<T>(k, neighbour<T>);
  });
}

}  // namespace

namespace op {
constinit const OpDef gcd = make_row("gcd", Family::index, Types::custom, {"a", "b"}, nullptr)
                                .flag(kNotDifferentiable)
                                .infer(gcd_infer)
                                .batch(pair_batch)
                                .reference(gcd_loops)
                                .doc("Greatest common divisor of two integers.");
constinit const OpDef nextafter =
    make_row("nextafter", Family::index, Types::custom, {"a", "b"}, nullptr)
        .flag(kNotDifferentiable)
        .infer(nextafter_infer)
        .batch(pair_batch)
        .reference(nextafter_loops)
        .doc("The floating number next to a in the direction of b.");
}  // namespace op

std::span<const OpDef* const> exact_rows() {
  static constexpr const OpDef* kRows[] = {&op::gcd, &op::nextafter};
  return kRows;
}

// ---- functions

namespace {

Tensor as_tensor_of(const Operand& o, DType dtype) {
  return o.is_scalar() ? full(Shape(), o.scalar(), dtype) : o.tensor().to(dtype);
}

// The row on operands that are promoted and broadcast first.
Tensor call_pair(const OpDef& row, const Operand& a, const Operand& b) {
  const DType dtype = result_type(a, b);
  const std::vector<Tensor> both =
      broadcast_tensors({as_tensor_of(a, dtype), as_tensor_of(b, dtype)});
  return call(row, nullptr, SourceLocation::here(), both[0], both[1]);
}

}  // namespace

Tensor gcd(Operand a, Operand b, SourceLocation loc) {
  return composed("gcd", loc, [&] { return call_pair(op::gcd, a, b); });
}
Tensor lcm(Operand a, Operand b, SourceLocation loc) {
  return composed("lcm", loc, [&] {
    const Tensor divisor = call_pair(op::gcd, a, b);
    const Tensor x = as_tensor_of(a, divisor.dtype()), y = as_tensor_of(b, divisor.dtype());
    const Tensor nonzero = maximum(divisor, 1);
    return abs(floor_divide(abs(x), nonzero) * y);
  });
}
Tensor nextafter(Operand a, Operand b, SourceLocation loc) {
  return composed("nextafter", loc, [&] { return call_pair(op::nextafter, a, b); });
}

FrexpResult frexp(const Tensor& x, SourceLocation loc) {
  return composed("frexp", loc, [&]() -> FrexpResult {
    TD_CHECK(is_floating(x.dtype()), DType, "x is {}, expected a floating dtype",
             to_string(x.dtype()));
    const DType wide = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Tensor v = x.to(wide), size = abs(v.detach());
    const Tensor usual = logical_and(size > 0, isfinite(size));
    Tensor exponent = floor(log2(where(usual, size, 1.0))) + 1.0;
    // A power of two is exact, but 2^-exponent may not fit, so it is applied in halves.
    const auto scaled = [&](const Tensor& e) {
      const Tensor half = trunc(e * 0.5);
      return v * exp2(-half) * exp2(half - e);
    };
    // The logarithm is rounded: next to a power of two it may be one off.
    const Tensor size_of = abs(scaled(exponent).detach());
    exponent = exponent + where(size_of >= 1, 1.0, where(size_of < 0.5, -1.0, 0.0));
    exponent = where(usual, exponent, 0.0);
    return {scaled(exponent).to(x.dtype()), exponent.to(DType::i32)};
  });
}
Tensor ldexp(Operand x, Operand other, SourceLocation loc) {
  return composed("ldexp", loc, [&] {
    return mul(std::move(x), pow(Operand(2.0), std::move(other), SourceLocation::here()));
  });
}
Tensor float_power(Operand base, Operand exponent, SourceLocation loc) {
  return composed("float_power", loc, [&] {
    return pow(as_tensor_of(base, DType::f64), as_tensor_of(exponent, DType::f64));
  });
}

Tensor angle(const Tensor& x, SourceLocation loc) {
  return composed("angle", loc, x, [&] {
    const Tensor v = is_floating(x.dtype()) ? x : x.to(DType::f32);
    const Tensor half_turn = full(Shape(), std::numbers::pi, v.dtype());
    return where(isnan(v), v, where(v < 0, half_turn, 0.0));
  });
}
Tensor real(Tensor x, SourceLocation) { return x; }
Tensor isreal(const Tensor& x, SourceLocation loc) {
  return detail::named("isreal", loc, [&] { return ones_like(x, DType::b8, loc); });
}
Tensor positive(Tensor x, SourceLocation loc) {
  return composed("positive", loc, [&] {
    TD_CHECK(x.dtype() != DType::b8, DType, "expected numbers, x is bool");
    return x;
  });
}

}  // namespace tandem
