// SPDX-License-Identifier: Apache-2.0
// The reference evaluator: edge cases of every type rule, and pointwise_reference on strided,
// broadcast and empty arrays.
#include "tandem/graph/expression/scalar_eval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/graph/apply.h"
#include "tandem/ops/nn/update.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tests/graph/scalar_helper.h"

namespace tandem::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// A dense array of T with its own shape, for kernel calls.
template <class T>
struct Dense {
  std::vector<T> data;
  std::vector<int64_t> shape, strides;
  Dense(std::vector<T> d, std::vector<int64_t> s) : data(std::move(d)), shape(std::move(s)) {
    int64_t step = 1;
    strides.resize(shape.size());
    for (size_t i = shape.size(); i-- > 0; step *= shape[i]) strides[i] = step;
  }
  Array array() {
    Array a;
    a.data = data.data();
    a.shape = shape.data();
    a.strides = strides.data();
    a.numel = 1;
    for (int64_t n : shape) a.numel *= n;
    a.dtype = dtype_of<T>;
    a.rank = static_cast<uint8_t>(shape.size());
    a.contiguous = true;
    return a;
  }
};
Array number_array(Scalar s) {
  Array a;
  a.is_scalar = true;
  a.scalar = s;
  return a;
}

void run(const OpDef& op, std::vector<Array> in, std::vector<Array> out, ErrorWord* error,
         const void* attrs = nullptr) {
  runtime_of(op);
  pointwise_reference({op, attrs, in.data(), static_cast<int>(in.size()), out.data(),
                       static_cast<int>(out.size()), error});
}

template <class R, class T>
std::vector<R> apply2(const OpDef& op, std::vector<T> a, std::vector<T> b, int* code = nullptr) {
  const auto n = static_cast<int64_t>(a.size());
  Dense<T> x(std::move(a), {n}), y(std::move(b), {n});
  Dense<R> out(std::vector<R>(n), {n});
  ErrorWord error;
  run(op, {x.array(), y.array()}, {out.array()}, &error);
  if (code) *code = error.code;
  return out.data;
}

TEST(ScalarEval, IntegerDivisionNeverTraps) {
  int code = 0;
  const std::vector<int64_t> a{7, -7, 7, -7, 5, INT64_MIN}, b{3, 3, -3, -3, 0, -1};
  using V = std::vector<int64_t>;
  EXPECT_EQ(apply2<int64_t>(op::floor_divide, a, b, &code), (V{2, -3, -3, 2, 0, INT64_MIN}));
  EXPECT_EQ(code, kDivisionByZero);
  EXPECT_EQ(apply2<int64_t>(op::trunc_divide, a, b), (V{2, -2, -2, 2, 0, INT64_MIN}));
  EXPECT_EQ(apply2<int64_t>(op::remainder, a, b), (V{1, 2, -2, -1, 0, 0}));
  EXPECT_EQ(apply2<int64_t>(op::fmod, a, b), (V{1, -1, 1, -1, 0, 0}));
  EXPECT_EQ(apply2<int8_t>(op::floor_divide, std::vector<int8_t>{-128}, {-1}, &code),
            std::vector<int8_t>{-128});
  EXPECT_EQ(code, 0);
}

TEST(ScalarEval, IntegersWrap) {
  using V8 = std::vector<int8_t>;
  EXPECT_EQ(apply2<int8_t>(op::add, V8{127, -128}, V8{1, -1}), (V8{-128, 127}));
  EXPECT_EQ(apply2<int8_t>(op::mul, V8{100}, V8{3}), V8{44});
  using U8 = std::vector<uint8_t>;
  EXPECT_EQ(apply2<uint8_t>(op::sub, U8{3}, U8{5}), U8{254});
  using V64 = std::vector<int64_t>;
  EXPECT_EQ(apply2<int64_t>(op::add, V64{INT64_MAX}, V64{1}), V64{INT64_MIN});
  EXPECT_EQ(apply2<int64_t>(op::pow, V64{3, 2, -1, 5, 7}, V64{4, 64, -3, -2, 0}),
            (V64{81, 0, -1, 0, 1}));
}

TEST(ScalarEval, Shifts) {
  using V8 = std::vector<int8_t>;
  EXPECT_EQ(apply2<int8_t>(op::bitwise_left_shift, V8{1, 1, 1, 3}, V8{7, 8, 100, 1}),
            (V8{-128, 0, 0, 6}));
  EXPECT_EQ(apply2<int8_t>(op::bitwise_right_shift, V8{-64, -64, 64, -1}, V8{2, 8, 3, -1}),
            (V8{-16, 0, 8, 0}));
  using V64 = std::vector<int64_t>;
  EXPECT_EQ(apply2<int64_t>(op::bitwise_right_shift, V64{-8, -8}, V64{1, 64}), (V64{-4, 0}));
}

TEST(ScalarEval, NanAndInfinity) {
  EXPECT_TRUE(std::isnan(value_of(op::maximum, {kNan, 1})));
  EXPECT_TRUE(std::isnan(value_of(op::maximum, {1, kNan})));
  EXPECT_EQ(value_of(op::fmax, {kNan, 1}), 1);
  EXPECT_EQ(value_of(op::fmin, {1, kNan}), 1);
  EXPECT_TRUE(std::isnan(value_of(op::relu, {kNan})));
  EXPECT_TRUE(std::isnan(value_of(op::clamp, {kNan, 0, 1})));
  EXPECT_EQ(value_of(op::sign, {kNan}), 0);
  EXPECT_EQ(value_of(op::hypot, {kInf, kNan}), kInf);
  EXPECT_DOUBLE_EQ(value_of(op::hypot, {3e200, 4e200}), 5e200);
  EXPECT_EQ(value_of(op::logaddexp, {-kInf, -kInf}), -kInf);
  EXPECT_EQ(value_of(op::softplus, {800, 1, 20}), 800);
  EXPECT_EQ(value_of(op::logsigmoid, {-800}), -800);
  EXPECT_EQ(value_of(op::signbit, {-0.0}), 1);
  EXPECT_EQ(value_of(op::signbit, {0.0}), 0);
  EXPECT_TRUE(std::signbit(value_of(op::copysign, {2, -0.0})));
}

TEST(ScalarEval, FloatToIntegerSaturates) {
  Dense<float> x({3e10f, -3e10f, std::nanf(""), 2.9f, -2.9f, 300, -1}, {7});
  Dense<int32_t> i(std::vector<int32_t>(7), {7});
  Dense<uint8_t> u(std::vector<uint8_t>(7), {7});
  const CastAttrs to_i32{DType::i32}, to_u8{DType::u8};
  run(op::cast, {x.array()}, {i.array()}, nullptr, &to_i32);
  run(op::cast, {x.array()}, {u.array()}, nullptr, &to_u8);
  EXPECT_EQ(i.data, (std::vector<int32_t>{INT32_MAX, INT32_MIN, 0, 2, -2, 300, -1}));
  EXPECT_EQ(u.data, (std::vector<uint8_t>{255, 0, 0, 2, 0, 255, 0}));
}

TEST(ScalarEval, HalfRoundsOnceAtTheEnd) {
  // 2049 is not an f16: x + 1 - 1 inside one row keeps it, two rows would not.
  static const OpDef kRow = row_of("test_f16_chain", Types::arith, {"x"},
                                   [](const E* in, E* out) { out[0] = (in[0] + 2049) - 2049; });
  Dense<Half> x({Half(1.0f)}, {1}), y({Half(0.0f)}, {1});
  run(kRow, {x.array()}, {y.array()}, nullptr);
  EXPECT_EQ(static_cast<float>(y.data[0]), 1.0f);
}

TEST(ScalarEval, StridesAndBroadcast) {
  Dense<float> x({1, 2, 3, 4, 5, 6}, {2, 3}), row({10, 20, 30}, {3}),
      out(std::vector<float>(6), {3, 2});
  Array t = x.array();
  const int64_t shape[] = {3, 2}, strides[] = {1, 3};  // x transposed
  t.shape = shape;
  t.strides = strides;
  t.contiguous = false;
  Dense<int16_t> column({10, 20, 30}, {3, 1});
  run(op::add, {t, column.array()}, {out.array()}, nullptr);
  EXPECT_EQ(out.data, (std::vector<float>{11, 14, 22, 25, 33, 36}));
  Dense<float> empty({}, {0, 3});
  run(op::add, {empty.array(), row.array()}, {empty.array()}, nullptr);
  Dense<double> scalar({2}, {}), one({0}, {});
  run(op::mul, {scalar.array(), number_array(1.5)}, {one.array()}, nullptr);
  EXPECT_EQ(one.data[0], 3);
}

TEST(ScalarEval, RoundToDecimals) {
  EXPECT_EQ(value_of(op::round_decimals, {1.2345, 2}), 1.23);
  EXPECT_EQ(value_of(op::round_decimals, {1234.5, -2}), 1200);
}

// One AdamW step against the formula in f64; 1 - beta2 must not be rounded to f32 first.
TEST(ScalarEval, AdamwStep) {
  Dense<float> p({0.5f}, {1}), g({0.25f}, {1}), m({0.1f}, {1}), v({0.02f}, {1});
  const double lr = 1e-3, b1 = 0.9, b2 = 0.999, eps = 1e-8, wd = 0.01, t = 3;
  const double bias1 = 1 - std::pow(b1, t), bias2 = 1 - std::pow(b2, t);
  run(op::adamw_update,
      {p.array(), g.array(), m.array(), v.array(), number_array(lr), number_array(b1),
       number_array(b2), number_array(eps), number_array(wd), number_array(bias1),
       number_array(bias2)},
      {p.array(), m.array(), v.array()}, nullptr);
  const double m1 = 0.1f + (1 - b1) * (0.25 - 0.1f);
  const double v1 = static_cast<double>(0.02f) * b2 + (1 - b2) * 0.25 * 0.25;
  const double p1 =
      0.5 * (1 - lr * wd) - lr / bias1 * m1 / (std::sqrt(v1) / std::sqrt(bias2) + eps);
  EXPECT_NEAR(m.data[0], m1, 1e-8);
  EXPECT_NEAR(v.data[0], v1, 2e-9);
  EXPECT_NEAR(p.data[0], p1, 6e-8);
}

TEST(ScalarEval, SgdFirstStepTakesTheGradient) {
  for (const bool first : {true, false}) {
    Dense<double> p({1}, {1}), g({2}, {1}), buf({4}, {1});
    run(op::sgd_update,
        {p.array(), g.array(), buf.array(), number_array(0.1), number_array(0.5),
         number_array(0.25), number_array(0.0), number_array(0), number_array(first)},
        {p.array(), buf.array()}, nullptr);
    EXPECT_DOUBLE_EQ(buf.data[0], first ? 2 : 3.5);
    EXPECT_DOUBLE_EQ(p.data[0], first ? 0.8 : 0.65);
  }
}

}  // namespace
}  // namespace tandem::testing
