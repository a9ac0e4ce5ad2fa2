// SPDX-License-Identifier: Apache-2.0
// DataLoader: batches of a dataset, prefetched by background threads. The order and a sample's
// random draws depend only on (seed, epoch, sample), never on threads or batch size.
#pragma once

#include <functional>
#include <iterator>
#include <memory>
#include <optional>

#include "tandem/data/aggregate.h"
#include "tandem/data/run_stats.h"
#include "tandem/data/sample_error.h"
#include "tandem/data/sampler.h"

namespace tandem::data {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  /// Returns the indices of an epoch, in order; replaces `shuffle`.
  std::function<std::vector<int64_t>(int64_t epoch)> sampler = {};
  /// Background threads; 0 loads in the loop itself, -1 starts with one and adds more while the
  /// loop waits for data.
  int64_t num_workers = 1;
  bool drop_last = false;       ///< drop an incomplete last batch
  int64_t prefetch_factor = 2;  ///< batches that each worker keeps ready
  /// For shuffling and random transforms; if unset, one is drawn from the default generator.
  std::optional<uint64_t> seed = {};
};

namespace detail {

/// One pass over the data; stops its workers when it is destroyed.
class TD_API LoaderPass;
using Fetch = std::function<std::vector<Tensor>(int64_t index)>;

class TD_API LoaderCore {
 public:
  /// `name` is what messages call the dataset.
  LoaderCore(int64_t samples, Fetch fetch, DataLoaderOptions options, std::string name);
  int64_t batches() const;
  int64_t samples() const { return samples_; }
  const DataLoaderOptions& options() const { return options_; }
  uint64_t seed() const { return seed_; }
  std::shared_ptr<LoaderPass> begin();
  void set_epoch(int64_t epoch) { next_epoch_ = epoch; }
  int64_t epoch() const { return next_epoch_; }

 private:
  int64_t samples_;
  Fetch fetch_;
  DataLoaderOptions options_;
  std::string name_;
  uint64_t seed_;
  int64_t next_epoch_ = 0;
};

/// The next batch's fields stacked along a new first dimension; false at the end. Throws a worker's
/// error, with the sample's index, at the batch in which it occurred.
TD_API bool next_batch(LoaderPass& pass, std::vector<Tensor>& fields);
TD_API RunStats stats_of(const LoaderPass& pass);

}  // namespace detail

/// A dataset has `int64_t size() const` and `get(int64_t) const`, which returns a Tensor or an
/// aggregate of Tensors and may be called from several threads; a batch is the same type with
/// stacked fields.
template <class D>
concept Dataset = requires(const D& d, int64_t i) {
  { d.size() } -> std::convertible_to<int64_t>;
  d.get(i);
};

/// `for (auto [x, y] : DataLoader(dataset, {.batch_size = 64, .shuffle = true}))`. Copies the
/// dataset handle and the options. Each begin() starts the next epoch. What get() throws comes as
/// an Error that names the sample (data/sample_error.h).
template <Dataset D>
class DataLoader {
 public:
  using Batch = std::decay_t<decltype(std::declval<const D&>().get(0))>;

  DataLoader(D dataset, DataLoaderOptions options = {})
      : dataset_(std::make_shared<D>(std::move(dataset))),
        core_(
            dataset_->size(), [d = dataset_](int64_t i) { return detail::fields_of(d->get(i)); },
            std::move(options), detail::source_name<D>()) {}

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    Iterator() = default;
    explicit Iterator(std::shared_ptr<detail::LoaderPass> pass) : pass_(std::move(pass)) {
      ++*this;
    }
    const Batch& operator*() const { return *batch_; }
    const Batch* operator->() const { return &*batch_; }
    Iterator& operator++() {
      std::vector<Tensor> fields;
      if (detail::next_batch(*pass_, fields))
        batch_.emplace(detail::from_fields<Batch>(std::move(fields)));
      else
        pass_.reset();
      return *this;
    }
    void operator++(int) { ++*this; }
    /// How long this pass has waited for data; throws Value after its end.
    RunStats stats() const {
      TD_CHECK(pass_, Value, "this pass over the data is at its end");
      return detail::stats_of(*pass_);
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.pass_ == b.pass_; }

   private:
    std::shared_ptr<detail::LoaderPass> pass_;
    std::optional<Batch> batch_;
  };

  Iterator begin() { return Iterator(core_.begin()); }
  Iterator end() { return Iterator(); }
  /// Batches in an epoch.
  int64_t size() const { return core_.batches(); }
  /// The epoch that the next begin() starts (from 0).
  void set_epoch(int64_t epoch) { core_.set_epoch(epoch); }
  int64_t epoch() const { return core_.epoch(); }
  uint64_t seed() const { return core_.seed(); }
  const D& dataset() const { return *dataset_; }

 private:
  std::shared_ptr<D> dataset_;
  detail::LoaderCore core_;
};

}  // namespace tandem::data
