// SPDX-License-Identifier: Apache-2.0
// Pipelines against plain loops: every stage as a list of numbers, equal for any number of threads,
// and a pass that resumes after any element exactly like one that was not interrupted.
#include "tandem/data/pipeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <set>
#include <thread>

#include "tandem/tandem.h"
#include "tests/data/numbers.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

// One pass as a flat list; -1 ends each element that is a batch.
List pass(Line p) {
  List all;
  for (const Tensor& t : p) {
    for (int64_t v : t.to_vector<int64_t>()) all.push_back(v);
    if (t.dim() > 0) all.push_back(-1);
  }
  return all;
}
List pass_at(Line p, int64_t epoch) {
  p.set_epoch(epoch);
  return pass(p);
}

struct StageCase {
  const char* name;
  std::function<Line()> make;
  List want;
};
const StageCase kStages[] = {
    {"source", [] { return numbers(4); }, {0, 1, 2, 3}},
    {"empty", [] { return numbers(0); }, {}},
    {"map", [] { return numbers(3).map(doubled); }, {0, 2, 4}},
    {"batch", [] { return numbers(5).batch(2); }, {0, 1, -1, 2, 3, -1, 4, -1}},
    {"drop_last", [] { return numbers(5).batch(2, {.drop_last = true}); }, {0, 1, -1, 2, 3, -1}},
    {"batch_map", [] { return numbers(3).batch(2).map(doubled); }, {0, 2, -1, 4, -1}},
    {"take", [] { return numbers(5).take(2); }, {0, 1}},
    {"take_more", [] { return numbers(2).take(9); }, {0, 1}},
    {"skip", [] { return numbers(5).skip(3); }, {3, 4}},
    {"skip_all", [] { return numbers(5).skip(7); }, {}},
    {"repeat", [] { return numbers(2).repeat(3); }, {0, 1, 0, 1, 0, 1}},
    {"repeat_never", [] { return numbers(2).repeat(0); }, {}},
    {"repeat_batch", [] { return numbers(3).repeat(2).batch(4); }, {0, 1, 2, 0, -1, 1, 2, -1}},
    {"repeat_take", [] { return numbers(3).repeat().take(7); }, {0, 1, 2, 0, 1, 2, 0}},
    {"shard", [] { return numbers(5).shard(1, 2); }, {1, 3, 0}},
    {"shard_exact", [] { return numbers(5).shard(1, 2, {.fill = false}); }, {1, 3}},
    {"cache", [] { return numbers(3).cache().repeat(2); }, {0, 1, 2, 0, 1, 2}},
    {"concatenate",
     [] {
       return concatenate<Tensor>({numbers(2), numbers(2, 7)});
     },
     {0, 1, 7, 8}},
    {"interleave",
     [] {
       return interleave<Tensor>({numbers(5), numbers(1, 10), numbers(3, 20)});
     },
     {0, 10, 20, 1, 21, 2, 22, 3, 4}},
    {"interleave_blocks",
     [] {
       return interleave<Tensor>({numbers(5), numbers(3, 10)}, {.block_length = 2});
     },
     {0, 1, 10, 11, 2, 3, 12, 4}},
    {"interleave_batch",
     [] {
       return interleave<Tensor>({numbers(2), numbers(2, 10)}).batch(3);
     },
     {0, 10, 1, -1, 11, -1}},
};

TEST(Pipeline, StagesGiveTheElementsOfAPlainLoop) {
  for (const StageCase& c : kStages)
    for (int64_t workers : {0, 1, 3, -1}) {
      Line p = c.make().prefetch({.workers = workers});
      EXPECT_EQ(pass(p), c.want) << c.name << ", " << workers << " workers";
      List one_by_one;
      for (int64_t i = 0; i < p.size(); ++i) {
        Tensor t = p.get(i);
        for (int64_t v : t.to_vector<int64_t>()) one_by_one.push_back(v);
        if (t.dim() > 0) one_by_one.push_back(-1);
      }
      EXPECT_EQ(one_by_one, c.want) << c.name;
    }
}

TEST(Pipeline, ShuffleIsAPermutationOfSeedAndEpoch) {
  Line p = numbers(50).shuffle();
  List first = pass_at(p, 0), second = pass_at(p, 1);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 50u);
  EXPECT_NE(first, second);
  EXPECT_NE(first, pass_at(p.seed(6), 0));
  EXPECT_EQ(first, pass_at(p.seed(5), 0));
  EXPECT_EQ(first, shuffled_order(50, 5, 0));  // the order of DataLoader
  // Each repetition is reshuffled, as the epoch of that number.
  List both = first;
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(pass_at(p.repeat(2), 0), both);
  // Passes advance from epoch to epoch automatically.
  p.set_epoch(0);
  EXPECT_EQ(pass(p), first);
  EXPECT_EQ(pass(p), second);
}

TEST(Pipeline, BigPermutationsHoldNoTable) {
  const int64_t n = (int64_t{1} << 22) + 17;
  Permutation p(n, 3, 1);
  std::vector<bool> seen(static_cast<size_t>(n));
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    int64_t k = p[i];
    ASSERT_TRUE(k >= 0 && k < n && !seen[static_cast<size_t>(k)]) << i << " -> " << k;
    seen[static_cast<size_t>(k)] = true;
    if (i < 100000) sum += static_cast<double>(k) / static_cast<double>(n);
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.01);  // 11 standard deviations
  EXPECT_NE(Permutation(n, 3, 2)[0], p[0]);
  Permutation huge(int64_t{1} << 40, 1, 0);
  for (int64_t i : {int64_t{0}, int64_t{1} << 39}) EXPECT_LT(huge[i], int64_t{1} << 40);
}

TEST(Pipeline, ShardsCoverTheDataTogether) {
  std::multiset<int64_t> all;
  for (int64_t rank = 0; rank < 3; ++rank)
    for (int64_t v : pass_at(numbers(9).shuffle().shard(rank, 3), 4)) all.insert(v);
  EXPECT_EQ(all.size(), 9u);
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 9u);
}

Line noisy() {
  return numbers(23)
      .shuffle()
      .map([](const Tensor& t) { return t * 1000 + randint(0, 1000, Shape()); })
      .batch(4)
      .map([](const Tensor& t) { return t + randint(0, 7, {t.size(0)}); });
}

TEST(Pipeline, RandomMapsDoNotDependOnThreads) {
  List want = pass(noisy().prefetch({.workers = 0}));
  for (int64_t workers : {1, 2, 4, -1})
    EXPECT_EQ(pass(noisy().prefetch({.depth = workers + 2, .workers = workers})), want);
  EXPECT_NE(pass_at(noisy(), 1), want);
  GeneratorState before = generator_state();
  pass(noisy());
  EXPECT_EQ(generator_state().offset, before.offset);  // the default generator is left alone
}

TEST(Pipeline, ResumesAfterEveryElement) {
  List want;
  for (int64_t epoch = 0; epoch < 2; ++epoch)
    for (int64_t v : pass_at(noisy(), epoch)) want.push_back(v);
  const int64_t n = noisy().size();
  for (int64_t stop = 1; stop <= 2 * n; ++stop) {
    List got;
    auto add = [&](const Tensor& t) {
      for (int64_t v : t.to_vector<int64_t>()) got.push_back(v);
      got.push_back(-1);
    };
    std::string saved;
    {
      Line p = noisy();
      int64_t given = 0;
      for (int epoch = 0; epoch < 2 && given < stop; ++epoch)
        for (const Tensor& t : p) {
          add(t);
          saved = p.state().to_json().dump();  // as in a checkpoint after this step
          if (++given == stop) break;
        }
    }
    Line p = noisy().seed(99);  // the seed is part of the state
    p.load_state(PipelineState::from_json(io::parse_json(saved)));
    while (p.state().epoch < 2)
      for (const Tensor& t : p) add(t);
    ASSERT_EQ(got, want) << "stopped after " << stop;
  }
}

TEST(Pipeline, KnowsTheSamplesOfAnElement) {
  Line p = numbers(23).shuffle().batch(4).map(doubled).skip(1).repeat(2);
  for (int64_t i = 0; i < p.size(); ++i) {
    List twice = p.get(i, 3).to_vector<int64_t>(), ids = p.samples_of(i, 3);
    for (int64_t& v : ids) v *= 2;
    EXPECT_EQ(ids, twice) << i;
  }
}

TEST(Pipeline, ZipJoinsFields) {
  auto p = zip<Example>(numbers(3), numbers(5, 10).map(doubled)).batch(2);
  List x, y;
  for (const Example& e : p) {
    for (int64_t v : e.x.to_vector<int64_t>()) x.push_back(v);
    for (int64_t v : e.y.to_vector<int64_t>()) y.push_back(v);
  }
  EXPECT_EQ(x, (List{0, 1, 2}));
  EXPECT_EQ(y, (List{20, 22, 24}));
}

TEST(Pipeline, CacheComputesOnce) {
  auto count = std::make_shared<std::atomic<int>>(0);
  Line p = numbers(20).map([count](const Tensor& t) {
    ++*count;
    return t + randint(0, 1000, Shape());
  });
  Line cached = p.cache().shuffle();
  List first = pass_at(cached, 0), second = pass_at(cached, 1);
  EXPECT_EQ(*count, 20);
  EXPECT_EQ(std::multiset<int64_t>(first.begin(), first.end()),
            std::multiset<int64_t>(second.begin(), second.end()));
}

TEST(Pipeline, PadsBatches) {
  struct Ragged {
    int64_t size() const { return 3; }
    Tensor get(int64_t i) const { return full({i + 1, 3 - i}, i + 1, int64); }
  };
  auto p = pipeline(Ragged{}, {.seed = 1}).batch(3, {.pad = -7});
  Tensor t = p.get(0);
  EXPECT_EQ(t.shape(), Shape(3, 3, 3));
  EXPECT_EQ(t.to_vector<int64_t>(), (List{1, 1,  1,  -7, -7, -7, -7, -7, -7,  //
                                          2, 2,  -7, 2,  2,  -7, -7, -7, -7,  //
                                          3, -7, -7, 3,  -7, -7, 3,  -7, -7}));
}

TEST(Pipeline, RefusesWhatItCannotDo) {
  const std::pair<std::function<void()>, const char*> kCases[] = {
      {[] { numbers(3).batch(0); }, "batch() expects a size > 0, got 0"},
      {[] { numbers(3).shard(3, 3); }, "shard(): rank 3 of 3"},
      {[] { numbers(3).take(-1); }, "take() and skip() expect a number >= 0, got -1"},
      {[] { numbers(3).repeat(-2); }, "repeat() expects a count >= 0, or -1 for endless, got -2"},
      {[] { numbers(3).repeat().shuffle(); }, "shuffle() of a pipeline that repeats forever"},
      {[] { numbers(3).prefetch({.depth = 0}); }, "prefetch() expects workers in -1..1024"},
      {[] {
         Line p = numbers(3).batch(2);
         p.load_state(numbers(4).batch(2).state());
       },
       "dataset(4) | batch(2)\nand this pipeline is\n  dataset(3) | batch(2). Make the pipeline"},
  };
  for (const auto& [f, text] : kCases) {
    std::string what = thrown(f, ErrorKind::Value);
    EXPECT_NE(what.find(text), what.npos) << what;
  }
  thrown([] { numbers(3).get(3); }, ErrorKind::Index);
  for (const char* text : {"{}", R"({"seed": 1, "epoch": 0, "position": 0, "pipeline": ""})",
                           R"({"seed": "x", "epoch": 0, "position": 0, "pipeline": ""})",
                           R"({"seed": "1", "epoch": "0", "position": 0, "pipeline": ""})"})
    thrown([&] { PipelineState::from_json(io::parse_json(text)); }, ErrorKind::Format);
}

TEST(Pipeline, ThrowsAtTheElementThatFailed) {
  for (int64_t workers : {0, 2}) {
    Line p = numbers(10)
                 .map([](const Tensor& t) {
                   TD_CHECK(t.item<int64_t>() != 6, Value, "six");
                   return t;
                 })
                 .prefetch({.workers = workers});
    int64_t given = 0;
    EXPECT_EQ(thrown(
                  [&] {
                    for (const Tensor& t : p) given += t.numel();
                  },
                  ErrorKind::Value),
              "map over sample 6 of dataset(10): six.");
    EXPECT_EQ(given, 6);
  }
}

TEST(Pipeline, SaysHowLongTheConsumerWaited) {
  auto slow = [](const Tensor& t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return t;
  };
  Line starved = numbers(40).map(slow).prefetch({.workers = 1});
  pass(starved);
  EXPECT_EQ(starved.stats().elements, 40);
  EXPECT_GT(starved.stats().stall(), 0.8);
  EXPECT_GT(starved.stats().busy, 0.08);
  // By default it uses as many threads as the machine has.
  Line tuned = numbers(60).map(slow).prefetch();
  pass(tuned);
  EXPECT_GE(tuned.stats().workers, std::min<int64_t>(2, std::thread::hardware_concurrency()));
}

TEST(Pipeline, BulkReadsEqualSingleOnes) {
  Digits digits({.train = true});
  auto fast = pipeline(digits, {.seed = 3}).shuffle().batch(50);
  struct Slow {
    Digits d;
    int64_t size() const { return d.size(); }
    Example get(int64_t i) const { return d.get(i); }
  };
  auto slow = pipeline(Slow{digits}, {.seed = 3}).shuffle().batch(50);
  for (int64_t i : {int64_t{0}, fast.size() - 1}) {
    EXPECT_TRUE(equal(fast.get(i).x, slow.get(i).x));
    EXPECT_TRUE(equal(fast.get(i).y, slow.get(i).y));
  }
}

TEST(Pipeline, ReadsMNIST) {
  const char* root = std::getenv("TANDEM_DATA");
  if (!root) GTEST_SKIP() << "TANDEM_DATA is not set";
  MNIST mnist(std::string(root) + "/mnist");
  auto p = pipeline(mnist, {.seed = 0}).shuffle().batch(128).prefetch();
  Example e = p.get(7, 2);
  List order = shuffled_order(60000, 0, 2);
  for (int64_t k : {0, 64, 127}) {
    Example want = mnist.get(order[static_cast<size_t>(7 * 128 + k)]);
    EXPECT_TRUE(equal(select(e.x, 0, k), want.x));
    EXPECT_TRUE(equal(select(e.y, 0, k), want.y));
  }
  auto begin = std::chrono::steady_clock::now();
  int64_t samples = 0;
  for (int epoch = 0; epoch < 5; ++epoch)
    for (const auto& [x, y] : p) samples += x.size(0);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(samples, 300000);
  std::printf("MNIST: %.2f million samples/s\n", static_cast<double>(samples) / seconds / 1e6);
}

}  // namespace
}  // namespace tandem::data
