// SPDX-License-Identifier: Apache-2.0
// Networks quantised as a whole: what is folded and equalised stays the same function, codes lie
// where the plan wants them, and the function survives export and compile().
#include <gtest/gtest.h>

#include "tandem/compile/compile.h"
#include "tandem/onnx/export.h"
#include "tandem/onnx/onnx.h"
#include "tandem/quant/calibrate.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/quant/network_helper.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::quant {
namespace {

// Two convolutions with batch norms, the second in a residual block, pooling and a head.
struct Net : nn::Module {
  nn::Conv2d a{3, 8, 3, nn::ConvOptions{.padding = 1, .bias = false}};
  nn::Conv2d b{8, 8, 3, nn::ConvOptions{.padding = 1}};
  nn::BatchNorm2d na{8}, nb{8};
  nn::Linear head{8, 5};
  Net() { TD_REGISTER(a, na, b, nb, head); }
  Tensor forward(const Tensor& x) {
    const Tensor y = max_pool2d(relu(na(a(x))), 2);
    return head(mean(relu(nb(b(y)) + y), {2, 3}));
  }
};

struct Made {
  Made() {
    manual_seed(4);
    net = std::make_shared<Net>();
    for (int i = 0; i < 8; ++i) net->forward(randn({16, 3, 8, 8}) * 2.0 + 0.5);  // statistics
    net->eval();
    for (int i = 0; i < 3; ++i) batches.push_back(randn({8, 3, 8, 8}) * 2.0 + 0.5);
    f = [n = net](std::span<const Tensor> x) { return std::vector<Tensor>{n->forward(x[0])}; };
  }
  Network network() const {
    return Network(f, std::vector<Spec>{Spec(DType::f32, Shape(Dim::symbol("batch"), 3, 8, 8))});
  }
  Batches data() const { return batches_of(batches); }
  Tensor want() const {
    const NoGradGuard no_grad;
    return f({&batches[0], 1})[0];
  }
  std::shared_ptr<Net> net;
  std::vector<Tensor> batches;
  Forward f;
};

double apart(const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item<double>(); }

TEST(QuantNetwork, FoldsNormsAndEqualises) {
  const Made m;
  Network net = m.network();
  ASSERT_EQ(net.layers().size(), 3u);
  EXPECT_EQ(net.layers()[0].name, "a");
  EXPECT_EQ(net.layers()[2].name, "head");
  EXPECT_TRUE(net.layers()[0].norm && net.layers()[1].norm && !net.layers()[2].norm);
  EXPECT_TRUE(net.layers()[0].bias.defined());
  const Tensor& x = m.batches[0];
  EXPECT_LT(apart(Walk(net).run({&x, 1})[0], m.want()), 1e-4);
  EXPECT_EQ(equalise(net), 0);  // what the first layer gives has two readers
  const auto chain = [&](std::span<const Tensor> v) {
    const Tensor y = m.net->na(m.net->a(v[0]));
    return std::vector<Tensor>{m.net->b(max_pool2d(relu(y), 2))};
  };
  Network pair(chain, std::vector<Spec>{spec_of(x)});
  const Tensor before = pair.layers()[0].weight;
  EXPECT_EQ(equalise(pair), 1);
  EXPECT_GT(apart(before, pair.layers()[0].weight), 1e-4);
  const NoGradGuard no_grad;
  EXPECT_LT(apart(Walk(pair).run({&x, 1})[0], chain({&x, 1})[0]), 1e-3);
  const Tensor out = amax(abs(pair.layers()[0].weight), {1, 2, 3}),
               in = amax(abs(pair.layers()[1].weight), {0, 2, 3});
  EXPECT_LT(apart(out, in), 1e-3);
}

// Rows that take no bias get one from the norm that is folded into them.
TEST(QuantNetwork, FoldedNormsLeaveABiasWhereARowTakesNone) {
  manual_seed(5);
  nn::ConvTranspose2d grow{3, 8, 3, nn::ConvTransposeOptions{.stride = {2}, .bias = false}};
  nn::BatchNorm2d images{8};
  nn::BatchNorm1d rows{8};
  const Tensor w = randn({6, 8}), x = randn({4, 3, 5, 5}), v = randn({16, 6});
  const auto shift = [](auto& norm) {
    norm.bias.assign_(randn({8}) + 2.0);
    norm.running_mean.assign_(randn({8}));
    norm.eval();
  };
  shift(images);
  shift(rows);
  const NoGradGuard no_grad;
  const auto check = [&](const Forward& f, const Tensor& sample) {
    Network net(f, std::vector<Spec>{spec_of(sample)});
    EXPECT_TRUE(net.layers()[0].norm);
    const Tensor want = f({&sample, 1})[0];
    EXPECT_LT(apart(Walk(net).run({&sample, 1})[0], want), 1e-4);
    const Calibrated c(net, [&](const auto& see) { see({&sample, 1}); }, {});
    EXPECT_GT(decibels(want, c.quantised()({&sample, 1})[0]), 30);
  };
  check([&](std::span<const Tensor> in) { return std::vector<Tensor>{images(grow(in[0]))}; }, x);
  check(
      [&](std::span<const Tensor> in) {
        return std::vector<Tensor>{rows(matmul(in[0], constant(w)))};
      },
      v);
}

TEST(QuantNetwork, CodesLieWhereThePlanSays) {
  const Made m;
  const Network net = m.network();
  const Plan all(net, {1, 1, 1}, false);
  // The input; what comes from the pool (read by b and the sum), and with its step what goes into
  // it; the result of b; what the sum gives, and the mean of it.
  EXPECT_EQ(all.sites().size(), 6u);
  int tied = 0;
  for (size_t i = 0; i < all.sites().size(); ++i)
    tied += all.sites()[i].source != static_cast<int>(i);
  EXPECT_EQ(tied, 1);
  EXPECT_EQ(Plan(net, {1, 0, 0}, false).sites().size(), 1u);
  EXPECT_EQ(Plan(net, {1, 1, 1}, true).sites().size(), 7u);
}

TEST(QuantNetwork, IsCloseAndSurvivesExportAndCompile) {
  const Made m;
  const TempFolder folder;
  for (const DType codes : {DType::u8, DType::i8}) {
    Network net = m.network();
    QuantizeOptions options;
    options.activations = codes;
    options.outputs = codes == DType::i8;
    const Calibrated c(net, m.data(), options);
    const Quantized q = c.quantised();
    const Tensor& x = m.batches[0];
    const Tensor got = q({&x, 1})[0];
    EXPECT_GT(decibels(m.want(), got), 25);
    EXPECT_LT(q.weight_bytes(), net.weight_bytes() / 3);
    const auto report = onnx::export_onnx_function(
        [&](std::span<const Tensor> v) { return q(v); }, {&x, 1}, folder / "q.onnx",
        {.dynamic = {{0, "batch"}}, .external_data = false});
    EXPECT_TRUE(report.custom_ops.empty());
    const onnx::OnnxModel back = onnx::OnnxModel::load(folder / "q.onnx");
    int quantize = 0, dequantize = 0;
    for (const onnx::OnnxNode& n : back.proto().graph.nodes) {
      quantize += n.op == "QuantizeLinear";
      dequantize += n.op == "DequantizeLinear";
    }
    EXPECT_EQ(quantize, static_cast<int>(q.plan().sites().size()));
    EXPECT_EQ(dequantize, quantize + 3 + 3);  // weights and biases
    const Tensor half = x.narrow(0, 0, 3);
    EXPECT_LT(apart(back({half})[0], got.narrow(0, 0, 3)), 1e-4);
    auto compiled = compile([&](const Tensor& v) { return q({&v, 1})[0]; });
    const NoGradGuard no_grad;
    EXPECT_GT(decibels(got, compiled(x)), 30);
  }
}

TEST(QuantNetwork, LayersThatStayAndTheirFigures) {
  const Made m;
  Network net = m.network();
  QuantizeOptions options;
  options.keep_float = {"b"};
  const Tensor& x = m.batches[0];
  const Tensor before = Walk(net).run({&x, 1})[0];
  const Calibrated c(net, m.data(), options);
  const std::vector<double> each = c.sensitivity(m.data());
  const Quantized q = c.quantised({2});
  const std::vector<LayerFigures> figures = c.figures(q, each);
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_TRUE(figures[0].quantised && !figures[1].quantised && !figures[2].quantised);
  EXPECT_EQ(figures[0].bytes, 8 * 27 + 4 * (8 + 8 + 8));
  EXPECT_EQ(figures[1].bytes, 4 * (8 * 72 + 8));
  EXPECT_GT(figures[0].weight_sqnr, 35);
  EXPECT_GT(each[0], 20);
  // Layers alone, without what does not follow from them, are those of the whole network.
  for (const auto& [layer, others] :
       {std::pair<size_t, std::vector<size_t>>{0, {1, 2}}, {2, {0, 1}}}) {
    const Quantized alone = c.quantised(others);
    std::vector<Tensor> want, got;
    for (const Tensor& batch : m.batches) {
      want.push_back(Walk(net).run({&batch, 1})[0]);
      got.push_back(alone({&batch, 1})[0]);
    }
    EXPECT_EQ(each[layer], sqnr(want, got)) << layer;
  }
  // Layers in floating point are the model's: corrections belong to those that are rounded.
  EXPECT_EQ(apart(c.quantised({0, 2})({&x, 1})[0], before), 0);
}

TEST(QuantNetwork, EachChannelItsScaleAndItsMean) {
  const Made m;
  const auto error = [&](bool per_channel, bool correct) {
    Network net = m.network();
    Layer& l = net.layers()[0];
    l.weight = l.weight * (arange(8).to(float32) * 2.0 + 0.1).reshape({8, 1, 1, 1});
    const Tensor want = Walk(net).run({&m.batches[0], 1})[0];
    QuantizeOptions options;
    options.per_channel = per_channel;
    options.correct_bias = correct;
    const Calibrated c(net, m.data(), options);
    return decibels(want, c.quantised()({&m.batches[0], 1})[0]);
  };
  EXPECT_GT(error(true, false), error(false, false));
  EXPECT_GT(error(false, true), error(false, false));
}

// Corrections are means over samples, however these come in batches.
TEST(QuantNetwork, ASmallBatchCountsByItsSamples) {
  const Made m;
  const Tensor& all = m.batches[0];
  const auto corrected = [&](const std::vector<Tensor>& batches) {
    Network net = m.network();
    QuantizeOptions options;
    options.method = Method::min_max;
    options.correct_bias = true;
    return Calibrated(net, batches_of(batches), options).quantised()({&all, 1})[0];
  };
  const Tensor whole = corrected({all});
  EXPECT_LT(apart(corrected({all.narrow(0, 0, 7), all.narrow(0, 7, 1)}), whole), 1e-5);
  EXPECT_GT(apart(corrected({all.narrow(0, 0, 7)}), whole), 1e-5);
}

TEST(QuantNetwork, SaysWhatItWants) {
  const Made m;
  Network net = m.network();
  const auto refused = [](const char* text, auto f) {
    const std::string got = error_of(f);
    EXPECT_TRUE(has(got, text)) << got;
  };
  QuantizeOptions keep, percent;
  keep.keep_float = {"heat"};
  percent.percent = 0.9999;
  refused("no layer is called 'heat'. Did you mean 'head'?",
          [&] { Calibrated(net, m.data(), keep); });
  refused("a percentile of 0.9999 was asked for", [&] { Calibrated(net, m.data(), percent); });
  Network broken = m.network();
  broken.layers()[2].weight = where(arange(8) == 3, NAN, broken.layers()[2].weight);
  refused("the weight or bias of layer 'head' holds values that are not finite", [&] {
    QuantizeOptions plain;
    plain.correct_bias = false;
    Calibrated(broken, m.data(), plain).quantised();
  });
  refused("there is no data to calibrate with",
          [&] { Calibrated(net, [](const std::function<void(std::span<const Tensor>)>&) {}, {}); });
  const std::vector<Spec> in = {Spec(DType::f32, Shape(2, 3))};
  refused("there is nothing to quantise", [&] {
    Network([](std::span<const Tensor> x) { return std::vector<Tensor>{relu(x[0])}; }, in);
  });
  refused("draws random numbers", [&] {
    Network([](std::span<const Tensor> x) { return std::vector<Tensor>{dropout(x[0], 0.5)}; }, in);
  });
}

}  // namespace
}  // namespace tandem::quant
