// SPDX-License-Identifier: Apache-2.0
// Pipeline: a chain of map, filter, shuffle, batch, cache, shard, interleave, zip, take, repeat
// and others over datasets. Element i of epoch e is a pure function of (seed, e, i): any number of
// threads gives the same elements in the same order, and a pass resumes exactly from a saved
// state.
#pragma once

#include "tandem/base/files/file.h"
#include "tandem/data/loader.h"
#include "tandem/data/pipeline_options.h"
#include "tandem/io/json.h"

namespace tandem::data {

/// The position of a pipeline: everything needed to resume. `text` describes the chain, so that the
/// state of another one is rejected.
struct PipelineState {
  uint64_t seed = 0;
  int64_t epoch = 0, position = 0;  ///< position: elements delivered in this epoch
  std::string text;
  TD_API io::Json to_json() const;
  /// Throws Format naming what is missing.
  static TD_API PipelineState from_json(const io::Json& json);
};

namespace detail {

/// Identifies a pass: what shuffles and random maps depend on besides the position.
struct Pass {
  uint64_t seed = 0;
  int64_t epoch = 0;
};

/// How a pass's elements relate to those of another pass: equal at each i; the same elements in
/// another order; or different ones.
enum class Order : uint8_t { fixed, permuted, changing };

/// One link of the chain. Immutable; called from several threads.
class TD_API Stage {
 public:
  virtual ~Stage() = default;
  virtual int64_t size() const = 0;  ///< kEndless for repeat()
  virtual std::vector<Tensor> get(Pass pass, int64_t i) const = 0;
  /// The elements `rows`, stacked.
  virtual std::vector<Tensor> many(Pass pass, std::span<const int64_t> rows) const;
  /// Of element i, a batch, the samples of one rank (AnyPipeline::part_of_batches).
  virtual std::vector<Tensor> part(Pass pass, int64_t i, int64_t rank, int64_t ranks) const;
  /// Appends the dataset indices of the samples that element i consists of.
  virtual void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const = 0;
  virtual std::string text() const = 0;
  virtual Order order() const { return Order::changing; }
  /// A number below identities() that element i keeps when the order changes; valid where order()
  /// is not `changing`.
  virtual int64_t identity(Pass, int64_t i) const { return i; }
  virtual int64_t identities() const { return size(); }
};
using StageRef = std::shared_ptr<const Stage>;
inline constexpr int64_t kEndless = INT64_MAX;

using One = std::function<std::vector<Tensor>(int64_t)>;
using Many = std::function<std::vector<Tensor>(std::span<const int64_t>)>;
using Apply = std::function<std::vector<Tensor>(std::vector<Tensor>)>;
using Number = std::function<int64_t(std::vector<Tensor>)>;  ///< maps an element to a number
/// `name` stands in the state of the chain, `label` in messages (empty: the name).
TD_API StageRef source_stage(int64_t size, One one, Many many, std::string name,
                             std::string label = "");
TD_API StageRef map_stage(StageRef in, Apply fn);
TD_API StageRef shuffle_stage(StageRef in);
TD_API StageRef batch_stage(StageRef in, int64_t n, BatchOptions options);
TD_API StageRef filter_stage(StageRef in, Number keep);
TD_API StageRef bucket_stage(StageRef in, Number length, std::vector<int64_t> boundaries,
                             std::vector<int64_t> batch_sizes, BucketOptions options);
TD_API StageRef sample_stage(StageRef in, std::vector<double> weights, int64_t draws);
TD_API StageRef cache_stage(StageRef in);
TD_API StageRef file_cache_stage(StageRef in, const FilePath& file, const std::string& key,
                                 uint64_t seed);
TD_API StageRef shard_stage(StageRef in, int64_t rank, int64_t ranks, ShardOptions options);
TD_API StageRef range_stage(StageRef in, int64_t skip, int64_t take);
TD_API StageRef repeat_stage(StageRef in, int64_t count);
TD_API StageRef interleave_stage(std::vector<StageRef> in, int64_t block);
TD_API StageRef concatenate_stage(std::vector<StageRef> in);
TD_API StageRef zip_stage(std::vector<StageRef> in);
TD_API StageRef part_stage(StageRef in, int64_t rank, int64_t ranks);
class PipelineRun;

}  // namespace detail

/// A pipeline with any element type: what the Trainer takes. A handle: copies share their position
/// in the data.
class TD_API AnyPipeline {
 public:
  AnyPipeline(detail::StageRef stage, uint64_t seed, PrefetchOptions prefetch);
  /// Elements in an epoch (batches, after batch()); INT64_MAX when it repeats forever.
  int64_t size() const { return stage_->size(); }
  /// The fields of element i of an epoch, computed on the calling thread. Throws Index.
  std::vector<Tensor> fields(int64_t i, int64_t epoch = 0) const;

  /// The dataset indices of the samples that element i consists of: which ones were in that bad
  /// batch?
  std::vector<int64_t> samples_of(int64_t i, int64_t epoch = 0) const;

  /// Start a pass: at the epoch and position of load_state(), else at the start of the next epoch.
  void begin_pass();
  /// The next element of the pass; false at its end.
  bool next(std::vector<Tensor>& fields);
  /// The position of the pass, after the element delivered last; at the end of a pass, the start of
  /// the next epoch.
  PipelineState state() const;
  /// Makes the next pass start there. Throws Value for the state of another chain.
  void load_state(const PipelineState& state);
  /// Sets the epoch of the next pass.
  void set_epoch(int64_t epoch);
  uint64_t seed() const;
  /// Statistics of the running or last pass.
  RunStats stats() const;
  /// Describes the chain: "MNIST(60000) | shuffle | batch(128)".
  std::string text() const { return stage_->text(); }
  const detail::StageRef& stage() const { return stage_; }
  const PrefetchOptions& prefetch_options() const;
  /// Of each batch the samples of one rank: an equal part in order of the ranks, or all where its
  /// size is not a multiple of `ranks`. Positions and states are those of whole batches.
  AnyPipeline part_of_batches(int64_t rank, int64_t ranks) const;

 private:
  detail::StageRef stage_;
  std::shared_ptr<detail::PipelineRun> run_;
};

/// A pipeline over elements of type T. Its stages leave it as it is and return a new one.
template <class T>
class Pipeline : public AnyPipeline {
 public:
  using Element = T;
  Pipeline(detail::StageRef stage, uint64_t seed, PrefetchOptions prefetch)
      : AnyPipeline(std::move(stage), seed, prefetch) {}

  /// Replaces each element by fn(element). Random ops in it draw from their own generator, seeded
  /// by (seed, epoch, position). fn runs on several threads.
  template <class F>
  auto map(F fn) const {
    using R = std::decay_t<decltype(fn(std::declval<T>()))>;
    return with<R>(detail::map_stage(stage(), [fn = std::move(fn)](std::vector<Tensor> f) {
      return detail::fields_of(fn(detail::from_fields<T>(std::move(f))));
    }));
  }
  /// A new permutation of all elements in every epoch.
  Pipeline shuffle() const { return with<T>(detail::shuffle_stage(stage())); }
  /// The elements for which keep(element) returns true. Every element is computed once,
  /// immediately, on all threads; one bit is kept for each. Works after shuffle() too; throws Value
  /// after random maps and other stages whose elements change from pass to pass.
  template <class F>
  Pipeline filter(F keep) const {
    return with<T>(detail::filter_stage(stage(), [keep = std::move(keep)](std::vector<Tensor> f) {
      return static_cast<int64_t>(static_cast<bool>(keep(detail::from_fields<T>(std::move(f)))));
    }));
  }
  /// `draws` elements per epoch, drawn again with these probabilities (weight / sum), with
  /// replacement: PyTorch's WeightedRandomSampler. draws -1: the size of the pipeline.
  Pipeline sample(std::vector<double> weights, int64_t draws = -1) const {
    return with<T>(detail::sample_stage(stage(), std::move(weights), draws));
  }
  /// Padded batches of elements of similar length, like tf.data's bucket_by_sequence_length: bucket
  /// k takes lengths from boundaries[k - 1] up to below boundaries[k] and gives batches of
  /// batch_sizes[k]; there is one bucket more than boundaries. A batch is delivered when it is
  /// full; incomplete ones come at the end. Every element is computed once, immediately, for
  /// length(element); filter()'s restrictions apply here too.
  template <class F>
  Pipeline bucket_by_length(F length, std::vector<int64_t> boundaries,
                            std::vector<int64_t> batch_sizes, BucketOptions o = {}) const {
    return with<T>(detail::bucket_stage(
        stage(),
        [length = std::move(length)](std::vector<Tensor> f) {
          return static_cast<int64_t>(length(detail::from_fields<T>(std::move(f))));
        },
        std::move(boundaries), std::move(batch_sizes), o));
  }
  /// Stacks n samples into one element. Throws Shape (at the batch) when they differ.
  Pipeline batch(int64_t n, BatchOptions o = {}) const {
    return with<T>(detail::batch_stage(stage(), n, o));
  }
  /// Keep every element once computed, as in epoch 0: put random maps after it.
  Pipeline cache() const { return with<T>(detail::cache_stage(stage())); }
  /// The same in a file that later runs reuse. It is written immediately, atomically, unless it
  /// exists with the same chain and the same `key`: include in the key what the elements depend on
  /// (the data's version, the arguments of maps). A truncated file is rewritten and a damaged
  /// element recomputed, each with a warning.
  Pipeline cache(const FilePath& file, const std::string& key = "") const {
    return with<T>(detail::file_cache_stage(stage(), file, key, seed()));
  }
  /// Elements rank, rank + ranks, ... of the pipeline.
  Pipeline shard(int64_t rank, int64_t ranks, ShardOptions o = {}) const {
    return with<T>(detail::shard_stage(stage(), rank, ranks, o));
  }
  Pipeline take(int64_t n) const { return with<T>(detail::range_stage(stage(), 0, n)); }
  Pipeline skip(int64_t n) const {
    return with<T>(detail::range_stage(stage(), n, detail::kEndless));
  }
  /// `count` epochs as one (each reshuffled); -1: endless.
  Pipeline repeat(int64_t count = -1) const {
    return with<T>(detail::repeat_stage(stage(), count));
  }
  /// Threads and elements prefetched, for the whole chain, wherever it appears in it.
  Pipeline prefetch(PrefetchOptions o = {}) const { return Pipeline(stage(), seed(), o); }
  Pipeline seed(uint64_t s) const { return Pipeline(stage(), s, prefetch_options()); }
  using AnyPipeline::seed;

  /// Element i of an epoch, computed on the calling thread.
  T get(int64_t i, int64_t epoch = 0) const { return detail::from_fields<T>(fields(i, epoch)); }

  class Iterator {
   public:
    using value_type = T;
    using difference_type = ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    Iterator() = default;
    explicit Iterator(AnyPipeline* of) : of_(of) { ++*this; }
    const T& operator*() const { return *element_; }
    const T* operator->() const { return &*element_; }
    Iterator& operator++() {
      std::vector<Tensor> fields;
      if (of_->next(fields))
        element_.emplace(detail::from_fields<T>(std::move(fields)));
      else
        of_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.of_ == b.of_; }

   private:
    AnyPipeline* of_ = nullptr;
    std::optional<T> element_;
  };
  /// Starts a pass like begin_pass(). One pass at a time.
  Iterator begin() {
    begin_pass();
    return Iterator(this);
  }
  Iterator end() { return Iterator(); }

 private:
  template <class R>
  Pipeline<R> with(detail::StageRef s) const {
    return Pipeline<R>(std::move(s), seed(), prefetch_options());
  }
};

namespace detail {
TD_API uint64_t seed_or_draw(std::optional<uint64_t> seed);
template <class D>
concept HasMany = requires(const D& d, std::span<const int64_t> rows) {
  d.get_many(rows);
};
}  // namespace detail

/// A pipeline over a dataset (size(), get(i); get_many(rows), which returns stacked rows, is used
/// if present). `name` is used in messages and in the state.
template <Dataset D>
auto pipeline(D dataset, PipelineOptions o = {}, std::string name = "") {
  using T = std::decay_t<decltype(std::declval<const D&>().get(0))>;
  auto d = std::make_shared<const D>(std::move(dataset));
  detail::Many many;
  if constexpr (detail::HasMany<D>)
    many = [d](std::span<const int64_t> rows) { return detail::fields_of(d->get_many(rows)); };
  std::string label = name.empty() ? detail::source_name<D>() : name;
  if (name.empty()) {
    if constexpr (requires { D::kName; })
      name = D::kName;
    else
      name = "dataset";
  }
  return Pipeline<T>(detail::source_stage(
                         d->size(), [d](int64_t i) { return detail::fields_of(d->get(i)); },
                         std::move(many), std::move(name), std::move(label)),
                     detail::seed_or_draw(o.seed), PrefetchOptions{});
}

/// Blocks of elements from each in turn until all are used up. Seed and prefetching: the first's.
template <class T>
Pipeline<T> interleave(const std::vector<Pipeline<T>>& in, InterleaveOptions o = {}) {
  std::vector<detail::StageRef> stages;
  for (const Pipeline<T>& p : in) stages.push_back(p.stage());
  auto s = detail::interleave_stage(std::move(stages), o.block_length);
  return Pipeline<T>(std::move(s), in[0].seed(), in[0].prefetch_options());
}
/// The pipelines in sequence.
template <class T>
Pipeline<T> concatenate(const std::vector<Pipeline<T>>& in) {
  std::vector<detail::StageRef> stages;
  for (const Pipeline<T>& p : in) stages.push_back(p.stage());
  auto s = detail::concatenate_stage(std::move(stages));
  return Pipeline<T>(std::move(s), in[0].seed(), in[0].prefetch_options());
}
/// Elements R of the fields of a's, then of b's; as long as the shorter one.
template <class R, class A, class B>
Pipeline<R> zip(const Pipeline<A>& a, const Pipeline<B>& b) {
  return Pipeline<R>(detail::zip_stage({a.stage(), b.stage()}), a.seed(), a.prefetch_options());
}

}  // namespace tandem::data
