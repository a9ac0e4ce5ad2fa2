// SPDX-License-Identifier: Apache-2.0
// Convolution and pooling kernels over shapes, layouts, groups, dilations and dtypes.
#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tests/backend/against_reference_helper.h"

namespace tandem::cpu_test {
namespace {

struct Conv : testing::Test {
  static void SetUpTestSuite() { init(); }
  void SetUp() override { manual_seed(5); }
};

struct ConvCase {
  Shape x, w;
  IntList stride, padding, dilation;
  int64_t groups;
};
const ConvCase kCases[] = {
    {{2, 1, 8, 8}, {4, 1, 3, 3}, {1, 1}, {0, 0}, {1, 1}, 1},
    {{2, 3, 9, 7}, {5, 3, 3, 2}, {2, 1}, {1, 1}, {1, 1}, 1},
    {{3, 16, 10, 10}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},
    {{2, 32, 12, 12}, {64, 32, 3, 3}, {1, 1}, {0, 0}, {1, 1}, 1},
    {{2, 8, 11, 11}, {12, 8, 3, 3}, {2, 2}, {2, 2}, {2, 2}, 1},
    {{2, 8, 9, 9}, {8, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 8},
    {{2, 12, 9, 9}, {18, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 3},
    {{4, 64, 6, 6}, {128, 64, 1, 1}, {2, 2}, {0, 0}, {1, 1}, 1},
    {{1, 3, 20, 20}, {16, 3, 7, 7}, {2, 2}, {3, 3}, {1, 1}, 1},
    {{5, 6, 13}, {7, 6, 4}, {3}, {2}, {1}, 1},
    {{2, 4, 5, 6, 7}, {6, 4, 2, 3, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 1}, 1},
    {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},
    {{2, 2, 3, 3}, {2, 2, 5, 5}, {1, 1}, {3, 3}, {1, 1}, 1},
    {{2, 128, 4, 4}, {256, 128, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},
    // Few large samples, shared by the threads: the own kernels, of stride 1 and by patches.
    {{2, 64, 12, 12}, {128, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},
    {{3, 32, 20, 19}, {40, 32, 3, 2}, {1, 1}, {0, 0}, {1, 1}, 1},
    {{1, 48, 17, 25}, {64, 48, 5, 3}, {1, 1}, {4, 0}, {1, 1}, 1},
    {{1, 64, 24, 24}, {96, 64, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1},
    // A kernel for each channel: odd channels, strides, dilations, borders, one to three axes.
    {{2, 20, 9, 11}, {20, 1, 5, 5}, {2, 2}, {2, 2}, {1, 1}, 20},
    {{3, 37, 12, 10}, {37, 1, 7, 7}, {1, 1}, {3, 3}, {1, 1}, 37},
    {{2, 17, 10, 21}, {17, 1, 3, 3}, {1, 1}, {2, 2}, {2, 2}, 17},
    {{2, 18, 9, 9}, {18, 1, 3, 10}, {1, 3}, {0, 4}, {1, 1}, 18},
    {{1, 5, 3, 2}, {5, 1, 3, 4}, {1, 1}, {1, 3}, {1, 1}, 5},
    {{3, 24, 50}, {24, 1, 9}, {1}, {4}, {1}, 24},
    {{2, 6, 5, 6, 12}, {6, 1, 2, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 1, 1}, 6},
    // Large weights: groups, channels that fill no panel, strides, dilations, one to three axes.
    {{3, 130, 7, 9}, {300, 65, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 2},
    {{6, 100, 9, 5}, {90, 100, 3, 3}, {2, 1}, {1, 2}, {1, 2}, 1},
    {{2, 300, 6, 6}, {260, 300, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},
    {{4, 48, 40}, {200, 48, 7}, {2}, {3}, {1}, 1},
    {{5, 360, 4, 3}, {350, 360, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},
    {{2, 270, 6, 5}, {380, 270, 3, 3}, {2, 1}, {0, 3}, {1, 2}, 1},
    {{3, 810, 2, 3}, {700, 810, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},
    {{2, 40, 3, 6, 5}, {70, 40, 2, 5, 3}, {1, 1, 1}, {1, 2, 0}, {1, 1, 1}, 1},
};

ConvAttrs attrs_of(const ConvCase& k, const Shape& size = {}) {
  ConvAttrs a;
  a.stride = k.stride;
  a.padding = a.padding_end = k.padding;
  a.dilation = k.dilation;
  a.groups = k.groups;
  a.size = size;
  return a;
}
IntList spatial(const Shape& s) {
  IntList r;
  for (int i = 2; i < s.rank(); ++i) r.push_back(s[i]);
  return r;
}

// All three rows, with activations in the layout of `lay`.
template <class F>
void check_all(const ConvCase& k, DType d, F&& lay, const std::string& how) {
  const std::string what = k.x.to_string() + " " + k.w.to_string() + how;
  Tensor x = lay(random(k.x, d)), w = random(k.w, d) * 0.3, b = random({k.w[0]}, d);
  ConvAttrs at = attrs_of(k);
  check(op::conv, &at, {x, w, b}, "conv " + what);
  check(op::conv, &at, {x, w, Tensor()}, "conv without bias " + what);
  Tensor gy = lay(random(run_op(op::conv, &at, {x, w, b})[0].shape(), d));
  at.size = spatial(k.x);
  check(op::conv_backward_input, &at, {gy, w}, "backward_input " + what);
  at.size = spatial(k.w);
  check(op::conv_backward_weight, &at, {x, gy}, "backward_weight " + what);
}

TEST_F(Conv, RowMajor) {
  for (const ConvCase& k : kCases)
    check_all(
        k, DType::f32, [](Tensor t) { return t; }, "");
}
TEST_F(Conv, ChannelsLast) {
  for (const ConvCase& k : kCases) check_all(k, DType::f32, channels_last, " channels last");
}
TEST_F(Conv, Gaps) {
  for (const ConvCase& k : {kCases[1], kCases[2]}) check_all(k, DType::f32, gapped, " gaps");
}

// Sums of 16-bit parts are rounded once more each, hence the wide bound for the weight.
TEST_F(Conv, SixteenBits) {
  const ConvCase wide = {{3, 192, 7, 6}, {320, 96, 3, 3}, {2, 1}, {1, 1}, {1, 1}, 2};
  const ConvCase point = {{2, 512, 5, 5}, {520, 512, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1};
  for (DType d : {DType::bf16, DType::f16})
    for (const ConvCase& k : {kCases[2], wide, point}) {
      Tensor x = random(k.x, d), w = random(k.w, d), b = random({k.w[0]}, d);
      ConvAttrs at = attrs_of(k);
      check(op::conv, &at, {x, w, b}, "conv 16-bit", false);
      Tensor gy = random(run_op(op::conv, &at, {x, w, b})[0].shape(), d);
      at.size = spatial(k.x);
      check(op::conv_backward_input, &at, {gy, w}, "backward_input 16-bit", false);
      at.size = spatial(k.w);
      check(op::conv_backward_weight, &at, {x, gy}, "backward_weight 16-bit", false);
    }
}

// Derivatives by the weight in tiles: strides, dilation, padding, one and three dimensions,
// channels that do not fill a panel, several pieces of the pixels, slices of the channels.
TEST_F(Conv, WeightsOfBf16) {
  const ConvCase cases[] = {
      {{2, 40, 17, 16}, {70, 40, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},
      {{3, 64, 21, 18}, {33, 64, 3, 3}, {2, 1}, {1, 2}, {1, 2}, 1},
      {{2, 33, 40, 40}, {16, 33, 5, 3}, {1, 1}, {2, 0}, {1, 1}, 1},
      {{2, 32, 70, 70}, {48, 32, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},
      {{2, 100, 9, 9}, {96, 100, 3, 3}, {3, 3}, {4, 4}, {1, 1}, 1},
      {{4, 48, 300}, {64, 48, 5}, {2}, {2}, {1}, 1},
      {{2, 24, 8, 9, 10}, {40, 24, 2, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, 1}};
  for (const ConvCase& k : cases) {
    ConvAttrs at = attrs_of(k);
    const Tensor x = random(k.x, DType::bf16), w = random(k.w, DType::bf16);
    const Tensor gy = random(run_op(op::conv, &at, {x, w, {}})[0].shape(), DType::bf16);
    at.size = spatial(k.w);
    const std::string what = k.x.to_string() + " " + k.w.to_string();
    check(op::conv_backward_weight, &at, {x, gy}, what, false, 2e-2);
    check(op::conv_backward_weight, &at, {channels_last(x), channels_last(gy)}, what + " last",
          false, 2e-2);
    const Tensor more = channels_last(cat({x, x}, 1));
    check(op::conv_backward_weight, &at, {more.slice(1, 7, 7 + x.size(1)), gy}, what + " slice",
          false, 2e-2);
  }
}

// Windows that do not overlap: without gaps, with gaps, with pixels left over, one to three axes.
TEST_F(Conv, WindowsOfBf16) {
  const ConvCase cases[] = {
      {{2, 3, 64, 64}, {40, 3, 8, 8}, {8, 8}, {0, 0}, {1, 1}, 1},
      {{3, 3, 50, 39}, {33, 3, 4, 4}, {4, 4}, {0, 0}, {1, 1}, 1},
      {{2, 5, 41, 40}, {64, 5, 4, 3}, {5, 4}, {0, 0}, {1, 1}, 1},
      {{4, 1, 1000}, {48, 1, 40}, {40}, {0}, {1}, 1},
      {{2, 2, 9, 16, 17}, {32, 2, 2, 4, 4}, {2, 4, 4}, {0, 0, 0}, {1, 1, 1}, 1}};
  for (const ConvCase& k : cases) {
    ConvAttrs at = attrs_of(k);
    const Tensor x = random(k.x, DType::bf16), w = random(k.w, DType::bf16),
                 b = random({k.w[0]}, DType::bf16);
    const std::string what = k.x.to_string() + " " + k.w.to_string();
    for (const Tensor& image : {x, channels_last(x), gapped(x)}) {
      check(op::conv, &at, {image, w, b}, what, false, 2e-2);
      check(op::conv, &at, {image, w, Tensor()}, what, false, 2e-2);
    }
    const auto check_weight = [&](const std::string& how) {
      at.size = {};
      const Tensor gy = random(run_op(op::conv, &at, {x, w, {}})[0].shape(), DType::bf16);
      at.size = spatial(k.w);
      for (const Tensor& image : {x, channels_last(x), gapped(x)})
        for (const Tensor& g : {gy, channels_last(gy)})
          check(op::conv_backward_weight, &at, {image, g}, what + how, false, 2e-2);
    };
    check_weight(" weight");
    // The last windows reach beyond the image.
    at.size = {};
    for (int d = 0; d < at.padding_end.rank(); ++d) at.padding_end[d] = k.w[2 + d];
    check(op::conv, &at, {x, w, b}, what + " padded", false, 2e-2);
    check_weight(" weight, padded");
  }
}

TEST_F(Conv, ExpandedGradientAndFlippedWeight) {
  const ConvCase& k = kCases[3];
  ConvAttrs at = attrs_of(k, spatial(k.x));
  Tensor gy = ones({1, 1, 1, 1}).expand({2, 64, 10, 10});
  check(op::conv_backward_input, &at, {gy, flip(random(k.w), {2, 3})}, "expanded");
  at.size = spatial(k.w);
  check(op::conv_backward_weight, &at, {random(k.x), gy}, "expanded");
}

TEST_F(Conv, LongBatchesSumInOneOrder) {
  ConvAttrs at = attrs_of(kCases[3], {3, 3});
  check(op::conv_backward_weight, &at, {random({37, 32, 14, 14}), random({37, 64, 12, 12})},
        "37 samples");
  check(op::conv_backward_weight, &at, {random({64, 1, 28, 28}), random({64, 32, 26, 26})},
        "one channel");
}

// The own kernel, used where the library is missing.
TEST_F(Conv, OwnWeightGradient) {
  for (const ConvCase& k : kCases) {
    ConvAttrs at = attrs_of(k);
    Tensor x = channels_last(random(k.x)), w = random(k.w);
    Tensor gy = random(run_op(op::conv, &at, {x, w, Tensor()})[0].shape());
    at.size = spatial(k.w);
    Tensor gw = zeros(k.w), want = run_reference(op::conv_backward_weight, &at, {x, gy}, {gw})[0];
    Array in[] = {array_of(x), array_of(gy)}, out = array_of(gw);
    KernelCall call{op::conv_backward_weight, &at, in, 2, &out, 1};
    auto plan = detail::own_conv_backward_weight_prepare(call);
    ASSERT_TRUE(plan);
    std::vector<char> scratch(plan->workspace + 64);
    call.plan = plan.get();
    call.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    detail::own_conv_backward_weight_run(call);
    expect_close(gw, want, 1e-5, "own weight gradient " + k.x.to_string());
  }
}

// A kernel without the table of plans, which depend on the instruction set.
Tensor run_fresh(const OpDef& op, const ConvAttrs& at, const Tensors& in, const Shape& shape) {
  Tensor out = channels_last(zeros(shape));
  if (&op == &op::conv_backward_weight) out = zeros(shape);
  std::vector<Array> arrays;
  for (const Tensor& t : in) arrays.push_back(array_of(t));
  Array y = array_of(out);
  KernelCall call{op, &at, arrays.data(), static_cast<int>(arrays.size()), &y, 1};
  const Kernel* kernel = find_kernel(call, DeviceKind::cpu);
  EXPECT_NE(kernel, nullptr);
  auto plan = kernel->prepare(call);
  std::vector<char> scratch(plan->workspace + 64);
  call.plan = plan.get();
  call.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  kernel->run(call);
  return out;
}

TEST_F(Conv, EveryInstructionSet) {
  std::vector<const detail::GemmTables*> tables{&detail::kGemmBase};
  if (cpu_features().avx2) tables.push_back(&detail::kGemmAvx2);
  if (cpu_features().avx512) tables.push_back(&detail::kGemmAvx512);
  for (const ConvCase& k : kCases) {
    const ConvAttrs at = attrs_of(k);
    ConvAttrs of_input = at, of_weight = at;
    of_input.size = spatial(k.x);
    of_weight.size = spatial(k.w);
    const Tensor x = channels_last(random(k.x)), w = random(k.w) * 0.3, b = random({k.w[0]});
    const Tensor y = run_reference(op::conv, &at, {x, w, b}, {conv(x, w, b, at)})[0];
    const Tensor gy = channels_last(random(y.shape()));
    const Tensor gx = run_reference(op::conv_backward_input, &of_input, {gy, w}, {x})[0];
    const Tensor gw = run_reference(op::conv_backward_weight, &of_weight, {x, gy}, {w})[0];
    for (const detail::GemmTables* t : tables) {
      detail::use_gemm_tables(t);
      const std::string what = std::string(t->name) + " " + k.x.to_string() + k.w.to_string();
      expect_close(run_fresh(op::conv, at, {x, w, b}, y.shape()), y, 1e-5, what);
      expect_close(run_fresh(op::conv_backward_input, of_input, {gy, w}, k.x), gx, 1e-5, what);
      expect_close(run_fresh(op::conv_backward_weight, of_weight, {x, gy}, k.w), gw, 1e-5, what);
    }
    detail::use_gemm_tables(nullptr);
  }
}

TEST_F(Conv, OutputsStayChannelsLast) {
  Tensor x = random({2, 3, 8, 8}), w = random({8, 3, 3, 3});
  Tensor y = max_pool2d(relu(conv2d(x, w)), 2);
  EXPECT_TRUE(detail::is_channels_last(array_of(y)));
}

// ---- pooling

PoolAttrs window(IntList kernel, IntList stride, IntList padding, IntList dilation, bool ceil) {
  PoolAttrs a;
  a.kernel = kernel;
  a.stride = stride;
  a.padding = padding;
  a.dilation = dilation;
  a.ceil_mode = ceil;
  return a;
}

void check_pool(const Tensor& x, PoolAttrs a, const std::string& how) {
  const std::string what = x.shape().to_string() + " " + a.kernel.to_string() + how;
  check(op::max_pool, &a, {x}, "max " + what, true, 0);
  Tensors y = run_op(op::max_pool, &a, {x});
  PoolAttrs sized = a;
  sized.size = spatial(x.shape());
  Tensor g = random(y[0].shape(), x.dtype());
  check(op::max_pool_backward, &sized, {g, y[1]}, "max backward " + what);
  check(op::max_pool_backward, &sized, {channels_last(g), y[1].contiguous()}, "mixed " + what);
  if (!a.output.empty() || a.dilation == Shape(std::vector<int64_t>(a.kernel.size(), 1))) {
    check(op::avg_pool, &a, {x}, "avg " + what);
    check(op::avg_pool_backward, &sized, {g}, "avg backward " + what);
    check(op::avg_pool_backward, &sized, {channels_last(g)}, "avg backward last " + what);
  }
}

void check_pools(DType d) {
  for (bool last : {false, true}) {
    auto lay = [&](Tensor t) { return last ? channels_last(t.to(d)) : t.to(d); };
    const char* how = last ? " last" : "";
    check_pool(lay(random({2, 8, 12, 12})), window({2, 2}, {2, 2}, {0, 0}, {1, 1}, false), how);
    check_pool(lay(random({3, 20, 9, 11})), window({3, 3}, {2, 2}, {1, 1}, {1, 1}, false), how);
    check_pool(lay(random({2, 5, 9, 10})), window({3, 2}, {2, 3}, {1, 1}, {1, 1}, true), how);
    check_pool(lay(random({2, 6, 11, 11})), window({3, 3}, {1, 1}, {1, 1}, {2, 2}, false), how);
    check_pool(lay(random({2, 4, 13})), window({4}, {3}, {2}, {1}, true), how);
    check_pool(lay(random({2, 16, 5, 6, 7})),
               window({2, 2, 2}, {2, 2, 2}, {0, 1, 0}, {1, 1, 1}, false), how);
    PoolAttrs adaptive;
    adaptive.output = {3, 4};
    check_pool(lay(random({2, 7, 10, 9})), adaptive, how);
    PoolAttrs plain = window({3, 3}, {2, 2}, {1, 1}, {1, 1}, true);
    plain.count_include_pad = false;
    check_pool(lay(random({2, 7, 10, 9})), plain, how);
    plain.divisor_override = 5;
    check_pool(lay(random({2, 600, 4, 4})), plain, how);
  }
}

TEST_F(Conv, Pooling) {
  for (DType d : {DType::f32, DType::bf16, DType::f16}) check_pools(d);
}

TEST_F(Conv, MaxPoolKeepsNaNAndTheFirstOfEquals) {
  const float nan = std::nanf("");
  std::vector<float> v(64, 1.0f);
  v[5] = nan;
  v[6] = nan;
  Tensor t = tensor(v).reshape({1, 4, 4, 4});
  PoolAttrs a = window({2, 2}, {2, 2}, {0, 0}, {1, 1}, false);
  for (Tensor in : {t, channels_last(t)}) {
    Tensors y = run_op(op::max_pool, &a, {in});
    check(op::max_pool, &a, {in}, "NaN", true, 0);
    EXPECT_TRUE(std::isnan(y[0].to_vector<float>()[0]));
    EXPECT_EQ(y[1].to_vector<int32_t>()[0], 5);
    EXPECT_EQ(y[1].to_vector<int32_t>()[2], 8);
  }
}

// What convolutions leave with channels last is concatenated and padded so, parts of such images,
// too; the values are those of row-major images.
TEST_F(Conv, CatAndPadKeepTheLayoutOfMost) {
  for (const Shape& s : {Shape{2, 8, 5, 6}, Shape{1, 3, 7, 1}, Shape{2, 4, 3, 4, 5}}) {
    const Tensor a = channels_last(random(s)), b = channels_last(random(s)), rows = random(s);
    const Tensor part = channels_last(random(s)).narrow(1, 1, 2);
    const auto row_major = [](const Tensor& t) { return t.contiguous(); };
    const auto same = [&](const Tensor& got, const Tensor& want, bool last) {
      EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>()) << s.to_string();
      EXPECT_EQ(detail::is_channels_last(array_of(got)), last) << s.to_string();
    };
    const bool dense = s[3] == Dim(1);  // pixels in one column: channels can still be innermost
    same(cat({a, part, b}, 1), cat({row_major(a), row_major(part), row_major(b)}, 1), true);
    same(cat({a, b, rows}, 0), cat({row_major(a), row_major(b), rows}, 0), true);
    if (!dense) same(cat({a, rows}, 1), cat({row_major(a), rows}, 1), false);
    same(pad(part, {1, 2, 0, 1}), pad(row_major(part), {1, 2, 0, 1}), true);
    auto twice = compile([](Tensor x, Tensor y) { return cat({relu(x), y}, 1); });
    EXPECT_EQ(twice(a, b).to_vector<float>(), cat({relu(a), b}, 1).to_vector<float>());
  }
}

TEST_F(Conv, PoolGradientTakesAnyIndexInThePlane) {
  PoolAttrs a = window({2, 2}, {2, 2}, {0, 0}, {1, 1}, false);
  a.size = {4, 4};
  Tensor g = channels_last(random({2, 8, 2, 2}));
  Tensor idx = channels_last((rand({2, 8, 2, 2}) * 15.9).to(DType::i32));
  check(op::max_pool_backward, &a, {g, idx}, "any index");
  Tensor bad = channels_last(full({2, 8, 2, 2}, 16, DType::i32));
  EXPECT_THROW(max_pool_backward(g, bad, a), Error);
}

}  // namespace
}  // namespace tandem::cpu_test
