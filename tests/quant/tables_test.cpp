// SPDX-License-Identifier: Apache-2.0
// Tables of which rows are looked up, such as embeddings: their codes, and networks that look them
// up as functions, ONNX files and compiled.
#include <gtest/gtest.h>

#include "tandem/onnx/export.h"
#include "tandem/onnx/model.h"
#include "tandem/quant/calibrate.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/quant/network_helper.h"
#include "tests/support/errors.h"

namespace tandem::quant {
namespace {

constexpr int64_t kWords = 40, kWidth = 12;

struct Texts : nn::Module {
  Texts() : words(kWords, kWidth), norm(kWidth), fc(kWidth, 5) { TD_REGISTER(words, norm, fc); }
  Tensor forward(Tensor ids) { return fc(relu(norm(mean(words(ids), {1})))); }
  nn::Embedding words;
  nn::LayerNorm norm;
  nn::Linear fc;
};

struct Fixture {
  Fixture() {
    init();
    manual_seed(3);
    net = std::make_shared<Texts>();
    // Columns of different sizes: one scale for all would lose the small ones.
    const NoGradGuard no_grad;
    net->words.weight.assign_(net->words.weight.value() * exp(arange(kWidth).to(DType::f32) * 0.5));
    net->eval();
    ids = remainder(arange(24) * 7, kWords).reshape({6, 4});
  }
  Forward forward() const {
    return [net = net](std::span<const Tensor> x) { return std::vector<Tensor>{(*net)(x[0])}; };
  }
  Network network() const {
    return Network(forward(),
                   std::vector<Spec>{Spec(DType::i64, Shape(Dim::symbol("batch"), ids.size(1)))});
  }
  Batches data() const {
    return [this](const std::function<void(std::span<const Tensor>)>& see) { see({&ids, 1}); };
  }
  std::shared_ptr<Texts> net;
  Tensor ids;
};

TEST(QuantTables, AreCodesWithAScaleForEachColumn) {
  const Fixture f;
  Network net = f.network();
  ASSERT_EQ(net.tables().size(), 1u);
  EXPECT_EQ(net.tables()[0].name, "words");
  EXPECT_EQ(net.weight_bytes(), 4 * (kWords * kWidth + kWidth * 5 + 5));
  const Calibrated c(net, f.data(), {});
  const Quantized q = c.quantised();
  EXPECT_EQ(q.table(0).rows.dtype(), DType::i8);
  EXPECT_EQ(q.table(0).scale.shape(), Shape(kWidth));
  EXPECT_EQ(q.weight_bytes(), kWords * kWidth + 4 * kWidth + kWidth * 5 + 4 * (5 + 2 * 5));
  const std::vector<TableFigures> figures = c.tables(q);
  EXPECT_TRUE(figures.at(0).quantised);
  EXPECT_GT(figures[0].weight_sqnr, 38);
  const NoGradGuard no_grad;
  const Tensor want = (*f.net)(f.ids);
  const double each_column = decibels(want, q({&f.ids, 1})[0]);
  EXPECT_GT(each_column, 30);
  const Quantized one(net, Plan(net, {0}, false), {}, {.per_channel = false});
  EXPECT_EQ(one.table(0).scale.dim(), 0);
  EXPECT_LT(decibels(want, one({&f.ids, 1})[0]), each_column);
}

TEST(QuantTables, StayInFloatingPointWhereAskedFor) {
  const Fixture f;
  Network net = f.network();
  const auto with = [&](const char* name) {
    QuantizeOptions o;
    o.keep_float = {name};
    return Calibrated(net, f.data(), o).quantised();
  };
  EXPECT_FALSE(with("words").table(0).rows.defined());
  EXPECT_TRUE(with("words").plan().is_quantised(0));
  EXPECT_TRUE(with("fc").table(0).rows.defined());
  EXPECT_FALSE(with("fc").plan().is_quantised(0));
  EXPECT_NE(error_of([&] { with("wordss"); }).find("Did you mean 'words'?"), std::string::npos);
  const NoGradGuard no_grad;
  f.net->words.weight.assign_(full({kWords, kWidth}, NAN));
  Network broken = f.network();
  EXPECT_NE(error_of([&] {
              Quantized(broken, Plan(broken, {0}, false), {}, {});
            }).find("the table 'words' holds values that are not finite"),
            std::string::npos);
}

TEST(QuantTables, AreLookedUpInFiles) {
  const Fixture f;
  const TempFolder folder;
  Network net = f.network();
  const Quantized q = Calibrated(net, f.data(), {}).quantised();
  const std::string path = folder / "q.onnx";
  const auto report =
      onnx::export_onnx_function([&](std::span<const Tensor> v) { return q(v); }, {&f.ids, 1}, path,
                                 {.dynamic = {{0, "batch"}}, .external_data = false});
  EXPECT_TRUE(report.custom_ops.empty());
  const NoGradGuard no_grad;
  const Tensor want = q({&f.ids, 1})[0];
  EXPECT_GT(decibels(want, onnx::OnnxModel::load(path)({f.ids})[0]), 45);
}

// Up to twice the size and back to the layer before: a transposed convolution is a layer like
// others.
TEST(QuantTransposed, ConvolutionsHaveCodes) {
  init();
  manual_seed(8);
  const TempFolder folder;
  struct Net : nn::Module {
    Net() { TD_REGISTER(down, up, out); }
    Tensor forward(const Tensor& x) { return out(relu(up(relu(down(x))))); }
    nn::Conv2d down{3, 6, 2, nn::ConvOptions{.stride = 2}};
    nn::ConvTranspose2d up{6, 10, 2, nn::ConvTransposeOptions{.stride = 2}};
    nn::Conv2d out{10, 4, 1};
  };
  const auto net = std::make_shared<Net>();
  net->eval();
  const Tensor x = randn({4, 3, 8, 8});
  const Forward f = [net](std::span<const Tensor> v) { return std::vector<Tensor>{(*net)(v[0])}; };
  const auto data = [&](const std::function<void(std::span<const Tensor>)>& see) { see({&x, 1}); };
  const NoGradGuard no_grad;
  const Tensor want = (*net)(x);
  for (const bool equalised : {false, true}) {
    Network n(f, std::vector<Spec>{
                     Spec(DType::f32, Shape(Dim::symbol("batch"), 3, Dim::symbol("height"), 8))});
    ASSERT_EQ(n.layers().size(), 3u);
    EXPECT_EQ(n.layers()[1].axis, 1);
    if (equalised) {
      EXPECT_GT(equalise(n), 0);
    }
    QuantizeOptions o;
    o.adaround = equalised ? 20 : 0;
    const Quantized q = Calibrated(n, data, o).quantised();
    EXPECT_EQ(q.codes(1).scale.shape(), Shape(10));
    EXPECT_GT(decibels(want, q({&x, 1})[0]), 28);
    const std::string path = folder / "up.onnx";
    onnx::export_onnx_function([&](std::span<const Tensor> v) { return q(v); }, {&x, 1}, path,
                               {.dynamic = {{0, "batch"}, {2, "height"}}, .external_data = false});
    EXPECT_GT(decibels(want, onnx::OnnxModel::load(path)({x})[0]), 28);
  }
}

}  // namespace
}  // namespace tandem::quant
