// SPDX-License-Identifier: Apache-2.0
// The passes of DataLoader. Workers take batch numbers in order from one counter and put results
// into a ring of slots; the consumer waits for the slot of its next number. What a worker throws
// is kept in its slot.
#include "tandem/data/loader.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/hash.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/ops/view.h"

namespace tandem::data::detail {

class LoaderPass {
 public:
  LoaderPass(Fetch fetch, const DataLoaderOptions& options, std::vector<int64_t> order,
             uint64_t seed, int64_t epoch)
      : fetch_(std::move(fetch)),
        order_(std::move(order)),
        batch_size_(options.batch_size),
        seed_(seed),
        epoch_(epoch) {
    auto n = static_cast<int64_t>(order_.size());
    batches_ = options.drop_last ? n / batch_size_ : (n + batch_size_ - 1) / batch_size_;
    int64_t workers = std::min(options.num_workers, batches_);
    if (workers <= 0) return;
    slots_.resize(static_cast<size_t>(workers * std::max<int64_t>(options.prefetch_factor, 1)));
    for (int64_t i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
  }

  ~LoaderPass() {
    {
      std::lock_guard hold(lock_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  LoaderPass(const LoaderPass&) = delete;
  LoaderPass& operator=(const LoaderPass&) = delete;

  bool next(std::vector<Tensor>& fields) {
    if (consumed_ == batches_) return false;
    if (threads_.empty()) {
      fields = make(consumed_++);
      return true;
    }
    Slot taken;
    {
      std::unique_lock hold(lock_);
      Slot& s = slots_[static_cast<size_t>(consumed_) % slots_.size()];
      ready_.wait(hold, [&] { return s.batch == consumed_; });
      taken = std::move(s);
      s = Slot();
      ++consumed_;
    }
    room_.notify_all();
    if (taken.error) std::rethrow_exception(taken.error);
    fields = std::move(taken.fields);
    return true;
  }

 private:
  struct Slot {
    int64_t batch = -1;
    std::vector<Tensor> fields;
    std::exception_ptr error;
  };

  void work() {
    SerialGuard serial;
    NoGradGuard no_grad;
    while (true) {
      int64_t b;
      {
        std::unique_lock hold(lock_);
        room_.wait(hold, [&] {
          return stop_ || claimed_ == batches_ ||
                 claimed_ < consumed_ + static_cast<int64_t>(slots_.size());
        });
        if (stop_ || claimed_ == batches_) return;
        b = claimed_++;
      }
      Slot made;
      made.batch = b;
      try {
        made.fields = make(b);
      } catch (...) {
        made.error = std::current_exception();
      }
      std::lock_guard hold(lock_);
      slots_[static_cast<size_t>(b) % slots_.size()] = std::move(made);
      ready_.notify_one();
    }
  }

  std::vector<Tensor> make(int64_t batch) const {
    NoGradGuard no_grad;
    int64_t first = batch * batch_size_;
    int64_t last = std::min(first + batch_size_, static_cast<int64_t>(order_.size()));
    std::vector<std::vector<Tensor>> columns;
    for (int64_t i = first; i < last; ++i) {
      int64_t index = order_[static_cast<size_t>(i)];
      uint64_t key = hash_combine(hash_combine(seed_, static_cast<uint64_t>(epoch_)),
                                  static_cast<uint64_t>(index));
      GeneratorGuard generator({key, 0});
      std::vector<Tensor> sample = fetch_(index);
      columns.resize(sample.size());
      for (size_t k = 0; k < sample.size(); ++k) columns[k].push_back(std::move(sample[k]));
    }
    std::vector<Tensor> out;
    for (size_t k = 0; k < columns.size(); ++k) {
      for (const Tensor& t : columns[k])
        TD_CHECK(
            t.defined() && t.shape() == columns[k][0].shape() && t.dtype() == columns[k][0].dtype(),
            Shape,
            "field {} of a batch has samples of {} {} and {} {}\nGive all samples one "
            "shape, or use batch_size = 1.",
            k, to_string(columns[k][0].dtype()), columns[k][0].shape().to_string(),
            t.defined() ? to_string(t.dtype()) : "undefined",
            t.defined() ? t.shape().to_string() : "");
      out.push_back(stack(columns[k], 0));
    }
    return out;
  }

  Fetch fetch_;
  std::vector<int64_t> order_;
  int64_t batch_size_, batches_ = 0;
  uint64_t seed_;
  int64_t epoch_;
  std::vector<std::thread> threads_;
  std::mutex lock_;
  std::condition_variable ready_, room_;
  std::vector<Slot> slots_;
  int64_t claimed_ = 0, consumed_ = 0;
  bool stop_ = false;
};

LoaderCore::LoaderCore(int64_t samples, Fetch fetch, DataLoaderOptions options)
    : samples_(samples), fetch_(std::move(fetch)), options_(std::move(options)) {
  TD_CHECK(samples >= 0, Value, "DataLoader: the dataset's size is {}", samples);
  TD_CHECK(options_.batch_size > 0, Value, "DataLoader wants batch_size > 0, got {}",
           options_.batch_size);
  TD_CHECK(options_.num_workers >= 0 && options_.num_workers <= 1024, Value,
           "DataLoader wants num_workers in 0..1024, got {}", options_.num_workers);
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
    TD_CHECK(i >= 0 && i < samples_, Index, "the sampler gave index {} of a dataset of {}", i,
             samples_);
  return std::make_shared<LoaderPass>(fetch_, options_, std::move(order), seed_, epoch);
}

bool next_batch(LoaderPass& pass, std::vector<Tensor>& fields) { return pass.next(fields); }

}  // namespace tandem::data::detail
