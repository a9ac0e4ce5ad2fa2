// SPDX-License-Identifier: Apache-2.0
// Plain numbers that a compiled function takes from outside: a change is seen, at once or at the
// next comparison of its trace with a new one, and said.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tandem/compile/run/second_look.h"
#include "tests/compile/helpers.h"
#include "tests/compile/nets.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace tandem {
namespace {

using namespace test;

double g_scale = 1;

struct ScaleOptions {
  int64_t unused = 3;
  double scale = 1;
};

float first_of(const Tensor& t) { return values(t).at(0); }

// The stack of the caller: the first call after a change is right, and warns of nothing.
TEST(CapturedNumbers, OnTheStackCountAtOnce) {
  if (kSanitized) GTEST_SKIP() << "variables are not on the stack";
  double d = 1;
  float f = 1;
  int n = 1;
  bool twice = false;
  ScaleOptions options;
  const Tensor x = ones({2});
  const auto run = [&](const char* name, auto set, auto body) {
    SCOPED_TRACE(name);
    auto compiled = compile(body);
    testing::internal::CaptureStderr();
    for (int round = 0; round < 3; ++round)
      for (const bool big : {false, true}) {
        set(big);
        for (int i = 0; i < 7; ++i)
          EXPECT_EQ(values(compiled(x)), values(body(x))) << round << big << i;
      }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(compiled.stats().traces, 2);
    EXPECT_EQ(compiled.stats().plans, 2);
  };
  run(
      "double", [&](bool b) { d = b ? 5 : 1; }, [&](Tensor t) { return t * d; });
  run(
      "float", [&](bool b) { f = b ? 5 : 1; }, [&](Tensor t) { return t * f; });
  run(
      "int", [&](bool b) { n = b ? 5 : 1; }, [&](Tensor t) { return t + n; });
  run(
      "branch", [&](bool b) { twice = b; }, [&](Tensor t) { return twice ? t + t : t * 1; });
  run(
      "struct", [&](bool b) { options.scale = b ? 5 : 1; },
      [&](Tensor t) { return t * options.scale; });
  run(
      "attribute", [&](bool b) { n = b ? 5 : 1; },
      [&](Tensor t) {
        return t.expand({n, 2}).sum();
      });
}

// Elsewhere in memory: the 2nd, 4th, 8th ... call finds it.
TEST(CapturedNumbers, ElsewhereIsFoundByALaterTrace) {
  auto on_heap = std::make_unique<double>(1);
  auto f = compile([p = on_heap.get()](Tensor x) { return x * *p; });
  const Tensor x = ones({2});
  testing::internal::CaptureStderr();
  for (int call = 1; call <= 5; ++call) EXPECT_EQ(first_of(f(x)), 1) << call;
  *on_heap = 5;
  for (int call = 6; call <= 7; ++call) EXPECT_EQ(first_of(f(x)), 1) << call;
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  EXPECT_EQ(first_of(f(x)), 5);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(has(text, "captured_test.cpp:")) << text;
  EXPECT_TRUE(has(text, "the number of mul (")) << text;
  EXPECT_TRUE(has(text, "was 1 and is 5")) << text;
  EXPECT_TRUE(has(text, "Pass it as an argument")) << text;
  for (int call = 9; call <= 40; ++call) EXPECT_EQ(first_of(f(x)), 5) << call;
  EXPECT_EQ(f.stats().traces, 2);
}

TEST(CapturedNumbers, GlobalsBetweenTheFirstTwoCalls) {
  g_scale = 1;
  auto f = compile([](Tensor x) { return x * g_scale; });
  const Tensor x = ones({2});
  EXPECT_EQ(first_of(f(x)), 1);
  g_scale = 5;
  testing::internal::CaptureStderr();
  EXPECT_EQ(first_of(f(x)), 5);
  EXPECT_TRUE(has(testing::internal::GetCapturedStderr(), "was 1 and is 5"));
}

// What only looks like a change costs little.
TEST(CapturedNumbers, CountersWithoutEffectAreAskedMoreRarely) {
  constexpr int kCalls = 1000;
  int64_t counter = 0;
  auto f = compile([&](Tensor x) { return counter < 0 ? x : x * 2; });
  const Tensor x = ones({2});
  for (counter = 0; counter < kCalls; ++counter) EXPECT_EQ(first_of(f(x)), 2);
  EXPECT_EQ(f.stats().traces, 1);
  EXPECT_LT(f.stats().looks, 40);
  Net net;
  optim::AdamW opt(net.parameters(), {});
  auto step = compile([&](Tensor a, Tensor y) { return train_step(net, opt, a, y); });
  for (int i = 0; i < kCalls; ++i) step(batch(6), labels(6));
  EXPECT_EQ(step.stats().traces, 1);
  EXPECT_LT(step.stats().looks, 40);
}

TEST(CapturedNumbers, ThoseThatChangeOftenSaySo) {
  if (kSanitized) GTEST_SKIP() << "variables are not on the stack";
  double s = 0;
  auto f = compile([&](Tensor x) { return x * s; }, {.name = "scaled"});
  const Tensor x = ones({2});
  testing::internal::CaptureStderr();
  for (int i = 0; i < 20; ++i) {
    s = i;
    EXPECT_EQ(first_of(f(x)), i);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(text, "retraced 8 times"), 1u) << text;
  EXPECT_TRUE(has(text, "scaled")) << text;
}

TEST(CapturedNumbers, ResultsThatAreNoTensors) {
  auto n = std::make_unique<int64_t>(1);
  auto f = compile([p = n.get()](Tensor x) { return std::pair(x + 1, *p); });
  EXPECT_EQ(f(ones({2})).second, 1);
  *n = 5;
  EXPECT_EQ(f(ones({2})).second, 5);
}

// TANDEM_CHECK_COMPILE and {.check = true}: no call is wrong.
TEST(CapturedNumbers, CheckThrowsAtOnce) {
  auto on_heap = std::make_unique<double>(1);
  auto f =
      compile([p = on_heap.get()](Tensor x) { return x * *p; }, {.name = "scaled", .check = true});
  const Tensor x = ones({2});
  for (int call = 1; call <= 5; ++call) EXPECT_EQ(first_of(f(x)), 1) << call;
  *on_heap = 5;
  const std::string text = thrown([&] { f(x); }, ErrorKind::Value);
  EXPECT_TRUE(has(text, "scaled")) << text;
  EXPECT_TRUE(has(text, "the number of mul (")) << text;
  EXPECT_TRUE(has(text, "was 1 and is 5")) << text;
  EXPECT_TRUE(has(text, "hold it in a Buffer")) << text;
}

TEST(CapturedNumbers, TheVariableChecksEveryFunction) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the variable is read once, in a fresh process
  const auto program = [] {
    ::setenv("TANDEM_CHECK_COMPILE", "1", 1);
    const auto factor = std::make_unique<double>(1);
    auto f = compile([p = factor.get()](Tensor x) { return x * *p; }, {.name = "scaled"});
    const Tensor x = ones({2});
    try {
      f(x);
      *factor = 5;
      f(x);
    } catch (const Error& e) {
      std::fputs(e.what(), stderr);
      ::_exit(3);
    }
    ::_exit(0);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(3), "was 1 and is 5");
}

// A program that does what its C++ does passes, and writes once.
TEST(CapturedNumbers, CheckLeavesATrainingStepAlone) {
  Noisy net, other = clone(net);
  optim::AdamW opt(net.parameters(), {}), opt2(other.parameters(), {});
  auto checked = compile([&](Tensor x, Tensor y) { return train_step(net, opt, x, y); },
                         {.keep_grads = true, .check = true});
  auto plain = compile([&](Tensor x, Tensor y) { return train_step(other, opt2, x, y); },
                       {.keep_grads = true});
  for (int i = 0; i < 4; ++i) {
    manual_seed(static_cast<uint64_t>(i));
    const std::vector<float> want = values(plain(batch(6), labels(6)));
    const GeneratorState after = generator_state();
    manual_seed(static_cast<uint64_t>(i));
    EXPECT_EQ(values(checked(batch(6), labels(6))), want) << i;
    EXPECT_EQ(generator_state().offset, after.offset);
  }
  for (auto& [name, value] : net.state_dict())
    EXPECT_TRUE(same_bits(value, other.state_dict().at(name))) << name;
}

TEST(CapturedNumbers, CheckComparesResultsAndCells) {
  Buffer seen(zeros({2}));
  auto f = compile(
      [&](Tensor x) {
        const double s = values_hidden() ? 1 : 2;  // what no trace shows
        seen.assign_(x * s);
        return x * 3;
      },
      {.check = true});
  const std::string cell = thrown([&] { f(ones({2})); }, ErrorKind::Value);
  EXPECT_TRUE(has(cell, "is not what its C++ does: 'a Param or Buffer' differs")) << cell;
  auto g = compile([](Tensor x) { return values_hidden() ? x : x * 2; }, {.check = true});
  const std::string result = thrown([&] { g(ones({2})); }, ErrorKind::Value);
  EXPECT_TRUE(has(result, "result 0 differs from op by op by 0.5 of its norm")) << result;
}

Ref<Graph> traced(const std::function<Tensor(Tensor)>& f) {
  const Spec spec(DType::f32, Shape(2, 3));
  return trace([&](In x) { return Out{f(x[0])}; }, {&spec, 1}, Captures::refuse);
}

TEST(SecondLook, NamesTheFirstDifference) {
  const Buffer a(ones({3})), b(ones({3}));
  const struct {
    const char* text;
    std::function<Tensor(Tensor)> was, now;
  } cases[] = {
      {"",
       [](Tensor x) {
         return x * 2 + tensor({1.0F, 2.0F, 3.0F});
       },
       [](Tensor x) {
         return x * 2 + tensor({1.0F, 2.0F, 3.0F});
       }},
      {"the number of mul (", [](Tensor x) { return x * 2; }, [](Tensor x) { return x * 3; }},
      {"was 2 and is 2.5", [](Tensor x) { return x * 2; }, [](Tensor x) { return x * 2.5; }},
      {"had {dim=", [](Tensor x) { return softmax(x, 0); }, [](Tensor x) { return softmax(x, 1); }},
      {"was called and now sub (", [](Tensor x) { return x + 1; }, [](Tensor x) { return x - 1; }},
      {"is new", [](Tensor x) { return x + 1; }, [](Tensor x) { return (x + 1) * 2; }},
      {"is called no more", [](Tensor x) { return (x + 1) * 2; }, [](Tensor x) { return x + 1; }},
      {"has other operands", [](Tensor x) { return (x + 1) * x; },
       [](Tensor x) { return x * (x + 1); }},
      {"had 2 at 1 and has 5",
       [](Tensor x) {
         return x * tensor({1.0F, 2.0F, 3.0F});
       },
       [](Tensor x) {
         return x * tensor({1.0F, 5.0F, 3.0F});
       }},
      {"was used and now", [&](Tensor x) { return x * a; }, [&](Tensor x) { return x * b; }},
      {"the number of add (",
       [](Tensor x) {
         return cond(
             x.sum() > 0, [](Tensor t) { return t + 1; }, [](Tensor t) { return t + 2; }, x);
       },
       [](Tensor x) {
         return cond(
             x.sum() > 0, [](Tensor t) { return t + 1; }, [](Tensor t) { return t + 3; }, x);
       }},
  };
  for (const auto& c : cases) {
    const std::string d = compiler::difference(*traced(c.was), *traced(c.now));
    if (*c.text)
      EXPECT_TRUE(has(d, c.text)) << c.text << ": " << d;
    else
      EXPECT_EQ(d, "");
  }
}

}  // namespace
}  // namespace tandem
