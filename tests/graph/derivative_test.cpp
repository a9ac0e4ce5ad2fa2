// SPDX-License-Identifier: Apache-2.0
// Every pointwise row's derivative, and the derivative of that, against numeric differences in f64;
// which tensors they read; what happens at kinks.
#include "tandem/graph/expression/derivative.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>

#include "tandem/ops/pointwise/pointwise.h"
#include "tests/graph/scalar_helper.h"

namespace tandem::testing {
namespace {

using Kind = DerivedRow::Kind;
struct Range {
  double lo, hi;
};

// Where the function is smooth and moderate; default -2.2..2.3.
Range domain(const OpDef& op, int input) {
  static const std::map<std::string, std::vector<Range>> kDomains = {
      {"sqrt", {{0.2, 4}}},
      {"rsqrt", {{0.2, 4}}},
      {"log", {{0.2, 4}}},
      {"log2", {{0.2, 4}}},
      {"log10", {{0.2, 4}}},
      {"log1p", {{-0.7, 3}}},
      {"reciprocal", {{0.4, 3}}},
      {"asin", {{-0.8, 0.8}}},
      {"acos", {{-0.8, 0.8}}},
      {"atanh", {{-0.8, 0.8}}},
      {"acosh", {{1.3, 4}}},
      {"erfinv", {{-0.8, 0.8}}},
      {"lgamma", {{0.4, 6}}},
      {"digamma", {{0.4, 6}}},
      {"logit", {{0.1, 0.9}}},
      {"entr", {{0.2, 4}}},
      {"ndtri", {{0.1, 0.9}}},
      {"polygamma", {{0.5, 4}, {2, 2}}},
      {"zeta", {{1.5, 4}, {0.5, 4}}},
      {"gammainc", {{0.5, 4}, {0.3, 4}}},
      {"gammaincc", {{0.5, 4}, {0.3, 4}}},
      {"xlog1py", {{-2, 2}, {-0.6, 3}}},
      {"tan", {{-1.2, 1.2}}},
      {"pow", {{0.3, 3}, {-2, 2}}},
      {"div", {{-2, 2}, {0.4, 3}}},
      {"atan2", {{-2, 2}, {0.4, 3}}},
      {"xlogy", {{-2, 2}, {0.3, 3}}},
      {"remainder", {{-3, 3}, {1.1, 2}}},
      {"fmod", {{-3, 3}, {1.1, 2}}},
      {"addcdiv", {{-2, 2}, {-2, 2}, {0.5, 3}, {0.5, 2}}},
      {"bce_with_logits", {{-3, 3}, {0.1, 0.9}}},
      {"hypot", {{0.3, 2}, {-2, -0.4}}},
      {"celu", {{-2, 2}, {0.6, 1.4}}},
      {"smooth_l1", {{-2, 2}, {-2, 2}, {0.7, 1.2}}},
      {"huber", {{-2, 2}, {-2, 2}, {0.7, 1.2}}},
      {"softplus", {{-2, 2}, {0.6, 1.4}, {1, 1.2}}},
      {"hardtanh", {{-2, 2}, {-0.9, -0.6}, {0.7, 1.1}}},
      {"clamp", {{-2, 2}, {-0.9, -0.6}, {0.7, 1.1}}},
      {"where", {{0, 1.5}, {-2, 2}, {-2, 2}}},
      {"heaviside", {{-2, 2}, {-2, 2}}},
      {"mish", {{-4, 4}}}};
  auto at = kDomains.find(op.name);
  if (at == kDomains.end() || input >= static_cast<int>(at->second.size())) return {-2.2, 2.3};
  return at->second[input];
}

// The derivative of f in x[i] by central differences of two steps; false at a kink.
template <class F>
bool numeric(const F& f, std::vector<double> x, int i, double& out) {
  auto at = [&](double h) {
    std::vector<double> z = x;
    z[i] += h;
    return f(z);
  };
  const double h = 1e-4 * std::max(1.0, std::abs(x[i]));
  const double wide = (at(2 * h) - at(-2 * h)) / (4 * h), narrow = (at(h) - at(-h)) / (2 * h);
  const double right = (at(h) - at(0)) / h, left = (at(0) - at(-h)) / h;
  out = (4 * narrow - wide) / 3;
  if (!std::isfinite(out)) return false;
  return std::abs(right - left) < 0.05 * (1 + std::abs(out));
}

// Whether the derived row of `op` for input i matches at x. Counts comparable points. `g` is 1.7.
void compare(const OpDef& op, int i, const std::vector<double>& x, int& compared) {
  double want;
  if (!numeric([&](const std::vector<double>& z) { return value_of(op, z); }, x, i, want)) return;
  const double g = 1.7;
  const DerivedRow& d = derived_row(op, i);
  double got = 0;
  if (d.kind == Kind::identity) got = g;
  if (d.kind == Kind::row) {
    std::vector<double> in{g};
    for (int k = 0; k < op.n_in; ++k)
      if (d.uses_in >> k & 1) in.push_back(x[k]);
    if (d.uses_out) in.push_back(value_of(op, x));
    ASSERT_EQ(in.size(), d.row->n_in);
    got = value_of(*d.row, in);
  }
  EXPECT_NEAR(got, g * want, 3e-6 * (1 + std::abs(g * want)))
      << op.name << " input " << i << " at " << x[0] << (x.size() > 1 ? ", " : "")
      << (x.size() > 1 ? std::to_string(x[1]) : "") << "\n"
      << (d.kind == Kind::row ? to_string(expr_of(*d.row)) : "");
  ++compared;
}

std::vector<double> point_of(const OpDef& op, std::mt19937& rng) {
  std::vector<double> x;
  for (int i = 0; i < op.n_in; ++i) {
    const Range r = domain(op, i);
    x.push_back(std::uniform_real_distribution<double>(r.lo, r.hi)(rng));
  }
  if (std::string(op.name) == "where") x[0] = x[0] > 0.75;
  return x;
}

// Inputs without a derivative, here and in PyTorch: requesting it throws.
bool refused(const OpDef& op, int input) {
  const std::string name = op.name;
  return input == 0 ? name == "zeta" || name == "gammainc" || name == "gammaincc"
                    : name == "polygamma";
}

bool is_differentiable(const OpDef& op) {
  return !op.has(kNotDifferentiable) && op.types != Types::cast;
}

TEST(Derivative, EveryRowMatchesDifferences) {
  std::mt19937 rng(7);
  for (const OpDef* op : pointwise_rows()) {
    if (!is_differentiable(*op)) continue;
    for (int i = 0; i < op->n_in; ++i) {
      if (refused(*op, i)) {
        EXPECT_EQ(derived_row(*op, i).kind, Kind::refused) << op->name;
        continue;
      }
      // Numbers of an activation or of a step function have no gradient.
      if (is_number_input(*op, i) && (op->expr_grad_fn || op->has(kZeroGrad))) continue;
      int compared = 0;
      for (int k = 0; k < 20; ++k) compare(*op, i, point_of(*op, rng), compared);
      const bool condition = i == 0 && std::string(op->name) == "where";
      if (!condition) {
        EXPECT_GE(compared, 5) << op->name;
      }
    }
  }
}

TEST(Derivative, SecondOrderMatchesDifferences) {
  std::mt19937 rng(8);
  int rows = 0;
  for (const OpDef* op : pointwise_rows()) {
    if (!is_differentiable(*op)) continue;
    for (int i = 0; i < op->n_in; ++i) {
      const DerivedRow& d = derived_row(*op, i);
      if (d.kind != Kind::row) continue;
      ++rows;
      for (int j = 0; j < d.row->n_in; ++j) {
        if (derived_row(*d.row, j).kind == Kind::refused) continue;
        int compared = 0;
        for (int k = 0; k < 12; ++k) {
          const std::vector<double> x = point_of(*op, rng);
          std::vector<double> in{0.8};
          for (int n = 0; n < op->n_in; ++n)
            if (d.uses_in >> n & 1) in.push_back(x[n]);
          if (d.uses_out) in.push_back(value_of(*op, x));
          compare(*d.row, j, in, compared);
        }
      }
    }
  }
  EXPECT_GT(rows, 60);
}

TEST(Derivative, ThirdAndFourthOrder) {
  // g * cos, then its derivatives for x, again and again: -sin, -cos, sin.
  const OpDef* row = &op::sin;
  int input = 0;
  std::vector<double> x{0.7};
  for (int order = 0; order < 4; ++order) {
    const DerivedRow& d = derived_row(*row, input);
    ASSERT_EQ(d.kind, Kind::row);
    std::vector<double> in{1};
    for (int k = 0; k < row->n_in; ++k)
      if (d.uses_in >> k & 1) in.push_back(x[k]);
    const double want[] = {std::cos(0.7), -std::sin(0.7), -std::cos(0.7), std::sin(0.7)};
    EXPECT_NEAR(value_of(*d.row, in), want[order], 1e-12);
    x = in;
    row = d.row;
    input = row->n_in - 1;
  }
  // Trigamma and tetragamma at 1: pi^2 / 6 and -2 zeta(3).
  const DerivedRow& trigamma = derived_row(op::digamma, 0);
  EXPECT_NEAR(value_of(*trigamma.row, {1, 1}), 1.6449340668482264, 1e-12);
  EXPECT_NEAR(value_of(*trigamma.row, {1, -0.5}), 8.934802200544679, 1e-10);
  EXPECT_NEAR(value_of(*derived_row(*trigamma.row, 1).row, {1, 1, 1}), -2.4041138063191885, 1e-10);
}

struct Reads {
  const OpDef* op;
  int input;
  uint32_t in, out;
};

TEST(Derivative, ReadsTheFewestTensors) {
  const Reads kRows[] = {
      {&op::exp, 0, 0, 1},  {&op::tanh, 0, 0, 1},       {&op::sigmoid, 0, 0, 1},
      {&op::sqrt, 0, 0, 1}, {&op::rsqrt, 0, 0, 1},      {&op::reciprocal, 0, 0, 1},
      {&op::relu, 0, 0, 1}, {&op::silu, 0, 1, 0},       {&op::log, 0, 1, 0},
      {&op::sin, 0, 1, 0},  {&op::mul, 0, 2, 0},        {&op::mul, 1, 1, 0},
      {&op::div, 0, 2, 0},  {&op::where, 1, 1, 0},      {&op::where, 2, 1, 0},
      {&op::gelu, 0, 1, 0}, {&op::leaky_relu, 0, 3, 0}, {&op::sub, 1, 0, 0},
  };
  for (const Reads& r : kRows) {
    const DerivedRow& d = derived_row(*r.op, r.input);
    EXPECT_EQ(d.kind, Kind::row) << r.op->name;
    EXPECT_EQ(d.uses_in, r.in) << r.op->name;
    EXPECT_EQ(d.uses_out, r.out) << r.op->name;
  }
  EXPECT_EQ(pointwise_saves_in(op::mul), 3u);
  EXPECT_EQ(pointwise_saves_in(op::mul, 1), 2u);
  EXPECT_EQ(pointwise_saves_out(op::tanh), 1u);
  EXPECT_EQ(pointwise_saves_in(op::add), 0u);
}

TEST(Derivative, Kinds) {
  EXPECT_EQ(derived_row(op::add, 0).kind, Kind::identity);
  EXPECT_EQ(derived_row(op::add, 1).kind, Kind::identity);
  EXPECT_EQ(derived_row(op::sub, 0).kind, Kind::identity);
  EXPECT_EQ(derived_row(op::cast, 0).kind, Kind::identity);
  EXPECT_EQ(derived_row(op::frac, 0).kind, Kind::identity);
  EXPECT_EQ(derived_row(op::floor, 0).kind, Kind::zero);
  EXPECT_EQ(derived_row(op::sign, 0).kind, Kind::zero);
  EXPECT_EQ(derived_row(op::lt, 0).kind, Kind::zero);
  EXPECT_EQ(derived_row(op::where, 0).kind, Kind::zero);
  const DerivedRow& d = derived_row(op::silu, 0);
  EXPECT_STREQ(d.row->name, "silu_grad0");
  EXPECT_STREQ(d.row->in_names[0], "g");
  EXPECT_STREQ(d.row->in_names[1], "x");
  EXPECT_EQ(&derived_row(op::silu, 0), &d);
}

double gradient_at(const OpDef& op, int i, const std::vector<double>& x) {
  const DerivedRow& d = derived_row(op, i);
  if (d.kind != Kind::row) return d.kind == Kind::identity ? 1 : 0;
  std::vector<double> in{1};
  for (int k = 0; k < op.n_in; ++k)
    if (d.uses_in >> k & 1) in.push_back(x[k]);
  if (d.uses_out) in.push_back(value_of(op, x));
  return value_of(*d.row, in);
}

TEST(Derivative, AtKinksAndTies) {
  EXPECT_EQ(gradient_at(op::relu, 0, {0}), 0);
  EXPECT_EQ(gradient_at(op::abs, 0, {0}), 0);
  EXPECT_EQ(gradient_at(op::maximum, 0, {2, 2}), 0.5);
  EXPECT_EQ(gradient_at(op::maximum, 1, {2, 2}), 0.5);
  EXPECT_EQ(gradient_at(op::minimum, 0, {2, 3}), 1);
  EXPECT_EQ(gradient_at(op::minimum, 1, {2, 3}), 0);
  EXPECT_EQ(gradient_at(op::clamp, 0, {1, -1, 1}), 0);
  EXPECT_EQ(gradient_at(op::clamp, 0, {-1, -1, 1}), 0);
  EXPECT_EQ(gradient_at(op::clamp, 0, {0.5, -1, 1}), 1);
  EXPECT_EQ(gradient_at(op::clamp_tensor, 0, {1, -1, 1}), 0.5);
  EXPECT_EQ(gradient_at(op::clamp_tensor, 2, {1, -1, 1}), 0.5);
  EXPECT_EQ(gradient_at(op::clamp, 2, {1.5, -1, 1}), 1);
  EXPECT_EQ(gradient_at(op::pow, 0, {0, 0}), 0);
  EXPECT_EQ(gradient_at(op::pow, 0, {-2, 0}), 0);
  EXPECT_EQ(gradient_at(op::pow, 1, {0, 2}), 0);
  EXPECT_NEAR(gradient_at(op::xlogy, 0, {0, 0.5}), std::log(0.5), 1e-15);
  EXPECT_EQ(gradient_at(op::xlogy, 0, {0, 0}), 0);
  EXPECT_EQ(gradient_at(op::hypot, 0, {0, 0}), 0);
  EXPECT_EQ(gradient_at(op::sinc, 0, {0}), 0);
}

// The unselected branch may have an infinite derivative.
void safe_sqrt(const E* in, E* out) { out[0] = where(in[0] > 0, sqrt(in[0]), 0) * 3; }
void log_of_chosen(const E* in, E* out) { out[0] = log(where(in[0] > 0, in[0], 1)); }

TEST(Derivative, BranchesStayApart) {
  static const OpDef kSqrt = row_of("test_safe_sqrt", Types::floating, {"x"}, safe_sqrt);
  EXPECT_EQ(gradient_at(kSqrt, 0, {0}), 0);
  EXPECT_EQ(gradient_at(kSqrt, 0, {4}), 0.75);
  static const OpDef kLog = row_of("test_log_chosen", Types::floating, {"x"}, log_of_chosen);
  EXPECT_EQ(gradient_at(kLog, 0, {0}), 0);
  EXPECT_EQ(gradient_at(kLog, 0, {2}), 0.5);
}

}  // namespace
}  // namespace tandem::testing
