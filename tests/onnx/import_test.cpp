// SPDX-License-Identifier: Apache-2.0
// ONNX import of hand-made models: order of nodes, captured values, functions, external data,
// traces, and files with false claims.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <regex>
#include <set>

#include "tandem/base/parallel.h"
#include "tandem/compile/compile.h"
#include "tandem/graph/op_def.h"
#include "tandem/init.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/onnx/suite.h"
#include "tests/io/io_helper.h"
#include "tests/onnx/helper.h"

namespace tandem::onnx {
namespace {

class Onnx : public testing::Test {
 protected:
  void SetUp() override { init(); }
};

std::vector<float> run_floats(const std::string& bytes, const std::vector<Tensor>& in) {
  return OnnxModel::parse(bytes)(in).at(0).to_vector<float>();
}

// y = relu(x w) + b, the nodes in the wrong order.
std::string small_model() {
  GraphText g;
  g.nodes = {node("Add", {"r", "b"}, {"y"}), node("Relu", {"m"}, {"r"}),
             node("MatMul", {"x", "w"}, {"m"})};
  g.initializers = {floats("w", {2, 2}, {1, -1, 1, 1}), floats("b", {2}, {0.5f, 0.25f})};
  g.inputs = {port("x")};
  g.outputs = {port("y")};
  return model(g);
}

TEST_F(Onnx, RunsNodesInOrder) {
  EXPECT_EQ(run_floats(small_model(), {tensor({{1.0f, 2.0f}, {-3.0f, 1.0f}})}),
            (std::vector<float>{3.5f, 1.25f, 0.5f, 4.25f}));
}

TEST_F(Onnx, RunsInsideCompile) {
  const OnnxModel m = OnnxModel::parse(small_model());
  auto f = compile([&](const Tensor& x) { return m({x})[0] * 2.0; });
  const Tensor x = tensor({{1.0f, 2.0f}, {-3.0f, 1.0f}});
  EXPECT_EQ(f(x).to_vector<float>(), (std::vector<float>{7, 2.5f, 1, 8.5f}));
  EXPECT_EQ(f(x + 1.0).to_vector<float>(), (m({x + 1.0})[0] * 2.0).to_vector<float>());
  EXPECT_EQ(f.stats().traces, 1);
}

// Shapes computed from shapes stay known in a trace: y = reshape(x, shape(x)[::-1]).
TEST_F(Onnx, KnowsShapesInTraces) {
  GraphText g;
  const int64_t at[] = {1, 0};
  g.nodes = {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "at"}, {"t"}),
             node("Reshape", {"x", "t"}, {"y"})};
  g.initializers = {raw_tensor("at", {2}, 7, {reinterpret_cast<const char*>(at), 16})};
  g.inputs = {port("x")};
  g.outputs = {port("y")};
  const OnnxModel m = OnnxModel::parse(model(g));
  auto f = compile([&](const Tensor& x) { return m({x})[0]; });
  EXPECT_EQ(f(ones({2, 3})).shape(), Shape(3, 2));
  EXPECT_EQ(f(ones({4, 5})).shape(), Shape(5, 4));
}

TEST_F(Onnx, BranchesReadValuesAround) {
  GraphText yes, no, g;
  yes.nodes = {node("Add", {"x", "x"}, {"a"})};
  yes.outputs = {port("a")};
  no.nodes = {node("Neg", {"x"}, {"b"})};
  no.outputs = {port("b")};
  g.nodes = {
      node("If", {"c"}, {"y"},
           {graph_attribute("then_branch", yes.str()), graph_attribute("else_branch", no.str())})};
  g.inputs = {port("x"), port("c", 9)};
  g.outputs = {port("y")};
  EXPECT_EQ(run_floats(model(g), {tensor({3.0f}), tensor(true)}), std::vector<float>{6});
  EXPECT_EQ(run_floats(model(g), {tensor({3.0f}), tensor(false)}), std::vector<float>{-3});
}

std::string leaky_function(const std::string& name, const std::string& calls) {
  ProtoWriter f;
  f.add_bytes(1, name);
  f.add_bytes(4, "x");
  f.add_bytes(5, "y");
  f.add_bytes(6, "slope");
  f.add_bytes(7, node(calls, {"x"}, {"y"},
                      {ref_attribute(calls == "LeakyRelu" ? "alpha" : "slope", "slope", 1)},
                      calls == "LeakyRelu" ? "" : "own"));
  f.add_bytes(9, opset("", 18));
  f.add_bytes(9, opset("own", 1));
  f.add_bytes(10, "own");
  return f.str();
}

TEST_F(Onnx, CallsFunctionsOfTheModel) {
  ProtoWriter slope;
  slope.add_bytes(1, "slope");
  slope.add_float(2, 0.5f);
  slope.add_int(20, 1);
  GraphText g;
  g.nodes = {node("Outer", {"x"}, {"y"}, {slope.str()}, "own")};
  g.inputs = {port("x")};
  g.outputs = {port("y")};
  const std::string inner = leaky_function("Inner", "LeakyRelu");
  EXPECT_EQ(
      run_floats(model(g, 18, {leaky_function("Outer", "Inner"), inner}), {tensor({-4.0f, 2.0f})}),
      (std::vector<float>{-2, 2}));
  // A function that calls itself is rejected, not run.
  const std::string got = error_of(
      [&] { run_floats(model(g, 18, {leaky_function("Outer", "Outer")}), {tensor({1.0f})}); });
  EXPECT_NE(got.find("Format: "), std::string::npos) << got;
  EXPECT_NE(got.find("more than 64 deep"), std::string::npos) << got;
}

TEST_F(Onnx, NamesWhatIsWrong) {
  auto with = [](std::vector<std::string> nodes) {
    GraphText g;
    g.nodes = std::move(nodes);
    g.inputs = {port("x")};
    g.outputs = {port("y")};
    return model(g);
  };
  struct Case {
    std::string bytes, says;
  };
  const Case cases[] = {
      {with({node("Relu", {"z"}, {"y"})}), "Format: .*reads 'z', which is never defined"},
      {with({}), "Format: .*output 'y' .*never defined"},
      {with({node("Relu", {"x"}, {"y"}), node("Abs", {"x"}, {"y"})}),
       "Format: .*'y' is defined twice"},
      {with({node("Relu", {"y"}, {"a"}), node("Abs", {"a"}, {"y"})}), "Format: .*cycle"},
      {with({node("Frobnicate", {"x"}, {"a"}), node("Own", {"a"}, {"b"}, {}, "org"),
             node("Frobnicate", {"b"}, {"y"})}),
       "Unsupported: .*2 of its ops are not supported: 2 Frobnicate, 1 org.Own"},
      {with({node("Gemm", {"x", "x"}, {"y"}, {int_attribute("broadcast", 1)})}),
       "'broadcast' is unknown; known in opset 18: alpha, beta, transA, transB"},
      {with({node("Add", {"x"}, {"y"})}), "Add"},
      {with({node("Flatten", {"x"}, {"y"}, {int_attribute("axis", 9)})}), "Index: .*axis"},
      // What nothing reads is named: attributes, inputs, outputs, texts.
      {with({node("Relu", {"x"}, {"y"}, {int_attribute("foo", 3)})}),
       "Unsupported: its attribute 'foo' is unknown; known in opset 18: none. In layer Relu 'y'"},
      {with({node("Flatten", {"x"}, {"y"}, {int_attribute("foo", 3)})}),
       "'foo' is unknown; known in opset 18: axis"},
      {with({node("Dropout", {"x"}, {"y"}, {int_attribute("is_test", 1)})}), "no error"},
      {with({node("Dropout", {"x"}, {"y"}, {int_attribute("consumed_inputs", 1)})}), "'consumed"},
      {with({node("Elu", {"x", "x"}, {"y"})}), "takes 1 inputs, got 2"},
      {with({node("Elu", {"x", ""}, {"y"})}), "no error"},
      {with({node("Elu", {"x"}, {"y", "z"})}), "has 1 outputs, 2 are named"},
      {with({node("Squeeze", {"x", "x"}, {"y"}, {ints_attribute("axes", {0})})}),
       "Format: gives 'axes' twice"},
      {with({node("relu", {"x"}, {"y"}, {int_attribute("foo", 3)}, "tandem")}), "'foo' is unknown"},
      {with({node("Pad", {"x"}, {"y"},
                  {ints_attribute("pads", {0, 0}), text_attribute("mode", "SOME")})}),
       "Unsupported: its attribute 'mode' is 'SOME', known are 'constant'"},
      {"", "Format: .*no graph"},
      {"hello", "Format: "},
  };
  for (const Case& c : cases) {
    const std::string got = error_of([&] { run_floats(c.bytes, {tensor({1.0f})}); });
    EXPECT_TRUE(std::regex_search(got, std::regex(c.says))) << got << "\nwanted: " << c.says;
  }
}

TEST_F(Onnx, WarnsOfUnknownOpsets) {
  GraphText g;
  g.nodes = {node("Relu", {"x"}, {"y"})};
  g.inputs = {port("x")};
  g.outputs = {port("y")};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_floats(model(g, 99), {tensor({-1.0f, 2.0f})}), (std::vector<float>{0, 2}));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("ONNX model asks for opset 99 of ai.onnx; ops are known up to opset"),
            std::string::npos)
      << said;
}

TEST_F(Onnx, WarnsOfOutputsOfAnotherType) {
  GraphText g;
  g.nodes = {node("Cast", {"x"}, {"y"}, {int_attribute("to", 7)})};
  g.inputs = {port("x")};
  g.outputs = {port("y")};
  const OnnxModel m = OnnxModel::parse(model(g));
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(m({tensor({1.5f})})[0].dtype(), DType::i64);
  const std::string said = testing::internal::GetCapturedStderr();
  const size_t at = said.find("declares its output 'y' as float, and it is int64");
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find("declares its output", at + 1), std::string::npos) << said;  // once
}

std::string external_model(const std::string& location, const std::string& offset,
                           const std::string& length) {
  ProtoWriter t;
  t.add_packed(1, std::vector<int64_t>{2});
  t.add_int(2, 1);
  t.add_bytes(8, "w");
  auto entry = [&](const std::string& key, const std::string& value) {
    ProtoWriter e;
    e.add_bytes(1, key);
    e.add_bytes(2, value);
    if (!value.empty()) t.add_message(13, e);
  };
  entry("location", location);
  entry("offset", offset);
  entry("length", length);
  t.add_int(14, 1);
  GraphText g;
  g.nodes = {node("Add", {"x", "w"}, {"y"})};
  g.initializers = {t.str()};
  g.inputs = {port("x")};
  g.outputs = {port("y")};
  return model(g);
}

TEST_F(Onnx, ReadsExternalDataBeneathTheFolderOnly) {
  namespace fs = std::filesystem;
  TempFolder dir;
  const float w[] = {9, 10, 20};
  fs::create_directory(dir / "m");
  fs::create_directory(dir / "m/sub");
  const std::string bytes(reinterpret_cast<const char*>(w), sizeof w);
  write_file(dir / "m/sub/w.bin", bytes);
  write_file(dir / "secret.bin", bytes);
  write_file(dir / "m/other.bin", bytes);
  fs::create_symlink(dir / "secret.bin", dir / "m/link.bin");
  fs::create_directory_symlink(dir.path(), dir / "m/up");
  fs::create_hard_link(dir / "m/other.bin", dir / "m/second.bin");
  auto load = [&](const std::string& content) {
    write_file(dir / "m/model.onnx", content);
    return OnnxModel::load(dir / "m/model.onnx")({tensor({1.0f, 1.0f})})[0].to_vector<float>();
  };
  EXPECT_EQ(load(external_model("sub/w.bin", "4", "8")), (std::vector<float>{11, 21}));
  EXPECT_EQ(load(external_model("./sub/w.bin", "", "8")), (std::vector<float>{10, 11}));
  const std::string places[] = {"../secret.bin",
                                "sub/../../secret.bin",
                                "link.bin",
                                "up/secret.bin",
                                (dir / "secret.bin"),
                                "second.bin",
                                "sub",
                                "none.bin",
                                std::string("sub/w.bin\0x", 11),
                                "",
                                "/dev/zero"};
  for (const std::string& p : places) {
    const std::string got = error_of([&] { load(external_model(p, "0", "8")); });
    EXPECT_EQ(got.rfind("Format: ", 0), 0u) << p << ": " << got;
  }
  const std::pair<std::string, std::string> ranges[] = {{"8", "8"},  {"0", "4"},
                                                        {"-1", "8"}, {"9999999999999999999", "8"},
                                                        {"x", "8"},  {"0", "18446744073709551615"}};
  for (const auto& range : ranges) {
    const auto &offset = range.first, &length = range.second;
    const std::string got = error_of([&] { load(external_model("sub/w.bin", offset, length)); });
    EXPECT_EQ(got.rfind("Format: ", 0), 0u) << offset << ", " << length << ": " << got;
  }
}

TEST_F(Onnx, LyingTensorsAreRefused) {
  auto with = [](const std::string& t) {
    GraphText g;
    g.nodes = {node("Identity", {"w"}, {"y"})};
    g.initializers = {t};
    g.outputs = {port("y")};
    return model(g);
  };
  const int64_t big = int64_t{1} << 40;
  const std::string cases[] = {
      raw_tensor("w", {big}, 1, "1234"),
      raw_tensor("w", {big, big, big}, 1, "1234"),
      raw_tensor("w", {-1}, 1, "1234"),
      raw_tensor("w", {std::numeric_limits<int64_t>::min()}, 1, "1234"),
      raw_tensor("w", {1, 1, 1, 1, 1, 1, 1, 1, 1}, 1, "1234"),
      raw_tensor("w", {2}, 1, "1234"),
      raw_tensor("w", {1}, 99, "1234"),
      raw_tensor("w", {1}, 0, "1234"),
      raw_tensor("w", {3}, 22, "1"),
  };
  for (const std::string& t : cases) {
    const std::string got = error_of([&] { OnnxModel::parse(with(t)); });
    EXPECT_EQ(got.rfind("Format: ", 0), 0u) << got;
  }
}

TEST_F(Onnx, DamagedFilesNeverCrash) {
  TempFolder dir;
  // Whatever a change does to the model, it is read or rejected as Format or Unsupported.
  const std::string good = small_model();
  std::mt19937 random(7);
  testing::internal::CaptureStderr();  // unknown opsets are warned of
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = good;
    for (unsigned k = 0; k <= random() % 3; ++k) {
      const size_t at = random() % bytes.size();
      if (random() % 4 == 0)
        bytes.resize(at + 1);
      else
        bytes[at] = static_cast<char>(random());
    }
    const std::string got = error_of([&] { OnnxModel::parse(bytes); });
    EXPECT_TRUE(got == "no error" || got.rfind("Format: ", 0) == 0 ||
                got.rfind("Unsupported: ", 0) == 0)
        << got;
  }
  testing::internal::GetCapturedStderr();
}

TEST_F(Onnx, HugeResultsAreRefused) {
  GraphText g;
  g.nodes = {node("ConstantOfShape", {"s"}, {"y"})};
  const int64_t s[] = {int64_t{1} << 30, int64_t{1} << 30};
  g.initializers = {raw_tensor("s", {2}, 7, {reinterpret_cast<const char*>(s), 16})};
  g.outputs = {port("y")};
  EXPECT_EQ(error_of([&] { run_floats(model(g), {}); }).rfind("Memory: ", 0), 0u);
}

// Sizes and positions from a file may be any 64 bits.
TEST_F(Onnx, HostileNumbersAreRefused) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const char* ops[] = {"Expand",   "Reshape",       "Tile",      "ConstantOfShape",
                       "Pad",      "CenterCropPad", "Unsqueeze", "Gather",
                       "GatherND", "OneHot",        "TopK",      "Squeeze"};
  for (const char* op : ops)
    for (const int64_t n : {kLeast, kLeast + 1, -(int64_t{1} << 62), -kMost / 3, int64_t{-9},
                            int64_t{1} << 62, kMost / 3, kMost}) {
      GraphText g;
      const bool one = std::string(op) == "ConstantOfShape", hot = std::string(op) == "OneHot";
      const int64_t v[] = {n, n};
      const bool twice = std::string(op) == "Pad";
      std::vector<std::string> in =
          one ? std::vector<std::string>{"n"} : std::vector<std::string>{"x", "n"};
      if (hot) in = {"n", "n", "v"};
      g.nodes = {node(op, in, {"y"})};
      g.initializers = {
          raw_tensor("n", {twice ? 2 : 1}, 7, {reinterpret_cast<const char*>(v), twice ? 16U : 8U}),
          floats("v", {2}, {0, 1}), floats("x", {3}, {1, 2, 3})};
      g.outputs = {port("y")};
      const std::string got = error_of([&] { run_floats(model(g), {}); });
      EXPECT_NE(got, "no error") << op << " " << n;
      EXPECT_EQ(got.find("other exception"), std::string::npos) << op << " " << n << ": " << got;
      EXPECT_EQ(got.find("Internal"), std::string::npos) << op << " " << n << ": " << got;
    }
}

// Every (domain, op, opset) has at most one row, and rows are in order.
TEST_F(Onnx, EachOpIsServedOnce) {
  std::map<std::pair<std::string, std::string>, std::vector<const OnnxRow*>> rows;
  for (const auto& family : onnx_rows())
    for (const OnnxRow& r : family)
      if (r.import) rows[{r.domain, r.name}].push_back(&r);
  for (const auto& [name, list] : rows)
    for (const OnnxRow* a : list) {
      EXPECT_TRUE(a->import && a->since > 0 && (a->last == 0 || a->last >= a->since))
          << name.second;
      EXPECT_NE(a->signature.attributes, nullptr) << name.second << " does not say what it reads";
      for (const OnnxRow* b : list)
        if (a != b) {
          EXPECT_TRUE((a->last && a->last < b->since) || (b->last && b->last < a->since))
              << name.second << " is served twice";
        }
    }
  std::set<std::string> columns;
  for (const OpDef* op : all_ops())
    if (op->onnx_name && find_onnx_op(op->onnx_name) == op) {
      EXPECT_TRUE(columns.insert(op->onnx_name).second) << op->onnx_name;
    }
  EXPECT_GT(columns.size() + rows.size(), 190u);
}

// Sums up to 2^24 fit f32; those above are odd, so that f32 does not hold them.
TEST_F(Onnx, ProductsOfIntegersAreExact) {
  for (const int64_t k : {258, 259, 4001}) {
    const std::string bytes(static_cast<size_t>(3 * k), '\xff');
    GraphText g;
    g.nodes = {node("MatMulInteger", {"x", "w"}, {"y"}), node("ConvInteger", {"i", "v"}, {"u"})};
    g.initializers = {raw_tensor("w", {k, 3}, 2, bytes), raw_tensor("v", {3, k, 1, 1}, 2, bytes)};
    g.inputs = {port("x"), port("i")};
    g.outputs = {port("y"), port("u")};
    const OnnxModel m = OnnxModel::parse(model(g, 17));
    const std::vector<Tensor> in{full({2, k}, 255, DType::u8), full({1, k, 1, 2}, 255, DType::u8)};
    auto f = compile([&](const std::vector<Tensor>& x) { return m(x); });
    for (const auto& out : {m(in), f(in)})
      for (const Tensor& y : out)
        EXPECT_EQ(y.to_vector<int64_t>(), std::vector<int64_t>(6, 255 * 255 * k)) << k;
  }
}

// The standard's graphs of Softmax and LogSoftmax since opset 13 round to x's type at every op.
TEST_F(Onnx, SoftmaxOfSixteenBitsRoundsAtEveryOp) {
  manual_seed(1);
  for (const auto& [type, dtype] : {std::pair(10, DType::f16), std::pair(16, DType::bf16)}) {
    GraphText g;
    g.nodes = {node("Softmax", {"x"}, {"y"}), node("LogSoftmax", {"x"}, {"z"})};
    g.inputs = {port("x", type)};
    g.outputs = {port("y", type), port("z", type)};
    const Tensor x = (randn({8, 33}) * 4).to(dtype);
    const Tensor shifted = x - amax(x, {1}, true), e = exp(shifted);
    const std::vector<Tensor> once{softmax(x, 1), log_softmax(x, 1)};
    const std::vector<Tensor> each{e / sum(e, {1}, true), shifted - log(sum(e, {1}, true))};
    for (const int version : {11, 13}) {
      const std::vector<Tensor> got = OnnxModel::parse(model(g, version))({x});
      for (size_t k = 0; k < got.size(); ++k) {
        EXPECT_TRUE(equal(got[k], version < 13 ? once[k] : each[k])) << version << " " << k;
        EXPECT_FALSE(equal(once[k], each[k])) << k;
      }
    }
  }
}

TEST_F(Onnx, SmallFloatsKeepTheirBits) {
  for (const OnnxType t : {OnnxType::f8e4m3fn, OnnxType::f8e4m3fnuz, OnnxType::f8e5m2,
                           OnnxType::f8e5m2fnuz, OnnxType::f4e2m1, OnnxType::f8e8m0})
    for (int b = 0; b < (t == OnnxType::f4e2m1 ? 16 : 256); ++b) {
      const float v = decode_small_float(t, static_cast<uint8_t>(b));
      if (std::isnan(v) || std::isinf(v)) continue;
      EXPECT_EQ(encode_small_float(t, v), b) << to_string(t) << " " << v;
    }
  EXPECT_EQ(decode_small_float(OnnxType::f8e4m3fn, encode_small_float(OnnxType::f8e4m3fn, 1e6f)),
            448);
  EXPECT_TRUE(std::isnan(decode_small_float(
      OnnxType::f8e4m3fn, encode_small_float(OnnxType::f8e4m3fn, 1e6f, /*saturate=*/false))));
  EXPECT_EQ(decode_small_float(OnnxType::f8e5m2, encode_small_float(OnnxType::f8e5m2, 1.125f)),
            1.0f)
      << "ties go to even";
}

}  // namespace
}  // namespace tandem::onnx
