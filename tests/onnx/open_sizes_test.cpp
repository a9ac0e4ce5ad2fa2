// SPDX-License-Identifier: Apache-2.0
// ONNX export with sizes that stay open: nets written at one size, read back and run at another.
#include "tandem/graph/dry_run.h"
#include "tandem/models/generative/dcgan.h"
#include "tandem/models/generative/ddpm.h"
#include "tandem/models/graph_nets.h"
#include "tandem/models/registry.h"
#include "tandem/models/speech_cnn.h"
#include "tandem/models/text/char_rnn.h"
#include "tandem/models/text/gpt.h"
#include "tandem/models/text/text_cnn.h"
#include "tandem/models/vision/detector.h"
#include "tandem/models/vision/unet.h"
#include "tandem/models/vision/vit.h"
#include "tandem/onnx/export.h"
#include "tandem/onnx/onnx.h"
#include "tests/onnx/export_fixture.h"
#include "tests/ops/row_driver.h"

namespace tandem::onnx {
namespace {

class OnnxOpenSizes : public OnnxFiles {};

using Tensors = std::vector<Tensor>;
using Net = std::function<Tensors(const Tensors&)>;
struct OpenCase {
  const char* name;
  Net net;
  Tensors example, other;
  std::vector<DynamicDim> dynamic;
  bool every_size = true;  // else sizes have to meet conditions
};

template <class M>
Net of_module(M net) {
  net.eval();
  return [net](const Tensors& x) mutable { return Tensors{net(x[0])}; };
}
template <class M>
Net of_recurrent(M net) {
  net.eval();
  return [net](const Tensors& x) mutable {
    const auto out = net(x[0]);
    return Tensors{out.y, out.h};
  };
}
Tensor ids(Shape shape) { return randint(0, 20, std::move(shape)); }

std::vector<OpenCase> text_and_sequences() {
  const std::vector<DynamicDim> text = {{0, "batch"}, {1, "length"}};
  const Tensors short_ids = {ids({2, 6})}, long_ids = {ids({3, 11})};
  const Tensors x = {randn({2, 5, 6})}, longer = {randn({3, 9, 6})};
  const nn::LSTMOptions both = {.num_layers = 2, .batch_first = true, .bidirectional = true};
  nn::LSTMOptions projected = both;
  projected.proj_size = 3;
  models::GPT gpt({.vocabulary = 20, .context = 16, .layers = 2, .heads = 2, .width = 8});
  return {
      {"GPT", of_module(gpt), short_ids, long_ids, text},
      {"CharRNN", of_module(models::CharRNN({.vocabulary = 20, .embedding = 4, .width = 6})),
       short_ids, long_ids, text},
      {"TextCNN", of_module(models::TextCNN({.vocabulary = 20, .width = 6, .filters = 4})),
       short_ids, long_ids, text},
      {"LSTM", of_recurrent(nn::LSTM(6, 5, both)), x, longer, text},
      {"LSTM with a projection", of_recurrent(nn::LSTM(6, 5, projected)), x, longer, text},
      {"GRU", of_recurrent(nn::GRU(6, 5, {.batch_first = true})), x, longer, text},
      {"RNN", of_recurrent(nn::RNN(6, 5, {.batch_first = true})), x, longer, text},
      {"TransformerEncoderLayer",
       of_module(nn::TransformerEncoderLayer(6, 2, {.dim_feedforward = 8, .batch_first = true})), x,
       longer, text},
  };
}

std::vector<OpenCase> images() {
  const std::vector<DynamicDim> image = {{0, "batch"}, {2, "height"}, {3, "width"}};
  const Tensors x = {randn({2, 3, 32, 32})}, odd = {randn({1, 3, 45, 51})},
                wide = {randn({1, 3, 32, 64})};
  const auto pools = [](nn::AnyModule pool) { return of_module(nn::Sequential(std::move(pool))); };
  models::VisionTransformer vit({8, 2, 3, 24, 40}, {.num_classes = 3, .image_size = 32});
  return {
      {"UNet", of_module(models::UNet({.base = 4})), x, odd, image},
      {"bilinear UNet", of_module(models::UNet({.bilinear = true, .base = 4})), x, odd, image},
      {"Detector", of_module(models::Detector({.width = 4})), x, wide, image, false},
      {"VisionTransformer", of_module(vit), x, {randn({3, 3, 32, 32})}, {{0, "batch"}}},
      {"SpeechCNN",
       of_module(models::SpeechCNN({.width = 4})),
       {randn({2, 1, 16, 20})},
       {randn({3, 1, 16, 33})},
       {{0, "batch"}, {3, "frames"}}},
      {"DCGAN",
       of_module(models::DCGAN({.size = 8, .latent = 4, .width = 4})),
       {randn({2, 4})},
       {randn({3, 4})},
       {{0, "batch"}}},
      {"AdaptiveAvgPool2d", pools(nn::AdaptiveAvgPool2d({7, 5})), x, odd, image},
      {"AdaptiveMaxPool2d", pools(nn::AdaptiveMaxPool2d({7, 5})), x, odd, image},
      {"Unfold", pools(nn::Unfold({3, 2}, {.padding = {1}, .stride = {2}})), x, odd, image},
      {"PixelUnshuffle", pools(nn::PixelUnshuffle(2)), x, wide, image, false},
      {"GLU", pools(nn::GLU(3)), x, wide, image, false},
  };
}

std::vector<OpenCase> graphs_and_steps() {
  models::GCN gcn({.features = 4, .classes = 3, .hidden = 5});
  models::GAT gat({.features = 4, .classes = 3, .hidden = 2, .heads = 2});
  models::DDPM ddpm({.classes = 3, .size = 8, .width = 4, .steps = 9});
  gcn.eval(), gat.eval(), ddpm.eval();
  const auto graph = [](int64_t nodes, int64_t edges) {
    return Tensors{randn({nodes, 4}), randint(0, nodes, {2, edges})};
  };
  const auto noisy = [](int64_t n) {
    return Tensors{randn({n, 1, 8, 8}), randint(0, 9, {n}), randint(0, 3, {n})};
  };
  const std::vector<DynamicDim> of_graph = {{0, 0, "nodes"}, {1, 1, "edges"}};
  return {
      {"GCN", [gcn](const Tensors& x) mutable { return Tensors{gcn(x[0], x[1])}; }, graph(5, 7),
       graph(8, 20), of_graph},
      {"GAT", [gat](const Tensors& x) mutable { return Tensors{gat(x[0], x[1])}; }, graph(5, 7),
       graph(8, 20), of_graph},
      {"DDPM",
       [ddpm](const Tensors& x) mutable { return Tensors{ddpm(x[0], x[1], x[2])}; },
       noisy(2),
       noisy(3),
       {{0, "batch"}}},
  };
}

TEST_F(OnnxOpenSizes, OfNets) {
  for (const auto& all : {text_and_sequences(), images(), graphs_and_steps()})
    for (const OpenCase& c : all) {
      SCOPED_TRACE(c.name);
      NoGradGuard no_grad;
      const auto f = [&](std::span<const Tensor> x) { return c.net({x.begin(), x.end()}); };
      try {
        const auto r = export_onnx_function(f, c.example, path(), {.dynamic = c.dynamic});
        EXPECT_TRUE(r.custom_ops.empty()) << r.to_string();
        EXPECT_EQ(r.conditions.empty(), c.every_size) << r.to_string();
        const Tensors got = OnnxModel::load(path())(c.other), want = c.net(c.other);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(rows::close(got[i], want[i], 1e-4));
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    }
}

// Every net of the registry takes any batch, and any height and width where it says so.
TEST_F(OnnxOpenSizes, OfTheRegistry) {
  const DryRunGuard dry;
  NoGradGuard no_grad;
  for (const models::ModelInfo& info : models::list()) {
    SCOPED_TRACE(info.name);
    nn::AnyModule net = models::make(info.name);
    net.eval();
    const auto f = [&](std::span<const Tensor> x) { return Tensors{net(x[0])}; };
    // Traced without a condition that only some sizes meet.
    const auto takes = [&](Dim height, Dim width) {
      const Spec x(float32, {Dim::symbol("batch"), info.input[0], height, width});
      try {
        const Ref<Graph> g = trace(f, {&x, 1}, Captures::refuse);
        return g->checks.equal.empty() && g->outputs[0].shape()[0] == Dim::symbol("batch");
      } catch (const Error&) {
        return false;
      }
    };
    EXPECT_TRUE(takes(info.input[1], info.input[2]));
    EXPECT_EQ(takes(Dim::symbol("height"), Dim::symbol("width")), info.any_size);
  }
}

}  // namespace
}  // namespace tandem::onnx
