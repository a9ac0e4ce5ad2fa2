// SPDX-License-Identifier: Apache-2.0
// Kernels that make codes of their sums (graph/requantise.h) give the bits of the loops in whose
// place they do it: one program runs both ways, with every set of tiles.
#include "tandem/backend/cpu/gemm/requantise_internal.h"

#include "tandem/compile/compile.h"
#include "tandem/compile/run/executable.h"
#include "tandem/ops/pointwise/quantize.h"
#include "tests/backend/against_reference_helper.h"
#include "tests/backend/integer_tiles_helper.h"

namespace tandem::cpu_test {
namespace {

Tensor held(const Tensor& t) { return is_tracing() ? constant(t) : t; }
// Codes of one dtype. What a model holds is made outside of the trace.
struct Coding {
  DType t;
  double step;
  Tensor scale, zero;
  Coding(DType dtype, double each, int64_t point)
      : t(dtype), step(each), scale(full({}, each, DType::f32)), zero(full({}, point, dtype)) {}

  Tensor codes(const Tensor& x) const { return quantize_linear(x, held(scale), held(zero), 0, t); }
  Tensor values(const Tensor& q) const { return dequantize_linear(q, held(scale), held(zero), 0); }
  Tensor both(const Tensor& x) const { return values(codes(x)); }
};

struct CodedWeight {
  Tensor codes, scale, bias, steps, by;
  int64_t groups;
  /// For codes of x with that step; the bias is in steps of both, too, if `inside`.
  CodedWeight(const Shape& s, bool each, double x_step, bool inside)
      : codes(randint(-127, 128, s).to(DType::i8)),
        scale(each ? rand({s[0]}) * 0.01 + 0.002 : full({}, 0.004, DType::f32)),
        bias(randn({s[0]})),
        groups(s[1] == Dim(1) ? s[0].value() : 1) {
    if (!inside) return;
    by = scale * x_step;
    steps = round(bias / by).to(DType::i32);
  }
  Tensor conv(const Tensor& x, int64_t stride = 1) const {
    const Tensor b = by.defined() ? dequantize_linear(held(steps), held(by), {}, 0) : held(bias);
    return conv2d(x, dequantize_linear(held(codes), held(scale), {}, 0), b, stride,
                  codes.size(2) / 2, 1, groups);
  }
};

struct RequantiseTest : testing::Test {
  static void SetUpTestSuite() { init(); }
  void SetUp() override { manual_seed(6); }
  void TearDown() override {
    detail::use_integer_loops(nullptr);
    detail::use_requantise(true);
  }
};

// f gives several tensors; `forms` of its loops must be of the form.
template <class F>
void expect_both_ways(const F& f, const Tensor& x, int forms) {
  const NoGradGuard no_grad;
  auto fast = compile([&](Tensor v) { return f(v); }, {.same_bits = false});
  fast(x);
  int found = 0;
  std::string which;
  for (const compiler::Step& s : fast.executable()->lowered().steps)
    if (s.codes && s.alone) {
      ++found;
      which += s.name + "\n";
    }
  if (cpu_features().avx2)  // else depthwise convolutions are in floating point
    EXPECT_EQ(found, forms) << which << fast.executable()->to_string();
  int at = 0;
  for (const detail::IntegerLoops* loops : all_integer_loops()) {
    detail::use_integer_loops(loops);
    detail::use_requantise(false);
    const std::vector<Tensor> want = fast(x);
    detail::use_requantise(true);
    const std::vector<Tensor> got = fast(x);
    ASSERT_EQ(got.size(), want.size());
    for (size_t k = 0; k < got.size(); ++k)
      expect_same_bits(got[k], want[k], fmt::format("result {}, tiles {}", k, at));
    ++at;
  }
}

TEST_F(RequantiseTest, BlocksOfMobileNets) {
  for (const DType t : {DType::u8, DType::i8})
    for (const int64_t size : {5, 14, 23}) {
      const Coding in{t, 0.04, t == DType::u8 ? 120 : -3}, wide{t, 0.02, t == DType::u8 ? 0 : -128},
          out{t, 0.07, t == DType::u8 ? 131 : 7};
      const bool each = size != 14;
      const CodedWeight a({150, 24, 1, 1}, each, in.step, each),
          b({150, 1, 3, 3}, each, wide.step, each), c({24, 150, 1, 1}, each, wide.step, each),
          d({72, 1, 5, 5}, each, wide.step, each), e({72, 24, 1, 1}, each, in.step, each),
          g({24, 72, 1, 1}, each, wide.step, each);
      const auto f = [&](const Tensor& x) -> std::vector<Tensor> {
        const Tensor start = in.both(x);
        Tensor y = wide.both(clamp(a.conv(start), 0, 6));
        y = wide.both(clamp(b.conv(y), 0, 6));
        const Tensor sum = in.both(out.both(c.conv(y)) + start);
        y = wide.both(hardswish(e.conv(sum)));
        y = wide.both(hardswish(d.conv(y)));
        return {out.codes(in.both(g.conv(y)) + sum)};
      };
      SCOPED_TRACE(fmt::format("{} {}", to_string(t), size));
      expect_both_ways(f, randn({2, 24, size, size + 3}) * 2.0, 6);
    }
}

TEST_F(RequantiseTest, BlocksOfResNets) {
  const Coding in{DType::u8, 0.05, 128}, inner{DType::u8, 0.03, 0}, out{DType::u8, 0.2, 0};
  const CodedWeight a({40, 32, 3, 3}, true, in.step, true),
      b({32, 40, 3, 3}, true, inner.step, false), c({64, 32, 1, 1}, true, out.step, true);
  const auto f = [&](const Tensor& x) -> std::vector<Tensor> {
    const Tensor start = in.both(x);
    Tensor y = inner.both(relu(a.conv(start)));
    y = out.both(relu(in.both(b.conv(y)) + start));
    return {y, out.codes(c.conv(y, 2))};
  };
  expect_both_ways(f, randn({1, 32, 17, 19}) * 2.0, 3);
}

// Sums far beyond the codes, scales that are no numbers, and those that leave nothing.
TEST_F(RequantiseTest, ExtremeScales) {
  for (const DType t : {DType::u8, DType::i8}) {
    const Coding in{t, 0.05, 3}, out{t, 1e-6, 9};
    CodedWeight w({64, 16, 1, 1}, true, 1, false), d({64, 1, 3, 3}, true, 1, false);
    std::vector<float> scales(64, 0.01F);
    const float inf = std::numeric_limits<float>::infinity();
    scales[0] = 1e30F, scales[1] = inf, scales[2] = std::nanf(""), scales[3] = 0,
    scales[4] = 1e-38F, scales[35] = 3e38F, scales[63] = -1;
    w.scale = d.scale = clone(from_blob(scales.data(), Shape({64}), DType::f32));
    const auto f = [&](const Tensor& x) -> std::vector<Tensor> {
      const Tensor y = out.codes(clamp(w.conv(in.both(x)), -1e-5, 1e-4));
      return {y, out.codes(d.conv(out.values(y)))};
    };
    expect_both_ways(f, randn({1, 16, 9, 8}), 2);
  }
}

}  // namespace
}  // namespace tandem::cpu_test
