// SPDX-License-Identifier: Apache-2.0
// Kernels of softmax, norms and losses against their rows' bodies and references.
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tests/backend/against_reference_helper.h"

namespace tandem::cpu_test {
namespace {

struct RowKernels : testing::Test {
  static void SetUpTestSuite() { init(); }
  void SetUp() override { manual_seed(11); }
};

const Shape kRowShapes[] = {{1, 1}, {3, 7}, {5, 64}, {2, 3, 130}, {40, 1000}, {300, 33}, {1}, {9}};

TEST_F(RowKernels, Softmax) {
  for (const Shape& s : kRowShapes) {
    SoftmaxAttrs a{s.rank() - 1};
    Tensor x = random(s) * 5, g = random(s);
    check(op::softmax, &a, {x}, "softmax " + s.to_string());
    check(op::log_softmax, &a, {x}, "log_softmax " + s.to_string());
    check(op::softmax_backward, &a, {g, softmax(x, -1)}, "softmax_backward " + s.to_string());
    check(op::log_softmax_backward, &a, {g, log_softmax(x, -1)}, "backward " + s.to_string());
  }
  SoftmaxAttrs first{0};
  check(op::softmax, &first, {random({4, 5})}, "other dimension", false);
  SoftmaxAttrs last{1};
  check(op::softmax, &last, {random({5, 4}).t()}, "transposed", false);
  check(op::softmax, &last, {random({5, 4}, DType::f64)}, "f64", false);
}

// Lines that lie beside each other have the bits of rows, whichever way they are computed.
TEST_F(RowKernels, SoftmaxOfColumns) {
  for (int64_t n : {1, 2, 7, 16, 21, 33, 48, 63, 64, 65, 150, 1030})
    for (int64_t inner : {3, 8, 70}) {
      const std::string what = fmt::format("n {} inner {}", n, inner);
      Tensor x = random({2, n, inner}) * 4, g = random({2, n, inner});
      if (n > 2) x = where(rand({2, n, inner}) < 0.01, full({}, -INFINITY), x);
      const auto turned = [](const Tensor& t) { return t.transpose(1, 2).contiguous(); };
      SoftmaxAttrs middle{1}, last{2};
      for (const OpDef* op : {&op::softmax, &op::log_softmax}) {
        check(*op, &middle, {x}, op->name + (" " + what));
        const Tensor want = run_op(*op, &last, {turned(x)})[0];
        expect_same_bits(run_op(*op, &middle, {x})[0], turned(want), op->name + (" " + what));
      }
      const Tensor y = softmax(x, 1);
      for (const OpDef* op : {&op::softmax_backward, &op::log_softmax_backward}) {
        const Tensor want = run_op(*op, &last, {turned(g), turned(y)})[0];
        expect_same_bits(run_op(*op, &middle, {g, y})[0], turned(want), op->name + (" " + what));
      }
    }
}

TEST_F(RowKernels, SoftmaxOfLargeAndInfiniteValues) {
  const float inf = INFINITY;
  Tensor x = tensor(std::vector<float>{1000, 999, -inf, 3, -inf, -inf, inf, 1, 2}).reshape({3, 3});
  std::vector<float> y = softmax(x, -1).to_vector<float>();
  EXPECT_NEAR(y[0], 0.7310586f, 1e-6);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], 1);
  EXPECT_TRUE(std::isnan(y[6]));
  SoftmaxAttrs a{1};
  check(op::softmax, &a, {x}, "infinite");
}

TEST_F(RowKernels, LayerNormAndRmsNorm) {
  for (const Shape& s : kRowShapes)
    for (int dims = 1; dims <= std::min(2, s.rank()); ++dims)
      for (int mode = 0; mode < 4; ++mode) {
        Shape tail;
        for (int i = s.rank() - dims; i < s.rank(); ++i) tail.push_back(s[i]);
        Tensor x = random(s) * 2 + 3, g = random(s);
        Tensor w = mode & 1 ? random(tail) : Tensor(), b = mode & 2 ? random(tail) : Tensor();
        const std::string what = s.to_string() + " dims " + std::to_string(dims);
        NormAttrs a{dims, 1e-5};
        check(op::layer_norm, &a, {x, w, b}, "layer_norm " + what);
        check(op::rms_norm, &a, {x, w}, "rms_norm " + what);
        Tensors y = run_op(op::layer_norm, &a, {x, w, b}), z = run_op(op::rms_norm, &a, {x, w});
        NormBackwardAttrs back{dims, (mode & 1) != 0, (mode & 2) != 0};
        // Gradients lose digits where a row has few values: x - mean cancels.
        check(op::layer_norm_backward, &back, {g, x, y[1], y[2], w}, "backward " + what, true,
              1e-4);
        check(op::rms_norm_backward, &back, {g, x, z[1], w}, "rms backward " + what, true, 1e-4);
      }
  NormAttrs a{1, 1e-5};
  check(op::layer_norm, &a, {random({6, 5}).t(), Tensor(), Tensor()}, "transposed", false);
  check(op::layer_norm, &a, {random({6, 5}, DType::bf16), Tensor(), Tensor()}, "bf16", false);
}

// The kernels of 16-bit rows read f32 statistics, which layer_norm saves; others are the body's.
TEST_F(RowKernels, StatisticsOfAnotherDType) {
  const Tensor x = random({300, 33}, DType::bf16) * 2, g = random({300, 33}, DType::bf16);
  const Tensor w = random({33}, DType::bf16);
  NormAttrs a{1, 1e-5};
  NormBackwardAttrs back{1, true, true};
  const Tensors y = run_op(op::layer_norm, &a, {x, w, Tensor()});
  const Tensors z = run_op(op::rms_norm, &a, {x, w});
  for (const DType t : {DType::bf16, DType::f64}) {
    const Tensor mean = y[1].to(t), rstd = y[2].to(t), root = z[1].to(t);
    const Tensors got = run_op(op::layer_norm_backward, &back, {g, x, mean, rstd, w});
    const Tensors want =
        run_op(op::layer_norm_backward, &back, {g, x, mean.to(DType::f32), rstd.to(DType::f32), w});
    for (size_t k = 0; k < want.size(); ++k)
      EXPECT_TRUE(allclose(got[k], want[k], 2e-2, 2e-2)) << to_string(t) << " output " << k;
    EXPECT_TRUE(allclose(run_op(op::rms_norm_backward, &back, {g, x, root, w})[0],
                         run_op(op::rms_norm_backward, &back, {g, x, root.to(DType::f32), w})[0],
                         2e-2, 2e-2))
        << to_string(t);
  }
}

TEST_F(RowKernels, BatchNorm) {
  const Shape shapes[] = {{8, 5},    {300, 40},        {2, 3, 5, 5},     {4, 16, 6, 7},
                          {3, 1, 9}, {2, 20, 3, 4, 5}, {16, 64, 12, 12}, {2, 1, 1, 1}};
  for (const Shape& s : shapes)
    for (int mode = 0; mode < 8; ++mode) {
      const bool last = mode & 4 && s.rank() > 2;
      auto lay = [&](Tensor t) { return last ? channels_last(t) : t; };
      Tensor x = lay(random(s) * 2 + 30), g = lay(random(s));
      Tensor w = mode & 1 ? random({s[1]}) : Tensor(), b = mode & 2 ? random({s[1]}) : Tensor();
      const std::string what = s.to_string() + " mode " + std::to_string(mode);
      NormAttrs a{0, 1e-5};
      check(op::batch_norm_train, &a, {x, w, b}, "train " + what, true, 1e-4);
      Tensors y = run_op(op::batch_norm_train, &a, {x, w, b});
      EXPECT_EQ(array_of(y[0]).contiguous, array_of(x).contiguous) << what;
      check(op::batch_norm_infer, &a, {x, y[1], y[2], w, b}, "infer " + what, true, 1e-4);
      NormBackwardAttrs back{0, (mode & 1) != 0, (mode & 2) != 0};
      check(op::batch_norm_backward, &back, {g, x, y[1], y[3], w}, "backward " + what, true, 1e-3);
      if (s.rank() > 2)
        check(op::batch_norm_backward, &back,
              {last ? g.contiguous() : channels_last(g), x, y[1], y[3], w}, "mixed " + what, true,
              1e-3);
    }
}

TEST_F(RowKernels, CrossEntropy) {
  for (const Shape& s : {Shape{1, 2}, Shape{64, 10}, Shape{33, 1000}, Shape{5, 3000}})
    for (int mode = 0; mode < 12; ++mode) {
      const int64_t n = s[0].value(), classes = s[1].value();
      ClassLossAttrs a;
      a.reduction = mode % 3;
      a.label_smoothing = mode & 4 ? 0.1 : 0;
      Tensor w = mode >= 8 ? rand({classes}) + 0.5 : Tensor();
      Tensor x = random(s) * 3,
             t = (rand({n}) * (static_cast<double>(classes) - 0.01)).to(DType::i64);
      if (n > 4) {
        std::vector<int64_t> labels = t.to_vector<int64_t>();
        labels[2] = -100;
        t = tensor(labels);
      }
      const std::string what = s.to_string() + " mode " + std::to_string(mode);
      check(op::softmax_cross_entropy, &a, {x, t, w}, "cross_entropy " + what);
      Tensors y = run_op(op::softmax_cross_entropy, &a, {x, t, w});
      Tensor g = random(y[0].shape());
      check(op::softmax_cross_entropy_backward, &a, {g, x, t, y[1], y[2], w}, "backward " + what);
    }
}

// Pixels: against the reference, and the bits of the same logits as rows.
TEST_F(RowKernels, CrossEntropyOfPixels) {
  for (const Shape& s :
       {Shape{2, 2, 3}, Shape{3, 21, 5, 20}, Shape{1, 150, 9, 9}, Shape{2, 1100, 12}})
    for (int mode = 0; mode < 12; ++mode) {
      const int64_t classes = s[1].value();
      ClassLossAttrs a;
      a.reduction = mode % 3;
      a.label_smoothing = mode & 4 ? 0.1 : 0;
      const Tensor w = mode >= 8 ? rand({classes}) + 0.5 : Tensor();
      Shape labels = s;
      labels.erase(1);
      const Tensor x = random(s) * 3, drawn = rand(labels);
      const Tensor t = where(drawn < 0.05, full({}, -100, DType::i64),
                             (drawn * (static_cast<double>(classes) - 0.01)).to(DType::i64));
      const std::string what = s.to_string() + " mode " + std::to_string(mode);
      check(op::softmax_cross_entropy, &a, {x, t, w}, "cross_entropy " + what);
      const Tensors y = run_op(op::softmax_cross_entropy, &a, {x, t, w});
      const Tensor g = random(y[0].shape());
      check(op::softmax_cross_entropy_backward, &a, {g, x, t, y[1], y[2], w}, "backward " + what);
      const Tensor rows = x.flatten(2).transpose(1, 2).reshape({-1, classes}).contiguous();
      const Tensors flat = run_op(op::softmax_cross_entropy, &a, {rows, t.reshape({-1}), w});
      expect_same_bits(y[0].reshape({-1}), flat[0].reshape({-1}), what);
      expect_same_bits(y[1].reshape({-1}), flat[1], what + " log of sums");
    }
}

TEST_F(RowKernels, CrossEntropyNamesABadLabel) {
  Tensor x = random({3, 5});
  try {
    cross_entropy(x, tensor(std::vector<int64_t>{0, 5, 1}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find('5'), std::string::npos);
  }
}

// All instruction sets give the same bits.
TEST_F(RowKernels, InstructionSets) {
  std::vector<const detail::RowLoops*> all{&detail::kRowsBase};
  if (cpu_features().avx2) all.push_back(&detail::kRowsAvx2);
  if (cpu_features().avx512) all.push_back(&detail::kRowsAvx512);
  const int64_t h = 77;
  std::vector<float> x = (random({4 * h}) * 3).to_vector<float>(),
                     c = random({h}).to_vector<float>();
  std::vector<std::vector<float>> results;
  for (const detail::RowLoops* l : all) {
    std::vector<float> r(12 * h), s(2);
    r.push_back(l->max(x.data(), 4 * h));
    r.push_back(l->sum(x.data(), 4 * h));
    r.push_back(l->exp(r.data(), x.data(), 2, h));
    r.push_back(l->square_sum(x.data(), 0.3f, 4 * h));
    l->norm_sums(x.data(), x.data() + h, c.data(), 0.1f, 1.7f, h, s.data());
    r.insert(r.end(), s.begin(), s.end());
    l->lstm_cell(x.data(), c.data(), r.data() + h, r.data() + 2 * h, r.data() + 3 * h, h, h);
    l->log_softmax_grad(r.data() + 8 * h, x.data(), c.data(), 0.7f, h);
    l->norm_grad(r.data() + 9 * h, x.data(), x.data() + h, c.data(), 0.1f, 2, 0.2f, 0.3f, 2, h);
    results.push_back(r);
  }
  for (size_t i = 1; i < results.size(); ++i)
    EXPECT_EQ(std::memcmp(results[0].data(), results[i].data(), results[0].size() * sizeof(float)),
              0);
}

}  // namespace
}  // namespace tandem::cpu_test
