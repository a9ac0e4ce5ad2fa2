// SPDX-License-Identifier: Apache-2.0
// Emitted C against the interpreter, bit for bit: all ops in all forms with every available
// compiler; all rows that have an expression and random programs (seed printed) with one of them in
// turn.
#include "tandem/codegen/emit_c.h"

#include <bit>
#include <set>

#include "jit_helper.h"
#include "random_program.h"
#include "tandem/base/error.h"
#include "tandem/base/half.h"
#include "tandem/codegen/narrow_integers.h"
#include "tandem/codegen/reduce_program.h"
#include "tandem/codegen/scalar_ops.h"
#include "tandem/graph/op_def.h"
#include "tandem/init.h"

namespace tandem {
namespace {

using codegen::Access;

// Every op on every register type, in every form of operands.
TEST(EmitC, EveryOpEqualsTheInterpreter) {
  std::vector<PlanCase> cases;
  for (DType t : {DType::f32, DType::f64, DType::i64, DType::b8}) {
    const Reg r = reg_of(t);
    for (int op = static_cast<int>(ScalarOp::wrap) + 1; op < codegen::kScalarOpCount; ++op) {
      const auto o = static_cast<ScalarOp>(op);
      const int arity = arity_of(o);
      for (int form = 0; form < (1 << arity) - 1; ++form) {
        if (!codegen::kTilesBase.op[op][static_cast<int>(r)][form]) continue;
        ScalarProgram p;
        std::vector<Access> access;
        for (int k = 0; k < arity; ++k) {
          ScalarInstr i;
          i.op = ScalarOp::input;
          i.type = i.result = o == ScalarOp::select && k == 0 ? Reg::b8 : r;
          i.input = static_cast<int16_t>(k);
          p.code.push_back(i);
          p.in.push_back(i.type == Reg::b8 ? DType::b8 : t);
          access.push_back(form >> k & 1 ? Access::value : Access::dense);
        }
        const ScalarInstr i = instruction(o, r);
        p.code.push_back(i);
        p.out.push_back({static_cast<int16_t>(arity), i.result == Reg::b8 ? DType::b8 : t});
        cases.emplace_back(std::string(to_string(o)) + " " + to_string(t), p, access);
      }
    }
  }
  EXPECT_GT(cases.size(), 300u);
  expect_same_bits(cases, 200, 1);
}

TEST(EmitC, CastsEqualTheInterpreter) {
  std::vector<PlanCase> cases;
  for (int from = 0; from < kDTypeCount; ++from) {
    for (int to = 0; to < kDTypeCount; ++to) {
      const auto f = static_cast<DType>(from), t = static_cast<DType>(to);
      ScalarGraph g(1);
      g.add_output(g.input(0));
      g.add_output(g.input(0) * 3);
      const DType in[] = {f}, out[] = {t, f};
      cases.emplace_back(std::string(to_string(f)) + " to " + to_string(t), lower(g, in, t, out),
                         std::vector<Access>{Access::dense});
    }
  }
  expect_same_bits(cases, 200, 2);
}

DType result_of(const OpDef& op, DType t) {
  if (op.types == Types::compare || op.types == Types::logical) return DType::b8;
  return op.types == Types::floating && !is_floating(t) ? DType::f32 : t;
}

constexpr DType kRowTypes[] = {DType::f32, DType::f64, DType::bf16,
                               DType::i64, DType::u8,  DType::b8};

// All pointwise rows, for all dtypes that they support.
TEST(EmitC, PointwiseRowsEqualTheInterpreter) {
  init();
  std::vector<PlanCase> cases;
  std::set<std::string> seen;
  int rows = 0;
  for (const OpDef* op : all_ops()) {
    if (op->family != Family::pointwise || !op->expr_fn) continue;
    bool covered = false;
    for (DType t : kRowTypes) {
      std::vector<DType> in(op->n_in, t), out(op->n_out, result_of(*op, t));
      if (op->types == Types::where) in[0] = DType::b8;
      try {
        const ScalarProgram& p = program_of(*op, in, out);
        PlanCase c(std::string(op->name) + " " + to_string(t), p,
                   std::vector<Access>(p.in.size(), Access::dense));
        covered = true;
        if (seen.insert(codegen::emit_c(c.plan, "f")).second) cases.push_back(std::move(c));
      } catch (const Error&) {  // not for this dtype
      }
    }
    EXPECT_TRUE(covered) << op->name;
    ++rows;
  }
  EXPECT_GT(rows, 100);
  expect_same_bits(cases, 150, 3, Compilers::in_turn);
}

// Steps, combines and finishes of all reduce and scan rows.
TEST(EmitC, ReduceRowsEqualTheInterpreter) {
  init();
  std::vector<PlanCase> cases;
  std::set<std::string> seen;
  int rows = 0;
  for (const OpDef* op : all_ops()) {
    if (op->family != Family::reduce && op->family != Family::scan) continue;
    for (DType t : kRowTypes) {
      if (op->types == Types::floating && !is_floating(t)) continue;
      std::vector<DType> out;
      for (int k = 0; k < op->n_out; ++k) {
        const char c = op->out_names[k][0];
        const bool wide = op->types == Types::arith && !is_floating(t);
        out.push_back(c == 'i' || c == 'n' || wide ? DType::i64 : result_of(*op, t));
      }
      const codegen::ReduceProgram& p =
          codegen::reduce_program_of(*op, t, out.data(), op->n_out, op->n_in - 1);
      const auto add = [&](const char* part, const ScalarProgram& program, int values_from) {
        std::vector<Access> access(program.in.size(), Access::dense);
        for (size_t k = static_cast<size_t>(values_from); k < access.size(); ++k) {
          access[k] = Access::value;
        }
        PlanCase c(std::string(op->name) + " " + to_string(t) + " " + part, program, access);
        if (c.plan.steps.empty()) return;
        if (seen.insert(codegen::emit_c(c.plan, "f")).second) cases.push_back(std::move(c));
      };
      add("step", p.step, 100);
      add("step by columns", p.step, p.n_states + 1);
      add("combine", p.combine, 100);
      add("finish", p.finish, p.n_states);
      if (p.is_fold) add("map", p.map, 100);
      if (p.is_fold) add("map by columns", p.map, 1);
    }
    ++rows;
  }
  EXPECT_GT(rows, 10);
  expect_same_bits(cases, 150, 4, Compilers::in_turn);
}

TEST(EmitC, RandomProgramsEqualTheInterpreter) {
  const char* text = std::getenv("TANDEM_TEST_SEED");
  const uint64_t seed = text ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  std::printf("random programs from TANDEM_TEST_SEED=%llu\n",
              static_cast<unsigned long long>(seed));
  std::mt19937_64 gen(seed);
  const DType kTypes[] = {DType::f32,  DType::f32, DType::f64, DType::f16,
                          DType::bf16, DType::i32, DType::u8,  DType::i64};
  std::vector<PlanCase> cases;
  const int count = kSanitized ? 100 : 800;  // of a new seed each time
  while (static_cast<int>(cases.size()) < count) {
    const DType compute = kTypes[gen() % std::size(kTypes)];
    const int n_in = 1 + static_cast<int>(gen() % 4);
    ScalarGraph g(n_in);
    random_graph(g, gen, 1 + static_cast<int>(gen() % 9));
    std::vector<DType> in(static_cast<size_t>(n_in), compute);
    std::vector<Access> access(static_cast<size_t>(n_in), Access::dense);
    for (size_t k = 1; k < access.size(); ++k) {
      if (gen() % 4 == 0) in[k] = kTypes[gen() % std::size(kTypes)];
      if (gen() % 4 == 0) access[k] = gen() % 2 ? Access::row : Access::value;
    }
    const DType out[] = {compute, gen() % 2 ? compute : DType::f32};
    codegen::TileOptions alias;
    if (gen() % 3 == 0) alias.alias[0] = alias.alias[1] = codegen::TileOptions::kAnyInput;
    PlanCase c("program " + std::to_string(cases.size()),
               narrowed(lower(g, in, compute, out), compute), access, alias);
    if (!c.plan.steps.empty()) cases.push_back(std::move(c));
  }
  expect_same_bits(cases, 200, seed, Compilers::in_turn);
}

// x between two numbers, as quantize_linear bounds what it rounds.
template <class Any, class Add>
int16_t bounded(int16_t x, Reg r, const Any& any, const Add& add) {
  constexpr double kBounds[] = {-3e9, -0x1p31, -128, -0.0, 0, 127.5, 255, 0x1p31, NAN};
  for (const ScalarOp bound : {ScalarOp::max, ScalarOp::min}) {
    ScalarInstr limit{.op = ScalarOp::constant, .type = r, .result = r};
    limit.imm = Scalar(any(kBounds));
    x = add({.op = bound, .type = r, .result = r, .a = x, .b = add(limit)});
  }
  return x;
}

// Integers of all widths, wrapped, compared, bounded and converted: those that fit are 32 bits in
// emitted C.
TEST(EmitC, IntegerProgramsEqualTheInterpreter) {
  const DType kIntegers[] = {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8};
  const DType kReals[] = {DType::f32, DType::f64};
  constexpr ScalarOp kOps[] = {
      ScalarOp::add,     ScalarOp::sub,    ScalarOp::mul,     ScalarOp::neg,    ScalarOp::abs,
      ScalarOp::sign,    ScalarOp::max,    ScalarOp::fmin,    ScalarOp::shl,    ScalarOp::shr,
      ScalarOp::bit_and, ScalarOp::bit_or, ScalarOp::bit_xor, ScalarOp::bit_not};
  constexpr ScalarOp kTests[] = {ScalarOp::lt, ScalarOp::eq, ScalarOp::ge};
  constexpr int64_t kBounds[] = {INT64_MIN, INT32_MIN, -7, 0, 255, INT32_MAX, int64_t{1} << 40};
  std::mt19937_64 gen(7);
  std::vector<PlanCase> cases;
  int narrow = 0, inside = 0, number_bounds = 0, same = 0;
  const auto any = [&](const auto& from) { return from[gen() % std::size(from)]; };
  for (int n = 0; n < (kSanitized ? 50 : 200); ++n) {
    ScalarProgram p;
    std::vector<int16_t> integers;
    const auto add = [&](ScalarInstr i) {
      p.code.push_back(i);
      const auto at = static_cast<int16_t>(p.code.size() - 1);
      if (i.result == Reg::i64) integers.push_back(at);
      return at;
    };
    for (int k = 0; k < 3; ++k) {
      p.in.push_back(k < 2 ? any(kIntegers) : any(kReals));
      const Reg r = reg_of(p.in.back());
      int16_t x =
          add({.op = ScalarOp::input, .type = r, .result = r, .input = static_cast<int16_t>(k)});
      if (k == 2 && n % 2) x = bounded(x, r, any, add);
      if (k == 2) add({.op = ScalarOp::convert, .type = r, .result = Reg::i64, .a = x});
    }
    const auto number = [&](int64_t v) {
      ScalarInstr i{.op = ScalarOp::constant, .type = Reg::i64, .result = Reg::i64};
      i.imm = Scalar(v);
      return add(i);
    };
    // A float that was converted, bounded from both sides, as saturating casts are.
    for (const ScalarOp bound : {ScalarOp::max, ScalarOp::min}) {
      const int16_t x = integers.back(), limit = number(any(kBounds));
      add({.op = bound, .type = Reg::i64, .result = Reg::i64, .a = x, .b = limit});
    }
    number(static_cast<int64_t>(gen() % 300));
    for (int k = 0; k < 6; ++k) {
      ScalarInstr i = instruction(any(kOps), Reg::i64);
      i.a = any(integers);
      if (i.b >= 0) i.b = any(integers);
      const int16_t y = add(i);
      if (gen() % 2)
        add({.op = ScalarOp::wrap,
             .type = Reg::i64,
             .result = Reg::i64,
             .a = y,
             .narrow = any(kIntegers)});
    }
    const int16_t test = add({.op = any(kTests),
                              .type = Reg::i64,
                              .result = Reg::b8,
                              .a = any(integers),
                              .b = any(integers)});
    add({.op = ScalarOp::select,
         .type = Reg::i64,
         .result = Reg::i64,
         .a = test,
         .b = any(integers),
         .c = any(integers)});
    const DType real = any(kReals);
    const int16_t y = add(
        {.op = ScalarOp::convert, .type = Reg::i64, .result = reg_of(real), .a = any(integers)});
    p.out = {{integers.back(), any(kIntegers)}, {y, real}};
    PlanCase c("integers " + std::to_string(n), p, std::vector<Access>(3, Access::dense));
    for (const codegen::StepNote& note : codegen::narrow_integers(c.plan)) {
      narrow += note.narrow, inside += note.inside;
      number_bounds += note.number, same += note.same;
    }
    cases.push_back(std::move(c));
  }
  EXPECT_GT(narrow, static_cast<int>(cases.size()));
  for (const int count : {inside, number_bounds, same})
    EXPECT_GT(count, static_cast<int>(cases.size()) / 25);
  expect_same_bits(cases, 100, 5, Compilers::in_turn);
}

TEST(EmitC, FloatsSaturateToNarrowIntegers) {
  const auto want = [](int64_t x) { return std::clamp<int64_t>(x, INT32_MIN, INT32_MAX); };
  for (uint64_t u = 0; u < uint64_t{1} << 32; u += 251) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(u));
    ASSERT_EQ(tdo_fn(x), want(tdo_fi(x))) << x;
  }
  std::mt19937_64 gen(1);
  for (int k = 0; k < 1000000; ++k) {
    // All mantissas, and exponents about those of 1 to 2^64.
    const uint64_t bits = gen(), exponent = 1020 + gen() % 72;
    const double x =
        std::bit_cast<double>(k % 16 ? (bits & ~(uint64_t{2047} << 52)) | exponent << 52 : bits);
    ASSERT_EQ(tdo_dn(x), want(tdo_di(x))) << x;
  }
  for (const double x : {0x1p31, 0x1.fffffffcp30, 0x1.fffffffffffffp30, -0x1p31, -0x1.00000002p31,
                         0.0, -0.0, 1e300, -1e300, std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_EQ(tdo_dn(x), want(tdo_di(x))) << x;
    EXPECT_EQ(tdo_fn(static_cast<float>(x)), want(tdo_fi(static_cast<float>(x)))) << x;
  }
  for (const float x : {0.0f, -0.5f, 1.99f, -1.99f, 255.0f, -0x1p31f, 0x1.fffffep30f, NAN})
    EXPECT_EQ(tdo_inside_fn(x), tdo_fi(x)) << x;
}

TEST(EmitC, SixteenBitFloatsConvertAsStorageDoes) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    EXPECT_EQ(std::bit_cast<uint32_t>(tdo_from_f16(bits)),
              std::bit_cast<uint32_t>(half_bits_to_float(bits)));
    EXPECT_EQ(std::bit_cast<uint32_t>(tdo_from_bf16(bits)),
              std::bit_cast<uint32_t>(bfloat16_bits_to_float(bits)));
  }
  for (uint64_t u = 0; u < uint64_t{1} << 32; u += 251) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(u));
    ASSERT_EQ(tdo_to_f16(x), float_to_half_bits(x)) << u;
    ASSERT_EQ(tdo_to_bf16(x), float_to_bfloat16_bits(x)) << u;
  }
}

}  // namespace
}  // namespace tandem
