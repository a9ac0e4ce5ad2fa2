// SPDX-License-Identifier: Apache-2.0
// Building expressions: sharing, folding of numbers, the identities that are and are not applied.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/ops/pointwise/pointwise.h"
#include "tests/graph/scalar_helper.h"

namespace tandem::testing {
namespace {

TEST(ScalarExpr, SharesEqualNodes) {
  ScalarGraph g(2);
  const E x = g.input(0), y = g.input(1);
  EXPECT_EQ((x * y).id(), (y * x).id());
  EXPECT_EQ((x + y).id(), (y + x).id());
  EXPECT_NE((x - y).id(), (y - x).id());
  EXPECT_NE(maximum(x, y).id(), maximum(y, x).id());  // the zeros of different sign differ
  EXPECT_EQ(exp(x * y).id(), exp(y * x).id());
  EXPECT_EQ(g.nodes.size(), 9u);
}

TEST(ScalarExpr, FoldsNumbers) {
  ScalarGraph g(1);
  const E x = g.input(0);
  const E e = x * (E(2) * 3.5 + sqrt(E(4.0)));
  const ScalarNode& n = g.nodes[e.id()];
  EXPECT_EQ(n.op, ScalarOp::mul);
  EXPECT_EQ(g.at(n.b).number().to_double(), 9.0);
  EXPECT_EQ((E(7) + 1).number().kind, 1);  // integers stay integers
  EXPECT_EQ((E(7) / 2).number().to_double(), 3.5);
  EXPECT_EQ((E(7) < 8).number().kind, 0);
  EXPECT_EQ(where(E(true), 1, 2).number().i, 1);
  EXPECT_EQ(pow(E(10.0), E(-2)).number().to_double(), 0.01);
}

TEST(ScalarExpr, Identities) {
  ScalarGraph g(2);
  const E x = g.input(0), y = g.input(1);
  EXPECT_EQ((x * 1).id(), x.id());
  EXPECT_EQ((1.0 * x).id(), x.id());
  EXPECT_EQ((x + 0).id(), x.id());
  EXPECT_EQ((x - 0).id(), x.id());
  EXPECT_EQ((x / 1).id(), x.id());
  EXPECT_EQ((-(-x)).id(), x.id());
  EXPECT_EQ((x - -y).id(), (x + y).id());
  EXPECT_EQ((x * -1).id(), (-x).id());
  EXPECT_EQ(((-x) * y).id(), (-(x * y)).id());
  EXPECT_EQ(where(x > 0, y, y).id(), y.id());
  EXPECT_EQ(where(!(x > 0), x, y).id(), where(x > 0, y, x).id());
  EXPECT_EQ(g.nodes[(x * 0).id()].op, ScalarOp::mul);  // NaN * 0 is NaN
  EXPECT_EQ(g.nodes[(x - x).id()].op, ScalarOp::sub);  // inf - inf is NaN
}

TEST(ScalarExpr, Prints) {
  ScalarGraph g(1);
  const E x = g.input(0);
  g.add_output(where(x < 0, 0.5, x));
  EXPECT_EQ(to_string(g),
            "%0 = input 0\n%1 = 0\n%2 = lt(%0, %1)\n%3 = 0.5\n%4 = select(%2, %3, %0)\nreturn %4");
}

TEST(ScalarExpr, ImportReplacesNodes) {
  ScalarGraph g(2), h(1);
  const E e = exp(g.input(0)) * g.input(1);
  std::vector<E> by(g.nodes.size());
  by[0] = h.input(0);
  by[1] = h.constant(3);
  EXPECT_EQ(h.import(g, e.id(), by).id(), (exp(h.input(0)) * 3).id());
}

TEST(ScalarExpr, RowsAreBuiltOnce) {
  const ScalarGraph& g = expr_of(op::silu);
  EXPECT_EQ(&expr_of(op::silu), &g);
  EXPECT_EQ(g.n_in, 1);
  EXPECT_EQ(to_string(g), "%0 = input 0\n%1 = sigmoid(%0)\n%2 = mul(%0, %1)\nreturn %2");
}

TEST(ScalarExpr, EveryRowHasTextsAndAnExpression) {
  for (const OpDef* op : pointwise_rows()) {
    EXPECT_GT(std::string(op->doc_text).size(), 3u) << op->name;
    EXPECT_EQ(expr_of(*op).outputs.size(), op->n_out) << op->name;
    EXPECT_EQ(op->family, Family::pointwise);
    EXPECT_TRUE(op->infer_fn && op->reference_fn) << op->name;
  }
}

}  // namespace
}  // namespace tandem::testing
