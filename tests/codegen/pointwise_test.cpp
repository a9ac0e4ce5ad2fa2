// SPDX-License-Identifier: Apache-2.0
// The tile interpreter against the scalar evaluator: random programs, every kernel of every table,
// strides, broadcasting, aliasing, thread counts, and the eager fast path.
#include "tandem/codegen/pointwise.h"

#include "random_program.h"
#include "tandem/graph/expression/scalar_eval.h"
#include "tandem/graph/expression/scalar_expr.h"

namespace tandem {
namespace {

using codegen::run_program;

std::vector<const codegen::TileTable*> tables() {
  const codegen::TileTable* t[3];
  const int n = codegen::all_tiles(t);
  return {t, t + n};
}

// `program` by the evaluator, element by element.
void reference(const ScalarProgram& p, const std::vector<Array>& in, std::vector<Array>& out) {
  std::vector<Value> x(in.size()), regs(p.code.size());
  int64_t index[kMaxRank] = {};
  const auto at = [&](const Array& a) {
    int64_t o = 0;
    for (int d = 0; d < a.rank; ++d) {
      if (a.shape[d] != 1) o += index[out[0].rank - a.rank + d] * a.strides[d];
    }
    return o;
  };
  for (int64_t e = 0; e < out[0].numel; ++e) {
    for (size_t k = 0; k < in.size(); ++k) {
      x[k] = in[k].is_scalar ? to_value(in[k].scalar, reg_of(p.in[k]))
                             : load_value(in[k].data, p.in[k], at(in[k]));
    }
    evaluate(p, x.data(), regs.data(), nullptr);
    for (size_t k = 0; k < out.size(); ++k) {
      store_value(out[k].data, p.out[k].dtype, at(out[k]), regs[p.out[k].reg]);
    }
    for (int d = out[0].rank - 1; d >= 0 && ++index[d] == out[0].shape[d]; --d) index[d] = 0;
  }
}

void expect_equal(const ScalarProgram& p, const std::vector<Array>& in,
                  const std::vector<Buffer8>& like, const std::string& what) {
  std::vector<Buffer8> want(like), got(like);
  std::vector<Array> w, g;
  for (Buffer8& b : want) w.push_back(b.array);
  for (Buffer8& b : got) g.push_back(b.array);
  reference(p, in, w);
  for (const codegen::TileTable* t : tables()) {
    TilesGuard use(t);
    run_program(p, in.data(), static_cast<int>(in.size()), g.data(), static_cast<int>(g.size()),
                nullptr, false);
    for (size_t k = 0; k < got.size(); ++k) {
      EXPECT_TRUE(same_bits(want[k], got[k])) << what << " on " << t->name << "\n" << p.to_string();
    }
  }
}

// Every op on every register type, in every form of operands.
class EveryOp : public ::testing::TestWithParam<DType> {};

TEST_P(EveryOp, EqualsTheEvaluator) {
  const DType t = GetParam();
  const Reg r = reg_of(t);
  constexpr int64_t n = 777;
  std::vector<Buffer8> x;
  for (int k = 0; k < 3; ++k) {
    x.emplace_back(t, std::vector<int64_t>{n});
    x.back().fill(static_cast<uint64_t>(k) + 1, true);
    // Some loops look at a block of operands first: in the first one all are near.
    for (int64_t i = 0; is_floating(t) && i < 300; ++i)
      x.back().set(i, static_cast<double>(1 + i * (2 * k + 7) % 300) / 302);
  }
  Buffer8 mask(DType::b8, {n});
  mask.fill(9);
  int covered = 0;
  for (int op = static_cast<int>(ScalarOp::wrap) + 1; op < codegen::kScalarOpCount; ++op) {
    const auto o = static_cast<ScalarOp>(op);
    const int arity = arity_of(o);
    for (int form = 0; form < 1 << arity; ++form) {
      if (!codegen::kTilesBase.op[op][static_cast<int>(r)][form]) continue;
      ScalarProgram p;
      std::vector<Array> in;
      for (int k = 0; k < arity; ++k) {
        const bool is_mask = o == ScalarOp::select && k == 0;
        const Buffer8& b = is_mask ? mask : x[static_cast<size_t>(k)];
        ScalarInstr i;
        i.op = ScalarOp::input;
        i.type = i.result = is_mask ? Reg::b8 : r;
        i.input = static_cast<int16_t>(k);
        p.code.push_back(i);
        p.in.push_back(b.array.dtype);
        in.push_back(b.array);
        if (form >> k & 1) {
          in.back().is_scalar = true;
          in.back().scalar = r == Reg::i64             ? Scalar(3)
                             : is_mask || r == Reg::b8 ? Scalar(true)
                                                       : Scalar(0.75);
        }
      }
      const ScalarInstr i = instruction(o, r);
      p.code.push_back(i);
      const DType out = i.result == Reg::b8 ? DType::b8 : t;
      p.out.push_back({static_cast<int16_t>(arity), out});
      expect_equal(p, in, {Buffer8(out, {n})}, to_string(o));
      ++covered;
    }
  }
  EXPECT_GT(covered, r == Reg::b8 ? 40 : 60);
}
INSTANTIATE_TEST_SUITE_P(Types, EveryOp,
                         ::testing::Values(DType::f32, DType::f64, DType::i64, DType::b8),
                         [](const auto& info) { return std::string(to_string(info.param)); });

// Conversions between all pairs of dtypes, scalars included.
TEST(Pointwise, CastsEqualTheEvaluator) {
  for (int from = 0; from < kDTypeCount; ++from) {
    for (int to = 0; to < kDTypeCount; ++to) {
      const auto f = static_cast<DType>(from), t = static_cast<DType>(to);
      Buffer8 x(f, {1500});
      x.fill(5, true);
      ScalarGraph g(1);
      g.add_output(g.input(0));
      const DType in[] = {f}, out[] = {t};
      expect_equal(lower(g, in, t, out), {x.array}, {Buffer8(t, {1500})},
                   std::string(to_string(f)) + " to " + to_string(t));
    }
  }
}

TEST(Pointwise, RandomProgramsEqualTheEvaluator) {
  const DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::u8};
  const std::vector<int64_t> kShapes[] = {{3, 5, 130}, {2000},   {7, 4}, {1, 1},
                                          {},          {64, 70}, {0, 3}};
  std::mt19937_64 gen(7);
  for (int round = 0; round < 150; ++round) {
    const DType compute = kTypes[gen() % 6];
    const std::vector<int64_t>& shape = kShapes[gen() % std::size(kShapes)];
    const int n_in = 1 + static_cast<int>(gen() % 4);
    ScalarGraph g(n_in);
    random_graph(g, gen, 2 + static_cast<int>(gen() % 14));
    std::vector<Buffer8> x;
    std::vector<Array> in;
    std::vector<DType> types;
    std::vector<InputKind> kinds;
    for (int k = 0; k < n_in; ++k) {
      std::vector<int64_t> s = shape;
      for (int64_t& d : s) {
        if (gen() % 4 == 0 && d > 0) d = 1;
      }
      std::vector<int64_t> strides = Buffer8::row_major(s);
      const uint64_t kind = gen() % 4;
      if (kind == 0 && s.size() > 1) {  // as the transpose of a row-major array
        std::vector<int64_t> back(s.rbegin(), s.rend());
        strides = Buffer8::row_major(back);
        std::reverse(strides.begin(), strides.end());
      } else if (kind == 1) {
        for (int64_t& d : strides) d *= 2;
      }
      x.emplace_back(compute, s, strides);
      x.back().fill(gen(), round % 2 == 0);
    }
    for (int k = 0; k < n_in; ++k) {
      in.push_back(x[static_cast<size_t>(k)].array);
      types.push_back(compute);
      kinds.push_back(InputKind::element);
      if (k > 0 && gen() % 5 == 0) {
        in.back() = Array{};
        in.back().is_scalar = true;
        in.back().scalar = is_floating(compute) ? Scalar(1.25) : Scalar(3);
        kinds.back() = InputKind::number;
      }
    }
    const DType out[] = {compute, gen() % 2 ? compute : DType::f32};
    std::vector<int64_t> strides = Buffer8::row_major(shape);
    if (gen() % 3 == 0) {
      for (int64_t& d : strides) d *= 3;
    }
    expect_equal(narrowed(lower(g, types, compute, out, kinds), compute), in,
                 {Buffer8(out[0], shape, strides), Buffer8(out[1], shape)},
                 "round " + std::to_string(round));
  }
}

// Outputs in the memory of an input with the same dtype and strides.
TEST(Pointwise, OutputMayBeAnInput) {
  std::mt19937_64 gen(11);
  for (int round = 0; round < 60; ++round) {
    ScalarGraph g(3);
    random_graph(g, gen, 3 + static_cast<int>(gen() % 10));
    const DType t = round % 3 ? DType::f32 : DType::f16;
    const DType in_types[] = {t, t, t}, out_types[] = {t, t};
    const ScalarProgram p = lower(g, in_types, t, out_types);
    std::vector<Buffer8> x;
    for (uint64_t k = 0; k < 3; ++k) {
      x.emplace_back(t, std::vector<int64_t>{50, 41});
      x.back().fill(gen());
    }
    std::vector<Buffer8> want(2, Buffer8(t, {50, 41}));
    std::vector<Array> in, w;
    for (Buffer8& b : x) in.push_back(b.array);
    for (Buffer8& b : want) w.push_back(b.array);
    reference(p, in, w);
    std::vector<Array> out = {x[gen() % 2].array, x[2].array};
    run_program(p, in.data(), 3, out.data(), 2, nullptr, false);
    const Buffer8& first = out[0].data == x[0].array.data ? x[0] : x[1];
    EXPECT_TRUE(same_bits(want[0], first)) << p.to_string();
    EXPECT_TRUE(same_bits(want[1], x[2])) << p.to_string();
  }
}

TEST(Pointwise, ThreadsDoNotChangeBits) {
  ScalarGraph g(3);
  g.add_output(tanh(g.input(0)) * g.input(1) + g.input(2));
  const DType in_types[] = {DType::f32, DType::f32, DType::f32}, out_types[] = {DType::f32};
  const ScalarProgram p = lower(g, in_types, DType::f32, out_types);
  Buffer8 x(DType::f32, {300, 1000}), row(DType::f32, {1000}), column(DType::f32, {300, 1});
  x.fill(1);
  row.fill(2);
  column.fill(3);
  const Array in[] = {x.array, row.array, column.array};
  Buffer8 want(DType::f32, {300, 1000}), got(DType::f32, {300, 1000});
  {
    ThreadsGuard one(1);
    run_program(p, in, 3, &want.array, 1, nullptr, false);
  }
  for (int threads : {2, 8}) {
    ThreadsGuard many(threads);
    run_program(p, in, 3, &got.array, 1, nullptr, false);
    EXPECT_TRUE(same_bits(want, got)) << threads;
  }
}

TEST(Pointwise, IntegerDivisionByZeroIsReported) {
  ScalarGraph g(2);
  g.add_output(floor_div(g.input(0), g.input(1)));
  const DType in_types[] = {DType::i32, DType::i32}, out_types[] = {DType::i32};
  const ScalarProgram p = lower(g, in_types, DType::i32, out_types);
  Buffer8 a(DType::i32, {100}), b(DType::i32, {100}), y(DType::i32, {100});
  for (int64_t i = 0; i < 100; ++i) {
    a.set(i, 7);
    b.set(i, 2);
  }
  ErrorWord error;
  const Array in[] = {a.array, b.array};
  run_program(p, in, 2, &y.array, 1, &error, false);
  EXPECT_EQ(error.code, 0);
  b.set(57, 0);
  run_program(p, in, 2, &y.array, 1, &error, false);
  EXPECT_EQ(error.code, kDivisionByZero);
  EXPECT_EQ(y.get(56), 3);
  EXPECT_EQ(y.get(57), 0);
}

void relu_expr(const E* in, E* out) { out[0] = where(in[0] < 0, 0, in[0]); }
void relu_grad_expr(const E* in, E* out) { out[0] = where(in[1] < 0, 0, in[0]); }
void add_expr(const E* in, E* out) { out[0] = in[0] + in[1]; }
void gelu_expr(const E* in, E* out) {
  out[0] = in[0] * 0.5 * (1 + erf(in[0] * 0.7071067811865476));
}

constexpr OpDef test_row(const char* name, Names in, ExprFn f) {
  return make_row(name, Family::pointwise, Types::arith, in, nullptr).expr(f);
}
constinit const OpDef kRelu = test_row("test_relu", {"x"}, relu_expr);
constinit const OpDef kReluGrad = test_row("test_relu_grad", {"g", "x"}, relu_grad_expr);
constinit const OpDef kAdd = test_row("test_add", {"a", "b"}, add_expr);
constinit const OpDef kGelu = test_row("test_gelu", {"x"}, gelu_expr);

TEST(Pointwise, FastPathEqualsTheProgram) {
  Buffer8 a(DType::f32, {77}), b(DType::f32, {77});
  a.fill(1, true);
  b.fill(2, true);
  for (const OpDef* op : {&kRelu, &kReluGrad, &kAdd}) {
    const FastF32 fast = codegen::fast_f32_of(*op);
    ASSERT_TRUE(fast) << op->name;
    const DType in_types[] = {DType::f32, DType::f32}, out_types[] = {DType::f32};
    const ScalarProgram& p = program_of(*op, std::span(in_types, op->n_in), out_types);
    std::vector<Array> in = {a.array, b.array};
    in.resize(op->n_in);
    Buffer8 want(DType::f32, {77}), got(DType::f32, {77});
    std::vector<Array> w = {want.array};
    reference(p, in, w);
    fast(reinterpret_cast<float*>(got.bytes.data()), reinterpret_cast<float*>(a.bytes.data()),
         reinterpret_cast<float*>(b.bytes.data()), 77);
    EXPECT_TRUE(same_bits(want, got)) << op->name;
  }
  EXPECT_FALSE(codegen::fast_f32_of(kGelu));
}

TEST(Pointwise, ReluIsOneLoop) {
  ScalarGraph g(1);
  g.add_output(where(g.input(0) < 0, 0, g.input(0)));
  const DType f32[] = {DType::f32};
  const codegen::Access access[] = {codegen::Access::dense};
  const codegen::TilePlan plan =
      codegen::make_tile_plan(lower(g, f32, DType::f32, f32), access, {}, codegen::tiles());
  EXPECT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.n_tiles, 0);
}

TEST(Pointwise, LayoutFollowsADenseInput) {
  Buffer8 x(DType::f32, {2, 3, 4, 5}, {60, 1, 15, 3}), bias(DType::f32, {3, 1, 1});
  Buffer8 y(DType::f32, {2, 3, 4, 5});
  const Array in[] = {bias.array, x.array};
  Array out = y.array;
  KernelCall call{kAdd};
  call.in = in;
  call.n_in = 2;
  call.out = &out;
  call.n_out = 1;
  Strides strides;
  ASSERT_TRUE(codegen::pointwise_kernel().layout(call, 0, strides));
  EXPECT_EQ(std::vector<int64_t>(strides.v.begin(), strides.v.begin() + 4), x.strides);
}

}  // namespace
}  // namespace tandem
