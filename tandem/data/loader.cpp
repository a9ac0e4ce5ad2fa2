// SPDX-License-Identifier: Apache-2.0
// The passes of DataLoader: an order of indices, split into batches that an OrderedRun computes.
#include "tandem/data/loader.h"

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/data/ordered_run_internal.h"
#include "tandem/graph/rng.h"

namespace tandem::data::detail {

class LoaderPass {
 public:
  LoaderPass(Fetch fetch, const DataLoaderOptions& o, std::vector<int64_t> order, uint64_t seed,
             int64_t epoch, std::string name)
      : fetch_(std::move(fetch)),
        name_(std::move(name)),
        order_(std::move(order)),
        batch_size_(o.batch_size),
        seed_(seed),
        epoch_(epoch),
        run_([this](int64_t batch) { return make(batch); },
             {0, batches(o), o.num_workers, o.prefetch_factor}) {}

  bool next(Fields& fields) { return run_.next(fields); }
  RunStats stats() const { return run_.stats(); }

 private:
  int64_t batches(const DataLoaderOptions& o) const {
    auto n = static_cast<int64_t>(order_.size());
    return o.drop_last ? n / batch_size_ : (n + batch_size_ - 1) / batch_size_;
  }

  Fields make(int64_t batch) const {
    int64_t first = batch * batch_size_;
    int64_t last = std::min(first + batch_size_, static_cast<int64_t>(order_.size()));
    Stack stack(static_cast<size_t>(last - first));
    for (int64_t i = first; i < last; ++i) {
      int64_t index = order_[static_cast<size_t>(i)];
      uint64_t key = hash_combine(hash_combine(seed_, static_cast<uint64_t>(epoch_)),
                                  static_cast<uint64_t>(index));
      GeneratorGuard generator({key, 0});
      at_sample([&] { stack.add(fetch_(index)); },
                [&] { return fmt::format("sample {} of {}", index, name_); });
    }
    return stack.take();
  }

  Fetch fetch_;
  std::string name_;
  std::vector<int64_t> order_;
  int64_t batch_size_;
  uint64_t seed_;
  int64_t epoch_;
  OrderedRun run_;  // last: its threads use the other members
};

LoaderCore::LoaderCore(int64_t samples, Fetch fetch, DataLoaderOptions options, std::string name)
    : samples_(samples),
      fetch_(std::move(fetch)),
      options_(std::move(options)),
      name_(std::move(name)) {
  TD_CHECK(samples >= 0, Value, "DataLoader: the dataset's size is {}", samples);
  TD_CHECK(options_.batch_size > 0, Value, "DataLoader expects batch_size > 0, got {}",
           options_.batch_size);
  TD_CHECK(options_.num_workers >= -1 && options_.num_workers <= 1024, Value,
           "DataLoader expects num_workers in -1..1024, got {}", options_.num_workers);
  TD_CHECK(!(options_.sampler && options_.shuffle), Value,
           "DataLoader takes a sampler or shuffle = true, not both");
  if (options_.seed) {
    seed_ = *options_.seed;
  } else {
    RngKey k = tandem::detail::next_rng_key();
    seed_ = hash_combine(hash_combine(0x10ade5, k.seed), k.offset);
  }
}

int64_t LoaderCore::batches() const {
  int64_t b = options_.batch_size;
  return options_.drop_last ? samples_ / b : (samples_ + b - 1) / b;
}

std::shared_ptr<LoaderPass> LoaderCore::begin() {
  int64_t epoch = next_epoch_++;
  std::vector<int64_t> order = options_.sampler   ? options_.sampler(epoch)
                               : options_.shuffle ? shuffled_order(samples_, seed_, epoch)
                                                  : sequential_order(samples_);
  for (int64_t i : order)
    TD_CHECK(i >= 0 && i < samples_, Index,
             "the sampler gave index {} of a dataset of {}\nIts indices run from 0 to {}.", i,
             samples_, samples_ - 1);
  return std::make_shared<LoaderPass>(fetch_, options_, std::move(order), seed_, epoch, name_);
}

bool next_batch(LoaderPass& pass, std::vector<Tensor>& fields) { return pass.next(fields); }
RunStats stats_of(const LoaderPass& pass) { return pass.stats(); }

}  // namespace tandem::data::detail
