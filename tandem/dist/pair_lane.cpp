// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/pair_lane_internal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>

#include "tandem/base/error.h"
#include "tandem/base/short_turns.h"

namespace tandem::distributed {

PairLane::PairLane(Mesh& mesh, Monitor& monitor, CallLog& log, double timeout,
                   std::function<void(std::exception_ptr)> failed)
    : mesh_(mesh),
      monitor_(monitor),
      log_(log),
      timeout_(timeout),
      failed_(std::move(failed)),
      pairs_(static_cast<size_t>(mesh.size)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

PairLane::~PairLane() {
  {
    std::lock_guard hold(lock_);
    ending_ = true;
  }
  const uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof one) < 0) std::perror("eventfd");
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<detail::WorkState> PairLane::post(const Call& call) {
  auto state = std::make_shared<detail::WorkState>();
  const bool sends = call.kind == CallKind::send;
  {
    std::lock_guard hold(lock_);
    if (error_) std::rethrow_exception(error_);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    Pair& pair = pairs_[static_cast<size_t>(call.peer)];
    Call both = call;  // the two sides' headers are equal
    both.kind = CallKind::send;
    both.peer = sends ? call.peer : mesh_.rank;
    if (sends) both.out = {const_cast<void*>(call.in.data), call.in.count, call.in.dtype};
    const double seconds = call.options.timeout > 0 ? call.options.timeout : timeout_;
    pair.queue[sends].push_back(
        {Transfer(call.peer, sends, header_of(both, ++pair.posted[sends]), both.out.data,
                  both.out.bytes()),
         state, after(seconds), seconds, to_string(call), Clock::now(),
         call.options.label.empty() ? to_string(call.kind) : call.options.label, both.out.bytes()});
  }
  const uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof one) < 0) std::perror("eventfd");
  return state;
}

bool PairLane::idle() {
  std::lock_guard hold(lock_);
  return is_idle();
}

bool PairLane::is_idle() const {
  for (const Pair& p : pairs_)
    if (!p.queue[0].empty() || !p.queue[1].empty()) return false;
  return true;
}

// The monitor tells it to the others.
void PairLane::tell_whom_it_awaits() {
  int peer = -1;
  Deadline posted = Deadline::max();
  for (size_t k = 0; k < pairs_.size(); ++k) {
    if (pairs_[k].queue[0].empty() || pairs_[k].queue[0].front().posted >= posted) continue;
    posted = pairs_[k].queue[0].front().posted;
    peer = static_cast<int>(k);
  }
  monitor_.wait_for(peer);
}

void PairLane::wait_for_sockets(std::vector<std::pair<Pair*, int>>& ready) {
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
  std::vector<Pair*> of{nullptr};
  {
    std::lock_guard hold(lock_);
    tell_whom_it_awaits();
    for (size_t peer = 0; peer < pairs_.size(); ++peer) {
      const bool in = !pairs_[peer].queue[0].empty(), out = !pairs_[peer].queue[1].empty();
      if (!in && !out) continue;
      polled.push_back({mesh_.sockets[kPairs][peer].get(),
                        static_cast<int16_t>((in ? POLLIN : 0) | (out ? POLLOUT : 0)), 0});
      of.push_back(&pairs_[peer]);
    }
  }
  ::poll(polled.data(), polled.size(), of.size() > 1 ? 200 : 1000);
  uint64_t count = 0;
  if (polled[0].revents && ::read(wake_.get(), &count, sizeof count) < 0) count = 0;
  for (size_t i = 1; i < polled.size(); ++i) {
    const int events = polled[i].revents;
    if (events & (POLLIN | POLLHUP | POLLERR)) ready.emplace_back(of[i], 0);
    if (events & (POLLOUT | POLLHUP | POLLERR)) ready.emplace_back(of[i], 1);
  }
}

void PairLane::move(Pair& pair, int direction) {
  for (;;) {
    Item* item = nullptr;
    {
      std::lock_guard hold(lock_);
      if (pair.queue[direction].empty()) return;
      item = &pair.queue[direction].front();  // a deque's front stays while others are appended
    }
    const int peer = item->transfer.peer();
    const Transfer::State s =
        item->transfer.move(mesh_.sockets[kPairs][static_cast<size_t>(peer)].get(), mesh_.rank);
    if (s == Transfer::kGoing) return;
    if (s == Transfer::kLost) {
      monitor_.decide_lost(peer);
      TD_FAIL(Io, "rank {} in {}: {}", mesh_.rank, item->call, monitor_.verdict());
    }
    log_.pair_ended(item->label, item->bytes);
    std::lock_guard hold(lock_);
    item->state->end();
    pair.queue[direction].pop_front();
  }
}

// What is late, and for which rank's sake; the lock is not held while that rank is asked.
std::optional<PairLane::Late> PairLane::find_late() {
  std::lock_guard hold(lock_);
  for (const Pair& p : pairs_)
    for (const auto& queue : p.queue)
      if (!queue.empty() && Clock::now() > queue.front().end) {
        const Item& i = queue.front();
        return Late{i.transfer.peer(), fmt::format("rank {} has waited {:.1f} s in {} for ",
                                                   mesh_.rank, i.timeout, i.call)};
      }
  return {};
}

void PairLane::check_times() {
  const std::optional<Late> found = find_late();
  if (!found) return;
  const int late = monitor_.late_rank(found->peer);
  const std::string who = fmt::format("{}{}", found->text, monitor_.name_of(late));
  const std::string stack = monitor_.stack_of_peer(late);
  TD_CHECK(late == found->peer, Io,
           "{}, for which others wait too, {}\n{}It computes for longer or hangs. "
           "TANDEM_DIST_TIMEOUT sets how long they wait.",
           who, monitor_.place_of(late), stack);
  TD_FAIL(Io,
          "{}, which is {}\n{}The other side of it is missing: every send needs a matching recv.",
          who, monitor_.place_of(late), stack);
}

void PairLane::end_all(std::exception_ptr error) {
  std::lock_guard hold(lock_);
  error_ = error;
  for (Pair& p : pairs_)
    for (auto& queue : p.queue) {
      for (Item& i : queue) i.state->end(error);
      queue.clear();
    }
}

void PairLane::work() {
  take_short_turns();
  try {
    for (;;) {
      {
        std::lock_guard hold(lock_);
        if (ending_ && is_idle()) return;
      }
      std::vector<std::pair<Pair*, int>> ready;
      wait_for_sockets(ready);
      TD_CHECK(!monitor_.has_verdict(), Io, "rank {}: {}", mesh_.rank, monitor_.verdict());
      for (const auto& [pair, direction] : ready) move(*pair, direction);
      check_times();
    }
  } catch (const Error& e) {
    monitor_.decide(e.text());
    const std::exception_ptr error = std::current_exception();
    end_all(error);
    failed_(error);
  }
}

}  // namespace tandem::distributed
