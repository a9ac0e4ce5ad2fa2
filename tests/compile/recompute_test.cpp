// SPDX-License-Identifier: Apache-2.0
// memory_limit: rematerialisation changes the peak but not the bits of the results.
#include <fmt/format.h>

#include "tandem/compile/program/min_cut.h"
#include "tandem/compile/run/report.h"
#include "tests/compile/helpers.h"

namespace tandem {
namespace {

using namespace test;

struct DeepMlp : nn::Module {
  std::vector<nn::Linear> layers;
  nn::Linear head{64, 10};
  DeepMlp() {
    for (int i = 0; i < 16; ++i) layers.emplace_back(64, 64);
    TD_REGISTER(layers, head);
  }
  Tensor forward(Tensor x) {
    for (nn::Linear& l : layers) x = tanh(l(x));
    return head(x);
  }
};
struct DeepNoisy : nn::Module {
  std::vector<nn::Linear> layers;
  nn::Dropout drop{0.4};
  nn::Linear head{64, 10};
  DeepNoisy() {
    for (int i = 0; i < 6; ++i) layers.emplace_back(64, 64);
    TD_REGISTER(layers, drop, head);
  }
  Tensor forward(Tensor x) {
    for (nn::Linear& l : layers) x = drop(gelu(l(x)));
    return head(x);
  }
};

// Training with and without a limit of `share` of the peak.
template <class Net>
void limited(const char* name, const Tensor& x, const Tensor& y, double share, int steps = 3) {
  manual_seed(5);
  Net free_net, tight_net = clone(free_net);
  optim::AdamW free_opt(free_net.parameters(), {}), tight_opt(tight_net.parameters(), {});
  auto free_step =
      compile([&](Tensor x, Tensor y) { return train_step(free_net, free_opt, x, y); });
  manual_seed(20);
  const Tensor loss = free_step(x, y);
  const size_t whole = free_step.executable()->peak_bytes();
  const auto limit = static_cast<size_t>(share * static_cast<double>(whole));
  auto tight_step =
      compile([&](Tensor x, Tensor y) { return train_step(tight_net, tight_opt, x, y); },
              {.memory_limit = limit, .name = name});
  manual_seed(20);
  EXPECT_TRUE(same_bits(loss, tight_step(x, y)));
  for (int i = 1; i < steps; ++i) {
    manual_seed(static_cast<uint64_t>(20 + i));
    const Tensor want = free_step(x, y);
    const GeneratorState after = generator_state();
    manual_seed(static_cast<uint64_t>(20 + i));
    EXPECT_TRUE(same_bits(want, tight_step(x, y))) << "loss of step " << i;
    EXPECT_EQ(after.offset, generator_state().offset);
  }
  auto want = free_net.state_dict(), have = tight_net.state_dict();
  for (auto& [key, value] : want) EXPECT_TRUE(same_bits(value, have.at(key))) << key;
  const Executable& e = *tight_step.executable();
  EXPECT_LE(e.peak_bytes(), limit);
  EXPECT_FALSE(e.program().recomputed.empty());
  size_t again = 0;
  for (const auto& r : e.program().recomputed) again += r.bytes;
  fmt::print("{:8} peak {:>9} -> {:>9} bytes ({:.2f}), {} values of {} bytes recomputed\n", name,
             whole, e.peak_bytes(),
             static_cast<double>(e.peak_bytes()) / static_cast<double>(whole),
             e.program().recomputed.size(), again);
  EXPECT_NE(e.to_string().find("(recomputed)"), std::string::npos);
  EXPECT_NE(html_report(e, name).find("Recomputed"), std::string::npos);
  EXPECT_EQ(html_report(*free_step.executable(), name).find("Recomputed"), std::string::npos);
}

TEST(MemoryLimit, DeepMlp) { limited<DeepMlp>("mlp", image({4096, 64}), words({4096}, 10), 0.6); }
TEST(MemoryLimit, DropoutDrawsTheSameMask) {
  limited<DeepNoisy>("dropout", image({4096, 64}), words({4096}, 10), 0.6);
}
TEST(MemoryLimit, Conv) {
  limited<bench::Conv>("conv", image({8, 1, 28, 28}), words({8}, 10), 0.9);
}
TEST(MemoryLimit, Gpt) {
  limited<bench::Gpt>("gpt", words({12, 64}, 65), words({12 * 64}, 65), 0.65);
}
TEST(MemoryLimit, ResNet) {
  limited<bench::ResNet18>("resnet", image({2, 3, 32, 32}), words({2}, 1000), 0.95, 2);
}

TEST(MemoryLimit, SaysWhatIsLeastPossible) {
  DeepNoisy net;
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  auto step = compile([&](Tensor x, Tensor y) { return train_step(net, opt, x, y); },
                      {.memory_limit = 1000, .name = "step"});
  const Tensor x = image({256, 64}), y = words({256}, 10);
  const Tensor before = net.head.weight.value().clone();
  const std::string m = message([&] { step(x, y); });
  EXPECT_NE(m.find("step: one call holds at least"), std::string::npos) << m;
  EXPECT_NE(m.find("memory_limit is 1000"), std::string::npos) << m;
  EXPECT_NE(m.find("made by"), std::string::npos) << m;
  EXPECT_TRUE(same_bits(before, net.head.weight));
  // The limit that it names is feasible.
  const size_t least = std::stoul(m.substr(m.find("at least ") + 9));
  auto fits = compile([&](Tensor x, Tensor y) { return train_step(net, opt, x, y); },
                      {.memory_limit = least});
  fits(x, y);
  EXPECT_LE(fits.executable()->peak_bytes(), least);
}

// A compiled forward whose backward() runs in eager.
TEST(MemoryLimit, ForwardAlone) {
  manual_seed(2);
  DeepNoisy eager, free_net = clone(eager), tight_net = clone(eager);
  auto free_f = compile([&](Tensor x) { return free_net.forward(x); });
  auto tight_f =
      compile([&](Tensor x) { return tight_net.forward(x); }, {.memory_limit = 17 << 20});
  const Tensor x = image({4096, 64}), y = words({4096}, 10);
  const auto gradients = [&](auto& net, auto&& f) {
    for (auto& [name, p] : net.named_parameters()) p.zero_grad();
    manual_seed(9);
    Tensor loss = cross_entropy(f(x), y);
    rand({3});  // the generator has moved on when the masks are drawn again
    loss.backward();
    std::vector<Tensor> g{loss};
    for (auto& [name, p] : net.named_parameters()) g.push_back(p.grad());
    return g;
  };
  const auto want = gradients(eager, [&](Tensor x) { return eager.forward(x); });
  const auto a = gradients(free_net, free_f), b = gradients(tight_net, tight_f);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(same_bits(want[i], a[i])) << i;
    EXPECT_TRUE(same_bits(want[i], b[i])) << i;
  }
  const auto saved = [](const Executable& e) {
    size_t n = 0;
    for (compiler::ValueId v : e.program().outputs)
      n += compiler::bytes_of(e.program().values[v].spec);
    return n;
  };
  fmt::print("forward alone: gives and saves {} bytes, under a limit {}\n",
             saved(*free_f.executable()), saved(*tight_f.executable()));
  EXPECT_LT(saved(*tight_f.executable()), saved(*free_f.executable()));
  EXPECT_NE(message([&] {
              compile([&](Tensor x) { return eager.forward(x); }, {.memory_limit = 10})(x);
            }).find("memory_limit is 10 "),
            std::string::npos);
}

TEST(MinCut, AgainstAllCuts) {
  manual_seed(4);
  for (int round = 0; round < 200; ++round) {
    constexpr int kNodes = 8;
    const std::vector<int64_t> c = randint(-12, 20, {kNodes, kNodes}).to_vector<int64_t>();
    const auto at = [&](int a, int b) {
      return std::max<int64_t>(0, c[static_cast<size_t>(a * kNodes + b)]);
    };
    compiler::MinCut cut(kNodes);
    for (int a = 0; a < kNodes; ++a)
      for (int b = 0; b < kNodes; ++b)
        if (a != b && at(a, b)) cut.edge(a, b, at(a, b));
    const std::vector<char> side = cut.sink_side(0, 1);
    int64_t best = INT64_MAX, own = 0;
    for (unsigned set = 0; set < (1U << kNodes); ++set) {
      if ((set & 1U) || !(set & 2U)) continue;
      int64_t cost = 0;
      for (int a = 0; a < kNodes; ++a)
        for (int b = 0; b < kNodes; ++b)
          if (a != b && !(set >> a & 1U) && (set >> b & 1U)) cost += at(a, b);
      best = std::min(best, cost);
    }
    for (int a = 0; a < kNodes; ++a)
      for (int b = 0; b < kNodes; ++b)
        if (a != b && !side[static_cast<size_t>(a)] && side[static_cast<size_t>(b)])
          own += at(a, b);
    EXPECT_EQ(cut.cost(), best);
    EXPECT_EQ(own, best);
  }
}

}  // namespace
}  // namespace tandem
