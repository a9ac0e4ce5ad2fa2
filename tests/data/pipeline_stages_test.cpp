// SPDX-License-Identifier: Apache-2.0
// filter(), bucket_by_length(), sample() and cache(file): their elements against plain loops, equal
// for any number of threads, resumed after every element, and damaged files.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "tandem/tandem.h"
#include "tests/data/numbers.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

// Sample i: its own number, as often as lengths[i] says.
struct Words {
  std::vector<int64_t> lengths;
  int64_t size() const { return static_cast<int64_t>(lengths.size()); }
  Example get(int64_t i) const {
    return {full({lengths[static_cast<size_t>(i)]}, i, int64), tensor(i)};
  }
};

bool odd(const Tensor& t) { return t.item<int64_t>() % 2 == 1; }
Tensor noised(const Tensor& t) { return t * 1000 + randint(0, 1000, Shape()); }

List numbers_at(Line p, int64_t epoch) {
  List all;
  p.set_epoch(epoch);
  for (const Tensor& t : p)
    for (int64_t v : t.to_vector<int64_t>()) all.push_back(v);
  return all;
}
List chosen(const List& of) {
  List out;
  for (int64_t v : of)
    if (v % 2 == 1) out.push_back(v);
  return out;
}

TEST(PipelineFilter, IsAPlainLoop) {
  EXPECT_EQ(numbers_at(numbers(9).filter(odd), 0), (List{1, 3, 5, 7}));
  EXPECT_EQ(numbers_at(numbers(0).filter(odd), 0), List());
  EXPECT_EQ(numbers_at(numbers(6).map(doubled).filter(odd), 0), List());
  EXPECT_EQ(numbers(9).filter(odd).size(), 4);
  // After stages that change the order, the remaining elements keep that order.
  const Line shuffled = numbers(300).shuffle();
  for (int64_t epoch : {0, 1, 7})
    for (int64_t workers : {0, 3}) {
      EXPECT_EQ(numbers_at(shuffled.filter(odd).prefetch({.workers = workers}), epoch),
                chosen(numbers_at(shuffled, epoch)));
      EXPECT_EQ(numbers_at(shuffled.repeat(3).filter(odd), epoch),
                chosen(numbers_at(shuffled.repeat(3), epoch)));
    }
  const Line both = interleave<Tensor>({shuffled, numbers(50, 1000).shuffle()});
  EXPECT_EQ(numbers_at(both.filter(odd), 2), chosen(numbers_at(both, 2)));
  EXPECT_EQ(
      numbers_at(
          numbers(9).filter(odd).filter([](const Tensor& t) { return t.item<int64_t>() > 2; }), 0),
      (List{3, 5, 7}));
  EXPECT_EQ(numbers_at(numbers(9).take(5).skip(1).filter(odd), 0), (List{1, 3}));
}

TEST(PipelineFilter, LooksOnceAndKnowsItsSamples) {
  auto count = std::make_shared<std::atomic<int>>(0);
  Line p = numbers(100).shuffle().filter([count](const Tensor& t) {
    ++*count;
    return odd(t);
  });
  EXPECT_EQ(*count, 100);
  for (int64_t epoch = 0; epoch < 4; ++epoch)
    for (int64_t i = 0; i < p.size(); ++i)
      ASSERT_EQ(p.get(i, epoch).item<int64_t>(), p.samples_of(i, epoch).at(0));
  EXPECT_EQ(*count, 100);
  EXPECT_EQ(p.text(), "dataset(100) | shuffle | filter(50)");
  // Bulk reads equal single reads.
  const Digits digits({.train = true});
  auto f = pipeline(digits, {.seed = 3})
               .filter([](const Example& e) { return e.y.item<int64_t>() < 3; })
               .shuffle();
  const Example batch = f.batch(20).get(1, 2);
  for (int64_t k = 0; k < 20; ++k) EXPECT_TRUE(equal(batch.x[k], f.get(20 + k, 2).x));
}

TEST(PipelineBuckets, AreThoseOfAPlainLoop) {
  const List lengths = {3, 12, 5, 1, 11, 2, 30, 4, 9, 10};
  const auto p = pipeline(Words{lengths}, {.seed = 5})
                     .bucket_by_length([](const Example& e) { return e.x.size(0); }, {5, 11},
                                       {2, 2, 1}, {.pad = -1});
  // below 5: 0 3 5 7; 5 .. 10: 2 8 9; from 11: 1 4 6
  const std::vector<List> want = {{1}, {0, 3}, {4}, {6}, {5, 7}, {2, 8}, {9}};
  ASSERT_EQ(p.size(), 7);
  for (int64_t i = 0; i < p.size(); ++i) {
    const Example e = p.get(i);
    EXPECT_EQ(e.y.to_vector<int64_t>(), want[static_cast<size_t>(i)]) << i;
    EXPECT_EQ(p.samples_of(i), want[static_cast<size_t>(i)]) << i;
    int64_t longest = 0;
    for (int64_t k : want[static_cast<size_t>(i)])
      longest = std::max(longest, lengths[static_cast<size_t>(k)]);
    EXPECT_EQ(e.x.shape(), Shape(e.y.size(0), longest));
  }
  EXPECT_EQ(p.get(1).x.to_vector<int64_t>(), (List{0, 0, 0, 3, -1, -1}));
  const auto drop = pipeline(Words{lengths}, {.seed = 5})
                        .bucket_by_length([](const Example& e) { return e.x.size(0); }, {5, 11},
                                          {2, 2, 1}, {.drop_last = true});
  EXPECT_EQ(drop.size(), 6);
}

TEST(PipelineBuckets, PadToBoundariesAndShuffle) {
  List lengths;
  for (int64_t i = 0; i < 103; ++i) lengths.push_back(1 + i * 37 % 19);
  const auto p = pipeline(Words{lengths}, {.seed = 5})
                     .shuffle()
                     .bucket_by_length([](const Example& e) { return e.x.size(0); }, {8, 20},
                                       {8, 4, 1}, {.pad_to_boundary = true});
  std::multiset<int64_t> first, second;
  for (int64_t i = 0; i < p.size(); ++i) {
    const Example e = p.get(i, 0);
    EXPECT_TRUE(e.x.size(1) == 7 || e.x.size(1) == 19) << e.x.shape().to_string();
    EXPECT_LE(e.x.size(0), e.x.size(1) == 7 ? 8 : 4);
    for (int64_t v : e.y.to_vector<int64_t>()) {
      first.insert(v);
      EXPECT_EQ(lengths[static_cast<size_t>(v)] < 8, e.x.size(1) == 7);
    }
    for (int64_t v : p.get(i, 1).y.to_vector<int64_t>()) second.insert(v);
  }
  EXPECT_EQ(first.size(), 103U);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 103U);
  EXPECT_EQ(first, second);
  EXPECT_NE(p.get(0, 0).y.to_vector<int64_t>(), p.get(0, 1).y.to_vector<int64_t>());
}

TEST(PipelineSample, DrawsByWeight) {
  const Line p = numbers(4).sample({0, 1, 3, 0}, 8000);
  EXPECT_EQ(p.size(), 8000);
  const List first = numbers_at(p, 0);
  EXPECT_EQ(std::count(first.begin(), first.end(), 1) + std::count(first.begin(), first.end(), 2),
            8000);
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), 2)) / 8000, 0.75, 0.03);
  EXPECT_NE(first, numbers_at(p, 1));
  EXPECT_EQ(first, numbers_at(p.prefetch({.workers = 3}), 0));
  EXPECT_EQ(first, weighted_order({0, 1, 3, 0}, 8000, 5, 0));
  EXPECT_EQ(numbers(4).sample({1, 1, 1, 1}).size(), 4);
}

// A pass over two epochs, stopped after every element and resumed in a new pipeline.
void expect_resumes(const std::function<AnyPipeline()>& make) {
  const auto add = [](List& to, const std::vector<Tensor>& fields) {
    for (const Tensor& t : fields)
      for (int64_t v : t.to_vector<int64_t>()) to.push_back(v);
    to.push_back(-99);
  };
  List want;
  AnyPipeline whole = make();
  const int64_t n = whole.size();
  for (int64_t epoch = 0; epoch < 2; ++epoch)
    for (int64_t i = 0; i < n; ++i) add(want, whole.fields(i, epoch));
  for (int64_t stop = 1; stop < 2 * n; ++stop) {
    List got;
    std::string saved;
    std::vector<Tensor> fields;
    {
      AnyPipeline p = make();
      int64_t given = 0;
      while (given < stop) {
        p.begin_pass();
        while (given < stop && p.next(fields)) {
          add(got, fields);
          ++given;
          saved = p.state().to_json().dump();
        }
      }
    }
    AnyPipeline p = make();
    p.load_state(PipelineState::from_json(io::parse_json(saved)));
    while (p.state().epoch < 2) {
      p.begin_pass();
      while (p.next(fields)) add(got, fields);
    }
    ASSERT_EQ(got, want) << whole.text() << ", stopped after " << stop;
  }
}

TEST(PipelineStages, GoOnAfterEveryElement) {
  expect_resumes([] { return numbers(31).shuffle().filter(odd).map(noised).batch(2); });
  expect_resumes([] { return numbers(7).sample({1, 2, 3, 4, 5, 6, 7}, 12).map(noised); });
  expect_resumes([] {
    List lengths;
    for (int64_t i = 0; i < 23; ++i) lengths.push_back(1 + i * 5 % 9);
    return pipeline(Words{lengths}, {.seed = 2})
        .shuffle()
        .bucket_by_length([](const Example& e) { return e.x.size(0); }, {4}, {4, 2})
        .prefetch({.workers = 2});
  });
  TempFolder f;
  expect_resumes([&] { return numbers(9).map(noised).cache(f / "c").shuffle().map(noised); });
}

TEST(PipelineCacheFile, IsReadNotComputed) {
  TempFolder f;
  auto count = std::make_shared<std::atomic<int>>(0);
  const auto make = [&](const std::string& key) {
    return numbers(20)
        .map([count](const Tensor& t) {
          ++*count;
          return t * 3;
        })
        .cache(f / "c", key)
        .shuffle();
  };
  const List want = numbers_at(make("a"), 1);
  EXPECT_EQ(*count, 20);
  EXPECT_EQ(numbers_at(make("a"), 1), want);
  EXPECT_EQ(numbers_at(make("a").prefetch({.workers = 3}), 1), want);
  EXPECT_EQ(numbers_at(make("a").seed(8), 1).size(),
            20U);  // nothing random before it: any seed reads it
  EXPECT_EQ(*count, 20);
  EXPECT_EQ(make("a").text(), "dataset(20) | map | cache | shuffle");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(numbers_at(make("b"), 1), want);
  EXPECT_EQ(*count, 40);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("was written for another chain or key"),
            std::string::npos);
  EXPECT_EQ(f.names(), std::vector<std::string>{"c"});
  // All dtypes and shapes come back.
  struct Mixed {
    int64_t size() const { return 3; }
    Example get(int64_t i) const {
      return {full({i, 2}, 1.5, i == 0 ? float32 : i == 1 ? float64 : float16), tensor(i == 1)};
    }
  };
  const auto plain = pipeline(Mixed{}, {.seed = 1});
  for (int k = 0; k < 2; ++k) {
    const auto cached = plain.cache(f / "mixed");
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(cached.get(i).x.dtype(), plain.get(i).x.dtype());
      EXPECT_TRUE(equal(cached.get(i).x, plain.get(i).x));
      EXPECT_TRUE(equal(cached.get(i).y, plain.get(i).y));
    }
  }
}

TEST(PipelineCacheFile, RandomMapsKeepTheirSeed) {
  TempFolder f;
  const auto make = [&](uint64_t seed) { return numbers(20).seed(seed).map(noised); };
  const List want = numbers_at(make(5).cache(), 0);
  EXPECT_EQ(numbers_at(make(5).cache(f / "c"), 0), want);
  EXPECT_EQ(numbers_at(make(5).cache(f / "c"), 3), want);  // as of epoch 0
  // Another seed after it: that seed's elements, never the file's.
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(numbers_at(make(5).cache(f / "c").seed(6), 0), numbers_at(make(6).cache(), 0));
  EXPECT_EQ(numbers_at(make(6).cache(f / "c"), 0), numbers_at(make(6).cache(), 0));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("they are computed, not read"), std::string::npos) << said;
  EXPECT_NE(said.find("holds the elements of seed 5"), std::string::npos) << said;
}

TEST(PipelineCacheFile, DamageIsSeen) {
  TempFolder f;
  const auto make = [&] { return numbers(5).map(doubled).cache(f / "c"); };
  const List want = numbers_at(make(), 0);
  const std::string whole = read_file(f / "c");
  const auto put = [&](const std::string& bytes) {
    std::ofstream(f / "c", std::ios::binary) << bytes;
  };
  ::testing::internal::CaptureStderr();
  for (size_t n = 8; n < whole.size(); n += 3) {  // cut: written again
    put(whole.substr(0, n));
    ASSERT_EQ(numbers_at(make(), 0), want) << n;
    ASSERT_EQ(read_file(f / "c"), whole) << n;
  }
  for (size_t k = 8; k < whole.size(); ++k) {  // one byte: never another number
    std::string changed = whole;
    changed[k] = static_cast<char>(changed[k] ^ 0x41);
    put(changed);
    ASSERT_EQ(numbers_at(make(), 0), want) << k;
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("is truncated or damaged: it is rewritten"), std::string::npos);
  EXPECT_NE(said.find("element 0 is damaged and recomputed"), std::string::npos);
  put("some text of the user");
  EXPECT_EQ(error_of(make), "Format: cache(): '" + (f / "c") +
                                "' exists and is not a cache of elements. Choose another file.");
  EXPECT_EQ(read_file(f / "c"), "some text of the user");
  // An exception in a map leaves no file behind.
  const std::string what = error_of([&] {
    numbers(5)
        .map([](const Tensor& t) {
          TD_CHECK(t.item<int64_t>() < 3, Value, "three");
          return t;
        })
        .cache(f / "new");
  });
  EXPECT_EQ(what, "Value: map over sample 3 of dataset(5): three.");
  EXPECT_EQ(f.names(), std::vector<std::string>{"c"});
}

TEST(PipelineStages, RefuseWhatTheyCannotDo) {
  const auto length = [](const Tensor& t) { return t.item<int64_t>(); };
  const std::pair<std::function<void()>, const char*> kCases[] = {
      {[] { numbers(9).map(noised).filter(odd); }, "filter() after stages whose elements change"},
      {[] { numbers(9).shuffle().take(4).filter(odd); }, "filter() after stages whose elements"},
      {[] { numbers(9).repeat().filter(odd); }, "filter() of a pipeline that repeats forever"},
      {[&] {
         numbers(9).map(noised).bucket_by_length(length, {2}, {1, 1});
       },
       "bucket_by_length() after stages whose elements change"},
      {[&] {
         numbers(9).bucket_by_length(length, {2, 2}, {1, 1, 1});
       },
       "bucket_by_length() expects increasing boundaries, at most 254, got [2, 2]"},
      {[&] {
         numbers(9).bucket_by_length(length, {2}, {1, 0});
       },
       "bucket_by_length() expects 2 batch sizes > 0, one more than boundaries, got [1, 0]"},
      {[&] {
         numbers(9).bucket_by_length(length, {4}, {1, 1}, {.pad_to_boundary = true});
       },
       "bucket_by_length() with pad_to_boundary expects lengths below 4, got 4"},
      {[] {
         numbers(3).sample({1, 2});
       },
       "sample() expects a weight for each of the 3 elements, got 2"},
      {[] {
         numbers(2).sample({0, 0});
       },
       "all weights are 0"},
      {[] {
         numbers(2).sample({1, -1});
       },
       "weight 1 is -1, it must be >= 0"},
      {[] { numbers(3).repeat().cache("x"); }, "cache() of a pipeline that repeats forever"},
  };
  for (const auto& [f, text] : kCases) {
    const std::string what = error_of(f);
    EXPECT_EQ(what.rfind("Value: ", 0), 0U) << what;
    EXPECT_NE(what.find(text), what.npos) << what;
  }
}

// The parts of all ranks are the batch, in order; one without equal parts is everybody's. Positions
// are those of whole batches. A stage behind batch() sees the whole batch.
TEST(Pipeline, PartsOfBatches) {
  const Line lines[] = {numbers(22).shuffle().batch(6),
                        numbers(22).shuffle().batch(6).map(doubled)};
  for (const Line& whole : lines) {
    for (int64_t i = 0; i < whole.size(); ++i) {
      const List want = whole.fields(i, 1)[0].to_vector<int64_t>();
      for (const int64_t ranks : {1, 2, 3}) {
        List all;
        for (int64_t r = 0; r < ranks; ++r) {
          const AnyPipeline part = whole.part_of_batches(r, ranks);
          EXPECT_EQ(part.samples_of(i, 1), whole.samples_of(i, 1));
          const List own = part.fields(i, 1)[0].to_vector<int64_t>();
          if (want.size() % static_cast<size_t>(ranks) != 0)
            EXPECT_EQ(own, want);
          else
            all.insert(all.end(), own.begin(), own.end());
        }
        if (want.size() % static_cast<size_t>(ranks) == 0) {
          EXPECT_EQ(all, want);
        }
      }
    }
  }
  // Only a rank's own samples are loaded.
  std::atomic<int> loaded{0};
  const Line counted = numbers(12).map([&](const Tensor& t) {
    ++loaded;
    return t;
  });
  counted.batch(6).part_of_batches(1, 3).fields(0);
  EXPECT_EQ(loaded, 2);
  // A pass resumes on another number of ranks.
  AnyPipeline two = lines[0].part_of_batches(0, 2), three = lines[0].part_of_batches(2, 3);
  std::vector<Tensor> fields;
  two.begin_pass();
  ASSERT_TRUE(two.next(fields));
  three.load_state(two.state());
  three.begin_pass();
  ASSERT_TRUE(three.next(fields));
  EXPECT_EQ(fields[0].to_vector<int64_t>(),
            lines[0].part_of_batches(2, 3).fields(1)[0].to_vector<int64_t>());
  EXPECT_EQ(error_of([&] { lines[0].part_of_batches(2, 2); }),
            "Value: part_of_batches(): rank 2 of 2.");
}

}  // namespace
}  // namespace tandem::data
