// SPDX-License-Identifier: Apache-2.0
// The row driver: every op of the table, in every way an op can run. Per row: kernel against the
// f64 reference, every dtype, odd strides, sizes 0 and 1, inputs unchanged, buffers reused, trace =
// eager, any thread count, gradcheck to order 2, vmap = loop. The completeness tests fail when an
// op has no row, no doc, no shape rule, no reference or no derivative.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "tandem/base/parallel.h"
#include "tandem/graph/expression/scalar_eval.h"
#include "tandem/graph/trace.h"
#include "tests/ops/row_driver.h"
#include "tests/support/init.h"
#include "tests/support/sanitized.h"

namespace tandem::rows {

namespace {

// ---- the oracle: the row's reference, its body, or the scalar evaluator

struct Oracle {
  const OpDef& op;
  AttrsHolder attrs;
  InferCall infer;

  Oracle(const Row& row, const std::vector<Arg>& args, int64_t n)
      : op(*find_op(row.op)), attrs(row.attrs(n)), infer(op, attrs.get()) {
    for (size_t i = 0; i < std::max<size_t>(args.size(), op.n_in); ++i) {
      bool there = i < args.size();
      infer.in.push_back(there && args[i].tensor.defined() ? spec_of(args[i].tensor) : Spec());
      infer.present.push_back(!there ? 0 : args[i].is_scalar ? 2 : args[i].tensor.defined());
      infer.scalars.push_back(there ? args[i].scalar : Scalar());
    }
    if (op.infer_fn)
      op.infer_fn(infer);
    else if (op.family == Family::pointwise)
      infer_pointwise(infer);
  }

  std::vector<Tensor> run(const std::vector<Arg>& args) {
    size_t n = infer.in.size();
    if (!op.reference_fn && op.family != Family::pointwise) {
      std::vector<Tensor> in(n);
      std::vector<Scalar> scalars(n);
      for (size_t i = 0; i < args.size(); ++i) in[i] = args[i].tensor, scalars[i] = args[i].scalar;
      BodyCall body{op, attrs.get(), in, scalars, {}, true};
      op.body_fn(body);
      return std::vector<Tensor>(body.out, body.out + op.n_out);
    }
    std::vector<Array> in(n);
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].is_scalar) {
        in[i].is_scalar = true;
        in[i].scalar = args[i].scalar;
        in[i].dtype = args[i].scalar.dtype();
      } else if (args[i].tensor.defined()) {
        in[i] = array_of(args[i].tensor);
      }
    }
    std::vector<Tensor> out;
    Array arrays[kMaxOpOuts];
    for (int o = 0; o < op.n_out; ++o) {
      out.push_back(zeros(infer.out[o].shape, infer.out[o].dtype));
      arrays[o] = array_of(out.back());
    }
    ErrorWord error;
    KernelCall call{op, attrs.get(), in.data(), static_cast<int>(n), arrays, op.n_out, &error};
    call.rng = RngKey{kSeed, 0};
    if (op.family == Family::pointwise)
      pointwise_reference(call);
    else
      op.reference_fn(call);
    check_error_word(op, error);
    return out;
  }
};

std::vector<Tensor> reference(const Row& row, const std::vector<Arg>& args, int64_t n) {
  return Oracle(row, args, n).run(args);
}

class RowTest : public ::testing::TestWithParam<Row> {};
std::string row_name(const ::testing::TestParamInfo<Row>& info) {
  return info.param.op + "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Rows, RowTest, ::testing::ValuesIn(all_rows()), row_name);

bool takes(const Row& row, int64_t n) {
  return !(n == 0 && row.off & kNo0) && !(n == 1 && row.off & kNo1);
}

TEST_P(RowTest, EqualsReference) {
  const Row& row = GetParam();
  for (int64_t n : {5, 0, 1}) {
    if (!takes(row, n)) continue;
    std::vector<Arg> args = make_args(row, n, float32);
    // A draw is compared with an element of its own dtype: f32 uses fewer of its bits.
    DType wide = find_op(row.op)->has(kRandom) ? float32 : float64;
    std::vector<Tensor> want = reference(row, cast_floating(args, wide), n);
    std::vector<Tensor> got = call_row(row, args, n, true);
    ASSERT_EQ(got.size(), want.size());
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(close(got[o], want[o], row.tolerance)) << "n = " << n << ", output " << o;
    args = make_args(row, n, float64);
    want = reference(row, args, n), got = call_row(row, args, n, true);
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(close(got[o], want[o], 1e-12)) << "f64, n = " << n << ", output " << o;
  }
}

// Elementwise rows: the kernel gives the evaluator's bits in every dtype that the row supports.
// Others: f16 and bf16 within a few units of their last place (2^-11, 2^-8).
TEST_P(RowTest, EveryDType) {
  const Row& row = GetParam();
  const OpDef& op = *find_op(row.op);
  if (op.family != Family::pointwise) {
    if (row.off & kNo16 || !any_floating(make_args(row, 5, float32))) return;
    for (auto [dtype, tolerance] : {std::pair(float16, 4e-3), std::pair(bfloat16, 3e-2)}) {
      std::vector<Arg> args = make_args(row, 5, dtype);
      DType wide = op.has(kRandom) ? dtype : float64;
      std::vector<Tensor> want = reference(row, cast_floating(args, wide), 5);
      std::vector<Tensor> got = call_row(row, args, 5);
      for (size_t o = 0; o < got.size(); ++o)
        EXPECT_TRUE(close(got[o], want[o], tolerance)) << to_string(dtype) << ", output " << o;
    }
    return;
  }
  int taken = 0;
  for (DType dtype :
       {float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, boolean}) {
    std::vector<Arg> args = make_args(row, 37, float32);
    for (size_t i = 0; i < args.size(); ++i)
      if (args[i].tensor.defined() && !(op.types == Types::where && i == 0)) {
        // Integers avoid zero: division by it has its own test.
        Tensor t = args[i].tensor;
        args[i].tensor =
            is_floating(dtype) ? t.to(dtype) : (floor(t.to(float32) * 3.0) + 12.0).to(dtype);
      }
    std::vector<Tensor> want;
    try {
      want = reference(row, args, 37);
    } catch (const Error& e) {
      ASSERT_EQ(e.kind(), ErrorKind::DType) << e.what();
      continue;
    }
    ++taken;
    std::vector<Tensor> got = call_row(row, args, 37);
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(same_bits(got[o], want[o]))
          << to_string(dtype) << ", output " << o << ": " << to_string(got[o]) << "\nwanted "
          << to_string(want[o]);
  }
  EXPECT_GT(taken, 0);
}

TEST_P(RowTest, OddStridesAndInputsUnchanged) {
  const Row& row = GetParam();
  std::vector<Arg> args = make_args(row, 5, float32);
  std::vector<Tensor> want = call_row(row, args, 5);
  for (int kind : {0, 1, 2}) {
    std::vector<Tensor> odd, before;
    for (const Tensor& t : tensors_of(args)) {
      odd.push_back(kind == 2 ? t : odd_strides(t, kind));
      before.push_back(odd.back().clone());
    }
    std::vector<Tensor> got = call_row(row, with_tensors(args, odd), 5);
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(close(got[o], want[o], row.tolerance)) << "stride kind " << kind;
    for (size_t i = 0; i < odd.size(); ++i)
      EXPECT_TRUE(same_bits(odd[i], before[i])) << "input " << i << " was changed";
  }
  std::vector<Tensor> got = call_row(row, args, 5, false, true);
  for (size_t o = 0; o < got.size(); ++o)
    EXPECT_TRUE(same_bits(got[o], want[o])) << "in a temporary's buffer, output " << o;
}

// ---- every row with every layout of its inputs, of sizes 5, 1 and 0

enum class Layout { transposed, strided, inside, expanded, channels_last };
constexpr const char* kLayouts[] = {"transposed", "strided", "inside", "expanded", "channels_last"};

// t's values with such strides; expanded: its first entries along dimension 0 for all.
Tensor laid_out(const Tensor& t, Layout how) {
  if (t.dim() == 0) return t;
  switch (how) {
    case Layout::transposed:
      return odd_strides(t, 0);
    case Layout::strided:
      return odd_strides(t, 1);
    case Layout::inside: {  // a part of something larger in every dimension
      Tensor wide = t;
      for (int64_t d = 0; d < t.dim(); ++d) wide = cat({wide, wide, wide}, d);
      for (int64_t d = 0; d < t.dim(); ++d) wide = wide.narrow(d, t.size(d), t.size(d));
      return wide;
    }
    case Layout::expanded:
      return t.size(0) ? t.narrow(0, 0, 1).expand(t.shape()) : t;
    default:
      return movedim(movedim(t, {-1}, {0}).contiguous(), {0}, {-1});
  }
}

class LayoutTest : public ::testing::TestWithParam<std::tuple<Row, Layout>> {};
INSTANTIATE_TEST_SUITE_P(Rows, LayoutTest,
                         ::testing::Combine(::testing::ValuesIn(all_rows()),
                                            ::testing::Values(Layout::transposed, Layout::strided,
                                                              Layout::inside, Layout::expanded,
                                                              Layout::channels_last)),
                         [](const auto& info) {
                           return std::get<0>(info.param).op + "_" +
                                  kLayouts[static_cast<int>(std::get<1>(info.param))] + "_" +
                                  std::to_string(info.index);
                         });

TEST_P(LayoutTest, EqualsDense) {
  const auto& [row, how] = GetParam();
  // Equal rows would make a single matrix singular.
  const bool matrices =
      row.in.find("regular") != std::string::npos || row.in.find("spd") != std::string::npos;
  const bool expanded = how == Layout::expanded;
  for (int64_t n : {5, 1, 0}) {
    if (!takes(row, n)) continue;
    const std::vector<Arg> args = make_args(row, n, float32);
    std::vector<Tensor> odd, dense;
    for (const Tensor& t : tensors_of(args)) {
      odd.push_back(matrices && expanded ? t : laid_out(t, how));
      dense.push_back(odd.back().contiguous().clone());
    }
    const std::vector<Tensor> want = call_row(row, with_tensors(args, dense), n, true);
    const std::vector<Tensor> got = call_row(row, with_tensors(args, odd), n, true);
    ASSERT_EQ(got.size(), want.size());
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(close(got[o], want[o], row.tolerance)) << "n = " << n << ", output " << o;
    for (size_t i = 0; i < odd.size(); ++i)
      EXPECT_TRUE(same_bits(odd[i], dense[i])) << "input " << i << " was changed";
  }
}

TEST_P(RowTest, TraceEqualsEager) {
  const Row& row = GetParam();
  std::vector<Arg> args = make_args(row, 5, float32);
  std::vector<Tensor> in = tensors_of(args), want = call_row(row, args, 5);
  std::vector<Spec> specs;
  for (const Tensor& t : in) specs.push_back(spec_of(t));
  Ref<Graph> g =
      trace([&](std::span<const Tensor> x) { return call_row(row, with_tensors(args, x), 5); },
            specs, Captures::refuse);
  manual_seed(kSeed);
  std::vector<Tensor> got = run(*g, in);
  for (size_t o = 0; o < got.size(); ++o) {
    EXPECT_TRUE(same_bits(got[o], want[o])) << to_string(*g);
    // The shape rule predicted the result.
    EXPECT_EQ(spec_of(g->outputs[o]).to_string(), spec_of(want[o]).to_string());
  }
}

// Specs of the inputs with the symbol `rows_n` where the row's shapes say n.
std::vector<Spec> symbolic_specs(const Row& row, const std::vector<Arg>& args) {
  Dim n = Dim::symbol("rows_n");
  std::vector<Spec> specs;
  std::vector<std::string> texts = split(row.in, '|');
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].tensor.defined()) continue;
    Spec s = spec_of(args[i].tensor);
    std::vector<std::string> sizes = split(split(texts[i], ' ')[0], ',');
    for (int d = 0; d < s.rank(); ++d)
      if (sizes[static_cast<size_t>(d)] == "n") s.shape[d] = n;
    specs.push_back(s);
  }
  return specs;
}

// One trace with a symbol for n runs at any n.
TEST_P(RowTest, SymbolicSizes) {
  const Row& row = GetParam();
  AttrsHolder five = row.attrs(5), seven = row.attrs(7);
  bool fixed = !equal_attrs(five.type(), five.get(), seven.get());
  if (row.in.find('n') == std::string::npos || fixed) return;
  std::vector<Arg> args = make_args(row, 5, float32);
  Ref<Graph> g =
      trace([&](std::span<const Tensor> x) { return call_row(row, with_tensors(args, x), 5); },
            symbolic_specs(row, args), Captures::refuse);
  for (int64_t n : {5, 7}) {
    args = make_args(row, n, float32);
    std::vector<Tensor> want = call_row(row, args, n);
    manual_seed(kSeed);
    std::vector<Tensor> got = run(*g, tensors_of(args));
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(same_bits(got[o], want[o])) << "n = " << n << "\n" << to_string(*g);
  }
}

// In 16 bits a row so marked may differ, but not under DeterministicGuard.
TEST_P(RowTest, SameBitsAtAnyThreadCount) {
  const Row& row = GetParam();
  // Sanitizers see each way through memory once: alone, and cut into uneven parts.
  const std::vector<int> counts =
      kSanitized ? std::vector<int>{1, 3} : std::vector<int>{1, 2, 8, 3};
  const int before = num_threads();
  for (DType dtype : {float32, bfloat16})
    for (bool guarded : {false, true}) {
      if (dtype != float32 && (row.off & kNo16 || !any_floating(make_args(row, 5, float32)))) break;
      if (!guarded && dtype != float32 && find_op(row.op)->has(kNotDeterministic)) continue;
      if (kSanitized && guarded && !find_op(row.op)->has(kNotDeterministic)) continue;
      DeterministicGuard guard(guarded);
      const std::vector<Arg> args = make_args(row, row.big, dtype);
      std::vector<Tensor> first;
      for (const int threads : counts) {
        set_num_threads(threads);
        std::vector<Tensor> got = call_row(row, args, row.big);
        if (first.empty()) first = got;
        for (size_t o = 0; o < got.size(); ++o)
          EXPECT_TRUE(same_bits(got[o], first[o])) << threads << " threads, " << to_string(dtype);
      }
    }
  set_num_threads(before);
}

TEST_P(RowTest, Gradcheck) {
  const Row& row = GetParam();
  std::vector<Arg> args = make_args(row, 2, float64);
  if (row.order == 0 || row.off & kNoGrad || find_op(row.op)->has(kNotDifferentiable) ||
      !any_floating(args))
    return;
  bool output = false;
  for (const Tensor& y : call_row(row, args, 2)) output |= is_floating(y.dtype());
  if (!output) return;
  GradcheckOptions o;
  o.order = row.order;
  o.eps = 1e-6;
  o.atol = 2e-5;
  std::vector<Tensor> variables = tensors_of(args), constant;
  if (row.off & kLastConstant) {
    constant.push_back(variables.back());
    variables.pop_back();
  }
  std::vector<Tensor> first;
  if (row.off & kFirstConstant && !args[0].is_scalar) {
    first.push_back(variables.front());
    variables.erase(variables.begin());
  }
  if (variables.empty()) return;
  auto f = [&](std::span<const Tensor> x) {
    std::vector<Tensor> all(first);
    all.insert(all.end(), x.begin(), x.end());
    all.insert(all.end(), constant.begin(), constant.end());
    return call_row(row, with_tensors(args, all), 2);
  };
  EXPECT_NO_THROW(gradcheck(f, variables, o));
}

// Examples that differ, one input batched at a time and all of them.
TEST_P(RowTest, VmapEqualsLoop) {
  const Row& row = GetParam();
  if (row.off & kNoVmap || find_op(row.op)->has(kNoBatch)) return;
  constexpr int kBatch = 3;
  std::vector<std::vector<Tensor>> example;
  for (int b = 0; b < kBatch; ++b) example.push_back(tensors_of(make_args(row, 4, float64, 3 * b)));
  std::vector<Arg> args = make_args(row, 4, float64);
  size_t n = example[0].size();
  for (size_t only = n == 1 ? 1 : 0; only <= n && n; ++only) {
    std::vector<Tensor> batch;
    std::vector<int> dims;
    for (size_t i = 0; i < n; ++i) {
      bool batched = only == n || only == i;
      dims.push_back(batched ? 0 : kNoBatchDim);
      batch.push_back(batched ? stack({example[0][i], example[1][i], example[2][i]}, 0)
                              : example[0][i]);
    }
    auto f = [&](std::span<const Tensor> x) { return call_row(row, with_tensors(args, x), 4); };
    std::vector<Tensor> got = detail::vmap_call(f, batch, dims, 0, SourceLocation::here());
    for (int b = 0; b < kBatch; ++b) {
      std::vector<Tensor> one;
      for (size_t i = 0; i < n; ++i) one.push_back(example[dims[i] == 0 ? b : 0][i]);
      std::vector<Tensor> want = call_row(row, with_tensors(args, one), 4);
      for (size_t o = 0; o < want.size(); ++o)
        EXPECT_TRUE(close(got[o].select(0, b), want[o], 1e-10))
            << "example " << b << ", output " << o << ", batched " << only;
    }
  }
}

// ---- completeness

// Rows that the driver does not call directly, and where they are tested instead.
const std::vector<std::pair<std::string, std::string>>& tested_elsewhere() {
  static const std::vector<std::pair<std::string, std::string>> names = {
#include "tests/ops/tested_elsewhere.inc"
  };
  return names;
}

TEST(OpTable, EveryOpHasARow) {
  std::set<std::string> have;
  for (const Row& r : all_rows()) have.insert(r.op);
  for (const auto& [name, file] : tested_elsewhere()) have.insert(name);
  for (const OpDef* op : all_ops())
    EXPECT_TRUE(have.count(op->name)) << op->name << " has no row in tests/ops/row_table.h";
}

TEST(OpTable, RowsNameRealOps) {
  for (const Row& r : table()) {
    EXPECT_NE(find_op(r.op), nullptr) << r.op;
    EXPECT_TRUE(!(r.off & (kNoGrad | kNoVmap | kNo16)) || !r.why.empty())
        << r.op << " does not say why";
  }
  for (const auto& [name, file] : tested_elsewhere()) EXPECT_NE(find_op(name), nullptr) << name;
}

TEST(OpTable, EveryOpIsComplete) {
  for (const OpDef* op : all_ops()) {
    EXPECT_TRUE(op->doc_text && *op->doc_text) << op->name << " has no doc";
    EXPECT_TRUE(op->infer_fn || op->family == Family::pointwise ||
                (op->family == Family::control && op->n_in == 0) ||
                (op->family == Family::composite && op->body_fn))
        << op->name << " has no shape rule";
    EXPECT_TRUE(op->reference_fn || op->body_fn || op->view_fn || op->family == Family::control ||
                op->family == Family::pointwise)
        << op->name << " has no reference";
    EXPECT_TRUE(op->differentiable() || op->has(kNotDifferentiable) || op->has(kZeroGrad) ||
                op->family == Family::create || op->n_in == 0)
        << op->name << " has no derivative and no flag that says why";
  }
}

}  // namespace
}  // namespace tandem::rows
