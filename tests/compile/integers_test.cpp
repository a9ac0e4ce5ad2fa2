// SPDX-License-Identifier: Apache-2.0
// Programs of 8-bit integers: weights are packed, images stay channels-last, and results equal
// eager code to the bit in every mode.
#include "tandem/ops/matmul/integer.h"

#include "tandem/base/parallel.h"
#include "tandem/compile/program/use_def.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/matmul/integer_depthwise.h"
#include "tandem/ops/matmul/integer_winograd.h"
#include "tests/compile/helpers.h"

namespace tandem::test {
namespace {

Tensor held_codes(const Tensor& w) { return is_tracing() ? constant(w) : w; }
Tensor some_bytes(const Shape& s, DType t) {
  return t == DType::u8 ? randint(0, 256, s).to(t) : randint(-128, 128, s).to(t);
}

// x rounded to bytes over its own range.
struct Codes {
  Tensor codes, zero, scale;
};
Codes rounded(const Tensor& x) {
  const Tensor high = clamp_min(amax(x), 0), low = clamp_max(amin(x), 0);
  const Tensor scale = (high - low) / 255.0, zero = round(clamp(-low / scale, 0, 255));
  return {clamp(round(x / scale) + zero, 0, 255).to(DType::u8), zero.to(DType::u8), scale};
}

// The largest and the smallest element are found where the image lies, not through a permutation.
void expect_dense_reductions(const compiler::Program& p) {
  const compiler::UseDef uses(p);
  for (const compiler::Instr& i : p.instrs) {
    if (i.op != &op::amax && i.op != &op::amin) continue;
    const compiler::InstrId maker = uses.maker(i.in[0].value);
    if (maker == compiler::kNone) continue;
    EXPECT_NE(p.instrs[maker].op, &op::permute);
  }
}

template <class F>
void expect_same_integers(const F& f, const Tensor& x, const OpDef& op, int count) {
  NoGradGuard no_grad;
  const Tensor want = f(x);
  for (const int threads : {1, 2, 8})
    for (const bool same : {false, true}) {
      set_num_threads(threads);
      auto compiled = compile([&](Tensor v) { return f(v); }, {.same_bits = same});
      EXPECT_TRUE(same_bits(compiled(x), want)) << threads << " threads, " << same;
      EXPECT_EQ(count_ops(compiled.executable(), op), count);
      expect_dense_reductions(compiled.executable()->program());
      if (op.name == op::packed_integer_conv.name) {
        for (const compiler::Step& s : compiled.executable()->lowered().steps)
          EXPECT_NE(s.op, &op::copy) << compiled.executable()->to_string();
      }
    }
  set_num_threads(0);
}

TEST(Integers, ConvolutionsBehindEachOther) {
  manual_seed(17);
  const Tensor w1 = some_bytes({24, 1, 3, 3}, DType::u8),
               w2 = some_bytes({40, 24, 3, 3}, DType::u8),
               w3 = some_bytes({24, 40, 1, 1}, DType::i8), bias = randn({24, 1, 1}),
               point = full({}, 121, DType::u8);
  const auto f = [&](const Tensor& x) {
    Tensor y = x;
    for (const Tensor& w : {w1, w2, w3}) {
      const Codes c = rounded(y);
      const int64_t pad = w.size(2) / 2;
      const ConvAttrs a{{1, 1}, {pad, pad}, {1, 1}, 1, {pad, pad}, {}};
      const Tensor zero = w.dtype() == DType::u8 ? held_codes(point) : Tensor();
      y = relu(conv_integer(c.codes, held_codes(w), c.zero, zero, a).to(DType::f32) * c.scale);
    }
    return y * 1e-4 + held_codes(bias);
  };
  expect_same_integers(f, randn({1, 1, 20, 15}), op::packed_integer_conv, 3);
}

// Transformed tiles are exact: odd sizes and channels, both signs, any padding, extremes of codes.
TEST(Integers, TransformedTiles) {
  manual_seed(19);
  const bool taken = has_own_kernel(op::integer_winograd_conv, Device());
  const OpDef& op = taken ? op::integer_winograd_conv : op::packed_integer_conv;
  struct Case {
    Shape x, w;
    IntList before, after;
    DType t;
  };
  for (const Case& c : {Case{{1, 24, 9, 11}, {24, 24, 3, 3}, {1, 1}, {1, 1}, DType::u8},
                        Case{{2, 37, 7, 8}, {70, 37, 3, 3}, {0, 2}, {1, 0}, DType::i8},
                        Case{{3, 288, 6, 5}, {33, 288, 3, 3}, {1, 1}, {1, 1}, DType::u8}}) {
    const Tensor weight = some_bytes(c.w, DType::i8),
                 bias = randint(-900, 900, {c.w[0], 1, 1}).to(DType::i32);
    for (const int64_t point : {0, c.t == DType::u8 ? 255 : -128, 9}) {
      const Tensor zero = full({}, point, c.t);
      const ConvAttrs a{{1, 1}, c.before, {1, 1}, 1, c.after, {}};
      const auto f = [&](const Tensor& v) {
        return conv_integer(v, held_codes(weight), held_codes(zero), {}, a) + held_codes(bias);
      };
      expect_same_integers(f, some_bytes(c.x, c.t), op, 1);
    }
  }
  const Tensor most = full({1, 64, 8, 8}, 255, DType::u8);
  const ConvAttrs padded{{1, 1}, {1, 1}, {1, 1}, 1, {1, 1}, {}};
  for (const int64_t code : {127, -128}) {
    const Tensor weight = full({32, 64, 3, 3}, code, DType::i8);
    const auto f = [&](const Tensor& v) {
      return conv_integer(v, held_codes(weight), {}, {}, padded);
    };
    expect_same_integers(f, most, op, 1);
  }
}

// A kernel for each channel: sizes with loops of their own and others, channels that no block
// divides, padding on all sides, both signs, zero points of both operands, extremes of codes.
TEST(Integers, Depthwise) {
  manual_seed(20);
  const bool taken = has_own_kernel(op::integer_depthwise_conv, Device());
  struct Case {
    Shape x, w;
    IntList stride, before, after;
    DType t, weight;
  };
  for (const Case& c :
       {Case{{1, 32, 9, 14}, {32, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, DType::u8, DType::i8},
        Case{{2, 40, 12, 15}, {40, 1, 3, 3}, {2, 2}, {0, 1}, {1, 1}, DType::i8, DType::u8},
        Case{{1, 17, 11, 13}, {17, 1, 5, 5}, {1, 1}, {2, 2}, {2, 2}, DType::i8, DType::i8},
        Case{{1, 48, 13, 21}, {48, 1, 5, 5}, {2, 2}, {2, 1}, {2, 3}, DType::u8, DType::u8},
        Case{{1, 16, 8, 9}, {16, 1, 7, 2}, {3, 3}, {4, 1}, {3, 2}, DType::u8, DType::i8},
        Case{{1, 150, 7, 12}, {150, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, DType::i8, DType::i8},
        Case{{2, 118, 9, 15}, {118, 1, 3, 3}, {2, 2}, {1, 1}, {1, 1}, DType::u8, DType::u8},
        Case{{1, 96, 6, 11}, {96, 1, 5, 5}, {1, 1}, {2, 2}, {2, 2}, DType::u8, DType::i8},
        Case{{1, 80, 10, 9}, {80, 1, 5, 5}, {2, 2}, {1, 2}, {2, 2}, DType::i8, DType::i8},
        Case{{3, 33, 2, 1}, {33, 1, 4, 3}, {1, 1}, {2, 2}, {2, 2}, DType::i8, DType::i8}}) {
    const int64_t channels = c.x[1].value();
    const Tensor weight = some_bytes(c.w, c.weight),
                 bias = randint(-900, 900, {channels, 1, 1}).to(DType::i32),
                 points = some_bytes({channels}, c.weight);
    const ConvAttrs a{c.stride, c.before, {1, 1}, channels, c.after, {}};
    for (const int64_t point : {0, c.t == DType::u8 ? 255 : -128, 9}) {
      SCOPED_TRACE(fmt::format("{} by {}, zero point {}", c.x.to_string(), c.w.to_string(), point));
      const Tensor zero = full({}, point, c.t);
      const auto f = [&](const Tensor& v) {
        return conv_integer(v, held_codes(weight), held_codes(zero),
                            point == 9 ? held_codes(points) : Tensor(), a) +
               held_codes(bias);
      };
      expect_same_integers(f, some_bytes(c.x, c.t), op::integer_depthwise_conv, taken ? 1 : 0);
    }
  }
  for (const int64_t code : {127, -128}) {
    const ConvAttrs a{{1, 1}, {2, 2}, {1, 1}, 16, {2, 2}, {}};
    const Tensor weight = full({16, 1, 5, 5}, code, DType::i8);
    const auto f = [&](const Tensor& v) { return conv_integer(v, held_codes(weight), {}, {}, a); };
    expect_same_integers(f, full({1, 16, 6, 9}, 255, DType::u8), op::integer_depthwise_conv,
                         taken ? 1 : 0);
  }
}

TEST(Integers, Matmuls) {
  manual_seed(18);
  const Tensor w = some_bytes({70, 100}, DType::i8), v = some_bytes({100, 33}, DType::u8),
               zeros = some_bytes({33}, DType::u8);
  const auto f = [&](const Tensor& x) {
    const Codes a = rounded(x);
    const Tensor y = matmul_integer(a.codes, held_codes(w), a.zero).to(DType::f32) * a.scale;
    const Codes b = rounded(silu(y * 0.01));
    return matmul_integer(b.codes, held_codes(v), b.zero, held_codes(zeros));
  };
  expect_same_integers(f, randn({3, 5, 70}), op::packed_integer_matmul, 2);
}

}  // namespace
}  // namespace tandem::test
