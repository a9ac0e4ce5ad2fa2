// SPDX-License-Identifier: Apache-2.0
// A notice that the machine will be taken away: a signal, or a metadata address of a cloud that is
// asked every few seconds on a thread of its own. It asks to stop as StopGuard's signals do, with a
// deadline.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::train {

struct PreemptOptions {
  int signal = 0;  ///< such as SIGUSR1; 0: none
  /// "aws" (/latest/meta-data/spot/instance-action), "gcp" (instance/preempted), or an address
  /// http://...; an answer of 200 whose text is not FALSE or NONE is a notice, 404 is none.
  std::string url = "";
  std::vector<std::pair<std::string, std::string>> headers = {};  ///< of the question
  double every = 5;                                               ///< seconds between questions
  /// Seconds from the notice to the end; 0: what the cloud gives (aws 120, gcp 30), else 30.
  double deadline = 0;
};

/// While it lives a notice asks to stop (stop_requested() is true). It belongs inside a StopGuard.
class TD_API PreemptGuard {
 public:
  /// Throws Value for an address of another form.
  explicit PreemptGuard(const PreemptOptions& options);
  ~PreemptGuard();
  PreemptGuard(const PreemptGuard&) = delete;
  PreemptGuard& operator=(const PreemptGuard&) = delete;

 private:
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

/// True once a notice came while a guard lived; the guard's end forgets it.
TD_API bool preempted();
/// Why a run stops that is asked to: "preempted", "signal 15" or "asked to stop".
TD_API std::string stop_reason();
/// Warns when the deadline is over; called once the state is saved.
TD_API void say_if_late();
/// Seconds that are left of the deadline; below 0: it is over. Infinite without a notice.
TD_API double preempt_seconds_left();
/// SIGUSR1 of "USR1" or "SIGUSR1"; 0 for a name that is not known (USR1, USR2, HUP, TERM).
TD_API int signal_of(const std::string& name);

}  // namespace tandem::train
