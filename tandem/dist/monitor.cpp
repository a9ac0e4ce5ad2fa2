// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/monitor_internal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/process_state.h"
#include "tandem/base/short_turns.h"
#include "tandem/dist/thread_stack_internal.h"

namespace tandem::distributed {
namespace {

/// Seconds after the deadline within which a carrier gives up and its caller has thrown.
constexpr double kCarrierPause = 3;
constexpr int kExitCode = 70;  ///< of a process that ends because another rank failed

enum FrameType : uint32_t { kBeat, kAbort, kGoodbye, kAskStack, kStack };
struct Frame {
  uint32_t magic = 0x54444D49;
  uint32_t type = kBeat;
  int64_t step = 0, entered = 0, waits_for = -1;
  char text[2000] = "";  ///< the current call, the reason, or a stack
};

}  // namespace

Monitor::Monitor(Mesh& mesh, MonitorOptions options)
    : mesh_(mesh),
      options_(options),
      caller_(this_thread()),
      peers_(static_cast<size_t>(mesh.size)) {
  prepare_stacks();
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  thread_ = std::thread([this] { watch(); });
}

Monitor::~Monitor() {
  ending_ = true;
  const uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof one) < 0) std::perror("eventfd");
  thread_.join();
}

void Monitor::enter_call(int64_t number, std::string call) {
  {
    std::lock_guard hold(lock_);
    call_ = std::move(call);
  }
  entered_ = number;
}

void Monitor::called_here() { caller_ = this_thread(); }

void Monitor::saw(int peer, int64_t step, int64_t number, const std::string& call) {
  std::lock_guard hold(lock_);
  PeerState& s = peers_[static_cast<size_t>(peer)].state;
  s.step = std::max(s.step, step);
  if (number <= s.entered) return;
  s.entered = number;
  s.call = call;
}

std::string Monitor::verdict() const {
  std::lock_guard hold(lock_);
  return verdict_;
}

PeerState Monitor::state(int peer) const {
  std::lock_guard hold(lock_);
  return peers_[static_cast<size_t>(peer)].state;
}

int Monitor::late_rank(int peer) const {
  int late = peer;
  for (int k = 0; k < mesh_.size; ++k) {
    const int next = state(late).waits_for;
    if (next < 0 || next >= mesh_.size) return late;
    if (next == mesh_.rank) break;
    late = next;
  }
  return peer;  // they wait for each other
}

std::string Monitor::name_of(int peer) const {
  const Card& c = mesh_.cards[static_cast<size_t>(peer)];
  return fmt::format("rank {} (host {}, process {})", peer, c.host, c.pid);
}

std::string Monitor::place_of(int peer) const {
  const PeerState s = state(peer);
  if (s.entered == 0) return "which was not seen at any call";
  return fmt::format("last seen in step {} at call #{} {}", s.step, s.entered, s.call);
}

std::string Monitor::stack_of_peer(int peer) {
  {
    std::lock_guard hold(sending_);
    tell(peer, kAskStack, "");
  }
  const Deadline end = after(1);
  while (state(peer).stack.empty() && !has_verdict() && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::string stack = state(peer).stack;
  if (stack.size() < 2) return "";
  return fmt::format("Where rank {} is, the innermost call first:\n{}\n", peer, stack);
}

// Another rank waits for this one, whose thread does not come.
void Monitor::tell_stack(int peer) {
  constexpr int kFrames = 12;
  const std::string stack = stack_of(caller_, kFrames, 0.5);
  std::lock_guard hold(sending_);
  tell(peer, kStack, stack.empty() ? " " : stack);
}

void Monitor::settle(const std::string& text) {
  {
    std::lock_guard hold(lock_);
    if (!verdict_.empty()) return;
    verdict_ = text;
    decided_at_ = Clock::now();
  }
  decided_ = true;
  for (const Lane lane : {kCalls, kPairs})
    for (const Fd& fd : mesh_.sockets[lane])
      if (fd) ::shutdown(fd.get(), SHUT_RDWR);
}

void Monitor::decide(const std::string& text) {
  if (has_verdict()) return;
  tell_all(kAbort, text);
  settle(text);
}

void Monitor::decide_lost(int peer) {
  // Whoever closed it has told why, or the other connection closes as well: both are on their way.
  const Deadline end = after(1);
  while (!has_verdict() && !state(peer).left && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (has_verdict()) return;
  decide(state(peer).left
             ? fmt::format(
                   "{} has left the group, {}\nIts program ended, or it makes fewer calls than "
                   "the others: has it less data?",
                   name_of(peer), place_of(peer))
             : fmt::format("the connection to {} broke, {}", name_of(peer), place_of(peer)));
}

void Monitor::tell(int peer, uint32_t type, const std::string& text) {
  const Fd& fd = mesh_.sockets[kControl][static_cast<size_t>(peer)];
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (!fd || p.mute) return;
  Frame f;
  f.type = type;
  f.step = step_;
  f.entered = entered_;
  f.waits_for = waits_for_;
  std::snprintf(f.text, sizeof f.text, "%s", text.c_str());
  p.mute = !write_all(fd, &f, sizeof f, after(0.1));
}

void Monitor::tell_all(uint32_t type, const std::string& text) {
  std::lock_guard hold(sending_);
  for (int peer = 0; peer < mesh_.size; ++peer) tell(peer, type, text);
}

void Monitor::say_goodbye() { tell_all(kGoodbye, ""); }

void Monitor::take(int peer, std::string_view bytes) {
  Frame f;
  std::memcpy(&f, bytes.data(), sizeof f);
  const std::string text(f.text, ::strnlen(f.text, sizeof f.text));
  if (f.magic != Frame().magic) return;
  {
    std::lock_guard hold(lock_);
    Peer& p = peers_[static_cast<size_t>(peer)];
    p.state.step = std::max(p.state.step, f.step);
    p.state.waits_for = static_cast<int>(f.waits_for);
    if (f.type == kBeat && f.entered > p.state.entered) {
      p.state.entered = f.entered;
      p.state.call = text;
    }
    if (f.type == kGoodbye) p.state.left = true;
    if (f.type == kStack) p.state.stack = text;
  }
  // Passed on before this rank ends by it: others may see that end before the first one's message.
  if (f.type == kAbort) decide(text);
  if (f.type == kAskStack) tell_stack(peer);
}

void Monitor::read_from(int peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  char buffer[4096];
  int64_t n = 0;
  const int fd = mesh_.sockets[kControl][static_cast<size_t>(peer)].get();
  while ((n = read_some(fd, buffer, sizeof buffer)) > 0) {
    p.seen = Clock::now();
    p.buffer.append(buffer, static_cast<size_t>(n));
    size_t at = 0;
    for (; p.buffer.size() - at >= sizeof(Frame); at += sizeof(Frame))
      take(peer, std::string_view(p.buffer).substr(at, sizeof(Frame)));
    p.buffer.erase(0, at);
  }
  if (n == 0) return;
  p.closed = true;
  if (!ending_ && !state(peer).left)
    decide(
        fmt::format("{} is dead: its connections closed without a word, {}\nWhat it printed last "
                    "may tell why; if it was killed, ask the system's log (memory?).",
                    name_of(peer), place_of(peer)));
}

// As far as this machine knows.
bool Monitor::is_stopped(int peer) const {
  const Card& c = mesh_.cards[static_cast<size_t>(peer)];
  const Card& own = mesh_.cards[static_cast<size_t>(mesh_.rank)];
  if (std::string_view(c.host) != own.host) return false;
  return process_state(c.pid).stopped();
}

void Monitor::check_silence() {
  for (int peer = 0; peer < mesh_.size; ++peer) {
    const Peer& p = peers_[static_cast<size_t>(peer)];
    if (peer == mesh_.rank || p.closed || p.state.left) continue;
    const double silent = seconds_since(p.seen);
    if (silent > options_.deadline)
      decide(fmt::format("{} has not answered for {:.1f} s, {}\n{}", name_of(peer), silent,
                         place_of(peer),
                         is_stopped(peer) ? "It is stopped, by a signal or a debugger."
                                          : "It is stopped, or its machine is gone or cut off."));
  }
}

// A thread that waits for nothing of this group would never hear of its end.
void Monitor::check_unheard() {
  const double wait = options_.deadline + (carried_ ? kCarrierPause : 0);
  if (!options_.exit_unheard || heard_ || seconds_since(decided_at_) < wait) return;
  fmt::print(
      stderr,
      "tandem: rank {} in step {} ends, as its group has ended {:.0f} s ago and it made no call "
      "since: {}\n",
      mesh_.rank, step_.load(), options_.deadline, verdict());
  std::fflush(stderr);
  ::_exit(kExitCode);
}

void Monitor::watch() {
  take_short_turns();
  const double pause = std::min(1.0, options_.deadline / 5);
  Deadline next_beat = Clock::now();
  while (!ending_) {
    if (Clock::now() >= next_beat && !has_verdict()) {
      std::string call;
      {
        std::lock_guard hold(lock_);
        call = call_;
      }
      tell_all(kBeat, call);
      next_beat = after(pause);
    }
    std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
    std::vector<int> of{-1};
    for (int peer = 0; peer < mesh_.size; ++peer)
      if (peer != mesh_.rank && !peers_[static_cast<size_t>(peer)].closed) {
        polled.push_back({mesh_.sockets[kControl][static_cast<size_t>(peer)].get(), POLLIN, 0});
        of.push_back(peer);
      }
    const Deadline until = has_verdict() ? after(pause) : next_beat;
    ::poll(polled.data(), polled.size(), poll_milliseconds(until));
    for (size_t i = 1; i < polled.size(); ++i)
      if (polled[i].revents) read_from(of[i]);
    if (has_verdict())
      check_unheard();
    else
      check_silence();
  }
  leave();
}

// Say goodbye and read what is still on its way: closing a socket with unread bytes would take back
// what was said.
void Monitor::leave() {
  say_goodbye();
  const Deadline end = after(0.2);
  for (int peer = 0; peer < mesh_.size; ++peer) {
    const Fd& fd = mesh_.sockets[kControl][static_cast<size_t>(peer)];
    if (!fd) continue;
    ::shutdown(fd.get(), SHUT_WR);
    Peer& p = peers_[static_cast<size_t>(peer)];
    pollfd polled{fd.get(), POLLIN, 0};
    while (!p.closed && !state(peer).left && Clock::now() < end) {
      if (::poll(&polled, 1, std::min(20, poll_milliseconds(end))) > 0) read_from(peer);
    }
  }
}

}  // namespace tandem::distributed
