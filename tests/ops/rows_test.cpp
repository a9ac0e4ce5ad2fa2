// SPDX-License-Identifier: Apache-2.0
// The row driver: every op of the table, in every way an op can run. Per row: kernel against the
// f64 reference, odd strides, sizes 0 and 1, inputs unchanged, trace = eager, 1/2/8 threads,
// gradcheck to order 2, vmap = loop. The completeness tests fail when an op has no row.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "tandem/base/parallel.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/trace.h"
#include "tests/ops/row_table.h"

namespace tandem::rows {
namespace {

struct Init {
  Init() { init(); }
} const g_init;

// ---- inputs

double value_at(const std::string& domain, int64_t i, int salt) {
  double s = std::sin(1.37 * static_cast<double>(i) + 0.61 * salt + 0.2);  // no ties, no kinks at 0
  double u = 0.5 * (s + 1);
  if (domain == "pos") return 0.3 + 2 * u;
  if (domain == "unit") return 0.85 * s;
  if (domain == "prob") return 0.05 + 0.9 * u;
  if (domain == "gt1") return 1.2 + 2 * u;
  if (domain == "big") return 40 * s;
  if (domain == "bool") return s > 0;
  if (domain == "ints") return std::floor(7.9 * s);
  if (domain == "posint") return 1 + std::floor(6.9 * u);
  if (domain.rfind("int:", 0) == 0) return std::floor(u * 0.999 * std::stod(domain.substr(4)));
  return 2 * s + 0.05;
}

DType dtype_for(const std::string& domain, DType floating) {
  if (domain == "bool") return DType::b8;
  if (domain.rfind("int", 0) == 0 || domain == "posint") return DType::i64;
  return floating;
}

Shape shape_of(const std::string& text, int64_t n) {
  Shape s;
  std::string part;
  for (char c : text + ",") {
    if (c != ',') {
      part += c;
    } else if (!part.empty()) {
      s.push_back(part == "n" ? n : std::stoll(part));
      part.clear();
    }
  }
  return s;
}

struct Arg {
  Tensor tensor;
  Scalar scalar;
  bool is_scalar = false;
};

std::vector<Arg> make_args(const Row& row, int64_t n, DType floating) {
  std::vector<Arg> args;
  for (size_t k = 0; k < row.in.size(); ++k) {
    const In& in = row.in[k];
    Arg a;
    if (in.domain.rfind("num:", 0) == 0) {
      a.is_scalar = true;
      a.scalar = Scalar(std::stod(in.domain.substr(4)));
    } else if (in.domain != "-") {
      Shape s = shape_of(in.shape, n);
      std::vector<double> v(static_cast<size_t>(s.numel().value()));
      for (size_t i = 0; i < v.size(); ++i)
        v[i] = value_at(in.domain, static_cast<int64_t>(i), static_cast<int>(k));
      a.tensor = tensor(v).reshape(s).to(dtype_for(in.domain, floating));
    }
    args.push_back(a);
  }
  return args;
}

std::vector<Tensor> call_row(const Row& row, const std::vector<Arg>& args) {
  const OpDef* op = find_op(row.op);
  AttrsHolder attrs = row.attrs();
  std::vector<Operand> in;
  in.reserve(args.size());
  for (const Arg& a : args) {
    if (a.is_scalar)
      in.emplace_back(a.scalar);
    else
      in.emplace_back(a.tensor);
  }
  Tensor out[kMaxOpOuts];
  apply(*op, attrs.get(), in, out, Where::here());
  return std::vector<Tensor>(out, out + op->shown());
}

std::vector<Tensor> tensors_of(const std::vector<Arg>& args) {
  std::vector<Tensor> t;
  for (const Arg& a : args)
    if (a.tensor.defined()) t.push_back(a.tensor);
  return t;
}

// The same call with its tensors replaced.
std::vector<Arg> with_tensors(std::vector<Arg> args, std::span<const Tensor> t) {
  size_t k = 0;
  for (Arg& a : args)
    if (a.tensor.defined()) a.tensor = t[k++];
  return args;
}

// ---- comparing

::testing::AssertionResult close(const Tensor& got, const Tensor& want, double tolerance) {
  if (!(got.shape() == want.shape()))
    return ::testing::AssertionFailure() << got.shape().to_string() << " is not "
                                         << want.shape().to_string();
  std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  double largest = 1e-3;
  for (double v : b)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    if (!(std::abs(a[i] - b[i]) <= tolerance * largest))
      return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << ", wanted " << b[i];
  }
  return ::testing::AssertionSuccess();
}

bool same_bits(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return x.dtype() == y.dtype() && x.shape() == y.shape() &&
         std::memcmp(x.impl()->data, y.impl()->data,
                     static_cast<size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

// The same values behind other strides: transposed storage, or every second element.
Tensor odd_strides(const Tensor& t, int kind) {
  if (t.dim() == 0) return t;
  if (kind == 0 && t.dim() >= 2) return t.transpose(0, -1).contiguous().transpose(0, -1);
  Tensor wide = cat({t.unsqueeze(-1), t.unsqueeze(-1)}, -1).flatten(-2, -1);
  return wide.slice(-1, 0, wide.size(-1), 2);
}

// Reference of the row (or its body) in f64.
std::vector<Tensor> reference(const Row& row, const std::vector<Arg>& args) {
  std::vector<Arg> wide = args;
  for (Arg& a : wide)
    if (a.tensor.defined() && is_floating(a.tensor.dtype())) a.tensor = a.tensor.to(float64);
  const OpDef* op = find_op(row.op);
  if (!op->reference_fn) return call_row(row, wide);
  AttrsHolder attrs = row.attrs();
  InferCall c(*op, attrs.get());
  std::vector<Array> in(std::max<size_t>(wide.size(), op->n_in));
  for (size_t i = 0; i < in.size(); ++i) {
    bool there = i < wide.size();
    c.in.push_back(there && wide[i].tensor.defined() ? spec_of(wide[i].tensor) : Spec());
    c.present.push_back(!there ? 0 : wide[i].is_scalar ? 2 : wide[i].tensor.defined() ? 1 : 0);
    c.scalars.push_back(there ? wide[i].scalar : Scalar());
    if (there && wide[i].is_scalar) {
      in[i].is_scalar = true;
      in[i].scalar = wide[i].scalar;
      in[i].dtype = wide[i].scalar.dtype();
    } else if (there && wide[i].tensor.defined()) {
      in[i] = array_of(wide[i].tensor);
    }
  }
  if (op->infer_fn)
    op->infer_fn(c);
  else
    infer_pointwise(c);
  std::vector<Tensor> out;
  std::vector<Array> arrays(op->n_out);
  for (int o = 0; o < op->shown(); ++o) {
    out.push_back(zeros(c.out[o].shape, c.out[o].dtype));
    arrays[o] = array_of(out.back());
  }
  ErrorWord error;
  KernelCall call{*op, attrs.get(), in.data(), static_cast<int>(in.size()), arrays.data(),
                  op->n_out, &error};
  op->reference_fn(call);
  return out;
}

// ---- the table with the pointwise rows made from the op table

std::vector<Row> all_rows() {
  std::vector<Row> rows = table();
  std::set<std::string> have;
  for (const Row& r : rows) have.insert(r.op);
  for (const OpDef* op : all_ops()) {
    if (op->family != Family::pointwise || have.count(op->name)) continue;
    Row r;
    r.op = op->name;
    std::string domain = op->types == Types::bits ? "ints" : pointwise_domain(op->name);
    for (int i = 0; i < op->n_in; ++i) {
      std::string name = op->in_names[i];
      if (op->types == Types::where && i == 0)
        r.in.push_back({"n,3", "bool"});
      else if (name.back() == '$')
        r.in.push_back({"", "num:0.7"});
      else
        r.in.push_back({i == 1 && op->n_out == 1 ? "3" : "n,3", domain});
    }
    if (op->attrs) {
      if (r.op == "cast") r.attrs = with(CastAttrs{DType::f64});
    }
    bool smooth = (op->types == Types::arith || op->types == Types::floating ||
                   op->types == Types::where || op->types == Types::cast) &&
                  !op->has(kNotDifferentiable) && op->n_out == 1;
    r.order = smooth ? 2 : 0;
    rows.push_back(r);
  }
  return rows;
}

class RowTest : public ::testing::TestWithParam<Row> {};
std::string row_name(const ::testing::TestParamInfo<Row>& info) {
  return info.param.op + "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Rows, RowTest, ::testing::ValuesIn(all_rows()), row_name);

TEST_P(RowTest, EqualsReference) {
  const Row& row = GetParam();
  for (int64_t n : {5, 0, 1}) {
    if (n != 5 && !row.sizes) continue;
    std::vector<Arg> args = make_args(row, n, float32);
    std::vector<Tensor> want = reference(row, args), got = call_row(row, args);
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(close(got[o], want[o], row.tolerance)) << "n = " << n << ", output " << o;
    std::vector<Tensor> got64 = call_row(row, make_args(row, n, float64));
    std::vector<Tensor> want64 = reference(row, make_args(row, n, float64));
    for (size_t o = 0; o < got64.size(); ++o)
      EXPECT_TRUE(close(got64[o], want64[o], 1e-12)) << "f64, n = " << n << ", output " << o;
  }
}

TEST_P(RowTest, OddStridesAndInputsUnchanged) {
  const Row& row = GetParam();
  std::vector<Arg> args = make_args(row, 5, float32);
  std::vector<Tensor> want = call_row(row, args);
  for (int kind : {0, 1}) {
    std::vector<Tensor> odd, before;
    for (const Tensor& t : tensors_of(args)) {
      odd.push_back(odd_strides(t, kind));
      before.push_back(odd.back().clone());
    }
    std::vector<Tensor> got = call_row(row, with_tensors(args, odd));
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(close(got[o], want[o], row.tolerance)) << "stride kind " << kind;
    for (size_t i = 0; i < odd.size(); ++i)
      EXPECT_TRUE(same_bits(odd[i], before[i])) << "input " << i << " was changed";
  }
}

TEST_P(RowTest, TraceEqualsEager) {
  const Row& row = GetParam();
  std::vector<Arg> args = make_args(row, 5, float32);
  std::vector<Tensor> in = tensors_of(args), want = call_row(row, args);
  std::vector<Spec> specs;
  for (const Tensor& t : in) specs.push_back(spec_of(t));
  Ref<Graph> g = trace(
      [&](std::span<const Tensor> x) { return call_row(row, with_tensors(args, x)); }, specs,
      Captures::refuse);
  std::vector<Tensor> got = run(*g, in);
  for (size_t o = 0; o < got.size(); ++o) EXPECT_TRUE(same_bits(got[o], want[o])) << to_string(*g);
}

TEST_P(RowTest, SameBitsAtAnyThreadCount) {
  const Row& row = GetParam();
  if (find_op(row.op)->has(kNotDeterministic)) GTEST_SKIP() << "the row says that bits vary";
  std::vector<Arg> args = make_args(row, 3000, float32);
  int before = num_threads();
  std::vector<Tensor> first;
  for (int threads : {1, 2, 8}) {
    set_num_threads(threads);
    std::vector<Tensor> got = call_row(row, args);
    if (first.empty()) first = got;
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(same_bits(got[o], first[o])) << threads << " threads";
  }
  set_num_threads(before);
}

TEST_P(RowTest, Gradcheck) {
  const Row& row = GetParam();
  if (row.order == 0) return;
  std::vector<Arg> args = make_args(row, 2, float64);
  GradcheckOptions o;
  o.order = row.order;
  o.eps = 1e-6;
  o.atol = 2e-5;
  auto f = [&](std::span<const Tensor> x) { return call_row(row, with_tensors(args, x)); };
  EXPECT_NO_THROW(gradcheck(f, tensors_of(args), o));
}

TEST_P(RowTest, VmapEqualsLoop) {
  const Row& row = GetParam();
  const OpDef* op = find_op(row.op);
  if (!row.vmap || op->has(kNoBatch)) return;
  constexpr int64_t kBatch = 3;
  std::vector<Arg> args = make_args(row, 4, float64);
  std::vector<Tensor> in = tensors_of(args);
  // Every input batched, then each one alone.
  for (size_t only = 0; only <= in.size(); ++only) {
    if (in.size() == 1 && only == 0) continue;
    std::vector<Tensor> batch;
    std::vector<int> dims;
    for (size_t i = 0; i < in.size(); ++i) {
      bool batched = only == in.size() || only == i;
      dims.push_back(batched ? 0 : kNoBatchDim);
      if (!batched) {
        batch.push_back(in[i]);
        continue;
      }
      std::vector<Tensor> copies;
      for (int64_t b = 0; b < kBatch; ++b)
        copies.push_back(is_floating(in[i].dtype()) ? in[i] * (1.0 - 0.1 * static_cast<double>(b)) : in[i]);
      batch.push_back(stack(copies, 0));
    }
    auto f = [&](std::span<const Tensor> x) { return call_row(row, with_tensors(args, x)); };
    std::vector<Tensor> got = detail::vmap_call(f, batch, dims, 0, Where::here());
    for (int64_t b = 0; b < kBatch; ++b) {
      std::vector<Tensor> one;
      for (size_t i = 0; i < batch.size(); ++i)
        one.push_back(dims[i] == 0 ? batch[i].select(0, b) : batch[i]);
      std::vector<Tensor> want = call_row(row, with_tensors(args, one));
      for (size_t o = 0; o < want.size(); ++o)
        EXPECT_TRUE(close(got[o].select(0, b), want[o], 1e-10))
            << "example " << b << ", output " << o << ", batched " << only;
    }
  }
}

// ---- completeness

// Rows that the driver does not call by themselves, and where they are tested instead.
const std::set<std::string>& tested_elsewhere() {
  static const std::set<std::string> names = {
#include "tests/ops/tested_elsewhere.inc"
  };
  return names;
}

TEST(OpTable, EveryOpHasARow) {
  std::set<std::string> have;
  for (const Row& r : all_rows()) have.insert(r.op);
  for (const OpDef* op : all_ops())
    EXPECT_TRUE(have.count(op->name) || tested_elsewhere().count(op->name))
        << op->name << " has no row in tests/ops/row_table.h";
}

TEST(OpTable, RowsNameRealOps) {
  for (const Row& r : table()) EXPECT_NE(find_op(r.op), nullptr) << r.op;
  for (const std::string& name : tested_elsewhere()) EXPECT_NE(find_op(name), nullptr) << name;
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
