// SPDX-License-Identifier: Apache-2.0
// What layers guarantee beyond PyTorch's numbers: containers, hooks, tied weights, LoRA, caches
// updated in place, dropout's statistics, initial values.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "tandem/graph/trace.h"
#include "tandem/tandem.h"
#include "tests/support/init.h"
#include "tests/support/values.h"

namespace tandem {
namespace {

std::vector<std::string> state_names(const nn::Module& m) {
  std::vector<std::string> n;
  for (const auto& [name, t] : m.state_dict()) n.push_back(name);
  return n;
}

// ---- containers

TEST(Containers, Sequential) {
  manual_seed(1);
  nn::Sequential net(nn::Linear(4, 8), nn::BatchNorm1d(8), nn::ReLU(),
                     nn::Sequential(nn::Dropout(0.5), nn::Linear(8, 2)));
  EXPECT_EQ(state_names(net),
            (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                      "1.running_var", "1.num_batches_tracked", "3.1.weight",
                                      "3.1.bias"}));
  Tensor x = randn({5, 4});
  EXPECT_EQ(net(x).shape(), Shape(5, 2));
  net.eval();
  EXPECT_FALSE(net[3].as<nn::Sequential>()[0].is_training());
  nn::Sequential shared = net, copy = clone(net);
  net[0].as<nn::Linear>().weight.assign_(0.0);
  EXPECT_EQ(values(shared(x)), values(net(x)));
  EXPECT_NE(values(copy(x)), values(net(x)));
  copy.load_state_dict(net.state_dict());
  EXPECT_EQ(values(copy(x)), values(net(x)));
  nn::Sequential named = nn::Sequential::named({{"fc", nn::Linear(4, 2)}, {"act", nn::Tanh()}});
  EXPECT_EQ(state_names(named), (std::vector<std::string>{"fc.weight", "fc.bias"}));
}

struct Lists : nn::Module {
  nn::ModuleList blocks;
  nn::ModuleDict heads;
  nn::ParameterList scales;
  nn::ParameterDict table;
  nn::AnyModule last = nn::Linear(2, 1);
  Lists() {
    for (int i = 0; i < 2; ++i) blocks.append(nn::Linear(3, 3, {.bias = false}));
    heads.insert("a", nn::Linear(3, 1)).insert("b", nn::ReLU());
    scales.append(Param(ones({1}))).append(Param(zeros({2})));
    table.insert("k", Param(ones({3})));
    TD_REGISTER(blocks, heads, scales, table, last);
  }
};

TEST(Containers, ListsAndDicts) {
  Lists l;
  EXPECT_EQ(state_names(l),
            (std::vector<std::string>{"blocks.0.weight", "blocks.1.weight", "heads.a.weight",
                                      "heads.a.bias", "scales.0", "scales.1", "table.k",
                                      "last.weight", "last.bias"}));
  Lists copy = clone(l);
  l.table["k"].assign_(5.0);
  EXPECT_EQ(values(copy.table["k"].value()), (std::vector<float>{1, 1, 1}));
  EXPECT_TRUE(l.heads.contains("b"));
  EXPECT_EQ(l.blocks[-1].as<nn::Linear>().in_features, 3);
  EXPECT_EQ(l.scales[1].numel(), 2);
}

// ---- hooks, ties

TEST(Hooks, ForwardPreAndBackward) {
  nn::Linear fc(2, 2, {.bias = false});
  fc.weight.assign_(tensor({{1.0, 2.0}, {3.0, 4.0}}));
  std::vector<std::string> order;
  int pre = fc.register_forward_pre_hook([&](nn::Module&, const Tensor& in) {
    order.push_back("pre");
    return in * 2.0;
  });
  fc.register_forward_hook([&](nn::Module&, const Tensor& in, const Tensor& out) {
    order.push_back("forward");
    EXPECT_EQ(values(in), (std::vector<float>{2, 2}));
    return out + 1.0;
  });
  Tensor seen_in, seen_out;
  int back = fc.register_full_backward_hook(
      [&](const std::string&, const Tensor& grad_in, const Tensor& grad_out) {
        order.push_back("backward");
        seen_in = grad_in;
        seen_out = grad_out;
        return grad_in * 10.0;
      });
  Tensor x = ones({1, 2}).requires_grad_();
  Tensor y = fc(x);
  EXPECT_EQ(values(y), (std::vector<float>{7, 15}));
  (y * tensor({1.0, 2.0})).sum().backward();
  EXPECT_EQ(order, (std::vector<std::string>{"pre", "forward", "backward"}));
  EXPECT_EQ(values(seen_out), (std::vector<float>{1, 2}));
  EXPECT_EQ(values(seen_in), (std::vector<float>{7, 10}));
  EXPECT_EQ(values(x.grad()), (std::vector<float>{140, 200}));  // through the pre hook's * 2
  fc.remove_hook(pre);
  fc.remove_hook(back);
  order.clear();
  EXPECT_EQ(values(fc(ones({1, 2}) * 2.0)), (std::vector<float>{7, 15}));
  EXPECT_EQ(order, (std::vector<std::string>{"forward"}));
}

struct Tied : nn::Module {
  nn::Embedding embed{5, 3};
  nn::Linear head{3, 5, {.bias = false}};
  Tied() {
    head.weight = embed.weight;
    TD_REGISTER(embed, head);
  }
  Tensor forward(Tensor x) { return head(embed(x)); }
};

TEST(TiedWeights, OnceInTheOptimizerTwiceInTheState) {
  Tied net;
  EXPECT_EQ(net.parameters().size(), 1u);
  EXPECT_EQ(state_names(net), (std::vector<std::string>{"embed.weight", "head.weight"}));
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  net(tensor({1, 2})).sum().backward();
  opt.step();
  EXPECT_EQ(values(net.embed.weight.value()), values(net.head.weight.value()));
  Tied copy = clone(net);
  copy.head.weight.assign_(0.0);
  EXPECT_EQ(values(copy.embed.weight.value()), std::vector<float>(15, 0.0f));
  EXPECT_NE(values(net.embed.weight.value()), std::vector<float>(15, 0.0f));
}

// ---- parametrised weights

TEST(LoRA, TrainsOnlyTheUpdateAndMerges) {
  manual_seed(2);
  nn::LoRALinear lora(nn::Linear(6, 4), {.r = 2, .alpha = 4});
  Tensor x = randn({3, 6});
  EXPECT_EQ(values(lora(x)), values(lora.base_layer(x)));
  lora.lora_B.weight.assign_(randn({4, 2}));
  lora(x).sum().backward();
  EXPECT_FALSE(lora.base_layer.weight.grad().defined());
  EXPECT_TRUE(lora.lora_A.weight.grad().defined());
  std::vector<float> before = values(lora(x)), base = values(lora.base_layer.weight.value());
  lora.merge();
  std::vector<float> merged = values(lora(x));
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], merged[i], 1e-5);
  lora.unmerge();
  std::vector<float> again = values(lora.base_layer.weight.value());
  for (size_t i = 0; i < base.size(); ++i) EXPECT_NEAR(base[i], again[i], 1e-6);
  EXPECT_EQ(state_names(lora), (std::vector<std::string>{"base_layer.weight", "base_layer.bias",
                                                         "lora_A.weight", "lora_B.weight"}));
}

TEST(WeightNorm, KeepsTheWeightAndIsRemoved) {
  manual_seed(3);
  nn::Linear fc(4, 3);
  auto normed = nn::weight_norm(clone(fc));
  Tensor x = randn({2, 4});
  std::vector<float> a = values(fc(x)), b = values(normed(x)), c = values(normed.remove()(x));
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], 1e-5);
    EXPECT_NEAR(a[i], c[i], 1e-5);
  }
  EXPECT_EQ(state_names(normed),
            (std::vector<std::string>{"bias", "parametrizations.weight.original0",
                                      "parametrizations.weight.original1"}));
}

// ---- caches

// Decoding step by step with a cache equals processing the whole sequence, eager and traced, also
// with shared heads.
TEST(Caches, DecodingEqualsTheWholeSequence) {
  manual_seed(4);
  for (int64_t kv : {4, 2}) {
    nn::MultiheadAttention mha(16, 4, {.batch_first = true, .num_kv_heads = kv});
    mha.eval();
    NoGradGuard no_grad;
    Tensor x = randn({2, 7, 16});
    Tensor whole = mha(x, x, x, {.is_causal = true});
    nn::KVCache cache(2, kv, 8, 4), traced(2, kv, 8, 4);
    Spec spec(float32, {2, 1, 16});
    Ref<Graph> step = trace(
        [&](std::span<const Tensor> in) {
          return std::vector<Tensor>{mha(in[0], in[0], in[0], {.cache = &traced})};
        },
        {&spec, 1}, Captures::refuse);
    const void* bytes = cache.k.value().data<float>();
    for (int64_t t = 0; t < 7; ++t) {
      Tensor one = x.narrow(1, t, 1);
      Tensor y = mha(one, one, one, {.cache = &cache});
      Tensor in[] = {one.contiguous()};
      Tensor z = run(*step, in)[0];
      std::vector<float> want = values(whole.narrow(1, t, 1)), got = values(y), other = values(z);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], 2e-5);
        EXPECT_NEAR(other[i], want[i], 2e-5);
      }
    }
    EXPECT_EQ(cache.k.value().data<float>(), bytes);  // written in place
    EXPECT_EQ(cache.length.value().item<int64_t>(), 7);
  }
}

// A million rows: each write only touches its rows and copies nothing.
TEST(Caches, ReplayBufferOfAMillionRows) {
  constexpr int64_t kRows = 1'000'000, kWidth = 8;
  Buffer replay(zeros({kRows, kWidth}));
  const float* bytes = replay.value().data<float>();
  Tensor row = ones({1, kWidth});
  const auto seconds = [&](int64_t writes) {
    auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < writes; ++i) replay.write_(0, (i * 7919) % kRows, row);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double per_write = seconds(20000) / 20000;
  RecordProperty("nanoseconds_per_write", static_cast<int>(per_write * 1e9));
  EXPECT_EQ(replay.value().data<float>(), bytes);
  EXPECT_EQ(replay.value().sum().item<float>(), 20000.0f * kWidth);
  // A holder of the old value keeps it: only then is there a copy.
  Tensor old = replay;
  replay.write_(0, 5, row * 3.0);
  EXPECT_NE(replay.value().data<float>(), bytes);
  EXPECT_EQ(old.data<float>(), bytes);
}

// ---- packed sequences

TEST(Packed, RoundTrip) {
  std::vector<Tensor> list = {arange(2).to(float32).reshape({2, 1}), ones({4, 1}), zeros({1, 1})};
  nn::PackedSequence p = nn::pack_sequence(list, false);
  EXPECT_EQ(p.batch_sizes, (std::vector<int64_t>{3, 2, 1, 1}));
  auto [x, lengths] = nn::pad_packed_sequence(p, true, -1);
  EXPECT_EQ(lengths, (std::vector<int64_t>{2, 4, 1}));
  EXPECT_EQ(values(x.select(0, 0)), (std::vector<float>{0, 1, -1, -1}));
  EXPECT_EQ(values(nn::pad_sequence(list, true, 9, "left").select(0, 2)),
            (std::vector<float>{9, 9, 9, 0}));
  EXPECT_EQ(nn::unpad_sequence(x, lengths, true)[1].shape(), Shape(4, 1));
}

TEST(LossLayers, TripletWithDistance) {
  manual_seed(7);
  Tensor a = randn({4, 3}), p = randn({4, 3}), n = randn({4, 3});
  nn::TripletMarginWithDistanceLoss plain,
      city([](const Tensor&x, const Tensor&y) { return (x - y).abs().sum({1}); }, {.margin = 0.5});
  EXPECT_EQ(plain(a, p, n).item<float>(), nn::TripletMarginLoss()(a, p, n).item<float>());
  Tensor want = clamp_min((a - p).abs().sum({1}) - (a - n).abs().sum({1}) + 0.5, 0.0).mean();
  EXPECT_FLOAT_EQ(city(a, p, n).item<float>(), want.item<float>());
}

// ---- dropout, initial values

TEST(DropoutLayers, WholeChannelsAndMoments) {
  manual_seed(5);
  nn::Dropout2d two(0.3);
  Tensor y = two(ones({50, 40, 2, 2}));
  Tensor sums = y.sum({2, 3});
  int64_t dropped = 0;
  for (float v : values(sums)) {
    EXPECT_TRUE(v == 0 || std::abs(v - 4 / 0.7f) < 1e-4);
    dropped += v == 0;
  }
  EXPECT_NEAR(double(dropped) / 2000, 0.3, 0.05);
  nn::AlphaDropout alpha(0.2);
  Tensor z = alpha(randn({100000}));
  EXPECT_NEAR(z.mean().item<float>(), 0, 0.02);
  EXPECT_NEAR(z.std().item<float>(), 1, 0.02);
  nn::DropPath path(0.5);
  for (float v : values(path(ones({64, 3})).select(1, 0))) EXPECT_TRUE(v == 0 || v == 2);
  nn::RReLU rrelu;
  for (float v : values(rrelu(-ones({100})))) EXPECT_TRUE(v <= -0.125f && v >= -0.3334f);
}

TEST(InitialValues, OrthogonalDiracSparseTruncated) {
  manual_seed(6);
  for (Shape s : {Shape(4, 7), Shape(7, 4), Shape(3, 2, 2)}) {
    Tensor w = nn::init::orthogonal(s, 2.0, float64).flatten(1);
    Tensor gram = w.size(0) <= w.size(1) ? matmul(w, w.t()) : matmul(w.t(), w);
    std::vector<double> g = gram.to_vector<double>();
    auto n = static_cast<size_t>(gram.size(0));
    for (size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(g[i], i % (n + 1) ? 0.0 : 4.0, 1e-9);
  }
  Tensor x = randn({1, 4, 5, 5});
  EXPECT_EQ(values(conv2d(x, nn::init::dirac({4, 4, 3, 3}), {}, {1}, {1})), values(x));
  Tensor sparse = nn::init::sparse({10, 6}, 0.25);
  EXPECT_EQ(count_nonzero(sparse).item<int64_t>(), (10 - 3) * 6);
  Tensor cut = nn::init::trunc_normal({20000}, 1, 2, 0, 2);
  EXPECT_GE(cut.amin().item<float>(), 0.0f);
  EXPECT_LE(cut.amax().item<float>(), 2.0f);
  EXPECT_NEAR(cut.mean().item<float>(), 1, 0.02);
  EXPECT_EQ(values(nn::init::eye({2, 3})), (std::vector<float>{1, 0, 0, 0, 1, 0}));
  EXPECT_NEAR(nn::init::calculate_gain("tanh"), 5.0 / 3, 1e-12);
  Tensor k =
      nn::init::kaiming_normal({500, 400}, 0, float32, {.mode = "fan_out", .nonlinearity = "relu"});
  EXPECT_NEAR(k.std().item<float>(), std::sqrt(2.0 / 500), 1e-3);
  EXPECT_NEAR(nn::init::lecun_normal({500, 400}).std().item<float>(), 0.05, 1e-3);
}

}  // namespace
}  // namespace tandem
