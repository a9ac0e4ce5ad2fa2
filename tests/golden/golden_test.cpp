// SPDX-License-Identifier: Apache-2.0
// Every op against PyTorch's and JAX's results: values, shapes, dtypes, gradients, and (JAX)
// forward-mode and second-order derivatives; promotion of all pairs of dtypes.
#include "tests/golden/golden_helper.h"

#include "tandem/base/files/file.h"
#include "tandem/grad/transforms.h"
#include "tandem/init.h"
#include "tandem/ops/ops.h"

namespace tandem::golden {

namespace {

void compare(const Ts& got, const Ts& want, const Case& c, const char* what) {
  ASSERT_GE(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (!want[i].defined()) continue;
    EXPECT_TRUE(matches(got[i], want[i], c.rtol(), c.atol())) << what << " " << i;
  }
}

// Gradients of sum(output * grad_out): by backward() for one output, by grad() for several.
Ts gradients(const Ts& y, const Case& c, const Ts& grad_out) {
  Ts roots, seeds, leaves, got(c.n());
  std::vector<size_t> at;
  for (size_t i = 0; i < grad_out.size(); ++i)
    if (grad_out[i].defined()) roots.push_back(y[i]), seeds.push_back(grad_out[i]);
  for (size_t i = 0; i < c.n(); ++i)
    if (c.t(i).defined() && c.t(i).requires_grad()) leaves.push_back(c.t(i)), at.push_back(i);
  Ts g(leaves.size());
  if (roots.size() == 1) {
    roots[0].backward(seeds[0]);
    for (size_t k = 0; k < leaves.size(); ++k) g[k] = leaves[k].grad();
  } else {
    g = grad(roots, leaves, {.grad_outputs = seeds, .allow_unused = true});
  }
  for (size_t k = 0; k < g.size(); ++k) got[at[k]] = g[k].defined() ? g[k] : zeros_like(leaves[k]);
  return got;
}

// Gradients that are more exact than PyTorch's, and why.
struct Difference {
  const char* name;
  const char* why;
};
constexpr Difference kDifferences[] = {
    {"digamma_f64", "PyTorch's trigamma is right to 3e-10"},
    {"hardsigmoid_f64", "PyTorch multiplies by 1/6 of float32"},
};
const Difference* difference(const std::string& name) {
  for (const Difference& d : kDifferences)
    if (name == d.name) return &d;
  return nullptr;
}

}  // namespace

void check_op_case(Case c) {
  check_op_case(std::move(c), [](const std::string&, const Tensor& want) { return want; });
}

void check_op_case(Case c, const Amend& amend) {
  Fn fn = function_of(c.op);
  ASSERT_TRUE(fn) << c.op << " is not in the table of golden_ops_helper.cpp";
  Ts want_grads = c.list_of("grads"), grad_out = c.list_of("grad_out");
  bool any = false;
  for (size_t i = 0; i < want_grads.size(); ++i)
    if (want_grads[i].defined()) c.set(i, c.t(i).detach().requires_grad_()), any = true;
  Ts y = fn(c);
  ASSERT_GE(y.size(), c.list_of("outputs").size());
  Ts want = c.list_of("outputs");
  for (size_t i = 0; i < want.size(); ++i)
    if (want[i].defined()) want[i] = amend("output " + std::to_string(i), want[i]);
  compare(y, want, c, "output");
  if (!any) return;
  const double rtol = difference(c.name) ? 1e-7 : c.rtol();
  Ts got = gradients(y, c, grad_out);
  for (size_t i = 0; i < want_grads.size(); ++i) {
    if (!want_grads[i].defined()) continue;
    const std::string what = "gradient " + std::to_string(i);
    EXPECT_TRUE(matches(got[i], amend(what, want_grads[i]), rtol, c.atol())) << what;
  }
}

namespace {

class GoldenOp : public ::testing::TestWithParam<Case> {};

TEST_P(GoldenOp, Matches) { check_op_case(GetParam()); }

TEST(GoldenDifferences, AreCases) {
  for (const Difference& d : kDifferences) {
    bool found = false;
    for (const char* family : {"pointwise", "reduce"})
      for (const Case& c : cases_of(family)) found |= c.name == d.name;
    EXPECT_TRUE(found) << d.name;
  }
}

#define FAMILY(id, name) \
  INSTANTIATE_TEST_SUITE_P(id, GoldenOp, ::testing::ValuesIn(cases_of(name)), case_name)
FAMILY(Pointwise, "pointwise");
FAMILY(Contraction, "contraction");
FAMILY(Pool, "pool");
FAMILY(Reduce, "reduce");
FAMILY(ViewIndex, "view_index");
FAMILY(NormLoss, "norm_loss");
FAMILY(Linalg, "linalg");
FAMILY(Search, "search");
FAMILY(Image, "image");
FAMILY(Fft, "fft");
FAMILY(Distributions, "distributions");
FAMILY(Special, "special");
FAMILY(Names, "names");
FAMILY(Jax, "jax");

// ---- JAX's higher derivatives

class GoldenJax : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Jax, GoldenJax, ::testing::ValuesIn(cases_of("jax")), case_name);

TEST_P(GoldenJax, HigherDerivatives) {
  Case c = GetParam();
  Fn fn = function_of(c.op);
  ASSERT_TRUE(fn) << c.op;
  Ts tangents = c.list_of("tangents"), x, v, seed = c.list_of("grad_out");
  std::vector<size_t> at;
  for (size_t i = 0; i < tangents.size(); ++i)
    if (tangents[i].defined()) x.push_back(c.t(i)), v.push_back(tangents[i]), at.push_back(i);
  auto f = [&](const Ts& xs) -> Ts {
    for (size_t k = 0; k < at.size(); ++k) c.set(at[k], xs[k]);
    return {fn(c)[0]};
  };
  auto [y, jv] = jvp(f, x, v);
  compare(y, c.list_of("outputs"), c, "output");
  compare(jv, c.list_of("jvp"), c, "jvp");
  if (!c.has("hvp")) return;
  auto gradient = [&](const Ts& xs) -> Ts {
    Ts out = f(xs);
    return grad(out, xs, {.grad_outputs = {seed[0]}, .create_graph = true, .allow_unused = true});
  };
  auto [g, hv] = jvp(gradient, x, v);
  Ts want;
  Ts stored = c.list_of("hvp");
  for (size_t i : at) want.push_back(stored[i]);
  compare(hv, want, c, "hvp");
}

// ---- promotion

using Binary = Tensor (*)(const Operand&, const Operand&);
Operand again(const Operand& o) {
  return o.is_scalar() ? Operand(o.scalar()) : Operand(o.tensor());
}

const std::map<std::string, Binary>& binaries() {
#define BINARY(name, e)                                      \
  {                                                          \
    name, [](const Operand& x, const Operand& y) -> Tensor { \
      Operand a = again(x), b = again(y);                    \
      return e;                                              \
    }                                                        \
  }
  static const std::map<std::string, Binary> table = {
      BINARY("add", std::move(a) + std::move(b)),
      BINARY("sub", std::move(a) - std::move(b)),
      BINARY("div", std::move(a) / std::move(b)),
      BINARY("floor_divide", floor_divide(std::move(a), std::move(b))),
      BINARY("pow", pow(std::move(a), std::move(b))),
      BINARY("bitwise_and", std::move(a) & std::move(b)),
      BINARY("eq", std::move(a) == std::move(b)),
      BINARY("atan2", atan2(std::move(a), std::move(b))),
      BINARY("maximum", maximum(std::move(a), std::move(b))),
      BINARY("where", where(tensor({true, false}), std::move(a), std::move(b))),
      BINARY("cat", cat({a.tensor(), b.tensor()})),
  };
#undef BINARY
  return table;
}

const std::map<std::string, Tensor (*)(Tensor)>& unaries() {
#define UNARY(name, e)                         \
  {                                            \
    name, [](Tensor x) -> Tensor { return e; } \
  }
  static const std::map<std::string, Tensor (*)(Tensor)> table = {
      UNARY("exp", exp(x)),
      UNARY("neg", -x),
      UNARY("abs", abs(x)),
      UNARY("relu", relu(x)),
      UNARY("floor", floor(x)),
      UNARY("round", round(x)),
      UNARY("sigmoid", sigmoid(x)),
      UNARY("sign", sign(x)),
      UNARY("logical_not", logical_not(x)),
      UNARY("bitwise_not", bitwise_not(x)),
      UNARY("isnan", isnan(x)),
      UNARY("square", square(x)),
      UNARY("reciprocal", reciprocal(x)),
      UNARY("sum", sum(x)),
      UNARY("mean", mean(x)),
      UNARY("prod", prod(x)),
      UNARY("amax", amax(x)),
      UNARY("var", tandem::var(x)),
      UNARY("any", any(x)),
      UNARY("all", all(x)),
      UNARY("argmax", argmax(x)),
      UNARY("logsumexp", logsumexp(x, {0})),
      UNARY("cumsum", cumsum(x, 0)),
      UNARY("cumprod", cumprod(x, 0)),
      UNARY("softmax", softmax(x, 0)),
      UNARY("norm", norm(x)),
      UNARY("clamp_int", clamp(x, 0, 1)),
      UNARY("clamp_float", clamp(x, 0.5, 1.5)),
  };
#undef UNARY
  return table;
}

std::string result_of(const std::function<Tensor()>& f) {
  try {
    return to_string(f().dtype());
  } catch (const Error& e) {
    EXPECT_NE(e.kind(), ErrorKind::Internal) << e.what();
    return "error";
  }
}

class Promotion : public ::testing::Test {
 protected:
  void SetUp() override {
    init();
    text_ = read_file(folder() + "promotion.json");
    json_ = io::parse_json(text_, "promotion.json");
    for (const io::Json& n : *json_.find("dtypes")->as_array()) names_.push_back(*n.as_string());
  }
  Tensor vec(size_t i) const { return ones({2}, dtype_named(names_[i])); }
  Tensor dot(size_t i) const { return ones({}, dtype_named(names_[i])); }
  std::string text_;
  io::Json json_;
  std::vector<std::string> names_;
};

TEST_F(Promotion, AllPairs) {
  int compared = 0;
  for (const auto& [op, kinds] : *json_.find("binary")->as_object()) {
    ASSERT_TRUE(binaries().count(op)) << op;
    Binary f = binaries().at(op);
    for (const auto& [kind, rows] : *kinds.as_object()) {
      const io::Json::Array& table = *rows.as_array();
      for (size_t p = 0; p < table.size(); ++p)
        for (size_t q = 0; q < table[p].as_array()->size(); ++q) {
          auto operand = [&](const std::string& what, size_t tensor_at, size_t scalar_at) {
            if (what == "tensor") return Operand(vec(tensor_at));
            if (what == "zero_dim") return Operand(dot(tensor_at));
            return scalar_at == 0 ? Operand(true) : scalar_at == 1 ? Operand(1) : Operand(1.5);
          };
          // "scalar_tensor" has the tensor's dtype in the row as well.
          size_t cut = kind.rfind('_') -
                       (kind.size() >= 9 && kind.substr(kind.size() - 8) == "zero_dim" ? 5 : 0);
          std::string first = kind.substr(0, cut), second = kind.substr(cut + 1);
          Operand a = operand(first, p, q), b = operand(second, first == "scalar" ? p : q, q);
          EXPECT_EQ(result_of([&] { return f(a, b); }), *(*table[p].as_array())[q].as_string())
              << op << " " << kind << " " << names_[p] << " " << q;
          ++compared;
        }
    }
  }
  EXPECT_GT(compared, 3000);
}

TEST_F(Promotion, Unary) {
  for (const auto& [op, row] : *json_.find("unary")->as_object()) {
    ASSERT_TRUE(unaries().count(op)) << op;
    for (size_t i = 0; i < names_.size(); ++i) {
      std::string want = *(*row.as_array())[i].as_string();
      if (op == "argmax" && names_[i] == "bool") want = "int64";  // PyTorch refuses
      EXPECT_EQ(result_of([&, op = op] { return unaries().at(op)(vec(i)); }), want)
          << op << " of " << names_[i];
    }
  }
}

}  // namespace
}  // namespace tandem::golden
