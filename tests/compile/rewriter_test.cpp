// SPDX-License-Identifier: Apache-2.0
// UseDef and the pattern rewriter on small programs.
#include <gtest/gtest.h>

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/compile/program/use_def.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tests/compile/helpers.h"

namespace tandem {
namespace {

using namespace compiler;
using test::In;
using test::Out;

template <class F>
Program program_of(F f, int n_in) {
  const std::vector<Spec> specs(static_cast<size_t>(n_in), Spec(DType::f32, Shape(2)));
  Ref<Graph> g = trace([&](std::span<const Tensor> x) -> std::vector<Tensor> { return f(x); },
                       specs, Captures::refuse);
  return make_program(*g, {}, false);
}

std::string ops(const Program& p) {
  std::string s;
  for (const Instr& i : p.instrs) s += std::string(s.empty() ? "" : " ") + i.name();
  return s;
}

TEST(UseDef, MakersReadersAndResults) {
  const Program p = program_of(
      [](In x) -> Out {
        Tensor e = exp(x[0]);
        return {e * e, e};
      },
      2);
  const UseDef uses(p);
  const ValueId e = p.outputs[1], product = p.outputs[0], x = p.inputs[0];
  EXPECT_EQ(uses.maker(e), InstrId(0));
  EXPECT_EQ(uses.maker(product), InstrId(1));
  EXPECT_EQ(uses.maker(x), kNone);
  EXPECT_EQ(uses.maker(kNone), kNone);
  ASSERT_EQ(uses.readers(e).size(), 2u);  // one entry per operand
  EXPECT_EQ(uses.readers(e)[0], InstrId(1));
  EXPECT_EQ(uses.readers(e)[1], InstrId(1));
  EXPECT_TRUE(uses.leaves(e));
  EXPECT_EQ(uses.uses(e), 3);
  EXPECT_FALSE(uses.read_once(e));
  EXPECT_TRUE(uses.read_once(x));
  EXPECT_EQ(uses.uses(p.inputs[1]), 0);
  EXPECT_TRUE(uses.readers(p.inputs[1]).empty());
}

TEST(Rewriter, ReplacesAndEliminatesWhatIsNotRead) {
  Program p = program_of([](In x) -> Out { return {exp(-(-x[0])), -x[1]}; }, 2);
  const std::vector<Rule> rules = {
      {row(op::neg, {row(op::neg, {any("x")})}), [](Rewrite& r) { r.replace(r.value("x")); }}};
  EXPECT_TRUE(Rewriter(p).run(rules));
  EXPECT_EQ(ops(p), "exp neg");
  verify(p, "double negation");
  EXPECT_EQ(p.instrs[InstrId(0)].in[0].value, p.inputs[0]);
  EXPECT_FALSE(Rewriter(p).run(rules));
}

TEST(Rewriter, ResultsOfTheProgramAreReplacedAndKept) {
  // The inner negation leaves the program too: it stays.
  Program p = program_of(
      [](In x) -> Out {
        Tensor y = -x[0];
        return {-y, y};
      },
      1);
  const Rule once{row(op::neg, {row(op::neg, {any("x")}).once()}),
                  [](Rewrite& r) { r.replace(r.value("x")); }};
  EXPECT_FALSE(Rewriter(p).run({once}));  // y is read twice
  const Rule any_reader{row(op::neg, {row(op::neg, {any("x")})}),
                        [](Rewrite& r) { r.replace(r.value("x")); }};
  EXPECT_TRUE(Rewriter(p).run({any_reader}));
  EXPECT_EQ(ops(p), "neg");
  EXPECT_EQ(p.outputs[0], p.inputs[0]);
  verify(p, "double negation");
}

TEST(Rewriter, OrderOfOperandsAndNamesThatStandTwice) {
  const auto squares = [](Program& p, bool any_order) {
    int n = 0;
    Pattern product = row(op::mul, {any("x"), row(op::exp, {any("x")})});
    if (any_order) product = std::move(product).any_order();
    Rewriter(p).run({{std::move(product), [&](Rewrite&) { ++n; }}});
    return n;
  };
  const auto make = [] {
    return program_of(
        [](In x) -> Out {
          return {x[0] * exp(x[0]), exp(x[0]) * x[0], x[1] * exp(x[0]), x[0] * x[0]};
        },
        2);
  };
  Program p = make();
  EXPECT_EQ(squares(p, false), 1);
  EXPECT_EQ(squares(p, true), 2);
  EXPECT_EQ(p.to_string(), make().to_string());  // a rule that does nothing changes nothing
}

TEST(Rewriter, ChainsMeetWhatWasPutThere) {
  // Each step sees its operand as the step before left it: four pairs of negations go in one walk.
  Program p = program_of(
      [](In x) -> Out {
        Tensor y = x[0];
        for (int k = 0; k < 8; ++k) y = -y;
        return {y + 1};
      },
      1);
  EXPECT_TRUE(Rewriter(p).run(
      {{row(op::neg, {row(op::neg, {any("x")})}), [](Rewrite& r) { r.replace(r.value("x")); }}}));
  EXPECT_EQ(ops(p), "add");
}

TEST(Rewriter, BecomeMakesWhatTheRootMade) {
  Program p = program_of([](In x) -> Out { return {exp(x[0]) * 2.0}; }, 1);
  const ValueId y = p.outputs[0];
  EXPECT_TRUE(Rewriter(p).run(
      {{row(op::mul, {row(op::exp, {any("x")}).as("e"), number("n")}), [](Rewrite& r) {
          EXPECT_EQ(r.number("n"), 2.0);
          EXPECT_EQ(r.instr("e").op, &op::exp);
          const ValueId in[] = {r.value("x")};
          r.become(op::neg, nullptr, in);
        }}}));
  EXPECT_EQ(ops(p), "neg");
  EXPECT_EQ(p.outputs[0], y);
  verify(p, "become");
}

TEST(Rewriter, UnknownNamesAreReported) {
  Program p = program_of([](In x) -> Out { return {exp(x[0])}; }, 1);
  EXPECT_THROW(Rewriter(p).run({{row(op::exp), [](Rewrite& r) { r.value("nothing"); }}}), Error);
}

TEST(Stages, RunInPartsTheyGiveTheSameProgram) {
  const auto f = [](In x) -> Out { return {exp(x[0] * 2.0) + x[1], sum(x[0])}; };
  Program whole = program_of(f, 2), parts = program_of(f, 2);
  run_passes(whole);
  run_passes(parts, {.last = Stage::weights});
  for (const Instr& i : parts.instrs) EXPECT_NE(i.op, nullptr) << "fused before Stage::fuse";
  run_passes(parts, {.first = Stage::fuse});
  EXPECT_EQ(whole.to_string(), parts.to_string());
  Stage last = Stage::expand;
  for (const PassInfo& pass : all_passes()) {
    EXPECT_GE(pass.stage, last) << pass.name;
    last = pass.stage;
  }
}

}  // namespace
}  // namespace tandem
