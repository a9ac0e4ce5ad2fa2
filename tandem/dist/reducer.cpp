// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <iterator>

#include "tandem/base/copy_bytes.h"
#include "tandem/base/error.h"
#include "tandem/dist/bucket_plan.h"
#include "tandem/dist/collectives_internal.h"
#include "tandem/dist/reduce_internal.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/ops.h"
#include "tandem/tensor/device_memory.h"

namespace tandem::distributed {
namespace {

// Of calls that nobody has written: their errors name none.
constexpr SourceLocation kNoLine{};
constexpr int64_t kAlignment = 64;  ///< bytes between places in a bucket: what kernels like

int64_t aligned(int64_t elements, DType t) {
  const int64_t each = kAlignment / static_cast<int64_t>(size_of(t));
  return (elements + each - 1) / each * each;
}

}  // namespace

Reducer::Reducer(std::vector<NamedParam> params, std::shared_ptr<Engine> engine)
    : params_(std::move(params)),
      group_(std::move(engine)),
      engine_(*group_),
      given_(params_.size()),
      unsent_(params_.size()),
      walk_divisor_(engine_.size()) {
  for (size_t i = 0; i < params_.size(); ++i) {
    index_[params_[i].param.cell()->slot().get()] = i;
  }
}

void Reducer::watch() {
  std::vector<GradSlot*> slots;
  for (const NamedParam& p : params_) slots.push_back(p.param.cell()->slot().get());
  watch_gradients(slots, *this);
}

bool Reducer::pause(bool on) {
  const bool before = std::exchange(pause_->on, on);
  if (!on)
    paused_in_trace_ = false;
  else if (!before)
    paused_in_trace_ = is_tracing();
  return before;
}

bool Reducer::paused() const {
  if (Trace* t = cell_trace(); t && !paused_in_trace_) t->guard(*pause_, pause_->on);
  return pause_->on;
}

void Reducer::begin(double divisor) {
  divisor_ = divisor;
  opened_ = false;
  if (!is_tracing()) passes_->next(engine_);
  std::fill(given_.begin(), given_.end(), 0);
  begin_pass();
}

void Reducer::end() {
  for (size_t i = params_.size(); i-- > 0;)
    if (!given_[i]) give(i, false);
  end_pass();
}

detail::RowCall Reducer::traced_call(const std::string& label, bool ordered) {
  return {label, ordered, divisor_, std::exchange(opened_, true) ? nullptr : passes_};
}

void Reducer::clear_reduced() {
  for (size_t i = 0; i < params_.size(); ++i)
    if (!unsent_[i]) params_[i].param.zero_grad();
}

void Reducer::reduce_all(double divisor) {
  const NoGradGuard no_grad;
  begin(divisor);
  for (size_t i = params_.size(); i-- > 0;) give(i, params_[i].param.grad().defined());
  end();
}

// ---- what the walk tells

void Reducer::walk_begins(std::span<GradSlot* const> reached, bool create_graph) {
  if (paused()) return;
  TD_CHECK(
      !create_graph, Unsupported,
      "backward() of a DataParallel net with create_graph: reduced gradients have no graph\nCall "
      "it under no_sync(), or use grad().");
  begin(walk_divisor_);
  std::vector<char> comes(params_.size(), 0);
  for (const GradSlot* s : reached) comes[index_of(*s)] = 1;
  for (size_t i = params_.size(); i-- > 0;)
    if (!comes[i]) give(i, false);
}

void Reducer::gradient_ready(GradSlot& slot) {
  const size_t i = index_of(slot);
  if (paused())
    unsent_[i] = 1;
  else if (!given_[i])
    give(i, true);
}

void Reducer::walk_ends(bool failed) {
  if (paused()) return;
  if (failed) {
    // Other ranks wait for what will not come; a trace has called nobody.
    if (!is_tracing()) engine_.abort("backward() has thrown there");
    return;
  }
  end();
}

// ---- buckets

BucketReducer::BucketReducer(std::vector<NamedParam> params, const DataParallelOptions& options,
                             std::shared_ptr<Engine> engine)
    : Reducer(std::move(params), std::move(engine)),
      device_(params_[0].param.device()),
      ordered_(options.shards > 0),
      used_(params_.size()),
      places_(params_.size()) {
  make_buckets(options);
  if (engine_.size() == 1) return;
  if (!is_host(device_) && !ordered_) ranks_ = join_devices(group_, device_);
  for (const Bucket& b : buckets_)
    if (ranks_ && !ranks_->takes(b.dtype)) ranks_ = nullptr;
  watch();
}

BucketReducer::~BucketReducer() {
  unwatch_gradients(*this);
  try {
    settle_device();
  } catch (...) {}
  for (Bucket& b : buckets_) try {  // after an error: nobody may write to a bucket that is gone
      b.work.wait();
    } catch (...) {}
}

void BucketReducer::make_buckets(const DataParallelOptions& o) {
  std::vector<BucketItem> items;
  for (const NamedParam& p : params_) {
    const DType dtype = p.param.dtype();
    items.push_back({dtype, is_host(device_) ? aligned(p.param.numel(), dtype) : p.param.numel()});
  }
  for (const std::vector<size_t>& of : bucket_plan(items, o.bucket_cap_mb, o.first_bucket_mb)) {
    Bucket b;
    b.dtype = items[of[0]].dtype;
    b.params = of;
    for (const size_t i : of) {
      places_[i].offset = b.elements;
      b.elements += items[i].elements;
    }
    close_bucket(b);
  }
}

// A flag for each parameter after the gradients: who used it travels with them.
void BucketReducer::close_bucket(Bucket& b) {
  for (const size_t i : b.params) {
    places_[i].bucket = buckets_.size();
    places_[i].flag = b.elements++;
  }
  buckets_.push_back(std::move(b));
}

std::vector<std::string> BucketReducer::plan() const {
  std::vector<std::string> lines;
  for (size_t k = 0; k < buckets_.size(); ++k) {
    std::string line =
        fmt::format("bucket {} {}[{}]:", k, to_string(buckets_[k].dtype), buckets_[k].elements);
    for (const size_t i : buckets_[k].params) line += " " + params_[i].name;
    lines.push_back(std::move(line));
  }
  return lines;
}

void BucketReducer::begin_pass() {
  settle_device();
  next_ = 0;
  std::fill(used_.begin(), used_.end(), 0);
  for (Bucket& b : buckets_) {
    b.given = 0;
    if (is_tracing() || !b.traced.empty()) b.flat = Tensor();
    b.traced.clear();
  }
}

void BucketReducer::give(size_t i, bool used) {
  const Place& p = places_[i];
  Bucket& b = buckets_[p.bucket];
  if (is_tracing() || !is_host(device_)) {
    used_[i] = used || (unsent_[i] && params_[i].param.grad().defined());
    given_[i] = 1;
    ++b.given;
    return launch_full();
  }
  if (b.given == 0) {
    // Gradients that somebody holds from the last pass keep their values.
    const bool ours = b.flat.defined() && b.flat.impl()->donatable();
    if (!ours) b.flat = empty({b.elements}, b.dtype);
    std::memset(b.flat.impl()->data, 0, static_cast<size_t>(b.elements) * size_of(b.dtype));
  }
  GradSlot& slot = *params_[i].param.cell()->slot();
  Tensor g;
  {
    std::lock_guard hold(slot.lock);
    g = slot.get();
  }
  if (g.defined()) {
    if (g.dtype() != b.dtype) g = g.to(b.dtype);
    if (!g.is_contiguous()) g = g.contiguous();
    copy_bytes(byte_at(b.flat, p.offset), g.impl()->data,
               static_cast<size_t>(g.numel()) * size_of(b.dtype));
  }
  if (used || (unsent_[i] && g.defined())) {
    const Tensor one = ones({1}, b.dtype);
    std::memcpy(byte_at(b.flat, p.flag), one.impl()->data, size_of(b.dtype));
  }
  given_[i] = 1;
  ++b.given;
  launch_full();
}

void BucketReducer::launch_full() {
  for (; next_ < buckets_.size() && buckets_[next_].given == buckets_[next_].params.size();
       ++next_) {
    if (is_tracing()) {
      launch_traced(next_);
      continue;
    }
    Bucket& b = buckets_[next_];
    if (by_device()) {
      start_on_device(b);
      continue;
    }
    if (!is_host(device_)) bring_to_host(b);
    b.work = engine_.all_reduce(
        {b.flat.impl()->data, b.elements, b.dtype}, ReduceOp::sum,
        {.label = fmt::format("bucket {}", next_), .ordered = ordered_, .divisor = divisor_});
  }
}

// Side by side, on their device; zeros where there is none.
Tensor BucketReducer::gradients_of(const Bucket& b) const {
  std::vector<Tensor> parts;
  for (const size_t i : b.params) {
    const Param& p = params_[i].param;
    Tensor g = p.grad();
    if (!g.defined()) {
      const DeviceGuard there(device_);
      g = zeros(p.shape(), b.dtype);
    }
    parts.push_back(g.to(b.dtype).reshape({-1}));
  }
  return cat(parts, 0);
}

// Gradients of a device become a bucket of the host in one copy.
void BucketReducer::bring_to_host(Bucket& b) {
  std::vector<float> users;
  for (const size_t i : b.params) users.push_back(used_[i] ? 1.0F : 0.0F);
  const DeviceGuard here(cpu);
  b.flat = cat({gradients_of(b).cpu(), tensor(users).to(b.dtype)}, 0);
}

// ---- buckets that stay on the device: who used a parameter is asked over the host, so that the
// host does not wait for the device

void BucketReducer::start_on_device(Bucket& b) {
  b.flat = gradients_of(b);
  void* at = b.flat.impl()->data;
  ranks_->start({.in = at, .out = at, .count = b.flat.numel(), .dtype = b.dtype},
                current_stream(device_));
}

// Calls of a pass that has thrown: their memory is used again after they have ended.
void BucketReducer::settle_device() {
  const bool left =
      by_device() && std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& b) {
        return b.flat.defined() && b.traced.empty();
      });
  if (left) ranks_->wait(current_stream(device_));
}

void BucketReducer::take_from_device() {
  std::vector<float> users(used_.begin(), used_.end());
  engine_
      .all_reduce({users.data(), static_cast<int64_t>(users.size()), DType::f32}, ReduceOp::sum,
                  {.label = "users of parameters"})
      .wait();
  ranks_->wait(current_stream(device_));
  for (Bucket& b : buckets_) {
    const Tensor mean = b.flat / divisor_;
    b.flat = Tensor();
    for (const size_t i : b.params) {
      const Param& p = params_[i].param;
      unsent_[i] = 0;
      if (users[i] == 0) continue;
      p.cell()->set_grad(narrow(mean, 0, places_[i].offset, p.numel()).reshape(p.shape()));
    }
  }
}

void BucketReducer::end_pass() {
  if (by_device() && !is_tracing()) return take_from_device();
  for (Bucket& b : buckets_) {
    if (is_tracing()) {
      take_traced(b);
      continue;
    }
    b.work.wait();
    b.work = Work();
    take_views(b);
  }
}

void BucketReducer::take_views(Bucket& b) {
  const auto flags = static_cast<int64_t>(b.params.size());
  const std::vector<float> users = narrow(b.flat, 0, b.elements - flags, flags).to_vector<float>();
  const Tensor home = is_host(device_) ? b.flat : b.flat.to(device_);
  for (size_t k = 0; k < b.params.size(); ++k) {
    const size_t i = b.params[k];
    const Param& p = params_[i].param;
    unsent_[i] = 0;
    if (users[k] == 0) continue;
    p.cell()->set_grad(narrow(home, 0, places_[i].offset, p.numel()).reshape(p.shape()));
  }
  if (!is_host(device_)) b.flat = Tensor();
}

// ---- in a trace: the same buckets, as rows of the program

// Which parameters have a gradient is the trace's, the same on all ranks: no flags travel.
void BucketReducer::launch_traced(size_t k) {
  Bucket& b = buckets_[k];
  std::copy_if(b.params.begin(), b.params.end(), std::back_inserter(b.traced),
               [&](size_t i) { return used_[i] != 0; });
  if (b.traced.empty()) return;
  // Those that leave the next one aligned come first: the program has gradients made in their
  // places in the bucket, where these are aligned.
  std::stable_partition(b.traced.begin(), b.traced.end(), [&](size_t i) {
    const int64_t n = params_[i].param.numel();
    return n == aligned(n, b.dtype);
  });
  std::vector<Tensor> parts;
  for (const size_t i : b.traced) parts.push_back(params_[i].param.grad().reshape({-1}));
  const NoGradGuard no_grad;
  // Without a library of its own a device's program brings values to the host for each call.
  detail::RowCall how = traced_call(fmt::format("bucket {}", k), ordered_);
  if (!is_host(device_)) how.divisor = 1;
  b.flat = cat(parts, 0);
  b.flat = overlaps() ? detail::start_all_reduce(b.flat, group_, how, kNoLine)
                      : detail::all_reduce_labelled(b.flat, ReduceOp::sum, group_, how, kNoLine);
}

void BucketReducer::take_traced(Bucket& b) {
  if (b.traced.empty()) return;
  const NoGradGuard no_grad;
  const Tensor sum = overlaps() ? detail::wait_all_reduce(b.flat, group_, kNoLine) : b.flat;
  const Tensor mean = is_host(device_) ? sum : sum / divisor_;  // the engine has divided it
  b.flat = Tensor();
  int64_t at = 0;
  for (const size_t i : b.traced) {
    const Param& p = params_[i].param;
    p.set_grad(narrow(mean, 0, at, p.numel()).reshape(p.shape()));
    at += p.numel();
    unsent_[i] = 0;
  }
  b.traced.clear();
}

}  // namespace tandem::distributed
