// SPDX-License-Identifier: Apache-2.0
// Modules: names, sharing and cloning, state, modes, registration errors.
#include <gtest/gtest.h>

#include <cstring>

#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

struct Head : nn::Module {
  nn::Linear fc{4, 3};
  nn::BatchNorm1d bn{3};
  Head() { TD_REGISTER(fc, bn); }
  Tensor forward(Tensor x) { return bn(fc(x)); }
};
struct NestedNet : nn::Module {
  nn::Linear first{4, 4};
  std::vector<nn::Linear> stack;
  std::optional<nn::Linear> extra;
  Head head;
  Param scale{ones({4})};
  NestedNet() {
    stack.emplace_back(4, 4);
    stack.emplace_back(4, 4, nn::LinearOptions{.bias = false});
    TD_REGISTER(first, stack, extra, head, scale);
  }
  Tensor forward(Tensor x) {
    x = first(x) * scale;
    for (nn::Linear& l : stack) x = relu(l(x));
    return head(x);
  }
};

std::vector<std::string> parameter_names(const nn::Module& m) {
  std::vector<std::string> out;
  for (const auto& [name, p] : m.named_parameters()) out.push_back(name);
  return out;
}

TEST(Module, NamesAreFullPaths) {
  NestedNet net;
  EXPECT_EQ(parameter_names(net),
            (std::vector<std::string>{"first.weight", "first.bias", "stack.0.weight",
                                      "stack.0.bias", "stack.1.weight", "head.fc.weight",
                                      "head.fc.bias", "head.bn.weight", "head.bn.bias", "scale"}));
  StateDict d = net.state_dict();
  EXPECT_TRUE(d.contains("head.bn.running_mean"));
  EXPECT_TRUE(d.contains("head.bn.num_batches_tracked"));
  EXPECT_EQ(d.size(), 13u);
}

TEST(Module, CopySharesCloneCopies) {
  NestedNet net;
  NestedNet shared = net;
  NestedNet own = clone(net);
  net.first.weight.assign_(7.0);
  EXPECT_EQ(shared.first.weight.value().to_vector<float>()[0], 7.0f);
  EXPECT_NE(own.first.weight.value().to_vector<float>()[0], 7.0f);
  net.eval();
  EXPECT_FALSE(shared.is_training());
  EXPECT_TRUE(own.is_training());
  EXPECT_EQ(parameter_names(own), parameter_names(net));
}

TEST(Module, ReassignedLayersAreFound) {
  NestedNet net;
  net.head.fc = nn::Linear(4, 3, {.bias = false});
  EXPECT_EQ(parameter_names(net).size(), 9u);
  net.extra.emplace(2, 2);
  EXPECT_EQ(parameter_names(net).size(), 11u);
  NestedNet moved = std::move(net);
  EXPECT_EQ(parameter_names(moved).size(), 11u);
}

TEST(Module, TiedParametersComeOnceAndKeepBothNames) {
  struct Tied : nn::Module {
    nn::Linear a{3, 3}, b{3, 3};
    Tied() {
      b.weight = a.weight;
      TD_REGISTER(a, b);
    }
  } m;
  EXPECT_EQ(m.parameters().size(), 3u);
  EXPECT_EQ(m.state_dict().size(), 4u);
  Tied copy = clone(m);
  EXPECT_TRUE(copy.a.weight == copy.b.weight);
  EXPECT_FALSE(copy.a.weight == m.a.weight);
}

TEST(Module, LoadIsStrictAndAllOrNothing) {
  NestedNet net, other;
  net.load_state_dict(other.state_dict());
  EXPECT_EQ(net.first.weight.value().to_vector<float>(),
            other.first.weight.value().to_vector<float>());
  StateDict d = other.state_dict();
  d.erase("scale");
  d["surplus"] = zeros({1});
  std::vector<float> before = net.first.weight.value().to_vector<float>();
  d["first.weight"] = zeros({4, 4});
  std::string text = thrown([&] { net.load_state_dict(d); });
  EXPECT_TRUE(has(text, "1 missing (scale), 1 unexpected (surplus)")) << text;
  EXPECT_EQ(net.first.weight.value().to_vector<float>(), before);
  nn::LoadReport r = net.load_state_dict(d, false);
  EXPECT_EQ(r.missing, std::vector<std::string>{"scale"});
  EXPECT_EQ(net.first.weight.value().to_vector<float>(), std::vector<float>(16, 0.0f));
  d["first.weight"] = zeros({4, 5});
  text = thrown([&] { net.load_state_dict(d, false); });
  EXPECT_TRUE(has(text, "first.weight is [4, 4] in the model, [4, 5] in the file")) << text;
}

TEST(Module, SnapshotsDoNotChange) {
  NestedNet net;
  StateDict before = net.state_dict();
  std::vector<float> values = before.at("first.weight").to_vector<float>();
  optim::SGD opt(net.parameters(), {.lr = 0.5});
  net(randn({6, 4})).sum().backward();
  opt.step();
  EXPECT_EQ(before.at("first.weight").to_vector<float>(), values);
  EXPECT_NE(net.first.weight.value().to_vector<float>(), values);
}

TEST(Module, UnnamedLayerThrows) {
  struct Lost : nn::Module {
    nn::Linear a{2, 2}, b{2, 2};
    Lost() { TD_REGISTER(a); }
  };
  std::string text = thrown([] { Lost(); });
  EXPECT_TRUE(
      has(text, "Lost holds a layer of type Linear, after a, that TD_REGISTER does not name"))
      << text;
}

TEST(Module, ErrorsNameTheLayer) {
  NestedNet net;
  net.named_parameters();
  std::string text = thrown([&] { net(zeros({2, 5})); });
  EXPECT_TRUE(has(text, "layer first")) << text;
  EXPECT_TRUE(has(text, "module_test.cpp")) << text;
}

TEST(Module, HooksSeeAndReplace) {
  NestedNet net;
  int calls = 0;
  int id = net.first.register_forward_hook([&](nn::Module&, const Tensor&, const Tensor& y) {
    ++calls;
    return y * 0.0;
  });
  net.eval();
  Tensor a = net(randn({2, 4})), b = net(randn({2, 4}));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>());
  net.first.remove_hook(id);
  net(randn({2, 4}));
  EXPECT_EQ(calls, 2);
}

TEST(Module, CastAndFreeze) {
  NestedNet net;
  net.to(float64);
  EXPECT_EQ(net.first.weight.dtype(), float64);
  EXPECT_EQ(net.head.bn.num_batches_tracked.dtype(), int64);
  net.eval();
  EXPECT_EQ(net(zeros({2, 4}, float64)).dtype(), float64);
  net.requires_grad_(false);
  EXPECT_FALSE(net(zeros({2, 4}, float64)).requires_grad());
  EXPECT_TRUE(has(net.summary(), "head.fc"));
}

TEST(Module, SavedAndLoadedIsBitEqual) {
  NestedNet net;
  net.eval();
  std::string path = ::testing::TempDir() + "module_test.safetensors";
  save(net.state_dict(), path);
  NestedNet again;
  again.eval();
  again.load_state_dict(load(path));
  Tensor x = randn({3, 4});
  Tensor a = net(x), b = again(x);
  EXPECT_EQ(std::memcmp(a.data<float>(), b.data<float>(), 9 * sizeof(float)), 0);
  // A loaded weight can be trained: the mapped file is never written.
  optim::SGD opt(again.parameters(), {.lr = 0.1});
  again(x).sum().backward();
  opt.step();
  EXPECT_EQ(load(path).at("first.weight").to_vector<float>(),
            net.first.weight.value().to_vector<float>());
}

TEST(Optimizer, StateGoesOutAndIn) {
  manual_seed(3);
  NestedNet net;
  NestedNet twin = clone(net);
  optim::AdamW a(net.parameters(), {.lr = 0.01});
  auto step = [](NestedNet& n, optim::Optimizer& o, uint64_t seed) {
    manual_seed(seed);
    o.zero_grad();
    n(randn({8, 4})).square().sum().backward();
    o.step();
  };
  step(net, a, 1);
  step(net, a, 2);
  twin.load_state_dict(net.state_dict());
  optim::AdamW b(twin.parameters(), {.lr = 0.5});
  b.load_state_dict(a.state_dict());
  EXPECT_EQ(b.lr(), 0.01);
  step(net, a, 3);
  step(twin, b, 3);
  EXPECT_EQ(net.first.weight.value().to_vector<float>(),
            twin.first.weight.value().to_vector<float>());
  StateDict wrong = a.state_dict();
  wrong.erase("first.weight.exp_avg");
  EXPECT_TRUE(has(thrown([&] { b.load_state_dict(wrong); }), "first.weight.exp_avg"));
}

TEST(Optimizer, BadParameters) {
  EXPECT_TRUE(has(thrown([] { optim::SGD({}, {}); }), "TD_REGISTER"));
  Param p{zeros({2})};
  EXPECT_TRUE(has(thrown([&] { optim::SGD({p, p}, {}); }), "comes twice"));
  EXPECT_TRUE(has(thrown([&] { optim::AdamW({p}, {.betas = {1.5, 0.9}}); }), "betas"));
}

TEST(Optimizer, ClipGradNorm) {
  Param p{zeros({2})}, q{zeros({2})};
  p.set_grad(tensor({3.0f, 0.0f}));
  q.set_grad(tensor({0.0f, 4.0f}));
  Tensor norm = optim::clip_grad_norm_({p, q}, 1.0);
  EXPECT_FLOAT_EQ(norm.item<float>(), 5.0f);
  EXPECT_NEAR(p.grad().to_vector<float>()[0], 0.6f, 1e-5);
  optim::clip_grad_value_({p, q}, 0.5);
  EXPECT_FLOAT_EQ(q.grad().to_vector<float>()[1], 0.5f);
}

}  // namespace
}  // namespace tandem
