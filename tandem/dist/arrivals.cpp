// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/arrivals_internal.h"

namespace tandem::distributed {

Arrivals::Arrivals(int ranks) : awaited_(static_cast<size_t>(ranks)) {}

Arrivals::~Arrivals() {
  {
    std::lock_guard hold(lock_);
    ending_ = true;
  }
  changed_.notify_all();
  for (Awaited& a : awaited_)
    if (a.thread.joinable()) a.thread.join();
}

void Arrivals::expect(int rank, Work call) {
  Awaited& a = awaited_[static_cast<size_t>(rank)];
  {
    std::lock_guard hold(lock_);
    a.call = std::move(call);
  }
  if (!a.thread.joinable()) a.thread = std::thread([this, rank] { wait_for(rank); });
  changed_.notify_all();
}

int Arrivals::next() {
  std::unique_lock hold(lock_);
  changed_.wait(hold, [&] { return !ended_.empty(); });
  const auto [rank, error] = ended_.front();
  ended_.pop_front();
  if (error) std::rethrow_exception(error);
  return rank;
}

void Arrivals::wait_for(int rank) {
  Awaited& a = awaited_[static_cast<size_t>(rank)];
  std::unique_lock hold(lock_);
  for (;;) {
    changed_.wait(hold, [&] { return ending_ || a.call; });
    if (!a.call) return;
    Work call = *a.call;
    hold.unlock();
    std::exception_ptr error;
    try {
      call.wait();
    } catch (...) {
      error = std::current_exception();
    }
    hold.lock();
    a.call.reset();
    ended_.emplace_back(rank, error);
    changed_.notify_all();
  }
}

}  // namespace tandem::distributed
