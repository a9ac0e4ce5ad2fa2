// SPDX-License-Identifier: Apache-2.0
// The loader: order by (seed, epoch) only, any aggregate, errors at their batch, early stop.
#include "tandem/data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

// Sample i is i itself and a random number.
struct NumberedExamples {
  int64_t n = 10;
  int64_t size() const { return n; }
  Example get(int64_t i) const { return {full({2}, i, float32), tensor(i)}; }
};
struct Noise {
  int64_t size() const { return 8; }
  Tensor get(int64_t) const { return randn({3}); }
};

std::vector<int64_t> labels(DataLoader<NumberedExamples>& loader) {
  std::vector<int64_t> all;
  for (const auto& [x, y] : loader)
    for (int64_t v : y.to_vector<int64_t>()) all.push_back(v);
  return all;
}

TEST(Loader, BatchesInOrder) {
  DataLoader loader(NumberedExamples{}, {.batch_size = 4});
  EXPECT_EQ(loader.size(), 3);
  std::vector<int64_t> sizes;
  for (auto [x, y] : loader) {
    sizes.push_back(x.size(0));
    EXPECT_EQ(x.dim(), 2);
    EXPECT_EQ(x.to_vector<float>()[0], static_cast<float>(y.to_vector<int64_t>()[0]));
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{4, 4, 2}));
  DataLoader whole(NumberedExamples{}, {.batch_size = 4, .drop_last = true});
  EXPECT_EQ(whole.size(), 2);
  EXPECT_EQ(labels(whole).size(), 8u);
}

TEST(Loader, OrderDependsOnSeedAndEpochAlone) {
  std::vector<int64_t> want;
  for (int workers : {0, 1, 3})
    for (int64_t batch : {1, 3, 10}) {
      DataLoader loader(NumberedExamples{},
                        {.batch_size = batch, .shuffle = true, .num_workers = workers, .seed = 7});
      std::vector<int64_t> first = labels(loader), second = labels(loader);
      if (want.empty()) want = first;
      EXPECT_EQ(first, want) << workers << " workers, batch " << batch;
      EXPECT_NE(second, first);
      loader.set_epoch(0);
      EXPECT_EQ(labels(loader), want);
    }
  EXPECT_EQ(std::set<int64_t>(want.begin(), want.end()).size(), 10u);
}

TEST(Loader, WithoutSeedTwoLoadersDiffer) {
  manual_seed(1);
  DataLoader a(NumberedExamples{100}, {.shuffle = true}),
      b(NumberedExamples{100}, {.shuffle = true});
  EXPECT_NE(labels(a), labels(b));
  manual_seed(1);
  DataLoader again(NumberedExamples{100}, {.shuffle = true});
  EXPECT_EQ(again.seed(), a.seed());
}

TEST(Loader, RandomTransformsDependOnTheSampleAlone) {
  std::vector<float> want;
  for (int workers : {0, 2})
    for (int64_t batch : {2, 8}) {
      std::vector<float> all;
      for (Tensor x : DataLoader(Noise{}, {.batch_size = batch, .num_workers = workers, .seed = 3}))
        for (float v : x.to_vector<float>()) all.push_back(v);
      if (want.empty()) want = all;
      EXPECT_EQ(all, want);
    }
  EXPECT_EQ(std::set<float>(want.begin(), want.end()).size(), want.size());
}

TEST(Loader, TakesAggregatesOfAnyArity) {
  struct Three {
    Tensor a, b, c;
  };
  struct Source {
    int64_t size() const { return 4; }
    Three get(int64_t i) const { return {tensor(i), tensor(2 * i), tensor(3 * i)}; }
  };
  int64_t sum = 0;
  for (auto [a, b, c] : DataLoader(Source{}, {.batch_size = 2}))
    sum += (a + b + c).sum().item<int64_t>();
  EXPECT_EQ(sum, 6 * (0 + 1 + 2 + 3));
}

TEST(Loader, ErrorsComeAtTheirBatch) {
  struct Bad {
    int64_t size() const { return 6; }
    Tensor get(int64_t i) const {
      TD_CHECK(i != 4, Format, "sample 4 is damaged");
      return tensor(i);
    }
  };
  for (int workers : {0, 2}) {
    int seen = 0;
    try {
      for (Tensor x : DataLoader(Bad{}, {.batch_size = 2, .num_workers = workers})) {
        ++seen;
        EXPECT_EQ(x.size(0), 2);
      }
      FAIL() << "the damaged sample was not reported";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Format);
      EXPECT_NE(std::string(e.what()).find("sample 4 is damaged"), std::string::npos);
    }
    EXPECT_EQ(seen, 2);
  }
}

std::string short_type_of(const std::exception& e) { return detail::short_type_name(typeid(e)); }

struct Troubled {
  std::function<void()> trouble;
  int64_t size() const { return 12; }
  Tensor get(int64_t i) const {
    if (i == 7 && trouble) trouble();
    return ones({i == 9 && !trouble ? 3 : 2});
  }
};

TEST(Loader, AnErrorNamesItsSampleAndKeepsItsCause) {
  const auto fetched = [](std::function<void()> trouble, int64_t workers, bool pipeline) {
    const auto read = [](auto loader) {
      for (const Tensor& x : loader) (void)x;
    };
    try {
      if (pipeline)
        read(data::pipeline(Troubled{trouble}).shuffle().batch(4).prefetch({.workers = workers}));
      else
        read(DataLoader(Troubled{trouble},
                        {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 3}));
    } catch (const Error& e) {
      std::string cause;
      try {
        std::rethrow_if_nested(e);
      } catch (const std::exception& of) {
        cause = short_type_of(of);
      }
      return std::string(to_string(e.kind())) + ": " + e.what() + " <" + cause + ">";
    }
    return std::string("nothing");
  };
  struct Case {
    std::function<void()> trouble;
    const char* text;
  };
  const Case cases[] = {
      {[] { throw std::runtime_error("no such photo"); },
       "Value: sample 7 of Troubled: no such photo (runtime_error). Call your code with this "
       "sample "
       "alone, outside of the loader, to see where. <runtime_error>"},
      {[] { throw std::bad_alloc(); }, "Memory: sample 7 of Troubled: there is not enough memory"},
      {[] { TD_FAIL(Format, "broken file\nReplace it."); },
       "Format: sample 7 of Troubled: broken file. Replace it. <>"},
      {[] { ones({2}).reshape({3}); },
       "Shape: sample 7 of Troubled: reshape: shape [3] expects 3 elements, x is [2] (2). At "},
      {nullptr, "Shape: sample "},  // the ninth has another shape
  };
  for (const Case& c : cases)
    for (const int64_t workers : {0, 2})
      for (const bool pipeline : {false, true}) {
        const std::string got = fetched(c.trouble, workers, pipeline);
        EXPECT_EQ(got.find(c.text), 0u) << got;
      }
}

TEST(Loader, StopsEarlyAndWithManyWorkers) {
  for (int round = 0; round < 20; ++round) {
    DataLoader loader(NumberedExamples{1000},
                      {.batch_size = 3, .num_workers = 4, .prefetch_factor = 3});
    int seen = 0;
    for (auto [x, y] : loader)
      if (++seen == 5) break;
    EXPECT_EQ(seen, 5);
  }
}

TEST(Loader, RaggedSamplesAndBadOptions) {
  struct Ragged {
    int64_t size() const { return 2; }
    Tensor get(int64_t i) const { return zeros({i + 1}); }
  };
  DataLoader ragged(Ragged{}, {.batch_size = 2});
  EXPECT_THROW(ragged.begin(), Error);
  EXPECT_THROW(DataLoader(NumberedExamples{}, {.batch_size = 0}), Error);
  EXPECT_THROW(DataLoader(NumberedExamples{}, {.num_workers = -2}), Error);
  auto outside = [](int64_t) { return std::vector<int64_t>{99}; };
  DataLoader wrong(NumberedExamples{}, {.sampler = outside});
  try {
    wrong.begin();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Index);
    EXPECT_STREQ(e.what(),
                 "the sampler gave index 99 of a dataset of 10. Its indices run from 0 to 9.");
  }
}

TEST(Loader, EmptyDataset) {
  DataLoader loader(NumberedExamples{0}, {.batch_size = 4});
  EXPECT_EQ(loader.size(), 0);
  EXPECT_TRUE(loader.begin() == loader.end());
}

TEST(Sampler, WeightedAndParts) {
  std::vector<int64_t> draws = weighted_order({0, 1, 3}, 4000, 5, 0);
  int64_t twos = std::count(draws.begin(), draws.end(), 2);
  EXPECT_EQ(std::count(draws.begin(), draws.end(), 0), 0);
  EXPECT_NEAR(static_cast<double>(twos) / 4000, 0.75, 0.03);
  EXPECT_THROW(weighted_order({0, 0}, 1, 0, 0), Error);
  EXPECT_THROW(weighted_order({1, -1}, 1, 0, 0), Error);
  std::vector<int64_t> order = shuffled_order(10, 1, 0);
  std::multiset<int64_t> both;
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<int64_t> part = part_of_order(order, rank, 3);
    EXPECT_EQ(part.size(), 4u);
    both.insert(part.begin(), part.end());
  }
  for (int64_t i = 0; i < 10; ++i) EXPECT_GE(both.count(i), 1u);
}

}  // namespace
}  // namespace tandem::data
