// SPDX-License-Identifier: Apache-2.0
// The stages of Pipeline that inspect all elements to select or group them: filter(),
// bucket_by_length(), sample(). Results are kept by the elements' identity, so that a pass in
// another order needs no second inspection and every position stays a pure function.
#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <limits>

#include "tandem/base/cpu_count.h"
#include "tandem/data/pipeline_internal.h"
#include "tandem/graph/context.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::data::detail {
namespace {

constexpr int64_t kBits = 64;

/// Applies fn to every element, on all threads; results are indexed by identity.
std::vector<uint8_t> look_at_all(const StageRef& in, const char* what,
                                 const std::function<uint8_t(Fields)>& fn) {
  check_finite(in, what);
  const auto check = [&] {
    TD_CHECK(in->order() != Order::changing, Value,
             "{} after stages whose elements change from pass to pass:\n{}\nPut it before random "
             "maps, and before take(), skip(), shard() and batch() of a shuffled pipeline.",
             what, in->text());
  };
  check();
  std::vector<uint8_t> found(static_cast<size_t>(in->identities()));
  constexpr int64_t kChunk = 64;
  const int64_t n = in->size(), chunks = (n + kChunk - 1) / kChunk;
  const auto threads = int64_t{cpu_count()};
  OrderedRun run(
      [&](int64_t chunk) -> Fields {
        for (int64_t i = chunk * kChunk; i < std::min(n, (chunk + 1) * kChunk); ++i) {
          // A repeated element is inspected by several threads, with equal results.
          std::atomic_ref<uint8_t> at(found[static_cast<size_t>(in->identity({}, i))]);
          Fields sample = in->get({}, i);
          const uint8_t told =
              at_sample([&] { return fn(std::move(sample)); },
                        [&] { return fmt::format("{} of {}", what, samples_text(*in, {}, i)); });
          at.store(told, std::memory_order_relaxed);
        }
        return {};
      },
      {.first = 0, .last = chunks, .workers = threads, .depth = 4});
  for (Fields none; run.next(none);) {}
  check();  // a map's random draws are only noticed when it runs
  return found;
}

/// A row of bits, with a lookup of the k-th one that is set.
class BitRow {
 public:
  explicit BitRow(int64_t n = 0) : words_(static_cast<size_t>((n + kBits - 1) / kBits)) {}
  void set(int64_t i) { words_[static_cast<size_t>(i / kBits)] |= uint64_t{1} << i % kBits; }
  bool at(int64_t i) const { return words_[static_cast<size_t>(i / kBits)] >> i % kBits & 1; }
  /// Call after the last set().
  void count() {
    before_.clear();
    total_ = 0;
    for (const uint64_t w : words_) {
      before_.push_back(total_);
      total_ += std::popcount(w);
    }
  }
  int64_t total() const { return total_; }
  int64_t find(int64_t k) const {
    const auto it = std::upper_bound(before_.begin(), before_.end(), k) - 1;
    uint64_t w = words_[static_cast<size_t>(it - before_.begin())];
    for (int64_t left = k - *it; left > 0; --left) w &= w - 1;
    return (it - before_.begin()) * kBits + std::countr_zero(w);
  }

 private:
  std::vector<uint64_t> words_;
  std::vector<int64_t> before_;
  int64_t total_ = 0;
};

struct Filter : Reordered {
  BitRow keep;  ///< by identity
  int64_t n = 0;
  PerPass<BitRow> orders;

  BitRow places(Pass pass) const {
    BitRow row(in->size());
    for (int64_t i = 0; i < in->size(); ++i)
      if (keep.at(in->identity(pass, i))) row.set(i);
    row.count();
    return row;
  }
  std::shared_ptr<const BitRow> kept(Pass pass) const {
    return orders.get(in->order() == Order::fixed ? Pass{} : pass,
                      [this](Pass p) { return places(p); });
  }
  int64_t size() const override { return n; }
  int64_t row(Pass pass, int64_t i) const override { return kept(pass)->find(i); }
  std::vector<int64_t> rows_of(Pass pass, Rows rows) const override {
    const auto k = kept(pass);
    std::vector<int64_t> mapped;
    for (int64_t i : rows) mapped.push_back(k->find(i));
    return mapped;
  }
  std::string text() const override { return fmt::format("{} | filter({})", in->text(), n); }
  Order order() const override { return in->order(); }
  int64_t identity(Pass pass, int64_t i) const override { return in->identity(pass, row(pass, i)); }
  int64_t identities() const override { return in->identities(); }
};

/// The batches of a pass: their elements in sequence, and where each batch ends.
struct Batches {
  std::vector<int64_t> rows, ends;
  void add(std::vector<int64_t>& batch) {
    rows.insert(rows.end(), batch.begin(), batch.end());
    ends.push_back(static_cast<int64_t>(rows.size()));
    batch.clear();
  }
  Rows at(int64_t i) const {
    const auto k = static_cast<size_t>(i);
    const auto begin = static_cast<size_t>(k > 0 ? ends[k - 1] : 0);
    return Rows(rows).subspan(begin, static_cast<size_t>(ends[k]) - begin);
  }
};

struct Bucket : Stage {
  StageRef in;
  std::vector<uint8_t> bucket_of;  ///< by identity
  std::vector<int64_t> boundaries, batch_sizes;
  Number length;
  BucketOptions options;
  int64_t n = 0;
  PerPass<Batches> plans;

  Batches make(Pass pass) const {
    Batches all;
    std::vector<std::vector<int64_t>> open(batch_sizes.size());
    for (int64_t i = 0; i < in->size(); ++i) {
      const size_t b = bucket_of[static_cast<size_t>(in->identity(pass, i))];
      open[b].push_back(i);
      if (static_cast<int64_t>(open[b].size()) == batch_sizes[b]) all.add(open[b]);
    }
    for (std::vector<int64_t>& batch : open)
      if (!batch.empty() && !options.drop_last) all.add(batch);
    return all;
  }
  std::shared_ptr<const Batches> plan(Pass pass) const {
    return plans.get(in->order() == Order::fixed ? Pass{} : pass,
                     [this](Pass p) { return make(p); });
  }
  int64_t size() const override { return n; }
  Fields get(Pass pass, int64_t i) const override {
    const auto all = plan(pass);
    std::vector<Fields> samples;
    for (const int64_t k : all->at(i)) samples.push_back(in->get(pass, k));
    std::vector<int64_t> lengths;
    if (options.pad_to_boundary)
      for (const Fields& f : samples) lengths.push_back(length(f));
    const size_t bucket = bucket_of[static_cast<size_t>(in->identity(pass, all->at(i).front()))];
    std::vector<bool> long_fields;  // those whose first dimension is the length
    for (size_t k = 0; options.pad_to_boundary && k < samples[0].size(); ++k) {
      bool all_fit = true;
      for (size_t j = 0; j < samples.size(); ++j)
        all_fit &= samples[j][k].dim() > 0 && samples[j][k].size(0) == lengths[j];
      long_fields.push_back(all_fit);
    }
    Fields out = stack_samples(std::move(samples), options.pad);
    for (size_t k = 0; k < long_fields.size(); ++k)
      if (long_fields[k]) out[k] = lengthened(out[k], boundaries[bucket] - 1);
    return out;
  }
  Tensor lengthened(const Tensor& t, int64_t to) const {
    if (t.size(1) == to) return t;
    std::vector<int64_t> more;
    for (int d = 0; d < t.dim(); ++d) more.push_back(t.size(d));
    more[1] = to - t.size(1);
    NoGradGuard no_grad;
    return cat({t, full(Shape(more), options.pad, t.dtype())}, 1);
  }
  void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const override {
    const auto all = plan(pass);
    for (const int64_t k : all->at(i)) in->origins(pass, k, out);
  }
  std::string text() const override {
    return fmt::format("{} | bucket_by_length([{}], [{}]{}{})", in->text(),
                       fmt::join(boundaries, ", "), fmt::join(batch_sizes, ", "),
                       options.drop_last ? ", drop_last" : "",
                       options.pad_to_boundary ? ", pad_to_boundary" : "");
  }
  Order order() const override {
    return in->order() == Order::fixed ? Order::fixed : Order::changing;
  }
};

struct Sample : Reordered {
  std::vector<double> weights;
  int64_t draws = 0;
  PerPass<std::vector<int64_t>> orders;
  std::shared_ptr<const std::vector<int64_t>> drawn(Pass pass) const {
    return orders.get(pass,
                      [this](Pass p) { return weighted_order(weights, draws, p.seed, p.epoch); });
  }
  int64_t size() const override { return draws; }
  int64_t row(Pass pass, int64_t i) const override {
    return (*drawn(pass))[static_cast<size_t>(i)];
  }
  std::vector<int64_t> rows_of(Pass pass, Rows rows) const override {
    const auto o = drawn(pass);
    std::vector<int64_t> mapped;
    for (int64_t i : rows) mapped.push_back((*o)[static_cast<size_t>(i)]);
    return mapped;
  }
  std::string text() const override { return fmt::format("{} | sample({})", in->text(), draws); }
};

}  // namespace

StageRef filter_stage(StageRef in, Number keep) {
  const std::vector<uint8_t> found = look_at_all(
      in, "filter()", [&](Fields f) { return static_cast<uint8_t>(keep(std::move(f)) != 0); });
  auto s = stage_over<Filter>(std::move(in));
  s->keep = BitRow(static_cast<int64_t>(found.size()));
  for (size_t k = 0; k < found.size(); ++k)
    if (found[k]) s->keep.set(static_cast<int64_t>(k));
  s->n = s->kept({})->total();
  return s;
}

StageRef bucket_stage(StageRef in, Number length, std::vector<int64_t> boundaries,
                      std::vector<int64_t> batch_sizes, BucketOptions options) {
  const bool rising = std::adjacent_find(boundaries.begin(), boundaries.end(),
                                         std::greater_equal<>()) == boundaries.end();
  TD_CHECK(rising && boundaries.size() < std::numeric_limits<uint8_t>::max(), Value,
           "bucket_by_length() expects increasing boundaries, at most 254, got [{}]",
           fmt::join(boundaries, ", "));
  TD_CHECK(batch_sizes.size() == boundaries.size() + 1 &&
               std::all_of(batch_sizes.begin(), batch_sizes.end(), [](int64_t n) { return n > 0; }),
           Value,
           "bucket_by_length() expects {} batch sizes > 0, one more than boundaries, got [{}]",
           boundaries.size() + 1, fmt::join(batch_sizes, ", "));
  std::vector<uint8_t> found = look_at_all(in, "bucket_by_length()", [&](Fields f) {
    const int64_t n = length(std::move(f));
    TD_CHECK(!options.pad_to_boundary || boundaries.empty() || n < boundaries.back(), Value,
             "bucket_by_length() with pad_to_boundary expects lengths below {}, got {}",
             boundaries.back(), n);
    return static_cast<uint8_t>(std::upper_bound(boundaries.begin(), boundaries.end(), n) -
                                boundaries.begin());
  });
  TD_CHECK(!options.pad_to_boundary || !boundaries.empty(), Value,
           "bucket_by_length() with pad_to_boundary expects boundaries");
  auto s = stage_over<Bucket>(std::move(in));
  s->bucket_of = std::move(found);
  s->boundaries = std::move(boundaries);
  s->batch_sizes = std::move(batch_sizes);
  s->length = std::move(length);
  s->options = options;
  s->n = static_cast<int64_t>(s->plan({})->ends.size());
  return s;
}

StageRef sample_stage(StageRef in, std::vector<double> weights, int64_t draws) {
  check_finite(in, "sample()");
  TD_CHECK(draws >= -1, Value, "sample() expects a number of draws >= 0, or -1, got {}", draws);
  TD_CHECK(static_cast<int64_t>(weights.size()) == in->size(), Value,
           "sample() expects a weight for each of the {} elements, got {}", in->size(),
           weights.size());
  weighted_order(weights, 0, 0, 0);  // throws for invalid weights
  auto s = stage_over<Sample>(std::move(in));
  s->draws = draws < 0 ? static_cast<int64_t>(weights.size()) : draws;
  s->weights = std::move(weights);
  return s;
}

}  // namespace tandem::data::detail
