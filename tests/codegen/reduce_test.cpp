// SPDX-License-Identifier: Apache-2.0
// The reduce and scan kernels against the rows' references: every row, dtypes, strides, dims, empty
// and single sizes; equal bits for every thread count and kernel table.
#include "tandem/codegen/reduce.h"

#include <numeric>

#include "codegen_helper.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/reduce_attrs.h"
#include "tandem/ops/reduce/reduce.h"

namespace tandem {
namespace {

using Dims = std::vector<int64_t>;

struct Case {
  const OpDef& op;
  const Buffer8& x;
  Dims dims;  // of a reduction; the first one of a scan
  bool keepdim = false;

  bool is_scan() const { return op.family == Family::scan; }

  std::vector<int64_t> out_shape() const {
    if (is_scan()) return x.shape;
    std::vector<int64_t> s;
    for (size_t d = 0; d < x.shape.size(); ++d) {
      const bool reduced = dims.empty() || std::find(dims.begin(), dims.end(),
                                                     static_cast<int64_t>(d)) != dims.end();
      if (!reduced || keepdim) s.push_back(reduced ? 1 : x.shape[d]);
    }
    return s;
  }
  DType out_dtype(int k) const {
    const DType t = x.array.dtype;
    const char c = op.out_names[k][0];
    if (c == 'i' || c == 'n') return DType::i64;
    if (op.types == Types::logical) return DType::b8;
    if (op.types == Types::arith && !is_floating(t)) return DType::i64;
    return t;
  }
  std::vector<Buffer8> outs() const {
    std::vector<Buffer8> y;
    for (int k = 0; k < op.n_out; ++k) y.emplace_back(out_dtype(k), out_shape());
    return y;
  }
  void run(std::vector<Buffer8>& y, bool reference) const {
    ReduceAttrs reduce{IntList(dims), keepdim};
    ScanAttrs scan{dims.empty() ? 0 : dims[0]};
    Array in[2] = {x.array, {}};
    in[1].is_scalar = true;
    in[1].scalar = Scalar(1.0);
    Array out[kMaxOpOuts];
    for (size_t k = 0; k < y.size(); ++k) out[k] = y[k].array;
    KernelCall call{op};
    call.attrs = is_scan() ? static_cast<const void*>(&scan) : &reduce;
    call.in = in;
    call.n_in = op.n_in;
    call.out = out;
    call.n_out = op.n_out;
    if (reference)
      op.reference_fn(call);
    else
      is_scan() ? codegen::run_scan(call) : codegen::run_reduce(call);
  }
};

double reduce_tolerance(DType t) {
  return t == DType::f64 ? 1e-11 : t == DType::f32 ? 2e-5 : t == DType::f16 ? 2e-3 : 1.6e-2;
}

void expect_near(const Buffer8& want, const Buffer8& got, double scale, const std::string& what) {
  const DType t = want.array.dtype;
  for (int64_t i = 0; i < want.array.numel; ++i) {
    if (!is_floating(t)) {
      ASSERT_EQ(want.get_int(i), got.get_int(i)) << what << " element " << i;
      continue;
    }
    const double a = want.get(i), b = got.get(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b) continue;
    ASSERT_LE(std::fabs(a - b), reduce_tolerance(t) * (std::fabs(a) + scale))
        << what << " element " << i;
  }
}

std::string name_of(const Case& c) {
  std::string s = std::string(c.op.name) + " of " + to_string(c.x.array.dtype) + " [";
  for (int64_t n : c.x.shape) s += std::to_string(n) + " ";
  s += "] dims ";
  for (int64_t d : c.dims) s += std::to_string(d) + " ";
  return s;
}

void check(const Case& c) {
  std::vector<Buffer8> want = c.outs(), got = c.outs();
  c.run(want, true);
  c.run(got, false);
  // Running sums cancel; in long products the roundings accumulate.
  const bool long_chain = &c.op == &op::cumsum || &c.op == &op::prod;
  const double scale = long_chain ? 10 : 1;
  for (size_t k = 0; k < want.size(); ++k) expect_near(want[k], got[k], scale, name_of(c));
}

bool takes(const OpDef& op, DType t) { return op.types != Types::floating || is_floating(t); }

std::vector<const OpDef*> rows() {
  std::vector<const OpDef*> out;
  for (const OpDef* op : reduce_rows()) {
    if (op != &op::sum_to) out.push_back(op);
  }
  return out;
}

TEST(Reduce, EveryRowAndDtypeEqualsTheReference) {
  for (const OpDef* op : rows()) {
    for (int t = 0; t < kDTypeCount; ++t) {
      const auto dtype = static_cast<DType>(t);
      if (!takes(*op, dtype)) continue;
      Buffer8 x(dtype, {3, 37, 5});
      x.fill(static_cast<uint64_t>(t) + 1);
      for (const Dims& dims : {Dims{}, Dims{0}, Dims{1}, Dims{2}, Dims{0, 2}, Dims{1, 2}}) {
        if (op->family == Family::scan && dims.size() != 1) continue;
        check({*op, x, dims, dims.size() == 2});
      }
    }
  }
}

TEST(Reduce, OddStridesAndLongLines) {
  for (const OpDef* op : rows()) {
    Buffer8 wide(DType::f32, {4, 20000}), tall(DType::f32, {3000, 7});
    Buffer8 turned(DType::f32, {70, 130}, {1, 70}), apart(DType::f32, {9, 200}, {1000, 3});
    Buffer8 last(DType::f32, {2, 6, 30, 30}, {5400, 1, 180, 6}), plain(DType::f32, {2, 6, 16, 16});
    Buffer8 flat(DType::f32, {40000}), number(DType::f32, {});
    uint64_t seed = 1;
    for (Buffer8* b : {&wide, &tall, &turned, &apart, &last, &plain, &flat, &number}) {
      b->fill(seed++);
      if (op != &op::prod && op != &op::cumprod) continue;
      for (int64_t i = 0; i < b->array.numel; ++i) b->set(i, 1 + b->get(i) * 1e-4);
    }
    for (const Dims& dims : {Dims{0}, Dims{1}}) {
      for (const Buffer8* b : {&wide, &tall, &turned, &apart}) check({*op, *b, dims});
    }
    check({*op, flat, {0}});
    check({*op, number, {}});
    if (op->family == Family::scan) continue;
    for (const Dims& dims : {Dims{0, 2, 3}, Dims{1}, Dims{2, 3}, Dims{0, 1}, Dims{}}) {
      check({*op, last, dims});
      check({*op, plain, dims, true});
    }
  }
}

TEST(Reduce, SpecialValues) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const double lines[][4] = {
      {1, 3, 3, 2},    {nan, 1, nan, 0}, {-inf, inf, inf, 0}, {-inf, -inf, -inf, -inf},
      {0, -0.0, 0, 0}, {1, 2, nan, 5},   {inf, inf, inf, inf}};
  for (const OpDef* op : rows()) {
    if (op == &op::var) continue;
    Buffer8 x(DType::f32, {7, 4});
    for (int64_t i = 0; i < 28; ++i) x.set(i, lines[i / 4][i % 4]);
    check({*op, x, {1}});
    // The same lines along memory, longer than the lanes.
    Buffer8 y(DType::f32, {7, 200});
    for (int64_t i = 0; i < 7 * 200; ++i) y.set(i, lines[i / 200][i % 4]);
    if (op->family != Family::scan && op != &op::prod) check({*op, y, {1}});
  }
}

TEST(Reduce, EmptyAndSingleSizes) {
  for (const OpDef* op : rows()) {
    const bool extreme = op->types == Types::same && op->family == Family::reduce;
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{2, 0, 3}, {1, 1}, {0}, {5, 1, 4}}) {
      Buffer8 x(DType::f32, shape);
      x.fill(3);
      for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
        if (extreme && shape[static_cast<size_t>(d)] == 0) continue;
        check({*op, x, {d}});
      }
    }
  }
}

TEST(Reduce, ThreadsAndTablesGiveTheSameBits) {
  const codegen::TileTable* tables[3];
  const int n_tables = codegen::all_tiles(tables);
  for (const OpDef* op : rows()) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{70000}, {300, 250}, {32, 3, 40, 10}}) {
      Buffer8 x(DType::f32, shape);
      x.fill(5);
      for (int64_t d = -1; d < static_cast<int64_t>(shape.size()); d += 1 + (d > 0)) {
        if (d < 0 && op->family == Family::scan) continue;
        const Case c{*op, x, d < 0 ? Dims{} : Dims{d}};
        std::vector<Buffer8> want = c.outs();
        {
          ThreadsGuard one(1);
          c.run(want, false);
        }
        for (int threads : {2, 8}) {
          ThreadsGuard many(threads);
          std::vector<Buffer8> got = c.outs();
          c.run(got, false);
          for (size_t k = 0; k < got.size(); ++k) {
            EXPECT_TRUE(same_bits(want[k], got[k])) << name_of(c) << threads << " threads";
          }
        }
        for (int t = 0; t < n_tables; ++t) {
          TilesGuard use(tables[t]);
          std::vector<Buffer8> got = c.outs();
          c.run(got, false);
          for (size_t k = 0; k < got.size(); ++k) {
            EXPECT_TRUE(same_bits(want[k], got[k])) << name_of(c) << tables[t]->name;
          }
        }
      }
    }
  }
}

TEST(Reduce, LargeSumsStayExact) {
  Buffer8 x(DType::f32, {1 << 22});
  for (int64_t i = 0; i < x.array.numel; ++i) reinterpret_cast<float*>(x.bytes.data())[i] = 1;
  const Case c{op::sum, x, {}};
  std::vector<Buffer8> y = c.outs();
  c.run(y, false);
  EXPECT_EQ(y[0].get(0), 1 << 22);
  for (int64_t i = 0; i < x.array.numel; ++i) reinterpret_cast<float*>(x.bytes.data())[i] = 0.1f;
  c.run(y, false);
  EXPECT_NEAR(y[0].get(0), 0.1f * static_cast<double>(1 << 22), 0.3);
}

// The same values laid out in another order of the dimensions; all of them at even steps, too.
Buffer8 permuted(const Buffer8& x, const std::vector<int>& order, int64_t step) {
  std::vector<int64_t> strides(x.shape.size());
  for (size_t d = order.size(); d-- > 0; step *= x.shape[static_cast<size_t>(order[d])])
    strides[static_cast<size_t>(order[d])] = step;
  Buffer8 y(x.array.dtype, x.shape, strides);
  for (int64_t i = 0; i < x.array.numel; ++i) y.set(i, x.get(i));
  return y;
}

// All orders of the dimensions of x give the bits that the row-major one gives.
void expect_one_order(const OpDef& op, const Buffer8& x, const Dims& dims) {
  const Case plain{op, x, dims};
  std::vector<Buffer8> want = plain.outs();
  plain.run(want, false);
  std::vector<int> order(x.shape.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    const Buffer8 y = permuted(x, order, order[0] == 0 ? 2 : 1);
    const Case c{op, y, dims};
    std::vector<Buffer8> got = c.outs();
    c.run(got, false);
    for (size_t k = 0; k < got.size(); ++k)
      ASSERT_TRUE(same_bits(want[k], got[k]))
          << name_of(c) << " order " << ::testing::PrintToString(order);
  } while (std::next_permutation(order.begin(), order.end()));
}

// Whatever lies in front of a sum, a copy, a view or another layout, gives the same bits.
TEST(Reduce, BitsDoNotDependOnStrides) {
  struct Shapes {
    std::vector<int64_t> shape;
    std::vector<const OpDef*> rows;
  };
  const Shapes shapes[] = {
      {{5, 7, 3}, {&op::sum, &op::var, &op::logsumexp}},
      {{2, 300, 33}, {&op::sum, &op::norm, &op::mean}},
      {{3, 64, 70}, {&op::sum, &op::var}},
      {{1030, 1, 21}, {&op::sum, &op::norm}},
      {{3, 20, 2, 70}, {&op::sum}},
      {{17000, 2}, {&op::sum, &op::var}},
  };
  for (const auto& [shape, rows] : shapes)
    for (DType t : {DType::f32, DType::bf16}) {
      Buffer8 x(t, shape);
      x.fill(17);
      for (const OpDef* op : rows)
        for (int mask = 1; mask < 1 << shape.size(); ++mask) {
          Dims dims;
          for (size_t d = 0; d < shape.size(); ++d)
            if (mask >> d & 1) dims.push_back(static_cast<int64_t>(d));
          expect_one_order(*op, x, dims);
        }
    }
}

// The reference adds in f64 in this order, too.
TEST(Reduce, LongRunningSumsAreTheReferencesBits) {
  for (const OpDef* op : {&op::cumsum, &op::cumprod}) {
    for (DType t : {DType::f32, DType::bf16}) {
      Buffer8 x(t, {50000}), rows(t, {3, 5000}), columns(t, {5000, 3});
      for (Buffer8* b : {&x, &rows, &columns}) {
        b->fill(11);
        if (op != &op::cumprod) continue;
        for (int64_t i = 0; i < b->array.numel; ++i) b->set(i, 1 + b->get(i) * 1e-2);
      }
      for (const Case& c : {Case{*op, x, {0}}, Case{*op, rows, {1}}, Case{*op, columns, {0}}}) {
        std::vector<Buffer8> want = c.outs(), got = c.outs();
        c.run(want, true);
        c.run(got, false);
        EXPECT_TRUE(same_bits(want[0], got[0])) << name_of(c);
      }
    }
  }
}

TEST(Reduce, RunningSumsGrowBeyondTheDigitsOfF32) {
  const int64_t n = (1 << 24) + 4;
  Buffer8 ones(DType::f32, {n}), y(DType::f32, {n});
  for (int64_t i = 0; i < n; ++i) reinterpret_cast<float*>(ones.bytes.data())[i] = 1;
  std::vector<Buffer8> sums = {y};
  Case{op::cumsum, ones, {0}}.run(sums, false);
  EXPECT_EQ(sums[0].get(n - 1), static_cast<double>(n));

  const int64_t few = 100'000;
  Buffer8 x(DType::f32, {few});  // exp gives 1 and many times 2^-25
  for (int64_t i = 1; i < few; ++i) x.set(i, -25 * std::log(2.0));
  const Case logs{op::logcumsumexp, x, {0}};
  std::vector<Buffer8> z = logs.outs();
  logs.run(z, false);
  EXPECT_NEAR(z[0].get(few - 1), std::log1p((few - 1) * 0x1p-25), 1e-6);
}

TEST(Reduce, VarianceFarFromZero) {
  Buffer8 x(DType::f32, {3, 1001});
  x.fill(4);
  for (int64_t i = 0; i < x.array.numel; ++i) x.set(i, x.get(i) + 1000);
  const Case c{op::var, x, {1}};
  std::vector<Buffer8> want = c.outs(), got = c.outs();
  c.run(want, true);
  c.run(got, false);
  for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(got[0].get(i), want[0].get(i), 1e-6);
}

TEST(Reduce, SumToEqualsTheReference) {
  Buffer8 x(DType::f32, {4, 5, 6, 70});
  x.fill(9);
  for (const std::vector<int64_t>& to :
       {std::vector<int64_t>{70}, {6, 1}, {1, 1, 1, 1}, {5, 1, 70}, {4, 5, 6, 70}, {}, {1, 6, 1}}) {
    Buffer8 want(DType::f32, to), got(DType::f32, to);
    ShapeAttrs attrs{IntList(to)};
    for (bool reference : {true, false}) {
      Array out = reference ? want.array : got.array;
      KernelCall call{op::sum_to};
      call.attrs = &attrs;
      call.in = &x.array;
      call.n_in = 1;
      call.out = &out;
      call.n_out = 1;
      reference ? op::sum_to.reference_fn(call) : codegen::run_reduce(call);
    }
    expect_near(want, got, 1, "sum_to");
  }
}

}  // namespace
}  // namespace tandem
