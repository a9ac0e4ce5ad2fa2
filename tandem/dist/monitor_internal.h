// SPDX-License-Identifier: Apache-2.0
// Monitor: a thread per group that tells the other ranks where this one is and notices those that
// are dead or do not answer. The first finding of any rank becomes the verdict of all, so every
// rank names the same culprit. After it the sockets of calls are shut down, which wakes whoever
// waits on them.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tandem/dist/rendezvous_internal.h"

namespace tandem::distributed {

struct MonitorOptions {
  double deadline = 10;      ///< seconds without a sign of life
  bool exit_unheard = true;  ///< end the process where nobody has heard the verdict after as long
};

/// What a rank last said of itself.
struct PeerState {
  int64_t step = 0;
  int64_t entered = 0;  ///< number of its last call
  std::string call;     ///< what that is
  bool left = false;    ///< it said goodbye
  std::string stack;    ///< of the thread of its calls; "": not told, " ": it cannot tell
  int waits_for = -1;   ///< the rank whose message it has awaited longest; -1: none
};

class Monitor {
 public:
  Monitor(Mesh& mesh, MonitorOptions options);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // ---- of this rank
  void set_step(int64_t step) { step_ = step; }
  void enter_call(int64_t number, std::string call);
  /// This thread makes this rank's calls.
  void called_here();
  void wait_for(int peer) { waits_for_ = peer; }
  /// A carrier moves a call's elements: its error comes a moment after the verdict.
  void set_carried(bool on) { carried_ = on; }
  int64_t step() const { return step_; }

  /// The finding that ended the group; "" while there is none.
  std::string verdict() const;
  bool has_verdict() const { return decided_; }
  /// This rank's finding: it counts unless there is one, and all are told.
  void decide(const std::string& text);
  /// A socket to `peer` has closed: waits a moment for what is known of the reason, and decides.
  void decide_lost(int peer);
  /// This rank makes no call any more.
  void say_goodbye();
  /// The verdict was thrown to somebody.
  void heard() { heard_ = true; }

  /// A message of that call has come from it.
  void saw(int peer, int64_t step, int64_t number, const std::string& call);
  PeerState state(int peer) const;
  /// Who is late where this rank waits for `peer`: that one may wait for another, and so on.
  int late_rank(int peer) const;
  /// "rank 1 (host a, process 123)".
  std::string name_of(int peer) const;
  /// "last seen in step 4 at call #12 all_reduce ...".
  std::string place_of(int peer) const;
  /// Lines with what the thread of its calls does, or has called, as far as that can be found out
  /// in a second; "" where it cannot. For a rank that lives. Not from this monitor's thread.
  std::string stack_of_peer(int peer);

 private:
  struct Peer {
    PeerState state;
    Clock::time_point seen = Clock::now();
    std::string buffer;
    bool closed = false;
    bool mute = false;  ///< a message to it did not go out whole (under `sending_`)
  };
  void watch();
  void read_from(int peer);
  void take(int peer, std::string_view frame);
  bool is_stopped(int peer) const;
  void check_silence();
  void tell_stack(int peer);
  void tell(int peer, uint32_t type, const std::string& text);
  void tell_all(uint32_t type, const std::string& text);
  void leave();
  void settle(const std::string& text);
  void check_unheard();

  Mesh& mesh_;
  MonitorOptions options_;
  std::atomic<int64_t> step_{0}, entered_{0};
  std::atomic<int> waits_for_{-1};
  std::atomic<int> caller_;  ///< the thread that gave the last call
  std::atomic<bool> ending_{false}, decided_{false}, heard_{false}, carried_{false};
  mutable std::mutex lock_;  ///< of what follows
  std::string call_, verdict_;
  std::vector<Peer> peers_;
  Clock::time_point decided_at_;
  std::mutex sending_;
  Fd wake_;
  std::thread thread_;
};

}  // namespace tandem::distributed
