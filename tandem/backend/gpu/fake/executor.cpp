// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <utility>

#include "tandem/backend/gpu/fake/executor_internal.h"
#include "tandem/base/failures_internal.h"

namespace tandem::gpu {

Executor::~Executor() {
  {
    std::lock_guard hold(lock_);
    ending_ = true;
  }
  more_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Executor::start() {
  std::lock_guard hold(lock_);
  if (!thread_.joinable()) thread_ = start_thread("a fake device", [this] { loop(); });
}

void Executor::add(int stream, Work work) {
  std::lock_guard hold(lock_);
  if (streams_.size() <= static_cast<size_t>(stream)) {
    streams_.resize(static_cast<size_t>(stream) + 1);
  }
  streams_[static_cast<size_t>(stream)].queue.push_back(std::move(work));
  more_.notify_one();
}

void Executor::run(int stream, Run work) { add(stream, {std::move(work), nullptr}); }
std::shared_ptr<Occurrence> Executor::record(int stream) {
  auto occurrence = std::make_shared<Occurrence>();
  add(stream, {nullptr, occurrence, true});
  return occurrence;
}
void Executor::wait(int stream, const std::shared_ptr<Occurrence>& occurrence) {
  add(stream, {nullptr, occurrence});
}

// A stream whose next piece of work may run now, at random; nullptr when there is none.
Executor::Stream* Executor::choose() {
  std::vector<Stream*> able;
  for (Stream& s : streams_) {
    if (s.queue.empty()) continue;
    const Work& w = s.queue.front();
    if (w.occurrence && !w.records && !w.occurrence->happened) continue;
    able.push_back(&s);
  }
  return able.empty() ? nullptr : able[random_.below(able.size())];
}

void Executor::rest(std::unique_lock<std::mutex>& hold) {
  if (!delays_ || waiting_ || ending_ || random_.below(8) != 0) return;
  const auto pause = std::chrono::microseconds(random_.below(100));
  more_.wait_for(hold, pause, [&] { return waiting_ || ending_; });
}

void Executor::loop() {
  std::unique_lock hold(lock_);
  for (;;) {
    rest(hold);
    Stream* s = choose();
    if (!s) {
      if (ending_) return;
      more_.wait(hold);
      continue;
    }
    Work work = std::move(s->queue.front());
    s->queue.pop_front();
    if (work.run) {
      s->busy = true;
      hold.unlock();
      std::string problem = work.run();
      work.run = nullptr;  // with what it holds
      hold.lock();
      s->busy = false;
      if (error_.empty()) error_ = std::move(problem);
    } else if (work.records) {
      work.occurrence->happened = true;
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      work.occurrence->seconds = std::chrono::duration<double>(now).count();
    }
    done_.notify_all();
  }
}

template <class Condition>
void Executor::host_waits(std::unique_lock<std::mutex>& hold, Condition done) {
  ++waiting_;
  more_.notify_one();
  done_.wait(hold, done);
  --waiting_;
}

bool Executor::has_happened(const Occurrence& occurrence) {
  std::lock_guard hold(lock_);
  return occurrence.happened;
}

void Executor::wait_for(const Occurrence& occurrence) {
  std::unique_lock hold(lock_);
  host_waits(hold, [&] { return occurrence.happened; });
}

void Executor::wait_for_stream(int stream) {
  std::unique_lock hold(lock_);
  const auto s = static_cast<size_t>(stream);
  host_waits(hold, [&] {
    return s >= streams_.size() || (streams_[s].queue.empty() && !streams_[s].busy);
  });
}

bool Executor::idle() const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const Stream& s) { return s.queue.empty() && !s.busy; });
}

void Executor::wait_for_all() {
  std::unique_lock hold(lock_);
  host_waits(hold, [&] { return idle(); });
}

bool Executor::elapsed(const Occurrence& from, const Occurrence& to, double& seconds) {
  std::lock_guard hold(lock_);
  if (!from.happened || !to.happened) return false;
  seconds = to.seconds - from.seconds;
  return true;
}

void Executor::report(std::string problem) {
  std::lock_guard hold(lock_);
  if (error_.empty()) error_ = std::move(problem);
}

std::string Executor::take_error() {
  std::lock_guard hold(lock_);
  return std::exchange(error_, "");
}

}  // namespace tandem::gpu
