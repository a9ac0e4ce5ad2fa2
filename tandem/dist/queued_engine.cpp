// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/queued_engine_internal.h"

#include "tandem/base/parallel.h"
#include "tandem/base/short_turns.h"

namespace tandem::distributed {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

Work QueuedEngine::submit(Call call) {
  auto state = std::make_shared<detail::WorkState>();
  {
    std::lock_guard hold(lock_);
    if (failure_) {
      if (heard_) (*heard_)();
      std::rethrow_exception(failure_);
    }
    state->heard = heard_;
    state->log = log_;
    state->number = log_->given(call);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    queue_.push_back({std::move(call), state});
  }
  changed_.notify_all();
  return Work(std::move(state));
}

void QueuedEngine::work() {
  SerialGuard serial;
  take_short_turns();  // each rank waits for all others, whose cores compute
  for (;;) {
    Entry entry;
    std::exception_ptr failure;
    {
      std::unique_lock hold(lock_);
      changed_.wait(hold, [&] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      entry = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      failure = failure_;
      if (!failure) ++made_;
    }
    if (!failure) {
      try {
        log_->begun(entry.state->number);
        run(entry.call, made_);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    log_->ended(entry.state->number, failure ? text_of(failure) : "");
    if (failure) fail(failure);
    entry.state->end(failure);
    {
      std::lock_guard hold(lock_);
      busy_ = false;
    }
    changed_.notify_all();
  }
}

bool QueuedEngine::drain(double seconds) {
  std::unique_lock hold(lock_);
  return changed_.wait_for(hold, std::chrono::duration<double>(seconds),
                           [&] { return queue_.empty() && !busy_; });
}

void QueuedEngine::fail(std::exception_ptr error) {
  {
    std::lock_guard hold(lock_);
    if (failure_) return;
    failure_ = std::move(error);
  }
  log_->write(*this);
}

std::exception_ptr QueuedEngine::failure() {
  std::lock_guard hold(lock_);
  return failure_;
}

void QueuedEngine::finish() {
  {
    std::lock_guard hold(lock_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace tandem::distributed
