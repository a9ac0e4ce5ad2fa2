// SPDX-License-Identifier: Apache-2.0
// Ops of domain com.microsoft, where tests/peers/onnx_microsoft has no peer (onnxruntime runs them
// on GPUs only) or the case is small: against plain ops, inside compile(), and with sizes from
// hostile files.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tandem/compile/compile.h"
#include "tandem/init.h"
#include "tandem/onnx/export.h"
#include "tandem/ops/matmul/nbits.h"
#include "tests/io/io_helper.h"
#include "tests/onnx/helper.h"

namespace tandem::onnx {
namespace {

class Microsoft : public testing::Test {
 protected:
  void SetUp() override { init(); }
};

/// A model of one node whose inputs are x0, x1 ... ("": absent) with the results y0 ...
OnnxModel one_node(const std::string& op, const std::vector<bool>& given, size_t outputs,
                   const std::vector<std::string>& attributes) {
  GraphText g;
  std::vector<std::string> in, out;
  for (size_t i = 0; i < given.size(); ++i) {
    in.push_back(given[i] ? fmt::format("x{}", i) : "");
    if (given[i]) g.inputs.push_back(port(in.back()));
  }
  for (size_t i = 0; i < outputs; ++i) {
    out.push_back(fmt::format("y{}", i));
    g.outputs.push_back(port(out.back()));
  }
  g.nodes = {node(op, in, out, attributes, "com.microsoft")};
  return OnnxModel::parse(model(g, 17));
}
std::vector<Tensor> run_one(const std::string& op, const std::vector<Tensor>& in, size_t outputs,
                            const std::vector<std::string>& attributes) {
  std::vector<bool> given;
  std::vector<Tensor> x;
  for (const Tensor& t : in) {
    given.push_back(t.defined());
    if (t.defined()) x.push_back(t);
  }
  return one_node(op, given, outputs, attributes)(x);
}

void expect_close(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-5) << i;
}

TEST_F(Microsoft, ChannelsLastConvolutions) {
  const Tensor x = randn({2, 4, 7, 6}), w = randn({6, 2, 3, 3}), b = randn({6});
  const auto last = [](const Tensor& t) { return t.permute({0, 2, 3, 1}).contiguous(); };
  const std::vector<std::string> window{int_attribute("group", 2),
                                        ints_attribute("pads", {1, 0, 1, 2}),
                                        ints_attribute("strides", {2, 1})};
  const ConvAttrs a{{2, 1}, {1, 0}, {1, 1}, 2, {1, 2}, {}};
  const Tensor y = last(conv(x, w, b, a));
  expect_close(run_one("NhwcConv", {last(x), w, b}, 1, window)[0], y);
  std::vector<std::string> fused = window;
  fused.push_back(text_attribute("activation", "Relu"));
  const Tensor z = randn(y.shape());
  expect_close(run_one("NhwcFusedConv", {last(x), w, b, z}, 1, fused)[0], relu(y + z));
}

TEST_F(Microsoft, RealTransforms) {
  const Tensor x = randn({3, 4, 6});
  for (const int64_t n : {1, 2}) {
    const std::vector<std::string> dims{int_attribute("signal_ndim", n),
                                        int_attribute("onesided", 1)};
    const Tensor y = run_one("Rfft", {x}, 1, dims)[0];
    // The sum over each signal is its frequency 0.
    const Tensor zero = n == 1 ? sum(x, {2}) : sum(x, {1, 2});
    const Tensor first = y.select(2, 0).select(-1, 0);
    expect_close(n == 1 ? first : first.select(1, 0), zero);
    expect_close(run_one("Irfft", {y}, 1, dims)[0], x);
  }
}

TEST_F(Microsoft, FusedNormsAndSums) {
  const Tensor x = randn({2, 3, 3, 4}), w = randn({4}), b = randn({4}), more = randn({4});
  const Tensor skip = randn({2, 4});
  const std::vector<std::string> two{int_attribute("groups", 2), int_attribute("activation", 1)};
  auto normal = [&](const Tensor& t) {
    return silu(group_norm(t.permute({0, 3, 1, 2}), 2, w, b)).permute({0, 2, 3, 1});
  };
  expect_close(run_one("GroupNorm", {x, w, b}, 1, two)[0], normal(x));
  const Tensor sum_of = x + skip.reshape({2, 1, 1, 4}) + more;
  const std::vector<Tensor> y = run_one("SkipGroupNorm", {x, w, b, skip, more}, 2, two);
  expect_close(y[0], normal(sum_of));
  expect_close(y[1], sum_of);
  const Tensor s = x.reshape({6, 3, 4}) + b;
  expect_close(run_one("BiasSplitGelu", {x.reshape({6, 3, 4}), b}, 1, {})[0],
               s.narrow(2, 0, 2) * gelu(s.narrow(2, 2, 2)));
}

TEST_F(Microsoft, PackedHeads) {
  const Tensor q = randn({2, 3, 2, 4}), k = randn({2, 3, 2, 4}), v = randn({2, 3, 2, 4});
  auto flat = [](const Tensor& t) { return t.reshape({2, 3, 8}); };
  const std::vector<std::string> heads{int_attribute("num_heads", 2)};
  const Tensor want = run_one("MultiHeadAttention", {flat(q), flat(k), flat(v)}, 1, heads)[0];
  expect_close(run_one("MultiHeadAttention", {stack({q, k, v}, 3)}, 1, heads)[0], want);
  expect_close(run_one("MultiHeadAttention", {flat(q), stack({k, v}, 3)}, 1, heads)[0], want);
}

// Two rows of 20 numbers in blocks of 16: codes count from 0 on, the zero point is 8.
TEST_F(Microsoft, PackedWeightsAreNumbersOnceInATrace) {
  std::string bytes;
  for (int row = 0; row < 2; ++row)
    for (int i = 0; i < 32; i += 2) bytes += static_cast<char>(i % 16 | (i + 1) % 16 << 4);
  const std::vector<std::string> sizes{int_attribute("K", 20), int_attribute("N", 2),
                                       int_attribute("block_size", 16)};
  GraphText g;
  g.nodes = {node("MatMulNBits", {"x", "w", "s"}, {"y"}, sizes, "com.microsoft")};
  g.initializers = {raw_tensor("w", {2, 2, 8}, 2, bytes), floats("s", {2, 2}, {1, 10, 2, 20})};
  g.inputs = {port("x")};
  g.outputs = {port("y")};
  const OnnxModel stored = OnnxModel::parse(model(g, 17));
  // Row 0: -8 to 7, then 10 * (-8 to -5); row 1 twice that.
  const std::vector<float> want{-8 - 260, 2 * (-8 - 260)};
  EXPECT_EQ(stored({ones({1, 20})})[0].to_vector<float>(), want);
  auto f = compile([&](const Tensor& x) { return stored({x})[0]; });
  EXPECT_EQ(f(ones({1, 20})).to_vector<float>(), want);
  const Tensor w = tensor(std::vector<uint8_t>(bytes.begin(), bytes.end()), Shape(2, 2, 8));
  const Tensor scales = tensor({{1.0f, 10.0f}, {2.0f, 20.0f}});
  EXPECT_EQ(run_one("MatMulNBits", {ones({1, 20}), w, scales}, 1, sizes)[0].to_vector<float>(),
            want);
}

// At accuracy level 4 the node rounds x as the row does; exported, the row is that node again.
TEST_F(Microsoft, AccuracyLevelsAreReadAndWritten) {
  PackedCodes w{randint(0, 256, {6, 2, 16}).to(DType::u8), rand({6, 2}),
                randint(0, 256, {6, 1}).to(DType::u8), 4, 4};
  const Tensor x = randn({3, 50});
  const auto attributes = [](int level) {
    return std::vector<std::string>{int_attribute("K", 50), int_attribute("N", 6),
                                    int_attribute("block_size", 32),
                                    int_attribute("accuracy_level", level)};
  };
  for (const int level : {0, 1, 4}) {
    w.accuracy_level = level;
    EXPECT_EQ(run_one("MatMulNBits", {x, w.codes, w.scale, w.zero}, 1, attributes(level))[0]
                  .to_vector<float>(),
              matmul_nbits(x, w).to_vector<float>());
  }
  EXPECT_NE(matmul_nbits(x, w).to_vector<float>(),
            run_one("MatMulNBits", {x, w.codes, w.scale, w.zero}, 1, attributes(0))[0]
                .to_vector<float>());
  const auto f = [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{
        matmul_nbits(in[0], {constant(w.codes), constant(w.scale), constant(w.zero), w.bits, 4})};
  };
  const TempFolder folder;
  const auto report = export_onnx_function(f, std::vector<Tensor>{x}, folder / "level.onnx",
                                           {.dynamic = {{0, "rows"}}});
  EXPECT_EQ(report.nodes, 1u);
  EXPECT_EQ(report.largest_error, 0);
  const Tensor more = randn({7, 50});
  EXPECT_EQ(OnnxModel::load(folder / "level.onnx")({more})[0].to_vector<float>(),
            matmul_nbits(more, w).to_vector<float>());
}

// Sizes in attributes may be any 64 bits: an error, and neither memory nor time.
TEST_F(Microsoft, HostileSizesAreRefused) {
  const Tensor x = randn({2, 4, 32}), bytes = zeros({4, 2, 8}, DType::u8), s = ones({4, 2});
  const Tensor ids = zeros({2, 5}, DType::i64), used = full({2}, 3, DType::i32);
  const Tensor all = tensor(4, DType::i32);
  struct Case {
    const char* op;
    std::vector<Tensor> in;
    std::map<std::string, int64_t> attributes;
    std::vector<std::string> hostile;
  };
  const Case cases[] = {
      {"MatMulNBits",
       {x, bytes, s},
       {{"K", 32}, {"N", 4}, {"block_size", 16}, {"bits", 4}},
       {"K", "N", "block_size", "bits", "accuracy_level"}},
      {"MatMulBnb4",
       {x, bytes, s},
       {{"K", 32}, {"N", 4}, {"block_size", 16}, {"quant_type", 1}},
       {"K", "N", "block_size", "quant_type"}},
      {"GatherBlockQuantized",
       {zeros({4, 16}, DType::u8), ids, s},
       {{"block_size", 16}},
       {"block_size", "gather_axis", "quantize_axis", "bits"}},
      {"Attention", {x, randn({32, 96})}, {{"num_heads", 2}}, {"num_heads"}},
      {"MultiHeadAttention", {x, x, x}, {{"num_heads", 2}}, {"num_heads"}},
      {"GroupQueryAttention",
       {x, x, x, Tensor(), Tensor(), used, all},
       {{"num_heads", 2}, {"kv_num_heads", 2}},
       {"num_heads", "kv_num_heads"}},
      {"NGramRepeatBlock", {ids, randn({2, 4})}, {}, {"ngram_size"}},
      {"UnfoldTensor", {x}, {{"size", 2}}, {"size", "step", "dim"}},
      {"GroupNorm", {x, ones({32}), ones({32})}, {{"groups", 2}}, {"groups"}},
  };
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  for (const Case& c : cases)
    for (const std::string& name : c.hostile)
      for (const int64_t n : {kLeast, -(int64_t{1} << 40), int64_t{-9}, int64_t{0}, int64_t{3},
                              int64_t{1} << 31, int64_t{1} << 62, -(kLeast + 1)}) {
        std::map<std::string, int64_t> numbers = c.attributes;
        numbers[name] = n;
        std::vector<std::string> attributes;
        for (const auto& [key, value] : numbers) attributes.push_back(int_attribute(key, value));
        const std::string got = error_of([&] { run_one(c.op, c.in, 1, attributes); });
        EXPECT_EQ(got.find("other exception"), std::string::npos) << c.op << " " << name << got;
        EXPECT_EQ(got.find("Internal"), std::string::npos) << c.op << " " << name << " " << got;
        const bool harmless = n == 0 || n == 3 || n > (int64_t{1} << 30);  // some sizes and steps
        EXPECT_TRUE(harmless || got != "no error") << c.op << " " << name << " " << n;
      }
}

}  // namespace
}  // namespace tandem::onnx
