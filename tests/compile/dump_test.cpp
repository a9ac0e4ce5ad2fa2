// SPDX-License-Identifier: Apache-2.0
// The passes' results on 20 fixed programs, stage by stage, against tests/compile/dumps/*.txt.
// After an intended change: TANDEM_UPDATE=1 build/release/tests/tandem_test_compile, then read the
// diff.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tandem/compile/passes/passes.h"
#include "tandem/ops/machine_limits.h"
#include "tests/compile/helpers.h"

namespace tandem {
namespace {

using test::In;
using test::Out;

// Every stage of the program traced from `f`; a stage equal to the previous one is only named.
template <class F>
std::string stages(F f, const std::vector<Tensor>& args, bool keep_grads = false) {
  std::vector<Spec> specs;
  for (const Tensor& t : args) specs.push_back(spec_of(t));
  Ref<Graph> g = trace([&](std::span<const Tensor> in) -> std::vector<Tensor> { return f(in); },
                       specs, Captures::refuse);
  compiler::Program p = compiler::make_program(*g, {}, keep_grads);
  p.same_bits = false;
  std::string last = p.to_string(), out = "---- trace\n" + last;
  auto seen = [&](const char* name, const compiler::Program& now) {
    std::string text = now.to_string();
    out += fmt::format("---- {}{}\n", name, text == last ? ": as before" : "");
    if (text != last) out += text;
    last = std::move(text);
  };
  FunctionRef<void(const char*, const compiler::Program&)> ref = seen;
  compiler::run_passes(p, {}, &ref);
  return out;
}

// The ops of the last stage, in alphabetical order.
std::string last_ops(const std::string& text) {
  std::vector<std::string> names;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("----", 0) == 0 && line.find("as before") == std::string::npos) names.clear();
    size_t from = line.find(" = "), to = line.find('(');
    if (from == std::string::npos || to == std::string::npos || line[0] != '%') continue;
    std::string words = line.substr(from + 3, to - from - 3);  // fused[mul add]
    std::replace_if(
        words.begin(), words.end(), [](char c) { return c == '[' || c == ']'; }, ' ');
    std::stringstream each(words);
    for (std::string word; each >> word;) names.push_back(word);
  }
  std::sort(names.begin(), names.end());
  std::string s;
  for (const std::string& n : names) s += n + "\n";
  return s;
}

void check(const std::string& name, const std::string& text) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string path = std::string(root ? root : ".") + "/tests/compile/dumps/" + name + ".txt";
  if (std::getenv("TANDEM_UPDATE")) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing; write it with TANDEM_UPDATE=1";
  std::stringstream want;
  want << file.rdbuf();
#if defined(__clang__)
  // The files are g++'s. Compilers evaluate operands in different orders, which shows in the
  // numbers.
  EXPECT_EQ(last_ops(want.str()), last_ops(text)) << name;
#else
  EXPECT_EQ(want.str(), text) << name;
#endif
}

// What the comparison reads under clang.
TEST(Dump, OpsOfTheLastStage) {
  EXPECT_EQ(last_ops("---- trace\n%1 = exp(%0) : f32[2]\n---- fuse_loops\n%0 = input : f32[2]\n"
                     "%1 = fused[mul add](%0) : f32[2]\n---- remove_dead: as before\n"),
            "add\nfused\nmul\n");
}

struct Mlp : nn::Module {
  nn::Linear a{4, 8}, b{8, 3};
  Mlp() { TD_REGISTER(a, b); }
  Tensor forward(Tensor x) { return b(relu(a(x))); }
};
struct ConvNet : nn::Module {
  nn::Conv2d conv{1, 2, 3, {.padding = {1}}};
  nn::BatchNorm2d bn{2};
  nn::Linear fc{2 * 4, 3};
  ConvNet() { TD_REGISTER(conv, bn, fc); }
  Tensor forward(Tensor x) { return fc(max_pool2d(relu(bn(conv(x))), 2).flatten(1)); }
};
struct Attend : nn::Module {
  nn::LayerNorm ln{8};
  nn::Linear qkv{8, 24}, out{8, 8};
  Attend() { TD_REGISTER(ln, qkv, out); }
  Tensor forward(Tensor x) {
    std::vector<Tensor> parts = qkv(ln(x)).split(8, 2);
    for (Tensor& s : parts) s = s.view({2, 3, 2, 4}).transpose(1, 2);
    Tensor y = scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    return x + gelu(out(y.transpose(1, 2).reshape({2, 3, 8})));
  }
};

template <class Net, class Optim, class Options>
std::string training(Options options, const Tensor& x, const Tensor& y) {
  Net net;
  Optim opt(net.parameters(), options);
  return stages(
      [&](In in) -> Out {
        opt.zero_grad();
        Tensor loss = cross_entropy(net(in[0]), in[1]);
        loss.backward();
        opt.step();
        return {loss};
      },
      {x, y});
}

Tensor classes(int64_t n) { return zeros({n}, DType::i64); }

TEST(Dump, Pointwise) {
  check("chain", stages([](In x) -> Out { return {(x[0] + 1) * x[1] - x[0]}; },
                        {ones({2, 3}), ones({2, 3})}));
  check("broadcast",
        stages([](In x) -> Out { return {exp(x[0] * 2) / x[1]}; }, {ones({2, 3}), ones({2, 1})}));
  check("two_results", stages(
                           [](In x) -> Out {
                             Tensor s = sigmoid(x[0]);
                             return {s, s * x[0], x[0] > 0.5};
                           },
                           {ones({4})}));
  check("casts", stages(
                     [](In x) -> Out {
                       return {x[0].to(DType::bf16).to(DType::f32) + 1,
                               x[0].to(DType::f32).to(DType::f64) * 2.0};
                     },
                     {ones({4})}));
  check("where", stages([](In x) -> Out { return {where(x[0] > x[1], x[0], 0.0 * x[1])}; },
                        {ones({4}), zeros({4})}));
}

TEST(Dump, Reductions) {
  check("sum_of_squares",
        stages([](In x) -> Out { return {(x[0] * x[0]).sum({1})}; }, {ones({2, 3})}));
  check("variance", stages(
                        [](In x) -> Out {
                          return {x[0].var({1}), x[0].mean()};
                        },
                        {ones({2, 3})}));
  check("scan", stages([](In x) -> Out { return {x[0].cumsum(0) * 2}; }, {ones({3})}));
  check("same_twice", stages([](In x) -> Out { return {x[0].sum() + x[0].sum()}; }, {ones({3})}));
}

TEST(Dump, ViewsAndIndices) {
  check("views", stages(
                     [](In x) -> Out {
                       return {x[0].t().reshape({3, 2}), x[0].slice(1, 0, 2).contiguous() + 1};
                     },
                     {ones({2, 3})}));
  check("index", stages([](In x) -> Out { return {x[0].index_select(0, x[1]) * 2}; },
                        {ones({4, 2}), classes(3)}));
  check("halves", stages(
                      [](In x) -> Out {
                        Tensor leaf = identity(x[0]);
                        auto half = leaf.split(2, 1);
                        return {cat({half[0] * 2, half[1] * 3}, 1)};
                      },
                      {ones({2, 4})}));
}

TEST(Dump, State) {
  Buffer a(ones({2})), b(zeros({2}));
  check("swap", stages(
                    [&](In) -> Out {
                      Tensor old = a;
                      a.assign_(b.value());
                      b.assign_(old);
                      return {old};
                    },
                    {}));
  nn::Dropout drop(0.5);
  check("dropout", stages([&](In x) -> Out { return {drop(x[0])}; }, {ones({4})}));
  Param w(ones({3}));
  check("norm_clip", stages(
                         [&](In x) -> Out {
                           w.zero_grad();
                           (w * x[0]).sum().backward();
                           return {optim::clip_grad_norm_({w}, 1.0)};
                         },
                         {ones({3})}));
}

TEST(Dump, Steps) {
  check("mlp_sgd",
        training<Mlp, optim::SGD>(optim::SGDOptions{.lr = 0.1}, ones({2, 4}), classes(2)));
  check("mlp_adamw", training<Mlp, optim::AdamW>(optim::AdamWOptions{}, ones({2, 4}), classes(2)));
  check("conv_momentum",
        training<ConvNet, optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9},
                                      ones({2, 1, 4, 4}), classes(2)));
  ConvNet net;
  net.eval();
  check("conv_eval", stages(
                         [&](In x) -> Out {
                           NoGradGuard no_grad;
                           return {net(x[0])};
                         },
                         {ones({2, 1, 4, 4})}));
  Attend attend;
  check("attention_gradients", stages(
                                   [&](In x) -> Out {
                                     for (const Param& p : attend.parameters()) p.zero_grad();
                                     Tensor loss = attend(x[0]).sum();
                                     loss.backward();
                                     return {loss};
                                   },
                                   {ones({2, 3, 8})}, true));
}

// A step of training.
auto compiled_step(Mlp& net, optim::AdamW& opt) {
  return compile([&net, &opt](Tensor x, Tensor y) {
    opt.zero_grad();
    Tensor loss = cross_entropy(net(x), y);
    loss.backward();
    opt.step();
    return loss;
  });
}

TEST(Report, Html) {
  Mlp net;
  optim::AdamW opt(net.parameters(), {});
  auto step = compiled_step(net, opt);
  step(ones({2, 4}), classes(2));
  std::string page = html_report(*step.executable(), "a <step>");
  EXPECT_NE(page.find("<title>a &lt;step&gt;</title>"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  size_t rows = 0;
  for (size_t at = 0; (at = page.find("<rect", at)) != std::string::npos; ++at) ++rows;
  EXPECT_GE(rows, 5u);
  EXPECT_GE(step.executable()->peak_bytes(), step.executable()->lower_bound());
  if (const char* path = std::getenv("TANDEM_PAGE")) std::ofstream(path) << page;
}

TEST(Profiler, EagerAndCompiled) {
  Mlp net;
  (void)net.parameters();  // gives the layers their paths
  auto f = compile(net);
  NoGradGuard no_grad;
  Tensor x = ones({16, 4});
  f(x);
  ProfilerGuard profiler;
  net(x);
  f(x);
  const Profile& p = profiler.profile();
  int eager = 0, compiled = 0;
  for (const ProfileEvent& e : p.events) {
    (e.compiled ? compiled : eager) += e.name == "linear";
    EXPECT_LE(e.start_ns, e.end_ns);
    if (e.name == "linear") {
      EXPECT_GT(e.flops, 2.0 * 16 * 3 * 8 - 1);
    }
  }
  EXPECT_EQ(eager, 2);
  EXPECT_EQ(compiled, 2);
  std::string table = p.table(Profile::By::op, {.gflops = 100, .gbs = 10});
  EXPECT_NE(table.find("linear"), std::string::npos);
  EXPECT_NE(table.find("of limit"), std::string::npos);
  EXPECT_NE(p.table(Profile::By::layer).find("a "), std::string::npos);
  io::Json json = io::parse_json(p.chrome_trace());
  EXPECT_EQ(json.find("traceEvents")->as_array()->size(), p.events.size());
}

// Matmuls, fused loops and updates of a compiled step have their work and their share.
TEST(Profiler, CompiledStepsAgainstTheMachine) {
  Mlp net;
  net.parameters();
  optim::AdamW opt(net.parameters(), {});
  auto step = compiled_step(net, opt);
  Tensor x = ones({16, 4}), y = zeros({16}, DType::i64);
  step(x, y);
  ProfilerGuard profiler;
  step(x, y);
  const Profile& p = profiler.profile();
  ASSERT_GT(p.events.size(), 5u);
  double flops = 0;
  for (const ProfileEvent& e : p.events) {
    EXPECT_TRUE(e.compiled) << e.name;
    EXPECT_GT(e.bytes, 0) << e.name;
    flops += e.flops;
  }
  EXPECT_GT(flops, 3 * 2.0 * 16 * (4 * 8 + 8 * 3) * 0.8);  // forward and two products backward
  const MachineLimits m = machine_limits();
  EXPECT_GT(m.gflops, 0.1);
  EXPECT_GT(m.gbs, 0.1);
  EXPECT_EQ(p.events.size(), profiler.profile().events.size());  // measuring is not recorded
  std::stringstream lines(p.table(Profile::By::op, m));
  std::string line;
  std::getline(lines, line);
  int rows = 0;
  for (; std::getline(lines, line); ++rows)
    EXPECT_NE(line.find('%', line.find('%') + 1), std::string::npos) << line;
  EXPECT_GT(rows, 3);
}

}  // namespace
}  // namespace tandem
