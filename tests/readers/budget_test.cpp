// SPDX-License-Identifier: Apache-2.0
// Budgets: what is charged, the text of a refusal, how a limit is raised; and every reader against
// files that ask for far more than they are worth.
#include "tandem/base/budget.h"

#include <gtest/gtest.h>

#include <set>

#include "tandem/io/npy.h"
#include "tandem/onnx/onnx.h"
#include "tandem/tandem.h"
#include "tandem/text/tokenizer.h"
#include "tests/readers/readers.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::readers {
namespace {

constexpr double kMostSeconds = 10;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

TEST(Budget, RefusesWithTheLimitWhatCameAndTheRemedy) {
  const Budget budget("m.onnx", 100, {.bytes = 1000, .nodes = 10});
  Budget::take(26000);  // 1000 and 256 for each byte given
  EXPECT_EQ(
      error_of([] { Budget::take(1000); }),
      "Format: 'm.onnx' goes over the limit 'bytes': 26.4 KB came, 26.0 KB are allowed for "
      "the 100 B given. If you trust the file, raise it: BudgetLimits{.bytes = 32768} in C++, "
      "--limits bytes=32768 in the tool.");
  Budget::give_back(26000);
  Budget::take(26000);
  Budget::count(10 + 6400);
  EXPECT_EQ(error_of([] { Budget::count(); }),
            "Format: 'm.onnx' goes over the limit 'nodes': 6411 came, 6410 are allowed for the 100 "
            "B given. If you trust the file, raise it: BudgetLimits{.nodes = 64100} in C++, "
            "--limits nodes=64100 in the tool.");
}

TEST(Budget, CountsForTheOnesAroundIt) {
  const Budget outer("outer", 0, {.bytes = 1000});
  {
    const Budget inner("inner", 0, {.bytes = 600});
    Budget::take(500);
    EXPECT_EQ(Budget::bytes_left(), 100u);
    EXPECT_EQ(error_of([] { Budget::take(200); }).find("Format: 'inner' goes over"), 0u);
  }
  EXPECT_EQ(Budget::bytes_left(), 500u);
  EXPECT_EQ(error_of([] { Budget::take(600); }).find("Format: 'outer' goes over"), 0u);
  {
    const BudgetHold hold(400);
    EXPECT_EQ(Budget::bytes_left(), 100u);
  }
  EXPECT_EQ(Budget::bytes_left(), 500u);
  Budget::add_given(1);
  EXPECT_EQ(Budget::bytes_left(), 756u);
}

TEST(Budget, ChargesTensorsAndOps) {
  const Budget budget("x", 0, {.bytes = 8 << 20, .operations = 5000000});
  EXPECT_NE(error_of([] { zeros({1 << 22}); }).find("'x' goes over the limit 'bytes': 16.0 MB"),
            std::string::npos);
  for (int k = 0; k < 100; ++k) zeros({1 << 12});  // each is given back
  const Tensor a = ones({128, 128});
  EXPECT_NE(error_of([&] { matmul(a, a); }).find("over the limit 'operations'"), std::string::npos);
}

TEST(Budget, ReadsLimitsFromText) {
  const BudgetLimits l = parse_limits("bytes=8e9,seconds=60.5");
  EXPECT_EQ(l.bytes, 8000000000);
  EXPECT_EQ(l.seconds, 60.5);
  EXPECT_EQ(l.nodes, 0);
  EXPECT_EQ(error_of([] { parse_limits("bites=1"); }),
            "Value: there is no limit 'bites'. Did you mean 'bytes'? The limits are bytes, nodes, "
            "traced, operations and seconds.");
  EXPECT_EQ(error_of([] { parse_limits("bytes"); }),
            "Value: 'bytes' is not a limit. Write limits as bytes=8e9,seconds=60.");
  EXPECT_EQ(error_of([] { parse_limits("nodes=-1"); }).find("Value: the limit 'nodes' is a"), 0u);
  set_default_limits({.nodes = 5});
  EXPECT_EQ(default_limits().nodes, 5);
  set_default_limits({});
  EXPECT_EQ(default_limits().nodes, 1 << 20);
}

const Crafted& crafted(std::string_view name) {
  for (const Crafted& c : crafted_files())
    if (c.name == name) return c;
  TD_FAIL(Value, "there is no crafted file '{}'", name);
}

TEST(Budget, EachReaderTakesLimits) {
  const auto run = [](const char* name, const BudgetLimits& limits) {
    const std::string bytes = crafted(name).bytes();
    return error_of([&] {
      onnx::OnnxModel::parse(bytes, "m", {.limits = limits}).run(std::vector<onnx::OnnxValue>{});
    });
  };
  EXPECT_NE(run("onnx/loop_grows", {.bytes = 1 << 20}).find("over the limit 'bytes'"),
            std::string::npos);
  EXPECT_NE(run("onnx/loop_endless", {.nodes = 3}).find("over the limit 'nodes'"),
            std::string::npos);
  const std::string json = crafted("tokenizer/four_replacements").bytes();
  // A third of a megabyte of each character is little; the file wants gigabytes.
  const auto t = text::Tokenizer::from_json(json, "t", {.bytes = 1 << 16});
  EXPECT_EQ(t.encode("b").size(), 1u);
  EXPECT_NE(error_of([&] { t.encode("a"); }).find("'t' goes over"), std::string::npos);
}

TEST(Readers, SeedsAreRead) {
  for (const Reader& r : readers()) {
    const auto seeds = seeds_of(r);
    EXPECT_FALSE(seeds.empty()) << r.name;
    for (size_t i = 0; i < seeds.size(); ++i) {
      const std::string refused = error_of([&] { r.read(seeds[i]); });
      EXPECT_TRUE(refused == "no error" || refused.find("is not installed") != refused.npos ||
                  refused.starts_with("Unsupported: ") ||
                  refused.find("is not supported") != refused.npos ||
                  refused.find("which is not run") != refused.npos)
          << r.name << " " << i << ": " << refused;
      std::string same = seeds[i];
      if (r.repair) r.repair(same);
      EXPECT_EQ(error_of([&] { r.read(same); }), refused) << r.name << " " << i << ", repaired";
    }
  }
}

// The bar of every file: refused or read, under 10 s and 1 GB.
void expect_cheap(const Reader& r, const std::string& bytes, const std::string& name,
                  std::string_view says = "") {
  std::string refused;
  const Cost cost = cost_of([&] {
    try {
      r.read(bytes);
    } catch (const Error& e) {
      refused = std::string(to_string(e.kind())) + ": " + e.what();
      const bool file = e.kind() == ErrorKind::Format || e.kind() == ErrorKind::Unsupported;
      EXPECT_TRUE(file || r.runs) << name << " is refused as " << refused;
      EXPECT_NE(e.kind(), ErrorKind::Internal) << name << ": " << refused;
    }
  });
  EXPECT_NE(refused.find(says), std::string::npos) << name << ": " << refused;
  EXPECT_LT(cost.seconds, kMostSeconds) << name << ": " << refused;
  EXPECT_LT(cost.bytes, kMostBytes) << name << ": " << refused;
}

class ReadersCrafted : public testing::TestWithParam<const Reader*> {
 protected:
  // What runs until its time is over shall be over soon.
  void SetUp() override { set_default_limits({.seconds = 1}); }
  void TearDown() override { set_default_limits({}); }
};
TEST_P(ReadersCrafted, AskForTooMuchSlow) {
  for (const Crafted& c : crafted_files())
    if (c.reader == std::string_view(GetParam()->name))
      expect_cheap(*GetParam(), c.bytes(), c.name, c.says);
}
TEST_P(ReadersCrafted, Mutated) {
  const auto seeds = seeds_of(*GetParam());
  Random random(7);
  for (size_t k = 0; k < 40 && !seeds.empty(); ++k) {
    std::string bytes = seeds[k % seeds.size()];
    mutate(*GetParam(), bytes, random);
    expect_cheap(*GetParam(), bytes, fmt::format("{} {}", GetParam()->name, k));
  }
}
std::vector<const Reader*> each_reader() {
  std::vector<const Reader*> all;
  for (const Reader& r : readers()) all.push_back(&r);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, ReadersCrafted, testing::ValuesIn(each_reader()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Readers, CraftedFilesAreManyAndNamedOnce) {
  std::set<std::string> names;
  for (const Crafted& c : crafted_files()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    find_reader(c.reader);
  }
  EXPECT_GE(names.size(), 100u);
}

}  // namespace
}  // namespace tandem::readers
