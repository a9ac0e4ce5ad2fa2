// SPDX-License-Identifier: Apache-2.0
// Threads take element numbers in order from one counter and fill the slots of a window; the
// consumer waits for its first slot. A run of automatic width starts with one thread and adds more
// while the consumer waits.
#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/copy_bytes.h"
#include "tandem/base/cpu_count.h"
#include "tandem/base/error.h"
#include "tandem/base/failures.h"
#include "tandem/base/failures_internal.h"
#include "tandem/base/log.h"
#include "tandem/base/parallel.h"
#include "tandem/data/ordered_run_internal.h"
#include "tandem/graph/context.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::data::detail {
namespace {

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

// Copies `from` into the front corner of `to`; both are contiguous, with equal element size and
// rank.
void copy_corner(char* to, const Shape& to_shape, const char* from, const Shape& from_shape,
                 int dim, size_t element) {
  if (dim == to_shape.rank()) {
    copy_bytes(to, from, element);
    return;
  }
  size_t to_step = element, from_step = element;
  for (int d = dim + 1; d < to_shape.rank(); ++d) {
    to_step *= static_cast<size_t>(to_shape.data()[d]);
    from_step *= static_cast<size_t>(from_shape.data()[d]);
  }
  if (to_step == from_step) {
    copy_bytes(to, from, from_step * static_cast<size_t>(from_shape.data()[dim]));
    return;
  }
  for (int64_t i = 0; i < from_shape.data()[dim]; ++i)
    copy_corner(to + static_cast<size_t>(i) * to_step, to_shape,
                from + static_cast<size_t>(i) * from_step, from_shape, dim + 1, element);
}

void check_alike(const Tensor& t, const Tensor& first, bool alike, size_t field) {
  TD_CHECK(alike, Shape,
           "field {} of a batch has samples of {} {} and {} {}\nGive all samples one shape, use "
           "batch_size = 1, or pad them.",
           field, first.defined() ? to_string(first.dtype()) : "undefined",
           first.defined() ? first.shape().to_string() : "",
           t.defined() ? to_string(t.dtype()) : "undefined",
           t.defined() ? t.shape().to_string() : "");
}

void check_fields(size_t n, size_t first) {
  TD_CHECK(n == first, Shape, "samples of a batch have {} and {} fields", first, n);
}

Shape stacked(size_t samples, const Shape& one, size_t field) {
  TD_CHECK(one.rank() < kMaxRank, Shape,
           "field {} of a batch has samples of {} dimensions, {} is the most", field, one.rank(),
           kMaxRank - 1);
  Shape shape;
  shape.push_back(static_cast<int64_t>(samples));
  for (int d = 0; d < one.rank(); ++d) shape.push_back(one.data()[d]);
  return shape;
}

Tensor stack_field(const std::vector<Fields>& samples, size_t k, double pad) {
  const Tensor& first = samples[0][k];
  std::vector<int64_t> sizes;
  for (const Fields& s : samples) {
    const Tensor& t = s[k];
    check_alike(t, first, t.defined() && t.dtype() == first.dtype() && t.dim() == first.dim(), k);
    sizes.resize(static_cast<size_t>(t.dim()));
    for (int d = 0; d < t.dim(); ++d)
      sizes[static_cast<size_t>(d)] = std::max(sizes[static_cast<size_t>(d)], t.size(d));
  }
  const Shape one(sizes);
  Tensor out = full(stacked(samples.size(), one, k), pad, first.dtype());
  auto* to = static_cast<char*>(out.impl()->data);
  const size_t element = size_of(first.dtype());
  const size_t bytes = static_cast<size_t>(out.numel()) / samples.size() * element;
  for (const Fields& s : samples) {
    const Tensor t = contiguous(s[k]);
    if (t.numel() > 0)
      copy_corner(to, one, static_cast<const char*>(t.impl()->data), t.shape(), 0, element);
    to += bytes;
  }
  return out;
}

}  // namespace

void Stack::add(Fields sample) {
  TD_ASSERT(added_ < samples_);
  if (added_ == 0) {
    for (size_t k = 0; k < sample.size(); ++k) {
      const Tensor& t = sample[k];
      check_alike(t, t, t.defined(), k);
      out_.push_back(empty(stacked(samples_, t.shape(), k), t.dtype()));
    }
  }
  check_fields(sample.size(), out_.size());
  for (size_t k = 0; k < sample.size(); ++k) {
    const Tensor &t = sample[k], &out = out_[k];
    bool alike = t.defined() && t.dtype() == out.dtype() && t.dim() + 1 == out.dim();
    for (int d = 0; alike && d < t.dim(); ++d) alike = t.size(d) == out.size(d + 1);
    check_alike(t, alike ? t : select(out, 0, 0), alike, k);
    const Tensor dense = contiguous(t);
    const size_t bytes = static_cast<size_t>(dense.numel()) * size_of(dense.dtype());
    if (bytes > 0)
      copy_bytes(static_cast<char*>(out.impl()->data) + added_ * bytes, dense.impl()->data, bytes);
  }
  ++added_;
}

Fields Stack::take() {
  TD_CHECK(added_ == samples_, Internal, "a batch of {} samples got {}", samples_, added_);
  return std::move(out_);
}

Fields stack_samples(std::vector<Fields> samples, std::optional<double> pad) {
  if (!pad) {
    Stack stack(samples.size());
    for (Fields& s : samples) stack.add(std::move(s));
    return stack.take();
  }
  Fields out;
  for (const Fields& s : samples) check_fields(s.size(), samples[0].size());
  if (samples.empty()) return out;
  for (size_t k = 0; k < samples[0].size(); ++k) out.push_back(stack_field(samples, k, *pad));
  return out;
}

OrderedRun::OrderedRun(Make make, Options options)
    : make_(std::move(make)),
      options_(options),
      depth_(std::max<int64_t>(options.depth, 1)),
      consumed_(options.first),
      claimed_(options.first) {
  const int64_t left = options_.last - options_.first;
  const bool grows = options_.workers < 0;
  most_workers_ = std::min(left, grows ? int64_t{cpu_count()} : options_.workers);
  tuned_at_ = consumed_;
  std::lock_guard hold(lock_);
  for (int64_t i = 0; i < (grows ? std::min<int64_t>(most_workers_, 1) : most_workers_); ++i)
    add_worker();
}

OrderedRun::~OrderedRun() {
  {
    std::lock_guard hold(lock_);
    stop_ = true;
  }
  room_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void OrderedRun::add_worker() {
  try {
    threads_.push_back(start_thread("loading data", [this] { work(); }));
  } catch (const Error& e) {  // those there are do the work, else the consumer itself
    most_workers_ = static_cast<int64_t>(threads_.size());
    log_warning("{}", e.what());
  }
}

void OrderedRun::work() {
  ::pthread_setname_np(::pthread_self(), "td-data");  // the name that system tools show
  SerialGuard serial;
  NoGradGuard no_grad;
  while (true) {
    int64_t k;
    {
      std::unique_lock hold(lock_);
      room_.wait(hold, [&] {
        return stop_ || claimed_ == options_.last || claimed_ < consumed_ + window();
      });
      if (stop_ || claimed_ == options_.last) return;
      k = claimed_++;
      slots_.emplace_back();
    }
    Slot made;
    const auto begin = Clock::now();
    try {
      try {
        made.fields = make_(k);
      } catch (...) {
        rethrow_as_error("loading data");
      }
    } catch (...) {
      made.error = std::current_exception();
    }
    made.ready = true;
    std::lock_guard hold(lock_);
    busy_ += seconds(Clock::now() - begin);
    slots_[static_cast<size_t>(k - consumed_)] = std::move(made);
    if (k == consumed_) ready_.notify_one();
  }
}

// Called under the lock, after a wait: adds threads while the consumer waits more than 2 % of its
// time; with all of them running, prefetches more elements if the threads were partly idle.
void OrderedRun::tune() {
  const int64_t given = consumed_ - tuned_at_;
  const double time = seconds(Clock::now() - tuned_time_), wait = waited_ - tuned_waited_;
  if (options_.workers >= 0 || given < 8 || wait < 0.02 * time) return;
  if (static_cast<int64_t>(threads_.size()) < most_workers_) {
    add_worker();
  } else if (depth_ < 16 && depth_ < 8 * options_.depth) {
    depth_ *= 2;
    room_.notify_all();
  }
  tuned_at_ = consumed_;
  tuned_waited_ = waited_;
  tuned_time_ = Clock::now();
}

bool OrderedRun::next(Fields& fields) {
  if (!started_) {
    started_ = true;
    start_ = tuned_time_ = Clock::now();
  }
  if (consumed_ == options_.last) return false;
  if (most_workers_ == 0) {
    const auto begin = Clock::now();
    NoGradGuard no_grad;
    const DeviceGuard host(cpu);  // as in threads of its own
    const int64_t k = consumed_++;
    fields = make_(k);
    const double spent = seconds(Clock::now() - begin);
    busy_ += spent;
    waited_ += spent;
    return true;
  }
  Slot taken;
  {
    std::unique_lock hold(lock_);
    auto here = [&] { return !slots_.empty() && slots_.front().ready; };
    if (!here()) {
      const auto begin = Clock::now();
      ready_.wait(hold, here);
      waited_ += seconds(Clock::now() - begin);
      tune();
    }
    taken = std::move(slots_.front());
    slots_.pop_front();
    ++consumed_;
  }
  room_.notify_one();
  if (taken.error) std::rethrow_exception(taken.error);
  fields = std::move(taken.fields);
  return true;
}

RunStats OrderedRun::stats() const {
  std::lock_guard hold(lock_);
  RunStats s;
  s.elements = consumed_ - options_.first;
  s.seconds = started_ ? seconds(Clock::now() - start_) : 0;
  s.waited = waited_;
  s.busy = busy_;
  s.workers = static_cast<int64_t>(threads_.size());
  s.depth = depth_;
  return s;
}

}  // namespace tandem::data::detail
