// SPDX-License-Identifier: Apache-2.0
// Attention and LSTM kernels against their rows' bodies.
#include "tests/backend/against_reference_helper.h"

namespace tandem::cpu_test {
namespace {

struct Sequence : testing::Test {
  static void SetUpTestSuite() { init(); }
  void SetUp() override { manual_seed(13); }
};

struct AttentionCase {
  Shape q, k, v;
};

// Forward and backward of one call; `backward` tells whether the kernel supports that too.
void check_attention(AttentionAttrs a, Tensor q, Tensor k, Tensor v, Tensor mask,
                     const std::string& how, bool backward = true) {
  const std::string what = q.shape().to_string() + " " + k.shape().to_string() + how;
  check(op::attention, &a, {q, k, v, mask}, "attention " + what);
  Tensors y = run_op(op::attention, &a, {q, k, v, mask});
  Tensor g = random(y[0].shape()), gl = random(y[1].shape());
  check(op::attention_backward, &a, {g, q, k, v, y[0], y[1], mask, Tensor()}, "backward " + what,
        backward, 2e-5);
  check(op::attention_backward, &a, {g, q, k, v, y[0], y[1], mask, gl}, "with glse " + what,
        backward, 2e-5);
}

TEST_F(Sequence, AttentionShapes) {
  const AttentionCase cases[] = {{{1, 1}, {1, 1}, {1, 1}},
                                 {{5, 8}, {7, 8}, {7, 3}},
                                 {{2, 3, 64, 32}, {2, 3, 64, 32}, {2, 3, 64, 32}},
                                 {{2, 2, 70, 16}, {2, 2, 300, 16}, {2, 2, 300, 24}},
                                 {{3, 130, 40}, {3, 520, 40}, {3, 520, 40}}};
  for (const AttentionCase& c : cases)
    for (bool causal : {false, true})
      check_attention({causal, causal ? 0.3 : 0.0, false}, random(c.q), random(c.k), random(c.v),
                      Tensor(), causal ? " causal" : "");
}

TEST_F(Sequence, AttentionLayouts) {
  Tensor x = random({2, 20, 3, 3, 16});  // [n, l, three, heads, e]
  auto part = [&](int64_t i) { return x.select(2, i).transpose(1, 2); };
  check_attention({true, 0, false}, part(0), part(1), part(2), Tensor(), " fused projection");
  Tensor q = random({2, 8, 33, 16}), k = random({2, 2, 33, 16});
  check_attention({true, 0, false}, q, k, random({2, 2, 33, 16}), Tensor(), " shared heads");
  check_attention({false, 0, false}, q, random({1, 1, 9, 16}), random({1, 1, 9, 5}), Tensor(),
                  " broadcast keys", false);
}

TEST_F(Sequence, AttentionMasks) {
  Tensor q = random({2, 3, 40, 16}), k = random({2, 3, 50, 16}), v = random({2, 3, 50, 16});
  Tensor keep = rand({2, 1, 40, 50}) > 0.3, add = random({40, 50});
  check_attention({false, 0, false}, q, k, v, keep, " bool mask");
  check_attention({false, 0, false}, q, k, v, add, " float mask");
  check_attention({true, 0, false}, q, k, v, keep.select(0, 0), " causal mask");
  check_attention({false, 0, false}, q, k, v, rand({50}) > 2.0, " nothing seen");
}

TEST_F(Sequence, AttentionOfOtherDtypes) {
  AttentionAttrs a;
  for (DType t : {DType::f64, DType::bf16}) {
    Tensor q = random({2, 5, 8}, t);
    check(op::attention, &a, {q, q, q, Tensor()}, "attention", t == DType::bf16, 1e-2);
  }
  for (DType t : {DType::bf16, DType::f16}) {
    Tensor x = random({2, 70, 3, 4, 16}, t);
    const auto part = [&](int64_t i) { return x.select(2, i).transpose(1, 2); };
    a.causal = true;
    check(op::attention, &a, {part(0), part(1), part(2), Tensor()}, "heads of one matrix", true,
          1e-2);
    check(op::attention, &a, {part(0), part(1), part(2), random({70, 70}, t)}, "mask", true, 1e-2);
    Tensors y = run_op(op::attention, &a, {part(0), part(1), part(2), Tensor()});
    Tensor gy = random({2, 4, 70, 16}, t);
    check(op::attention_backward, &a,
          {gy, part(0), part(1), part(2), y[0], y[1], Tensor(), Tensor()}, "gradients", true, 2e-2);
  }
}

void check_gru(int64_t t, int64_t n, int64_t in, int64_t h, bool reverse, bool bias) {
  const std::string what = fmt::format("gru t{} n{} i{} h{} reverse {}", t, n, in, h, reverse);
  LstmAttrs a{reverse};
  Tensor x = random({t, n, in}), h0 = random({n, h}), none;
  Tensor wi = random({3 * h, in}) * 0.3, wh = random({3 * h, h}) * 0.3;
  Tensor bi = bias ? random({3 * h}) : none, bh = bias ? random({3 * h}) : none;
  check(op::gru, &a, {x, h0, wi, wh, bi, bh}, what, true, 3e-5);
  Tensors y = run_op(op::gru, &a, {x, h0, wi, wh, bi, bh});
  Tensor gy = random({t, n, h}), gh = random({n, h}), gs = random({t, n, 4 * h});
  check(op::gru_backward, &a, {gy, gh, gs, wh, h0, y[0], y[2]}, what + " backward", true, 3e-5);
  check(op::gru_backward, &a, {gy, none, none, wh, h0, y[0], y[2]}, what + " y alone", true, 3e-5);
  check(op::gru_backward, &a, {none, gh, none, wh, h0, y[0], y[2]}, what + " h alone", true, 3e-5);
}

void check_rnn(int64_t t, int64_t n, int64_t in, int64_t h, bool reverse, bool relu) {
  const std::string what = fmt::format("rnn t{} n{} i{} h{} reverse {}", t, n, in, h, reverse);
  RnnAttrs a{reverse, relu};
  Tensor x = random({t, n, in}), h0 = random({n, h}), none;
  Tensor wi = random({h, in}) * 0.3, wh = random({h, h}) * 0.2, bi = random({h});
  check(op::rnn, &a, {x, h0, wi, wh, bi, none}, what, true, 3e-5);
  Tensor y = run_op(op::rnn, &a, {x, h0, wi, wh, bi, none})[0];
  Tensor gy = random({t, n, h}), gh = random({n, h});
  check(op::rnn_backward, &a, {gy, gh, wh, y}, what + " backward", true, 3e-5);
  check(op::rnn_backward, &a, {none, gh, wh, y}, what + " h alone", true, 3e-5);
}

void check_lstm(int64_t t, int64_t n, int64_t in, int64_t h, bool reverse, bool bias) {
  const std::string what = fmt::format("lstm t{} n{} i{} h{} reverse {}", t, n, in, h, reverse);
  LstmAttrs a{reverse};
  Tensor x = random({t, n, in}), h0 = random({n, h}), c0 = random({n, h});
  Tensor wi = random({4 * h, in}) * 0.3, wh = random({4 * h, h}) * 0.2;
  Tensor bi = bias ? random({4 * h}) : Tensor(), bh = bias ? random({4 * h}) : Tensor();
  check(op::lstm, &a, {x, h0, c0, wi, wh, bi, bh}, what, true, 3e-5);
  Tensors y = run_op(op::lstm, &a, {x, h0, c0, wi, wh, bi, bh});
  Tensor gy = random({t, n, h}), gh = random({n, h}), gc = random({n, h}),
         gs = random({t, n, 5 * h});
  check(op::lstm_backward, &a, {gy, gh, gc, gs, wh, c0, y[3]}, what + " backward", true, 3e-5);
  check(op::lstm_backward, &a, {gy, Tensor(), Tensor(), Tensor(), wh, c0, y[3]}, what + " y alone",
        true, 3e-5);
  check(op::lstm_backward, &a, {Tensor(), Tensor(), gc, Tensor(), wh, c0, y[3]}, what + " c alone",
        true, 3e-5);
}

TEST_F(Sequence, RecurrentLayers) {
  for (bool reverse : {false, true}) {
    for (bool second : {false, true}) {
      check_gru(1, 1, 1, 1, reverse, second);
      check_gru(5, 3, 4, 7, reverse, second);
      check_gru(4, 9, 5, 70, reverse, second);
      check_gru(3, 32, 16, 128, reverse, second);
      check_gru(3, 1, 20, 136, reverse, second);  // one row of whole panels and a rest
      check_rnn(1, 1, 1, 1, reverse, second);
      check_rnn(5, 3, 4, 7, reverse, second);
      check_rnn(4, 9, 5, 70, reverse, second);
      check_rnn(3, 32, 16, 128, reverse, second);
    }
    check_lstm(1, 1, 1, 1, reverse, true);
    check_lstm(5, 3, 4, 7, reverse, false);
    check_lstm(2, 2, 1400, 190, reverse, true);  // weights beyond a core's cache
    check_lstm(6, 4, 8, 32, reverse, true);
    check_lstm(4, 9, 5, 70, reverse, true);
    check_lstm(3, 32, 16, 128, reverse, true);
    check_lstm(12, 1, 24, 32, reverse, true);  // few rows in a step
    check_lstm(3, 1, 20, 300, reverse, true);  // one row, whole panels, two blocks of k
    check_lstm(1, 1, 20, 136, reverse, true);
  }
}

// 16-bit layers compute in f32: nearer to the f32 layer of the same numbers than steps that round.
TEST_F(Sequence, RecurrentLayersOf16Bits) {
  LstmAttrs a{false};
  for (DType d : {DType::bf16, DType::f16}) {
    const auto low = [&](const Shape& s, double scale) { return (random(s) * scale).to(d); };
    const Tensors in{low({9, 3, 8}, 1),  low({3, 16}, 1), low({3, 16}, 1), low({64, 8}, 0.3),
                     low({64, 16}, 0.2), low({64}, 1),    low({64}, 1)};
    Tensors wide;
    for (const Tensor& t : in) wide.push_back(t.to(DType::f32));
    const Tensors got = run_op(op::lstm, &a, in), want = run_op(op::lstm, &a, wide);
    EXPECT_TRUE(has_kernel(op::lstm, &a, in, got));
    for (size_t i = 0; i < got.size(); ++i)
      expect_same_bits(got[i], want[i].to(d), fmt::format("lstm output {}", i));
    const Tensors gru{in[0], in[1], low({48, 8}, 0.3), low({48, 16}, 0.2), Tensor(), Tensor()};
    const Tensors y = run_op(op::gru, &a, gru);
    EXPECT_TRUE(has_kernel(op::gru, &a, gru, y));
    EXPECT_EQ(y[0].dtype(), d);
  }
}

TEST_F(Sequence, LstmCell) {
  for (auto [n, h] : {std::pair<int64_t, int64_t>{1, 1}, {3, 33}, {20, 130}}) {
    Tensor c = random({n, h});
    check(op::lstm_cell, nullptr, {random({n, 4 * h}), c}, "lstm_cell");
    Tensor saved = run_op(op::lstm_cell, nullptr, {random({n, 4 * h}), c})[2];
    check(op::lstm_cell_backward, nullptr,
          {random({n, h}), random({n, h}), random({n, 5 * h}), saved, c}, "lstm_cell_backward");
    check(op::lstm_cell_backward, nullptr, {random({n, h}), Tensor(), Tensor(), saved, c},
          "lstm_cell_backward of h");
  }
}

}  // namespace
}  // namespace tandem::cpu_test
