// SPDX-License-Identifier: Apache-2.0
// Gradients at kinks, poles and ties, at infinities and NaN, of empty tensors: PyTorch's
// (make_golden_singular.py), but for the elements of kExceptions; and a case, or a reason why there
// is none, for every row of the op table that has a derivative.
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "tandem/graph/apply.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/ops/ops.h"
#include "tests/golden/golden_helper.h"
#include "tests/support/init.h"

namespace tandem::golden {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Element i where the first input is x and results are multiplied with g.
using Wanted = double (*)(std::span<const double> x, std::span<const double> g, size_t i);

// Elements that are not PyTorch's, of the case's name without its dtype.
struct Exception {
  const char* name;
  const char* of;
  std::vector<size_t> elements;
  Wanted want;
  const char* why;
};

double zero(std::span<const double>, std::span<const double>, size_t) { return 0; }
double infinite(std::span<const double>, std::span<const double>, size_t) { return kInf; }
double not_a_number(std::span<const double>, std::span<const double>, size_t) { return kNaN; }
double half(std::span<const double>, std::span<const double> g, size_t i) { return g[i] / 2; }

// Rows of three: the product of those before i times g[i] + x[i + 1] (g[i + 1] + x[i + 2] g[i +
// 2]), whose limit is that of the largest infinity.
double of_products(std::span<const double> x, std::span<const double> g, size_t i) {
  const size_t row = i / 3 * 3;
  double before = 1, after = g[row + 2];
  for (size_t j = row; j < i; ++j) before *= x[j];
  for (size_t j = row + 2; j > i; --j) after = g[j - 1] + x[j] * after;
  return before * after;
}
double of_product(std::span<const double> x, std::span<const double> g, size_t i) {
  double product = g[i / 3];
  for (size_t j = i / 3 * 3; j < i / 3 * 3 + 3; ++j)
    if (j != i) product *= x[j];
  return product;
}
// b is 0, 1, -1, 0.5, -2, infinity, -infinity, NaN in each row.
double of_copysign(std::span<const double> x, std::span<const double> g, size_t i) {
  const bool negative = i % 8 == 2 || i % 8 == 4 || i % 8 == 6;
  return std::isnan(x[i]) ? 0 : (x[i] < 0) == negative ? g[i] : -g[i];
}

std::vector<size_t> range(size_t from, size_t to) {
  std::vector<size_t> all;
  for (; from < to; ++from) all.push_back(from);
  return all;
}

const Exception kExceptions[] = {
    {"softsign", "gradient 0", {9, 10}, zero, "1 / (1 + |x|)^2 is 0; PyTorch has inf / inf"},
    {"log_ndtr",
     "gradient 0",
     {10},
     [](auto, auto g, size_t i) { return g[i] * kInf; },
     "it grows as -x; PyTorch has inf - inf"},
    {"polygamma1", "output 0", {2, 6}, infinite, "poles; PyTorch divides by sin(pi x)^2, rounded"},
    {"polygamma1", "output 0", {10}, infinite, "as PyTorch's polygamma(3) and zeta(2) have it"},
    {"polygamma1", "gradient 0", {9}, zero, "the limit; PyTorch's zeta(s, inf) is NaN"},
    {"polygamma2", "output 0", {9}, zero, "the limit; PyTorch's zeta(s, inf) is NaN"},
    {"polygamma2", "gradient 0", {9}, zero, "the limit; PyTorch's zeta(s, inf) is NaN"},
    {"zeta", "output 0", {2}, zero, "the limit, as in SciPy"},
    {"zeta", "gradient 1", {2}, zero, "the limit"},
    {"hypot", "gradient 0", {0}, zero, "as that of norm, which is the same function"},
    {"hypot", "gradient 1", {0}, zero, "as that of norm, which is the same function"},
    {"copysign", "gradient 0", range(40, 64), of_copysign,
     "as that of abs: 1 or -1, of NaN 0; PyTorch divides the result by x"},
    {"logaddexp", "gradient 0", {45, 54}, half, "equal arguments share; PyTorch has inf - inf"},
    {"logaddexp", "gradient 1", {45, 54}, half, "equal arguments share; PyTorch has inf - inf"},
    {"logaddexp2", "gradient 0", {45, 54}, half, "equal arguments share; PyTorch has inf - inf"},
    {"logaddexp2", "gradient 1", {45, 54}, half, "equal arguments share; PyTorch has inf - inf"},
    {"logsumexp_infinities",
     "gradient 0",
     {6, 7, 8},
     zero,
     "a row that is masked throughout moves nothing; PyTorch has inf - inf"},
    {"cumprod_infinities",
     "gradient 0",
     {0, 1, 2, 3, 5, 6, 7, 8},
     of_products,
     "products of the others; PyTorch divides by the element"},
    {"prod_nan", "gradient 0", {0, 4}, of_product, "the product of the others is finite"},
    {"cumprod_nan", "gradient 0", {0, 4}, of_products, "the products of the others are finite"},
    {"norm0.5_infinities", "gradient 0", {4}, zero, "0 at a zero, whatever the others are"},
    {"norminf_nan", "gradient 0", range(0, 6), not_a_number,
     "the norm is NaN; PyTorch's amax(abs(x)) has NaN too, its norm the sign of NaN, 0"},
    {"norm-inf_nan", "gradient 0", range(0, 6), not_a_number, "as that of the norm of infinity"},
    {"cross_entropy_infinite_0.0",
     "gradient 0",
     {0, 2},
     zero,
     "their share of the softmax beside an infinity is 0; PyTorch's whole row is NaN"},
    {"cross_entropy_infinite_0.1",
     "gradient 0",
     {0, 2},
     [](auto, auto g, size_t) { return -g[0] * 0.1 / 3 / 2; },
     "the same, and the smoothing of three classes in two rows"},
    {"det_rank2",
     "gradient 0",
     {0},
     [](auto, auto g, size_t) { return 6 * g[0]; },
     "the cofactor of diag(0, 2, 3); PyTorch has 0"},
};

std::string without_dtype(const std::string& name) {
  return name.ends_with("_f64") || name.ends_with("_f32") ? name.substr(0, name.size() - 4) : name;
}

std::vector<double> values(const Tensor& t) {
  return t.defined() ? t.to_vector<double>() : std::vector<double>{};
}

// What is wanted in place of PyTorch's; each exception shall be one.
Tensor amended(const Case& c, const std::string& what, const Tensor& torch) {
  std::vector<double> all;
  for (const Exception& e : kExceptions) {
    if (e.name != without_dtype(c.name) || e.of != what) continue;
    if (all.empty()) all = values(torch);
    const std::vector<double> x = values(c.t(0)), g = values(c.list_of("grad_out")[0]);
    for (const size_t i : e.elements) {
      const double want = e.want(x, g, i);
      EXPECT_FALSE(want == all[i] || (std::isnan(want) && std::isnan(all[i])))
          << c.name << ", " << what << ": element " << i << " is PyTorch's, " << want;
      all[i] = want;
    }
  }
  return all.empty() ? torch : tensor(all).to(torch.dtype()).reshape(torch.shape());
}

void check_singular_case(const Case& c) {
  check_op_case(c, [&](const std::string& what, const Tensor& t) { return amended(c, what, t); });
}

class GoldenSingular : public ::testing::TestWithParam<Case> {};
TEST_P(GoldenSingular, Matches) { check_singular_case(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Singular, GoldenSingular, ::testing::ValuesIn(cases_of("singular")),
                         case_name);

TEST(SingularExceptions, AreCases) {
  std::set<std::string> names;
  for (const Case& c : cases_of("singular")) names.insert(without_dtype(c.name));
  for (const Exception& e : kExceptions) EXPECT_TRUE(names.count(e.name)) << e.name;
}

// ---- rows without a case

// Why the values of a row's inputs cannot matter; nullptr: they can.
const char* needs_no_case(const OpDef& op) {
  if (!op.vjp_fn && !op.expr_fn && !op.body_fn) return "its derivative is 0";
  if (op.flags & (kZeroGrad | kNotDifferentiable)) return "its derivative is 0, or it has none";
  if (op.types == Types::compare || op.types == Types::logical || op.types == Types::bits)
    return "its results are not floating-point numbers";
  switch (op.family) {
    case Family::view:
      return "the same elements";
    case Family::create:
      return "it has no inputs";
    case Family::control:
      return "the rows of its body have cases";
    default:
      return nullptr;
  }
}

struct Reason {
  const char* why;
  std::vector<const char*> rows;
};
const Reason kReasons[] = {
    {"elements are moved, or added",
     {"slice_backward", "unfold_backward", "copy", "to_device", "roll", "index", "index_put",
      "index_backward", "region_put", "dynamic_update", "dynamic_slice", "im2col", "col2im"}},
    {"sums of elements, with weights that do not depend on them",
     {"interpolate", "interpolate_backward", "roi_align", "roi_align_backward", "fft", "rfft",
      "irfft"}},
    {"matmul, sigmoid and tanh, which have cases",
     {"lstm", "lstm_backward", "lstm_cell", "lstm_cell_backward", "gru", "gru_backward", "rnn",
      "rnn_backward"}},
    {"the function of batch_norm, which has cases", {"batch_norm_infer"}},
    {"draws differ", {"dropout", "dropout_backward", "sample_gamma", "sample_gamma_backward"}},
    {"as solve", {"ldl_solve"}},
    {"an element of what sort, which has cases, gives", {"kthvalue"}},
    {"attention, which has cases, over gathered keys", {"paged_attention"}},
    {"linear in the scale", {"dequantize_linear"}},
    {"linear in x and in the scale", {"matmul_nbits"}},
    {"straight-through gradients: tests/ops/quantize_test.cpp", {"fake_quantize"}},
};

// The rows that ran.
struct RanRows : OpHook {
  std::set<std::string> names;
  void before(const OpDef& op, std::span<const Tensor>) override { names.insert(op.name); }
};

bool lacks_case(const OpDef& op, const std::set<std::string>& ran) {
  return op.differentiable() && !needs_no_case(op) && !ran.count(op.name);
}
constinit const OpDef new_row =
    make_row("new_row", Family::pointwise, Types::floating, {"x"}, nullptr)
        .expr([](const E* in, E* out) { out[0] = abs(in[0]); });

TEST(SingularCoverage, EveryRowWithADerivative) {
  RanRows ran;
  {
    const HookGuard guard(ran);
    for (const Case& c : cases_of("singular")) check_singular_case(c);
  }
  EXPECT_TRUE(lacks_case(new_row, ran.names));
  std::set<std::string> explained;
  for (const Reason& r : kReasons)
    for (const char* row : r.rows) {
      EXPECT_TRUE(explained.insert(row).second) << row << " comes twice";
      EXPECT_FALSE(ran.names.count(row)) << row << " has a case and needs no reason: " << r.why;
    }
  for (const OpDef* op : all_ops()) {
    const std::string name = op->name;
    if (name.ends_with("_probe")) continue;  // a row of coverage_test.cpp
    const bool lacks = lacks_case(*op, ran.names), reason = explained.erase(name) == 1;
    EXPECT_TRUE(!lacks || reason)
        << name
        << " has a derivative, no case in make_golden_singular.py and no reason in kReasons";
    EXPECT_TRUE(lacks || !reason) << name << " needs no reason in kReasons";
  }
  for (const std::string& row : explained) ADD_FAILURE() << "there is no row " << row;
}

}  // namespace
}  // namespace tandem::golden
