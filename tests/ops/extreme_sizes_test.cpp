// SPDX-License-Identifier: Apache-2.0
// Sizes, positions and counts at the ends of int64, at every kind of entry point: what is not a
// size is refused with an Error that says so, and nothing overflows or is taken for a symbolic
// size.
#include <gtest/gtest.h>

#include "tandem/graph/trace.h"
#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::extreme_sizes {
namespace {

constexpr int64_t kLeast = INT64_MIN, kMost = INT64_MAX, kSymbol = -(int64_t{1} << 62) - 1;

struct Entry {
  const char* name;
  void (*call)(int64_t n);
};

Tensor matrix() { return ones({3, 4}); }
Tensor image() { return ones({1, 4, 6, 6}); }

#define CALL(name, ...)                          \
  {                                              \
    name, [](int64_t n) { (void)(__VA_ARGS__); } \
  }
// Every negative number (but -1 for some) is wrong here.
const Entry kSizes[] = {
    CALL("zeros", zeros({2, n})),
    CALL("full", full(Shape(std::vector<int64_t>{n}), 1)),
    CALL("empty", empty({n})),
    CALL("eye", eye(n, 3)),
    CALL("linspace", linspace(0, 1, n)),
    CALL("arange_dim", arange_dim(n)),
    CALL("rand", rand({n, 2})),
    CALL("randint", randint(5, {n})),
    CALL("randperm", randperm(n)),
    CALL("reshape", matrix().reshape({n, 4})),
    CALL("unflatten", unflatten(matrix(), 1, {n, 2})),
    CALL("expand", expand(ones({1}), {n})),
    CALL("repeat", repeat(matrix(), {1, n})),
    CALL("tile", tile(matrix(), {n})),
    CALL("repeat_interleave", repeat_interleave(matrix(), n, 0)),
    CALL("repeats", repeat_interleave(matrix(), full({1}, n, int64), 0)),
    CALL("unfold", unfold(matrix(), 1, n, 1)),
    CALL("unfold by", unfold(matrix(), 1, 2, n)),
    CALL("narrow", narrow(matrix(), 0, 0, n)),
    CALL("split", split(matrix(), n, 0)),
    CALL("chunk", chunk(matrix(), n, 0)),
    CALL("pad", pad(matrix(), {n, 0})),
    CALL("pad both ends", pad(matrix(), {n, n})),
    CALL("pad reflect", pad(matrix(), {0, n}, "reflect")),
    CALL("pad replicate", pad(matrix(), {n, n}, "replicate")),
    CALL("pad circular", pad(matrix(), {n, 0}, "circular")),
    CALL("one_hot", one_hot(tensor({0, 1}).to(int64), n)),
    CALL("pixel_shuffle", pixel_shuffle(image(), n)),
    CALL("conv stride", conv2d(image(), ones({2, 4, 3, 3}), {}, {n})),
    CALL("conv padding", conv2d(image(), ones({2, 4, 3, 3}), {}, {1}, {n})),
    CALL("conv dilation", conv2d(image(), ones({2, 4, 3, 3}), {}, {1}, {0}, {n})),
    CALL("max_pool", max_pool2d(image(), {n})),
    CALL("max_pool dilation", max_pool2d(image(), {2}, {1}, {0}, {n})),
    CALL("avg_pool padding", avg_pool2d(image(), {2}, {2}, {n})),
    CALL("adaptive_avg_pool", adaptive_avg_pool2d(image(), {n, 2})),
    CALL("im2col", im2col(image(), {n})),
    CALL("im2col padding", im2col(image(), {2}, {1}, {n, n})),
    CALL("hann_window", hann_window(n)),
    CALL("fftfreq", fft::fftfreq(n)),
    CALL("histc", histc(matrix(), n)),
    CALL("linear layer", nn::Linear(n, 4)),
    CALL("embedding layer", nn::Embedding(10, n)),
    CALL("conv layer", nn::Conv2d(3, 4, {n})),
    CALL("conv layer of many", nn::Conv2d(n, 4, {3})),
    CALL("lstm layer", nn::LSTM(3, n)),
    CALL("gru cell", nn::GRUCell(3, n)),
    CALL("bilinear layer", nn::Bilinear(n, n, 2)),
    CALL("layer norm", nn::LayerNorm({n})),
    CALL("attention layer", nn::MultiheadAttention(n, 1)),
};
// Negative numbers count from the end or point backwards; far ones may be right.
const Entry kPlaces[] = {
    CALL("select", select(matrix(), 0, n)),
    CALL("a dimension", sum(matrix(), {n})),
    CALL("permute", permute(matrix(), {n, 0})),
    CALL("flip", flip(matrix(), {n})),
    CALL("roll", roll(matrix(), {n}, {0})),
    CALL("slice from", slice(matrix(), 0, n)),
    CALL("slice to", slice(matrix(), 0, 0, n)),
    CALL("slice by", slice(matrix(), 0, 0, 3, n)),
    CALL("index", matrix()[Slice(n, kMost)]),
    CALL("index by", matrix()[Slice(0, kMost, n)]),
    CALL("index of two", index(matrix(), {Slice(n, kMost), Slice(0, n)})),
    CALL("index by a number", index(matrix(), {Slice(), n})),
    CALL("diagonal", diagonal(matrix(), n)),
    CALL("diag", diag(ones({3}), n)),
    CALL("tril", tril(matrix(), n)),
    CALL("triu", triu(matrix(), n)),
    CALL("tril_indices", tril_indices(3, 4, n)),
    CALL("triu_indices", triu_indices(3, 4, n)),
    CALL("arange", arange(n, kMost, 1)),
    CALL("arange back", arange(kMost, n, -1)),
};
#undef CALL

// The kind of the error that such a call throws; "" if it throws none.
std::string kind_of(const Entry& e, int64_t n) {
  try {
    e.call(n);
    return "";
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::Internal) << e.name << ": " << error.what();
    return to_string(error.kind());
  } catch (const std::exception& other) {
    ADD_FAILURE() << e.name << " of " << n << ": " << other.what();
    return "other";
  }
}

TEST(ExtremeSizes, NegativeOnesAreRefused) {
  for (const Entry& e : kSizes)
    for (int64_t n : {kLeast, kLeast + 1, kSymbol, int64_t{-5}}) {
      const std::string kind = kind_of(e, n);
      if (n == -5 && std::string(e.name).starts_with("pad")) continue;  // a crop, maybe too large
      EXPECT_TRUE(kind == "Value" || kind == "Shape" || kind == "Index")
          << e.name << " of " << n << ": " << kind;
    }
}

TEST(ExtremeSizes, LargeOnesAreRefusedOrRight) {
  for (const Entry& e : kSizes)
    for (int64_t n : {kMost, kMost - 1, int64_t{1} << 62}) kind_of(e, n);
}

TEST(ExtremeSizes, FarPlacesAreRefusedOrRight) {
  for (const Entry& e : kPlaces)
    for (int64_t n : {kLeast, kLeast + 1, kSymbol, kMost, kMost - 1}) kind_of(e, n);
  const Tensor x = matrix();
  EXPECT_EQ(slice(x, 0, kLeast).shape(), x.shape());
  EXPECT_EQ(x[Slice(kLeast, kMost)].shape(), x.shape());
  EXPECT_EQ(x[Slice(0, kMost, kMost)].shape(), Shape(1, 4));
  EXPECT_EQ(diagonal(x, kMost).shape(), Shape(0));
  EXPECT_EQ(diagonal(x, kLeast).shape(), Shape(0));
  EXPECT_EQ(triu_indices(3, 4, kLeast).size(1), 12);
  EXPECT_EQ(tril_indices(3, 4, kMost).size(1), 12);
  EXPECT_EQ(chunk(x, kMost, 0).size(), 3u);
}

TEST(ExtremeSizes, SlicesOfSymbolicSizes) {
  const Spec spec(float32, Shape(Dim::symbol("extreme_n"), 4));
  const auto whole = [](std::span<const Tensor> v) {
    return std::vector<Tensor>{slice(v[0], 0, kLeast), v[0][Slice(kLeast, kMost)]};
  };
  const Ref<Graph> g = trace(whole, {&spec, 1}, Captures::refuse);
  const Tensor x = matrix(), in[] = {x};
  for (const Tensor& y : run(*g, in)) EXPECT_EQ(y.shape(), x.shape());
}

TEST(ExtremeSizes, TheErrorNamesTheNumber) {
  const std::string text = thrown([] { zeros({2, kLeast}); }, ErrorKind::Value);
  EXPECT_TRUE(has(text, "-9223372036854775808 is neither a size")) << text;
  const std::string large = thrown([] { zeros({size_t{1} << 63}); }, ErrorKind::Value);
  EXPECT_TRUE(has(large, "9223372036854775808 is neither a size")) << large;
}

}  // namespace
}  // namespace tandem::extreme_sizes
