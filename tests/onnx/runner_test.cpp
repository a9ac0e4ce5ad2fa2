// SPDX-License-Identifier: Apache-2.0
// Models run compiled: which way they go, that every way gives the bits of OnnxModel::run(), and
// what a file's summary says.
#include "tandem/onnx/runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/compile/run/executable.h"
#include "tandem/grad/control_flow.h"
#include "tandem/init.h"
#include "tandem/onnx/export.h"
#include "tandem/onnx/import/operators/small_float_internal.h"
#include "tandem/onnx/summary.h"
#include "tandem/tensor/strided.h"
#include "tests/io/io_helper.h"
#include "tests/onnx/helper.h"
#include "tests/support/errors.h"

namespace tandem::onnx {
namespace {

class Runner : public testing::Test {
 protected:
  void SetUp() override { init(); }
};

// "" where both are tensors of the same type, shape and bytes.
std::string compare_bits(const OnnxValue& got, const OnnxValue& want) {
  if (got.describe() != want.describe()) return got.describe() + ", wanted " + want.describe();
  std::string a(static_cast<size_t>(got.tensor().numel()) * size_of(got.tensor().dtype()), 0),
      b = a;
  tandem::detail::copy_row_major(*got.tensor().impl(), a.data(), got.tensor().dtype());
  tandem::detail::copy_row_major(*want.tensor().impl(), b.data(), want.tensor().dtype());
  return a == b ? "" : "other bits";
}

std::string whole_numbers(const std::string& name, const std::vector<int64_t>& v, bool scalar) {
  const auto n = static_cast<int64_t>(v.size());
  return raw_tensor(name, scalar ? std::vector<int64_t>{} : std::vector<int64_t>{n}, 7,
                    {reinterpret_cast<const char*>(v.data()), v.size() * 8});
}

// y = c ? x + x : -x, where c is `condition`, a value of the graph.
GraphText choice(const std::string& condition) {
  GraphText yes, no, g;
  yes.nodes = {node("Add", {"x", "x"}, {"a"})};
  yes.outputs = {port("a")};
  no.nodes = {node("Neg", {"x"}, {"b"})};
  no.outputs = {port("b")};
  g.nodes = {
      node("If", {condition}, {"y"},
           {graph_attribute("then_branch", yes.str()), graph_attribute("else_branch", no.str())})};
  g.outputs = {port("y")};
  return g;
}
GraphText choice_by_flag() {
  GraphText g = choice("c");
  g.inputs = {port("x"), port("c", 9)};
  return g;
}
GraphText choice_by_value() {
  GraphText g = choice("p");
  g.nodes.insert(g.nodes.begin(), {node("ReduceSum", {"x"}, {"s"}, {int_attribute("keepdims", 0)}),
                                   node("Greater", {"s", "zero"}, {"p"})});
  g.initializers = {floats("zero", {}, {0})};
  g.inputs = {port("x")};
  return g;
}

// v = v * half + step number, `limit` times or while it is below 100; the v of all steps are
// results too if `stacks`.
GraphText loop(const std::string& limit, bool by_value, bool stacks) {
  GraphText body, g;
  body.nodes = {node("Mul", {"v", "half"}, {"m"}),
                node("Cast", {"i"}, {"f"}, {int_attribute("to", 1)}),
                node("Add", {"m", "f"}, {"next"})};
  if (by_value) {
    body.nodes.push_back(node("ReduceMax", {"next"}, {"top"}, {int_attribute("keepdims", 0)}));
    body.nodes.push_back(node("Less", {"top", "hundred"}, {"more"}));
  } else {
    body.nodes.push_back(node("Identity", {"go"}, {"more"}));
  }
  body.inputs = {port("i", 7), port("go", 9), port("v")};
  body.outputs = {port("more", 9), port("next")};
  if (stacks) {
    body.nodes.push_back(node("Identity", {"next"}, {"each"}));
    body.outputs.push_back(port("each"));
  }
  std::vector<std::string> results{"y"};
  if (stacks) results.emplace_back("all");
  g.nodes = {node("Loop", {limit, "", "x"}, results, {graph_attribute("body", body.str())})};
  g.initializers = {floats("half", {}, {0.5F}), floats("hundred", {}, {100}),
                    whole_numbers("3", {3}, true), whole_numbers("2000", {2000}, true)};
  g.inputs = {port("x")};
  if (limit == "n") g.inputs.push_back(port("n", 7));
  for (const std::string& r : results) g.outputs.push_back(port(r));
  return g;
}

// The running sums of rows, from the last row to the first: long enough to become a scan.
GraphText scan() {
  GraphText body, g;
  body.nodes = {node("Add", {"s", "r"}, {"t"}), node("Identity", {"t"}, {"u"})};
  body.inputs = {port("s"), port("r")};
  body.outputs = {port("t"), port("u")};
  ProtoWriter reverse;
  reverse.add_bytes(1, "scan_input_directions");
  reverse.add_packed(8, std::vector<int64_t>{1});
  reverse.add_int(20, 7);
  g.nodes = {node(
      "Scan", {"zero", "x"}, {"last", "sums"},
      {graph_attribute("body", body.str()), int_attribute("num_scan_inputs", 1), reverse.str()})};
  g.initializers = {floats("zero", {2}, {0, 0})};
  g.inputs = {port("x")};
  g.outputs = {port("last"), port("sums")};
  return g;
}

// Where x is positive, and 2 x - 1 at these places.
GraphText found() {
  GraphText g;
  g.nodes = {node("Relu", {"x"}, {"r"}),       node("NonZero", {"r"}, {"at"}),
             node("Transpose", {"at"}, {"t"}), node("Add", {"x", "x"}, {"d"}),
             node("Sub", {"d", "one"}, {"e"}), node("GatherND", {"e", "t"}, {"y"})};
  g.initializers = {floats("one", {}, {1})};
  g.inputs = {port("x")};
  g.outputs = {port("y"), port("at", 7)};
  return g;
}

GraphText reshaped() {
  GraphText g;
  g.nodes = {node("Reshape", {"x", "s"}, {"r"}), node("Exp", {"r"}, {"y"})};
  g.inputs = {port("x"), port("s", 7)};
  g.outputs = {port("y")};
  return g;
}

// The bits of x as int32, and back.
GraphText bits() {
  GraphText g;
  g.nodes = {node("Mul", {"x", "x"}, {"q"}),
             node("BitCast", {"q"}, {"b"}, {int_attribute("to", 6)}),
             node("BitCast", {"b"}, {"y"}, {int_attribute("to", 1)})};
  g.inputs = {port("x")};
  g.outputs = {port("b", 6), port("y")};
  return g;
}

struct Case {
  const char* name;
  GraphText graph;
  std::vector<std::vector<OnnxValue>> calls;
  OnnxWay way;
  const char* reason;  ///< a part of it
};

OnnxValue number(int64_t v) { return OnnxValue(tensor(v)); }

std::vector<Case> cases() {
  const OnnxValue up(tensor({1.5F, 2.0F})), down(tensor({-4.0F, 1.0F})), yes(tensor(true)),
      no(tensor(false));
  const OnnxValue rows(arange(0, 3000, 1, DType::f32).reshape({1500, 2}));
  const auto shape = [](int64_t a, int64_t b) { return OnnxValue(tensor({a, b})); };
  const OnnxValue six(arange(0, 6, 1, DType::f32));
  return {
      {"choice by a flag",
       choice_by_flag(),
       {{up, yes}, {up, no}, {down, yes}},
       OnnxWay::whole,
       ""},
      {"choice by a value", choice_by_value(), {{up}, {down}, {up}}, OnnxWay::whole, ""},
      {"loop of three steps", loop("3", false, true), {{up}, {down}}, OnnxWay::whole, ""},
      {"loop of many steps", loop("2000", false, true), {{up}, {down}}, OnnxWay::whole, ""},
      {"loop by a value", loop("2000", true, false), {{up}, {down}}, OnnxWay::whole, ""},
      {"loop of given steps",
       loop("n", false, true),
       {{up, number(2)}, {up, number(5)}},
       OnnxWay::whole,
       ""},
      {"loop of given steps by a value",
       loop("n", true, false),
       {{up, number(2)}, {up, number(300)}},
       OnnxWay::whole,
       ""},
      {"loop of unknown length",
       loop("2000", true, true),
       {{up}, {down}, {up}},
       OnnxWay::parts,
       "reads a condition"},
      {"scan", scan(), {{rows}, {rows}}, OnnxWay::whole, ""},
      {"found places", found(), {{up}, {down}, {up}}, OnnxWay::parts, "NonZero 'at'"},
      {"given shape",
       reshaped(),
       {{six, shape(2, 3)}, {six, shape(3, 2)}, {six, shape(1, -1)}},
       OnnxWay::whole,
       ""},
      {"bits", bits(), {{up}, {down}}, OnnxWay::whole, ""},
  };
}

TEST_F(Runner, EveryWayGivesTheBitsOfTheModel) {
  const NoGradGuard no_grad;
  for (const Case& c : cases()) {
    const OnnxModel m = OnnxModel::parse(model(c.graph, 26), c.name);
    OnnxRunner runner(m);
    for (const auto& call : c.calls)
      for (int again = 0; again < 2; ++again) {
        const std::vector<OnnxValue> want = m.run(call), got = runner.run(call);
        ASSERT_EQ(got.size(), want.size()) << c.name;
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_EQ(compare_bits(got[i], want[i]), "") << c.name << ", output " << i;
        EXPECT_EQ(runner.way(), c.way) << c.name << ": " << runner.reason();
        EXPECT_NE(runner.reason().find(c.reason), std::string::npos)
            << c.name << ": " << runner.reason();
        EXPECT_EQ(runner.note().empty(), c.way == OnnxWay::whole) << runner.note();
      }
  }
}

TEST_F(Runner, OurOwnBranchesComeBack) {
  const auto f = [](std::span<const Tensor> x) {
    return std::vector<Tensor>{cond(
        x[0].sum() > 0.0, [](const Tensor& v) { return v * 2.0; },
        [](const Tensor& v) { return v.exp(); }, x[0])};
  };
  TempFolder dir;
  const std::vector<Tensor> example{ones({3})};
  export_onnx_function(f, example, dir / "branch.onnx");
  OnnxRunner runner(OnnxModel::load(dir / "branch.onnx"));
  for (const double v : {1.0, -1.0}) {
    const std::vector<Tensor> x{full({3}, v)};
    EXPECT_EQ(runner(x)[0].to_vector<float>(), f(x)[0].to_vector<float>()) << v;
    EXPECT_EQ(runner.way(), OnnxWay::whole) << runner.reason();
  }
}

// With ever new numbers inputs are no longer taken as known: here the size then splits the model.
TEST_F(Runner, ManyKnownValuesEndInParts) {
  const OnnxModel m = OnnxModel::parse(model(reshaped()));
  OnnxRunner runner(m);
  const Tensor x = arange(0, 720, 1, DType::f32);
  int calls = 0;
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 8, 9, 10, 12}) {
    const std::vector<OnnxValue> in{OnnxValue(x), OnnxValue(tensor({n, int64_t{-1}}))};
    EXPECT_EQ(runner.run(in)[0].shape(), (std::vector<int64_t>{n, 720 / n})) << n;
    EXPECT_EQ(runner.way(), ++calls <= 8 ? OnnxWay::whole : OnnxWay::parts) << n;
  }
}

TEST_F(Runner, TextsRunOpByOp) {
  GraphText g;
  g.nodes = {node("StringConcat", {"a", "a"}, {"y"})};
  g.inputs = {port("a", 8)};
  g.outputs = {port("y", 8)};
  OnnxRunner runner(OnnxModel::parse(model(g, 20)));
  const std::vector<OnnxValue> in{OnnxValue(OnnxStrings{{1}, {"ab"}})};
  EXPECT_EQ(runner.run(in)[0].strings().values[0], "abab");
  EXPECT_EQ(runner.way(), OnnxWay::eager);
  EXPECT_NE(runner.note().find("op by op: its inputs hold strings"), std::string::npos)
      << runner.note();
}

TEST_F(Runner, RandomNumbersAreDrawnAtEveryCall) {
  ProtoWriter shape;
  shape.add_bytes(1, "shape");
  shape.add_packed(8, std::vector<int64_t>{4});
  shape.add_int(20, 7);
  GraphText g;
  g.nodes = {node("RandomNormal", {}, {"r"}, {shape.str()}), node("Add", {"x", "r"}, {"y"})};
  g.inputs = {port("x")};
  g.outputs = {port("y")};
  OnnxRunner runner(OnnxModel::parse(model(g)));
  const std::vector<OnnxValue> in{OnnxValue(zeros({4}))};
  const auto draw = [&] { return runner.run(in)[0].tensor().to_vector<float>(); };
  EXPECT_NE(draw(), draw());
  EXPECT_EQ(runner.way(), OnnxWay::whole);
}

TEST_F(Runner, ErrorsOfACallAreThoseOfTheModel) {
  OnnxRunner runner(OnnxModel::parse(model(reshaped())));
  const std::vector<OnnxValue> bad{OnnxValue(ones({6})), OnnxValue(tensor({int64_t{4}}))};
  const std::vector<OnnxValue> good{OnnxValue(ones({6})), OnnxValue(tensor({int64_t{6}}))};
  const std::string said = error_of([&] { runner.run(bad); });
  EXPECT_NE(said.find("Reshape"), std::string::npos) << said;
  EXPECT_EQ(runner.run(good)[0].shape(), std::vector<int64_t>{6});
  EXPECT_EQ(runner.way(), OnnxWay::whole) << runner.reason();
}

TEST_F(Runner, SmallFloatsByOpsAreThoseOfFiles) {
  std::vector<float> v{0.0F,  -0.0F,   INFINITY, -INFINITY, NAN,
                       3e38F, -1e-45F, 1e-45F,   5e-39F,    9e-39F};
  for (int i = 0; i < 4000; ++i)
    v.push_back(std::ldexp(1.0F + static_cast<float>(i % 64) / 64, i / 64 - 40) *
                (i % 2 ? 1.0F : -1.0F));
  for (const OnnxType t : {OnnxType::f8e4m3fn, OnnxType::f8e4m3fnuz, OnnxType::f8e5m2,
                           OnnxType::f8e5m2fnuz, OnnxType::f4e2m1, OnnxType::f8e8m0})
    for (const bool saturate : {true, false}) {
      const auto got = round_to_small_float(tensor(v), t, saturate, "up").to_vector<float>();
      for (size_t i = 0; i < v.size(); ++i) {
        const float want = decode_small_float(t, encode_small_float(t, v[i], saturate));
        EXPECT_TRUE((std::isnan(got[i]) && std::isnan(want)) ||
                    (got[i] == want && std::signbit(got[i]) == std::signbit(want)))
            << to_string(t) << (saturate ? " saturated " : " ") << v[i] << ": " << got[i]
            << ", wanted " << want;
      }
    }
}

TEST_F(Runner, SummariesSayWhatAFileHolds) {
  ProtoWriter value;
  value.add_bytes(1, "value");
  value.add_bytes(5, floats("", {3}, {1, 2, 3}));
  value.add_int(20, 4);
  GraphText g;
  g.nodes = {node("Constant", {}, {"k"}, {value.str()}),
             node("Mul", {"x", "k"}, {"m"}),
             node("Add", {"m", "w"}, {"a"}),
             node("Softmax", {"a"}, {"p"}),
             node("Identity", {"p"}, {"y"}),
             node("Neg", {"m"}, {"idle"})};
  g.initializers = {floats("w", {3}, {0, 0, 1}), floats("spare", {2}, {5, 6})};
  g.inputs = {port("x"), port("z")};
  g.outputs = {port("y"), port("a")};
  const OnnxModel m = OnnxModel::parse(model(g));
  const OnnxSummary s = summarize(m);
  EXPECT_EQ(s.parameters, 8);
  EXPECT_EQ(s.in_constants, 3);
  EXPECT_EQ(s.nodes, 6);
  EXPECT_EQ(s.ops.at("Softmax"), 1);
  EXPECT_EQ(s.unused,
            (std::vector<std::string>{"input 'z'", "initializer 'spare'", "node 'idle' (Neg)"}));
  EXPECT_EQ(scores_of(m, 0), OnnxScores::probabilities);
  EXPECT_EQ(scores_of(m, 1), OnnxScores::unknown);
  const StateDict w = weights_of(m);
  EXPECT_EQ(w.size(), 3U);
  EXPECT_EQ(w.at("k").to_vector<float>(), (std::vector<float>{1, 2, 3}));
}

// The budget of a file holds for what was compiled of it, too.
TEST_F(Runner, LoopsWithoutEndAreStopped) {
  for (const char* limit : {"", "most", "huge"}) {
    GraphText g = loop(limit, false, false);
    g.initializers.push_back(whole_numbers("most", {std::numeric_limits<int64_t>::max()}, true));
    g.initializers.push_back(whole_numbers("huge", {int64_t{1} << 61}, true));
    OnnxRunner runner(OnnxModel::parse(model(g)));
    const std::string said = thrown([&] { runner({ones({2})}); });
    EXPECT_TRUE(has(said, "goes over the limit")) << limit << ": " << said;
  }
}

}  // namespace
}  // namespace tandem::onnx
