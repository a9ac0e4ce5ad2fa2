// SPDX-License-Identifier: Apache-2.0
// Types added to expressions: conversions, wrap-around, numbers, and PyTorch's result types.
#include "tandem/graph/expression/scalar_program.h"

#include <gtest/gtest.h>

#include "tandem/graph/infer.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tests/graph/scalar_helper.h"

namespace tandem::testing {
namespace {

using enum OperandType::Kind;

std::string text_of(const OpDef& op, std::vector<OperandType> in, std::vector<DType> out) {
  return program_of(op, std::span<const OperandType>(in), out).to_string();
}

TEST(ScalarProgram, Floats) {
  EXPECT_EQ(text_of(op::silu, {{tensor, DType::f32}}, {DType::f32}),
            "r0 = input 0 : f32\nr1 = sigmoid r0 : f32\nr2 = mul r0 r1 : f32\nreturn r2 : float32");
  // 16-bit floats compute in f32 and are rounded where they are stored.
  EXPECT_EQ(text_of(op::add, {{tensor, DType::bf16}, {tensor, DType::f16}}, {DType::f32}),
            "r0 = input 0 : f32\nr1 = input 1 : f32\nr2 = add r0 r1 : f32\nreturn r2 : float32");
}

TEST(ScalarProgram, NumbersAreF64UntilTheyMeetElements) {
  EXPECT_EQ(text_of(op::mul, {{tensor, DType::f32}, {number, DType::f32}}, {DType::f32}),
            "r0 = input 0 : f32\nr1 = input 1 : f64\nr2 = convert r1 : f32 of f64\n"
            "r3 = mul r0 r2 : f32\nreturn r3 : float32");
  // 1 - beta is computed in f64, then converted once.
  static const OpDef kRow = row_of("test_decay", Types::arith, {"x", "beta$"},
                                   [](const E* in, E* out) { out[0] = in[0] * (1 - in[1]); });
  EXPECT_EQ(text_of(kRow, {{tensor, DType::f32}, {number, DType::f32}}, {DType::f32}),
            "r0 = input 0 : f32\nr1 = constant 1 : f64\nr2 = input 1 : f64\n"
            "r3 = sub r1 r2 : f64\nr4 = convert r3 : f32 of f64\nr5 = mul r0 r4 : f32\n"
            "return r5 : float32");
  // The same when beta comes as a 0-d tensor: it is read as stored.
  EXPECT_EQ(text_of(kRow, {{tensor, DType::f32}, {zero_dim, DType::f64}}, {DType::f32}),
            text_of(kRow, {{tensor, DType::f32}, {number, DType::f32}}, {DType::f32}));
}

TEST(ScalarProgram, NarrowIntegersWrapInsideAChain) {
  EXPECT_EQ(text_of(op::square, {{tensor, DType::i8}}, {DType::i8}),
            "r0 = input 0 : i64\nr1 = mul r0 r0 : i64\nr2 = wrap r1 to int8 : i64\n"
            "return r2 : int8");
  EXPECT_EQ(text_of(op::add, {{tensor, DType::i64}, {tensor, DType::i64}}, {DType::i64}),
            "r0 = input 0 : i64\nr1 = input 1 : i64\nr2 = add r0 r1 : i64\nreturn r2 : int64");
  // A 0-d i64 does not promote: its value wraps.
  EXPECT_EQ(text_of(op::maximum, {{tensor, DType::u8}, {zero_dim, DType::i64}}, {DType::u8}),
            "r0 = input 0 : i64\nr1 = input 1 : i64\nr2 = wrap r1 to uint8 : i64\n"
            "r3 = max r0 r2 : i64\nreturn r3 : uint8");
}

TEST(ScalarProgram, BoolAddIsOr) {
  EXPECT_EQ(text_of(op::add, {{tensor, DType::b8}, {tensor, DType::b8}}, {DType::b8}),
            "r0 = input 0 : b8\nr1 = input 1 : b8\nr2 = logical_or r0 r1 : b8\nreturn r2 : bool");
  EXPECT_EQ(text_of(op::mul, {{tensor, DType::b8}, {tensor, DType::b8}}, {DType::b8}),
            "r0 = input 0 : b8\nr1 = input 1 : b8\nr2 = logical_and r0 r1 : b8\nreturn r2 : bool");
}

TEST(ScalarProgram, ComparisonsComputeInThePromotedType) {
  EXPECT_EQ(text_of(op::lt, {{tensor, DType::i32}, {tensor, DType::f32}}, {DType::b8}),
            "r0 = input 0 : i64\nr1 = convert r0 : f32 of i64\nr2 = input 1 : f32\n"
            "r3 = lt r1 r2 : b8 of f32\nreturn r3 : bool");
  EXPECT_EQ(text_of(op::eq, {{tensor, DType::u8}, {number, DType::i64}}, {DType::b8}),
            "r0 = input 0 : i64\nr1 = input 1 : i64\nr2 = eq r0 r1 : b8 of i64\nreturn r2 : bool");
  EXPECT_EQ(text_of(op::isnan, {{tensor, DType::i32}}, {DType::b8}),
            "r0 = input 0 : i64\nr1 = constant 0 : b8\nreturn r1 : bool");
}

TEST(ScalarProgram, CastSaturatesAndTruthIsNotZero) {
  EXPECT_EQ(
      text_of(op::cast, {{tensor, DType::f32}}, {DType::i8}),
      "r0 = input 0 : f32\nr1 = convert r0 : i64 of f32\nr2 = constant -128 : i64\n"
      "r3 = max r1 r2 : i64\nr4 = constant 127 : i64\nr5 = min r3 r4 : i64\nreturn r5 : int8");
  EXPECT_EQ(text_of(op::cast, {{tensor, DType::f64}}, {DType::f16}),
            "r0 = input 0 : f64\nr1 = convert r0 : f32 of f64\nreturn r1 : float16");
  EXPECT_EQ(text_of(op::logical_and, {{tensor, DType::f32}, {tensor, DType::b8}}, {DType::b8}),
            "r0 = input 0 : f32\nr1 = convert r0 : b8 of f32\nr2 = input 1 : b8\n"
            "r3 = logical_and r1 r2 : b8\nreturn r3 : bool");
}

TEST(ScalarProgram, IndexInputsStayIntegers) {
  // A step of argmax: (best, at), x, index.
  ScalarGraph g(4);
  const E best = g.input(0), at = g.input(1), x = g.input(2), index = g.input(3);
  g.add_output(where(x > best, x, best));
  g.add_output(where(x > best, index, at));
  const DType in[] = {DType::f32, DType::i64, DType::f32, DType::i64};
  const DType out[] = {DType::f32, DType::i64};
  const InputKind kinds[] = {InputKind::element, InputKind::index, InputKind::element,
                             InputKind::index};
  EXPECT_EQ(lower(g, in, DType::f32, out, kinds).to_string(),
            "r0 = input 2 : f32\nr1 = input 0 : f32\nr2 = gt r0 r1 : b8 of f32\n"
            "r3 = select r2 r0 r1 : f32\nr4 = input 3 : i64\nr5 = input 1 : i64\n"
            "r6 = select r2 r4 r5 : i64\nreturn r3 : float32 r6 : int64");
}

TEST(ScalarProgram, KeptPerTypes) {
  const DType f[] = {DType::f32, DType::f32}, d[] = {DType::f64, DType::f64};
  const DType of[] = {DType::f32}, od[] = {DType::f64};
  const ScalarProgram& a = program_of(op::add, f, of);
  EXPECT_EQ(&program_of(op::add, f, of), &a);
  const ScalarProgram& b = program_of(op::add, d, od);
  EXPECT_NE(&a, &b);
  EXPECT_EQ(&program_of(op::add, d, od), &b);
}

// ---- result types

struct Operands {
  std::vector<Spec> specs;
  std::vector<Scalar> scalars;
  std::vector<uint8_t> present;
  Operands& tensor(DType t, Shape s) {
    specs.emplace_back(t, s);
    scalars.emplace_back();
    present.push_back(1);
    return *this;
  }
  Operands& number(Scalar s) {
    specs.emplace_back();
    scalars.push_back(s);
    present.push_back(2);
    return *this;
  }
};

Spec infer(const OpDef& op, const Operands& in) {
  InferCall c(op, nullptr);
  for (size_t i = 0; i < in.specs.size(); ++i) {
    c.in.push_back(in.specs[i]);
    c.scalars.push_back(in.scalars[i]);
    c.present.push_back(in.present[i]);
  }
  op.infer_fn(c);
  return c.out[0];
}

std::string result(const OpDef& op, const Operands& in) { return infer(op, in).to_string(); }

TEST(InferPointwise, ResultTypes) {
  const Shape s(2);
  EXPECT_EQ(result(op::add, Operands().tensor(DType::i32, s).tensor(DType::f16, s)), "f16[2]");
  EXPECT_EQ(result(op::add, Operands().tensor(DType::f16, s).tensor(DType::f64, {})), "f16[2]");
  EXPECT_EQ(result(op::add, Operands().tensor(DType::i8, s).tensor(DType::f64, {})), "f64[2]");
  EXPECT_EQ(result(op::add, Operands().tensor(DType::i8, s).number(2)), "i8[2]");
  EXPECT_EQ(result(op::add, Operands().tensor(DType::i8, s).number(2.5)), "f32[2]");
  EXPECT_EQ(result(op::add, Operands().tensor(DType::b8, s).number(2)), "i64[2]");
  EXPECT_EQ(result(op::add, Operands().tensor(DType::i8, s).tensor(DType::u8, s)), "i16[2]");
  EXPECT_EQ(result(op::div, Operands().tensor(DType::i64, s).number(2)), "f32[2]");
  EXPECT_EQ(result(op::exp, Operands().tensor(DType::b8, s)), "f32[2]");
  EXPECT_EQ(result(op::square, Operands().tensor(DType::b8, s)), "i64[2]");
  EXPECT_EQ(result(op::lt, Operands().tensor(DType::i64, s).number(2.5)), "b8[2]");
  EXPECT_EQ(result(op::where, Operands().tensor(DType::b8, s).number(1).tensor(DType::f64, {})),
            "f64[2]");
}

TEST(InferPointwise, Broadcasts) {
  EXPECT_EQ(result(op::add, Operands().tensor(DType::f32, {8, 1, 3}).tensor(DType::f32, {5, 1})),
            "f32[8, 5, 3]");
  EXPECT_EQ(result(op::add, Operands().tensor(DType::f32, Shape(3)).tensor(DType::f32, {0, 1})),
            "f32[0, 3]");
  EXPECT_EQ(result(op::where,
                   Operands().tensor(DType::b8, {4, 1}).tensor(DType::f32, Shape(3)).number(0.0)),
            "f32[4, 3]");
}

std::string message(const OpDef& op, const Operands& in) {
  try {
    infer(op, in);
  } catch (const Error& e) {
    return e.message() + " | " + e.hint();
  }
  return "no error";
}

TEST(InferPointwise, Errors) {
  const Shape s(2);
  EXPECT_EQ(message(op::add, Operands().tensor(DType::f32, {8, 3}).tensor(DType::f32, Shape(4))),
            "input 'a' is [8, 3], input 'b' is [4]: they do not broadcast, dimension 1 from the "
            "right is 3 and 4 | Sizes must be equal, or one of them 1: unsqueeze() adds such a "
            "dimension.");
  EXPECT_EQ(message(op::bitwise_and, Operands().tensor(DType::f32, s).tensor(DType::i8, s)),
            "expected integers or bool, these inputs give float32 | Convert with .to(int64).");
  EXPECT_EQ(
      message(op::neg, Operands().tensor(DType::b8, s)),
      "expected numbers, the result would be bool | Convert with .to(int64), or use a logical "
      "op.");
  EXPECT_EQ(message(op::sub, Operands().tensor(DType::f32, s).tensor(DType::b8, s)),
            "expected numbers, input 'b' is bool | Use logical_xor or ^ for a difference of truth "
            "values, ~ to invert one.");
  EXPECT_EQ(message(op::pow, Operands().tensor(DType::i32, s).number(-1)),
            "integers to the negative power -1 are not integers | Convert the base with "
            ".to(float32), or give the exponent as a float.");
  EXPECT_EQ(message(op::add, Operands().tensor(DType::i8, s).number(300)),
            "the number 300 for 'b' does not fit int8 | Convert the tensor to a wider dtype "
            "first.");
  EXPECT_EQ(message(op::add, Operands().tensor(DType::u8, s).number(-1)), "no error");
}

}  // namespace
}  // namespace tandem::testing
