// SPDX-License-Identifier: Apache-2.0
// Functions that branch on values: eager and compile(fn, {.control = Control::eager}), taking
// turns. `bench_control` prints milliseconds and the ratio (above 1: compiled is faster), and exits
// with 3 if a ratio is below 0.95.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>

#include "bench/models.h"
#include "bench/tree_lstm.h"

namespace tandem::bench {
namespace {

double seconds_of(const std::function<void()>& f) {
  const auto t = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

// Rounds of both in turns; medians.
bool compare(const char* name, const std::function<void(int)>& eager,
             const std::function<void(int)>& compiled) {
  constexpr int kWarm = 80, kRounds = 30, kCalls = 20;
  for (int i = 0; i < kWarm; ++i) eager(i), compiled(i);
  std::vector<double> a, b, ratio;
  for (int r = 0; r < kRounds; ++r) {
    const auto calls = [r](const std::function<void(int)>& f) {
      return 1e3 / kCalls * seconds_of([&] {
               for (int i = 0; i < kCalls; ++i) f(r * kCalls + i);
             });
    };
    a.push_back(calls(eager));
    b.push_back(calls(compiled));
    ratio.push_back(a.back() / b.back());
  }
  for (auto* v : {&a, &b, &ratio}) std::sort(v->begin(), v->end());
  const double m = ratio[kRounds / 2];
  fmt::print(
      "{:12} eager {:8.4f} ms   Control::eager {:8.4f} ms   ratio {:.2f} ({:.2f} - {:.2f})\n", name,
      a[kRounds / 2], b[kRounds / 2], m, ratio[kRounds / 10], ratio[kRounds * 9 / 10]);
  return m >= 0.95;
}

// Training on trees of all shapes.
bool tree_lstm() {
  TreeLstm net(1000, 128, 5), other = clone(net);
  optim::Adam opt(net.parameters(), {}), opt2(other.parameters(), {});
  std::mt19937 rng(5);
  std::vector<std::unique_ptr<Tree>> trees;
  for (int i = 0; i < 20; ++i) trees.push_back(random_tree(rng, 4 + i % 9, 1000));
  const Tree* tree = nullptr;
  const auto body = [&tree](TreeLstm& net, optim::Adam& opt) {
    return [&](int label) {
      opt.zero_grad();
      Tensor loss = net.loss(*tree, label);
      loss.backward();
      opt.step();
      return loss;
    };
  };
  auto plain = body(net, opt);
  auto step = compile(body(other, opt2), {.control = Control::eager});
  const auto run = [&](auto& f) {
    return [&](int i) {
      tree = trees[static_cast<size_t>(i) % trees.size()].get();
      f(i % 5).template item<float>();
    };
  };
  return compare("tree-LSTM", run(plain), run(step));
}

// A deep network that stops as soon as it is sure.
struct Exits : nn::Module {
  std::vector<nn::Linear> layers;
  nn::Linear head{256, 10};
  Exits() {
    for (int i = 0; i < 8; ++i) layers.emplace_back(256, 256);
    TD_REGISTER(layers, head);
  }
  Tensor forward(Tensor x) {
    Tensor y;
    for (nn::Linear& l : layers) {
      x = gelu(layer_norm(x + l(x), {256}));
      y = softmax(head(x), -1);
      if (y.amax().item<float>() > 0.35f) break;
    }
    return y;
  }
};
bool early_exit() {
  NoGradGuard no_grad;
  Exits net;
  auto f = compile(net, {.control = Control::eager});
  std::vector<Tensor> xs;
  for (int i = 0; i < 20; ++i) xs.push_back(randn({4, 256}) * (0.5 + 0.1 * i));
  const auto x = [&](int i) { return xs[static_cast<size_t>(i) % xs.size()]; };
  return compare(
      "early exit", [&](int i) { net(x(i)); }, [&](int i) { f(x(i)); });
}

bool beam_search() {
  NoGradGuard no_grad;
  nn::Embedding words(1000, 128);
  nn::Linear step_layer(256, 128), out(128, 1000);
  constexpr int64_t kBeam = 4;
  const auto search = [&](Tensor h0) {
    Tensor h = expand(h0, {kBeam, 128}), scores = tensor({0.0f, -1e9f, -1e9f, -1e9f});
    Tensor last = full({kBeam}, 1, DType::i64);
    std::vector<std::vector<int64_t>> texts(kBeam);
    for (int t = 0; t < 12; ++t) {
      h = tanh(step_layer(cat({h, words(last)}, 1)));
      Tensor all = log_softmax(out(h), 1) + scores.unsqueeze(1);
      auto [best, at] = topk(all.flatten(), kBeam);
      scores = best;
      Tensor from = floor_divide(at, 1000);
      last = at % 1000;
      h = index_select(h, 0, from);
      const std::vector<int64_t> parents = from.to_vector<int64_t>(),
                                 tokens = last.to_vector<int64_t>();
      std::vector<std::vector<int64_t>> next;
      for (size_t b = 0; b < kBeam; ++b) {
        next.push_back(texts[static_cast<size_t>(parents[b])]);
        next.back().push_back(tokens[b]);
      }
      texts = next;
      if (texts[0].back() == 0) break;
    }
    return scores;
  };
  auto f = compile(search, {.control = Control::eager});
  std::vector<Tensor> hs;
  for (int i = 0; i < 20; ++i) hs.push_back(randn({1, 128}));
  const auto h = [&](int i) { return hs[static_cast<size_t>(i) % hs.size()]; };
  return compare(
      "beam search", [&](int i) { search(h(i)); }, [&](int i) { f(h(i)); });
}

}  // namespace
}  // namespace tandem::bench

int main() {
  tandem::init();
  tandem::manual_seed(1);
  bool ok = tandem::bench::tree_lstm();
  ok = tandem::bench::early_exit() && ok;
  ok = tandem::bench::beam_search() && ok;
  return ok ? 0 : 3;
}
